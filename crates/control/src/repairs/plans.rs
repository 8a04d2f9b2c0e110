//! Plans that are explained and not carried out.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::{NodeId, NodeProfile, PlanRequest, StripeId, Topology, Wanted, explain};
use stores::{BlockRecord, StripeRecord};

use crate::Control;
use crate::error::RequestError;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::jobs::placement::spread;
use crate::jobs::requests::policy;
use crate::out::Out;
use views::{PlanRates, PlanRequestView, PlanView};

/// The number of a client that is not there; real ones are counted from 2^31 up.
const SOME_CLIENT: NodeId = NodeId(u32::MAX);

impl Control {
    pub(crate) fn explain(&mut self, request: &PlanRequestView) -> Result<PlanView, RequestError> {
        let record = self.stripes.stripe_record(&StripeId(request.stripe.clone()))?;
        let scheme = self.facts().scheme(request.scheme.as_deref())?;
        let asked = indices(&request.blocks);
        let pretended = indices(&request.lost);
        crate::stripes::check_indices(&record, &asked)?;
        crate::stripes::check_indices(&record, &pretended)?;
        let lost = self.facts().lost_blocks(&record);
        let blocks = if asked.is_empty() { [lost, pretended.clone()].concat() } else { asked };
        let blocks: BTreeSet<BlockIndex> = blocks.into_iter().collect();
        if blocks.is_empty() {
            return Err(RequestError::NothingLost(record.id));
        }
        // A migration copies what is there; all other schemes are for what is lost.
        let mut taken_as_lost = pretended;
        if scheme != repair::Scheme::Migration {
            taken_as_lost.extend(&blocks);
        }
        let stripe = self.facts().stripe_now(&record, &taken_as_lost)?;
        let mut topology = self.nodes.topology.clone();
        let mut client = NodeProfile::client("client");
        (client.rates.up, client.rates.down) = (self.nodes.figures.assumed(), self.nodes.figures.assumed());
        topology.set(SOME_CLIENT, client);
        if let Err(error) = self.nodes.lay(&self.base, &mut topology) {
            tracing::error!(%error, "a link of mend.toml is left out");
        }
        self.repairs.scheduler.reserved().for_each(|(resource, bytes)| topology.reserve(resource, bytes));
        let wanted = self.jobs.plan_requestors(
            facts!(self),
            &record,
            &blocks,
            request.requestor.as_deref(),
            &mut self.out,
        )?;
        let requestors: Vec<NodeId> = wanted.iter().map(|wanted| wanted.requestor).collect();
        let planned = PlanRequest {
            wanted,
            window: 0..stripe.sub_block_bytes(),
            sub_blocks: None,
            resume: None,
            policy: policy(scheme, request.slice_bytes),
        };
        let explained = explain(&stripe, &planned, &topology)?;
        let plan = &explained.plan;
        Ok(PlanView {
            text: format!("{}{}", plan.display_with(&topology), explained.text(&topology)),
            summary: serde_json::to_value(plan.summary()).expect("a summary has string keys"),
            nodes: node_names(plan.nodes(), &topology),
            scheme: plan.scheme().name().to_owned(),
            requestors: requestors.iter().map(|&node| topology.name(node)).collect(),
            rates: self.facts().rates(plan.nodes(), &topology),
            predicted_ms: explained.forecast.time.as_millis() as u64,
        })
    }
}

impl<'a> Facts<'a> {
    /// What the nodes of a plan are taken to carry.
    pub(crate) fn rates(self, nodes: impl IntoIterator<Item = NodeId>, topology: &Topology) -> PlanRates {
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        let links =
            || nodes.iter().map(|&node| topology.rates(node)).flat_map(|rates| [rates.up, rates.down]);
        let disks = || nodes.iter().map(|&node| topology.rates(node).disk());
        let known = |node: &&NodeId| self.nodes.figures.knows_links(**node);
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
    fn plan_requestors(
        &mut self,
        facts: Facts<'_>,
        record: &StripeRecord,
        blocks: &BTreeSet<BlockIndex>,
        requestor: Option<&str>,
        out: &mut Out,
    ) -> Result<Vec<Wanted>, RequestError> {
        let nodes = match requestor {
            Some("client") => vec![SOME_CLIENT; blocks.len()],
            Some(name) => vec![facts.nodes.node_named(facts.base, name)?; blocks.len()],
            None => self.likely_requestors(facts, record, blocks.len(), out),
        };
        Ok(blocks.iter().zip(nodes).map(|(&block, requestor)| Wanted { block, requestor }).collect())
    }

    /// Helpers without a block of the stripe, or a client if there are too few.
    fn likely_requestors(
        &mut self,
        facts: Facts<'_>,
        record: &StripeRecord,
        count: usize,
        out: &mut Out,
    ) -> Vec<NodeId> {
        let holders: BTreeSet<NodeId> =
            record.blocks.iter().flat_map(BlockRecord::holders).map(|holder| holder.node).collect();
        let mut free = self.candidates(facts, record.block_bytes);
        free.retain(|candidate| !holders.contains(&candidate.node));
        let chosen = spread(free, BTreeMap::new(), count, &mut out.rng);
        chosen.unwrap_or_else(|| vec![SOME_CLIENT; count])
    }
}

fn indices(numbers: &[u16]) -> Vec<BlockIndex> {
    numbers.iter().copied().map(BlockIndex).collect()
}

fn node_names(nodes: impl IntoIterator<Item = NodeId>, topology: &Topology) -> BTreeMap<String, String> {
    nodes.into_iter().map(|node| (node.0.to_string(), topology.name(node))).collect()
}
