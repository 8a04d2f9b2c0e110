//! A cluster of real processes on free ports. Its processes are killed when the test ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use testbed::{Ground, Network, Seat, signal_process};

use crate::limits;
use crate::ports::Ports;

/// The time limit after which the test assumes a hang.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A cluster in a folder of its own.
pub struct Cluster {
    scratch: tempfile::TempDir,
    processes: BTreeMap<String, Child>,
    ports: Ports,
    mounted: Vec<PathBuf>,
    network: Option<Network>,
}

/// The output and exit code of `mend`.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Asserts success.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "it failed: {self:#?}");
        self
    }

    /// Asserts failure, and that the output contains all of `texts`.
    #[track_caller]
    pub fn fails_with(self, texts: &[&str]) -> Self {
        assert_ne!(self.code, 0, "it should fail: {self:#?}");
        let all = format!("{}{}", self.out, self.err);
        for text in texts {
            assert!(all.contains(text), "`{text}` is not in {self:#?}");
        }
        assert!(!all.contains("panicked"), "{self:#?}");
        self
    }

    /// Parses the standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

impl Cluster {
    /// Starts a cluster of a coordinator and the helpers `h1..`.
    pub fn new(helpers: u16, code: &str, block_size: &str) -> Self {
        let mut cluster = Self::init(helpers, code, block_size);
        cluster.run_all(helpers);
        cluster
    }

    /// Starts the coordinator and the helpers.
    pub fn run_all(&mut self, helpers: u16) {
        self.start(&["coordinator"]);
        for helper in 1..=helpers {
            self.start(&["helper", &format!("h{helper}")]);
        }
        self.await_ready();
    }

    /// Creates a cluster without running processes.
    pub fn init(helpers: u16, code: &str, block_size: &str) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let ports = Ports::take(helpers + 2);
        let cluster = Self { scratch, processes: BTreeMap::new(), ports, mounted: Vec::new(), network: None };
        let base = cluster.base_port();
        let (api, first) = (base.to_string(), (base + 2).to_string());
        let (helpers, folder) = (helpers.to_string(), cluster.folder());
        let folder = folder.to_str().unwrap();
        let init = ["init", folder, "--helpers", &helpers, "--code", code, "--block-size", block_size];
        cluster.mend(&[&init[..], &["--coordinator-port", &api, "--base-port", &first]].concat()).ok();
        cluster
    }

    /// Starts a cluster with one network namespace per helper. Helper h1 runs in `Seat::Server(0)`; the
    /// coordinator and clients run in `Seat::Head`. The namespace after that of the last helper is free for
    /// another client.
    pub fn apart(helpers: u16, code: &str, block_size: &str) -> Self {
        let mut cluster = Self::init(helpers, code, block_size);
        let network = Network::make(usize::from(helpers) + 1);
        cluster.move_to(2 + helpers, |port| {
            network.host(port.checked_sub(2).map_or(Seat::Head, |helper| Seat::Server(helper.into())))
        });
        cluster.network = Some(network);
        cluster.run_all(helpers);
        cluster
    }

    /// Starts a cluster with `per_host` helpers on each of `hosts` loopback addresses.
    pub fn on_hosts(hosts: u16, per_host: u16, code: &str, block_size: &str) -> Self {
        let helpers = hosts * per_host;
        let mut cluster = Self::init(helpers, code, block_size);
        cluster.move_to(2 + helpers, |port| match port.checked_sub(2) {
            Some(helper) => format!("127.0.0.{}", 2 + helper / per_host),
            None => "127.0.0.1".to_owned(),
        });
        cluster.run_all(helpers);
        cluster
    }

    /// Replaces the hosts in the addresses of the first `ports` ports in `mend.toml`. `host` returns the new
    /// host for the offset of a port from the first one.
    fn move_to(&self, ports: u16, host: impl Fn(u16) -> String) {
        let path = self.folder().join("mend.toml");
        let mut text = std::fs::read_to_string(&path).unwrap();
        for offset in 0..ports {
            let port = self.base_port() + offset;
            text = text.replace(&format!("\"127.0.0.1:{port}\""), &format!("\"{}:{port}\"", host(offset)));
        }
        std::fs::write(path, text).unwrap();
    }

    /// Returns the network of [`Cluster::apart`].
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("a cluster with a network of its own")
    }

    /// Returns the cluster folder.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().join("cluster")
    }

    /// Returns the path of a file of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Returns the first of the cluster's ports.
    pub fn base_port(&self) -> u16 {
        self.ports.first()
    }

    /// Runs `mend` to completion.
    pub fn mend(&self, arguments: &[&str]) -> Said {
        finish(self.spawn(arguments))
    }

    /// Runs `mend` as an unprivileged user, from a copy of the program that anyone may execute. Returns
    /// `None` without root.
    pub fn mend_as_nobody(&self, arguments: &[&str]) -> Option<Said> {
        const NOBODY: u32 = 65534;
        let program = self.path("mend");
        // Copy the program in another process. If this process had the copy open for writing, a child forked
        // by a concurrent test would inherit the descriptor, and executing the copy would fail with "Text
        // file busy".
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_mend")).arg(&program).status().unwrap();
        assert!(copied.success(), "cp must copy the program");
        let mut command = Command::new(&program);
        command.args(arguments).env("MEND_CLUSTER", self.folder()).current_dir("/").stdin(Stdio::null());
        match command.uid(NOBODY).gid(NOBODY).output() {
            Ok(output) => Some(said(output)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                println!("skipped: becoming somebody else needs root");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts `mend` without waiting for it.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Returns a command that runs `mend` for this cluster.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_mend"));
        let mut command = match &self.network {
            Some(network) => network.command(seat(arguments), program),
            None => Command::new(program),
        };
        command.args(arguments).env("MEND_CLUSTER", self.folder()).stdin(Stdio::null());
        command
    }

    /// Starts a daemon. Other methods refer to it by its last argument, such as `coordinator` or `h1`.
    pub fn start(&mut self, arguments: &[&str]) {
        let command = self.command(arguments);
        self.run_daemon(command, arguments);
    }

    /// Starts a daemon with a hard limit on file descriptors.
    pub fn start_limited(&mut self, arguments: &[&str], descriptors: u32) {
        self.start_with(&format!("ulimit -n {descriptors}"), arguments);
    }

    /// Starts a daemon after running `first` in its shell. The daemon's log goes through a pipe, so that file
    /// size limits do not affect the log.
    pub fn start_with(&mut self, first: &str, arguments: &[&str]) {
        let mut command = Command::new("bash");
        command.args(["-c", &limits::script(first), env!("CARGO_BIN_EXE_mend")]).args(arguments);
        command.env("MEND_CLUSTER", self.folder()).stdin(Stdio::null());
        self.run_daemon(command, arguments);
    }

    fn run_daemon(&mut self, mut command: Command, arguments: &[&str]) {
        let name = (*arguments.last().unwrap()).to_owned();
        let log = std::fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        self.processes.insert(name, child);
    }

    /// Starts a daemon that logs everything into a pipe, which is not read before [`Cluster::take_log`].
    pub fn start_unread(&mut self, arguments: &[&str]) {
        let name = (*arguments.last().unwrap()).to_owned();
        std::fs::write(self.path(&format!("{name}.log")), "its log is not read").unwrap();
        let mut command = self.command(arguments);
        command.env("RUST_LOG", "trace").stdout(Stdio::piped()).stderr(Stdio::piped());
        self.processes.insert(name, command.spawn().unwrap());
    }

    /// Returns the pipe with the log of a daemon that was started by [`Cluster::start_unread`].
    pub fn take_log(&mut self, name: &str) -> ChildStderr {
        self.processes.get_mut(name).unwrap().stderr.take().unwrap()
    }

    /// Returns the process id of a daemon.
    pub fn pid(&self, name: &str) -> u32 {
        self.processes[name].id()
    }

    /// Whether a daemon is still running.
    pub fn runs(&mut self, name: &str) -> bool {
        self.processes.get_mut(name).unwrap().try_wait().unwrap().is_none()
    }

    /// Returns the log of a daemon so far.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap()
    }

    /// Waits for the ready lines of all daemons.
    pub fn await_ready(&mut self) {
        for (name, child) in &mut self.processes {
            let Some(out) = child.stdout.take() else { continue };
            let mut line = String::new();
            BufReader::new(out).read_line(&mut line).unwrap();
            let log = std::fs::read_to_string(self.scratch.path().join(format!("{name}.log"))).unwrap();
            assert!(line.starts_with("ready"), "{name} said {line:?} and {log}");
        }
    }

    /// Waits until the coordinator counts this many helpers as up.
    pub fn await_helpers(&self, helpers: usize) {
        self.eventually(&format!("{helpers} helpers are up"), |cluster| {
            let status = cluster.mend(&["status", "--output", "json"]).json();
            status["nodes_up"].as_array().is_some_and(|nodes| nodes.len() == helpers)
        });
    }

    /// Kills a daemon with SIGKILL and waits until the process has ended.
    pub fn kill(&mut self, name: &str) {
        let mut child = self.processes.remove(name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends a signal, such as STOP or CONT.
    pub fn signal(&self, name: &str, signal: &str) {
        signal_process(self.processes[name].id(), signal);
    }

    /// Stores `bytes` random bytes under `name` and returns them.
    pub fn put(&self, name: &str, bytes: usize) -> Vec<u8> {
        let content = noise(bytes);
        std::fs::write(self.path(name), &content).unwrap();
        self.mend(&["put", self.path(name).to_str().unwrap(), "--name", name]).ok();
        content
    }

    /// Asserts that `mend get` returns these bytes.
    #[track_caller]
    pub fn assert_reads(&self, name: &str, content: &[u8], more: &[&str]) -> Said {
        let copy = self.path("copy");
        let arguments = [&["get", name, "-o", copy.to_str().unwrap()], more].concat();
        let said = self.mend(&arguments).ok();
        assert!(std::fs::read(&copy).unwrap() == content, "other bytes after {arguments:?}");
        std::fs::remove_file(copy).unwrap();
        said
    }

    /// Returns the path of a block's file on its helper.
    pub fn block_file(&self, block: &str) -> PathBuf {
        let (name, helper) = (self.block_name(block), self.holder(block));
        let blocks = self.folder().join("helpers").join(helper).join("blocks");
        find(&blocks, &name).unwrap_or_else(|| panic!("no file {name} under {}", blocks.display()))
    }

    /// Returns the full name of a block given by its number: 1.0 is 1-k3f9x2.0.
    pub fn block_name(&self, block: &str) -> String {
        self.block_facts(block)["block"].as_str().unwrap().to_owned()
    }

    /// Returns the helper that holds a block, according to the catalog.
    pub fn holder(&self, block: &str) -> String {
        self.block_facts(block)["node"].as_str().unwrap().to_owned()
    }

    fn block_facts(&self, block: &str) -> serde_json::Value {
        let (stripe, index) = block.split_once('.').unwrap();
        let stat = self.mend(&["stat", stripe, "--output", "json"]).ok().json();
        stat["blocks"][index.parse::<usize>().unwrap()].clone()
    }

    /// Returns the paths of all block files on all helpers.
    pub fn block_files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.folder().join("helpers"), &mut |path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.components().any(|part| part.as_os_str() == "blocks")
                && !name.starts_with('.')
                && !name.ends_with(".crc")
            {
                found.push(path.to_owned());
            }
        });
        found
    }

    /// Unmounts `folder` when the cluster is dropped.
    pub fn unmount_at_end(&mut self, folder: PathBuf) {
        self.mounted.push(folder);
    }

    /// Polls until `done` returns true; panics after [`LIMIT`].
    #[track_caller]
    pub fn eventually(&self, what: &str, done: impl FnMut(&Self) -> bool) {
        self.eventually_within(LIMIT, what, done);
    }

    /// Polls until `done` returns true; panics after `limit`.
    #[track_caller]
    pub fn eventually_within(&self, limit: Duration, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let started = Instant::now();
        while !done(self) {
            assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.processes.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for folder in &self.mounted {
            let _ = Command::new("umount").arg(folder).status();
        }
    }
}

/// Returns the network namespace in which a command runs.
fn seat(arguments: &[&str]) -> Seat {
    match arguments {
        ["helper", name] => Seat::Server(name.trim_start_matches('h').parse::<usize>().unwrap() - 1),
        _ => Seat::Head,
    }
}

/// Waits for a process started by [`Cluster::spawn`]. Kills the process and panics after [`LIMIT`].
pub fn finish(child: Child) -> Said {
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(LIMIT) {
        Ok(output) => said(output.unwrap()),
        Err(_) => {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
            panic!("mend hangs");
        }
    }
}

fn said(output: Output) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut found = None;
    walk(folder, &mut |path| {
        if path.file_name().is_some_and(|file| file == name) {
            found = Some(path.to_owned());
        }
    });
    found
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => walk(&path, visit),
            path => visit(&path),
        }
    }
}

/// Returns `bytes` random bytes, which are the same in each run.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes as u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    })
    .take(bytes)
    .collect()
}
