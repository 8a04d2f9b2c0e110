//! Events in order of virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use repair::wire::control::ToNode;
use repair::{BlockProblem, Buffer, Epoch, JobId, NodeId, Report};

use crate::edge::EdgeId;
use crate::system::Happening;

/// A number that tells the tasks of a world apart, and the questions to its disks, so that completions of one
/// that is gone find nobody.
pub(crate) type TaskId = u64;

/// Something that happens at some time.
#[derive(Debug)]
pub(crate) enum Event {
    /// The coordinator looks at the clock.
    Tick,
    /// A message reaches a node, unless the connection it was sent on is gone.
    ToNode { node: NodeId, connection: u32, message: Box<ToNode> },
    /// A report reaches the coordinator, unless the connection it was sent on is gone.
    FromNode { node: NodeId, connection: u32, epoch: Epoch, report: Box<Report> },
    /// The coordinator's connection to a node breaks, or its pings have not been answered for too long.
    NodeLost { node: NodeId, connection: u32 },
    /// A node's pings have not been answered since `pause`.
    PingsUnanswered { node: NodeId, pause: u32 },
    /// A node that was lost reaches the coordinator again.
    Registers { node: NodeId },
    /// A fault of the scenario is due.
    Fault(usize),
    /// A process that was killed is started again.
    Restarts { node: NodeId },
    /// A stopped process goes on.
    Continues { node: NodeId, pause: u32 },
    /// Something for a node's part of a job.
    Node { node: NodeId, job: JobId, what: NodeEvent },
    /// A frame reaches the kernel of the receiving machine.
    Arrives { edge: EdgeId, frame: Vec<u8> },
    /// Something happens in a whole system.
    System(Happening),
}

/// Something that a node's process notices when it runs.
#[derive(Debug)]
pub(crate) enum NodeEvent {
    /// The blocks and sinks of an assignment are open.
    Begun { task: TaskId },
    /// A local read has ended.
    ReadDone { task: TaskId, slice: u32, local: u16, result: Result<Buffer, BlockProblem> },
    /// A slice of a delivery has been written, or could not be.
    WriteDone { task: TaskId, slice: u32, block: u16, written: bool, buffer: Buffer },
    /// The kernel has taken a frame.
    Sent { task: TaskId, outlet: usize, slice: u32, buffer: Buffer },
    /// Something may be possible on an edge.
    EdgeMoved { edge: EdgeId },
    /// An edge is broken.
    EdgeClosed { edge: EdgeId, detail: &'static str },
    /// Time to look for stalls.
    Watch { task: TaskId },
    /// The disk has carried out a request.
    DiskDone { ask: TaskId, report: Box<Report> },
}

/// The events to come.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    events: BTreeMap<(Duration, u64), Event>,
    next: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: Duration, event: Event) {
        self.events.insert((at, self.next), event);
        self.next += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Duration, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
