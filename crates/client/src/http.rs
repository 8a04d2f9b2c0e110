//! HTTP/JSON to the coordinator over mutual TLS, one connection kept between requests.

use std::io;

use bytes::Bytes;
use cluster::{Address, Identity, Role};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ClientError;

/// No answer of the API is longer.
const MAX_ANSWER_BYTES: usize = 1 << 30;

type Sender = SendRequest<Full<Bytes>>;

/// The API's connection.
#[derive(Debug)]
pub(crate) struct Http {
    address: Address,
    identity: Identity,
    idle: Mutex<Option<Sender>>,
}

/// What the API says when it says no.
#[derive(Deserialize)]
struct ErrorBody {
    error: String,
    #[serde(default)]
    next_step: Option<String>,
}

impl Http {
    pub(crate) fn new(address: Address, identity: Identity) -> Self {
        Self { address, identity, idle: Mutex::default() }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.call(Method::GET, path, Bytes::new()).await?;
        self.decode(&answer)
    }

    /// An answer that is no JSON.
    pub(crate) async fn bytes(&self, path: &str) -> Result<Bytes, ClientError> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("our requests are JSON");
        let answer = self.call(Method::POST, path, body.into()).await?;
        self.decode(&answer)
    }

    /// Like [`post`](Self::post), whatever the answer is made of.
    pub(crate) async fn order(&self, method: Method, path: &str) -> Result<(), ClientError> {
        self.call(method, path, Bytes::new()).await.map(drop)
    }

    fn decode<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, ClientError> {
        // An answer without a body is `null` to those who expect nothing.
        let answer = if answer.is_empty() { b"null" } else { answer };
        serde_json::from_slice(answer).map_err(|error| self.protocol(error))
    }

    async fn call(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        let mut sender = self.take().await?;
        let request = request(method, path, body);
        let response = sender.send_request(request).await.map_err(|error| self.lost(error))?;
        let status = response.status();
        let body = self.body(response).await?;
        *self.idle.lock().await = Some(sender);
        if status.is_success() { Ok(body) } else { Err(refusal(status, &body)) }
    }

    /// The kept connection if it is still good, or a new one.
    async fn take(&self) -> Result<Sender, ClientError> {
        let idle = self.idle.lock().await.take();
        if let Some(mut sender) = idle
            && !sender.is_closed()
            && sender.ready().await.is_ok()
        {
            return Ok(sender);
        }
        let stream = TokioIo::new(self.connect().await?);
        let (sender, connection) = handshake(stream).await.map_err(|error| self.lost(error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the API connection ended");
            }
        });
        Ok(sender)
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>, ClientError> {
        let unreachable = |source| ClientError::Unreachable { address: self.address.clone(), source };
        let stream = TcpStream::connect(self.address.to_string()).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        TlsConnector::from(self.identity.client_config())
            .connect(Role::Coordinator.server_name(), stream)
            .await
            .map_err(|source| ClientError::Untrusted { address: self.address.clone(), source })
    }

    async fn body(&self, response: Response<hyper::body::Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        Ok(body.map_err(|error| self.lost(error))?.to_bytes())
    }

    fn lost(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        let error = error.into();
        // With TLS 1.3 the server judges our certificate after we consider the handshake done.
        match root_cause(&*error) {
            Some(alert) if alert.kind() == io::ErrorKind::InvalidData => ClientError::Untrusted {
                address: self.address.clone(),
                source: io::Error::new(alert.kind(), alert.to_string()),
            },
            _ => ClientError::Lost { address: self.address.clone(), detail: chain(&*error) },
        }
    }

    pub(crate) fn protocol(&self, error: impl ToString) -> ClientError {
        ClientError::Protocol { address: self.address.clone(), detail: error.to_string() }
    }
}

fn request(method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, Role::Coordinator.dns_name())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .expect("paths are percent-encoded")
}

fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    let said = serde_json::from_slice(body).unwrap_or_else(|_| ErrorBody {
        error: format!("the coordinator answers {status}: {}", String::from_utf8_lossy(body).trim()),
        next_step: None,
    });
    ClientError::Refused { status: status.as_u16(), message: said.error, next_step: said.next_step }
}

fn root_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
