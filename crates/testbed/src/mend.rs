//! Mend attached to a running system, as real processes: a coordinator, and one helper per storage server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use crate::{Ground, Process, Seat, eventually};
use serde_json::Value;

/// How many lines a failed test prints from the end of the coordinator's log, and from the end of each
/// helper's log.
const LAST_LINES: [usize; 2] = [80, 12];

/// The parameters of one run of `mend attach`.
pub struct AttachCommand<'a> {
    /// The program `mend`.
    pub program: &'a Path,
    /// The arguments after `mend attach`, without the cluster folder.
    pub arguments: Vec<String>,
    /// The names that `mend attach` gives the helpers, in the order of the servers.
    pub names: Vec<String>,
    /// The environment in which the coordinator and the helpers run.
    pub ground: Arc<dyn Ground>,
    /// The folder in which the cluster folder and the logs are created. Neither is removed afterwards.
    pub root: &'a Path,
}

/// Mend attached to a system. Dropping this value kills the coordinator and the helpers.
pub struct Mend {
    program: PathBuf,
    folder: PathBuf,
    logs: PathBuf,
    ground: Arc<dyn Ground>,
    coordinator: Option<Process>,
    helpers: Vec<Option<Process>>,
    names: Vec<String>,
    /// The output of `mend attach`.
    pub said: String,
}

impl Mend {
    /// Attaches to a system; starts no daemon.
    ///
    /// # Panics
    /// If `mend attach` fails.
    pub fn attach(command: AttachCommand<'_>) -> Self {
        let AttachCommand { program, arguments, names, ground, root } = command;
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

    /// The cluster folder, which contains `mend.toml`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The names of the helpers, in the order of the servers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the command that runs a verb of `mend` at this seat.
    pub fn verb_at(&self, seat: Seat, words: &[&str]) -> Command {
        let mut command = self.ground.command(seat, &self.program);
        command.arg("--cluster").arg(&self.folder).args(words);
        command
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Starts the coordinator.
    pub fn start_coordinator(&mut self) {
        let command = self.verb_at(Seat::Head, &["coordinator"]);
        self.coordinator = Some(Process::start(command, &self.log("coordinator")));
    }

    /// Starts a helper.
    pub fn start_helper(&mut self, at: usize) {
        let name = &self.names[at];
        let command = self.verb_at(Seat::Server(at), &["helper", name]);
        self.helpers[at] = Some(Process::start(command, &self.log(name)));
    }

    /// Kills the coordinator.
    pub fn kill_coordinator(&mut self) {
        self.coordinator = None;
    }

    /// Kills a helper.
    pub fn kill_helper(&mut self, at: usize) {
        self.helpers[at] = None;
    }

    /// Sends the coordinator a signal, `STOP` or `CONT`.
    ///
    /// # Panics
    /// If the coordinator is not running.
    pub fn signal_coordinator(&self, signal: &str) {
        self.coordinator.as_ref().expect("it runs").signal(signal);
    }

    /// The process ids of the running helpers.
    pub fn helper_ids(&self) -> Vec<u32> {
        self.helpers.iter().flatten().map(Process::id).collect()
    }

    /// The coordinator's log since its last start.
    pub fn coordinator_log(&self) -> String {
        self.coordinator.as_ref().map(Process::log).unwrap_or_default()
    }

    /// Returns the command that runs a verb of `mend` on the coordinator's machine.
    pub fn verb(&self, words: &[&str]) -> Command {
        self.verb_at(Seat::Head, words)
    }

    /// Runs a verb of `mend` and waits until it ends.
    ///
    /// # Panics
    /// If `mend` cannot be started.
    pub fn run(&self, words: &[&str]) -> Output {
        self.verb(words).output().expect("mend runs")
    }

    /// Runs a verb of `mend` and parses its output as JSON, whatever the exit code; `None` if the output is
    /// not JSON.
    ///
    /// # Panics
    /// If `mend` cannot be started.
    pub fn ask(&self, words: &[&str]) -> Option<Value> {
        let words: Vec<&str> = ["--output", "json"].iter().chain(words).copied().collect();
        serde_json::from_slice(&self.run(&words).stdout).ok()
    }

    /// Waits until every running helper is connected.
    ///
    /// # Panics
    /// On a timeout.
    pub fn wait_for_helpers(&self) {
        eventually("all helpers", || self.has_all_helpers(&self.ask(&["status"])?).then_some(()));
    }

    fn has_all_helpers(&self, status: &Value) -> bool {
        let up = status["nodes_up"].as_array().map_or(0, Vec::len);
        up == self.helpers.iter().flatten().count()
    }

    /// Waits until every running helper is connected and the coordinator reports exactly `stripes` stripes,
    /// all of them healthy.
    ///
    /// # Panics
    /// On a timeout.
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
