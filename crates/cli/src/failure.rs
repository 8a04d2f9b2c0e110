//! Why a verb failed, what to do about it, and the exit code.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use attached::KindError;
use client::{ClientError, RequestFailure, Severity};
use serde_json::json;

use crate::args::Format;
use crate::format::{printable, printable_lines};

/// Exit codes; `mend help` and `docs/cli.md` list them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    #[default]
    Done,
    /// Failed.
    Failed,
    /// Data is unreadable or damaged.
    Data,
    /// The coordinator cannot be reached.
    Unreachable,
    /// Interrupted.
    Interrupted,
    /// What monitors want to know.
    Check(Severity),
}

impl Exit {
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

/// Why a verb failed.
#[derive(Debug)]
pub struct Failure {
    message: String,
    help: Option<String>,
    exit: Exit,
    stdout_taken: bool,
}

impl Failure {
    /// A failure whose message says what to do, or for which nothing can be done.
    pub fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), help: None, exit: Exit::Failed, stdout_taken: false }
    }

    /// The same with the next step.
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// The same with another exit code.
    pub fn exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// The same where stdout has the bytes of a file.
    pub fn beside_stdout(self) -> Self {
        Self { stdout_taken: true, ..self }
    }

    /// The user's doing.
    pub fn interrupted(what: impl Display) -> Self {
        Self::new(format!("interrupted; {what}")).exit(Exit::Interrupted)
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints it: on stderr for people; for machines as the JSON value that they wait for on stdout.
    pub fn print(self, format: Format) -> ExitCode {
        match format {
            Format::Text => {
                eprintln!("error: {}", printable_lines(&self.message));
                if let Some(help) = &self.help {
                    eprintln!("help: {}", printable_lines(help));
                }
            }
            Format::Json => {
                let facts =
                    json!({ "error": self.message, "help": self.help, "exit_code": self.exit.code() });
                let text = serde_json::to_string_pretty(&facts).expect("values are JSON");
                match self.stdout_taken {
                    true => eprintln!("{text}"),
                    // Whoever read from us may have gone.
                    false => drop(writeln!(io::stdout().lock(), "{text}")),
                }
            }
        }
        self.exit.into()
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        // It may carry what others wrote, and has no line breaks of its own.
        let failure = Self::new(printable(&error.to_string()));
        match error {
            ClientError::Unreachable { .. } => failure
                .help("start it with `mend coordinator`, or name another cluster with --cluster DIR")
                .exit(Exit::Unreachable),
            ClientError::Untrusted { .. } => failure
                .help("is --cluster the right folder, and mend.toml's address that of its coordinator?")
                .exit(Exit::Unreachable),
            ClientError::Lost { .. } => {
                failure.help("see whether `mend coordinator` still runs, then try again").exit(Exit::Unreachable)
            }
            ClientError::Session(_) => failure.exit(Exit::Unreachable),
            ClientError::Protocol { .. } => failure.help("run the same version of mend everywhere"),
            ClientError::Refused { next_step: Some(next_step), .. } => {
                failure.help(printable(&next_step))
            }
            ClientError::Unreadable { .. } => failure
                .help("start helpers that are down (`mend status` names them); other bytes can be read with --range")
                .exit(Exit::Data),
            ClientError::Replaced { .. } => failure.help("get it again"),
            ClientError::Garbled { .. } => failure
                .help("`mend scrub` finds what is damaged and `mend repair --all` mends it; then get it again, into a file (-o FILE)")
                .exit(Exit::Data),
            ClientError::StoredWrong { .. } => failure
                .help("put it again; if that fails as well, this machine or a helper garbles bytes")
                .exit(Exit::Data),
            ClientError::Failed { failure: RequestFailure::Contradiction { .. }, .. } => failure
                .help("no bytes that may be wrong were kept; `mend status` says which blocks contradict each other and what to do")
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

/// Errors whose messages say what to do.
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
