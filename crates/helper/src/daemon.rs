//! `mend helper`: an engine and a session around a node's blocks.

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use cluster::{Address, ClusterId, Identity, RENEW_WITHIN, is_certificate_expired};
use repair::wire::control::{self, FromNode, HeldBlock};
use repair::{Caps, StatedRates};
use store_api::{BlockError, Blocks};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::chores::Chores;
use crate::engine::{Engine, blocking};
use crate::local::Local;
use crate::outbox::outbox;
use crate::rendezvous::{Rendezvous, bind};
use crate::session::{ConnectError, Session, show_certificate};
use crate::workers::Workers;

/// Pause between attempts to reach the coordinator.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// The same while a certificate has expired.
const RENEWAL_EVERY: Duration = Duration::from_secs(5);
/// How often a new certificate is looked for.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
/// How often somebody is told of a certificate that expires soon.
const WARN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// A coordinator that has not yet noticed that our last connection is gone refuses a second one; it notices
/// within this time. After that, somebody else has our name.
const REFUSAL_LIMIT: Duration = Duration::from_secs(15);
/// Threads that move slices, at most: one moves more than two gigabytes a second.
const MAX_WORKERS: usize = 8;

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
    /// What its ports and its disk carry, as far as that is known.
    pub rates: StatedRates,
    /// Caps of its own, below which it stays whatever the coordinator says.
    pub limits: Caps,
    /// Whether it takes no plain data edge. It encrypts those that the coordinator wants encrypted either way.
    pub data_tls: bool,
    /// Its store.
    pub blocks: Arc<dyn Blocks>,
    /// How many descriptors this process may have; a share of them is for connections from anybody.
    pub descriptors: u64,
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
        let rendezvous = Rendezvous::within(options.descriptors).secured(&options.identity, options.data_tls);
        Ok(Self { options, rendezvous, address, listener: Some(listener) })
    }

    /// The data port that it has.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the coordinator refuses it, or one of both does not take the other's certificate. `ready` is called
    /// whenever it has registered.
    ///
    /// Whatever may pass is tried again for as long as it takes, and what it waits for is logged once: a coordinator that
    /// cannot be reached, one that falls silent, blocks that cannot be listed at the moment. Jobs of a lost coordinator
    /// are dropped, with all they did not commit.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub async fn run(mut self, mut ready: impl FnMut()) -> Result<(), DaemonError> {
        let listener = self.listener.take().expect("bound once, run once");
        let _listening = AbortOnDrop(tokio::spawn(self.rendezvous.clone().listen(listener)));
        let _refreshing = AbortOnDrop(tokio::spawn(keep_fresh(
            self.options.identity.clone(),
            self.options.coordinator.clone(),
        )));
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let workers = Workers::here_and(cores.min(MAX_WORKERS) - 1).map_err(DaemonError::Threads)?;
        let mut waiting = Waiting::default();
        loop {
            match self.serve(&workers, &mut ready).await {
                Ok(()) => {
                    waiting = Waiting::default();
                    tracing::warn!("lost the coordinator; its jobs are dropped");
                }
                Err(error) if waiting.is_worthwhile(&error) => {
                    waiting.say(&error);
                    if is_expired(&error) {
                        tokio::time::sleep(RENEWAL_EVERY).await;
                        refresh(&self.options.identity);
                    }
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    async fn serve(&self, workers: &Workers, ready: &mut impl FnMut()) -> Result<(), DaemonError> {
        let (reports, outgoing) = outbox();
        let hello = self.hello().await?;
        let mut session =
            Session::open(&self.options.coordinator, &self.options.identity, hello, outgoing).await?;
        tracing::info!(node = %session.node, address = %self.address, "registered");
        ready();
        let local = Local::Store(self.options.blocks.clone());
        let engine = Engine::new(local, self.rendezvous.clone(), reports.clone(), workers.clone())
            .within(self.options.limits);
        let chores = Chores::new(self.options.blocks.clone(), reports, engine.clone());
        while let Some(message) = session.incoming.recv().await {
            if let Some(message) = engine.handle(message) {
                chores.handle(message);
            }
        }
        engine.forget_all();
        Ok(())
    }

    /// What it says first: who it is, and what it holds, in as many messages as that takes.
    async fn hello(&self) -> Result<Vec<FromNode>, DaemonError> {
        let blocks = self.options.blocks.clone();
        let (held, free_bytes) =
            blocking(move || Ok::<_, BlockError>((control::parts(blocks.list()?), blocks.free_bytes()?)))
                .await?;
        let address =
            self.options.advertise.as_ref().map_or_else(|| self.address.to_string(), ToString::to_string);
        let register = |blocks: Vec<HeldBlock>, more| FromNode::RegisterHelper {
            version: control::VERSION,
            cluster_id: self.options.cluster_id.to_string(),
            address: address.clone(),
            rack: self.options.rack.clone(),
            rates: self.options.rates,
            blocks,
            more,
            free_bytes,
        };
        let last = held.len() - 1;
        let message = |(at, blocks)| match at {
            0 => register(blocks, at < last),
            _ => FromNode::Held { blocks, more: at < last },
        };
        Ok(held.into_iter().enumerate().map(message).collect())
    }
}

/// Waiting for the coordinator to take us.
#[derive(Default)]
struct Waiting {
    /// What was last said to be waited for.
    said: Option<String>,
    /// Since when it has refused us for what should pass.
    refused: Option<Instant>,
}

impl Waiting {
    /// Whether what went wrong may go better the next time.
    fn is_worthwhile(&mut self, error: &DaemonError) -> bool {
        match error {
            DaemonError::Session(ConnectError::Refused { passing: true, .. }) => {
                self.refused.get_or_insert_with(Instant::now).elapsed() < REFUSAL_LIMIT
            }
            DaemonError::Session(ConnectError::Unreachable { .. }) | DaemonError::Blocks(_) => {
                self.refused = None;
                true
            }
            error if is_expired(error) => {
                self.refused = None;
                true // Somebody will issue a new one, and it is taken up without a restart.
            }
            DaemonError::Session(
                ConnectError::Refused { passing: false, .. }
                | ConnectError::Untrusted { .. }
                | ConnectError::Protocol { .. },
            )
            | DaemonError::Listen { .. }
            | DaemonError::Threads(_) => false,
        }
    }

    /// Says what is waited for, if it is something new.
    fn say(&mut self, error: &DaemonError) {
        let text = error.to_string();
        if self.said.as_ref() != Some(&text) {
            tracing::warn!("{text}; trying again until that passes");
            self.said = Some(text);
        }
    }
}

/// Whether a certificate has expired, ours or the coordinator's.
fn is_expired(error: &DaemonError) -> bool {
    matches!(error, DaemonError::Session(ConnectError::Untrusted { source, .. }) if is_certificate_expired(source))
}

/// Takes up a new certificate; whether there is one.
fn refresh(identity: &Identity) -> bool {
    match identity.refresh() {
        Ok(true) => {
            tracing::info!("took up a new certificate");
            true
        }
        Ok(false) => false,
        Err(error) => {
            tracing::debug!(%error, "the certificate cannot be read again");
            false
        }
    }
}

/// Takes up new certificates, and says when ours expires soon.
async fn keep_fresh(identity: Identity, coordinator: Address) {
    let mut warned: Option<Instant> = None;
    loop {
        // The connection that stands shows the old one for as long as it lives.
        if refresh(&identity)
            && let Err(error) = show_certificate(&coordinator, &identity).await
        {
            tracing::debug!(%error, "the coordinator sees the new certificate when we connect next");
        }
        let left = identity.expires().duration_since(SystemTime::now()).unwrap_or_default();
        if left < RENEW_WITHIN && warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            let (role, days) = (identity.role(), left.as_secs() / 86_400);
            tracing::warn!(%role, days, "this certificate expires soon; renew it with `mend renew` where ca.key is");
            warned = Some(Instant::now());
        }
        tokio::time::sleep(REFRESH_EVERY).await;
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
