//! A helper or a client: a process that may be stopped or killed, its disk, and its task of one job.

use repair::NodeId;
use repair::wire::control::ToNode;

use crate::disk::Disk;
use crate::event::{NodeEvent, TaskId};
use crate::scene::Scene;
use crate::task::JobTask;

/// Whether a node's process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// Stopped by SIGSTOP; its kernel goes on.
    Paused,
    /// There is no process; its memory is lost.
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
    pub(crate) task: JobTask,
    /// Events and messages that the process handles once it goes on.
    pub(crate) deferred: Vec<Waiting>,
}

/// An event or message for a stopped process.
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
            task: JobTask::new(id, budget_bytes, TaskId::from(id.0) << 32),
            deferred: Vec::new(),
        }
    }

    /// Whether it holds something of the job.
    pub(crate) fn knows_job(&self) -> bool {
        self.task.knows_job()
    }

    /// The process ends: its edges are closed by its kernel, unless the whole machine is gone.
    pub(crate) fn die(&mut self, scene: &mut Scene, unheard: bool) {
        self.state = State::Dead;
        self.registered = false;
        scene.drop_edges_of(self.id, unheard);
        self.task.die();
        self.deferred.clear();
    }

    /// Drops all of the job that is not committed.
    pub(crate) fn forget_all(&mut self, scene: &mut Scene) {
        self.task.forget_all(scene);
    }

    /// The coordinator says something.
    pub(crate) fn take(&mut self, message: ToNode, scene: &mut Scene) {
        self.task.take(message, &mut self.disk, scene);
    }

    /// Something happens that the process notices, as it runs.
    pub(crate) fn handle(&mut self, event: NodeEvent, scene: &mut Scene) {
        self.task.handle(event, &mut self.disk, scene);
    }
}
