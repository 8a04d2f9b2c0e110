//! The standing connection to the coordinator: mutual TLS, one message after another in both directions.
//!
//! Nothing here waits without a limit. The coordinator pings every second from the moment the handshake is done, also
//! while its core is busy and has not answered a registration yet; so a coordinator that says nothing for
//! [`SILENCE_LIMIT`] is gone, though the connection never closed: its machine lost power, or the network is cut.

use std::future::Future;
use std::io;
use std::time::Duration;

use cluster::{Address, Identity, Role, is_certificate_refused};
use repair::NodeId;
use repair::wire::control::{self, ControlError, FromNode, ToNode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::outbox::Outgoing;

/// Messages from the coordinator, in order; ends when the connection does.
pub type Incoming = mpsc::Receiver<ToNode>;

/// So many messages of the coordinator wait for us; more wait in the connection.
const MAX_INCOMING: usize = 256;

/// How long connecting and the handshake may take together. Whoever waits at a terminal is told within five seconds.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(4);
/// A coordinator that says nothing for so long is gone; it pings every second.
const SILENCE_LIMIT: Duration = Duration::from_secs(6);
/// How long the coordinator has to close the connection after our last message.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// What waits is written together until it has so many bytes.
const WRITE_BYTES: usize = 64 << 10;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there, the way is blocked, or whoever is there does not answer. It may be otherwise later.
    #[error("cannot reach the coordinator at {address}: {source}; is `mend coordinator` running?")]
    Unreachable {
        /// Where it should be.
        address: Address,
        /// What the system says.
        source: io::Error,
    },
    /// The other end is not this cluster's coordinator, or does not take our certificate.
    #[error("{address} is not the coordinator of this cluster, or does not accept our certificate: {source}")]
    Untrusted {
        /// Where it was dialled.
        address: Address,
        /// What TLS says.
        source: io::Error,
    },
    /// The coordinator says no.
    #[error("the coordinator refuses: {reason}")]
    Refused {
        /// What it says.
        reason: String,
        /// Whether it says that it may be otherwise in a few seconds.
        passing: bool,
    },
    /// It does not speak our protocol.
    #[error("the coordinator at {address} does not speak our protocol: {detail}")]
    Protocol {
        /// Where it was dialled.
        address: Address,
        /// What came instead.
        detail: String,
    },
}

/// A registered connection.
#[derive(Debug)]
pub struct Session {
    /// Our number.
    pub node: NodeId,
    /// What the coordinator says.
    pub incoming: Incoming,
}

impl Session {
    /// Connects, registers with the messages of `hello`, and from then on sends what comes out of `outgoing`.
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
            .unwrap_or_else(|_| Err(failed(address, silent(CONNECT_LIMIT))))?;
        let (reader, writer) = tokio::io::split(stream);
        let mut reader = Reader { stream: reader, buffer: Vec::new() };
        let (node, writer) = register(&mut reader, writer, hello).await.map_err(|end| match end {
            End::Io(source) => failed(address, source),
            End::Refused { reason, passing } => ConnectError::Refused { reason, passing },
            End::Message(error) => protocol(address, error.to_string()),
            End::Other(message) => {
                protocol(address, format!("{message:?} instead of an answer to our registration"))
            }
        })?;
        let (sender, incoming) = mpsc::channel(MAX_INCOMING);
        tokio::spawn(converse(reader, writer, sender, outgoing));
        Ok(Self { node, incoming })
    }
}

/// Shows the coordinator the certificate that we have now, on a connection that ends with the handshake.
pub(crate) async fn show_certificate(address: &Address, identity: &Identity) -> Result<(), ConnectError> {
    let shown = timeout(CONNECT_LIMIT, connect(address, identity)).await;
    let mut stream = shown.unwrap_or_else(|_| Err(failed(address, silent(CONNECT_LIMIT))))?;
    patient(stream.shutdown()).await.map_err(|source| failed(address, source))
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

/// What a broken connection or handshake means.
fn failed(address: &Address, source: io::Error) -> ConnectError {
    let address = address.clone();
    match is_certificate_refused(&source) {
        true => ConnectError::Untrusted { address, source },
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
        .map_err(|source| failed(address, source))
}

type Writer = WriteHalf<TlsStream<TcpStream>>;

/// Says hello and waits for the answer, for as long as the coordinator shows that it is there.
async fn register(
    reader: &mut Reader,
    mut writer: Writer,
    hello: Vec<FromNode>,
) -> Result<(NodeId, Writer), End> {
    let free = match hello.first() {
        Some(FromNode::RegisterHelper { free_bytes, .. }) => *free_bytes,
        _ => 0,
    };
    // A long hello takes its time, and so may the answer to it: pings come meanwhile.
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
                // What ended it, such as a refusal, may be there to be read.
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
                let pong = control::encode(&FromNode::Pong { free_bytes: free, tasks: 0 });
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

/// Messages out of a stream of bytes. A future of [`next`](Self::next) that is dropped loses nothing.
struct Reader {
    stream: ReadHalf<TlsStream<TcpStream>>,
    buffer: Vec<u8>,
}

impl Reader {
    /// The next message. Any byte shows that the coordinator is there.
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

    /// A message that is here already.
    fn take(&mut self) -> Result<Option<ToNode>, ControlError> {
        let Some((length, rest)) = self.buffer.split_first_chunk::<4>() else { return Ok(None) };
        let length = control::decode_length(*length)?;
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let message = control::decode(message)?;
        self.buffer.drain(..4 + length);
        Ok(Some(message))
    }
}

/// Carries messages both ways until either way ends; then the connection is closed.
async fn converse(reader: Reader, writer: Writer, incoming: mpsc::Sender<ToNode>, outgoing: Outgoing) {
    let reading = read_all(reader, incoming);
    tokio::pin!(reading);
    tokio::select! {
        () = &mut reading => {}
        done = write_all(writer, outgoing) => {
            if done.is_ok() {
                // Closing with unread pings would reset the connection, and our last message with it.
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

/// Writes what there is in one go, then flushes: a burst of reports costs one TLS record, not one each.
async fn write_all(mut writer: Writer, mut outgoing: Outgoing) -> io::Result<()> {
    while let Some(message) = outgoing.recv().await {
        let mut bytes = control::encode(&message);
        while bytes.len() < WRITE_BYTES
            && let Some(next) = outgoing.try_recv()
        {
            bytes.extend(control::encode(&next));
        }
        // A coordinator that reads slowly is there as long as it pings, which the reader watches.
        writer.write_all(&bytes).await?;
        writer.flush().await?;
    }
    patient(writer.shutdown()).await
}
