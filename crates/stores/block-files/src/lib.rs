//! The common parts of stores whose blocks are local files: conversion of I/O errors, write-back while a
//! block is being written, paced reads, and reads from the page cache.
//!
//! This crate imports no store. The disk access and threads are here so that `store-api` needs neither.

#![forbid(unsafe_code)]

mod cached;
mod extents;
mod faults;
mod niceness;
mod steady;
mod stored;
mod through;

pub use cached::{ASKED_AT_ONCE_BYTES, forget, open_cached, read_exact_cached};
pub use extents::Extents;
pub use faults::{beyond, block_fault, corrupt, fault, sync_folder};
pub use niceness::yield_processors;
pub use steady::SteadyFile;
pub use stored::StoredBlock;
pub use through::read_through;
