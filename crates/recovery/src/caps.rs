//! Rate caps for repairs, enforced as budgets (limits on bytes in flight) and as paces (rate limits at
//! nodes).
//!
//! A cap acts in two places. The scheduler reserves no more than a capped link or disk moves in
//! [`SECONDS_AHEAD`] seconds, which keeps repairs from piling up behind the cap. And every node paces its
//! part of a job, which makes the cap exact.
//!
//! A cap shared by several nodes is divided among those that are up, in proportion to their work in flight.
//! The shares are then adjusted to how much of them the nodes use ([`Dealer`]). For budgets, the cap is
//! divided in proportion to link rates instead: otherwise new work would go to the nodes that had work
//! before.
//!
//! Changing a cap changes budgets and paces. Work in flight keeps its reservation and finishes at the new
//! pace.

use std::collections::BTreeMap;

use repair::{NodeId, NodeProfile, Rates};

use super::budget::{Budget, SECONDS_AHEAD};
use super::nodes::TrunkBudget;
use super::shares::{Member, Shares};

/// Caps for repair traffic in bytes per second. An absent entry means no cap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Caps {
    /// Limit on what all nodes together send. Received bytes are not counted a second time.
    pub cluster: Option<f64>,
    /// Per node: limit on sending, and the same limit on receiving.
    pub nodes: BTreeMap<NodeId, f64>,
    /// Per node: limit on reading from and writing to its disks.
    pub disks: BTreeMap<NodeId, f64>,
    /// Per rack: limit on what its nodes together send, and the same limit on what they receive. Traffic
    /// within the rack counts too, because a node cannot tell which nodes are in its rack.
    pub racks: BTreeMap<String, f64>,
}

/// Rate limits of repair traffic at a node, in bytes per second. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Sending.
    pub up: Option<f64>,
    /// Receiving.
    pub down: Option<f64>,
    /// Reading and writing.
    pub disk: Option<f64>,
}

/// The unused part of a node's pace for repairs, from 0 to 1. `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unused {
    /// Unused part of sending.
    pub up: Option<f64>,
    /// Unused part of receiving.
    pub down: Option<f64>,
}

/// Weight that every node gets in addition to its work in flight, as a part of the mean work. It leaves an
/// idle node enough pace to begin.
const IDLE: f64 = 0.05;

/// Computes the paces of nodes from caps, and divides shared caps by work in flight and by use.
///
/// About once a second, the driver reports the nodes' work and the unused part of their paces, and calls
/// [`deal`](Self::deal).
#[derive(Clone, Debug, Default)]
pub struct Dealer {
    caps: Caps,
    nodes: BTreeMap<NodeId, NodeLink>,
    cluster: Shares,
    /// For each rack with a cap: the shares of sending and the shares of receiving.
    racks: BTreeMap<String, [Shares; 2]>,
}

/// The facts that determine a node's shares.
#[derive(Clone, Debug)]
struct NodeLink {
    rates: Rates,
    rack: Option<String>,
    /// Bytes that the node has to send and to receive for repairs in flight.
    work: [f64; 2],
}

impl Caps {
    /// Returns the paces of all nodes that are up, with shared caps divided in proportion to link rates.
    pub fn paces<'a>(
        &self,
        nodes: impl Iterator<Item = (NodeId, &'a NodeProfile)>,
    ) -> BTreeMap<NodeId, Pace> {
        let mut dealer = Dealer::default();
        dealer.set(self.clone(), nodes);
        dealer.paces()
    }

    /// Returns the pace of a node of this rack if no other node uses the shared caps.
    pub fn utmost(&self, node: NodeId, rack: Option<&str>) -> Pace {
        let (own, rack) =
            (self.nodes.get(&node).copied(), rack.and_then(|rack| self.racks.get(rack)).copied());
        let disk = self.disks.get(&node).copied();
        Pace { up: least([own, rack, self.cluster]), down: least([own, rack]), disk }
    }

    /// Returns the budget of repairs for the trunk of a rack.
    pub fn trunk(&self, rack: &str) -> TrunkBudget {
        let bytes = self.racks.get(rack).map_or(u64::MAX, |cap| (cap * SECONDS_AHEAD) as u64);
        TrunkBudget { up_bytes: bytes, down_bytes: bytes }
    }
}

impl Dealer {
    /// Sets the caps and the nodes. A node that had a share keeps the share. Nodes that are down get no
    /// share.
    pub fn set<'a>(&mut self, caps: Caps, nodes: impl Iterator<Item = (NodeId, &'a NodeProfile)>) {
        let before = std::mem::take(&mut self.nodes);
        let work = |node| before.get(&node).map_or([0.0; 2], |link| link.work);
        let link = |node, view: &NodeProfile| NodeLink {
            rates: view.rates,
            rack: view.rack.clone(),
            work: work(node),
        };
        let up = nodes.filter(|(_, view)| view.alive);
        self.nodes = up.map(|(node, view)| (node, link(node, view))).collect();
        self.racks.retain(|rack, _| caps.racks.contains_key(rack));
        self.caps = caps;
        self.share_out();
    }

    /// Sets the work in flight at nodes and divides the shared caps in proportion to it. If no node has work,
    /// the caps are divided in proportion to the nodes' link rates.
    pub fn tell_work(&mut self, under_way: impl Iterator<Item = (NodeId, Budget)>) {
        self.nodes.values_mut().for_each(|link| link.work = [0.0; 2]);
        for (node, budget) in under_way {
            if let Some(link) = self.nodes.get_mut(&node) {
                link.work = [budget.up_bytes, budget.down_bytes].map(|bytes| bytes as f64);
            }
        }
        self.share_out();
    }

    fn share_out(&mut self) {
        for (rack, &cap) in &self.caps.racks {
            let most = |node| self.caps.nodes.get(&node).copied().unwrap_or(f64::INFINITY);
            let inside = || self.nodes.iter().filter(|(_, link)| link.rack.as_ref() == Some(rack));
            let shares = self.racks.entry(rack.clone()).or_default();
            for (way, shares) in shares.iter_mut().enumerate() {
                shares.set(cap, &members(inside(), way, most));
            }
        }
        self.set_cluster();
    }

    /// Divides the cluster's cap within the limits of racks and nodes.
    fn set_cluster(&mut self) {
        let Some(cap) = self.caps.cluster else { return self.cluster = Shares::default() };
        let most = |node| self.alone(node, &self.nodes[&node], UP).unwrap_or(f64::INFINITY);
        let members = members(self.nodes.iter(), UP, most);
        self.cluster.set(cap, &members);
    }

    /// Records the part of its pace that a node left unused since the last [`deal`](Self::deal).
    pub fn note(&mut self, node: NodeId, unused: Unused) {
        let Some(link) = self.nodes.get(&node) else { return };
        let rack = link.rack.as_ref().and_then(|rack| self.racks.get_mut(rack));
        if let Some([up, down]) = rack {
            unused.up.into_iter().for_each(|unused| up.note(node, unused));
            unused.down.into_iter().for_each(|unused| down.note(node, unused));
        }
        unused.up.into_iter().for_each(|unused| self.cluster.note(node, unused));
    }

    /// Redivides the shared caps according to the recorded use.
    pub fn deal(&mut self) {
        self.racks.values_mut().flatten().for_each(Shares::deal);
        self.set_cluster();
        self.cluster.deal();
    }

    /// Divides shared caps in proportion to link rates, as before any work began. Call it when no repair has
    /// work in flight any more.
    pub fn rest(&mut self) {
        self.tell_work(std::iter::empty());
        self.racks.values_mut().flatten().for_each(Shares::even);
        self.set_cluster();
        self.cluster.even();
    }

    /// Returns the pace of each node that is up.
    pub fn paces(&self) -> BTreeMap<NodeId, Pace> {
        let pace = |(&node, link): (&NodeId, &NodeLink)| {
            let up = least([self.alone(node, link, UP), self.cluster.of(node)]);
            let (down, disk) = (self.alone(node, link, DOWN), self.caps.disks.get(&node).copied());
            (node, Pace { up, down, disk })
        };
        self.nodes.iter().map(pace).collect()
    }

    /// Returns a node's pace under its own cap and its rack's, without the cluster's cap.
    fn alone(&self, node: NodeId, link: &NodeLink, way: usize) -> Option<f64> {
        let rack = link.rack.as_ref().and_then(|rack| self.racks.get(rack)?[way].of(node));
        least([self.caps.nodes.get(&node).copied(), rack])
    }
}

const UP: usize = 0;
const DOWN: usize = 1;

/// Returns the members that share a cap, weighted by their work in flight in one direction. If none has work,
/// the weights are their link rates.
fn members<'a>(
    links: impl Iterator<Item = (&'a NodeId, &'a NodeLink)>,
    way: usize,
    most: impl Fn(NodeId) -> f64,
) -> Vec<Member> {
    let links: Vec<(NodeId, &NodeLink)> = links.map(|(&node, link)| (node, link)).collect();
    let mean = links.iter().map(|(_, link)| link.work[way]).sum::<f64>() / links.len().max(1) as f64;
    let weight = |link: &NodeLink| match mean > 0.0 {
        true => link.work[way] + IDLE * mean,
        false => [link.rates.up, link.rates.down][way],
    };
    let member = |(node, link): (NodeId, &NodeLink)| Member {
        node,
        weight: weight(link),
        is_busy: mean == 0.0 || link.work[way] > 0.0,
        most: most(node),
    };
    links.into_iter().map(member).collect()
}

fn least<const N: usize>(rates: [Option<f64>; N]) -> Option<f64> {
    rates.into_iter().flatten().reduce(f64::min)
}

impl Pace {
    /// Returns the node's rates, limited to this pace.
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
    fn a_shared_cap_is_divided_by_work_in_flight() {
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
    fn a_node_that_is_down_gets_no_share() {
        let mut nodes = nodes();
        nodes[1].1.alive = false;
        nodes[2].1.alive = false;
        let caps = Caps { cluster: Some(40.0), ..Caps::default() };
        let paces = caps.paces(nodes.iter().map(|(node, view)| (*node, view)));
        assert_eq!(paces.len(), 1);
        assert_eq!(paces[&NodeId(1)].up, Some(40.0));
    }

    #[test]
    fn rack_and_cluster_caps_hold_while_both_are_divided_again() {
        let nodes = nodes();
        let caps = Caps { cluster: Some(40.0), racks: [("a".into(), 30.0)].into(), ..Caps::default() };
        let mut dealer = Dealer::default();
        dealer.set(caps, nodes.iter().map(|(node, view)| (*node, view)));
        let sum = |dealer: &Dealer, of: &[u32]| {
            let paces = dealer.paces();
            of.iter().map(|&node| paces[&NodeId(node)].up.unwrap()).sum::<f64>()
        };
        // Only the second node sends and receives.
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
