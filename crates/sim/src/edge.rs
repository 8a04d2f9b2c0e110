//! The data plane: in-order byte streams with a rate, a delay and a bounded number of bytes in flight.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use repair::wire::edge::Credit;
use repair::{EdgeKey, Epoch, JobId, NodeId};

/// Identifies an edge in one plan of a job. A coordinator with a restored catalog may give a number of a job again, so,
/// as between real nodes, only the one-time key tells the edges of both jobs apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EdgeId {
    pub(crate) job: JobId,
    pub(crate) epoch: Epoch,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) key: EdgeKey,
}

impl EdgeId {
    pub(crate) fn other_end(self, node: NodeId) -> NodeId {
        if self.from == node { self.to } else { self.from }
    }
}

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The header, and the payload unless it is omitted.
    pub(crate) bytes: Vec<u8>,
    /// Number of payload bytes that are not transported. The payload of a probe is omitted, because no node
    /// uses its contents.
    pub(crate) omitted_bytes: usize,
}

impl Frame {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.omitted_bytes
    }
}

/// The connection of an edge.
#[derive(Debug, Default)]
pub(crate) struct Edge {
    /// The ends that have opened their side of the edge.
    pub(crate) known_by: Vec<NodeId>,
    /// Time from which the connection carries bytes; `None` until both ends have opened it.
    pub(crate) open_at: Option<Duration>,
    pub(crate) closed: bool,
    /// If set, the connection accepts bytes but never delivers any, as with a cut cable.
    pub(crate) silent: bool,
    /// If set, a bit of the next frame will be flipped.
    pub(crate) flip_next: bool,
    /// Bytes that the sender's kernel has accepted and the receiving process has not read.
    pub(crate) under_way: u64,
    /// Arrival time of the last frame that was sent. Later frames cannot arrive earlier.
    pub(crate) last_arrival: Duration,
    pub(crate) arrived: VecDeque<Frame>,
    /// Credits that the receiver has sent before the connection was established.
    pub(crate) early_credits: Vec<Credit>,
    /// Payload bytes sent so far.
    pub(crate) payload_bytes: u64,
}

/// The network port of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// Rate in bytes per second, in each direction.
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
    /// Maximum number of bytes in flight on one edge. A larger frame is sent only when the edge has no other
    /// frame in flight.
    pub(crate) window: u64,
    /// Pairs of nodes with a cut link between them.
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

    /// Whether the sender's kernel accepts a frame of `bytes` bytes now.
    pub(crate) fn has_room(&self, id: EdgeId, bytes: usize, now: Duration) -> bool {
        self.edges.get(&id).is_some_and(|edge| {
            let open = !edge.closed && edge.open_at.is_some_and(|at| at <= now);
            open && (edge.under_way == 0 || edge.under_way + bytes as u64 <= self.window)
        })
    }

    /// Sends a frame. Returns its arrival time, or `None` if it will never arrive.
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
        // Reserve the receiver's port for the frame from now on, even if a slow sender finishes sending the
        // frame later. A reservation that begins when the sender finishes would block the port for other
        // senders until then.
        to.receives_until = to.receives_until.max(now + self.delay) + seconds(to.rate);
        edge.last_arrival = edge.last_arrival.max(to.receives_until).max(left);
        (!edge.silent).then_some(edge.last_arrival)
    }

    /// Returns the edges of `node` that are not closed.
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
