//! Input of the thread that owns the coordinator's state, and the queue before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use cluster::Role;
use prometheus_client::metrics::histogram::Histogram;
use repair::wire::control::{FromNode, ToNode};
use tokio::sync::{mpsc, oneshot};

use crate::inbox::Room;
use crate::shares::Turn;
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
    /// A request from the API, with the channel for the answer. A read is dropped if its caller has left. The
    /// `turn` of a change ends when the change begins to wait for the storage.
    Asked {
        request: RequestId,
        command: Box<Command>,
        to: oneshot::Sender<Answer>,
        is_read: bool,
        turn: Option<Turn>,
    },
    /// The storage has carried out the last batch.
    Stored { events: Vec<Event>, answers: Vec<Answer> },
    /// Any other event.
    Event(Event),
    /// The coordinator must stop.
    Stop,
}

impl Incoming {
    /// Whether this is a read whose caller has left. The caller's turn ended then, so a member could queue any number of
    /// them.
    fn is_abandoned(&self) -> bool {
        matches!(self, Self::Asked { to, is_read: true, .. } if to.is_closed())
    }
}

/// The number of events that may wait for the control plane; then their senders wait.
const EVENTS_WAITING: usize = 1024;

/// The sending side of the queue of events; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<(Instant, Incoming)>,
    wait_seconds: Histogram,
    /// The number of the next request. Requests of all askers have different numbers.
    next_request: Arc<AtomicU64>,
}

/// The receiving side of the queue of events.
pub(crate) struct EventQueue {
    queue: mpsc::Receiver<(Instant, Incoming)>,
    wait_seconds: Histogram,
}

/// An event was not sent, because the coordinator is stopping.
#[derive(Debug)]
pub(crate) struct Stopping;

/// Returns an empty queue of events.
pub(crate) fn event_queue() -> (Events, EventQueue) {
    let (sender, receiver) = mpsc::channel(EVENTS_WAITING);
    let wait_seconds = event_seconds();
    (
        Events { queue: sender, wait_seconds: wait_seconds.clone(), next_request: Arc::default() },
        EventQueue { queue: receiver, wait_seconds },
    )
}

/// Returns an empty histogram of the seconds that events wait or take.
pub(crate) fn event_seconds() -> Histogram {
    Histogram::new([0.0001, 0.001, 0.01, 0.1, 1.0, 10.0])
}

impl Events {
    /// Waits until the queue has room.
    pub(crate) async fn send(&self, incoming: Incoming) -> Result<(), Stopping> {
        self.queue.send((Instant::now(), incoming)).await.map_err(|_| Stopping)
    }

    /// Like [`send`](Self::send), for threads outside the runtime.
    pub(crate) fn blocking_send(&self, incoming: Incoming) -> Result<(), Stopping> {
        self.queue.blocking_send((Instant::now(), incoming)).map_err(|_| Stopping)
    }

    /// Asks the driver to stop. If the queue is full, the driver runs until the process ends.
    pub(crate) fn try_stop(&self) {
        let _ = self.queue.try_send((Instant::now(), Incoming::Stop));
    }

    /// Returns a number that no other request has.
    pub(crate) fn next_request(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number of events that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Returns the seconds from when events were sent until they were received.
    pub(crate) fn wait_seconds(&self) -> &Histogram {
        &self.wait_seconds
    }
}

impl EventQueue {
    /// Returns the next event; `None` after the last sender was dropped.
    pub(crate) async fn recv(&mut self) -> Option<Incoming> {
        loop {
            let (sent, incoming) = self.queue.recv().await?;
            self.wait_seconds.observe(sent.elapsed().as_secs_f64());
            if !incoming.is_abandoned() {
                return Some(incoming);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use control::{ClusterCommand, Reply};

    use super::*;

    /// The API, the listener for metrics and the store ask with clones of one queue.
    #[test]
    fn requests_of_different_askers_have_different_numbers() {
        let (events, _queue) = event_queue();
        let other = events.clone();
        let numbers = [&events, &other, &events].map(Events::next_request);
        assert_eq!(numbers, [0, 1, 2].map(RequestId));
    }

    #[tokio::test]
    async fn only_reads_are_dropped_when_their_callers_leave() {
        let (events, mut queue) = event_queue();
        let mut callers = Vec::new();
        for (number, is_read, stays) in [(0, true, false), (1, false, false), (2, true, true)] {
            let (to, answer) = oneshot::channel();
            callers.extend(stays.then_some(answer));
            let request = RequestId(number);
            let command = Box::new(ClusterCommand::Status(Reply::to(request)).into());
            events.send(Incoming::Asked { request, command, to, is_read, turn: None }).await.unwrap();
        }
        for expected in [1, 2] {
            let next = queue.recv().await;
            let Some(Incoming::Asked { request, .. }) = next else { panic!("{next:?}") };
            assert_eq!(request, RequestId(expected));
        }
        assert_eq!(events.waiting(), 0);
    }
}
