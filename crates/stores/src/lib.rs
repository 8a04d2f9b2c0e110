//! The seams to storage systems: a few traits, one folder per system.
//!
//! [`Blocks`] is the helper's half: a node's own blocks, read at any offset, made, verified and removed. It is opened
//! through [`Sources`] and [`Sinks`], as what a client's request brings along is; a [`Delivery`] says what becomes of it in
//! the end. The coordinator
//! has three: [`Catalog`], stripes as any store knows them, and publishing a repaired block so that the store itself sees
//! it as healthy; [`Files`], which only a store with files of its own has; and [`Records`], the coordinator's own. All are
//! synchronous; their drivers decide on which thread they wait. [`Storage`] is the three together, asked by values.

#![forbid(unsafe_code)]

pub mod attached;
mod blocks;
mod catalog;
pub mod dir;
mod ends;
mod gate;
pub mod hdfs;
mod niceness;
mod seams;
pub mod seaweedfs;
mod steady;
mod through;

pub use blocks::{BlockError, BlockReader, Blocks, ProcessError, StoredBlock};
pub use catalog::{BlockRecord, BlockSize, BlockState, Catalog, CatalogError, Fault, Replica, StripeRecord};
pub use ends::{
    BlockWriter, Delivery, HandOver, HandOverTerms, Intake, Later, Publish, ReadBack, Sinks, Sources, Taker,
};
pub use gate::{Closed, Gate, OpenGate};
pub use niceness::yield_processors;
pub use seams::{
    Answer, Done, FileWrite, Files, Nature, RecordWrite, Records, Reply, Storage, StoreChange, StoreError,
    StripeWrite, Term, Unjudged, Write,
};
