//! Items of repairs: one per stripe, with the wanted blocks and the outcome.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code};
use repair::{BlockId, JobId, NodeId, Policy, Scheme, Stretch, StripeId, Wanted};
use serde::{Deserialize, Serialize};

use super::budget::Lack;
use super::nodes::{Booking, NodeNo};
use super::queue::{Key, Priority};
use super::{HelperPolicy, RepairId};

/// The blocks that a repair covers. The driver finds their stripes and adds an item for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// One block.
    Block(BlockId),
    /// All lost blocks of a stripe.
    Stripe(StripeId),
    /// All lost blocks of the stripes that have a block on a node.
    Node(NodeId),
    /// All blocks of a node that is being drained.
    Drain(NodeId),
    /// Blocks to move to emptier nodes.
    Rebalance(Vec<BlockId>),
    /// All lost blocks.
    All,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(block) => write!(f, "block {block}"),
            Self::Stripe(stripe) => write!(f, "stripe {stripe}"),
            Self::Node(node) => write!(f, "node {node}"),
            Self::Drain(node) => write!(f, "drain {node}"),
            Self::Rebalance(_) => f.write_str("rebalance"),
            Self::All => f.write_str("all"),
        }
    }
}

/// A repair as the scheduler sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairSpec {
    /// Priority relative to other repairs.
    pub priority: Priority,
    /// How helpers are chosen.
    pub helpers: HelperPolicy,
    /// The only nodes that may get blocks, such as hot standbys. If the list is empty, any node may.
    pub requestors: Vec<NodeId>,
}

/// Number of an item. It may be reused once the item's repair is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(pub(super) u32);

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{}", self.0)
    }
}

/// How the blocks of a stripe get to their new nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Lost blocks are rebuilt from survivors.
    #[default]
    Reconstruct,
    /// Blocks of a node are copied from it. If the node goes down, they are rebuilt.
    Migrate {
        /// The node.
        from: NodeId,
    },
    /// Blocks of a node are rebuilt from other nodes, though the node can still be read.
    Rebuild {
        /// The node, which is not read.
        from: NodeId,
    },
    /// Each block of a node is copied if copying it ends no later than the other nodes would finish
    /// rebuilding all waiting blocks. Otherwise the block is rebuilt.
    ///
    /// Each proposal is either a copy or a rebuild.
    Drain {
        /// The node.
        from: NodeId,
    },
}

impl Kind {
    /// Returns the node that blocks move away from.
    pub fn leaves(self) -> Option<NodeId> {
        match self {
            Self::Reconstruct => None,
            Self::Migrate { from } | Self::Rebuild { from } | Self::Drain { from } => Some(from),
        }
    }
}

/// A stripe to add to a repair.
#[derive(Clone, Debug)]
pub struct NewItem {
    /// The stripe.
    pub stripe: StripeId,
    /// The stripe's code.
    pub code: Arc<dyn Code>,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Locations of all n blocks, by index.
    pub blocks: Vec<BlockFacts>,
    /// How the blocks are repaired.
    pub kind: Kind,
    /// The blocks to repair. If empty, all blocks that are lost or on the drained node are repaired.
    pub only: Vec<BlockIndex>,
}

/// The driver's facts about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// The node that has the block, or had it last.
    pub node: Option<NodeId>,
    /// The state of the block on that node.
    pub copy: CopyState,
}

impl BlockFacts {
    /// Returns the facts about a block with a good copy on this node.
    pub fn good_on(node: NodeId) -> Self {
        Self { node: Some(node), copy: CopyState::Good }
    }
}

/// The driver's knowledge of a block's copy on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// The copy can be read if the node is up.
    Good,
    /// The node has a copy with wrong or unreadable bytes, which a rebuilt block replaces.
    Bad,
    /// The node has no copy of the block.
    Missing,
}

/// Current state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemState {
    /// Waits in the queue, or for other work on its stripe to end.
    Waiting,
    /// Failed, and waits for the next attempt.
    BackingOff {
        /// Time of the next attempt.
        until: Duration,
    },
    /// Set aside, because too few blocks of the stripe can be read now. If that remains so, the item ends as
    /// unreadable once its repair has nothing else to do.
    SetAside,
    /// A job is running.
    Running(JobId),
    /// Ended.
    Ended(End),
}

/// How an item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All wanted blocks are in place.
    Repaired,
    /// There was nothing to do.
    NothingLost,
    /// The item failed too often, or failed permanently.
    Failed,
    /// The stripe was repaired several times, and each time another block was lost.
    LostAgain,
    /// The stripe cannot be read.
    Unreadable {
        /// Number of lost blocks.
        lost: u16,
    },
    /// Cancelled.
    Cancelled,
}

/// How the repair of a stripe failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The repair may succeed later, or with other nodes.
    Transient,
    /// The repair will never succeed.
    Permanent,
}

/// Number of items of a repair, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Waiting for anything, including items set aside.
    pub waiting: u64,
    /// Running.
    pub running: u64,
    /// Repaired, or nothing was lost.
    pub done: u64,
    /// Failed.
    pub failed: u64,
    /// Ended as unreadable.
    pub unreadable: u64,
    /// Cancelled.
    pub cancelled: u64,
}

impl Counters {
    /// Returns the number of all items.
    pub fn items(&self) -> u64 {
        self.waiting + self.running + self.done + self.failed + self.unreadable + self.cancelled
    }

    /// Returns the number of items that have not ended.
    pub fn open(&self) -> u64 {
        self.waiting + self.running
    }

    pub(super) fn of(&mut self, phase: &ItemPhase) -> &mut u64 {
        match phase {
            ItemPhase::Running(..) => &mut self.running,
            ItemPhase::Ended(End::Repaired | End::NothingLost) => &mut self.done,
            ItemPhase::Ended(End::Failed | End::LostAgain) => &mut self.failed,
            ItemPhase::Ended(End::Unreadable { .. }) => &mut self.unreadable,
            ItemPhase::Ended(End::Cancelled) => &mut self.cancelled,
            _ => &mut self.waiting,
        }
    }
}

/// An item that can start. The driver answers with [`admit`](super::Scheduler::admit),
/// [`put_back`](super::Scheduler::put_back) or [`decline`](super::Scheduler::decline).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The item.
    pub item: ItemId,
    /// The item's repair.
    pub repair: RepairId,
    /// The item's stripe.
    pub stripe: StripeId,
    /// The resolved kind: a migration from a node that is down becomes a reconstruction, and a drain becomes
    /// a migration or a rebuild.
    pub kind: Kind,
    /// Wanted blocks and their requestors. A block that no permitted node can store now is left for a later
    /// round. The list is empty if no wanted block can be stored now.
    pub wanted: Vec<Wanted>,
    /// Nodes to read from, preferred ones first.
    pub helpers: Vec<NodeId>,
    /// Chains that balance the load of nodes, if the policy computes them. The driver may plan differently.
    pub stretches: Vec<Stretch>,
}

impl Proposal {
    /// Returns the policy for the plan of the item's job. `repair` is the policy of the whole repair.
    ///
    /// A rebuild does not read from the node that is being drained, although this node is readable. Only the
    /// scheme `auto` uses the scheduler's chains; a named scheme ignores them.
    pub fn policy(&self, repair: Policy) -> Policy {
        let (scheme, avoid) = match self.kind {
            Kind::Migrate { .. } => (Scheme::Migration, BTreeSet::new()),
            Kind::Rebuild { from } => (repair.scheme, BTreeSet::from([from])),
            _ => (repair.scheme, BTreeSet::new()),
        };
        let stretches = if scheme == Scheme::Auto { self.stretches.clone() } else { Vec::new() };
        Policy { scheme, avoid, stretches, prefer: self.helpers.clone(), ..repair }
    }
}

/// An event or request for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// An item can start.
    Propose(Proposal),
    /// Cancel a job, then report its end: with [`handle_cancelled`](super::Scheduler::handle_cancelled), or with
    /// [`handle_done`](super::Scheduler::handle_done) if the job published its blocks all the same.
    CancelJob {
        /// The job.
        job: JobId,
    },
    /// A node has a surplus copy of a block, and all blocks of the stripe can be read without it.
    ///
    /// The driver checks this once more before it removes the copy.
    DropSurplus {
        /// The stripe.
        stripe: StripeId,
        /// The block.
        block: BlockIndex,
        /// The node with the copy.
        node: NodeId,
    },
    /// An item has ended.
    ItemEnded {
        /// The item's repair.
        repair: RepairId,
        /// The item.
        item: ItemId,
        /// The item's stripe.
        stripe: StripeId,
        /// How the item ended.
        end: End,
    },
    /// All items of a repair have ended.
    RepairEnded {
        /// The repair.
        repair: RepairId,
    },
}

/// The phase of an item. It determines the index that the item is in.
#[derive(Debug)]
pub(super) enum ItemPhase {
    Queued(Key),
    /// A job of another item, or the driver, works on the item's stripe.
    Held,
    Aside,
    BackingOff(Duration),
    Proposed,
    Running(JobId, Booking),
    Ended(End),
}

/// Whether the job of an item is being cancelled, and what then becomes of the item. A later variant takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stopping {
    /// The job is not being cancelled.
    No,
    /// The item returns to the queue.
    Requeue,
    /// The item ends as cancelled.
    End,
}

#[derive(Debug)]
pub(super) struct Item {
    pub repair: RepairId,
    /// Number of the item's stripe, valid until the item ends.
    pub stripe: u32,
    pub sequence: u64,
    pub kind: Kind,
    pub only: Vec<BlockIndex>,
    pub phase: ItemPhase,
    pub failures: u32,
    pub rounds: u32,
    pub not_before: Option<Duration>,
    /// The resource that had no room for the item's last plan.
    pub lack: Option<Lack>,
    pub prepared: Prepared,
    pub stopping: Stopping,
    /// Deadline of the item's job.
    pub due: Option<Duration>,
    pub late: LateJobs,
    /// If the driver put the item back: the scan's count of news (events that may allow a waiting item to
    /// start) at that time. The item waits until the count rises.
    pub sat_out: Option<u64>,
}

/// An item's jobs that were late.
#[derive(Debug, Default)]
pub(super) struct LateJobs {
    pub count: u32,
    /// Nodes that took part in them.
    pub nodes: BTreeSet<NodeNo>,
}

/// The nodes that the driver prepares, or has prepared, for an item's blocks.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub wanted: Vec<Wanted>,
    /// The reservation at these nodes until they are prepared.
    pub booking: Booking,
}

impl ItemPhase {
    pub fn end(&self) -> Option<End> {
        match *self {
            Self::Ended(end) => Some(end),
            _ => None,
        }
    }
}

impl Item {
    /// Notes that the item's job is being cancelled.
    pub fn stop(&mut self, stopping: Stopping) {
        self.stopping = self.stopping.max(stopping);
    }

    /// Whether the item waits for its start.
    pub fn waits(&self) -> bool {
        !matches!(self.phase, ItemPhase::Proposed | ItemPhase::Running(..) | ItemPhase::Ended(_))
    }

    pub fn state(&self) -> ItemState {
        match self.phase {
            ItemPhase::Queued(_) | ItemPhase::Held | ItemPhase::Proposed => ItemState::Waiting,
            ItemPhase::Aside => ItemState::SetAside,
            ItemPhase::BackingOff(until) => ItemState::BackingOff { until },
            ItemPhase::Running(job, _) => ItemState::Running(job),
            ItemPhase::Ended(end) => ItemState::Ended(end),
        }
    }
}
