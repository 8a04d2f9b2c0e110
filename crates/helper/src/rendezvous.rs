//! Where edges meet: the data port, connections that wait for the task they belong to, and connections that
//! rest between two edges.
//!
//! The coordinator sends all tasks at once, so a neighbour may dial before our own task has come. A
//! connection whose key nobody awaits is kept for a while, in bounded number, and closed after that.
//!
//! A connection carries one edge after another: when an edge is complete, whoever dialled keeps the connection
//! for its next edge from the same address, and the other end waits for the next greeting on it. What fails or
//! is stopped is closed, never kept.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use repair::EdgeKey;
use repair::wire::edge::{Direction, GREETING_BYTES, Greeting};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

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
}

#[derive(Debug, Default)]
struct Table {
    awaited: BTreeMap<EdgeKey, (Direction, oneshot::Sender<TcpStream>)>,
    early: BTreeMap<EdgeKey, (Direction, TcpStream, Instant)>,
    /// Connections that we dialled, by address, the one that rests the shortest last.
    resting: BTreeMap<String, Vec<(std::net::TcpStream, Instant)>>,
    /// The runtime that listens.
    listener: Option<Handle>,
}

impl Rendezvous {
    /// Takes connections from `listener` until it is dropped with its task.
    pub async fn listen(self, listener: TcpListener) {
        self.table.lock().expect("no holder panics").listener = Some(Handle::current());
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let rendezvous = self.clone();
                    tokio::spawn(async move {
                        if let Err(error) = rendezvous.greet(stream, GREETING_LIMIT).await {
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

    /// The connection that will come with `key`; `direction` is what its dialler must say.
    pub fn expect(&self, key: EdgeKey, direction: Direction) -> oneshot::Receiver<TcpStream> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.table.lock().expect("no holder panics");
        match table.early.remove(&key) {
            Some((found, stream, _)) if found == direction => {
                let _ = sender.send(stream); // The receiver is in our hands.
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
        dial(&address, &greeting).await
    }

    fn take_resting(&self, address: &str) -> Option<std::net::TcpStream> {
        let mut table = self.table.lock().expect("no holder panics");
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
        let mut table = self.table.lock().expect("no holder panics");
        match (dialled, table.listener.clone()) {
            (Some(address), _) => table.rest(stream, address),
            (None, Some(listener)) => {
                let rendezvous = self.clone();
                listener.spawn(async move {
                    // That nobody uses it again is no fault.
                    rendezvous.greet(TcpStream::from_std(stream)?, NEXT_GREETING_LIMIT).await
                });
            }
            (None, None) => {}
        }
    }

    async fn greet(&self, mut stream: TcpStream, limit: Duration) -> io::Result<()> {
        let mut bytes = [0; GREETING_BYTES];
        tokio::time::timeout(limit, stream.read_exact(&mut bytes)).await??;
        let greeting = Greeting::decode(&bytes).map_err(io::Error::other)?;
        stream.set_nodelay(true)?;
        self.meet(greeting, stream)
    }

    fn meet(&self, greeting: Greeting, stream: TcpStream) -> io::Result<()> {
        let mut table = self.table.lock().expect("no holder panics");
        if let Some((direction, waiting)) = table.awaited.remove(&greeting.key) {
            if direction != greeting.direction {
                return Err(io::Error::other("the edge runs the other way"));
            }
            return waiting.send(stream).map_err(|_| io::Error::other("the task is gone"));
        }
        let now = Instant::now();
        table.early.retain(|_, (_, _, since)| *since + EARLY_LIMIT > now);
        if table.early.len() >= MAX_EARLY {
            return Err(io::Error::other("too many connections wait for their tasks"));
        }
        table.early.insert(greeting.key, (greeting.direction, stream, now));
        Ok(())
    }
}

impl Table {
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
}
