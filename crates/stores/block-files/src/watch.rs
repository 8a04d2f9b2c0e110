//! Notices a disk that hangs, is unmounted or fails, so that it does not affect the use of other disks.
//!
//! A system call that waits for a disk cannot be cancelled. [`DiskWatch`] therefore records when each use of
//! a disk began. If a use takes too long, the disk hangs, and further uses fail at once until that use ends. Steps of
//! writes are recorded too, but do not make a disk hang.
//!
//! If a disk is unmounted, its files are not found, although they exist. [`DiskWatch::look`] therefore checks that
//! the folder is still at its path before it returns that a file does not exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use store_api::BlockError;

use crate::{FolderLock, FolderPlace, OWN_LOCK, check_writable, fault, is_medium_error, is_of_medium};

/// A disk with a use that takes longer hangs. A busy disk may take several seconds.
const HANGS_AFTER: Duration = Duration::from_secs(30);
/// A read of a block may take this many times as long: disks try again and again to read a bad sector.
const READ_FACTOR: u32 = 2;
/// A disk that has failed for this long without a pause as long counts as lost. It is the default grace period of nodes.
const LOST_AFTER: Duration = Duration::from_secs(600);
/// The interval at which unfinished looks are examined.
const RECHECK_EVERY: Duration = Duration::from_millis(50);

/// The uses of one folder's disk.
#[derive(Debug)]
pub struct DiskWatch {
    folder: PathBuf,
    patience: Duration,
    uses: Mutex<Uses>,
    /// The opened folder; unset until it was opened.
    place: OnceLock<FolderPlace>,
    /// Whether the last list of the folder's files failed.
    is_unlisted: AtomicBool,
    failures: Mutex<Option<Failures>>,
}

/// When the whole disk failed first and last, without a long pause in between.
#[derive(Clone, Copy, Debug)]
struct Failures {
    first: Instant,
    last: Instant,
}

/// The uses and the steps of writes in progress.
#[derive(Debug, Default)]
struct Uses {
    /// When each use will have taken too long, by its number.
    due: BTreeMap<u64, Instant>,
    /// When each step of a write will have taken too long, by its number.
    writes_due: BTreeMap<u64, Instant>,
    next: u64,
}

/// A use or a step of a write in progress. Dropping it ends the use or step.
struct Using<'w> {
    watch: &'w DiskWatch,
    number: u64,
}

impl DiskWatch {
    /// Creates the watch of a folder that is not in use.
    pub fn new(folder: &Path) -> Self {
        Self::with_patience(folder, HANGS_AFTER)
    }

    /// Like [`new`](Self::new), for a disk that hangs if a use takes longer than `patience`.
    pub fn with_patience(folder: &Path, patience: Duration) -> Self {
        Self {
            folder: folder.to_owned(),
            patience,
            uses: Mutex::default(),
            place: OnceLock::new(),
            is_unlisted: AtomicBool::new(false),
            failures: Mutex::default(),
        }
    }

    /// Sets the folder that must stay at the path: the one that was just locked.
    pub fn keep_place(&self, lock: &FolderLock) {
        let _ = self.place.set(lock.place()); // A folder is opened once.
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs `work`, one short use of the disk.
    ///
    /// # Errors
    /// [`BlockError::Hangs`] if the disk hangs already; the errors of `work`.
    pub fn run<T>(&self, work: impl FnOnce() -> Result<T, BlockError>) -> Result<T, BlockError> {
        self.run_within(self.patience, work)
    }

    /// Like [`run`](Self::run), for a read of a block.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn read<T>(&self, work: impl FnOnce() -> Result<T, BlockError>) -> Result<T, BlockError> {
        self.run_within(READ_FACTOR * self.patience, work)
    }

    /// Runs `work`, one step of the write of a block: a system call or a few, such as an fsync or a rename.
    ///
    /// An fsync on a busy disk may take minutes, so a step that takes long does not make the disk hang. Only
    /// [`write_hangs`](Self::write_hangs) reports it.
    pub fn write<T>(&self, work: impl FnOnce() -> T) -> T {
        let _using = self.begin(self.patience, |uses| &mut uses.writes_due);
        work()
    }

    /// Whether a step of a [write](Self::write) takes too long. Never waits.
    ///
    /// Its writer keeps the folders of the store locked, so they cannot be opened again until the step has ended.
    pub fn write_hangs(&self) -> bool {
        is_past_due(&self.uses().writes_due)
    }

    /// Like [`run`](Self::run), for work by paths. Afterwards checks that the disk is still mounted.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`BlockError::Unmounted`] also if `work` succeeded.
    pub fn look<T>(&self, work: impl FnOnce() -> Result<T, BlockError>) -> Result<T, BlockError> {
        self.run(|| {
            let done = work();
            self.check_place()?;
            done
        })
    }

    fn run_within<T>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        self.check()?;
        let _using = self.begin(limit, |uses| &mut uses.due);
        work()
    }

    /// Checks that the disk does not hang. Never waits.
    ///
    /// # Errors
    /// [`BlockError::Hangs`].
    pub fn check(&self) -> Result<(), BlockError> {
        let hangs = is_past_due(&self.uses().due);
        match hangs {
            true => Err(self.hangs()),
            false => Ok(()),
        }
    }

    /// Checks that the opened folder is still at its path. A disk that fails is not unmounted.
    fn check_place(&self) -> Result<(), BlockError> {
        self.place.get().map_or(Ok(()), FolderPlace::check).map_err(|unmounted| {
            match fs::metadata(&self.folder) {
                Err(error) if is_of_medium(&error) => fault(&self.folder)(error),
                Ok(_) | Err(_) => unmounted,
            }
        })
    }

    /// Returns the error to report for a block on this disk that cannot be opened or read. If the whole disk is
    /// unmounted or fails, the error says so, because it then proves nothing about the block, unless the disk is
    /// [lost](Self::is_lost). Blocks.
    pub fn explained(&self, error: BlockError) -> BlockError {
        let is_medium = is_medium_error(&error);
        let whole = self.look(|| if is_medium { check_writable(&self.folder) } else { Ok(()) });
        self.judged(error, whole)
    }

    /// Like [`explained`](Self::explained), with the result of a write to the disk.
    fn judged(&self, error: BlockError, written: Result<(), BlockError>) -> BlockError {
        match written {
            Err(unmounted @ BlockError::Unmounted { .. }) => return unmounted,
            Err(whole) if is_medium_error(&error) && is_medium_error(&whole) => {
                self.note_failure(Instant::now());
                if !self.is_lost() {
                    return self.fails(&format!("{error}, and the whole disk seems to fail ({whole})"));
                }
            }
            Ok(()) if is_medium_error(&error) => self.note_works(),
            Ok(()) | Err(_) => {}
        }
        error
    }

    /// Records the error with which opening or listing the folder has failed.
    pub fn note_error(&self, error: &BlockError) {
        if is_medium_error(error) {
            self.note_failure(Instant::now());
        }
    }

    /// Checks whether a disk that has failed works again: `listed` is a new list of its files. Blocks.
    pub fn note_again<T>(&self, listed: &Result<T, BlockError>) {
        self.note_list(listed.is_ok());
        match listed {
            Err(error) => self.note_error(error),
            Ok(_) => match self.look(|| check_writable(&self.folder)) {
                Ok(()) => self.note_works(),
                Err(_) => self.note_failure(Instant::now()),
            },
        }
    }

    fn note_works(&self) {
        *self.failures() = None;
    }

    /// Whether the whole disk has failed, and was not found to work since.
    pub fn is_failing(&self) -> bool {
        self.failures().is_some()
    }

    /// Records that the whole disk fails at this time.
    pub fn note_failure(&self, now: Instant) {
        let mut failures = self.failures();
        let known = failures.filter(|known| now.saturating_duration_since(known.last) < LOST_AFTER);
        let first = known.map_or(now, |known| known.first);
        *failures = Some(Failures { first, last: now });
    }

    /// Whether the disk has failed for so long that its blocks count as lost. A disk that hangs or is not mounted is
    /// not lost.
    pub fn is_lost(&self) -> bool {
        self.failures().is_some_and(|known| known.last.saturating_duration_since(known.first) >= LOST_AFTER)
    }

    fn failures(&self) -> MutexGuard<'_, Option<Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error for a disk that fails for this reason. It proves nothing about any block.
    pub fn fails(&self, why: &str) -> BlockError {
        BlockError::Unmounted { path: self.folder.display().to_string(), why: why.to_owned() }
    }

    /// Records whether the last list of the folder's files is complete.
    pub fn note_list(&self, is_complete: bool) {
        self.is_unlisted.store(!is_complete, Ordering::Relaxed);
    }

    /// Whether the last list of the folder's files failed.
    pub fn is_unlisted(&self) -> bool {
        self.is_unlisted.load(Ordering::Relaxed)
    }

    /// Whether it is not known which files are on the disk: it hangs, or the last list failed. Never waits.
    pub fn is_silent(&self) -> bool {
        self.is_unlisted() || self.check().is_err()
    }

    /// Whether another folder is at the path now that a helper has used before: it has a lock file. The empty
    /// folder that remains when a disk is unmounted usually has none. Blocks.
    ///
    /// If no folder that was used before is at the path, or the folder cannot be examined because its disk fails, it counts
    /// as [unlisted](Self::is_unlisted).
    pub fn is_displaced(&self) -> bool {
        match self.look(|| Ok(())) {
            Err(BlockError::Unmounted { .. }) => {
                self.note_list(false);
                self.folder.join(OWN_LOCK).exists()
            }
            Err(error) if is_medium_error(&error) => {
                self.note_list(false);
                self.note_failure(Instant::now());
                false
            }
            Ok(()) | Err(_) => false,
        }
    }

    fn hangs(&self) -> BlockError {
        BlockError::Hangs { path: self.folder.display().to_string() }
    }

    /// Records a use or a step of a write in the map that `of` returns.
    fn begin(&self, limit: Duration, of: fn(&mut Uses) -> &mut BTreeMap<u64, Instant>) -> Using<'_> {
        let mut uses = self.uses();
        let number = uses.next;
        uses.next += 1;
        of(&mut uses).insert(number, Instant::now() + limit);
        Using { watch: self, number }
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let mut uses = self.watch.uses();
        uses.due.remove(&self.number);
        uses.writes_due.remove(&self.number);
    }
}

/// Whether one of these times has come.
fn is_past_due(due: &BTreeMap<u64, Instant>) -> bool {
    due.values().min().is_some_and(|first| *first <= Instant::now())
}

/// Returns the folders of which it is [not known](DiskWatch::is_silent) which files they hold.
pub fn silent_folders<'w>(watches: impl IntoIterator<Item = &'w DiskWatch>) -> Vec<String> {
    let silent = watches.into_iter().filter(|watch| watch.is_silent());
    silent.map(|watch| watch.folder.display().to_string()).collect()
}

/// Looks at several disks at once, each on a thread of its own. Each look consists of [uses](DiskWatch::run)
/// of its disk. Returns the results in the same order; that of a disk that hangs is [`BlockError::Hangs`].
pub fn look_at_all<T, L>(looks: Vec<(Arc<DiskWatch>, L)>) -> Vec<Result<T, BlockError>>
where
    T: Send + 'static,
    L: FnOnce() -> Result<T, BlockError> + Send + 'static,
{
    let (sender, results) = mpsc::channel();
    let (mut watches, mut found) = (Vec::new(), Vec::new());
    for (number, (watch, look)) in looks.into_iter().enumerate() {
        let sender = sender.clone();
        let begun = thread::Builder::new().spawn(move || drop(sender.send((number, look()))));
        found.push(begun.err().map(|error| Err(fault(watch.folder())(error))));
        watches.push(watch);
    }
    drop(sender);
    while !are_done(&found, &watches) {
        match results.recv_timeout(RECHECK_EVERY) {
            Ok((number, result)) => found[number] = Some(result),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let found = found.into_iter().zip(&watches);
    found.map(|(found, watch)| found.unwrap_or_else(|| Err(watch.hangs()))).collect()
}

/// Whether every look has a result, or hangs.
fn are_done<T>(found: &[Option<T>], watches: &[Arc<DiskWatch>]) -> bool {
    found.iter().zip(watches).all(|(found, watch)| found.is_some() || watch.check().is_err())
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;
    use crate::exists;

    /// Starts a use that lasts until the result is dropped.
    fn hang(watch: &Arc<DiskWatch>) -> mpsc::Sender<()> {
        let ((begun, has_begun), (end, ends)) = (mpsc::channel(), mpsc::channel());
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
    fn a_disk_hangs_until_its_use_ends_and_is_not_used_meanwhile() {
        let watch = Arc::new(DiskWatch::with_patience(Path::new("/d1"), Duration::ZERO));
        watch.run(|| Ok(())).unwrap();
        let end = hang(&watch);
        let error = watch.run::<()>(|| unreachable!("it would hang")).unwrap_err();
        assert!(error.to_string().contains("/d1"), "{error}");
        assert_eq!(silent_folders([&*watch]), ["/d1"]);
        drop(end);
        while watch.check().is_err() {
            thread::yield_now();
        }
        watch.run(|| Ok(())).unwrap();
    }

    /// Jobs go on while an fsync takes long, and blocks on the disk are read.
    #[test]
    fn a_write_that_takes_long_is_no_hang_of_the_disk() {
        let watch = DiskWatch::with_patience(Path::new("/d1"), Duration::ZERO);
        assert!(!watch.write_hangs());
        watch.write(|| {
            watch.run(|| Ok(())).unwrap();
            assert!(watch.write_hangs() && !watch.is_silent());
        });
        assert!(!watch.write_hangs());
        assert!(!watch.run(|| Ok(watch.write_hangs())).unwrap(), "it is no write");
        let patient = DiskWatch::new(Path::new("/d1"));
        patient.write(|| assert!(!patient.write_hangs(), "it has just begun"));
    }

    /// A read of a bad sector may take longer than a look at a folder.
    #[test]
    fn a_read_that_takes_too_long_counts_as_a_hang() {
        let patience = Duration::from_millis(400);
        let watch = DiskWatch::with_patience(Path::new("/d1"), patience);
        let read = watch.read(|| {
            thread::sleep(patience + patience / 4);
            let soon = watch.check();
            thread::sleep(patience);
            Ok((soon, watch.check()))
        });
        let (soon, late) = read.unwrap();
        assert!(soon.is_ok() && matches!(late, Err(BlockError::Hangs { .. })), "{soon:?} {late:?}");
        watch.check().unwrap();
    }

    /// Opens the folder `blocks` in `root` as a store does.
    fn opened(root: &Path) -> (DiskWatch, FolderLock) {
        let path = root.join("blocks");
        fs::create_dir(&path).unwrap();
        let lock = FolderLock::take(&path, OWN_LOCK, "nobody").unwrap();
        let watch = DiskWatch::new(&path);
        watch.keep_place(&lock);
        (watch, lock)
    }

    fn is_unmounted<T>(result: Result<T, BlockError>) -> bool {
        matches!(result, Err(BlockError::Unmounted { .. }))
    }

    #[test]
    fn files_on_an_unmounted_disk_are_not_missing() {
        let root = tempfile::tempdir().unwrap();
        let (watch, _lock) = opened(root.path());
        let (path, disk) = (watch.folder().to_owned(), root.path().join("disk"));
        fs::write(path.join("17.ec03"), "shard").unwrap();
        let find = || watch.look(|| exists(&path.join("17.ec03")));
        assert!(find().unwrap() && !watch.is_displaced());
        fs::rename(&path, &disk).unwrap();
        assert!(is_unmounted(find()) && !watch.is_displaced());
        assert!(watch.is_silent(), "it is noticed without a list");
        fs::create_dir(&path).unwrap();
        assert!(is_unmounted(find()) && !watch.is_displaced(), "an empty mount point");
        fs::write(path.join(OWN_LOCK), "").unwrap();
        assert!(watch.is_displaced(), "a disk that a helper has used");
        fs::remove_dir_all(&path).unwrap();
        fs::rename(&disk, &path).unwrap();
        assert!(find().unwrap() && !watch.is_displaced());
    }

    #[test]
    fn an_error_of_the_medium_proves_nothing_if_the_whole_disk_fails() {
        let root = tempfile::tempdir().unwrap();
        let (watch, _lock) = opened(root.path());
        let failed = |code: Errno| BlockError::Io {
            path: "17.ec03".to_owned(),
            source: io::Error::from_raw_os_error(code.raw_os_error()),
        };
        assert!(matches!(watch.explained(failed(Errno::IO)), BlockError::Io { .. }), "a bad sector");
        let error = watch.judged(failed(Errno::IO), Err(failed(Errno::IO)));
        assert!(
            error.to_string().contains("17.ec03") && is_unmounted::<()>(Err(error)) && watch.is_failing()
        );
        watch.note_again(&Ok(()));
        assert!(!watch.is_failing(), "it works again");
        let error = watch.judged(failed(Errno::IO), Err(failed(Errno::ROFS)));
        assert!(matches!(error, BlockError::Io { .. }), "other files of a read-only disk can be read");
        let error = watch.judged(failed(Errno::LOOP), Err(failed(Errno::IO)));
        assert!(matches!(error, BlockError::Io { .. }), "an error of the file");
    }

    #[test]
    fn a_disk_that_fails_for_ten_minutes_is_lost() {
        let watch = DiskWatch::new(Path::new("/d1"));
        let (begun, minute) = (Instant::now(), Duration::from_secs(60));
        for minutes in [0, 5, 9] {
            watch.note_failure(begun + minutes * minute);
            assert!(!watch.is_lost());
        }
        watch.note_failure(begun + 10 * minute);
        assert!(watch.is_lost());
        watch.note_works();
        assert!(!watch.is_lost());
        for minutes in [20, 30] {
            watch.note_failure(begun + minutes * minute);
        }
        assert!(!watch.is_lost(), "it may have worked for ten minutes");
    }

    #[test]
    fn a_slow_disk_does_not_hang() {
        let watch = Arc::new(DiskWatch::new(Path::new("/d1")));
        let _end = hang(&watch);
        watch.run(|| Ok(())).unwrap();
    }

    #[test]
    fn disks_that_answer_are_looked_at_although_another_hangs() {
        let mut watches = ["/d1", "/d2", "/d3"].map(|folder| Arc::new(DiskWatch::new(Path::new(folder))));
        watches[1] = Arc::new(DiskWatch::with_patience(Path::new("/d2"), Duration::ZERO));
        let _end = hang(&watches[1]);
        let looks = watches.iter().zip(1..).map(|(watch, number)| {
            let disk = Arc::clone(watch);
            (Arc::clone(watch), move || disk.run(|| Ok(number)))
        });
        let found = look_at_all(looks.collect());
        assert_eq!(found[0].as_ref().unwrap(), &1);
        assert!(matches!(&found[1], Err(BlockError::Hangs { path }) if path == "/d2"), "{:?}", found[1]);
        assert_eq!(found[2].as_ref().unwrap(), &3);
    }
}
