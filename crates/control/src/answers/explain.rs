//! Plans that are explained without being carried out.

use std::collections::BTreeSet;

use codes::BlockIndex;
use repair::{NodeProfile, PlanRequest, Stripe, StripeId, Topology, explain};
use store_api::StripeRecord;
use views::{PlanRequestView, PlanView};

use crate::answers::Answers;
use crate::error::{PlanningError, RequestError};
use crate::jobs::requests::policy;
use crate::jobs::reserved_bandwidth::{counted_by_read, limited, places};
use crate::out::Out;
use crate::repairs::plans::{SOME_CLIENT, indices, node_names};

impl Answers<'_> {
    /// Makes the plan that a repair or read would use now.
    pub(crate) fn explain(self, request: &PlanRequestView, out: &mut Out) -> Result<PlanView, RequestError> {
        let record = self.facts.stripes.stripe_record(&StripeId(request.stripe.clone()))?;
        let scheme = self.facts.scheme(request.scheme.as_deref())?;
        let blocks = self.blocks_to_explain(&record, request)?;
        // A migration copies a readable block. All other schemes rebuild lost ones.
        let mut taken_as_lost = indices(&request.lost);
        if scheme != repair::Scheme::Migration {
            taken_as_lost.extend(&blocks);
        }
        let stripe = self.facts.stripe_now(&record, &taken_as_lost)?;
        let mut topology = self.topology_with_client();
        let requestor = request.requestor.as_deref();
        let wanted = self.jobs.plan_requestors(self.facts, &record, &blocks, requestor, out)?;
        let planned = PlanRequest {
            wanted,
            window: 0..stripe.sub_block_bytes(),
            sub_blocks: None,
            resume: None,
            policy: policy(scheme, request.slice_bytes),
        };
        let is_read = requestor == Some("client");
        self.reserve(&mut topology, &stripe, &planned, is_read);
        self.plan_view(&stripe, &planned, &topology)
    }

    /// Returns the requested blocks. If the request names none, returns the lost blocks and the blocks that
    /// the request declares lost.
    fn blocks_to_explain(
        self,
        record: &StripeRecord,
        request: &PlanRequestView,
    ) -> Result<BTreeSet<BlockIndex>, RequestError> {
        let (asked, pretended) = (indices(&request.blocks), indices(&request.lost));
        crate::stripes::indices::check_indices(record, &asked)?;
        crate::stripes::indices::check_indices(record, &pretended)?;
        let blocks =
            if asked.is_empty() { [self.facts.lost_blocks(record), pretended].concat() } else { asked };
        let blocks: BTreeSet<BlockIndex> = blocks.into_iter().collect();
        match blocks.is_empty() {
            true => Err(PlanningError::NothingLost(record.id.clone()).into()),
            false => Ok(blocks),
        }
    }

    /// Adds the bandwidth that other jobs have reserved, as far as a read or the repair of a stripe counts
    /// it.
    fn reserve(self, topology: &mut Topology, stripe: &Stripe, planned: &PlanRequest, is_read: bool) {
        let targets = planned.wanted.iter().map(|wanted| wanted.requestor);
        let limit = if is_read { counted_by_read(stripe, &planned.window) } else { u64::MAX };
        let nodes = places(stripe, targets, topology);
        let reserved = limited(self.repairs.scheduler.reserved_beside(&nodes, None), limit);
        reserved.into_iter().for_each(|(resource, bytes)| topology.reserve(resource, bytes));
    }

    /// Returns the topology with an imaginary client.
    fn topology_with_client(self) -> Topology {
        let mut topology = self.facts.nodes.topology.clone();
        let mut client = NodeProfile::client("client");
        let assumed = self.facts.nodes.bandwidth.assumed();
        (client.rates.up, client.rates.down) = (assumed, assumed);
        topology.set(SOME_CLIENT, client);
        if let Err(error) = self.facts.nodes.lay(self.facts.base, &mut topology) {
            tracing::error!(%error, "ignoring a link of mend.toml");
        }
        topology
    }

    fn plan_view(
        self,
        stripe: &Stripe,
        planned: &PlanRequest,
        topology: &Topology,
    ) -> Result<PlanView, RequestError> {
        let explained = explain(stripe, planned, topology)?;
        let plan = &explained.plan;
        let requestors = planned.wanted.iter().map(|wanted| topology.name(wanted.requestor));
        Ok(PlanView {
            text: format!("{}{}", plan.display_with(topology), explained.text(topology)),
            summary: serde_json::to_value(plan.summary()).expect("a summary has string keys"),
            nodes: node_names(plan.nodes(), topology),
            scheme: plan.scheme().name().to_owned(),
            requestors: requestors.collect(),
            rates: self.facts.rates(plan.nodes(), topology),
            predicted_ms: explained.forecast.time.as_millis() as u64,
        })
    }
}
