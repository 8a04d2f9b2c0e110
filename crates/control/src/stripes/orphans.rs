//! Removing orphans that nothing refers to.

use std::time::Duration;

use repair::wire::control::ToNode;
use repair::{BlockId, NodeId};

use crate::facts::{Facts, OuterFacts};
use crate::helper_queries::Subject;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::stripes::Stripes;

const LOOK_EVERY: Duration = Duration::from_secs(15);

impl Stripes {
    /// Asks helpers to describe their orphans, if some of these can be removed.
    pub(crate) fn tidy_orphans(&mut self, outer: OuterFacts<'_>, out: &mut Out) {
        if !outer.base.store.owns_files()
            || outer.base.is_dry_run()
            || !outer.nodes.settled
            || !outer.with(self).may_remove()
            || outer.base.now < self.orphans.due
        {
            return;
        }
        self.orphans.due = outer.base.now + LOOK_EVERY;
        for node in outer.nodes.live_helpers().collect::<Vec<_>>() {
            // A description of all blocks takes a helper long, so it is asked for one at a time.
            if !out.queries.is_tidying(node) && outer.with(self).removable_orphans(node).next().is_some() {
                let ask = out.queries.open(node, Subject::Tidying, outer.base.now);
                outer.nodes.send(node, ToNode::Describe { ask }, out);
            }
        }
    }

    /// Handles the end of a helper's descriptions of its blocks. Removable orphans that the helper still has
    /// are kept, and are not checked again until the helper lists its blocks anew, except those whose stripes are
    /// being read or repaired.
    pub(crate) fn end_tidying(&mut self, outer: OuterFacts<'_>, jobs: &Jobs, node: NodeId) {
        let facts = outer.with(self);
        let is_kept = |block: &&BlockId| !jobs.is_worked_on(facts, block);
        let left: Vec<BlockId> = facts.removable_orphans(node).filter(is_kept).cloned().collect();
        self.orphans.refused.entry(node).or_default().extend(left);
    }
}

impl<'a> Facts<'a> {
    /// Returns the unreferenced orphans of a helper, without those that a check has already kept.
    fn removable_orphans(self, node: NodeId) -> impl Iterator<Item = &'a BlockId> {
        let orphans = self.stripes.inventory.get(node).map(|held| &held.orphans);
        let refused = self.stripes.orphans.refused.get(&node);
        let is_new = move |block: &&BlockId| refused.is_none_or(|refused| !refused.contains(*block));
        orphans.into_iter().flatten().filter(is_new).filter(move |block| self.is_unreferenced(node, block))
    }
}
