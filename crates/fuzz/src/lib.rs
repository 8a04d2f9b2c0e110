//! Every decoder of external bytes, as a function of arbitrary bytes.
//!
//! Each such function is a *target*. It decodes its input and checks the result: encoding and decoding must
//! reproduce the result, and the result must be within its limits and usable. Otherwise the target panics. It
//! returns whether the input was accepted. `fuzz/` passes the targets to cargo-fuzz. `tests/corpus.rs` runs
//! them on `fuzz/seeds` and on mutations of these seeds, with any toolchain.
//!
//! A target's behaviour depends only on its input: it uses no sockets, files or threads.
#![forbid(unsafe_code)]

mod control;
mod edge;
mod http;
mod job;
mod stored;
mod text;

/// A decoder of external bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// The target's name, which is also that of the folder in `fuzz/seeds` and of the file in
    /// `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Decodes the bytes; returns whether they were accepted.
    ///
    /// # Panics
    /// If the decoder panics or its result is invalid. Such panics are the bugs to find.
    pub run: fn(&[u8]) -> bool,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "edge_greeting", run: edge::greeting },
    Target { name: "edge_frames", run: edge::frames },
    Target { name: "edge_credit", run: edge::credit },
    Target { name: "control_from_node", run: control::from_node },
    Target { name: "control_to_node", run: control::to_node },
    Target { name: "job_reports", run: job::reports },
    Target { name: "api_request", run: http::request },
    Target { name: "api_answer", run: http::answer },
    Target { name: "checksum_file", run: stored::checksum_file },
    Target { name: "block_name", run: stored::block_name },
    Target { name: "catalog_record", run: stored::catalog_record },
    Target { name: "ecsum", run: stored::ecsum },
    Target { name: "vif", run: stored::vif },
    Target { name: "shard_name", run: stored::shard_name },
    Target { name: "hdfs_meta", run: stored::hdfs_meta },
    Target { name: "hdfs_name", run: stored::hdfs_name },
    Target { name: "datanode_answer", run: stored::datanode_answer },
    Target { name: "namenode_answer", run: stored::namenode_answer },
    Target { name: "config", run: text::config },
    Target { name: "byte_range", run: text::byte_range },
    Target { name: "address", run: text::address },
    Target { name: "quantity", run: text::quantity },
    Target { name: "code_spec", run: text::code_spec },
    Target { name: "role_name", run: text::role_name },
    Target { name: "certificate", run: text::certificate },
];

/// Runs a target by name.
///
/// # Panics
/// If the target does not exist or finds a bug.
pub fn run(name: &str, bytes: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("there is no target {name}")).run)(bytes)
}
