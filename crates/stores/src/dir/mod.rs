//! The embedded default: plain files with checksums beside them, and a catalog in one redb file.
//!
//! [`DirBlocks`] keeps a helper's blocks in a folder; [`DirCatalog`] keeps the coordinator's files, stripes
//! and nodes. `docs/dir-store.md` draws every byte and every table.

mod blocks;
mod catalog;
mod checksums;
mod commit;
mod extents;
mod folder;
mod label;
mod place;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use blocks::DirBlocks;
pub use catalog::{
    CATALOG_VERSION, DirCatalog, FileRecord, Inventory, NodeRecord, OpenError, PutError, PutId, PutRecord,
    Rebuilt, Snapshot,
};
