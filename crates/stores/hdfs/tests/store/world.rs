//! The cluster that all cases share, and its files.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use codes::BlockIndex;
use hdfs::{BlockGroup, GroupBlock, GroupStripe, HdfsBlocks, Policy, ReplicaName};
use repair::{Sink, SinkEnd};
use store_api::{BlockError, Delivery, Sinks};
use testbed::eventually;
use testbed::hdfs::{Cluster, ClusterOptions, Hadoop, Plugin, StoredFiles, passes_check};
use tokio::runtime::Runtime;

const NODES: usize = 14;

/// Policies of the test files. The last is not one of HDFS's built-in policies.
const POLICIES: &[&str] =
    &["RS-6-3-1024k", "RS-10-4-1024k", "XOR-2-1-1024k", "RS-LEGACY-6-3-1024k", "RS-4-2-64k"];
/// Lengths of the test files. An internal block has at most 4 MiB, so the longest file has several groups
/// under policies with few data blocks.
const LENGTHS: &[usize] = &[1, 65_537, 1_500_001, 6 << 20, 27_000_011];

pub struct World {
    pub cluster: Cluster,
    pub files: StoredFiles,
    /// The blocks of each DataNode, opened in the same way as by its helper, whether or not the DataNode is
    /// running.
    blocks: Vec<Option<HdfsBlocks>>,
    runtime: Runtime,
}

/// A group of a file, with the holders that the NameNode lists.
pub struct Group {
    pub policy: Policy,
    pub stripe: GroupStripe,
    /// The holder of each block of the stripe.
    pub holders: Vec<Option<usize>>,
    /// The part of the file's bytes that the group stores.
    pub content: Vec<u8>,
}

impl World {
    pub fn boot(hadoop: Hadoop) -> Self {
        // DataNodes scan their folders only every six hours, so they find new blocks only if Mend notifies
        // them.
        let settings = settings(false);
        // No coordinator listens at this address, so the plug-in takes over commands but can execute none.
        let plugin = Plugin::new(&hadoop, vec!["mend.coordinator.api=127.0.0.1:1".to_owned()]);
        let options =
            ClusterOptions { data_nodes: NODES, settings, plugin: Some(plugin), ..ClusterOptions::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let started = std::time::Instant::now();
        let mut world = Self {
            cluster: Cluster::boot(hadoop, options),
            files: StoredFiles::default(),
            blocks: Vec::new(),
            runtime,
        };
        world.blocks = (0..NODES).map(|_| None).collect();
        (0..NODES).for_each(|node| world.reopen(node, true));
        println!("booted in {:.1} s", started.elapsed().as_secs_f64());
        world.fill();
        println!("filled in {:.1} s", started.elapsed().as_secs_f64());
        world
    }

    fn fill(&mut self) {
        let added = self.cluster.folder().join("policies.xml");
        fs::write(&added, ADDED_POLICIES).expect("written");
        self.cluster.console().run(&["ec", "-addPolicies", "-policyFile", added.to_str().expect("text")]);
        for &policy in POLICIES {
            self.cluster.console().make_policy_folder(policy);
            for &length in LENGTHS {
                self.files.put(&mut self.cluster, &format!("/{policy}/{length}"), length);
            }
        }
        self.await_whole();
    }

    /// Returns all groups of all files, as the NameNode lists them.
    pub fn groups(&mut self) -> Vec<Group> {
        let mut groups = Vec::new();
        for file in self.cluster.console().fsck("/") {
            let policy: Policy = file.policy.as_deref().expect("all are striped").parse().expect("known");
            let mut content = self.files.content(&file.path);
            for block in &file.blocks {
                let group =
                    BlockGroup { number: block.number, stamp: block.stamp, bytes: block.bytes, policy };
                let stripe = group.stripe().expect("a stripe");
                let holder = |found: &GroupBlock| {
                    block.holder(found.name.block()).map(|address| self.cluster.node_at(address))
                };
                let holders = stripe.blocks.iter().map(holder).collect();
                let (held, rest) = content.split_at(block.bytes as usize);
                content = rest;
                groups.push(Group { policy, stripe, holders, content: held.to_vec() });
            }
            assert!(content.is_empty(), "{} is all there", file.path);
        }
        assert!(groups.len() > self.files.count(), "some files have several groups");
        groups
    }

    /// Returns the blocks of a DataNode.
    pub fn blocks(&self, node: usize) -> &HdfsBlocks {
        self.blocks[node].as_ref().expect("opened")
    }

    /// Reopens the blocks of a DataNode, with or without hand-over to its plug-in (`told`).
    pub fn reopen(&mut self, node: usize, told: bool) {
        self.blocks[node] = None; // Only one helper may have the folders open at a time.
        let datanode = &self.cluster.nodes()[node];
        let blocks = HdfsBlocks::open(datanode.folders(), None).expect("a DataNode's folders");
        let address = datanode.plugin_address();
        self.blocks[node] = Some(if told { blocks.with_datanode(address) } else { blocks });
    }

    /// Reopens some folders of a DataNode; new blocks are pushed to this address.
    pub fn reopen_to_push(&mut self, node: usize, folders: &[PathBuf], to: SocketAddr) {
        self.blocks[node] = None;
        let blocks = HdfsBlocks::open(folders, None).expect("a DataNode's folders");
        self.blocks[node] = Some(blocks.with_pushes(to));
    }

    /// Restarts the NameNode, with HDFS's own repair enabled or disabled.
    pub fn let_hdfs_repair(&mut self, repairs: bool) {
        self.cluster.restart_namenode_with(settings(repairs));
    }

    /// Restarts all daemons with block tokens enabled.
    pub fn want_tokens(&mut self) {
        let token = "dfs.block.access.token.enable=true".to_owned();
        self.cluster.restart_with([settings(false), vec![token]].concat());
    }

    /// Returns the paths of both files of a replica.
    pub fn replica(&self, node: usize, name: &ReplicaName) -> [PathBuf; 2] {
        let files = self.cluster.nodes()[node].replica(name.block(), &name.to_string());
        files.unwrap_or_else(|| panic!("{name} on node {node}"))
    }

    /// Waits until a replica passes HDFS's own check. A DataNode that has just received a replica moves its files, so a
    /// check of the earlier paths may fail once.
    pub fn verify_meta(&mut self, node: usize, name: &ReplicaName) {
        eventually(&format!("{name} on node {node} to pass HDFS's own check"), || {
            let files = self.cluster.nodes()[node].replica(name.block(), &name.to_string())?;
            passes_check(&mut self.cluster, &files).then_some(())
        });
    }

    pub fn await_whole(&mut self) {
        eventually("fsck finds all whole", || self.cluster.console().is_healthy("/").then_some(()));
    }

    /// Checks that every file reads as it was written.
    pub fn assert_files(&mut self) {
        self.files.assert_intact(&mut self.cluster);
    }
}

impl Group {
    /// Rebuilds a block of the group from k others with Mend's code, and writes it to a DataNode.
    pub fn rebuild(&self, world: &World, at: usize, lost: &[usize], node: usize) -> Result<(), BlockError> {
        let code = self.stripe.code.build().expect("a code");
        let available = (0..self.stripe.blocks.len()).filter(|index| !lost.contains(index));
        let available: Vec<_> = available.map(|index| BlockIndex(index as u16)).collect();
        let recipe = code.repair(&[BlockIndex(at as u16)], &available).expect("enough are left");
        let sources: Vec<_> =
            recipe.sources().iter().map(|source| self.padded(world, source.block.0.into())).collect();
        let made = recipe.apply(&sources.iter().map(Vec::as_slice).collect::<Vec<_>>()).remove(0);
        let block = &self.stripe.blocks[at];
        let (made, padding) = made.split_at(block.bytes as usize);
        assert!(padding.iter().all(|&byte| byte == 0), "nothing but zeros follows");
        let end = SinkEnd::Kept { label: None, permit: None };
        let sink =
            Sink { index: block.index, id: block.name.block_id(), bytes: block.bytes, digest: None, end };
        let mut delivery = world.blocks(node).deliver(&sink).expect("room");
        if let Delivery::HandedOver(writer) = &mut delivery {
            world.runtime.block_on(writer.prepare())?;
        }
        for (slice, bytes) in made.chunks(65_536).enumerate().collect::<Vec<_>>().into_iter().rev() {
            delivery.write_at(slice as u64 * 65_536, bytes).expect("written");
        }
        delivery.block().expect("it is kept").seal().expect("sealed");
        match delivery {
            Delivery::HandedOver(writer) => world.runtime.block_on(writer.hand_over()),
            Delivery::Published(writer) => writer.commit().map(drop),
            Delivery::Taken(_) => unreachable!("it is kept"),
        }
    }

    /// Returns the bytes of a block on its DataNode, padded with zeros as for the code.
    pub fn padded(&self, world: &World, at: usize) -> Vec<u8> {
        let node = self.holders[at].expect("it is held");
        let reader = world.blocks(node).open_block(&self.stripe.blocks[at].name.block_id()).expect("there");
        assert_eq!(reader.bytes(), self.stripe.blocks[at].bytes);
        let mut bytes = vec![0; self.stripe.block_bytes as usize];
        reader.read_at(0, &mut bytes[..reader.bytes() as usize]).expect("whole");
        bytes
    }
}

/// Returns HDFS settings, with HDFS's own repair enabled or disabled.
fn settings(repairs: bool) -> Vec<String> {
    let streams = if repairs { 2 } else { 0 };
    vec![
        format!("dfs.namenode.replication.max-streams={streams}"),
        format!("dfs.namenode.replication.max-streams-hard-limit={streams}"),
        "dfs.blocksize=4194304".to_owned(),
    ]
}

/// A policy whose cell size and number of blocks differ from those of all built-in policies.
const ADDED_POLICIES: &str = r#"<?xml version="1.0"?>
<configuration>
  <layoutversion>1</layoutversion>
  <schemas>
    <schema id="rs42"><codec>rs</codec><k>4</k><m>2</m></schema>
  </schemas>
  <policies>
    <policy><schema>rs42</schema><cellsize>65536</cellsize></policy>
  </policies>
</configuration>
"#;
