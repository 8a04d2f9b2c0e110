//! What helpers hold against what the catalog places on them.
//!
//! A block that a helper holds may be its own; its own and back after it was bad; one that the catalog places
//! on somebody who does not have it, and then it is verified and *adopted*; one that no stripe knows, an
//! *orphan*; or one of a stripe that this catalog has yet to count, and then the catalog is an old one that
//! was put back, and nothing is changed until somebody decides what to do about that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, StripeId};

/// What a helper that is connected holds against what the catalog places on it.
#[derive(Default)]
pub(crate) struct Holdings {
    /// Blocks that no stripe knows.
    pub orphans: BTreeSet<BlockId>,
    /// Blocks it was told to remove and that it has not answered for.
    pub removing: BTreeSet<BlockId>,
    /// Blocks that it could not remove, and when it is asked again.
    pub stuck: BTreeMap<BlockId, Duration>,
    /// Bad blocks that it has again, to be verified before they count.
    pub rechecks: VecDeque<(StripeId, BlockIndex)>,
}
