//! A process that dies with whoever started it.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Lines of its end that are told.
const LAST_LINES: usize = 40;

/// A running process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// A process that is talked to.
#[derive(Debug)]
pub struct Piped {
    /// The process.
    pub process: Process,
    /// What it reads.
    pub input: ChildStdin,
    /// What it answers.
    pub output: ChildStdout,
}

impl Process {
    /// A program that is killed when the thread that starts it ends.
    pub fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        command
    }

    /// Starts a daemon; what it says goes to `log`.
    ///
    /// # Panics
    /// If it cannot be started, or there can be no log.
    pub fn start(mut command: Command, log: &Path) -> Self {
        let said = File::create(log).expect("a log");
        let output = said.try_clone().expect("one more");
        let child = command.stdin(Stdio::null()).stdout(output).stderr(said).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")), log: log.to_owned() }
    }

    /// Starts one that is talked to; what it says to nobody goes to `log`.
    ///
    /// # Panics
    /// If it cannot be started, or there can be no log.
    pub fn piped(mut command: Command, log: &Path) -> Piped {
        let said = File::create(log).expect("a log");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Piped { process: Self { child, log: log.to_owned() }, input, output }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill(); // It may have ended by itself.
        let _ = self.child.wait();
    }

    /// Asks it to stop, and waits until it has.
    pub fn stop(mut self) {
        let asked = Command::new("kill").arg(self.id().to_string()).status();
        if asked.is_ok_and(|status| status.success()) {
            let _ = self.child.wait();
        }
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// All that it said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of what it said.
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
