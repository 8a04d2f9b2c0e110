//! Signals: a state machine reports a finding that another state machine must handle.
//! [`Control`](crate::Control) delivers them.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use recovery::ItemId;
use repair::{BlockProblem, JobError, JobId, JobRequest, NodeId, Outcome, StripeId};
use store_api::{BlockRecord, BlockState};
use views::FoundBy;

use crate::jobs::owner::Owner;

/// A finding of one state machine for another.
pub(crate) enum Signal {
    /// The scheduler's facts about a node have changed.
    Node(NodeId),
    /// A node's blocks or its free space have changed.
    Space(NodeId),
    /// A node has connected or disconnected. For blocks with several copies, the scheduler may have to use
    /// another copy.
    Replicas(NodeId),
    /// The capacity or the cap of a rack's trunk has changed.
    Trunk(String),
    /// The recorded homes of a stripe's blocks have changed.
    Blocks(StripeId),
    /// A stripe has been removed.
    Removed(StripeId),
    /// A node has a copy of a block whose recorded home is another node.
    Surplus { node: NodeId, stripe: StripeId, index: BlockIndex },
    /// Blocks of a stripe contradict each other.
    Contradiction { stripe: StripeId, blocks: BTreeSet<BlockIndex>, found_by: FoundBy },
    /// A contradiction between blocks of this stripe was recorded for the first time.
    ContradictionAdded(StripeId),
    /// The parity of a stripe must be checked, because several copies of a block may differ.
    Doubtful(StripeId),
    /// A parity check has passed. It has read these blocks, each on its node.
    ParityHeld { stripe: StripeId, read: BTreeMap<BlockIndex, NodeId> },
    /// A parity check has identified a wrong block.
    Wrong { stripe: StripeId, index: BlockIndex, node: NodeId },
    /// Start a job that does not wait for budget.
    Start { owner: Owner, request: Box<JobRequest> },
    /// Cancel a job.
    Cancel(JobId),
    /// A job has ended, and all blocks that it stored are recorded.
    Ended { job: JobId, result: Box<Result<Outcome, JobError>> },
    /// The job of a repair has stored a block on a node, which may differ from the proposed node.
    Delivered { item: ItemId, node: NodeId },
    /// A node was assigned a task of a job.
    Assigned(NodeId),
    /// These nodes held up a repair; the value is the rate of each in bytes per second.
    HeldUp(BTreeMap<NodeId, f64>),
    /// A node held up a repair at this rate, in bytes per second.
    Slow { node: NodeId, rate: f64 },
    /// A node that was suspected to be slow is not slow.
    Acquitted(NodeId),
    /// A link was measured. `ports` has two rates: the best over all links from the sender, and the best over
    /// all links to the receiver. `pair` has the rate of this link.
    Measured { link: (NodeId, NodeId), ports: [Option<f64>; 2], pair: Option<f64> },
    /// The measurement of links has ended.
    MeasuredAll,
    /// A job has stored blocks of a stripe that a plug-in described.
    GivenStored { stripe: StripeId, blocks: Vec<(BlockIndex, NodeId)> },
    /// A job could not read a block of a stripe that a plug-in described.
    GivenLost { stripe: StripeId, index: BlockIndex, node: NodeId, state: BlockState },
    /// A job could not read a block, for a reason that says nothing about the block's health.
    Unavailable { stripe: StripeId, index: BlockIndex, node: NodeId, known: BlockRecord },
    /// A job found a block unreadable or damaged.
    Unread { stripe: StripeId, index: BlockIndex, node: NodeId, known: BlockRecord, problem: BlockProblem },
    /// The store has reported a node in or out of service.
    Service { node: NodeId, up: bool },
    /// A helper's outage has begun.
    Gone { node: NodeId, why: String },
    /// Helpers may have blocks that the catalog places elsewhere; look for them.
    SeekHomes,
    /// The start-up phase has ended, or the last claim that the catalog is outdated was withdrawn.
    Settled,
}
