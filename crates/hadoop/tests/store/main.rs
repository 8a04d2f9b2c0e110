//! `stores::hdfs` against a real cluster, booted once: what HDFS wrote is read, its parity is Mend's, and what Mend writes
//! HDFS takes for its own.
//!
//! Where no cluster can be had the tests are skipped, loudly; in CI (`CI=true`) that is a failure.

mod cases;
mod world;

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use hadoop::{Hadoop, inside_namespace};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::world::World;

type Case = fn(&mut World);

/// In this order: later ones find the cluster as earlier ones leave it, whole.
const CASES: &[(&str, Case)] = &[
    ("every_internal_block_is_read_and_its_parity_is_mends", cases::every_internal_block_is_read),
    ("a_rotten_block_is_found_and_replaced_while_its_datanode_runs", cases::a_rotten_block),
    ("blocks_made_in_the_folders_of_a_stopped_datanode_are_taken", cases::a_stopped_datanode),
    ("the_blocks_of_a_dead_datanode_are_made_on_others", cases::a_dead_datanode),
    ("a_restarted_namenode_takes_them_as_well", cases::a_restarted_namenode),
];

fn main() -> ExitCode {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(&Arc::default())).exit_code();
    }
    let hadoop = match Hadoop::install().and_then(|hadoop| inside_namespace().map(|()| hadoop)) {
        Ok(hadoop) => hadoop,
        Err(why) => return skip(&why),
    };
    let world = Arc::new(Mutex::new(Some(World::boot(hadoop))));
    let conclusion = libtest_mimic::run(&arguments, trials(&world));
    drop(world); // Takes everything down.
    conclusion.exit_code()
}

fn trials(world: &Arc<Mutex<Option<World>>>) -> Vec<Trial> {
    let trial = |&(name, case): &(&'static str, Case)| {
        let world = Arc::clone(world);
        Trial::test(name, move || {
            let mut world =
                world.lock().map_err(|_| Failed::from("an earlier case left the cluster broken"))?;
            case(world.as_mut().expect("it is booted"));
            Ok(())
        })
    };
    CASES.iter().map(trial).collect()
}

fn skip(why: &str) -> ExitCode {
    eprintln!("\n*** NOT TESTED: no HDFS cluster can be started here: {why}\n");
    if env::var_os("CI").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
