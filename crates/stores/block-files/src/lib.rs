//! The common parts of stores whose blocks are local files: conversion of I/O errors, write-back while a
//! block is being written, paced reads, and reads from the page cache.
//!
//! This crate imports no store. The disk access and threads are here so that `store-api` needs neither.

#![forbid(unsafe_code)]

mod cached;
mod chunks;
mod draft;
mod extents;
mod faults;
mod folders;
mod niceness;
mod steady;
mod stored;
mod through;
mod watch;

pub use cached::{Wait, forget, forget_all, open_cached, read_ahead, read_exact, read_exact_cached};
pub use chunks::read_by_chunks;
pub use draft::Draft;
pub use extents::Extents;
pub use faults::{
    block_fault, corrupt, fault, is_full, is_medium_error, is_of_disk, is_of_medium, is_shortage, missing,
    open_file, proves_absence, range_end,
};
pub use folders::{
    FolderLock, FolderPlace, OWN_LOCK, OWN_PREFIX, OwnNames, check_writable, exists, file_bytes, free_bytes,
    most_free, names, names_if_any, parent, remove_all, remove_file, sync_folder,
};
pub use niceness::yield_processors;
pub use steady::SteadyFile;
pub use stored::StoredBlock;
pub use through::read_through;
pub use watch::{DiskWatch, look_at_all, silent_folders};
