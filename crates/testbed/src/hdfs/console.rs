//! The HDFS command line, kept running in one JVM (`java/Console.java`).

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};

use crate::{Piped, Process};

/// A console that runs one command after the other.
#[derive(Debug)]
pub struct Console {
    jvm: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The command's exit code.
    pub code: i32,
    /// The command's output.
    pub text: String,
}

impl Console {
    pub(crate) fn start(command: Command, log: &Path) -> Self {
        let Piped { process, input, output } = Process::piped(command, log);
        Self { jvm: process, input, output: BufReader::new(output) }
    }

    /// Runs a command of `hdfs`, such as `&["fsck", "/"]` or `&["dfs", "-ls", "/"]`; also `dfsadmin`, `ec`
    /// and `debug`.
    ///
    /// # Panics
    /// If the console has ended.
    pub fn ask(&mut self, words: &[&str]) -> Said {
        let answered = self.try_ask(words);
        answered.unwrap_or_else(|error| panic!("the console is gone: {error}\n{}", self.jvm.said()))
    }

    /// Like [`ask`](Self::ask), but returns an error if the console has ended.
    pub(crate) fn try_ask(&mut self, words: &[&str]) -> std::io::Result<Said> {
        writeln!(self.input, "{}", words.join("\t"))?;
        self.input.flush()?;
        self.answer()
    }

    /// Runs a command that must succeed, and returns its output.
    ///
    /// # Panics
    /// If the command fails.
    pub fn run(&mut self, words: &[&str]) -> String {
        let said = self.ask(words);
        assert_eq!(said.code, 0, "hdfs {}: {}", words.join(" "), said.text);
        said.text
    }

    /// Whether a file or folder exists.
    ///
    /// # Panics
    /// If the console has ended.
    pub fn exists(&mut self, path: &str) -> bool {
        self.ask(&["dfs", "-test", "-e", path]).code == 0
    }

    /// Creates a folder that is named after an erasure coding policy, such as `/RS-6-3-1024k`, and sets that
    /// policy on it.
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
