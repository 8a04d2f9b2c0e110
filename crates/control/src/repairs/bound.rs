//! A lower bound for the duration of a repair, from the rates of links and disks and from caps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::CodeSpec;
use recovery::{Demand, Kind, bound};
use repair::{NodeId, Rates};
use store_api::StripeRecord;

use crate::facts::{Facts, hollow};
use crate::repairs::orders::Order;
use crate::stripes::indices::indexed;

/// The maximum number of stripes in the flow problem. If there are more, an even sample is taken, because a
/// flow over all of them would take too long.
const DEMANDS: usize = 512;
/// In a cluster with more nodes than this, the bound assumes that any node can receive any block, because the
/// choice of receivers rarely limits a repair there.
const FEW_NODES: usize = 64;

/// An order, and the facts that bound its duration.
pub(crate) struct Bound<'a> {
    pub facts: Facts<'a>,
    pub order: &'a Order,
}

impl Bound<'_> {
    /// Returns the least time that the repair can take; `None` if a stripe's code is not Reed-Solomon,
    /// because other codes may read less than whole blocks.
    pub(crate) fn of(&self, records: &[StripeRecord]) -> Option<Duration> {
        let Self { facts, order } = self;
        if records.iter().any(|record| !matches!(record.code, CodeSpec::ReedSolomon { .. })) {
            return None;
        }
        let step = records.len().div_ceil(DEMANDS).max(1);
        let sampled: Vec<&StripeRecord> = records.iter().step_by(step).collect();
        let scale = records.len() as f64 / sampled.len().max(1) as f64;
        let (rates, cluster) =
            (self.rates_within_caps(), facts.capping.caps(facts.base, facts.nodes).cluster);
        let seconds = |kind: Kind| {
            let demand = |record: &&StripeRecord| self.demand(kind, record);
            let demands: Vec<Demand> = sampled.iter().filter_map(demand).collect();
            let sent: f64 =
                demands.iter().map(|demand| f64::from(demand.sends) * demand.block_bytes as f64).sum();
            let seconds = bound(&demands, &rates).seconds.max(cluster.map_or(0.0, |cap| sent / cap));
            Some(seconds * scale).filter(|seconds| seconds.is_finite() && *seconds > 0.0)
        };
        let seconds = match order.kind() {
            // Copying and rebuilding run at the same time and hardly compete for resources, so their rates
            // add up.
            Kind::Drain { from } if facts.nodes.is_connected(from) => {
                1.0 / (1.0 / seconds(Kind::Migrate { from })? + 1.0 / seconds(Kind::Rebuild { from })?)
            }
            kind => seconds(kind)?,
        };
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Returns the rates of each live helper within its caps, as if no other helper used the caps that they
    /// share.
    fn rates_within_caps(&self) -> BTreeMap<NodeId, Rates> {
        let facts = self.facts;
        let caps = facts.capping.caps(facts.base, facts.nodes);
        let within = |node: NodeId| {
            let rack = facts.nodes.topology.get(node).and_then(|view| view.rack.as_deref());
            (node, caps.utmost(node, rack).slow(facts.nodes.topology.rates(node)))
        };
        facts.nodes.live_helpers().map(within).collect()
    }

    /// Returns the transfers that a stripe needs; `None` if the order wants no block of it.
    fn demand(&self, kind: Kind, record: &StripeRecord) -> Option<Demand> {
        let Self { facts, order } = self;
        let CodeSpec::ReedSolomon { k, .. } = record.code else { return None };
        let lost = facts.wanted_of(order, record);
        let readable = |from: Option<NodeId>| {
            let holders = indexed(record).filter_map(|(_, block)| facts.readable_at(block));
            holders.filter(|&node| Some(node) != from).collect::<Vec<_>>()
        };
        let (sends, survivors) = match kind {
            Kind::Migrate { from } => (lost.len() as u32, vec![from]),
            _ => (k as u32, readable(kind.leaves())),
        };
        let holders: BTreeSet<NodeId> = record.blocks.iter().filter_map(|block| block.node).collect();
        let free = |node: &NodeId| {
            !holders.contains(node) && !facts.nodes.registry.is_leaving(*node) && !hollow::has(*facts, *node)
        };
        // In a large cluster, any node can receive a block.
        let takers = match &order.requestors[..] {
            [] if facts.nodes.connected_count() > FEW_NODES => None,
            [] => Some(facts.nodes.live_helpers().filter(free).collect()),
            some => Some(some.to_vec()),
        };
        let lost = lost.len() as u32;
        (lost > 0).then_some(Demand { block_bytes: record.block_bytes, sends, lost, survivors, takers })
    }
}
