//! Answers the coordinator's requests outside jobs: pings, and requests about the node's blocks. A failed
//! request is answered with an error, except a request to describe all blocks: an answer that must omit blocks,
//! because the machine or the whole disk fails, never gets its last message.

mod descriptions;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use block_files::is_of_medium;
use repair::wire::control::{self, BlockHeat, Description, FromNode, HeldBlock, StoreProblem, ToNode};
use repair::{BlockId, BlockProblem, Class, Digest, Meter};
use store_api::{BlockError, BlockList, Blocks};
use tokio::sync::Semaphore;

use self::descriptions::Descriptions;
use crate::engine::{Engine, apart, aside};
use crate::error_reports::{block_problem, is_of_the_helper};
use crate::gate::{DiskGate, Interest};
use crate::outbox::Reports;
use crate::port_rates::PortRates;
use crate::recent_blocks::{RecentBlocks, Told};
use crate::removals::ConnectionRemovals;
use crate::traffic::Purpose;
use crate::user_load::UserLoad;
use crate::write_checks::{Writable, WriteChecks, is_full, silence};

/// The maximum number of whole blocks scrubbed at the same time.
const VERIFIES_AT_ONCE: usize = 2;
/// The number of attempts to read from a failing medium before the block counts as unreadable, with pauses in
/// between. A single failed read may be transient, but a bad sector stays bad.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(300);
/// The maximum number of repeated attempts in one description of all blocks.
const DESCRIBE_ATTEMPTS: u32 = 64;

/// A verification without progress for this long is given up, because the disk may hang.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The interval of progress reports while a cap throttles a scrub, or while descriptions are slow; the
/// coordinator times out after two minutes.
const SAY_EVERY: Duration = Duration::from_secs(20);

/// Answers the requests that belong to no job.
pub(crate) struct Queries {
    blocks: Arc<dyn Blocks>,
    reports: Reports,
    engine: Engine,
    verifies: Arc<Semaphore>,
    descriptions: Descriptions,
    /// Keeps the reads of scrubs running. Dropped together with the connection, which ends these reads.
    interest: Interest,
    /// Whether a ping is being answered.
    answering: Arc<AtomicBool>,
    port_rates: Mutex<PortRates>,
    user_load: Mutex<UserLoad>,
    memory: Arc<Memory>,
    write_checks: WriteChecks,
    removals: ConnectionRemovals,
}

/// The blocks in this helper's memory, and what the coordinator knows of them.
struct Memory {
    recent: RecentBlocks,
    told: Mutex<Told>,
    /// Whether blocks are being examined.
    is_busy: AtomicBool,
}

impl Queries {
    pub(crate) fn new(
        blocks: Arc<dyn Blocks>,
        reports: Reports,
        engine: Engine,
        recent: RecentBlocks,
        write_checks: WriteChecks,
        removals: ConnectionRemovals,
    ) -> Self {
        let (verifies, now) = (Arc::new(Semaphore::new(VERIFIES_AT_ONCE)), Instant::now());
        let port_rates = Mutex::new(PortRates::new(engine.traffic().now(), now));
        let user_load = Mutex::new(UserLoad::new(sent_to_users(&engine), now));
        let memory = Memory { recent, told: Mutex::default(), is_busy: AtomicBool::new(false) };
        Self {
            blocks,
            reports,
            engine,
            verifies,
            descriptions: Descriptions::default(),
            interest: Interest::default(),
            answering: Arc::default(),
            port_rates,
            user_load,
            memory: Arc::new(memory),
            write_checks,
            removals,
        }
    }

    pub(crate) fn handle(&self, message: ToNode) {
        match message {
            ToNode::Ping => {
                self.tell_seen();
                self.tell_user_load();
                self.tell_heat();
                self.pong();
            }
            ToNode::Spare => self.tell_unused(),
            ToNode::Remove { block } => self.remove(block),
            ToNode::List { ask } => self.list(ask),
            ToNode::Verify { ask, block, digest } => self.verify(ask, block, digest),
            ToNode::Describe { ask } => {
                self.descriptions.begin(ask, self.blocks.clone(), self.reports.clone());
            }
            other => tracing::warn!(?other, "ignoring a message that is not for helpers"),
        }
    }

    /// Reports the throughput of the network ports since the last ping, if it is a new maximum.
    fn tell_seen(&self) {
        let mut port_rates = self.port_rates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some([up, down]) = port_rates.look(self.engine.traffic().now(), Instant::now()) {
            // The send fails only if the session has ended. The next session measures again.
            let _ = self.reports.send(FromNode::Seen { up, down });
        }
    }

    /// Reports the rate at which clients read from this helper, if it has changed since the last ping.
    fn tell_user_load(&self) {
        let mut user_load = self.user_load.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes_per_s) = user_load.look(sent_to_users(&self.engine), Instant::now()) {
            // The send fails only if the session has ended. The next session begins without a load.
            let _ = self.reports.send(FromNode::UserLoad { bytes_per_s });
        }
    }

    /// Examines which blocks are in memory, and reports the changes since the last ping. A disk that hangs
    /// blocks one thread.
    fn tell_heat(&self) {
        if self.memory.is_busy.swap(true, Ordering::Relaxed) {
            return;
        }
        let (memory, blocks, reports) = (self.memory.clone(), self.blocks.clone(), self.reports.clone());
        tokio::task::spawn_blocking(move || {
            memory.recent.examine(&*blocks);
            let blocks = memory.changes(Instant::now());
            if !blocks.is_empty() {
                // The send fails only if the session has ended. The next session tells everything again.
                let _ = reports.send(FromNode::Heat { blocks });
            }
            memory.is_busy.store(false, Ordering::Relaxed);
        });
    }

    fn tell_unused(&self) {
        let [up, down] = [Meter::Up, Meter::Down].map(|meter| self.engine.unused(meter));
        let _ = self.reports.send(FromNode::Unused { up, down }); // A new coordinator asks again.
    }

    /// Answers a ping. The answer has the result of the last check that blocks can be stored, because a check
    /// may take seconds. If the folder of blocks is gone, no answer is sent, so the coordinator stops relying on
    /// this node. A disk that hangs blocks only two threads, and the session ends.
    fn pong(&self) {
        if self.answering.swap(true, Ordering::Relaxed) {
            return;
        }
        let (tasks, answering) = (self.engine.jobs(), self.answering.clone());
        let (blocks, reports) = (self.blocks.clone(), self.reports.clone());
        let write_problem = match self.write_checks.look(&self.blocks, Instant::now()) {
            // While a disk hangs, the store cannot tell whether a new block would be a second copy.
            Writable::Yes => silence(&self.blocks.silent_folders()),
            Writable::No(problem) => Some(problem),
            Writable::Hangs => return answering.store(false, Ordering::Relaxed),
        };
        let write_checks = self.write_checks.clone();
        tokio::spawn(apart(move || {
            match write_checks.free_bytes(&*blocks) {
                Ok(free_bytes) => {
                    // A new coordinator asks again.
                    let _ = reports.send(FromNode::Pong { free_bytes, tasks, write_problem });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot use the folder of blocks; not answering the coordinator");
                }
            }
            answering.store(false, Ordering::Relaxed);
        }));
    }

    fn remove(&self, block: BlockId) {
        let (blocks, reports, removals) = (self.blocks.clone(), self.reports.clone(), self.removals.clone());
        tokio::task::spawn_blocking(move || {
            let Some(_running) = removals.begin() else { return };
            let answer = match blocks.remove(&block) {
                Ok(_) => FromNode::Removed { block },
                Err(error) => FromNode::RemoveFailed { block, problem: store_problem(&error) },
            };
            let _ = reports.send(answer); // A new coordinator asks again.
        });
    }

    /// Lists the blocks held, in several messages.
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
            let _ = parts.try_for_each(|part| reports.send_part(part)); // A new coordinator asks again.
        });
    }

    fn verify(&self, ask: u64, block: BlockId, recorded: Option<Digest>) {
        let (blocks, reports, verifies) = (self.blocks.clone(), self.reports.clone(), self.verifies.clone());
        let gate = self
            .interest
            .gate(self.engine.allowance(Class::Repair), self.engine.traffic().for_purpose(Purpose::Scrub));
        tokio::spawn(async move {
            let verifying = async {
                let _permit = verifies.acquire_owned().await;
                unless_stuck(verified(&blocks, (&block, recorded), &gate), &gate, STUCK_AFTER).await
            };
            let result = saying_so(verifying, ask, &gate, &reports).await;
            let _ = reports.send(FromNode::Verified { ask, block, result });
        });
    }
}

impl Memory {
    /// Returns what the coordinator does not know yet, and notes it as told.
    fn changes(&self, now: Instant) -> Vec<BlockHeat> {
        self.recent.changes(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// Returns the bytes that the node has sent for clients' reads.
fn sent_to_users(engine: &Engine) -> u64 {
    engine.traffic().of(Purpose::Read).sent
}

/// Waits for `verifying`, and reports to the coordinator periodically while a cap throttles scrubs. A scrub
/// that waits for its turn is reported as well, because it waits for scrubs that are throttled.
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
            // The send fails only if the session has ended. A new coordinator does not wait for this scrub.
            let _ = reports.send(FromNode::Verifying { ask });
        }
    }
}

/// Waits for a verification, and gives it up if it makes no progress for a `period`: other blocks may be on disks that work. The
/// thread of the verification ends once the disk answers.
async fn unless_stuck<T>(
    verifying: impl Future<Output = Result<T, BlockProblem>>,
    gate: &DiskGate,
    period: Duration,
) -> Result<T, BlockProblem> {
    tokio::pin!(verifying);
    let mut before = gate.asked();
    loop {
        tokio::select! {
            result = &mut verifying => return result,
            () = tokio::time::sleep(period) => {}
        }
        let asked = gate.asked();
        if std::mem::replace(&mut before, asked) == asked {
            return Err(BlockProblem::Unavailable(format!(
                "its disk has returned no data for {period:?}, and may hang"
            )));
        }
    }
}

/// Verifies a block and returns its digest, if its store has digests. Retries after errors that may be
/// transient, including read errors of the medium. Before such errors condemn the block, it is read once more after a
/// check of the disk: they prove nothing about the block if the whole disk failed for a moment.
async fn verified(
    blocks: &Arc<dyn Blocks>,
    (block, recorded): (&BlockId, Option<Digest>),
    gate: &DiskGate,
) -> Result<Option<Digest>, BlockProblem> {
    let (mut attempt, mut is_checked) = (1, false);
    loop {
        let (store, name, gate) = (blocks.clone(), block.clone(), gate.clone());
        let error = match aside(move || store.verify_recorded(&name, recorded, &gate)).await {
            Ok(digest) => return Ok(digest),
            Err(error) => error,
        };
        match block_problem(&error) {
            BlockProblem::Unavailable(_) if attempt < ATTEMPTS && may_be_transient(&error) => attempt += 1,
            // The last attempt failed as well, so the read error is not transient.
            BlockProblem::Unavailable(detail) if is_medium(&error) && is_checked => {
                return Err(BlockProblem::Unreadable(detail));
            }
            BlockProblem::Unavailable(detail) if is_medium(&error) => {
                let store = blocks.clone();
                let checked = aside(move || store.check_writable()).await;
                if checked.is_err_and(|whole| !is_full(&whole)) {
                    return Err(BlockProblem::Unavailable(detail));
                }
                is_checked = true;
            }
            problem => return Err(problem),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The errors in one description of all blocks.
#[derive(Default)]
struct DescribeErrors {
    /// The attempts that were repeated.
    repeated: u32,
    /// The blocks whose medium failed in the last attempt.
    unreadable: u32,
    /// Whether blocks are omitted that may be intact, because the machine or the whole disk fails.
    is_incomplete: bool,
}

impl DescribeErrors {
    fn may_repeat(&self) -> bool {
        self.repeated < DESCRIBE_ATTEMPTS
    }

    /// Counts a block whose medium failed. Returns whether the disk as a whole may be failing: then the errors
    /// prove nothing about the blocks.
    fn are_of_the_disk(&mut self, blocks: &dyn Blocks) -> bool {
        self.unreadable += 1;
        let is_broken = || blocks.check_writable().is_err_and(|error| !is_full(&error));
        !self.may_repeat() || (self.unreadable > 1 && is_broken())
    }
}

/// Returns the blocks to describe.
fn listed(blocks: &dyn Blocks, errors: &mut DescribeErrors) -> Vec<HeldBlock> {
    match blocks.list_answering() {
        Ok(BlockList { held, silent }) => {
            errors.is_incomplete = !silent.is_empty();
            held
        }
        Err(error) => {
            tracing::error!(%error, "cannot list the blocks");
            errors.is_incomplete = true;
            Vec::new()
        }
    }
}

/// Describes a block; returns `None` if it must be omitted.
fn described(blocks: &dyn Blocks, block: &BlockId, errors: &mut DescribeErrors) -> Option<Description> {
    let error = match described_patiently(blocks, block, errors) {
        Ok(description) => return Some(description),
        Err(error) => error,
    };
    if errors.is_incomplete {
        return None; // The log says so already, and all further blocks may fail.
    }
    errors.is_incomplete = is_of_machine(&error) || (is_medium(&error) && errors.are_of_the_disk(blocks));
    match errors.is_incomplete {
        true => tracing::error!(
            %error,
            "cannot describe all blocks, because the machine or the whole disk seems to fail; check both"
        ),
        false => tracing::warn!(%error, "omitting a block without a readable description"),
    }
    None
}

/// Describes a block. Repeats the attempt after errors that may be transient, as long as `errors` permit it: a
/// failing disk must not delay the descriptions of all its blocks.
fn described_patiently(
    blocks: &dyn Blocks,
    block: &BlockId,
    errors: &mut DescribeErrors,
) -> Result<Description, BlockError> {
    for _ in 1..ATTEMPTS {
        match blocks.describe(block) {
            Err(error) if errors.may_repeat() && may_be_transient(&error) => errors.repeated += 1,
            described => return described,
        }
        thread::sleep(PAUSE);
    }
    blocks.describe(block)
}

fn may_be_transient(error: &BlockError) -> bool {
    let lasts = matches!(error, BlockError::Io { source, .. } if is_of_the_helper(source));
    !lasts && is_unavailable(error)
}

/// Whether the error proves nothing about the block, because the machine failed or this helper cannot use the
/// files.
fn is_of_machine(error: &BlockError) -> bool {
    is_unavailable(error) && !is_medium(error)
}

fn is_unavailable(error: &BlockError) -> bool {
    matches!(block_problem(error), BlockProblem::Unavailable(_))
}

/// Whether the medium itself failed, rather than the machine around it.
fn is_medium(error: &BlockError) -> bool {
    matches!(error, BlockError::Io { source, .. } if is_of_medium(source))
}

fn store_problem(error: &BlockError) -> StoreProblem {
    match block_problem(error) {
        BlockProblem::Unavailable(_) if may_be_transient(error) => StoreProblem::Machine(error.to_string()),
        BlockProblem::Unavailable(detail) => StoreProblem::Store(detail),
        _ => StoreProblem::Store(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
