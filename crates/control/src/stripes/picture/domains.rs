//! Failure domains: blocks on one helper, one host or one rack are lost together.

use std::collections::{BTreeMap, BTreeSet};

use repair::NodeId;

/// The nodes in service, and the host and rack of each node.
#[derive(Default)]
pub(crate) struct Fleet {
    up: BTreeSet<NodeId>,
    hosts: Names,
    racks: Names,
}

/// Nodes by the name of their host or rack. Names that no node uses are forgotten, because helpers choose them.
#[derive(Default)]
struct Names {
    numbers: BTreeMap<String, u64>,
    /// The number of the next new name.
    next: u64,
    of: BTreeMap<NodeId, u64>,
}

/// How the readable blocks of a stripe share failure domains: the number of blocks in each domain with more
/// than one block, in descending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Together {
    nodes: Vec<u16>,
    hosts: Vec<u16>,
    racks: Vec<u16>,
}

/// The number of domains of each kind that a stripe can lose, in the worst case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Survives {
    pub nodes: u32,
    pub hosts: u32,
    pub racks: u32,
    pub blocks: u32,
}

impl Fleet {
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.up.contains(&node)
    }

    pub(crate) fn set_up(&mut self, node: NodeId, up: bool) {
        if up {
            self.up.insert(node)
        } else {
            self.up.remove(&node)
        };
    }

    pub(crate) fn stands(&self, node: NodeId, host: Option<&str>) -> bool {
        self.hosts.is(node, host)
    }

    pub(crate) fn set_host(&mut self, node: NodeId, host: Option<&str>) {
        self.hosts.set(node, host);
    }

    pub(crate) fn is_in_rack(&self, node: NodeId, rack: Option<&str>) -> bool {
        self.racks.is(node, rack)
    }

    pub(crate) fn set_rack(&mut self, node: NodeId, rack: Option<&str>) {
        self.racks.set(node, rack);
    }

    /// Whether nodes are on several hosts. On a single machine, hosts are not counted.
    pub(crate) fn has_hosts(&self) -> bool {
        self.hosts.are_several()
    }

    pub(crate) fn has_racks(&self) -> bool {
        self.racks.are_several()
    }

    /// Returns how the readable blocks of a stripe share domains, given the node of each block.
    pub(crate) fn together(&self, readers: &[NodeId]) -> Together {
        Together {
            nodes: shared(readers.iter().copied()),
            hosts: shared(readers.iter().map(|&node| self.hosts.place(node))),
            racks: shared(readers.iter().map(|&node| self.racks.place(node))),
        }
    }
}

impl Names {
    fn is(&self, node: NodeId, name: Option<&str>) -> bool {
        self.of.get(&node) == name.and_then(|name| self.numbers.get(name))
            && name.is_some() == self.of.contains_key(&node)
    }

    fn set(&mut self, node: NodeId, name: Option<&str>) {
        let before = self.of.remove(&node);
        if let Some(name) = name {
            let number = *self.numbers.entry(name.to_owned()).or_insert(self.next);
            self.next = self.next.max(number + 1);
            self.of.insert(node, number);
        }
        if let Some(before) = before
            && !self.of.values().any(|&number| number == before)
        {
            self.numbers.retain(|_, number| *number != before);
        }
    }

    fn are_several(&self) -> bool {
        self.of.values().collect::<BTreeSet<_>>().len() > 1
    }

    /// Returns the number of a node's host or rack. A node without a known place counts as a place of its
    /// own.
    fn place(&self, node: NodeId) -> Result<u64, NodeId> {
        self.of.get(&node).copied().ok_or(node)
    }
}

fn shared<T: Ord>(places: impl Iterator<Item = T>) -> Vec<u16> {
    let mut counts: BTreeMap<T, u16> = BTreeMap::new();
    places.for_each(|place| *counts.entry(place).or_default() += 1);
    let mut shared: Vec<u16> = counts.into_values().filter(|&blocks| blocks > 1).collect();
    shared.sort_unstable_by(|a, b| b.cmp(a));
    shared
}

impl Together {
    /// Whether some node has more than one block.
    pub(crate) fn shares_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Returns how many domains of each kind may fail if the stripe can lose any `blocks` blocks.
    pub(crate) fn survives(&self, blocks: u32) -> Survives {
        Survives {
            nodes: losses(&self.nodes, blocks),
            hosts: losses(&self.hosts, blocks),
            racks: losses(&self.racks, blocks),
            blocks,
        }
    }
}

/// Returns how many domains may fail if a stripe can lose `blocks` blocks. In the worst case, the domains
/// with the most blocks fail first. `shared` lists the domains with several blocks, in descending order.
fn losses(shared: &[u16], blocks: u32) -> u32 {
    let mut left = blocks;
    for (lost, &size) in (0..).zip(shared) {
        match left.checked_sub(size.into()) {
            Some(rest) => left = rest,
            None => return lost,
        }
    }
    shared.len() as u32 + left
}

#[cfg(test)]
mod tests {
    use repair::host_of;

    use super::*;

    fn together(nodes: &[u32]) -> Together {
        Fleet::default().together(&nodes.iter().copied().map(NodeId).collect::<Vec<_>>())
    }

    #[test]
    fn a_node_with_two_blocks_counts_as_two_losses() {
        let nodes = |nodes: &[u32], blocks| together(nodes).survives(blocks).nodes;
        assert_eq!(nodes(&[1, 2, 3, 4, 5, 6], 2), 2);
        assert_eq!(nodes(&[1, 1, 3, 4, 5, 6], 2), 1);
        assert_eq!(nodes(&[1, 1, 1, 4, 5, 6], 2), 0);
        assert_eq!(nodes(&[1, 1, 3, 3, 5, 6], 3), 1);
        assert_eq!(nodes(&[1, 1, 3, 3, 5, 6], 4), 2);
        assert_eq!(nodes(&[1, 1, 3, 4, 5, 6], 4), 3, "the two on node 1, and two more");
    }

    #[test]
    fn known_hosts_and_racks_are_counted() {
        let mut fleet = Fleet::default();
        assert!(!fleet.has_hosts());
        for (node, host) in [(1, "10.0.0.1:7000"), (2, "10.0.0.1:7001"), (3, "[fd00::3]:7000")] {
            fleet.set_host(NodeId(node), Some(host_of(host)));
        }
        assert!(fleet.has_hosts() && !fleet.has_racks());
        assert!(fleet.stands(NodeId(3), Some("fd00::3")) && !fleet.stands(NodeId(4), Some("fd00::3")));
        let survives = fleet.together(&[1, 2, 3, 4].map(NodeId)).survives(2);
        assert_eq!((survives.nodes, survives.hosts, survives.racks), (2, 1, 2));
        fleet.set_host(NodeId(2), None);
        assert_eq!(fleet.together(&[1, 2, 3, 4].map(NodeId)).survives(2).hosts, 2);
    }

    #[test]
    fn names_that_no_node_uses_are_forgotten() {
        let mut fleet = Fleet::default();
        fleet.set_rack(NodeId(1), Some("a"));
        for round in 0..100 {
            fleet.set_rack(NodeId(2), Some(&format!("r{round}")));
            fleet.set_rack(NodeId(3), Some(&format!("r{round}")));
            let survives = fleet.together(&[1, 2, 3].map(NodeId)).survives(2);
            assert_eq!((fleet.racks.numbers.len(), survives.racks), (2, 1));
        }
        fleet.set_rack(NodeId(1), None);
        assert!(!fleet.racks.numbers.contains_key("a"));
    }
}
