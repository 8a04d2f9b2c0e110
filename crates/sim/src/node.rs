//! A helper or a client: its process, which may be paused or killed, its disk, and its task in one job.

use repair::NodeId;
use repair::wire::control::ToNode;

use crate::disk::Disk;
use crate::event::{NodeEvent, TaskId};
use crate::shared::Shared;
use crate::task::JobTask;

/// The state of a node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// The process is stopped by SIGSTOP. The machine's kernel still runs.
    Paused,
    /// The process is killed, and its memory is lost.
    Dead,
}

/// A helper or a client.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) state: State,
    /// Number of pauses so far. An event that ends an earlier pause must not end a later one.
    pub(crate) pauses: u32,
    /// Whether the process is connected to the coordinator.
    pub(crate) registered: bool,
    pub(crate) disk: Disk,
    pub(crate) task: JobTask,
    /// Events and messages that the process handles when it continues.
    pub(crate) deferred: Vec<Waiting>,
}

/// An event or message for a paused process.
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

    /// Whether the node has any state of the job.
    pub(crate) fn knows_job(&self) -> bool {
        self.task.knows_job()
    }

    /// Ends the process. The kernel closes the process's edges. If `unheard`, the whole machine vanishes
    /// instead, and the other ends of the edges are not notified.
    pub(crate) fn die(&mut self, shared: &mut Shared, unheard: bool) {
        self.state = State::Dead;
        self.registered = false;
        shared.drop_edges_of(self.id, unheard);
        self.task.die();
        self.deferred.clear();
    }

    /// Drops all uncommitted state of the job.
    pub(crate) fn forget_all(&mut self, shared: &mut Shared) {
        self.task.forget_all(shared);
    }

    /// Handles a message from the coordinator.
    pub(crate) fn take(&mut self, message: ToNode, shared: &mut Shared) {
        self.task.take(message, &mut self.disk, shared);
    }

    /// Handles an event. The process must be running.
    pub(crate) fn handle(&mut self, event: NodeEvent, shared: &mut Shared) {
        self.task.handle(event, &mut self.disk, shared);
    }
}
