//! Daemons that run in a test's own binary, which the lab starts in place of `mend`.

use std::sync::Arc;

use cluster::{Cluster, OwnRepair, Role};

/// Runs the coordinator; never returns.
pub async fn coordinate(cluster: Cluster) {
    let storage = stores::storage(&cluster, OwnRepair::Auto).unwrap();
    let config = coordinator::CoordinatorConfig::from_cluster(cluster);
    let _handle = coordinator::start(config, storage).await.unwrap_or_else(|error| panic!("{error}"));
    println!("ready");
    std::future::pending::<()>().await;
}

/// Runs a helper until its coordinator refuses it.
pub async fn help(cluster: &Cluster, name: cluster::Name) {
    let config = cluster.config().helper(&name).unwrap();
    let identity = cluster.identity(&Role::Helper(name.clone())).unwrap();
    let blocks = dir::DirBlocks::open(cluster.blocks_folder(config)).unwrap();
    let options = helper::DaemonOptions::new(cluster, config, identity, Arc::new(blocks));
    let daemon = helper::Daemon::bind(options).await.unwrap_or_else(|error| panic!("{error}"));
    daemon.run(|| println!("ready")).await.unwrap_or_else(|error| panic!("{error}"));
}
