//! Notices a disk that hangs, so that it does not block the use of other disks.
//!
//! A system call that waits for a disk cannot be cancelled. [`DiskWatch`] therefore records when each use of
//! a disk began. If a use takes too long, the disk hangs, and further uses fail at once until that use ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use store_api::BlockError;

use crate::fault;

/// A disk with a use that takes longer hangs. A busy disk may take several seconds.
const HANGS_AFTER: Duration = Duration::from_secs(30);
/// The interval at which unfinished looks are examined.
const RECHECK_EVERY: Duration = Duration::from_millis(50);

/// The uses of one folder's disk.
#[derive(Debug)]
pub struct DiskWatch {
    folder: PathBuf,
    patience: Duration,
    uses: Mutex<Uses>,
}

/// When the uses in progress began, by number.
#[derive(Debug, Default)]
struct Uses {
    begun: BTreeMap<u64, Instant>,
    next: u64,
}

/// A use in progress. Dropping it ends the use.
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
        Self { folder: folder.to_owned(), patience, uses: Mutex::default() }
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
        self.check()?;
        let _using = self.begin();
        work()
    }

    /// Checks that the disk does not hang. Never waits.
    ///
    /// # Errors
    /// [`BlockError::Hangs`].
    pub fn check(&self) -> Result<(), BlockError> {
        let oldest = self.uses().begun.values().next().copied();
        match oldest.is_some_and(|begun| begun.elapsed() >= self.patience) {
            true => Err(self.hangs()),
            false => Ok(()),
        }
    }

    fn hangs(&self) -> BlockError {
        BlockError::Hangs { path: self.folder.display().to_string() }
    }

    fn begin(&self) -> Using<'_> {
        let mut uses = self.uses();
        let number = uses.next;
        uses.next += 1;
        uses.begun.insert(number, Instant::now());
        Using { watch: self, number }
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.watch.uses().begun.remove(&self.number);
    }
}

/// Returns the folders whose disks hang.
pub fn silent_folders<'w>(watches: impl IntoIterator<Item = &'w DiskWatch>) -> Vec<String> {
    let silent = watches.into_iter().filter(|watch| watch.check().is_err());
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
    use super::*;

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
