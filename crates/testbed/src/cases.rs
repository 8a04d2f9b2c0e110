//! Tests that share one real system, booted once.

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Failed, Trial};

/// A test: it finds the system as the one before it left it.
pub type Case<W> = fn(&mut W);

/// Boots a system and runs tests on it, one after the other, in their order; then takes it down. Where it cannot be booted
/// the tests are skipped, loudly; in CI (`CI=true`) that is a failure.
pub fn run_cases<W: Send + 'static>(
    system: &str,
    boot: impl FnOnce() -> Result<W, String>,
    cases: &'static [(&'static str, Case<W>)],
) -> ExitCode {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(&Arc::default(), cases)).exit_code();
    }
    let world = match boot() {
        Ok(world) => Arc::new(Mutex::new(Some(world))),
        Err(why) => {
            eprintln!("\n*** NOT TESTED: no {system} cluster can be started here: {why}\n");
            return if env::var_os("CI").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let conclusion = libtest_mimic::run(&arguments, trials(&world, cases));
    drop(world); // Takes everything down.
    conclusion.exit_code()
}

fn trials<W: Send + 'static>(
    world: &Arc<Mutex<Option<W>>>,
    cases: &'static [(&'static str, Case<W>)],
) -> Vec<Trial> {
    let trial = |&(name, case): &(&'static str, Case<W>)| {
        let world = Arc::clone(world);
        Trial::test(name, move || {
            let mut world =
                world.lock().map_err(|_| Failed::from("an earlier case left the cluster broken"))?;
            case(world.as_mut().expect("it is booted"));
            Ok(())
        })
    };
    cases.iter().map(trial).collect()
}
