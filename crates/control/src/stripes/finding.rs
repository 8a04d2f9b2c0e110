//! Looks for lost blocks on the nodes that are recorded to have lost them, or to which they do not belong.

use repair::BlockId;
use store_api::{BlockRecord, BlockState, StripeRecord};

use crate::facts::OuterFacts;
use crate::out::Out;
use crate::stripes::Stripes;
use crate::stripes::indices::indexed;
use crate::stripes::inventory::is_dry_run;
use crate::stripes::state::holdings::Holdings;

/// Has helpers look for blocks that their servers have just stopped serving. A server that has lost a volume's
/// index, for example, does not serve the volume's shards, although their files are intact.
pub(crate) fn look_for_lost(
    stripes: &mut Stripes,
    outer: OuterFacts<'_>,
    before: Option<&StripeRecord>,
    now: &StripeRecord,
    out: &mut Out,
) {
    let store = &outer.base.store;
    if !store.reports_service() || !store.trusts_lists() || is_dry_run(outer) {
        return;
    }
    for (index, block) in indexed(now) {
        let before = before.and_then(|before| before.blocks.get(usize::from(index.0)));
        let is_lost = |block: &BlockRecord| block.state == BlockState::Missing;
        if let Some(home) = block.node.filter(|_| is_lost(block) && !before.is_some_and(is_lost)) {
            stripes.recheck(outer, home, [(now.id.clone(), index)], out);
        }
    }
}

/// Retries to use found blocks that could not be put into service some time ago.
pub(crate) fn retry(stripes: &mut Stripes, outer: OuterFacts<'_>, out: &mut Out) {
    for node in outer.nodes.live_helpers().collect::<Vec<_>>() {
        let Some(Holdings { unadopted, .. }) = stripes.inventory.get_mut(node) else { continue };
        let due: Vec<BlockId> =
            unadopted.extract_if(.., |_, at| *at <= outer.base.now).map(|(block, _)| block).collect();
        let found = due.iter().filter_map(|block| stripes.record_of(block));
        let again: Vec<_> = found.map(|(stripe, index, _)| (stripe, index)).collect();
        stripes.recheck(outer, node, again, out);
    }
}
