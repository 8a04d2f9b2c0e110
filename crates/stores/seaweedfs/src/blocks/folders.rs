//! The folders of one volume server: finds its files, and locks them against other helpers.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use block_files::{fault, sync_folder};
use store_api::BlockError;

use super::ecsum::{Ecsum, EcsumError, MAX_FILE_BYTES};
use super::name::{ShardName, VolumeName};
use super::vif::VolumeInfo;

/// Prefix of Mend's own files. SeaweedFS ignores them, since their names do not end in `.ec` and digits.
const OWN_PREFIX: &str = ".mend-";
const TEMPORARY_SUFFIX: &str = ".tmp";
const LOCK_NAME: &str = ".mend-lock";
const MAX_VIF_BYTES: u64 = 1 << 20;

/// The folders of a volume server, in the server's order, locked against other helpers while this value
/// lives.
#[derive(Debug)]
pub(super) struct Folders {
    data: Vec<PathBuf>,
    /// All folders that may contain small files: the data folders and that of `-dir.idx`.
    small: Vec<PathBuf>,
    next: AtomicU64,
    _locks: Vec<File>,
}

impl Folders {
    /// Locks existing folders, and removes temporary files that a crash left there.
    pub(super) fn open(data: &[PathBuf], index: Option<&Path>) -> Result<Self, BlockError> {
        let data = data.iter().map(|folder| fs::canonicalize(folder).map_err(fault(folder)));
        let data = data.collect::<Result<Vec<_>, _>>()?;
        let locks = data.iter().map(|folder| lock(folder)).collect::<Result<_, _>>()?;
        data.iter().try_for_each(|folder| clean(folder))?;
        let small = data.iter().cloned().chain(index.map(Path::to_owned)).collect();
        Ok(Self { data, small, next: AtomicU64::new(1), _locks: locks })
    }

    /// The folders that contain shards.
    pub(super) fn data(&self) -> &[PathBuf] {
        &self.data
    }

    /// All files of a shard; several if it is on several disks.
    pub(super) fn copies(&self, shard: &ShardName) -> Result<Vec<PathBuf>, BlockError> {
        existing(self.data.iter().map(|folder| folder.join(shard.to_string())))
    }

    /// The shard's file that SeaweedFS would mount, which is the first.
    pub(super) fn find(&self, shard: &ShardName) -> Result<PathBuf, BlockError> {
        let missing = || {
            let folders: Vec<_> = self.data.iter().map(|folder| folder.display().to_string()).collect();
            BlockError::Missing { block: shard.block_id(), path: folders.join(", ") }
        };
        self.copies(shard)?.into_iter().next().ok_or_else(missing)
    }

    /// The volume's files with this extension, starting with the folder `first`.
    fn small(&self, volume: &VolumeName, extension: &str, first: &Path) -> Result<Vec<PathBuf>, BlockError> {
        let others = self.small.iter().map(PathBuf::as_path).filter(|&folder| folder != first);
        existing([first].into_iter().chain(others).map(|folder| folder.join(volume.file(extension))))
    }

    /// Whether one of the folders contains the volume's index.
    pub(super) fn has_index(&self, volume: &VolumeName) -> Result<bool, BlockError> {
        let (first, extension) = (&self.data[0], ".ecx");
        Ok(!self.small(volume, extension, first)?.is_empty())
    }

    /// Whether this folder contains a non-empty file of the volume with this extension.
    pub(super) fn has(
        &self,
        volume: &VolumeName,
        extension: &str,
        folder: &Path,
    ) -> Result<bool, BlockError> {
        let path = folder.join(volume.file(extension));
        match fs::metadata(&path) {
            Ok(found) => Ok(found.len() > 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(fault(&path)(error)),
        }
    }

    /// Rejects a volume whose `.vif` files on the server's disks name different encodings, since a shard
    /// rebuilt here would be mounted under the encoding of its own disk. A damaged `.vif` is replaced by a
    /// good one of another disk.
    pub(super) fn settle_encoding(&self, volume: &VolumeName) -> Result<(), BlockError> {
        let mut good: Option<(PathBuf, Vec<u8>, VolumeInfo)> = None;
        let mut bad: Vec<(PathBuf, BlockError)> = Vec::new();
        for path in self.small(volume, ".vif", &self.data[0])? {
            let bytes = read_bounded(&path, MAX_VIF_BYTES)?;
            if bytes.is_empty() {
                continue;
            }
            match (VolumeInfo::decode(&bytes), &good) {
                (Err(error), _) => bad.push((path.clone(), damaged(&path, error))),
                (Ok(info), None) => good = Some((path, bytes, info)),
                (Ok(info), Some((other, _, known))) if info != *known => {
                    let why = format!("it describes another encoding of the volume than {}", other.display());
                    return Err(damaged(&path, why));
                }
                (Ok(_), Some(_)) => {}
            }
        }
        match good {
            Some((_, bytes, _)) => bad.iter().try_for_each(|(path, _)| self.put(path, &bytes)),
            None => bad.into_iter().next().map_or(Ok(()), |(_, error)| Err(error)),
        }
    }

    /// Copies `.vif` and `.ecsum` from the server's other folders if `folder`, which is about to get a shard,
    /// has none. SeaweedFS mounts a shard without `.vif` under encoding 0, which was never made.
    pub(super) fn complete(&self, volume: &VolumeName, folder: &Path) -> Result<(), BlockError> {
        for extension in [".vif", ".ecsum"] {
            if self.has(volume, extension, folder)? {
                continue;
            }
            for path in self.small(volume, extension, folder)? {
                let bytes = read_bounded(&path, MAX_FILE_BYTES)?;
                let is_sound = match extension {
                    ".vif" => VolumeInfo::decode(&bytes).is_ok(),
                    _ => Ecsum::decode(&bytes).is_ok(),
                };
                if is_sound {
                    self.put(&folder.join(volume.file(extension)), &bytes)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Writes a file atomically.
    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), BlockError> {
        let folder = path.parent().expect("a file in a folder");
        let name = path.file_name().expect("a file").to_string_lossy();
        let temporary = self.temporary_named(folder, &name);
        let made = || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        made().map_err(fault(path)).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
        sync_folder(folder)
    }

    /// The content of the volume's `.vif`, preferably the one in `folder`; `None` if the server has none.
    pub(super) fn info(&self, volume: &VolumeName, folder: &Path) -> Result<Option<VolumeInfo>, BlockError> {
        let mut first = None;
        for path in self.small(volume, ".vif", folder)? {
            let bytes = read_bounded(&path, MAX_VIF_BYTES)?;
            if bytes.is_empty() {
                continue;
            }
            match VolumeInfo::decode(&bytes) {
                Ok(info) => return Ok(Some(info)),
                Err(error) => first = first.or(Some(damaged(&path, error))),
            }
        }
        first.map_or(Ok(None), Err)
    }

    /// The volume's checksums, preferably those in `folder`; `None` if the server has none.
    ///
    /// A damaged file is skipped if another disk has a good one.
    pub(super) fn ecsum(&self, volume: &VolumeName, folder: &Path) -> Result<Option<Ecsum>, BlockError> {
        let mut first = None;
        for path in self.small(volume, ".ecsum", folder)? {
            match Ecsum::decode(&read_bounded(&path, MAX_FILE_BYTES)?) {
                Ok(ecsum) => return Ok(Some(ecsum)),
                Err(error) => first = first.or(Some(unusable(&path, error))),
            }
        }
        first.map_or(Ok(None), Err)
    }

    /// The IDs of deleted needles from the volume's journals on all disks, in ascending order.
    pub(super) fn deleted(&self, volume: &VolumeName) -> Result<Vec<u64>, BlockError> {
        let mut ids = Vec::new();
        for path in self.small(volume, ".ecj", &self.small[0])? {
            let bytes = fs::read(&path).map_err(fault(&path))?;
            // An incomplete last entry is still being written.
            ids.extend(bytes.as_chunks::<8>().0.iter().map(|id| u64::from_be_bytes(*id)));
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// All shards in order of their names.
    pub(super) fn shards(&self) -> Result<Vec<ShardName>, BlockError> {
        let mut shards = Vec::new();
        for folder in &self.data {
            shards.extend(names(folder)?.iter().filter_map(|name| ShardName::from_str(name).ok()));
        }
        shards.sort();
        shards.dedup();
        Ok(shards)
    }

    /// A unique temporary name in `folder`, which SeaweedFS ignores.
    pub(super) fn temporary(&self, folder: &Path, shard: &ShardName) -> PathBuf {
        self.temporary_named(folder, &shard.to_string())
    }

    fn temporary_named(&self, folder: &Path, name: &str) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        folder.join(format!("{OWN_PREFIX}{number:08x}-{name}{TEMPORARY_SUFFIX}"))
    }
}

/// Free bytes in a folder.
pub(super) fn free_bytes(folder: &Path) -> Result<u64, BlockError> {
    let found = rustix::fs::statvfs(folder).map_err(|error| fault(folder)(error.into()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn existing(paths: impl Iterator<Item = PathBuf>) -> Result<Vec<PathBuf>, BlockError> {
    let mut found = Vec::new();
    for path in paths {
        if fs::exists(&path).map_err(fault(&path))? {
            found.push(path);
        }
    }
    Ok(found)
}

fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, BlockError> {
    let bytes = fs::metadata(path).map_err(fault(path))?.len();
    if bytes > most {
        return Err(damaged(path, format!("it has {bytes} bytes, but SeaweedFS writes at most {most}")));
    }
    fs::read(path).map_err(fault(path))
}

/// The error for a damaged small file; the shard itself may be intact.
fn damaged(path: &Path, why: impl std::fmt::Display) -> BlockError {
    let text = format!(
        "{why}; copy it from another server (VolumeEcShardsCopy), or delete it to continue without it"
    );
    fault(path)(io::Error::new(io::ErrorKind::InvalidData, text))
}

fn unusable(path: &Path, error: EcsumError) -> BlockError {
    match error {
        EcsumError::OtherVersion(_) => fault(path)(io::Error::new(io::ErrorKind::Unsupported, error)),
        _ => damaged(path, error),
    }
}

fn names(folder: &Path) -> Result<Vec<String>, BlockError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(fault(folder))? {
        names.extend(entry.map_err(fault(folder))?.file_name().into_string());
    }
    Ok(names)
}

/// Locks a folder. The kernel releases the lock when the file is closed, even after a crash.
fn lock(folder: &Path) -> Result<File, BlockError> {
    let path = folder.join(LOCK_NAME);
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(fault(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(fault(&path)(error)),
        Err(TryLockError::WouldBlock) => {
            let text = "another helper uses this folder: start one helper for each volume server";
            Err(fault(folder)(io::Error::new(io::ErrorKind::ResourceBusy, text)))
        }
    }
}

/// Removes temporary files that a crash left. Files of SeaweedFS are never touched.
fn clean(folder: &Path) -> Result<(), BlockError> {
    let names = names(folder)?;
    let left = names.iter().filter(|name| name.starts_with(OWN_PREFIX) && name.ends_with(TEMPORARY_SUFFIX));
    let mut changed = false;
    for name in left {
        let path = folder.join(name);
        fs::remove_file(&path).map_err(fault(&path))?;
        changed = true;
    }
    if changed { sync_folder(folder) } else { Ok(()) }
}
