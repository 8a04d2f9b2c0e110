//! Checks that blocks can be stored. A check waits for the disk, so it runs on a thread of its own and delays
//! no answer to the coordinator.
//!
//! At most one check runs at a time, also across connections to the coordinator.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use store_api::{BlockError, Blocks};
use tokio::time::sleep;

use crate::engine::apart;

/// The interval between checks.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// A check that takes longer is reported as a problem. A busy disk may take several seconds to sync a file.
const OVERDUE_AFTER: Duration = Duration::from_secs(10);
/// A disk whose check takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(30);
/// The interval at which a running check is examined again.
const RECHECK_EVERY: Duration = Duration::from_millis(50);
/// The interval of warnings while a disk hangs.
pub(crate) const WARN_EVERY: Duration = Duration::from_secs(10);

/// Whether blocks can be stored, according to the last check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Writable {
    /// They can, or the first check has not ended yet.
    Yes,
    /// They cannot, or the check is overdue.
    No(String),
    /// The disk hangs.
    Hangs,
}

/// The checks of one store; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct WriteChecks(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// When the running check began.
    running: Option<Instant>,
    /// When the last check ended.
    ended: Option<Instant>,
    /// The problem that the last check found.
    problem: Option<String>,
    /// Whether the last check found the disk full, or a quota used up.
    is_full: bool,
    /// Whether the log says that the running check is overdue.
    is_logged: bool,
}

impl WriteChecks {
    /// Returns the result of the last check, and begins another one if it is due. Never waits for the disk.
    pub(crate) fn look(&self, blocks: &Arc<dyn Blocks>, now: Instant) -> Writable {
        let mut state = self.state();
        if state.begin_if_due(now) {
            let (checks, blocks) = (self.clone(), Arc::clone(blocks));
            tokio::spawn(apart(move || {
                let found = blocks.check_writable();
                checks.state().end(found, Instant::now());
            }));
        }
        state.writable(now)
    }

    /// Returns the free space for blocks, in bytes. It is 0 while the last check found the disk full: a quota may be
    /// used up, so that the store refuses blocks although the file system has free space.
    pub(crate) fn free_bytes(&self, blocks: &dyn Blocks) -> Result<u64, BlockError> {
        let free_bytes = blocks.free_bytes()?;
        Ok(if self.state().is_full { 0 } else { free_bytes })
    }

    /// Whether the disk hangs.
    pub(crate) fn hangs(&self) -> bool {
        self.state().writable(Instant::now()) == Writable::Hangs
    }

    /// Begins a check before the helper registers, because a result from an earlier connection may be old. Waits up
    /// to 10 s for its end. While the disk hangs, waits on, with warnings in the log.
    pub(crate) async fn check_before_registering(&self, blocks: &Arc<dyn Blocks>) {
        let begun = Instant::now();
        self.look(blocks, begun);
        while self.state().running.is_some() && begun.elapsed() < OVERDUE_AFTER {
            sleep(RECHECK_EVERY).await;
        }
        let mut warned = begun;
        while self.hangs() {
            if warned.elapsed() >= WARN_EVERY {
                tracing::warn!("waiting for the disk before registering with the coordinator");
                warned = Instant::now();
            }
            sleep(RECHECK_EVERY).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin_if_due(&mut self, now: Instant) -> bool {
        let is_due =
            self.running.is_none() && self.ended.is_none_or(|at| now.duration_since(at) >= CHECK_EVERY);
        if is_due {
            (self.running, self.is_logged) = (Some(now), false);
        }
        is_due
    }

    fn end(&mut self, found: Result<(), BlockError>, now: Instant) {
        let found = found.err();
        self.is_full = found.as_ref().is_some_and(is_full);
        let problem = found.filter(|error| !is_full(error)).map(|error| error.to_string());
        if let Some(problem) = problem.as_ref().filter(|_| self.problem.is_none()) {
            tracing::error!(%problem, "cannot store blocks");
        }
        (self.running, self.ended, self.problem) = (None, Some(now), problem);
    }

    fn writable(&mut self, now: Instant) -> Writable {
        let waited = self.running.map_or(Duration::ZERO, |begun| now.duration_since(begun));
        if waited < OVERDUE_AFTER {
            return self.problem.clone().map_or(Writable::Yes, Writable::No);
        }
        let problem = format!("writing one byte to the disk has not finished for {} s", waited.as_secs());
        if !std::mem::replace(&mut self.is_logged, true) {
            tracing::error!(%problem, "cannot store blocks");
        }
        // This is logged once, before the connection ends: a helper whose disk hangs does not register.
        if waited < HANGS_AFTER { Writable::No(problem) } else { Writable::Hangs }
    }
}

/// Returns the problem of a store in which these folders do not answer; `None` if there are none.
pub(crate) fn silence(silent: &[String]) -> Option<String> {
    (!silent.is_empty()).then(|| format!("no answer from the disk of {}", silent.join(", ")))
}

/// Whether the disk is full. This is no problem of the disk; the helper then reports that it has no free space.
pub(crate) fn is_full(error: &BlockError) -> bool {
    match error {
        BlockError::NoSpace { .. } => true,
        BlockError::Io { source, .. } => block_files::is_full(source),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn failed(kind: io::ErrorKind) -> Result<(), BlockError> {
        Err(BlockError::Io { path: "/d1/.probe".to_owned(), source: kind.into() })
    }

    #[test]
    fn a_disk_is_full_until_a_check_can_write() {
        let (now, mut state) = (Instant::now(), State::default());
        for (found, is_full) in [
            (failed(io::ErrorKind::QuotaExceeded), true),
            (failed(io::ErrorKind::StorageFull), true),
            (failed(io::ErrorKind::ReadOnlyFilesystem), false),
            (Ok(()), false),
        ] {
            let is_problem = found.is_err() && !is_full;
            state.end(found, now);
            assert_eq!((state.is_full, state.problem.is_some()), (is_full, is_problem));
        }
    }

    #[test]
    fn a_slow_check_is_overdue_before_the_disk_counts_as_hanging() {
        let (start, mut state) = (Instant::now(), State::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(state.begin_if_due(at(0)));
        assert!(!state.begin_if_due(at(7)), "one check at a time");
        assert_eq!(state.writable(at(9)), Writable::Yes);
        assert!(matches!(state.writable(at(12)), Writable::No(problem) if problem.contains("for 12 s")));
        assert_eq!(state.writable(at(30)), Writable::Hangs);
        state.end(Ok(()), at(31));
        assert_eq!(state.writable(at(31)), Writable::Yes);
        assert!(!state.begin_if_due(at(35)) && state.begin_if_due(at(36)));
        state.end(failed(io::ErrorKind::ReadOnlyFilesystem), at(36));
        assert!(matches!(state.writable(at(37)), Writable::No(problem) if problem.contains("/d1/.probe")));
    }
}
