//! The folder of a helper's blocks: its lock, its 256 subfolders, and the cleanup at startup.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{self, Mutex, MutexGuard, PoisonError};

use block_files::{
    FolderLock, block_fault, exists, fault, file_bytes, free_bytes, names, remove_all, sync_folder,
};
use repair::BlockId;
use repair::wire::control::HeldBlock;
use store_api::BlockError;

use super::block_paths::{BlockPaths, CHECKSUMS_SUFFIX, TEMPORARY_PREFIX, is_block_name, parse_intent};
use super::commit::{self};

const LOCK_NAME: &str = ".lock";
/// The file that is written to find out whether the disk accepts writes.
const PROBE_NAME: &str = ".probe";
const TAKEN: &str = "another helper uses this folder; stop it, or give this helper a folder of its own";
const SHARDS: usize = 256;

/// A folder that is locked against other helpers until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// One lock per subfolder. The lock makes lookups and changes of a block's two files atomic.
    shards: Vec<Mutex<()>>,
    generation: AtomicU64,
    lock: FolderLock,
}

impl Folder {
    /// Locks the folder, creates it if necessary, and cleans up after a crash.
    pub(super) fn open(root: &Path) -> Result<Self, BlockError> {
        create_root(root)?;
        let lock = FolderLock::take(root, LOCK_NAME, TAKEN)?;
        for folder in shard_folders(root)? {
            match clean(root, &folder) {
                // Intact blocks can still be read.
                Err(error) if is_read_only(&error) => tracing::warn!(%error, "cannot clean up a folder"),
                cleaned => cleaned?,
            }
        }
        let shards = (0..SHARDS).map(|_| Mutex::new(())).collect();
        // The cleanup has removed all temporary files, so generations can restart at 1.
        Ok(Self { root: root.to_owned(), shards, generation: AtomicU64::new(1), lock })
    }

    /// Returns the free space for new blocks, in bytes.
    ///
    /// # Errors
    /// [`BlockError::Io`], also if another folder is at the path now.
    pub(super) fn free_bytes(&self) -> Result<u64, BlockError> {
        self.lock.check()?;
        free_bytes(&self.root)
    }

    /// Checks that a file can be stored durably and removed again.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub(super) fn check_writable(&self) -> Result<(), BlockError> {
        let path = self.root.join(PROBE_NAME);
        let write = || {
            let mut file = fs::File::create(&path)?;
            file.write_all(&[0])?;
            file.sync_data()
        };
        write().and_then(|()| fs::remove_file(&path)).map_err(fault(&path))
    }

    /// Whether another folder is at the path now that a helper has used before: it has a lock file. The empty
    /// folder that remains when a disk is unmounted usually has none.
    pub(super) fn is_displaced(&self) -> bool {
        self.lock.check().is_err() && self.root.join(LOCK_NAME).exists()
    }

    /// Returns the paths of a block's files, whether or not the block exists.
    pub(super) fn place(&self, block: &BlockId) -> Result<BlockPaths, BlockError> {
        BlockPaths::of(&self.root, block)
    }

    /// Returns a number that no other writer uses in the names of its files.
    pub(super) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed)
    }

    /// Locks the file names in a subfolder.
    pub(super) fn lock_shard(&self, shard: u8) -> MutexGuard<'_, ()> {
        // The lock guards names on disk, which are consistent even if the holder of the lock panicked.
        self.shards[usize::from(shard)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`lock_shard`](Self::lock_shard), but returns `None` if the lock is taken.
    pub(super) fn try_lock_shard(&self, shard: u8) -> Option<MutexGuard<'_, ()>> {
        match self.shards[usize::from(shard)].try_lock() {
            Ok(guard) => Some(guard),
            Err(sync::TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Creates the subfolder of a block if it is missing.
    pub(super) fn create_shard(&self, place: &BlockPaths) -> Result<(), BlockError> {
        let _shard = self.lock_shard(place.shard);
        match fs::create_dir(&place.folder) {
            Ok(()) => sync_folder(&self.root),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(block_fault(&place.id, &place.folder)(error)),
        }
    }

    /// Returns all blocks that have both their files, sorted by name.
    pub(super) fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
        let mut held = Vec::new();
        for folder in shard_folders(&self.root)? {
            let names = names(&folder)?;
            let whole =
                names.iter().filter(|name| is_block_name(name) && names.contains(&checksums_of(name)));
            for name in whole {
                held.extend(measure(&folder, name)?);
            }
        }
        held.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(held)
    }
}

fn checksums_of(block: &str) -> String {
    format!("{block}{CHECKSUMS_SUFFIX}")
}

/// Returns the block and its length; `None` if the block was removed after its name was listed.
fn measure(folder: &Path, name: &str) -> Result<Option<HeldBlock>, BlockError> {
    let bytes = file_bytes(&folder.join(name))?;
    Ok(bytes.map(|bytes| HeldBlock { id: BlockId(name.to_owned()), bytes }))
}

fn create_root(root: &Path) -> Result<(), BlockError> {
    if exists(root)? {
        return Ok(());
    }
    fs::create_dir_all(root).map_err(fault(root))?;
    let root = fs::canonicalize(root).map_err(fault(root))?;
    root.parent().map_or(Ok(()), sync_folder)
}

/// Returns the existing subfolders, sorted.
fn shard_folders(root: &Path) -> Result<Vec<PathBuf>, BlockError> {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_shard = |name: &String| name.len() == 2 && name.bytes().all(is_hex);
    Ok(names(root)?.iter().filter(|name| is_shard(name)).map(|name| root.join(name)).collect())
}

fn is_read_only(error: &BlockError) -> bool {
    matches!(error, BlockError::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem)
}

/// Completes or removes unfinished work of a crashed process in a subfolder.
fn clean(root: &Path, folder: &Path) -> Result<(), BlockError> {
    let mut finished = false;
    for (generation, block) in names(folder)?.iter().filter_map(|name| parse_intent(name)) {
        let place = BlockPaths::of(root, &block)?;
        commit::finish(&place, &place.temporary(generation))?;
        finished = true;
    }
    if finished {
        sync_folder(folder)?;
    }
    remove_all(folder, leftovers(&names(folder)?))
}

/// Returns the names of temporary files, and of checksum files without a block.
fn leftovers(names: &BTreeSet<String>) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| {
        let orphan = name
            .strip_suffix(CHECKSUMS_SUFFIX)
            .is_some_and(|block| is_block_name(block) && !names.contains(block));
        name.starts_with(TEMPORARY_PREFIX) || orphan
    })
}
