//! The nodes that could take part in a repair, with the network between them and their blocks. Used if the
//! code leaves a choice of helpers.

use std::collections::BTreeMap;

use codes::{BlockIndex, CodeSpec};

use super::network::Network;
use super::routes::{Route, Routes};
use super::{PlanRequest, Wanted};
use crate::{NodeId, Reach, Stripe, Topology};

/// The maximum number of pure relays, which are nodes that are neither holders nor requestors here; each one
/// makes planning slower.
const MOST_RELAYS: usize = 4;

/// Every node that could take part in a repair of whole lost blocks. Each node contributes at most one block.
#[derive(Debug)]
pub(super) struct Candidates {
    /// Holders first, then requestors without a block, then pure relays.
    pub network: Network,
    /// The block that each holder contributes, by the holder's number in the network.
    pub blocks: Vec<BlockIndex>,
    /// The requestors of the wanted blocks, as numbers in the network.
    pub requestors: Vec<usize>,
    /// The number of blocks needed to decode; any choice of this many out of `blocks` suffices.
    pub needed: usize,
    /// Whether the code is MDS: it rebuilds any lost blocks from any `needed` others.
    pub is_mds: bool,
}

impl Candidates {
    /// Finds the candidates. Returns `None` if blocks cannot be chosen one by one: the code is
    /// sub-packetized, a wanted block still exists, or too few nodes remain when each contributes only one
    /// block.
    ///
    /// `available` are the readable blocks, best first. `sources` are the blocks that the code's own recipe
    /// reads. With Reed-Solomon and XOR, any `k` available blocks may be chosen; with other codes, exactly
    /// `sources` are used.
    pub fn new(
        stripe: &Stripe,
        request: &PlanRequest,
        available: &[BlockIndex],
        sources: &[BlockIndex],
        topology: &Topology,
    ) -> Option<Self> {
        let there = |wanted: &Wanted| available.contains(&wanted.block);
        if stripe.code.sub_blocks() != 1 || request.wanted.iter().any(there) {
            return None;
        }
        let any = matches!(stripe.code.spec(), CodeSpec::ReedSolomon { .. } | CodeSpec::Xor { .. });
        let (eligible, needed) =
            if any { (available, stripe.code.data_blocks()) } else { (sources, sources.len()) };
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut blocks = Vec::new();
        for &block in eligible {
            let holder = stripe.block(block).holder.expect("available blocks are held");
            if !nodes.contains(&holder) {
                nodes.push(holder);
                blocks.push(block);
            }
        }
        if blocks.len() < needed {
            return None;
        }
        let mut requestors = Vec::new();
        for wanted in &request.wanted {
            let at = nodes.iter().position(|&node| node == wanted.requestor);
            requestors.push(at.unwrap_or_else(|| {
                nodes.push(wanted.requestor);
                nodes.len() - 1
            }));
        }
        let network = Network::new(nodes, bytes(request), topology);
        Some(Self { network, blocks, requestors, needed, is_mds: any })
    }

    /// Adds relays, which could sum or forward where the holders' links are slow.
    pub fn with_relays(mut self, request: &PlanRequest, topology: &Topology) -> Self {
        let relays = self.relays(request, topology);
        if !relays.is_empty() {
            let mut nodes = self.network.nodes;
            nodes.extend(relays);
            self.network = Network::new(nodes, bytes(request), topology);
        }
        self
    }

    /// Returns up to [`MOST_RELAYS`] helpers that are neither holders nor requestors here and forward faster
    /// than the slowest holder that is needed, the fastest first.
    fn relays(&self, request: &PlanRequest, topology: &Topology) -> Vec<NodeId> {
        if !topology.has_links() {
            return Vec::new();
        }
        let holders = &self.network.nodes[..self.blocks.len()];
        let through = |node, out: f64| out.min(into(node, holders, topology));
        let mut own: Vec<f64> =
            holders.iter().map(|&holder| through(holder, out(holder, request, topology))).collect();
        own.sort_by(|a, b| b.total_cmp(a));
        let enough = own[self.needed - 1];
        let mut relays: Vec<(f64, NodeId)> = self
            .strangers(request, topology)
            .map(|node| (out(node, request, topology), node))
            .filter(|&(out, _)| out > enough)
            .map(|(out, node)| (through(node, out), node))
            .filter(|&(rate, _)| rate > enough)
            .collect();
        relays.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        relays.into_iter().map(|(_, node)| node).take(MOST_RELAYS).collect()
    }

    /// Live helpers that are not avoided and are neither holders nor requestors here.
    fn strangers<'a>(
        &'a self,
        request: &'a PlanRequest,
        topology: &'a Topology,
    ) -> impl Iterator<Item = NodeId> + 'a {
        let helpers =
            topology.iter().filter(|(_, profile)| profile.alive && profile.reach != Reach::DialsOut);
        let known = |node: &NodeId| self.network.nodes.contains(node) || request.policy.avoid.contains(node);
        helpers.map(|(node, _)| node).filter(move |node| !known(node))
    }

    /// The routes over these nodes.
    pub fn routes(&self) -> Routes<'_> {
        Routes {
            network: &self.network,
            holders: self.blocks.len(),
            requestors: self.requestors.clone(),
            needed: self.needed,
            hubs: Vec::new(),
        }
    }

    /// The route along a chain of holders to the requestor. With several requestors, the last holder sends to
    /// all of them. A sole requestor that holds a block adds it, wherever it is in the list.
    pub fn chain(&self, holders: &[usize]) -> Route {
        let end = self.sole_requestor();
        let stations: Vec<usize> =
            holders.iter().copied().filter(|&holder| Some(holder) != end).chain(end).collect();
        let last = stations[stations.len() - 1];
        let delivery = |&requestor: &usize| {
            (requestor, (requestor != last).then_some((last, requestor)).into_iter().collect())
        };
        let mut readers = holders.to_vec();
        readers.sort_unstable();
        Route {
            readers,
            moves: stations.windows(2).map(|pair| (pair[0], pair[1])).collect(),
            trees: self.requestors.iter().map(delivery).collect(),
            detours: BTreeMap::new(),
        }
    }

    /// The only node that receives wanted blocks, if there is just one.
    pub fn sole_requestor(&self) -> Option<usize> {
        let first = *self.requestors.first()?;
        self.requestors.iter().all(|&requestor| requestor == first).then_some(first)
    }
}

/// Bytes to rebuild of each lost block.
fn bytes(request: &PlanRequest) -> u64 {
    request.window.end - request.window.start
}

/// The lowest of the rates from a node to the requestors.
fn out(from: NodeId, request: &PlanRequest, topology: &Topology) -> f64 {
    let ends = request.wanted.iter().map(|wanted| wanted.requestor).filter(|&to| to != from);
    ends.map(|to| topology.link_rate(from, to)).fold(f64::INFINITY, f64::min)
}

/// The highest of the rates from the holders to a node.
fn into(to: NodeId, holders: &[NodeId], topology: &Topology) -> f64 {
    let others = holders.iter().filter(|&&from| from != to);
    others.map(|&from| topology.link_rate(from, to)).fold(0.0, f64::max)
}
