//! Orphans that go by themselves: those of which it is proven that nothing refers to them.
//!
//! A copy of a block is proven to be needless if its stripe survives all that its code tolerates without it.
//! A block of no stripe is, if a coordinator over this very catalog gave it its name: then its file was
//! removed, or was never committed. All others stay until somebody says `mend scrub --remove-orphans`, as an
//! older catalog may have forgotten what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repair::wire::control::ToNode;
use repair::{BlockId, NodeId};

use crate::facts::{Around, Facts};
use crate::out::Out;
use crate::questions::Subject;
use crate::stripes::Stripes;

const LOOK_EVERY: Duration = Duration::from_secs(15);

/// When orphans are looked at, and those that were and stay.
#[derive(Default)]
pub(crate) struct Orphans {
    due: Duration,
    refused: BTreeMap<NodeId, BTreeSet<BlockId>>,
}

impl Orphans {
    /// The orphans of a helper that nothing refers to and that have not been refused yet.
    fn removable<'a>(&'a self, facts: Facts<'a>, node: NodeId) -> impl Iterator<Item = &'a BlockId> {
        let orphans = facts.stripes.holdings.get(&node).map(|held| &held.orphans);
        let refused = self.refused.get(&node);
        let is_new = move |block: &&BlockId| refused.is_none_or(|refused| !refused.contains(*block));
        orphans.into_iter().flatten().filter(is_new).filter(move |block| facts.is_unreferenced(node, block))
    }

    /// A helper has listed its blocks anew.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.refused.remove(&node);
    }
}

impl Stripes {
    /// Asks helpers what their orphans say of themselves, if some of these may go.
    pub(crate) fn tidy_orphans(&mut self, around: Around<'_>, out: &mut Out) {
        if !around.base.store.owns_files()
            || !around.nodes.settled
            || !around.with(self).may_remove()
            || around.base.now < self.orphans.due
        {
            return;
        }
        self.orphans.due = around.base.now + LOOK_EVERY;
        for node in around.nodes.live_helpers().collect::<Vec<_>>() {
            if self.orphans.removable(around.with(self), node).next().is_some() {
                let ask = out.questions.open(node, Subject::Tidying, around.base.now);
                around.nodes.send(node, ToNode::Describe { ask }, out);
            }
        }
    }

    /// A helper has said what its blocks are: what is still there stays.
    pub(crate) fn end_tidying(&mut self, around: Around<'_>, node: NodeId) {
        let left: Vec<BlockId> = self.orphans.removable(around.with(self), node).cloned().collect();
        self.orphans.refused.entry(node).or_default().extend(left);
    }
}
