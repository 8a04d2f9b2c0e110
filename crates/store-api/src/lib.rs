//! The interfaces ("seams") between Mend and storage systems. This crate imports no store and uses no disk,
//! socket or thread.
//!
//! **Helper side.** [`Blocks`] is the set of blocks on one node. [`Sources`] opens blocks for reading,
//! [`Sinks`] for writing. A [`Delivery`] determines how a written block is published.
//!
//! **Coordinator side.** Three traits, which a store implements independently of each other:
//!
//! | trait | contents | implementations |
//! |---|---|---|
//! | [`Catalog`] | stripes and where their blocks are | `dir`, `attached` (under `hdfs` and `seaweedfs`) |
//! | [`Files`] | files that are put through Mend | `dir` |
//! | [`Records`] | nodes, repair queue, pending removals, counters | redb in `dir`; etcd may follow |
//!
//! A store may also [describe](DescribedStripe) stripes outside its catalog, and have a [`Rebuilder`] make blocks of them.
//!
//! A [`Storage`] combines the three: any catalog, with or without files, over any records. A [`StorePolicy`]
//! describes how one kind of store differs from the others. `crates/stores/tests/toy` is a complete store in
//! one file.

#![forbid(unsafe_code)]

mod blocks;
mod described;
mod digest;
mod ends;
mod eras;
mod errors;
mod file_work;
mod files;
mod gate;
pub mod names;
mod policy;
mod seams;
mod storage;
mod stripes;
mod unproven;
mod writes;

pub use blocks::{BlockError, BlockList, BlockReader, Blocks, ProcessError};
pub use described::{
    DescribedBlock, DescribedStripe, LateRebuilder, Rebuild, RebuildError, Rebuilder, Rebuilt,
};
pub use digest::{BlockHash, DIGEST_KIND};
pub use ends::{
    BlockWriter, Delivery, HandOver, HandOverTerms, Intake, Later, Publish, ReadBack, Sinks, Sources,
};
pub use eras::Eras;
pub use errors::{OpenError, PutError};
pub use file_work::{EncodedFiles, FileBacklog, FileWork, FileWorkKind};
pub use files::{FileRecord, Inventory, NodeRecord, PutId, PutRecord, stripe_count};
pub use gate::{Closed, Gate, OpenGate};
pub use policy::{Checksums, Lists, Ownership, Service, Spread, StorePolicy, Writers};
pub use seams::{Catalog, Files, Listener, Records, Reply, Snapshot, Transaction};
pub use storage::{SharedRecords, Storage};
pub use stripes::{BlockRecord, BlockSize, BlockState, CatalogError, Fault, Replica, StripeRecord};
pub use unproven::{Replaced, UNPROVEN, Unproven};
pub use writes::{
    Answer, Done, FileWrite, Origin, OtherData, RecordWrite, StoreChange, StoreError, StripeWrite, Term,
    Unjudged, Write,
};
