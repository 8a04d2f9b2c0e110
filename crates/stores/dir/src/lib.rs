//! The embedded default store: blocks as plain files with checksum files, and a catalog in one redb file.
//!
//! [`DirBlocks`] stores a helper's blocks in a folder. [`DirCatalog`] stores stripes, the files that users
//! put, and the coordinator's records; attached stores use it for the records only.
//! `docs/reference/dir-store.md` shows the layout of every file and table.

#![forbid(unsafe_code)]

mod block_paths;
mod blocks;
mod catalog;
mod checksums;
mod commit;
mod folder;
mod label;
mod reader;
#[cfg(test)]
mod tests;
mod tree;
mod windows;
mod writer;

/// Decoders of on-disk formats, for `crates/fuzz`.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Decodes a checksum file. Returns whether it is valid.
    pub fn checksum_file(bytes: &[u8]) -> bool {
        use super::checksums::Checksums;
        let Ok(checksums) = Checksums::decode(bytes) else { return false };
        assert_eq!(Checksums::decode(&checksums.encode()), Ok(checksums), "it is written as something else");
        true
    }

    /// Whether a file of this name contains a block's bytes.
    pub fn is_block_name(name: &str) -> bool {
        super::block_paths::is_block_name(name)
    }
}

pub use blocks::DirBlocks;
pub use catalog::{CATALOG_VERSION, CatalogSnapshot, DirCatalog, Rebuilt, Rival, Stranger, Unconfirmed};
