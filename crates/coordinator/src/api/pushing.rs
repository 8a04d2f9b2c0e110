//! Pushes conditions, history and the progress of repairs to subscribers, as server-sent events.
//!
//! While there are subscribers, one task asks the control plane for its state every second. Each subscriber gets the
//! difference from the state that it got last. A slow subscriber misses states in between, and nothing else.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use control::{ClusterCommand, ItemPage, RepairCommand};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use views::endpoints::GetEvents;
use views::{Condition, HistoryEntry, PushedEvent, RepairView};

use super::asking::{ApiError, Asking};
use super::routing::Asked;
use crate::driver::unix_ms;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of comments in a stream without events. They show both sides that the connection works.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Maximum number of events that wait for one subscriber.
const WAITING: usize = 64;

/// Each look at the history goes back at least this far, in milliseconds.
const CLOCK_MARGIN_MS: u64 = 60_000;

/// The state that subscribers see.
#[derive(Debug, Default)]
struct Seen {
    conditions: Vec<Condition>,
    /// The open repairs, without their stripes.
    repairs: BTreeMap<u64, RepairView>,
}

/// The source of events for all subscribers.
#[derive(Default)]
pub(super) struct Feed {
    latest: watch::Sender<Option<Arc<Seen>>>,
    wanted: Notify,
}

impl Feed {
    /// Asks for the state while there are subscribers, until the coordinator stops.
    pub(super) async fn look(self: Arc<Self>, core: Asking) {
        loop {
            while self.latest.receiver_count() == 0 {
                self.wanted.notified().await;
            }
            let status = match core.value(ClusterCommand::Status).await {
                Ok(status) => status,
                Err(ApiError::Stopping) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot push events; trying again");
                    sleep(LOOK_EVERY).await;
                    continue;
                }
            };
            let repairs =
                status.work.repairs.into_iter().map(|repair| (repair.repair, without_items(repair)));
            let seen = Seen { conditions: status.conditions, repairs: repairs.collect() };
            self.latest.send_replace(Some(Arc::new(seen)));
            sleep(LOOK_EVERY).await;
        }
    }

    fn subscribe(&self) -> watch::Receiver<Option<Arc<Seen>>> {
        if self.latest.receiver_count() == 0 {
            self.latest.send_replace(None); // What the last subscriber saw is old.
        }
        let receiver = self.latest.subscribe();
        self.wanted.notify_one();
        receiver
    }
}

/// Answers a subscriber with a stream that ends when the subscriber leaves or the coordinator stops.
pub(super) async fn events(asked: Asked<GetEvents>, feed: Arc<Feed>) -> Response {
    let (sender, receiver) = mpsc::channel(WAITING);
    let subscriber = Subscriber {
        core: asked.core,
        events: sender,
        seen: None,
        history: asked.query.since_unix_ms,
        last_entry: 0,
    };
    tokio::spawn(subscriber.follow(feed.subscribe()));
    let stream = ReceiverStream::new(receiver);
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// The subscriber has left, or the coordinator is stopping.
struct Over;

struct Subscriber {
    core: Asking,
    events: mpsc::Sender<Result<Event, Infallible>>,
    /// The state that the subscriber knows.
    seen: Option<Arc<Seen>>,
    /// The time since which it wants entries of the history; `None` until the first look.
    history: Option<u64>,
    /// The number of the last entry that it got.
    last_entry: u64,
}

impl Subscriber {
    async fn follow(mut self, mut latest: watch::Receiver<Option<Arc<Seen>>>) {
        if self.history.is_none() && self.begin_history().await.is_err() {
            return;
        }
        loop {
            let now = latest.borrow_and_update().clone();
            if let Some(now) = now
                && self.tell(now).await.is_err()
            {
                return;
            }
            tokio::select! {
                changed = latest.changed() => if changed.is_err() { return },
                () = self.events.closed() => return,
            }
        }
    }

    /// Skips the entries that exist already.
    async fn begin_history(&mut self) -> Result<(), Over> {
        let last = self.entries(0, 1).await?.pop();
        self.history = Some(last.as_ref().map_or(0, |entry| entry.at_unix_ms));
        self.last_entry = last.map_or(0, |entry| entry.number);
        Ok(())
    }

    async fn entries(&self, since_unix_ms: u64, most: usize) -> Result<Vec<HistoryEntry>, Over> {
        let asked = self.core.value(|reply| ClusterCommand::History(since_unix_ms, most, reply));
        asked.await.map_err(|_| Over)
    }

    async fn tell(&mut self, now: Arc<Seen>) -> Result<(), Over> {
        let known = self.seen.replace(now.clone());
        let known = known.as_deref();
        if known.is_none_or(|known| known.conditions != now.conditions) {
            self.send(PushedEvent::Conditions { conditions: now.conditions.clone() }).await?;
        }
        // If the clock was set back, new entries are older than the last one.
        let since = self.history.unwrap_or(0).min(unix_ms().saturating_sub(CLOCK_MARGIN_MS));
        let entries = self.entries(since, usize::MAX).await?;
        let last = self.last_entry;
        for entry in entries.into_iter().filter(|entry| entry.number > last) {
            (self.history, self.last_entry) = (Some(entry.at_unix_ms), entry.number);
            self.send(PushedEvent::History { entry }).await?;
        }
        let before = |repair: &u64| known.and_then(|known| known.repairs.get(repair));
        for (number, repair) in &now.repairs {
            if before(number) != Some(repair) {
                self.send(PushedEvent::Repair { repair: Box::new(repair.clone()) }).await?;
            }
        }
        let ended = known.into_iter().flat_map(|known| known.repairs.keys());
        for &number in ended.filter(|number| !now.repairs.contains_key(number)) {
            let page = ItemPage { after: None, limit: 0 };
            // A repair that ended long ago may have been forgotten.
            if let Ok(repair) = self.core.value(|reply| RepairCommand::State(number, page, reply)).await {
                self.send(PushedEvent::Repair { repair: Box::new(without_items(repair)) }).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, event: PushedEvent) -> Result<(), Over> {
        let data = serde_json::to_string(&event).expect("views have string keys and go to memory");
        let event = Event::default().event(event.name()).data(data);
        self.events.send(Ok(event)).await.map_err(|_| Over)
    }
}

fn without_items(repair: RepairView) -> RepairView {
    RepairView { items: Vec::new(), ..repair }
}
