//! What one machine has found out that is another one's business. [`Control`](crate::Control) routes it there.

use std::collections::BTreeSet;

use codes::BlockIndex;
use repair::{BlockProblem, NodeId, StripeId};
use stores::BlockRecord;
use views::FoundBy;

/// See the module's documentation.
pub(crate) enum Signal {
    /// What the scheduler knows of a node has changed.
    Node(NodeId),
    /// What a node holds or has room for has changed.
    Space(NodeId),
    /// A node has come or gone: of what is on others as well, one of those counts now.
    Replicas(NodeId),
    /// The trunk of a rack carries something else, or has another cap.
    Trunk(String),
    /// The recorded homes of a stripe's blocks have changed.
    Blocks(StripeId),
    /// A node has a copy of a block that has another home.
    Surplus { node: NodeId, stripe: StripeId, index: BlockIndex },
    /// A helper has come back with most of what it should have, or without it.
    Returned { node: NodeId, is_hollow: bool },
    /// Blocks of a stripe contradict each other.
    Contradiction { stripe: StripeId, blocks: BTreeSet<BlockIndex>, found_by: FoundBy },
    /// It was not known before.
    ContradictionAdded(StripeId),
    /// Parity was seen to hold over these blocks.
    ParityHeld { stripe: StripeId, blocks: BTreeSet<BlockIndex> },
    /// Parity says that a block is wrong.
    Wrong { stripe: StripeId, index: BlockIndex, node: NodeId },
    /// A block could not be read.
    Unread { stripe: StripeId, index: BlockIndex, node: NodeId, known: BlockRecord, problem: BlockProblem },
    /// All helpers have come that are expected, or none of them claims any more that the catalog is an old one.
    Settled,
}
