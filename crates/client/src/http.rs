//! HTTP/2 with JSON over mutual TLS; one connection to the coordinator carries all requests.
//!
//! An answer may take long, such as a listing of a hundred thousand stripes. But the client must not wait for
//! a coordinator that has vanished. HTTP/2 has pings, which the coordinator answers even while it is busy, so
//! the timeout applies to pings rather than to answers.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cluster::{Address, Role, is_certificate_refused};
use helper::CONNECT_LIMIT;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use views::endpoints::{self, Endpoint, NoQuery, PathParameter, RequestBody};
use views::{ErrorBody, MAX_ANSWER_BYTES};

use crate::ClientError;
use crate::certificate::{Certificate, Presented};

/// The interval of HTTP/2 pings while an answer is awaited, and the time limit for the reply to a ping.
const PING_EVERY: Duration = Duration::from_secs(1);
const PING_LIMIT: Duration = Duration::from_secs(3);
/// A connection that has been idle for longer than this is not used again; the coordinator closes idle
/// connections after twice this time.
const REST_LIMIT: Duration = Duration::from_secs(15);

/// Interval between attempts to reach an unreachable coordinator.
const DIAL_EVERY: Duration = Duration::from_millis(200);
/// How long to repeat a request while the coordinator answers that it is starting. A start takes up to ten
/// seconds.
const STARTING_LIMIT: Duration = Duration::from_secs(15);
/// Interval between repetitions of a request while the coordinator is starting.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The header of the answer to a change that is in effect, but that the coordinator has not recorded.
const UNRECORDED: &str = "mend-unrecorded";

type Sender = SendRequest<Full<Bytes>>;

/// The connection to the API.
#[derive(Debug)]
pub(crate) struct Http {
    address: Address,
    certificate: Certificate,
    /// How long to keep dialling an unreachable coordinator.
    patience: Duration,
    kept: Mutex<Option<Kept>>,
    /// Whether a change was answered that is not recorded.
    unrecorded: AtomicBool,
}

/// An open connection.
#[derive(Debug)]
struct Kept {
    sender: Sender,
    /// When it was used last.
    used: Instant,
    presented: Presented,
}

impl Http {
    pub(crate) fn new(address: Address, certificate: Certificate, patience: Duration) -> Self {
        Self { address, certificate, patience, kept: Mutex::default(), unrecorded: AtomicBool::default() }
    }

    /// Returns whether a change was answered since the last call that is in effect, but not recorded.
    pub(crate) fn take_unrecorded(&self) -> bool {
        self.unrecorded.swap(false, Ordering::Relaxed)
    }

    /// Calls an endpoint without query and body.
    pub(crate) async fn ask<E>(&self, parameter: E::Parameter) -> Result<E::Answer, ClientError>
    where
        E: Endpoint<Query = NoQuery, Body = ()>,
    {
        self.call::<E>(&parameter, &NoQuery {}, &()).await
    }

    /// Calls an endpoint with a query.
    pub(crate) async fn query<E>(
        &self,
        parameter: E::Parameter,
        query: &E::Query,
    ) -> Result<E::Answer, ClientError>
    where
        E: Endpoint<Body = ()>,
    {
        self.call::<E>(&parameter, query, &()).await
    }

    /// Calls an endpoint with a body.
    pub(crate) async fn send<E>(
        &self,
        parameter: E::Parameter,
        body: &E::Body,
    ) -> Result<E::Answer, ClientError>
    where
        E: Endpoint<Query = NoQuery>,
    {
        self.call::<E>(&parameter, &NoQuery {}, body).await
    }

    /// Calls an endpoint whose answer is not JSON and has any length.
    pub(crate) async fn download<E>(&self) -> Result<hyper::body::Incoming, ClientError>
    where
        E: Endpoint<Parameter = (), Query = NoQuery, Body = ()>,
    {
        let path = uri::<E>(&(), &NoQuery {});
        Ok(self.respond_patiently(method(E::METHOD), &path, Bytes::new()).await?.into_body())
    }

    /// Calls an endpoint whose answer is a stream.
    pub(crate) async fn stream<E>(&self, query: &E::Query) -> Result<hyper::body::Incoming, ClientError>
    where
        E: Endpoint<Parameter = (), Body = ()>,
    {
        let response = self.respond(method(E::METHOD), &uri::<E>(&(), query), Bytes::new()).await?;
        match response.status() {
            status if status.is_success() => Ok(response.into_body()),
            status => Err(refusal(status, &self.body(response).await?)),
        }
    }

    async fn call<E: Endpoint>(
        &self,
        parameter: &E::Parameter,
        query: &E::Query,
        body: &E::Body,
    ) -> Result<E::Answer, ClientError> {
        let body = match E::Body::ABSENT {
            Some(_) => Bytes::new(),
            None => serde_json::to_vec(body).expect("our requests are JSON").into(),
        };
        let path = uri::<E>(parameter, query);
        let response = self.respond_patiently(method(E::METHOD), &path, body).await?;
        let answer = self.body(response).await?;
        if let Some(kept) = &mut *self.kept.lock().await {
            kept.used = Instant::now();
        }
        self.decode(&answer)
    }

    fn decode<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, ClientError> {
        // An empty response is equivalent to the JSON value `null`.
        let answer = if answer.is_empty() { b"null" } else { answer };
        serde_json::from_slice(answer).map_err(|error| self.protocol(error))
    }

    /// Sends a request and returns a successful response, whose body has not been received yet. While the
    /// coordinator is starting, repeats the request for up to `STARTING_LIMIT`, unless the client's patience is
    /// zero.
    async fn respond_patiently(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<hyper::body::Incoming>, ClientError> {
        let begun = Instant::now();
        loop {
            let response = self.respond(method.clone(), path, body.clone()).await?;
            let is_starting = response.headers().contains_key(header::RETRY_AFTER);
            match response.status() {
                status if status.is_success() => {
                    self.unrecorded.fetch_or(response.headers().contains_key(UNRECORDED), Ordering::Relaxed);
                    return Ok(response);
                }
                _ if is_starting && !self.patience.is_zero() && begun.elapsed() < STARTING_LIMIT => {
                    sleep(ASK_EVERY).await;
                }
                status => return Err(refusal(status, &self.body(response).await?)),
            }
        }
    }

    /// Sends a request and returns the response, whose body has not been received yet.
    async fn respond(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<hyper::body::Incoming>, ClientError> {
        let mut sender = self.sender().await?;
        sender.send_request(request(method, path, body)).await.map_err(|error| self.lost(error))
    }

    /// Returns the open connection if it is still usable, otherwise a new one. Concurrent callers wait until
    /// the new connection is established, and share it.
    async fn sender(&self) -> Result<Sender, ClientError> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_mut()
            && !kept.sender.is_closed()
            && kept.used.elapsed() < REST_LIMIT
        {
            kept.used = Instant::now();
            self.replace_if_renewed(kept).await;
            if !kept.sender.is_closed() {
                return Ok(kept.sender.clone());
            }
        }
        let opened = patiently(self.patience, || self.open()).await?;
        Ok(kept.insert(opened).sender.clone())
    }

    /// Replaces an open connection if the certificate was renewed, so that the coordinator sees the new one.
    /// If no other connection can be opened, the former one stays in use until the next check.
    async fn replace_if_renewed(&self, kept: &mut Kept) {
        if self.certificate.was_renewed(&mut kept.presented).await {
            match self.open().await {
                Ok(successor) => *kept = successor,
                Err(error) => tracing::debug!(%error, "no connection with the renewed certificate"),
            }
        }
    }

    /// Opens a connection with the present certificate.
    async fn open(&self) -> Result<Kept, ClientError> {
        let presented = self.certificate.present().await;
        let sender = self.connect_soon().await?;
        Ok(Kept { sender, used: Instant::now(), presented })
    }

    async fn connect_soon(&self) -> Result<Sender, ClientError> {
        timeout(CONNECT_LIMIT, self.connect()).await.unwrap_or_else(|_| {
            let text = format!("it has not answered for {} s", CONNECT_LIMIT.as_secs());
            let source = io::Error::new(io::ErrorKind::TimedOut, text);
            Err(ClientError::Unreachable { address: self.address.clone(), source })
        })
    }

    async fn connect(&self) -> Result<Sender, ClientError> {
        let unreachable = |source| ClientError::Unreachable { address: self.address.clone(), source };
        let stream = TcpStream::connect(self.address.to_string()).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let stream = TlsConnector::from(self.certificate.identity().client_config())
            .connect(Role::Coordinator.server_name(), stream)
            .await
            .map_err(|source| match is_certificate_refused(&source) {
                true => self.untrusted(source),
                false => unreachable(source),
            })?;
        await_word(stream.get_ref().0).await.map_err(unreachable)?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_LIMIT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.lost(error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the API connection ended");
            }
        });
        Ok(sender)
    }

    async fn body(&self, response: Response<hyper::body::Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
        Ok(body.map_err(|error| self.incomplete(error))?.to_bytes())
    }

    /// Returns the error for an answer that was not received completely.
    fn incomplete(&self, error: Box<dyn std::error::Error + Send + Sync>) -> ClientError {
        match error.is::<LengthLimitError>() {
            true => ClientError::LongAnswer { limit: MAX_ANSWER_BYTES },
            false => self.lost(error),
        }
    }

    pub(crate) fn lost(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        let error = error.into();
        let detail = chain(&*error);
        match root_cause(&*error) {
            // With TLS 1.3, the server may reject our certificate after the handshake is complete for us. The
            // HTTP/2 library preserves only the kind and the text of the TLS error.
            Some(alert) if alert.kind() == io::ErrorKind::InvalidData => {
                self.untrusted(io::Error::new(alert.kind(), alert.to_string()))
            }
            _ => ClientError::Lost { address: self.address.clone(), detail },
        }
    }

    fn untrusted(&self, source: io::Error) -> ClientError {
        let (address, distrust) = (self.address.clone(), self.certificate.identity().distrust(&source));
        ClientError::Untrusted { address, distrust, source }
    }

    pub(crate) fn protocol(&self, error: impl ToString) -> ClientError {
        ClientError::Protocol { address: self.address.clone(), detail: error.to_string() }
    }
}

/// Waits for the first bytes that the server sends after the handshake: TLS session tickets. With TLS 1.3,
/// the handshake ends earlier for the client than for the server, which may still close the connection to
/// make room for others. No request has been sent by then, so the caller can safely connect again.
async fn await_word(stream: &TcpStream) -> io::Result<()> {
    match stream.peek(&mut [0]).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Calls `connect`, and repeats it for up to `patience` while nothing listens at the address, because the
/// coordinator may be starting.
pub(crate) async fn patiently<T, F: Future<Output = Result<T, ClientError>>>(
    patience: Duration,
    mut connect: impl FnMut() -> F,
) -> Result<T, ClientError> {
    let begun = Instant::now();
    loop {
        match connect().await {
            Err(error) if is_closed(&error) && begun.elapsed() < patience => sleep(DIAL_EVERY).await,
            connected => return connected,
        }
    }
}

/// Whether an error means that nothing listens at the address, or that the peer closed the connection at
/// once.
fn is_closed(error: &ClientError) -> bool {
    use io::ErrorKind as Kind;
    match error {
        ClientError::Unreachable { source, .. } => matches!(
            source.kind(),
            Kind::ConnectionRefused
                | Kind::ConnectionReset
                | Kind::ConnectionAborted
                | Kind::BrokenPipe
                | Kind::UnexpectedEof
        ),
        ClientError::Lost { .. } => true,
        _ => false,
    }
}

fn method(method: endpoints::Method) -> Method {
    match method {
        endpoints::Method::Get => Method::GET,
        endpoints::Method::Post => Method::POST,
        endpoints::Method::Put => Method::PUT,
        endpoints::Method::Patch => Method::PATCH,
        endpoints::Method::Delete => Method::DELETE,
    }
}

/// Returns the path of an endpoint with its parameter and query, percent-encoded.
fn uri<E: Endpoint>(parameter: &E::Parameter, query: &E::Query) -> String {
    let path = match (E::PATH.split_once('{'), parameter.text()) {
        (Some((before, rest)), Some(text)) => {
            let after = rest.split_once('}').map_or("", |(_, after)| after);
            format!("{before}{}{after}", utf8_percent_encode(&text, NON_ALPHANUMERIC))
        }
        _ => E::PATH.to_owned(),
    };
    match serde_urlencoded::to_string(query).expect("queries are flat").as_str() {
        "" => path,
        query => format!("{path}?{query}"),
    }
}

fn request(method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("https://{}{path}", Role::Coordinator.dns_name()))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .expect("paths are percent-encoded")
}

fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    let (message, next_step) = match serde_json::from_slice(body) {
        Ok(ErrorBody { error, next_step }) => (error, Some(next_step)),
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            (format!("the coordinator answered {status}: {}", text.trim()), None)
        }
    };
    ClientError::Refused { status: status.as_u16(), message, next_step }
}

fn root_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let io_of = |error: &'a (dyn std::error::Error + 'static)| {
        error.downcast_ref::<io::Error>().or_else(|| error.downcast_ref::<h2::Error>()?.get_io())
    };
    std::iter::successors(Some(error), |error| error.source()).find_map(io_of)
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    // The TLS library explains at length that the peer closed the connection.
    let is_close = |text: &String| text.contains("close_notify");
    match texts.iter().any(is_close) {
        true => "it closed the connection".to_owned(),
        false => texts.join(": "),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::SystemTime;

    use cluster::{Cluster, InitOptions, expiry};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio_rustls::TlsAcceptor;
    use views::endpoints::{EndMaintenance, FilesQuery, GetRepair, ListFiles, RepairQuery};

    use super::*;

    #[test]
    fn parameters_and_queries_are_encoded() {
        let node = "a b/c".to_owned();
        assert_eq!(uri::<EndMaintenance>(&node, &NoQuery {}), "/v1/nodes/a%20b%2Fc/maintenance");
        assert_eq!(uri::<ListFiles>(&(), &FilesQuery { prefix: "a&b".into() }), "/v1/files?prefix=a%26b");
        let query = RepairQuery { since: Some(3), items: Some(0), ..RepairQuery::default() };
        assert_eq!(uri::<GetRepair>(&7, &query), "/v1/repairs/7?since=3&items=0");
        assert_eq!(uri::<GetRepair>(&7, &RepairQuery::default()), "/v1/repairs/7");
    }

    /// Accepts all connections, and returns when the certificate of each of them expires.
    fn accept_all(tls: TlsAcceptor, listener: TcpListener) -> UnboundedReceiver<Option<SystemTime>> {
        let (accepted, presented) = unbounded_channel();
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let stream = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
                let expires = expiry(&stream.get_ref().1.peer_certificates().unwrap()[0]);
                open.push(stream);
                accepted.send(expires).unwrap();
            }
        });
        presented
    }

    /// Calls [`Http::sender`], which checks for a renewed certificate.
    async fn check(http: &Http) -> Sender {
        http.kept.lock().await.as_mut().unwrap().presented.make_due();
        http.sender().await.unwrap()
    }

    #[tokio::test]
    async fn a_connection_is_replaced_by_one_with_the_renewed_certificate() {
        let scratch = tempfile::tempdir().unwrap();
        let cluster = Cluster::init(&scratch.path().join("demo"), &InitOptions::default()).unwrap();
        let ann = Role::Client("ann".parse().unwrap());
        cluster.issue_for(&ann, Some(Duration::from_secs(7 * 86_400))).unwrap();
        let former = cluster.expires(&ann);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let certificate = Certificate::new(cluster.identity(&ann).unwrap());
        let http = Http::new(listener.local_addr().unwrap().into(), certificate, Duration::ZERO);
        let tls = TlsAcceptor::from(cluster.identity(&Role::Coordinator).unwrap().server_config());
        let mut presented = accept_all(tls, listener);

        http.sender().await.unwrap();
        assert_eq!(presented.recv().await, Some(former));
        check(&http).await;
        assert!(presented.is_empty(), "the certificate is the same");

        let former_key = fs::read(cluster.key(&ann)).unwrap();
        cluster.issue(&ann).unwrap();
        let key = fs::read(cluster.key(&ann)).unwrap();
        fs::write(cluster.key(&ann), former_key).unwrap();
        check(&http).await;
        assert!(presented.is_empty(), "the key does not match yet");
        assert_eq!(Some(http.certificate.identity().expires()), former);

        fs::write(cluster.key(&ann), key).unwrap();
        let replacement = async {
            while presented.is_empty() {
                check(&http).await;
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(60), replacement).await.expect("another connection, long before the end");
        assert_eq!(presented.recv().await, Some(cluster.expires(&ann)));
        assert_ne!(cluster.expires(&ann), former);
        check(&http).await;
        assert!(presented.is_empty(), "the connection has the renewed certificate");
    }

    #[tokio::test]
    async fn a_connection_stays_in_use_if_none_with_the_renewed_certificate_can_be_opened() {
        let scratch = tempfile::tempdir().unwrap();
        let cluster = Cluster::init(&scratch.path().join("demo"), &InitOptions::default()).unwrap();
        let ann = Role::Client("ann".parse().unwrap());
        cluster.issue_for(&ann, Some(Duration::from_secs(600))).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let certificate = Certificate::new(cluster.identity(&ann).unwrap());
        let http = Http::new(listener.local_addr().unwrap().into(), certificate, Duration::ZERO);
        let tls = TlsAcceptor::from(cluster.identity(&Role::Coordinator).unwrap().server_config());
        let accept = async { tls.accept(listener.accept().await.unwrap().0).await.unwrap() };
        let (opened, _open) = tokio::join!(http.sender(), accept);
        opened.unwrap();

        drop(listener);
        cluster.issue(&ann).unwrap();
        let renewal = async {
            while Some(http.certificate.identity().expires()) != cluster.expires(&ann) {
                assert!(!check(&http).await.is_closed());
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(60), renewal).await.expect("the certificate is loaded");
        assert!(!check(&http).await.is_closed(), "nothing listens, but the former connection is open");
    }
}
