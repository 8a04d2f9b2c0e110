//! `mend helper`: an engine and a session around a node's blocks.

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cluster::{Address, ClusterId, Identity};
use repair::wire::control::{self, FromNode, ToNode};
use repair::{BlockId, LocalBlock, Sink};
use stores::{BlockError, BlockReader, BlockWriter, Blocks};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::drive::block_problem;
use crate::engine::{Engine, Local, Reports, blocking};
use crate::rendezvous::{Rendezvous, bind};
use crate::session::{ConnectError, Session};
use crate::workers::Workers;

/// Pause between attempts to reach the coordinator.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// A coordinator that has not yet noticed that our last connection is gone refuses a second one; it notices
/// within this time.
const REFUSAL_LIMIT: Duration = Duration::from_secs(15);
/// Threads that move slices, at most: one moves more than two gigabytes a second.
const MAX_WORKERS: usize = 8;
/// Whole blocks that are read through at once for scrubbing.
const VERIFIES_AT_ONCE: usize = 2;

/// What a helper needs to know.
pub struct DaemonOptions {
    /// The cluster that its blocks belong to.
    pub cluster_id: ClusterId,
    /// Who it is.
    pub identity: Identity,
    /// Where the coordinator takes control connections.
    pub coordinator: Address,
    /// Where it listens for data edges.
    pub listen: SocketAddr,
    /// What others dial, if it differs from where it listens.
    pub advertise: Option<Address>,
    /// The rack it stands in.
    pub rack: Option<String>,
    /// Its link in bytes per second, if known.
    pub bandwidth: Option<u64>,
    /// Whether it takes no plain data edge. It encrypts those that the coordinator wants encrypted either way.
    pub data_tls: bool,
    /// Its blocks.
    pub blocks: Arc<dyn Blocks>,
}

/// Why a helper cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Its data port is taken or forbidden.
    #[error(
        "cannot listen on {address}: {source}; change `listen` of this helper in mend.toml or stop what uses it"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The coordinator does not take it.
    #[error(transparent)]
    Session(#[from] ConnectError),
    /// It cannot have the threads that it wants.
    #[error("cannot start threads: {0}")]
    Threads(#[source] io::Error),
    /// Its blocks cannot be listed.
    #[error("cannot list the blocks: {0}")]
    Blocks(#[from] BlockError),
}

/// A helper that has its data port.
pub struct Daemon {
    options: DaemonOptions,
    rendezvous: Rendezvous,
    address: SocketAddr,
    listener: Option<TcpListener>,
}

impl Daemon {
    /// Takes the data port.
    ///
    /// # Errors
    /// [`DaemonError::Listen`].
    pub async fn bind(options: DaemonOptions) -> Result<Self, DaemonError> {
        let failed = |source| DaemonError::Listen { address: options.listen, source };
        let listener = bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let rendezvous = Rendezvous::secured(&options.identity, options.data_tls);
        Ok(Self { options, rendezvous, address, listener: Some(listener) })
    }

    /// The data port that it has.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the coordinator refuses it. `ready` is called whenever it has registered.
    ///
    /// A coordinator that cannot be reached is tried again for as long as it takes; jobs of a lost one are
    /// dropped, with all they did not commit.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub async fn run(mut self, mut ready: impl FnMut()) -> Result<(), DaemonError> {
        let listener = self.listener.take().expect("bound once, run once");
        let _listening = AbortOnDrop(tokio::spawn(self.rendezvous.clone().listen(listener)));
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let workers = Workers::here_and(cores.min(MAX_WORKERS) - 1).map_err(DaemonError::Threads)?;
        let mut complained = false;
        let mut lost: Option<Instant> = None;
        loop {
            match self.serve(&workers, &mut ready).await {
                Ok(()) => {
                    complained = false;
                    lost = Some(Instant::now());
                    tracing::warn!("lost the coordinator; its jobs are dropped");
                }
                Err(DaemonError::Session(ConnectError::Refused(reason)))
                    if lost.is_some_and(|lost| lost.elapsed() < REFUSAL_LIMIT) =>
                {
                    tracing::warn!(%reason, "the coordinator refuses; trying again");
                }
                Err(DaemonError::Session(error @ ConnectError::Unreachable { .. })) => {
                    if !complained {
                        tracing::warn!("{error}; trying again until it answers");
                    }
                    complained = true;
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    async fn serve(&self, workers: &Workers, ready: &mut impl FnMut()) -> Result<(), DaemonError> {
        let (reports, outgoing) = mpsc::unbounded_channel();
        let hello = self.hello().await?;
        let mut session =
            Session::open(&self.options.coordinator, &self.options.identity, hello, outgoing).await?;
        tracing::info!(node = %session.node, address = %self.address, "registered");
        ready();
        let local = Arc::new(Store(self.options.blocks.clone()));
        let engine = Engine::new(local, self.rendezvous.clone(), reports.clone(), workers.clone());
        let chores = Chores {
            blocks: self.options.blocks.clone(),
            reports,
            engine: engine.clone(),
            verifies: Arc::new(Semaphore::new(VERIFIES_AT_ONCE)),
        };
        while let Some(message) = session.incoming.recv().await {
            if let Some(message) = engine.handle(message) {
                chores.handle(message);
            }
        }
        engine.forget_all();
        Ok(())
    }

    async fn hello(&self) -> Result<FromNode, DaemonError> {
        let blocks = self.options.blocks.clone();
        let (held, free_bytes) =
            blocking(move || Ok::<_, BlockError>((blocks.list()?, blocks.free_bytes()?))).await?;
        let address =
            self.options.advertise.as_ref().map_or_else(|| self.address.to_string(), ToString::to_string);
        Ok(FromNode::RegisterHelper {
            version: control::VERSION,
            cluster_id: self.options.cluster_id.to_string(),
            address,
            rack: self.options.rack.clone(),
            bandwidth: self.options.bandwidth,
            blocks: held,
            free_bytes,
        })
    }
}

/// What a helper does outside of jobs.
struct Chores {
    blocks: Arc<dyn Blocks>,
    reports: Reports,
    engine: Engine,
    verifies: Arc<Semaphore>,
}

impl Chores {
    fn handle(&self, message: ToNode) {
        match message {
            ToNode::Ping => {
                let tasks = self.engine.jobs();
                self.answer(move |blocks| {
                    blocks.free_bytes().map(|free_bytes| FromNode::Pong { free_bytes, tasks })
                });
            }
            ToNode::Remove { block } => self.answer(move |blocks| {
                blocks.remove(&block)?;
                Ok(FromNode::Removed { block })
            }),
            ToNode::List { ask } => {
                self.answer(move |blocks| blocks.list().map(|blocks| FromNode::Listed { ask, blocks }));
            }
            ToNode::Verify { ask, block } => self.verify(ask, block),
            other => tracing::warn!(?other, "a message that is not for a helper"),
        }
    }

    fn answer(&self, work: impl FnOnce(&dyn Blocks) -> Result<FromNode, BlockError> + Send + 'static) {
        let (blocks, reports) = (self.blocks.clone(), self.reports.clone());
        tokio::task::spawn_blocking(move || match work(&*blocks) {
            Ok(message) => {
                let _ = reports.send(message); // A lost coordinator asks again.
            }
            Err(error) => tracing::error!(%error, "cannot do what the coordinator asks"),
        });
    }

    fn verify(&self, ask: u64, block: BlockId) {
        let (blocks, reports, verifies) = (self.blocks.clone(), self.reports.clone(), self.verifies.clone());
        tokio::spawn(async move {
            let _permit = verifies.acquire_owned().await;
            let name = block.clone();
            let result = blocking(move || blocks.open(&name)?.verify()).await;
            let result = result.map_err(|error| block_problem(&error));
            let _ = reports.send(FromNode::Verified { ask, block, result });
        });
    }
}

/// A store's blocks as the local half of an engine.
struct Store(Arc<dyn Blocks>);

impl Local for Store {
    fn open(&self, _tag: Option<u64>, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.0.open(&block.id)
    }

    fn open_if_cached(&self, _tag: Option<u64>, block: &LocalBlock) -> Option<Arc<dyn BlockReader>> {
        self.0.open_if_cached(&block.id)
    }

    fn create(&self, _tag: Option<u64>, sink: &Sink) -> Result<Box<dyn BlockWriter>, BlockError> {
        self.0.create(&sink.id, sink.bytes)
    }

    fn held(&self, block: &BlockId) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.0.open(block)
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
