//! Shared code of the stores whose blocks are local files: folders and their locks, file errors as block errors, blocks
//! under construction, write-back, paced reading, reads by chunk, and reads from the page cache.
//!
//! It imports no store. `store-api` stays free of disks and threads because this crate holds them.

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

pub use cached::{Wait, forget, forget_all, open_cached, read_ahead, read_exact, read_exact_cached};
pub use chunks::read_by_chunks;
pub use draft::Draft;
pub use extents::Extents;
pub use faults::{block_fault, corrupt, fault, missing, open_file, range_end};
pub use folders::{
    FolderLock, OWN_LOCK, OWN_PREFIX, OwnNames, exists, file_bytes, free_bytes, names, names_if_any, parent,
    remove_all, remove_file, sync_folder,
};
pub use niceness::yield_processors;
pub use steady::SteadyFile;
pub use stored::StoredBlock;
pub use through::read_through;
