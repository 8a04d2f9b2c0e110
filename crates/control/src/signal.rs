//! What one machine has found out that is another one's business. [`Control`](crate::Control) routes it
//! there.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use recovery::ItemId;
use repair::{BlockProblem, JobError, JobId, JobRequest, NodeId, Outcome, StripeId};
use store_api::{BlockRecord, BlockState};
use views::FoundBy;

use crate::jobs::owner::Owner;

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
    /// A stripe has been removed.
    Removed(StripeId),
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
    /// A job is to start that does not wait for room.
    Start { owner: Owner, request: Box<JobRequest> },
    /// A job is not wanted any more.
    Cancel(JobId),
    /// A job has ended, and all that it stored is recorded.
    Ended { job: JobId, result: Box<Result<Outcome, JobError>> },
    /// The job of a repair has stored a block at a node, which may stand in for the one that was proposed.
    Delivered { item: ItemId, node: NodeId },
    /// A node was given a task of a job.
    Assigned(NodeId),
    /// Nodes held up a repair, which each let have so many bytes a second.
    HeldUp(BTreeMap<NodeId, f64>),
    /// A node held up a repair, which it let have so many bytes a second.
    Slow { node: NodeId, rate: f64 },
    /// A node that counted as slow is not.
    Acquitted(NodeId),
    /// What a link carries was measured: the best of the sender's and of the receiver's links, and this
    /// one's.
    Measured { link: (NodeId, NodeId), ports: [Option<f64>; 2], pair: Option<f64> },
    /// Links are not measured any more.
    MeasuredAll,
    /// A job has stored blocks of a stripe that was described.
    GivenStored { stripe: StripeId, blocks: Vec<(BlockIndex, NodeId)> },
    /// A job could not read a block of such a stripe.
    GivenLost { stripe: StripeId, index: BlockIndex, node: NodeId, state: BlockState },
    /// A job could not read a block for a reason that says nothing of it.
    Unavailable { stripe: StripeId, index: BlockIndex, node: NodeId, known: BlockRecord },
    /// A block could not be read.
    Unread { stripe: StripeId, index: BlockIndex, node: NodeId, known: BlockRecord, problem: BlockProblem },
    /// A helper is gone.
    Gone { node: NodeId, why: String },
    /// Helpers may have blocks that the catalog places elsewhere.
    SeekHomes,
    /// All helpers have come that are expected, or none of them claims any more that the catalog is an old
    /// one.
    Settled,
}
