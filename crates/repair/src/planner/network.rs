//! A topology reduced to the nodes that a plan may use, numbered from 0.
//!
//! Each rate is the share available to this repair: if other plans have reserved `r` bytes of a resource and
//! the repair has `b` bytes to deliver, all these bytes pass in `(b + r) / rate`, so the repair gets `rate ·
//! b / (b + r)`.

use std::collections::BTreeMap;

use crate::{NodeId, Resource, Topology};

/// The nodes, and the resources between them.
#[derive(Debug)]
pub(super) struct Network {
    pub nodes: Vec<NodeId>,
    /// The rate of every resource, by number: three for each node (uplink, downlink, disk), then those
    /// between nodes. A disk's rate is that of reads.
    pub rates: Vec<f64>,
    /// For each node, the bytes that its disk could read while it writes one.
    writes: Vec<f64>,
    /// For each pair of nodes, the numbers of the resources between them. The pairs are ordered by sender,
    /// then by receiver.
    between: Vec<Vec<usize>>,
    /// For every resource, whether only one pair of nodes uses it.
    is_pair: Vec<bool>,
    /// Whether a way through a third node may be better than the direct one.
    has_shortcuts: bool,
}

impl Network {
    /// The network as seen by a repair of `bytes`.
    pub fn new(nodes: Vec<NodeId>, bytes: u64, topology: &Topology) -> Self {
        let mut resources: Vec<Resource> = Vec::new();
        for &node in &nodes {
            resources.extend([Resource::Uplink(node), Resource::Downlink(node), Resource::Disk(node)]);
        }
        let mut between = vec![Vec::new(); nodes.len() * nodes.len()];
        if topology.has_links() {
            let mut numbers: BTreeMap<Resource, usize> = BTreeMap::new();
            let pairs = nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to)));
            for (passed, (from, to)) in between.iter_mut().zip(pairs).filter(|(_, (from, to))| from != to) {
                for resource in topology.between(from, to) {
                    let number = *numbers.entry(resource).or_insert_with_key(|resource| {
                        resources.push(resource.clone());
                        resources.len() - 1
                    });
                    passed.push(number);
                }
            }
        }
        let rate = |resource: &Resource| match resource {
            Resource::Disk(node) => topology.rates(*node).read,
            _ => topology.rate(resource),
        };
        let left = |resource: &Resource| {
            let (rate, reserved) = (rate(resource), topology.reserved(resource));
            if reserved == 0 { rate } else { rate * bytes as f64 / (bytes + reserved) as f64 }
        };
        let is_pair = resources.iter().map(|resource| matches!(resource, Resource::Pair(..))).collect();
        let on_direct_ways = |resource| matches!(resource, &Resource::Pair(..) | &Resource::Between(..));
        let has_shortcuts = resources.iter().any(on_direct_ways);
        let writes = nodes.iter().map(|&node| reads_for_a_write(node, topology)).collect();
        Self { rates: resources.iter().map(left).collect(), writes, nodes, between, is_pair, has_shortcuts }
    }

    pub fn uplink(&self, node: usize) -> usize {
        3 * node
    }

    pub fn downlink(&self, node: usize) -> usize {
        3 * node + 1
    }

    pub fn disk(&self, node: usize) -> usize {
        3 * node + 2
    }

    /// The bytes that a node's disk could read while it stores one byte of a rebuilt block.
    pub fn write(&self, node: usize) -> f64 {
        self.writes[node]
    }

    /// Whether only one pair of nodes uses a resource.
    pub fn is_pair(&self, resource: usize) -> bool {
        self.is_pair[resource]
    }

    /// Whether anything is limited except ports and disks.
    pub fn has_links(&self) -> bool {
        self.rates.len() > 3 * self.nodes.len()
    }

    /// Whether a way through a third node may be better than the direct one. That is so if pairs of nodes,
    /// racks or regions have rates of their own: a detour avoids these, but no port or trunk.
    pub fn has_shortcuts(&self) -> bool {
        self.has_shortcuts
    }

    /// All resources on the way from one node to another.
    pub fn passed(&self, from: usize, to: usize) -> impl Iterator<Item = usize> + '_ {
        let between = &self.between[from * self.nodes.len() + to];
        [self.uplink(from), self.downlink(to)].into_iter().chain(between.iter().copied())
    }

    /// The rate from one node to another that is available to this repair, in bytes per second.
    pub fn rate(&self, from: usize, to: usize) -> f64 {
        self.passed(from, to).map(|resource| self.rates[resource]).fold(f64::INFINITY, f64::min)
    }

    /// The price of a byte from one node to another: the sum of the prices of all resources on the way.
    pub fn price(&self, from: usize, to: usize, prices: &[f64]) -> f64 {
        self.passed(from, to).map(|resource| prices[resource]).sum()
    }

    /// Whether all nodes have the same rates, with uplinks as fast as downlinks, and nothing between them is
    /// limited.
    pub fn is_uniform(&self) -> bool {
        let same =
            |first: usize| self.rates.iter().skip(first).step_by(3).all(|rate| *rate == self.rates[first]);
        !self.has_links() && (0..3).all(same) && self.rates[0] == self.rates[1]
    }
}

/// The bytes that a node's disk could read while it writes one. A client stores nothing.
fn reads_for_a_write(node: NodeId, topology: &Topology) -> f64 {
    let (rates, stores) = (topology.rates(node), !topology.dials_out(node));
    let reads = rates.read / rates.write;
    match stores {
        true if reads.is_finite() => reads,
        true => 1.0,
        false => 0.0,
    }
}
