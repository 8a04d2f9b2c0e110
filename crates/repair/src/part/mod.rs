//! A node's part of one job, as a state machine: what a helper or a client does between the messages of the coordinator
//! and its own sockets and disk.
//!
//! ```text
//!          assign                begun               all sent and delivered
//!  Idle ──────────▶ Beginning ────────▶ Moving ───────────────────────────────▶ Settling ──▶ Idle
//!   ▲                   │ cannot          │ something breaks, or it is told to stop ▲   │
//!   └───────────────────┘                 └─────────────────────────────────────────┘   │ it broke
//!   └───────────── told to stop, or after a while ◀──────────── Parked ◀─────────────────┘
//! ```
//!
//! Messages are obeyed one after another; what must wait for a disk holds back those behind it. While slices move, the
//! part watches its edges: one that rests for longer than the assignment allows is reported with the slice that is due
//! on it. A part that failed keeps its edges open for a while, so that its neighbours wait instead of failing too, and the
//! culprit stands out.
//!
//! **Always true:** at most one plan of a job moves on a node; nothing is written to a delivery after it was reported as
//! stopped; what was delivered is added up from plan to plan until it is committed or forgotten.
//!
//! Deliberately absent: sockets, disks and clocks. `helper` drives it with the real ones, `sim` with modelled ones.

mod moving;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub use self::moving::WATCH_EVERY;
use self::moving::{Ending, Moving};
use crate::wire::control::ToNode;
use crate::{
    Action, Assignment, BlockId, Buffer, BufferPool, Chunking, Epoch, JobId, LocalBlock, Refusal, Relay,
    Report, SliceSet,
};

/// A part that failed keeps its edges open for this long; normally the coordinator stops it much earlier.
const PARK_LIMIT: Duration = Duration::from_secs(60);

/// While a cap holds back what the disk was asked for, that is said so often.
const LIMITED_EVERY: Duration = Duration::from_secs(10);

/// So many messages wait for their turn; a coordinator that keeps to the protocol never comes near.
pub const MAX_WAITING_MESSAGES: usize = 64;

/// What the driver of a part does for it.
#[derive(Debug)]
pub enum PartAction {
    /// Connect the edges of an assignment and open what it reads and delivers to; then call
    /// [`Part::handle_begun`], or [`Part::handle_cannot_begin`].
    Begin(Arc<Assignment>),
    /// Read, send, deliver: see [`Action`]. [`Action::Finished`] never comes this way.
    Move(Action),
    /// Drop reads and writes that have not begun; call [`Part::handle_settled`] once no write is under way.
    Settle,
    /// Close the edges of the plan, and what it reads.
    Disconnect,
    /// Ask the disk; then call [`Part::handle_answer`].
    Ask(Errand),
    /// Tell the coordinator.
    Report {
        /// The plan that the report is about.
        epoch: Epoch,
        /// What is reported.
        report: Report,
    },
    /// Drop all that was delivered and not committed.
    Forget,
}

/// Something that a disk does for a job outside of plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Make all deliveries durable; answered by [`Report::Sealed`].
    Seal,
    /// Answered by [`Report::Fingerprinted`].
    Fingerprint(Box<FingerprintErrand>),
    /// Make all deliveries blocks of the store; answered by [`Report::Committed`].
    Commit,
    /// Read a committed block back; answered by [`Report::Reread`].
    Reread(BlockId),
}

/// Whose fingerprints are asked for, see [`ToNode::Fingerprint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FingerprintErrand {
    /// The block.
    pub block: LocalBlock,
    /// Where its sub-blocks lie: one fingerprint for each.
    pub chunking: Chunking,
    /// Offsets inside each sub-block.
    pub window: (u64, u64),
    /// Chooses the coefficients.
    pub seed: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Part {
    job: JobId,
    budget_bytes: usize,
    /// Free buffers, while no plan uses them.
    pool: BufferPool,
    phase: Phase,
    /// The plan in whose name the disk was asked for something.
    asked: Option<Epoch>,
    /// Whether a cap has held that back since it was last said, and when that was.
    is_limited: bool,
    said_limited: Option<Duration>,
    /// Messages that wait for their turn.
    waiting: VecDeque<ToNode>,
    /// What all plans delivered together.
    delivered: SliceSet,
    /// The last message was to forget the job.
    forgotten: bool,
    actions: VecDeque<PartAction>,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Beginning(Box<Moving>),
    Moving(Box<Moving>),
    Settling(Box<Moving>, Ending),
    Parked { since: Duration },
}

impl Part {
    /// A part of `job` whose relays hold about `budget_bytes` of slices each, in buffers of `pool`.
    pub fn new(job: JobId, budget_bytes: usize, pool: BufferPool) -> Self {
        Self {
            job,
            budget_bytes,
            pool,
            phase: Phase::Idle,
            asked: None,
            is_limited: false,
            said_limited: None,
            waiting: VecDeque::new(),
            delivered: SliceSet::new(),
            forgotten: false,
            actions: VecDeque::new(),
        }
    }

    /// The job.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The next thing to do, if there is one.
    pub fn poll(&mut self, now: Duration) -> Option<PartAction> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        let Phase::Moving(moving) = &mut self.phase else { return None };
        match moving.poll(now)? {
            Action::Finished => {
                self.end(Ending::Finished, now);
                self.actions.pop_front()
            }
            action => Some(PartAction::Move(action)),
        }
    }

    /// Whether slices move.
    pub fn is_moving(&self) -> bool {
        matches!(self.phase, Phase::Moving(_))
    }

    /// Whether it wants to be told the time, every [`WATCH_EVERY`].
    pub fn is_watching(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Settling(..))
    }

    /// Whether the job is forgotten, and nothing is left to do.
    pub fn is_over(&self) -> bool {
        let is_idle = matches!(self.phase, Phase::Idle) && self.asked.is_none() && self.waiting.is_empty();
        self.forgotten && is_idle && self.actions.is_empty()
    }

    /// The free buffers, when it is over.
    pub fn into_pool(self) -> BufferPool {
        self.pool
    }

    // ---- messages ----

    /// Takes a message of the coordinator that concerns its job, see [`ToNode::job`].
    pub fn handle_message(&mut self, message: ToNode, now: Duration) {
        if let ToNode::Explain { epoch, .. } = message {
            return self.explain(epoch, now);
        }
        if self.waiting.len() >= MAX_WAITING_MESSAGES {
            if let Some(epoch) = message.epoch() {
                self.report(epoch, too_many_messages());
            }
            return;
        }
        self.waiting.push_back(message);
        self.go_on(now);
    }

    /// Answered before anything that waits for a disk: silence is what the others are asked about.
    fn explain(&mut self, epoch: Epoch, now: Duration) {
        let waits = self.moving().filter(|moving| moving.epoch() == epoch).map(|moving| moving.waits(now));
        let report = match waits {
            None if self.has_ended(epoch) => Report::AtRest,
            waits => waits.unwrap_or_default().into(),
        };
        self.report(epoch, report);
    }

    /// Whether nothing of a plan moves, and none of it is to begin or to be written.
    fn has_ended(&self, epoch: Epoch) -> bool {
        let waits = self.waiting.iter().any(|message| message.epoch() == Some(epoch));
        !waits && matches!(self.phase, Phase::Idle | Phase::Parked { .. })
    }

    /// The coordinator is gone: all is dropped that is not committed.
    pub fn handle_coordinator_lost(&mut self, now: Duration) {
        self.waiting.clear();
        self.waiting.push_back(ToNode::Forget { job: self.job });
        self.go_on(now);
    }

    fn go_on(&mut self, now: Duration) {
        while self.asked.is_none()
            && matches!(self.phase, Phase::Idle | Phase::Moving(_) | Phase::Parked { .. })
            && let Some(message) = self.waiting.pop_front()
        {
            let beside_a_plan = matches!(message, ToNode::Fingerprint { .. } | ToNode::Reread { .. });
            if beside_a_plan || matches!(self.phase, Phase::Idle) {
                self.obey(message);
            } else {
                self.waiting.push_front(message);
                self.stop(now);
            }
        }
    }

    /// Does what the coordinator says; unless it is a question for the disk, no plan moves.
    fn obey(&mut self, message: ToNode) {
        self.forgotten = false;
        match message {
            ToNode::Assign(assignment) => self.assign(*assignment),
            ToNode::Stop { epoch, .. } => {
                let delivered = self.delivered.clone();
                self.report(epoch, Report::Stopped { delivered });
            }
            ToNode::Seal { epoch, .. } => self.ask(epoch, Errand::Seal),
            ToNode::Fingerprint { epoch, block, chunking, window, seed, .. } => {
                let errand = FingerprintErrand { block, chunking, window, seed };
                self.ask(epoch, Errand::Fingerprint(Box::new(errand)));
            }
            ToNode::Commit { epoch, .. } => self.ask(epoch, Errand::Commit),
            ToNode::Reread { epoch, block, .. } => self.ask(epoch, Errand::Reread(block)),
            ToNode::Forget { .. } => {
                self.delivered = SliceSet::new();
                self.forgotten = true;
                self.actions.push_back(PartAction::Forget);
            }
            other => debug_assert!(other.job().is_none(), "every message of a job has its place above"),
        }
    }

    fn assign(&mut self, assignment: Assignment) {
        let pool = std::mem::take(&mut self.pool);
        match Relay::new(&assignment, self.budget_bytes, pool) {
            Ok(relay) => {
                let assignment = Arc::new(assignment);
                self.phase = Phase::Beginning(Box::new(Moving::new(assignment.clone(), relay)));
                self.actions.push_back(PartAction::Begin(assignment));
            }
            Err(error) => self.report(assignment.epoch, refused(&error)),
        }
    }

    fn ask(&mut self, epoch: Epoch, errand: Errand) {
        (self.asked, self.is_limited, self.said_limited) = (Some(epoch), false, None);
        self.actions.push_back(PartAction::Ask(errand));
    }

    fn report(&mut self, epoch: Epoch, report: Report) {
        self.actions.push_back(PartAction::Report { epoch, report });
    }

    /// The most bytes that the plan which begins holds at once.
    pub fn most_bytes(&self) -> u64 {
        match &self.phase {
            Phase::Beginning(moving) | Phase::Moving(moving) => moving.relay().most_bytes(),
            _ => 0,
        }
    }

    // ---- answers of the driver ----

    /// What [`PartAction::Begin`] asked for is there.
    pub fn handle_begun(&mut self, now: Duration) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Beginning(mut moving) => {
                moving.begin(now);
                self.phase = Phase::Moving(moving);
                self.go_on(now);
            }
            other => self.phase = other,
        }
    }

    /// What [`PartAction::Begin`] asked for cannot be had.
    pub fn handle_cannot_begin(&mut self, report: Report, now: Duration) {
        if let Phase::Beginning(moving) = std::mem::replace(&mut self.phase, Phase::Idle) {
            let epoch = moving.epoch();
            self.pool = moving.into_relay().into_pool();
            self.actions.push_back(PartAction::Disconnect);
            self.report(epoch, report);
        }
        self.go_on(now);
    }

    /// No write is under way any more, see [`PartAction::Settle`].
    pub fn handle_settled(&mut self, now: Duration) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Settling(moving, ending) => self.rest(*moving, ending, now),
            other => self.phase = other,
        }
        self.go_on(now);
    }

    /// The disk has done what [`PartAction::Ask`] asked for.
    pub fn handle_answer(&mut self, report: Report, now: Duration) {
        if let Some(epoch) = self.asked.take() {
            self.report(epoch, report);
        }
        self.go_on(now);
    }

    /// Time has passed: about [`WATCH_EVERY`] since the last time.
    pub fn handle_tick(&mut self, now: Duration) {
        match &mut self.phase {
            Phase::Moving(moving) => {
                let epoch = moving.epoch();
                for report in moving.watch(now) {
                    self.actions.push_back(PartAction::Report { epoch, report });
                }
            }
            Phase::Parked { since } if now >= *since + PARK_LIMIT => self.stop(now),
            _ => {}
        }
        if let Some(epoch) = self.asked.filter(|_| self.is_limited)
            && self.said_limited.is_none_or(|said| now >= said + LIMITED_EVERY)
        {
            (self.is_limited, self.said_limited) = (false, Some(now));
            self.report(epoch, Report::Limited);
        }
    }

    /// A cap of this node holds back what the disk was asked for.
    pub fn handle_errand_limited(&mut self) {
        self.is_limited = true;
    }

    // ---- slices; what comes after a plan has ended is dropped ----

    /// Whether the next frame of inlet `inlet` may be taken now, and how many bytes of payload it has. While it may
    /// not, the driver leaves the bytes in the socket, and the sender is held back.
    pub fn due_bytes(&self, inlet: usize) -> Option<usize> {
        let Phase::Moving(moving) = &self.phase else { return None };
        moving.relay().wants(inlet).then(|| moving.relay().due_bytes(inlet))?
    }

    /// A buffer for the driver to receive or read into.
    ///
    /// # Panics
    /// If no slices move.
    pub fn buffer(&mut self, bytes: usize) -> Buffer {
        self.moving().expect("buffers are for slices that move").relay_mut().buffer(bytes)
    }

    /// Whether all frames of inlet `inlet` have come.
    pub fn inlet_is_complete(&self, inlet: usize) -> bool {
        let Phase::Moving(moving) = &self.phase else { return false };
        moving.relay().inlet_is_complete(inlet)
    }

    /// Whether all frames of outlet `outlet` have been sent.
    pub fn outlet_is_complete(&self, outlet: usize) -> bool {
        let Phase::Moving(moving) = &self.phase else { return false };
        moving.outlet_is_complete(outlet)
    }

    /// Takes a frame that came on inlet `inlet` and whose checksum holds.
    pub fn handle_received(&mut self, inlet: usize, stream: u16, slice: u32, buffer: Buffer, now: Duration) {
        let Some(moving) = self.moving() else { return };
        if let Err(report) = moving.received(inlet, stream, slice, buffer, now) {
            self.fail(*report, now);
        }
    }

    /// Takes a read that [`Action::Read`] asked for.
    pub fn handle_read(&mut self, slice: u32, local: u16, buffer: Buffer, now: Duration) {
        let Some(moving) = self.moving() else { return };
        if let Err(error) = moving.relay_mut().handle_read(slice, local, buffer) {
            self.fail(refused(&error), now);
        }
    }

    /// A frame has gone in full; its buffer comes back.
    pub fn handle_sent(&mut self, outlet: usize, slice: u32, buffer: Buffer, now: Duration) {
        if let Some(moving) = self.moving() {
            moving.sent(outlet, slice, buffer, now);
        }
    }

    /// A delivery is written; its buffer comes back.
    pub fn handle_delivered(&mut self, slice: u32, buffer: Buffer) {
        if let Phase::Moving(moving) | Phase::Settling(moving, _) = &mut self.phase {
            moving.delivered(slice, buffer);
        }
    }

    /// Some bytes came on inlet `inlet`.
    pub fn handle_inlet_moved(&mut self, inlet: usize, now: Duration) {
        self.moving().into_iter().for_each(|moving| moving.inlet_moved(inlet, now));
    }

    /// Some bytes went on outlet `outlet`.
    pub fn handle_outlet_moved(&mut self, outlet: usize, now: Duration) {
        self.moving().into_iter().for_each(|moving| moving.outlet_moved(outlet, now));
    }

    /// A cap of this node holds something back. If that is an edge, it has moved as far as its other end is concerned: call
    /// [`handle_inlet_moved`](Self::handle_inlet_moved) or [`handle_outlet_moved`](Self::handle_outlet_moved) too.
    pub fn handle_limited(&mut self) {
        self.moving().into_iter().for_each(Moving::limit);
    }

    /// Something of the plan broke: an edge, a block that it reads, a delivery.
    pub fn fail(&mut self, report: Report, now: Duration) {
        if self.is_moving() {
            self.end(Ending::Failed(Box::new(report)), now);
        }
    }

    fn moving(&mut self) -> Option<&mut Moving> {
        match &mut self.phase {
            Phase::Moving(moving) => Some(moving),
            _ => None,
        }
    }

    // ---- the end of a plan ----

    fn stop(&mut self, now: Duration) {
        match self.phase {
            Phase::Moving(_) => self.end(Ending::Stopped, now),
            Phase::Parked { .. } => {
                self.phase = Phase::Idle;
                self.actions.push_back(PartAction::Disconnect);
            }
            _ => {}
        }
    }

    fn end(&mut self, ending: Ending, now: Duration) {
        let Phase::Moving(moving) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        if moving.is_writing() {
            self.actions.push_back(PartAction::Settle);
            self.phase = Phase::Settling(moving, ending);
        } else {
            self.rest(*moving, ending, now);
            self.go_on(now);
        }
    }

    fn rest(&mut self, moving: Moving, ending: Ending, now: Duration) {
        let (epoch, delivers) = (moving.epoch(), moving.delivers());
        let relay = moving.into_relay();
        self.delivered = self.delivered.union(relay.delivered());
        self.pool = relay.into_pool();
        match ending {
            Ending::Finished if delivers => {
                self.report(epoch, Report::Delivered);
                self.actions.push_back(PartAction::Disconnect);
            }
            Ending::Finished | Ending::Stopped => self.actions.push_back(PartAction::Disconnect),
            Ending::Failed(report) => {
                self.report(epoch, *report);
                self.phase = Phase::Parked { since: now };
            }
        }
    }
}

/// The answer to a message that finds no room.
pub fn too_many_messages() -> Report {
    Report::Refused { why: Refusal::Messages { most: MAX_WAITING_MESSAGES } }
}

/// The report on an assignment that cannot be carried out.
fn refused(error: &impl std::error::Error) -> Report {
    Report::Refused { why: Refusal::Assignment { detail: error.to_string() } }
}
