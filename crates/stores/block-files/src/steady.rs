//! Files that are synced while they are still being written. Data that arrives at a bounded rate then reaches
//! the medium at that rate, and little is left to sync when the block is sealed.
//!
//! A thread syncs the bytes written so far whenever enough bytes have accumulated and the previous sync has
//! ended. The thread may then process these bytes, for example read them back. The result of each sync is
//! kept until the writer has received it: the system reports a failed write only once, and a later sync of
//! the same file would succeed.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::niceness::yield_processors;
use crate::watch::DiskWatch;

/// Number of bytes after which a sync is started.
const STRETCH_BYTES: u64 = 8 << 20;

/// A file with a sync thread. After each sync, the thread returns a `T`.
#[derive(Debug)]
pub struct SteadyFile<T = ()> {
    file: File,
    /// The watch of the file's disk, if there is one.
    watch: Option<Arc<DiskWatch>>,
    /// Bytes written since the last sync began.
    since: u64,
    running: Option<JoinHandle<io::Result<T>>>,
}

impl SteadyFile {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// An error of this write or of an earlier sync.
    pub fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.write(bytes, offset)? {
            self.join()?;
            self.write_out(|_| ())?;
        }
        Ok(())
    }
}

impl<T: Send + 'static> SteadyFile<T> {
    /// Wraps a file that has no other writer.
    pub fn new(file: File) -> Self {
        Self { file, watch: None, since: 0, running: None }
    }

    /// Like [`new`](Self::new), for a file on a disk with a watch, which records each write and each sync as a step
    /// of a [write](DiskWatch::write).
    pub fn watched(file: File, watch: Arc<DiskWatch>) -> Self {
        Self { watch: Some(watch), ..Self::new(file) }
    }

    /// Writes all of `bytes` at `offset`. Returns whether it is time to [join](Self::join) the previous sync
    /// and to [start another](Self::write_out).
    ///
    /// # Errors
    /// An error of this write.
    pub fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        step(self.watch.as_deref(), || self.file.write_all_at(bytes, offset))?;
        self.since += bytes.len() as u64;
        let is_busy = self.running.as_ref().is_some_and(|sync| !sync.is_finished());
        Ok(self.since >= STRETCH_BYTES && !is_busy)
    }

    /// Starts a thread that syncs the bytes written so far and then runs `then`. The previous thread must
    /// have been joined.
    ///
    /// # Errors
    /// If the process cannot open more files.
    pub fn write_out(&mut self, then: impl FnOnce(&File) -> T + Send + 'static) -> io::Result<()> {
        debug_assert!(self.running.is_none(), "the previous thread must be joined first");
        let (file, watch) = (self.file.try_clone()?, self.watch.clone());
        let named = thread::Builder::new().name("write-back".to_owned());
        // If no thread can be started, the final sync writes these bytes.
        let work = move || {
            step(watch.as_deref(), || file.sync_data())?;
            yield_processors();
            Ok(then(&file))
        };
        self.running = named.spawn(work).ok();
        self.since = 0;
        Ok(())
    }

    /// Waits until all bytes are on the medium.
    ///
    /// # Errors
    /// An error of this sync or of an earlier one.
    pub fn sync_all(&mut self) -> io::Result<()> {
        self.join()?;
        step(self.watch.as_deref(), || self.file.sync_all())
    }

    /// Waits for the thread, if one is running, and returns its result.
    ///
    /// # Errors
    /// An error of the thread's sync.
    pub fn join(&mut self) -> io::Result<Option<T>> {
        let panicked = |_| Err(io::Error::other("the sync's thread panicked"));
        self.running.take().map(|sync| sync.join().unwrap_or_else(panicked)).transpose()
    }
}

/// Runs `work` as a step of a [write](DiskWatch::write) on the disk with this watch.
fn step<R>(watch: Option<&DiskWatch>, work: impl FnOnce() -> R) -> R {
    match watch {
        Some(watch) => watch.write(work),
        None => work(),
    }
}

/// Gives read access to the file.
impl<T> Deref for SteadyFile<T> {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn all_bytes_are_written_across_several_syncs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("block");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut file: SteadyFile = SteadyFile::new(file);
        let piece = vec![7; 3 << 20];
        (0..9).for_each(|at| file.write_all_at(&piece, at * piece.len() as u64).unwrap());
        assert!(file.running.is_some(), "27 MiB are worth a sync");
        file.sync_all().unwrap();
        assert!(file.running.is_none());
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 27 << 20]);
    }

    /// Waits until the disk has a step of a write in progress, while `work` is repeated.
    fn await_step(watch: &Arc<DiskWatch>, mut work: impl FnMut()) {
        let (watch, begun) = (Arc::clone(watch), Instant::now());
        let watching = thread::spawn(move || {
            while !watch.write_hangs() {
                thread::yield_now();
            }
        });
        while !watching.is_finished() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no step is recorded");
            work();
        }
    }

    /// The watch has no patience, so each step in progress takes too long.
    #[test]
    fn writes_and_syncs_are_steps_on_a_disk_that_is_watched() {
        let watch = Arc::new(DiskWatch::with_patience(Path::new("/d1"), Duration::ZERO));
        let watched = || SteadyFile::<()>::watched(tempfile::tempfile().unwrap(), Arc::clone(&watch));
        let piece = vec![7; 1 << 20];
        let mut file = watched();
        await_step(&watch, || {
            file.write(&piece, 0).unwrap();
        });
        let mut file = watched();
        await_step(&watch, || file.sync_all().unwrap());
        let mut file = watched();
        await_step(&watch, || {
            file.write_out(|_| ()).unwrap();
            file.join().unwrap();
        });
        assert!(!watch.write_hangs(), "all steps have ended");
    }

    /// The system reports a write error only once, so the result of a sync must survive until the next write
    /// or sync.
    #[test]
    fn a_failed_sync_fails_the_next_write_or_sync() {
        let failing = || Some(thread::spawn(|| Err(io::Error::from(io::ErrorKind::StorageFull))));
        let mut file: SteadyFile = SteadyFile::new(tempfile::tempfile().unwrap());
        file.running = failing();
        assert_eq!(file.sync_all().unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.running = failing();
        while !file.running.as_ref().unwrap().is_finished() {
            thread::yield_now();
        }
        let full = file.write_all_at(&vec![1; STRETCH_BYTES as usize], 0).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }
}
