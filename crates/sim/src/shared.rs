//! The state that the nodes and the coordinator of a simulation share: the time, the future events, the
//! network, the random choices and the trace.

use std::collections::BTreeMap;
use std::time::Duration;

use repair::wire::control::{self, FromNode, ToNode};
use repair::wire::edge::Credit;
use repair::{Epoch, JobId, NodeId, Report};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::dice::Dice;
use crate::edge::{Edge, EdgeId, Frame, Network};
use crate::event::{Agenda, Event, NodeEvent};

/// The state that the nodes of a world share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) now: Duration,
    pub(crate) agenda: Agenda,
    pub(crate) dice: Dice,
    pub(crate) network: Network,
    pub(crate) control: Control,
    pub(crate) trace: Trace,
    /// Number of slices written to sinks so far, over all plans. A fault may strike at a given number.
    pub(crate) slices_delivered: u32,
    /// Reports that nodes have made and that are not sent yet. `None` if this state itself sends reports to
    /// the coordinator.
    pub(crate) reports: Option<Vec<(NodeId, FromNode)>>,
    /// The violated invariants.
    pub(crate) violations: Vec<String>,
}

/// The control connections. Messages of one node stay in order; each has a random delay.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// The longest delay of a message to or from a node, for slow nodes. For all other nodes, it is `usual`.
    pub(crate) slow: BTreeMap<NodeId, Duration>,
    pub(crate) usual: Duration,
    /// Whether messages are encoded and decoded again on their way.
    pub(crate) json: bool,
    /// The number of each node's current connection. It increases when the node registers again.
    connections: BTreeMap<NodeId, u32>,
    last_down: BTreeMap<NodeId, Duration>,
    last_up: BTreeMap<NodeId, Duration>,
}

/// Whether and how events are recorded as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracing {
    /// Events are not recorded.
    #[default]
    Off,
    /// Events are printed.
    Print,
    /// Events are kept in memory.
    Keep,
}

/// The recorded events.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) how: Tracing,
    pub(crate) lines: Vec<String>,
}

impl Control {
    pub(crate) fn new(usual: Duration, json: bool) -> Self {
        Self { usual, json, ..Self::default() }
    }
}

impl Shared {
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        match self.trace.how {
            Tracing::Off => {}
            Tracing::Print => println!("{:>12.6} {}", self.now.as_secs_f64(), line()),
            Tracing::Keep => self.trace.lines.push(format!("{:>12.6} {}", self.now.as_secs_f64(), line())),
        }
    }

    /// Records a violated invariant.
    pub(crate) fn violate(&mut self, what: String) {
        self.note(|| format!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        self.agenda.add(self.now + delay, event);
    }

    pub(crate) fn after_for(&mut self, delay: Duration, (node, job): (NodeId, JobId), what: NodeEvent) {
        self.after(delay, Event::Node { node, job, what });
    }

    // ---- control plane ----

    pub(crate) fn connection(&self, node: NodeId) -> u32 {
        self.control.connections.get(&node).copied().unwrap_or(0)
    }

    /// Drops the messages in flight between the coordinator and `node`.
    pub(crate) fn cut_control(&mut self, node: NodeId) {
        *self.control.connections.entry(node).or_insert(0) += 1;
    }

    pub(crate) fn tell(&mut self, node: NodeId, message: ToNode) {
        let at = self.control_delay(node).max(self.control.last_down.get(&node).copied().unwrap_or_default());
        self.control.last_down.insert(node, at);
        let connection = self.connection(node);
        let message = if self.control.json { through_the_wire(&message) } else { message };
        self.agenda.add(at, Event::ToNode { node, connection, message: Box::new(message) });
    }

    /// Sends a node's report to the coordinator.
    pub(crate) fn report(&mut self, node: NodeId, job: JobId, epoch: Epoch, report: Report) {
        if let Some(reports) = &mut self.reports {
            return reports.push((node, FromNode::Report { job, epoch, report }));
        }
        let at = self.control_delay(node).max(self.control.last_up.get(&node).copied().unwrap_or_default());
        self.control.last_up.insert(node, at);
        let connection = self.connection(node);
        let report = if self.control.json { through_the_wire(&report) } else { report };
        self.agenda.add(at, Event::FromNode { node, connection, epoch, report: Box::new(report) });
    }

    fn control_delay(&mut self, node: NodeId) -> Duration {
        let limit = self.control.slow.get(&node).copied().unwrap_or(self.control.usual);
        self.now + self.dice.up_to(limit)
    }

    // ---- data plane ----

    /// Opens an edge at one end. The connection is established once both ends have opened the edge.
    pub(crate) fn edge_known(&mut self, id: EdgeId, node: NodeId) {
        let is_cut = self.network.is_cut(id);
        let edge = self.network.edges.entry(id).or_default();
        edge.known_by.push(node);
        edge.silent |= is_cut;
        if edge.closed {
            let delay = self.network.delay * 2;
            return self.after_for(
                delay,
                (node, id.job),
                NodeEvent::EdgeClosed { edge: id, detail: "refused" },
            );
        }
        if edge.known_by.len() == 2 && !edge.silent {
            let delay = self.network.delay * 2 + self.dice.up_to(Duration::from_micros(300));
            let edge = self.network.edges.get_mut(&id).expect("just made");
            edge.open_at = Some(self.now + delay);
            let credits = std::mem::take(&mut edge.early_credits);
            self.after_for(delay, (id.from, id.job), NodeEvent::EdgeMoved { edge: id });
            credits.into_iter().for_each(|credit| self.send_credit(id, credit));
        }
    }

    /// Sends a credit to the sender of an edge. Credits take no bandwidth.
    pub(crate) fn send_credit(&mut self, id: EdgeId, credit: Credit) {
        let live = |edge: &&mut Edge| !edge.closed && !edge.silent;
        let Some(edge) = self.network.edges.get_mut(&id).filter(live) else { return };
        let Some(open_at) = edge.open_at else { return edge.early_credits.push(credit) };
        let at = open_at.max(self.now) + self.network.delay;
        let what = NodeEvent::Credit { edge: id, credit };
        self.agenda.add(at, Event::Node { node: id.from, job: id.job, what });
    }

    /// Closes all edges of a process that has ended. If `unheard`, the whole machine has vanished, and the
    /// other ends are not notified.
    pub(crate) fn drop_edges_of(&mut self, node: NodeId, unheard: bool) {
        for edge in self.network.live_edges_of(node) {
            if unheard {
                self.network.edges.get_mut(&edge).expect("it is live").silent = true;
            }
            self.close_edge(edge, Some(node), "reset by peer");
        }
    }

    /// Closes an edge. All ends except `by` are notified by their kernels, unless the edge is silent.
    pub(crate) fn close_edge(&mut self, id: EdgeId, by: Option<NodeId>, detail: &'static str) {
        let delay = self.network.delay;
        let Some(edge) = self.network.edges.get_mut(&id).filter(|edge| !edge.closed) else { return };
        edge.closed = true;
        if edge.silent {
            return;
        }
        // Frames that were sent earlier arrive before the end of the stream.
        let last = edge.last_arrival.max(self.now) + delay;
        for node in edge.known_by.clone() {
            if by != Some(node) {
                let what = NodeEvent::EdgeClosed { edge: id, detail };
                self.agenda.add(last, Event::Node { node, job: id.job, what });
            }
        }
    }

    /// Cuts the link between two nodes for good.
    pub(crate) fn cut_data(&mut self, a: NodeId, b: NodeId) {
        self.network.cut.push((a, b));
        for edge in self.network.live_edges_of(a) {
            if edge.other_end(a) == b {
                self.network.edges.get_mut(&edge).expect("it is live").silent = true;
            }
        }
    }

    /// Sends a frame that the kernel has room for.
    pub(crate) fn send_frame(&mut self, id: EdgeId, mut frame: Frame, payload_bytes: usize) {
        let jitter = self.dice.up_to(Duration::from_micros(200));
        let arrival = self.network.send(id, frame.len(), self.now, jitter);
        let edge = self.network.edges.get_mut(&id).expect("it was sent on");
        edge.payload_bytes += payload_bytes as u64;
        if std::mem::take(&mut edge.flip_next) {
            flip_bit(&mut frame.bytes, &mut self.dice);
            self.note(|| format!("a bit flips on the way from {} to {}", id.from, id.to));
        }
        if let Some(at) = arrival {
            self.agenda.add(at, Event::Arrives { edge: id, frame });
        }
    }

    /// Lets the receiving process take the next frame from its kernel.
    pub(crate) fn take_frame(&mut self, id: EdgeId) -> Option<Frame> {
        let delay = self.network.delay;
        let edge = self.network.edges.get_mut(&id)?;
        let frame = edge.arrived.pop_front()?;
        edge.under_way -= frame.len() as u64;
        self.after_for(delay, (id.from, id.job), NodeEvent::EdgeMoved { edge: id });
        Some(frame)
    }

    /// Whether a bit of the next frame on an edge will be flipped.
    pub(crate) fn flips_next(&self, id: EdgeId) -> bool {
        self.edge(id).is_some_and(|edge| edge.flip_next)
    }

    pub(crate) fn edge(&self, id: EdgeId) -> Option<&Edge> {
        self.network.edges.get(&id)
    }
}

/// Encodes and decodes a message, and returns the decoded one.
pub(crate) fn through_the_wire<M: Serialize + DeserializeOwned>(message: &M) -> M {
    let bytes = control::encode(message);
    let length: [u8; 4] = bytes[..4].try_into().expect("four bytes");
    assert_eq!(control::decode_length(length).expect("within the limit"), bytes.len() - 4);
    control::decode(&bytes[4..]).expect("what was encoded")
}

/// Flips a bit, but none in the header's reserved bytes, which every reader ignores.
fn flip_bit(frame: &mut [u8], dice: &mut Dice) {
    let matters = |at: &usize| !(1..4).contains(at) && !(20..24).contains(at);
    let positions: Vec<usize> = (0..frame.len()).filter(matters).collect();
    let at = dice.pick(&positions);
    frame[at] ^= 1 << dice.below(8);
}
