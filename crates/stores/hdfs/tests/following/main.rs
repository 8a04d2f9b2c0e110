//! Tests that the store of a coordinator follows a real HDFS without listing it again and again. The store is
//! opened as by a coordinator; no helpers run.
//!
//! The suite fails if no cluster can be started; `MEND_SKIP=hdfs` skips it.

mod losses;
mod namespace;
mod world;

use std::process::ExitCode;

use testbed::hdfs::run_hdfs_cases;
use testbed::{Case, Cases};

use crate::world::World;

/// The cases, in the order in which they run on one cluster. The last ones cause repeated listings.
const CASES: &[(&str, Case<World>)] = &[
    ("the_edit_log_tells_of_all_changes", namespace::edits),
    ("datanodes_tell_and_do_what_is_requested", namespace::datanodes),
    ("files_and_folders_are_followed", namespace::changes),
    ("a_file_in_a_snapshot_is_kept", namespace::snapshots),
    ("lost_blocks_are_known_at_once", losses::lost_blocks),
    ("a_restarted_namenode_is_followed_from_where_it_was", namespace::a_restart),
    ("lost_blocks_are_known_after_the_restart", losses::lost_blocks),
    ("all_files_were_listed_once", losses::one_listing),
    ("purged_edits_are_noticed", namespace::purged_edits),
    ("a_datanode_that_returns_without_a_block_is_noticed", losses::a_datanode_that_returns),
    ("a_corrupt_replica_stays_lost_when_others_are_lost", losses::a_corrupt_replica),
];

fn main() -> ExitCode {
    run_hdfs_cases(World::boot, Cases { usual: CASES, long: &[] })
}
