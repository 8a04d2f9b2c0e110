//! Nodes that come back while their blocks are being rebuilt, and the copies that are then one too many.
//!
//! What a node says that it has is held against the recorded digests, by its checksum files and without reading the blocks.
//! Until then nothing starts that might be needless, and nothing ends as needless that might be wanted after all. Copies whose block has another home since are told
//! to the scheduler, and go once it says that all blocks of their stripe can be read without them.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;
use repair::recovery::BlockFacts;
use repair::wire::control::{Description, ToNode};
use repair::{BlockId, NodeId, StripeId};
use stores::BlockState;

use crate::base::Base;
use crate::facts::Around;
use crate::facts::Facts;
use crate::out::Out;
use crate::questions::Subject;
use crate::repairs::Control;
use crate::repairs::Repairs;
use crate::stripes::Stripes;

/// What a helper that is back has yet to say of its blocks.
#[derive(Default)]
pub(crate) struct Unproven {
    /// The stripes of its blocks, which are held.
    stripes: Vec<StripeId>,
    /// The blocks that have said what they are.
    described: BTreeSet<BlockId>,
    /// Its stripes are let go then, though it has not said everything: others of their blocks may be lost as well.
    until: Duration,
}

/// How long stripes wait for what a node says of its blocks.
const PATIENCE: Duration = Duration::from_secs(10);

impl Control {
    /// A helper that was here before is back: what does it have?
    pub(crate) fn check_returned(&mut self, node: NodeId) {
        // At the start of a coordinator nobody was away; and a store that says what is in service does so without us.
        if self.base.nature.tells_service
            || !self.nodes.settled
            || self.stripes.picture.block_count(node) == 0
        {
            return;
        }
        let mut stripes: Vec<StripeId> =
            self.stripes.picture.blocks_of(node).into_iter().map(|(stripe, _)| stripe).collect();
        stripes.dedup();
        stripes.iter().for_each(|stripe| self.repairs.scheduler.hold(stripe));
        let unproven = Unproven { stripes, described: BTreeSet::new(), until: self.base.now + PATIENCE };
        self.stripes.unproven.insert(node, unproven);
        let ask = self.out.questions.open(node, Subject::Returned, self.base.now);
        self.nodes.send(node, ToNode::Describe { ask }, &mut self.out);
    }

    /// What blocks of a helper that is back say of themselves.
    pub(crate) fn take_returned(&mut self, node: NodeId, blocks: &[Description], last: bool) {
        let mut bad = Vec::new();
        if let Some(unproven) = self.stripes.unproven.get_mut(&node) {
            unproven.described.extend(blocks.iter().map(|block| block.id.clone()));
        }
        for block in blocks {
            let Ok((stripe, index)) = self.stripes.picture.find_block(&block.id) else { continue };
            let Ok(record) = self.stripes.picture.stripe(&stripe) else { continue };
            let known = &record.blocks[usize::from(index.0)];
            let differs = known.digest.is_some() && block.digest.is_some() && known.digest != block.digest;
            if known.id == block.id
                && known.node == Some(node)
                && known.state == BlockState::Healthy
                && differs
            {
                self.stripes.remember_loss(
                    around!(self),
                    node,
                    &block.id,
                    "another digest than the recorded one".to_owned(),
                    &mut self.out,
                );
                bad.push((stripe, index, node, BlockState::Corrupt));
            }
        }
        for (stripe, index, node, _) in &bad {
            // Before that is stored, their stripes may be let go.
            let facts = BlockFacts { node: Some(*node), good: false };
            self.repairs.scheduler.handle_block(stripe, *index, facts);
        }
        if !bad.is_empty() {
            self.stripes.store_states(around!(self), bad, &mut self.out);
        }
        if last {
            self.stripes.look_at_silent(around!(self), node, &mut self.out);
            self.trust_returned(node);
        }
    }

    /// From now on repairs count on what a helper has; or it has gone again.
    pub(crate) fn trust_returned(&mut self, node: NodeId) {
        let unproven = self.stripes.unproven.remove(&node).unwrap_or_default();
        unproven.stripes.iter().for_each(|stripe| self.repairs.scheduler.let_go(stripe));
    }

    /// Lets stripes go that have waited long enough.
    pub(crate) fn stop_waiting_for_returned(&mut self) {
        let Self { stripes: Stripes { unproven, .. }, repairs, base: Base { now, .. }, .. } = self;
        for late in unproven.values_mut().filter(|unproven| unproven.until <= *now) {
            let stripes = std::mem::take(&mut late.stripes);
            stripes.iter().for_each(|stripe| repairs.scheduler.let_go(stripe));
        }
    }

    /// All blocks of a stripe can be read without a copy, and nobody works on it.
    pub(super) fn drop_surplus(&mut self, stripe: &StripeId, index: BlockIndex, node: NodeId) {
        let Ok(record) = self.stripes.picture.stripe(stripe) else { return };
        let block: BlockId = record.blocks[usize::from(index.0)].id.clone();
        if self.facts().survives_without(&record, index, node) {
            self.stripes.remove_copy(around!(self), &self.jobs, node, block, &mut self.out);
        }
    }
}

impl Stripes {
    /// Has the blocks verified that could not say what they are.
    fn look_at_silent(&mut self, around: Around<'_>, node: NodeId, out: &mut Out) {
        let Some(unproven) = self.unproven.get_mut(&node) else { return };
        let described = std::mem::take(&mut unproven.described);
        for (stripe, index) in self.picture.blocks_of(node) {
            let Ok(record) = self.picture.stripe(&stripe) else { continue };
            let known = record.blocks[usize::from(index.0)].clone();
            if known.state == BlockState::Healthy && !described.contains(&known.id) {
                self.look_again(around, node, stripe, index, known, out);
            }
        }
    }
}

impl Repairs {
    /// A helper has a copy of a block that has another home: the scheduler says when it may go.
    pub(crate) fn tell_surplus(
        &mut self,
        facts: Facts<'_>,
        node: NodeId,
        stripe: &StripeId,
        index: BlockIndex,
    ) {
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return };
        let facts: Vec<BlockFacts> = record.blocks.iter().map(|block| facts.block_facts(block)).collect();
        self.scheduler.handle_surplus(stripe, index, node, &facts);
    }
}
