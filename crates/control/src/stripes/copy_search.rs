//! Searches the connected helpers for spare copies of lost blocks: among their orphans, and among the copies that
//! they are about to remove.
//!
//! Helpers may hold millions of spare copies, most of which nothing wants. So if blocks of a stripe are found bad,
//! only copies of this stripe's blocks are looked up. All copies are looked at in rounds, some at a time.
//!
//! **Liveness:** a copy that stays wanted is found, whatever made it wanted, because new rounds begin all the time.

use std::collections::BTreeSet;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};

use crate::facts::spare_copies::{has_spare_copy, spare_copies, wanted_among};
use crate::facts::{Facts, OuterFacts};
use crate::out::Out;
use crate::stripes::Stripes;

/// How many copies a look compares with the catalog.
const LOOK_AT: usize = 1024;
/// The copies of at most so many stripes are looked up at a time. If more stripes have lost blocks, a round finds
/// their copies.
const STRIPES_AT_ONCE: usize = 64;

impl Stripes {
    /// Begins a round of looks at all spare copies.
    pub(crate) fn seek_copies(&mut self, outer: OuterFacts<'_>, out: &mut Out) {
        self.inventory.search.request();
        self.look_at_copies(outer, out);
    }

    /// Looks at the next spare copies if a look is due, and has wanted ones verified.
    pub(crate) fn look_at_copies(&mut self, outer: OuterFacts<'_>, out: &mut Out) {
        if !self.may_seek(outer) || !self.inventory.search.begin_look(outer.base.now) {
            return;
        }
        let from = self.inventory.search.stopped_at.take();
        let look = look_after(outer.with(self), from.as_ref());
        self.inventory.search.stopped_at = look.stopped_at;
        for (node, blocks) in look.wanted {
            self.recheck(outer, node, blocks, out);
        }
    }

    /// Has wanted copies of the blocks of these stripes verified. Some of the blocks were found bad.
    pub(crate) fn seek_copies_of(
        &mut self,
        outer: OuterFacts<'_>,
        stripes: &BTreeSet<StripeId>,
        out: &mut Out,
    ) {
        if stripes.len() > STRIPES_AT_ONCE {
            return self.seek_copies(outer, out);
        }
        if stripes.is_empty() || !self.may_seek(outer) {
            return;
        }
        self.inventory.search.count_look();
        // If the stripe cannot be read any more, copies of its other blocks may be wanted too.
        let records = stripes.iter().filter_map(|stripe| self.picture.stripe(stripe).ok());
        let blocks: Vec<BlockId> = records.flat_map(|record| record.blocks).map(|block| block.id).collect();
        for node in outer.nodes.live_helpers().collect::<Vec<_>>() {
            let facts = outer.with(self);
            let copies = blocks.iter().filter(|block| has_spare_copy(facts, node, block));
            let wanted = wanted_among(facts, node, copies);
            if !wanted.is_empty() {
                self.recheck(outer, node, wanted, out);
            }
        }
    }

    /// Whether copies may be put into service. Finding one mounts shards and changes files beside them.
    fn may_seek(&self, outer: OuterFacts<'_>) -> bool {
        outer.nodes.settled && !self.newer.is_behind() && !outer.base.is_dry_run()
    }
}

/// The result of a look at some of the spare copies.
struct Look {
    /// The wanted copies among them, by node.
    wanted: Vec<(NodeId, Vec<(StripeId, BlockIndex)>)>,
    /// The copy at which the look has stopped; `None` if it has reached the last one.
    stopped_at: Option<(NodeId, BlockId)>,
}

/// Looks at the next spare copies in the order of nodes and names, beginning after `from`.
fn look_after(facts: Facts<'_>, from: Option<&(NodeId, BlockId)>) -> Look {
    let (mut left, mut wanted) = (LOOK_AT, Vec::new());
    for node in facts.nodes.live_helpers().filter(|node| from.is_none_or(|(first, _)| node >= first)) {
        let after = from.filter(|(first, _)| *first == node).map(|(_, block)| block);
        let copies = spare_copies(facts, node, after, left);
        left -= copies.len();
        let stopped_at = copies.last().filter(|_| left == 0).map(|&last| (node, last.clone()));
        let found = wanted_among(facts, node, copies);
        if !found.is_empty() {
            wanted.push((node, found));
        }
        if stopped_at.is_some() {
            return Look { wanted, stopped_at };
        }
    }
    Look { wanted, stopped_at: None }
}
