//! Mend beside a cluster, as real processes: a coordinator, and a helper for each volume server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use apart::{Process, eventually};
use seaweedfs::ServerAddress;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::ground::Seat;

/// How Mend is attached.
#[derive(Clone, Debug)]
pub struct Attaching {
    /// The program.
    pub mend: PathBuf,
    /// More arguments of `mend attach seaweedfs`, such as `--repair-after` and its value.
    pub arguments: Vec<String>,
    /// Volumes that are encoded.
    pub volumes: usize,
}

/// Mend, attached. It goes when this is dropped.
pub struct Mend {
    program: PathBuf,
    folder: PathBuf,
    logs: PathBuf,
    coordinator: Option<Process>,
    helpers: Vec<Option<Process>>,
    names: Vec<String>,
    /// What attaching printed.
    pub said: String,
}

impl Mend {
    /// Attaches to a cluster, and starts everything.
    ///
    /// # Panics
    /// If `mend attach` fails.
    pub fn attach(cluster: &Cluster, attaching: &Attaching) -> Self {
        let logs = tempfile::tempdir_in(&cluster.root).expect("a folder").keep();
        let folder = logs.join("cluster");
        let mut command = cluster.command(Seat::Head, &attaching.mend);
        command.args(["attach", "seaweedfs", "--master", &cluster.master_address()]);
        let output = command.args(&attaching.arguments).arg(&folder).output().expect("mend runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let names: Vec<String> = cluster.servers.iter().map(|server| name(&server.address)).collect();
        let mut mend = Self {
            program: attaching.mend.clone(),
            folder,
            logs,
            coordinator: None,
            helpers: names.iter().map(|_| None).collect(),
            names,
            said: String::from_utf8_lossy(&output.stdout).into_owned(),
        };
        mend.start_coordinator(cluster);
        (0..mend.names.len()).for_each(|at| mend.start_helper(cluster, at));
        mend.wait_until_safe(cluster, attaching.volumes);
        mend
    }

    /// Its folder, with `mend.toml`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The helpers' names, as the servers are numbered.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn start(&self, cluster: &Cluster, seat: Seat, name: &str, words: &[&str]) -> Process {
        let mut command = cluster.command(seat, &self.program);
        command.arg("--cluster").arg(&self.folder).args(words);
        Process::start(command, &self.logs.join(format!("{name}.log")))
    }

    /// Starts the coordinator.
    pub fn start_coordinator(&mut self, cluster: &Cluster) {
        self.coordinator = Some(self.start(cluster, Seat::Head, "coordinator", &["coordinator"]));
    }

    /// Starts a helper.
    pub fn start_helper(&mut self, cluster: &Cluster, at: usize) {
        let name = self.names[at].clone();
        self.helpers[at] = Some(self.start(cluster, Seat::Server(at), &name, &["helper", &name]));
    }

    /// Kills it at once.
    pub fn kill_coordinator(&mut self) {
        self.coordinator = None;
    }

    /// Kills it at once.
    pub fn kill_helper(&mut self, at: usize) {
        self.helpers[at] = None;
    }

    /// The number of a helper's process, if it runs.
    pub fn helper_id(&self, at: usize) -> Option<u32> {
        self.helpers[at].as_ref().map(Process::id)
    }

    /// All that the coordinator has said since it was started.
    pub fn coordinator_log(&self) -> String {
        self.coordinator.as_ref().map(Process::log).unwrap_or_default()
    }

    /// A verb, as a user beside the coordinator types it.
    pub fn verb(&self, cluster: &Cluster, words: &[&str]) -> Command {
        let mut command = cluster.command(Seat::Head, &self.program);
        command.arg("--cluster").arg(&self.folder).args(words);
        command
    }

    /// Carries out a verb.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run(&self, cluster: &Cluster, words: &[&str]) -> Output {
        self.verb(cluster, words).output().expect("mend runs")
    }

    /// What a verb prints as JSON, whatever its exit code; `None` if it is not JSON.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn ask(&self, cluster: &Cluster, words: &[&str]) -> Option<Value> {
        let words: Vec<&str> = ["--output", "json"].iter().chain(words).copied().collect();
        serde_json::from_slice(&self.run(cluster, &words).stdout).ok()
    }

    /// Waits until all helpers are there and so many volumes are whole.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_until_safe(&self, cluster: &Cluster, volumes: usize) {
        eventually("a status that is healthy", || {
            let status = self.ask(cluster, &["status"])?;
            let up = status["nodes_up"].as_array().map_or(0, Vec::len);
            let running = self.helpers.iter().flatten().count();
            (status["healthy"] == true && up == running && status["stripes"]["stripes"] == volumes)
                .then_some(())
        });
    }
}

impl Drop for Mend {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for name in ["coordinator"].into_iter().chain(self.names.iter().map(String::as_str)) {
            let said = fs::read_to_string(self.logs.join(format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            eprintln!("{name} said:\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}

/// What `mend attach` calls the helper beside a server.
fn name(address: &ServerAddress) -> String {
    format!("vs-{}", address.http().replace(['.', ':'], "-"))
}
