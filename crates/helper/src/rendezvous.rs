//! Where edges meet: the data port, connections that wait for the task they belong to, and connections that
//! rest between two edges.
//!
//! The coordinator sends all tasks at once, so a neighbour may dial before our own task has come. A
//! connection whose key nobody awaits is kept for a while, in bounded number, and closed after that.
//!
//! A connection carries one edge after another: when an edge is complete, whoever dialled keeps the connection
//! for its next edge from the same address, and the other end waits for the next greeting on it. What fails or
//! is stopped is closed, never kept.
//!
//! An encrypted edge has terms beyond its key: the certificate of the other end. A connection that does not meet them
//! is refused, and the edge goes on waiting for the one that does.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::Identity;
use repair::EdgeKey;
use repair::wire::edge::{Direction, Greeting};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::secure::{self, Security};
use crate::stream::{EdgeStream, Resting};

/// A connection must show its key within this time.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// A connection waits this long for its task.
const EARLY_LIMIT: Duration = Duration::from_secs(10);
/// No more connections wait for their tasks at once.
const MAX_EARLY: usize = 4096;
/// The dialling end uses a connection that has rested for less than this; the other end waits longer, so that
/// it is not the one to close a connection that is just being used again.
const REST_LIMIT: Duration = Duration::from_secs(30);
const NEXT_GREETING_LIMIT: Duration = Duration::from_secs(60);
/// No more connections rest at once.
const MAX_RESTING: usize = 256;

/// Brings dialled-in connections and the tasks that await them together, by key.
#[derive(Clone, Debug, Default)]
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

#[derive(Debug, Default)]
struct Table {
    awaited: BTreeMap<EdgeKey, (Terms, oneshot::Sender<EdgeStream>)>,
    early: BTreeMap<EdgeKey, (Terms, EdgeStream, Instant)>,
    /// Connections that we dialled, the one that rests the shortest last.
    resting: BTreeMap<FarEnd, Vec<(Resting, Instant)>>,
    /// The runtime that listens.
    listener: Option<Handle>,
}

impl Rendezvous {
    /// One that can encrypt edges as `identity`, and refuses plain ones if `refuses_plain`. The default takes plain
    /// edges only.
    pub fn secured(identity: &Identity, refuses_plain: bool) -> Self {
        Self { table: Arc::default(), security: Some(Security::new(identity, refuses_plain)) }
    }

    /// Whether plain edges are refused.
    pub(crate) fn refuses_plain(&self) -> bool {
        self.security.as_ref().is_some_and(|security| security.refuses_plain)
    }

    /// Takes connections from `listener` until it is dropped with its task.
    pub async fn listen(self, listener: TcpListener) {
        self.table.lock().expect("no holder panics").listener = Some(Handle::current());
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let rendezvous = self.clone();
                    tokio::spawn(async move {
                        if let Err(error) = rendezvous.take(stream).await {
                            tracing::debug!(%peer, %error, "a data connection was refused");
                        }
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely; those in use will come back.
                    tracing::warn!(%error, "cannot take a data connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// The connection that will come with `key` and meet `terms`.
    pub(crate) fn expect(&self, key: EdgeKey, terms: Terms) -> oneshot::Receiver<EdgeStream> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table.lock().expect("no holder panics");
        match table.early.remove(&key) {
            Some((found, stream, _)) if found == terms => {
                let _ = sender.send(stream); // The receiver is in our hands.
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
        let (address, tls_name) = far_end;
        let mut stream = secure::dial(self.security.as_ref(), &address, tls_name.as_deref()).await?;
        stream.write_greeting(&greeting).await?;
        Ok(stream)
    }

    fn take_resting(&self, far_end: &FarEnd) -> Option<Resting> {
        let mut table = self.table.lock().expect("no holder panics");
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
        let mut table = self.table.lock().expect("no holder panics");
        match (dialled, table.listener.clone()) {
            (Some(address), _) => table.rest(stream, (address.to_owned(), tls_name)),
            (None, Some(listener)) => {
                let rendezvous = self.clone();
                listener.spawn(async move {
                    // That nobody uses it again is no fault.
                    rendezvous.greet(stream.wake()?, NEXT_GREETING_LIMIT).await
                });
            }
            (None, None) => {}
        }
    }

    /// Takes a new connection.
    async fn take(&self, tcp: TcpStream) -> io::Result<()> {
        let accepted = secure::accept(self.security.as_ref(), tcp);
        let stream = tokio::time::timeout(GREETING_LIMIT, accepted).await??;
        self.greet(stream, GREETING_LIMIT).await
    }

    async fn greet(&self, mut stream: EdgeStream, limit: Duration) -> io::Result<()> {
        let bytes = tokio::time::timeout(limit, stream.read_greeting()).await??;
        let greeting = Greeting::decode(&bytes).map_err(io::Error::other)?;
        self.meet(greeting, stream)
    }

    fn meet(&self, greeting: Greeting, stream: EdgeStream) -> io::Result<()> {
        let found = Terms { direction: greeting.direction, tls_name: stream.tls_name().map(str::to_owned) };
        let mut table = self.table.lock().expect("no holder panics");
        if let Some((terms, _)) = table.awaited.get(&greeting.key)
            && *terms != found
        {
            return Err(io::Error::other(format!("the edge is for {terms:?}, and this is {found:?}")));
        }
        if let Some((_, waiting)) = table.awaited.remove(&greeting.key) {
            return waiting.send(stream).map_err(|_| io::Error::other("the task is gone"));
        }
        let now = Instant::now();
        table.early.retain(|_, (_, _, since)| *since + EARLY_LIMIT > now);
        if table.early.len() >= MAX_EARLY {
            return Err(io::Error::other("too many connections wait for their tasks"));
        }
        table.early.insert(greeting.key, (found, stream, now));
        Ok(())
    }
}

impl Table {
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
        async fn edge(&mut self) -> (EdgeStream, EdgeStream) {
            self.next += 1;
            let key = EdgeKey([self.next; 16]);
            let greeting = Greeting { direction: Direction::Receive, job: JobId(1), epoch: Epoch(1), key };
            let terms = Terms { direction: Direction::Receive, tls_name: None };
            let accepted = self.server.expect(key, terms);
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
}
