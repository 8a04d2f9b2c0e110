//! SeaweedFS: the shards of a volume server beside a helper, and the masters beside the coordinator.
//!
//! Nothing is asked that an unmodified SeaweedFS 4.48 does not answer. [`Volumes`] is the picture that is made
//! of the answers, pure and without I/O: what is missing, what is surplus, and where a rebuilt shard belongs. The files
//! themselves are in `stores::seaweedfs`. `docs/reference/seaweedfs.md` has the facts.

#![forbid(unsafe_code)]

mod address;
mod attach;
mod blocks;
mod config;
mod connect;
mod error;
mod kind;
mod listing;
mod lock;
mod master;
mod placement;
mod security;
mod server;
mod storage;
mod volumes;
mod watch;

/// What the .proto files make; `tests/generated.rs` keeps the two together.
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

pub use address::{BadAddress, ServerAddress};
#[cfg(feature = "fuzzing")]
pub use blocks::fuzzing;
pub use blocks::{
    Ecsum, EcsumError, Encoding, MAX_SHARDS, NotAShard, Protection, Ratio, ShardBlocks, ShardFacts,
    ShardName, ShardSums, VifError, VolumeInfo, VolumeName,
};
pub use error::AskError;
pub use kind::Seaweedfs;
pub use listing::{Disk, Holding, Listing, Server, ServerId};
pub use lock::{LOCK_NAME, Lock, LockHolder};
pub use master::{Maintenance, MasterClient};
pub use placement::{NoPlace, Place, place};
pub use security::{Security, SecurityError};
pub use server::{MountedShards, ServerStatus, SmallFile, SmallFileReader, VolumeServer};
pub use storage::{AttachError, Attachment, POLICY, open};
pub use volumes::{Change, Generation, Home, Standing, Volume, Volumes};
pub use watch::{Event, Watch};
