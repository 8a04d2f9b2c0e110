//! The command line of HDFS, in one JVM (`java/Console.java`).

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};

use crate::{Piped, Process};

/// A console that carries out one command after the other.
#[derive(Debug)]
pub struct Console {
    jvm: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its exit code.
    pub code: i32,
    /// What it printed.
    pub text: String,
}

impl Console {
    pub(crate) fn start(command: Command, log: &Path) -> Self {
        let Piped { process, input, output } = Process::piped(command, log);
        Self { jvm: process, input, output: BufReader::new(output) }
    }

    /// Carries out a command of `hdfs`: `&["fsck", "/"]`, `&["dfs", "-ls", "/"]`; also `dfsadmin`, `ec` and `debug`.
    ///
    /// # Panics
    /// If the console is gone.
    pub fn ask(&mut self, words: &[&str]) -> Said {
        let answered = self.try_ask(words);
        answered.unwrap_or_else(|error| panic!("the console is gone: {error}\n{}", self.jvm.said()))
    }

    /// The same, for those who must not panic.
    pub(crate) fn try_ask(&mut self, words: &[&str]) -> std::io::Result<Said> {
        writeln!(self.input, "{}", words.join("\t"))?;
        self.input.flush()?;
        self.answer()
    }

    /// The same of a command that must succeed; what it printed.
    ///
    /// # Panics
    /// If it does not.
    pub fn run(&mut self, words: &[&str]) -> String {
        let said = self.ask(words);
        assert_eq!(said.code, 0, "hdfs {}: {}", words.join(" "), said.text);
        said.text
    }

    /// Makes a folder that is named after an erasure coding policy and has it: `/RS-6-3-1024k`.
    ///
    /// # Panics
    /// If HDFS refuses.
    pub fn make_policy_folder(&mut self, policy: &str) {
        let folder = format!("/{policy}");
        self.run(&["ec", "-enablePolicy", "-policy", policy]);
        self.run(&["dfs", "-mkdir", &folder]);
        self.run(&["ec", "-setPolicy", "-path", &folder, "-policy", policy]);
    }

    fn answer(&mut self) -> std::io::Result<Said> {
        let mut head = String::new();
        self.output.read_line(&mut head)?;
        let (code, bytes) = head.trim().split_once(' ').unwrap_or_default();
        let (Ok(code), Ok(bytes)) = (code.parse(), bytes.parse::<usize>()) else {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, format!("it says `{head}`")));
        };
        let mut text = vec![0; bytes];
        self.output.read_exact(&mut text)?;
        Ok(Said { code, text: String::from_utf8_lossy(&text).into_owned() })
    }
}
