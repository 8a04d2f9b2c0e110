//! The data plane: in-order byte streams with a rate, a delay and a bounded number of bytes under way.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use repair::{Epoch, JobId, NodeId};

/// An edge of one plan of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EdgeId {
    pub(crate) job: JobId,
    pub(crate) epoch: Epoch,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
}

impl EdgeId {
    pub(crate) fn other_end(self, node: NodeId) -> NodeId {
        if self.from == node { self.to } else { self.from }
    }
}

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Edge {
    /// Ends that know of the edge.
    pub(crate) known_by: Vec<NodeId>,
    /// From when on it carries bytes.
    pub(crate) open_at: Option<Duration>,
    pub(crate) closed: bool,
    /// Accepts bytes and never delivers any: a cable was cut.
    pub(crate) silent: bool,
    /// The next frame arrives with a flipped bit.
    pub(crate) flip_next: bool,
    /// Bytes that the sender's kernel took and the receiver's process has not.
    pub(crate) under_way: u64,
    /// When the last frame arrives, or arrived: the next one cannot overtake it.
    pub(crate) last_arrival: Duration,
    pub(crate) arrived: VecDeque<Vec<u8>>,
    /// Bytes of payload that were sent.
    pub(crate) payload_bytes: u64,
}

/// A machine's network card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// Bytes per second, each way.
    pub(crate) rate: f64,
    sends_until: Duration,
    receives_until: Duration,
}

/// All edges and ports.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) edges: BTreeMap<EdgeId, Edge>,
    pub(crate) ports: BTreeMap<NodeId, Port>,
    pub(crate) delay: Duration,
    /// Bytes that may be under way on one edge; a frame that is larger travels alone.
    pub(crate) window: u64,
    /// Pairs of nodes between which nothing passes.
    pub(crate) cut: Vec<(NodeId, NodeId)>,
}

impl Network {
    pub(crate) fn new(delay: Duration, window: u64) -> Self {
        Self { edges: BTreeMap::new(), ports: BTreeMap::new(), delay, window, cut: Vec::new() }
    }

    pub(crate) fn is_cut(&self, id: EdgeId) -> bool {
        self.cut.iter().any(|&(a, b)| (id.from, id.to) == (a, b) || (id.from, id.to) == (b, a))
    }

    pub(crate) fn add_port(&mut self, node: NodeId, rate: f64) {
        self.ports.insert(node, Port { rate, sends_until: Duration::ZERO, receives_until: Duration::ZERO });
    }

    /// Whether the sender's kernel takes a frame of `bytes` now.
    pub(crate) fn has_room(&self, id: EdgeId, bytes: usize, now: Duration) -> bool {
        self.edges.get(&id).is_some_and(|edge| {
            let open = !edge.closed && edge.open_at.is_some_and(|at| at <= now);
            open && (edge.under_way == 0 || edge.under_way + bytes as u64 <= self.window)
        })
    }

    /// Puts a frame on its way; when it arrives, or `None` if it never will.
    pub(crate) fn send(
        &mut self,
        id: EdgeId,
        bytes: usize,
        now: Duration,
        jitter: Duration,
    ) -> Option<Duration> {
        let edge = self.edges.get_mut(&id).expect("has_room said yes");
        edge.under_way += bytes as u64;
        let seconds = |rate: f64| Duration::from_secs_f64(bytes as f64 / rate);
        let from = self.ports.get_mut(&id.from).expect("every node has a port");
        from.sends_until = from.sends_until.max(now) + seconds(from.rate);
        let left = from.sends_until + self.delay + jitter;
        let to = self.ports.get_mut(&id.to).expect("every node has a port");
        // What a slow sender will send later does not keep the port busy until then.
        to.receives_until = to.receives_until.max(now + self.delay) + seconds(to.rate);
        edge.last_arrival = edge.last_arrival.max(to.receives_until).max(left);
        (!edge.silent).then_some(edge.last_arrival)
    }

    /// The edges of `node` that are not closed.
    pub(crate) fn live_edges_of(&self, node: NodeId) -> Vec<EdgeId> {
        let live = self.edges.iter().filter(|(id, edge)| !edge.closed && (id.from == node || id.to == node));
        live.map(|(&id, _)| id).collect()
    }

    /// Flips a bit in the next frame on each live edge of a node.
    pub(crate) fn flip_next_frames(&mut self, node: NodeId) {
        for edge in self.live_edges_of(node) {
            self.edges.get_mut(&edge).expect("it was just listed").flip_next = true;
        }
    }
}
