//! The further results of a repetition.

use serde::{Deserialize, Serialize};

use crate::experiment::{Reads, report};

pub(super) type Report = report::Report<Detail>;
pub(super) type Cell = report::Cell<Detail>;
pub(super) type Run = report::Run<Detail>;

/// The number of data shards of a volume.
const DATA: u64 = 10;

/// Further results, by the kind of measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Detail {
    /// Shards of a volume, each of this many bytes, were rebuilt.
    Shards { shard_bytes: u64 },
    /// A server was recovered.
    Server(LostServer),
    /// Objects were read during a recovery, or while nothing was repaired.
    ReadsDuring(Reads),
}

/// A lost server, and the layout of the shards before the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LostServer {
    /// The number of shards that the server held, and their bytes.
    pub(super) shards: usize,
    pub(super) bytes: u64,
    /// The bytes that a recovery must send at least.
    pub(super) sent: u64,
    /// The number of servers that are left.
    pub(super) survivors: usize,
    /// The fewest and the most shards on a server.
    pub(super) fewest: usize,
    pub(super) most: usize,
}

impl LostServer {
    /// Adds a volume that lost `shards` shards of `shard_bytes` bytes.
    ///
    /// A lost shard is a sum over ten others. If it goes to a server without a shard of the volume, all ten are sent. Of
    /// several lost shards, the others can be computed there as well, and each is then sent to its own server: 10 + s − 1
    /// sends for s lost shards.
    pub(super) fn add(&mut self, shards: usize, shard_bytes: u64) {
        let Some(more) = shards.checked_sub(1) else { return };
        self.shards += shards;
        self.bytes += shards as u64 * shard_bytes;
        self.sent += (DATA + more as u64) * shard_bytes;
    }

    /// Returns the number of bytes that must at least cross the busiest link in one direction: all sends are shared equally
    /// by the links of the surviving servers.
    pub(super) fn bound(&self) -> f64 {
        self.sent as f64 / self.survivors as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_shards_are_sent_for_a_lost_one() {
        let mut lost = LostServer { survivors: 14, ..LostServer::default() };
        (0..28).for_each(|_| lost.add(1, 3_000_000));
        lost.add(0, 3_000_000);
        assert_eq!((lost.shards, lost.bytes, lost.sent), (28, 84_000_000, 840_000_000));
        assert_eq!(lost.bound(), 60_000_000.0);
    }

    #[test]
    fn further_shards_of_a_volume_are_sent_once() {
        let mut lost = LostServer { survivors: 14, ..LostServer::default() };
        lost.add(3, 1_000);
        assert_eq!((lost.shards, lost.sent), (3, 12_000));
    }
}
