//! Shares of a cap that several nodes have in common. They are adapted to the use of each node.
//!
//! A node starts with its *even* share, which follows the node's weight. The weight expresses how much the
//! node has to do. How fast the node could do this is not known. So each node reports the unused part of its
//! share ([`Shares::note`]), and at each [`deal`](Shares::deal) most of the unused amount goes to the nodes
//! that left the least unused. Repairs are chains: a node with too small a share slows all nodes of its
//! chains, and each of these nodes leaves a part of its share unused.
//!
//! **Invariant:** the shares add up to the cap, or to the sum of the nodes' own limits if that is less. No
//! share is 0.
//!
//! There is no clock here. The driver calls `deal` about every second.

use std::collections::BTreeMap;

use repair::NodeId;

/// The part of the unused amount that one `deal` moves. Moving all of it would be too much: a node also
/// leaves some unused because other nodes in its chains hold it back.
const GIVEN: f64 = 0.75;
/// Shares stay as they are while less than this part of the cap is unused.
const IDLE_AT_MOST: f64 = 0.02;
/// A node that left no more than this part of its share unused could probably have used more.
const USED_UP: f64 = 0.02;
/// The minimum share of any node, as a part of its even share.
const KEPT: f64 = 0.01;
/// A share that was used up grows at once to at least this part of the even share.
const FIRST: f64 = 0.125;
/// The factor by which a used-up share grows at each further [`deal`](Shares::deal).
const GROWTH: f64 = 1.5;
/// The part of the even share up to which a used-up share grows, however busy other nodes are.
const OWED: f64 = 0.5;

/// A node that takes part in sharing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// The node's initial weight relative to others. Reported use corrects the weight.
    pub weight: f64,
    /// Whether the node has work. A change resets the correction that was learned for the node.
    pub is_busy: bool,
    /// The node's own limit, in the unit of the cap.
    pub most: f64,
}

/// The shares of one cap. See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    cap: f64,
    shares: BTreeMap<NodeId, Share>,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    /// The share by weight alone.
    even: f64,
    /// Correction learned from use. Its mean over busy nodes is 1.
    factor: f64,
    is_busy: bool,
    most: f64,
    now: f64,
    /// The unused part of the share, from 0 to 1, if reported.
    unused: Option<f64>,
}

impl Shares {
    /// Sets the cap and the members.
    ///
    /// The correction learned for a member is kept and applies to its new weight. A member that is new, or
    /// whose `is_busy` changed, starts with an even share. The shares of removed members go to all others.
    pub fn set(&mut self, cap: f64, members: &[Member]) {
        let weights: f64 = members.iter().map(|member| member.weight).sum();
        let before = std::mem::take(&mut self.shares);
        self.cap = cap;
        for &Member { node, weight, is_busy, most } in members {
            let even = cap * weight / weights;
            let known = before.get(&node).filter(|share| share.is_busy == is_busy);
            let (factor, unused) = known.map_or((1.0, None), |share| (share.factor, share.unused));
            self.shares.insert(node, Share { even, factor, is_busy, most, now: even, unused });
        }
        self.fit();
    }

    /// Records the unused part of a node's share since the last [`deal`](Self::deal), from 0 to 1.
    pub fn note(&mut self, node: NodeId, unused: f64) {
        if let Some(share) = self.shares.get_mut(&node) {
            share.unused = Some(unused.clamp(0.0, 1.0));
        }
    }

    /// Adapts the shares to the reported use. A node without a report keeps its share.
    pub fn deal(&mut self) {
        let idle: f64 = self.shares.values().filter_map(Share::idle).sum();
        let known: f64 =
            self.shares.values().filter(|share| share.unused.is_some()).map(|share| share.now).sum();
        if known > 0.0 {
            let before: Vec<f64> = self.shares.values().map(|share| share.now).collect();
            let mean = idle / known;
            let least = (mean / 2.0).max(USED_UP);
            if idle > IDLE_AT_MOST * self.cap {
                self.give(mean, least);
            }
            self.help_beginners();
            self.learn(&before);
            self.fit();
        }
        self.shares.values_mut().for_each(|share| share.unused = None);
    }

    /// Updates the corrections by the ratio of new to old shares. A cut to the node's own limit is not
    /// learned.
    fn learn(&mut self, before: &[f64]) {
        self.shares.values_mut().zip(before).for_each(|(share, before)| share.factor *= share.now / before);
        let busy = || self.shares.values().filter(|share| share.is_busy);
        let even: f64 = busy().map(|share| share.even).sum();
        let now: f64 = busy().map(|share| share.even * share.factor).sum();
        if even > 0.0 && now > 0.0 {
            self.shares.values_mut().for_each(|share| share.factor *= even / now);
        }
    }

    /// Resets all corrections, so that shares are even again.
    pub fn even(&mut self) {
        self.shares.values_mut().for_each(|share| (share.factor, share.unused) = (1.0, None));
        self.fit();
    }

    /// Returns the share of a node. `None` if it is not a member.
    pub fn of(&self, node: NodeId) -> Option<f64> {
        self.shares.get(&node).map(|share| share.now)
    }

    /// Moves share from nodes whose unused part is at least `mean` to nodes whose unused part is at most
    /// `least`.
    fn give(&mut self, mean: f64, least: f64) {
        let takes =
            |share: &Share| share.unused.is_some_and(|unused| unused <= least) && share.now < share.most;
        let weight = |share: &Share| share.now.max(FIRST * share.even);
        let weights: f64 = self.shares.values().filter(|share| takes(share)).map(weight).sum();
        if weights == 0.0 {
            return;
        }
        let mut given = 0.0;
        for share in
            self.shares.values_mut().filter(|share| share.unused.is_some_and(|unused| unused >= mean))
        {
            let gives = (GIVEN * share.idle().unwrap_or(0.0)).min(share.now - KEPT * share.even).max(0.0);
            share.now -= gives;
            given += gives;
        }
        for share in self.shares.values_mut().filter(|share| takes(share)) {
            share.now += given * weight(share) / weights;
        }
    }

    /// Increases small shares that were used up. The added amount is taken from nodes with more than [`OWED`]
    /// of their even share, in proportion to the excess.
    fn help_beginners(&mut self) {
        let mut helped = 0.0;
        let used_up = |share: &Share| share.unused.is_some_and(|unused| unused <= USED_UP);
        for share in self.shares.values_mut().filter(|share| used_up(share)) {
            let more = (share.now * GROWTH).clamp(FIRST * share.even, OWED * share.even).min(share.most);
            helped += (more - share.now).max(0.0);
            share.now = share.now.max(more);
        }
        let beyond: f64 = self.shares.values().map(Share::beyond).sum();
        if helped > 0.0 {
            let part = helped / beyond.max(helped);
            self.shares.values_mut().for_each(|share| share.now -= share.beyond() * part);
        }
    }

    /// Computes the shares from weights and corrections. They respect the nodes' limits and add up to the
    /// cap.
    fn fit(&mut self) {
        self.shares.values_mut().for_each(|share| share.now = share.even * share.factor);
        let mut room = self.cap;
        let mut open: Vec<&mut Share> = self.shares.values_mut().collect();
        while !open.is_empty() {
            let scale = room / open.iter().map(|share| share.now).sum::<f64>();
            let (full, rest): (Vec<_>, Vec<_>) =
                open.into_iter().partition(|share| share.now * scale >= share.most);
            open = rest;
            if full.is_empty() {
                open.iter_mut().for_each(|share| share.now *= scale);
                return;
            }
            for share in full {
                share.now = share.most;
                room -= share.most;
            }
        }
    }
}

impl Share {
    /// Returns the unused amount, if reported.
    fn idle(&self) -> Option<f64> {
        self.unused.map(|unused| unused * self.now)
    }

    fn beyond(&self) -> f64 {
        (self.now - OWED * self.even).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAP: f64 = 1000.0;

    fn members(nodes: usize) -> Vec<Member> {
        (0..nodes).map(|node| member(node, 1.0)).collect()
    }

    fn member(node: usize, weight: f64) -> Member {
        Member { node: NodeId(node as u32), weight, is_busy: true, most: f64::INFINITY }
    }

    fn shares(nodes: usize) -> Shares {
        let mut shares = Shares::default();
        shares.set(CAP, &members(nodes));
        shares
    }

    fn now(shares: &Shares) -> Vec<f64> {
        shares.shares.values().map(|share| share.now).collect()
    }

    /// Simulates one round: each node uses as much of its share as it wants. Returns the total amount used.
    fn round(shares: &mut Shares, wants: &[f64]) -> f64 {
        let mut used = 0.0;
        for (node, (&want, share)) in wants.iter().zip(now(shares)).enumerate() {
            used += want.min(share);
            shares.note(NodeId(node as u32), 1.0 - want.min(share) / share);
        }
        shares.deal();
        used
    }

    /// Simulates one round in which node i is in `chains[i]` chains, and every chain runs at the pace of the
    /// node with the least share per chain. Returns the total amount used.
    fn chained(shares: &mut Shares, chains: &[f64]) -> f64 {
        let pace = now(shares)
            .iter()
            .zip(chains)
            .map(|(share, chains)| share / chains)
            .fold(f64::INFINITY, f64::min);
        round(shares, &chains.iter().map(|chains| chains * pace).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_cap_and_none_is_zero(
            rounds in prop::collection::vec(
                (1.0f64..1e9, prop::collection::vec((0.01f64..100.0, 0.1f64..1e9, prop::option::of(0.0f64..1.0)), 1..12)),
                1..12,
            ),
        ) {
            let mut shares = Shares::default();
            for (cap, nodes) in rounds {
                let member = |(node, &(weight, most, _))| Member { most, ..member(node, weight) };
                let members: Vec<Member> = nodes.iter().enumerate().map(member).collect();
                shares.set(cap, &members);
                for (node, (_, _, unused)) in nodes.iter().enumerate() {
                    unused.iter().for_each(|&unused| shares.note(NodeId(node as u32), unused));
                }
                shares.deal();
                let possible: f64 = members.iter().map(|member| member.most).sum();
                let sum: f64 = now(&shares).iter().sum();
                prop_assert!((sum / possible.min(cap) - 1.0).abs() < 1e-6, "{sum} of {cap}, at most {possible}");
                for (member, share) in members.iter().zip(now(&shares)) {
                    prop_assert!(share > 0.0 && share <= member.most * (1.0 + 1e-9), "{share} of {member:?}");
                }
            }
        }

        #[test]
        fn unused_shares_go_to_nodes_that_can_use_them(
            before in prop::collection::vec(0.0f64..4.0, 24),
            wants in prop::collection::vec(0.0f64..4.0, 2..24),
        ) {
            let nodes = wants.len();
            let even = CAP / nodes as f64;
            let scaled = |wants: &[f64]| wants.iter().map(|want| want * want * even).collect::<Vec<_>>();
            let mut shares = shares(nodes);
            for _ in 0..10 {
                round(&mut shares, &scaled(&before[..nodes]));
            }
            // Now the demands change.
            let wants = scaled(&wants);
            let possible = wants.iter().sum::<f64>().min(CAP);
            for _ in 0..12 {
                round(&mut shares, &wants);
            }
            let used = round(&mut shares, &wants);
            prop_assert!(used >= 0.95 * possible, "{used} of {possible}: {:?} for {wants:?}", now(&shares));
        }

        #[test]
        fn a_node_that_begins_gets_a_part_of_its_even_share_at_once_and_half_of_it_soon(nodes in 2usize..40) {
            let mut shares = shares(nodes);
            let mut wants = vec![CAP; nodes];
            wants[0] = 0.0;
            for _ in 0..20 {
                round(&mut shares, &wants);
            }
            wants[0] = CAP;
            round(&mut shares, &wants);
            let even = CAP / nodes as f64;
            prop_assert!(now(&shares)[0] >= 0.99 * FIRST * even);
            for _ in 0..4 {
                round(&mut shares, &wants);
            }
            prop_assert!(now(&shares)[0] >= 0.99 * OWED * even, "{:?}", now(&shares));
        }

        #[test]
        fn chains_that_hold_each_other_up_use_the_cap(chains in prop::collection::vec(1u32..12, 2..40)) {
            let chains: Vec<f64> = chains.into_iter().map(f64::from).collect();
            let mut shares = shares(chains.len());
            for _ in 0..6 {
                chained(&mut shares, &chains);
            }
            let used: f64 = (0..10).map(|_| chained(&mut shares, &chains)).sum::<f64>() / 10.0;
            // A node with a small share that needs no more still gets more from time to time. With very
            // uneven chains this costs up to 12 %.
            prop_assert!(used >= 0.85 * CAP, "{used}: {:?} for {chains:?}", now(&shares));
        }
    }

    #[test]
    fn new_weights_apply_at_once_and_learned_corrections_stay() {
        let mut shares = shares(3);
        for _ in 0..10 {
            round(&mut shares, &[CAP, CAP, 100.0]);
        }
        let learned = now(&shares);
        assert!(learned[2] < 150.0, "{learned:?}");
        shares.set(CAP, &[member(0, 2.0), member(1, 1.0), member(2, 1.0)]);
        let weighted = now(&shares);
        assert!((weighted[0] / weighted[1] / (learned[0] / learned[1]) - 2.0).abs() < 1e-6, "{weighted:?}");
        assert!(weighted[2] < 150.0, "{weighted:?}");
        let idle = Member { is_busy: false, ..member(2, 1.0) };
        shares.set(CAP, &[member(0, 2.0), member(1, 1.0), idle]);
        shares.set(CAP, &[member(0, 2.0), member(1, 1.0), member(2, 1.0)]);
        assert!(now(&shares)[2] > 200.0, "it begins with what it has to do: {:?}", now(&shares));
    }

    #[test]
    fn a_cut_to_the_nodes_own_limit_is_not_learned() {
        let mut shares = shares(10);
        let members = |weight| -> Vec<Member> {
            let first = Member { most: 100.0, ..member(0, weight) };
            std::iter::once(first).chain((1..10).map(|node| member(node, 1.0))).collect()
        };
        for _ in 0..5 {
            shares.set(CAP, &members(90.0));
            shares.deal();
        }
        assert!((now(&shares)[0] - 100.0).abs() < 1e-6, "its own cap: {:?}", now(&shares));
        shares.set(CAP, &members(1.0));
        assert!(now(&shares).iter().all(|share| (share - 100.0).abs() < 1e-6), "{:?}", now(&shares));
    }

    #[test]
    fn a_removed_node_leaves_its_share_to_the_others() {
        let mut shares = shares(4);
        let wants = [500.0, 500.0, 20.0, 20.0];
        for _ in 0..10 {
            round(&mut shares, &wants);
        }
        let kept: Vec<f64> = now(&shares);
        shares.set(CAP, &members(4)[1..]);
        assert_eq!(shares.of(NodeId(0)), None);
        let left = now(&shares);
        assert!((left.iter().sum::<f64>() - CAP).abs() < 1e-6);
        assert!(left.iter().zip(&kept[1..]).all(|(after, before)| after > before), "{kept:?} {left:?}");
    }

    #[test]
    fn small_differences_change_nothing() {
        let mut shares = shares(3);
        let before = now(&shares);
        [0.0, 0.01, 0.04]
            .iter()
            .enumerate()
            .for_each(|(node, &unused)| shares.note(NodeId(node as u32), unused));
        shares.deal();
        assert_eq!(now(&shares), before);
    }
}
