//! The daemon behind `mend helper`: an engine and a session that serve a node's blocks.

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cluster::{Address, Bandwidth, Cluster, ClusterId, HelperConfig, Identity, LimitsConfig, Role};
use repair::wire::control::{self, FromNode, HeldBlock, ToNode};
use repair::{Caps, Rates, StatedRates};
use store_api::{BlockError, BlockList, Blocks};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::activity::Activity;
use crate::background_pacing::BackgroundPacing;
use crate::engine::{Engine, apart};
use crate::local::Local;
use crate::outbox::outbox;
use crate::queries::Queries;
use crate::recent_blocks::RecentBlocks;
use crate::removals::Removals;
use crate::rendezvous::{Rendezvous, bind};
use crate::renewal::{Reconnection, refresh_aside};
use crate::session::{ConnectError, Session};
use crate::workers::Workers;
use crate::write_checks::{self, WriteChecks};

/// The pause between attempts to connect to the coordinator.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// The pause before the certificate is loaded again when ours or the coordinator's is not valid now.
const RENEWAL_EVERY: Duration = Duration::from_secs(5);
/// How long registration is retried after the coordinator refused it because our name is already connected. A
/// coordinator that has not noticed the loss of our last connection refuses a second one, but notices within
/// this time. After that, another node must be using our name.
const REFUSAL_LIMIT: Duration = Duration::from_secs(15);
/// The limit of file descriptors that Linux gives a process by default.
const USUAL_DESCRIPTORS: u64 = 1024;
/// The maximum number of threads that move slices; each moves more than two gigabytes a second.
const MAX_WORKERS: usize = 8;

/// The configuration of a helper.
pub struct DaemonOptions {
    /// The id of the cluster that the helper's blocks belong to.
    pub cluster_id: ClusterId,
    /// The helper's name, certificate and private key. The caller [loads renewed certificates](crate::keep_fresh).
    pub identity: Identity,
    /// The address for control connections to the coordinator.
    pub coordinator: Address,
    /// The listen address for data edges.
    pub listen: SocketAddr,
    /// The address that other nodes dial, if it differs from the listen address.
    pub advertise: Option<Address>,
    /// The helper's rack, if one is configured.
    pub rack: Option<String>,
    /// The rates of the helper's network ports and disk, where configured.
    pub rates: StatedRates,
    /// The caps from the helper's own configuration; the coordinator can only lower them.
    pub limits: Caps,
    /// Whether the helper refuses unencrypted data edges. Edges that the coordinator wants encrypted are
    /// encrypted in any case.
    pub data_tls: bool,
    /// The helper's block store.
    pub blocks: Arc<dyn Blocks>,
    /// The process's limit of file descriptors. A share of the descriptors is reserved for unauthenticated
    /// connections.
    pub descriptors: u64,
    /// The state that the helper's metrics show.
    pub activity: Activity,
}

impl DaemonOptions {
    /// Takes the options from a cluster's configuration, and assumes Linux's default limit of file
    /// descriptors.
    pub fn new(
        cluster: &Cluster,
        helper: &HelperConfig,
        identity: Identity,
        blocks: Arc<dyn Blocks>,
    ) -> Self {
        Self {
            cluster_id: cluster.config().cluster_id,
            identity,
            coordinator: cluster.config().coordinator.dial_control(),
            listen: helper.listen,
            advertise: helper.advertise.clone(),
            rack: helper.rack.clone(),
            rates: stated_rates(helper),
            limits: caps(&helper.limits),
            data_tls: cluster.config().encrypts_data_edges(),
            blocks,
            descriptors: USUAL_DESCRIPTORS,
            activity: Activity::default(),
        }
    }
}

/// Returns a helper's rates: the configured rates of its links and disk, or its caps where these are lower.
fn stated_rates(config: &HelperConfig) -> StatedRates {
    let limits = &config.limits;
    let assumed = Rates::default();
    // A rate that is not configured stays unset. If the cap is lower than the default rate, however, the cap
    // is used as the rate.
    let least = |rate: Option<Bandwidth>, cap: Option<Bandwidth>, assumed: f64| {
        let cap = cap.filter(|cap| rate.is_some() || cap.bytes_per_second() < assumed);
        rate.into_iter().chain(cap).min().map(|rate| rate.bytes_per_second() as u64)
    };
    StatedRates {
        up: least(config.uplink.or(config.bandwidth), limits.up, assumed.up),
        down: least(config.downlink.or(config.bandwidth), limits.down, assumed.down),
        read: least(config.disk_read, limits.disk, assumed.read),
        write: least(config.disk_write, limits.disk, assumed.write),
    }
}

fn caps(limits: &LimitsConfig) -> Caps {
    let rate = |cap: Option<Bandwidth>| cap.map(|cap| cap.bytes_per_second() as u64);
    Caps {
        disk: rate(limits.disk),
        up: rate(limits.up),
        down: rate(limits.down),
        repair: rate(limits.repair),
        ..Caps::default()
    }
}

/// Why a helper cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The data port is in use or forbidden.
    #[error(
        "cannot listen on {address}: {source}; change `listen` of this helper in mend.toml, or stop the \
         program that uses the port"
    )]
    Listen {
        /// The listen address.
        address: SocketAddr,
        /// The error reported by the system.
        source: io::Error,
    },
    /// The coordinator rejects the helper.
    #[error(transparent)]
    Session(#[from] ConnectError),
    /// Threads cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(#[source] io::Error),
    /// The store cannot list its blocks.
    #[error("cannot list the blocks: {0}")]
    Blocks(#[from] BlockError),
}

/// A helper that has bound its data port.
pub struct Daemon {
    options: DaemonOptions,
    rendezvous: Rendezvous,
    address: SocketAddr,
    listener: Option<TcpListener>,
    write_checks: WriteChecks,
    removals: Removals,
    recent: RecentBlocks,
    pacing: BackgroundPacing,
}

impl Daemon {
    /// Binds the data port.
    ///
    /// # Errors
    /// [`DaemonError::Listen`].
    pub async fn bind(options: DaemonOptions) -> Result<Self, DaemonError> {
        let failed = |source| DaemonError::Listen { address: options.listen, source };
        let listener = bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let rendezvous = Rendezvous::within(options.descriptors).secured(&options.identity, options.data_tls);
        let (write_checks, removals, recent) = Default::default();
        let pacing = BackgroundPacing::new(options.activity.traffic().clone());
        let listener = Some(listener);
        Ok(Self { options, rendezvous, address, listener, write_checks, removals, recent, pacing })
    }

    /// Returns the address of the bound data port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the coordinator refuses the helper, or either side rejects the other's certificate. Calls
    /// `ready` after every registration.
    ///
    /// After a transient problem (an unreachable or silent coordinator, a certificate that has expired or is
    /// not valid yet, or blocks that cannot be listed at the moment) the helper retries indefinitely, and logs each problem once. When
    /// the coordinator is lost, or the returned future is dropped, all jobs are dropped together with everything they
    /// have not committed.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub async fn run(mut self, mut ready: impl FnMut()) -> Result<(), DaemonError> {
        let listener = self.listener.take().expect("run is called once, after bind");
        let _listening = AbortOnDrop(tokio::spawn(self.rendezvous.clone().listen(listener)));
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let workers = Workers::here_and(cores.min(MAX_WORKERS) - 1).map_err(DaemonError::Threads)?;
        let mut waiting = Waiting::default();
        loop {
            match self.serve(&workers, &mut ready).await {
                Ok(()) => waiting = Waiting::default(),
                Err(error) if waiting.is_worthwhile(&error) => {
                    waiting.say(&error);
                    if outside_validity(&error).is_some() {
                        tokio::time::sleep(RENEWAL_EVERY).await;
                        refresh_aside(&self.options.identity).await;
                    }
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(RETRY_EVERY).await;
        }
    }

    async fn serve(&self, workers: &Workers, ready: &mut impl FnMut()) -> Result<(), DaemonError> {
        let (reports, outgoing) = outbox();
        self.write_checks.check_before_registering(&self.options.blocks).await;
        let removals = self.removals.next_connection().await;
        let (hello, silent) = self.hello().await?;
        let reconnection = Reconnection::new(&self.options.identity);
        let mut session =
            Session::open(&self.options.coordinator, &self.options.identity, hello, outgoing).await?;
        let helper = match self.options.identity.role() {
            Role::Helper(name) => name.to_string(),
            role => role.to_string(),
        };
        tracing::info!(helper, node = %session.node, address = %self.address, "registered");
        ready();
        let local = Local::Store(self.options.blocks.clone());
        let engine = Engine::new(local, self.rendezvous.clone(), reports.clone(), workers.clone())
            .within(self.options.limits)
            .paced_by(self.pacing.clone())
            .remembering(self.recent.clone());
        let _jobs = engine.forget_on_drop();
        let _registered = self.options.activity.registered(&engine);
        let (blocks, write_checks) = (self.options.blocks.clone(), self.write_checks.clone());
        let recent = self.recent.clone();
        let queries = Queries::new(blocks, reports, engine.clone(), recent, write_checks, removals);
        queries.handle(ToNode::Ping); // Tells at once what the coordinator would ask for within a second.
        let mut is_renewed = false;
        while let Some(message) = session.incoming.recv().await {
            // The coordinator sends pings, so this is noticed soon.
            if self.write_checks.hangs() || self.options.blocks.silent_folders() != silent {
                break;
            }
            is_renewed = message == ToNode::Ping && reconnection.is_due(engine.jobs());
            if is_renewed {
                break;
            }
            if let Some(message) = engine.handle(message) {
                queries.handle(message);
            }
        }
        let now_silent = self.options.blocks.silent_folders();
        match self.write_checks.hangs() {
            true => tracing::error!("the disk hangs; leaving the coordinator, and dropping its jobs"),
            false if now_silent != silent => {
                tracing::error!(
                    folders = %now_silent.join(", "),
                    "other folders than before do not answer; registering again, and dropping all jobs"
                );
            }
            false if is_renewed => tracing::info!("registering again with the renewed certificate"),
            false => tracing::warn!("lost the connection to the coordinator; dropping its jobs"),
        }
        Ok(())
    }

    /// Returns the messages that register the helper and list its blocks; long lists need several messages.
    /// Also returns the folders that did not answer before the listing.
    async fn hello(&self) -> Result<(Vec<FromNode>, Vec<String>), DaemonError> {
        let (blocks, write_checks) = (self.options.blocks.clone(), self.write_checks.clone());
        let listing = apart(move || {
            let before = blocks.silent_folders(); // A folder that changes during the listing differs from these.
            let BlockList { held, silent } = blocks.list_answering()?;
            let free_bytes = write_checks.free_bytes(&*blocks)?;
            Ok::<_, BlockError>((control::parts(held), (before, silent), free_bytes))
        });
        tokio::pin!(listing);
        let (held, (before, silent), free_bytes) = loop {
            match timeout(write_checks::WARN_EVERY, &mut listing).await {
                Ok(listed) => break listed?,
                Err(_elapsed) => tracing::warn!(
                    "waiting for the disk to list the blocks before registering with the coordinator"
                ),
            }
        };
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
            incomplete: write_checks::silence(&silent),
            free_bytes,
        };
        let last = held.len() - 1;
        let message = |(at, blocks)| match at {
            0 => register(blocks, at < last),
            _ => FromNode::Held { blocks, more: at < last },
        };
        let messages = held.into_iter().enumerate().map(message).collect();
        Ok((messages, before))
    }
}

/// State that is kept between failed attempts to register.
#[derive(Default)]
struct Waiting {
    /// The last logged problem.
    said: Option<String>,
    /// When the current series of transient refusals began.
    refused: Option<Instant>,
}

impl Waiting {
    /// Whether the error may be transient and a retry makes sense.
    fn is_worthwhile(&mut self, error: &DaemonError) -> bool {
        match error {
            DaemonError::Session(ConnectError::Refused { passing: true, .. }) => {
                self.refused.get_or_insert_with(Instant::now).elapsed() < REFUSAL_LIMIT
            }
            DaemonError::Session(ConnectError::Unreachable { .. }) | DaemonError::Blocks(_) => {
                self.refused = None;
                true
            }
            error if outside_validity(error).is_some() => {
                self.refused = None;
                true // A renewed certificate is loaded without a restart, and a wrong clock is set right.
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

    /// Logs the problem if it differs from the problem that was logged last.
    fn say(&mut self, error: &DaemonError) {
        let hint = outside_validity(error).map(|hint| format!("; {hint}")).unwrap_or_default();
        let text = format!("{error}{hint}");
        if self.said.as_ref() != Some(&text) {
            tracing::warn!("{text}; trying again");
            self.said = Some(text);
        }
    }
}

/// Returns the operator's next step if our certificate or the coordinator's is not valid now by one of the
/// clocks.
fn outside_validity(error: &DaemonError) -> Option<&'static str> {
    match error {
        DaemonError::Session(ConnectError::Untrusted { distrust, .. }) => distrust.next_step(),
        _ => None,
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cluster::InitOptions;
    use repair::{Assignment, BlockId, Class, Digest, LocalBlock, NodeId, Sink};
    use store_api::{BlockReader, Delivery, Gate, Sinks, Sources};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::server::TlsStream;

    use super::*;
    use crate::job::tests::assignment;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A store with a folder that answers and one whose disk hangs.
    struct HalfSilent;

    impl Sources for HalfSilent {
        fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
            Err(BlockError::Missing { block: block.id.clone(), path: "/d1".to_owned() })
        }
    }

    impl Sinks for HalfSilent {
        fn deliver(&self, _: &Sink) -> Result<Delivery, BlockError> {
            unreachable!("no block is stored")
        }
    }

    impl Blocks for HalfSilent {
        fn verify(&self, _: &BlockId, _: &dyn Gate) -> Result<Option<Digest>, BlockError> {
            unreachable!("no block is verified")
        }

        fn remove(&self, _: &BlockId) -> Result<bool, BlockError> {
            unreachable!("no block is removed")
        }

        fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
            Err(BlockError::Hangs { path: "/d2".to_owned() })
        }

        fn list_answering(&self) -> Result<BlockList, BlockError> {
            let held = vec![HeldBlock { id: BlockId("a".to_owned()), bytes: 1 }];
            Ok(BlockList { held, silent: self.silent_folders() })
        }

        fn silent_folders(&self) -> Vec<String> {
            vec!["/d2".to_owned()]
        }

        fn free_bytes(&self) -> Result<u64, BlockError> {
            Ok(7)
        }
    }

    /// Creates a cluster in `folder`. Returns it with the options of its only helper.
    fn options(folder: &Path, blocks: Arc<dyn Blocks>) -> (Cluster, DaemonOptions) {
        let options = InitOptions { helpers: 1, first_helper_port: 0, ..InitOptions::default() };
        let cluster = Cluster::init(&folder.join("cluster"), &options).unwrap();
        let helper = &cluster.config().helpers[0];
        let identity = cluster.identity(&Role::Helper(helper.name.clone())).unwrap();
        let options = DaemonOptions::new(&cluster, helper, identity, blocks);
        (cluster, options)
    }

    /// Imitates a coordinator that registers a helper and assigns it a job. Returns the connection once the
    /// helper has reported on the job.
    async fn assign(listener: &TcpListener, identity: &Identity, job: Assignment) -> TlsStream<TcpStream> {
        let (socket, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(identity.server_config()).accept(socket).await.unwrap();
        while !matches!(next(&mut stream).await, FromNode::RegisterHelper { .. }) {}
        for message in [ToNode::Registered { node: NodeId(1) }, ToNode::Assign(Box::new(job))] {
            stream.write_all(&control::encode(&message)).await.unwrap();
        }
        stream.flush().await.unwrap();
        while !matches!(next(&mut stream).await, FromNode::Report { .. }) {}
        stream
    }

    /// Receives a helper's next message.
    async fn next(stream: &mut TlsStream<TcpStream>) -> FromNode {
        let mut length = [0; 4];
        stream.read_exact(&mut length).await.unwrap();
        let mut message = vec![0; control::decode_length(length).unwrap()];
        stream.read_exact(&mut message).await.unwrap();
        control::decode(&message).unwrap()
    }

    /// The folders of a store stay locked while anything uses the store, so the next daemon could not open them.
    #[tokio::test]
    async fn a_daemon_that_is_dropped_leaves_no_job_that_uses_the_store() {
        let scratch = tempfile::tempdir().unwrap();
        let blocks: Arc<dyn Blocks> = Arc::new(HalfSilent);
        let (cluster, mut options) = options(scratch.path(), blocks.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        options.coordinator = address.into();
        let identity = cluster.identity(&Role::Coordinator).unwrap();
        // A part of a read lasts until the coordinator has it forgotten, even if the read cannot begin.
        let read = Assignment { class: Class::Read, ..assignment(address.to_string()) };
        let daemon = Daemon::bind(options).await.unwrap();
        let _connection = tokio::select! {
            ended = daemon.run(|| ()) => panic!("{ended:?}"),
            connection = assign(&listener, &identity, read) => connection,
        };
        let unused = async {
            while Arc::strong_count(&blocks) > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, unused).await.expect("a job still uses the store");
    }

    #[tokio::test]
    async fn a_helper_registers_although_a_disk_hangs_and_names_it() {
        let scratch = tempfile::tempdir().unwrap();
        let (_cluster, options) = options(scratch.path(), Arc::new(HalfSilent));
        let daemon = Daemon::bind(options).await.unwrap();
        let (messages, silent) = daemon.hello().await.unwrap();
        let [FromNode::RegisterHelper { blocks, incomplete, .. }] = &messages[..] else {
            panic!("{messages:?}")
        };
        assert_eq!((blocks.len(), &silent[..]), (1, &["/d2".to_owned()][..]));
        assert_eq!(incomplete.as_deref(), Some("no answer from the disk of /d2"));
    }
}
