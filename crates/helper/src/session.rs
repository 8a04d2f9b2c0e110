//! The standing connection to the coordinator: mutual TLS, one message after another in both directions.

use std::io;

use cluster::{Address, Identity, Role};
use repair::NodeId;
use repair::wire::control::{self, ControlError, FromNode, ToNode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Messages to the coordinator; anybody who reports something has a sender.
pub type Outgoing = mpsc::UnboundedReceiver<FromNode>;

/// Messages from the coordinator, in order; ends when the connection does.
pub type Incoming = mpsc::UnboundedReceiver<ToNode>;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there, or the way is blocked.
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
    #[error("the coordinator refuses: {0}")]
    Refused(String),
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
    /// Connects, registers with `hello`, and from then on sends what comes out of `outgoing`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn open(
        address: &Address,
        identity: &Identity,
        hello: FromNode,
        outgoing: Outgoing,
    ) -> Result<Self, ConnectError> {
        let stream = connect(address, identity).await?;
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = BufReader::with_capacity(64 << 10, reader);
        let untrusted = |source| ConnectError::Untrusted { address: address.clone(), source };
        writer.write_all(&control::encode(&hello)).await.map_err(untrusted)?;
        writer.flush().await.map_err(untrusted)?;
        // With TLS 1.3 the server judges our certificate after we consider the handshake done.
        let node = match receive(&mut reader).await {
            Ok(ToNode::Registered { node }) => node,
            Ok(ToNode::Refused { reason }) => return Err(ConnectError::Refused(reason)),
            Ok(other) => {
                let detail = format!("{other:?} instead of an answer to our registration");
                return Err(ConnectError::Protocol { address: address.clone(), detail });
            }
            Err(ReceiveError::Io(source)) => return Err(untrusted(source)),
            Err(ReceiveError::Message(error)) => {
                return Err(ConnectError::Protocol { address: address.clone(), detail: error.to_string() });
            }
        };
        let (sender, incoming) = mpsc::unbounded_channel();
        tokio::spawn(write_all(writer, outgoing));
        tokio::spawn(read_all(reader, sender));
        Ok(Self { node, incoming })
    }
}

async fn connect(address: &Address, identity: &Identity) -> Result<TlsStream<TcpStream>, ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { address: address.clone(), source };
    let stream = TcpStream::connect(address.to_string()).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    TlsConnector::from(identity.client_config())
        .connect(Role::Coordinator.server_name(), stream)
        .await
        .map_err(|source| ConnectError::Untrusted { address: address.clone(), source })
}

enum ReceiveError {
    Io(io::Error),
    Message(ControlError),
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

async fn receive(reader: &mut BufReader<ReadHalf<TlsStream<TcpStream>>>) -> Result<ToNode, ReceiveError> {
    let mut length = [0; 4];
    reader.read_exact(&mut length).await?;
    let mut message = vec![0; control::decode_length(length).map_err(ReceiveError::Message)?];
    reader.read_exact(&mut message).await?;
    control::decode(&message).map_err(ReceiveError::Message)
}

async fn read_all(
    mut reader: BufReader<ReadHalf<TlsStream<TcpStream>>>,
    incoming: mpsc::UnboundedSender<ToNode>,
) {
    loop {
        match receive(&mut reader).await {
            Ok(message) => {
                if incoming.send(message).is_err() {
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
async fn write_all(mut writer: WriteHalf<TlsStream<TcpStream>>, mut outgoing: Outgoing) {
    while let Some(message) = outgoing.recv().await {
        let mut bytes = control::encode(&message);
        while let Ok(next) = outgoing.try_recv() {
            bytes.extend(control::encode(&next));
        }
        if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await; // The coordinator sees the end either way.
}
