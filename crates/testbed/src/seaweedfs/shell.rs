//! `weed shell`.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Piped, Process};

/// A shell that waits for commands.
#[derive(Debug)]
pub struct Shell {
    input: ChildStdin,
    process: Process,
    output: JoinHandle<String>,
}

/// How long it has to take the lock.
const LOCK_LIMIT: Duration = Duration::from_secs(30);

impl Shell {
    /// Starts one, and waits until it has connected and taken the lock: what it is told next begins at once.
    ///
    /// # Panics
    /// If it does not.
    pub fn locked(mut command: Command, master: &str, log: &Path, is_locked: impl Fn() -> bool) -> Self {
        command.arg("shell").arg(format!("-master={master}"));
        let Piped { process, input, mut output } = Process::piped(command, log);
        let output = std::thread::spawn(move || {
            let mut said = Vec::new();
            let _ = output.read_to_end(&mut said); // What came before it broke off is kept.
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

    /// Has it carry out a command, without waiting for that.
    ///
    /// # Panics
    /// If it is gone.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").and_then(|()| self.input.flush()).expect("it reads");
    }

    /// Waits until it has done all; what it printed.
    ///
    /// # Panics
    /// If it broke.
    pub fn end(mut self) -> String {
        self.tell("unlock");
        drop(self.input);
        let said = self.output.join().expect("no panic");
        said + &self.process.log()
    }
}

/// Carries out commands; what it prints.
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
