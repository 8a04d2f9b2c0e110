//! The paths of a block's files, and the valid names of blocks.

use std::path::{Path, PathBuf};

use repair::BlockId;
use store_api::BlockError;

use super::checksums::crc32c;

/// The suffix of a checksum file, after the block's name.
pub(super) const CHECKSUMS_SUFFIX: &str = ".crc";
/// The prefix of unfinished files.
pub(super) const TEMPORARY_PREFIX: &str = ".tmp-";
/// The prefix of the name of an intent, the file that marks a replacement in progress.
pub(super) const INTENT_PREFIX: &str = ".commit-";

const MAX_NAME_BYTES: usize = 200; // The longest derived name, that of an intent, stays below 255 bytes.

/// The paths of a block's files.
#[derive(Clone, Debug)]
pub(super) struct BlockPaths {
    /// The block's name, which was validated.
    pub(super) id: BlockId,
    /// The number of the subfolder, 0 to 255.
    pub(super) shard: u8,
    /// The subfolder.
    pub(super) folder: PathBuf,
    /// The file of the block's bytes.
    pub(super) block: PathBuf,
    /// The file of the block's checksums.
    pub(super) checksums: PathBuf,
}

impl BlockPaths {
    /// Returns the paths for block `id` below `root`, whether or not the block exists.
    pub(super) fn of(root: &Path, id: &BlockId) -> Result<Self, BlockError> {
        if !is_block_name(&id.0) {
            return Err(BlockError::BadName(id.0.clone()));
        }
        let shard = crc32c(id.0.as_bytes()).to_be_bytes()[3];
        let folder = root.join(format!("{shard:02x}"));
        let block = folder.join(&id.0);
        let checksums = folder.join(format!("{id}{CHECKSUMS_SUFFIX}"));
        Ok(Self { id: id.clone(), shard, folder, block, checksums })
    }

    /// Returns the temporary files of one writer.
    pub(super) fn temporary(&self, generation: u64) -> Temporary {
        let block = self.folder.join(format!("{TEMPORARY_PREFIX}{generation:016x}"));
        let checksums = self.folder.join(format!("{TEMPORARY_PREFIX}{generation:016x}{CHECKSUMS_SUFFIX}"));
        let intent =
            self.folder.join(format!("{INTENT_PREFIX}{generation:016x}-{}{CHECKSUMS_SUFFIX}", self.id));
        Temporary { block, checksums, intent }
    }
}

/// The temporary files of a block that is being written.
#[derive(Clone, Debug)]
pub(super) struct Temporary {
    /// The file of the block's bytes.
    pub(super) block: PathBuf,
    /// The file of the block's checksums, once sealed.
    pub(super) checksums: PathBuf,
    /// The intent: the path of the checksum file while the block is being replaced.
    pub(super) intent: PathBuf,
}

/// Parses the name of an intent into the generation and the block.
pub(super) fn parse_intent(name: &str) -> Option<(u64, BlockId)> {
    let rest = name.strip_prefix(INTENT_PREFIX)?.strip_suffix(CHECKSUMS_SUFFIX)?;
    let (generation, id) = rest.split_once('-')?;
    let generation = u64::from_str_radix(generation, 16).ok()?;
    is_block_name(id).then(|| (generation, BlockId(id.to_owned())))
}

/// Whether a file of this name contains a block's bytes.
pub(super) fn is_block_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('.')
        && !name.ends_with(CHECKSUMS_SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_denote_another_file_are_refused() {
        let long = "x".repeat(201);
        for name in ["", ".", "..", ".tmp-1", "a/b", "a\\b", "a\0b", "ä", "a b", "1.0.crc", long.as_str()] {
            let error = BlockPaths::of(Path::new("/r"), &BlockId(name.to_owned())).expect_err(name);
            assert!(matches!(error, BlockError::BadName(named) if named == name));
        }
        for name in ["17.3", "blk_-123.meta", "a", &long[1..], "x.crc.y"] {
            assert!(is_block_name(name), "{name}");
        }
    }

    #[test]
    fn the_name_of_an_intent_contains_its_block() {
        let place = BlockPaths::of(Path::new("/r"), &BlockId("a-17.3".to_owned())).expect("a name");
        let intent = place.temporary(0x2a).intent;
        let name = intent.file_name().and_then(|name| name.to_str()).expect("text");
        assert_eq!(name, ".commit-000000000000002a-a-17.3.crc");
        assert_eq!(parse_intent(name), Some((42, place.id)));
        assert_eq!(parse_intent(".commit-xyz-17.3.crc"), None);
        assert_eq!(parse_intent(".commit-00-../x.crc"), None);
    }
}
