//! The binary `mend`: coordinator, helper and command line. A verb returns an [`Answer`](answer::Answer) or a
//! [`Failure`](failure::Failure), and only `main` prints them.
#![forbid(unsafe_code)]

mod answer;
mod args;
mod blocks;
mod catalogs;
mod cluster_folder;
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

use args::{Cli, Verb};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misspelt(&error),
    };
    if let Err(error) = log::start(&cli) {
        let failure = failure::Failure::new(format!("cannot log to the journal of systemd: {error}"));
        return failure.help("use --log text or --log json").print(cli.output);
    }
    if let Verb::Lab(args) = cli.verb {
        return lab::start(&args).print(cli.output);
    }
    let format = cli.output;
    let runtime = match runtime(&cli.verb) {
        Ok(runtime) => runtime,
        Err(error) => return failure::Failure::new(format!("cannot start threads: {error}")).print(format),
    };
    let result = runtime.block_on(verbs::run(cli));
    // Do not wait for blocking threads: one may be stuck in a read from a disk that hangs.
    runtime.shutdown_background();
    match result {
        Ok(answer) => answer.print(format),
        Err(failure) => failure.print(format),
    }
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
