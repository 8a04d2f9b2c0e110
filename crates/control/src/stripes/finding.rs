//! Looks for lost blocks on the nodes that are recorded to have lost them, or to which they do not belong.

use store_api::{BlockRecord, BlockState, StripeRecord};

use crate::facts::OuterFacts;
use crate::out::Out;
use crate::stripes::Stripes;
use crate::stripes::indices::indexed;

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
    if !store.reports_service() || !store.trusts_lists() || outer.base.is_dry_run() {
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
    if stripes.inventory.unadopted.is_empty() {
        return;
    }
    let mut unadopted = std::mem::take(&mut stripes.inventory.unadopted);
    let due = unadopted.take_due(outer.base.now, |block| {
        let record = stripes.record_of(block).and_then(|(stripe, ..)| stripes.picture.stripe(&stripe).ok());
        record.is_some_and(|record| !outer.with(stripes).is_readable(&record))
    });
    stripes.inventory.unadopted = unadopted;
    for (node, block) in due {
        if let Some((stripe, index, _)) = stripes.record_of(&block) {
            stripes.recheck(outer, node, [(stripe, index)], out);
        }
    }
}
