//! Starts and stops a coordinator: the driver's thread, the two listeners, and the errors of a start.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use cluster::{Identity, IdentityError, NetworkError, RENEW_WITHIN, Role};
use rand::rngs::StdRng;
use serving::Door;
use store_api::{CatalogError, OpenError, Storage, StoreError};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::ApiServer;
use crate::api::asking::Asking;
use crate::config::CoordinatorConfig;
use crate::connections::ControlServer;
use crate::driver::{Driver, unix_ms};
use crate::incoming::{EventQueue, Events, Incoming, event_queue, event_seconds};
use crate::metrics::{self, Load};
use crate::rebuilding::OwnRebuilder;
use crate::storage::StorageThread;
use control::{Control, Event, HealPolicy, Now, Opened, Settings};

/// Interval of checks for a new certificate of the coordinator.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
/// Interval of log messages about a certificate that expires soon.
const WARN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a coordinator cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An address is in use or not permitted.
    #[error(
        "cannot listen on {address} ({setting} in {config}): {source}; stop the program that uses the port, \
         or change {setting}"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The setting that contains the address.
        setting: &'static str,
        /// The file that contains the setting.
        config: String,
        /// The system's error.
        source: io::Error,
    },
    /// The coordinator's certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The catalog cannot be used.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// State that must be stored at the start cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The network settings in mend.toml contradict each other.
    #[error("{config}: {source}")]
    Network {
        /// The file.
        config: String,
        /// The contradiction.
        source: NetworkError,
    },
    /// The system cannot start a thread.
    #[error("cannot start the coordinator's thread: {0}")]
    Thread(io::Error),
    /// No helper described its blocks in time.
    #[error(
        "no helper answered within {} s, so nothing was changed: start the helpers, then run this again \
         (--wait sets the limit)",
        wait.as_secs()
    )]
    NoHelpers {
        /// The time limit.
        wait: Duration,
    },
    /// The catalog failed while the coordinator ran.
    #[error("the coordinator stops because its catalog failed: {0}")]
    Lost(OpenError),
    /// The coordinator's thread has panicked, which is a bug.
    #[error("the coordinator's thread has panicked, which is a bug; the log has the location")]
    Crashed,
}

/// A coordinator that runs in this process. Dropping the handle stops it.
#[derive(Debug)]
#[must_use = "a coordinator stops when its handle is dropped"]
pub struct Handle {
    /// The address of the API.
    pub api_addr: SocketAddr,
    /// The address for control connections.
    pub control_addr: SocketAddr,
    /// The address of the metrics without encryption, if there is one.
    pub metrics_addr: Option<SocketAddr>,
    events: Events,
    servers: Vec<JoinHandle<()>>,
    ended: oneshot::Receiver<Option<OpenError>>,
}

impl Handle {
    /// Stops the coordinator and waits until its catalog is closed.
    pub async fn stop(mut self) {
        self.servers.drain(..).for_each(|server| server.abort());
        let _ = self.events.send(Incoming::Stop).await; // The coordinator may have stopped already.
        let _ = (&mut self.ended).await;
    }

    /// Waits until the coordinator has stopped unexpectedly, and returns the reason.
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
        self.events.try_stop();
    }
}

/// Starts a coordinator on the current tokio runtime. When this returns, both ports are bound.
///
/// # Errors
/// [`RunError`].
pub async fn start(config: CoordinatorConfig, storage: Storage) -> Result<Handle, RunError> {
    let identity = config.cluster.identity(&Role::Coordinator)?;
    let (control_listener, control_addr) = listen(&config, config.control, "[coordinator] control").await?;
    let (api_listener, api_addr) = listen(&config, config.api, "[coordinator] api").await?;
    let metrics_listener = match config.metrics {
        Some(address) => Some(listen(&config, address, "[coordinator] metrics").await?),
        None => None,
    };
    let (events, incoming) = event_queue();
    let load = Load { event_seconds: event_seconds(), events: events.clone() };
    let ended = start_core(&config, storage, incoming, &load)?;
    let tls = identity.server_config();
    let control = ControlServer {
        listener: control_listener,
        door: Door::new("control", tls.clone(), config.descriptors),
        cluster: config.cluster.clone(),
        events: events.clone(),
    };
    let door = Door::new("API", tls, config.descriptors);
    let api = ApiServer { listener: api_listener, door, load: load.clone() };
    let refreshing = keep_fresh(identity, events.clone());
    let mut servers =
        vec![tokio::spawn(control.serve()), tokio::spawn(api.serve()), tokio::spawn(refreshing)];
    let metrics_addr = metrics_listener.map(|(listener, address)| {
        servers.push(tokio::spawn(metrics::serve_plain(listener, load)));
        address
    });
    tracing::info!(%api_addr, %control_addr, "coordinator is up");
    Ok(Handle { api_addr, control_addr, metrics_addr, events, servers, ended })
}

/// Loads new certificates of the coordinator, and reports the expiry of the current one to the control plane
/// and the log.
async fn keep_fresh(identity: Identity, events: Events) {
    let mut warned: Option<Instant> = None;
    loop {
        let reading = identity.clone();
        // On another thread, because the folder may respond slowly. The next attempt waits for this one.
        match tokio::task::spawn_blocking(move || reading.refresh()).await.expect("reading does not panic") {
            Ok(true) => tracing::info!("loaded a new certificate"),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "cannot reload the certificate"),
        }
        let expires = identity.expires();
        if events
            .send(Incoming::Event(Event::Certificate { role: Role::Coordinator, expires }))
            .await
            .is_err()
        {
            return; // The coordinator is stopping.
        }
        let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
        if left < RENEW_WITHIN && warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            let days = left.as_secs() / 86_400;
            tracing::warn!(
                days,
                "the coordinator's certificate expires soon; run `mend renew` on the machine with ca.key"
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

/// Starts the thread that owns all state. When the thread ends, the returned receiver gets the catalog's
/// error if that is the cause.
fn start_core(
    config: &CoordinatorConfig,
    mut storage: Storage,
    events: EventQueue,
    load: &Load,
) -> Result<oneshot::Receiver<Option<OpenError>>, RunError> {
    let cluster = config.cluster.config();
    let settings = Settings {
        cluster_id: cluster.cluster_id.to_string(),
        code: cluster.defaults.code.clone(),
        block_bytes: cluster.defaults.block_bytes.bytes(),
        scheme: cluster.defaults.scheme.clone(),
        repair_after: cluster.coordinator.repair_after,
        helpers: Some(cluster.helper_names()),
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
        core.handle(Event::EncryptEdges, Now { unix_ms: unix_ms(), ..Now::default() });
    }
    storage.rebuild_through(Arc::new(OwnRebuilder::new(Asking::new(load.events.clone()))));
    let storage = StorageThread::start(storage, term, load.events.clone()).map_err(RunError::Thread)?;
    let (end, ended) = oneshot::channel();
    let event_seconds = load.event_seconds.clone();
    let work = move || {
        let lost = Driver::new(core, storage, event_seconds).run(events);
        let _ = end.send(lost); // The receiver may be gone. After a panic, the sender is dropped instead.
    };
    thread::Builder::new().name("coordinator".into()).spawn(work).map_err(RunError::Thread)?;
    Ok(ended)
}
