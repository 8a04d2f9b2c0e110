//! Caps on what repairs may move, as budgets and as paces.
//!
//! A cap is kept in two places. The scheduler reserves no more than what a capped link or disk moves in the seconds of
//! a budget, so that repairs do not pile up behind a cap; and every node's half of a job keeps to its pace, which is
//! what makes a cap exact. A cap that several nodes share is dealt out among those that are up, by what they have under way, and
//! dealt anew as they use it ([`Dealer`]); budgets go by even shares, in proportion to links, so that work is not sent where it
//! was before. A cap that changes changes both: what is under way stays reserved and finishes at the new pace.

use std::collections::BTreeMap;

use repair::{NodeId, NodeProfile, Rates};

use super::budget::{Budget, SECONDS_AHEAD};
use super::nodes::TrunkBudget;
use super::shares::{Member, Shares};

/// Bytes per second that repairs may move; what is not named is not capped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Caps {
    /// Sent by all nodes together: what one receives was counted where it was sent.
    pub cluster: Option<f64>,
    /// Sent by a node, and received by it.
    pub nodes: BTreeMap<NodeId, f64>,
    /// Read from and written to the disks of a node.
    pub disks: BTreeMap<NodeId, f64>,
    /// Sent by the nodes of a rack together, and received by them, also from each other: a node cannot see who is in its
    /// rack.
    pub racks: BTreeMap<String, f64>,
}

/// What repairs keep to at a node, in bytes per second; what is absent is not capped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Sending.
    pub up: Option<f64>,
    /// Receiving.
    pub down: Option<f64>,
    /// Reading and writing.
    pub disk: Option<f64>,
}

/// The part of what repairs may send from a node and receive there that they left unused; `None` where that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unused {
    /// Of sending.
    pub up: Option<f64>,
    /// Of receiving.
    pub down: Option<f64>,
}

/// A node that has nothing under way has a share as if it had this part of the mean, with which something can begin.
const IDLE: f64 = 0.05;

/// The paces of nodes, where what is common goes by what each has under way, and is dealt anew as it is used. The driver says
/// what nodes left unused and what they have, and deals, about every second.
#[derive(Clone, Debug, Default)]
pub struct Dealer {
    caps: Caps,
    nodes: BTreeMap<NodeId, NodeLink>,
    cluster: Shares,
    /// Of sending and of receiving.
    racks: BTreeMap<String, [Shares; 2]>,
}

/// What a node's shares go by.
#[derive(Clone, Debug)]
struct NodeLink {
    rates: Rates,
    rack: Option<String>,
    /// Bytes that it is to send and to receive for repairs under way.
    work: [f64; 2],
}

impl Caps {
    /// The paces of nodes that are up, if each has an even share of what is common, in proportion to its link.
    pub fn paces<'a>(
        &self,
        nodes: impl Iterator<Item = (NodeId, &'a NodeProfile)>,
    ) -> BTreeMap<NodeId, Pace> {
        let mut dealer = Dealer::default();
        dealer.set(self.clone(), nodes);
        dealer.paces()
    }

    /// What a node of this rack may do if others leave it all that is common.
    pub fn utmost(&self, node: NodeId, rack: Option<&str>) -> Pace {
        let (own, rack) =
            (self.nodes.get(&node).copied(), rack.and_then(|rack| self.racks.get(rack)).copied());
        let disk = self.disks.get(&node).copied();
        Pace { up: least([own, rack, self.cluster]), down: least([own, rack]), disk }
    }

    /// What repairs may have under way over the trunk of a rack.
    pub fn trunk(&self, rack: &str) -> TrunkBudget {
        let bytes = self.racks.get(rack).map_or(u64::MAX, |cap| (cap * SECONDS_AHEAD) as u64);
        TrunkBudget { up_bytes: bytes, down_bytes: bytes }
    }
}

impl Dealer {
    /// These caps hold, for these nodes as far as they are up. Who had a share keeps its part.
    pub fn set<'a>(&mut self, caps: Caps, nodes: impl Iterator<Item = (NodeId, &'a NodeProfile)>) {
        let before = std::mem::take(&mut self.nodes);
        let work = |node| before.get(&node).map_or([0.0; 2], |place| place.work);
        let place = |node, view: &NodeProfile| NodeLink {
            rates: view.rates,
            rack: view.rack.clone(),
            work: work(node),
        };
        let up = nodes.filter(|(_, view)| view.alive);
        self.nodes = up.map(|(node, view)| (node, place(node, view))).collect();
        self.racks.retain(|rack, _| caps.racks.contains_key(rack));
        self.caps = caps;
        self.share_out();
    }

    /// What repairs have under way at nodes now. Shares go by that, and by links where nobody has anything.
    pub fn tell_work(&mut self, under_way: impl Iterator<Item = (NodeId, Budget)>) {
        self.nodes.values_mut().for_each(|place| place.work = [0.0; 2]);
        for (node, budget) in under_way {
            if let Some(place) = self.nodes.get_mut(&node) {
                place.work = [budget.up_bytes, budget.down_bytes].map(|bytes| bytes as f64);
            }
        }
        self.share_out();
    }

    fn share_out(&mut self) {
        for (rack, &cap) in &self.caps.racks {
            let most = |node| self.caps.nodes.get(&node).copied().unwrap_or(f64::INFINITY);
            let inside = || self.nodes.iter().filter(|(_, place)| place.rack.as_ref() == Some(rack));
            let shares = self.racks.entry(rack.clone()).or_default();
            for (way, shares) in shares.iter_mut().enumerate() {
                shares.set(cap, &members(inside(), way, most));
            }
        }
        self.set_cluster();
    }

    /// The cluster's cap is shared within what racks and nodes may have.
    fn set_cluster(&mut self) {
        let Some(cap) = self.caps.cluster else { return self.cluster = Shares::default() };
        let most = |node| self.alone(node, &self.nodes[&node], UP).unwrap_or(f64::INFINITY);
        let members = members(self.nodes.iter(), UP, most);
        self.cluster.set(cap, &members);
    }

    /// What a node left unused since the last dealing.
    pub fn note(&mut self, node: NodeId, unused: Unused) {
        let Some(place) = self.nodes.get(&node) else { return };
        let rack = place.rack.as_ref().and_then(|rack| self.racks.get_mut(rack));
        if let Some([up, down]) = rack {
            unused.up.into_iter().for_each(|unused| up.note(node, unused));
            unused.down.into_iter().for_each(|unused| down.note(node, unused));
        }
        unused.up.into_iter().for_each(|unused| self.cluster.note(node, unused));
    }

    /// Deals anew what is common.
    pub fn deal(&mut self) {
        self.racks.values_mut().flatten().for_each(Shares::deal);
        self.set_cluster();
        self.cluster.deal();
    }

    /// Nothing is under way any more: all have even shares again.
    pub fn rest(&mut self) {
        self.tell_work(std::iter::empty());
        self.racks.values_mut().flatten().for_each(Shares::even);
        self.set_cluster();
        self.cluster.even();
    }

    /// What each node that is up keeps to.
    pub fn paces(&self) -> BTreeMap<NodeId, Pace> {
        let pace = |(&node, place): (&NodeId, &NodeLink)| {
            let up = least([self.alone(node, place, UP), self.cluster.of(node)]);
            let (down, disk) = (self.alone(node, place, DOWN), self.caps.disks.get(&node).copied());
            (node, Pace { up, down, disk })
        };
        self.nodes.iter().map(pace).collect()
    }

    /// What a node keeps to by its own cap and that of its rack.
    fn alone(&self, node: NodeId, place: &NodeLink, way: usize) -> Option<f64> {
        let rack = place.rack.as_ref().and_then(|rack| self.racks.get(rack)?[way].of(node));
        least([self.caps.nodes.get(&node).copied(), rack])
    }
}

const UP: usize = 0;
const DOWN: usize = 1;

/// Those who share: by what each has under way, one way.
fn members<'a>(
    places: impl Iterator<Item = (&'a NodeId, &'a NodeLink)>,
    way: usize,
    most: impl Fn(NodeId) -> f64,
) -> Vec<Member> {
    let places: Vec<(NodeId, &NodeLink)> = places.map(|(&node, place)| (node, place)).collect();
    let mean = places.iter().map(|(_, place)| place.work[way]).sum::<f64>() / places.len().max(1) as f64;
    let weight = |place: &NodeLink| match mean > 0.0 {
        true => place.work[way] + IDLE * mean,
        false => [place.rates.up, place.rates.down][way],
    };
    let member = |(node, place): (NodeId, &NodeLink)| Member {
        node,
        weight: weight(place),
        is_busy: mean == 0.0 || place.work[way] > 0.0,
        most: most(node),
    };
    places.into_iter().map(member).collect()
}

fn least<const N: usize>(rates: [Option<f64>; N]) -> Option<f64> {
    rates.into_iter().flatten().reduce(f64::min)
}

impl Pace {
    /// What is left of a node's rates at this pace.
    pub fn slow(&self, rates: Rates) -> Rates {
        let least = |rate: f64, cap: Option<f64>| cap.map_or(rate, |cap| cap.min(rate));
        Rates {
            up: least(rates.up, self.up),
            down: least(rates.down, self.down),
            read: least(rates.read, self.disk),
            write: least(rates.write, self.disk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(up: f64, rack: &str) -> NodeProfile {
        let rates = Rates { up, down: 100.0, read: 500.0, write: 500.0 };
        NodeProfile { rates, rack: Some(rack.into()), ..NodeProfile::helper("h", "h:1") }
    }

    fn nodes() -> [(NodeId, NodeProfile); 3] {
        [(NodeId(1), view(100.0, "a")), (NodeId(2), view(50.0, "a")), (NodeId(3), view(50.0, "b"))]
    }

    fn ups(paces: &BTreeMap<NodeId, Pace>) -> Vec<f64> {
        paces.values().map(|pace| pace.up.unwrap().round()).collect()
    }

    #[test]
    fn the_tightest_cap_holds_and_leaves_the_rest_to_others() {
        let nodes = nodes();
        let paces = |caps: &Caps| caps.paces(nodes.iter().map(|(node, view)| (*node, view)));
        let free = paces(&Caps::default());
        assert_eq!(free[&NodeId(1)], Pace::default());
        let mut caps = Caps { cluster: Some(40.0), ..Caps::default() };
        assert_eq!(ups(&paces(&caps)), [20.0, 10.0, 10.0]);
        assert_eq!(paces(&caps)[&NodeId(1)].down, None, "what is received was counted where it was sent");
        caps.nodes.insert(NodeId(1), 5.0);
        assert_eq!(ups(&paces(&caps)), [5.0, 18.0, 18.0]);
        caps.racks.insert("a".into(), 12.0);
        caps.disks.insert(NodeId(3), 7.0);
        assert_eq!(ups(&paces(&caps)), [5.0, 7.0, 28.0]);
        let downs: Vec<Option<f64>> = paces(&caps).values().map(|pace| pace.down).collect();
        assert_eq!(downs, [Some(5.0), Some(7.0), None]);
        let slowed = paces(&caps)[&NodeId(3)].slow(nodes[2].1.rates);
        assert_eq!((slowed.up.round(), slowed.down, slowed.read, slowed.write), (28.0, 100.0, 7.0, 7.0));
        assert_eq!(caps.trunk("a").up_bytes, 192);
        assert_eq!(caps.trunk("b").up_bytes, u64::MAX);
    }

    #[test]
    fn what_is_common_goes_by_what_nodes_have_under_way() {
        let nodes = nodes();
        let caps = Caps { cluster: Some(40.0), ..Caps::default() };
        let mut dealer = Dealer::default();
        dealer.set(caps.clone(), nodes.iter().map(|(node, view)| (*node, view)));
        assert_eq!(ups(&dealer.paces()), [20.0, 10.0, 10.0], "as their links");
        let to_send = |up_bytes| Budget { up_bytes, ..Budget::default() };
        dealer.tell_work([(NodeId(1), to_send(300)), (NodeId(2), to_send(100))].into_iter());
        assert_eq!(ups(&dealer.paces()), [29.0, 10.0, 1.0]);
        dealer.set(caps, nodes.iter().map(|(node, view)| (*node, view)));
        assert_eq!(ups(&dealer.paces()), [29.0, 10.0, 1.0]);
        dealer.tell_work([(NodeId(3), to_send(7))].into_iter());
        assert_eq!(ups(&dealer.paces()), [1.0, 1.0, 39.0]);
        dealer.rest();
        assert_eq!(ups(&dealer.paces()), [20.0, 10.0, 10.0]);
    }

    #[test]
    fn what_is_down_gets_no_part() {
        let mut nodes = nodes();
        nodes[1].1.alive = false;
        nodes[2].1.alive = false;
        let caps = Caps { cluster: Some(40.0), ..Caps::default() };
        let paces = caps.paces(nodes.iter().map(|(node, view)| (*node, view)));
        assert_eq!(paces.len(), 1);
        assert_eq!(paces[&NodeId(1)].up, Some(40.0));
    }

    #[test]
    fn the_cap_of_a_rack_holds_within_the_clusters_as_both_are_dealt_anew() {
        let nodes = nodes();
        let caps = Caps { cluster: Some(40.0), racks: [("a".into(), 30.0)].into(), ..Caps::default() };
        let mut dealer = Dealer::default();
        dealer.set(caps, nodes.iter().map(|(node, view)| (*node, view)));
        let sum = |dealer: &Dealer, of: &[u32]| {
            let paces = dealer.paces();
            of.iter().map(|&node| paces[&NodeId(node)].up.unwrap()).sum::<f64>()
        };
        // Only the second node sends, and what others send it goes over its downlink.
        for _ in 0..10 {
            let idle = Unused { up: Some(1.0), down: Some(1.0) };
            [1, 3].into_iter().for_each(|node| dealer.note(NodeId(node), idle));
            dealer.note(NodeId(2), Unused { up: Some(0.0), down: Some(0.0) });
            dealer.deal();
            assert!(
                sum(&dealer, &[1, 2]) < 30.01 && sum(&dealer, &[1, 2, 3]) < 40.01,
                "{:?}",
                dealer.paces()
            );
        }
        assert!(sum(&dealer, &[2]) > 28.0, "{:?}", dealer.paces());
        assert!(dealer.paces()[&NodeId(2)].down.unwrap() > 28.0, "{:?}", dealer.paces());
        dealer.rest();
        assert_eq!(ups(&dealer.paces()), [20.0, 10.0, 10.0]);
    }
}
