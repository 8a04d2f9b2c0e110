//! Automatic removal of orphans that are proven unreferenced.
//!
//! A copy of a block is proven surplus if its stripe tolerates as many losses without the copy as its code
//! allows. A block without a stripe is proven unreferenced if a coordinator that used this catalog assigned
//! its name: its file was then removed, or never committed. All other orphans stay until an operator runs
//! `mend scrub --remove-orphans`, because an older catalog may have lost their stripes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repair::{BlockId, NodeId};

/// The time of the next check, and the orphans that a check has already kept.
#[derive(Default)]
pub(crate) struct Orphans {
    pub(in crate::stripes) due: Duration,
    pub(in crate::stripes) refused: BTreeMap<NodeId, BTreeSet<BlockId>>,
}

impl Orphans {
    /// Forgets which orphans of a helper were kept, because the helper has listed its blocks again.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.refused.remove(&node);
    }
}
