//! The state of all stripes, and their views for the planner and the API.

mod changes;
pub(crate) mod continuation;
pub(crate) mod contradictions;
mod copy_search;
pub(crate) mod described;
pub(crate) mod described_bytes;
pub(crate) mod finding;
pub(crate) mod indices;
pub(crate) mod inventory;
pub(crate) mod layout;
pub(crate) mod made_lately;
pub(crate) mod newer_claims;
pub(crate) mod orphans;
pub(crate) mod picture;
pub(crate) mod readers;
pub(crate) mod removals;
pub(crate) mod returned;
pub(crate) mod state;
pub(crate) mod states;
pub(crate) mod store_news;
pub(crate) mod surplus;
pub(crate) mod unjudged;
pub(crate) mod verdicts;

use std::collections::VecDeque;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, StripeId, Verify};
use store_api::{BlockRecord, StripeRecord};

use crate::error::RequestError;
use crate::stripes::picture::Picture;
use crate::stripes::state::codes::Codes;
use crate::stripes::state::condemned::Condemned;
use crate::stripes::state::contradictions::Contradictions;
use crate::stripes::state::described::DescribedStripes;
use crate::stripes::state::holdings::Inventory;
use crate::stripes::state::made_lately::MadeLately;
use crate::stripes::state::newer_claims::NewerClaims;
use crate::stripes::state::orphans::Orphans;
use crate::stripes::state::readers::Readers;
use crate::stripes::state::store_news::StoreNews;
use crate::stripes::state::unrecorded::Unrecorded;
use crate::stripes::unjudged::UnjudgedStripes;
use views::LostBlock;

/// The locations of all blocks, findings about them that are not recorded yet, and pending checks.
#[derive(Default)]
pub(crate) struct Stripes {
    /// The stripes, files and nodes as the storage has recorded them.
    pub picture: Picture,
    pub codes: Codes,
    pub contradictions: Contradictions,
    pub given: DescribedStripes,
    pub orphans: Orphans,
    /// The differences between each connected helper's blocks and the catalog.
    pub inventory: Inventory,
    pub condemned: Condemned,
    pub newer: NewerClaims,
    pub unjudged: UnjudgedStripes,
    pub news: StoreNews,
    /// States that are being recorded. Copies that were found bad are not read, and no other copy of their blocks is
    /// removed.
    pub unrecorded: Unrecorded,
    pub made_lately: MadeLately,
    pub readers: Readers,
    pub lost_lately: VecDeque<LostBlock>,
    /// The time at which postponed removals are reconsidered.
    pub removals_due: Duration,
}

impl Stripes {
    pub(crate) fn new(picture: Picture, unlisted: Option<String>) -> Self {
        Self { picture, news: StoreNews::new(unlisted), ..Self::default() }
    }

    /// Returns the catalog's record of the block with exactly this name.
    pub(crate) fn record_of(&self, block: &BlockId) -> Option<(StripeId, BlockIndex, BlockRecord)> {
        let (stripe, index) = self.picture.find_block(block).ok()?;
        let record = self.picture.stripe(&stripe).ok()?.blocks.swap_remove(usize::from(index.0));
        (record.id == *block).then_some((stripe, index, record))
    }

    /// Returns the checks of a job that publishes or decodes blocks of a stripe. A contradiction adds a
    /// parity check.
    pub(crate) fn verify(&self, stripe: &StripeId, parity: bool) -> Verify {
        let doubted = self.contradictions.has(stripe);
        Verify { parity: parity || doubted, doubted, ..Verify::default() }
    }
}

impl Stripes {
    pub(crate) fn stripe_record(&self, id: &StripeId) -> Result<StripeRecord, RequestError> {
        match self.given.get(id).or_else(|| self.readers.get(id)) {
            Some(known) => Ok(known.clone()),
            None => Ok(self.picture.stripe(id)?),
        }
    }
}
