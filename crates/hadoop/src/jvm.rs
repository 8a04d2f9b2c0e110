//! A JVM that dies with whoever started it.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running JVM.
#[derive(Debug)]
pub(crate) struct Jvm {
    child: Child,
    log: PathBuf,
}

impl Jvm {
    /// Starts a daemon; what it says goes to `log`.
    ///
    /// The thread that starts it must live as long as it is to live.
    pub(crate) fn daemon(options: &[OsString], class: &str, arguments: &[String], log: &Path) -> Self {
        let said = File::create(log).expect("a log");
        let mut command = command(options, class, arguments);
        let output = said.try_clone().expect("one more");
        let child = command.stdin(Stdio::null()).stdout(output).stderr(said).spawn();
        Self { child: child.expect("setpriv (util-linux) and java"), log: log.to_owned() }
    }

    /// Starts one that is talked to; what it says to nobody goes to `log`.
    pub(crate) fn piped(
        options: &[OsString],
        class: &str,
        arguments: &[String],
        log: &Path,
    ) -> (Self, ChildStdin, ChildStdout) {
        let said = File::create(log).expect("a log");
        let mut command = command(options, class, arguments);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said).spawn();
        let mut child = child.expect("setpriv (util-linux) and java");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        (Self { child, log: log.to_owned() }, input, output)
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        if asked.is_ok_and(|status| status.success()) {
            let _ = self.child.wait();
        }
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of what it said.
    pub(crate) fn said(&self) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(options: &[OsString], class: &str, arguments: &[String]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "java"]).args(options).arg(class).args(arguments);
    command
}
