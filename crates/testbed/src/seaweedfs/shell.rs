//! Runs `weed shell`.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Piped, Process};

/// A running shell that accepts commands.
#[derive(Debug)]
pub struct Shell {
    input: ChildStdin,
    process: Process,
    output: JoinHandle<String>,
}

/// The time limit for acquiring the cluster's lock.
const LOCK_LIMIT: Duration = Duration::from_secs(180);

impl Shell {
    /// Starts a shell and waits until it has acquired the cluster's lock, so that the next command starts
    /// without delay.
    ///
    /// # Panics
    /// On a timeout.
    pub fn locked(mut command: Command, master: &str, log: &Path, is_locked: impl Fn() -> bool) -> Self {
        command.arg("shell").arg(format!("-master={master}"));
        let Piped { process, input, mut output } = Process::piped(command, log);
        let output = std::thread::spawn(move || {
            let mut said = Vec::new();
            let _ = output.read_to_end(&mut said); // On an error, keep the output so far.
            String::from_utf8_lossy(&said).into_owned()
        });
        let mut shell = Self { input, process, output };
        shell.tell("lock");
        let end = Instant::now() + LOCK_LIMIT;
        while !is_locked() {
            assert!(Instant::now() < end, "weed shell gets no lock: {}", shell.process.said());
            std::thread::sleep(Duration::from_millis(20));
        }
        shell
    }

    /// Sends a command without waiting for its result.
    ///
    /// # Panics
    /// If the shell has ended.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").and_then(|()| self.input.flush()).expect("it reads");
    }

    /// Releases the lock, waits until all commands have finished, and returns their output.
    ///
    /// # Panics
    /// If reading the output failed.
    pub fn end(mut self) -> String {
        self.tell("unlock");
        drop(self.input);
        let said = self.output.join().expect("no panic");
        said + &self.process.log()
    }
}

/// Runs commands in a new shell and returns their output.
pub(crate) fn shell(mut command: Command, master: &str, commands: &[&str]) -> String {
    command.arg("shell").arg(format!("-master={master}"));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("weed shell");
    let mut input = child.stdin.take().expect("piped");
    input.write_all((commands.join("\n") + "\n").as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
