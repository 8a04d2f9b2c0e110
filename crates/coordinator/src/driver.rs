//! The thread that owns the coordinator's state: passes events and the time to the control plane and carries
//! out its effects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::histogram::Histogram;
use store_api::OpenError;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::incoming::{EventQueue, Incoming, Outbox};
use crate::storage::StorageThread;
use control::{Answer, ConnectionId, Control, Effect, Event, Now, RequestId};

/// The driver of the control plane; see the module's documentation.
pub(crate) struct Driver {
    core: Control,
    storage: StorageThread,
    connections: BTreeMap<ConnectionId, Outbox>,
    asked: BTreeMap<RequestId, oneshot::Sender<Answer>>,
    start: Instant,
    /// The seconds that events took.
    event_seconds: Histogram,
}

/// Why the driver ends.
enum End {
    /// The coordinator was stopped, or the storage thread has ended. Without that thread, no write can be
    /// acknowledged.
    Stopped,
    /// The storage can no longer be used.
    Lost(OpenError),
}

impl Driver {
    pub(crate) fn new(core: Control, storage: StorageThread, event_seconds: Histogram) -> Self {
        let (connections, asked) = (BTreeMap::new(), BTreeMap::new());
        Self { core, storage, connections, asked, start: Instant::now(), event_seconds }
    }

    /// Runs until the coordinator is stopped or the storage fails for good. In the second case, returns the
    /// storage's error.
    pub(crate) fn run(mut self, mut incoming: EventQueue) -> Option<OpenError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime with only a clock needs no system resources");
        self.start = Instant::now();
        let end = runtime.block_on(self.work(&mut incoming));
        drop(incoming); // From here on, answers are discarded.
        self.storage.finish(&mut self.core);
        match end {
            End::Stopped => None,
            End::Lost(error) => Some(error),
        }
    }

    async fn work(&mut self, incoming: &mut EventQueue) -> End {
        let mut ticked = Duration::ZERO;
        loop {
            self.storage.feed(&mut self.core);
            if self.storage.has_stopped() {
                return End::Stopped;
            }
            let due = (ticked + self.core.tick()).saturating_sub(self.start.elapsed());
            if due.is_zero() {
                // Ticks come before events. Otherwise a steady stream of events could starve them.
                let now = self.now();
                ticked = now.since_start;
                self.core.handle_tick(now);
                self.carry_out();
                self.note(now);
                continue;
            }
            if let Ok(next) = timeout(due, incoming.recv()).await
                && let Some(end) = self.take(next.unwrap_or(Incoming::Stop))
            {
                return end;
            }
        }
    }

    fn take(&mut self, incoming: Incoming) -> Option<End> {
        match incoming {
            Incoming::Joined { connection, role, hello, outbox, room: _room } => {
                self.connections.insert(connection, outbox);
                self.handle(Event::Joined { connection, role, hello });
            }
            Incoming::Said { connection, message, room: _room } => {
                self.handle(Event::Said { connection, message });
            }
            Incoming::Asked { request, command, to, turn, .. } => {
                self.asked.insert(request, to);
                self.handle(Event::Asked(command));
                // The control plane limits the changes that wait for the storage. Meanwhile, the member can make changes
                // that need no storage.
                if let Some(turn) = turn
                    && self.asked.contains_key(&request)
                {
                    turn.end();
                }
            }
            Incoming::Stored { events, answers } => {
                self.storage.is_idle();
                answers.into_iter().for_each(|answer| self.answer(answer));
                for event in events {
                    match event {
                        Event::Recovered(Err(error)) if !error.is_passing() => return Some(End::Lost(error)),
                        event => self.handle(event),
                    }
                }
            }
            Incoming::Event(event) => {
                if let Event::Left { connection, .. } = &event {
                    self.connections.remove(connection);
                }
                self.handle(event);
            }
            Incoming::Stop => return Some(End::Stopped),
        }
        None
    }

    fn now(&self) -> Now {
        Now { since_start: self.start.elapsed(), unix_ms: unix_ms() }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now();
        self.core.handle(event, now);
        self.carry_out();
        self.note(now);
    }

    /// Notes how long an event took that was handled at this time.
    fn note(&self, began: Now) {
        let took = self.start.elapsed().saturating_sub(began.since_start);
        self.event_seconds.observe(took.as_secs_f64());
    }

    /// Carries out all effects. A connection whose outbox is full is closed and reported to the control plane
    /// as ended.
    fn carry_out(&mut self) {
        loop {
            let mut full = BTreeSet::new();
            while let Some(effect) = self.core.poll() {
                match effect {
                    Effect::Send { connection, message } => {
                        let outbox = self.connections.get(&connection);
                        if outbox.is_some_and(|outbox| outbox.try_send(*message).is_err()) {
                            self.connections.remove(&connection);
                            full.insert(connection);
                        }
                    }
                    Effect::Close { connection } => drop(self.connections.remove(&connection)),
                    Effect::Answer(answer) => self.answer(answer),
                }
            }
            if full.is_empty() {
                return;
            }
            let now = self.now();
            for connection in full {
                let why = "its connection does not accept messages".to_owned();
                self.core.handle(Event::Left { connection, why }, now);
            }
        }
    }

    fn answer(&mut self, answer: Answer) {
        if let Some(to) = self.asked.remove(&answer.request) {
            let _ = to.send(answer); // The caller may have disconnected.
        }
    }
}

/// Returns the milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
