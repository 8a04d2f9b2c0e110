//! Commands for the system's own tools, first built as text and then run.
//!
//! A [`Script`] is a program with its input lines. It prints as a user would type it, so sequences of
//! commands can be reviewed and tested without root.

use std::fmt;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// A program with the lines for its standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    words: Vec<String>,
    lines: Vec<String>,
}

/// The reason why a script failed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The program is missing or cannot be started.
    #[error("cannot run `{program}`: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program failed.
    #[error("`{command}` failed: {said}")]
    Failed {
        /// The command, without its input.
        command: String,
        /// The program's error output.
        said: String,
    },
}

impl Script {
    /// Creates a script from a program and its arguments, separated by spaces; no argument may contain a
    /// space.
    pub fn new(command: impl AsRef<str>) -> Self {
        Self { words: command.as_ref().split_whitespace().map(str::to_owned).collect(), lines: Vec::new() }
    }

    /// Adds input lines.
    #[must_use]
    pub fn lines<T: Into<String>>(mut self, lines: impl IntoIterator<Item = T>) -> Self {
        self.lines.extend(lines.into_iter().map(Into::into));
        self
    }

    pub(crate) fn line_list(&self) -> &[String] {
        &self.lines
    }

    /// Returns the same program with other input lines.
    pub(crate) fn with_lines(self, lines: Vec<String>) -> Self {
        Self { lines, ..self }
    }

    /// Runs the script and returns its output.
    ///
    /// # Errors
    /// [`ScriptError`].
    pub fn run(&self) -> Result<String, ScriptError> {
        let start = |source| ScriptError::Start { program: self.words[0].clone(), source };
        let mut child = Command::new(&self.words[0])
            .args(&self.words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        let mut input = child.stdin.take().expect("piped above");
        // A failed write is ignored, because a program that ends early explains why on standard error.
        let _ =
            input.write_all(self.lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes());
        drop(input);
        let output = child.wait_with_output().map_err(start)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = self.explain(&String::from_utf8_lossy(&output.stderr));
        Err(ScriptError::Failed { command: self.words.join(" "), said })
    }

    /// Adds the failing line to a batch error such as `Command failed -:7`.
    fn explain(&self, said: &str) -> String {
        let said = said.trim();
        let number =
            said.rsplit_once("Command failed -:").and_then(|(_, number)| number.trim().parse::<usize>().ok());
        match number.and_then(|number| self.lines.get(number.checked_sub(1)?)) {
            Some(line) => format!("{said} ({line})"),
            None => said.to_owned(),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.words.join(" "))?;
        self.lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// Runs scripts in order until one fails.
pub(crate) fn run_all(scripts: &[Script]) -> Result<(), ScriptError> {
    scripts.iter().try_for_each(|script| script.run().map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_reach_the_program_and_its_words_come_back() {
        assert_eq!(Script::new("cat").lines(["a", "b"]).run().unwrap(), "a\nb\n");
    }

    #[test]
    fn failures_are_told() {
        let missing = Script::new("no-such-program-here").run().unwrap_err();
        assert!(missing.to_string().contains("cannot run `no-such-program-here`"), "{missing}");
        let failed = Script::new("sh").lines(["echo why >&2; exit 1"]).run().unwrap_err();
        assert_eq!(failed.to_string(), "`sh` failed: why");
    }

    #[test]
    fn the_line_that_a_batch_failed_at_is_named() {
        let script = Script::new("ip -batch -").lines(["one", "two"]);
        assert_eq!(
            script.explain("no such thing\nCommand failed -:2"),
            "no such thing\nCommand failed -:2 (two)"
        );
    }
}
