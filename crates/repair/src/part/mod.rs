//! A node's part of one job, as a state machine between the coordinator's messages on one side and the node's
//! sockets and disk on the other.
//!
//! ```text
//!          assign                begun               all sent and delivered
//!  Idle ──────────▶ Beginning ────────▶ Moving ───────────────────────────────▶ Settling ──▶ Idle
//!   ▲                   │ failed          │ error, or told to stop                  ▲   │
//!   └───────────────────┘                 └─────────────────────────────────────────┘   │ after an error
//!   └───────────── told to stop, or timeout ◀──────────── Parked ◀───────────────────────┘
//! ```
//!
//! Messages are handled one after another; a message that waits for the disk delays those behind it. While
//! slices move, the part watches its edges: it reports an edge that is idle for longer than the assignment
//! allows, with the slice that is due on it. After an error, the part keeps its edges open for a while. Its
//! neighbours then wait instead of failing too, and the culprit stands out.
//!
//! With [`Pacing::Serial`](crate::Pacing::Serial), the part also exchanges credits with its neighbours
//! (`credits.rs`), so that no kernel receives a slice for it ahead of time.
//!
//! **Invariant:** at most one plan of a job moves on a node; once the part has reported `Stopped`, nothing is
//! written to its deliveries until the next plan; deliveries accumulate from plan to plan until they are
//! committed or forgotten.
//!
//! A helper that delivers nothing for a repair is over as soon as its plan has ended or its question is
//! answered, because it has nothing left to forget. All other parts last until they are told to forget the
//! job.
//!
//! Deliberately absent: sockets, disks and clocks. `helper` drives this type with the real ones, `sim` with
//! models.

mod credits;
mod moving;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub use self::moving::WATCH_EVERY;
use self::moving::{Ending, Moving};
use crate::wire::control::ToNode;
use crate::wire::edge::Credit;
use crate::{
    Action, Assignment, BlockId, Buffer, BufferPool, Chunking, Class, Digest, Epoch, JobId, LocalBlock,
    Refusal, Relay, Report, SliceSet,
};

/// How long a failed part keeps its edges open; normally the coordinator stops it much earlier.
const PARK_LIMIT: Duration = Duration::from_secs(60);

/// The interval between reports that a cap delays a disk operation.
const LIMITED_EVERY: Duration = Duration::from_secs(10);

/// The maximum number of queued messages; a correct coordinator never comes close.
pub const MAX_WAITING_MESSAGES: usize = 64;

/// An action for the part's driver to carry out.
#[derive(Debug)]
pub enum PartAction {
    /// Connect the edges of an assignment and open its blocks and sinks; then call [`Part::handle_begun`], or
    /// [`Part::handle_cannot_begin`].
    Begin(Arc<Assignment>),
    /// Read, send or deliver; see [`Action`]. [`Action::Finished`] is never passed on.
    Move(Action),
    /// Send a credit to the sender of inlet number `inlet`; call [`Part::handle_credits_written`] once it is
    /// written. Occurs only with [`Pacing::Serial`](crate::Pacing::Serial).
    Credit {
        /// Position among the assignment's inlets.
        inlet: usize,
        /// The credit.
        credit: Credit,
    },
    /// Drop reads and writes that have not begun; call [`Part::handle_settled`] once no write is in flight.
    Settle,
    /// Close the plan's edges and the blocks that it reads.
    Disconnect,
    /// Perform a disk operation; then call [`Part::handle_answer`].
    Ask(Errand),
    /// Send a report to the coordinator.
    Report {
        /// The epoch of the reported plan.
        epoch: Epoch,
        /// The report.
        report: Report,
    },
    /// Drop all deliveries that were not committed.
    Forget,
}

/// A disk operation for a job, outside its plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Make all deliveries durable; answered by [`Report::Sealed`].
    Seal,
    /// Compute fingerprints of a block; answered by [`Report::Fingerprinted`].
    Fingerprint(Box<FingerprintErrand>),
    /// Commit all deliveries as blocks of the store; answered by [`Report::Committed`].
    Commit,
    /// Read a whole block back: a committed one, or a survivor; answered by [`Report::Reread`].
    Reread {
        /// The block.
        block: BlockId,
        /// The block's digest as recorded by the store; `None` if no digest of it is in use.
        digest: Option<Digest>,
    },
}

/// A request for fingerprints; see [`ToNode::Fingerprint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FingerprintErrand {
    /// The block.
    pub block: LocalBlock,
    /// The layout of the block's sub-blocks, each of which gets a fingerprint.
    pub chunking: Chunking,
    /// The window in each sub-block: its start and its end.
    pub window: (u64, u64),
    /// The seed from which the fingerprints' coefficients are generated.
    pub seed: u64,
}

/// A node's part of one job; see the module's documentation.
#[derive(Debug)]
pub struct Part {
    job: JobId,
    budget_bytes: usize,
    /// The free buffers; empty while a plan uses them.
    pool: BufferPool,
    phase: Phase,
    /// The epoch of the pending disk operation.
    asked: Option<Epoch>,
    /// Whether a cap has delayed the disk operation since the last `Limited` report, and the time of that
    /// report.
    is_limited: bool,
    said_limited: Option<Duration>,
    /// The queued messages.
    waiting: VecDeque<ToNode>,
    /// The slices delivered by all plans together.
    delivered: SliceSet,
    /// Whether the part lasts until it is told to forget the job.
    lasts: bool,
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
    /// Creates the part of `job` on this node. Each of its relays holds about `budget_bytes` of slices, in
    /// buffers from `pool`.
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
            lasts: false,
            actions: VecDeque::new(),
        }
    }

    /// The job's id.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The next action for the driver.
    pub fn poll(&mut self, now: Duration) -> Option<PartAction> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        let Phase::Moving(moving) = &mut self.phase else { return None };
        if let Some((inlet, credit)) = moving.poll_credit() {
            return Some(PartAction::Credit { inlet, credit });
        }
        match moving.poll(now)? {
            Action::Finished => {
                self.end(Ending::Finished, now);
                self.actions.pop_front()
            }
            action => Some(PartAction::Move(action)),
        }
    }

    /// Whether a plan is moving slices on this node.
    pub fn is_moving(&self) -> bool {
        matches!(self.phase, Phase::Moving(_))
    }

    /// Whether the part needs a call of [`handle_tick`](Self::handle_tick) every [`WATCH_EVERY`].
    pub fn is_watching(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Settling(..))
    }

    /// Whether no work remains, and nothing that the coordinator may still tell the node to forget.
    pub fn is_over(&self) -> bool {
        let is_idle = matches!(self.phase, Phase::Idle) && self.asked.is_none() && self.waiting.is_empty();
        !self.lasts && is_idle && self.actions.is_empty()
    }

    /// Returns the free buffers once the part is over.
    pub fn into_pool(self) -> BufferPool {
        self.pool
    }

    // ---- messages ----

    /// Handles a coordinator's message about this job; see [`ToNode::job`].
    pub fn handle_message(&mut self, message: ToNode, now: Duration) {
        match message {
            ToNode::Explain { epoch, .. } => return self.explain(epoch, now),
            // Concerns only the driver, which slows the job down or does not.
            ToNode::AtRisk { .. } => return,
            _ => {}
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

    /// Reports at once what this node waits for, ahead of queued messages, because a silent node is a
    /// suspect.
    fn explain(&mut self, epoch: Epoch, now: Duration) {
        let waits = self.moving().filter(|moving| moving.epoch() == epoch).map(|moving| moving.waits(now));
        let report = match waits {
            None if self.has_ended(epoch) => Report::AtRest,
            waits => waits.unwrap_or_default().into(),
        };
        self.report(epoch, report);
    }

    /// Whether the plan `epoch` is over on this node: nothing moves, and no message of the plan is queued.
    fn has_ended(&self, epoch: Epoch) -> bool {
        let waits = self.waiting.iter().any(|message| message.epoch() == Some(epoch));
        !waits && matches!(self.phase, Phase::Idle | Phase::Parked { .. })
    }

    /// Handles the loss of the coordinator: everything that is not committed is dropped.
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

    /// Carries out a message. No plan may be moving, unless the message requests fingerprints or a reread.
    fn obey(&mut self, message: ToNode) {
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
            ToNode::Reread { epoch, block, digest, .. } => {
                self.ask(epoch, Errand::Reread { block, digest });
            }
            ToNode::Forget { .. } => {
                self.delivered = SliceSet::new();
                self.lasts = false;
                self.actions.push_back(PartAction::Forget);
            }
            other => debug_assert!(other.job().is_none(), "every message of a job has its place above"),
        }
    }

    fn assign(&mut self, assignment: Assignment) {
        // Later questions are answered with the priority of the job's class. Only the assignment states the
        // class, and a part that never had one takes its job for a repair.
        self.lasts |= !assignment.sinks.is_empty() || assignment.class != Class::Repair;
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

    /// The maximum memory that slices of the current plan occupy on this node, in bytes; 0 without a plan.
    pub fn most_bytes(&self) -> u64 {
        match &self.phase {
            Phase::Beginning(moving) | Phase::Moving(moving) => moving.relay().most_bytes(),
            _ => 0,
        }
    }

    // ---- answers from the driver ----

    /// Call when the driver has carried out [`PartAction::Begin`].
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

    /// Call when the driver could not carry out [`PartAction::Begin`].
    pub fn handle_cannot_begin(&mut self, report: Report, now: Duration) {
        if let Phase::Beginning(moving) = std::mem::replace(&mut self.phase, Phase::Idle) {
            let epoch = moving.epoch();
            self.pool = moving.into_relay().into_pool();
            self.actions.push_back(PartAction::Disconnect);
            self.report(epoch, report);
        }
        self.go_on(now);
    }

    /// Call when no write is in flight any more, to answer [`PartAction::Settle`].
    pub fn handle_settled(&mut self, now: Duration) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Settling(moving, ending) => self.rest(*moving, ending, now),
            other => self.phase = other,
        }
        self.go_on(now);
    }

    /// Call when the disk operation of [`PartAction::Ask`] is done.
    pub fn handle_answer(&mut self, report: Report, now: Duration) {
        if let Some(epoch) = self.asked.take() {
            self.report(epoch, report);
        }
        self.go_on(now);
    }

    /// Handles the passing of time, about [`WATCH_EVERY`] after the last call.
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

    /// Records that a cap of this node delays the current disk operation.
    pub fn handle_errand_limited(&mut self) {
        self.is_limited = true;
    }

    // ---- slices; ignored once their plan has ended ----

    /// The payload length of the next frame of inlet `inlet`, or `None` if the relay cannot accept the frame
    /// now. The driver then leaves the bytes in the socket, which applies back-pressure to the sender.
    pub fn due_bytes(&self, inlet: usize) -> Option<usize> {
        let Phase::Moving(moving) = &self.phase else { return None };
        moving.relay().wants(inlet).then(|| moving.relay().due_bytes(inlet))?
    }

    /// A buffer for the driver to receive or read into.
    ///
    /// # Panics
    /// If no slices are moving.
    pub fn buffer(&mut self, bytes: usize) -> Buffer {
        self.moving().expect("buffers are for slices that move").relay_mut().buffer(bytes)
    }

    /// Whether all frames of inlet `inlet` have arrived.
    pub fn inlet_is_complete(&self, inlet: usize) -> bool {
        let Phase::Moving(moving) = &self.phase else { return false };
        moving.relay().inlet_is_complete(inlet)
    }

    /// Whether all frames of outlet `outlet` have been sent and, with [`Pacing::Serial`](crate::Pacing::Serial),
    /// confirmed by the receiver.
    pub fn outlet_is_complete(&self, outlet: usize) -> bool {
        let Phase::Moving(moving) = &self.phase else { return false };
        moving.outlet_is_complete(outlet)
    }

    /// Hands a frame that arrived on inlet `inlet` to the relay. The driver has verified the frame's
    /// checksum.
    pub fn handle_received(&mut self, inlet: usize, stream: u16, slice: u32, buffer: Buffer, now: Duration) {
        let Some(moving) = self.moving() else { return };
        if let Err(report) = moving.received(inlet, stream, slice, buffer, now) {
            self.fail(*report, now);
        }
    }

    /// Hands the result of [`Action::Read`] to the relay.
    pub fn handle_read(&mut self, slice: u32, local: u16, buffer: Buffer, now: Duration) {
        let Some(moving) = self.moving() else { return };
        if let Err(error) = moving.relay_mut().handle_read(slice, local, buffer) {
            self.fail(refused(&error), now);
        }
    }

    /// Call when a frame has been sent completely. `buffer` is the frame's buffer; the part reuses it.
    pub fn handle_sent(&mut self, outlet: usize, slice: u32, buffer: Buffer, now: Duration) {
        if let Some(moving) = self.moving() {
            moving.sent(outlet, slice, buffer, now);
        }
    }

    /// Call when `count` credits of [`PartAction::Credit`] have been written.
    pub fn handle_credits_written(&mut self, count: usize) {
        self.moving().into_iter().for_each(|moving| moving.credits_written(count));
    }

    /// Handles a credit that arrived from the receiver of outlet `outlet`.
    pub fn handle_credit(&mut self, outlet: usize, credit: Credit, now: Duration) {
        let Some(moving) = self.moving() else { return };
        if let Err(report) = moving.credit(outlet, credit, now) {
            self.fail(*report, now);
        }
    }

    /// Call when a delivered slice has been written. `buffer` is the slice's buffer; the part reuses it.
    pub fn handle_delivered(&mut self, slice: u32, buffer: Buffer) {
        if let Phase::Moving(moving) | Phase::Settling(moving, _) = &mut self.phase {
            moving.delivered(slice, buffer);
        }
        if let Phase::Moving(moving) = &mut self.phase
            && let Some(report) = moving.first_delivery()
        {
            let epoch = moving.epoch();
            self.report(epoch, report);
        }
    }

    /// Call when some bytes arrived on inlet `inlet`: the edge is not idle.
    pub fn handle_inlet_moved(&mut self, inlet: usize, now: Duration) {
        self.moving().into_iter().for_each(|moving| moving.inlet_moved(inlet, now));
    }

    /// Call when some bytes were sent on outlet `outlet`: the edge is not idle.
    pub fn handle_outlet_moved(&mut self, outlet: usize, now: Duration) {
        self.moving().into_iter().for_each(|moving| moving.outlet_moved(outlet, now));
    }

    /// Records that a cap of this node delays the plan. If the cap delays an edge, the edge must not be
    /// reported as idle: also call [`handle_inlet_moved`](Self::handle_inlet_moved) or
    /// [`handle_outlet_moved`](Self::handle_outlet_moved).
    pub fn handle_limited(&mut self) {
        self.moving().into_iter().for_each(Moving::limit);
    }

    /// Handles a failure of the plan: of an edge, of a block that the plan reads, or of a delivery.
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

/// The report on a message that exceeds the queue.
pub fn too_many_messages() -> Report {
    Report::Refused { why: Refusal::Messages { most: MAX_WAITING_MESSAGES } }
}

/// The report on an assignment that cannot be carried out.
fn refused(error: &impl std::error::Error) -> Report {
    Report::Refused { why: Refusal::Assignment { detail: error.to_string() } }
}
