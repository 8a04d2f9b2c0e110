//! What changes in the cluster, as it happens.
//!
//! A master tells its clients, by a stream, at which volumes something changed, and drops what a slow client does not
//! take; it does not tell at all when a server loses one of several shards of a volume. So the stream is only the sign
//! to look: after each, a moment later, everything is listed, and the picture tells what is new. A list is also made
//! when the stream begins, and from time to time.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_stream::StreamExt as _;
use tonic::Streaming;

use crate::error::AskError;
use crate::generated::master_pb::{KeepConnectedRequest, KeepConnectedResponse};
use crate::listing::Listing;
use crate::master::MasterClient;

/// What one cause changes comes in several messages: a shell that encodes a volume mounts its shards one by one.
const SETTLE: Duration = Duration::from_millis(100);
/// A list that takes long is made more seldom: a master spends no more than this part of its time on ours.
const PAUSE_TIMES: u32 = 20;
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LAST: Duration = Duration::from_secs(5);
/// Events that wait for whoever takes them; the stream waits then as well.
const QUEUE: usize = 16;

/// What the watch saw.
#[derive(Clone, Debug)]
pub enum Event {
    /// All that is there, for [`Volumes::apply`](crate::Volumes::apply), and since when that is known: what was listed for
    /// another reason later is newer.
    Listed(Listing, Instant),
    /// No master answers. The watch goes on trying; what changes meanwhile is in the next list.
    Blind(AskError),
}

/// A watch over a cluster. It ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Watches a cluster, and lists everything at least this often, unless a list takes more than a twentieth of that.
    pub fn start(master: MasterClient, list_every: Duration) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        Self { events, task: tokio::spawn(watch(master, list_every, sender)) }
    }

    /// What is seen next. Whoever asks late gets a list that was made late, never one that leaves something out.
    pub async fn next(&mut self) -> Event {
        self.events.recv().await.expect("the watch goes on until it is dropped")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Nobody takes events any more.
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

/// Follows one stream until it ends.
async fn follow(
    master: &MasterClient,
    list_every: Duration,
    events: &mpsc::Sender<Event>,
) -> Result<std::convert::Infallible, Ended> {
    let (address, mut client) = master.own_connection().await?;
    let call = "KeepConnected";
    let hello = KeepConnectedRequest { client_type: "mend".to_owned(), ..KeepConnectedRequest::default() };
    // The stream of requests stays open as long as we listen.
    let requests = tokio_stream::once(hello).chain(tokio_stream::pending());
    let opened = client.keep_connected(requests).await;
    let mut stream = opened.map_err(|status| AskError::of(&address, call, &status))?.into_inner();
    let ended = |status| AskError::of(&address, call, &status);
    loop {
        // Listed after the stream was opened: nothing falls between the two.
        let asked = Instant::now();
        let listing = master.list().await?;
        let pause = list_every.max(asked.elapsed() * PAUSE_TIMES);
        events.send(Event::Listed(listing, asked)).await.map_err(|_| Dropped)?;
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

/// Takes what comes within a moment.
async fn settle(stream: &mut Streaming<KeepConnectedResponse>) -> Result<(), tonic::Status> {
    let until = Instant::now() + SETTLE;
    while let Ok(message) = timeout_at(until, stream.message()).await {
        if message?.is_none() {
            sleep_until(until).await; // The end is found by the next read.
        }
    }
    Ok(())
}

/// Writes to ordinary volumes make messages as well.
fn concerns_us(message: &KeepConnectedResponse) -> bool {
    message.volume_location.as_ref().is_some_and(|at| {
        !at.new_ec_vids.is_empty() || !at.deleted_ec_vids.is_empty() || !at.leader.is_empty()
    })
}
