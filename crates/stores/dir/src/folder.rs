//! The folder of a helper's blocks: its lock, its 256 subfolders, and the cleanup at startup.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{self, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use block_files::{
    FolderLock, block_fault, exists, fault, file_bytes, free_bytes, is_shortage, names, proves_absence,
    remove_all, sync_folder,
};
use repair::BlockId;
use repair::wire::control::HeldBlock;
use store_api::{BlockError, BlockList};

use super::block_paths::{BlockPaths, CHECKSUMS_SUFFIX, TEMPORARY_PREFIX, is_block_name, parse_intent};
use super::commit::{self};

const LOCK_NAME: &str = ".lock";
/// The prefix of the files that are written to find out whether the disk accepts writes.
const PROBE_PREFIX: &str = ".probe";
const TAKEN: &str = "another helper uses this folder; stop it, or give this helper a folder of its own";
const SHARDS: usize = 256;

/// A folder that is locked against other helpers until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// One lock per subfolder. The lock makes lookups and changes of a block's two files atomic.
    shards: Vec<Mutex<Shard>>,
    generation: AtomicU64,
    /// The subfolders that the last list omits wholly or in part, with the reasons.
    unlisted: Mutex<BTreeMap<PathBuf, String>>,
    lock: FolderLock,
}

/// What is known about a subfolder.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Whether this process has made the subfolder's name durable.
    is_durable: bool,
}

impl Folder {
    /// Locks the folder, creates it if necessary, and cleans up after a crash.
    pub(super) fn open(root: &Path) -> Result<Self, BlockError> {
        create_root(root)?;
        let lock = FolderLock::take(root, LOCK_NAME, TAKEN)?;
        let mut is_clean = true;
        for folder in shard_folders(root)? {
            is_clean &= tolerated(clean(root, &folder), "cannot clean up a folder")?.is_some();
        }
        tolerated(remove_probes(root), "cannot remove the files of earlier checks of the disk")?;
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        // The cleanup removes all temporary files, so generations can restart at 1. If some files remain, new
        // generations must differ from theirs.
        let generation = if is_clean { 1 } else { unix_nanoseconds() };
        let generation = AtomicU64::new(generation);
        Ok(Self { root: root.to_owned(), shards, generation, unlisted: Mutex::default(), lock })
    }

    /// Checks that the opened folder is still at its path.
    ///
    /// # Errors
    /// [`BlockError::Unmounted`].
    pub(super) fn check(&self) -> Result<(), BlockError> {
        self.lock.check()
    }

    /// Returns the error to report for a block that cannot be opened or read. If the folder's disk was
    /// unmounted, the error says so, because the block is then neither missing nor corrupt.
    pub(super) fn explained(&self, error: BlockError) -> BlockError {
        self.check().err().unwrap_or(error)
    }

    /// Returns the free space for new blocks, in bytes.
    ///
    /// # Errors
    /// [`BlockError::Io`]; [`BlockError::Unmounted`] if another folder is at the path now.
    pub(super) fn free_bytes(&self) -> Result<u64, BlockError> {
        self.check()?;
        free_bytes(&self.root)
    }

    /// Checks that a file can be stored durably and removed again. Also examines the subfolders again that
    /// could not be listed.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    pub(super) fn check_writable(&self) -> Result<(), BlockError> {
        // An earlier check may still wait for a slow disk, so every check has a file of its own.
        let path = self.root.join(format!("{PROBE_PREFIX}{:016x}", self.next_generation()));
        let write = || {
            let mut file = fs::File::create(&path)?;
            file.write_all(&[0])?;
            file.sync_data()
        };
        let written = write();
        let removed = fs::remove_file(&path); // Also after a failure: a full disk would fill up with such files.
        self.look_again();
        written.and(removed).map_err(fault(&path))
    }

    /// Removes the subfolders from `unlisted` that can be listed now. The helper then registers again, with all
    /// their blocks.
    fn look_again(&self) {
        let unlisted: Vec<PathBuf> = self.unlisted().keys().cloned().collect();
        let listed = unlisted.into_iter().filter(|folder| list_shard(folder, &mut Vec::new()).is_ok());
        let listed: Vec<PathBuf> = listed.collect();
        self.unlisted().retain(|folder, _| !listed.contains(folder));
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
    pub(super) fn lock_shard(&self, shard: u8) -> MutexGuard<'_, Shard> {
        // The lock guards names on disk, which are consistent even if the holder of the lock panicked.
        self.shards[usize::from(shard)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`lock_shard`](Self::lock_shard), but returns `None` if the lock is taken.
    pub(super) fn try_lock_shard(&self, shard: u8) -> Option<MutexGuard<'_, Shard>> {
        match self.shards[usize::from(shard)].try_lock() {
            Ok(guard) => Some(guard),
            Err(sync::TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Creates the subfolder of a block if it is missing, and makes its name durable. An earlier process may have
    /// created it and failed to do so.
    pub(super) fn create_shard(&self, place: &BlockPaths) -> Result<(), BlockError> {
        let mut shard = self.lock_shard(place.shard);
        match fs::create_dir(&place.folder) {
            Ok(()) => shard.is_durable = false,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(block_fault(&place.id, &place.folder)(error)),
        }
        if !shard.is_durable {
            sync_folder(&self.root)?;
            shard.is_durable = true;
        }
        Ok(())
    }

    /// Returns all blocks that have both their files, sorted by name, and the subfolders that cannot be
    /// examined: it is not known which blocks these hold.
    ///
    /// # Errors
    /// [`BlockError::Io`] if the folder itself cannot be read, or if the machine lacks memory or descriptors;
    /// [`BlockError::Unmounted`].
    pub(super) fn list(&self) -> Result<BlockList, BlockError> {
        let (mut held, mut unlisted) = (Vec::new(), BTreeMap::new());
        for folder in shard_folders(&self.root)? {
            match list_shard(&folder, &mut held) {
                Err(error) if is_shortage(&error) => return Err(error),
                Err(error) => drop(unlisted.insert(folder, error.to_string())),
                Ok(()) => {}
            }
        }
        // Without this check, the blocks of a disk that was just unmounted would count as missing.
        self.check()?;
        if let Some(error) = unlisted.values().next() {
            tracing::error!(error, folders = unlisted.len(), "cannot list all blocks; check the disk");
        }
        // A check of the disk may remove subfolders from the shared map at any time. This list omits their blocks.
        let silent = self.described(&unlisted);
        *self.unlisted() = unlisted;
        held.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(BlockList { held, silent })
    }

    /// Like [`list`](Self::list), but fails if a subfolder cannot be examined.
    pub(super) fn list_all(&self) -> Result<Vec<HeldBlock>, BlockError> {
        let list = self.list()?;
        let failed =
            |text: String| fault(&self.root)(io::Error::other(format!("not all blocks are known: {text}")));
        list.silent.into_iter().next().map_or(Ok(list.held), |text| Err(failed(text)))
    }

    /// Returns the subfolders that could not be listed, with the reason of the first, as at most one text.
    pub(super) fn silent_folders(&self) -> Vec<String> {
        self.described(&self.unlisted())
    }

    /// Returns the first of these reasons, and how many others there are.
    fn described(&self, unlisted: &BTreeMap<PathBuf, String>) -> Vec<String> {
        let others = unlisted.len().saturating_sub(1);
        let text = unlisted.values().next().map(|error| match others {
            0 => error.clone(),
            _ => format!("{error}, and {others} other subfolders of {}", self.root.display()),
        });
        text.into_iter().collect()
    }

    fn unlisted(&self) -> MutexGuard<'_, BTreeMap<PathBuf, String>> {
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the blocks of a subfolder to `held`. After an error, some blocks are omitted.
///
/// # Errors
/// The first error that does not prove that a file is absent.
fn list_shard(folder: &Path, held: &mut Vec<HeldBlock>) -> Result<(), BlockError> {
    let names = if_present(names(folder))?.unwrap_or_default();
    let whole = names.iter().filter(|name| is_block_name(name) && names.contains(&checksums_of(name)));
    let mut listed = Ok(());
    for name in whole {
        match if_present(measure(folder, name)) {
            Ok(found) => held.extend(found.flatten()),
            Err(error) => listed = listed.and(Err(error)),
        }
    }
    listed
}

/// Turns an error into a warning and `None` if it proves that there is no such file or folder, because a link
/// leads nowhere or another kind of file has the name.
///
/// # Errors
/// All other errors, such as those of a failing disk or of missing permissions.
fn if_present<T>(result: Result<T, BlockError>) -> Result<Option<T>, BlockError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if proves_absence(&error) => {
            tracing::warn!(%error, "cannot examine a file or folder; its blocks count as missing");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Turns an error of one file or subfolder into a warning and `None`.
///
/// # Errors
/// An error that proves nothing about the file, because the machine lacks memory or descriptors.
fn tolerated<T>(result: Result<T, BlockError>, warning: &str) -> Result<Option<T>, BlockError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_shortage(&error) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "{warning}");
            Ok(None)
        }
    }
}

fn unix_nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(1)
}

/// Removes the files of checks that a crash interrupted.
fn remove_probes(root: &Path) -> Result<(), BlockError> {
    remove_all(root, names(root)?.iter().filter(|name| name.starts_with(PROBE_PREFIX)))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A subfolder with a block whose file can be made unreadable and readable again, without a moment in which
    /// the file does not exist: it is a link to a link, and only the latter changes.
    struct Switch {
        aside: PathBuf,
    }

    impl Switch {
        fn new(root: &Path, place: &BlockPaths) -> Self {
            let aside = root.join("aside");
            fs::create_dir_all(&place.folder).expect("created");
            fs::create_dir(&aside).expect("created");
            fs::write(aside.join("good"), b"bytes").expect("written");
            fs::write(&place.checksums, b"").expect("written");
            symlink(aside.join("now"), &place.block).expect("a free name");
            Self { aside }
        }

        fn set(&self, is_readable: bool) {
            let (now, next) = (self.aside.join("now"), self.aside.join(format!("next-{is_readable}")));
            // Following the second link fails for every user, but not because there is no such file.
            let target = if is_readable { self.aside.join("good") } else { PathBuf::from("x".repeat(300)) };
            symlink(target, &next).expect("a free name");
            fs::rename(&next, &now).expect("replaced");
        }
    }

    #[test]
    fn a_list_that_omits_blocks_says_so_although_they_can_be_read_by_now() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder::open(root.path()).expect("a new folder");
        for number in 0..400 {
            let place = folder.place(&BlockId(format!("many-{number}"))).expect("a name");
            fs::create_dir_all(&place.folder).expect("created");
            fs::write(&place.block, b"").expect("written");
            fs::write(&place.checksums, b"").expect("written");
        }
        let block = BlockId("one".to_owned());
        let switch = Switch::new(root.path(), &folder.place(&block).expect("a name"));
        let is_over = AtomicBool::new(false);
        let misleads = |_: u32| {
            switch.set(false);
            let list = folder.list().expect("the folder can be read");
            list.silent.is_empty() && list.held.iter().all(|held| held.id != block)
        };
        let has_misled = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    switch.set(true);
                    folder.look_again();
                }
            });
            let has_misled = (0..300).any(misleads);
            is_over.store(true, Ordering::Relaxed);
            has_misled
        });
        assert!(!has_misled, "a list without the block counts as complete");
    }
}
