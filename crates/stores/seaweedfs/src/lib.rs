//! SeaweedFS as a store: reads and writes shard files on the helpers' machines, and calls masters and volume
//! servers from the coordinator.
//!
//! Mend uses only calls that an unmodified SeaweedFS 4.48 supports. [`Volumes`] is a pure model of the
//! cluster, built from the servers' replies: it derives missing shards and surplus copies. The module `blocks`
//! reads and writes the files. `docs/reference/seaweedfs.md` describes formats and calls.

#![forbid(unsafe_code)]

mod address;
mod attach;
mod blocks;
mod config;
mod connect;
mod connections;
mod error;
mod kind;
mod listing;
mod lock;
mod master;
mod security;
mod server;
mod storage;
mod volumes;
mod watch;

/// Code generated from the .proto files; `tests/generated.rs` checks that it is up to date.
#[allow(missing_docs, clippy::all)]
#[rustfmt::skip]
mod generated {
    pub mod master_pb {
        include!("generated/master_pb.rs");
    }
    pub mod volume_server_pb {
        include!("generated/volume_server_pb.rs");
    }
}

pub use address::{BadAddress, ListedAddress, ServerAddress};
#[cfg(feature = "fuzzing")]
pub use blocks::fuzzing;
pub use blocks::{
    Ecsum, EcsumError, EncodedVolume, Encoding, MAX_SHARDS, NotAShard, NotAnEncoding, Protection, Ratio,
    ShardBlocks, ShardFacts, ShardName, ShardSums, VifError, VolumeInfo, VolumeName,
};
pub use error::AskError;
pub use kind::Seaweedfs;
pub use listing::{Disk, Holding, Listing, Server, ServerId};
pub use lock::{LOCK_NAME, Lock, LockHolder};
pub use master::{Maintenance, MasterClient};
pub use security::{Security, SecurityError};
pub use server::{MountedShards, ServerStatus, SmallFile, SmallFileReader, VolumeServer};
pub use storage::{AttachError, Attachment, POLICY, open};
pub use volumes::{Change, Generation, Home, Standing, Volume, Volumes};
pub use watch::{Event, Watch};
