//! Control connections: mutual TLS, registration, pings, and messages in both directions.
//!
//! Who somebody is comes from its certificate only. A connection is one task that reads and one that writes;
//! both end together. Nothing is decided here but whether a connection lives: what messages mean is the
//! core's business.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cluster::{Cluster, Name, Role, peer_role};
use repair::wire::control::{self, ControlError, FromNode, ToNode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::core::{ConnectionId, Event, OUTBOX_MESSAGES};

/// How long a handshake may take.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// A client's first message is no longer; a helper's carries its inventory.
const CLIENT_HELLO_BYTES: usize = 64 << 10;
const PING_EVERY: Duration = Duration::from_secs(1);
/// A node that says nothing for so long is lost.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// How long a refused node has to read why.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// Bytes of a message that are waited for at a time; memory is taken only as they come.
const READ_STEP_BYTES: usize = 1 << 20;

type Stream = TlsStream<TcpStream>;

/// Accepts control connections.
pub(crate) struct ControlServer {
    pub listener: TcpListener,
    pub tls: Arc<ServerConfig>,
    pub cluster: Cluster,
    pub events: mpsc::Sender<Event>,
}

/// What every connection needs.
struct Shared {
    tls: TlsAcceptor,
    cluster: Cluster,
    events: mpsc::Sender<Event>,
    next_connection: AtomicU64,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum EndReason {
    #[error("it closed the connection")]
    Closed,
    #[error("it said nothing for {} s", SILENCE_LIMIT.as_secs())]
    Silent,
    #[error("{0}")]
    Io(io::Error),
    #[error(transparent)]
    Message(#[from] ControlError),
    #[error("its first message has more than {CLIENT_HELLO_BYTES} bytes")]
    LongHello,
    #[error("the coordinator dropped it")]
    Dropped,
}

impl From<io::Error> for EndReason {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl ControlServer {
    /// Serves until it is dropped, and all its connections with it.
    pub(crate) async fn serve(self) {
        let shared = Arc::new(Shared {
            tls: TlsAcceptor::from(self.tls),
            cluster: self.cluster,
            events: self.events,
            next_connection: AtomicU64::new(1),
        });
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((socket, address)) => {
                        connections.spawn(shared.clone().connection(socket, address));
                    }
                    Err(error) => pause_after(error).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// Out of file descriptors, most likely: others will close theirs.
pub(crate) async fn pause_after(error: io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(200)).await;
}

impl Shared {
    async fn connection(self: Arc<Self>, socket: TcpStream, address: SocketAddr) {
        let _ = socket.set_nodelay(true); // Slower, but right, without it.
        let stream = match timeout(HANDSHAKE_LIMIT, self.tls.accept(socket)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::warn!(%address, %error, "refused a control connection"),
            Err(_) => return tracing::warn!(%address, "a handshake took too long"),
        };
        let role = stream.get_ref().1.peer_certificates().and_then(peer_role);
        let (reader, writer) = tokio::io::split(stream);
        let Some(role) = role else {
            return refuse(writer, "its certificate is no helper's and no client's").await;
        };
        self.registered(role, address, BufReader::with_capacity(64 << 10, reader), writer).await;
    }

    async fn registered(
        &self,
        role: Role,
        address: SocketAddr,
        mut reader: BufReader<ReadHalf<Stream>>,
        writer: WriteHalf<Stream>,
    ) {
        let cluster = self.reread_cluster();
        if let Role::Helper(name) = &role
            && let Some(reason) = unknown_helper(&cluster, name)
        {
            return refuse(writer, &reason).await;
        }
        if cluster.config().encrypts_data_edges() && self.events.send(Event::EncryptEdges).await.is_err() {
            return; // The coordinator is stopping.
        }
        let limit = match &role {
            Role::Helper(_) => control::MAX_MESSAGE_BYTES as usize,
            _ => CLIENT_HELLO_BYTES,
        };
        let hello = match read_message(&mut reader, limit).await {
            Ok(hello) => hello,
            Err(error) => return refuse(writer, &format!("no registration: {error}")).await,
        };
        let connection = ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed));
        let (outbox, messages) = mpsc::channel(OUTBOX_MESSAGES);
        let joined = Event::Joined { connection, role: role.clone(), hello: Box::new(hello), outbox };
        if self.events.send(joined).await.is_err() {
            return; // The coordinator is stopping.
        }
        let why = self.converse(connection, reader, writer, messages).await;
        tracing::debug!(%role, %address, %why, "a control connection ended");
        let _ = self.events.send(Event::Left { connection, why: why.to_string() }).await; // It may be stopping.
    }

    /// The cluster's configuration as it is now.
    fn reread_cluster(&self) -> Cluster {
        Cluster::open(self.cluster.folder()).unwrap_or_else(|error| {
            // Those that were known at the start are known still.
            tracing::warn!(%error, "cannot read the cluster's configuration again");
            self.cluster.clone()
        })
    }

    async fn converse(
        &self,
        connection: ConnectionId,
        reader: BufReader<ReadHalf<Stream>>,
        writer: WriteHalf<Stream>,
        messages: mpsc::Receiver<ToNode>,
    ) -> EndReason {
        let reading = self.read_all(connection, reader);
        tokio::pin!(reading);
        tokio::select! {
            why = &mut reading => why,
            written = write_all(writer, messages) => match written {
                Ok(()) => {
                    let _ = timeout(FAREWELL_LIMIT, reading).await;
                    EndReason::Dropped
                }
                Err(why) => why,
            },
        }
    }

    async fn read_all(&self, connection: ConnectionId, mut reader: BufReader<ReadHalf<Stream>>) -> EndReason {
        loop {
            let message = match read_message(&mut reader, control::MAX_MESSAGE_BYTES as usize).await {
                Ok(message) => Box::new(message),
                Err(why) => return why,
            };
            if self.events.send(Event::Said { connection, message }).await.is_err() {
                return EndReason::Dropped;
            }
        }
    }
}

/// Why a helper of this name is not taken, if it is not in the cluster's configuration.
fn unknown_helper(cluster: &Cluster, name: &Name) -> Option<String> {
    if cluster.config().helper(name).is_some() {
        return None;
    }
    let path = cluster.config_path();
    Some(format!(
        "helper {name} is not in the coordinator's {}; add it there with `mend helper add`",
        path.display()
    ))
}

async fn read_message(reader: &mut BufReader<ReadHalf<Stream>>, limit: usize) -> Result<FromNode, EndReason> {
    let mut length = [0; 4];
    patient(reader.read_exact(&mut length)).await?;
    let length = control::decode_length(length)?;
    if length > limit {
        return Err(EndReason::LongHello);
    }
    let mut message = Vec::new();
    while message.len() < length {
        let start = message.len();
        message.resize(length.min(start + READ_STEP_BYTES), 0);
        patient(reader.read_exact(&mut message[start..])).await?;
    }
    Ok(control::decode(&message)?)
}

/// Writes what there is in one go, then flushes; pings in between.
async fn write_all(
    mut writer: WriteHalf<Stream>,
    mut messages: mpsc::Receiver<ToNode>,
) -> Result<(), EndReason> {
    let mut pings = interval(PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset(); // Registration is answered first.
    loop {
        let mut bytes = tokio::select! {
            message = messages.recv() => match message {
                Some(message) => control::encode(&message),
                None => break,
            },
            _ = pings.tick() => control::encode(&ToNode::Ping),
        };
        while let Ok(next) = messages.try_recv() {
            bytes.extend(control::encode(&next));
        }
        patient(writer.write_all(&bytes)).await?;
        patient(writer.flush()).await?;
    }
    patient(writer.shutdown()).await
}

async fn refuse(mut writer: WriteHalf<Stream>, reason: &str) {
    tracing::warn!(reason, "refused a control connection");
    let message = control::encode(&ToNode::Refused { reason: reason.to_owned() });
    if patient(writer.write_all(&message)).await.is_ok() {
        let _ = patient(writer.shutdown()).await;
    }
}

async fn patient<T>(work: impl Future<Output = io::Result<T>>) -> Result<T, EndReason> {
    match timeout(SILENCE_LIMIT, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(EndReason::Silent),
    }
}
