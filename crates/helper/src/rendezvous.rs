//! Where edges meet: the data port, connections that wait for the task they belong to, and connections that
//! rest between two edges.
//!
//! The coordinator sends all tasks at once, so a neighbour may dial before our own task has come. A
//! connection whose key nobody awaits is kept for ten seconds, watched for its end, and closed after that. Until it has
//! shown a key that is awaited, a connection is one of the [`Strangers`], whose number is bounded.
//!
//! A connection carries one edge after another: when an edge is complete, whoever dialled keeps the connection
//! for its next edge from the same address, and the other end waits for the next greeting on it. What fails or
//! is stopped is closed, never kept.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use repair::EdgeKey;
use repair::wire::edge::{Direction, GREETING_BYTES, Greeting};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::strangers::{self, StrangerId, Strangers};

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
}

#[derive(Debug)]
struct Table {
    awaited: BTreeMap<EdgeKey, (Direction, oneshot::Sender<TcpStream>)>,
    early: BTreeMap<EdgeKey, Early>,
    strangers: Strangers,
    /// Connections that we dialled, by address, the one that rests the shortest last.
    resting: BTreeMap<String, Vec<(std::net::TcpStream, Instant)>>,
    /// The runtime that listens.
    listener: Option<Handle>,
}

/// A connection that came before its task. Its own task holds it, and hands it over when it is told to whom.
#[derive(Debug)]
struct Early {
    direction: Direction,
    stranger: StrangerId,
    claim: oneshot::Sender<oneshot::Sender<TcpStream>>,
}

impl Default for Rendezvous {
    fn default() -> Self {
        Self::within(USUAL_DESCRIPTORS)
    }
}

impl Rendezvous {
    /// A rendezvous in a process that may have so many descriptors.
    pub fn within(descriptors: u64) -> Self {
        let table = Table {
            awaited: BTreeMap::new(),
            early: BTreeMap::new(),
            strangers: Strangers::new(strangers::limit(descriptors)),
            resting: BTreeMap::new(),
            listener: None,
        };
        Self { table: Arc::new(Mutex::new(table)) }
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
                        if let Err(error) = rendezvous.receive(stream, peer.ip(), GREETING_LIMIT).await {
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

    /// The connection that will come with `key`; `direction` is what its dialler must say.
    pub fn expect(&self, key: EdgeKey, direction: Direction) -> oneshot::Receiver<TcpStream> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table();
        match table.early.remove(&key) {
            Some(early) if early.direction == direction => {
                table.strangers.forget(early.stranger); // From now on it cannot be told to go.
                let _ = early.claim.send(sender); // If it has just ended, the receiver hears of that.
            }
            _ => {
                table.awaited.retain(|_, (_, waiting)| !waiting.is_closed());
                table.awaited.insert(key, (direction, sender));
            }
        }
        receiver
    }

    /// The connection of an edge that we dial: one that rests, or a new one.
    pub(crate) async fn dial(self, address: String, greeting: Greeting) -> io::Result<TcpStream> {
        while let Some(resting) = self.take_resting(&address) {
            if let Some(stream) = use_again(resting, &greeting) {
                return Ok(stream);
            }
        }
        timeout(DIAL_LIMIT, dial(&address, &greeting)).await.unwrap_or_else(|_| {
            let text = format!("{address} has not answered for {} s", DIAL_LIMIT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        })
    }

    fn take_resting(&self, address: &str) -> Option<std::net::TcpStream> {
        let mut table = self.table();
        let resting = table.resting.get_mut(address)?;
        let newest = resting.pop();
        if resting.is_empty() {
            table.resting.remove(address);
        }
        newest.filter(|(_, since)| since.elapsed() < REST_LIMIT).map(|(stream, _)| stream)
    }

    /// Takes a connection whose edge is complete, to be used again: `dialled` is the address if this end
    /// dialled.
    pub(crate) fn rest(&self, stream: TcpStream, dialled: Option<&str>) {
        let Ok(stream) = stream.into_std() else { return };
        let mut table = self.table();
        match (dialled, table.listener.clone()) {
            (Some(address), _) => table.rest(stream, address),
            (None, Some(listener)) => {
                let rendezvous = self.clone();
                listener.spawn(async move {
                    let address = stream.peer_addr()?.ip();
                    // That nobody uses it again is no fault.
                    rendezvous.receive(TcpStream::from_std(stream)?, address, NEXT_GREETING_LIMIT).await
                });
            }
            (None, None) => {}
        }
    }

    /// Awaits a greeting and brings the connection to its task, unless it must make room for another.
    async fn receive(self, stream: TcpStream, address: IpAddr, limit: Duration) -> io::Result<()> {
        let (id, mut evicted) = self.table().admit(address);
        let _forgotten = Forget { rendezvous: &self, id };
        tokio::select! {
            done = self.greet(stream, id, limit) => done,
            Ok(()) = &mut evicted => Err(io::Error::other("others wait, and this one waited the longest")),
        }
    }

    async fn greet(&self, mut stream: TcpStream, id: StrangerId, limit: Duration) -> io::Result<()> {
        let mut bytes = [0; GREETING_BYTES];
        timeout(limit, stream.read_exact(&mut bytes)).await??;
        let greeting = Greeting::decode(&bytes).map_err(io::Error::other)?;
        stream.set_nodelay(true)?;
        let claimed = match self.table().meet(&greeting, id) {
            Met::Task(task) => return task.send(stream).map_err(|_| io::Error::other("the task is gone")),
            Met::WrongWay => return Err(io::Error::other("the edge runs the other way")),
            Met::Nobody(claimed) => claimed,
        };
        self.wait(stream, greeting.key, id, claimed).await
    }

    /// Keeps a connection until its task comes, its time is over, or the other end closes it.
    async fn wait(
        &self,
        stream: TcpStream,
        key: EdgeKey,
        id: StrangerId,
        mut claimed: oneshot::Receiver<oneshot::Sender<TcpStream>>,
    ) -> io::Result<()> {
        let why = tokio::select! {
            biased;
            task = &mut claimed => match task {
                Ok(task) => return task.send(stream).map_err(|_| io::Error::other("the task is gone")),
                Err(_) => "another connection came with its key",
            },
            () = is_closed(&stream) => "it was closed before its task came",
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
    Task(oneshot::Sender<TcpStream>),
    WrongWay,
    /// Nobody yet: the receiver hears when the task comes.
    Nobody(oneshot::Receiver<oneshot::Sender<TcpStream>>),
}

/// Ends a connection's time as a stranger, whatever ends its task.
struct Forget<'a> {
    rendezvous: &'a Rendezvous,
    id: StrangerId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.rendezvous.table().strangers.forget(self.id);
    }
}

impl Table {
    fn admit(&mut self, address: IpAddr) -> (StrangerId, oneshot::Receiver<()>) {
        let (id, hears, evicted) = self.strangers.admit(address);
        if let Some((other, key)) = evicted {
            self.unpark(&key, other);
        }
        (id, hears)
    }

    fn meet(&mut self, greeting: &Greeting, id: StrangerId) -> Met {
        if let Some((direction, task)) = self.awaited.remove(&greeting.key) {
            return if direction == greeting.direction { Met::Task(task) } else { Met::WrongWay };
        }
        let (claim, claimed) = oneshot::channel();
        let early = Early { direction: greeting.direction, stranger: id, claim };
        self.early.insert(greeting.key, early);
        self.strangers.waits_for(id, greeting.key);
        Met::Nobody(claimed)
    }

    /// A connection waits no more, unless it has been claimed or another took its key.
    fn unpark(&mut self, key: &EdgeKey, id: StrangerId) {
        if self.early.get(key).is_some_and(|early| early.stranger == id) {
            self.early.remove(key);
        }
    }

    fn rest(&mut self, stream: std::net::TcpStream, address: &str) {
        self.resting.retain(|_, resting| {
            resting.retain(|(_, since)| since.elapsed() < REST_LIMIT);
            !resting.is_empty()
        });
        if self.resting.values().map(Vec::len).sum::<usize>() < MAX_RESTING {
            self.resting.entry(address.to_owned()).or_default().push((stream, Instant::now()));
        }
    }
}

/// Returns when the other end has closed the connection. Bytes that it sent before, such as a client's first slices,
/// stay where they are.
async fn is_closed(stream: &TcpStream) {
    loop {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            _ => return,
        }
        match stream.peek(&mut [0]).await {
            Ok(0) | Err(_) => return,
            Ok(_) => sleep(LOOK_EVERY).await,
        }
    }
}

/// Dials the other end of an edge and presents the key.
async fn dial(address: &str, greeting: &Greeting) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("cannot reach {address}: {error}")))?;
    stream.set_nodelay(true)?;
    stream.write_all(&greeting.encode()).await?;
    Ok(stream)
}

/// Presents the key on a connection that has rested; `None` if the other end has closed it.
fn use_again(stream: std::net::TcpStream, greeting: &Greeting) -> Option<TcpStream> {
    let quiet = stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    let sent = quiet && (&stream).write(&greeting.encode()).is_ok_and(|bytes| bytes == GREETING_BYTES);
    sent.then(|| TcpStream::from_std(stream).ok())?
}

/// Binds the data port.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests {
    use repair::{Epoch, JobId};

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
        async fn edge(&mut self) -> (TcpStream, TcpStream) {
            self.next += 1;
            let key = EdgeKey([self.next; 16]);
            let greeting = Greeting { direction: Direction::Receive, job: JobId(1), epoch: Epoch(1), key };
            let accepted = self.server.expect(key, Direction::Receive);
            let dialled = self.client.clone().dial(self.address.clone(), greeting).await.unwrap();
            (dialled, accepted.await.unwrap())
        }
    }

    #[tokio::test]
    async fn a_connection_carries_one_edge_after_another() {
        let mut scene = Scene::new().await;
        let (dialled, accepted) = scene.edge().await;
        let port = accepted.peer_addr().unwrap();
        scene.server.rest(accepted, None);
        scene.client.rest(dialled, Some(&scene.address));
        let (dialled, accepted) = scene.edge().await;
        assert_eq!(accepted.peer_addr().unwrap(), port);
        // The other end is not done with it yet: its key is read as soon as it is.
        scene.client.rest(dialled, Some(&scene.address));
        let (server, patient) = (scene.server.clone(), async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            accepted
        });
        tokio::spawn(async move { server.rest(patient.await, None) });
        assert_eq!(scene.edge().await.1.peer_addr().unwrap(), port);
    }

    #[tokio::test]
    async fn a_connection_that_the_other_end_closed_is_not_used_again() {
        let mut scene = Scene::new().await;
        let (dialled, accepted) = scene.edge().await;
        let port = accepted.peer_addr().unwrap();
        drop(accepted);
        dialled.readable().await.unwrap();
        scene.client.rest(dialled, Some(&scene.address));
        assert_ne!(scene.edge().await.1.peer_addr().unwrap(), port);
    }

    /// A greeting whose key nobody awaits.
    async fn strange(scene: &Scene, key: u8) -> TcpStream {
        let key = EdgeKey([key; 16]);
        let greeting = Greeting { direction: Direction::Receive, job: JobId(1), epoch: Epoch(1), key };
        dial(&scene.address, &greeting).await.unwrap()
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
        let mut accepted = scene.server.expect(EdgeKey([1; 16]), Direction::Receive).await.unwrap();
        accepted.write_all(b"x").await.unwrap();
        assert_eq!(dialled.read_u8().await.unwrap(), b'x');
        assert!(scene.server.table().early.is_empty());
    }

    #[tokio::test]
    async fn early_connections_that_are_closed_are_gone_at_once() {
        let scene = Scene::new().await;
        let dialled = [strange(&scene, 1).await, strange(&scene, 2).await];
        until("they wait", || scene.server.table().early.len() == 2).await;
        drop(dialled);
        until("they are gone", || {
            let table = scene.server.table();
            table.early.is_empty() && table.strangers.is_empty()
        })
        .await;
    }

    #[tokio::test]
    async fn an_early_connection_is_closed_by_a_timer_with_nothing_sent() {
        let scene = Scene::new().await;
        let mut dialled = strange(&scene, 1).await;
        let read = timeout(Duration::from_secs(60), dialled.read(&mut [0])).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
        assert!(scene.server.table().strangers.is_empty());
    }

    #[tokio::test]
    async fn more_strangers_than_there_is_room_for_take_the_places_of_the_oldest() {
        let scene = Scene::new().await;
        let limit = strangers::limit(USUAL_DESCRIPTORS) / 2; // All are from one address.
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
