//! What is asked for, stripe by stripe, and what becomes of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code};
use repair::{BlockId, JobId, NodeId, Stretch, StripeId, Wanted};
use serde::{Deserialize, Serialize};

use super::budget::Lack;
use super::nodes::{Booking, NodeNo};
use super::queue::{Key, Priority};
use super::{HelperPolicy, RepairId};

/// What a repair is about. The driver, who knows the stripes, names its items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// One block.
    Block(BlockId),
    /// All that is lost of a stripe.
    Stripe(StripeId),
    /// All that is lost of the stripes that have a block on a node.
    Node(NodeId),
    /// All blocks of a node that is to be emptied.
    Drain(NodeId),
    /// Blocks that are to be on emptier nodes.
    Rebalance(Vec<BlockId>),
    /// All that is lost.
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
    /// How much it matters beside others.
    pub priority: Priority,
    /// Who helps.
    pub helpers: HelperPolicy,
    /// The only nodes that get blocks, such as hot standbys; any, if there are none.
    pub requestors: Vec<NodeId>,
}

/// An item of the scheduler; its number may be another's once its repair is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(pub(super) u32);

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{}", self.0)
    }
}

/// How a stripe's blocks get to where they shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// What is lost is rebuilt from what survives.
    #[default]
    Reconstruct,
    /// What a node holds is copied from it. Once that node is down, it is rebuilt.
    Migrate {
        /// The node.
        from: NodeId,
    },
    /// What a node holds is rebuilt from what others hold, though the node can still be read.
    Rebuild {
        /// The node, which is not read.
        from: NodeId,
    },
    /// What a node holds is copied from it while that ends no later than rebuilding the rest does, and rebuilt from
    /// others otherwise. Each proposal is one of both.
    Drain {
        /// The node.
        from: NodeId,
    },
}

impl Kind {
    /// The node that is to be emptied.
    pub fn leaves(self) -> Option<NodeId> {
        match self {
            Self::Reconstruct => None,
            Self::Migrate { from } | Self::Rebuild { from } | Self::Drain { from } => Some(from),
        }
    }
}

/// One stripe of a repair.
#[derive(Clone, Debug)]
pub struct NewItem {
    /// The stripe.
    pub stripe: StripeId,
    /// Its code.
    pub code: Arc<dyn Code>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Where its blocks are, all n by index.
    pub blocks: Vec<BlockFacts>,
    /// How.
    pub kind: Kind,
    /// The only blocks that are wanted; all that are lost, or on the node that is emptied, if it is empty.
    pub only: Vec<BlockIndex>,
}

/// What the store says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFacts {
    /// The node that has it, or had it last.
    pub node: Option<NodeId>,
    /// Whether it can be read if the node is up.
    pub good: bool,
}

/// What an item is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemState {
    /// It waits for its turn, or for its stripe.
    Waiting,
    /// It failed and waits to be tried again.
    BackingOff {
        /// When.
        until: Duration,
    },
    /// Its stripe cannot be read now. It ends so if that does not change before its repair has nothing else to do.
    SetAside,
    /// A job works on it.
    Running(JobId),
    /// It has ended.
    Ended(End),
}

/// How an item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What was wanted is where it shall be.
    Repaired,
    /// There was nothing to do.
    NothingLost,
    /// It failed too often, or will never succeed.
    Failed,
    /// It was repaired again and again, and each time something else was lost.
    LostAgain,
    /// The stripe cannot be read.
    Unreadable {
        /// Its blocks that are lost.
        lost: u16,
    },
    /// It was called off.
    Cancelled,
}

/// How the repair of a stripe failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may succeed later, or with other nodes.
    Transient,
    /// It never will.
    Permanent,
}

/// Items of a repair by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Waiting for anything, those set aside included.
    pub waiting: u64,
    /// Running.
    pub running: u64,
    /// Repaired, or with nothing lost.
    pub done: u64,
    /// Failed.
    pub failed: u64,
    /// Ended as unreadable.
    pub unreadable: u64,
    /// Called off.
    pub cancelled: u64,
}

impl Counters {
    /// All items.
    pub fn items(&self) -> u64 {
        self.waiting + self.running + self.done + self.failed + self.unreadable + self.cancelled
    }

    /// Items that have not ended.
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
    /// Its repair.
    pub repair: RepairId,
    /// Its stripe.
    pub stripe: StripeId,
    /// How: a migration from a node that is down is a reconstruction, and a drain is one of both.
    pub kind: Kind,
    /// What goes where. Blocks that no node may take are left for a later round; none at all means that there is
    /// no such node.
    pub wanted: Vec<Wanted>,
    /// Nodes to read from, the preferred ones first.
    pub helpers: Vec<NodeId>,
    /// Chains that level what nodes send and receive, if the policy deals; the driver may do it otherwise.
    pub stretches: Vec<Stretch>,
}

/// What the driver has to know or to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Something can start.
    Propose(Proposal),
    /// A job is to be called off; report its end with [`handle_cancelled`](super::Scheduler::handle_cancelled).
    CancelJob {
        /// The job.
        job: JobId,
    },
    /// A node has a copy of a block that is not counted, and all blocks of the stripe can be read without it. The
    /// driver checks that once more before the copy is removed.
    DropSurplus {
        /// The stripe.
        stripe: StripeId,
        /// The block.
        block: BlockIndex,
        /// Who has the copy.
        node: NodeId,
    },
    /// An item has ended.
    ItemEnded {
        /// Its repair.
        repair: RepairId,
        /// The item.
        item: ItemId,
        /// Its stripe.
        stripe: StripeId,
        /// How.
        end: End,
    },
    /// All items of a repair have ended.
    RepairEnded {
        /// The repair.
        repair: RepairId,
    },
}

/// Where an item is.
#[derive(Debug)]
pub(super) enum ItemPhase {
    Queued(Key),
    /// Its stripe is worked on by somebody else.
    Held,
    Aside,
    BackingOff(Duration),
    Proposed,
    Running(JobId, Booking),
    Ended(End),
}

#[derive(Debug)]
pub(super) struct Item {
    pub repair: RepairId,
    /// Its stripe's number, until it ends.
    pub stripe: u32,
    pub sequence: u64,
    pub kind: Kind,
    pub only: Vec<BlockIndex>,
    pub phase: ItemPhase,
    pub failures: u32,
    pub rounds: u32,
    pub not_before: Option<Duration>,
    /// What its last plan did not get.
    pub lack: Option<Lack>,
    /// Its job is called off because what it wanted is back.
    pub stopping: bool,
    /// When its job is late.
    pub due: Option<Duration>,
    /// Jobs of it that were late.
    pub late: u32,
    /// Nodes that had a part in jobs that were late.
    pub slow: BTreeSet<NodeNo>,
    /// It was put back, and waits for news later than this.
    pub sat_out: Option<u64>,
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
