//! Watches a cluster for changes.
//!
//! A master streams the IDs of changed volumes to its clients, but drops messages that a slow client does not
//! take. It sends no message at all if a server loses one of several shards of a volume. Mend therefore
//! treats a message only as a trigger: shortly after each message, it lists the whole cluster and computes
//! the differences. It also lists the cluster when the stream starts, and at regular intervals.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use crate::error::AskError;
use crate::generated::master_pb::{KeepConnectedRequest, KeepConnectedResponse};
use crate::listing::Listing;
use crate::master::{ANSWER_LIMIT, MasterClient};

/// Time to wait for further messages. One operation often sends several, for example when a shell mounts
/// shards one by one.
const SETTLE: Duration = Duration::from_millis(100);
/// If the master announces no change, the pause after a listing is at least this many times as long as this listing
/// and the one before it took, to limit the load on the master.
const PAUSE_TIMES: u32 = 20;
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(5);
/// Capacity of the queue of events; when it is full, the stream waits.
const QUEUE: usize = 16;

/// An event of the watch.
#[derive(Clone, Debug)]
pub enum Event {
    /// A list of the whole cluster for [`Volumes::apply`](crate::Volumes::apply), with the time at which it
    /// was requested, and the longest time from then to the next request. The list is outdated as far as the receiver
    /// has applied another one that was requested later.
    Listed(Listing, Instant, Duration),
    /// No master answers. The watch keeps trying, and the next list contains all changes made meanwhile.
    Blind(AskError),
}

/// A watch over a cluster. It ends when this value is dropped.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Starts watching a cluster. The longest pause between two listings of the whole cluster is
    /// `list_every`, or twenty times the duration of listings if that is longer.
    pub fn start(master: MasterClient, list_every: Duration) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        Self { events, task: tokio::spawn(watch(master, list_every, sender)) }
    }

    /// Waits for the next event. A slow receiver gets listings late, but never an incomplete one.
    pub async fn next(&mut self) -> Event {
        self.events.recv().await.expect("the watch continues until it is dropped")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The receiver of events was dropped.
struct Dropped;

async fn watch(master: MasterClient, list_every: Duration, events: mpsc::Sender<Event>) {
    let mut retry = RETRY_FIRST;
    loop {
        let began = Instant::now();
        let Err(ended) = follow(&master, list_every, &events).await;
        let Ended::Blind(error) = ended else { return };
        master.forget_leader().await;
        if events.send(Event::Blind(error)).await.is_err() {
            return;
        }
        retry = if began.elapsed() > RETRY_LAST { RETRY_FIRST } else { (retry * 2).min(RETRY_LAST) };
        sleep(retry).await;
    }
}

enum Ended {
    Blind(AskError),
    Dropped,
}

impl From<AskError> for Ended {
    fn from(error: AskError) -> Self {
        Self::Blind(error)
    }
}

impl From<Dropped> for Ended {
    fn from(_: Dropped) -> Self {
        Self::Dropped
    }
}

/// Follows a master's stream of changes until the stream ends.
async fn follow(
    master: &MasterClient,
    list_every: Duration,
    events: &mpsc::Sender<Event>,
) -> Result<std::convert::Infallible, Ended> {
    let (address, mut client) = master.own_connection().await?;
    let call = "KeepConnected";
    let hello = KeepConnectedRequest { client_type: "mend".to_owned(), ..KeepConnectedRequest::default() };
    // The request stream must stay open for as long as the responses are read.
    let requests = tokio_stream::once(hello).chain(tokio_stream::pending());
    let opened = timeout(ANSWER_LIMIT, client.keep_connected(requests)).await;
    let opened = opened.map_err(|_| AskError::TimedOut { address: address.clone(), call })?;
    let mut stream = opened.map_err(|status| AskError::of(&address, call, &status))?.into_inner();
    let ended = |status| AskError::of(&address, call, &status);
    let mut before = Duration::ZERO;
    loop {
        // List only after the stream was opened, so no change is missed between the two.
        let asked = Instant::now();
        let listing = master.list().await?;
        let taken = asked.elapsed();
        let pause = pause(list_every, before, taken);
        before = taken;
        events.send(Event::Listed(listing, asked, taken + pause)).await.map_err(|_| Dropped)?;
        let next = Instant::now() + pause;
        while let Ok(message) = timeout_at(next, stream.message()).await {
            let Some(message) = message.map_err(ended)? else {
                return Err(AskError::Unreachable {
                    address,
                    why: "it ended the stream of changes".to_owned(),
                }
                .into());
            };
            if concerns_us(&message) {
                settle(&mut stream).await.map_err(ended)?;
                break;
            }
        }
    }
}

/// Returns the pause after a listing, given the durations of the listing before it and of this one. A single slow
/// listing, for example from a master that was suspended, does not prolong the pause.
fn pause(list_every: Duration, before: Duration, taken: Duration) -> Duration {
    list_every.max(taken.min(before) * PAUSE_TIMES)
}

/// Consumes messages for a short time, or until the stream ends.
async fn settle(
    stream: &mut (impl Stream<Item = Result<KeepConnectedResponse, Status>> + Unpin),
) -> Result<(), Status> {
    let until = Instant::now() + SETTLE;
    while let Ok(Some(message)) = timeout_at(until, stream.next()).await {
        message?;
    }
    Ok(())
}

/// Whether a message may concern EC volumes; writes to ordinary volumes send messages too.
fn concerns_us(message: &KeepConnectedResponse) -> bool {
    message.volume_location.as_ref().is_some_and(|at| {
        !at.new_ec_vids.is_empty() || !at.deleted_ec_vids.is_empty() || !at.leader.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_slow_listing_is_soon_followed_by_the_next() {
        let (usual, slow) = (Duration::from_millis(10), Duration::from_secs(17));
        let list_every = Duration::from_secs(3);
        assert_eq!(pause(list_every, usual, slow), list_every);
        assert_eq!(pause(list_every, slow, usual), list_every);
        assert_eq!(pause(list_every, slow, slow), 20 * slow);
    }

    /// A master that no longer leads names the leader and ends the stream at once.
    #[tokio::test]
    async fn a_stream_that_ends_while_it_settles() {
        let mut stream = tokio_stream::empty();
        let settled = timeout(Duration::from_secs(30), settle(&mut stream)).await;
        settled.expect("it returns").expect("no error");
    }
}
