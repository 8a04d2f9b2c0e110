//! The further results of a repetition.

use serde::{Deserialize, Serialize};

use super::codes::RaidCode;
use crate::experiment::report::{self, Key};
use crate::hdfs::nodes::LostNode;

pub(super) type Report = report::Report<Detail>;
pub(super) type Cell = report::Cell<Detail>;
pub(super) type Run = report::Run<Detail>;

/// Further results, by the kind of measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Detail {
    /// A block was read.
    Read,
    /// The read of a lost block failed after the time.
    Failed,
    /// A file was encoded. The time and the bytes of the repetition are those of making the parity.
    Encoding {
        stripes: usize,
        /// The time in which the parity was read back and checked.
        check_s: f64,
        /// Bytes received meanwhile over all links, and over the one that received most.
        check_received: u64,
        check_received_most: u64,
        /// The time of the whole command, most of which may be waiting for HDFS to remove replicas.
        command_s: f64,
    },
    /// A DataNode was recovered.
    Node(LostNode),
}

/// Returns the code of a cell.
pub(super) fn raid_code(key: &Key) -> Option<RaidCode> {
    key.code.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::report::Kind;
    use crate::experiment::report::tests::run;

    pub(in super::super) use crate::experiment::report::tests::report;

    /// A cell of reads with these times. The busiest machine received 128 MB, and all together 512 MB.
    pub(in super::super) fn cell(code: &str, block_mib: u64, by: &str, times: &[f64]) -> Cell {
        let (code, rate, by) = (code.to_owned(), "200Mbit".to_owned(), by.to_owned());
        let key = Key { kind: Kind::Read, code, block_bytes: block_mib << 20, rate, by };
        Cell { key, runs: times.iter().map(|&seconds| run(seconds, Detail::Read)).collect() }
    }
}
