//! The cluster that all cases share, and its files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hdfs::{BlockGroup, GroupBlock, GroupStripe, Policy, ReplicaName};
use tempfile::TempDir;
use testbed::eventually;
use testbed::hdfs::{Cluster, ClusterOptions, FsckBlock, Hadoop, Plugin, StoredFiles, passes_check};

const NODES: usize = 15;
/// Erasure-coding policies and file sizes in bytes. Internal blocks have at most 4 MiB, so larger files have
/// several groups.
const FILES: &[(&str, usize)] = &[
    ("RS-6-3-1024k", 1_500_001),
    ("RS-6-3-1024k", 27_000_011),
    ("RS-6-3-1024k", 52_000_001),
    ("RS-10-4-1024k", 30_000_003),
    ("RS-10-4-1024k", 65_537),
];
/// The longest wait for one copy of each block, and how often DataNodes report their blocks meanwhile.
const COPIES_LIMIT: Duration = Duration::from_secs(180);
const REPORT_EVERY: Duration = Duration::from_secs(30);
/// Settings of all daemons in these tests. DataNodes require block tokens from clients, although users are not
/// authenticated, and count as dead after eight seconds without a heartbeat.
pub const ALWAYS: [&str; 5] = [
    "dfs.blocksize=4194304",
    "dfs.block.access.token.enable=true",
    "dfs.heartbeat.interval=500ms",
    "dfs.namenode.heartbeat.recheck-interval=4000",
    // HDFS tells a DataNode again to delete a surplus copy. The DataNode may have been killed before it has done so.
    "dfs.namenode.excess.redundancy.timeout-sec=10",
];

/// Settings with which HDFS rebuilds nothing, so that every rebuilt block comes from Mend.
pub const NO_REPAIR: [&str; 7] = [
    ALWAYS[0],
    ALWAYS[1],
    ALWAYS[2],
    ALWAYS[3],
    ALWAYS[4],
    "dfs.namenode.replication.max-streams=0",
    "dfs.namenode.replication.max-streams-hard-limit=0",
];

pub struct World {
    pub cluster: Cluster,
    /// The folder where HDFS processes look for the plug-in's certificate.
    pub certificates: TempDir,
    pub files: StoredFiles,
}

/// A group of a file, with the locations that the NameNode reports.
#[derive(Clone)]
pub struct Group {
    pub path: String,
    pub group: BlockGroup,
    pub shape: GroupStripe,
    /// For each block of the stripe, the DataNode that holds it.
    pub holders: Vec<Option<usize>>,
}

impl World {
    pub fn boot(hadoop: Hadoop) -> Self {
        let certificates = tempfile::tempdir().expect("a folder");
        let plugin = Plugin::new(&hadoop, mend_settings(&certificates));
        let settings = NO_REPAIR.map(str::to_owned).to_vec();
        let options =
            ClusterOptions { data_nodes: NODES, settings, plugin: Some(plugin), ..ClusterOptions::default() };
        let started = Instant::now();
        let cluster = Cluster::boot(hadoop, options);
        let mut world = Self { cluster, files: StoredFiles::default(), certificates };
        println!("booted in {:.1} s", started.elapsed().as_secs_f64());
        world.fill();
        println!("filled in {:.1} s", started.elapsed().as_secs_f64());
        world
    }

    fn fill(&mut self) {
        for &policy in &["RS-6-3-1024k", "RS-10-4-1024k"] {
            self.cluster.console().make_policy_folder(policy);
        }
        for &(policy, length) in FILES {
            self.put(&format!("/{policy}/{length}"), length);
        }
        self.await_whole();
    }

    /// Restarts all daemons if the DataNodes do not run as wanted, with or without the plug-in.
    pub fn use_plugin(&mut self, uses: bool) {
        if self.cluster.loads_plugin() != uses {
            self.cluster.load_plugin(uses);
            self.cluster.await_plugins();
            self.await_whole();
        }
    }

    /// Stores a file of `length` bytes.
    pub fn put(&mut self, path: &str, length: usize) {
        self.files.put(&mut self.cluster, path, length);
    }

    /// Deletes a file.
    pub fn delete(&mut self, path: &str) {
        self.files.delete(&mut self.cluster, path);
    }

    /// Returns all groups of all erasure-coded files, according to the NameNode.
    pub fn groups(&mut self) -> Vec<Group> {
        let mut groups = Vec::new();
        for file in self.cluster.console().fsck("/") {
            let Some(policy) = file.policy.as_deref() else { continue };
            let policy: Policy = policy.parse().expect("known");
            for block in &file.blocks {
                groups.push(self.group(&file.path, policy, block));
            }
        }
        groups
    }

    fn group(&self, path: &str, policy: Policy, block: &FsckBlock) -> Group {
        let group = BlockGroup { number: block.number, stamp: block.stamp, bytes: block.bytes, policy };
        let shape = group.stripe().expect("a stripe");
        let holder = |found: &GroupBlock| {
            block.holder(found.name.block()).map(|address| self.cluster.node_at(address))
        };
        let holders = shape.blocks.iter().map(holder).collect();
        Group { path: path.to_owned(), group, shape, holders }
    }

    /// Returns the smallest group of a policy.
    pub fn smallest(&mut self, policy: &str) -> Group {
        let groups = self.groups().into_iter().filter(|group| group.group.policy.to_string() == policy);
        groups.min_by_key(|group| group.group.bytes).expect("a group")
    }

    /// Returns the first group of a policy's largest file.
    pub fn first(&mut self, policy: &str) -> Group {
        let path = self.largest(policy).path;
        self.groups().into_iter().find(|group| group.path == path).expect("a group")
    }

    /// Returns the largest group of a policy; the last one if several are equally large.
    pub fn largest(&mut self, policy: &str) -> Group {
        let groups = self.groups().into_iter().filter(|group| group.group.policy.to_string() == policy);
        groups.max_by_key(|group| group.group.bytes).expect("a group")
    }

    /// Returns the paths of a replica's block file and `.meta` file on a DataNode.
    pub fn replica(&self, node: usize, name: &ReplicaName) -> Option<[PathBuf; 2]> {
        self.cluster.nodes()[node].replica(name.block(), &name.to_string())
    }

    /// Deletes a block's files without the NameNode's knowledge. Returns their contents.
    pub fn remove(&self, group: &Group, at: usize) -> [Vec<u8>; 2] {
        let (node, name) = (group.holders[at].expect("held"), group.shape.blocks[at].name);
        self.replica(node, &name).expect("there").map(|path| {
            let before = fs::read(&path).expect("readable");
            fs::remove_file(&path).expect("removed");
            before
        })
    }

    /// Deletes blocks while their DataNodes are down, so that the NameNode learns of the loss when they
    /// return. Returns the old contents of the blocks' files.
    pub fn lose(&mut self, lost: &[(&Group, usize)]) -> Vec<[Vec<u8>; 2]> {
        let mut nodes: Vec<usize> =
            lost.iter().map(|(group, at)| group.holders[*at].expect("held")).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.iter().for_each(|&node| self.cluster.kill(node));
        let before = lost.iter().map(|(group, at)| self.remove(group, *at)).collect();
        nodes.iter().for_each(|&node| self.cluster.start(node));
        before
    }

    /// Like [`lose`](Self::lose), but the NameNode commands no reconstruction before the restarted DataNodes have
    /// loaded the plug-in: HDFS executes earlier commands, and no log tells of it.
    pub fn lose_before_commands(&mut self, lost: &[(&Group, usize)]) -> Vec<[Vec<u8>; 2]> {
        self.cluster.console().run(&["dfsadmin", "-safemode", "enter"]);
        let before = self.lose(lost);
        self.await_nodes();
        self.cluster.console().run(&["dfsadmin", "-safemode", "leave"]);
        before
    }

    /// Restarts the NameNode with other settings, and waits until HDFS is healthy with one copy of each
    /// block.
    pub fn restart_namenode_with(&mut self, settings: &[&str]) {
        self.cluster.restart_namenode_with(settings.iter().map(|&setting| setting.to_owned()).collect());
        self.await_whole();
        self.await_single_copies();
    }

    /// Waits until all DataNodes are live and have loaded the plug-in, if they are to load it.
    pub fn await_nodes(&mut self) {
        self.cluster.await_nodes(self.cluster.nodes().len());
        self.cluster.await_plugins();
    }

    /// Waits until the NameNode reports these blocks missing. A copy that is rebuilt earlier would count as
    /// surplus.
    pub fn await_loss(&mut self, lost: &[(&Group, usize)]) {
        eventually("the NameNode misses them", || {
            let groups = self.groups();
            let now = |group: &Group| groups.iter().find(|other| other.group.number == group.group.number);
            let is_missed =
                |&(group, at): &(&Group, usize)| now(group).is_some_and(|now| now.holders[at].is_none());
            lost.iter().all(is_missed).then_some(())
        });
    }

    /// Flips a bit of a block. Returns the old contents of the block's two files.
    pub fn rot(&self, group: &Group, at: usize, offset: u64) -> [Vec<u8>; 2] {
        let (node, name) = (group.holders[at].expect("held"), group.shape.blocks[at].name);
        let paths = self.replica(node, &name).expect("there");
        let before = paths.each_ref().map(|path| fs::read(path).expect("readable"));
        let file = fs::File::options().write(true).open(&paths[0]).expect("there");
        file.write_all_at(&[before[0][offset as usize] ^ 0x10], offset).expect("written");
        before
    }

    /// Changes a byte of a block and adapts the checksum, so that only parity detects the change. Returns the
    /// old contents of both files.
    pub fn forge(&self, group: &Group, at: usize, offset: usize) -> [Vec<u8>; 2] {
        let (node, name) = (group.holders[at].expect("held"), group.shape.blocks[at].name);
        let paths = self.replica(node, &name).expect("there");
        let before = paths.each_ref().map(|path| fs::read(path).expect("readable"));
        let [mut bytes, mut meta] = before.clone();
        bytes[offset] ^= 0x10;
        assert_eq!(meta[2], 2, "CRC-32C");
        let chunk = u32::from_be_bytes(meta[3..7].try_into().expect("four bytes")) as usize;
        let (first, place) = (offset / chunk * chunk, 7 + offset / chunk * 4);
        let end = (first + chunk).min(bytes.len());
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[first..end]) as u32;
        meta[place..place + 4].copy_from_slice(&sum.to_be_bytes());
        self.write_replica(node, &name, &[bytes, meta]);
        self.verify_pair(node, &name);
        before
    }

    /// Replaces both files of an existing replica, one right after the other, so that a reader hardly ever opens an old and a new
    /// one. No reader finds half a file.
    pub fn write_replica(&self, node: usize, name: &ReplicaName, files: &[Vec<u8>; 2]) {
        let paths = self.replica(node, name).expect("there");
        let new = paths.each_ref().map(|path| path.with_extension("new"));
        new.iter().zip(files).for_each(|(new, bytes)| fs::write(new, bytes).expect("written"));
        new.iter().zip(&paths).for_each(|(new, path)| fs::rename(new, path).expect("renamed"));
    }

    fn verify_pair(&self, node: usize, name: &ReplicaName) {
        let sizes =
            self.replica(node, name).expect("there").map(|path| fs::metadata(path).expect("there").len());
        assert_eq!(sizes[1], 7 + sizes[0].div_ceil(512) * 4, "a sum for each chunk");
    }

    /// Waits until a DataNode holds a block with its original contents, including checksums.
    pub fn await_replica(&mut self, node: usize, name: &ReplicaName, before: &[Vec<u8>; 2]) {
        eventually("the block as it was", || {
            let found = self.replica(node, name)?.map(|path| fs::read(path).unwrap_or_default());
            (found == *before).then_some(())
        });
        self.verify_meta(node, name);
    }

    /// Waits until any DataNode holds a block with its original contents.
    pub fn await_somewhere(&mut self, name: &ReplicaName, before: &[Vec<u8>; 2]) {
        eventually("the block as it was, somewhere", || self.has_somewhere(name, before).then_some(()));
    }

    /// Whether any DataNode holds a block with its original contents.
    pub fn has_somewhere(&self, name: &ReplicaName, before: &[Vec<u8>; 2]) -> bool {
        let read = |node| Some(self.replica(node, name)?.map(|path| fs::read(path).unwrap_or_default()));
        (0..self.cluster.nodes().len()).any(|node| read(node).as_ref() == Some(before))
    }

    /// Waits until a replica passes HDFS's own check. A DataNode that has just received a replica moves its files, so
    /// a check of the earlier paths may fail once.
    pub fn verify_meta(&mut self, node: usize, name: &ReplicaName) {
        assert!(self.replica(node, name).is_some(), "{name} is not on DataNode {node}");
        eventually("the replica to pass HDFS's own check", || self.passes(node, name).then_some(()));
    }

    /// Whether a replica exists and passes HDFS's own check.
    pub fn passes(&mut self, node: usize, name: &ReplicaName) -> bool {
        let files = self.replica(node, name);
        files.is_some_and(|files| passes_check(&mut self.cluster, &files))
    }

    pub fn await_whole(&mut self) {
        eventually("a healthy cluster", || self.cluster.console().is_healthy("/").then_some(()));
    }

    /// Waits until three checks in a row find every block on the DataNode where it is listed and nowhere
    /// else. One check is not enough, because HDFS finds surplus copies late.
    pub fn await_single_copies(&mut self) {
        let (begun, mut right, mut reports) = (Instant::now(), 0, 0);
        while right < 3 {
            let wrong = self.wrong_copies();
            right = if wrong.is_empty() { right + 1 } else { 0 };
            assert!(
                right > 0 || begun.elapsed() < COPIES_LIMIT,
                "waited for one copy of each block:\n{}",
                self.told_of(&wrong)
            );
            if begun.elapsed() > REPORT_EVERY * (reports + 1) {
                self.report_blocks(&wrong);
                reports += 1;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Makes the DataNodes with copies of these blocks report all their blocks. If HDFS and Mend stored two blocks of a group
    /// on one DataNode at the same time, and HDFS deleted one, the NameNode no longer lists the other. It finds the
    /// surplus copy only in the next report, which may be due in six hours.
    fn report_blocks(&mut self, wrong: &[(ReplicaName, Option<usize>, Vec<usize>)]) {
        let nodes: BTreeSet<usize> = wrong.iter().flat_map(|(_, _, on_disk)| on_disk).copied().collect();
        nodes.into_iter().for_each(|node| self.cluster.report_blocks(node));
    }

    /// Returns the blocks that are not only on the DataNode that HDFS lists: the listed one, and those that have a file.
    pub fn wrong_copies(&mut self) -> Vec<(ReplicaName, Option<usize>, Vec<usize>)> {
        let mut wrong = Vec::new();
        for group in self.groups() {
            for (holder, block) in group.holders.iter().zip(&group.shape.blocks) {
                let on_disk = self.holders_on_disk(&block.name);
                if !on_disk.iter().eq(holder) {
                    wrong.push((block.name, *holder, on_disk));
                }
            }
        }
        wrong
    }

    /// Returns the files of these blocks, and the lines about them in HDFS's logs.
    fn told_of(&self, wrong: &[(ReplicaName, Option<usize>, Vec<usize>)]) -> String {
        let mut told = String::new();
        for (name, listed, on_disk) in wrong {
            told += &format!("{name}: HDFS lists {listed:?}, there are files on {on_disk:?}\n");
            // Blocks of a group are numbered from the group's own number on. Some lines name only the group.
            let numbers = [name.block(), name.block() & !15].map(|number| number.to_string());
            let mut tell = |whose: &str, log: String| {
                log.lines()
                    .filter(|line| numbers.iter().any(|number| line.contains(number)))
                    .for_each(|line| told += &format!("{whose}: {line}\n"));
            };
            tell("NameNode", self.cluster.namenode_log());
            for &node in on_disk {
                let file = self.cluster.nodes()[node].block(name.block());
                tell(&format!("DataNode {node} ({file:?})"), self.cluster.log(node));
            }
        }
        told
    }

    fn holders_on_disk(&self, name: &ReplicaName) -> Vec<usize> {
        let has = |node: &usize| self.cluster.nodes()[*node].block(name.block()).is_some();
        (0..self.cluster.nodes().len()).filter(has).collect()
    }

    /// Asserts the state after every case: HDFS is healthy, each block has one copy, the copy passes HDFS's
    /// check, and every file has its original contents. A surplus copy must not be left behind: after a
    /// restart HDFS no longer knows which of two copies it was removing, and might remove the good one during
    /// the next case.
    pub fn assert_whole(&mut self) {
        self.await_whole();
        self.await_single_copies();
        for group in self.groups() {
            for (holder, block) in group.holders.iter().zip(&group.shape.blocks) {
                self.verify_meta(holder.expect("held"), &block.name);
            }
        }
        self.assert_files();
    }

    /// Asserts that every file has its original contents.
    pub fn assert_files(&mut self) {
        self.files.assert_intact(&mut self.cluster);
    }
}

/// Returns settings with which HDFS processes find Mend. Mend may be started later.
fn mend_settings(certificates: &TempDir) -> Vec<String> {
    let folder = format!("mend.cluster.folder={}", certificates.path().display());
    let addresses = ["mend.coordinator.api=127.0.0.1:7400", "mend.coordinator.control=127.0.0.1:7401"];
    addresses.into_iter().map(str::to_owned).chain([folder]).collect()
}
