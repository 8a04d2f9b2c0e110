//! A helper or a client: a process that may be stopped or killed, its disk, and one job's task.

use std::collections::VecDeque;

use repair::wire::control::ToNode;
use repair::{Assignment, BlockId, BlockProblem, Epoch, NodeId, Report, SliceSet};

use crate::disk::Disk;
use crate::event::{NodeEvent, TaskId};
use crate::scene::Scene;
use crate::task::Task;

/// Whether a node's process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// Stopped by SIGSTOP; its kernel goes on.
    Paused,
    /// There is no process; what it held in memory is gone.
    Dead,
}

/// A node. Its process takes its messages in order.
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
    /// Whether it holds something of the job.
    pub(crate) knows_job: bool,
    task: Option<Task>,
    delivered: SliceSet,
    next_task: TaskId,
    /// Orders that wait for the disk to carry out the one before them.
    orders: VecDeque<ToNode>,
    disk_is_busy: bool,
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
            knows_job: false,
            task: None,
            delivered: SliceSet::new(),
            next_task: TaskId::from(id.0) << 32,
            orders: VecDeque::new(),
            disk_is_busy: false,
            deferred: Vec::new(),
        }
    }

    pub(crate) fn has_task(&self) -> bool {
        self.task.is_some()
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
        self.task = None;
        self.forget();
        self.deferred.clear();
    }

    /// Drops all of the job that is not committed.
    pub(crate) fn forget_all(&mut self, scene: &mut Scene) {
        self.stop(scene);
        self.forget();
    }

    fn forget(&mut self) {
        self.disk.sinks.clear();
        self.delivered = SliceSet::new();
        self.knows_job = false;
        self.orders.clear();
        self.disk_is_busy = false;
    }

    /// Something happens that the process notices, as it runs.
    pub(crate) fn handle(&mut self, event: NodeEvent, scene: &mut Scene) {
        if let NodeEvent::DiskDone { report, epoch } = event {
            return self.disk_done(epoch, *report, scene);
        }
        let Some(task) = &mut self.task else { return };
        let mine = |id: TaskId| id == task.id;
        match event {
            NodeEvent::ReadDone { task: id, slice, local, result } if mine(id) => match result {
                Ok(buffer) => task.read_done(slice, local, buffer, scene),
                Err(problem) => {
                    let block = task.block_of(slice, local);
                    task.fail(Report::BadBlock { block, problem }, scene);
                }
            },
            NodeEvent::WriteDone { task: id, slice, block, written, buffer } if mine(id) => {
                task.write_done(slice, block, written, buffer, scene);
            }
            NodeEvent::Sent { task: id, slice, buffer } if mine(id) => task.sent(slice, buffer),
            NodeEvent::EdgeMoved { edge } => task.edge_moved(edge, scene),
            NodeEvent::EdgeClosed { edge, detail } => task.edge_closed(edge, detail),
            NodeEvent::Watch { task: id } if mine(id) => task.watch(scene),
            _ => return,
        }
        task.pump(&mut self.disk, scene);
    }

    /// The coordinator says something. Orders are carried out one after another.
    pub(crate) fn take(&mut self, message: ToNode, scene: &mut Scene) {
        self.orders.push_back(message);
        self.carry_out(scene);
    }

    fn disk_done(&mut self, epoch: Epoch, report: Report, scene: &mut Scene) {
        // A process that was started anew has nothing to answer.
        if std::mem::take(&mut self.disk_is_busy) {
            scene.report(self.id, epoch, report);
            self.carry_out(scene);
        }
    }

    fn carry_out(&mut self, scene: &mut Scene) {
        while !self.disk_is_busy
            && let Some(order) = self.orders.pop_front()
        {
            self.obey(order, scene);
        }
    }

    fn obey(&mut self, message: ToNode, scene: &mut Scene) {
        match message {
            ToNode::Assign(assignment) => self.assign(*assignment, scene),
            ToNode::Stop { epoch, .. } => {
                self.stop(scene);
                scene.report(self.id, epoch, Report::Stopped { delivered: self.delivered.clone() });
            }
            ToNode::Seal { epoch, .. } => {
                self.stop(scene);
                let report = match self.disk.seal() {
                    Ok(digests) => Report::Sealed { digests },
                    Err((block, problem)) => Report::SinkFailed { block, problem },
                };
                self.answer(epoch, report, scene);
            }
            ToNode::Fingerprint { epoch, block, sub_block_bytes, sub_blocks, window, seed, .. } => {
                let block = block.id;
                let answer = self.disk.fingerprints(&block, (sub_block_bytes, sub_blocks), window, seed);
                let name = block.clone();
                let good = |fingerprints| Report::Fingerprinted { block: name, fingerprints };
                self.answer(epoch, answer.map_or_else(|problem| bad(block, problem), good), scene);
            }
            ToNode::Commit { epoch, .. } => {
                self.disk.commit();
                self.answer(epoch, Report::Committed, scene);
            }
            ToNode::Reread { epoch, block, .. } => {
                let answer = self.disk.reread(&block);
                let name = block.clone();
                let good = |digest| Report::Reread { block: name, digest };
                self.answer(epoch, answer.map_or_else(|problem| bad(block, problem), good), scene);
            }
            ToNode::Forget { .. } => {
                let later = std::mem::take(&mut self.orders);
                self.forget_all(scene);
                self.orders = later;
            }
            other => scene.violate(format!("{} is told {other:?}", self.id)),
        }
    }

    /// Reports once the disk has done its part.
    fn answer(&mut self, epoch: Epoch, report: Report, scene: &mut Scene) {
        self.knows_job = true;
        self.disk_is_busy = true;
        let bytes: usize = self.disk.sinks.values().map(Vec::len).sum();
        let delay = self.disk.takes(bytes as u64, scene);
        let report = Box::new(report);
        scene.after_for(delay, self.id, NodeEvent::DiskDone { report, epoch });
    }

    /// Ends the running plan and adds up what it delivered.
    fn stop(&mut self, scene: &mut Scene) {
        if let Some(task) = self.task.take() {
            self.delivered = self.delivered.union(task.relay.delivered());
            for edge in task.edges() {
                scene.close_edge(edge, Some(self.id), "closed by peer");
            }
        }
    }

    fn assign(&mut self, assignment: Assignment, scene: &mut Scene) {
        self.stop(scene);
        self.knows_job = true;
        let epoch = assignment.epoch;
        self.next_task += 1;
        let task = Task::new(self.next_task, self.id, assignment, self.budget_bytes, scene);
        let task = match task {
            Ok(task) => task,
            Err(error) => {
                scene.violate(format!("{} refuses its assignment: {error}", self.id));
                return scene.report(self.id, epoch, Report::Refused { detail: error.to_string() });
            }
        };
        for edge in task.edges() {
            scene.edge_known(edge, self.id);
        }
        for sink in &task.assignment.sinks {
            self.disk.sinks.entry(sink.id.clone()).or_insert_with(|| vec![0; sink.bytes as usize]);
        }
        let missing = task.assignment.locals.iter().find(|local| !self.disk.blocks.contains_key(&local.id));
        if let Some(block) = missing.map(|local| local.id.clone()) {
            // Nothing is started then, and the edges go.
            for edge in task.edges() {
                scene.close_edge(edge, Some(self.id), "closed by peer");
            }
            return scene.report(self.id, epoch, bad(block, BlockProblem::Missing));
        }
        self.task = Some(task);
        self.task.as_mut().expect("just started").pump(&mut self.disk, scene);
    }
}

fn bad(block: BlockId, problem: BlockProblem) -> Report {
    Report::BadBlock { block, problem }
}
