//! The embedded default store: plain files with checksums beside them, and a catalog in one redb file.
//!
//! [`DirBlocks`] keeps a helper's blocks in a folder. [`DirCatalog`] is a catalog with files of its own, and the
//! coordinator's records; attached stores use it as records only. `docs/reference/dir-store.md` draws every byte and every table.

#![forbid(unsafe_code)]

mod blocks;
mod catalog;
mod checksums;
mod commit;
mod folder;
mod label;
mod place;
mod reader;
#[cfg(test)]
mod tests;
mod tree;
mod windows;
mod writer;

/// Decoders of what is on disks, for `crates/fuzz`.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Decodes a checksum file; whether it is one.
    pub fn checksum_file(bytes: &[u8]) -> bool {
        use super::checksums::Checksums;
        let Ok(checksums) = Checksums::decode(bytes) else { return false };
        assert_eq!(Checksums::decode(&checksums.encode()), Ok(checksums), "it is written as something else");
        true
    }

    /// Whether a file of this name holds a block's bytes.
    pub fn is_block_name(name: &str) -> bool {
        super::place::is_block_name(name)
    }
}

pub use blocks::DirBlocks;
pub use catalog::{CATALOG_VERSION, CatalogSnapshot, DirCatalog, Rebuilt, Rival};
