//! Runs tests that share one real system, which boots once.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::skip::is_skipped;

/// Tests that take longer are reported with their time.
const SLOW: Duration = Duration::from_secs(20);

/// A test. It receives the system in the state that the previous test left.
pub type Case<W> = fn(&mut W);

/// The tests of a system, in the order in which they run.
#[derive(Clone, Copy, Debug)]
pub struct Cases<W: 'static> {
    /// The tests that run by default.
    pub usual: &'static [(&'static str, Case<W>)],
    /// Tests that run only with the option `--ignored`, and with `--include-ignored` after the others.
    pub long: &'static [(&'static str, Case<W>)],
}

/// Boots a system, runs its tests in order, one at a time, and shuts the system down. If the system does not
/// boot, the run fails. The environment variable `MEND_SKIP` lists systems whose tests are skipped.
pub fn run_cases<W: Send + 'static>(
    system: &str,
    boot: impl FnOnce() -> Result<W, String>,
    cases: Cases<W>,
) -> ExitCode {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    if arguments.list || (arguments.ignored && cases.long.is_empty()) {
        return libtest_mimic::run(&arguments, trials(&Arc::default(), cases)).exit_code();
    }
    if is_skipped(system) {
        return ExitCode::SUCCESS;
    }
    let world = match boot() {
        Ok(world) => Arc::new(Mutex::new(Some(world))),
        Err(why) => {
            eprintln!("no {system} cluster can be started here: {why}; MEND_SKIP={system} skips its tests");
            return ExitCode::FAILURE;
        }
    };
    let conclusion = libtest_mimic::run(&arguments, trials(&world, cases));
    drop(world); // Shuts the system down.
    conclusion.exit_code()
}

fn trials<W: Send + 'static>(world: &Arc<Mutex<Option<W>>>, cases: Cases<W>) -> Vec<Trial> {
    let trial = |&(name, case): &(&'static str, Case<W>)| {
        let world = Arc::clone(world);
        Trial::test(name, move || {
            let mut world =
                world.lock().map_err(|_| Failed::from("an earlier case left the cluster broken"))?;
            let begun = Instant::now();
            case(world.as_mut().expect("it is booted"));
            if begun.elapsed() > SLOW {
                println!("\nslow: {name}, {} s", begun.elapsed().as_secs());
            }
            Ok(())
        })
    };
    let long = cases.long.iter().map(|case| trial(case).with_ignored_flag(true));
    cases.usual.iter().map(trial).chain(long).collect()
}
