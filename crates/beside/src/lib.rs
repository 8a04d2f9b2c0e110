//! Mend beside somebody else's system, as real processes: a coordinator, and a helper beside each storage server. For tests and
//! measurements; everything dies with whoever started it.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use apart::{Ground, Process, Seat, eventually};
use serde_json::Value;

/// Lines of the coordinator's and of a helper's log that are told when something failed.
const LAST_LINES: [usize; 2] = [80, 12];

/// What Mend is attached to, and how.
pub struct Attaching<'a> {
    /// The program `mend`.
    pub program: &'a Path,
    /// What comes after `mend attach`, but for the cluster folder.
    pub arguments: Vec<String>,
    /// What it calls the helpers, in the order of the servers.
    pub names: Vec<String>,
    /// Where the coordinator and the helpers run.
    pub ground: Arc<dyn Ground>,
    /// The cluster folder and logs are made in here, and stay.
    pub root: &'a Path,
}

/// Mend, attached. Its processes end when this is dropped.
pub struct Mend {
    program: PathBuf,
    folder: PathBuf,
    logs: PathBuf,
    ground: Arc<dyn Ground>,
    coordinator: Option<Process>,
    helpers: Vec<Option<Process>>,
    names: Vec<String>,
    /// What attaching printed.
    pub said: String,
}

impl Mend {
    /// Attaches to a system. Nothing runs yet.
    ///
    /// # Panics
    /// If `mend attach` fails.
    pub fn attach(attaching: Attaching<'_>) -> Self {
        let Attaching { program, arguments, names, ground, root } = attaching;
        let logs = tempfile::tempdir_in(root).expect("a folder").keep();
        let folder = logs.join("cluster");
        let mut command = ground.command(Seat::Head, program);
        let output = command.arg("attach").args(arguments).arg(&folder).output().expect("mend runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self {
            program: program.to_owned(),
            folder,
            logs,
            ground,
            coordinator: None,
            helpers: names.iter().map(|_| None).collect(),
            names,
            said: String::from_utf8_lossy(&output.stdout).into_owned(),
        }
    }

    /// Starts the coordinator and all helpers.
    pub fn start(&mut self) {
        self.start_coordinator();
        (0..self.names.len()).for_each(|at| self.start_helper(at));
    }

    /// Its folder, with `mend.toml`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The helpers' names, as the servers are numbered.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn command(&self, seat: Seat, words: &[&str]) -> Command {
        let mut command = self.ground.command(seat, &self.program);
        command.arg("--cluster").arg(&self.folder).args(words);
        command
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Starts the coordinator.
    pub fn start_coordinator(&mut self) {
        let command = self.command(Seat::Head, &["coordinator"]);
        self.coordinator = Some(Process::start(command, &self.log("coordinator")));
    }

    /// Starts a helper.
    pub fn start_helper(&mut self, at: usize) {
        let name = &self.names[at];
        let command = self.command(Seat::Server(at), &["helper", name]);
        self.helpers[at] = Some(Process::start(command, &self.log(name)));
    }

    /// Kills it at once.
    pub fn kill_coordinator(&mut self) {
        self.coordinator = None;
    }

    /// Kills it at once.
    pub fn kill_helper(&mut self, at: usize) {
        self.helpers[at] = None;
    }

    /// Sends the coordinator a signal, `STOP` or `CONT`.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal_coordinator(&self, signal: &str) {
        let pid = self.coordinator.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// The numbers of the helpers' processes.
    pub fn helper_ids(&self) -> Vec<u32> {
        self.helpers.iter().flatten().map(Process::id).collect()
    }

    /// All that the coordinator has said since it was started.
    pub fn coordinator_log(&self) -> String {
        self.coordinator.as_ref().map(Process::log).unwrap_or_default()
    }

    /// A verb, as a user beside the coordinator types it.
    pub fn verb(&self, words: &[&str]) -> Command {
        self.command(Seat::Head, words)
    }

    /// Carries out a verb.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run(&self, words: &[&str]) -> Output {
        self.verb(words).output().expect("mend runs")
    }

    /// What a verb prints as JSON, whatever its exit code; `None` if it is not JSON.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn ask(&self, words: &[&str]) -> Option<Value> {
        let words: Vec<&str> = ["--output", "json"].iter().chain(words).copied().collect();
        serde_json::from_slice(&self.run(&words).stdout).ok()
    }

    /// Waits until all helpers that run are connected.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_for_helpers(&self) {
        eventually("all helpers", || self.has_all_helpers(&self.ask(&["status"])?).then_some(()));
    }

    fn has_all_helpers(&self, status: &Value) -> bool {
        let up = status["nodes_up"].as_array().map_or(0, Vec::len);
        up == self.helpers.iter().flatten().count()
    }

    /// Waits until all helpers that run are there and so many stripes are whole.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_until_safe(&self, stripes: usize) {
        eventually(&format!("a status that is healthy, with {stripes} stripes"), || {
            let status = self.ask(&["status"])?;
            let is_safe = status["healthy"] == true && status["stripes"]["stripes"] == stripes;
            (is_safe && self.has_all_helpers(&status)).then_some(())
        });
    }
}

impl Drop for Mend {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        if let Ok(status) = self.verb(&["status"]).output() {
            eprintln!("mend status:\n{}", String::from_utf8_lossy(&status.stdout));
        }
        for name in ["coordinator"].into_iter().chain(self.names.iter().map(String::as_str)) {
            let said = fs::read_to_string(self.log(name)).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            let most = LAST_LINES[usize::from(name != "coordinator")];
            eprintln!("{name} said:\n{}", lines[lines.len().saturating_sub(most)..].join("\n"));
        }
    }
}
