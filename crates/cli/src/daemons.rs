//! Verbs that run until they are stopped. Each prints one line starting with `ready` to stdout once it
//! serves; scripts wait for this line.

use std::io::Write;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cluster::{Cluster, Identity, Name, OwnRepair, Role};
use coordinator::CoordinatorConfig;
use helper::{Activity, Daemon, DaemonError, DaemonOptions};
use store_api::Blocks;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::answer::Answer;
use crate::descriptors;
use crate::failure::{Exit, Failure};
use crate::helper_metrics::{Metrics, SharedBlocks};
use crate::interrupt::interrupted;

/// How often to look whether the certificate is valid by now.
const RENEWAL_EVERY: Duration = Duration::from_secs(2);
/// How often a helper checks whether its folder of blocks was exchanged.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The interval of warnings while the folder of blocks is being opened.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// The time in which the port is closed before it is opened again.
const CLOSING_TIME: Duration = Duration::from_secs(1);

/// Implements `mend coordinator`.
pub async fn coordinator(cluster: Cluster, dry_run: bool) -> Result<Answer, Failure> {
    tokio::select! {
        identity = await_valid(&cluster, &Role::Coordinator) => drop(identity?),
        () = interrupted() => return Ok(stopping()),
    }
    let own_repair = stores::own_repair(&cluster)?;
    let mut config = CoordinatorConfig::from_cluster(cluster);
    config.descriptors = descriptors::raise();
    config.servers = stores::servers(&config.cluster)?;
    config.heal = heal(own_repair, dry_run);
    let cluster = config.cluster.clone();
    let opened = tokio::task::spawn_blocking(move || stores::storage(&cluster)).await;
    let storage = opened.map_err(|error| Failure::new(format!("cannot open the storage: {error}")))??;
    let started = coordinator::start(config, storage).await;
    let mut handle = started.map_err(Failure::new)?;
    say(&format!("ready: coordinator, API at {}, control at {}", handle.api_addr, handle.control_addr));
    let crashed = tokio::select! {
        error = handle.crashed() => Some(error),
        () = interrupted() => None,
    };
    if let Some(error) = crashed {
        return Err(Failure::new(error));
    }
    let answer = stopping();
    handle.stop().await;
    Ok(answer)
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
    let mut metrics = Metrics::bind(config).await?;
    let mut servers = JoinSet::new(); // Dropping it stops them.
    loop {
        let identity = await_valid(cluster, &Role::Helper(name.clone())).await?;
        if let Some(metrics) = metrics.take() {
            let (activity, shared, identity) = (activity.clone(), shared.clone(), identity.clone());
            servers.spawn(metrics.serve(activity, shared, identity, descriptors::raise()));
        }
        let (of_cluster, helper) = (cluster.clone(), config.clone());
        let opening = tokio::task::spawn_blocking(move || stores::blocks(&of_cluster, &helper));
        let blocks = match saying_so(opening).await.expect("opening a folder does not panic") {
            Ok(blocks) => blocks,
            Err(error) if told => {
                tracing::error!(%error, "cannot open the folder of blocks; trying again");
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut options = DaemonOptions::new(cluster, config, identity, blocks.clone());
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
            () = displaced(blocks) => {
                tracing::warn!("the folders of blocks have changed; opening them again");
                // The folders stay locked until nothing uses them.
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
                tokio::time::sleep(CLOSING_TIME).await;
            }
        }
    }
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

/// Waits until another folder of blocks is at the path of the opened one, for example because its disk was
/// mounted after the helper had started.
async fn displaced(blocks: Arc<dyn Blocks>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let blocks = Arc::clone(&blocks);
        if tokio::task::spawn_blocking(move || blocks.is_displaced()).await.unwrap_or(false) {
            return;
        }
    }
}

/// Returns the coordinator's mode of automatic repair: `Some(false)` to repair, `Some(true)` to only log what
/// it would repair, `None` to do neither.
fn heal(own_repair: OwnRepair, dry_run: bool) -> Option<bool> {
    match own_repair {
        OwnRepair::Auto => Some(dry_run),
        OwnRepair::DryRun => Some(true),
        OwnRepair::Off => dry_run.then_some(true),
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
