//! A blocking client, for programs without an async runtime. The C library and the Python module use it.
//!
//! All network I/O runs on a thread that belongs to the [`Connection`]. Threads of the program only wait and copy
//! bytes. So the client works with any threads of the program, keeps its session while the program is busy,
//! and raises no SIGPIPE in the program's threads. The client's thread blocks all signals, so the program's
//! handlers run on the program's threads.
//!
//! A process that was forked after [`Connection::connect`] does not have the client's thread. There, every call
//! fails with [`ErrorKind::Invalid`].

use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};

use cluster::{Address, Cluster, Name, OpenError, Role};
use nix::sys::signal::{SigSet, Signal};
use repair::Scheme;
use repair::wire::RequestFailure;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::{
    ByteRange, ClientError, ClientOptions, ConnectError, Found, FoundBlock, GetOptions, GetTarget,
    no_progress,
};

/// The interval at which a waiting call checks whether to continue.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// How long to wait for the client's thread to close connections.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// Signals that report a fault of the thread itself, or that serve profilers; the client's thread accepts
/// them.
const OWN_SIGNALS: [Signal; 7] = [
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGPROF,
    Signal::SIGSEGV,
    Signal::SIGTRAP,
];

/// A function that a waiting call runs about ten times a second, on the caller's thread. If it returns false,
/// the call is cancelled.
pub type KeepWaiting<'a> = &'a mut dyn FnMut() -> bool;

/// Options of a [`Connection`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The client whose certificate to present; if absent, the client that `mend init` creates.
    pub client: Option<Name>,
    /// The address of the coordinator's API, if it differs from the one in `mend.toml`.
    pub api: Option<Address>,
    /// The address of the coordinator's control port, if it differs from the one in `mend.toml`.
    pub control: Option<Address>,
    /// This machine's rack, as named in `mend.toml`.
    pub rack: Option<String>,
    /// The scheme for decoding lost blocks.
    pub scheme: Scheme,
    /// The time limit of each call.
    pub time_limit: Option<Duration>,
}

/// A class of errors, for programs. `docs/reference/requestors.md` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An argument is invalid, or the process was forked after the client connected.
    Invalid,
    /// The cluster folder or a certificate in it cannot be used.
    Setup,
    /// The coordinator cannot be reached or does not answer; a retry may succeed later.
    Unreachable,
    /// The peer is not this cluster's coordinator, or rejects our certificate.
    Untrusted,
    /// There is no such file, stripe or block.
    NotFound,
    /// The coordinator refuses the request.
    Refused,
    /// The range ends past the end of the file or block.
    OutOfRange,
    /// More blocks are lost than the code tolerates.
    TooMuchLost,
    /// Blocks arrived with wrong bytes or contradict each other.
    Corrupt,
    /// The file or block was replaced, and the opened version is no longer available.
    Replaced,
    /// The read failed after it started, for example because too many nodes failed during the read.
    Failed,
    /// The call took longer than its time limit.
    TimedOut,
    /// The program cancelled the call.
    Interrupted,
    /// The coordinator violates the protocol; it may have another version.
    Protocol,
    /// A defect of the library.
    Internal,
}

impl ErrorKind {
    /// Returns the name that programs in C and Python see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "INVALID",
            Self::Setup => "SETUP",
            Self::Unreachable => "UNREACHABLE",
            Self::Untrusted => "UNTRUSTED",
            Self::NotFound => "NOT_FOUND",
            Self::Refused => "REFUSED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::TooMuchLost => "TOO_MUCH_LOST",
            Self::Corrupt => "CORRUPT",
            Self::Replaced => "REPLACED",
            Self::Failed => "FAILED",
            Self::TimedOut => "TIMED_OUT",
            Self::Interrupted => "INTERRUPTED",
            Self::Protocol => "PROTOCOL",
            Self::Internal => "INTERNAL",
        }
    }
}

/// The error of a call. The message says what failed and, where possible, what to do next.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The class of the error.
    pub kind: ErrorKind,
    /// The message.
    pub message: String,
}

impl Error {
    /// Creates an error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    fn internal(error: impl ToString) -> Self {
        Self::new(ErrorKind::Internal, error.to_string())
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Self::new(ErrorKind::Setup, error.to_string())
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        let message = match (&error, next_step(&error)) {
            (_, Some(next_step)) => format!("{error}; {next_step}"),
            (_, None) => error.to_string(),
        };
        Self { kind: kind_of(&error), message }
    }
}

fn kind_of(error: &ClientError) -> ErrorKind {
    match error {
        ClientError::Identity(_) => ErrorKind::Setup,
        ClientError::Unreachable { .. } | ClientError::Lost { .. } => ErrorKind::Unreachable,
        ClientError::Untrusted { .. } => ErrorKind::Untrusted,
        ClientError::Protocol { .. } | ClientError::LongAnswer { .. } => ErrorKind::Protocol,
        ClientError::Session(error) => match error {
            ConnectError::Unreachable { .. } => ErrorKind::Unreachable,
            ConnectError::Untrusted { .. } => ErrorKind::Untrusted,
            ConnectError::Refused { .. } => ErrorKind::Refused,
            ConnectError::Protocol { .. } => ErrorKind::Protocol,
        },
        ClientError::Refused { status: 404, .. } | ClientError::NoBlock { .. } => ErrorKind::NotFound,
        ClientError::Refused { status: 503, .. } => ErrorKind::Unreachable,
        ClientError::Refused { .. } => ErrorKind::Refused,
        ClientError::Failed { failure, .. } => match failure {
            RequestFailure::Refused { .. } => ErrorKind::Refused,
            RequestFailure::Replaced { .. } => ErrorKind::Replaced,
            RequestFailure::TooMuchLost { .. } => ErrorKind::TooMuchLost,
            RequestFailure::Contradiction { .. } => ErrorKind::Corrupt,
            RequestFailure::NoPlan { .. }
            | RequestFailure::Nodes { .. }
            | RequestFailure::StoredWrong { .. }
            | RequestFailure::Client { .. }
            | RequestFailure::Unrecorded { .. }
            | RequestFailure::CalledOff => ErrorKind::Failed,
        },
        ClientError::Unreadable { .. } => ErrorKind::TooMuchLost,
        ClientError::Replaced { .. } => ErrorKind::Replaced,
        ClientError::Garbled { .. } => ErrorKind::Corrupt,
        ClientError::Range(_) => ErrorKind::OutOfRange,
        ClientError::StoredWrong { .. } | ClientError::File(_) => ErrorKind::Internal,
    }
}

fn next_step(error: &ClientError) -> Option<&str> {
    match error {
        ClientError::Unreachable { .. } => Some("is `mend coordinator` running?"),
        ClientError::Untrusted { distrust, .. } => distrust.next_step().or(Some(
            "check that the cluster folder is that of this coordinator, and that it knows the client",
        )),
        ClientError::Refused { next_step, .. } => next_step.as_deref(),
        ClientError::Unreadable { .. } => Some("`mend status` names the helpers that are down"),
        ClientError::Replaced { .. } => Some("open the file again"),
        ClientError::Failed { failure: RequestFailure::Replaced { .. }, .. } => Some("open the block again"),
        ClientError::Garbled { .. } => Some("the block's helper now verifies it; try again"),
        _ => None,
    }
}

/// A connected client of one cluster. Thread-safe.
#[derive(Debug)]
pub struct Connection {
    inner: OfProcess<Inner>,
}

/// A stored file or block that is open for reading. Thread-safe. It stays usable after the [`Connection`] is
/// dropped.
#[derive(Debug)]
pub struct Reader {
    inner: OfProcess<Inner>,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    File(Found),
    Block(FoundBlock),
}

struct Inner {
    client: crate::Client,
    options: GetOptions,
    time_limit: Option<Duration>,
    thread: ClientThread,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to the cluster of a cluster folder. The folder needs `mend.toml`, `ca/ca.pem`, and the
    /// folder with the client's certificate and key.
    ///
    /// # Errors
    /// [`Error`] if the folder cannot be used, or the coordinator cannot be reached or rejects the client.
    pub fn connect(folder: &std::path::Path, options: Options, wait: KeepWaiting<'_>) -> Result<Self, Error> {
        let Options { client, api, control, rack, scheme, time_limit } = options;
        let cluster = Cluster::open(folder)?;
        let role = client.map_or_else(Role::default_client, Role::Client);
        let options = ClientOptions { rack, api, control, ..ClientOptions::default() };
        let inner = Inner {
            client: crate::Client::connect_with(&cluster, &role, options)?,
            options: GetOptions { scheme, ..GetOptions::default() },
            time_limit,
            thread: ClientThread::start()
                .map_err(|error| Error::internal(format!("cannot start a thread: {error}")))?,
        };
        let node = {
            let client = inner.client.clone();
            async move { client.node().await }
        };
        inner.run(node, wait)?;
        Ok(Self { inner: OfProcess::new(inner) })
    }

    /// Opens the current version of a file.
    ///
    /// # Errors
    /// [`Error`] if the file does not exist or the coordinator does not answer.
    pub fn open_file(&self, name: &str, wait: KeepWaiting<'_>) -> Result<Reader, Error> {
        let inner = self.inner.get()?;
        let (client, name) = (inner.client.clone(), name.to_owned());
        let found = inner.run(async move { client.find(&name, ByteRange::ALL).await }, wait)?;
        Ok(Reader { inner: self.inner.clone(), source: Source::File(found) })
    }

    /// Opens a block of a stripe. The block may be lost; reads then decode it from the stripe's other blocks.
    ///
    /// # Errors
    /// [`Error`] if the block does not exist or the coordinator does not answer.
    pub fn open_block(&self, stripe: &str, index: u16, wait: KeepWaiting<'_>) -> Result<Reader, Error> {
        let inner = self.inner.get()?;
        let (client, stripe) = (inner.client.clone(), stripe.to_owned());
        let found = inner.run(async move { client.find_block(&stripe, index).await }, wait)?;
        Ok(Reader { inner: self.inner.clone(), source: Source::Block(found) })
    }
}

impl Reader {
    /// The size of the file or block in bytes.
    pub fn size(&self) -> u64 {
        match &self.source {
            Source::File(found) => found.bytes(),
            Source::Block(found) => found.bytes(),
        }
    }

    /// Starts to read a range. At most 64 MiB of it are in memory at a time.
    ///
    /// # Errors
    /// [`Error`] if the range ends past the end.
    pub fn pieces(&self, range: Range<u64>) -> Result<Pieces<'_>, Error> {
        let inner = self.inner.get()?;
        let (client, options) = (inner.client.clone(), inner.options.clone());
        let (sender, pieces) = mpsc::channel(1);
        let range = ByteRange::new(range);
        let read = match &self.source {
            Source::File(found) => {
                let found = found.with_range(range).map_err(ClientError::from)?;
                let target = GetTarget::Channel(sender);
                inner.thread.spawn(async move {
                    client.get_version(&found, &options, target, no_progress()).await.map(drop)
                })
            }
            Source::Block(found) => {
                let found = found.with_range(range).map_err(ClientError::from)?;
                inner.thread.spawn(async move { client.get_block(&found, &options, sender).await.map(drop) })
            }
        };
        Ok(Pieces { inner, pieces, read, deadline: inner.deadline() })
    }

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`Error`]; the content of `buffer` is then unspecified.
    pub fn read(&self, offset: u64, buffer: &mut [u8], wait: KeepWaiting<'_>) -> Result<(), Error> {
        let mut pieces = self.pieces(offset..offset.saturating_add(buffer.len() as u64))?;
        let mut at = 0;
        while let Some(piece) = pieces.next(wait)? {
            buffer[at..at + piece.len()].copy_from_slice(&piece);
            at += piece.len();
        }
        Ok(())
    }
}

/// A running read. Dropping it cancels the read.
#[derive(Debug)]
pub struct Pieces<'a> {
    inner: &'a Inner,
    pieces: mpsc::Receiver<Vec<u8>>,
    read: Task<()>,
    deadline: Option<Instant>,
}

impl Pieces<'_> {
    /// Returns the next bytes of the range, or `None` after the last ones. The pieces together have exactly
    /// the length of the range.
    ///
    /// # Errors
    /// [`Error`] if the read fails, or after the time limit.
    pub fn next(&mut self, wait: KeepWaiting<'_>) -> Result<Option<Vec<u8>>, Error> {
        let thread = &self.inner.thread;
        if let Some(piece) = thread.wait(self.pieces.recv(), self.deadline, wait)? {
            return Ok(Some(piece));
        }
        thread.wait(&mut self.read, self.deadline, wait)??;
        Ok(None)
    }
}

impl Inner {
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ClientError>> + Send + 'static,
        wait: KeepWaiting<'_>,
    ) -> Result<T, Error> {
        let deadline = self.deadline();
        self.thread.wait(self.thread.spawn(work), deadline, wait)?
    }

    fn deadline(&self) -> Option<Instant> {
        self.time_limit.and_then(|limit| Instant::now().checked_add(limit))
    }
}

/// The thread on which a client's tasks run. Dropping it ends the thread with all tasks.
struct ClientThread {
    runtime: Handle,
    /// Dropping this ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ClientThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        // The thread inherits the signal mask, so no signal can arrive before the mask is set.
        let mut blocked = SigSet::all();
        OWN_SIGNALS.into_iter().for_each(|signal| blocked.remove(signal));
        let before = SigSet::thread_get_mask()?;
        blocked.thread_block()?;
        let thread = thread::Builder::new().name("mend-client".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(CLOSE_LIMIT);
        });
        before.thread_set_mask()?;
        Ok(Self { runtime: handle, stop: Some(stop), thread: Some(thread?) })
    }

    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ClientError>> + Send + 'static,
    ) -> Task<T> {
        Task(self.runtime.spawn(work))
    }

    /// Waits for a future that needs nothing but other tasks to make progress.
    fn wait<T>(
        &self,
        future: impl Future<Output = T>,
        deadline: Option<Instant>,
        wait: KeepWaiting<'_>,
    ) -> Result<T, Error> {
        let mut future = pin!(future);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let tick = left.map_or(CHECK_EVERY, |left| left.min(CHECK_EVERY));
            let waited = self.runtime.block_on(async { timeout(tick, future.as_mut()).await });
            match waited {
                Ok(output) => return Ok(output),
                Err(_) if left.is_some_and(|left| left <= tick) => {
                    return Err(Error::new(ErrorKind::TimedOut, "the call took longer than its time limit"));
                }
                Err(_) if !wait() => {
                    return Err(Error::new(ErrorKind::Interrupted, "the program cancelled the call"));
                }
                Err(_) => {}
            }
        }
    }
}

impl Drop for ClientThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // The message of a panic has been printed already.
        }
    }
}

/// A task on the client's thread. Dropping it cancels the task.
#[derive(Debug)]
struct Task<T>(JoinHandle<Result<T, ClientError>>);

impl<T> Future for Task<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(result.map_err(Error::internal).and_then(|result| Ok(result?)))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A shared value that works only in the process that created it. In a forked child, dropping it does
/// nothing, because threads that the child does not have may hold its locks.
#[derive(Debug)]
struct OfProcess<T> {
    value: Option<Arc<T>>,
    process: u32,
}

impl<T> OfProcess<T> {
    fn new(value: T) -> Self {
        Self { value: Some(Arc::new(value)), process: std::process::id() }
    }

    fn get(&self) -> Result<&T, Error> {
        match &self.value {
            Some(value) if self.process == std::process::id() => Ok(value),
            _ => Err(Error::new(
                ErrorKind::Invalid,
                "this process was forked after it connected; connect again in the child",
            )),
        }
    }
}

impl<T> Clone for OfProcess<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), process: self.process }
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
