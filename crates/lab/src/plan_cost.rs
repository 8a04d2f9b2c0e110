//! [`PlanCost`]: a plan's predicted cost, for comparison with the measurement.

use codes::{BlockIndex, CodeSpec};
use repair::{
    BlockId, Chunking, NodeId, NodeProfile, PlanError, PlanRequest, Policy, Stripe, StripeBlock, StripeId,
    Topology, Wanted,
};
use serde::{Deserialize, Serialize};

use crate::variant::Variant;

/// The id of the requestor, which is larger than that of any helper.
const REQUESTOR: NodeId = NodeId(u32::MAX);

/// A plan's predicted cost, in blocks, and in timeslots of uniform links.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlanCost {
    /// Blocks read from disks.
    pub disk_blocks: f64,
    /// The number of contiguous byte ranges read.
    #[serde(default)]
    pub disk_reads: u64,
    /// Blocks sent over all links.
    pub network_blocks: f64,
    /// The predicted time; one timeslot sends one block over one link.
    pub timeslots: f64,
}

/// Returns the cost of the plan that rebuilds the lost blocks on a node without a block of the stripe.
/// Assumes that every surviving block is on a separate node.
///
/// # Errors
/// [`PlanError`] if no such plan exists.
pub(crate) fn plan_cost(
    code: &CodeSpec,
    block_bytes: u64,
    lost: &[u16],
    way: Variant,
    slice_bytes: Option<u32>,
) -> Result<PlanCost, PlanError> {
    let stripe = stripe(code, block_bytes, lost);
    let request = PlanRequest {
        wanted: lost.iter().map(|&block| Wanted { block: BlockIndex(block), requestor: REQUESTOR }).collect(),
        window: 0..stripe.sub_block_bytes(),
        sub_blocks: None,
        resume: None,
        policy: Policy { scheme: way.scheme, slice_bytes, pacing: way.pacing, ..Policy::default() },
    };
    let mut topology = Topology::new();
    let nodes = stripe.indices().map(|index| NodeId(u32::from(index.0))).chain([REQUESTOR]);
    nodes.for_each(|node| topology.set(node, NodeProfile::unknown(node.to_string())));
    let cost = repair::plan(&stripe, &request, &topology)?.cost();
    Ok(PlanCost {
        disk_blocks: cost.in_blocks(cost.read_bytes),
        disk_reads: cost.reads,
        network_blocks: cost.in_blocks(cost.network_bytes),
        timeslots: cost.timeslots,
    })
}

fn stripe(code: &CodeSpec, block_bytes: u64, lost: &[u16]) -> Stripe {
    let code = code.build().expect("a scenario's codes are checked");
    let block = |index: u16| StripeBlock {
        id: BlockId(index.to_string()),
        bytes: block_bytes,
        holder: (!lost.contains(&index)).then_some(NodeId(u32::from(index))),
        digest: None,
    };
    let blocks = (0..code.blocks() as u16).map(block).collect();
    let chunking = Chunking::whole(&*code, block_bytes);
    Stripe { id: StripeId("account".to_owned()), code, chunking, blocks, label: None }
}

#[cfg(test)]
mod tests {
    use repair::{Pacing, Scheme};

    use super::*;

    #[track_caller]
    fn check(code: &str, way: Variant, disk_blocks: f64, timeslots: f64) {
        let found = plan_cost(&code.parse().unwrap(), 64 << 20, &[0], way, None).unwrap();
        assert_eq!(found.disk_blocks, disk_blocks, "{code} {way}");
        assert!((found.timeslots - timeslots).abs() < 0.05, "{code} {way}: {}", found.timeslots);
    }

    #[test]
    fn accounts_are_those_of_the_codes_page() {
        let conventional = Variant::own(Scheme::Conventional);
        check("rs-16-12", conventional, 12.0, 12.0);
        check("lrc-12-2-2", conventional, 6.0, 6.0);
        check("rotated-16-12-4", conventional, 7.5, 7.5);
        check("hitchhiker-xorplus-14-10", conventional, 6.5, 6.5);
        check("clay-14-10-13", conventional, 3.25, 3.25);
        check("rs-14-10", Variant::own(Scheme::Pipelined), 10.0, 1.0);
        let rounds = Variant { pacing: Some(Pacing::WholeBlock), ..Variant::own(Scheme::Ppr) };
        check("lrc-12-2-2", rounds, 6.0, 3.0);
        check("rs-16-12", rounds, 12.0, 4.0);
    }
}
