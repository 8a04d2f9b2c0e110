//! The events of a simulation, in order of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use repair::wire::control::ToNode;
use repair::wire::edge::Credit;
use repair::{BlockProblem, Buffer, Epoch, JobId, NodeId, Report};

use crate::edge::{EdgeId, Frame};
use crate::system::Happening;

/// A number that is unique among the tasks and disk requests of a world. A completion whose task no longer
/// exists matches no number and is ignored.
pub(crate) type TaskId = u64;

/// An event.
#[derive(Debug)]
pub(crate) enum Event {
    /// The coordinator's timer fires.
    Tick,
    /// A message arrives at a node. It is dropped if the connection that carried it has been replaced.
    ToNode { node: NodeId, connection: u32, message: Box<ToNode> },
    /// A report arrives at the coordinator. It is dropped if the connection that carried it has been
    /// replaced.
    FromNode { node: NodeId, connection: u32, epoch: Epoch, report: Box<Report> },
    /// The coordinator loses the connection to a node: it broke, or pings were unanswered for too long.
    NodeLost { node: NodeId, connection: u32 },
    /// A paused node has left pings unanswered for too long. `pause` is the number of the node's pause.
    PingsUnanswered { node: NodeId, pause: u32 },
    /// A lost node registers at the coordinator again.
    Registers { node: NodeId },
    /// A fault of the scenario is due; the number is its index.
    Fault(usize),
    /// A killed process is restarted.
    Restarts { node: NodeId },
    /// A paused process continues.
    Continues { node: NodeId, pause: u32 },
    /// An event for a node's task in a job.
    Node { node: NodeId, job: JobId, what: NodeEvent },
    /// A frame arrives in the kernel of the receiving machine.
    Arrives { edge: EdgeId, frame: Frame },
    /// An event of a whole system.
    System(Happening),
}

/// An event that a node's process handles while it runs.
#[derive(Debug)]
pub(crate) enum NodeEvent {
    /// The blocks and sinks of an assignment are open.
    Begun { task: TaskId },
    /// A local read has completed.
    ReadDone { task: TaskId, slice: u32, local: u16, result: Result<Buffer, BlockProblem> },
    /// The write of a delivered slice has succeeded or failed.
    WriteDone { task: TaskId, slice: u32, block: u16, written: bool, buffer: Buffer },
    /// The kernel has accepted a frame.
    Sent { task: TaskId, outlet: usize, slice: u32, buffer: Buffer },
    /// An edge may be ready to send or to receive.
    EdgeMoved { edge: EdgeId },
    /// A credit has arrived from the receiver of an edge.
    Credit { edge: EdgeId, credit: Credit },
    /// An edge was closed by the peer or broke.
    EdgeClosed { edge: EdgeId, detail: &'static str },
    /// The timer that looks for stalls fires.
    Watch { task: TaskId },
    /// The disk has completed a request.
    DiskDone { ask: TaskId, report: Box<Report> },
}

/// The queue of future events. Events of the same time happen in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Time, number and slot of each event; the earliest first.
    due: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    slots: Vec<Option<Event>>,
    free: Vec<usize>,
    next: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: Duration, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.due.push(Reverse((at, self.next, slot)));
        self.next += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Duration, Event)> {
        let Reverse((at, _, slot)) = self.due.pop()?;
        self.free.push(slot);
        Some((at, self.slots[slot].take().expect("the heap names full slots")))
    }
}
