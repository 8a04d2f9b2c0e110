//! Compares the blocks that helpers hold with the blocks that the catalog places on them.
//!
//! A block on a helper is one of the following:
//! - recorded there as healthy;
//! - recorded there as bad, and present again: it is verified;
//! - recorded on another helper that has lost it: it is verified and *adopted*;
//! - an *orphan*: no stripe contains it;
//! - newer than the catalog: its stripe number has not been reached yet. The catalog is then an old copy, and
//!   nothing is changed until an operator decides.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, StripeId};

/// The differences between a connected helper's blocks and the catalog.
#[derive(Default)]
pub(crate) struct Holdings {
    /// Blocks that no stripe contains.
    pub orphans: BTreeSet<BlockId>,
    /// Blocks that it was told to remove, without an answer so far.
    pub removing: BTreeSet<BlockId>,
    /// Blocks that it could not remove, and the time of the next attempt.
    pub stuck: BTreeMap<BlockId, Duration>,
    /// Blocks that must be verified before they count as healthy, such as bad blocks that are present again.
    pub rechecks: VecDeque<(StripeId, BlockIndex)>,
}
