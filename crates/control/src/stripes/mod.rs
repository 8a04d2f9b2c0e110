//! From the catalog's record of a stripe to what the planner and people see of it.

mod changes;
pub(crate) mod continuation;
pub(crate) mod contradictions;
pub(crate) mod given;
pub(crate) mod given_bytes;
pub(crate) mod indices;
pub(crate) mod inventory;
pub(crate) mod layout;
pub(crate) mod made_lately;
pub(crate) mod newer;
pub(crate) mod orphans;
pub(crate) mod picture;
pub(crate) mod readers;
pub(crate) mod removals;
pub(crate) mod returned;
pub(crate) mod state;
mod states;
pub(crate) mod store_news;
pub(crate) mod surplus;
pub(crate) mod unjudged;
pub(crate) mod verdicts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId, Verify};
use store_api::{BlockRecord, StripeRecord};

use crate::error::RequestError;
use crate::stripes::picture::Picture;
use crate::stripes::state::codes::Codes;
use crate::stripes::state::condemned::Condemned;
use crate::stripes::state::contradictions::Contradictions;
use crate::stripes::state::given::Given;
use crate::stripes::state::holdings::Holdings;
use crate::stripes::state::made_lately::MadeLately;
use crate::stripes::state::newer::Newer;
use crate::stripes::state::orphans::Orphans;
use crate::stripes::state::readers::Readers;
use crate::stripes::state::store_news::StoreNews;
use crate::stripes::unjudged::UnjudgedStripes;
use views::LostBlock;

/// Where each block is, and what is doubted, claimed or asked of it.
#[derive(Default)]
pub(crate) struct Stripes {
    /// What the storage says.
    pub picture: Picture,
    pub codes: Codes,
    pub contradictions: Contradictions,
    pub given: Given,
    pub orphans: Orphans,
    /// What the helpers hold that are connected.
    pub holdings: BTreeMap<NodeId, Holdings>,
    pub condemned: Condemned,
    pub newer: Newer,
    pub unjudged: UnjudgedStripes,
    pub news: StoreNews,
    /// What the store says keeps it from its work.
    pub troubles: Vec<String>,
    /// Blocks of which something bad is known and not stored yet. Nobody reads them, and no other copy of
    /// them goes.
    pub doubted: BTreeSet<(BlockId, NodeId)>,
    pub made_lately: MadeLately,
    pub readers: Readers,
    pub lost_lately: VecDeque<LostBlock>,
    /// When removals that had to wait are looked at again.
    pub removals_due: Duration,
}

impl Stripes {
    /// Whether something bad is known of a block on a node and not stored yet.
    pub(crate) fn is_doubted(&self, block: &BlockId, node: NodeId) -> bool {
        !self.doubted.is_empty() && self.doubted.contains(&(block.clone(), node))
    }

    /// Stripes with a block of which something bad is known and not stored yet.
    pub(crate) fn doubted_blocks(&self) -> impl Iterator<Item = &BlockId> {
        self.doubted.iter().map(|(block, _)| block)
    }

    /// A block is as it is stored, and no longer as it was thought to be.
    pub(crate) fn settle_doubts(&mut self, before: Option<&StripeRecord>, now: Option<&StripeRecord>) {
        if self.doubted.is_empty() {
            return;
        }
        let known = |record: Option<&StripeRecord>, at: usize, node| {
            record.and_then(|record| record.blocks[at].state_on(node))
        };
        for (at, block) in before.or(now).map_or(&[][..], |record| &record.blocks).iter().enumerate() {
            self.doubted
                .retain(|(id, node)| *id != block.id || known(before, at, *node) == known(now, at, *node));
        }
    }

    /// Whether a node has been told to remove this block and has not answered.
    pub(crate) fn is_removing(&self, node: NodeId, block: &BlockId) -> bool {
        self.holdings.get(&node).is_some_and(|held| held.removing.contains(block))
    }

    /// Nodes that have been told to remove something and have not answered.
    pub(crate) fn removers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.holdings.iter().filter(|(_, held)| !held.removing.is_empty()).map(|(&node, _)| node)
    }

    pub(crate) fn new(picture: Picture, unlisted: Option<String>) -> Self {
        Self { picture, news: StoreNews::new(unlisted), ..Self::default() }
    }

    /// Where the catalog has a block of exactly this name.
    pub(crate) fn record_of(&self, block: &BlockId) -> Option<(StripeId, BlockIndex, BlockRecord)> {
        let (stripe, index) = self.picture.find_block(block).ok()?;
        let record = self.picture.stripe(&stripe).ok()?.blocks.swap_remove(usize::from(index.0));
        (record.id == *block).then_some((stripe, index, record))
    }

    /// What a job checks that publishes blocks of a stripe, or decodes them for a reader, if it was to check
    /// so much.
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
