//! Rebalancing: spreads stripes better over racks and hosts, and moves blocks from helpers that are fuller than
//! average to emptier ones. One rebalance moves at most one block of each stripe and does not weaken the spread
//! of the stripe over helpers, hosts and racks. A further rebalance continues from there.
//!
//! This module only chooses the moves, which form a repair of [`Kind::Migrate`]. They wait for more urgent
//! repairs, and the scheduler decides the destination of each block.
//!
//! [`Kind::Migrate`]: recovery::Kind::Migrate

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use recovery::Target;
use repair::{BlockId, NodeId, StripeId};
use store_api::StripeRecord;

use crate::effect::Reply;
use crate::facts::{Facts, hollow};
use crate::jobs::placement::{Counts, Domains};
use crate::out::{Out, answer};
use crate::repairs::orders::Order;
use views::{BlockMove, NodeFill, RebalanceRequest, RebalanceView};

/// The maximum number of blocks that one rebalance moves.
const MOVES: usize = 1000;
/// Helpers count as even if their fill differs by less than this. No smaller block is worth a move.
const LEAST_BLOCK_BYTES: f64 = 1024.0;
/// The maximum number of a helper's blocks that are considered for one move.
const LOOKED_AT: usize = 10_000;

/// A connected helper and its fill.
#[derive(Clone, Debug)]
struct Fill {
    node: NodeId,
    domains: Domains,
    bytes: f64,
    /// The bytes that the helper would hold if all helpers were equally full.
    share: f64,
}

/// A block worth moving.
#[derive(Debug, PartialEq, Eq)]
struct Move {
    block: BlockId,
    from: NodeId,
    to: NodeId,
    bytes: u64,
}

/// The stripes to choose from.
trait Stripes {
    fn on(&self, node: NodeId) -> Vec<(StripeId, BlockIndex)>;
    /// Returns a stripe, if all of its blocks are readable.
    fn whole(&self, stripe: &StripeId) -> Option<StripeRecord>;
    fn domains(&self, node: NodeId) -> Domains;
}

impl Stripes for Facts<'_> {
    fn on(&self, node: NodeId) -> Vec<(StripeId, BlockIndex)> {
        self.stripes.picture.blocks_of(node)
    }

    fn whole(&self, stripe: &StripeId) -> Option<StripeRecord> {
        let record = self.stripes.picture.stripe(stripe).ok()?;
        let whole =
            self.lost_blocks(&record).is_empty() && self.stripes.picture.is_pending(stripe) == Some(false);
        whole.then_some(record)
    }

    fn domains(&self, node: NodeId) -> Domains {
        Domains::of(&self.nodes.topology, node)
    }
}

impl<'a> Facts<'a> {
    fn rebalance_view(self, fills: &[Fill], moves: &[Move]) -> RebalanceView {
        let away = |node| moves.iter().filter(|moved| moved.from == node).count() as u64;
        let coming = |node| moves.iter().filter(|moved| moved.to == node).count() as u64;
        let mut nodes: Vec<NodeFill> = fills
            .iter()
            .map(|&Fill { node, .. }| {
                let blocks = self.stripes.picture.block_count(node) as u64;
                let blocks_after = blocks + coming(node) - away(node).min(blocks);
                NodeFill { node: self.nodes.name(node), blocks, blocks_after }
            })
            .collect();
        nodes.sort_by(|a, b| views::natural(&a.node, &b.node));
        let moves: Vec<BlockMove> = moves
            .iter()
            .map(|Move { block, from, to, bytes }| BlockMove {
                block: block.to_string(),
                from: self.nodes.name(*from),
                to: self.nodes.name(*to),
                bytes: *bytes,
            })
            .collect();
        RebalanceView { repair: None, bytes: moves.iter().map(|moved| moved.bytes).sum(), moves, nodes }
    }

    /// Moves blocks from full helpers to emptier ones, or only reports the moves of a dry run.
    pub(crate) fn rebalance(self, request: RebalanceRequest, reply: Reply<RebalanceView>, out: &mut Out) {
        if let Err(error) = self.nodes.check_settled(self.base) {
            return answer(reply, Err(error), out);
        }
        let fills = self.fills();
        let moves = worth_moving(fills.clone(), &self);
        let view = self.rebalance_view(&fills, &moves);
        if request.dry_run || moves.is_empty() {
            return out.answer(reply, Ok(view));
        }
        let onto: BTreeSet<NodeId> = moves.iter().map(|moved| moved.to).collect();
        let blocks = moves.into_iter().map(|moved| moved.block).collect();
        let order = self.scheme(None).map(|scheme| Order {
            requestors: onto.into_iter().collect(),
            ..Order::new(Target::Rebalance(blocks), scheme, self.base.unix_ms)
        });
        match order {
            Ok(order) => self.queue_rebalance(order, view, reply, out),
            Err(error) => answer(reply, Err(error), out),
        }
    }
}

impl<'a> Facts<'a> {
    fn fills(self) -> Vec<Fill> {
        let up = self.nodes.live_helpers().filter(|node| {
            self.nodes.maintenance.left(self.base, *node).is_none()
                && !self.nodes.registry.is_leaving(*node)
                && !hollow::has(self, *node)
        });
        let mut fills: Vec<(Fill, f64)> = up
            .filter_map(|node| {
                let profile = self.nodes.topology.get(node)?;
                let bytes = self.stripes.picture.bytes_on(node) as f64;
                let fill = Fill { node, domains: self.domains(node), bytes, share: 0.0 };
                Some((fill, bytes + profile.free_bytes as f64))
            })
            .collect();
        let (used, room) = fills
            .iter()
            .fold((0.0, 0.0), |(used, room), (fill, capacity)| (used + fill.bytes, room + capacity));
        fills.iter_mut().for_each(|(fill, capacity)| fill.share = used / f64::max(room, 1.0) * *capacity);
        fills.into_iter().map(|(fill, _)| fill).collect()
    }
}

/// The moves of a rebalance, and the fills of the helpers after them.
struct Moves {
    fills: Vec<Fill>,
    chosen: Vec<Move>,
    stripes: BTreeSet<StripeId>,
    givers: BTreeSet<NodeId>,
    takers: BTreeSet<NodeId>,
}

/// Chooses moves that spread stripes better over racks and hosts, and then moves that bring helpers closer to
/// their shares.
fn worth_moving(fills: Vec<Fill>, stripes: &impl Stripes) -> Vec<Move> {
    let mut moves = Moves {
        fills,
        chosen: Vec::new(),
        stripes: BTreeSet::new(),
        givers: BTreeSet::new(),
        takers: BTreeSet::new(),
    };
    moves.spread(stripes);
    moves.even_out(stripes);
    moves.chosen
}

impl Fill {
    fn excess(&self) -> f64 {
        self.bytes - self.share
    }
}

impl Moves {
    /// Adds moves to helpers that share racks, or hosts within racks, with fewer blocks of the same stripe.
    fn spread(&mut self, stripes: &impl Stripes) {
        if self.fills.iter().all(|fill| fill.domains == self.fills[0].domains) {
            return;
        }
        for giver in self.fills.clone() {
            for (stripe, index) in stripes.on(giver.node).into_iter().take(LOOKED_AT) {
                if self.chosen.len() == MOVES || self.takers.contains(&giver.node) {
                    break;
                }
                let record = if self.stripes.contains(&stripe) { None } else { stripes.whole(&stripe) };
                let Some(record) = record else { continue };
                if let Some(to) = self.better_place(&record, &giver, stripes) {
                    self.choose(&record, index, giver.node, to);
                }
            }
        }
    }

    /// Returns the helper that would share its rack and host with the fewest blocks of the stripe, if that is an
    /// improvement; of several, the emptiest.
    fn better_place(&self, record: &StripeRecord, giver: &Fill, stripes: &impl Stripes) -> Option<NodeId> {
        let others = others(record, giver.node, stripes);
        let here = others.beside(&giver.domains);
        if here == (0, 0) {
            return None;
        }
        let holds = |node: NodeId| record.blocks.iter().any(|block| block.node == Some(node));
        let takers = self.fills.iter().filter(|to| !self.givers.contains(&to.node) && !holds(to.node));
        let ranked = takers.map(|to| (others.beside(&to.domains), to));
        let better = ranked.filter(|(beside, _)| *beside < here);
        let best =
            better.min_by(|(a, one), (b, other)| a.cmp(b).then(one.excess().total_cmp(&other.excess())));
        best.map(|(_, to)| to.node)
    }

    /// Adds moves from the fullest helpers to the emptiest.
    fn even_out(&mut self, stripes: &impl Stripes) {
        let mut held: BTreeMap<NodeId, Vec<(StripeId, BlockIndex)>> = BTreeMap::new();
        let mut stuck = self.takers.clone();
        while self.chosen.len() < MOVES {
            self.fills.sort_by(|a, b| b.excess().total_cmp(&a.excess()).then(a.node.cmp(&b.node)));
            let mut full = self.fills.iter().filter(|fill| fill.excess() > 0.0);
            let Some(giver) = full.find(|fill| !stuck.contains(&fill.node)) else { break };
            let from = giver.node;
            // If the difference is smaller than any block, a move would only exchange the roles of the two
            // helpers.
            let widest = giver.excess() - self.fills.last().expect("the list has the giver").excess();
            if widest <= LEAST_BLOCK_BYTES {
                break;
            }
            let blocks = held.entry(from).or_insert_with(|| stripes.on(from));
            let found = blocks.iter().enumerate().take(LOOKED_AT).find_map(|(at, (stripe, index))| {
                let record = if self.stripes.contains(stripe) { None } else { stripes.whole(stripe) }?;
                let bytes = record.block_bytes as f64;
                let takes = |to: &&Fill| {
                    // With a larger block, the two helpers would only change places.
                    giver.excess() - to.excess() > bytes
                        && !self.givers.contains(&to.node)
                        && may_move(&record, giver, to, stripes)
                };
                let empty = self.fills.iter().rev().take_while(|to| to.excess() < 0.0);
                Some((at, *index, empty.into_iter().find(takes)?.node, record))
            });
            let Some((at, index, to, record)) = found else {
                stuck.insert(from);
                continue;
            };
            blocks.swap_remove(at);
            self.choose(&record, index, from, to);
        }
    }

    fn choose(&mut self, record: &StripeRecord, index: BlockIndex, from: NodeId, to: NodeId) {
        let bytes = record.block_bytes;
        for fill in &mut self.fills {
            fill.bytes += if fill.node == to { bytes as f64 } else { 0.0 };
            fill.bytes -= if fill.node == from { bytes as f64 } else { 0.0 };
        }
        self.stripes.insert(record.id.clone());
        // The order names only the takers, so no helper may both give and take.
        self.givers.insert(from);
        self.takers.insert(to);
        self.chosen.push(Move { block: record.blocks[usize::from(index.0)].id.clone(), from, to, bytes });
    }
}

/// Counts a stripe's blocks on other helpers than this one, by rack and host.
fn others(record: &StripeRecord, than: NodeId, stripes: &impl Stripes) -> Counts {
    let mut others = Counts::default();
    let holders = record.blocks.iter().filter_map(|block| block.node);
    holders.filter(|&holder| holder != than).for_each(|holder| others.add(stripes.domains(holder)));
    others
}

/// Whether a move keeps the stripe as well spread over racks, and within racks over hosts.
fn may_move(record: &StripeRecord, from: &Fill, to: &Fill, stripes: &impl Stripes) -> bool {
    let others = others(record, from.node, stripes);
    record.blocks.iter().all(|block| block.node != Some(to.node))
        && others.beside(&to.domains) <= others.beside(&from.domains)
}

#[cfg(test)]
mod tests {

    use store_api::{BlockRecord, BlockState};

    use super::*;

    const BYTES: u64 = 64 << 10;

    /// Each stripe as a list of its helpers, and the failure domains of each helper.
    struct Played {
        stripes: Vec<Vec<u32>>,
        domains: Vec<Domains>,
    }

    fn in_rack(rack: &str) -> Domains {
        Domains { rack: Some(rack.to_owned()), host: None }
    }

    fn on_host(host: &str) -> Domains {
        Domains { rack: None, host: Some(host.to_owned()) }
    }

    impl Played {
        fn fills(&self) -> Vec<Fill> {
            let count = |node: u32| self.stripes.iter().flatten().filter(|&&holder| holder == node).count();
            let all: usize = self.stripes.iter().map(Vec::len).sum();
            let share = all as f64 / self.domains.len() as f64 * BYTES as f64;
            let nodes = (0..).zip(&self.domains);
            nodes
                .map(|(node, domains)| Fill {
                    node: NodeId(node),
                    domains: domains.clone(),
                    bytes: count(node) as f64 * BYTES as f64,
                    share,
                })
                .collect()
        }

        fn after(&self, moves: &[Move]) -> Vec<Vec<u32>> {
            let mut stripes = self.stripes.clone();
            for Move { block, from, to, .. } in moves {
                let (stripe, index) = block.0.split_once('.').unwrap();
                let home = &mut stripes[stripe.parse::<usize>().unwrap()][index.parse::<usize>().unwrap()];
                assert_eq!(*home, from.0);
                *home = to.0;
            }
            stripes
        }
    }

    impl Stripes for Played {
        fn on(&self, node: NodeId) -> Vec<(StripeId, BlockIndex)> {
            let mut on = Vec::new();
            for (stripe, holders) in self.stripes.iter().enumerate() {
                for (index, _) in holders.iter().enumerate().filter(|&(_, &holder)| holder == node.0) {
                    on.push((StripeId(stripe.to_string()), BlockIndex(index as u16)));
                }
            }
            on
        }

        fn whole(&self, stripe: &StripeId) -> Option<StripeRecord> {
            let holders = &self.stripes[stripe.0.parse::<usize>().unwrap()];
            let block = |(index, &node): (usize, &u32)| BlockRecord {
                id: BlockId(format!("{stripe}.{index}")),
                bytes: BYTES,
                node: Some(NodeId(node)),
                replicas: Vec::new(),
                state: BlockState::Healthy,
                digest: None,
            };
            Some(StripeRecord {
                id: stripe.clone(),
                code: "rs-3-2".parse().unwrap(),
                block_bytes: BYTES,
                chunk_bytes: None,
                blocks: holders.iter().enumerate().map(block).collect(),
                file: None,
            })
        }

        fn domains(&self, node: NodeId) -> Domains {
            self.domains[node.0 as usize].clone()
        }
    }

    fn counts(stripes: &[Vec<u32>], nodes: u32) -> Vec<usize> {
        (0..nodes).map(|node| stripes.iter().flatten().filter(|&&holder| holder == node).count()).collect()
    }

    #[test]
    fn new_helpers_get_their_share_and_no_second_block_of_a_stripe() {
        let played = Played { stripes: vec![vec![0, 1, 2]; 20], domains: vec![Domains::default(); 4] };
        let moves = worth_moving(played.fills(), &played);
        let after = played.after(&moves);
        assert_eq!(counts(&after, 4), [15; 4]);
        for stripe in &after {
            assert_eq!(stripe.iter().collect::<BTreeSet<_>>().len(), 3, "{stripe:?}");
        }
        let again = Played { stripes: after, domains: vec![Domains::default(); 4] };
        assert_eq!(worth_moving(again.fills(), &again), [], "what is even stays");
    }

    #[test]
    fn a_stripe_is_never_less_spread_over_racks_and_hosts() {
        for domain in [in_rack, on_host] {
            let domains = ["a", "b", "c", "a"].map(domain).to_vec();
            let played = Played { stripes: vec![vec![0, 1, 2]; 12], domains: domains.clone() };
            let moves = worth_moving(played.fills(), &played);
            assert!(!moves.is_empty());
            for stripe in played.after(&moves) {
                let used: BTreeSet<_> =
                    stripe.iter().map(|&node| format!("{:?}", domains[node as usize])).collect();
                assert_eq!(used.len(), 3, "{stripe:?}");
            }
            assert!(moves.iter().all(|moved| moved.from == NodeId(0)), "only within domain a: {moves:?}");
        }
    }

    /// As after a new machine was added: all blocks are on the two machines that existed before.
    #[test]
    fn stripes_are_spread_over_hosts_that_came_later() {
        let domains: Vec<Domains> = ["a", "a", "a", "b", "b", "b", "c", "c", "c"].map(on_host).to_vec();
        let stripes = vec![vec![0, 1, 3, 4], vec![1, 2, 4, 5], vec![0, 2, 3, 5]];
        let mut played = Played { stripes, domains: domains.clone() };
        for _ in 0..10 {
            let moves = worth_moving(played.fills(), &played);
            let (from, to): (BTreeSet<_>, BTreeSet<_>) = moves.iter().map(|it| (it.from, it.to)).unzip();
            assert!(from.is_disjoint(&to), "{moves:?}");
            played.stripes = played.after(&moves);
        }
        for stripe in &played.stripes {
            let on = |host: &str| {
                let is_there = |node: &&u32| domains[**node as usize].host.as_deref() == Some(host);
                stripe.iter().filter(is_there).count()
            };
            let mut counts = ["a", "b", "c"].map(on);
            counts.sort_unstable();
            assert_eq!(counts, [1, 1, 2], "{stripe:?}");
        }
        assert_eq!(worth_moving(played.fills(), &played), [], "what is spread and even stays");
    }

    #[test]
    fn an_excess_of_one_block_is_not_moved() {
        let played =
            Played { stripes: vec![vec![0, 1, 2], vec![0, 1, 3]], domains: vec![Domains::default(); 4] };
        assert_eq!(worth_moving(played.fills(), &played), []);
    }
}
