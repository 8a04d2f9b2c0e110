//! The daemons that the lab starts from a test's own binary.

use std::sync::Arc;

use cluster::{Cluster, Role};

/// Runs the coordinator.
pub async fn coordinate(cluster: Cluster) {
    let config = coordinator::CoordinatorConfig::from_cluster(cluster);
    let _handle = coordinator::start(config).await.unwrap_or_else(|error| panic!("{error}"));
    println!("ready");
    std::future::pending::<()>().await;
}

/// Runs a helper.
pub async fn help(cluster: &Cluster, name: cluster::Name) {
    let config = cluster.config().helper(&name).unwrap();
    let options = helper::DaemonOptions {
        cluster_id: cluster.config().cluster_id,
        identity: cluster.identity(&Role::Helper(name.clone())).unwrap(),
        coordinator: cluster.config().coordinator.dial_control(),
        listen: config.listen,
        advertise: None,
        rack: config.rack.clone(),
        rates: repair::StatedRates::default(),
        limits: repair::Caps::default(),
        data_tls: cluster.config().encrypts_data_edges(),
        blocks: Arc::new(dir::DirBlocks::open(cluster.blocks_folder(config)).unwrap()),
        descriptors: 1024,
    };
    let daemon = helper::Daemon::bind(options).await.unwrap_or_else(|error| panic!("{error}"));
    daemon.run(|| println!("ready")).await.unwrap_or_else(|error| panic!("{error}"));
}
