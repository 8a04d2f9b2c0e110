//! Control connections: in order each way, with delays, and with partitions of one way or both.
//!
//! A partition holds messages back, as TCP does, which sends them again until somebody gives up. The ends give up as the
//! daemons do: the coordinator after 5 s without a message, helpers and clients after 6.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cluster::Role;
use control::ConnectionId;
use repair::wire::control::{FromNode, ToNode};

use super::event::ProcessId;

/// A node that says nothing for so long is lost.
pub(crate) const NODE_SILENCE: Duration = Duration::from_secs(5);
/// A coordinator that says nothing for so long is lost.
pub(crate) const COORDINATOR_SILENCE: Duration = Duration::from_secs(6);
/// The coordinator pings this often here, half as often as the daemon does: pings are most of what happens.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(2);
/// So many messages wait for a connection; one more closes it.
pub(crate) const OUTBOX_MESSAGES: usize = 8192;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// To the coordinator.
    Up,
    /// To the helper or client.
    Down,
}

/// What is on its way.
#[derive(Debug)]
pub(crate) enum Carried {
    Hello(Role, Box<FromNode>),
    FromNode(Box<FromNode>),
    ToNode(Box<ToNode>),
    /// The sender has closed its end.
    Fin,
}

/// One control connection.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) process: ProcessId,
    /// Whether the coordinator's end and the process's end are open.
    pub(crate) coordinator_open: bool,
    pub(crate) process_open: bool,
    /// When each end last heard of the other.
    pub(crate) coordinator_heard: Duration,
    pub(crate) process_heard: Duration,
    lanes: [Lane; 2],
}

#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<Carried>,
    last_arrival: Duration,
    /// Messages whose arrival a partition holds back.
    held: u32,
}

/// All control connections.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    next: u64,
    pub(crate) all: BTreeMap<ConnectionId, Wire>,
    /// Ways that nothing passes.
    pub(crate) cut: BTreeSet<(ProcessId, Way)>,
    /// The longest delay of a message, by process; the rule for all others.
    pub(crate) slow: BTreeMap<ProcessId, Duration>,
}

impl Wires {
    /// A new connection of a process.
    pub(crate) fn open(&mut self, process: ProcessId, now: Duration) -> ConnectionId {
        self.next += 1;
        let connection = ConnectionId(self.next);
        let wire = Wire {
            process,
            coordinator_open: true,
            process_open: true,
            coordinator_heard: now,
            process_heard: now,
            lanes: Default::default(),
        };
        self.all.insert(connection, wire);
        connection
    }

    /// Sends something; when it arrives, unless a partition comes first. `None` if there is no such connection.
    pub(crate) fn send(
        &mut self,
        connection: ConnectionId,
        way: Way,
        what: Carried,
        earliest: Duration,
    ) -> Option<Duration> {
        let lane = &mut self.all.get_mut(&connection)?.lanes[way as usize];
        lane.last_arrival = lane.last_arrival.max(earliest);
        lane.queue.push_back(what);
        Some(lane.last_arrival)
    }

    /// What arrives now; nothing if a partition holds it back.
    pub(crate) fn arrive(&mut self, connection: ConnectionId, way: Way) -> Option<Carried> {
        let wire = self.all.get_mut(&connection)?;
        let lane = &mut wire.lanes[way as usize];
        if self.cut.contains(&(wire.process, way)) {
            lane.held += 1;
            return None;
        }
        lane.queue.pop_front()
    }

    /// A partition ends: how many messages arrive again, by connection.
    pub(crate) fn join(&mut self, process: ProcessId, way: Way) -> Vec<(ConnectionId, u32)> {
        self.cut.remove(&(process, way));
        let of = self.all.iter_mut().filter(|(_, wire)| wire.process == process);
        of.map(|(&connection, wire)| (connection, std::mem::take(&mut wire.lanes[way as usize].held)))
            .collect()
    }

    /// Whether the connection takes no more messages to its process.
    pub(crate) fn is_full(&self, connection: ConnectionId) -> bool {
        let queued = |wire: &Wire| wire.lanes[Way::Down as usize].queue.len();
        self.all.get(&connection).is_some_and(|wire| queued(wire) >= OUTBOX_MESSAGES)
    }

    /// Whether a process can reach the coordinator, and hear it.
    pub(crate) fn reaches(&self, process: ProcessId) -> bool {
        !self.cut.contains(&(process, Way::Up)) && !self.cut.contains(&(process, Way::Down))
    }

    /// Forgets a connection that both ends have closed.
    pub(crate) fn tidy(&mut self, connection: ConnectionId) {
        let is_closed = |wire: &Wire| !wire.coordinator_open && !wire.process_open;
        if self.all.get(&connection).is_some_and(is_closed) {
            self.all.remove(&connection);
        }
    }
}
