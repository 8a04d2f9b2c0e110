//! The lab as a separate program, `mend-lab`, which `mend lab …` starts. So the program `mend`, which runs on
//! every helper, contains no code for network namespaces or charts.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// Runs measurements on shaped links in network namespaces on this machine (needs root).
#[derive(Debug, Parser)]
#[command(name = "mend-lab", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: lab::Command,
}

const AFTER_HELP: &str =
    "mend-lab runs the program `mend` from its own folder or from PATH; set MEND_BINARY to use another one.

\
     Exit codes:
  0    done, and the figures are reliable
  1    failed, a target is missed, or the figures \
     are not reliable
  2    invalid command line
  130  interrupted";

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    log_to_stderr();
    lab::execute(command).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Logs to stderr at the level in `RUST_LOG`, by default errors only.
fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
}
