//! What stores whose blocks are local files share: errors of files as errors of blocks, write-back while a block comes,
//! paced reading, and reads from the page cache.
//!
//! It imports no store. `store-api` stays free of disks and threads because this crate holds them.

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
