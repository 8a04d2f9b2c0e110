//! The folders of one volume server: finds its files, and locks them against other helpers.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use block_files::{
    FolderLock, OWN_LOCK, OWN_PREFIX, OwnNames, exists, fault, file_bytes, names, parent, remove_all,
    sync_folder,
};
use store_api::BlockError;

use super::ecsum::{Ecsum, EcsumError, MAX_FILE_BYTES};
use super::name::{ShardName, VolumeName};
use super::vif::{Ratio, VolumeInfo};

/// The suffix of Mend's own files. SeaweedFS ignores such files, because their names do not end in `.ec` and
/// digits.
const TEMPORARY_SUFFIX: &str = ".tmp";
const TAKEN: &str = "another helper uses this folder: start one helper for each volume server";
const MAX_VIF_BYTES: u64 = 1 << 20;

/// The folders of a volume server, in the server's order, locked against other helpers while this value
/// lives.
#[derive(Debug)]
pub(super) struct Folders {
    data: Vec<PathBuf>,
    /// All folders that may contain a volume's metadata files (`.vif`, `.ecsum`, `.ecx`, `.ecj`): the data
    /// folders and the `-dir.idx` folder.
    small: Vec<PathBuf>,
    own_names: OwnNames,
    _locks: Vec<FolderLock>,
}

impl Folders {
    /// Locks existing folders, and removes temporary files that a crash left there.
    pub(super) fn open(data: &[PathBuf], index: Option<&Path>) -> Result<Self, BlockError> {
        let data = data.iter().map(|folder| fs::canonicalize(folder).map_err(fault(folder)));
        let data = data.collect::<Result<Vec<_>, _>>()?;
        let lock = |folder: &PathBuf| FolderLock::take(folder, OWN_LOCK, TAKEN);
        let locks = data.iter().map(lock).collect::<Result<_, _>>()?;
        data.iter().try_for_each(|folder| clean(folder))?;
        let small = data.iter().cloned().chain(index.map(Path::to_owned)).collect();
        Ok(Self { data, small, own_names: OwnNames::default(), _locks: locks })
    }

    /// Returns the folders that contain shards.
    pub(super) fn data(&self) -> &[PathBuf] {
        &self.data
    }

    /// Returns all files of a shard; there are several if the shard is on several disks.
    pub(super) fn copies(&self, shard: &ShardName) -> Result<Vec<PathBuf>, BlockError> {
        existing(self.data.iter().map(|folder| folder.join(shard.to_string())))
    }

    /// Returns the shard's file that SeaweedFS would mount: the first in the order of the folders.
    pub(super) fn find(&self, shard: &ShardName) -> Result<PathBuf, BlockError> {
        let missing = || {
            let folders: Vec<_> = self.data.iter().map(|folder| folder.display().to_string()).collect();
            BlockError::Missing { block: shard.block_id(), path: folders.join(", ") }
        };
        self.copies(shard)?.into_iter().next().ok_or_else(missing)
    }

    /// Returns the volume's files with this extension, starting with the folder `first`.
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
        Ok(file_bytes(&folder.join(volume.file(extension)))?.is_some_and(|bytes| bytes > 0))
    }

    /// Rejects a volume if the `.vif` files on the server's disks name different encodings: SeaweedFS would
    /// mount a rebuilt shard under the encoding in the `.vif` of the shard's disk, which may be the wrong
    /// one. A damaged `.vif` is replaced by a copy of a good one from another disk.
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
    /// has none. Without `.vif`, SeaweedFS would mount the shard under encoding 0 instead of the volume's
    /// encoding.
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
        let folder = parent(path);
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

    /// Returns the content of the volume's `.vif`, preferably of the copy in `folder`; `None` if the server
    /// has no `.vif`.
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

    /// Returns the volume's checksums, preferably from the copy in `folder`; `None` if the server has none.
    ///
    /// Checksums of another ratio or generation do not belong to this volume; SeaweedFS ignores them too. They, and
    /// damaged files, are skipped if another disk has the right ones.
    pub(super) fn ecsum(
        &self,
        volume: &VolumeName,
        folder: &Path,
        ratio: Ratio,
    ) -> Result<Option<Ecsum>, BlockError> {
        let mut first = None;
        for path in self.small(volume, ".ecsum", folder)? {
            match Ecsum::decode(&read_bounded(&path, MAX_FILE_BYTES)?) {
                Ok(ecsum) if ecsum.generation() == 0 && ecsum.ratio() == ratio => return Ok(Some(ecsum)),
                Ok(_) => {}
                Err(error) => first = first.or(Some(unusable(&path, error))),
            }
        }
        first.map_or(Ok(None), Err)
    }

    /// Returns the IDs of deleted needles (stored objects) from the volume's journals on all disks, in
    /// ascending order.
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

    /// Returns all shards in order of their names.
    pub(super) fn shards(&self) -> Result<Vec<ShardName>, BlockError> {
        let mut shards = Vec::new();
        for folder in &self.data {
            shards.extend(names(folder)?.iter().filter_map(|name| ShardName::from_str(name).ok()));
        }
        shards.sort();
        shards.dedup();
        Ok(shards)
    }

    /// Returns a unique temporary name in `folder`, which SeaweedFS ignores.
    pub(super) fn temporary(&self, folder: &Path, shard: &ShardName) -> PathBuf {
        self.temporary_named(folder, &shard.to_string())
    }

    fn temporary_named(&self, folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{}{name}{TEMPORARY_SUFFIX}", self.own_names.next_prefix()))
    }
}

fn existing(paths: impl Iterator<Item = PathBuf>) -> Result<Vec<PathBuf>, BlockError> {
    let mut found = Vec::new();
    for path in paths {
        if exists(&path)? {
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

/// Returns the error for a damaged metadata file (`.vif` or `.ecsum`); the shard itself may be intact.
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

/// Removes temporary files that a crash left. Files of SeaweedFS are never touched.
fn clean(folder: &Path) -> Result<(), BlockError> {
    let names = names(folder)?;
    let left = names.iter().filter(|name| name.starts_with(OWN_PREFIX) && name.ends_with(TEMPORARY_SUFFIX));
    remove_all(folder, left)
}
