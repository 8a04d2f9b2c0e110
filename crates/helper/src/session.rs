//! The standing connection to the coordinator: messages in both directions over mutual TLS.
//!
//! Every read has a time limit. A write without one ends when the read that runs at the same time fails. The
//! coordinator pings every second once the handshake is complete, even while its core is busy and has not yet
//! answered the registration. A coordinator that stays silent for [`SILENCE_LIMIT`] is considered lost, even
//! if the connection was never closed: its machine may have lost power, or the network may be cut.

use std::future::Future;
use std::io;
use std::time::Duration;

use cluster::{Address, Distrust, Identity, Role, is_certificate_refused};
use repair::NodeId;
use repair::wire::control::{self, ControlError, FromNode, ToNode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::outbox::Outgoing;

/// Messages from the coordinator, in order; the channel closes with the connection.
pub type Incoming = mpsc::Receiver<ToNode>;

/// The number of incoming messages buffered here; further ones wait in the connection.
const MAX_INCOMING: usize = 256;

/// The time limit for connecting and the handshake together. A user at a terminal gets an answer within five
/// seconds.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(4);
/// How long the coordinator may stay silent; it pings every second.
const SILENCE_LIMIT: Duration = Duration::from_secs(6);
/// How long the coordinator has to close the connection after our last message.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// The size of a read in bytes.
const READ_BYTES: usize = 64 << 10;
/// Queued messages are combined into one write up to this size in bytes.
const WRITE_BYTES: usize = 64 << 10;

/// Why a session could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The coordinator is not running, unreachable, or does not answer. A later attempt may succeed.
    #[error("cannot reach the coordinator at {address}: {source}; is `mend coordinator` running?")]
    Unreachable {
        /// The coordinator's address.
        address: Address,
        /// The error reported by the system.
        source: io::Error,
    },
    /// The other end is not this cluster's coordinator, or rejects our certificate.
    #[error("{address} {distrust}: {source}")]
    Untrusted {
        /// The address that was dialled.
        address: Address,
        /// The reason.
        distrust: Distrust,
        /// The error reported by TLS.
        source: io::Error,
    },
    /// The coordinator refuses the registration.
    #[error("the coordinator refuses the registration: {reason}")]
    Refused {
        /// The coordinator's reason.
        reason: String,
        /// Whether a retry in a few seconds may succeed, according to the coordinator.
        passing: bool,
    },
    /// The other end does not speak our protocol.
    #[error("the coordinator at {address} does not speak our protocol: {detail}")]
    Protocol {
        /// The address that was dialled.
        address: Address,
        /// The unexpected message or error.
        detail: String,
    },
}

/// A registered connection.
#[derive(Debug)]
pub struct Session {
    /// The id that the coordinator assigned to this node.
    pub node: NodeId,
    /// Messages from the coordinator.
    pub incoming: Incoming,
}

impl Session {
    /// Connects and registers with the messages of `hello`; from then on sends the messages from `outgoing`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn open(
        address: &Address,
        identity: &Identity,
        hello: Vec<FromNode>,
        outgoing: Outgoing,
    ) -> Result<Self, ConnectError> {
        let stream = timeout(CONNECT_LIMIT, connect(address, identity))
            .await
            .unwrap_or_else(|_| Err(failed(address, identity, silent(CONNECT_LIMIT))))?;
        let (reader, writer) = tokio::io::split(stream);
        let mut reader = Reader { stream: reader, buffer: Vec::new() };
        let (node, writer) = register(&mut reader, writer, hello).await.map_err(|end| match end {
            End::Io(source) => failed(address, identity, source),
            End::Refused { reason, passing } => ConnectError::Refused { reason, passing },
            End::Message(error) => protocol(address, error.to_string()),
            End::Other(message) => {
                protocol(address, format!("it answered our registration with {message:?}"))
            }
        })?;
        let (sender, incoming) = mpsc::channel(MAX_INCOMING);
        tokio::spawn(converse(reader, writer, sender, outgoing));
        Ok(Self { node, incoming })
    }
}

/// Presents our current certificate to the coordinator, on a connection that ends after the handshake.
pub(crate) async fn show_certificate(address: &Address, identity: &Identity) -> Result<(), ConnectError> {
    let shown = timeout(CONNECT_LIMIT, connect(address, identity)).await;
    let mut stream = shown.unwrap_or_else(|_| Err(failed(address, identity, silent(CONNECT_LIMIT))))?;
    patient(stream.shutdown()).await.map_err(|source| failed(address, identity, source))
}

/// Why a connection did not become a session.
enum End {
    Io(io::Error),
    Message(ControlError),
    Refused { reason: String, passing: bool },
    Other(Box<ToNode>),
}

impl From<ReceiveError> for End {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Io(error) => Self::Io(error),
            ReceiveError::Message(error) => Self::Message(error),
        }
    }
}

/// Classifies the failure of a connection or handshake.
fn failed(address: &Address, identity: &Identity, source: io::Error) -> ConnectError {
    let address = address.clone();
    match is_certificate_refused(&source) {
        true => ConnectError::Untrusted { address, distrust: identity.distrust(&source), source },
        false => ConnectError::Unreachable { address, source },
    }
}

fn protocol(address: &Address, detail: String) -> ConnectError {
    ConnectError::Protocol { address: address.clone(), detail }
}

fn silent(limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("it has not answered for {} s", limit.as_secs()))
}

async fn connect(address: &Address, identity: &Identity) -> Result<TlsStream<TcpStream>, ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { address: address.clone(), source };
    let stream = TcpStream::connect(address.to_string()).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    TlsConnector::from(identity.client_config())
        .connect(Role::Coordinator.server_name(), stream)
        .await
        .map_err(|source| failed(address, identity, source))
}

type Writer = WriteHalf<TlsStream<TcpStream>>;

/// Sends the registration and waits for the answer, as long as the coordinator gives signs of life.
async fn register(
    reader: &mut Reader,
    mut writer: Writer,
    hello: Vec<FromNode>,
) -> Result<(NodeId, Writer), End> {
    let free = match hello.first() {
        Some(FromNode::RegisterHelper { free_bytes, .. }) => *free_bytes,
        _ => 0,
    };
    // Sending a long registration takes time, and so may the answer; pings arrive in the meantime.
    let saying = async move {
        for message in &hello {
            writer.write_all(&control::encode(message)).await?;
        }
        writer.flush().await?;
        Ok::<_, io::Error>(writer)
    };
    tokio::pin!(saying);
    let mut said: Option<Writer> = None;
    loop {
        let message = tokio::select! {
            writer = &mut saying, if said.is_none() => match writer {
                Ok(writer) => {
                    said = Some(writer);
                    continue;
                }
                // The cause, such as a refusal, may be waiting to be read.
                Err(error) => reader.next().await.map_err(|_| End::Io(error))?,
            },
            message = reader.next() => message?,
        };
        match (message, &mut said) {
            (ToNode::Registered { node }, said) => {
                let writer = said.take().ok_or_else(|| End::Other(Box::new(ToNode::Registered { node })))?;
                return Ok((node, writer));
            }
            (ToNode::Refused { reason, passing }, _) => return Err(End::Refused { reason, passing }),
            (ToNode::Ping, Some(writer)) => {
                let pong =
                    control::encode(&FromNode::Pong { free_bytes: free, tasks: 0, write_problem: None });
                let answering = async {
                    writer.write_all(&pong).await?;
                    writer.flush().await
                };
                patient(answering).await.map_err(End::Io)?;
            }
            (ToNode::Ping, None) => {}
            (other, _) => return Err(End::Other(Box::new(other))),
        }
    }
}

async fn patient<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(SILENCE_LIMIT, work).await.unwrap_or_else(|_| Err(silent(SILENCE_LIMIT)))
}

enum ReceiveError {
    Io(io::Error),
    Message(ControlError),
}

/// Decodes messages from a byte stream. [`next`](Self::next) is cancel-safe.
struct Reader {
    stream: ReadHalf<TlsStream<TcpStream>>,
    buffer: Vec<u8>,
}

impl Reader {
    /// Waits for the next message. Every received byte counts as a sign of life.
    async fn next(&mut self) -> Result<ToNode, ReceiveError> {
        loop {
            if let Some(message) = self.take().map_err(ReceiveError::Message)? {
                return Ok(message);
            }
            self.buffer.reserve(READ_BYTES);
            match patient(self.stream.read_buf(&mut self.buffer)).await {
                Ok(0) => return Err(ReceiveError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(ReceiveError::Io(error)),
            }
        }
    }

    /// Decodes a message if it is completely buffered.
    fn take(&mut self) -> Result<Option<ToNode>, ControlError> {
        let Some((length, rest)) = self.buffer.split_first_chunk::<4>() else { return Ok(None) };
        let length = control::decode_length(*length)?;
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let message = control::decode(message)?;
        self.buffer.drain(..4 + length);
        Ok(Some(message))
    }
}

/// Transfers messages in both directions until one direction ends; then closes the connection.
async fn converse(reader: Reader, writer: Writer, incoming: mpsc::Sender<ToNode>, outgoing: Outgoing) {
    let reading = read_all(reader, incoming);
    tokio::pin!(reading);
    tokio::select! {
        () = &mut reading => {}
        done = write_all(writer, outgoing) => {
            if done.is_ok() {
                // Closing with unread pings would reset the connection and lose our last message.
                let _ = timeout(FAREWELL_LIMIT, reading).await;
            }
        }
    }
}

async fn read_all(mut reader: Reader, incoming: mpsc::Sender<ToNode>) {
    loop {
        match reader.next().await {
            Ok(message) => {
                if incoming.send(message).await.is_err() {
                    return;
                }
            }
            Err(ReceiveError::Io(error)) => {
                tracing::debug!(%error, "the connection to the coordinator ended");
                return;
            }
            Err(ReceiveError::Message(error)) => {
                tracing::error!(%error, "dropping the connection to the coordinator");
                return;
            }
        }
    }
}

/// Writes all queued messages at once, then flushes, so that a burst of reports needs a single TLS record
/// rather than one per report.
async fn write_all(mut writer: Writer, mut outgoing: Outgoing) -> io::Result<()> {
    while let Some(message) = outgoing.recv().await {
        let mut bytes = control::encode(&message);
        while bytes.len() < WRITE_BYTES
            && let Some(next) = outgoing.try_recv()
        {
            bytes.extend(control::encode(&next));
        }
        // This write has no time limit: a coordinator that reads slowly is alive as long as it pings, which
        // the reader checks.
        writer.write_all(&bytes).await?;
        writer.flush().await?;
    }
    patient(writer.shutdown()).await
}
