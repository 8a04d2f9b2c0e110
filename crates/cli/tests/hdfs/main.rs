//! Tests Mend with a real HDFS, which is started once: a NameNode and fifteen DataNodes with two disks each,
//! all in separate JVMs, plus a coordinator and fifteen helpers as real processes.
//!
//! The suite fails where no cluster can be started; `MEND_SKIP=hdfs` skips it.

mod cases;
mod contradictions;
mod healing;
mod mend;
mod parity;
mod placement;
#[path = "../ports/mod.rs"]
mod ports;
mod raid;
mod raid_by_helpers;
mod raid_crashes;
mod raid_encoding;
mod raid_examining;
mod raid_folders;
mod raid_policies;
mod raid_reading;
mod raid_refusals;
mod reading;
mod takeover;
mod telling;
mod world;

use std::process::ExitCode;

use testbed::hdfs::run_hdfs_cases;
use testbed::{Case, Cases};

use crate::world::World;

/// The cases run in this order; each leaves the cluster healthy for the next. Cases without the plug-in come last, because
/// loading and unloading it restarts all daemons. `cargo test -p cli --test hdfs -- --include-ignored raid::` runs those of encoded files.
const CASES: &[(&str, Case<World>)] = &[
    ("a_group_described_by_a_plug_in_is_repaired", cases::a_group_that_is_described),
    (
        "a_group_that_a_plug_in_describes_is_repaired_though_it_is_listed",
        cases::a_group_that_is_described_and_listed,
    ),
    ("lost_blocks_are_repaired_automatically", healing::what_is_lost),
    ("rot_and_silent_losses_are_found_and_repaired_in_place", healing::what_is_rotten),
    ("parity_identifies_a_block_replaced_with_its_checksums", parity::replaced_with_checksums),
    ("blocks_of_a_dead_datanode_are_rebuilt_elsewhere", healing::a_dead_datanode),
    ("helpers_coordinator_and_namenode_killed_during_repairs", healing::killed_in_the_middle),
    ("small_reads_of_lost_blocks_go_through_mend", reading::lost_ranges),
    ("raid::lost_blocks_of_raided_files_are_read_and_parity_follows_files", raid_reading::lost_blocks),
    ("a_dead_datanode_is_recovered_as_a_whole_once_commanded", takeover::a_dead_datanode),
    ("hdfs_and_mend_repair_the_same_block_concurrently", healing::both_at_once),
    ("a_decommissioned_datanode_is_drained", healing::a_decommissioned_datanode),
    ("files_that_exist_only_in_snapshots_are_repaired", telling::snapshots),
    ("raid::the_encoding_of_replicated_files_is_planned", raid::a_plan),
    ("raid::lost_blocks_of_raided_files_are_repaired", raid::repairs),
    ("raid::the_calls_of_an_encoding_are_listed", raid::a_forecast),
    ("raid::helpers_make_parity_and_none_receives_a_stripe", raid_by_helpers::pipelined),
    ("raid::policies_encode_files_without_a_command", raid_policies::by_the_coordinator),
    ("raid::missing_blocks_of_raided_files_are_counted_in_their_status", raid_examining::a_status),
    ("raid::a_folder_of_small_files_is_encoded_and_repaired", raid_folders::small_files_only),
    ("a_listing_without_files_reports_progress", telling::a_long_walk),
    ("a_helper_pushes_blocks_without_the_plug_in", healing::without_the_plug_in),
];

/// Cases that take long, and whose subjects others cover too. `make test-stores` runs them.
const LONG: &[(&str, Case<World>)] = &[
    ("two_blocks_of_a_group_on_one_datanode_are_separated", placement::two_blocks_on_one_datanode),
    ("files_removed_during_a_repair_stay_removed", healing::removed_meanwhile),
    ("reconstruction_commands_of_the_namenode_are_executed", takeover::commands),
    ("contradictory_blocks_are_never_repair_sources", contradictions::not_rebuilt_from),
    ("corruption_reported_to_hdfs_is_repaired", healing::rot_that_hdfs_knows),
    ("datanodes_and_helpers_are_reported_separately", telling::servers),
    ("a_returning_corrupt_copy_is_replaced", telling::rotten_copies_that_come_back),
    ("raid::repairs_of_raided_files_are_interrupted", raid::killed),
    ("raid::a_file_is_encoded_and_replicated_again", raid_encoding::there_and_back),
    ("raid::an_interrupted_encoding_is_continued", raid_encoding::interrupted),
    ("raid::a_helper_is_killed_while_helpers_make_parity", raid_by_helpers::a_helper_killed),
    ("raid::parity_is_made_without_a_coordinator", raid_by_helpers::without_a_coordinator),
    ("raid::a_coordinator_killed_while_policies_encode_a_file", raid_crashes::a_coordinator),
    ("raid::the_namenode_killed_while_policies_encode_a_file", raid_crashes::the_namenode),
    ("raid::two_coordinators_evaluate_the_same_policies", raid_crashes::two_coordinators),
    ("raid::a_quota_is_exceeded_below_the_parity_root", raid_refusals::a_quota),
    ("raid::the_namenode_enters_safe_mode_during_an_encoding", raid_refusals::safe_mode),
    ("raid::missing_blocks_and_other_parity_of_raided_files_are_named", raid_examining::an_fsck),
    (
        "raid::files_of_a_folder_are_encoded_repaired_changed_and_replicated_again",
        raid_folders::there_and_back,
    ),
    ("status_is_unknown_without_a_namenode", telling::without_a_namenode),
    ("a_file_being_written_is_not_damaged", telling::files_that_are_written),
    ("a_returning_corrupt_copy_is_replaced_after_a_push", telling::rotten_copies_that_come_back_after_a_push),
    ("raid::lost_blocks_of_raided_files_are_pushed", raid::repairs_without_the_plug_in),
];

fn main() -> ExitCode {
    run_hdfs_cases(World::boot, Cases { usual: CASES, long: LONG })
}
