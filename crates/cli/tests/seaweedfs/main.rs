//! A real SeaweedFS cluster, booted once: a master, a filer with S3 and six volume servers of two disks each, in a
//! network namespace of their own. Everything that Mend reads, makes and asks is held against it.
//!
//! `scripts/seaweedfs` gets the program, unmodified. Where it cannot be had the tests are skipped, loudly; in CI
//! (`CI=true`) that is a failure. The servers die with this process, however it ends.

mod cases;
mod faults;
mod healing;
mod mend;
mod repairs;
mod weed;
mod world;

use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::world::World;

const INSIDE: &str = "MEND_TEST_INSIDE_NAMESPACE";

type Case = fn(&mut World);

/// In this order: later ones find the cluster as earlier ones leave it, whole.
const CASES: &[(&str, Case)] = &[
    ("the_files_are_what_the_master_lists", cases::the_files_are_what_the_master_lists),
    ("a_lost_shard_is_made_again", repairs::a_lost_shard_is_made_again),
    ("four_lost_shards_and_a_server_without_the_small_files", repairs::four_lost_shards),
    ("a_rotten_shard_is_found_and_made_again", repairs::a_rotten_shard),
    ("a_short_shard_is_found_and_made_again", repairs::a_short_shard),
    ("a_shard_of_another_volume_is_found_and_made_again", repairs::a_foreign_shard),
    ("a_duplicate_is_seen_and_removed", repairs::a_duplicate),
    ("needles_deleted_meanwhile_stay_deleted", repairs::needles_deleted_meanwhile),
    ("a_killed_server_is_seen_and_its_return", cases::a_killed_server_is_seen_and_its_return),
    ("the_lock_keeps_the_shell_out", cases::the_lock_keeps_the_shell_out),
    ("a_restarted_master_has_forgotten_the_lock", faults::a_restarted_master_has_forgotten_the_lock),
    ("mend_repairs_what_is_lost_by_itself", healing::what_is_lost),
    ("mend_finds_what_is_rotten_and_what_is_missing", healing::what_is_rotten),
    ("mend_repairs_elsewhere_and_removes_what_comes_back", healing::a_server_that_goes),
    ("mend_killed_in_the_middle_beside_ec_rebuild", healing::killed_in_the_middle),
    ("who_may_not_is_told_so", faults::who_may_not_is_told_so),
    ("a_cluster_with_tls", faults::a_cluster_with_tls),
    ("the_leader_is_found", faults::the_leader_is_found),
];

fn main() -> ExitCode {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(&Arc::default())).exit_code();
    }
    if env::var_os(INSIDE).is_none() {
        return match weed::install().and_then(|weed| enter(&weed)) {
            Ok(never) => match never {},
            Err(why) => skip(&why),
        };
    }
    let world =
        Arc::new(Mutex::new(Some(World::boot(&PathBuf::from(env::var_os(INSIDE).expect("just found"))))));
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

/// Starts this program again in network and mount namespaces of its own, which go when the last process in them ends.
fn enter(weed: &std::path::Path) -> Result<std::convert::Infallible, String> {
    let isolate = |command: &mut Command| {
        command.args(["--net", "--mount"]);
        if !weed::is_root() {
            command.args(["--user", "--map-root-user"]);
        }
    };
    let mut probe = Command::new("unshare");
    isolate(&mut probe);
    let probed = probe
        .args(["ip", "link", "set", "lo", "up"])
        .output()
        .map_err(|error| format!("unshare: {error}"))?;
    if !probed.status.success() {
        return Err(format!("no namespaces of its own: {}", String::from_utf8_lossy(&probed.stderr)));
    }
    let mut command = Command::new("unshare");
    isolate(&mut command);
    let myself = env::current_exe().map_err(|error| error.to_string())?;
    Err(command.arg(myself).args(env::args_os().skip(1)).env(INSIDE, weed).exec().to_string())
}

fn skip(why: &str) -> ExitCode {
    eprintln!("\n*** NOT TESTED: no SeaweedFS cluster can be started here: {why}\n");
    if env::var_os("CI").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
