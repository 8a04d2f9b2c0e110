//! Where edges meet: the data port, and connections that wait for the task they belong to.
//!
//! The coordinator sends all tasks at once, so a neighbour may dial before our own task has come. A
//! connection whose key nobody awaits is kept for a while, in bounded number, and closed after that.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use repair::EdgeKey;
use repair::wire::edge::{Direction, GREETING_BYTES, Greeting};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A connection must show its key within this time.
const GREETING_LIMIT: Duration = Duration::from_secs(5);
/// A connection waits this long for its task.
const EARLY_LIMIT: Duration = Duration::from_secs(10);
/// No more connections wait for their tasks at once.
const MAX_EARLY: usize = 4096;

/// Brings dialled-in connections and the tasks that await them together, by key.
#[derive(Clone, Debug, Default)]
pub struct Rendezvous {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    awaited: BTreeMap<EdgeKey, (Direction, oneshot::Sender<TcpStream>)>,
    early: BTreeMap<EdgeKey, (Direction, TcpStream, Instant)>,
}

impl Rendezvous {
    /// Takes connections from `listener` until it is dropped with its task.
    pub async fn listen(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let rendezvous = self.clone();
                    tokio::spawn(async move {
                        if let Err(error) = rendezvous.greet(stream).await {
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

    async fn greet(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut bytes = [0; GREETING_BYTES];
        tokio::time::timeout(GREETING_LIMIT, stream.read_exact(&mut bytes)).await??;
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

/// Dials the other end of an edge and presents the key.
pub(crate) async fn dial(address: String, greeting: Greeting) -> io::Result<TcpStream> {
    use tokio::io::AsyncWriteExt;
    let mut stream = TcpStream::connect(&address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("cannot reach {address}: {error}")))?;
    stream.set_nodelay(true)?;
    stream.write_all(&greeting.encode()).await?;
    Ok(stream)
}

/// Binds the data port.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}
