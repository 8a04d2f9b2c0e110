//! Continuations: what the control plane does once the storage has answered a write about blocks or the age
//! of the catalog.

use std::collections::BTreeSet;

use repair::{BlockId, NodeId, StripeId};
use views::AcceptedView;

use crate::effect::Reply;

/// The continuation of a write about blocks or the age of the catalog.
pub(crate) enum StripeThen {
    /// States of these copies are recorded; `write` is the [number](crate::stripes::state::unrecorded) of the write, and
    /// `bad` are the stripes of copies that were found bad.
    Known { write: u64, copies: Vec<(BlockId, NodeId)>, bad: BTreeSet<StripeId> },
    /// A found block is recorded on its node; `by_name` if no digest was recorded before.
    Adopted { node: NodeId, stripe: StripeId, block: BlockId, by_name: bool },
    /// A node has removed a block, and the removal is recorded.
    Discarded { node: NodeId, block: BlockId },
    /// An orphan is marked for removal.
    Needless { node: NodeId, block: BlockId },
    /// The operator's decision to continue with this catalog is recorded.
    Accepted { view: Box<AcceptedView>, reply: Reply<AcceptedView> },
}
