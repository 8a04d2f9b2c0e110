//! Mend beside the cluster, as real processes: a coordinator, and a helper for each DataNode.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use apart::{Process, eventually};
use hadoop::Cluster;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mend");

/// Mend, attached. It goes when this is dropped.
pub struct Mend {
    folder: PathBuf,
    logs: PathBuf,
    coordinator: Option<Process>,
    helpers: Vec<Option<Process>>,
    names: Vec<String>,
    /// What attaching printed.
    pub said: String,
}

impl Mend {
    /// Attaches to a cluster, and starts everything. Without the NameNode the coordinator knows what is described to it.
    pub fn attach(cluster: &Cluster, arguments: &[&str], asks_namenode: bool) -> Self {
        let logs = tempfile::tempdir_in(cluster.folder()).expect("a folder").keep();
        let folder = logs.join("cluster");
        let mut command = Process::command(PROGRAM);
        command.args(["attach", "hdfs", "--namenode", &cluster.uri(), "--classpath", &cluster.classpath()]);
        let output = command.args(arguments).arg(&folder).output().expect("mend runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        configure(cluster, &folder.join("mend.toml"), asks_namenode);
        let name = |node: &hadoop::DataNode| format!("dn-{}", node.address().replace(['.', ':'], "-"));
        let names: Vec<String> = cluster.nodes().iter().map(name).collect();
        let mut mend = Self {
            folder,
            logs,
            coordinator: None,
            helpers: names.iter().map(|_| None).collect(),
            names,
            said: String::from_utf8_lossy(&output.stdout).into_owned(),
        };
        mend.start_coordinator();
        (0..mend.names.len()).for_each(|at| mend.start_helper(at));
        mend
    }

    /// Its folder, with `mend.toml`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The helpers' names, as the DataNodes are numbered.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn start(&self, name: &str, words: &[&str]) -> Process {
        let mut command = Process::command(PROGRAM);
        command.arg("--cluster").arg(&self.folder).args(words);
        Process::start(command, &self.logs.join(format!("{name}.log")))
    }

    pub fn start_coordinator(&mut self) {
        self.coordinator = Some(self.start("coordinator", &["coordinator"]));
    }

    pub fn start_helper(&mut self, at: usize) {
        let name = self.names[at].clone();
        self.helpers[at] = Some(self.start(&name, &["helper", &name]));
    }

    /// Kills it at once.
    pub fn kill_coordinator(&mut self) {
        self.coordinator = None;
    }

    /// Kills it at once.
    pub fn kill_helper(&mut self, at: usize) {
        self.helpers[at] = None;
    }

    /// Carries out a verb.
    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("--cluster").arg(&self.folder).args(words).output().expect("mend runs")
    }

    /// What a verb prints as JSON, whatever its exit code; `None` if it is not JSON.
    pub fn ask(&self, words: &[&str]) -> Option<Value> {
        let words: Vec<&str> = ["--output", "json"].iter().chain(words).copied().collect();
        serde_json::from_slice(&self.run(&words).stdout).ok()
    }

    /// Waits until all helpers that run are connected.
    pub fn wait_for_helpers(&self) {
        let running = self.helpers.iter().flatten().count();
        eventually("all helpers", || {
            let status = self.ask(&["status"])?;
            (status["nodes_up"].as_array().map_or(0, Vec::len) == running).then_some(())
        });
    }

    /// Waits until all helpers that run are there and so many groups are whole.
    pub fn wait_until_safe(&self, groups: usize) {
        let mut last = Value::Null;
        let running = self.helpers.iter().flatten().count();
        let is_safe = |status: &Value| {
            let up = status["nodes_up"].as_array().map_or(0, Vec::len);
            status["healthy"] == true && up == running && status["stripes"]["stripes"] == groups
        };
        for _ in 0..900 {
            last = self.ask(&["status"]).unwrap_or_default();
            if is_safe(&last) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{running} helpers, {groups} groups, and this is no healthy status: {last:#}");
    }
}

/// Each DataNode's plug-in has a port of its own, since all are on one machine.
fn configure(cluster: &Cluster, path: &Path, asks_namenode: bool) {
    let mut text = fs::read_to_string(path).expect("its configuration");
    for node in cluster.nodes() {
        let before = format!("datanode = \"{}\"\nplugin_port = 7410", node.address());
        assert!(text.contains(&before), "{text}");
        let after =
            format!("datanode = \"{}\"\nplugin_port = {}", node.address(), node.plugin_address().port());
        text = text.replace(&before, &after);
    }
    if !asks_namenode {
        let from = text.find("[store.namenode]").expect("a table");
        let keys = text[from..].lines().skip(1).take_while(|line| line.contains('='));
        let bytes = keys.map(|line| line.len() + 1).sum::<usize>() + "[store.namenode]\n".len();
        text.replace_range(from..from + bytes, "");
    }
    fs::write(path, text).expect("written");
}

impl Drop for Mend {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for name in ["coordinator"].into_iter().chain(self.names.iter().map(String::as_str)) {
            let said = fs::read_to_string(self.logs.join(format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            let most = if name == "coordinator" { 80 } else { 12 };
            eprintln!("{name} said:\n{}", lines[lines.len().saturating_sub(most)..].join("\n"));
        }
    }
}
