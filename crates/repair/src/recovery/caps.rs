//! Caps on what repairs may move, as budgets and as paces.
//!
//! A cap is kept in two places. The scheduler reserves no more than what a capped link or disk moves in the seconds of
//! a budget, so that repairs do not pile up behind a cap; and every node's half of a job keeps to its pace, which is
//! what makes a cap exact. The cluster's cap is dealt out to the nodes that are up, in proportion to their links: as
//! work is dealt so that all nodes are done at the same time, none of that is left unused for long. A cap that changes
//! changes both: what is under way stays reserved and finishes at the new pace.

use std::collections::BTreeMap;

use super::budget::{Budget, SECONDS_AHEAD};
use super::nodes::TrunkBudget;
use crate::{NodeId, NodeProfile};

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

/// What a node keeps to, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Sending.
    pub up: f64,
    /// Receiving.
    pub down: f64,
    /// Reading and writing.
    pub disk: f64,
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
            let least = |rate: f64| link.into_iter().flatten().fold(rate, f64::min);
            let disk = self.disks.get(&node).map_or(view.rates.disk(), |cap| cap.min(view.rates.disk()));
            (node, Pace { up: least(view.rates.up), down: least(view.rates.down), disk })
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
    /// The budget of a node that keeps to this pace.
    pub fn budget(&self) -> Budget {
        Budget::at_rates(self.up, self.down, self.disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rates;

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
        assert_eq!(free[&NodeId(1)], Pace { up: 100.0, down: 100.0, disk: 500.0 });
        let mut caps = Caps { cluster: Some(40.0), ..Caps::default() };
        assert_eq!(paces(&caps).values().map(|pace| pace.up).collect::<Vec<_>>(), [20.0, 10.0, 10.0]);
        caps.nodes.insert(NodeId(1), 5.0);
        caps.racks.insert("a".into(), 12.0);
        caps.disks.insert(NodeId(3), 7.0);
        let all = paces(&caps);
        assert_eq!(all[&NodeId(1)], Pace { up: 5.0, down: 5.0, disk: 500.0 });
        assert_eq!(all[&NodeId(2)], Pace { up: 4.0, down: 4.0, disk: 500.0 });
        assert_eq!(all[&NodeId(3)], Pace { up: 10.0, down: 10.0, disk: 7.0 });
        assert_eq!(all[&NodeId(3)].budget().disk_bytes, 112);
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
        assert_eq!(paces[&NodeId(1)].up, 40.0);
    }
}
