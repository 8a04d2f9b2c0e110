//! Second names of blocks.
//!
//! The coordinator accepts descriptions only of stripes that are not in its catalog. So the rounds move copies
//! of blocks under names that the catalog does not contain.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use codes::BlockIndex;
use dir::DirBlocks;
use repair::{BlockId, Sink, SinkEnd};
use store_api::BlockError;

use crate::error::LabError;
use crate::instruction::BlockAt;
use crate::nodes::cluster::named;

/// The second name of a block or stripe.
pub(super) fn second_name(name: &str) -> String {
    format!("fastpr_{name}")
}

/// The name of a block that was copied from the failing node, and of the stripe that describes the copy.
pub(super) fn copy_name(name: &str) -> String {
    format!("copy_{name}")
}

/// Stores these blocks a second time on their helpers, under their second names. No helper may be running in
/// the cluster folder.
pub(super) fn add<'a>(cluster: &Path, blocks: impl IntoIterator<Item = &'a BlockAt>) -> Result<(), LabError> {
    let mut by_node: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    blocks.into_iter().for_each(|at| by_node.entry(&at.node).or_default().push(&at.block));
    for (node, blocks) in by_node {
        let folder = cluster.join("helpers").join(node).join("blocks");
        let paths = named(&folder).map_err(LabError::file("read", &folder))?;
        let failed = |error: BlockError| LabError::Cluster(error.to_string());
        let store = DirBlocks::open(&folder).map_err(failed)?;
        for block in blocks {
            let path = paths.get(block).ok_or_else(|| LabError::Cluster(format!("{node} lacks {block}")))?;
            let bytes = fs::read(path).map_err(LabError::file("read", path))?;
            write(&store, second_name(block), &bytes).map_err(failed)?;
        }
    }
    Ok(())
}

fn write(store: &DirBlocks, name: String, bytes: &[u8]) -> Result<(), BlockError> {
    let end = SinkEnd::Kept { label: None, permit: None };
    let (index, bytes_count) = (BlockIndex(0), bytes.len() as u64);
    let sink = Sink { index, id: BlockId(name), bytes: bytes_count, digest: None, end };
    let mut writer = store.create(&sink)?;
    writer.write_at(0, bytes)?;
    writer.seal()?;
    writer.commit().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_under_both_names() {
        let cluster = tempfile::tempdir().unwrap();
        let folder = cluster.path().join("helpers/h1/blocks");
        fs::create_dir_all(&folder).unwrap();
        write(&DirBlocks::open(&folder).unwrap(), "17.3".to_owned(), b"bytes").unwrap();
        let at = BlockAt { block: "17.3".to_owned(), node: "h1".to_owned() };
        add(cluster.path(), [&at]).unwrap();
        let found = named(&folder).unwrap();
        assert_eq!(fs::read(&found["17.3"]).unwrap(), b"bytes");
        assert_eq!(fs::read(&found["fastpr_17.3"]).unwrap(), b"bytes");
        let missing = BlockAt { block: "18.0".to_owned(), node: "h1".to_owned() };
        assert!(add(cluster.path(), [&missing]).unwrap_err().to_string().contains("h1 lacks 18.0"));
    }
}
