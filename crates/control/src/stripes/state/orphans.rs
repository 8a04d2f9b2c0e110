//! Orphans that go by themselves: those of which it is proven that nothing refers to them.
//!
//! A copy of a block is proven to be needless if its stripe survives all that its code tolerates without it.
//! A block of no stripe is, if a coordinator over this very catalog gave it its name: then its file was
//! removed, or was never committed. All others stay until somebody says `mend scrub --remove-orphans`, as an
//! older catalog may have forgotten what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repair::{BlockId, NodeId};

/// When orphans are looked at, and those that were and stay.
#[derive(Default)]
pub(crate) struct Orphans {
    pub(in crate::stripes) due: Duration,
    pub(in crate::stripes) refused: BTreeMap<NodeId, BTreeSet<BlockId>>,
}

impl Orphans {
    /// A helper has listed its blocks anew.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.refused.remove(&node);
    }
}
