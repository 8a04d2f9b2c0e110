//! Descriptions of all blocks. One description runs at a time, because each of them reads the disk, which may be
//! slow. Messages with few or no blocks keep the coordinator waiting while the disk answers. A description ends
//! early if the coordinator no longer waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use repair::wire::control::{DESCRIBED_AT_ONCE, Description, FromNode};
use store_api::Blocks;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{DescribeErrors, SAY_EVERY, described, listed};
use crate::outbox::Reports;

/// The coordinator no longer waits for a description that has sent no message for this long: it times out after
/// two minutes.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(130);

/// Answers requests to describe all blocks.
pub(super) struct Descriptions {
    turn: Arc<Semaphore>,
    /// The number of blocks that were described or omitted, in all descriptions.
    progress: Arc<AtomicU64>,
    say_every: Duration,
    given_up_after: Duration,
}

impl Default for Descriptions {
    fn default() -> Self {
        Self::with_limits(SAY_EVERY, GIVEN_UP_AFTER)
    }
}

impl Descriptions {
    pub(super) fn with_limits(say_every: Duration, given_up_after: Duration) -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), progress: Arc::default(), say_every, given_up_after }
    }

    /// Describes all blocks held, in several messages.
    pub(super) fn begin(&self, ask: u64, blocks: Arc<dyn Blocks>, reports: Reports) {
        let mut answer = Answer {
            ask,
            reports,
            progress: self.progress.clone(),
            say_every: self.say_every,
            given_up_after: self.given_up_after,
            said: Instant::now(),
        };
        let turn = self.turn.clone();
        tokio::spawn(async move {
            let Some(permit) = answer.wait(turn).await else { return };
            tokio::task::spawn_blocking(move || {
                answer.describe(&*blocks);
                drop(permit);
            });
        });
    }
}

/// The answer to one request.
struct Answer {
    ask: u64,
    reports: Reports,
    progress: Arc<AtomicU64>,
    say_every: Duration,
    given_up_after: Duration,
    /// The time of the last message or, before the first one, of the request.
    said: Instant,
}

impl Answer {
    /// Waits until no other description runs. Returns `None` if the coordinator no longer waits.
    async fn wait(&mut self, turn: Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let acquired = turn.acquire_owned();
        tokio::pin!(acquired);
        let mut before = self.progress.load(Ordering::Relaxed);
        loop {
            tokio::select! {
                permit = &mut acquired => return permit.ok(),
                () = tokio::time::sleep(self.say_every) => {}
            }
            let progress = self.progress.load(Ordering::Relaxed);
            if std::mem::replace(&mut before, progress) != progress {
                self.reports.send(self.part(Vec::new(), false)).ok()?;
                self.said = Instant::now();
            }
            if self.is_given_up() {
                return None;
            }
        }
    }

    fn describe(mut self, blocks: &dyn Blocks) {
        let (mut errors, mut part) = (DescribeErrors::default(), Vec::new());
        let held = listed(blocks, &mut errors);
        for (at, block) in held.iter().enumerate() {
            if self.is_given_up() {
                return tracing::warn!("no longer describing the blocks, because the disk is too slow");
            }
            part.extend(described(blocks, &block.id, &mut errors));
            self.progress.fetch_add(1, Ordering::Relaxed);
            let is_due = part.len() == DESCRIBED_AT_ONCE || self.said.elapsed() >= self.say_every;
            if is_due && at + 1 < held.len() {
                let part = self.part(std::mem::take(&mut part), false);
                if self.reports.send_part(part).is_err() {
                    return; // A new coordinator asks again.
                }
                self.said = Instant::now();
            }
        }
        // Blocks that are omitted from a complete answer count as missing.
        let last = self.part(part, !errors.is_incomplete);
        let _ = self.reports.send_part(last); // A new coordinator asks again.
    }

    fn part(&self, blocks: Vec<Description>, last: bool) -> FromNode {
        FromNode::Described { ask: self.ask, blocks, last }
    }

    fn is_given_up(&self) -> bool {
        self.said.elapsed() > self.given_up_after
    }
}
