//! Tests of [`DirBlocks`](super::DirBlocks): comparison with a plain byte vector, damage, crashes and full
//! disks.

mod behind;
mod crashes;
mod damage;
mod folders;
mod model;

use std::path::PathBuf;
use std::sync::Arc;

use block_files::StoredBlock;
use codes::BlockIndex;
use repair::{BlockId, Sink, SinkEnd};
use store_api::{BlockError, Blocks, Intake, OpenGate};
use tempfile::TempDir;

use super::DirBlocks;
use super::block_paths::BlockPaths;

/// A folder with an open store.
struct TestStore {
    folder: TempDir,
    blocks: DirBlocks,
}

impl TestStore {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let blocks = DirBlocks::open(folder.path()).expect("a new folder");
        Self { folder, blocks }
    }

    /// Restarts the helper after a crash.
    fn restart(self) -> Self {
        drop(self.blocks);
        let blocks = DirBlocks::open(self.folder.path()).expect("the folder is free");
        Self { folder: self.folder, blocks }
    }

    fn place(&self, block: &BlockId) -> BlockPaths {
        BlockPaths::of(self.folder.path(), block).expect("a block's name")
    }

    /// Stores a block and returns its digest.
    fn store(&self, block: &BlockId, bytes: &[u8]) -> Option<repair::Digest> {
        let mut writer = self.blocks.create(&sink(block, bytes.len() as u64)).expect("space");
        writer.write_at(0, bytes).expect("written");
        let digest = writer.seal().expect("complete");
        writer.commit().expect("committed");
        digest
    }

    fn open(&self, block: &BlockId) -> Result<Arc<dyn StoredBlock>, BlockError> {
        self.blocks.open_block(block)
    }

    /// Returns all bytes of a block.
    fn load(&self, block: &BlockId) -> Result<Vec<u8>, BlockError> {
        let reader = self.open(block)?;
        let mut bytes = vec![0; reader.bytes() as usize];
        reader.read_at(0, &mut bytes)?;
        reader.verify(&OpenGate)?;
        Ok(bytes)
    }

    /// Returns the names of all files below the folder, except the lock file.
    fn files(&self) -> Vec<String> {
        let mut names = Vec::new();
        for shard in std::fs::read_dir(self.folder.path()).expect("readable") {
            let shard: PathBuf = shard.expect("readable").path();
            if shard.is_dir() {
                let entries = std::fs::read_dir(shard).expect("readable");
                names.extend(
                    entries.map(|entry| entry.expect("readable").file_name().into_string().expect("text")),
                );
            }
        }
        names.sort();
        names
    }
}

/// Returns a sink for a block without a stripe.
fn sink(id: &BlockId, bytes: u64) -> Sink {
    Sink {
        index: BlockIndex(0),
        id: id.clone(),
        bytes,
        digest: None,
        end: SinkEnd::Kept { label: None, permit: None },
    }
}

fn id(name: &str) -> BlockId {
    BlockId(name.to_owned())
}

/// Returns pseudo-random bytes that differ between chunks and between seeds.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}
