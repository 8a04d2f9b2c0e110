//! Writes to a storage, their answers, and changes that a storage reports.
//!
//! Everything is a value, so that the coordinator need not wait: a [`Write`] goes to the thread that owns the
//! [`Storage`](crate::Storage), which carries out all pending writes together and answers each with a [`Done`] or a
//! [`StoreError`]. A [`StoreChange`] states how something is from now on, whoever changed it: as part of an answer, when a
//! storage is read at the start, and when a store reports what others did.

use std::collections::BTreeSet;
use std::fmt;

use codes::{BlockIndex, CodeSpec};
use repair::{BlockId, Digest, NodeId, Permit, StripeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    BlockSize, BlockState, CatalogError, Eras, FileRecord, NodeRecord, PutError, PutId, PutRecord,
    StripeRecord,
};

/// A coordinator's term: a fencing token. Each coordinator that opens the records takes a higher one, and writes that
/// carry a lower one are refused from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {}", self.0)
    }
}

/// A durable change.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// To stripes, which every store has.
    Stripes(StripeWrite),
    /// To files, which only some stores have.
    Files(FileWrite),
    /// To the coordinator's own records.
    Records(RecordWrite),
}

/// A change of stripes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripeWrite {
    /// Records blocks of a stripe as healthy: each an index, its node and its digest.
    Publish {
        /// The stripe.
        stripe: StripeId,
        /// Its blocks; all of them or none.
        blocks: Vec<(BlockIndex, NodeId, Option<Digest>)>,
    },
    /// Sets the states of blocks on these nodes; all of them or none. A block that has moved to another node by then, or is
    /// gone, keeps its state.
    SetStates(Vec<(StripeId, BlockIndex, NodeId, BlockState)>),
    /// Locks a stripe against other writers, if the store has any, and announces that these nodes get these blocks of it.
    /// Answered by the permits that the store's own processes there ask for.
    Claim {
        /// The stripe.
        stripe: StripeId,
        /// The nodes; each is able to take a block once this is carried out.
        nodes: Vec<NodeId>,
        /// The blocks.
        blocks: Vec<BlockIndex>,
    },
    /// Unlocks a stripe.
    Release(StripeId),
    /// Inspects the files that the store keeps beside blocks. Findings are reported as [`StoreChange::Spoiled`] before the
    /// answer.
    Inspect,
}

impl StripeWrite {
    /// The stripe, if the change is one for which a store's own servers may have to be called: a publication, a claim, a
    /// release.
    pub fn stripe(&self) -> Option<&StripeId> {
        match self {
            Self::Publish { stripe, .. } | Self::Claim { stripe, .. } | Self::Release(stripe) => Some(stripe),
            Self::SetStates(_) | Self::Inspect => None,
        }
    }
}

/// A change of files or puts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileWrite {
    /// Begins a put, answered by its number; with `replace`, its commit removes an existing file of that name.
    BeginPut {
        /// The file's name.
        name: String,
        /// Its length.
        bytes: u64,
        /// Its code.
        code: CodeSpec,
        /// Its blocks.
        size: BlockSize,
        /// Whether a file of that name may exist.
        replace: bool,
    },
    /// Allocates the stripe of a put at a position, with a block on each of these nodes; answered by the stripe.
    Allocate {
        /// The put.
        put: PutId,
        /// The position in the file.
        position: u32,
        /// Its blocks.
        size: BlockSize,
        /// The nodes, by block index.
        nodes: Vec<NodeId>,
    },
    /// Makes a put's file visible; answered by the file.
    CommitPut(PutId),
    /// Aborts a put.
    AbortPut(PutId),
    /// Removes a file; answered by its last record.
    RemoveFile(String),
}

/// A change of the coordinator's own records.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordWrite {
    /// Registers a node, or its new address; answered by its number, which never changes.
    Node {
        /// Its name.
        name: String,
        /// The address at which it was reached.
        address: String,
    },
    /// Forgets a node that holds no block.
    ForgetNode(NodeId),
    /// Sets the record of a key.
    Put(String, Value),
    /// Removes the record of a key.
    Remove(String),
    /// Reserves this many unused numbers; answered by the first.
    Numbers(u64),
    /// Notes that a node shall remove a block which no stripe places there.
    Discard(NodeId, BlockId),
    /// Drops that note: the node no longer has the block.
    Discarded(NodeId, BlockId),
    /// Marks the eras of these blocks, which are newer than the catalog, as not missed.
    Disclaim(BTreeSet<BlockId>),
}

/// The answer to a [`Write`] that was carried out; by default without a value, and nothing has changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// The value that was asked for.
    pub value: Answer,
    /// What the write changed.
    pub changes: Vec<StoreChange>,
}

impl Done {
    /// Changes without a value.
    pub fn changed(changes: impl IntoIterator<Item = StoreChange>) -> Self {
        Self { value: Answer::Nothing, changes: changes.into_iter().collect() }
    }

    /// A value with changes.
    pub fn with(value: Answer, changes: impl IntoIterator<Item = StoreChange>) -> Self {
        Self { value, changes: changes.into_iter().collect() }
    }
}

/// The value that a [`Write`] returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Answer {
    /// No value.
    #[default]
    Nothing,
    /// A record was set or removed.
    Recorded,
    /// The put that was begun.
    Put(PutId),
    /// The stripe that was allocated.
    Stripe(StripeRecord),
    /// The file that was committed or removed.
    File(FileRecord),
    /// The number of a node.
    Node(NodeId),
    /// The first of some numbers.
    First(u64),
    /// The stripe is locked; the store's own processes accept these blocks from writers that present these permits.
    Claimed(Vec<(BlockIndex, Permit)>),
}

/// A change that a storage reports: the new state of one thing.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreChange {
    /// A stripe, and whether it belongs to a put that is not committed.
    Stripe(StripeRecord, bool),
    /// The stripe was removed.
    StripeGone(StripeId),
    /// A file.
    File(FileRecord),
    /// The file was removed.
    FileGone(String),
    /// An open put.
    Put(PutRecord),
    /// The put was committed or aborted.
    PutGone(PutId),
    /// A node shall remove a block.
    Discard(NodeId, BlockId),
    /// The node has removed it, or need not.
    DiscardGone(NodeId, BlockId),
    /// A registered node.
    Node(NodeRecord),
    /// The node was forgotten.
    NodeGone(NodeId),
    /// The number of the next stripe.
    Counted(u64),
    /// The eras in which stripes were named so far.
    Eras(Eras),
    /// Whether the store serves what a node holds, in stores that
    /// [report service](crate::StorePolicy::reports_service).
    Service(NodeId, bool),
    /// The lock on a stripe is lost: others may change it.
    ClaimLost(StripeId),
    /// Everything that keeps the store from working, in sentences for operators.
    Troubles(Vec<String>),
    /// All stripes whose health is unknown.
    Unjudged(Vec<Unjudged>),
    /// Remarks on the store for operators, in sentences; they call for no action.
    Remarks(Vec<String>),
    /// Why the store has not been listed yet, see [`Catalog::unlisted`](crate::Catalog::unlisted); `None` follows the
    /// first listing.
    Unlisted(Option<String>),
    /// A file that the store keeps beside the blocks of a stripe is damaged.
    Spoiled {
        /// The node.
        node: NodeId,
        /// The stripe.
        stripe: StripeId,
        /// The file.
        file: BlockId,
        /// What is wrong with it.
        problem: String,
    },
}

/// A stripe whose health the store's answers do not tell: it may be whole or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unjudged {
    /// The stripe.
    pub stripe: StripeId,
    /// Blocks that are listed as part of it.
    pub blocks: Vec<BlockId>,
    /// Why its health is unknown.
    pub why: String,
    /// What an operator can do about it.
    pub next_step: String,
}

/// Why a [`Write`] was not carried out; it has changed nothing then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The catalog refuses or fails.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The put is refused.
    #[error(transparent)]
    Put(PutError),
    /// There is no such file.
    #[error("there is no file `{0}`")]
    NoSuchFile(String),
    /// Another coordinator has taken over.
    #[error(
        "this coordinator's {ours} is over, the storage is at {newest}: another coordinator has taken over; stop this one"
    )]
    Fenced {
        /// The term of the write.
        ours: Term,
        /// The newest term in the records.
        newest: Term,
    },
    /// The store owns its files; they are not put, got or removed through Mend.
    #[error(
        "{0} keeps its files itself: put, get and remove them there; Mend repairs what they are stored in"
    )]
    OwnFiles(&'static str),
    /// Another writer has the stripe, or the whole store, locked.
    #[error("{stripe} cannot be worked on now: {why}")]
    Taken {
        /// The stripe.
        stripe: StripeId,
        /// Who holds the lock, or why that is unknown.
        why: String,
    },
    /// A node's server cannot take a block of the stripe now. Another one may.
    #[error("{server} cannot get a block of {stripe} now: {why}")]
    Unfit {
        /// The stripe.
        stripe: StripeId,
        /// The node.
        node: NodeId,
        /// The store's name for it.
        server: String,
        /// Why.
        why: String,
    },
    /// The store does not serve the block that the node made.
    #[error("{block} was made on {server}, and the store does not have it there: {why}")]
    NotServed {
        /// The block.
        block: BlockId,
        /// The node.
        node: NodeId,
        /// The store's name for it.
        server: String,
        /// What was found instead.
        why: String,
    },
}

impl From<PutError> for StoreError {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Catalog(error) => Self::Catalog(error),
            other => Self::Put(other),
        }
    }
}

impl StoreError {
    /// Whether the storage itself fails, so that writes of the same batch fail as well.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Catalog(CatalogError::Storage { .. }) | Self::Fenced { .. })
    }
}
