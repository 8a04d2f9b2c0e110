//! A node's task in one job with its sockets and its disk, on virtual time: the counterpart of `JobTask` in
//! the crate `helper`.
//!
//! As in a helper, [`repair::Part`] makes all decisions.

use repair::wire::control::ToNode;
use repair::{
    Assignment, BlockId, BlockProblem, BufferPool, Class, Errand, JobId, NodeId, Part, PartAction, Report,
};

use crate::disk::{Deliveries, Disk};
use crate::event::{NodeEvent, TaskId};
use crate::motion::Motion;
use crate::shared::Shared;

/// A node's task in one job.
#[derive(Debug)]
pub(crate) struct JobTask {
    node: NodeId,
    budget_bytes: usize,
    part: Option<Part>,
    motion: Option<Motion>,
    /// Deliveries that are not committed.
    pub(crate) deliveries: Deliveries,
    /// The deliveries that the task held when it last dropped the job. On a client, these are the bytes that
    /// the client has read.
    pub(crate) forgotten: Deliveries,
    /// The last number that was given to a task or a disk request.
    next: TaskId,
    /// The number of the last disk request.
    asked: TaskId,
}

impl JobTask {
    /// Creates a task. Its numbers for tasks and disk requests start after `first`.
    pub(crate) fn new(node: NodeId, budget_bytes: usize, first: TaskId) -> Self {
        Self {
            node,
            budget_bytes,
            part: None,
            motion: None,
            deliveries: Deliveries::default(),
            forgotten: Deliveries::default(),
            next: first,
            asked: 0,
        }
    }

    /// Whether the task has any state of the job.
    pub(crate) fn knows_job(&self) -> bool {
        self.part.is_some() || self.motion.is_some() || !self.deliveries.is_empty()
    }

    /// Handles the death of the process: drops all state without notifying any other node.
    pub(crate) fn die(&mut self) {
        self.motion = None;
        self.forget();
    }

    /// Drops all uncommitted state of the job.
    pub(crate) fn forget_all(&mut self, shared: &mut Shared) {
        self.disconnect(shared);
        self.forget();
    }

    fn forget(&mut self) {
        self.deliveries = Deliveries::default();
        self.part = None;
        self.asked = 0;
    }

    fn disconnect(&mut self, shared: &mut Shared) {
        if let Some(motion) = self.motion.take() {
            motion.close(shared);
        }
    }

    fn number(&mut self) -> TaskId {
        self.next += 1;
        self.next
    }

    /// Handles a message from the coordinator.
    pub(crate) fn take(&mut self, message: ToNode, disk: &mut Disk, shared: &mut Shared) {
        let Some(job) = message.job() else {
            return shared.violate(format!("{} received {message:?}, which belongs to no job", self.node));
        };
        self.part(job).handle_message(message, shared.now);
        self.pump(disk, shared);
    }

    fn part(&mut self, job: JobId) -> &mut Part {
        let budget_bytes = self.budget_bytes;
        self.part.get_or_insert_with(|| Part::new(job, budget_bytes, BufferPool::default()))
    }

    /// Handles an event. The process must be running.
    pub(crate) fn handle(&mut self, event: NodeEvent, disk: &mut Disk, shared: &mut Shared) {
        let Some(part) = &mut self.part else { return };
        let now = shared.now;
        if let NodeEvent::DiskDone { ask, report } = event {
            // If the process has restarted since the request, the request's number differs from `asked`, and
            // the result is ignored.
            if ask == self.asked {
                part.handle_answer(*report, now);
            }
            return self.pump(disk, shared);
        }
        let Some(motion) = &mut self.motion else { return };
        match event {
            NodeEvent::Begun { task } if task == motion.id => part.handle_begun(now),
            NodeEvent::ReadDone { task, slice, local, result } if task == motion.id => {
                motion.give_back(slice, shared);
                match result {
                    Ok(buffer) => part.handle_read(slice, local, buffer, now),
                    Err(problem) => part.fail(bad(motion.block_of(slice, local), problem), now),
                }
            }
            NodeEvent::WriteDone { task, slice, block, written, buffer } if task == motion.id => {
                motion.write_done(part, slice, block, written.then_some(buffer), shared);
            }
            NodeEvent::Sent { task, outlet, slice, buffer } if task == motion.id => {
                motion.give_back(slice, shared);
                part.handle_sent(outlet, slice, buffer, now);
            }
            NodeEvent::Credit { edge, credit } => motion.take_credit(edge, credit),
            NodeEvent::EdgeMoved { edge } => motion.edge_moved(part, edge, shared),
            NodeEvent::EdgeClosed { edge, detail } => motion.edge_closed(edge, detail),
            NodeEvent::Watch { task } if task == motion.id => {
                part.handle_tick(now);
                if part.is_watching() {
                    motion.watch_again(shared);
                }
            }
            _ => return,
        }
        self.pump(disk, shared);
    }

    /// Carries out everything that is ready, until nothing is.
    fn pump(&mut self, disk: &mut Disk, shared: &mut Shared) {
        loop {
            let mut moved = self.moves(shared, Motion::take_frames);
            while let Some(action) = self.part.as_mut().and_then(|part| part.poll(shared.now)) {
                moved = true;
                self.act(action, disk, shared);
            }
            moved |= self.moves(shared, Motion::send_frames);
            if !moved && !self.moves(shared, Motion::notice_closed) {
                break;
            }
        }
        if self.part.as_ref().is_some_and(Part::is_over) {
            self.part = None;
        }
    }

    /// Calls `way` to move slices, if the node's plan is moving slices. Returns whether any slice moved.
    fn moves(&mut self, shared: &mut Shared, way: fn(&mut Motion, &mut Part, &mut Shared) -> bool) -> bool {
        match (&mut self.part, &mut self.motion) {
            (Some(part), Some(motion)) if part.is_moving() => way(motion, part, shared),
            _ => false,
        }
    }

    fn act(&mut self, action: PartAction, disk: &mut Disk, shared: &mut Shared) {
        match action {
            PartAction::Begin(assignment) => self.begin(&assignment, disk, shared),
            PartAction::Move(action) => {
                if let (Some(part), Some(motion)) = (&mut self.part, &mut self.motion) {
                    motion.act(part, action, (disk, &mut self.deliveries), shared);
                }
            }
            PartAction::Credit { inlet, credit } => {
                if let (Some(part), Some(motion)) = (&mut self.part, &self.motion) {
                    motion.send_credit(part, inlet, credit, shared);
                }
            }
            PartAction::Settle => {
                if let (Some(part), Some(motion)) = (&mut self.part, &mut self.motion) {
                    motion.settle(part, shared.now);
                }
            }
            PartAction::Disconnect => self.disconnect(shared),
            PartAction::Ask(errand) => self.ask(errand, disk, shared),
            PartAction::Report { epoch, report } => {
                if let Report::Refused { why } = &report {
                    shared.violate(format!("{} refused its task: {why}", self.node));
                }
                if report == Report::Delivered && self.motion.as_ref().is_some_and(Motion::has_buffers_out) {
                    shared.violate(format!("{} finished before all buffers were returned", self.node));
                }
                let job = self.part.as_ref().expect("it reports").job();
                shared.report(self.node, job, epoch, report);
            }
            PartAction::Forget => self.forgotten = std::mem::take(&mut self.deliveries),
        }
    }

    fn begin(&mut self, assignment: &std::sync::Arc<Assignment>, disk: &Disk, shared: &mut Shared) {
        let task = self.number();
        self.motion = Some(Motion::new(task, self.node, assignment.clone(), shared));
        let is_probe = assignment.class == Class::Probe;
        assignment.sinks.iter().for_each(|sink| self.deliveries.open(sink, !is_probe));
        let problem = match assignment.class {
            Class::Probe => None, // A probe reads no block.
            _ => assignment.locals.iter().find_map(|local| Some((local, disk.open(local).err()?))),
        };
        if let (Some(part), Some((local, problem))) = (&mut self.part, problem) {
            return part.handle_cannot_begin(bad(local.id.clone(), problem), shared.now);
        }
        let delay = shared.dice.up_to(disk.latency);
        shared.after_for(delay, (self.node, assignment.job), NodeEvent::Begun { task });
    }

    /// Carries out a disk request. Its result is reported after the time that the disk takes.
    fn ask(&mut self, errand: Errand, disk: &mut Disk, shared: &mut Shared) {
        let Some(job) = self.part.as_ref().map(Part::job) else { return };
        let deliveries = &mut self.deliveries;
        let bytes = deliveries.bytes();
        let report = match errand {
            Errand::Seal => match disk.seal(deliveries) {
                Ok(digests) => Report::Sealed { digests, hand_over_ms: 0 },
                Err((block, problem)) => Report::SinkFailed { block, problem },
            },
            Errand::Fingerprint(asked) => match disk.fingerprints(deliveries, &asked) {
                Ok(fingerprints) => {
                    Report::Fingerprinted { block: asked.block.id, seed: asked.seed, fingerprints }
                }
                Err(problem) => bad(asked.block.id, problem),
            },
            Errand::Commit => {
                disk.commit(deliveries);
                Report::Committed
            }
            Errand::Reread { block, .. } => match disk.verify(&block) {
                Ok(digest) => Report::Reread { block, digest },
                Err(problem) => bad(block, problem),
            },
        };
        let delay = disk.takes(bytes, shared);
        self.asked = self.number();
        let done = NodeEvent::DiskDone { ask: self.asked, report: Box::new(report) };
        shared.after_for(delay, (self.node, job), done);
    }
}

fn bad(block: BlockId, problem: BlockProblem) -> Report {
    Report::BadBlock { block, problem }
}
