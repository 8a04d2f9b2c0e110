//! The parts that the tests of the requestor libraries share: building a library, and the file to read.

use std::path::Path;
use std::process::Command;

use crate::cluster::Cluster;

/// Returns a command that runs a script which calls cargo. `cargo test` sets variables that describe the
/// package under test; with these, the build scripts of some packages would run again in each build.
pub fn build_script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// A file of one stripe, with four data blocks and three parity blocks.
pub struct Film {
    /// The name of the stripe.
    pub stripe: String,
    /// The size of a block in bytes.
    pub block: usize,
    pub content: Vec<u8>,
}

impl Film {
    /// Stores a file of `bytes` bytes: too few to fill the last data block.
    pub fn put(cluster: &Cluster, bytes: usize) -> Self {
        let content = cluster.put("film", bytes);
        let stat = cluster.mend(&["stat", "1", "--output", "json"]).ok().json();
        let block = stat["block_bytes"].as_u64().expect("a number") as usize;
        assert!(4 * block > content.len(), "the last block is padded");
        Self { stripe: stat["stripe"].as_str().expect("a name").to_owned(), block, content }
    }

    /// Returns bytes `from..to` of a data block. Zeros pad the end of the file.
    pub fn bytes(&self, block: usize, from: usize, to: usize) -> Vec<u8> {
        let start = block * self.block;
        (start + from..start + to).map(|at| self.content.get(at).copied().unwrap_or(0)).collect()
    }

    /// Returns ranges of a block that start or end at all kinds of boundaries.
    pub fn ranges(&self) -> Vec<(usize, usize)> {
        let block = self.block;
        let within = [(0, 1), (4095, 4097), (123_457, 123_969), (65_000, 700_001)];
        within.into_iter().chain([(block - 1, block), (block - 77_777, block), (0, block)]).collect()
    }
}
