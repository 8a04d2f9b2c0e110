//! A real SeaweedFS cluster, started once in a separate network namespace: a master, a filer with S3 and six
//! volume servers with two disks each. All that Mend reads, writes and queries is compared with it.
//!
//! `scripts/seaweedfs` installs the unmodified program. The suite fails where no cluster can be started;
//! `MEND_SKIP=seaweedfs` skips it. The servers die with this process, however it ends.

mod cases;
mod faults;
mod healing;
mod judging;
mod layout;
mod parity;
mod repairs;
mod side_files;
mod world;

use std::process::ExitCode;

use testbed::{Case, run_cases};

use crate::world::World;

/// The cases run in this order; each leaves the cluster healthy for the next.
const CASES: &[(&str, Case<World>)] = &[
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
    ("mend_finds_rot_that_nobody_looked_for", healing::rot_that_nobody_looked_for),
    ("mend_names_by_parity_what_no_checksum_tells", parity::a_shard_that_no_checksum_tells),
    ("mend_brings_small_files_that_are_not_whole", healing::small_files_that_are_not_whole),
    ("mend_says_that_one_shard_of_several_is_lost", judging::one_shard_of_several),
    ("mend_says_that_nobody_can_judge_a_volume", judging::a_volume_that_nobody_can_judge),
    ("mend_repairs_elsewhere_and_removes_what_comes_back", healing::a_server_that_goes),
    ("mend_killed_in_the_middle_beside_ec_rebuild", healing::killed_in_the_middle),
    ("mend_puts_shards_where_the_server_finds_their_files", layout::an_index_folder),
    ("mend_replaces_small_files_that_rot", side_files::small_files_that_rot),
    ("mend_brings_an_index_that_is_large", side_files::an_index_that_is_large),
    ("mend_repairs_elsewhere_what_a_home_does_not_take", side_files::a_home_that_takes_nothing),
    ("mend_knows_the_home_of_what_was_lost_while_it_did_not_run", side_files::a_loss_that_nobody_saw),
    ("mend_takes_back_what_is_not_served_as_it_should_be", layout::a_failed_publication),
    ("mend_repairs_beside_shards_of_another_encoding", layout::a_left_over_encoding),
    ("permission_errors_are_reported", faults::permission_errors_are_reported),
    ("a_cluster_with_tls", faults::a_cluster_with_tls),
    ("the_leader_is_found", faults::the_leader_is_found),
];

fn main() -> ExitCode {
    let boot = || {
        let weed = testbed::seaweedfs::install()?;
        testbed::inside_namespace()?;
        Ok(World::boot(&weed))
    };
    run_cases("SeaweedFS", boot, CASES)
}
