//! Mend with a real HDFS, started once: a NameNode and fifteen DataNodes with two disks each, all in separate
//! JVMs, plus a coordinator and fifteen helpers as real processes.
//!
//! The suite fails where no cluster can be started; `MEND_SKIP=hdfs` skips it.

mod cases;
mod contradictions;
mod healing;
mod mend;
mod parity;
mod reading;
mod takeover;
mod telling;
mod world;

use std::process::ExitCode;

use testbed::Case;
use testbed::hdfs::run_hdfs_cases;

use crate::world::World;

/// The cases run in this order; each leaves the cluster healthy for the next.
const CASES: &[(&str, Case<World>)] = &[
    ("a_group_that_a_plug_in_describes_is_repaired", cases::a_group_that_is_described),
    (
        "a_group_that_a_plug_in_describes_is_repaired_though_it_is_listed",
        cases::a_group_that_is_described_and_listed,
    ),
    ("what_is_lost_is_repaired_without_being_asked_for", healing::what_is_lost),
    ("rot_and_silent_losses_are_found_and_repaired_in_place", healing::what_is_rotten),
    ("parity_names_what_was_replaced_with_its_checksums", parity::replaced_with_checksums),
    ("what_a_dead_datanode_had_is_made_elsewhere", healing::a_dead_datanode),
    ("helpers_coordinator_and_namenode_are_killed_in_the_middle", healing::killed_in_the_middle),
    ("a_helper_pushes_blocks_where_there_is_no_plug_in", healing::without_the_plug_in),
    ("files_that_are_removed_meanwhile_stay_removed", healing::removed_meanwhile),
    ("small_reads_of_what_is_lost_come_through_mend", reading::lost_ranges),
    ("mend_carries_out_what_the_namenode_commands", takeover::commands),
    ("contradictory_blocks_are_not_rebuilt_from", contradictions::not_rebuilt_from),
    ("hdfs_repairs_the_same_at_the_same_time", healing::both_at_once),
    ("a_decommissioned_datanode_is_emptied", healing::a_decommissioned_datanode),
    ("rot_that_hdfs_knows_of_is_repaired", healing::rot_that_hdfs_knows),
    ("files_in_snapshots_alone_are_repaired", telling::snapshots),
    ("servers_and_helpers_are_two_things", telling::servers),
    ("a_rotten_copy_that_comes_back_is_replaced", telling::rotten_copies_that_come_back),
    ("status_is_unknown_before_the_first_listing", telling::before_it_is_listed),
    ("a_walk_that_meets_no_files_is_heard_of", telling::a_long_walk),
    ("a_file_being_written_is_not_damaged", telling::files_that_are_written),
];

fn main() -> ExitCode {
    run_hdfs_cases(World::boot, CASES)
}
