//! Where the two ends of an edge meet: the data port, connections that wait for their task, and idle connections.
//!
//! The coordinator sends all tasks at once, so a neighbour may dial before this node's own task has arrived. A
//! connection with a key that is not expected yet is kept for ten seconds and then closed. Until it has presented an
//! expected key, a connection is one of the [`Unauthenticated`], whose number is bounded.
//!
//! A connection is reused: when an edge is complete, the dialling end keeps the connection for its next edge from the
//! same address, and the other end waits for the next greeting on it. A connection that failed or was stopped is closed.
//!
//! An encrypted edge needs the right certificate at the other end as well as the key. A connection with another one is
//! refused, and the edge keeps waiting.

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

/// A connection must show its key within this time.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// A connection waits this long for its task.
const EARLY_LIMIT: Duration = Duration::from_secs(10);
/// How often the end of a waiting connection is looked for if bytes that came before hide it.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the other end of an edge may take to be reached.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// The dialling end uses a connection that has rested for less than this; the other end waits longer, so that
/// it is not the one to close a connection that is just being used again.
const REST_LIMIT: Duration = Duration::from_secs(30);
const NEXT_GREETING_LIMIT: Duration = Duration::from_secs(60);
/// No more connections rest at once.
const MAX_RESTING: usize = 256;
/// How long to wait when the system gives no connection, and how often that is told.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Descriptors of a process that does not say: what Linux gives.
const USUAL_DESCRIPTORS: u64 = 1024;

/// Brings dialled-in connections and the tasks that await them together, by key.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    table: Arc<Mutex<Table>>,
    /// Absent if no edge can be encrypted.
    security: Option<Security>,
}

/// What a connection must be to carry an edge, its key aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// What its dialler does.
    pub(crate) direction: Direction,
    /// The name in the other end's certificate, if the edge is encrypted.
    pub(crate) tls_name: Option<String>,
}

/// The far end of a connection that we dialled: its address, and the name in its certificate.
type FarEnd = (String, Option<String>);

/// A connection on its way to a task.
enum Incoming {
    New(TcpStream),
    /// It has carried an edge.
    Rested(Resting),
}

#[derive(Debug)]
struct Table {
    awaited: BTreeMap<EdgeKey, (Terms, oneshot::Sender<EdgeStream>)>,
    early: BTreeMap<EdgeKey, Early>,
    unauthenticated: Unauthenticated,
    /// Connections that we dialled, the one that rests the shortest last.
    resting: BTreeMap<FarEnd, Vec<(Resting, Instant)>>,
    /// The runtime that listens.
    listener: Option<Handle>,
}

/// A connection that came before its task. Its own task holds it, and hands it over when it is told to whom.
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
    /// A rendezvous in a process that may have so many descriptors. It takes plain edges only.
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

    /// The same, which can encrypt edges as `identity`, and refuses plain ones if `refuses_plain`.
    pub fn secured(self, identity: &Identity, refuses_plain: bool) -> Self {
        Self { security: Some(Security::new(identity, refuses_plain)), ..self }
    }

    /// Whether plain edges are refused.
    pub(crate) fn refuses_plain(&self) -> bool {
        self.security.as_ref().is_some_and(|security| security.refuses_plain)
    }

    /// Takes connections from `listener` until it is dropped with its task.
    pub async fn listen(self, listener: TcpListener) {
        self.table().listener = Some(Handle::current());
        let mut complained: Option<Instant> = None;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let rendezvous = self.clone();
                    tokio::spawn(async move {
                        if let Err(error) = rendezvous.receive(Incoming::New(stream), peer.ip()).await {
                            tracing::debug!(%peer, %error, "a data connection was refused");
                        }
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely; those in use will come back.
                    if complained.is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY) {
                        complained = Some(Instant::now());
                        tracing::warn!(%error, "cannot take data connections at the moment");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The connection that will come with `key` and meet `terms`.
    pub(crate) fn expect(&self, key: EdgeKey, terms: Terms) -> oneshot::Receiver<EdgeStream> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table();
        match table.early.remove(&key) {
            Some(early) if early.terms == terms => {
                table.unauthenticated.forget(early.connection); // From now on it cannot be told to go.
                let _ = early.claim.send(sender); // If it has just ended, the receiver hears of that.
            }
            _ => {
                table.awaited.retain(|_, (_, waiting)| !waiting.is_closed());
                table.awaited.insert(key, (terms, sender));
            }
        }
        receiver
    }

    /// The connection of an edge that we dial: one that rests, or a new one.
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

    /// Takes a connection whose edge is complete, to be used again: `dialled` is the address if this end
    /// dialled.
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
                    // That nobody uses it again is no fault.
                    rendezvous.receive(Incoming::Rested(stream), address).await
                });
            }
            (None, None) => {}
        }
    }

    /// Awaits a greeting and brings the connection to its task, unless it must make room for another.
    async fn receive(self, incoming: Incoming, address: IpAddr) -> io::Result<()> {
        let (id, mut evicted) = self.table().admit(address);
        let _forgotten = Forget { rendezvous: &self, id };
        tokio::select! {
            done = self.greet(incoming, id) => done,
            Ok(()) = &mut evicted => Err(io::Error::other("others wait, and this one waited the longest")),
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
            Met::Task(task) => return task.send(stream).map_err(|_| io::Error::other("the task is gone")),
            Met::OtherTerms(why) => return Err(io::Error::other(why)),
            Met::Nobody(claimed) => claimed,
        };
        self.wait(stream, greeting.key, id, claimed).await
    }

    /// Keeps a connection until its task comes, its time is over, or the other end closes it.
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
                Ok(task) => return task.send(stream).map_err(|_| io::Error::other("the task is gone")),
                Err(_) => "another connection came with its key",
            },
            () = is_closed(&stream.tcp) => "it was closed before its task came",
            () = sleep(EARLY_LIMIT) => "no task came for it",
        };
        self.table().unpark(&key, id);
        // Its task may have come at the last moment.
        match claimed.try_recv() {
            Ok(task) => task.send(stream).map_err(|_| io::Error::other("the task is gone")),
            Err(_) => Err(io::Error::other(why)),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder panics")
    }
}

/// Whom a greeting meets.
enum Met {
    Task(oneshot::Sender<EdgeStream>),
    /// A task with other terms, which goes on waiting; in words.
    OtherTerms(String),
    /// Nobody yet: the receiver hears when the task comes.
    Nobody(oneshot::Receiver<oneshot::Sender<EdgeStream>>),
}

/// Takes a connection off the list of unauthenticated ones, however its task ends.
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
                let why = format!("the edge is for {terms:?}, and this is {found:?}");
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

    /// A connection waits no more, unless it has been claimed or another took its key.
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

/// Returns when the other end has closed the connection and nothing is left of what it sent before. A client that had
/// only a few slices to send has sent them all and closed its end by now, and they are still to be read.
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
    use repair::{Epoch, JobId};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct Scene {
        server: Rendezvous,
        client: Rendezvous,
        address: String,
        next: u8,
    }

    impl Scene {
        async fn new() -> Self {
            let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let (server, client) = (Rendezvous::default(), Rendezvous::default());
            tokio::spawn(server.clone().listen(listener));
            Self { server, client, address, next: 0 }
        }

        /// Both ends of a new edge.
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
        let mut scene = Scene::new().await;
        let (dialled, accepted) = scene.edge().await;
        let port = accepted.tcp.peer_addr().unwrap();
        scene.server.rest(accepted, None);
        scene.client.rest(dialled, Some(&scene.address));
        let (dialled, accepted) = scene.edge().await;
        assert_eq!(accepted.tcp.peer_addr().unwrap(), port);
        // The other end is not done with it yet: its key is read as soon as it is.
        scene.client.rest(dialled, Some(&scene.address));
        let (server, patient) = (scene.server.clone(), async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            accepted
        });
        tokio::spawn(async move { server.rest(patient.await, None) });
        assert_eq!(scene.edge().await.1.tcp.peer_addr().unwrap(), port);
    }

    #[tokio::test]
    async fn a_connection_that_the_other_end_closed_is_not_used_again() {
        let mut scene = Scene::new().await;
        let (dialled, accepted) = scene.edge().await;
        let port = accepted.tcp.peer_addr().unwrap();
        drop(accepted);
        dialled.tcp.readable().await.unwrap();
        scene.client.rest(dialled, Some(&scene.address));
        assert_ne!(scene.edge().await.1.tcp.peer_addr().unwrap(), port);
    }

    /// A greeting whose key nobody awaits.
    async fn strange(scene: &Scene, key: u8) -> TcpStream {
        let key = EdgeKey([key; 16]);
        let greeting = Greeting { direction: Direction::Receive, job: JobId(1), epoch: Epoch(1), key };
        scene.client.clone().dial(scene.address.clone(), None, greeting).await.unwrap().tcp
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
        let scene = Scene::new().await;
        let mut dialled = strange(&scene, 1).await;
        let waits = || scene.server.table().early.len() == 1;
        until("it waits", waits).await;
        let mut accepted = scene.server.expect(EdgeKey([1; 16]), plain(Direction::Receive)).await.unwrap();
        accepted.tcp.write_all(b"x").await.unwrap();
        assert_eq!(dialled.read_u8().await.unwrap(), b'x');
        assert!(scene.server.table().early.is_empty());
    }

    /// As a client's does that had little to send, and was done before the task came.
    #[tokio::test]
    async fn what_came_early_is_there_though_the_other_end_has_closed() {
        let scene = Scene::new().await;
        let mut dialled = strange(&scene, 1).await;
        until("it waits", || scene.server.table().early.len() == 1).await;
        dialled.write_all(b"all that there is").await.unwrap();
        drop(dialled);
        sleep(LOOK_EVERY * 2).await;
        let mut accepted = scene.server.expect(EdgeKey([1; 16]), plain(Direction::Receive)).await.unwrap();
        let mut bytes = Vec::new();
        accepted.tcp.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"all that there is");
    }

    #[tokio::test]
    async fn early_connections_that_are_closed_are_gone_at_once() {
        let scene = Scene::new().await;
        let dialled = [strange(&scene, 1).await, strange(&scene, 2).await];
        until("they wait", || scene.server.table().early.len() == 2).await;
        drop(dialled);
        until("they are gone", || {
            let table = scene.server.table();
            table.early.is_empty() && table.unauthenticated.is_empty()
        })
        .await;
    }

    #[tokio::test]
    async fn an_early_connection_is_closed_by_a_timer_with_nothing_sent() {
        let scene = Scene::new().await;
        let mut dialled = strange(&scene, 1).await;
        let read = timeout(Duration::from_secs(60), dialled.read(&mut [0])).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
        assert!(scene.server.table().unauthenticated.is_empty());
    }

    #[tokio::test]
    async fn more_strangers_than_there_is_room_for_take_the_places_of_the_oldest() {
        let scene = Scene::new().await;
        let limit = unauthenticated::limit(USUAL_DESCRIPTORS) / 2; // All are from one address.
        let mut dialled = Vec::new();
        for _ in 0..limit + 20 {
            dialled.push(TcpStream::connect(&scene.address).await.unwrap());
        }
        for oldest in &mut dialled[..20] {
            let read = timeout(Duration::from_secs(30), oldest.read(&mut [0])).await;
            assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
        }
        let mut scene = scene;
        scene.edge().await; // Whoever has a key still gets in.
    }
}
