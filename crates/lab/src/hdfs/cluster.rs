//! A real HDFS on shaped links: DataNodes, machines of clients, and the stored data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use blake3::Hash;
use testbed::hdfs::{Attaching, Cluster, ClusterOptions, Hadoop, Pace, Plugin};
use testbed::{Mend, Seat, content, eventually};

use crate::error::LabError;
use crate::experiment::{Site, hash_of};
use crate::lab_cluster::Programs;
use crate::medium::forget_cached;
use crate::network::{Names, Network};
use crate::topology::{Rate, Topology};

pub(super) const CELL: usize = 1 << 20;
/// HDFS's default replication of files that are not erasure-coded.
pub(crate) const REPLICATION: usize = 3;
/// How often files are stored until no group lacks a block: HDFS refuses a group, or stores it without some of its parity,
/// if too many DataNodes are busy.
const ATTEMPTS: usize = 10;
/// The pause before a file is stored again; longer than HDFS's default interval of heartbeats.
const BEFORE_ANOTHER: Duration = Duration::from_secs(4);
/// How often, at the most, the NameNode is asked for the last blocks of files that have just been stored, and the pause.
const LOOKS: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// HDFS settings that stop the NameNode's reconstruction commands, so that blocks are rebuilt only on
/// requests to Mend.
const NO_COMMANDS: [&str; 2] =
    ["dfs.namenode.replication.max-streams=0", "dfs.namenode.replication.max-streams-hard-limit=0"];

/// An erasure coding policy to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) name: &'static str,
    pub(super) data: usize,
    pub(super) blocks: usize,
}

pub(super) const POLICIES: [Policy; 2] = [
    Policy { name: "RS-6-3-1024k", data: 6, blocks: 9 },
    Policy { name: "RS-10-4-1024k", data: 10, blocks: 14 },
];

/// How many reconstruction commands the NameNode sends to DataNodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commands {
    /// The NameNode sends no commands.
    None,
    /// HDFS's default number of concurrent commands.
    Default,
    /// Twenty concurrent commands per DataNode.
    Many,
}

impl Policy {
    /// Returns the policy with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        POLICIES.into_iter().find(|policy| policy.name == name)
    }
}

impl Commands {
    fn settings(self) -> Vec<String> {
        let settings: &[&str] = match self {
            Self::None => &NO_COMMANDS,
            Self::Default => &[],
            Self::Many => &[
                "dfs.namenode.replication.max-streams=20",
                "dfs.namenode.replication.max-streams-hard-limit=40",
            ],
        };
        settings.iter().map(|&setting| setting.to_owned()).collect()
    }
}

/// A replica of an internal block on a DataNode, with the hashes of its two files.
pub(super) struct Replica {
    pub(super) number: i64,
    /// The generation stamp.
    pub(super) stamp: u64,
    /// The hashes of the block file and the meta file.
    files: [Hash; 2],
}

impl Replica {
    /// Returns the block's name with the generation stamp, as in HDFS.
    pub(super) fn name(&self) -> String {
        format!("blk_{}_{}", self.number, self.stamp)
    }
}

/// The machines of a cluster in addition to the NameNode's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machines {
    pub(crate) data_nodes: u16,
    /// Machines without a DataNode. Their seats follow those of the DataNodes.
    pub(crate) clients: u16,
}

/// A running HDFS cluster on a network of shaped links. The fields are dropped in this order, so that the
/// processes end before the network is removed.
pub(crate) struct HdfsLab {
    pub(crate) cluster: Cluster,
    pub(crate) network: Network,
    certificates: PathBuf,
    mend: PathBuf,
}

impl HdfsLab {
    /// Starts the cluster. The DataNodes load Mend's plug-in, and the NameNode sends no reconstruction
    /// commands. Moves the calling thread into the NameNode's namespace permanently.
    ///
    /// # Errors
    /// [`LabError`].
    ///
    /// # Panics
    /// If HDFS does not start; everything is removed then.
    pub(crate) fn up(
        names: &Names,
        programs: &Programs,
        hadoop: Hadoop,
        machines: Machines,
        pace: Pace,
    ) -> Result<Self, LabError> {
        let Machines { data_nodes, clients } = machines;
        let Site { network, folder, ground } = Site::up(names, data_nodes + clients)?;
        let certificates = folder.path().join("certificates");
        let plugin = Plugin::new(&hadoop, mend_settings(&ground.host(Seat::Head), &certificates));
        let options = ClusterOptions {
            data_nodes: data_nodes.into(),
            settings: Commands::None.settings(),
            plugin: Some(plugin),
            pace,
        };
        let cluster = Cluster::boot_on(ground, hadoop, options, folder);
        Ok(Self { cluster, network, certificates, mend: programs.mend.clone() })
    }

    /// Shapes all links except the NameNode's to this rate.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn shape(&mut self, rate: Rate) -> Result<(), LabError> {
        let nodes = self.network.topology().nodes;
        Ok(self.network.reshape(&Topology::flat(nodes, rate))?)
    }

    /// Restarts the NameNode with the given settings for reconstruction commands.
    pub(super) fn command(&mut self, commands: Commands) {
        self.cluster.restart_namenode_with(commands.settings());
        self.await_whole();
    }

    pub(crate) fn await_whole(&mut self) {
        eventually("all blocks", || (self.cluster.console().lacking("/") == 0).then_some(()));
    }

    /// Stores a file of `bytes` bytes, whose blocks or internal blocks have `block` bytes.
    ///
    /// # Errors
    /// [`LabError`].
    pub(crate) fn put(&mut self, path: &str, bytes: usize, block: usize) -> Result<(), LabError> {
        let source = self.cluster.folder().join("put");
        fs::write(&source, content(path, bytes)).map_err(LabError::file("write", &source))?;
        self.put_all(&source, block, vec![path.to_owned()])
    }

    /// Stores `count` files of `bytes` bytes below `folder`, all with the same bytes, in blocks or internal blocks of
    /// `block` bytes, and waits for all blocks. Returns the bytes of a file.
    ///
    /// # Errors
    /// [`LabError`], also if a group still lacks a block after several attempts.
    pub(super) fn store(
        &mut self,
        folder: &str,
        count: usize,
        (bytes, block): (usize, usize),
    ) -> Result<Vec<u8>, LabError> {
        let source = self.cluster.folder().join("put");
        let stored = content(folder, bytes);
        fs::write(&source, &stored).map_err(LabError::file("write", &source))?;
        self.cluster.console().run(&["dfs", "-mkdir", "-p", folder]);
        let files = (0..count).map(|file| format!("{folder}/{file}")).collect();
        self.put_all(&source, block, files)?;
        Ok(stored)
    }

    /// Stores the bytes of `source` in all `files`, in blocks of `block` bytes, until no file lacks a block. HDFS chooses no
    /// DataNode whose last heartbeat told of more than twice the mean load, so soon after other files it may find too few
    /// of them. With a pause longer than a heartbeat before each file, all loads are reported as 0.
    fn put_all(&mut self, source: &Path, block: usize, files: Vec<String>) -> Result<(), LabError> {
        let (block, replication) = (block.to_string(), REPLICATION.to_string());
        let source = source.to_str().expect("text");
        let (mut incomplete, mut said) = (files, String::new());
        for attempt in 0..ATTEMPTS {
            for path in &incomplete {
                thread::sleep(if attempt == 0 { Duration::ZERO } else { BEFORE_ANOTHER });
                said = self.cluster.console().ask(&["store", source, path, &block, &replication]).text;
            }
            incomplete = self.incomplete(incomplete);
            if incomplete.is_empty() {
                return Ok(());
            }
        }
        let reason =
            format!("it stored {} without all blocks; its last output: {said}", incomplete.join(", "));
        Err(LabError::Agent { who: "HDFS".to_owned(), reason })
    }

    /// Returns those of these files that do not exist or lack blocks, after waiting for reports of the last ones.
    fn incomplete(&mut self, mut files: Vec<String>) -> Vec<String> {
        let console = self.cluster.console();
        for look in 0..LOOKS {
            thread::sleep(if look == 0 { Duration::ZERO } else { LOOK_EVERY });
            files.retain(|path| !console.exists(path) || console.lacking(path) > 0);
            if files.is_empty() {
                break;
            }
        }
        files
    }

    /// Removes files and folders, if they exist.
    pub(super) fn remove(&mut self, paths: &[String]) {
        let paths = paths.iter().map(String::as_str);
        let words: Vec<&str> = ["dfs", "-rm", "-r", "-f", "-skipTrash"].into_iter().chain(paths).collect();
        self.cluster.console().run(&words);
    }

    /// Evicts all blocks of all DataNodes from the page cache.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub(super) fn evict(&self) -> Result<(), LabError> {
        let folders = self.cluster.nodes().iter().flat_map(|node| node.folders());
        folders.into_iter().try_for_each(|folder| {
            forget_cached(folder).map_err(LabError::file("evict from the page cache", folder))
        })
    }

    /// Attaches Mend to a cluster that stores `groups` block groups. Mend rebuilds blocks only if asked or commanded.
    pub(super) fn attach(&mut self, groups: usize) -> Mend {
        let mend = self.attach_with(&["--dry-run"]);
        mend.wait_until_safe(groups);
        mend
    }

    /// Attaches Mend with further arguments of `mend attach hdfs`. Mend rebuilds the blocks of a dead DataNode only
    /// if asked.
    pub(crate) fn attach_with(&mut self, arguments: &[&str]) -> Mend {
        // HDFS sends blocks unencrypted, so Mend does the same for a fair comparison.
        let arguments = [&["--repair-after", "never", "--data-tls", "false"], arguments].concat();
        let attaching = Attaching { program: &self.mend, arguments: &arguments, asks_namenode: true };
        self.cluster.attach(&attaching)
    }

    /// Gives HDFS's processes the certificate for their requests to Mend.
    pub(crate) fn certify(&self, mend: &Mend) {
        testbed::hdfs::issue_plugin(mend, &self.certificates);
    }

    /// Returns, for each internal block of a file's first block group, its DataNode and its block number. The
    /// key is the internal block's index in the group.
    pub(super) fn holders(&mut self, path: &str) -> BTreeMap<usize, (usize, i64)> {
        let files = self.cluster.console().fsck(path);
        let block = files.into_iter().flat_map(|file| file.blocks).next().expect("a group");
        let holder = |(number, address): (i64, String)| {
            let index = usize::try_from(number - block.number).expect("of this group");
            (index, (self.cluster.node_at(&address), number))
        };
        block.replicas.into_iter().map(holder).collect()
    }

    /// Returns a DataNode's replicas of the blocks of files below `path`.
    ///
    /// # Errors
    /// [`LabError`].
    pub(super) fn replicas(&mut self, path: &str, node: usize) -> Result<Vec<Replica>, LabError> {
        let address = self.cluster.nodes()[node].address();
        let mut replicas = Vec::new();
        for block in self.cluster.console().fsck(path).into_iter().flat_map(|file| file.blocks) {
            for (number, _) in block.replicas.iter().filter(|(_, holder)| *holder == address) {
                let mut replica =
                    Replica { number: *number, stamp: block.stamp, files: [Hash::from_bytes([0; 32]); 2] };
                replica.files = self.files(node, &replica)?.expect("it has it");
                replicas.push(replica);
            }
        }
        Ok(replicas)
    }

    /// Returns the hashes of a replica's two files on a DataNode; `None` if the DataNode does not have
    /// the replica.
    fn files(&self, node: usize, replica: &Replica) -> Result<Option<[Hash; 2]>, LabError> {
        let paths = self.cluster.nodes()[node].replica(replica.number, &replica.name());
        let Some(paths) = paths else { return Ok(None) };
        let [bytes, meta] = paths.map(|path| hash_of(&path));
        Ok(Some([bytes?, meta?]))
    }

    /// Checks each of the replicas `before`: at least one DataNode other than `besides` must have it, and all
    /// copies on these DataNodes must be unchanged.
    ///
    /// # Errors
    /// [`LabError::WrongBytes`] with the replica and its place.
    pub(super) fn check(
        &self,
        who: &str,
        before: &[Replica],
        besides: Option<usize>,
    ) -> Result<(), LabError> {
        let wrong = |reason| Err(LabError::WrongBytes { what: who.to_owned(), reason });
        for replica in before {
            let (name, mut copies) = (replica.name(), 0);
            for node in (0..self.cluster.nodes().len()).filter(|node| Some(*node) != besides) {
                let Some(files) = self.files(node, replica)? else { continue };
                copies += 1;
                let differs: Vec<&str> = ["bytes", "checksums"]
                    .into_iter()
                    .zip(files.iter().zip(&replica.files))
                    .filter(|(_, (now, was))| now != was)
                    .map(|(what, _)| what)
                    .collect();
                if !differs.is_empty() {
                    return wrong(format!(
                        "{name} on DataNode {node} has different {}",
                        differs.join(" and ")
                    ));
                }
            }
            if copies == 0 {
                return wrong(format!("{name} is on no DataNode"));
            }
        }
        Ok(())
    }
}

/// Returns the settings that tell HDFS's processes how to reach Mend, which may be started later.
fn mend_settings(host: &str, certificates: &Path) -> Vec<String> {
    vec![
        format!("mend.coordinator.api={host}:7400"),
        format!("mend.coordinator.control={host}:7401"),
        format!("mend.cluster.folder={}", certificates.display()),
        "mend.allow-plain-edges=true".to_owned(),
    ]
}
