//! Matches incoming connections at the data port with the tasks that await them, and keeps idle connections
//! for reuse.
//!
//! The coordinator sends all tasks at once, so a neighbour may dial before this node's own task has arrived.
//! A connection with a key that is not expected yet is kept for ten seconds and then closed. Until a
//! connection has presented an expected key, it counts as [`Unauthenticated`]; the number of such connections
//! is bounded.
//!
//! Connections are reused: when an edge is complete, the dialling end keeps the connection for its next edge
//! to the same address, and the other end waits for the next greeting on it. A connection that failed or was
//! stopped is closed.
//!
//! An encrypted edge requires the right certificate at the other end in addition to the key. A connection
//! with another certificate is refused, and the edge keeps waiting.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cluster::Identity;
use repair::EdgeKey;
use repair::wire::edge::{Direction, Greeting};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::secure::{self, Security};
use crate::stream::{EdgeStream, Resting};
use crate::unauthenticated::{self, ConnectionId, Unauthenticated};

/// The time limit for presenting a key.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection with a key that no task expects yet is kept.
const EARLY_LIMIT: Duration = Duration::from_secs(10);
/// How often to check whether a waiting connection was closed, while unread bytes hide the close.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The time limit for dialling the other end of an edge.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// The dialling end reuses a connection only if it has been idle for less than this. The other end waits
/// longer (`NEXT_GREETING_LIMIT`), so that it does not close a connection that is just being reused.
const REST_LIMIT: Duration = Duration::from_secs(30);
const NEXT_GREETING_LIMIT: Duration = Duration::from_secs(60);
/// The maximum number of idle connections.
const MAX_RESTING: usize = 256;
/// The pause after a failed accept, and the interval of warnings about that.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// The assumed limit of file descriptors, which is the default of Linux.
const USUAL_DESCRIPTORS: u64 = 1024;

/// Matches incoming connections with the tasks that await them, by key.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    table: Arc<Mutex<Table>>,
    /// `None` if edges cannot be encrypted.
    security: Option<Security>,
}

/// The requirements on an edge's connection, apart from the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Whether the dialling end sends or receives the slices.
    pub(crate) direction: Direction,
    /// The name that the other end's certificate must contain, if the edge is encrypted.
    pub(crate) tls_name: Option<String>,
}

/// The far end of a connection that this node dialled: its address, and the name in its certificate.
type FarEnd = (String, Option<String>);

/// A connection at the data port whose edge is not known yet.
enum Incoming {
    New(TcpStream),
    /// The connection has carried an edge before.
    Rested(Resting),
}

#[derive(Debug)]
struct Table {
    awaited: BTreeMap<EdgeKey, (Terms, oneshot::Sender<EdgeStream>)>,
    early: BTreeMap<EdgeKey, Early>,
    unauthenticated: Unauthenticated,
    /// Idle connections that this node dialled; the most recent one is last.
    resting: BTreeMap<FarEnd, Vec<(Resting, Instant)>>,
    /// The runtime of the task that accepts connections, and of the tasks that wait for greetings on idle
    /// connections.
    listener: Option<Handle>,
}

/// A connection that arrived before this node's task of the plan. The future that accepted the connection
/// owns the stream. When the task arrives, it passes a channel to this future through `claim`. The future
/// then sends the stream to the task over this channel.
#[derive(Debug)]
struct Early {
    terms: Terms,
    connection: ConnectionId,
    claim: oneshot::Sender<oneshot::Sender<EdgeStream>>,
}

impl Default for Rendezvous {
    fn default() -> Self {
        Self::within(USUAL_DESCRIPTORS)
    }
}

impl Rendezvous {
    /// Creates a rendezvous for a process with a limit of `descriptors` file descriptors. It accepts plain
    /// edges only.
    pub fn within(descriptors: u64) -> Self {
        let table = Table {
            awaited: BTreeMap::new(),
            early: BTreeMap::new(),
            unauthenticated: Unauthenticated::new(unauthenticated::limit(descriptors)),
            resting: BTreeMap::new(),
            listener: None,
        };
        Self { table: Arc::new(Mutex::new(table)), security: None }
    }

    /// Adds encryption with the certificate of `identity`; plain edges are refused if `refuses_plain`.
    pub fn secured(self, identity: &Identity, refuses_plain: bool) -> Self {
        Self { security: Some(Security::new(identity, refuses_plain)), ..self }
    }

    /// Whether plain edges are refused.
    pub(crate) fn refuses_plain(&self) -> bool {
        self.security.as_ref().is_some_and(|security| security.refuses_plain)
    }

    /// Accepts connections from `listener` until the returned future is dropped.
    pub async fn listen(self, listener: TcpListener) {
        self.table().listener = Some(Handle::current());
        let mut complained: Option<Instant> = None;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let rendezvous = self.clone();
                    tokio::spawn(async move {
                        if let Err(error) = rendezvous.receive(Incoming::New(stream), peer.ip()).await {
                            tracing::debug!(%peer, %error, "refused a data connection");
                        }
                    });
                }
                Err(error) => {
                    // File descriptors are probably exhausted; some will be freed.
                    if complained.is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY) {
                        complained = Some(Instant::now());
                        tracing::warn!(%error, "cannot accept data connections at the moment");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Returns a receiver for the connection that presents `key` and satisfies `terms`, now or later.
    pub(crate) fn expect(&self, key: EdgeKey, terms: Terms) -> oneshot::Receiver<EdgeStream> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table();
        match table.early.remove(&key) {
            Some(early) if early.terms == terms => {
                table.unauthenticated.forget(early.connection); // The connection can no longer be evicted.
                let _ = early.claim.send(sender); // If `early` has just ended, the receiver gets an error.
            }
            _ => {
                table.awaited.retain(|_, (_, waiting)| !waiting.is_closed());
                table.awaited.insert(key, (terms, sender));
            }
        }
        receiver
    }

    /// Moves a connection that the listener has accepted to the caller's runtime, unless that is the
    /// listener's own.
    pub(crate) fn bring_here(&self, stream: EdgeStream) -> io::Result<EdgeStream> {
        let here = Handle::current().id();
        let is_here = self.table().listener.as_ref().is_some_and(|listener| listener.id() == here);
        // Another registration would cost system calls, and the first write would wait for the next poll of
        // all sockets.
        if is_here { Ok(stream) } else { stream.moved_here() }
    }

    /// Connects to the other end of an edge, over an idle connection or a new one.
    pub(crate) async fn dial(
        self,
        address: String,
        tls_name: Option<String>,
        greeting: Greeting,
    ) -> io::Result<EdgeStream> {
        let far_end = (address, tls_name);
        while let Some(resting) = self.take_resting(&far_end) {
            if let Some(stream) = resting.use_again(&greeting) {
                return Ok(stream);
            }
        }
        let (address, tls_name) = &far_end;
        let dialled = async {
            let mut stream = secure::dial(self.security.as_ref(), address, tls_name.as_deref()).await?;
            stream.write_greeting(&greeting).await?;
            Ok(stream)
        };
        timeout(DIAL_LIMIT, dialled).await.unwrap_or_else(|_| {
            let text = format!("{address} has not answered for {} s", DIAL_LIMIT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        })
    }

    fn take_resting(&self, far_end: &FarEnd) -> Option<Resting> {
        let mut table = self.table();
        let resting = table.resting.get_mut(far_end)?;
        let newest = resting.pop();
        if resting.is_empty() {
            table.resting.remove(far_end);
        }
        newest.filter(|(_, since)| since.elapsed() < REST_LIMIT).map(|(stream, _)| stream)
    }

    /// Keeps the connection of a complete edge for reuse; `dialled` is the address if this end dialled the
    /// connection.
    pub(crate) fn rest(&self, stream: EdgeStream, dialled: Option<&str>) {
        let tls_name = stream.tls_name().map(str::to_owned);
        let Ok(stream) = stream.rest() else { return };
        let mut table = self.table();
        match (dialled, table.listener.clone()) {
            (Some(address), _) => table.rest(stream, (address.to_owned(), tls_name)),
            (None, Some(listener)) => {
                let rendezvous = self.clone();
                listener.spawn(async move {
                    let address = stream.peer_addr()?.ip();
                    // The result is ignored, because a connection that is never reused is no error.
                    rendezvous.receive(Incoming::Rested(stream), address).await
                });
            }
            (None, None) => {}
        }
    }

    /// Waits for a greeting and hands the connection to its task, unless the connection is evicted first.
    async fn receive(self, incoming: Incoming, address: IpAddr) -> io::Result<()> {
        let (id, mut evicted) = self.table().admit(address);
        let _forgotten = Forget { rendezvous: &self, id };
        tokio::select! {
            done = self.greet(incoming, id) => done,
            Ok(()) = &mut evicted => Err(io::Error::other("too many connections are waiting")),
        }
    }

    async fn greet(&self, incoming: Incoming, id: ConnectionId) -> io::Result<()> {
        let (mut stream, limit) = match incoming {
            Incoming::New(tcp) => {
                let accepted = secure::accept(self.security.as_ref(), tcp);
                (timeout(GREETING_LIMIT, accepted).await??, GREETING_LIMIT)
            }
            Incoming::Rested(resting) => (resting.wake()?, NEXT_GREETING_LIMIT),
        };
        let bytes = timeout(limit, stream.read_greeting()).await??;
        let greeting = Greeting::decode(&bytes).map_err(io::Error::other)?;
        let terms = Terms { direction: greeting.direction, tls_name: stream.tls_name().map(str::to_owned) };
        let claimed = match self.table().meet(greeting.key, terms, id) {
            Met::Task(task) => return task.send(stream).map_err(|_| io::Error::other("its task has ended")),
            Met::OtherTerms(why) => return Err(io::Error::other(why)),
            Met::Nobody(claimed) => claimed,
        };
        self.wait(stream, greeting.key, id, claimed).await
    }

    /// Keeps a connection until its task arrives, its time is up, or the other end closes it.
    async fn wait(
        &self,
        stream: EdgeStream,
        key: EdgeKey,
        id: ConnectionId,
        mut claimed: oneshot::Receiver<oneshot::Sender<EdgeStream>>,
    ) -> io::Result<()> {
        let why = tokio::select! {
            biased;
            task = &mut claimed => match task {
                Ok(task) => return task.send(stream).map_err(|_| io::Error::other("its task has ended")),
                Err(_) => "another connection arrived with the same key",
            },
            () = is_closed(&stream.tcp) => "it was closed before its task started",
            () = sleep(EARLY_LIMIT) => "its task did not start in time",
        };
        self.table().unpark(&key, id);
        // The task may have arrived at the last moment.
        match claimed.try_recv() {
            Ok(task) => task.send(stream).map_err(|_| io::Error::other("its task has ended")),
            Err(_) => Err(io::Error::other(why)),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("never poisoned")
    }
}

/// The task, if any, that awaits the key of a greeting.
enum Met {
    Task(oneshot::Sender<EdgeStream>),
    /// The task requires other terms and keeps waiting. The text states the required and the actual terms.
    OtherTerms(String),
    /// No task has arrived yet; the receiver gets the task's channel when it does.
    Nobody(oneshot::Receiver<oneshot::Sender<EdgeStream>>),
}

/// When dropped, stops tracking a connection as unauthenticated.
struct Forget<'a> {
    rendezvous: &'a Rendezvous,
    id: ConnectionId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.rendezvous.table().unauthenticated.forget(self.id);
    }
}

impl Table {
    fn admit(&mut self, address: IpAddr) -> (ConnectionId, oneshot::Receiver<()>) {
        let (id, hears, evicted) = self.unauthenticated.admit(address);
        if let Some((other, key)) = evicted {
            self.unpark(&key, other);
        }
        (id, hears)
    }

    fn meet(&mut self, key: EdgeKey, found: Terms, id: ConnectionId) -> Met {
        match self.awaited.remove(&key) {
            Some((terms, task)) if terms == found => return Met::Task(task),
            Some((terms, task)) => {
                let why = format!("the edge expects {terms:?}, but the connection is {found:?}");
                self.awaited.insert(key, (terms, task));
                return Met::OtherTerms(why);
            }
            None => {}
        }
        let (claim, claimed) = oneshot::channel();
        self.early.insert(key, Early { terms: found, connection: id, claim });
        self.unauthenticated.waits_for(id, key);
        Met::Nobody(claimed)
    }

    /// Removes an early connection from the table, unless a task has claimed it or another connection has
    /// replaced it.
    fn unpark(&mut self, key: &EdgeKey, id: ConnectionId) {
        if self.early.get(key).is_some_and(|early| early.connection == id) {
            self.early.remove(key);
        }
    }

    fn rest(&mut self, stream: Resting, far_end: FarEnd) {
        self.resting.retain(|_, resting| {
            resting.retain(|(_, since)| since.elapsed() < REST_LIMIT);
            !resting.is_empty()
        });
        if self.resting.values().map(Vec::len).sum::<usize>() < MAX_RESTING {
            self.resting.entry(far_end).or_default().push((stream, Instant::now()));
        }
    }
}

/// Returns when the other end has closed the connection and no unread bytes remain. A client with only a few
/// slices may send them all and close its end before the task arrives here, and those bytes must not be lost.
async fn is_closed(stream: &TcpStream) {
    loop {
        if stream.ready(Interest::READABLE).await.is_err() {
            return;
        }
        match stream.peek(&mut [0]).await {
            Ok(0) | Err(_) => return,
            Ok(_) => sleep(LOOK_EVERY).await,
        }
    }
}

/// Binds the data port.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use repair::{Epoch, JobId};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct Pair {
        server: Rendezvous,
        client: Rendezvous,
        address: String,
        next: u8,
    }

    impl Pair {
        async fn new() -> Self {
            let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let (server, client) = (Rendezvous::default(), Rendezvous::default());
            tokio::spawn(server.clone().listen(listener));
            Self { server, client, address, next: 0 }
        }

        /// Creates a new edge; returns both ends.
        async fn edge(&mut self) -> (EdgeStream, EdgeStream) {
            self.next += 1;
            let key = EdgeKey([self.next; 16]);
            let greeting = Greeting { direction: Direction::Receive, job: JobId(1), epoch: Epoch(1), key };
            let accepted = self.server.expect(key, plain(Direction::Receive));
            let dialled = self.client.clone().dial(self.address.clone(), None, greeting).await.unwrap();
            (dialled, accepted.await.unwrap())
        }
    }

    #[tokio::test]
    async fn a_connection_carries_one_edge_after_another() {
        let mut pair = Pair::new().await;
        let (dialled, accepted) = pair.edge().await;
        let port = accepted.tcp.peer_addr().unwrap();
        pair.server.rest(accepted, None);
        pair.client.rest(dialled, Some(&pair.address));
        let (dialled, accepted) = pair.edge().await;
        assert_eq!(accepted.tcp.peer_addr().unwrap(), port);
        // The accepting end still uses the connection for 50 ms, and reads the next greeting only after that.
        pair.client.rest(dialled, Some(&pair.address));
        let (server, patient) = (pair.server.clone(), async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            accepted
        });
        tokio::spawn(async move { server.rest(patient.await, None) });
        assert_eq!(pair.edge().await.1.tcp.peer_addr().unwrap(), port);
    }

    #[tokio::test]
    async fn a_connection_for_a_job_on_the_listeners_thread_is_not_registered_again() {
        let mut pair = Pair::new().await;
        let (_dialled, accepted) = pair.edge().await;
        accepted.tcp.writable().await.unwrap();
        let accepted = pair.server.bring_here(accepted).unwrap();
        // After another registration, the runtime would have to look at the socket first.
        let writable = accepted.tcp.poll_write_ready(&mut Context::from_waker(Waker::noop()));
        assert!(writable.is_ready());
    }

    #[tokio::test]
    async fn a_connection_that_the_other_end_closed_is_not_used_again() {
        let mut pair = Pair::new().await;
        let (dialled, accepted) = pair.edge().await;
        let port = accepted.tcp.peer_addr().unwrap();
        drop(accepted);
        dialled.tcp.readable().await.unwrap();
        pair.client.rest(dialled, Some(&pair.address));
        assert_ne!(pair.edge().await.1.tcp.peer_addr().unwrap(), port);
    }

    /// Dials with a key that no task awaits.
    async fn strange(pair: &Pair, key: u8) -> TcpStream {
        let key = EdgeKey([key; 16]);
        let greeting = Greeting { direction: Direction::Receive, job: JobId(1), epoch: Epoch(1), key };
        pair.client.clone().dial(pair.address.clone(), None, greeting).await.unwrap().tcp
    }

    fn plain(direction: Direction) -> Terms {
        Terms { direction, tls_name: None }
    }

    async fn until(what: &str, done: impl Fn() -> bool) {
        let waited = async {
            while !done() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), waited).await.expect(what);
    }

    #[tokio::test]
    async fn a_connection_that_came_early_meets_its_task() {
        let pair = Pair::new().await;
        let mut dialled = strange(&pair, 1).await;
        let waits = || pair.server.table().early.len() == 1;
        until("it waits", waits).await;
        let mut accepted = pair.server.expect(EdgeKey([1; 16]), plain(Direction::Receive)).await.unwrap();
        accepted.tcp.write_all(b"x").await.unwrap();
        assert_eq!(dialled.read_u8().await.unwrap(), b'x');
        assert!(pair.server.table().early.is_empty());
    }

    /// Checks the case that a client with little to send has sent everything and closed the connection before
    /// the task arrives.
    #[tokio::test]
    async fn early_data_survives_the_close_of_the_other_end() {
        let pair = Pair::new().await;
        let mut dialled = strange(&pair, 1).await;
        until("it waits", || pair.server.table().early.len() == 1).await;
        dialled.write_all(b"all that there is").await.unwrap();
        drop(dialled);
        sleep(LOOK_EVERY * 2).await;
        let mut accepted = pair.server.expect(EdgeKey([1; 16]), plain(Direction::Receive)).await.unwrap();
        let mut bytes = Vec::new();
        accepted.tcp.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"all that there is");
    }

    #[tokio::test]
    async fn closed_early_connections_are_removed_at_once() {
        let pair = Pair::new().await;
        let dialled = [strange(&pair, 1).await, strange(&pair, 2).await];
        until("they wait", || pair.server.table().early.len() == 2).await;
        drop(dialled);
        until("they are gone", || {
            let table = pair.server.table();
            table.early.is_empty() && table.unauthenticated.is_empty()
        })
        .await;
    }

    #[tokio::test]
    async fn an_early_connection_is_closed_by_a_timer_with_nothing_sent() {
        let pair = Pair::new().await;
        let mut dialled = strange(&pair, 1).await;
        let read = timeout(Duration::from_secs(60), dialled.read(&mut [0])).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
        assert!(pair.server.table().unauthenticated.is_empty());
    }

    #[tokio::test]
    async fn excess_strangers_evict_the_oldest() {
        let pair = Pair::new().await;
        let limit = unauthenticated::limit(USUAL_DESCRIPTORS) / 2; // All connections come from one address.
        let mut dialled = Vec::new();
        for _ in 0..limit + 20 {
            dialled.push(TcpStream::connect(&pair.address).await.unwrap());
        }
        for oldest in &mut dialled[..20] {
            let read = timeout(Duration::from_secs(30), oldest.read(&mut [0])).await;
            assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
        }
        let mut pair = pair;
        pair.edge().await; // A connection with a valid key is still accepted.
    }
}
