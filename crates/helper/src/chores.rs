//! What a helper does for the coordinator outside of jobs: pings, and asks about its blocks. Every ask is answered,
//! if need be by what is in the way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use repair::wire::control::{self, FromNode, StoreProblem, ToNode};
use repair::{BlockId, BlockProblem, Class, Digest, Meter};
use store_api::{BlockError, Blocks};
use tokio::sync::Semaphore;

use crate::engine::{Engine, aside};
use crate::gate::{DiskGate, Interest};
use crate::outbox::Reports;
use crate::problems::block_problem;
use crate::seen::Seen;

/// Whole blocks that are read through at once for scrubbing.
const VERIFIES_AT_ONCE: usize = 2;
/// A read that the medium failed is tried so often before the block counts as unreadable, with pauses in between: one
/// failed read says nothing, and a bad sector stays bad.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(300);

/// While a cap holds back what is verified, that is said so often; the coordinator waits for two minutes.
const SAY_EVERY: Duration = Duration::from_secs(20);

/// See the module's documentation.
pub(crate) struct Chores {
    blocks: Arc<dyn Blocks>,
    reports: Reports,
    engine: Engine,
    verifies: Arc<Semaphore>,
    /// What is verified is read in this interest, which ends with the connection.
    interest: Interest,
    /// Whether a ping is being answered.
    answering: Arc<AtomicBool>,
    seen: Mutex<Seen>,
}

impl Chores {
    pub(crate) fn new(blocks: Arc<dyn Blocks>, reports: Reports, engine: Engine) -> Self {
        let verifies = Arc::new(Semaphore::new(VERIFIES_AT_ONCE));
        let seen = Mutex::new(Seen::new(engine.traffic().now(), Instant::now()));
        let (interest, answering) = (Interest::default(), Arc::default());
        Self { blocks, reports, engine, verifies, interest, answering, seen }
    }

    pub(crate) fn handle(&self, message: ToNode) {
        match message {
            ToNode::Ping => {
                self.tell_seen();
                self.pong();
            }
            ToNode::Spare => self.tell_unused(),
            ToNode::Remove { block } => self.answer(move |blocks| match blocks.remove(&block) {
                Ok(_) => FromNode::Removed { block },
                Err(error) => FromNode::RemoveFailed { block, problem: store_problem(&error) },
            }),
            ToNode::List { ask } => self.list(ask),
            ToNode::Verify { ask, block } => self.verify(ask, block),
            ToNode::Describe { ask } => self.describe(ask),
            other => tracing::warn!(?other, "a message that is not for a helper"),
        }
    }

    /// Says how busy the ports were since the last ping, if that is news.
    fn tell_seen(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some([up, down]) = seen.look(self.engine.traffic().now(), Instant::now()) {
            let _ = self.reports.send(FromNode::Seen { up, down }); // A lost coordinator hears of the next busy moment.
        }
    }

    fn tell_unused(&self) {
        let [up, down] = [Meter::Up, Meter::Down].map(|meter| self.engine.unused(meter));
        let _ = self.reports.send(FromNode::Unused { up, down }); // A lost coordinator asks again.
    }

    /// A disk that hangs keeps us from answering, and the coordinator from relying on us; one thread hangs with it.
    fn pong(&self) {
        if self.answering.swap(true, Ordering::Relaxed) {
            return;
        }
        let (tasks, answering) = (self.engine.jobs(), self.answering.clone());
        self.answer(move |blocks| {
            let free_bytes = blocks.free_bytes().unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot ask the disk for its free space; none is reported");
                0
            });
            answering.store(false, Ordering::Relaxed);
            FromNode::Pong { free_bytes, tasks }
        });
    }

    fn answer(&self, work: impl FnOnce(&dyn Blocks) -> FromNode + Send + 'static) {
        let (blocks, reports) = (self.blocks.clone(), self.reports.clone());
        tokio::task::spawn_blocking(move || {
            let _ = reports.send(work(&*blocks)); // A lost coordinator asks again.
        });
    }

    /// Says what is held, a part at a time.
    fn list(&self, ask: u64) {
        let (blocks, reports) = (self.blocks.clone(), self.reports.clone());
        tokio::task::spawn_blocking(move || {
            let held = match blocks.list() {
                Ok(held) => control::parts(held),
                Err(error) => {
                    tracing::error!(%error, "cannot list the blocks");
                    let problem = store_problem(&error);
                    let _ = reports.send(FromNode::ListFailed { ask, problem });
                    return;
                }
            };
            let last = held.len() - 1;
            let part = |(at, blocks)| FromNode::Listed { ask, blocks, more: at < last };
            let mut parts = held.into_iter().enumerate().map(part);
            let _ = parts.try_for_each(|part| reports.send_part(part)); // A lost coordinator asks again.
        });
    }

    /// Says what all blocks say of themselves, a part at a time.
    fn describe(&self, ask: u64) {
        let (blocks, reports) = (self.blocks.clone(), self.reports.clone());
        tokio::task::spawn_blocking(move || {
            let Ok(held) =
                blocks.list().inspect_err(|error| tracing::error!(%error, "cannot list the blocks"))
            else {
                return; // Whoever does not say what it holds must not pass for one that holds nothing.
            };
            let mut held = held.into_iter().peekable();
            loop {
                let mut described = Vec::new();
                for block in held.by_ref().take(control::DESCRIBED_AT_ONCE) {
                    match blocks.describe(&block.id) {
                        Ok(description) => described.push(description),
                        Err(error @ BlockError::Io { .. }) => {
                            return tracing::error!(%error, "cannot ask the blocks what they are");
                        }
                        Err(error) => tracing::warn!(%error, "a block that cannot say what it is"),
                    }
                }
                let (blocks, last) = (described, held.peek().is_none());
                if reports.send_part(FromNode::Described { ask, blocks, last }).is_err() || last {
                    return; // A lost coordinator asks again.
                }
            }
        });
    }

    fn verify(&self, ask: u64, block: BlockId) {
        let (blocks, reports, verifies) = (self.blocks.clone(), self.reports.clone(), self.verifies.clone());
        let gate = self.interest.gate(self.engine.allowance(Class::Repair));
        tokio::spawn(async move {
            let verifying = async {
                let _permit = verifies.acquire_owned().await;
                verified(&blocks, &block, &gate).await
            };
            let result = saying_so(verifying, ask, &gate, &reports).await;
            let _ = reports.send(FromNode::Verified { ask, block, result });
        });
    }
}

/// What `verifying` finds; meanwhile the coordinator is told that a cap holds it back, if one does. One that waits for its
/// turn behind others is held back with them.
async fn saying_so<T>(verifying: impl Future<Output = T>, ask: u64, gate: &DiskGate, reports: &Reports) -> T {
    tokio::pin!(verifying);
    let mut before = gate.held_back();
    loop {
        tokio::select! {
            result = &mut verifying => return result,
            () = tokio::time::sleep(SAY_EVERY) => {}
        }
        let held_back = gate.held_back();
        if std::mem::replace(&mut before, held_back) < held_back {
            let _ = reports.send(FromNode::Verifying { ask }); // A lost coordinator waits for nothing.
        }
    }
}

/// The block's digest, if its store has any. What the machine or the medium failed is tried again.
async fn verified(
    blocks: &Arc<dyn Blocks>,
    block: &BlockId,
    gate: &DiskGate,
) -> Result<Option<Digest>, BlockProblem> {
    let mut attempt = 1;
    loop {
        let (blocks, name, gate) = (blocks.clone(), block.clone(), gate.clone());
        let error = match aside(move || blocks.verify(&name, &gate)).await {
            Ok(digest) => return Ok(digest),
            Err(error) => error,
        };
        match block_problem(&error) {
            BlockProblem::Unavailable(_) if attempt < ATTEMPTS => attempt += 1,
            // The medium was asked often enough.
            BlockProblem::Unavailable(detail) if is_medium(&error) => {
                return Err(BlockProblem::Unreadable(detail));
            }
            problem => return Err(problem),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether the medium failed, and not the machine around it.
fn is_medium(error: &BlockError) -> bool {
    matches!(error, BlockError::Io { source, .. } if source.raw_os_error() == Some(libc::EIO))
}

fn store_problem(error: &BlockError) -> StoreProblem {
    match block_problem(error) {
        BlockProblem::Unavailable(_) => StoreProblem::Machine(error.to_string()),
        _ => StoreProblem::Store(error.to_string()),
    }
}
