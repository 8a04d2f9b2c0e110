//! The helper policy `even`: divides the work of each stripe among nodes so that all nodes finish at the same
//! time.
//!
//! To rebuild an offset of a block of an MDS code, the bytes of k survivors at this offset are needed. The k
//! survivors may differ from offset to offset. So survivors can send any shares of their blocks that add up
//! to k blocks, as long as no share exceeds one block (docs/explanation/whole-nodes.md has the proof).
//! Whole-node recovery is therefore limited by the sum of what nodes send, not by how whole chains are
//! distributed over them.
//!
//! *Shares.* Every node has a level: the blocks that it has in flight, plus a part of the blocks that it will
//! probably have to send for waiting stripes, both divided by its relative rate. Work goes to the nodes with
//! the lowest levels first, which raises these levels (water-filling). The second term keeps work away from
//! nodes that waiting stripes will need. Without it, all survivors of the last few stripes would be busy. If
//! the term were too large, nodes would be idle now for the sake of work that comes much later. The level
//! counts work in flight and not all past work, because only work in flight slows down jobs now.
//!
//! *Stretches.* The shares are laid end to end around a circle with the length of a block, and go around k
//! times. The nodes whose shares cover an offset are the k helpers of this offset. No share is longer than
//! the circle, so no node covers an offset twice. This gives at most one stretch more than there are shares.
//! The head of a chain receives nothing, so the node with most to receive becomes the head.

use std::ops::Range;

use repair::{NodeId, Stretch, Wanted};

use super::budget::{Budget, Loads, NodeLoad};
use super::nodes::{Node, NodeNo, NodeTable};
use super::stripes::Stripe;

/// Bisection steps when searching the water level: enough for the precision of a double.
const HALVINGS: usize = 60;
/// Weight of waiting stripes relative to work in flight. Waiting stripes have some weight so that the last
/// few stripes still find free helpers.
const FORESIGHT: f64 = 0.5;
/// Shares are rounded to multiples of this many bytes. If blocks are smaller than 64 times this size, shares
/// are rounded to bytes.
const GRAIN_BYTES: u64 = 64 << 10;

/// The load of a node before it gets its share. `level` is the number of blocks in flight and expected,
/// divided by `width`.
#[derive(Clone, Copy, Debug)]
struct Vessel {
    level: f64,
    /// The node's rate relative to that of the fastest node.
    width: f64,
}

/// Divides the rebuild of a stripe among `helpers`, which must be distinct. One block of each helper is used.
///
/// Returns no stretches if there are fewer helpers than the code needs. Some nodes then hold several blocks
/// of the stripe, and the planner has to choose among the blocks.
pub(super) fn deal(stripe: &Stripe, helpers: &[NodeNo], table: &NodeTable) -> Vec<Stretch> {
    let data = stripe.code.data_blocks();
    if helpers.len() < data {
        return Vec::new();
    }
    let block = stripe.block_bytes;
    let expected = data as f64 / helpers.len() as f64;
    let foresight = foresight(helpers, table, expected * block as f64);
    let widest = helpers.iter().map(|&no| table.get(no).width()).fold(0.0, f64::max);
    let vessel = |&no: &NodeNo| {
        let node = table.get(no);
        let width = node.width() / widest;
        let waiting = node.waiting_stripes() as f64 * expected;
        let blocks = bytes_under_way(node, data) / block as f64 + foresight * waiting;
        Vessel { level: blocks / width, width }
    };
    let vessels: Vec<Vessel> = helpers.iter().map(vessel).collect();
    let shares = grains(&fill(&vessels, data as f64), data as u64, block);
    let mut shares: Vec<(NodeNo, u64)> = helpers.iter().copied().zip(shares).collect();
    shares.retain(|&(_, bytes)| bytes > 0);
    let mut stretches = around(&shares, block);
    lead(&mut stretches, table);
    stretches
        .into_iter()
        .map(|(offsets, nodes)| Stretch {
            offsets,
            helpers: nodes.into_iter().map(|no| table.get(no).id).collect(),
        })
        .collect()
}

/// Returns the bytes in flight that determine when a node finishes.
///
/// Received bytes count for slightly less, because the node is on average the head of one chain in `data`,
/// and the head receives nothing.
fn bytes_under_way(node: &Node, data: usize) -> f64 {
    let Budget { up_bytes, down_bytes, .. } = node.used();
    (up_bytes as f64).max(down_bytes as f64 * (data - 1) as f64 / data as f64)
}

/// Returns the weight of a waiting stripe relative to one in flight. `bytes` is what a stripe reads from each
/// helper on average.
///
/// The longer it will take until there is room for waiting stripes, the lower the weight.
fn foresight(helpers: &[NodeNo], table: &NodeTable, bytes: f64) -> f64 {
    let sum = |of: fn(&Node, f64) -> f64| -> f64 { helpers.iter().map(|&no| of(table.get(no), bytes)).sum() };
    let room = sum(|node, bytes| {
        let Budget { jobs, up_bytes, .. } = node.budget;
        (jobs as f64).min(up_bytes as f64 / bytes)
    });
    let asked = sum(|node, _| (node.used().jobs + node.waiting_stripes()) as f64);
    FORESIGHT * (room / asked.max(1.0)).min(1.0)
}

/// Returns shares of at most 1 that add up to `total` and maximise the lowest level (water-filling).
fn fill(vessels: &[Vessel], total: f64) -> Vec<f64> {
    let share = |vessel: &Vessel, level: f64| ((level - vessel.level) * vessel.width).clamp(0.0, 1.0);
    let lowest = vessels.iter().map(|vessel| vessel.level).fold(f64::INFINITY, f64::min);
    let full = |vessel: &Vessel| vessel.level + 1.0 / vessel.width;
    let highest = vessels.iter().map(full).fold(lowest, f64::max);
    let (mut low, mut high) = (lowest, highest);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        let sum: f64 = vessels.iter().map(|vessel| share(vessel, middle)).sum();
        (low, high) = if sum < total { (middle, high) } else { (low, middle) };
    }
    vessels.iter().map(|vessel| share(vessel, high)).collect()
}

/// Rounds shares down to multiples of a grain ([`GRAIN_BYTES`] or 1 byte), then adds the remainder, so that
/// the result adds up to exactly `blocks` blocks.
fn grains(shares: &[f64], blocks: u64, block_bytes: u64) -> Vec<u64> {
    let grain = if block_bytes >= 64 * GRAIN_BYTES { GRAIN_BYTES } else { 1 };
    let mut bytes: Vec<u64> =
        shares.iter().map(|share| (share * block_bytes as f64) as u64 / grain * grain).collect();
    let mut rest = blocks * block_bytes - bytes.iter().sum::<u64>().min(blocks * block_bytes);
    // The remainder goes to the largest shares that still have room.
    let mut order: Vec<usize> = (0..bytes.len()).collect();
    order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
    for at in order {
        let more = rest.min(block_bytes - bytes[at]);
        bytes[at] += more;
        rest -= more;
    }
    bytes
}

type Helpers = (Range<u64>, Vec<NodeNo>);

/// Lays shares around a circle with the length of a block, and cuts the circle wherever a share begins.
/// Returns each piece with the nodes whose shares cover it.
fn around(shares: &[(NodeNo, u64)], block_bytes: u64) -> Vec<Helpers> {
    let mut arcs = Vec::with_capacity(shares.len());
    let mut cuts = vec![0, block_bytes];
    let mut at = 0;
    for &(node, bytes) in shares {
        arcs.push((node, at, bytes));
        cuts.push(at);
        at = (at + bytes) % block_bytes;
    }
    cuts.sort_unstable();
    cuts.dedup();
    let covers = |start: u64, bytes: u64, offset: u64| (offset + block_bytes - start) % block_bytes < bytes;
    let above = |offset: u64| {
        arcs.iter().filter(|&&(_, start, bytes)| covers(start, bytes, offset)).map(|arc| arc.0).collect()
    };
    cuts.windows(2).map(|pair| (pair[0]..pair[1], above(pair[0]))).collect()
}

/// Puts the node with most to receive, relative to its rate, at the head of each chain, where it receives
/// nothing.
fn lead(stretches: &mut [Helpers], table: &NodeTable) {
    let mut received: Vec<(NodeNo, f64)> = Vec::new();
    for (offsets, nodes) in stretches {
        let bytes = (offsets.end - offsets.start) as f64;
        let so_far = |node: NodeNo, received: &[(NodeNo, f64)]| {
            let here = received.iter().find(|(other, _)| *other == node).map_or(0.0, |&(_, bytes)| bytes);
            (table.get(node).used().down_bytes as f64 + here) / table.get(node).width()
        };
        nodes.sort_by(|&a, &b| so_far(b, &received).total_cmp(&so_far(a, &received)));
        for &node in nodes.iter().skip(1) {
            match received.iter_mut().find(|(other, _)| *other == node) {
                Some((_, sum)) => *sum += bytes,
                None => received.push((node, bytes)),
            }
        }
    }
}

impl Loads {
    /// Returns the load of chains of partial sums over `stretches`, with requestors that store the result.
    pub fn of_stretches(stretches: &[Stretch], wanted: &[Wanted]) -> Self {
        let mut loads = Self::default();
        let sums = wanted.len() as u64;
        for stretch in stretches {
            let bytes = stretch.bytes();
            for (at, &helper) in stretch.helpers.iter().enumerate() {
                loads.node(helper).read_bytes += bytes;
                match stretch.helpers.get(at + 1) {
                    Some(&next) => loads.send(helper, next, bytes * sums),
                    None => wanted.iter().for_each(|wanted| loads.send(helper, wanted.requestor, bytes)),
                }
            }
            wanted.iter().for_each(|wanted| loads.node(wanted.requestor).stored_bytes += bytes);
        }
        loads
    }

    fn node(&mut self, node: NodeId) -> &mut NodeLoad {
        let at = self.nodes.binary_search_by_key(&node, |load| load.node).unwrap_or_else(|at| {
            let none =
                NodeLoad { node, jobs: 1, sent_bytes: 0, received_bytes: 0, read_bytes: 0, stored_bytes: 0 };
            self.nodes.insert(at, none);
            at
        });
        &mut self.nodes[at]
    }

    fn send(&mut self, from: NodeId, to: NodeId, bytes: u64) {
        self.node(from).sent_bytes += bytes;
        self.node(to).received_bytes += bytes;
        match self.links.iter_mut().find(|link| (link.0, link.1) == (from, to)) {
            Some(link) => link.2 += bytes,
            None => self.links.push((from, to, bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_offset_has_k_helpers_and_every_share_is_sent(
            levels in prop::collection::vec(0.0..5.0f64, 1..16),
            widths in prop::collection::vec(0.5..2.0f64, 16),
            data in 1..16usize,
            block_bytes in 1..10_000u64,
        ) {
            prop_assume!(data <= levels.len());
            let vessels: Vec<Vessel> =
                levels.iter().zip(widths).map(|(&level, width)| Vessel { level, width }).collect();
            let shares = grains(&fill(&vessels, data as f64), data as u64, block_bytes);
            prop_assert_eq!(shares.iter().sum::<u64>(), data as u64 * block_bytes);
            let shares: Vec<(NodeNo, u64)> = (0..).zip(shares).collect();
            prop_assert!(shares.iter().all(|&(_, bytes)| bytes <= block_bytes));
            let stretches = around(&shares, block_bytes);
            prop_assert!(stretches.len() <= shares.len() + 1);
            let mut sent = vec![0; shares.len()];
            let mut end = 0;
            for (offsets, nodes) in &stretches {
                prop_assert_eq!(offsets.start, end);
                end = offsets.end;
                let mut distinct = nodes.clone();
                distinct.dedup();
                prop_assert_eq!((distinct.len(), nodes.len()), (data, data));
                nodes.iter().for_each(|&node| sent[node as usize] += offsets.end - offsets.start);
            }
            prop_assert_eq!(end, block_bytes);
            prop_assert!(shares.iter().all(|&(node, bytes)| sent[node as usize] == bytes));
        }

        #[test]
        fn no_share_could_move_to_a_node_with_a_lower_level(levels in prop::collection::vec(0.0..5.0f64, 2..10), data in 1..8usize) {
            prop_assume!(data <= levels.len());
            let vessels: Vec<Vessel> = levels.iter().map(|&level| Vessel { level, width: 1.0 }).collect();
            let shares = fill(&vessels, data as f64);
            let after: Vec<f64> = levels.iter().zip(&shares).map(|(level, share)| level + share).collect();
            for (high, low) in (0..levels.len()).flat_map(|a| (0..levels.len()).map(move |b| (a, b))) {
                // True if moving part of the share from `high` to `low` would even out the levels.
                let better = shares[high] > 1e-6 && shares[low] < 1.0 - 1e-6 && after[high] > after[low] + 1e-6;
                prop_assert!(!better, "{levels:?} {shares:?}");
            }
        }
    }

    #[test]
    fn loads_of_stretches_are_those_of_chains() {
        let stretch = |offsets, helpers: [u32; 2]| Stretch { offsets, helpers: helpers.map(NodeId).to_vec() };
        let stretches = [stretch(0..60, [1, 2]), stretch(60..100, [3, 1])];
        let wanted = [Wanted { block: codes::BlockIndex(0), requestor: NodeId(9) }];
        let loads = Loads::of_stretches(&stretches, &wanted);
        let load = |node: u32| {
            let load = loads.nodes.iter().find(|load| load.node == NodeId(node)).unwrap();
            (load.sent_bytes, load.received_bytes, load.read_bytes, load.stored_bytes)
        };
        assert_eq!(load(1), (100, 40, 100, 0));
        assert_eq!(load(2), (60, 60, 60, 0));
        assert_eq!(load(3), (40, 0, 40, 0));
        assert_eq!(load(9), (0, 100, 0, 100));
        assert_eq!(loads.links.len(), 4);
    }
}
