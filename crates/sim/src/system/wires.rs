//! Control connections. Messages stay in order in each direction and have delays. A partition may block one
//! direction or both.
//!
//! A partition only delays messages, because TCP retransmits until one end closes the connection. The ends
//! close it as the daemons do: the coordinator after 5 s of silence, helpers and clients after 6 s.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cluster::Role;
use control::ConnectionId;
use repair::wire::control::{FromNode, ToNode};

use super::event::{Happening, ProcessId};
use super::script::Script;
use crate::event::Event;
use crate::shared::{Shared, through_the_wire};

/// Time after which the coordinator closes the connection of a silent node.
pub(crate) const NODE_SILENCE: Duration = Duration::from_secs(5);
/// Time after which a node closes its connection to a silent coordinator.
pub(crate) const COORDINATOR_SILENCE: Duration = Duration::from_secs(6);
/// Interval of pings. The daemon pings twice as often; at that rate, pings would be most of the simulation's
/// events.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(2);
/// Maximum number of messages that wait to arrive on a connection. One more message closes the connection.
pub(crate) const OUTBOX_MESSAGES: usize = 8192;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// To the coordinator.
    Up,
    /// To the helper or client.
    Down,
}

/// A message, or the end of a stream.
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
    /// Whether the coordinator's end is open.
    pub(crate) coordinator_open: bool,
    pub(crate) process_open: bool,
    /// Time at which the coordinator's end last received a message. `process_heard` is the same for the
    /// process's end.
    pub(crate) coordinator_heard: Duration,
    pub(crate) process_heard: Duration,
    lanes: [Lane; 2],
}

#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<Carried>,
    last_arrival: Duration,
    /// Number of due messages that a partition holds back.
    held: u32,
}

/// All control connections.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    next: u64,
    pub(crate) all: BTreeMap<ConnectionId, Wire>,
    /// Directions that a partition blocks.
    cut: BTreeSet<(ProcessId, Way)>,
    /// The longest delay of a message to or from a process, for slow processes.
    slow: BTreeMap<ProcessId, Duration>,
    /// The longest delay of a message to or from all other processes.
    usual: Duration,
    /// Whether messages are encoded and decoded on their way.
    json: bool,
}

impl Wires {
    pub(crate) fn new(script: &Script) -> Self {
        Self { usual: script.message_delay, json: script.json, ..Self::default() }
    }

    /// Opens a connection for a process.
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

    /// Sends a message. Messages on one connection arrive in order.
    pub(crate) fn send(&mut self, connection: ConnectionId, way: Way, what: Carried, shared: &mut Shared) {
        let Some(wire) = self.all.get_mut(&connection) else { return };
        let limit = self.slow.get(&wire.process).copied().unwrap_or(self.usual);
        let earliest = shared.now + shared.dice.up_to(limit);
        let lane = &mut wire.lanes[way as usize];
        lane.last_arrival = lane.last_arrival.max(earliest);
        lane.queue.push_back(what);
        shared.agenda.add(lane.last_arrival, Event::System(Happening::Arrives { connection, way }));
    }

    /// Sends a message from a process to the coordinator.
    pub(crate) fn say(&mut self, connection: ConnectionId, message: FromNode, shared: &mut Shared) {
        let message = if self.json { through_the_wire(&message) } else { message };
        if self.all.get(&connection).is_some_and(|wire| wire.process_open) {
            self.send(connection, Way::Up, Carried::FromNode(Box::new(message)), shared);
        }
    }

    /// Sends a message from the coordinator to a process.
    pub(crate) fn tell(&mut self, connection: ConnectionId, message: ToNode, shared: &mut Shared) {
        let message = if self.json { through_the_wire(&message) } else { message };
        self.send(connection, Way::Down, Carried::ToNode(Box::new(message)), shared);
    }

    /// Closes the coordinator's end of a connection.
    pub(crate) fn disconnect(&mut self, connection: ConnectionId, shared: &mut Shared) {
        let Some(wire) = self.all.get_mut(&connection).filter(|wire| wire.coordinator_open) else { return };
        wire.coordinator_open = false;
        self.send(connection, Way::Down, Carried::Fin, shared);
        self.tidy(connection);
    }

    /// Closes the process's end of a connection. If `quietly`, the coordinator gets no notice and detects
    /// only the silence.
    pub(crate) fn hang_up(&mut self, connection: ConnectionId, quietly: bool, shared: &mut Shared) {
        let Some(wire) = self.all.get_mut(&connection) else { return };
        wire.process_open = false;
        if !quietly {
            self.send(connection, Way::Up, Carried::Fin, shared);
        }
        self.tidy(connection);
    }

    /// Closes all connections because the coordinator's process has ended. If `quietly`, the other ends get
    /// no notice and detect only the silence.
    pub(crate) fn drop_all(&mut self, quietly: bool, shared: &mut Shared) {
        for connection in self.all.keys().copied().collect::<Vec<_>>() {
            let wire = self.all.get_mut(&connection).expect("it was just listed");
            if std::mem::take(&mut wire.coordinator_open) && !quietly {
                self.send(connection, Way::Down, Carried::Fin, shared);
            }
            self.tidy(connection);
        }
    }

    /// Returns the next message of a connection, which arrives now. Returns `None` if a partition holds the
    /// message back.
    pub(crate) fn arrive(&mut self, connection: ConnectionId, way: Way) -> Option<Carried> {
        let wire = self.all.get_mut(&connection)?;
        let lane = &mut wire.lanes[way as usize];
        if self.cut.contains(&(wire.process, way)) {
            lane.held += 1;
            return None;
        }
        lane.queue.pop_front()
    }

    /// Blocks messages in one direction between a process and the coordinator.
    pub(crate) fn cut(&mut self, process: ProcessId, way: Way) {
        self.cut.insert((process, way));
    }

    /// Ends all partitions of a process. Messages that were held back arrive now.
    pub(crate) fn join(&mut self, process: ProcessId, shared: &mut Shared) {
        for way in [Way::Up, Way::Down] {
            self.cut.remove(&(process, way));
            for (&connection, wire) in self.all.iter_mut().filter(|(_, wire)| wire.process == process) {
                let held = std::mem::take(&mut wire.lanes[way as usize].held);
                let arrives = || Event::System(Happening::Arrives { connection, way });
                (0..held).for_each(|_| shared.after(Duration::ZERO, arrives()));
            }
        }
    }

    /// Delays the messages of a process by up to `limit`, or by the usual limit if `None`.
    pub(crate) fn delay(&mut self, process: ProcessId, limit: Option<Duration>) {
        match limit {
            Some(limit) => drop(self.slow.insert(process, limit)),
            None => drop(self.slow.remove(&process)),
        }
    }

    /// Whether the connection's queue to its process is full.
    pub(crate) fn is_full(&self, connection: ConnectionId) -> bool {
        let queued = |wire: &Wire| wire.lanes[Way::Down as usize].queue.len();
        self.all.get(&connection).is_some_and(|wire| queued(wire) >= OUTBOX_MESSAGES)
    }

    /// Whether a process can exchange messages with the coordinator.
    pub(crate) fn reaches(&self, process: ProcessId) -> bool {
        !self.cut.contains(&(process, Way::Up)) && !self.cut.contains(&(process, Way::Down))
    }

    /// Removes a connection that both ends have closed.
    pub(crate) fn tidy(&mut self, connection: ConnectionId) {
        let is_closed = |wire: &Wire| !wire.coordinator_open && !wire.process_open;
        if self.all.get(&connection).is_some_and(is_closed) {
            self.all.remove(&connection);
        }
    }
}
