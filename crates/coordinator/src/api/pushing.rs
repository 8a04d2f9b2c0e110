//! Pushes conditions, history and the progress of repairs to subscribers, as server-sent events.
//!
//! While there are subscribers, one task asks the control plane for its state every second. Each subscriber gets the
//! difference from the state that it got last. A slow subscriber misses states in between, and nothing else.
//!
//! A stream begins with a state that the coordinator determines for it. Older states of the task are skipped; otherwise a
//! repair of the first state could end unnoticed.
//!
//! Each event is charged to the member until it is sent. A stream keeps few events and entries of the history that its
//! subscriber has not received.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use control::{ClusterCommand, ItemPage, RepairCommand, Reply};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use views::endpoints::GetEvents;
use views::{Condition, HistoryEntry, PushedEvent, RepairView};

use super::asking::{ApiError, Asking};
use super::charging::Charged;
use super::routing::Asked;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval of comments in a stream without events. They show both sides that the connection works.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Maximum number of events that wait for one subscriber.
const WAITING: usize = 16;
/// The number of entries of the history that a subscriber gets at a time.
const ENTRIES_AT_ONCE: usize = 64;
/// The header with the id of the last event that the subscriber got from an earlier stream.
const LAST_EVENT_ID: &str = "last-event-id";

/// The state that subscribers see.
#[derive(Debug)]
struct Seen {
    /// The state is not older than this.
    asked: Instant,
    conditions: Vec<Condition>,
    /// The open repairs, without their stripes.
    repairs: BTreeMap<u64, RepairView>,
}

impl Seen {
    async fn now(core: &Asking) -> Result<Self, ApiError> {
        let asked = Instant::now();
        let status = core.value(ClusterCommand::Status).await?;
        let repairs = status.work.repairs.into_iter().map(|repair| (repair.repair, without_items(repair)));
        Ok(Self { asked, conditions: status.conditions, repairs: repairs.collect() })
    }
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
            let seen = match Seen::now(&core).await {
                Ok(seen) => seen,
                Err(ApiError::Stopping) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot push events; trying again");
                    sleep(LOOK_EVERY).await;
                    continue;
                }
            };
            self.latest.send_replace(Some(Arc::new(seen)));
            sleep(LOOK_EVERY).await;
        }
    }

    fn subscribe(&self) -> watch::Receiver<Option<Arc<Seen>>> {
        let receiver = self.latest.subscribe();
        self.wanted.notify_one();
        receiver
    }
}

/// Answers a subscriber with a stream that ends when the subscriber leaves or the coordinator stops.
pub(super) async fn events(asked: Asked<GetEvents>, feed: Arc<Feed>) -> Response {
    let (sender, receiver) = mpsc::channel(WAITING);
    let subscriber = Subscriber { core: asked.core, events: sender, seen: None, last_entry: 0 };
    let after = asked.headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse().ok());
    let begin = match (after, asked.query.since_unix_ms) {
        (Some(number), _) => Begin::After(number),
        (None, Some(since_unix_ms)) => Begin::Since(since_unix_ms),
        (None, None) => Begin::Now,
    };
    tokio::spawn(subscriber.follow(begin, feed.subscribe()));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (Extension(Charged), headers, Body::from_stream(kept_alive(receiver))).into_response()
}

/// Returns a stream of the events, with a comment whenever there was none for a while.
fn kept_alive(events: mpsc::Receiver<Bytes>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let mut silence = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    silence.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = ReceiverStream::new(events).timeout_repeating(silence);
    events.map(|event| Ok(event.unwrap_or(Bytes::from_static(b":\n\n"))))
}

/// Returns an event as text of the stream.
fn text(event: &PushedEvent) -> String {
    let id = match event {
        PushedEvent::History { entry } => format!("id: {}\n", entry.number),
        _ => String::new(),
    };
    let data = serde_json::to_string(event).expect("views have string keys and go to memory");
    format!("event: {}\n{id}data: {data}\n\n", event.name())
}

/// The first entry of the history that a subscriber wants.
enum Begin {
    /// The entry after the one with this number.
    After(u64),
    /// The first since this time, in milliseconds since 1970.
    Since(u64),
    /// The next that is made.
    Now,
}

/// The subscriber has left, or the coordinator is stopping.
struct Over;

struct Subscriber {
    core: Asking,
    events: mpsc::Sender<Bytes>,
    /// The state that the subscriber knows.
    seen: Option<Arc<Seen>>,
    /// The number of the last entry of the history that it has. Only later entries are sent.
    last_entry: u64,
}

impl Subscriber {
    /// Sends events until the subscriber leaves or the coordinator stops.
    async fn follow(mut self, begin: Begin, mut latest: watch::Receiver<Option<Arc<Seen>>>) {
        if self.begin(begin).await.is_err() {
            return;
        }
        let began = Instant::now();
        loop {
            let now = latest.borrow_and_update().clone();
            if let Some(now) = now.filter(|now| now.asked >= began)
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

    /// Skips the entries that the subscriber does not want, and sends the present state.
    async fn begin(&mut self, begin: Begin) -> Result<(), Over> {
        let newest = self.entries(|reply| ClusterCommand::History(0, 1, reply)).await?.pop();
        let newest = newest.map_or(0, |entry| entry.number);
        self.last_entry = match begin {
            // A catalog that was restored has fewer entries.
            Begin::After(number) if number < newest => number,
            Begin::Since(since_unix_ms) => {
                let first = |reply| ClusterCommand::HistoryPage(0, since_unix_ms, 1, reply);
                self.entries(first).await?.pop().map_or(newest, |first| first.number - 1)
            }
            _ => newest,
        };
        let now = loop {
            match Seen::now(&self.core).await {
                Ok(now) => break now,
                Err(ApiError::Stopping) => return Err(Over),
                Err(_) => self.pause().await?,
            }
        };
        self.send(PushedEvent::Conditions { conditions: now.conditions.clone() }).await?;
        self.send(PushedEvent::Repairs { repairs: now.repairs.values().cloned().collect() }).await?;
        self.tell_history().await?;
        self.seen = Some(Arc::new(now));
        Ok(())
    }

    async fn entries(
        &self,
        command: impl FnOnce(Reply<Vec<HistoryEntry>>) -> ClusterCommand,
    ) -> Result<Vec<HistoryEntry>, Over> {
        self.core.value(command).await.map_err(|_| Over)
    }

    async fn tell(&mut self, now: Arc<Seen>) -> Result<(), Over> {
        let known = self.seen.replace(now.clone());
        let known = known.as_deref();
        if known.is_none_or(|known| known.conditions != now.conditions) {
            self.send(PushedEvent::Conditions { conditions: now.conditions.clone() }).await?;
        }
        self.tell_history().await?;
        let before = |repair: &u64| known.and_then(|known| known.repairs.get(repair));
        for (number, repair) in &now.repairs {
            if before(number) != Some(repair) {
                self.send_repair(repair.clone()).await?;
            }
        }
        match known {
            Some(known) => self.tell_ends(known, &now).await,
            None => Ok(()),
        }
    }

    /// Sends the final state of each repair that was open in the state `known` and is not in the state `now`. The control
    /// plane keeps only the last ended repairs; the history tells how the others ended.
    async fn tell_ends(&self, known: &Seen, now: &Seen) -> Result<(), Over> {
        let mut forgotten = Vec::new();
        let ended = known.repairs.iter().filter(|(number, _)| !now.repairs.contains_key(number));
        for (&number, repair) in ended {
            let page = ItemPage { after: None, limit: 0 };
            match self.core.value(|reply| RepairCommand::State(number, page, reply)).await {
                Ok(repair) => self.send_repair(without_items(repair)).await?,
                Err(ApiError::Stopping) => return Err(Over),
                Err(_) => forgotten.push(repair),
            }
        }
        if forgotten.is_empty() {
            return Ok(());
        }
        let history = self.entries(|reply| ClusterCommand::History(0, usize::MAX, reply)).await?;
        let ended: Vec<RepairView> = forgotten.into_iter().map(|repair| repair.ended(&history)).collect();
        drop(history); // Receiving the events may take long.
        for repair in ended {
            self.send_repair(repair).await?;
        }
        Ok(())
    }

    async fn send_repair(&self, repair: RepairView) -> Result<(), Over> {
        self.send(PushedEvent::Repair { repair: Box::new(repair) }).await
    }

    async fn tell_history(&mut self) -> Result<(), Over> {
        loop {
            let last = self.last_entry;
            let later = |reply| ClusterCommand::HistoryPage(last, 0, ENTRIES_AT_ONCE, reply);
            let entries = self.entries(later).await?;
            let are_all = entries.len() < ENTRIES_AT_ONCE;
            for entry in entries {
                self.last_entry = entry.number;
                self.send(PushedEvent::History { entry }).await?;
            }
            if are_all {
                return Ok(());
            }
        }
    }

    async fn send(&self, event: PushedEvent) -> Result<(), Over> {
        let text = Bytes::from(text(&event));
        drop(event); // Receiving it may take long.
        let charged = loop {
            match self.core.charge(text.clone()) {
                Ok(charged) => break charged,
                Err(_) => self.pause().await?, // The member has too many other answers to receive.
            }
        };
        self.events.send(charged).await.map_err(|_| Over)
    }

    /// Waits until the next attempt is due.
    async fn pause(&self) -> Result<(), Over> {
        tokio::select! {
            () = sleep(LOOK_EVERY) => Ok(()),
            () = self.events.closed() => Err(Over),
        }
    }
}

fn without_items(repair: RepairView) -> RepairView {
    RepairView { items: Vec::new(), ..repair }
}

#[cfg(test)]
mod tests {
    use views::HistoryEvent;

    use super::*;

    #[test]
    fn entries_of_the_history_have_ids() {
        let what = HistoryEvent::NodeAdded { node: "a\nb".to_owned() };
        let entry = HistoryEntry { number: 7, at_unix_ms: 8, what };
        let text = text(&PushedEvent::History { entry });
        let data =
            text.strip_prefix("event: history\nid: 7\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
        let data = data.unwrap_or_else(|| panic!("{text}"));
        assert!(!data.contains('\n') && serde_json::from_str::<PushedEvent>(data).is_ok(), "{text}");
        let conditions = super::text(&PushedEvent::Conditions { conditions: Vec::new() });
        assert!(conditions.starts_with("event: conditions\ndata: {"), "{conditions}");
    }
}
