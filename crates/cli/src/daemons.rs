//! Verbs that run until they are stopped. Each prints one line starting with `ready` to stdout once it
//! serves; scripts wait for this line.

use std::io::Write;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use attached::KindError;
use cluster::{Cluster, HelperConfig, Identity, Name, OwnRepair, Role};
use coordinator::CoordinatorConfig;
use helper::{Activity, Daemon, DaemonError, DaemonOptions, keep_fresh};
use store_api::Blocks;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::answer::Answer;
use crate::descriptors;
use crate::failure::{Exit, Failure};
use crate::helper_metrics::{Metrics, SharedBlocks};
use crate::interrupt::{Interrupts, interrupted};

/// How often to look whether the certificate is valid by now.
const RENEWAL_EVERY: Duration = Duration::from_secs(2);
/// How often a helper checks whether its folder of blocks was exchanged.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often a helper tries to open its folders again before it serves the former blocks.
const OPENED_AGAIN: usize = 5;
/// The interval of warnings while the folder of blocks is being opened.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// The time in which the port is closed before it is opened again.
const CLOSING_TIME: Duration = Duration::from_secs(1);
/// How soon a helper looks again at folders that it could not open again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How long a coordinator that stops waits until its catalog is closed.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Implements `mend coordinator`.
pub async fn coordinator(cluster: Cluster, dry_run: bool) -> Result<Answer, Failure> {
    let mut interrupts = Interrupts::listen();
    // On another thread, because a disk that hangs must not keep this one from the signals.
    let starting = tokio::task::spawn_blocking(move || start(cluster, dry_run));
    let started = tokio::select! {
        started = starting => started,
        () = interrupts.next() => return Ok(stopping()),
    };
    let started = started.map_err(|error| Failure::new(format!("cannot start the coordinator: {error}")));
    let mut handle = started??;
    say(&format!("ready: coordinator, API at {}, control at {}", handle.api_addr, handle.control_addr));
    tokio::select! {
        error = handle.crashed() => return Err(Failure::new(error)),
        () = interrupts.next() => {}
    }
    let answer = stopping();
    closed(handle.stop(), STOP_LIMIT, &mut interrupts).await?;
    Ok(answer)
}

/// Opens the coordinator's storage and starts the coordinator on the current runtime. Blocks.
fn start(cluster: Cluster, dry_run: bool) -> Result<coordinator::Handle, Failure> {
    let runtime = Handle::current();
    runtime.block_on(await_valid(&cluster, &Role::Coordinator))?;
    let own_repair = effective(stores::own_repair(&cluster)?, dry_run);
    let mut config = CoordinatorConfig::from_cluster(cluster);
    config.descriptors = descriptors::raise();
    config.servers = stores::servers(&config.cluster)?;
    config.heal = heal(own_repair);
    let storage = stores::storage(&config.cluster, own_repair)?;
    runtime.block_on(coordinator::start(config, storage)).map_err(Failure::new)
}

/// Waits until the catalog is closed. A further signal or the time limit ends the wait with an error.
async fn closed(
    closing: impl Future<Output = ()>,
    limit: Duration,
    interrupts: &mut Interrupts,
) -> Result<(), Failure> {
    let why = tokio::select! {
        () = closing => return Ok(()),
        () = interrupts.next() => "a second signal arrived".to_owned(),
        () = tokio::time::sleep(limit) => format!("this takes longer than {} s", limit.as_secs()),
    };
    Err(Failure::new(format!("stopped before the catalog was closed: {why}")).help(
        "check the disk of the catalog; nothing that was acknowledged is lost, and the next start recovers the catalog",
    ))
}

/// Implements `mend helper NAME`.
pub async fn helper(cluster: &Cluster, name: &Name) -> Result<Answer, Failure> {
    tokio::select! {
        served = serve(cluster, name) => served.map(|()| Answer::silent()),
        () = interrupted() => Ok(stopping()),
    }
}

fn stopping() -> Answer {
    tracing::info!("stopping");
    Answer::silent()
}

/// Runs a helper. Opens its folder of blocks again whenever another folder is at the path.
async fn serve(cluster: &Cluster, name: &Name) -> Result<(), Failure> {
    let config = cluster.config().helper(name).ok_or_else(|| no_such_helper(cluster, name))?;
    let mut told = false;
    let (activity, shared) = (Activity::default(), SharedBlocks::default());
    let metrics = Metrics::bind(config).await?;
    let mut servers = JoinSet::new(); // Dropping it stops them.
    // All daemons and the metrics share one identity. It is kept fresh also while the folders cannot be opened.
    let identity = await_valid(cluster, &Role::Helper(name.clone())).await?;
    servers.spawn(keep_fresh(identity.clone(), cluster.config().coordinator.dial_control()));
    if let Some(metrics) = metrics {
        let (activity, shared, identity) = (activity.clone(), shared.clone(), identity.clone());
        servers.spawn(metrics.serve(activity, shared, identity, descriptors::raise()));
    }
    let mut former = Former::default();
    loop {
        let opened = reopened(&former, || open(cluster.clone(), config.clone())).await;
        let (blocks, look_after) = match opened.map_err(|error| former.unless_in_use(error)) {
            Ok(blocks) => (blocks, LOOK_EVERY),
            Err(Ok(blocks)) => (blocks, LOOK_AGAIN_AFTER),
            Err(Err(error)) if told => {
                tracing::error!(%error, "cannot open the folder of blocks; trying again");
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            Err(Err(error)) => return Err(error.into()),
        };
        former = Former(Some(Arc::downgrade(&blocks)));
        let mut options = DaemonOptions::new(cluster, config, identity.clone(), blocks.clone());
        options.descriptors = descriptors::raise();
        options.activity = activity.clone();
        *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(blocks.clone());
        let daemon = Daemon::bind(options).await.map_err(daemon_failure)?;
        let line = format!("ready: helper {name} at {}", daemon.address());
        let ready = || {
            if !std::mem::replace(&mut told, true) {
                say(&line);
            }
        };
        tokio::select! {
            result = daemon.run(ready) => return result.map_err(daemon_failure),
            () = displaced(blocks, look_after) => {
                tracing::warn!("the folders of blocks have changed; opening them again");
                // The folders stay locked until nothing uses them.
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
                tokio::time::sleep(CLOSING_TIME).await;
            }
        }
    }
}

/// Opens the folders of blocks. While the former blocks are in use, tries again for ten seconds: an operation that ends
/// soon may keep their folders locked.
async fn reopened<E, F>(former: &Former, mut open: impl FnMut() -> F) -> Result<Arc<dyn Blocks>, E>
where
    F: Future<Output = Result<Arc<dyn Blocks>, E>>,
{
    for _ in 0..OPENED_AGAIN {
        let opened = open().await;
        if opened.is_ok() || former.in_use().is_none() {
            return opened;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    open().await
}

/// Opens the folders of blocks once, on another thread.
async fn open(cluster: Cluster, helper: HelperConfig) -> Result<Arc<dyn Blocks>, KindError> {
    let opening = tokio::task::spawn_blocking(move || stores::blocks(&cluster, &helper));
    saying_so(opening).await.expect("opening a folder does not panic")
}

/// Waits for the folders of blocks to be opened, and logs periodically that the disk does not answer.
async fn saying_so<T>(mut opening: JoinHandle<T>) -> Result<T, JoinError> {
    loop {
        match timeout(WARN_EVERY, &mut opening).await {
            Ok(opened) => return opened,
            Err(_elapsed) => tracing::warn!("waiting for the disk to open the folder of blocks"),
        }
    }
}

/// The blocks that the helper served before it opened their folders again.
#[derive(Default)]
struct Former(Option<Weak<dyn Blocks>>);

impl Former {
    /// Returns the former blocks if an operation on one of their disks has not ended. Their folders stay locked until
    /// then.
    fn in_use(&self) -> Option<Arc<dyn Blocks>> {
        self.0.as_ref().and_then(Weak::upgrade)
    }

    /// Returns the former blocks if they are still in use, after their folders could not be opened again. Otherwise
    /// returns the error.
    fn unless_in_use<E: std::fmt::Display>(&self, error: E) -> Result<Arc<dyn Blocks>, E> {
        let Some(blocks) = self.in_use() else { return Err(error) };
        tracing::error!(%error, "cannot open the folders of blocks again; serving those that were open before");
        Ok(blocks)
    }
}

/// Waits until another folder of blocks is at the path of the opened one, for example because its disk was
/// mounted after the helper had started. Looks for the first time after this time.
async fn displaced(blocks: Arc<dyn Blocks>, look_after: Duration) {
    tokio::time::sleep(look_after.saturating_sub(LOOK_EVERY)).await;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let blocks = Arc::clone(&blocks);
        if tokio::task::spawn_blocking(move || blocks.is_displaced()).await.unwrap_or(false) {
            return;
        }
    }
}

/// Returns the coordinator's automatic reaction to damage: `--dry-run` overrides the configuration.
fn effective(own_repair: OwnRepair, dry_run: bool) -> OwnRepair {
    if dry_run { OwnRepair::DryRun } else { own_repair }
}

/// Returns the coordinator's mode of automatic repair: `Some(false)` to repair, `Some(true)` to only log what
/// it would repair, `None` to do neither.
fn heal(own_repair: OwnRepair) -> Option<bool> {
    match own_repair {
        OwnRepair::Auto => Some(false),
        OwnRepair::DryRun => Some(true),
        OwnRepair::Off => None,
    }
}

/// Loads a role's identity. If its certificate has expired, waits for a renewed one; if it is not valid yet,
/// waits until it is. A daemon that exits would have to be restarted by hand.
async fn await_valid(cluster: &Cluster, role: &Role) -> Result<Identity, Failure> {
    let mut told = None;
    loop {
        let (error, awaited) = match cluster.identity(role) {
            Err(error) if error.is_expired() => {
                (error, "waiting for a new certificate: run `mend renew` on the machine with ca.key")
            }
            Err(error) if error.is_not_yet_valid() => (error, "waiting until it is valid"),
            result => return Ok(result?),
        };
        if told.replace(awaited) != Some(awaited) {
            tracing::error!("{error}; {awaited}");
        }
        tokio::time::sleep(RENEWAL_EVERY).await;
    }
}

fn daemon_failure(error: DaemonError) -> Failure {
    let failure = Failure::new(&error);
    match error {
        DaemonError::Session(_) => failure.exit(Exit::Unreachable),
        _ => failure,
    }
}

fn no_such_helper(cluster: &Cluster, name: &Name) -> Failure {
    let known: Vec<&str> = cluster.config().helpers.iter().map(|helper| helper.name.as_str()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Failure::new(format!("mend.toml has no helper {name}; it has {known}"))
        .help(format!("add it with `mend node add {name} --listen IP:PORT`"))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Ignore the error: stdout may be closed.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use dir::DirBlocks;
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn former_blocks_are_served_while_an_operation_keeps_their_folders_locked() {
        let folder = tempfile::tempdir().unwrap();
        let open = || DirBlocks::open(folder.path());
        assert!(Former::default().unless_in_use("missing").is_err(), "the helper has just started");
        let blocks: Arc<dyn Blocks> = Arc::new(open().unwrap());
        let (former, verifying) = (Former(Some(Arc::downgrade(&blocks))), blocks.clone());
        drop(blocks);
        let blocks = former.unless_in_use(open().unwrap_err()).expect("they are in use");
        blocks.list().unwrap();
        drop((blocks, verifying));
        assert!(former.unless_in_use("gone").is_err());
        open().unwrap();
    }

    #[tokio::test]
    async fn folders_that_are_in_use_for_a_moment_are_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let blocks: Arc<dyn Blocks> = Arc::new(DirBlocks::open(folder.path()).unwrap());
        let former = Former(Some(Arc::downgrade(&blocks)));
        let mut attempts = 0;
        let open = || {
            attempts += 1;
            ready(if attempts == 1 { Err("locked") } else { Ok(blocks.clone()) })
        };
        assert!(reopened(&former, open).await.is_ok());
        assert_eq!(attempts, 2);
    }

    #[tokio::test]
    async fn a_catalog_that_cannot_be_closed_does_not_keep_the_coordinator() {
        let mut interrupts = Interrupts::listen();
        let long = Duration::from_secs(60);
        closed(ready(()), long, &mut interrupts).await.unwrap();
        let late = closed(pending(), Duration::from_millis(10), &mut interrupts).await.unwrap_err();
        assert!(late.message().contains("takes longer"), "{late:?}");
        // A signal that arrives between two waits counts.
        kill_process(getpid(), Signal::TERM).unwrap();
        let second = closed(pending(), long, &mut interrupts).await.unwrap_err();
        assert!(second.message().contains("second signal"), "{second:?}");
    }
}
