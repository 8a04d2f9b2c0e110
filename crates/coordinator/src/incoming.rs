//! Input of the thread that owns the coordinator's state.

use cluster::Role;
use repair::wire::control::{FromNode, ToNode};
use tokio::sync::{mpsc, oneshot};

use crate::inbox::Room;
use control::{Answer, Command, ConnectionId, Event, RequestId};

/// The maximum number of queued messages per connection; a connection that exceeds it is closed.
pub(crate) const OUTBOX_MESSAGES: usize = 8192;

/// The queue of messages to a connection. Dropping the sender closes the connection once all queued messages
/// are written.
pub(crate) type Outbox = mpsc::Sender<ToNode>;

/// Input of the control plane's driver.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A peer registers. Dropping `room`, after the registration was handled, frees the memory that the
    /// registration occupied.
    Joined { connection: ConnectionId, role: Role, hello: Box<FromNode>, outbox: Outbox, room: Room },
    /// A message from a registered peer, with its share of the memory for messages.
    Said { connection: ConnectionId, message: Box<FromNode>, room: Room },
    /// A request from the API, with the channel for the answer.
    Asked { request: RequestId, command: Box<Command>, to: oneshot::Sender<Answer> },
    /// The storage has carried out the last batch.
    Stored { events: Vec<Event>, answers: Vec<Answer> },
    /// Any other event.
    Event(Event),
    /// The coordinator must stop.
    Stop,
}
