//! Orphans that go by themselves: those of which it is proven that nothing refers to them.
//!
//! A copy of a block is proven to be needless if its stripe survives all that its code tolerates without it. A block of no
//! stripe is, if a coordinator over this very catalog gave it its name: then its file was removed, or was never committed. All
//! others stay until somebody says `mend scrub --remove-orphans`, as an older catalog may have forgotten what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repair::wire::control::ToNode;
use repair::{BlockId, NodeId};

use super::Control;
use super::nodes::PeerKind;
use super::questions::Subject;

const LOOK_EVERY: Duration = Duration::from_secs(15);

/// When orphans are looked at, and those that were and stay.
#[derive(Default)]
pub(crate) struct Orphans {
    due: Duration,
    refused: BTreeMap<NodeId, BTreeSet<BlockId>>,
}

impl Orphans {
    /// A helper has listed its blocks anew.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.refused.remove(&node);
    }
}

impl Control {
    /// Asks helpers what their orphans say of themselves, if some of these may go.
    pub(crate) fn tidy_orphans(&mut self) {
        if !self.base.nature.files
            || !self.nodes.settled
            || !self.may_remove()
            || self.base.now < self.stripes.orphans.due
        {
            return;
        }
        self.stripes.orphans.due = self.base.now + LOOK_EVERY;
        for node in self.live_helpers().collect::<Vec<_>>() {
            if self.tidied(node).next().is_some() {
                let ask = self.ask(node, Subject::Tidying);
                self.send(node, ToNode::Describe { ask });
            }
        }
    }

    /// A helper has said what its blocks are: what is still there stays.
    pub(crate) fn end_tidying(&mut self, node: NodeId) {
        let left: Vec<BlockId> = self.tidied(node).cloned().collect();
        self.stripes.orphans.refused.entry(node).or_default().extend(left);
    }

    /// Whether nothing refers to an orphan, as far as its name says.
    pub(crate) fn is_unreferenced(&self, node: NodeId, block: &BlockId) -> bool {
        match self.record_of(block) {
            Some((stripe, index, _)) => self.is_spare(&stripe, index, node),
            None => self.stripes.picture.was_given(block),
        }
    }

    /// The orphans of a helper that may go by themselves and were not looked at.
    fn tidied(&self, node: NodeId) -> impl Iterator<Item = &BlockId> {
        let orphans = match self.nodes.peers.get(&node).map(|peer| &peer.kind) {
            Some(PeerKind::Helper { orphans, .. }) => Some(orphans),
            _ => None,
        };
        let refused = self.stripes.orphans.refused.get(&node);
        let is_new = move |block: &&BlockId| refused.is_none_or(|refused| !refused.contains(*block));
        orphans.into_iter().flatten().filter(is_new).filter(move |block| self.is_unreferenced(node, block))
    }
}
