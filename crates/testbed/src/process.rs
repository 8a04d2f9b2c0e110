//! Child processes that are killed when their parent ends.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The number of lines that [`Process::said`] returns from the end of the log.
const LAST_LINES: usize = 40;

/// A running process. Dropping this value kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// A process with pipes to its standard input and output.
#[derive(Debug)]
pub struct Piped {
    /// The process.
    pub process: Process,
    /// The process's standard input.
    pub input: ChildStdin,
    /// The process's standard output.
    pub output: ChildStdout,
}

impl Process {
    /// Returns a command whose process is killed when the thread that started it ends.
    pub fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        command
    }

    /// Starts a daemon; its output goes to `log`.
    ///
    /// # Panics
    /// If the daemon cannot be started, or the log cannot be created.
    pub fn start(mut command: Command, log: &Path) -> Self {
        let said = File::create(log).expect("a log");
        let output = said.try_clone().expect("one more");
        let child = command.stdin(Stdio::null()).stdout(output).stderr(said).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")), log: log.to_owned() }
    }

    /// Starts a process with pipes; its standard error goes to `log`.
    ///
    /// # Panics
    /// If the process cannot be started, or the log cannot be created.
    pub fn piped(mut command: Command, log: &Path) -> Piped {
        let said = File::create(log).expect("a log");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Piped { process: Self { child, log: log.to_owned() }, input, output }
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        let _ = self.child.kill(); // The process may have ended already.
        let _ = self.child.wait();
    }

    /// Sends the process a signal, such as `STOP` or `CONT`.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn signal(&self, signal: &str) {
        signal_process(self.id(), signal);
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub fn stop(mut self) {
        let asked = Command::new("kill").arg(self.id().to_string()).status();
        if asked.is_ok_and(|status| status.success()) {
            let _ = self.child.wait();
        }
    }

    /// Whether the process still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the whole log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the last lines of the log.
    pub fn said(&self) -> String {
        let said = self.log();
        let lines: Vec<_> = said.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a process a signal, such as `STOP` or `CONT`. After `STOP`, waits until all threads have stopped: one thread
/// handles the signal, and under load others may run on until then.
///
/// # Panics
/// If the process has ended.
pub fn signal_process(id: u32, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &id.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    if signal == "STOP" {
        crate::eventually("all threads are stopped", || all_threads_are_stopped(id).then_some(()));
    }
}

/// Whether every thread of a process is in the state `T` of `/proc/PID/task/TID/stat`.
fn all_threads_are_stopped(id: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("the process has not ended");
    tasks.flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}
