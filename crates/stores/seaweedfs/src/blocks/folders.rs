//! The folders of one volume server: finds its files, and locks them against other helpers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block_files::{
    DiskWatch, FolderLock, OWN_LOCK, OWN_PREFIX, OwnNames, exists, fault, file_bytes, free_bytes,
    is_medium_error, is_of_disk, is_shortage, look_at_all, names, names_if_any, parent, remove_all,
    remove_file, sync_folder,
};
use store_api::BlockError;

use super::ecsum::{Ecsum, EcsumError, MAX_FILE_BYTES, predates};
use super::name::{ShardName, VolumeName};
use super::vif::{Encoding, Ratio, VolumeInfo};

/// The suffix of Mend's own files. SeaweedFS ignores such files, because their names do not end in `.ec` and
/// digits.
const TEMPORARY_SUFFIX: &str = ".tmp";
const TAKEN: &str = "another helper uses this folder: start one helper for each volume server";
const MAX_VIF_BYTES: u64 = 1 << 20;
const INDEX: &str = ".ecx";
const JOURNAL: &str = ".ecj";

/// The folders of a volume server, in the server's order, locked against other helpers while this value
/// lives.
#[derive(Debug)]
pub(super) struct Folders {
    data: Vec<PathBuf>,
    /// All folders that may contain a volume's metadata files (`.vif`, `.ecsum`, `.ecx`, `.ecj`): the data
    /// folders and the `-dir.idx` folder.
    small: Vec<PathBuf>,
    /// The watch of each of these folders.
    watches: BTreeMap<PathBuf, Arc<DiskWatch>>,
    /// Folders of shards whose disks hung or failed when the folders were opened. They are not locked, and not used
    /// until the folders are opened again.
    left_out: BTreeSet<PathBuf>,
    own_names: OwnNames,
    /// Whether it was logged that a write keeps the folders from being opened again.
    is_wait_logged: AtomicBool,
    _locks: Vec<FolderLock>,
}

impl Folders {
    /// Locks existing folders, and removes temporary files that a crash left there. Folders whose disks hang or fail
    /// are left out if there are others.
    pub(super) fn open(data: &[PathBuf], index: Option<&Path>) -> Result<Self, BlockError> {
        Self::open_watched(&data.iter().map(|folder| watched(folder)).collect::<Vec<_>>(), index)
    }

    fn open_watched(data: &[Arc<DiskWatch>], index: Option<&Path>) -> Result<Self, BlockError> {
        let (mut folders, mut watches, mut locks) = (Vec::new(), BTreeMap::new(), Vec::new());
        let (mut left_out, mut failed) = (BTreeSet::new(), None);
        for (watch, opened) in data.iter().zip(look_at_all(data.iter().map(opening).collect())) {
            let (folder, watch) = match opened {
                Ok((folder, lock)) => {
                    let watch = watched(&folder);
                    watch.keep_place(&lock);
                    locks.push(lock);
                    (folder, watch)
                }
                Err(error) if is_of_disk(&error) => {
                    tracing::error!(%error, "leaving out a folder, and its shards, until its disk works");
                    watch.note_error(&error);
                    left_out.insert(watch.folder().to_owned());
                    failed = failed.or(Some(error));
                    (watch.folder().to_owned(), Arc::clone(watch))
                }
                Err(error) => return Err(error),
            };
            folders.push(folder.clone());
            watches.insert(folder, watch);
        }
        if let Some(error) = failed.filter(|_| locks.is_empty()) {
            return Err(error);
        }
        Ok(Self::of(folders, index, (watches, left_out), locks))
    }

    fn of(
        data: Vec<PathBuf>,
        index: Option<&Path>,
        (mut watches, left_out): (BTreeMap<PathBuf, Arc<DiskWatch>>, BTreeSet<PathBuf>),
        locks: Vec<FolderLock>,
    ) -> Self {
        let small: Vec<PathBuf> = data.iter().cloned().chain(index.map(Path::to_owned)).collect();
        for folder in &small {
            watches.entry(folder.clone()).or_insert_with(|| watched(folder));
        }
        let (own_names, is_wait_logged) = Default::default();
        Self { data, small, watches, left_out, own_names, is_wait_logged, _locks: locks }
    }

    /// Runs `work`, one short use of a folder's disk by paths. An error that is the fault of the disk proves nothing
    /// about any shard.
    fn run<T>(&self, folder: &Path, work: impl FnOnce() -> Result<T, BlockError>) -> Result<T, BlockError> {
        let watch = &self.watches[folder];
        if self.left_out.contains(folder) {
            watch.check()?;
            return Err(watch.fails("it could not be opened"));
        }
        watch.look(work).map_err(|error| match watch.explained(error) {
            error @ (BlockError::Hangs { .. } | BlockError::Unmounted { .. }) => error,
            error if is_of_disk(&error) && !is_medium_error(&error) => watch.fails(&error.to_string()),
            error => error, // The disk works, apart from this file.
        })
    }

    /// Checks that a folder's disk works and is mounted.
    pub(super) fn check(&self, folder: &Path) -> Result<(), BlockError> {
        self.run(folder, || exists(folder).map(drop))
    }

    /// Returns the watch of a folder's disk.
    pub(super) fn watch(&self, folder: &Path) -> Arc<DiskWatch> {
        Arc::clone(&self.watches[folder])
    }

    /// Returns the folders of shards that were left out or could not be listed, or whose disks fail or hang now, with a
    /// remark if a disk is [lost](Self::is_lost). It is not known which shards the others have.
    pub(super) fn silent(&self) -> Vec<String> {
        let is_silent = |folder: &&PathBuf| {
            let watch = &self.watches[*folder];
            self.left_out.contains(*folder) || watch.is_silent() || watch.is_failing()
        };
        let name = |folder: &PathBuf| match self.is_lost(folder) {
            true => {
                format!("{} (it has failed for ten minutes, and its shards count as lost)", folder.display())
            }
            false => folder.display().to_string(),
        };
        self.data.iter().filter(is_silent).map(name).collect()
    }

    /// Whether a folder's disk has failed for so long that its shards count as lost.
    fn is_lost(&self, folder: &Path) -> bool {
        let watch = &self.watches[folder];
        watch.is_lost() && watch.check().is_ok()
    }

    /// Whether the folders must be opened again, because one that was left out can be opened now, or another folder is
    /// at a path. Also lists the folders again that could not be listed.
    ///
    /// While an operation or a write on a used disk hangs, the folders stay locked and could not be opened again.
    pub(super) fn has_returned(&self) -> bool {
        // All are examined, also to note those that are not mounted.
        let displaced: Vec<bool> = self.used().map(|folder| self.watches[folder].is_displaced()).collect();
        let fails =
            |folder: &&PathBuf| self.watches[*folder].is_unlisted() || self.watches[*folder].is_failing();
        let failing: Vec<_> = self.used().filter(fails).collect();
        for (folder, listed) in failing.iter().zip(self.listings(&failing)) {
            self.watches[*folder].note_again(&listed);
        }
        if self.used().any(|folder| self.watches[folder].check().is_err()) {
            return false;
        }
        let opened = look_at_all(self.left_out.iter().map(|folder| opening(&self.watches[folder])).collect());
        for (folder, opened) in self.left_out.iter().zip(&opened) {
            opened.as_ref().err().into_iter().for_each(|error| self.watches[folder].note_error(error));
        }
        (displaced.contains(&true) || opened.iter().any(Result::is_ok)) && !self.awaits_write()
    }

    /// Whether a write hangs that keeps the folders locked. Logs the first one.
    fn awaits_write(&self) -> bool {
        let Some(folder) = self.small.iter().find(|folder| self.watches[*folder].write_hangs()) else {
            return false;
        };
        if !self.is_wait_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                folder = %folder.display(),
                "a folder has changed, but a write to this disk does not end; the folders are opened again after it"
            );
        }
        true
    }

    /// Returns the folders of shards that were opened.
    fn used(&self) -> impl Iterator<Item = &PathBuf> {
        self.data.iter().filter(move |folder| !self.left_out.contains(*folder))
    }

    /// Returns the free space of a folder in bytes.
    pub(super) fn free_bytes(&self, folder: &Path) -> Result<u64, BlockError> {
        self.run(folder, || free_bytes(folder))
    }

    /// Whether a file in one of the folders exists.
    fn exists(&self, path: &Path) -> Result<bool, BlockError> {
        self.run(parent(path), || exists(path))
    }

    /// Returns the folders that contain shards.
    pub(super) fn data(&self) -> &[PathBuf] {
        &self.data
    }

    /// Returns all files of a shard; there are several if the shard is on several disks.
    ///
    /// # Errors
    /// [`BlockError`], also if the disk of any folder does not work.
    pub(super) fn copies(&self, shard: &ShardName) -> Result<Vec<PathBuf>, BlockError> {
        let (found, failed) = self.copies_found(shard);
        failed.map_or(Ok(found), Err)
    }

    /// Returns all files of a shard on disks that work, and the error of a disk that does not, if there is one.
    pub(super) fn copies_found(&self, shard: &ShardName) -> (Vec<PathBuf>, Option<BlockError>) {
        self.existing(self.data.iter().map(|folder| folder.join(shard.to_string())))
    }

    /// Returns the shard's file that SeaweedFS would mount: the first in the order of the folders. Folders
    /// whose disks do not work are left out if another has the shard.
    pub(super) fn find(&self, shard: &ShardName) -> Result<PathBuf, BlockError> {
        let missing = || {
            let folders: Vec<_> = self.data.iter().map(|folder| folder.display().to_string()).collect();
            BlockError::Missing { block: shard.block_id(), path: folders.join(", ") }
        };
        let (found, failed) = self.copies_found(shard);
        found.into_iter().next().ok_or_else(|| failed.unwrap_or_else(missing))
    }

    /// Returns those of the files that exist, and the error of a folder whose disk does not work, if there is one.
    fn existing(&self, paths: impl Iterator<Item = PathBuf>) -> (Vec<PathBuf>, Option<BlockError>) {
        let (mut found, mut failed) = (Vec::new(), None);
        for path in paths {
            match self.exists(&path) {
                Ok(true) => found.push(path),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        (found, failed)
    }

    /// Removes a shard from all disks, durably. Returns whether there was one.
    ///
    /// # Errors
    /// [`BlockError`], also if the disk of any folder does not work. The shard is gone from the others then.
    pub(super) fn remove(&self, shard: &ShardName) -> Result<bool, BlockError> {
        let name = shard.to_string();
        let remove = |folder: &PathBuf| self.run(folder, || remove_durably(&folder.join(&name)));
        let removals: Vec<_> = self.data.iter().map(remove).collect();
        removals.into_iter().try_fold(false, |was_there, removed| Ok(was_there | removed?))
    }

    /// Returns the volume's files with this extension, starting with the folder `first`. Folders whose disks
    /// do not work are left out if another has such a file.
    fn small(&self, volume: &VolumeName, extension: &str, first: &Path) -> Result<Vec<PathBuf>, BlockError> {
        let (found, failed) = self.existing(self.places(volume, extension, first));
        match failed.filter(|_| found.is_empty()) {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }

    /// Like [`small`](Self::small), but fails if a disk does not work.
    fn all_small(&self, volume: &VolumeName, extension: &str) -> Result<Vec<PathBuf>, BlockError> {
        let (found, failed) = self.existing(self.places(volume, extension, &self.small[0]));
        failed.map_or(Ok(found), Err)
    }

    /// Reads a metadata file of at most `most` bytes.
    fn read(&self, path: &Path, most: u64) -> Result<Vec<u8>, BlockError> {
        self.run(parent(path), || read_bounded(path, most))
    }

    fn places<'f>(
        &'f self,
        volume: &VolumeName,
        extension: &str,
        first: &'f Path,
    ) -> impl Iterator<Item = PathBuf> + use<'f> {
        let others = self.small.iter().map(PathBuf::as_path).filter(move |&folder| folder != first);
        let (name, fits) = (volume.file(extension), volume.can_have(extension));
        [first].into_iter().chain(others).filter(move |_| fits).map(move |folder| folder.join(&name))
    }

    /// Whether one of the folders contains the volume's index.
    pub(super) fn has_index(&self, volume: &VolumeName) -> Result<bool, BlockError> {
        Ok(!self.small(volume, INDEX, &self.data[0])?.is_empty())
    }

    /// Returns the volumes whose index is in one of the folders.
    ///
    /// # Errors
    /// [`BlockError`], also if a disk does not work.
    pub(super) fn indexed(&self) -> Result<BTreeSet<VolumeName>, BlockError> {
        if let Some(folder) = self.left_out.first() {
            return self.check(folder).map(|()| BTreeSet::new());
        }
        let look = |folder: &PathBuf| {
            let (watch, folder) = (Arc::clone(&self.watches[folder]), folder.clone());
            (Arc::clone(&watch), move || watch.look(|| names_if_any(&folder)))
        };
        let mut indexed = BTreeSet::new();
        for found in look_at_all(self.small.iter().map(look).collect()) {
            let volume = |name: &String| VolumeName::from_str(name.strip_suffix(INDEX)?).ok();
            indexed.extend(found?.iter().filter_map(volume));
        }
        Ok(indexed)
    }

    /// Whether this folder contains a non-empty file of the volume with this extension.
    pub(super) fn has(
        &self,
        volume: &VolumeName,
        extension: &str,
        folder: &Path,
    ) -> Result<bool, BlockError> {
        if !volume.can_have(extension) {
            return Ok(false);
        }
        let path = folder.join(volume.file(extension));
        Ok(self.run(folder, || file_bytes(&path))?.is_some_and(|bytes| bytes > 0))
    }

    /// Rejects a volume if the `.vif` files on the server's disks name different encodings: SeaweedFS would
    /// mount a rebuilt shard under the encoding in the `.vif` of the shard's disk, which may be the wrong
    /// one. A damaged `.vif` is replaced by a copy of a good one from another disk.
    pub(super) fn settle_encoding(&self, volume: &VolumeName) -> Result<(), BlockError> {
        let mut good: Option<(PathBuf, Vec<u8>, VolumeInfo)> = None;
        let mut bad: Vec<(PathBuf, BlockError)> = Vec::new();
        for path in self.all_small(volume, ".vif")? {
            let bytes = self.read(&path, MAX_VIF_BYTES)?;
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

    /// Rejects a volume if an earlier encoding has left a journal on one of the server's disks: SeaweedFS would hide
    /// needles that exist once it mounts a shard beside the journal. The coordinator can only read the journal of the
    /// server's last disk.
    pub(super) fn check_journals(&self, volume: &VolumeName) -> Result<(), BlockError> {
        for path in self.all_small(volume, JOURNAL)? {
            if self.has(volume, JOURNAL, parent(&path))? && self.is_outdated(volume, &path)? {
                let why = "it is older than the volume's encoding, so it may hide needles that exist; remove it and \
                           restart the volume server";
                return Err(fault(&path)(io::Error::new(io::ErrorKind::Unsupported, why)));
            }
        }
        Ok(())
    }

    /// Copies `.vif` and `.ecsum` from the server's other folders if `folder`, which is about to get a shard,
    /// has none. Without `.vif`, SeaweedFS would mount the shard under encoding 0 instead of the volume's
    /// encoding. An `.ecsum` that an earlier encoding has left is not copied: the copy would look like a new
    /// file.
    pub(super) fn complete(&self, volume: &VolumeName, folder: &Path) -> Result<(), BlockError> {
        for extension in [".vif", ".ecsum"] {
            if self.has(volume, extension, folder)? {
                continue;
            }
            for path in self.small(volume, extension, folder)? {
                let bytes = self.read(&path, MAX_FILE_BYTES)?;
                let is_sound = match extension {
                    ".vif" => VolumeInfo::decode(&bytes).is_ok(),
                    _ => Ecsum::decode(&bytes).is_ok() && !self.is_outdated(volume, &path)?,
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
        self.watches[folder].write(|| {
            made().map_err(fault(path)).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
            sync_folder(folder)
        })
    }

    /// Returns the content of the volume's `.vif`, preferably of the copy in `folder`; `None` if the server
    /// has no `.vif`.
    pub(super) fn info(&self, volume: &VolumeName, folder: &Path) -> Result<Option<VolumeInfo>, BlockError> {
        let mut first = None;
        for path in self.small(volume, ".vif", folder)? {
            let decoded = match self.read(&path, MAX_VIF_BYTES) {
                Ok(bytes) if bytes.is_empty() => continue,
                Ok(bytes) => VolumeInfo::decode(&bytes).map_err(|error| damaged(&path, error)),
                Err(error) => Err(error),
            };
            match decoded {
                Ok(info) => return Ok(Some(info)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(None), Err)
    }

    /// Returns the volume's checksums, preferably from the copy in `folder`; `None` if the server has none.
    ///
    /// Checksums of another ratio, length or generation do not belong to this volume. They, files that an earlier
    /// encoding has left, and damaged files are skipped if another disk has the right ones.
    pub(super) fn ecsum(&self, volume: &VolumeName, folder: &Path) -> Result<Option<Ecsum>, BlockError> {
        let info = self.info(volume, folder)?;
        let ratio = info.map_or_else(Ratio::default, |info| info.ratio);
        let shard_bytes = info.and_then(|info| info.shard_bytes);
        let fits = |ecsum: &Ecsum| {
            let has_length = shard_bytes.is_none_or(|bytes| ecsum.shard_bytes() == Some(bytes));
            ecsum.generation() == 0 && ecsum.ratio() == ratio && has_length
        };
        let mut first = None;
        for path in self.small(volume, ".ecsum", folder)? {
            let bytes = self.read(&path, MAX_FILE_BYTES);
            match bytes.and_then(|bytes| Ecsum::decode(&bytes).map_err(|error| unusable(&path, error))) {
                Ok(ecsum) if !fits(&ecsum) || self.is_outdated(volume, &path)? => {}
                Ok(ecsum) => return Ok(Some(ecsum)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(None), Err)
    }

    /// Whether an earlier encoding has left this file of the volume.
    fn is_outdated(&self, volume: &VolumeName, path: &Path) -> Result<bool, BlockError> {
        let info = self.info(volume, parent(path))?;
        let encoding = info.map_or_else(Encoding::default, |info| info.encoding);
        let found = self.run(parent(path), || fs::metadata(path).map_err(fault(path)))?;
        let seconds_ns = found.mtime().saturating_mul(1_000_000_000);
        Ok(predates(seconds_ns.saturating_add(found.mtime_nsec()), encoding))
    }

    /// Returns the IDs of deleted needles (stored objects) from the volume's journals on all disks, in
    /// ascending order.
    pub(super) fn deleted(&self, volume: &VolumeName) -> Result<Vec<u64>, BlockError> {
        let mut ids = Vec::new();
        for path in self.all_small(volume, JOURNAL)? {
            let bytes = self.run(parent(&path), || fs::read(&path).map_err(fault(&path)))?;
            // An incomplete last entry is still being written.
            ids.extend(bytes.as_chunks::<8>().0.iter().map(|id| u64::from_be_bytes(*id)));
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Returns all shards in order of their names.
    pub(super) fn shards(&self) -> Result<Vec<ShardName>, BlockError> {
        let (listed, silent) = self.list()?;
        match silent.into_iter().next() {
            Some(path) => Err(BlockError::Hangs { path }),
            None => Ok(listed.into_keys().collect()),
        }
    }

    /// Returns all shards with the lengths of their files, and the folders that cannot be listed, because their disks
    /// hang, fail or are not mounted. Folders on [lost](Self::is_lost) disks count as empty. If a shard is on several disks, its first file counts.
    ///
    /// # Errors
    /// [`BlockError`] if no folder can be listed, or if the machine lacks memory or descriptors.
    pub(super) fn list(&self) -> Result<(BTreeMap<ShardName, u64>, Vec<String>), BlockError> {
        let used: Vec<_> = self.used().collect();
        let mut listed: BTreeMap<_, _> = used.iter().copied().zip(self.listings(&used)).collect();
        let (mut shards, mut silent, mut failed) = (BTreeMap::new(), Vec::new(), Vec::new());
        for folder in &self.data {
            let of_folder = listed.remove(folder).unwrap_or_else(|| self.check(folder).map(|()| Vec::new()));
            let fails =
                |error: &BlockError| !is_shortage(error) && !matches!(error, BlockError::Hangs { .. });
            self.watches[folder].note_list(!of_folder.as_ref().is_err_and(fails));
            of_folder.as_ref().err().into_iter().for_each(|error| self.watches[folder].note_error(error));
            match of_folder {
                Ok(found) => found.into_iter().for_each(|(shard, bytes)| {
                    shards.entry(shard).or_insert(bytes);
                }),
                Err(error) if is_shortage(&error) => return Err(error),
                Err(error) => {
                    let is_lost = self.is_lost(folder);
                    tracing::error!(%error, is_lost, "cannot list a folder; check its disk");
                    silent.extend((!is_lost).then(|| folder.display().to_string()));
                    failed.push(error);
                }
            }
        }
        match failed.len() == self.data.len() {
            true => Err(failed.swap_remove(0)),
            false => Ok((shards, silent)),
        }
    }

    /// Lists several folders at once. Returns the results in the same order.
    fn listings(&self, folders: &[&PathBuf]) -> Vec<Result<Vec<(ShardName, u64)>, BlockError>> {
        let look = |folder: &&PathBuf| {
            let (watch, folder) = (self.watch(folder), (*folder).clone());
            (Arc::clone(&watch), move || shards_in(&folder, &watch))
        };
        look_at_all(folders.iter().map(look).collect())
    }

    /// Returns a unique temporary name in `folder`, which SeaweedFS ignores.
    pub(super) fn temporary(&self, folder: &Path, shard: &ShardName) -> PathBuf {
        self.temporary_named(folder, &shard.to_string())
    }

    /// Leaves out the collection, because the longest file names have no room for a prefix and a suffix.
    fn temporary_named(&self, folder: &Path, name: &str) -> PathBuf {
        let short = name.rsplit_once('_').map_or(name, |(_, short)| short);
        folder.join(format!("{}{short}{TEMPORARY_SUFFIX}", self.own_names.next_prefix()))
    }
}

fn watched(folder: &Path) -> Arc<DiskWatch> {
    Arc::new(DiskWatch::new(folder))
}

/// Opens and locks a folder, for [`look_at_all`].
fn opening(
    watch: &Arc<DiskWatch>,
) -> (Arc<DiskWatch>, impl FnOnce() -> Result<(PathBuf, FolderLock), BlockError> + Send + 'static + use<>) {
    let watch = Arc::clone(watch);
    (Arc::clone(&watch), move || watch.run(|| open_folder(watch.folder())))
}

/// Opens and locks one folder. Returns its canonical path.
fn open_folder(folder: &Path) -> Result<(PathBuf, FolderLock), BlockError> {
    let folder = fs::canonicalize(folder).map_err(fault(folder))?;
    let lock = FolderLock::take(&folder, OWN_LOCK, TAKEN)?;
    clean(&folder)?;
    Ok((folder, lock))
}

/// Returns the shards in a folder, with the lengths of their files. A file that cannot be examined is left out if the
/// disk works otherwise.
fn shards_in(folder: &Path, watch: &DiskWatch) -> Result<Vec<(ShardName, u64)>, BlockError> {
    let mut shards = Vec::new();
    for name in watch.run(|| names(folder))? {
        let Ok(shard) = ShardName::from_str(&name) else { continue };
        match watch.run(|| file_bytes(&folder.join(&name))) {
            Ok(bytes) => shards.extend(bytes.map(|bytes| (shard, bytes))),
            Err(error) => match watch.explained(error) {
                error if is_medium_error(&error) && !watch.is_failing() => {
                    tracing::error!(%error, "cannot examine a shard, which counts as missing");
                }
                error => return Err(error),
            },
        }
    }
    // Without this look, the shards of a disk that was just unmounted would count as missing.
    watch.look(|| Ok(shards))
}

/// Removes a file, durably. Returns whether it existed. The folder is synced also if the file is gone already: an
/// earlier attempt may have removed it and failed to make this durable.
fn remove_durably(path: &Path) -> Result<bool, BlockError> {
    let removed = exists(path)? && remove_file(path)?;
    sync_folder(parent(path))?;
    Ok(removed)
}

fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, BlockError> {
    let bytes = fs::metadata(path).map_err(fault(path))?.len();
    if bytes > most {
        return Err(damaged(path, format!("it has {bytes} bytes, but SeaweedFS writes at most {most}")));
    }
    fs::read(path).map_err(fault(path))
}

/// Returns the error for a damaged metadata file (`.vif` or `.ecsum`). It says nothing about the shard, so its kind
/// is not that of a corrupt block.
fn damaged(path: &Path, why: impl std::fmt::Display) -> BlockError {
    let text = format!(
        "{why}; copy it from another server (VolumeEcShardsCopy), or delete it to continue without it"
    );
    fault(path)(io::Error::new(io::ErrorKind::Unsupported, text))
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use store_api::Intake;

    use super::super::shard_blocks::Shared;
    use super::super::writer::ShardWriter;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn shard(name: &str) -> ShardName {
        ShardName::from_str(name).unwrap()
    }

    fn hangs(error: &BlockError) -> bool {
        matches!(error, BlockError::Hangs { .. })
    }

    /// Whether an error proves nothing about any shard, because a disk fails or is not mounted.
    fn is_of_a_disk<T>(result: Result<T, BlockError>) -> bool {
        matches!(result, Err(BlockError::Unmounted { .. }))
    }

    /// Creates two disks with one shard each.
    fn two_disks() -> [tempfile::TempDir; 2] {
        let disks = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for (disk, shard) in disks.iter().zip(["17.ec03", "17.ec04"]) {
            fs::write(disk.path().join(shard), "shard").unwrap();
        }
        disks
    }

    /// Starts a use of a disk that lasts until the result is dropped.
    fn hang(watch: &Arc<DiskWatch>) -> mpsc::Sender<()> {
        let ((begun, has_begun), (end, ends)) = (mpsc::channel(), mpsc::channel::<()>());
        let watch = Arc::clone(watch);
        thread::spawn(move || {
            watch.run(|| {
                begun.send(()).unwrap();
                let _ = ends.recv();
                Ok(())
            })
        });
        has_begun.recv().unwrap();
        end
    }

    #[test]
    fn folders_on_other_disks_are_opened_while_a_disk_hangs() {
        let disks = two_disks();
        let [first, second] = disks.each_ref().map(|disk| fs::canonicalize(disk.path()).unwrap());
        let watches = [watched(&first), Arc::new(DiskWatch::with_patience(&second, Duration::ZERO))];
        let end = hang(&watches[1]);
        let folders = Folders::open_watched(&watches, None).unwrap();
        let silent = [second.display().to_string()];
        let (listed, left_out) = folders.list().unwrap();
        assert_eq!(listed.into_keys().collect::<Vec<_>>(), [shard("17.ec03")]);
        assert_eq!(left_out, silent);
        assert!(folders.indexed().is_err_and(|error| hangs(&error)), "an index may be there");
        assert!(!folders.has_returned());
        drop(end);
        while !folders.has_returned() {
            thread::yield_now();
        }
        assert_eq!(folders.silent(), silent, "it is not locked");
        assert!(folders.find(&shard("17.ec04")).is_err());
        drop(folders);
        let folders = Folders::open(&[first, second.clone()], None).unwrap();
        assert_eq!(folders.shards().unwrap(), [shard("17.ec03"), shard("17.ec04")]);

        let alone = Arc::new(DiskWatch::with_patience(&second, Duration::ZERO));
        let _end = hang(&alone);
        assert!(Folders::open_watched(&[alone], None).is_err_and(|error| hangs(&error)));
    }

    #[test]
    fn shards_on_other_disks_are_found_and_listed_while_a_disk_hangs() {
        let disks = two_disks();
        let mut folders = Folders::open(&disks.each_ref().map(|disk| disk.path().to_owned()), None).unwrap();
        let (first, second) = (folders.data()[0].clone(), folders.data()[1].clone());
        let watch = Arc::new(DiskWatch::with_patience(&second, Duration::ZERO));
        folders.watches.insert(second.clone(), Arc::clone(&watch));
        let end = hang(&watch);

        assert_eq!(folders.find(&shard("17.ec03")).unwrap(), first.join("17.ec03"));
        assert!(folders.find(&shard("17.ec04")).is_err_and(|error| hangs(&error)));
        assert!(folders.copies(&shard("17.ec03")).is_err_and(|error| hangs(&error)));
        assert!(folders.shards().is_err_and(|error| hangs(&error)));
        let (listed, silent) = folders.list().unwrap();
        assert_eq!(listed.into_iter().collect::<Vec<_>>(), [(shard("17.ec03"), 5)]);
        assert_eq!(silent, [second.display().to_string()]);
        assert_eq!(folders.silent(), silent);
        drop(end);
        while !folders.silent().is_empty() {
            thread::yield_now();
        }
        folders.watches.insert(second.clone(), Arc::new(DiskWatch::new(&second)));
        assert_eq!(folders.shards().unwrap(), [shard("17.ec03"), shard("17.ec04")]);
    }

    #[test]
    fn shards_on_a_disk_that_has_failed_for_ten_minutes_are_not_listed() {
        let root = tempfile::tempdir().unwrap();
        let (folders, [_, second]) = open_two(root.path());
        fs::rename(&second, root.path().join("gone")).unwrap();
        let now = Instant::now();
        folders.watches[&second].note_failure(now);
        assert_eq!(folders.list().unwrap().1, [second.display().to_string()]);
        folders.watches[&second].note_failure(now + Duration::from_secs(599));
        folders.watches[&second].note_failure(now + Duration::from_secs(600));
        let (listed, silent) = folders.list().unwrap();
        assert_eq!(listed.into_keys().collect::<Vec<_>>(), [shard("17.ec03")]);
        assert_eq!(silent, Vec::<String>::new());
        assert!(folders.silent()[0].contains("count as lost"), "{:?}", folders.silent());
    }

    /// Opens the folders `a` and `b` in `root`, with one shard each.
    fn open_two(root: &Path) -> (Folders, [PathBuf; 2]) {
        let root = fs::canonicalize(root).unwrap();
        let disks = ["a", "b"].map(|disk| root.join(disk));
        for (disk, shard) in disks.iter().zip(["17.ec03", "17.ec04"]) {
            fs::create_dir(disk).unwrap();
            fs::write(disk.join(shard), "shard").unwrap();
        }
        (Folders::open(&disks, None).unwrap(), disks)
    }

    /// Looks for shards while the second of the disks of [`open_two`] does not work.
    fn look_at_the_first_disk(folders: &Folders, [first, second]: &[PathBuf; 2]) {
        assert_eq!(folders.find(&shard("17.ec03")).unwrap(), first.join("17.ec03"));
        assert!(is_of_a_disk(folders.find(&shard("17.ec04"))), "it may be on the disk that does not work");
        assert!(is_of_a_disk(folders.find(&shard("17.ec05"))));
        assert!(is_of_a_disk(folders.copies(&shard("17.ec03"))));
        assert!(is_of_a_disk(folders.remove(&shard("17.ec04"))));
        let (listed, silent) = folders.list().unwrap();
        assert_eq!(listed.into_keys().collect::<Vec<_>>(), [shard("17.ec03")]);
        assert_eq!(silent, [second.display().to_string()]);
        assert_eq!(folders.silent(), silent);
        assert!(!folders.has_returned(), "there is no other folder to open");
        assert_eq!(folders.silent(), silent, "it still does not work");
    }

    #[test]
    fn a_disk_that_fails_does_not_affect_shards_on_other_disks() {
        let root = tempfile::tempdir().unwrap();
        let (mut folders, disks) = open_two(root.path());
        // Without the check of its place, a file in the place of the folder makes all look-ups fail as on a bad disk.
        folders.watches.insert(disks[1].clone(), watched(&disks[1]));
        let aside = root.path().join("aside");
        fs::rename(&disks[1], &aside).unwrap();
        fs::write(&disks[1], "no folder").unwrap();
        look_at_the_first_disk(&folders, &disks);
        fs::remove_file(&disks[1]).unwrap();
        fs::rename(&aside, &disks[1]).unwrap();
        assert!(!folders.has_returned() && folders.silent().is_empty(), "it is listed without a restart");
        assert_eq!(folders.shards().unwrap(), [shard("17.ec03"), shard("17.ec04")]);
    }

    #[test]
    fn shards_on_an_unmounted_disk_are_not_missing() {
        let root = tempfile::tempdir().unwrap();
        let (folders, disks) = open_two(root.path());
        let aside = root.path().join("aside");
        fs::rename(&disks[1], &aside).unwrap();
        fs::create_dir(&disks[1]).unwrap();
        look_at_the_first_disk(&folders, &disks);
        fs::remove_dir(&disks[1]).unwrap();
        fs::rename(&aside, &disks[1]).unwrap();
        assert!(!folders.has_returned() && folders.silent().is_empty());
        assert!(folders.remove(&shard("17.ec04")).unwrap());
        assert!(!folders.remove(&shard("17.ec04")).unwrap());
        // Another disk is mounted there that a helper has used before.
        fs::rename(&disks[1], &aside).unwrap();
        fs::create_dir(&disks[1]).unwrap();
        fs::write(disks[1].join(OWN_LOCK), "").unwrap();
        assert!(folders.has_returned());
    }

    #[test]
    fn a_folder_that_fails_at_the_start_is_left_out_until_it_can_be_opened() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| root.path().join(name);
        fs::create_dir(folder("a")).unwrap();
        let folders = Folders::open(&[folder("a"), folder("b")], None).unwrap();
        assert_eq!(folders.silent(), [folder("b").display().to_string()]);
        assert!(is_of_a_disk(folders.find(&shard("17.ec03"))) && !folders.has_returned());
        fs::create_dir(folder("b")).unwrap();
        assert!(folders.has_returned());
        // The folders cannot be opened again while an operation on a disk may keep a lock.
        let mut folders = folders;
        let first = folders.data()[0].clone();
        folders.watches.insert(first.clone(), Arc::new(DiskWatch::with_patience(&first, Duration::ZERO)));
        let _end = hang(&folders.watches[&first]);
        assert!(!folders.has_returned());
        assert!(Folders::open(&[folder("c")], None).is_err(), "there is no other folder");
    }

    /// Opens the folders of [`open_two`]. The watch of the first one has no patience.
    fn open_two_impatiently(root: &Path) -> (Folders, [PathBuf; 2], Arc<DiskWatch>) {
        let (mut folders, disks) = open_two(root);
        let watch = Arc::new(DiskWatch::with_patience(&disks[0], Duration::ZERO));
        folders.watches.insert(disks[0].clone(), Arc::clone(&watch));
        (folders, disks, watch)
    }

    #[test]
    fn folders_are_not_opened_again_while_a_write_hangs() {
        let root = tempfile::tempdir().unwrap();
        let (folders, disks, watch) = open_two_impatiently(root.path());
        // Another disk is mounted in place of the second one. A helper has used it before.
        fs::rename(&disks[1], root.path().join("aside")).unwrap();
        fs::create_dir(&disks[1]).unwrap();
        fs::write(disks[1].join(OWN_LOCK), "").unwrap();
        watch.write(|| {
            assert!(!folders.has_returned());
            let silent = [disks[1].display().to_string()];
            assert_eq!(folders.silent(), silent, "a disk with a slow write is in use");
        });
        assert!(folders.has_returned());
    }

    /// Waits until the disk has a step of a write in progress, while `work` is repeated. The watch has no patience.
    fn await_step(watch: &Arc<DiskWatch>, mut work: impl FnMut()) {
        let (watch, begun) = (Arc::clone(watch), Instant::now());
        let watching = thread::spawn(move || {
            while !watch.write_hangs() {
                thread::yield_now();
            }
        });
        while !watching.is_finished() {
            assert!(begun.elapsed() < PATIENCE, "no step is recorded");
            work();
        }
    }

    #[test]
    fn the_watch_of_a_disk_records_the_writes_of_shards_and_other_files() {
        let root = tempfile::tempdir().unwrap();
        let (folders, disks, watch) = open_two_impatiently(root.path());
        await_step(&watch, || folders.put(&disks[0].join("17.vif"), b"{}").unwrap());
        fs::remove_file(disks[0].join("17.vif")).unwrap();
        let (shared, bytes) = (Arc::new(Shared::new(folders)), vec![7; 1 << 20]);
        let create = || {
            let (shared, bytes) = (Arc::clone(&shared), bytes.len() as u64);
            ShardWriter::create(shared, shard("17.ec05"), &disks[0], bytes, false).unwrap()
        };
        await_step(&watch, || drop(create()));
        let mut writer = create();
        await_step(&watch, || writer.write_at(0, &bytes).unwrap());
    }
}
