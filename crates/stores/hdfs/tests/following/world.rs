//! The cluster that all cases share, and a store that is attached to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dir::DirCatalog;
use hdfs::{Attachment, BlockGroup, NameNodeSettings};
use repair::NodeId;
use store_api::{BlockState, NodeRecord, SharedRecords, Storage, StoreChange, StripeRecord};
use tempfile::TempDir;
use testbed::eventually;
use testbed::hdfs::{Cluster, ClusterOptions, Hadoop, StoredFiles};

const NODES: usize = 6;
pub const POLICY: &str = "RS-3-2-1024k";

pub struct World {
    pub cluster: Cluster,
    pub files: StoredFiles,
    pub store: Store,
    /// How often all files were listed before the NameNode was restarted.
    pub listings_before_restart: usize,
}

impl World {
    pub fn boot(hadoop: Hadoop) -> Self {
        let settings = [
            "dfs.blocksize=1048576",
            // HDFS rebuilds nothing.
            "dfs.namenode.replication.max-streams=0",
            "dfs.namenode.replication.max-streams-hard-limit=0",
            // The NameNode deletes old edits at each checkpoint.
            "dfs.namenode.num.extra.edits.retained=0",
        ];
        let options = ClusterOptions {
            data_nodes: NODES,
            settings: settings.map(str::to_owned).to_vec(),
            ..ClusterOptions::default()
        };
        let mut cluster = Cluster::boot(hadoop, options);
        cluster.console().make_policy_folder(POLICY);
        let mut files = StoredFiles::default();
        files.put(&mut cluster, &format!("/{POLICY}/first"), 4_000_000);
        let store = Store::open(&cluster);
        let mut world = Self { cluster, files, store, listings_before_restart: 0 };
        world.store.await_listed();
        world.assert_known();
        world
    }

    pub fn put(&mut self, path: &str, bytes: usize) {
        self.files.put(&mut self.cluster, &format!("/{POLICY}/{path}"), bytes);
    }

    /// Runs a command of `hdfs`.
    pub fn run(&mut self, words: &[&str]) {
        self.cluster.console().run(words);
    }

    /// The names of the stripes of all files.
    pub fn groups(&mut self) -> BTreeSet<String> {
        let blocks = self.cluster.console().fsck("/").into_iter().flat_map(|file| file.blocks);
        blocks.map(|block| format!("group_{}_{}", block.number, block.stamp)).collect()
    }

    /// How often all files were listed since the NameNode's last start, by its audit log.
    pub fn listings(&self) -> usize {
        let log = self.cluster.namenode_log();
        log.lines().filter(|line| line.contains("cmd=listStatus\tsrc=/\t")).count()
    }

    /// Returns the DataNode of a block in a file's only group, the block's files, and its name in Mend. A DataNode
    /// reports a block a moment after the client has written it.
    pub fn replica(&mut self, path: &str, at: usize) -> (usize, [PathBuf; 2], String) {
        let policy = POLICY.parse().expect("a policy");
        eventually("the block to be listed", || {
            let file = self.cluster.console().fsck(path).remove(0);
            let block = &file.blocks[0];
            let group = BlockGroup { number: block.number, stamp: block.stamp, bytes: block.bytes, policy };
            let name = group.stripe().expect("not empty").blocks[at].name;
            let node = self.cluster.node_at(block.holder(name.block())?);
            let files = self.cluster.nodes()[node].replica(name.block(), &name.to_string())?;
            Some((node, files, name.to_string()))
        })
    }

    /// Deletes the files of a block behind its DataNode's back. Returns the block's name in Mend.
    pub fn remove(&mut self, path: &str, at: usize) -> String {
        let (_, files, name) = self.replica(path, at);
        files.iter().for_each(|file| fs::remove_file(file).expect("removed"));
        name
    }

    /// Waits until the store knows the groups of all files, and no others.
    pub fn assert_known(&mut self) -> Duration {
        let (groups, began) = (self.groups(), Instant::now());
        eventually("all groups to be known", || (self.store.stripes() == groups).then_some(()));
        began.elapsed()
    }
}

/// A store, and what it has reported to its listener.
pub struct Store {
    _storage: Storage,
    seen: Arc<Mutex<Seen>>,
    _folder: TempDir,
}

#[derive(Default)]
struct Seen {
    stripes: BTreeMap<String, StripeRecord>,
    nodes: Vec<NodeRecord>,
    services: BTreeMap<NodeId, bool>,
    remarks: Vec<String>,
    is_listed: bool,
}

impl Store {
    fn open(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records");
        drop(DirCatalog::create(&path, "a-cluster").expect("created"));
        let records = DirCatalog::open(&path, "a-cluster").expect("opened");
        let records: SharedRecords = Arc::new(Mutex::new(records));
        let namenode = NameNodeSettings {
            java: "java".into(),
            classpath: cluster.classpath(),
            uri: Some(cluster.uri()),
            settings: Vec::new(),
        };
        let attachment = Attachment {
            namenode: Some(namenode),
            paths: vec!["/".to_owned()],
            helpers: BTreeMap::new(),
            folders: BTreeMap::new(),
            raid: Vec::new(),
            encoding: None,
            pushes: false,
        };
        let mut storage = hdfs::open(attachment, records).expect("attached");
        storage.begin_term().expect("a term");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noted = Arc::clone(&seen);
        storage.listen(Box::new(move |changes| {
            let mut seen = noted.lock().expect("whole");
            changes.into_iter().for_each(|change| seen.note(change));
        }));
        Self { _storage: storage, seen, _folder: folder }
    }

    fn await_listed(&self) {
        eventually("the first listing", || self.seen.lock().expect("whole").is_listed.then_some(()));
    }

    /// The names of the reported stripes.
    pub fn stripes(&self) -> BTreeSet<String> {
        self.seen.lock().expect("whole").stripes.keys().cloned().collect()
    }

    /// The reported state of a block; `None` if the block is not reported.
    pub fn state(&self, block: &str) -> Option<BlockState> {
        let seen = self.seen.lock().expect("whole");
        let mut blocks = seen.stripes.values().flat_map(|stripe| &stripe.blocks);
        blocks.find(|found| found.id.0 == block).map(|found| found.state)
    }

    /// The blocks that are not reported as healthy, and their states.
    pub fn bad_blocks(&self) -> Vec<(String, BlockState)> {
        let seen = self.seen.lock().expect("whole");
        let blocks = seen.stripes.values().flat_map(|stripe| &stripe.blocks);
        let bad = blocks.filter(|block| block.state != BlockState::Healthy);
        bad.map(|block| (block.id.0.clone(), block.state)).collect()
    }

    /// Whether the DataNode with this address is in service; `None` if it was not reported.
    pub fn serves(&self, address: &str) -> Option<bool> {
        let seen = self.seen.lock().expect("whole");
        let node = seen.nodes.iter().find(|node| node.name == address)?;
        seen.services.get(&node.id).copied()
    }

    /// The current remarks.
    pub fn remarks(&self) -> String {
        self.seen.lock().expect("whole").remarks.join("\n")
    }
}

impl Seen {
    fn note(&mut self, change: StoreChange) {
        match change {
            StoreChange::Stripe(stripe, _) => drop(self.stripes.insert(stripe.id.0.clone(), stripe)),
            StoreChange::StripeGone(stripe) => drop(self.stripes.remove(&stripe.0)),
            StoreChange::Node(node) => self.nodes.push(node),
            StoreChange::Service(node, serves) => drop(self.services.insert(node, serves)),
            StoreChange::Remarks(lines) => self.remarks = lines,
            StoreChange::Unlisted(why) => self.is_listed = why.is_none(),
            _ => {}
        }
    }
}
