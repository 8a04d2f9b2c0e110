//! An HDFS cluster whose daemons can be started, stopped and restarted individually.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Ground, OneAddress, Process, Seat, eventually};
use tempfile::TempDir;

use super::console::Console;
use super::fsck::{FsckFile, parse};
use super::install::Hadoop;
use super::jvm;

const NAMENODE_PORT: u16 = 8020;
const NAMENODE_HTTP_PORT: u16 = 9870;
const NAMENODE_CLASS: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const DATANODE_CLASS: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";
const DISKS: usize = 2;
/// The folder with the NameNode's configuration, and the file that lists the DataNodes to decommission.
const SITE: &str = "site";
const EXCLUDED: &str = "excluded";
/// The base of the ports: DataNode `n`, counted from 1, uses up to four ports from `FIRST_PORT + 10 * n`.
const FIRST_PORT: u16 = 9900;

/// Options of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// The number of DataNodes.
    pub data_nodes: usize,
    /// Settings of all daemons and of the console, as `KEY=VALUE`.
    pub settings: Vec<String>,
    /// A plug-in for the DataNodes to load.
    pub plugin: Option<Plugin>,
}

/// A plug-in of DataNodes that listens on a port.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The jar that contains the plug-in.
    pub jar: PathBuf,
    /// The plug-in's class.
    pub class: String,
    /// The setting for its port.
    pub port_key: String,
    /// Settings for the plug-in, given to the DataNodes and the console as `KEY=VALUE`.
    pub settings: Vec<String>,
}

/// A running cluster. Its ports are fixed, so there can be only one per ground.
pub struct Cluster {
    root: TempDir,
    hadoop: Hadoop,
    ground: Arc<dyn Ground>,
    options: ClusterOptions,
    loads_plugin: bool,
    namenode: Option<Process>,
    nodes: Vec<DataNode>,
    console: Console,
}

/// A DataNode, running or stopped.
#[derive(Debug)]
pub struct DataNode {
    host: String,
    port: u16,
    folders: Vec<PathBuf>,
    process: Option<Process>,
}

impl DataNode {
    /// The address under which the NameNode lists it.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The address where its plug-in listens, if it has one.
    pub fn plugin_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port + 3))
    }

    /// The address of its HTTP server.
    pub fn http_address(&self) -> SocketAddr {
        let host: Ipv4Addr = self.host.parse().expect("a ground's addresses are numbers");
        SocketAddr::from((host, self.port + 2))
    }

    /// The folders of its `dfs.datanode.data.dir`.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The file with the bytes of a block; `None` if it has no replica.
    ///
    /// # Panics
    /// If its folders cannot be read.
    pub fn block(&self, block: i64) -> Option<PathBuf> {
        self.file(&format!("blk_{block}"))
    }

    /// Both files of a replica, for bytes and metadata. `block` is the block's ID; `name` includes the
    /// generation stamp.
    ///
    /// # Panics
    /// If its folders cannot be read.
    pub fn replica(&self, block: i64, name: &str) -> Option<[PathBuf; 2]> {
        Some([self.block(block)?, self.file(&format!("{name}.meta"))?])
    }

    fn file(&self, file: &str) -> Option<PathBuf> {
        let mut folders = self.folders.clone();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.file_name().is_some_and(|name| name == file) {
                    return Some(path);
                }
            }
        }
        None
    }
}

impl Cluster {
    /// Boots a cluster on one address and waits until all DataNodes are live. In a single namespace, a
    /// DataNode with another address would still connect from the NameNode's address.
    ///
    /// # Panics
    /// If a daemon does not start.
    pub fn boot(hadoop: Hadoop, options: ClusterOptions) -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        Self::boot_on(Arc::new(OneAddress::make()), hadoop, options, root)
    }

    /// Boots a cluster on the given ground, with all files in an empty folder.
    ///
    /// # Panics
    /// If a daemon does not start.
    pub fn boot_on(ground: Arc<dyn Ground>, hadoop: Hadoop, options: ClusterOptions, root: TempDir) -> Self {
        write_site(root.path());
        let settings = common(&*ground, &options);
        format_namenode(&*ground, &hadoop, &settings, root.path());
        let namenode = start_namenode(&*ground, &hadoop, &settings, root.path());
        let nodes = (1..=options.data_nodes).map(|at| {
            let folders = (0..DISKS).map(|disk| root.path().join(format!("node{at}/disk{disk}"))).collect();
            let host = ground.host(Seat::Server(at - 1));
            DataNode { host, port: FIRST_PORT + 10 * at as u16, folders, process: None }
        });
        let nodes = nodes.collect();
        let mut told = settings;
        told.extend(plugin_settings(&options));
        let log = root.path().join("console.log");
        let console = Console::start(&*ground, &hadoop.options(256, &jars(&options)), &told, &log);
        let namenode = Some(namenode);
        let loads_plugin = options.plugin.is_some();
        let mut cluster = Self { root, hadoop, ground, options, loads_plugin, namenode, nodes, console };
        (0..cluster.nodes.len()).for_each(|at| cluster.start(at));
        cluster.await_nodes(cluster.nodes.len());
        cluster
    }

    /// The class path of programs that query the cluster, including Mend's jar.
    pub fn classpath(&self) -> String {
        self.hadoop.classpath()
    }

    /// The NameNode's URI for clients.
    pub fn uri(&self) -> String {
        uri(&*self.ground)
    }

    pub(crate) fn ground(&self) -> Arc<dyn Ground> {
        Arc::clone(&self.ground)
    }

    /// The HDFS command line.
    pub fn console(&mut self) -> &mut Console {
        &mut self.console
    }

    /// All DataNodes.
    pub fn nodes(&self) -> &[DataNode] {
        &self.nodes
    }

    /// The index of the DataNode with this address.
    ///
    /// # Panics
    /// If there is no such DataNode.
    pub fn node_at(&self, address: &str) -> usize {
        self.nodes.iter().position(|node| node.address() == address).expect("a DataNode of this cluster")
    }

    /// A folder for files to upload or download.
    pub fn folder(&self) -> &Path {
        self.root.path()
    }

    /// Starts a stopped DataNode.
    pub fn start(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let folders: Vec<_> =
            node.folders.iter().map(|folder| format!("file://{}", folder.display())).collect();
        let mut arguments = common(&*self.ground, &self.options);
        arguments.extend(define("dfs.datanode.data.dir", &folders.join(",")));
        for (name, port) in [("address", 0), ("ipc.address", 1), ("http.address", 2)] {
            let address = format!("{}:{}", node.host, node.port + port);
            arguments.extend(define(&format!("dfs.datanode.{name}"), &address));
        }
        if let Some(plugin) = self.options.plugin.as_ref().filter(|_| self.loads_plugin) {
            arguments.extend(define("dfs.datanode.plugins", &plugin.class));
            arguments.extend(define(&plugin.port_key, &node.plugin_address().port().to_string()));
        }
        arguments.extend(define("dfs.datanode.hostname", &node.host));
        let log = self.root.path().join(format!("node{}.log", at + 1));
        arguments.extend(plugin_settings(&self.options));
        let options = self.hadoop.options(128, &jars(&self.options));
        node.process = Some(Process::start(
            jvm::command(&*self.ground, Seat::Server(at), &options, DATANODE_CLASS, &arguments),
            &log,
        ));
    }

    /// Restarts all daemons, with or without the plug-in in the DataNodes. Waits until the NameNode lists all
    /// blocks that it listed before.
    ///
    /// # Panics
    /// On a timeout.
    pub fn load_plugin(&mut self, loads: bool) {
        self.loads_plugin = loads;
        self.restart_with(self.options.settings.clone());
    }

    /// Restarts all daemons with these settings instead of the earlier ones. Waits until the NameNode lists
    /// all blocks that it listed before.
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

    /// Deletes all data of a stopped DataNode.
    ///
    /// # Panics
    /// If that fails.
    pub fn empty(&self, at: usize) {
        self.nodes[at].folders.iter().for_each(|folder| fs::remove_dir_all(folder).expect("removed"));
    }

    /// The process IDs of the running DataNodes.
    pub fn node_ids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(|node| Some(node.process.as_ref()?.id())).collect()
    }

    /// Starts a stopped DataNode without the plug-in, like a stock DataNode.
    pub fn start_without_plugin(&mut self, at: usize) {
        let loads = std::mem::replace(&mut self.loads_plugin, false);
        self.start(at);
        self.loads_plugin = loads;
    }

    /// A DataNode's log since its last start.
    pub fn log(&self, at: usize) -> String {
        fs::read_to_string(self.root.path().join(format!("node{}.log", at + 1))).unwrap_or_default()
    }

    /// Stops a DataNode gracefully and waits until it has ended. It then records its replicas on disk.
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

    /// Kills the NameNode and restarts it with these settings instead of the earlier ones. Waits until it
    /// lists all blocks that it listed before.
    ///
    /// # Panics
    /// On a timeout.
    pub fn restart_namenode_with(&mut self, settings: Vec<String>) {
        let listed = self.hold_namenode(settings);
        self.let_namenode_act(&listed);
    }

    /// Restarts the NameNode in safe mode. Returns the IDs of the blocks that it listed before. Outside safe
    /// mode, a NameNode that has received only the first DataNodes' reports treats all other blocks as lost.
    /// It may then order a second copy of an existing internal block, and never learn of the duplicate.
    fn hold_namenode(&mut self, settings: Vec<String>) -> BTreeSet<i64> {
        let listed = self.listed_blocks();
        self.options.settings = settings;
        self.kill_namenode();
        let mut settings = common(&*self.ground, &self.options);
        // Above 1, safe mode ends only on command.
        settings.extend(define("dfs.namenode.safemode.threshold-pct", "1.5"));
        self.namenode = Some(start_namenode(&*self.ground, &self.hadoop, &settings, self.root.path()));
        listed
    }

    /// Ends safe mode as soon as the NameNode lists these blocks.
    fn let_namenode_act(&mut self, listed: &BTreeSet<i64>) {
        self.await_running_nodes();
        eventually("the NameNode to list what it listed before", || {
            listed.is_subset(&self.listed_blocks()).then_some(())
        });
        self.console.run(&["dfsadmin", "-safemode", "leave"]);
    }

    fn listed_blocks(&mut self) -> BTreeSet<i64> {
        let blocks = self.fsck("/").into_iter().flat_map(|file| file.blocks);
        blocks.flat_map(|block| block.replicas).map(|(number, _)| number).collect()
    }

    /// Starts dead DataNodes while safe mode keeps the NameNode from acting on blocks. Waits until the
    /// NameNode has received their reports and misses nothing.
    ///
    /// # Panics
    /// If blocks are still missing at the timeout.
    pub fn bring_back(&mut self, dead: &[usize]) {
        self.console.run(&["dfsadmin", "-safemode", "enter"]);
        dead.iter().for_each(|&at| self.start(at));
        self.await_running_nodes();
        eventually("all that was missing", || self.is_healthy("/").then_some(()));
        self.console.run(&["dfsadmin", "-safemode", "leave"]);
    }

    /// Kills the NameNode and starts it again.
    pub fn restart_namenode(&mut self) {
        self.kill_namenode();
        let settings = common(&*self.ground, &self.options);
        self.namenode = Some(start_namenode(&*self.ground, &self.hadoop, &settings, self.root.path()));
    }

    /// Makes the NameNode decommission this DataNode, or none, and recommission the previous one.
    ///
    /// # Panics
    /// If the command fails.
    pub fn decommission(&mut self, node: Option<usize>) {
        let address = node.map(|at| self.nodes[at].address()).unwrap_or_default();
        fs::write(self.root.path().join(EXCLUDED), address).expect("written");
        self.console.run(&["dfsadmin", "-refreshNodes"]);
    }

    fn await_running_nodes(&mut self) {
        self.await_nodes(self.nodes.iter().filter(|node| node.process.is_some()).count());
    }

    /// Waits until this many DataNodes are live.
    ///
    /// # Panics
    /// On a timeout, or if a daemon that should run has ended.
    pub fn await_nodes(&mut self, live: usize) {
        let wanted = format!("Live datanodes ({live})");
        eventually(&wanted, || {
            self.check_daemons();
            let said = self.console.ask(&["dfsadmin", "-report", "-live"]);
            said.text.contains(&wanted).then_some(())
        });
    }

    /// The number of internal blocks below a path that no DataNode is listed with. The query is cheap.
    ///
    /// # Panics
    /// If the NameNode does not answer.
    pub fn lacking(&mut self, path: &str) -> usize {
        self.console.run(&["lacking", path]).trim().parse().expect("a number")
    }

    /// The output of fsck for a path, parsed.
    pub fn fsck(&mut self, path: &str) -> Vec<FsckFile> {
        parse(&self.console.ask(&["fsck", path, "-files", "-blocks", "-locations"]).text)
    }

    /// Whether fsck reports no missing or corrupt blocks and no reduced redundancy.
    pub fn is_healthy(&mut self, path: &str) -> bool {
        let said = self.console.ask(&["fsck", path]).text;
        let none = |what: &str| {
            let counts: Vec<_> = said.lines().filter(|line| line.trim().starts_with(what)).collect();
            !counts.is_empty()
                && counts.iter().all(|line| {
                    line.split([':', '(']).nth(1).is_some_and(|count| count.trim().starts_with('0'))
                })
        };
        said.contains("is HEALTHY")
            && none("Under-erasure-coded block groups:")
            && none("Unsatisfactory placement block groups:")
            && none("Missing block groups:")
            && none("Corrupt block groups:")
            && none("Missing internal blocks:")
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

/// Settings of all daemons: dead nodes are detected within seconds, and no delay is long.
fn common(ground: &dyn Ground, options: &ClusterOptions) -> Vec<String> {
    let fixed = [
        "dfs.namenode.datanode.registration.ip-hostname-check=false",
        "dfs.namenode.safemode.extension=0",
        "dfs.heartbeat.interval=1",
        "dfs.namenode.heartbeat.recheck-interval=2000",
        "dfs.namenode.redundancy.interval.seconds=1s",
        // Busy nodes must remain eligible for blocks, since some codes need all nodes.
        "dfs.namenode.redundancy.considerLoad=false",
        "dfs.permissions.enabled=false",
        "ipc.client.connect.retry.interval=200",
    ];
    let mut settings = define("fs.defaultFS", &uri(ground));
    let given = options.settings.iter().map(String::as_str);
    settings.extend(fixed.into_iter().chain(given).flat_map(|setting| ["-D".to_owned(), setting.to_owned()]));
    settings
}

/// Jars on the class path besides Hadoop's own.
fn jars(options: &ClusterOptions) -> Vec<PathBuf> {
    options.plugin.iter().map(|plugin| plugin.jar.clone()).collect()
}

fn plugin_settings(options: &ClusterOptions) -> impl Iterator<Item = String> {
    let settings = options.plugin.iter().flat_map(|plugin| &plugin.settings);
    settings.flat_map(|setting| ["-D".to_owned(), setting.clone()])
}

fn uri(ground: &dyn Ground) -> String {
    format!("hdfs://{}:{NAMENODE_PORT}", ground.host(Seat::Head))
}

fn define(key: &str, value: &str) -> Vec<String> {
    vec!["-D".to_owned(), format!("{key}={value}")]
}

fn namenode_settings(ground: &dyn Ground, settings: &[String], root: &Path) -> Vec<String> {
    let mut settings = settings.to_vec();
    settings.extend(define("dfs.namenode.name.dir", &format!("file://{}", root.join("name").display())));
    let http = format!("{}:{NAMENODE_HTTP_PORT}", ground.host(Seat::Head));
    settings.extend(define("dfs.namenode.http-address", &http));
    settings
}

fn format_namenode(ground: &dyn Ground, hadoop: &Hadoop, settings: &[String], root: &Path) {
    let log = fs::File::create(root.join("format.log")).expect("a log");
    let arguments = namenode_settings(ground, settings, root);
    let mut command = jvm::command(ground, Seat::Head, &hadoop.options(128, &[]), NAMENODE_CLASS, &arguments);
    let output = log.try_clone().expect("one more");
    let status = command.args(["-format", "-nonInteractive"]).stdout(output).stderr(log).status();
    let said = || fs::read_to_string(root.join("format.log")).unwrap_or_default();
    assert!(status.is_ok_and(|status| status.success()), "{}", said());
}

/// Writes the setting for excluded DataNodes to a file. The NameNode reads this setting from a file on every
/// refresh, whatever its command line contains.
fn write_site(root: &Path) {
    let excluded = root.join(EXCLUDED);
    fs::write(&excluded, "").expect("written");
    let property =
        format!("<property><name>dfs.hosts.exclude</name><value>{}</value></property>", excluded.display());
    fs::create_dir(root.join(SITE)).expect("made");
    let site = format!("<configuration>{property}</configuration>");
    fs::write(root.join(SITE).join("hdfs-site.xml"), site).expect("written");
}

fn start_namenode(ground: &dyn Ground, hadoop: &Hadoop, settings: &[String], root: &Path) -> Process {
    let arguments = namenode_settings(ground, settings, root);
    let options = hadoop.options(256, &[root.join(SITE)]);
    let command = jvm::command(ground, Seat::Head, &options, NAMENODE_CLASS, &arguments);
    Process::start(command, &root.join("namenode.log"))
}
