//! The API's views of stripes, files and contradictions, and advice about blocks that are newer than the
//! catalog.

use repair::{BlockId, StripeId};
use store_api::StripeRecord;
use views::{BlockPlace, ContradictionView, FileView, NewerBlocks, StripeView};

use crate::answers::Answers;
use crate::counts::count;
use crate::error::RequestError;
use crate::jobs::puts::file_view;
use crate::stripes::state::contradictions::Contradiction;

/// The maximum number of contradictions that the status lists.
const LISTED: usize = 100;

impl<'a> Answers<'a> {
    /// Returns status lines about helpers that list blocks newer than the catalog, one for each list that no
    /// other helper confirms.
    pub(crate) fn newer_advice(self) -> Vec<String> {
        let unconfirmed = self.facts.newer_views().into_iter().filter(|claim| !claim.confirmed);
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

    pub(crate) fn stripe_view_of(self, id: &StripeId) -> Result<StripeView, RequestError> {
        let record = self.facts.stripes.stripe_record(id)?;
        self.facts.stripe_view(&record)
    }

    pub(crate) fn block_place(self, block: &str) -> Result<BlockPlace, RequestError> {
        let (stripe, index) = self.facts.stripes.picture.find_block(&BlockId(block.to_owned()))?;
        Ok(BlockPlace { index: index.0, stripe: self.stripe_view_of(&stripe)? })
    }

    pub(crate) fn contradiction_views(self) -> Vec<ContradictionView> {
        let known = self.facts.stripes.contradictions.0.iter().filter_map(|(stripe, contradiction)| {
            Some(self.contradiction_view(contradiction, &self.facts.stripes.stripe_record(stripe).ok()?))
        });
        known.take(LISTED).collect()
    }

    fn contradiction_view(self, contradiction: &Contradiction, record: &StripeRecord) -> ContradictionView {
        ContradictionView {
            stripe: record.id.to_string(),
            file: record.file.as_ref().map(|part| part.name.clone()),
            blocks: self.facts.stripes.block_names(&record.id, &contradiction.blocks),
            found_by: contradiction.found_by,
            since_unix_ms: contradiction.since_unix_ms,
            next_step: self.facts.settled_by(record),
        }
    }

    pub(crate) fn file_views(self, prefix: &str) -> Result<Vec<FileView>, RequestError> {
        Ok(self.facts.stripes.picture.files().with_prefix(prefix).map(file_view).collect())
    }
}
