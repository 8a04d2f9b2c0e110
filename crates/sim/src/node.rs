//! A helper or a client: a process that may be stopped or killed, its disk, and its part of one job.
//!
//! What the part does is decided by [`repair::Part`], as in a helper; here are only its sockets and its disk.

use repair::wire::control::ToNode;
use repair::{
    Assignment, BlockId, BlockProblem, BufferPool, Errand, JobId, NodeId, Part, PartAction, Report,
};

use crate::disk::Disk;
use crate::event::{NodeEvent, TaskId};
use crate::motion::Motion;
use crate::scene::Scene;

/// Whether a node's process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// Stopped by SIGSTOP; its kernel goes on.
    Paused,
    /// There is no process; what it held in memory is gone.
    Dead,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) state: State,
    /// How often it was paused: the end of an earlier pause does not end a later one.
    pub(crate) pauses: u32,
    /// Whether its process has a connection to the coordinator.
    pub(crate) registered: bool,
    pub(crate) disk: Disk,
    budget_bytes: usize,
    part: Option<Part>,
    motion: Option<Motion>,
    /// The number of the next task or question to the disk.
    next: TaskId,
    /// What the disk was asked last.
    asked: TaskId,
    /// What will be noticed when the process goes on.
    pub(crate) deferred: Vec<Waiting>,
}

/// What reaches a process that is stopped.
#[derive(Debug)]
pub(crate) enum Waiting {
    Event(NodeEvent),
    Message(u32, Box<ToNode>),
}

impl Node {
    pub(crate) fn new(id: NodeId, disk: Disk, budget_bytes: usize) -> Self {
        Self {
            id,
            state: State::Running,
            pauses: 0,
            registered: true,
            disk,
            budget_bytes,
            part: None,
            motion: None,
            next: TaskId::from(id.0) << 32,
            asked: 0,
            deferred: Vec::new(),
        }
    }

    /// Whether it holds something of the job.
    pub(crate) fn knows_job(&self) -> bool {
        self.part.is_some() || self.motion.is_some() || !self.disk.sinks.is_empty()
    }

    /// The process ends: its edges are closed by its kernel, unless the whole machine is gone.
    pub(crate) fn die(&mut self, scene: &mut Scene, unheard: bool) {
        self.state = State::Dead;
        self.registered = false;
        for edge in scene.network.live_edges_of(self.id) {
            if unheard {
                scene.network.edges.get_mut(&edge).expect("it is live").silent = true;
            }
            scene.close_edge(edge, Some(self.id), "reset by peer");
        }
        self.motion = None;
        self.forget();
        self.deferred.clear();
    }

    /// Drops all of the job that is not committed.
    pub(crate) fn forget_all(&mut self, scene: &mut Scene) {
        self.disconnect(scene);
        self.forget();
    }

    fn forget(&mut self) {
        self.disk.sinks.clear();
        self.part = None;
        self.asked = 0;
    }

    fn disconnect(&mut self, scene: &mut Scene) {
        if let Some(motion) = self.motion.take() {
            motion.close(scene);
        }
    }

    fn number(&mut self) -> TaskId {
        self.next += 1;
        self.next
    }

    /// The coordinator says something.
    pub(crate) fn take(&mut self, message: ToNode, scene: &mut Scene) {
        let Some(job) = message.job() else {
            return scene.violate(format!("{} is told {message:?}", self.id));
        };
        self.part(job).handle_message(message, scene.now);
        self.pump(scene);
    }

    fn part(&mut self, job: JobId) -> &mut Part {
        let budget_bytes = self.budget_bytes;
        self.part.get_or_insert_with(|| Part::new(job, budget_bytes, BufferPool::default()))
    }

    /// Something happens that the process notices, as it runs.
    pub(crate) fn handle(&mut self, event: NodeEvent, scene: &mut Scene) {
        let Some(part) = &mut self.part else { return };
        let now = scene.now;
        if let NodeEvent::DiskDone { ask, report } = event {
            // A process that was started anew has nothing to answer.
            if ask == self.asked {
                part.handle_answer(*report, now);
            }
            return self.pump(scene);
        }
        let Some(motion) = &mut self.motion else { return };
        match event {
            NodeEvent::Begun { task } if task == motion.id => part.handle_begun(now),
            NodeEvent::ReadDone { task, slice, local, result } if task == motion.id => {
                motion.give_back(slice, scene);
                match result {
                    Ok(buffer) => part.handle_read(slice, local, buffer, now),
                    Err(problem) => part.fail(bad(motion.block_of(slice, local), problem), now),
                }
            }
            NodeEvent::WriteDone { task, slice, block, written, buffer } if task == motion.id => {
                motion.write_done(part, slice, block, written.then_some(buffer), scene);
            }
            NodeEvent::Sent { task, outlet, slice, buffer } if task == motion.id => {
                motion.give_back(slice, scene);
                part.handle_sent(outlet, slice, buffer, now);
            }
            NodeEvent::EdgeMoved { edge } => motion.edge_moved(part, edge, scene),
            NodeEvent::EdgeClosed { edge, detail } => motion.edge_closed(edge, detail),
            NodeEvent::Watch { task } if task == motion.id => {
                part.handle_tick(now);
                if part.is_watching() {
                    motion.watch_again(scene);
                }
            }
            _ => return,
        }
        self.pump(scene);
    }

    /// Moves whatever can move until nothing can.
    fn pump(&mut self, scene: &mut Scene) {
        loop {
            let mut moved = self.moves(scene, Motion::take_frames);
            while let Some(action) = self.part.as_mut().and_then(|part| part.poll(scene.now)) {
                moved = true;
                self.act(action, scene);
            }
            moved |= self.moves(scene, Motion::send_frames);
            if !moved && !self.moves(scene, Motion::notice_closed) {
                break;
            }
        }
        if self.part.as_ref().is_some_and(Part::is_over) {
            self.part = None;
        }
    }

    /// Lets slices move in some way, if they do at all; whether any did.
    fn moves(&mut self, scene: &mut Scene, way: fn(&mut Motion, &mut Part, &mut Scene) -> bool) -> bool {
        match (&mut self.part, &mut self.motion) {
            (Some(part), Some(motion)) if part.is_moving() => way(motion, part, scene),
            _ => false,
        }
    }

    fn act(&mut self, action: PartAction, scene: &mut Scene) {
        match action {
            PartAction::Begin(assignment) => self.begin(&assignment, scene),
            PartAction::Move(action) => {
                if let (Some(part), Some(motion)) = (&mut self.part, &mut self.motion) {
                    motion.act(part, action, &mut self.disk, scene);
                }
            }
            PartAction::Settle => {
                if let (Some(part), Some(motion)) = (&mut self.part, &mut self.motion) {
                    motion.settle(part, scene.now);
                }
            }
            PartAction::Disconnect => self.disconnect(scene),
            PartAction::Ask(errand) => self.ask(errand, scene),
            PartAction::Report { epoch, report } => {
                if let Report::Refused { why } = &report {
                    scene.violate(format!("{} refuses: {why}", self.id));
                }
                if report == Report::Delivered && self.motion.as_ref().is_some_and(Motion::has_buffers_out) {
                    scene.violate(format!("{} finished with buffers out", self.id));
                }
                scene.report(self.id, epoch, report);
            }
            PartAction::Forget => self.disk.sinks.clear(),
        }
    }

    fn begin(&mut self, assignment: &std::sync::Arc<Assignment>, scene: &mut Scene) {
        let task = self.number();
        self.motion = Some(Motion::new(task, self.id, assignment.clone(), scene));
        for sink in &assignment.sinks {
            self.disk.sinks.entry(sink.id.clone()).or_insert_with(|| vec![0; sink.bytes as usize]);
        }
        let missing = assignment.locals.iter().find(|local| !self.disk.blocks.contains_key(&local.id));
        if let (Some(part), Some(block)) = (&mut self.part, missing) {
            return part.handle_cannot_begin(bad(block.id.clone(), BlockProblem::Missing), scene.now);
        }
        let delay = scene.dice.up_to(self.disk.latency);
        scene.after_for(delay, self.id, NodeEvent::Begun { task });
    }

    /// Reports once the disk has done its part.
    fn ask(&mut self, errand: Errand, scene: &mut Scene) {
        let report = match errand {
            Errand::Seal => match self.disk.seal() {
                Ok(digests) => Report::Sealed { digests, hand_over_ms: 0 },
                Err((block, problem)) => Report::SinkFailed { block, problem },
            },
            Errand::Fingerprint(asked) => {
                let (block, seed) = (asked.block.id, asked.seed);
                match self.disk.fingerprints(&block, &asked.chunking, asked.window, seed) {
                    Ok(fingerprints) => Report::Fingerprinted { block, seed, fingerprints },
                    Err(problem) => bad(block, problem),
                }
            }
            Errand::Commit => {
                self.disk.commit();
                Report::Committed
            }
            Errand::Reread(block) => match self.disk.reread(&block) {
                Ok(digest) => Report::Reread { block, digest },
                Err(problem) => bad(block, problem),
            },
        };
        let bytes: usize = self.disk.sinks.values().map(Vec::len).sum();
        let delay = self.disk.takes(bytes as u64, scene);
        self.asked = self.number();
        let done = NodeEvent::DiskDone { ask: self.asked, report: Box::new(report) };
        scene.after_for(delay, self.id, done);
    }
}

fn bad(block: BlockId, problem: BlockProblem) -> Report {
    Report::BadBlock { block, problem }
}
