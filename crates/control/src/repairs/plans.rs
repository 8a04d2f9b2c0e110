//! Likely requestors and assumed rates, for plans that are explained without being carried out.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::{NodeId, Topology, Wanted};
use store_api::{BlockRecord, StripeRecord};

use crate::error::RequestError;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::jobs::placement::{Domains, spread};
use crate::out::Out;
use crate::stripes::indices::indexed;
use views::PlanRates;

/// The number of an imaginary client. Real clients are numbered from 2^31.
pub(crate) const SOME_CLIENT: NodeId = NodeId(u32::MAX);

impl<'a> Facts<'a> {
    /// Returns the assumed rates of the nodes of a plan.
    pub(crate) fn rates(self, nodes: impl IntoIterator<Item = NodeId>, topology: &Topology) -> PlanRates {
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        let links =
            || nodes.iter().map(|&node| topology.rates(node)).flat_map(|rates| [rates.up, rates.down]);
        let disks = || nodes.iter().map(|&node| topology.rates(node).disk());
        let known = |node: &&NodeId| self.nodes.bandwidth.knows_links(**node);
        PlanRates {
            slowest_link: links().fold(f64::MAX, f64::min) as u64,
            fastest_link: links().fold(0.0, f64::max) as u64,
            slowest_disk: disks().fold(f64::MAX, f64::min) as u64,
            fastest_disk: disks().fold(0.0, f64::max) as u64,
            assumed_links: (nodes.len() - nodes.iter().filter(known).count()) as u64,
        }
    }
}

impl Jobs {
    pub(crate) fn plan_requestors(
        &self,
        facts: Facts<'_>,
        record: &StripeRecord,
        blocks: &BTreeSet<BlockIndex>,
        requestor: Option<&str>,
        out: &mut Out,
    ) -> Result<Vec<Wanted>, RequestError> {
        let nodes = match requestor {
            Some("client") => vec![SOME_CLIENT; blocks.len()],
            Some(name) => vec![facts.nodes.node_named(facts.base, name)?; blocks.len()],
            None => self.likely_requestors(facts, record, blocks, out),
        };
        Ok(blocks.iter().zip(nodes).map(|(&block, requestor)| Wanted { block, requestor }).collect())
    }

    /// Returns helpers without a block of the stripe, or the imaginary client if there are too few.
    fn likely_requestors(
        &self,
        facts: Facts<'_>,
        record: &StripeRecord,
        lost: &BTreeSet<BlockIndex>,
        out: &mut Out,
    ) -> Vec<NodeId> {
        let holders: BTreeSet<NodeId> =
            record.blocks.iter().flat_map(BlockRecord::holders).map(|holder| holder.node).collect();
        let surviving = indexed(record).filter(|(index, _)| !lost.contains(index));
        let surviving = surviving.flat_map(|(_, block)| block.holders()).map(|holder| holder.node);
        let mut free = self.candidates(facts, record.block_bytes);
        free.retain(|candidate| !holders.contains(&candidate.node));
        let taken = surviving.map(|node| Domains::of(&facts.nodes.topology, node));
        let chosen = spread(free, taken, lost.len(), &mut out.rng);
        chosen.unwrap_or_else(|| vec![SOME_CLIENT; lost.len()])
    }
}

pub(crate) fn indices(numbers: &[u16]) -> Vec<BlockIndex> {
    numbers.iter().copied().map(BlockIndex).collect()
}

pub(crate) fn node_names(
    nodes: impl IntoIterator<Item = NodeId>,
    topology: &Topology,
) -> BTreeMap<String, String> {
    nodes.into_iter().map(|node| (node.0.to_string(), topology.name(node))).collect()
}
