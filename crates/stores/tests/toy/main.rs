//! A store is one crate: `store.rs` is a complete store with its own catalog, files and blocks, over separate
//! records. The real coordinator, helpers and client put a file into it, lose a block, repair the block and
//! read the file.

mod store;

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{ByteRange, Client, GetOptions, GetTarget, PutOptions, no_progress};
use cluster::{Cluster, HelperConfig, InitOptions, Role};
use coordinator::{CoordinatorConfig, Handle};
use dir::DirCatalog;
use helper::{Daemon, DaemonOptions};
use store::{Toy, ToyBlocks};
use store_api::{Storage, StorePolicy};

const HELPERS: usize = 5;

/// A port that was free at the time of the call.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn new_cluster(folder: &std::path::Path) -> Cluster {
    let options = InitOptions {
        helpers: 0,
        api_port: free_port(),
        control_port: free_port(),
        ..InitOptions::default()
    };
    let mut cluster = Cluster::init(folder, &options).unwrap();
    for number in 1..=HELPERS {
        let name = format!("h{number}").parse().unwrap();
        cluster.add_helper(HelperConfig::new(name, "127.0.0.1:0".parse().unwrap())).unwrap();
    }
    cluster
}

/// Starts a coordinator with the toy's catalog and files, over records in redb.
async fn coordinate(cluster: &Cluster) -> Handle {
    let config = CoordinatorConfig::from_cluster(cluster.clone());
    let records = DirCatalog::create(&config.catalog, &cluster.config().cluster_id.to_string()).unwrap();
    let toy = Arc::new(Mutex::new(Toy::default()));
    let storage = Storage::new("toy", StorePolicy::OWN, Arc::clone(&toy), records).with_files(toy);
    let mut config = config;
    config.heal = Some(false);
    coordinator::start_on(config, storage).await.unwrap()
}

async fn help(cluster: Cluster, config: HelperConfig, blocks: ToyBlocks) {
    let options = DaemonOptions {
        cluster_id: cluster.config().cluster_id,
        identity: cluster.identity(&Role::Helper(config.name.clone())).unwrap(),
        coordinator: cluster.config().coordinator.dial_control(),
        listen: config.listen,
        advertise: None,
        rack: None,
        rates: repair::StatedRates::default(),
        limits: repair::Caps::default(),
        data_tls: false,
        blocks: Arc::new(blocks),
        descriptors: 1024,
    };
    Daemon::bind(options).await.unwrap().run(|| ()).await.unwrap();
}

/// Polls a condition for up to a minute.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what} within a minute");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_nothing_knows_is_put_into_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = new_cluster(&folder.path().join("cluster"));
    let handle = coordinate(&cluster).await;
    let blocks: Vec<ToyBlocks> = cluster.config().helpers.iter().map(|_| ToyBlocks::default()).collect();
    for (config, blocks) in cluster.config().helpers.iter().zip(&blocks) {
        tokio::spawn(help(cluster.clone(), config.clone(), blocks.clone()));
    }
    let client = Client::connect(&cluster, &Role::default_client()).unwrap();
    let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
    let content: Vec<u8> = (0..500_000u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    std::fs::write(&source, &content).unwrap();
    let options =
        PutOptions { code: Some("rs-5-3".into()), block_bytes: Some(64 << 10), ..PutOptions::default() };
    eventually("the file is put", async || {
        client.put(&source, "file", &options, no_progress()).await.is_ok()
    })
    .await;
    let held = || blocks.iter().map(|blocks| blocks.0.lock().unwrap().len()).sum::<usize>();
    let stored = held();
    assert_eq!(stored % HELPERS, 0, "every stripe has a block on each helper");

    let lost = blocks[2].0.lock().unwrap().pop_first().expect("it holds a block of every stripe");
    client.scrub(false).await.unwrap();
    eventually("the block is repaired", async || held() == stored).await;
    assert_eq!(blocks[2].0.lock().unwrap().get(&lost.0), Some(&lost.1), "the same bytes where it was");

    let found = client.find("file", ByteRange::ALL).await.unwrap();
    let got = client.get(&found, &GetOptions::default(), GetTarget::File(copy.clone()), no_progress()).await;
    got.unwrap();
    assert_eq!(std::fs::read(&copy).unwrap(), content);
    client.remove("file").await.unwrap();
    eventually("the blocks of a removed file go", async || held() == 0).await;
    handle.stop().await;
}
