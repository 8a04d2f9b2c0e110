//! An HDFS cluster, whose daemons can be booted, stopped and restarted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::console::Console;
use super::data_node::DataNode;
use super::install::Hadoop;
use super::launcher::Launcher;
use crate::{Ground, OneAddress, Process, Seat, eventually};

/// The line that a DataNode logs once Mend's plug-in listens and takes over the NameNode's commands.
const PLUGIN_READY: &str = "Mend executes reconstruction commands";
/// The heap of the cluster's own console.
const CONSOLE_HEAP_MEGABYTES: u32 = 256;

/// The size and settings of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// The number of DataNodes.
    pub data_nodes: usize,
    /// The settings of all daemons and of the console, as `KEY=VALUE`.
    pub settings: Vec<String>,
    /// Mend's plug-in, which the DataNodes load when the cluster boots; `None` if they never load it.
    pub plugin: Option<Plugin>,
    /// How often daemons act.
    pub pace: Pace,
}

/// How often daemons act. At either pace, the NameNode declares a DataNode dead 14 s after its last heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Heartbeats and the NameNode's checks come every second, and a busy DataNode remains a candidate for blocks.
    #[default]
    Short,
    /// HDFS's defaults: every three seconds, and a busy DataNode is avoided.
    Default,
}

/// Mend's plug-in, which DataNodes load.
#[derive(Clone, Debug)]
pub struct Plugin {
    pub(super) jar: PathBuf,
    pub(super) settings: Vec<String>,
}

impl Plugin {
    /// Returns the plug-in with these additional settings of DataNodes and the console, as `KEY=VALUE`.
    pub fn new(hadoop: &Hadoop, settings: Vec<String>) -> Self {
        Self { jar: hadoop.mend_jar().to_owned(), settings }
    }
}

/// A running cluster. The ports are fixed, so only one cluster can run on a [`Ground`].
pub struct Cluster {
    namenode: Option<Process>,
    nodes: Vec<DataNode>,
    console: Console,
    loads_plugin: bool,
    /// Dropped last, because this removes the folder with all files.
    launcher: Launcher,
}

impl Cluster {
    /// Boots a cluster on one address, and waits for all its DataNodes. Several addresses in one namespace
    /// would not work, because every DataNode would still connect from the NameNode's address.
    ///
    /// # Panics
    /// If the cluster does not start.
    pub fn boot(hadoop: Hadoop, options: ClusterOptions) -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        Self::boot_on(Arc::new(OneAddress::make()), hadoop, options, root)
    }

    /// Boots a cluster whose processes run in the environment `ground`. All files of the cluster go into the
    /// empty folder `root`.
    ///
    /// # Panics
    /// If the cluster does not start.
    pub fn boot_on(ground: Arc<dyn Ground>, hadoop: Hadoop, options: ClusterOptions, root: TempDir) -> Self {
        let loads_plugin = options.plugin.is_some();
        let launcher = Launcher::new(ground, hadoop, options, root);
        launcher.format_namenode();
        let namenode = Some(launcher.start_namenode(&[]));
        let console = launcher.start_console(Seat::Head, CONSOLE_HEAP_MEGABYTES);
        let nodes = launcher.data_nodes();
        let mut cluster = Self { namenode, nodes, console, loads_plugin, launcher };
        (0..cluster.nodes.len()).for_each(|at| cluster.start(at));
        cluster.await_nodes(cluster.nodes.len());
        cluster
    }

    /// The class path of programs that query the cluster, including Mend's jar.
    pub fn classpath(&self) -> String {
        self.launcher.hadoop.classpath()
    }

    /// The NameNode's URI.
    pub fn uri(&self) -> String {
        self.launcher.uri()
    }

    /// The environment in which the cluster's processes run.
    pub fn ground(&self) -> Arc<dyn Ground> {
        Arc::clone(&self.launcher.ground)
    }

    /// The HDFS command line.
    pub fn console(&mut self) -> &mut Console {
        &mut self.console
    }

    /// Starts another HDFS command line, at a client's seat. It ends when it is dropped.
    pub fn start_console(&self, seat: Seat, heap_megabytes: u32) -> Console {
        self.launcher.start_console(seat, heap_megabytes)
    }

    /// All DataNodes.
    pub fn nodes(&self) -> &[DataNode] {
        &self.nodes
    }

    /// Returns the index of the DataNode with this address.
    ///
    /// # Panics
    /// If there is no such DataNode.
    pub fn node_at(&self, address: &str) -> usize {
        self.nodes.iter().position(|node| node.address() == address).expect("a DataNode of this cluster")
    }

    /// A folder for local files.
    pub fn folder(&self) -> &Path {
        self.launcher.folder()
    }

    /// Starts a stopped DataNode.
    pub fn start(&mut self, at: usize) {
        self.start_with(at, self.loads_plugin);
    }

    /// Starts a stopped DataNode without Mend's plug-in.
    pub fn start_without_plugin(&mut self, at: usize) {
        self.start_with(at, false);
    }

    fn start_with(&mut self, at: usize, loads_plugin: bool) {
        let process = self.launcher.start_data_node(at, &self.nodes[at], loads_plugin);
        let node = &mut self.nodes[at];
        (node.process, node.loads_plugin) =
            (Some(process), loads_plugin && self.launcher.options.plugin.is_some());
    }

    /// Whether DataNodes load Mend's plug-in when they start.
    pub fn loads_plugin(&self) -> bool {
        self.loads_plugin
    }

    /// Restarts all daemons, the DataNodes with or without Mend's plug-in; waits until the NameNode lists the
    /// same blocks as before.
    ///
    /// # Panics
    /// On a timeout.
    pub fn load_plugin(&mut self, loads: bool) {
        self.loads_plugin = loads;
        self.restart_with(self.launcher.options.settings.clone());
    }

    /// Restarts all daemons with these settings; waits until the NameNode lists the same blocks as before.
    ///
    /// # Panics
    /// On a timeout.
    pub fn restart_with(&mut self, settings: Vec<String>) {
        let listed = self.hold_namenode(settings);
        let all = 0..self.nodes.len();
        all.clone().for_each(|at| self.kill(at));
        all.for_each(|at| self.start(at));
        self.let_namenode_act(&listed);
    }

    /// The indices of the running DataNodes.
    pub fn running(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&at| self.nodes[at].process.is_some()).collect()
    }

    /// The process ids of the running DataNodes.
    pub fn node_ids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(|node| Some(node.process.as_ref()?.id())).collect()
    }

    /// A DataNode's log since its last start.
    pub fn log(&self, at: usize) -> String {
        fs::read_to_string(self.launcher.data_node_log(at)).unwrap_or_default()
    }

    /// The length in bytes of a DataNode's log since its last start.
    pub fn log_bytes(&self, at: usize) -> u64 {
        fs::metadata(self.launcher.data_node_log(at)).map_or(0, |log| log.len())
    }

    /// A DataNode's log from byte `from` on.
    pub fn log_from(&self, at: usize, from: u64) -> String {
        let mut rest = Vec::new();
        let read = File::open(self.launcher.data_node_log(at)).and_then(|mut log| {
            log.seek(SeekFrom::Start(from))?;
            log.read_to_end(&mut rest)
        });
        read.map_or(String::new(), |_| String::from_utf8_lossy(&rest).into_owned())
    }

    /// The NameNode's log since its last start.
    pub fn namenode_log(&self) -> String {
        fs::read_to_string(self.launcher.namenode_log()).unwrap_or_default()
    }

    /// Stops a DataNode cleanly, so that it saves the list of its replicas, and waits until it has stopped.
    pub fn stop(&mut self, at: usize) {
        if let Some(process) = self.nodes[at].process.take() {
            process.stop();
        }
    }

    /// Kills a DataNode.
    pub fn kill(&mut self, at: usize) {
        self.nodes[at].process = None;
    }

    /// Kills the NameNode.
    pub fn kill_namenode(&mut self) {
        self.namenode = None;
    }

    /// Kills the NameNode and restarts it with these settings; waits until the NameNode lists the same blocks
    /// as before.
    ///
    /// # Panics
    /// On a timeout.
    pub fn restart_namenode_with(&mut self, settings: Vec<String>) {
        let listed = self.hold_namenode(settings);
        self.let_namenode_act(&listed);
    }

    /// Restarts the NameNode in safe mode, and returns the numbers of the blocks that the NameNode listed
    /// before the restart. Outside of safe mode, the NameNode would act on the reports of the first
    /// DataNodes: it would consider all other blocks lost, and might order a second copy of a block without
    /// ever learning of that copy.
    fn hold_namenode(&mut self, settings: Vec<String>) -> BTreeSet<i64> {
        let listed = self.listed_blocks();
        self.launcher.options.settings = settings;
        self.kill_namenode();
        // With a threshold above 1, the NameNode stays in safe mode until it receives the command to leave
        // it.
        self.namenode = Some(self.launcher.start_namenode(&["dfs.namenode.safemode.threshold-pct=1.5"]));
        listed
    }

    /// Ends the NameNode's safe mode as soon as it lists these blocks.
    fn let_namenode_act(&mut self, listed: &BTreeSet<i64>) {
        self.await_running_nodes();
        eventually("the NameNode to list what it listed before", || {
            listed.is_subset(&self.listed_blocks()).then_some(())
        });
        self.console.run(&["dfsadmin", "-safemode", "leave"]);
    }

    fn listed_blocks(&mut self) -> BTreeSet<i64> {
        let blocks = self.console.fsck("/").into_iter().flat_map(|file| file.blocks);
        blocks.flat_map(|block| block.replicas).map(|(number, _)| number).collect()
    }

    /// Starts dead DataNodes while the NameNode is in safe mode; waits until the NameNode lists all their
    /// blocks.
    ///
    /// # Panics
    /// If a block is still missing.
    pub fn bring_back(&mut self, dead: &[usize]) {
        self.console.run(&["dfsadmin", "-safemode", "enter"]);
        dead.iter().for_each(|&at| self.start(at));
        self.await_running_nodes();
        eventually("all that was missing", || self.console.is_healthy("/").then_some(()));
        self.console.run(&["dfsadmin", "-safemode", "leave"]);
    }

    /// Kills and restarts the NameNode.
    pub fn restart_namenode(&mut self) {
        self.kill_namenode();
        self.namenode = Some(self.launcher.start_namenode(&[]));
    }

    /// Makes the NameNode decommission this DataNode, if any, and recommission the one that was
    /// decommissioned before.
    ///
    /// # Panics
    /// If the NameNode refuses.
    pub fn decommission(&mut self, node: Option<usize>) {
        let address = node.map(|at| self.nodes[at].address()).unwrap_or_default();
        self.launcher.exclude(&address);
        self.console.run(&["dfsadmin", "-refreshNodes"]);
    }

    /// Makes a DataNode report all its blocks to the NameNode soon.
    ///
    /// # Panics
    /// If the DataNode does not answer.
    pub fn report_blocks(&mut self, node: usize) {
        let address = self.nodes[node].ipc_address();
        self.console.run(&["dfsadmin", "-triggerBlockReport", &address]);
    }

    fn await_running_nodes(&mut self) {
        self.await_nodes(self.running().len());
    }

    /// Waits until this many DataNodes are live and have told the NameNode how much they can store.
    ///
    /// # Panics
    /// On a timeout, or if a daemon has ended.
    pub fn await_nodes(&mut self, live: usize) {
        let wanted = format!("Live datanodes ({live})");
        eventually(&wanted, || {
            self.check_daemons();
            let said = self.console.ask(&["dfsadmin", "-report", "-live"]);
            let are_known = live == 0 || !said.text.contains("Configured Capacity: 0 ");
            (said.text.contains(&wanted) && are_known).then_some(())
        });
    }

    /// Waits until every running DataNode that loads Mend's plug-in has done so. A DataNode registers with the NameNode
    /// a moment earlier, and until then refuses rebuilt blocks and leaves commands to HDFS. The plug-in's settings must
    /// name a coordinator, which need not run.
    ///
    /// # Panics
    /// On a timeout, or if a daemon has ended.
    pub fn await_plugins(&mut self) {
        eventually("the plug-ins of all DataNodes", || {
            self.check_daemons();
            let mut nodes = self.nodes.iter().enumerate();
            let is_ready = |(at, node): (usize, &DataNode)| {
                node.process.is_none() || !node.loads_plugin || self.log(at).contains(PLUGIN_READY)
            };
            nodes.all(is_ready).then_some(())
        });
    }

    fn check_daemons(&mut self) {
        let nodes = self.nodes.iter_mut().filter_map(|node| node.process.as_mut());
        for process in nodes.chain(self.namenode.as_mut()) {
            assert!(process.runs(), "a daemon has ended: {}", process.said());
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let is_asked = std::thread::panicking() && self.namenode.as_mut().is_some_and(Process::runs);
        if let Some(Ok(said)) = is_asked.then(|| self.console.try_ask(&["fsck", "/"])) {
            eprintln!("fsck said:\n{}", said.text);
        }
    }
}
