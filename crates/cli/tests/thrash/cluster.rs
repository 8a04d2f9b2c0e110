//! The processes of the run, the cluster folder and the disks.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::janitor::Janitor;
use crate::limits::{self, REFUSALS_ARE_ERRORS};
use crate::network::{self, Network};
use crate::ports::Ports;

/// The name of the coordinator's process. Helpers have their own names.
pub const COORDINATOR: &str = "coordinator";
/// The size in bytes of a helper's disk, if each helper has a disk of its own.
const DISK_BYTES: u64 = 256 << 20;
/// The size in bytes of the coordinator's disk.
const RECORDS_BYTES: u64 = 64 << 20;

/// A cluster folder with its daemons and disks. Dropping a `Cluster` kills the daemons, unmounts the disks
/// and removes the folder. After a panic, or if `MEND_THRASH_KEEP` is set, the folder is kept with a copy of
/// the disks' contents.
pub struct Cluster {
    daemons: Mutex<BTreeMap<String, Child>>,
    disks: Vec<PathBuf>,
    scratch: Option<TempDir>,
    ports: Ports,
    helpers: usize,
    clocks: Option<PathBuf>,
    network: Result<Network, String>,
    _janitor: Janitor,
}

impl Cluster {
    /// Creates a cluster without running processes. `data_tls` says whether data edges are encrypted.
    pub fn init(
        helpers: usize,
        code: &str,
        data_tls: bool,
        network: impl FnOnce(&[String]) -> Result<Network, String>,
    ) -> Self {
        let scratch = tempfile::Builder::new().prefix("mend-thrash-").tempdir().unwrap();
        let janitor = Janitor::start(scratch.path());
        let ports = Ports::take(helpers as u16 + 2);
        let scratch = Some(scratch);
        let mut cluster = Self {
            daemons: Mutex::default(),
            disks: Vec::new(),
            scratch,
            ports,
            helpers,
            clocks: None,
            network: network(&names(helpers)),
            _janitor: janitor,
        };
        for folder in ["logs", "operations", "snapshots", "clocks"] {
            std::fs::create_dir(cluster.path(folder)).unwrap();
        }
        cluster.init_folder(code, data_tls);
        cluster.mount_disks();
        cluster
    }

    fn init_folder(&self, code: &str, data_tls: bool) {
        let first = self.ports.first();
        let mut init = Command::new(env!("CARGO_BIN_EXE_mend"));
        init.arg("init").arg(self.folder()).args(["--code", code, "--block-size", "64KiB"]);
        init.args(["--helpers", &self.helpers.to_string()]);
        init.args(["--coordinator-port", &first.to_string(), "--base-port", &(first + 2).to_string()]);
        init.args(["--data-tls", if data_tls { "true" } else { "false" }]);
        if self.network.is_ok() {
            init.args(["--listen", network::CENTRE]);
        }
        let output = init.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        if self.network.is_ok() {
            self.give_addresses(first + 2);
        }
    }

    /// Sets each helper's listen address.
    fn give_addresses(&self, base_port: u16) {
        let path = self.folder().join("mend.toml");
        let mut text = std::fs::read_to_string(&path).unwrap();
        for (helper, port) in self.helpers().iter().zip(base_port..) {
            let line = |host: &str| format!("listen = \"{host}:{port}\"");
            assert!(text.contains(&line(network::CENTRE)), "{text}");
            text = text.replace(&line(network::CENTRE), &line(&network::address(helper)));
        }
        std::fs::write(path, text).unwrap();
    }

    /// Mounts a disk of its own for every helper and the coordinator, if the user has the permission.
    fn mount_disks(&mut self) {
        for helper in self.helpers() {
            let blocks = self.blocks(&helper);
            std::fs::create_dir_all(&blocks).unwrap();
            if !self.mount(blocks, DISK_BYTES) {
                return;
            }
        }
        let (folder, aside) = (self.records(), self.path("coordinator"));
        std::fs::rename(&folder, &aside).unwrap();
        std::fs::create_dir(&folder).unwrap();
        self.mount(folder.clone(), RECORDS_BYTES);
        let copied = Command::new("cp").arg("-a").arg(aside.join(".")).arg(folder).status();
        assert!(copied.is_ok_and(|status| status.success()));
    }

    fn mount(&mut self, folder: PathBuf, bytes: u64) -> bool {
        let size = format!("size={bytes}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&folder).output();
        let is_mounted = mount.is_ok_and(|output| output.status.success());
        self.disks.extend(is_mounted.then_some(folder));
        is_mounted
    }

    /// Whether the helpers and the coordinator have disks of their own, which a fault can fill.
    pub fn has_disks(&self) -> bool {
        self.disks.len() > self.helpers
    }

    /// Returns the network namespaces, or the reason why there are none.
    pub fn network(&self) -> Result<&Network, &str> {
        self.network.as_ref().map_err(String::as_str)
    }

    /// Returns the names of all helpers.
    pub fn helpers(&self) -> Vec<String> {
        names(self.helpers)
    }

    /// Returns the cluster folder.
    pub fn folder(&self) -> PathBuf {
        self.path("cluster")
    }

    /// Returns the path of a file in the run's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.as_ref().expect("until it is dropped").path().join(name)
    }

    /// Returns the folder in which a helper keeps its blocks.
    pub fn blocks(&self, helper: &str) -> PathBuf {
        self.folder().join("helpers").join(helper).join("blocks")
    }

    /// Returns the path of the coordinator's catalog.
    pub fn catalog(&self) -> PathBuf {
        self.records().join("catalog.redb")
    }

    /// Returns the coordinator's folder.
    pub fn records(&self) -> PathBuf {
        self.folder().join("coordinator")
    }

    /// Returns a `mend` command for this cluster.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(COORDINATOR, env!("CARGO_BIN_EXE_mend"));
        command.args(arguments);
        command
    }

    /// Returns a command that runs a program in the namespace of daemon `name`.
    fn program(&self, name: &str, program: &str) -> Command {
        let mut command = match &self.network {
            Ok(network) => network.command(name, program),
            Err(_) => Command::new(program),
        };
        command.env("MEND_CLUSTER", self.folder()).env_remove("RUST_LOG");
        command.env("RUST_BACKTRACE", "1").current_dir(self.path("operations")).stdin(Stdio::null());
        command
    }

    fn daemon(&self, name: &str) -> Command {
        let mend = env!("CARGO_BIN_EXE_mend");
        if name == COORDINATOR {
            let mut command = self.program(name, "bash");
            command.args(["-c", &limits::script(REFUSALS_ARE_ERRORS), mend, name]);
            command
        } else {
            let mut command = self.program(name, mend);
            command.args(["helper", name]);
            command
        }
    }

    /// Gives adjustable clocks to daemons started from now on, if there is a `library` (libfaketime).
    pub fn fake_clocks(&mut self, library: Option<PathBuf>) {
        self.clocks = library;
        self.helpers().iter().for_each(|helper| self.set_clock(helper, "+0"));
        self.set_clock(COORDINATOR, "+0");
    }

    /// Sets the offset of a daemon's clock.
    pub fn set_clock(&self, name: &str, offset: &str) {
        std::fs::write(self.clock(name), offset).unwrap();
    }

    fn clock(&self, name: &str) -> PathBuf {
        self.path("clocks").join(name)
    }

    /// Starts a daemon without waiting for its ready line. The daemon appends to its existing log.
    pub fn start(&self, name: &str) {
        let log = OpenOptions::new().create(true).append(true).open(self.log(name)).unwrap();
        let out: File = log.try_clone().unwrap();
        let mut command = self.daemon(name);
        if let Some(library) = &self.clocks {
            command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", self.clock(name));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("FAKETIME_CACHE_DURATION", "1");
        }
        let child = command.stdout(out).stderr(log).spawn().unwrap();
        assert!(self.daemons().insert(name.to_owned(), child).is_none(), "{name} runs already");
    }

    fn daemons(&self) -> MutexGuard<'_, BTreeMap<String, Child>> {
        self.daemons.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn take(&self, name: &str) -> Option<Child> {
        self.daemons().remove(name)
    }

    /// Returns the path of a daemon's log.
    pub fn log(&self, name: &str) -> PathBuf {
        self.path("logs").join(format!("{name}.log"))
    }

    /// Whether a daemon was started. The daemon may have exited in the meantime.
    pub fn is_started(&self, name: &str) -> bool {
        self.daemons().contains_key(name)
    }

    /// Kills a daemon with SIGKILL and waits until the process has ended.
    pub fn kill(&self, name: &str) {
        if let Some(mut child) = self.take(name) {
            let _ = child.kill(); // The process may have ended already.
            let _ = child.wait();
        }
    }

    /// Sends a signal to a daemon, if it is running.
    pub fn signal(&self, name: &str, signal: Signal) {
        if let Some(pid) = self.pid(name) {
            let _ = kill_process(pid, signal); // The process may have ended already.
        }
    }

    /// Returns the process id of a running daemon.
    pub fn pid(&self, name: &str) -> Option<Pid> {
        self.daemons().get(name).map(pid)
    }

    /// Removes and returns the daemons that have exited by themselves.
    pub fn ended(&self) -> Vec<(String, ExitStatus)> {
        let (mut daemons, mut ended) = (self.daemons(), Vec::new());
        for (name, child) in daemons.iter_mut() {
            if let Ok(Some(status)) = child.try_wait() {
                ended.push((name.clone(), status));
            }
        }
        ended.iter().for_each(|(name, _)| _ = daemons.remove(name));
        ended
    }

    /// Returns the last lines of a daemon's log.
    pub fn last_words(&self, name: &str) -> String {
        let log = std::fs::read(self.log(name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(4)..].join(" | ")
    }

    /// Copies the contents of the disks into the run's folder, unmounts the disks, and returns the folder's
    /// path. The folder is not deleted. All daemons must have been killed.
    fn keep(&mut self) -> PathBuf {
        for disk in std::mem::take(&mut self.disks) {
            let copy = disk.with_file_name("disk.kept");
            let _ = Command::new("cp").arg("-a").arg(&disk).arg(&copy).status();
            unmount(&disk);
            let _ = std::fs::remove_dir(&disk);
            let _ = std::fs::rename(copy, disk);
        }
        let folder = self.scratch.take().expect("until it is dropped").keep();
        let _ = File::create(folder.join("keep"));
        folder
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let names: Vec<String> = self.daemons().keys().cloned().collect();
        names.iter().for_each(|name| self.kill(name));
        if thread::panicking() || std::env::var_os("MEND_THRASH_KEEP").is_some() {
            let kept = self.keep();
            let kept = kept.display();
            crate::report::say(&format!(
                "thrash: the cluster is kept in {kept}/cluster, its logs in {kept}/logs, what was done in \
                 {kept}/operations.log"
            ));
        }
        self.disks.iter().for_each(|disk| unmount(disk));
    }
}

fn names(helpers: usize) -> Vec<String> {
    (1..=helpers).map(|number| format!("h{number}")).collect()
}

/// Returns the process id of a child.
pub fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn unmount(disk: &Path) {
    // Unmount lazily, because a process that was just killed may still keep the disk busy.
    let _ = Command::new("umount").arg("-l").arg(disk).status();
}

/// Polls until `done` returns true; returns whether that happened within the limit.
pub fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(100));
    }
    true
}
