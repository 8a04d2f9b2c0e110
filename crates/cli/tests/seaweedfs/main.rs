//! Tests Mend with a real SeaweedFS cluster, which is started once in a separate network namespace: a master,
//! a filer with S3 and six volume servers with two disks each. The cases compare what Mend reads, writes and
//! queries with this cluster.
//!
//! `scripts/seaweedfs` installs the unmodified program. The suite fails where no cluster can be started;
//! `MEND_SKIP=seaweedfs` skips it. The servers die with this process, however it ends.

mod cases;
mod deletions;
mod faults;
mod healing;
mod judging;
mod layout;
mod parity;
mod repairs;
mod side_files;
mod world;

use std::process::ExitCode;

use testbed::{Case, Cases, run_cases};

use crate::world::World;

/// The cases run in this order; each leaves the cluster healthy for the next.
const CASES: &[(&str, Case<World>)] = &[
    ("the_files_are_what_the_master_lists", cases::the_files_are_what_the_master_lists),
    ("a_lost_shard_is_rebuilt", repairs::a_lost_shard_is_made_again),
    ("four_lost_shards_and_a_server_without_the_small_files", repairs::four_lost_shards),
    ("a_corrupt_shard_is_found_and_rebuilt", repairs::a_rotten_shard),
    ("a_short_shard_is_found_and_rebuilt", repairs::a_short_shard),
    ("a_shard_of_another_volume_is_found_and_rebuilt", repairs::a_foreign_shard),
    ("a_duplicate_is_seen_and_removed", repairs::a_duplicate),
    ("needles_deleted_during_a_repair_stay_deleted", repairs::needles_deleted_meanwhile),
    ("a_killed_server_and_its_return_are_noticed", cases::a_killed_server_is_seen_and_its_return),
    ("a_restarted_master_has_forgotten_the_lock", faults::a_restarted_master_has_forgotten_the_lock),
    ("lost_shards_are_repaired_automatically", healing::what_is_lost),
    ("a_scrub_finds_corrupt_and_missing_shards", healing::what_is_rotten),
    ("a_shard_replaced_only_on_disk_is_mounted_again", healing::a_shard_replaced_on_disk_only),
    ("the_background_scrub_finds_rot", healing::rot_that_nobody_looked_for),
    ("parity_identifies_a_bad_shard_with_good_checksums", parity::a_shard_that_no_checksum_tells),
    ("truncated_small_files_are_replaced", healing::small_files_that_are_not_whole),
    ("status_counts_one_lost_shard_of_a_server_with_several", judging::one_shard_of_several),
    ("status_names_a_volume_of_unknown_state", judging::a_volume_that_nobody_can_judge),
    ("shards_of_a_returning_server_are_surplus_and_removed", healing::a_server_that_goes),
    ("shards_are_stored_next_to_a_servers_index_files", layout::an_index_folder),
    ("corrupt_small_files_are_replaced", side_files::small_files_that_rot),
    ("checksums_of_an_earlier_encoding_are_not_used", side_files::checksums_of_an_earlier_encoding),
    ("a_shard_is_repaired_elsewhere_if_its_server_refuses_it", side_files::a_home_that_takes_nothing),
    ("a_shard_lost_during_downtime_is_repaired_at_home", side_files::a_loss_that_nobody_saw),
    ("a_badly_served_shard_is_withdrawn", layout::a_failed_publication),
    ("outdated_encodings_do_not_block_repairs", layout::a_left_over_encoding),
    ("shards_that_are_not_mounted_are_put_into_service", healing::shards_that_are_not_mounted),
    ("lost_indexes_of_several_servers_are_replaced", healing::indexes_that_are_lost),
    ("volumes_out_of_sight_are_not_safe", healing::a_cluster_out_of_sight),
    ("a_server_in_service_is_drained", healing::a_server_that_is_drained),
    ("deletions_survive_the_index_that_marks_them", deletions::deletions_that_only_a_damaged_index_marks),
    ("permission_errors_are_reported", faults::permission_errors_are_reported),
    ("a_cluster_with_tls", faults::a_cluster_with_tls),
];

/// Cases that take long, and whose subjects others cover too. `make test-stores` runs them.
const LONG: &[(&str, Case<World>)] = &[
    ("the_lock_keeps_the_shell_out", cases::the_lock_keeps_the_shell_out),
    ("rotten_shards_of_a_returning_server_do_not_replace_good_ones", parity::rot_that_returns),
    ("a_large_index_is_replaced", side_files::an_index_that_is_large),
    ("nothing_is_known_without_a_master", healing::a_master_that_is_gone),
    ("a_paused_repair_leaves_the_lock_to_others", healing::a_repair_that_is_paused),
    ("deletions_on_the_first_disk_survive_a_rebuild", deletions::deletions_on_the_first_disk),
    (
        "deletions_survive_a_rebuild_if_another_disk_has_an_older_journal",
        deletions::deletions_and_an_older_journal,
    ),
    ("a_journal_of_an_earlier_encoding_deletes_nothing", deletions::a_journal_of_an_earlier_encoding),
    // This case is the last on this cluster: `ec.rebuild` may leave servers with different indexes, and Mend
    // replaces no index if no majority of servers agrees.
    ("mend_killed_during_a_repair_next_to_ec_rebuild", healing::killed_in_the_middle),
    ("the_leader_is_found", faults::the_leader_is_found),
];

fn main() -> ExitCode {
    let boot = || {
        let weed = testbed::seaweedfs::install()?;
        testbed::inside_namespace()?;
        Ok(World::boot(&weed))
    };
    run_cases("SeaweedFS", boot, Cases { usual: CASES, long: LONG })
}
