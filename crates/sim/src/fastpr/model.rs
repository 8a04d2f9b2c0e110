//! FastPR's time model (supplement, section 3, and `getReconstructionTime` of the published prototype).

/// The paper's time model: the durations that Algorithm 2 expects, and the optimum that it could reach.
///
/// A chunk is read, sent and written packet by packet; the three steps of a packet follow one another, and
/// the steps of different packets overlap. If a packet is a whole chunk, nothing overlaps, as in the paper's
/// simulations. The chunks of a reconstruction share the receiver's downlink. A receiver handles one chunk
/// at a time, and so does the failing node. The model assumes that reads and writes of a disk do not slow
/// each other down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Number of nodes, including the failing one.
    pub nodes: usize,
    /// Chunk size in bytes.
    pub chunk_bytes: f64,
    /// Packet size in bytes; a divisor of the chunk size.
    pub packet_bytes: f64,
    /// Disk rate in bytes per second.
    pub disk: f64,
    /// Link rate in bytes per second.
    pub link: f64,
    /// Number of hot standbys, which receive all repaired chunks. `None` if any healthy node may receive
    /// chunks.
    pub standbys: Option<usize>,
}

impl Model {
    /// The defaults of the paper's simulations: 100 nodes, chunks of 64 MB without packets, disks of
    /// 100 MB/s, links of 1 Gb/s. The published prototype computes with 128 MB/s for 1 Gb/s.
    pub const PAPER: Self =
        Self { nodes: 100, chunk_bytes: 64e6, packet_bytes: 64e6, disk: 100e6, link: 128e6, standbys: None };

    /// Returns the number of packets of a chunk.
    pub fn packets(&self) -> usize {
        (self.chunk_bytes / self.packet_bytes).round() as usize
    }

    /// Returns the seconds to copy a chunk.
    pub fn migration(&self) -> f64 {
        self.packet_bytes / self.disk + self.receive(1)
    }

    /// Returns the seconds to rebuild a set of `chunks` chunks, each from `needs` chunks of other nodes. Hot
    /// standbys receive equal parts of the set, which need not be whole numbers of chunks.
    pub fn reconstruction(&self, chunks: f64, needs: usize) -> f64 {
        let in_turn = self.standbys.map_or(1.0, |standbys| chunks / standbys as f64);
        self.packet_bytes / self.disk + in_turn * self.receive(needs)
    }

    /// Returns the seconds to receive `senders` streams of a chunk's size and to write one chunk, after the
    /// first packet was read.
    pub(super) fn receive(&self, senders: usize) -> f64 {
        let (network, write) =
            (senders as f64 * self.packet_bytes / self.link, self.packet_bytes / self.disk);
        self.packets() as f64 * network.max(write) + network.min(write)
    }

    /// Returns the seconds per chunk if copying and rebuilding run in parallel without pauses, and all sets
    /// have the maximum size, which need not be a whole number.
    pub fn optimum(&self, needs: usize) -> f64 {
        1.0 / (1.0 / self.migration() + 1.0 / self.reactive(needs))
    }

    /// Returns the seconds per chunk if all chunks are rebuilt, in sets of the maximum size.
    pub fn reactive(&self, needs: usize) -> f64 {
        let at_once = (self.nodes - 1) as f64 / needs as f64;
        self.reconstruction(at_once, needs) / at_once
    }

    /// Returns the maximum number of chunks in a set.
    ///
    /// With several hot standbys, one receives the copied chunks and the others the rebuilt ones. If the
    /// maximum exceeds the number of these other standbys, it is rounded down to a multiple of that number.
    pub fn largest_set(&self, needs: usize) -> usize {
        let most = (self.nodes - 1) / needs;
        match self.standbys {
            Some(standbys) if standbys > 1 && most > standbys - 1 => most / (standbys - 1) * (standbys - 1),
            _ => most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_gives_the_papers_savings() {
        let saving = |standbys, needs| {
            let model = Model { standbys, ..Model::PAPER };
            format!("{:.1} %", (1.0 - model.optimum(needs) / model.reactive(needs)) * 100.0)
        };
        assert_eq!(saving(None, 12), "33.1 %", "scattered RS(16,12)");
        assert_eq!(saving(Some(3), 6), "41.3 %", "three hot standbys, RS(9,6)");
    }

    #[test]
    fn standbys_round_sets_down() {
        let largest = |standbys| Model { standbys, ..Model::PAPER }.largest_set(6);
        assert_eq!(largest(None), 16);
        assert_eq!(largest(Some(4)), 15);
        assert_eq!(largest(Some(1)), 16);
    }
}
