//! What comes in for the thread that owns the coordinator's state.

use cluster::Role;
use repair::wire::control::{FromNode, ToNode};
use tokio::sync::{mpsc, oneshot};

use crate::inbox::Room;
use control::{Answer, Command, ConnectionId, Event, RequestId};

/// Messages that may wait for one connection; one that takes no more is closed.
pub(crate) const OUTBOX_MESSAGES: usize = 8192;

/// Messages to a connection; dropping it closes the connection once they are written.
pub(crate) type Outbox = mpsc::Sender<ToNode>;

/// Something for the driver of the control plane.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Somebody said hello. Its share of memory is given back when the hello has been handled.
    Joined { connection: ConnectionId, role: Role, hello: Box<FromNode>, outbox: Outbox, room: Room },
    /// A message of somebody who joined, and its share of memory.
    Said { connection: ConnectionId, message: Box<FromNode>, room: Room },
    /// A request of the API, and where its answer goes.
    Asked { request: RequestId, command: Box<Command>, to: oneshot::Sender<Answer> },
    /// The storage has carried out what it was given last.
    Stored { events: Vec<Event>, answers: Vec<Answer> },
    /// Any other event.
    Event(Event),
    /// The coordinator stops.
    Stop,
}
