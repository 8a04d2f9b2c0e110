//! Accepts descriptions of stripes from plug-ins, and drops the descriptions that are not used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::{BlockIndex, Code, CodeSpec};
use repair::wire::control::MAX_OPEN_REQUESTS;
use repair::{BlockId, Chunking, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, StripeRecord};

use crate::error::{DescriptionError, LayoutError, RequestError};
use crate::facts::Facts;
use crate::facts::OuterFacts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::Repairs;
use crate::repairs::repair::Repair;
use crate::signal::Signal;
use crate::stripes::Stripes;
use crate::stripes::indices::indexed;
use crate::stripes::state::described::has_wrong_bytes;
use views::{GivenBlock, GivenStripe, StripeView};

/// How long the description of a stripe is kept after its last use.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// How long a description takes precedence over the storage's listing of the same stripe.
pub(crate) const COUNTS_INSTEAD_FOR: Duration = Duration::from_secs(20);
/// How long after a recovery plug-ins may still pass on commands that the store gave before the recovery ended.
const OUTDATED_FOR_MS: u64 = 10_000;
/// The maximum number of described stripes. Further ones are refused.
const MOST: usize = 256 * MAX_OPEN_REQUESTS;
/// The owner, for the memory limits, of descriptions that an earlier coordinator recorded with its repairs.
const OF_RECORDS: &str = "unfinished repairs";
/// The maximum length of a block, in bytes.
const MOST_BLOCK_BYTES: u64 = 1 << 44;
/// The maximum length of a stripe's or block's name, in bytes.
const NAME_BYTES: usize = 255;

impl Stripes {
    /// Accepts the description of a stripe, replacing an earlier one. A stripe that is only being read may be
    /// described again with its blocks on other nodes. Otherwise readers, which describe the stripe as they
    /// see it, would block clients that want it repaired. While the stripe is being repaired as the storage lists
    /// it, its description only permits plug-ins to read it, also as it is listed.
    pub(crate) fn describe_stripe(
        &mut self,
        outer: OuterFacts<'_>,
        jobs: &Jobs,
        repairs: &Repairs,
        given: &GivenStripe,
        owner: &str,
    ) -> Result<StripeView, RequestError> {
        let record = DescriptionCheck { facts: outer.with(self) }.record(given)?;
        // The description of a listed stripe has the blocks of the listing.
        let is_known = self.is_listed(&record.id)
            || self.given.get(&record.id).is_some_and(|known| is_same(known, given));
        let is_repaired = repairs.is_being_repaired(&record.id);
        // A repair that keeps no description takes the stripe as the storage lists it.
        let as_listed = is_repaired && self.is_listed(&record.id) && self.given.get(&record.id).is_none();
        if is_repaired && !can_be_decoded(outer.with(self), &record) {
            return Err(DescriptionError::TooFewHelpers(record.id).into());
        }
        if (is_repaired && !as_listed) || (!is_known && jobs.has_a_job(&record.id)) {
            return Err(DescriptionError::GivenInUse(record.id).into());
        }
        if !as_listed && is_rebuilt(outer, repairs, &record) {
            return Err(DescriptionError::Rebuilt(record.id).into());
        }
        if self.given.readable() >= MOST && !self.given.may_be_read(&record.id) {
            return Err(DescriptionError::TooManyGiven(MOST).into());
        }
        if as_listed {
            let view = outer.with(self).stripe_view(&self.stripe_record(&record.id)?)?;
            self.read_as_listed(outer, record.id);
            return Ok(view);
        }
        let view = outer.with(self).stripe_view(&record)?;
        self.given.bytes.take(&record, owner)?;
        let until = self.remembered_until(outer, &record.id);
        self.given.insert(record, until);
        Ok(view)
    }

    /// Drops the descriptions whose time is over. The description of a stripe that the storage does not list is kept
    /// while a job works on the stripe, and each description while a plug-in has its stripe repaired.
    pub(crate) fn forget_given(
        &mut self,
        outer: OuterFacts<'_>,
        jobs: &Jobs,
        repairs: &Repairs,
        out: &mut Out,
    ) {
        let now = outer.base.now;
        self.given.as_listed.retain(|_, until| *until > now);
        let due: Vec<StripeId> =
            self.given.until.iter().filter(|(_, until)| **until <= now).map(|(id, _)| id.clone()).collect();
        for stripe in due {
            let is_read = !self.is_listed(&stripe) && jobs.has_a_job(&stripe);
            if is_read || repairs.queue.has_described(outer.storing, &stripe) {
                let until = self.remembered_until(outer, &stripe);
                self.given.until.insert(stripe, until);
            } else {
                self.drop_given(&stripe, out);
            }
        }
    }

    /// Drops the description of a stripe. From then on, the storage's listing counts.
    pub(crate) fn drop_given(&mut self, stripe: &StripeId, out: &mut Out) {
        self.given.remove(stripe);
        out.tell(Signal::Blocks(stripe.clone()));
    }

    /// Drops the description of a listed stripe, because the coordinator repairs the stripe as it is listed. Plug-ins
    /// that read the stripe go on by the listing.
    pub(crate) fn supersede_given(&mut self, outer: OuterFacts<'_>, stripe: StripeId, out: &mut Out) {
        self.drop_given(&stripe, out);
        self.read_as_listed(outer, stripe);
    }

    fn read_as_listed(&mut self, outer: OuterFacts<'_>, stripe: StripeId) {
        self.given.as_listed.insert(stripe, outer.base.now + COUNTS_INSTEAD_FOR);
    }

    /// Returns the time at which the description of a stripe is dropped if it is not used before.
    fn remembered_until(&self, outer: OuterFacts<'_>, stripe: &StripeId) -> Duration {
        outer.base.now + if self.is_listed(stripe) { COUNTS_INSTEAD_FOR } else { REMEMBERED_FOR }
    }

    /// Whether the storage lists a stripe.
    fn is_listed(&self, stripe: &StripeId) -> bool {
        self.picture.stripe(stripe).is_ok()
    }
}

impl Stripes {
    /// Restores the description of a stripe that an earlier coordinator recorded with a repair.
    pub(crate) fn recall_given(&mut self, outer: OuterFacts<'_>, record: StripeRecord) {
        self.given.bytes.force(&record, OF_RECORDS);
        let until = self.remembered_until(outer, &record.id);
        self.given.insert(record, until);
    }

    /// Extends the time for which the description of a stripe is kept, because the stripe is used. If the storage lists
    /// the stripe too, only another description extends the time.
    pub(crate) fn touch_given(&mut self, outer: OuterFacts<'_>, stripe: &StripeId) {
        if self.given.get(stripe).is_none() || self.is_listed(stripe) {
            return;
        }
        let until = self.remembered_until(outer, stripe);
        self.given.until.insert(stripe.clone(), until);
    }

    /// Records the blocks of a described stripe that a job has stored.
    pub(crate) fn note_given_stored(
        &mut self,
        stripe: &StripeId,
        blocks: &[(BlockIndex, NodeId)],
        out: &mut Out,
    ) {
        self.given.note_stored(stripe, blocks, out);
        self.contradictions.note_made(stripe, blocks, out);
        // If the storage lists the stripe, wrong blocks stay condemned until it has recorded the new ones.
        if self.is_listed(stripe) {
            return;
        }
        let Some(record) = self.given.get(stripe) else { return };
        let indices: Vec<BlockIndex> = blocks.iter().map(|&(index, _)| index).collect();
        let made_on = |node: NodeId| blocks.iter().any(|&(_, home)| home == node);
        self.condemned.absolve(record, &indices, made_on, out);
    }
}

/// Whether the described blocks on helpers that are up suffice to decode the others. If not, an open repair of the
/// stripe may take long, and the store should not wait for it.
fn can_be_decoded(facts: Facts<'_>, described: &StripeRecord) -> bool {
    let (there, lost): (Vec<BlockIndex>, Vec<BlockIndex>) = indexed(described)
        .map(|(index, _)| index)
        .partition(|index| facts.readable_at(&described.blocks[usize::from(index.0)]).is_some());
    let code = facts.stripes.codes.get(&described.code);
    lost.is_empty() || code.is_ok_and(|code| code.repair(&lost, &there).is_ok())
}

/// Whether a repair that the store did not command has just rebuilt every block that a description counts as lost. The
/// store then described the stripe before it knew of the rebuilt blocks.
fn is_rebuilt(outer: OuterFacts<'_>, repairs: &Repairs, described: &StripeRecord) -> bool {
    let since = outer.base.unix_ms.saturating_sub(OUTDATED_FOR_MS);
    let is_recent = |repair: &&Repair| {
        repair.order.given.is_none() && repair.ended_unix_ms().is_some_and(|ended| ended >= since)
    };
    let recoveries = repairs.queue.of_stripe(&described.id).map(|id| &repairs.queue.by_id[&id]);
    let mut items = recoveries.filter(is_recent).filter_map(|repair| repair.items.get(&described.id));
    let lost = |block: &&BlockRecord| block.state == BlockState::Missing;
    let mut lost = described.blocks.iter().filter(lost).map(|block| &block.id).peekable();
    lost.peek().is_some() && items.any(|item| lost.clone().all(|block| item.rebuilt.contains_key(block)))
}

/// Checks a plug-in's description of a stripe against the coordinator's state.
struct DescriptionCheck<'a> {
    facts: Facts<'a>,
}

impl DescriptionCheck<'_> {
    /// Returns the record of the described stripe.
    fn record(&self, given: &GivenStripe) -> Result<StripeRecord, RequestError> {
        let id = StripeId(given.stripe.clone());
        check_name(&given.stripe)?;
        let is_to_come = self.facts.stripes.picture.is_from_the_future(&BlockId(format!("{id}.0")));
        let told = self.facts.stripes.picture.stripe(&id).ok();
        if told.is_some_and(|told| !self.facts.base.store.claims_stripes() || !is_same(&told, given))
            || is_to_come
        {
            return Err(DescriptionError::Catalogued(given.stripe.clone()).into());
        }
        let spec: CodeSpec = given.code.parse()?;
        let code = self.facts.stripes.codes.get(&spec)?;
        let unit = code.sub_blocks() as u64;
        if given.block_bytes > MOST_BLOCK_BYTES {
            return Err(DescriptionError::GivenBlockBytes {
                asked: given.block_bytes,
                most: MOST_BLOCK_BYTES,
            }
            .into());
        }
        if given.block_bytes == 0 || !given.block_bytes.is_multiple_of(unit) {
            let above = given.block_bytes.max(1).next_multiple_of(unit);
            let (below, above) = (above.checked_sub(unit).filter(|&below| below > 0), Some(above));
            return Err(LayoutError::BlockBytes { asked: given.block_bytes, unit, below, above }.into());
        }
        let chunk_bytes = given_chunk(&*code, given)?;
        if given.blocks.len() != code.blocks() {
            let (blocks, needed) = (given.blocks.len(), code.blocks());
            return Err(DescriptionError::GivenBlocks { code: given.code.clone(), needed, blocks }.into());
        }
        let mut names = BTreeSet::new();
        let mut blocks = Vec::with_capacity(given.blocks.len());
        for block in &given.blocks {
            if !names.insert(&block.block) {
                return Err(DescriptionError::GivenTwice(block.block.clone()).into());
            }
            blocks.push(self.block(&id, block, given.block_bytes)?);
        }
        let block_bytes = given.block_bytes;
        Ok(StripeRecord { id, code: spec, block_bytes, chunk_bytes, blocks, file: None })
    }

    fn block(
        &self,
        stripe: &StripeId,
        given: &GivenBlock,
        block_bytes: u64,
    ) -> Result<BlockRecord, RequestError> {
        check_name(&given.block)?;
        let id = BlockId(given.block.clone());
        let of_another = |(other, _): (StripeId, BlockIndex)| other != *stripe;
        if self.facts.stripes.picture.find_block(&id).is_ok_and(of_another)
            || self.facts.stripes.picture.is_from_the_future(&id)
        {
            return Err(DescriptionError::Catalogued(given.block.clone()).into());
        }
        if given.bytes > block_bytes {
            let (block, bytes) = (given.block.clone(), given.bytes);
            return Err(DescriptionError::GivenTooLong { block, bytes, block_bytes }.into());
        }
        let node = given
            .node
            .as_deref()
            .map(|name| self.facts.nodes.node_named(self.facts.base, name))
            .transpose()?;
        let told = self.told(stripe, &id);
        let digest = match &given.digest {
            // The catalog's digest of the same block still counts.
            None => told.as_ref().and_then(|told| told.digest),
            Some(text) => Some(text.parse().map_err(|_| DescriptionError::NoDigest(text.clone()))?),
        };
        let state = node.map_or(BlockState::Missing, |node| self.state(&id, node, told.as_ref()));
        Ok(BlockRecord { id, bytes: given.bytes, node, state, replicas: Vec::new(), digest })
    }

    /// Returns the catalog's record of a block.
    fn told(&self, stripe: &StripeId, block: &BlockId) -> Option<BlockRecord> {
        let told = self.facts.stripes.picture.stripe(stripe).ok()?;
        told.blocks.into_iter().find(|known| known.id == *block)
    }

    /// Returns the state of a block on the node where the plug-in has described it. A copy that was found to have wrong
    /// bytes there stays bad until it is rebuilt.
    fn state(&self, block: &BlockId, node: NodeId, told: Option<&BlockRecord>) -> BlockState {
        if self.facts.stripes.condemned.problem(block, node).is_some() {
            return BlockState::Corrupt;
        }
        let found = told.and_then(|told| told.state_on(node)).filter(|&state| has_wrong_bytes(state));
        found.unwrap_or(BlockState::Healthy)
    }
}

impl<'a> Facts<'a> {
    /// Returns the blocks that a plug-in wants repaired, each with its new node.
    pub(crate) fn given_homes(
        self,
        stripe: &StripeId,
        homes: &[views::Home],
    ) -> Result<BTreeMap<BlockIndex, NodeId>, RequestError> {
        let record =
            self.stripes.given.get(stripe).ok_or_else(|| DescriptionError::NotGiven(stripe.clone()))?;
        let mut named = BTreeMap::new();
        for home in homes {
            let index = BlockIndex(home.index);
            crate::stripes::indices::check_indices(record, &[index])?;
            let node = self.nodes.node_named(self.base, &home.node)?;
            let (_, block) =
                indexed(record).nth(usize::from(home.index)).expect("the index was just checked");
            if block.state == BlockState::Healthy {
                let holder = block.node.map(|node| self.nodes.name(node)).unwrap_or_default();
                return Err(DescriptionError::NotLost { block: block.id.to_string(), holder }.into());
            }
            if named.insert(index, node).is_some() {
                return Err(DescriptionError::GivenTwice(block.id.to_string()).into());
            }
        }
        match named.is_empty() {
            true => Err(DescriptionError::NoHomes(stripe.clone()).into()),
            false => Ok(named),
        }
    }
}

/// Whether a description matches a known stripe (listed by the storage or described before), apart from the
/// nodes of the blocks.
fn is_same(told: &StripeRecord, given: &GivenStripe) -> bool {
    let named = told.blocks.iter().map(|block| (block.id.0.as_str(), block.bytes));
    told.code.to_string() == given.code
        && told.block_bytes == given.block_bytes
        && told.chunk_bytes == given.chunk_bytes
        && named.eq(given.blocks.iter().map(|block| (block.block.as_str(), block.bytes)))
}

fn check_name(name: &str) -> Result<(), RequestError> {
    let is_plain = !name.is_empty() && name.len() <= NAME_BYTES && !name.chars().any(char::is_control);
    if is_plain { Ok(()) } else { Err(DescriptionError::NoName(name.escape_default().to_string()).into()) }
}

/// Returns the chunk size of a described stripe, if its blocks have several chunks.
fn given_chunk(code: &dyn Code, given: &GivenStripe) -> Result<Option<u64>, RequestError> {
    Ok(Chunking::of(code, given.block_bytes, given.chunk_bytes)?.chunk_bytes())
}
