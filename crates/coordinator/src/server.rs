//! Starting and stopping: the core's thread, the two listeners, and what can be wrong at the start.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, SystemTime};

use cluster::{Identity, IdentityError, NetworkError, RENEW_WITHIN, Role};
use rand::rngs::StdRng;
use store_api::{CatalogError, OpenError, Storage, StoreError};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::ApiServer;
use crate::config::CoordinatorConfig;
use crate::connections::ControlServer;
use crate::door::Door;
use crate::driver::{Driver, unix_ms};
use crate::incoming::Incoming;
use crate::storage::StorageThread;
use control::{Control, Event, HealPolicy, Opened, Settings};

/// Events that may wait for the core; beyond that connections wait.
const EVENTS_WAITING: usize = 1024;

/// How often a new certificate of the coordinator is looked for.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
/// How often the log says that the certificate expires soon.
const WARN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a coordinator cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An address is in use or forbidden.
    #[error(
        "cannot listen on {address} ({setting} in {config}): {source}; stop what uses it, or change {setting}"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The setting that it comes from.
        setting: &'static str,
        /// The file that the setting is in.
        config: String,
        /// What the system says.
        source: io::Error,
    },
    /// Its own certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The catalog cannot be used.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// What must be stored at the start cannot be.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What mend.toml says of the network contradicts itself.
    #[error("{config}: {source}")]
    Network {
        /// The file.
        config: String,
        /// What cannot be true.
        source: NetworkError,
    },
    /// The system gives no thread.
    #[error("cannot start the coordinator's thread: {0}")]
    Thread(io::Error),
    /// No helper came to say what it holds.
    #[error(
        "no helper answered within {} s, so nothing was changed: start the helpers, then do this again (--wait)",
        wait.as_secs()
    )]
    NoHelpers {
        /// How long was waited.
        wait: Duration,
    },
    /// Its catalog failed and is not usable any more.
    #[error("the coordinator stops, as its catalog failed while it ran: {0}")]
    Lost(OpenError),
    /// A fault of ours.
    #[error("the coordinator's own thread has stopped; this is a bug, and the log says where")]
    Crashed,
}

/// A coordinator that runs in this process; it stops when this is dropped.
#[derive(Debug)]
#[must_use = "a coordinator stops when its handle is dropped"]
pub struct Handle {
    /// Where the API is.
    pub api_addr: SocketAddr,
    /// Where control connections are taken.
    pub control_addr: SocketAddr,
    events: mpsc::Sender<Incoming>,
    servers: Vec<JoinHandle<()>>,
    ended: oneshot::Receiver<Option<OpenError>>,
}

impl Handle {
    /// Stops it and waits until its catalog is closed.
    pub async fn stop(mut self) {
        self.servers.drain(..).for_each(|server| server.abort());
        let _ = self.events.send(Incoming::Stop).await; // It may have stopped already.
        let _ = (&mut self.ended).await;
    }

    /// Returns when it has stopped by itself, with the reason.
    pub async fn crashed(&mut self) -> RunError {
        match (&mut self.ended).await {
            Ok(Some(error)) => RunError::Lost(error),
            Ok(None) | Err(_) => RunError::Crashed,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.servers.drain(..).for_each(|server| server.abort());
        let _ = self.events.try_send(Incoming::Stop); // A full channel means that it is about to stop anyway.
    }
}

/// Starts a coordinator on the current tokio runtime. When this returns, both ports are taken.
///
/// # Errors
/// [`RunError`].
pub async fn start(config: CoordinatorConfig, storage: Storage) -> Result<Handle, RunError> {
    let identity = config.cluster.identity(&Role::Coordinator)?;
    let (control_listener, control_addr) = listen(&config, config.control, "[coordinator] control").await?;
    let (api_listener, api_addr) = listen(&config, config.api, "[coordinator] api").await?;
    let (events, incoming) = mpsc::channel(EVENTS_WAITING);
    let ended = start_core(&config, storage, incoming, events.clone())?;
    let tls = identity.server_config();
    let control = ControlServer {
        listener: control_listener,
        door: Door::new("control", tls.clone(), config.descriptors),
        cluster: config.cluster.clone(),
        events: events.clone(),
    };
    let door = Door::new("API", tls, config.descriptors);
    let api = ApiServer { listener: api_listener, door, events: events.clone() };
    let refreshing = keep_fresh(identity, events.clone());
    let servers = vec![tokio::spawn(control.serve()), tokio::spawn(api.serve()), tokio::spawn(refreshing)];
    tracing::info!(%api_addr, %control_addr, "coordinator is up");
    Ok(Handle { api_addr, control_addr, events, servers, ended })
}

/// Takes up new certificates of the coordinator, and tells the core and the log until when the one that it has is valid.
async fn keep_fresh(identity: Identity, events: mpsc::Sender<Incoming>) {
    let mut warned: Option<Instant> = None;
    loop {
        match identity.refresh() {
            Ok(true) => tracing::info!("took up a new certificate"),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "the certificate cannot be read again"),
        }
        let expires = identity.expires();
        if events
            .send(Incoming::Event(Event::Certificate { role: Role::Coordinator, expires }))
            .await
            .is_err()
        {
            return; // It is stopping.
        }
        let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
        if left < RENEW_WITHIN && warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            let days = left.as_secs() / 86_400;
            tracing::warn!(
                days,
                "the coordinator's certificate expires soon; renew it with `mend renew` where ca.key is"
            );
            warned = Some(Instant::now());
        }
        tokio::time::sleep(REFRESH_EVERY).await;
    }
}

pub(crate) async fn listen(
    config: &CoordinatorConfig,
    address: SocketAddr,
    setting: &'static str,
) -> Result<(TcpListener, SocketAddr), RunError> {
    let failed = |source| RunError::Listen {
        address,
        setting,
        config: config.cluster.config_path().display().to_string(),
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Starts the thread that owns all state; the receiver hears of its end, and why if that is the catalog.
fn start_core(
    config: &CoordinatorConfig,
    mut storage: Storage,
    events: mpsc::Receiver<Incoming>,
    answers: mpsc::Sender<Incoming>,
) -> Result<oneshot::Receiver<Option<OpenError>>, RunError> {
    let cluster = config.cluster.config();
    let settings = Settings {
        cluster_id: cluster.cluster_id.to_string(),
        code: cluster.defaults.code.clone(),
        block_bytes: cluster.defaults.block_bytes.bytes(),
        scheme: cluster.defaults.scheme.clone(),
        repair_after: cluster.coordinator.repair_after,
        helpers: Some(cluster.helpers.iter().map(|helper| helper.name.to_string()).collect()),
        beside: config.servers.clone(),
        scrub_bytes_per_s: cluster.coordinator.scrub_rate.map(|rate| rate.bits_per_second() / 8),
        scrub_parity: cluster.coordinator.scrub_parity,
        network: cluster.network().map_err(|source| RunError::Network {
            config: config.cluster.config_path().display().to_string(),
            source,
        })?,
        heal: config.heal.map(|dry_run| HealPolicy { dry_run }),
    };
    let opened = Opened::read(&mut storage)?;
    let term = opened.term();
    let mut core = Control::new(settings, opened, rand::make_rng::<StdRng>(), unix_ms());
    if cluster.encrypts_data_edges() {
        core.encrypt_edges();
    }
    let storage = StorageThread::start(storage, term, answers).map_err(RunError::Thread)?;
    let (end, ended) = oneshot::channel();
    let work = move || {
        let lost = Driver::new(core, storage).run(events);
        let _ = end.send(lost); // Whoever started it may have gone. After a panic it is dropped instead.
    };
    thread::Builder::new().name("coordinator".into()).spawn(work).map_err(RunError::Thread)?;
    Ok(ended)
}
