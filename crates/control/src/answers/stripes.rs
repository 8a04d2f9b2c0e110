//! The API's views of stripes, files and contradictions, and advice about blocks that are newer than the
//! catalog.

use repair::{BlockId, StripeId};
use store_api::StripeRecord;
use views::{BlockPlace, ContradictionView, NewerBlocks, StripeView};

use crate::counts::count;
use crate::error::RequestError;
use crate::facts::Facts;
use crate::stripes::state::contradictions::Contradiction;

/// The maximum number of contradictions that the status lists.
const LISTED: usize = 100;

/// Returns status lines about helpers that list blocks newer than the catalog, one for each list that no
/// other helper confirms.
pub(crate) fn newer_advice(facts: Facts<'_>) -> Vec<String> {
    let unconfirmed = facts.stripes.newer.views(facts.nodes).into_iter().filter(|claim| !claim.confirmed);
    let text = |claim: NewerBlocks| {
        let (node, blocks) = (claim.node, count(claim.blocks, "block"));
        format!(
            "{node} lists {blocks} newer than the catalog ({}), and no other helper confirms this; no \
             blocks are removed until you run mend catalog accept (continue without them) or mend \
             catalog accept --reject {node} (ignore its list)",
            claim.first.join(", ")
        )
    };
    unconfirmed.map(text).collect()
}

pub(crate) fn stripe_view_of(facts: Facts<'_>, id: &StripeId) -> Result<StripeView, RequestError> {
    let record = facts.stripes.stripe_record(id)?;
    facts.stripe_view(&record)
}

pub(crate) fn block_place(facts: Facts<'_>, block: &str) -> Result<BlockPlace, RequestError> {
    let (stripe, index) = facts.stripes.picture.find_block(&BlockId(block.to_owned()))?;
    Ok(BlockPlace { index: index.0, stripe: stripe_view_of(facts, &stripe)? })
}

pub(crate) fn contradiction_views(facts: Facts<'_>) -> Vec<ContradictionView> {
    let known = facts.stripes.contradictions.open.iter().filter_map(|(stripe, contradiction)| {
        Some(contradiction_view(facts, contradiction, &facts.stripes.stripe_record(stripe).ok()?))
    });
    known.take(LISTED).collect()
}

fn contradiction_view(
    facts: Facts<'_>,
    contradiction: &Contradiction,
    record: &StripeRecord,
) -> ContradictionView {
    ContradictionView {
        stripe: record.id.to_string(),
        file: record.file.as_ref().map(|part| part.name.clone()),
        blocks: facts.stripes.block_names(&record.id, &contradiction.blocks),
        found_by: contradiction.found_by,
        since_unix_ms: contradiction.since_unix_ms,
        next_step: facts.settled_by(record),
    }
}
