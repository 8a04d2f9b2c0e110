//! Starts the daemons of a cluster, each in a JVM of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use super::cluster::{ClusterOptions, Pace};
use super::console::Console;
use super::data_node::DataNode;
use super::install::Hadoop;
use crate::{Ground, Process, Seat};

const NAMENODE_PORT: u16 = 8020;
const NAMENODE_HTTP_PORT: u16 = 9870;
const NAMENODE_CLASS: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const DATANODE_CLASS: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";
const PLUGIN_CLASS: &str = "mend.hdfs.MendPlugin";
/// The setting with the plug-in's port.
const PLUGIN_PORT: &str = "mend.datanode.port";
const DISKS: usize = 2;
/// The folder with the NameNode's configuration.
const SITE: &str = "site";
/// The folder that daemons take for that of their logs.
const LOGS: &str = "logs";
/// The file that lists the DataNodes to decommission.
const EXCLUDED: &str = "excluded";
/// Settings of all daemons at every pace. The NameNode declares a DataNode dead after twice its recheck interval and ten
/// times the heartbeat interval.
const ALWAYS: [&str; 5] = [
    "dfs.namenode.datanode.registration.ip-hostname-check=false",
    "dfs.namenode.heartbeat.recheck-interval=2000",
    "dfs.namenode.safemode.extension=0",
    "dfs.permissions.enabled=false",
    "ipc.client.connect.retry.interval=200",
];
/// Settings of all daemons at a short pace.
const SHORT: [&str; 4] = [
    "dfs.heartbeat.interval=1",
    "dfs.namenode.redundancy.interval.seconds=1s",
    "dfs.namenode.decommission.interval=1s",
    // Some codes need all nodes, so a busy node must remain a candidate for a block.
    "dfs.namenode.redundancy.considerLoad=false",
];
/// Settings of the NameNode at HDFS's own pace. The NameNode uses the heartbeat interval for time limits only: DataNodes
/// send heartbeats at their own interval.
const ASSUMED: [&str; 1] = ["dfs.heartbeat.interval=1"];
/// The base of the DataNodes' ports. DataNode number `at` (from 0) uses up to four consecutive ports,
/// beginning with `FIRST_PORT` + 10 · (`at` + 1).
const FIRST_PORT: u16 = 9900;

/// The programs, settings and folders of a cluster, from which daemons are started.
pub(crate) struct Launcher {
    pub(super) hadoop: Hadoop,
    pub(super) ground: Arc<dyn Ground>,
    pub(super) options: ClusterOptions,
    root: TempDir,
}

impl Launcher {
    pub(super) fn new(
        ground: Arc<dyn Ground>,
        hadoop: Hadoop,
        options: ClusterOptions,
        root: TempDir,
    ) -> Self {
        Self { hadoop, ground, options, root }
    }

    /// The folder with all files of the cluster.
    pub(super) fn folder(&self) -> &Path {
        self.root.path()
    }

    /// The NameNode's URI.
    pub(super) fn uri(&self) -> String {
        format!("hdfs://{}:{NAMENODE_PORT}", self.ground.host(Seat::Head))
    }

    /// Returns the DataNodes, which are not started yet.
    pub(super) fn data_nodes(&self) -> Vec<DataNode> {
        let node = |at: usize| {
            let disk = |disk| self.folder().join(format!("node{}/disk{disk}", at + 1));
            let host = self.ground.host(Seat::Server(at));
            DataNode::new(host, FIRST_PORT + 10 * (at as u16 + 1), (0..DISKS).map(disk).collect())
        };
        (0..self.options.data_nodes).map(node).collect()
    }

    /// Formats the NameNode's folder.
    ///
    /// # Panics
    /// If the NameNode fails to do so.
    pub(super) fn format_namenode(&self) {
        self.write_site();
        fs::create_dir(self.folder().join(LOGS)).expect("made");
        let path = self.folder().join("format.log");
        let log = fs::File::create(&path).expect("a log");
        let arguments = self.namenode_settings(&[]);
        let mut command = self.jvm(Seat::Head, 128, &[], NAMENODE_CLASS, &arguments);
        let output = log.try_clone().expect("one more");
        let status = command.args(["-format", "-nonInteractive"]).stdout(output).stderr(log).status();
        let said = || fs::read_to_string(&path).unwrap_or_default();
        assert!(status.is_ok_and(|status| status.success()), "{}", said());
    }

    /// Writes the configuration file with `dfs.hosts.exclude`. The NameNode reads this setting from a file
    /// whenever it refreshes its nodes, so a command-line argument would have no effect.
    fn write_site(&self) {
        self.exclude("");
        let excluded = self.folder().join(EXCLUDED);
        let property = format!(
            "<property><name>dfs.hosts.exclude</name><value>{}</value></property>",
            excluded.display()
        );
        let site = self.folder().join(SITE);
        fs::create_dir(&site).expect("made");
        let text = format!("<configuration>{property}</configuration>");
        fs::write(site.join("hdfs-site.xml"), text).expect("written");
    }

    /// Sets the address of the DataNode that the NameNode decommissions at its next refresh; empty for none.
    pub(super) fn exclude(&self, address: &str) {
        fs::write(self.folder().join(EXCLUDED), address).expect("written");
    }

    /// Starts the NameNode, with these settings in addition to the cluster's.
    pub(super) fn start_namenode(&self, more: &[&str]) -> Process {
        let arguments = self.namenode_settings(more);
        let site = [self.folder().join(SITE)];
        let command = self.jvm(Seat::Head, 256, &site, NAMENODE_CLASS, &arguments);
        Process::start(command, &self.namenode_log())
    }

    /// Returns the path of the NameNode's log.
    pub(super) fn namenode_log(&self) -> PathBuf {
        self.folder().join("namenode.log")
    }

    fn namenode_settings(&self, more: &[&str]) -> Vec<String> {
        let mut settings = self.settings_with(match self.options.pace {
            Pace::Short => &SHORT,
            Pace::Default => &ASSUMED,
        });
        settings.extend(more.iter().flat_map(|setting| setting_of(setting)));
        let names = format!("file://{}", self.folder().join("name").display());
        settings.extend(define("dfs.namenode.name.dir", &names));
        let http = format!("{}:{NAMENODE_HTTP_PORT}", self.ground.host(Seat::Head));
        settings.extend(define("dfs.namenode.http-address", &http));
        settings
    }

    /// Starts a DataNode, with Mend's plug-in if `loads_plugin`.
    pub(super) fn start_data_node(&self, at: usize, node: &DataNode, loads_plugin: bool) -> Process {
        let mut arguments = self.settings();
        arguments.extend(node.settings());
        if self.options.plugin.is_some() && loads_plugin {
            arguments.extend(define("dfs.datanode.plugins", PLUGIN_CLASS));
            arguments.extend(define(PLUGIN_PORT, &node.plugin_address().port().to_string()));
        }
        arguments.extend(self.plugin_settings());
        let command = self.jvm(Seat::Server(at), 128, &self.jars(), DATANODE_CLASS, &arguments);
        Process::start(command, &self.data_node_log(at))
    }

    /// Returns the path of a DataNode's log.
    pub(super) fn data_node_log(&self, at: usize) -> PathBuf {
        self.folder().join(format!("node{}.log", at + 1))
    }

    /// Starts the HDFS command line at a seat. Each seat has one log.
    pub(super) fn start_console(&self, seat: Seat, heap_megabytes: u32) -> Console {
        let mut settings: Vec<_> = self.settings().into_iter().chain(self.plugin_settings()).collect();
        // Reads of lost blocks fail after three retries. By default, the pauses between these grow to 9 s.
        settings.extend(define("dfs.client.retry.window.base", "100"));
        let command = self.jvm(seat, heap_megabytes, &self.jars(), "Console", &settings);
        let log = match seat {
            Seat::Head => "console.log".to_owned(),
            Seat::Server(at) => format!("console{}.log", at + 1),
        };
        Console::start(command, &self.folder().join(log))
    }

    /// Returns the settings of DataNodes and of the console.
    fn settings(&self) -> Vec<String> {
        self.settings_with(match self.options.pace {
            Pace::Short => &SHORT,
            Pace::Default => &[],
        })
    }

    /// Returns the settings of all daemons, with these of the pace. The cluster's own ones come last, because the last
    /// value counts.
    fn settings_with(&self, paced: &[&str]) -> Vec<String> {
        let given = self.options.settings.iter().map(String::as_str);
        let mut settings = define("fs.defaultFS", &self.uri());
        settings.extend(ALWAYS.iter().chain(paced).copied().chain(given).flat_map(setting_of));
        settings
    }

    fn plugin_settings(&self) -> Vec<String> {
        let settings = self.options.plugin.iter().flat_map(|plugin| &plugin.settings);
        settings.flat_map(|setting| setting_of(setting)).collect()
    }

    /// Returns the jars to add to Hadoop's own class path.
    fn jars(&self) -> Vec<PathBuf> {
        self.options.plugin.iter().map(|plugin| plugin.jar.clone()).collect()
    }

    /// Returns a command that runs a class in a JVM, which logs times in UTC.
    fn jvm(
        &self,
        seat: Seat,
        heap_megabytes: u32,
        jars: &[PathBuf],
        class: &str,
        arguments: &[String],
    ) -> Command {
        let mut options: Vec<OsString> = self.hadoop.options(heap_megabytes, jars);
        // As the scripts of a Hadoop distribution set it. The NameNode saves its lists there.
        options.push(format!("-Dhadoop.log.dir={}", self.folder().join(LOGS).display()).into());
        let mut command = self.ground.command(seat, Path::new("java"));
        command.env("TZ", "UTC").args(options).arg(class).args(arguments);
        command
    }
}

/// Returns the arguments for a setting `KEY=VALUE`.
fn setting_of(setting: &str) -> [String; 2] {
    ["-D".to_owned(), setting.to_owned()]
}

/// Returns the arguments for a setting.
pub(super) fn define(key: &str, value: &str) -> Vec<String> {
    setting_of(&format!("{key}={value}")).into()
}
