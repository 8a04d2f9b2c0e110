//! Helpers that come back while their blocks are being rebuilt.
//!
//! A returned helper describes its blocks by their checksum files, without reading them, and the descriptions are compared with
//! the recorded digests. Until then the scheduler holds the stripes of these blocks: no needless repair starts, and no repair
//! ends as needless that may be wanted after all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::{Description, ToNode};
use repair::{BlockId, NodeId, StripeId};
use stores::BlockState;

use crate::facts::Around;
use crate::out::Out;
use crate::questions::Subject;
use crate::signal::Signal;
use crate::stripes::Stripes;

/// How long the scheduler holds stripes for descriptions.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returned helpers that have not described all their blocks.
#[derive(Default)]
pub(crate) struct Returned(BTreeMap<NodeId, Unproven>);

struct Unproven {
    /// The stripes of its blocks, which the scheduler holds.
    stripes: Vec<StripeId>,
    /// The blocks that were described.
    described: BTreeSet<BlockId>,
    /// The scheduler lets its stripes go at this time in any case: other blocks of theirs may be lost as well.
    until: Duration,
}

impl Returned {
    /// Whether repairs do not count on the blocks of a helper yet.
    pub(crate) fn is_unproven(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }

    /// From now on repairs count on the blocks of a helper; or it has gone again.
    pub(crate) fn trust(&mut self, node: NodeId, out: &mut Out) {
        if let Some(unproven) = self.0.remove(&node) {
            out.tell(Signal::Trusted(unproven.stripes));
        }
    }

    /// Lets stripes go that have waited long enough.
    pub(crate) fn expire(&mut self, now: Duration, out: &mut Out) {
        for late in self.0.values_mut().filter(|late| late.until <= now && !late.stripes.is_empty()) {
            out.tell(Signal::Trusted(std::mem::take(&mut late.stripes)));
        }
    }
}

impl Stripes {
    /// A known helper is back: asks for descriptions of its blocks.
    pub(crate) fn check_returned(&mut self, around: Around<'_>, node: NodeId, out: &mut Out) {
        // No helper was away when the coordinator starts; and a store that tells what is in service needs no descriptions.
        if around.base.nature.tells_service || !around.nodes.settled || self.picture.block_count(node) == 0 {
            return;
        }
        let mut stripes: Vec<StripeId> =
            self.picture.blocks_of(node).into_iter().map(|(stripe, _)| stripe).collect();
        stripes.dedup();
        out.tell(Signal::Awaited(stripes.clone()));
        let until = around.base.now + PATIENCE;
        self.returned.0.insert(node, Unproven { stripes, described: BTreeSet::new(), until });
        let ask = out.questions.open(node, Subject::Returned, around.base.now);
        around.nodes.send(node, ToNode::Describe { ask }, out);
    }

    /// Compares descriptions of a returned helper's blocks with the recorded digests.
    pub(crate) fn take_returned(
        &mut self,
        around: Around<'_>,
        node: NodeId,
        blocks: &[Description],
        last: bool,
        out: &mut Out,
    ) {
        if let Some(unproven) = self.returned.0.get_mut(&node) {
            unproven.described.extend(blocks.iter().map(|block| block.id.clone()));
        }
        let mut bad = Vec::new();
        for block in blocks {
            let Some((stripe, index)) = self.contradicted_by(node, block) else { continue };
            let problem = "another digest than the recorded one".to_owned();
            self.remember_loss(around, node, &block.id, problem, out);
            out.tell(Signal::Contradicted { stripe: stripe.clone(), index, node });
            bad.push((stripe, index, node, BlockState::Corrupt));
        }
        if !bad.is_empty() {
            self.store_states(around, bad, out);
        }
        if last {
            self.look_at_silent(around, node, out);
            self.returned.trust(node, out);
        }
    }

    /// The block whose recorded digest differs from the one that its node tells, if it counts as healthy there.
    fn contradicted_by(&self, node: NodeId, told: &Description) -> Option<(StripeId, BlockIndex)> {
        let (stripe, index) = self.picture.find_block(&told.id).ok()?;
        let record = self.picture.stripe(&stripe).ok()?;
        let known = &record.blocks[usize::from(index.0)];
        let differs = known.digest.is_some() && told.digest.is_some() && known.digest != told.digest;
        let is_here = known.id == told.id && known.node == Some(node) && known.state == BlockState::Healthy;
        (is_here && differs).then_some((stripe, index))
    }

    /// Verifies the blocks that were not described.
    fn look_at_silent(&mut self, around: Around<'_>, node: NodeId, out: &mut Out) {
        let Some(unproven) = self.returned.0.get_mut(&node) else { return };
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
