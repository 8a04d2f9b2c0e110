//! The error of a verb: message, next step and exit code.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use attached::KindError;
use client::{ClientError, RequestFailure, Severity};
use serde_json::json;

use crate::args::Format;
use crate::format::{printable, printable_lines};

/// The remedy if a certificate has expired.
const RENEW: &str = "run `mend renew` on the machine with ca.key";

/// Prints a line on stderr. Ignores errors, because there is no other place to report them: stderr may be a full
/// disk or a closed pipe. The exit code tells the result in any case.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Exit codes, as listed in `mend help` and `docs/reference/cli.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    #[default]
    Done,
    /// General failure.
    Failed,
    /// Data is unreadable or damaged.
    Data,
    /// The coordinator is unreachable.
    Unreachable,
    /// The user interrupted the verb.
    Interrupted,
    /// The result of `status --check`, with the exit codes that monitoring systems expect.
    Check(Severity),
}

impl Exit {
    /// Returns the exit code of a verb whose result cannot be written: that of the result, unless it says that
    /// all is well.
    pub fn unwritten(self) -> Self {
        match self {
            Self::Done => Self::Failed,
            Self::Check(Severity::Ok) => Self::Check(Severity::Unknown),
            found => found,
        }
    }

    /// Returns the worse of the exit codes of two parts of a result. Damaged data are the worst.
    pub fn or_worse(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    fn rank(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Unreachable => 2,
            Self::Interrupted => 3,
            Self::Data => 4,
            Self::Check(_) => 5, // It is the result of the whole verb.
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Done | Self::Check(Severity::Ok) => 0,
            Self::Failed | Self::Check(Severity::Warning) => 1,
            Self::Check(Severity::Critical) => 2,
            Self::Data | Self::Check(Severity::Unknown) => 3,
            Self::Unreachable => 4,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// The error of a verb.
#[derive(Debug)]
pub struct Failure {
    message: String,
    help: Option<String>,
    exit: Exit,
    stdout_taken: bool,
}

impl Failure {
    /// Creates a failure without a separate next step.
    pub fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), help: None, exit: Exit::Failed, stdout_taken: false }
    }

    /// Adds the next step.
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Replaces the exit code.
    pub fn exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Marks stdout as used for file data or a result. Errors in JSON then go to stderr.
    pub fn beside_stdout(self) -> Self {
        Self { stdout_taken: true, ..self }
    }

    /// Creates the failure of a verb that the user interrupted.
    pub fn interrupted(what: impl Display) -> Self {
        Self::new(format!("interrupted; {what}")).exit(Exit::Interrupted)
    }

    /// Returns the exit code.
    pub fn exit_code(&self) -> Exit {
        self.exit
    }

    /// Returns the error message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints the error: as text on stderr, or as JSON on stdout, where programs expect a result.
    pub fn print(self, format: Format) -> ExitCode {
        match format {
            Format::Text => {
                say(&format!("error: {}", printable_lines(&self.message)));
                if let Some(help) = &self.help {
                    say(&format!("help: {}", printable_lines(help)));
                }
            }
            Format::Json => {
                let facts =
                    json!({ "error": self.message, "help": self.help, "exit_code": self.exit.code() });
                let text = serde_json::to_string_pretty(&facts).expect("values are JSON");
                match self.stdout_taken {
                    true => say(&text),
                    // Ignore the error: the reader may have closed the pipe.
                    false => drop(writeln!(io::stdout().lock(), "{text}")),
                }
            }
        }
        self.exit.into()
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        // Escape control characters, because the message may contain text from other systems. Our own
        // messages have no line breaks that would be escaped as well.
        let failure = Self::new(printable(&error.to_string()));
        match error {
            ClientError::Unreachable { .. } => failure
                .help(
                    "start the coordinator with `mend coordinator`, or name another cluster with --cluster \
                     DIR",
                )
                .exit(Exit::Unreachable),
            ClientError::Identity(error) if error.is_expired() => failure.help(RENEW),
            ClientError::Untrusted { distrust, .. } => failure
                .help(distrust.next_step().unwrap_or(
                    "check that --cluster names the right folder, and that mend.toml has the address of the \
                     cluster's coordinator",
                ))
                .exit(Exit::Unreachable),
            ClientError::Lost { .. } => {
                failure.help("check that `mend coordinator` is still running, then try again").exit(Exit::Unreachable)
            }
            ClientError::Session(_) => failure.exit(Exit::Unreachable),
            ClientError::Protocol { .. } => failure.help("run the same version of mend on all machines"),
            ClientError::Refused { next_step: Some(next_step), .. } => {
                failure.help(printable(&next_step))
            }
            ClientError::Unreadable { .. } => failure
                .help("start the helpers that are down (`mend status` names them), or read other bytes with --range")
                .exit(Exit::Data),
            ClientError::Replaced { .. } => failure.help("run `mend get` again"),
            ClientError::Garbled { .. } => failure
                .help("find the damage with `mend scrub`, repair it with `mend repair --all`, then run `mend get -o FILE` again")
                .exit(Exit::Data),
            ClientError::StoredWrong { .. }
            | ClientError::Failed { failure: RequestFailure::StoredWrong { .. }, .. } => failure
                .help("run `mend put` again; if that fails as well, this machine or a helper corrupts data")
                .exit(Exit::Data),
            ClientError::Failed { failure: RequestFailure::Contradiction { .. }, .. } => failure
                .help("possibly wrong bytes were discarded; `mend status` names the contradicting blocks and the next step")
                .exit(Exit::Data),
            _ => failure,
        }
    }
}

impl From<KindError> for Failure {
    fn from(error: KindError) -> Self {
        let exit = if error.is_unreachable { Exit::Unreachable } else { Exit::Failed };
        Self { help: error.help, ..Self::new(error.message).exit(exit) }
    }
}

/// Implements `From` for error types whose messages already include the next step.
macro_rules! plain {
    ($($error:ty),* $(,)?) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error)
            }
        }
    )* };
}

plain!(
    cluster::OpenError,
    cluster::InitError,
    cluster::AddHelperError,
    cluster::RemoveHelperError,
    cluster::IssueError,
    cluster::IdentityError,
    store_api::OpenError,
    store_api::BlockError,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_cannot_be_written_is_never_a_success_or_a_milder_failure() {
        let code = |exit: Exit| exit.unwritten().code();
        assert_eq!([Exit::Done, Exit::Failed, Exit::Data].map(code), [1, 1, 3]);
        let severities = [Severity::Ok, Severity::Warning, Severity::Critical, Severity::Unknown];
        assert_eq!(severities.map(|severity| code(Exit::Check(severity))), [3, 1, 2, 3]);
    }

    #[test]
    fn a_result_in_parts_exits_like_the_worst_of_them() {
        let exits = [Exit::Done, Exit::Failed, Exit::Unreachable, Exit::Data];
        for (better, exit) in exits.into_iter().enumerate() {
            for other in &exits[..=better] {
                assert_eq!((exit.or_worse(*other), other.or_worse(exit)), (exit, exit));
            }
        }
    }
}
