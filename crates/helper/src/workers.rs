//! The threads that run jobs.
//!
//! A job stays on one thread, which polls the job's own sockets: no slice is handed from thread to thread,
//! and a buffer stays in one core's cache. A lone job runs on the thread that receives messages, so that it
//! starts at once; further jobs go to the least loaded thread. A few small jobs stay on the thread that
//! receives messages, because waking another thread for each of their messages would cost more than their
//! slices.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A job that moves at most this many bytes is small. A chain's helper reads, receives and sends each byte,
/// so a block of 1 MiB counts as 3 MiB.
const SMALL_JOB_BYTES: u64 = 4 << 20;
/// The maximum number of jobs on the thread that receives messages with which a further small job stays
/// there.
const SMALL_JOBS_HERE: usize = 8;

/// A set of threads; cheap to clone. Dropping the last clone ends the threads that it started, with
/// everything that runs on them.
#[derive(Clone, Debug)]
pub struct Workers {
    workers: Arc<Vec<Worker>>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    jobs: AtomicUsize,
    /// Dropping this ends the thread.
    _alive: Option<oneshot::Sender<()>>,
}

impl Workers {
    /// Creates a set that consists of the caller's thread only.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn here() -> Self {
        let here = Worker { runtime: Handle::current(), jobs: AtomicUsize::new(0), _alive: None };
        Self { workers: Arc::new(vec![here]) }
    }

    /// Creates a set of the caller's thread and `more` additional threads.
    ///
    /// # Errors
    /// If the system cannot start the threads.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn here_and(more: usize) -> io::Result<Self> {
        let here = Worker { runtime: Handle::current(), jobs: AtomicUsize::new(0), _alive: None };
        let started = (1..=more).map(Worker::start);
        let workers = std::iter::once(Ok(here)).chain(started).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { workers: Arc::new(workers) })
    }

    /// Runs a job that moves about `bytes` bytes on the least loaded thread, or, if the job is small, on the
    /// thread that receives messages.
    pub(crate) fn spawn(&self, bytes: u64, job: impl Future<Output = ()> + Send + 'static) {
        let chosen = self.choose(bytes);
        self.workers[chosen].jobs.fetch_add(1, Ordering::Relaxed);
        let place = WorkerSlot { workers: self.clone(), chosen };
        self.workers[chosen].runtime.spawn(async move {
            let _place = place;
            job.await;
        });
    }

    /// Returns the index of the thread for a job. The first thread receives the messages.
    fn choose(&self, bytes: u64) -> usize {
        let jobs = |worker: &Worker| worker.jobs.load(Ordering::Relaxed);
        if bytes <= SMALL_JOB_BYTES && jobs(&self.workers[0]) < SMALL_JOBS_HERE {
            return 0;
        }
        let counts = self.workers.iter().map(jobs).enumerate();
        counts.min_by_key(|&(_, jobs)| jobs).expect("at least one").0
    }
}

/// Counts a job as running on a worker until dropped.
struct WorkerSlot {
    workers: Workers,
    chosen: usize,
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.workers.workers[self.chosen].jobs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            let _ = runtime.block_on(ended); // The channel is never used, only dropped.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, jobs: AtomicUsize::new(0), _alive: Some(alive) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn jobs_spread_over_all_threads_and_leave_their_places() {
        let workers = Workers::here_and(2).unwrap();
        for _ in 0..3 {
            let (sender, mut threads) = mpsc::unbounded_channel();
            let (go, _) = tokio::sync::broadcast::channel::<()>(1);
            for _ in 0..3 {
                let (sender, mut go) = (sender.clone(), go.subscribe());
                workers.spawn(u64::MAX, async move {
                    sender.send(thread::current().id()).unwrap();
                    let _ = go.recv().await;
                });
            }
            drop(sender);
            let seen = [threads.recv().await, threads.recv().await, threads.recv().await];
            assert_eq!(seen.iter().map(|id| format!("{id:?}")).collect::<BTreeSet<_>>().len(), 3);
            drop(go);
            assert!(threads.recv().await.is_none());
            while workers.workers.iter().any(|worker| worker.jobs.load(Ordering::Relaxed) > 0) {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn a_few_small_jobs_stay_on_the_thread_that_receives_messages() {
        let workers = Workers::here_and(2).unwrap();
        let (go, _) = tokio::sync::broadcast::channel::<()>(1);
        let jobs = || workers.workers.iter().map(|worker| worker.jobs.load(Ordering::Relaxed));
        for _ in 0..SMALL_JOBS_HERE + 2 {
            let mut go = go.subscribe();
            workers.spawn(SMALL_JOB_BYTES, async move {
                let _ = go.recv().await;
            });
        }
        assert_eq!(jobs().collect::<Vec<_>>(), [SMALL_JOBS_HERE, 1, 1]);
        workers.spawn(SMALL_JOB_BYTES + 1, std::future::pending());
        assert_eq!(jobs().sum::<usize>(), SMALL_JOBS_HERE + 3);
        assert_eq!(jobs().next(), Some(SMALL_JOBS_HERE), "a large job goes to another thread");
    }
}
