//! The folders of one DataNode: the paths of a block pool's replicas, and a lock against other helpers.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block_files::{
    DiskWatch, FolderLock, OWN_LOCK, OWN_PREFIX, OwnNames, exists, fault, file_bytes, free_bytes, is_of_disk,
    look_at_all, names_if_any, parent, remove_all, remove_file, silent_folders, sync_folder,
};
use store_api::BlockError;

use super::name::ReplicaName;

const TAKEN: &str = "another helper uses this folder: start one helper for each DataNode";
/// The layout version of Hadoop 2.8 and later, which has 32 × 32 folders.
const LAYOUT: &str = "-57";
const FOLDERS: u8 = 32;
/// The list of replicas that a stopped DataNode keeps, to avoid a scan at its next start.
const REPLICA_LIST: &str = "replicas";

/// The part of one DataNode folder that belongs to the block pool.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    /// The path of `current/BP-…`.
    pool: PathBuf,
    watch: Arc<DiskWatch>,
}

/// All folders of a DataNode, locked against other helpers until this is dropped.
#[derive(Debug)]
pub(super) struct Volumes {
    pool: String,
    volumes: Vec<Volume>,
    /// The watches of folders that were left out because their disks did not answer.
    left_out: Vec<Arc<DiskWatch>>,
    own_names: OwnNames,
    /// Whether it was logged that a write keeps the folders from being opened again.
    is_wait_logged: AtomicBool,
    _locks: Vec<FolderLock>,
}

/// The two files of a replica.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) bytes: PathBuf,
    pub(super) meta: PathBuf,
    /// The watch of their disk.
    pub(super) watch: Arc<DiskWatch>,
}

impl Volume {
    /// Opens the block pool `pool` below one folder of a DataNode. Removes files that a crash of Mend left
    /// behind.
    fn open(folder: &Path, pool: &str, watch: Arc<DiskWatch>) -> Result<Self, BlockError> {
        check_layout(&folder.join("current"))?;
        let pool = folder.join("current").join(pool);
        check_layout(&pool.join("current"))?;
        let volume = Self { pool, watch };
        volume.clean()?;
        Ok(volume)
    }

    fn finalized(&self) -> PathBuf {
        self.pool.join("current/finalized")
    }

    /// Returns the folder of the DataNode's unfinished files. The DataNode empties it at startup.
    fn unfinished(&self) -> PathBuf {
        self.pool.join("tmp")
    }

    fn folder(&self, name: &ReplicaName) -> PathBuf {
        let [outer, inner] = name.folders();
        self.finalized().join(format!("subdir{outer}/subdir{inner}"))
    }

    /// Returns the paths of a replica's files, whether or not they exist.
    pub(super) fn files(&self, name: &ReplicaName) -> Files {
        self.files_in(&self.folder(name), "", name)
    }

    /// Returns the paths of a replica's files in a folder of this volume, where their names have a prefix.
    fn files_in(&self, folder: &Path, prefix: &str, name: &ReplicaName) -> Files {
        let file = |name: String| folder.join(format!("{prefix}{name}"));
        Files { bytes: file(name.file()), meta: file(name.meta_file()), watch: Arc::clone(&self.watch) }
    }

    /// Checks that the volume's disk is still mounted.
    pub(super) fn check(&self) -> Result<(), BlockError> {
        self.watch.look(|| Ok(()))
    }

    /// Creates the folder of a replica, durably.
    pub(super) fn make_folder(&self, name: &ReplicaName) -> Result<PathBuf, BlockError> {
        self.check()?; // Otherwise the folder would be on the disk of the mount point.
        let folder = self.folder(name);
        if !exists(&folder)? {
            fs::create_dir_all(&folder).map_err(fault(&folder))?;
            sync_folder(parent(&folder))?;
            sync_folder(&self.finalized())?;
        }
        Ok(folder)
    }

    /// Whether the replica is in this volume, intact or not. The file with the block's bytes must exist. If
    /// there are checksum files of the block, one of them must have the replica's generation stamp; if there
    /// are none, the replica is there but has lost its checksums.
    pub(super) fn has(&self, name: &ReplicaName) -> Result<bool, BlockError> {
        let files = self.files(name);
        Ok(exists(&files.bytes)? && (exists(&files.meta)? || self.stamps(name)?.is_empty()))
    }

    /// Returns the generation stamps of all checksum files of this block.
    pub(super) fn stamps(&self, name: &ReplicaName) -> Result<Vec<u64>, BlockError> {
        let replicas = replicas(&self.folder(name))?;
        let same = replicas.iter().filter(|replica| replica.block() == name.block());
        Ok(same.map(ReplicaName::stamp).collect())
    }

    /// Returns another block of the same group, if both files of such a block exist in this volume.
    fn beside(&self, name: &ReplicaName) -> Result<Option<ReplicaName>, BlockError> {
        let folder = self.folder(name); // All blocks of a group have the same folder.
        for other in replicas(&folder)?.into_iter().filter(|other| other.is_beside(name)) {
            if exists(&folder.join(other.file()))? {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// Lists the replicas that have both files, with their lengths.
    fn list(&self) -> Result<Vec<(ReplicaName, u64)>, BlockError> {
        let mut found = Vec::new();
        for folder in (0..FOLDERS).flat_map(|outer| (0..FOLDERS).map(move |inner| (outer, inner))) {
            let folder = self.finalized().join(format!("subdir{}/subdir{}", folder.0, folder.1));
            for name in self.watch.run(|| replicas(&folder))? {
                if let Some(bytes) = self.watch.run(|| file_bytes(&folder.join(name.file())))? {
                    found.push((name, bytes));
                }
            }
        }
        // Without this look, the replicas of a disk that was just unmounted would count as missing.
        self.watch.look(|| Ok(found))
    }

    /// Removes a replica, including a checksum file without bytes. Returns whether the replica existed; `None` if none of
    /// its files did.
    fn remove(&self, name: &ReplicaName) -> Result<Option<bool>, BlockError> {
        let files = self.files(name);
        // The bytes are removed first, because checksums without bytes are ignored, and removed at the
        // DataNode's next scan.
        let bytes = self.has(name)? && remove_file(&files.bytes)?;
        let sums = exists(&files.meta)? && remove_file(&files.meta)?;
        if !bytes && !sums {
            return Ok(None);
        }
        self.sync(name).map(|()| Some(bytes))
    }

    /// Makes removals from the folder of a replica durable.
    fn sync(&self, name: &ReplicaName) -> Result<(), BlockError> {
        let folder = self.folder(name);
        if exists(&folder)? { sync_folder(&folder) } else { Ok(()) }
    }

    /// Deletes the list of replicas, so that a stopped DataNode scans its folders at the next start.
    /// Otherwise the DataNode would use the list if it is at most five minutes old. A running DataNode has no
    /// list.
    pub(super) fn forget_list(&self) -> Result<(), BlockError> {
        let current = self.pool.join("current");
        if remove_file(&current.join(REPLICA_LIST))? { sync_folder(&current) } else { Ok(()) }
    }

    /// Returns the free space in bytes.
    pub(super) fn free_bytes(&self) -> Result<u64, BlockError> {
        free_bytes(&self.pool)
    }

    fn clean(&self) -> Result<(), BlockError> {
        let folder = self.unfinished();
        let names = names_if_any(&folder)?;
        remove_all(&folder, names.iter().filter(|name| name.starts_with(OWN_PREFIX)))
    }
}

/// Replicas with their lengths, and the [silent folders](Volumes::silent_folders).
pub(super) type Listed = (Vec<(ReplicaName, u64)>, Vec<String>);

impl Volumes {
    /// Opens and locks the folders of a DataNode, which must have run there before. Folders on failed disks are
    /// left out if there are others, because a DataNode may tolerate failed disks as well
    /// (`dfs.datanode.failed.volumes.tolerated`).
    pub(super) fn open(folders: &[PathBuf], pool: Option<&str>) -> Result<Self, BlockError> {
        let none = || refused(Path::new("dfs.datanode.data.dir"), "no folder is given".to_owned());
        let watches: Vec<_> = folders.iter().map(|folder| Arc::new(DiskWatch::new(folder))).collect();
        let look = |watch: &Arc<DiskWatch>| {
            let (watch, pool) = (Arc::clone(watch), pool.map(str::to_owned));
            (Arc::clone(&watch), move || watch.run(|| open_volume(&watch, pool.as_deref())))
        };
        let opened = look_at_all(watches.iter().map(look).collect());
        let (mut open, mut left_out, mut failed) = (Vec::new(), Vec::new(), None);
        for (watch, opened) in watches.into_iter().zip(opened) {
            match opened {
                Ok(volume) => open.push(volume),
                Err(error) if is_of_disk(&error) => {
                    let hangs = matches!(error, BlockError::Hangs { .. });
                    tracing::error!(
                        folder = %watch.folder().display(), %error,
                        "leaving out a folder, and its blocks. {}; otherwise remove the folder from `folders` in \
                         mend.toml",
                        once_it_works(hangs)
                    );
                    if hangs {
                        left_out.push(watch);
                    }
                    failed = failed.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        let pool = open.first().map(|(_, pool, _)| pool.clone());
        let Some(pool) = pool else { return Err(failed.unwrap_or_else(none)) };
        let (volumes, locks) = open.into_iter().map(|(volume, _, lock)| (volume, lock)).unzip();
        let (own_names, is_wait_logged) = Default::default();
        Ok(Self { pool, volumes, left_out, own_names, is_wait_logged, _locks: locks })
    }

    /// Returns the name of the block pool.
    pub(super) fn pool(&self) -> &str {
        &self.pool
    }

    pub(super) fn all(&self) -> &[Volume] {
        &self.volumes
    }

    /// Looks at each disk. Returns what the working disks have, in the order of the disks, and the first failure of
    /// a disk. A failed disk does not matter for the others: the DataNode does without it too.
    ///
    /// # Errors
    /// If no disk works, or an error is not the fault of a disk.
    fn look<'v, T>(
        &'v self,
        mut look: impl FnMut(&'v Volume) -> Result<T, BlockError>,
    ) -> Result<(Vec<T>, Option<BlockError>), BlockError> {
        let hangs = |watch: &Arc<DiskWatch>| BlockError::Hangs { path: watch.folder().display().to_string() };
        let (mut found, mut failed) = (Vec::new(), self.left_out.first().map(hangs));
        for volume in &self.volumes {
            match volume.watch.look(|| look(volume)) {
                Ok(it) => found.push(it),
                Err(error) if is_of_disk(&error) => failed = failed.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match failed {
            Some(error) if found.is_empty() => Err(error),
            failed => Ok((found, failed)),
        }
    }

    /// Returns the working disks, those with the most free space first, as their numbers and their free bytes.
    pub(super) fn by_space(&self) -> Result<Vec<(usize, u64)>, BlockError> {
        let number = |volume: &Volume| self.volumes.iter().position(|other| std::ptr::eq(other, volume));
        let (mut free, _) =
            self.look(|volume| Ok((number(volume).unwrap_or_default(), volume.free_bytes()?)))?;
        free.sort_by_key(|&(number, bytes)| (Reverse(bytes), number));
        Ok(free)
    }

    /// Returns the volumes that have bytes of the block, with any generation stamp.
    ///
    /// # Errors
    /// As for [`look`](Self::look), and if a disk hangs or is not mounted.
    pub(super) fn with(&self, name: &ReplicaName) -> Result<Vec<&Volume>, BlockError> {
        let has = |volume| Ok(exists(&Volume::files(volume, name).bytes)?.then_some(volume));
        let (found, failed) = self.look(has)?;
        unless_unknown(failed)?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Refuses a block if the DataNode has another block of the same group. The NameNode records only one
    /// block of a group per DataNode, and would mistake the second for the first or ignore it. A block that the
    /// DataNode has already may be replaced, because that changes no placement.
    pub(super) fn check_group(&self, name: &ReplicaName) -> Result<(), BlockError> {
        if !self.with(name)?.is_empty() {
            return Ok(());
        }
        let (beside, failed) = self.look(|volume| volume.beside(name))?;
        unless_unknown(failed)?;
        match beside.into_iter().flatten().next() {
            Some(beside) => Err(BlockError::Beside { block: name.block_id(), beside: beside.block_id() }),
            None => Ok(()),
        }
    }

    /// Returns the files of a replica on each disk that has the replica, in the order of the disks.
    ///
    /// # Errors
    /// As for [`look`](Self::look), and if the replica is on no working disk but may be on a failed one.
    pub(super) fn find(&self, name: &ReplicaName) -> Result<Vec<Files>, BlockError> {
        let has = |volume: &Volume| volume.has(name).map_err(|error| volume.watch.explained(error));
        let (found, failed) = self.look(|volume| Ok(has(volume)?.then(|| volume.files(name))))?;
        let found: Vec<Files> = found.into_iter().flatten().collect();
        match failed.filter(|_| found.is_empty()) {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }

    /// Removes a replica from all disks, including checksum files without bytes. Returns whether the replica
    /// existed.
    pub(super) fn remove(&self, name: &ReplicaName) -> Result<bool, BlockError> {
        let removals: Vec<Result<Option<bool>, BlockError>> =
            self.volumes.iter().map(|volume| volume.watch.look(|| volume.remove(name))).collect();
        let removals = removals.into_iter().collect::<Result<Vec<_>, _>>()?;
        if removals.iter().all(Option::is_none) {
            // An earlier attempt may have removed the files and failed to make this durable.
            self.volumes.iter().try_for_each(|volume| volume.watch.look(|| volume.sync(name)))?;
        }
        let was_there = removals.contains(&Some(true));
        match self.left_out_folders().into_iter().next() {
            // The replica may be on a disk that did not answer when the folders were opened.
            Some(path) if !was_there => Err(BlockError::Hangs { path }),
            _ => Ok(was_there),
        }
    }

    /// Returns temporary names in `volume`, unique among writers. The DataNode removes such files at startup.
    pub(super) fn temporary(&self, volume: &Volume, name: &ReplicaName) -> Files {
        volume.files_in(&volume.unfinished(), &self.own_names.next_prefix(), name)
    }

    /// Lists all replicas that have both files, with their lengths, sorted by name. Replicas on a disk that fails
    /// are left out, if another disk works. Also returns the [silent folders](Self::silent_folders).
    pub(super) fn list(&self) -> Result<Listed, BlockError> {
        let (mut found, mut failed, mut works) = (Vec::new(), None, false);
        let mut silent = self.left_out_folders();
        let volumes: Vec<&Volume> = self.volumes.iter().collect();
        for (volume, listed) in volumes.iter().zip(listings(&volumes)) {
            volume.watch.note_list(!matches!(&listed, Err(BlockError::Unmounted { .. })));
            match listed {
                Ok(listed) => {
                    works = true;
                    found.extend(listed);
                }
                Err(error) if is_of_disk(&error) => {
                    if is_unknown(&error) {
                        silent.push(volume.watch.folder().display().to_string());
                    }
                    failed = failed.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = failed.filter(|_| !works) {
            return Err(error);
        }
        found.sort_unstable();
        found.dedup_by_key(|(name, _)| *name);
        Ok((found, silent))
    }

    /// Returns the folders that were left out because their disks did not answer, and those whose disks hang
    /// now or are not mounted.
    pub(super) fn silent_folders(&self) -> Vec<String> {
        let silent = silent_folders(self.volumes.iter().map(|volume| &*volume.watch));
        self.left_out_folders().into_iter().chain(silent).collect()
    }

    fn left_out_folders(&self) -> Vec<String> {
        self.left_out.iter().map(|watch| watch.folder().display().to_string()).collect()
    }

    /// Whether the folders must be opened again, because a disk answers again that did not when they were opened, or
    /// another folder is at a path. Also lists the folders again whose disks were not mounted.
    ///
    /// While an operation or a write on a used disk hangs, the folders stay locked and could not be opened again.
    pub(super) fn has_returned(&self) -> bool {
        // All are examined, also to note those that are not mounted.
        let displaced: Vec<bool> = self.volumes.iter().map(|volume| volume.watch.is_displaced()).collect();
        let unlisted: Vec<_> = self.volumes.iter().filter(|volume| volume.watch.is_unlisted()).collect();
        for (volume, listed) in unlisted.iter().zip(listings(&unlisted)) {
            volume.watch.note_list(listed.is_ok());
        }
        let hangs = self.volumes.iter().any(|volume| volume.watch.check().is_err());
        let has_returned =
            displaced.contains(&true) || self.left_out.iter().any(|watch| watch.check().is_ok());
        !hangs && has_returned && !self.awaits_write()
    }

    /// Whether a write hangs that keeps the folders locked. Logs the first one.
    fn awaits_write(&self) -> bool {
        let Some(volume) = self.volumes.iter().find(|volume| volume.watch.write_hangs()) else {
            return false;
        };
        if !self.is_wait_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                folder = %volume.watch.folder().display(),
                "a folder has changed, but a write to this disk does not end; the folders are opened again after it"
            );
        }
        true
    }
}

/// Lists several volumes at once. Returns the results in the same order.
fn listings(volumes: &[&Volume]) -> Vec<Result<Vec<(ReplicaName, u64)>, BlockError>> {
    let look = |volume: &&Volume| {
        let (watch, volume) = (Arc::clone(&volume.watch), Volume::clone(volume));
        (watch, move || volume.list())
    };
    look_at_all(volumes.iter().map(look).collect())
}

/// Whether a disk with this error hangs or is not mounted. The replicas on it are not known, and the DataNode may
/// still use it, or use it again.
fn is_unknown(error: &BlockError) -> bool {
    matches!(error, BlockError::Hangs { .. } | BlockError::Unmounted { .. })
}

/// Passes on the error of a disk whose replicas are [not known](is_unknown).
fn unless_unknown(failed: Option<BlockError>) -> Result<(), BlockError> {
    failed.filter(is_unknown).map_or(Ok(()), Err)
}

/// Opens and locks one folder; also returns the name of its block pool. The DataNode locks `in_use.lock`.
fn open_volume(
    watch: &Arc<DiskWatch>,
    pool: Option<&str>,
) -> Result<(Volume, String, FolderLock), BlockError> {
    let folder = fs::canonicalize(watch.folder()).map_err(fault(watch.folder()))?;
    let pool = pool.map_or_else(|| only_pool(&folder), |pool| Ok(pool.to_owned()))?;
    let lock = FolderLock::take(&folder, OWN_LOCK, TAKEN)?;
    watch.keep_place(&lock);
    Ok((Volume::open(&folder, &pool, Arc::clone(watch))?, pool, lock))
}

/// Describes how a folder that was left out is used again. The helper looks for the return of disks that hang.
fn once_it_works(hangs: bool) -> &'static str {
    match hangs {
        true => "If its disk answers again, this helper uses the folder by itself",
        false => "If its disk works again, restart this helper",
    }
}

/// Returns the replicas that have a checksum file in a folder; none if the folder does not exist.
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
            format!(
                "the DataNode has several block pools; set `pool` of this helper in mend.toml to one of \
                 them: {}",
                several.join(", ")
            ),
        )),
    }
}

/// Checks that the folder has a layout that this program supports.
fn check_layout(current: &Path) -> Result<(), BlockError> {
    let path = current.join("VERSION");
    let text = fs::read_to_string(&path).map_err(fault(&path))?;
    match text.lines().find_map(|line| line.strip_prefix("layoutVersion=")) {
        Some(LAYOUT) => Ok(()),
        found => {
            let found = found.unwrap_or("none");
            let text = format!(
                "its layout version is {found}, but this program supports {LAYOUT} (Hadoop 2.8 to 3.5)"
            );
            Err(fault(&path)(io::Error::new(io::ErrorKind::Unsupported, text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use store_api::Intake;

    use super::super::meta::ChecksumFormat;
    use super::super::writer::{Destination, ReplicaWriter, Shared};
    use super::*;

    const POOL: &str = "BP-1-127.0.0.1-1";
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Creates a disk of a DataNode with one replica.
    fn make_disk(folder: &Path, replica: &ReplicaName) {
        let pool = folder.join("current").join(POOL);
        for current in [folder.join("current"), pool.join("current")] {
            fs::create_dir_all(&current).unwrap();
            fs::write(current.join("VERSION"), format!("layoutVersion={LAYOUT}\n")).unwrap();
        }
        let watch = Arc::new(DiskWatch::new(folder));
        let files = Volume { pool, watch }.files(replica);
        fs::create_dir_all(parent(&files.bytes)).unwrap();
        fs::write(files.bytes, "bytes").unwrap();
        fs::write(files.meta, "sums").unwrap();
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
    fn only_a_folder_that_does_not_hang_needs_a_restart() {
        assert!(!once_it_works(true).contains("restart"));
        assert!(once_it_works(false).contains("restart this helper"));
    }

    #[test]
    fn replicas_on_other_disks_are_found_and_listed_while_a_disk_hangs() {
        let root = tempfile::tempdir().unwrap();
        let [first, second, absent] = [1, 2, 3].map(|block| ReplicaName::new(block, 1001).unwrap());
        let folders = ["a", "b"].map(|disk| root.path().join(disk));
        make_disk(&folders[0], &first);
        make_disk(&folders[1], &second);
        let mut volumes = Volumes::open(&folders, None).unwrap();
        let watch = Arc::new(DiskWatch::with_patience(&folders[1], Duration::ZERO));
        volumes.volumes[1].watch = Arc::clone(&watch);
        let ((begun, has_begun), (end, ends)) = (mpsc::channel(), mpsc::channel::<()>());
        thread::spawn(move || {
            watch.run(|| {
                begun.send(()).unwrap();
                let _ = ends.recv();
                Ok(())
            })
        });
        has_begun.recv().unwrap();

        let hangs = |error: &BlockError| matches!(error, BlockError::Hangs { .. });
        assert_eq!(volumes.find(&first).unwrap().len(), 1);
        assert!(volumes.find(&absent).is_err_and(|error| hangs(&error)), "it may be on the disk that hangs");
        assert!(volumes.check_group(&absent).is_err_and(|error| hangs(&error)));
        assert_eq!(volumes.by_space().unwrap()[0].0, 0);
        let silent = vec![folders[1].display().to_string()];
        assert_eq!(volumes.list().unwrap(), (vec![(first, 5)], silent.clone()));
        assert_eq!(volumes.silent_folders(), silent);
        drop(end);
        while !volumes.silent_folders().is_empty() {
            thread::yield_now();
        }
        volumes.volumes[1].watch = Arc::new(DiskWatch::new(&folders[1]));
        assert_eq!(volumes.list().unwrap(), (vec![(first, 5), (second, 5)], Vec::new()));
    }

    #[test]
    fn folders_are_not_opened_again_while_a_write_hangs() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["a", "b"].map(|disk| root.path().join(disk));
        for (folder, block) in folders.iter().zip(1..) {
            make_disk(folder, &ReplicaName::new(block, 1001).unwrap());
        }
        let mut volumes = Volumes::open(&folders, None).unwrap();
        let watch = Arc::new(DiskWatch::with_patience(&folders[0], Duration::ZERO));
        volumes.volumes[0].watch = Arc::clone(&watch);
        // Another disk is mounted in place of the second one. A helper has used it before.
        fs::rename(&folders[1], root.path().join("aside")).unwrap();
        fs::create_dir(&folders[1]).unwrap();
        fs::write(folders[1].join(OWN_LOCK), "").unwrap();
        watch.write(|| {
            assert!(!volumes.has_returned());
            let silent = [folders[1].display().to_string()];
            assert_eq!(volumes.silent_folders(), silent, "a disk with a slow write is in use");
        });
        assert!(volumes.has_returned());
    }

    #[test]
    fn the_watch_of_a_disk_records_the_writes_of_replicas() {
        let root = tempfile::tempdir().unwrap();
        let folders = [root.path().join("a")];
        let [there, name] = [1, 2].map(|block| ReplicaName::new(block, 1001).unwrap());
        make_disk(&folders[0], &there);
        fs::create_dir(folders[0].join("current").join(POOL).join("tmp")).unwrap();
        let mut volumes = Volumes::open(&folders, None).unwrap();
        let watch = Arc::new(DiskWatch::with_patience(&folders[0], Duration::ZERO));
        volumes.volumes[0].watch = Arc::clone(&watch);
        let (shared, bytes) = (Arc::new(Shared::new(volumes)), vec![7; 1 << 20]);
        let create = || {
            let place = Destination { volume: 0, name };
            let format = ChecksumFormat::default();
            ReplicaWriter::create(Arc::clone(&shared), place, bytes.len() as u64, format).unwrap()
        };
        await_step(&watch, || drop(create()));
        let mut writer = create();
        await_step(&watch, || writer.write_at(0, &bytes).unwrap());
    }
}
