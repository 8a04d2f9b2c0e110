//! Connections to servers, in plain text or over TLS. Errors distinguish between a server that requires
//! TLS and a failed TLS handshake.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use crate::address::ServerAddress;
use crate::error::{AskError, causes, is_tls};
use crate::security::Security;

/// Timeout for connecting; a server that exceeds it is treated as unreachable.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Interval of keep-alive pings. SeaweedFS closes connections that ping more often than every 20 s.
const PING_EVERY: Duration = Duration::from_secs(25);
const PING_LIMIT: Duration = Duration::from_secs(10);
/// The bytes that a server may send ahead of the reader of one answer. Answers that are read slowly, such as indexes that
/// are compared with those of other servers, must not hold up the others on their connection, so these have no limit in
/// common: the window of the connection is the largest that HTTP/2 allows.
const WINDOW_BYTES: u32 = 1 << 20;
const MAX_WINDOW_BYTES: u32 = (1 << 31) - 1;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Whether a broken connection is re-established automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Reconnect: each request is independent of the others.
    Renewed,
    /// Never reconnect: the requests depend on this connection.
    Once,
}

/// Connects to a server's gRPC port.
pub(crate) async fn connect(
    address: &ServerAddress,
    security: &Security,
    life: Life,
) -> Result<Channel, AskError> {
    let endpoint = Endpoint::from_shared(format!("http://{}", address.grpc()));
    let unreachable = |why: String| AskError::Unreachable { address: address.clone(), why };
    let endpoint = endpoint.map_err(|error| unreachable(causes(&error)))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_LIMIT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(MAX_WINDOW_BYTES)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_LIMIT)
        .keep_alive_while_idle(true);
    let dialer = Dialer::new(address, security, life);
    let connected = tokio::time::timeout(CONNECT_LIMIT, endpoint.connect_with_connector(dialer)).await;
    match connected {
        Ok(Ok(channel)) => answers(address, security).await.map(|()| channel),
        Ok(Err(error)) if security.tls().is_some() && is_tls(&error) => {
            Err(AskError::Tls { address: address.clone(), why: causes(&error) })
        }
        Ok(Err(error)) => Err(unreachable(causes(&error))),
        Err(_) => Err(unreachable(format!("no connection within {} s", CONNECT_LIMIT.as_secs()))),
    }
}

/// Checks that a server answers with HTTP/2, with or without TLS, by sending a preface and reading the reply.
/// The HTTP/2 client itself reports success before it has received any bytes. A server that requires TLS
/// closes a plain connection or sends an alert. A server that rejects our certificate reports that only after
/// our side of the TLS 1.3 handshake is done; a channel that is already reconnecting would hide this error,
/// so the check uses a connection of its own.
async fn answers(address: &ServerAddress, security: &Security) -> Result<(), AskError> {
    const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let unreachable = |why: String| AskError::Unreachable { address: address.clone(), why };
    let is_encrypted = security.tls().is_some();
    let asked = async {
        let mut stream = Dialer::new(address, security, Life::Once).open().await?;
        stream.write_all(HELLO).await?;
        stream.flush().await?;
        let mut answer = [0; 4];
        match stream.read_exact(&mut answer).await {
            Ok(_) => Ok(answer[0] == 0),
            Err(error) if is_encrypted => Err(error),
            Err(_) => Ok(false),
        }
    };
    match tokio::time::timeout(CONNECT_LIMIT, asked).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) if is_encrypted => Err(unreachable("it does not speak HTTP/2".to_owned())),
        Ok(Ok(false)) => Err(AskError::TlsNeeded { address: address.clone() }),
        Ok(Err(error)) if is_encrypted && is_tls(&error) => {
            Err(AskError::Tls { address: address.clone(), why: causes(&error) })
        }
        Ok(Err(error)) => Err(unreachable(causes(&error))),
        Err(_) => Err(unreachable("it accepts connections but sends no answer".to_owned())),
    }
}

/// Opens the connections of one channel.
#[derive(Clone)]
struct Dialer {
    address: ServerAddress,
    tls: Option<TlsConnector>,
    /// For [`Life::Once`]: whether the only connection was already opened.
    spent: Option<Arc<AtomicBool>>,
}

impl Dialer {
    fn new(address: &ServerAddress, security: &Security, life: Life) -> Self {
        Self {
            address: address.clone(),
            tls: security.tls().map(|tls| TlsConnector::from(Arc::clone(tls))),
            spent: (life == Life::Once).then(Arc::default),
        }
    }

    async fn dial(self) -> io::Result<TokioIo<Box<dyn Stream>>> {
        if self.spent.as_ref().is_some_and(|spent| spent.swap(true, Ordering::Relaxed)) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "its connection broke"));
        }
        Ok(TokioIo::new(self.open().await?))
    }

    async fn open(self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(self.address.grpc()).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.address.host().trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

impl tower_service::Service<Uri> for Dialer {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}
