//! Tests the crate `hdfs` with a real cluster, which is started once. Mend must read the blocks that HDFS
//! wrote and compute the same parity, and HDFS must accept the blocks that Mend writes.
//!
//! The suite fails if no cluster can be started; `MEND_SKIP=hdfs` skips it.

mod cases;
mod commands;
mod pushes;
mod world;

use std::process::ExitCode;

use testbed::hdfs::run_hdfs_cases;
use testbed::{Case, Cases};

use crate::world::World;

/// The cases, in the order in which they run on one cluster. Each case leaves the cluster intact.
const CASES: &[(&str, Case<World>)] = &[
    ("every_internal_block_is_read_and_its_parity_is_mends", cases::every_internal_block_is_read),
    ("a_rotten_block_is_found_and_replaced_while_its_datanode_runs", cases::a_rotten_block),
    ("a_datanode_without_the_plugin_takes_what_is_pushed", pushes::a_lost_block),
    ("a_push_that_breaks_off_leaves_nothing", pushes::a_push_that_breaks_off),
    ("what_a_datanode_believes_to_have_is_pushed_as_well", pushes::what_it_believes_to_have),
    ("a_block_that_is_there_is_refused_and_recognised", pushes::a_block_that_is_there),
    ("blocks_made_in_the_folders_of_a_stopped_datanode_are_taken", cases::a_stopped_datanode),
    ("the_blocks_of_a_dead_datanode_are_made_on_others", cases::a_dead_datanode),
    ("a_command_that_falls_back_to_hdfs_is_counted_once", commands::a_command_that_falls_back),
    ("a_restarted_namenode_takes_them_as_well", cases::a_restarted_namenode),
    ("block_tokens_are_wanted_of_pushes_and_not_of_the_plugin", pushes::block_tokens),
];

fn main() -> ExitCode {
    run_hdfs_cases(World::boot, Cases { usual: CASES, long: &[] })
}
