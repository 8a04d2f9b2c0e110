//! HTTP connections over mutual TLS, with HTTP/1.1 or HTTP/2 as the client chooses; and without encryption for
//! processes of the same machine.
//!
//! A client that waits for a long answer can check the connection with HTTP/2 pings, which are answered even
//! while the control plane is busy. A connection is closed after an idle time without traffic and without a
//! request in progress, when its peer has disappeared, and when the peer's certificate expires.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::middleware::map_request;
use cluster::Role;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use crate::door::{Admitted, Door, Slots, TELL_EVERY, expired};

/// A connection is closed after this long without traffic and without a request in progress.
const IDLE_LIMIT: Duration = Duration::from_secs(30);
/// Grace period for requests in progress when a connection is shut down.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of connections of a listener without encryption.
const PLAIN_AT_ONCE: usize = 32;
/// Pause of a listener without encryption after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of concurrent requests per connection.
const STREAMS_AT_ONCE: u32 = 64;
/// The bytes of requests' bodies that a peer may send over HTTP/2 before they are read, per stream and per connection.
const HTTP2_WINDOW_BYTES: u32 = 64 << 10;
/// Maximum size of the head of an HTTP/1.1 request, and of the part of an answer that waits to be written.
const HTTP1_BUFFER_BYTES: usize = 64 << 10;

/// The peer of a connection.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The role in its certificate; `None` if the certificate names no role.
    pub role: Option<Role>,
    /// When its certificate expires.
    pub expires: Option<SystemTime>,
    /// Its IP address.
    pub address: IpAddr,
}

/// Serves until the future is dropped, which also drops all connections.
pub async fn serve(listener: TcpListener, door: Arc<Door>, router: Router) {
    let mut connections = JoinSet::new();
    let mut tell = interval(TELL_EVERY);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, address)) => {
                    let (door, router) = (door.clone(), router.clone());
                    connections.spawn(async move {
                        // The handshake runs in the connection's own task, so a slow one delays no other.
                        let Some(admitted) = door.enter(socket, address).await else { return };
                        let Admitted { stream, role, expires, slot } = admitted;
                        let caller = Caller { role, expires, address: address.ip() };
                        tokio::select! {
                            () = converse(stream, caller, router) => {}
                            () = slot.displaced() => {}
                        }
                    });
                }
                Err(error) => door.pause_after(error).await,
            },
            Some(_) = connections.join_next() => {}
            _ = tell.tick() => door.tell_rest(),
        }
    }
}

/// Serves without encryption until the future is dropped. If too many connections are open, a new one displaces the
/// oldest one, of those that have sent no request if there are any. So idle connections neither use up the file
/// descriptors nor keep others out.
pub async fn serve_plain(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    let slots = Arc::<Mutex<Slots<IpAddr>>>::default();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, address)) => {
                    let slot = PlainSlot::begin(&slots, address.ip());
                    let caller = Caller { role: None, expires: None, address: address.ip() };
                    let (slots, number) = (slots.clone(), slot.number);
                    let router = router.clone().layer(map_request(move |request: axum::extract::Request| {
                        slots.lock().unwrap_or_else(PoisonError::into_inner).speaks(&address.ip(), number);
                        std::future::ready(request)
                    }));
                    connections.spawn(async move {
                        tokio::select! {
                            () = converse(socket, caller, router) => {}
                            () = slot.given_up.notified() => {}
                        }
                    });
                }
                Err(error) => {
                    // The process has probably run out of file descriptors.
                    tracing::warn!(%error, "cannot accept a connection without encryption");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The slot of a connection without encryption, freed when dropped.
struct PlainSlot {
    slots: Arc<Mutex<Slots<IpAddr>>>,
    address: IpAddr,
    number: u64,
    given_up: Arc<Notify>,
}

impl PlainSlot {
    fn begin(slots: &Arc<Mutex<Slots<IpAddr>>>, address: IpAddr) -> Self {
        let mut held = slots.lock().unwrap_or_else(PoisonError::into_inner);
        if held.count() >= PLAIN_AT_ONCE {
            held.give_up_one();
        }
        let (number, given_up) = held.begin(address);
        Self { slots: slots.clone(), address, number, given_up }
    }
}

impl Drop for PlainSlot {
    fn drop(&mut self) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).end(&self.address, self.number);
    }
}

async fn converse<S>(stream: S, caller: Caller, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity::default());
    activity.moved();
    let watched = Watched { stream, activity: activity.clone() };
    let expires = caller.expires;
    let caller = ConnectInfo(caller);
    let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(caller.clone());
        let answering = Answering::begin(&activity);
        let answer = hyper::service::Service::call(&TowerToHyperService::new(router.clone()), request);
        async move {
            let _answering = answering;
            answer.await
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_LIMIT).max_buf_size(HTTP1_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_AT_ONCE)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES);
    let connection = builder.serve_connection(TokioIo::new(watched), service);
    tokio::pin!(connection);
    let is_over = async {
        tokio::select! {
            () = activity.idle() => {}
            () = expired(expires) => {}
        }
    };
    tokio::select! {
        ended = &mut connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "an API connection broke");
            }
        }
        () = is_over => {
            connection.as_mut().graceful_shutdown();
            // The connection ends, whether its requests have finished or the grace period is over.
            let _ = tokio::time::timeout(FAREWELL_LIMIT, connection).await;
        }
    }
}

/// The activity on a connection.
#[derive(Debug, Default)]
struct Activity {
    /// When a byte last moved, in milliseconds since the process's first call of `since_start`.
    moved_ms: AtomicU64,
    answering: AtomicUsize,
}

impl Activity {
    fn moved(&self) {
        self.moved_ms.store(since_start().as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns once the connection has been idle for long enough.
    async fn idle(&self) {
        loop {
            let rested =
                since_start().saturating_sub(Duration::from_millis(self.moved_ms.load(Ordering::Relaxed)));
            if self.answering.load(Ordering::Relaxed) > 0 {
                sleep(IDLE_LIMIT).await;
            } else if rested < IDLE_LIMIT {
                sleep(IDLE_LIMIT - rested).await;
            } else {
                return;
            }
        }
    }
}

fn since_start() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// A request in progress.
struct Answering {
    activity: Arc<Activity>,
}

impl Answering {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.answering.fetch_add(1, Ordering::Relaxed);
        Self { activity: activity.clone() }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.activity.answering.fetch_sub(1, Ordering::Relaxed);
        self.activity.moved();
    }
}

/// A stream that records when bytes move.
struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    fn noted<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.activity.moved();
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.noted(polled)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.noted(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.noted(polled)
    }

    /// Without vectored writes, HTTP/1.1 copies answers into a buffer of its own, and drops the pieces that their sender
    /// has counted.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A flush does not count as activity, because it is called repeatedly, even without data.
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::net::TcpStream;

    use super::*;

    const LENGTH: usize = 32 << 10;
    static BYTES: [u8; LENGTH] = [b'x'; LENGTH];

    /// An answer that notes when it is dropped.
    struct Answer(Arc<AtomicUsize>);

    impl AsRef<[u8]> for Answer {
        fn as_ref(&self) -> &[u8] {
            &BYTES
        }
    }

    impl Drop for Answer {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the other end of a connection that has room for 1 KiB, and a count of the dropped answers.
    fn narrow_connection() -> (DuplexStream, Arc<AtomicUsize>) {
        let dropped = Arc::<AtomicUsize>::default();
        let counted = dropped.clone();
        let answer = move || std::future::ready(Body::from(Bytes::from_owner(Answer(counted.clone()))));
        let (near, far) = tokio::io::duplex(1 << 10);
        let caller = Caller { role: None, expires: None, address: [127, 0, 0, 1].into() };
        tokio::spawn(converse(far, caller, Router::new().route("/", get(answer))));
        (near, dropped)
    }

    #[tokio::test]
    async fn an_answer_over_http_1_is_kept_until_it_is_sent() {
        let (mut near, dropped) = narrow_connection();
        near.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        let mut status = [0; 12];
        near.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        sleep(Duration::from_millis(50)).await;
        assert_eq!(dropped.load(Ordering::Relaxed), 0, "most of it is not sent");
        near.read_exact(&mut [0; LENGTH]).await.unwrap();
        near.write_all(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        assert!(rest.ends_with(&BYTES));
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn the_head_of_a_request_is_bounded() {
        let (mut near, _) = narrow_connection();
        let head = format!("GET / HTTP/1.1\r\nhost: here\r\nlong: {}", "x".repeat(100 << 10));
        // The connection is closed before all of it is sent.
        let _ = near.write_all(head.as_bytes()).await;
        let mut status = [0; 12];
        near.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 431");
    }

    async fn begin() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_plain(listener, Router::new().route("/healthz", get(|| async { "ok" }))));
        address
    }

    #[tokio::test]
    async fn idle_connections_do_not_keep_others_out() {
        let address = begin().await;
        let mut idle = Vec::new();
        for _ in 0..3 * PLAIN_AT_ONCE {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut asking = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";
        asking.write_all(request).await.unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
        let mut open = 0;
        for mut stream in idle {
            let read = tokio::time::timeout(Duration::from_millis(20), stream.read_u8()).await;
            open += usize::from(read.is_err());
        }
        assert!(open < PLAIN_AT_ONCE, "{open} are open");
    }
}
