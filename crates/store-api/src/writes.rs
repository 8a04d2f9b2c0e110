//! Writes to a storage, their results, and changes that a storage reports.
//!
//! All of these are plain values that can be sent between threads, so that the coordinator need not wait for
//! the storage. A [`Write`] is sent to the thread that owns the [`Storage`](crate::Storage). That thread
//! carries out all pending writes together and answers each with a [`Done`] or a [`StoreError`]. A
//! [`StoreChange`] is the new state of one object, whoever changed it. The coordinator receives changes in
//! three ways: as part of an answer, when it reads the whole storage at startup, and when other writers
//! change the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use codes::{BlockIndex, CodeSpec};
use repair::{BlockId, Digest, NodeId, Permit, StripeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    BlockSize, BlockState, CatalogError, Eras, FileBacklog, FileRecord, FileWork, NodeRecord, PutError,
    PutId, PutRecord, StripeRecord,
};

/// A coordinator's term, used as a fencing token. Each coordinator that opens the records begins a higher
/// term; later writes with a lower term are refused.
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
    /// A change of stripes, which all stores have.
    Stripes(StripeWrite),
    /// A change of files, for stores that own files.
    Files(FileWrite),
    /// A change of the coordinator's own records.
    Records(RecordWrite),
}

/// A change of stripes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripeWrite {
    /// Records blocks of a stripe as healthy, each given by index, node and digest.
    Publish {
        /// The stripe.
        stripe: StripeId,
        /// The blocks; either all of them are recorded, or none.
        blocks: Vec<(BlockIndex, NodeId, Option<Digest>)>,
        /// The origin of the blocks.
        origin: Origin,
    },
    /// Sets the states of blocks on these nodes. Skips a block that has since moved to another node or was
    /// removed. If the write fails, no state is set. The answer may be [`Answer::Overruled`].
    SetStates(Vec<(StripeId, BlockIndex, NodeId, BlockState)>),
    /// Locks a stripe against other writers, if the store has any, and announces which nodes will receive
    /// which blocks. The answer contains the permits that the store's own processes on those nodes require.
    Claim {
        /// The stripe.
        stripe: StripeId,
        /// The nodes. Once the claim is carried out, each of them is able to accept a block.
        nodes: Vec<NodeId>,
        /// The blocks.
        blocks: Vec<BlockIndex>,
    },
    /// Unlocks a stripe.
    Release(StripeId),
    /// Inspects the files that the store keeps next to blocks. Damage is reported as [`StoreChange::Spoiled`]
    /// before the answer.
    Inspect,
}

/// The origin of a published block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A put or a repair has written it.
    Written,
    /// It was found on a node, intact. It may be the only copy.
    Found,
}

impl StripeWrite {
    /// Returns the stripe of a publication, claim or release: the changes that may require calls to the
    /// store's own servers. Returns `None` for other changes.
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
    /// Begins a put; the answer is its number. With `replace`, the commit removes an existing file of that
    /// name.
    BeginPut {
        /// The file's name.
        name: String,
        /// The file's length in bytes.
        bytes: u64,
        /// The file's code.
        code: CodeSpec,
        /// The size of the file's blocks.
        size: BlockSize,
        /// Whether a file of that name may exist.
        replace: bool,
    },
    /// Allocates the stripe of a put at a position, with one block per node; the answer is the stripe.
    Allocate {
        /// The put.
        put: PutId,
        /// The stripe's position in the file.
        position: u32,
        /// The size of the stripe's blocks.
        size: BlockSize,
        /// The nodes, by block index.
        nodes: Vec<NodeId>,
    },
    /// Makes a put's file visible; the answer is the file.
    CommitPut(PutId),
    /// Aborts a put.
    AbortPut(PutId),
    /// Ends a put that an earlier coordinator left open. The blocks stay on the helpers as orphans, because
    /// the catalog may be an older copy of a catalog in which the put was committed.
    LeavePut(PutId),
    /// Removes a file; the answer is its last record.
    RemoveFile(String),
    /// Puts that begin from now on count as newer than a put that began at this time (in ms since 1970),
    /// although the time is in the future. Helpers may hold blocks of such a put after an old copy of the
    /// catalog was restored.
    BeginAfter(u64),
}

/// A change of the coordinator's own records.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordWrite {
    /// Registers a node or its new address; the answer is the node's number, which never changes.
    Node {
        /// The node's name.
        name: String,
        /// The address at which the node was reached.
        address: String,
    },
    /// Removes the record of a node that holds no block.
    ForgetNode(NodeId),
    /// Sets the record of a key.
    Put(String, Value),
    /// Removes the record of a key.
    Remove(String),
    /// Reserves this many unused job numbers; the answer is the first.
    Numbers(u64),
    /// Records that a node must remove a block that no stripe places there.
    Discard(NodeId, BlockId),
    /// Removes the [`Discard`](Self::Discard) record of a block that the node no longer has.
    Discarded(NodeId, BlockId),
    /// Accepts the loss of every stripe whose name was issued in the same era as the name of one of these
    /// blocks; see [`Eras::disclaim`].
    Disclaim(BTreeSet<BlockId>),
}

/// The answer to a [`Write`] that was carried out. The default has no value and no changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// The return value.
    pub value: Answer,
    /// The changes that the write made.
    pub changes: Vec<StoreChange>,
}

impl Done {
    /// Creates an answer with changes and without a value.
    pub fn changed(changes: impl IntoIterator<Item = StoreChange>) -> Self {
        Self { value: Answer::Nothing, changes: changes.into_iter().collect() }
    }

    /// Creates an answer with a value and changes.
    pub fn with(value: Answer, changes: impl IntoIterator<Item = StoreChange>) -> Self {
        Self { value, changes: changes.into_iter().collect() }
    }
}

/// The return value of a [`Write`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Answer {
    /// No value.
    #[default]
    Nothing,
    /// The put that was begun.
    Put(PutId),
    /// The stripe that was allocated.
    Stripe(StripeRecord),
    /// The file that was committed or removed.
    File(FileRecord),
    /// The number of a node.
    Node(NodeId),
    /// The first of the reserved numbers.
    First(u64),
    /// The store does not record these states, or no longer records those found earlier: it has better evidence, and
    /// the copies count as healthy.
    Overruled(Vec<(StripeId, BlockIndex, NodeId)>),
    /// The stripe is locked. The store's own processes accept these blocks from writers that present these
    /// permits.
    Claimed(Vec<(BlockIndex, Permit)>),
}

/// A change that a storage reports: the new state of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreChange {
    /// A stripe; the flag is true if the stripe belongs to an uncommitted put.
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
    /// A node must remove a block.
    Discard(NodeId, BlockId),
    /// The node has removed the block, or no longer has to.
    DiscardGone(NodeId, BlockId),
    /// A registered node.
    Node(NodeRecord),
    /// The node was forgotten.
    NodeGone(NodeId),
    /// The number of the next stripe.
    Counted(u64),
    /// The eras in which stripes were named so far: random numbers that are part of the names.
    Eras(Eras),
    /// Whether the store serves the blocks on a node, in stores that [report
    /// service](crate::StorePolicy::reports_service).
    Service(NodeId, bool),
    /// The lock on a stripe is lost; other writers may change the stripe.
    ClaimLost(StripeId),
    /// All current problems that stop the store from working, one sentence each, for operators.
    Troubles(Vec<String>),
    /// All stripes whose health is unknown.
    Unjudged(Vec<Unjudged>),
    /// All stripes whose digests the store doubts, and so does not use. Only parity tells whether their blocks are
    /// right.
    Doubted(BTreeSet<StripeId>),
    /// Remarks about the store for operators, one sentence each; they require no action.
    Remarks(Vec<String>),
    /// The work on a file has ended.
    FileWorked(FileWork),
    /// The files on which the store works, and those that it has encoded.
    FileBacklog(FileBacklog),
    /// All nodes on which the store keeps other data than the blocks of stripes.
    Needed(BTreeMap<NodeId, OtherData>),
    /// All nodes that the store's operators have put into maintenance. While such a node is out of service, its
    /// blocks are not rebuilt automatically.
    Maintained(BTreeSet<NodeId>),
    /// Whether stripes that were there before the first listing will be reported later, because servers have not
    /// reported all of their blocks yet. `true` is reported before the end of the first listing.
    LateStripes(bool),
    /// Why the store has not been listed yet, see [`Catalog::unlisted`](crate::Catalog::unlisted). `None` is
    /// reported after the first listing.
    Unlisted(Option<String>),
    /// A file that the store keeps next to the blocks of a stripe is damaged.
    Spoiled {
        /// The node.
        node: NodeId,
        /// The stripe.
        stripe: StripeId,
        /// The file.
        file: BlockId,
        /// The damage.
        problem: String,
    },
}

/// Other data than the blocks of stripes, which a store keeps on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherData {
    /// The data, such as `3 volumes`.
    pub what: String,
    /// The operator's next step before the node can be removed.
    pub next_step: String,
}

/// A stripe whose health cannot be derived from the store's answers: it may be intact or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unjudged {
    /// The stripe.
    pub stripe: StripeId,
    /// Blocks that the store lists as part of the stripe.
    pub blocks: Vec<BlockId>,
    /// The servers that have blocks of the stripe, or had them last, as the store names them.
    pub servers: BTreeSet<String>,
    /// Why the stripe's health is unknown.
    pub why: String,
    /// The operator's next step.
    pub next_step: String,
}

/// Why a [`Write`] was not carried out. The write has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The catalog refuses the write or fails.
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
        "another coordinator has taken over ({newest}), so this one ({ours}) can no longer write; stop this \
         one"
    )]
    Fenced {
        /// The term of the write.
        ours: Term,
        /// The newest term in the records.
        newest: Term,
    },
    /// The store owns its files, so they cannot be put, read or removed through Mend.
    #[error(
        "{0} manages its files itself: put, get and remove them there; Mend repairs the blocks that store \
         them"
    )]
    OwnFiles(&'static str),
    /// Another writer has locked the stripe or the whole store.
    #[error("{stripe} cannot be repaired now: {why}")]
    Taken {
        /// The stripe.
        stripe: StripeId,
        /// The owner of the lock, or why the owner is unknown.
        why: String,
    },
    /// A node's server cannot accept a block of the stripe now; another server may.
    #[error("{server} cannot receive a block of {stripe} now: {why}")]
    Unfit {
        /// The stripe.
        stripe: StripeId,
        /// The node.
        node: NodeId,
        /// The store's name for the node's server.
        server: String,
        /// Why the server cannot accept the block.
        why: String,
    },
    /// The store does not serve a block whose file is on this node.
    #[error("{block} is on {server}, but the store does not serve it there: {why}")]
    NotServed {
        /// The block.
        block: BlockId,
        /// The node.
        node: NodeId,
        /// The store's name for the node's server.
        server: String,
        /// The result of the lookup.
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
    /// Whether the storage itself failed. Other writes of the same batch then fail too.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Catalog(CatalogError::Storage { .. }) | Self::Fenced { .. })
    }
}
