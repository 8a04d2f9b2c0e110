//! Tests that a store can be one crate: `store.rs` is a complete store with its own catalog, files and
//! blocks; the coordinator's records are in redb. The real coordinator, helpers and client put a file into
//! it, lose a block, repair the block and read the file.

mod store;

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{ByteRange, Client, GetOptions, GetTarget, PutOptions, no_progress};
use cluster::{Cluster, HelperConfig, InitOptions, Role};
use coordinator::{CoordinatorConfig, Handle};
use dir::DirCatalog;
use helper::{Daemon, DaemonOptions};
use store::{Toy, ToyBlocks};
use store_api::{Storage, StorePolicy};

const HELPERS: u16 = 5;

/// Returns a port that was free at the time of the call.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn new_cluster(folder: &Path) -> Cluster {
    let (api_port, control_port) = (free_port(), free_port());
    let options = InitOptions {
        helpers: HELPERS,
        first_helper_port: 0,
        api_port,
        control_port,
        ..InitOptions::default()
    };
    Cluster::init(folder, &options).unwrap()
}

/// Starts a coordinator with the toy's catalog and files, over records in redb.
async fn coordinate(cluster: &Cluster) -> Handle {
    let records = DirCatalog::create(stores::catalog_path(cluster), "toy").unwrap();
    let toy = Arc::new(Mutex::new(Toy::default()));
    let storage = Storage::new("toy", StorePolicy::OWN, Arc::clone(&toy), records).with_files(toy);
    let mut config = CoordinatorConfig::from_cluster(cluster.clone());
    config.heal = Some(false);
    coordinator::start(config, storage).await.unwrap()
}

async fn help(cluster: Cluster, config: HelperConfig, blocks: ToyBlocks) {
    let identity = cluster.identity(&Role::Helper(config.name.clone())).unwrap();
    let options = DaemonOptions::new(&cluster, &config, identity, Arc::new(blocks));
    Daemon::bind(options).await.unwrap().run(|| ()).await.unwrap();
}

/// Polls a condition for up to a minute; panics if it does not become true.
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
    let put = async || client.put(&source, "file", &options, no_progress()).await.is_ok();
    eventually("the file is put", put).await;
    let held = || blocks.iter().map(|blocks| blocks.0.lock().unwrap().len()).sum::<usize>();
    let stored = held();
    assert_eq!(stored % usize::from(HELPERS), 0, "every stripe has a block on each helper");

    let lost = blocks[2].0.lock().unwrap().pop_first().expect("it holds a block of every stripe");
    client.scrub(false).await.unwrap();
    eventually("the block is repaired", async || held() == stored).await;
    assert_eq!(blocks[2].0.lock().unwrap().get(&lost.0), Some(&lost.1), "the same bytes where it was");

    let found = client.find("file", ByteRange::ALL).await.unwrap();
    let target = GetTarget::File(copy.clone());
    client.get(&found, &GetOptions::default(), target, no_progress()).await.unwrap();
    assert_eq!(std::fs::read(&copy).unwrap(), content);
    client.remove("file").await.unwrap();
    eventually("the blocks of a removed file go", async || held() == 0).await;
    handle.stop().await;
}
