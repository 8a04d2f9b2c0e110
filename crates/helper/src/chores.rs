//! What a helper does for the coordinator outside of jobs: pings, and asks about its blocks. Every ask is answered,
//! if need be by what is in the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use repair::wire::control::{self, FromNode, StoreProblem, ToNode};
use repair::{BlockId, BlockProblem, Digest};
use stores::{BlockError, Blocks};
use tokio::sync::Semaphore;

use crate::engine::{Engine, Reports, blocking};
use crate::problems::block_problem;

/// Whole blocks that are read through at once for scrubbing.
const VERIFIES_AT_ONCE: usize = 2;
/// A read that the medium failed is tried so often before the block counts as unreadable, with pauses in between: one
/// failed read says nothing, and a bad sector stays bad.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(300);

/// See the module's documentation.
pub(crate) struct Chores {
    blocks: Arc<dyn Blocks>,
    reports: Reports,
    engine: Engine,
    verifies: Arc<Semaphore>,
    /// Whether a ping is being answered.
    answering: Arc<AtomicBool>,
}

impl Chores {
    pub(crate) fn new(blocks: Arc<dyn Blocks>, reports: Reports, engine: Engine) -> Self {
        let verifies = Arc::new(Semaphore::new(VERIFIES_AT_ONCE));
        Self { blocks, reports, engine, verifies, answering: Arc::default() }
    }

    pub(crate) fn handle(&self, message: ToNode) {
        match message {
            ToNode::Ping => self.pong(),
            ToNode::Remove { block } => self.answer(move |blocks| match blocks.remove(&block) {
                Ok(_) => vec![FromNode::Removed { block }],
                Err(error) => vec![FromNode::RemoveFailed { block, problem: store_problem(&error) }],
            }),
            ToNode::List { ask } => self.answer(move |blocks| list(blocks, ask)),
            ToNode::Verify { ask, block } => self.verify(ask, block),
            ToNode::Describe { ask } => self.describe(ask),
            other => tracing::warn!(?other, "a message that is not for a helper"),
        }
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
            vec![FromNode::Pong { free_bytes, tasks }]
        });
    }

    fn answer(&self, work: impl FnOnce(&dyn Blocks) -> Vec<FromNode> + Send + 'static) {
        let (blocks, reports) = (self.blocks.clone(), self.reports.clone());
        tokio::task::spawn_blocking(move || {
            for message in work(&*blocks) {
                let _ = reports.send(message); // A lost coordinator asks again.
            }
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
                if reports.send(FromNode::Described { ask, blocks, last }).is_err() || last {
                    return; // A lost coordinator asks again.
                }
            }
        });
    }

    fn verify(&self, ask: u64, block: BlockId) {
        let (blocks, reports, verifies) = (self.blocks.clone(), self.reports.clone(), self.verifies.clone());
        tokio::spawn(async move {
            let _permit = verifies.acquire_owned().await;
            let result = verified(&blocks, &block).await;
            let _ = reports.send(FromNode::Verified { ask, block, result });
        });
    }
}

fn list(blocks: &dyn Blocks, ask: u64) -> Vec<FromNode> {
    let held = match blocks.list() {
        Ok(held) => control::parts(held),
        Err(error) => {
            tracing::error!(%error, "cannot list the blocks");
            return vec![FromNode::ListFailed { ask, problem: store_problem(&error) }];
        }
    };
    let last = held.len() - 1;
    let part = |(at, blocks)| FromNode::Listed { ask, blocks, more: at < last };
    held.into_iter().enumerate().map(part).collect()
}

/// The block's digest, if its store has any. What the machine or the medium failed is tried again.
async fn verified(blocks: &Arc<dyn Blocks>, block: &BlockId) -> Result<Option<Digest>, BlockProblem> {
    let mut attempt = 1;
    loop {
        let (blocks, name) = (blocks.clone(), block.clone());
        let error = match blocking(move || blocks.verify(&name)).await {
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
