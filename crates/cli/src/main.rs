//! The binary `mend`: coordinator, helper and command line. A verb returns an [`Answer`] or a
//! [`Failure`], and only `main` prints them.
#![forbid(unsafe_code)]

mod answer;
mod args;
mod blocks;
mod catalogs;
mod cluster_folder;
mod cluster_search;
mod compare;
mod daemons;
mod descriptors;
mod failure;
mod files;
mod format;
mod helper_metrics;
mod history;
mod interrupt;
mod lab;
mod log;
mod network;
mod nodes;
mod plans;
mod progress;
mod raid;
mod recoveries;
mod repairs;
mod scrubs;
mod simulate;
mod status;
mod verbs;
mod watching;

use std::io::{self, Write};
use std::num::NonZero;
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use answer::Answer;
use args::{Cli, Verb};
use failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misspelt(&error),
    };
    let (format, is_check) = (cli.output, cli.verb.is_check());
    let fills_stdout = verbs::fills_stdout(&cli.verb);
    match run(cli) {
        Ok(answer) => answer.print(format),
        // Monitoring systems read only stdout, so report a failure there as well.
        Err(failure) if is_check => status::unknown(&failure).print(format),
        Err(failure) if fills_stdout => failure.beside_stdout().print(format),
        Err(failure) => failure.print(format),
    }
}

/// Runs the command line.
fn run(cli: Cli) -> Result<Answer, Failure> {
    let _log = log::start(&cli)?;
    if let Verb::Lab(args) = &cli.verb {
        return Err(lab::start(args));
    }
    let runtime =
        runtime(&cli.verb).map_err(|error| Failure::new(format!("cannot start threads: {error}")))?;
    let result = runtime.block_on(verbs::run(cli));
    // Do not wait for blocking threads: one may be stuck in a read from a disk that hangs.
    runtime.shutdown_background();
    result
}

/// Prints a usage error in the requested format, or prints the help text if the user asked for it.
fn misspelt(error: &clap::Error) -> ExitCode {
    const USAGE: u8 = 2;
    let words: Vec<_> = std::env::args_os().collect();
    let json = words.windows(2).any(|pair| pair[0] == "--output" && pair[1] == "json")
        || words.iter().any(|word| word == "--output=json");
    if !error.use_stderr() || !json {
        let _ = error.print(); // The reader may have closed the pipe.
        return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
    }
    let text = error.to_string();
    let text = text.trim().strip_prefix("error: ").unwrap_or(&text);
    let facts = serde_json::json!({ "error": text, "help": "mend help", "exit_code": USAGE });
    let text = serde_json::to_string_pretty(&facts).expect("values are JSON");
    let _ = writeln!(io::stdout().lock(), "{text}"); // The reader may have closed the pipe.
    ExitCode::from(USAGE)
}

/// Builds the async runtime for a verb. The coordinator serves many independent connections, so its runtime
/// has a thread per processor, except for one processor that is left to the thread that runs `control`. Every
/// other verb gets a single thread, which moves slices fastest; a helper starts worker threads of its own.
fn runtime(verb: &Verb) -> io::Result<Runtime> {
    match verb {
        Verb::Coordinator(_) => {
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            Builder::new_multi_thread().worker_threads(cores.saturating_sub(1).max(1)).enable_all().build()
        }
        _ => Builder::new_current_thread().enable_all().build(),
    }
}
