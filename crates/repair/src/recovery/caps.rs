//! Caps on what repairs may move, as budgets and as paces.
//!
//! A cap is kept in two places. The scheduler reserves no more than what a capped link or disk moves in the seconds of
//! a budget, so that repairs do not pile up behind a cap; and every node's half of a job keeps to its pace, which is
//! what makes a cap exact. The cluster's cap is dealt out to the nodes that are up, in proportion to their links: as
//! work is dealt so that all nodes are done at the same time, none of that is left unused for long. A cap that changes
//! changes both: what is under way stays reserved and finishes at the new pace.

use std::collections::BTreeMap;

use super::budget::SECONDS_AHEAD;
use super::nodes::TrunkBudget;
use crate::{NodeId, NodeProfile, Rates};

/// Bytes per second that repairs may move; what is not named is not capped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Caps {
    /// Sent by all nodes together.
    pub cluster: Option<f64>,
    /// Sent by a node, and received by it.
    pub nodes: BTreeMap<NodeId, f64>,
    /// Read from and written to the disks of a node.
    pub disks: BTreeMap<NodeId, f64>,
    /// Out of a rack, and into it.
    pub racks: BTreeMap<String, f64>,
}

/// What repairs keep to at a node, in bytes per second; what is absent is not capped.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Sending, and receiving.
    pub link: Option<f64>,
    /// Reading and writing.
    pub disk: Option<f64>,
}

impl Caps {
    /// The paces of nodes that are up. A rack's cap is dealt out like the cluster's, as a node cannot see what
    /// others of its rack send; so it also holds what stays inside the rack.
    pub fn paces<'a>(
        &self,
        nodes: impl Iterator<Item = (NodeId, &'a NodeProfile)> + Clone,
    ) -> BTreeMap<NodeId, Pace> {
        let up = nodes.filter(|(_, view)| view.alive);
        let all: f64 = up.clone().map(|(_, view)| view.rates.up).sum();
        let mut racks: BTreeMap<&str, f64> = BTreeMap::new();
        for (rack, view) in up.clone().filter_map(|(_, view)| Some((view.rack.as_deref()?, view))) {
            *racks.entry(rack).or_default() += view.rates.up;
        }
        up.map(|(node, view)| {
            let cluster = self.cluster.map(|cap| cap * view.rates.up / all);
            let rack = view.rack.as_deref();
            let rack = rack.and_then(|rack| Some(self.racks.get(rack)? * view.rates.up / racks[rack]));
            let link = [cluster, rack, self.nodes.get(&node).copied()];
            let link = link.into_iter().flatten().reduce(f64::min);
            (node, Pace { link, disk: self.disks.get(&node).copied() })
        })
        .collect()
    }

    /// What repairs may have under way over the trunk of a rack.
    pub fn trunk(&self, rack: &str) -> TrunkBudget {
        let bytes = self.racks.get(rack).map_or(u64::MAX, |cap| (cap * SECONDS_AHEAD) as u64);
        TrunkBudget { up_bytes: bytes, down_bytes: bytes }
    }
}

impl Pace {
    /// What is left of a node's rates at this pace.
    pub fn slow(&self, rates: Rates) -> Rates {
        let least = |rate: f64, cap: Option<f64>| cap.map_or(rate, |cap| cap.min(rate));
        Rates {
            up: least(rates.up, self.link),
            down: least(rates.down, self.link),
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

    #[test]
    fn the_tightest_cap_holds() {
        let nodes =
            [(NodeId(1), view(100.0, "a")), (NodeId(2), view(50.0, "a")), (NodeId(3), view(50.0, "b"))];
        let paces = |caps: &Caps| caps.paces(nodes.iter().map(|(node, view)| (*node, view)));
        let free = paces(&Caps::default());
        assert_eq!(free[&NodeId(1)], Pace::default());
        let mut caps = Caps { cluster: Some(40.0), ..Caps::default() };
        let links = |caps: &Caps| paces(caps).values().map(|pace| pace.link).collect::<Vec<_>>();
        assert_eq!(links(&caps), [20.0, 10.0, 10.0].map(Some));
        caps.nodes.insert(NodeId(1), 5.0);
        caps.racks.insert("a".into(), 12.0);
        caps.disks.insert(NodeId(3), 7.0);
        assert_eq!(links(&caps), [5.0, 4.0, 10.0].map(Some));
        let slowed = paces(&caps)[&NodeId(3)].slow(nodes[2].1.rates);
        assert_eq!(slowed, Rates { up: 10.0, down: 10.0, read: 7.0, write: 7.0 });
        assert_eq!(caps.trunk("a").up_bytes, 192);
        assert_eq!(caps.trunk("b").up_bytes, u64::MAX);
    }

    #[test]
    fn what_is_down_gets_no_part() {
        let mut down = view(100.0, "a");
        down.alive = false;
        let nodes = [(NodeId(1), view(100.0, "a")), (NodeId(2), down)];
        let caps = Caps { cluster: Some(40.0), ..Caps::default() };
        let paces = caps.paces(nodes.iter().map(|(node, view)| (*node, view)));
        assert_eq!(paces.len(), 1);
        assert_eq!(paces[&NodeId(1)].link, Some(40.0));
    }
}
