//! The folders of one DataNode: where the replicas of a block pool are, and who else may work there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use block_files::{
    FolderLock, OWN_LOCK, OWN_PREFIX, OwnNames, exists, fault, file_bytes, free_bytes, names_if_any, parent,
    remove_all, remove_file, sync_folder,
};
use store_api::BlockError;

use super::name::ReplicaName;

const TAKEN: &str = "another helper works in this folder: start one helper for each DataNode";
/// The layout of Hadoop 2.8 and later: 32 × 32 folders.
const LAYOUT: &str = "-57";
const FOLDERS: u8 = 32;
/// What a DataNode that was stopped remembers of its replicas, so that it need not look for them.
const REPLICA_LIST: &str = "replicas";

/// The block pool's part of one of a DataNode's folders.
#[derive(Debug)]
pub(super) struct Volume {
    /// `current/BP-…`.
    pool: PathBuf,
}

/// All of a DataNode's folders. No other helper works in them as long as this lives.
#[derive(Debug)]
pub(super) struct Volumes {
    pool: String,
    volumes: Vec<Volume>,
    own_names: OwnNames,
    _locks: Vec<FolderLock>,
}

/// Both files of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) bytes: PathBuf,
    pub(super) meta: PathBuf,
}

impl Volume {
    /// The block pool `pool` below one of a DataNode's folders; removes what a crash of Mend left there.
    fn open(folder: &Path, pool: &str) -> Result<Self, BlockError> {
        check_layout(&folder.join("current"))?;
        let pool = folder.join("current").join(pool);
        check_layout(&pool.join("current"))?;
        let volume = Self { pool };
        volume.clean()?;
        Ok(volume)
    }

    fn finalized(&self) -> PathBuf {
        self.pool.join("current/finalized")
    }

    /// Where the DataNode writes what is not finished. It removes everything in it when it starts.
    fn unfinished(&self) -> PathBuf {
        self.pool.join("tmp")
    }

    fn folder(&self, name: &ReplicaName) -> PathBuf {
        let [outer, inner] = name.folders();
        self.finalized().join(format!("subdir{outer}/subdir{inner}"))
    }

    /// Where a replica is, or would be.
    pub(super) fn files(&self, name: &ReplicaName) -> Files {
        let folder = self.folder(name);
        Files { bytes: folder.join(name.file()), meta: folder.join(name.meta_file()) }
    }

    /// Makes the folder of a replica, durably.
    pub(super) fn make_folder(&self, name: &ReplicaName) -> Result<PathBuf, BlockError> {
        let folder = self.folder(name);
        if !exists(&folder)? {
            fs::create_dir_all(&folder).map_err(fault(&folder))?;
            sync_folder(parent(&folder))?;
            sync_folder(&self.finalized())?;
        }
        Ok(folder)
    }

    /// Whether the replica is here, whole or not: its bytes, and no checksums that make them those of another stamp.
    pub(super) fn has(&self, name: &ReplicaName) -> Result<bool, BlockError> {
        let files = self.files(name);
        Ok(exists(&files.bytes)? && (exists(&files.meta)? || self.stamps(name)?.is_empty()))
    }

    /// The generation stamps that the folder has files of checksums of, for the block of `name`.
    pub(super) fn stamps(&self, name: &ReplicaName) -> Result<Vec<u64>, BlockError> {
        let replicas = replicas(&self.folder(name))?;
        let same = replicas.iter().filter(|replica| replica.block() == name.block());
        Ok(same.map(ReplicaName::stamp).collect())
    }

    /// Another block of the same group that is here, whole.
    fn beside(&self, name: &ReplicaName) -> Result<Option<ReplicaName>, BlockError> {
        let folder = self.folder(name); // The low bits, by which they differ, do not count for where they are.
        for other in replicas(&folder)?.into_iter().filter(|other| other.is_beside(name)) {
            if exists(&folder.join(other.file()))? {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// Makes a DataNode that is stopped look for its replicas when it starts: it would otherwise believe its list of
    /// them for five minutes. While it runs there is no list.
    pub(super) fn forget_list(&self) -> Result<(), BlockError> {
        let current = self.pool.join("current");
        if remove_file(&current.join(REPLICA_LIST))? { sync_folder(&current) } else { Ok(()) }
    }

    /// Bytes free.
    pub(super) fn free_bytes(&self) -> Result<u64, BlockError> {
        free_bytes(&self.pool)
    }

    fn clean(&self) -> Result<(), BlockError> {
        let folder = self.unfinished();
        let names = names_if_any(&folder)?;
        remove_all(&folder, names.iter().filter(|name| name.starts_with(OWN_PREFIX)))
    }
}

impl Volumes {
    /// Takes the folders of a DataNode, which has run there before.
    pub(super) fn open(folders: &[PathBuf], pool: Option<&str>) -> Result<Self, BlockError> {
        let folders = folders.iter().map(|folder| fs::canonicalize(folder).map_err(fault(folder)));
        let folders = folders.collect::<Result<Vec<_>, _>>()?;
        let pool = match (pool, folders.first()) {
            (Some(pool), _) => pool.to_owned(),
            (None, Some(first)) => only_pool(first)?,
            (None, None) => {
                return Err(refused(Path::new("dfs.datanode.data.dir"), "no folder is given".to_owned()));
            }
        };
        let lock = |folder: &PathBuf| FolderLock::take(folder, OWN_LOCK, TAKEN); // The DataNode locks `in_use.lock`.
        let locks = folders.iter().map(lock).collect::<Result<_, _>>()?;
        let volumes = folders.iter().map(|folder| Volume::open(folder, &pool)).collect::<Result<_, _>>()?;
        Ok(Self { pool, volumes, own_names: OwnNames::default(), _locks: locks })
    }

    /// The name of the block pool.
    pub(super) fn pool(&self) -> &str {
        &self.pool
    }

    pub(super) fn all(&self) -> &[Volume] {
        &self.volumes
    }

    /// The volumes that have the bytes of the block, of whatever generation.
    pub(super) fn with(&self, name: &ReplicaName) -> Result<Vec<&Volume>, BlockError> {
        let mut found = Vec::new();
        for volume in &self.volumes {
            if exists(&volume.files(name).bytes)? {
                found.push(volume);
            }
        }
        Ok(found)
    }

    /// Refuses a block of whose group the DataNode has another one: the NameNode knows one block of a group on a DataNode,
    /// and takes the second for the first, or for nothing.
    pub(super) fn check_group(&self, name: &ReplicaName) -> Result<(), BlockError> {
        for volume in &self.volumes {
            if let Some(beside) = volume.beside(name)? {
                return Err(BlockError::Beside { block: name.block_id(), beside: beside.block_id() });
            }
        }
        Ok(())
    }

    /// The files of a replica; more than one pair if several disks have it, the first first.
    pub(super) fn find(&self, name: &ReplicaName) -> Result<Vec<Files>, BlockError> {
        let mut found = Vec::new();
        for volume in &self.volumes {
            if volume.has(name)? {
                found.push(volume.files(name));
            }
        }
        Ok(found)
    }

    /// Removes a replica from all disks, and checksums of it that have no bytes; whether it was there.
    pub(super) fn remove(&self, name: &ReplicaName) -> Result<bool, BlockError> {
        let mut was_there = false;
        for volume in &self.volumes {
            let files = volume.files(name);
            // The bytes go first: checksums without them are nothing, and go at the DataNode's next scan.
            let bytes = volume.has(name)? && remove_file(&files.bytes)?;
            if remove_file(&files.meta)? || bytes {
                sync_folder(parent(&files.bytes))?;
            }
            was_there |= bytes;
        }
        Ok(was_there)
    }

    /// Names in `volume` that no other writer has and the DataNode removes when it starts.
    pub(super) fn temporary(&self, volume: &Volume, name: &ReplicaName) -> Files {
        let prefix = self.own_names.next_prefix();
        let file = |name: String| volume.unfinished().join(format!("{prefix}{name}"));
        Files { bytes: file(name.file()), meta: file(name.meta_file()) }
    }

    /// All replicas that have both files, by name, with their bytes.
    pub(super) fn list(&self) -> Result<Vec<(ReplicaName, u64)>, BlockError> {
        let mut found = Vec::new();
        for volume in &self.volumes {
            for folder in (0..FOLDERS).flat_map(|outer| (0..FOLDERS).map(move |inner| (outer, inner))) {
                let folder = volume.finalized().join(format!("subdir{}/subdir{}", folder.0, folder.1));
                for name in replicas(&folder)? {
                    if let Some(bytes) = file_bytes(&folder.join(name.file()))? {
                        found.push((name, bytes));
                    }
                }
            }
        }
        found.sort_unstable();
        found.dedup_by_key(|(name, _)| *name);
        Ok(found)
    }
}

/// The replicas that a folder has files of checksums of; none if it is not there.
fn replicas(folder: &Path) -> Result<Vec<ReplicaName>, BlockError> {
    Ok(names_if_any(folder)?.iter().filter_map(|name| ReplicaName::of_meta_file(name)).collect())
}

pub(super) fn refused(path: &Path, why: String) -> BlockError {
    fault(path)(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn only_pool(folder: &Path) -> Result<String, BlockError> {
    let current = folder.join("current");
    let mut pools: Vec<_> =
        names_if_any(&current)?.into_iter().filter(|name| name.starts_with("BP-")).collect();
    match &mut pools[..] {
        [pool] => Ok(std::mem::take(pool)),
        [] => Err(refused(&current, "no DataNode has run here yet: start it, then this helper".to_owned())),
        several => Err(refused(
            &current,
            format!("it has several block pools, say which one: {}", several.join(", ")),
        )),
    }
}

/// Whether blocks are where this program looks for them.
fn check_layout(current: &Path) -> Result<(), BlockError> {
    let path = current.join("VERSION");
    let text = fs::read_to_string(&path).map_err(fault(&path))?;
    match text.lines().find_map(|line| line.strip_prefix("layoutVersion=")) {
        Some(LAYOUT) => Ok(()),
        found => {
            let found = found.unwrap_or("none");
            let text =
                format!("its layout is {found}, and this program knows {LAYOUT}, of Hadoop 2.8 to 3.5");
            Err(fault(&path)(io::Error::new(io::ErrorKind::Unsupported, text)))
        }
    }
}
