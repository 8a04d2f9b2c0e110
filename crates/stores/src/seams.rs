//! What a coordinator asks of its storage, and what it hears from it.
//!
//! Everything is a value, so that whoever decides need not wait: a [`Write`] goes to the thread that owns the storage,
//! which carries out all that wait in one transaction ([`Storage::carry_out`]) and answers each by a [`Done`] or a
//! [`StoreError`]. A [`StoreChange`] says how something is from now on, whoever changed it: as part of an answer, when a
//! storage is read at the start, and when a store pushes what others did.

use std::collections::BTreeSet;
use std::fmt;

use codes::{BlockIndex, CodeSpec};
use repair::{BlockId, Digest, NodeId, Permit, StripeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dir::{Eras, FileRecord, NodeRecord, OpenError, PutError, PutId, PutRecord, Snapshot};
use crate::{BlockSize, BlockState, Catalog, CatalogError, StripeRecord};

/// One coordinator's time in office. Whoever opens the storage later has a higher one, and from then on nothing that
/// carries this one is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {}", self.0)
    }
}

/// Something that shall be so, durably.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Of stripes, which every store has.
    Stripes(StripeWrite),
    /// Of files, which only some have.
    Files(FileWrite),
    /// Of the coordinator's own records.
    Records(RecordWrite),
}

/// A change of stripes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripeWrite {
    /// These blocks of a stripe are healthy: each an index, its node and its digest.
    Publish {
        /// The stripe.
        stripe: StripeId,
        /// Its blocks; all of them or none.
        blocks: Vec<(BlockIndex, NodeId, Option<Digest>)>,
    },
    /// What is known of blocks on these nodes; all of it or nothing. What has another node by then, or is gone, stays as
    /// it is.
    SetStates(Vec<(StripeId, BlockIndex, NodeId, BlockState)>),
    /// Nobody else shall change a stripe from now on, where the store has others who would, and these nodes are to get
    /// these blocks of it. Answered by what the store's own processes there want to see.
    Claim {
        /// The stripe.
        stripe: StripeId,
        /// The nodes; each can have blocks when this is carried out.
        nodes: Vec<NodeId>,
        /// The blocks.
        blocks: Vec<BlockIndex>,
    },
    /// Others may change it again.
    Release(StripeId),
    /// What the store keeps beside blocks is looked at, and what is found is [told](StoreChange::Spoiled) before this is answered.
    Inspect,
}

/// A change of files, of puts, or of what nodes shall remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileWrite {
    /// Begin a file, answered by its number; with `replace` its commit removes one of its name.
    BeginPut {
        /// The file's name.
        name: String,
        /// Its length.
        bytes: u64,
        /// Its code.
        code: CodeSpec,
        /// Its blocks.
        size: BlockSize,
        /// Whether one of its name may be there.
        replace: bool,
    },
    /// Give a put its stripe at a position, with a block on each of these nodes; answered by the stripe.
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
    /// Make a put's file visible; answered by the file.
    CommitPut(PutId),
    /// Give a put up.
    AbortPut(PutId),
    /// Remove a file; answered by what it was.
    RemoveFile(String),
    /// A node shall remove a block that no stripe places there.
    Discard(NodeId, BlockId),
    /// A node does not have a block any more.
    Discarded(NodeId, BlockId),
    /// Marks the eras of these blocks, which are newer than the catalog, as not missed.
    Disclaim(BTreeSet<BlockId>),
}

/// A change of the coordinator's own records.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordWrite {
    /// A node is part of the cluster and was reached there; answered by its number, which it keeps.
    Node {
        /// Its name.
        name: String,
        /// Where it was reached.
        address: String,
    },
    /// A node that holds nothing is forgotten.
    ForgetNode(NodeId),
    /// A record under its key, in place of the one that was there.
    Put(String, Value),
    /// The record of a key is gone.
    Remove(String),
    /// Take this many numbers that nobody had before; answered by the first.
    Numbers(u64),
}

/// What a [`Write`] is answered with.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The answer proper.
    pub value: Answer,
    /// What is different from now on.
    pub changes: Vec<StoreChange>,
}

/// What a [`Write`] gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It is done.
    Nothing,
    /// A record is kept, or is gone.
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
    /// A stripe is claimed, and the store's own processes take these blocks from whoever shows these permits.
    Claimed(Vec<(BlockIndex, Permit)>),
}

/// How something is from now on.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreChange {
    /// A stripe, and whether it is part of a file that is not whole yet.
    Stripe(StripeRecord, bool),
    /// There is no such stripe any more.
    StripeGone(StripeId),
    /// A file.
    File(FileRecord),
    /// There is no such file any more.
    FileGone(String),
    /// A put that is under way.
    Put(PutRecord),
    /// There is no such put any more.
    PutGone(PutId),
    /// A node shall remove a block.
    Discard(NodeId, BlockId),
    /// It shall not, or has done so.
    DiscardGone(NodeId, BlockId),
    /// A node that is part of the cluster.
    Node(NodeRecord),
    /// There is no such node any more.
    NodeGone(NodeId),
    /// Stripes are counted from this number on.
    Counted(u64),
    /// Which names were given so far.
    Eras(Eras),
    /// Whether the store has what a node holds, in stores that [tell](Nature::tells_service).
    Service(NodeId, bool),
    /// A claim on a stripe is lost: others may change it.
    ClaimLost(StripeId),
    /// All that keeps the store from its work now, in sentences for people.
    Troubles(Vec<String>),
    /// All stripes of which it is not known how they stand.
    Unjudged(Vec<Unjudged>),
    /// Remarks on the store for operators, in sentences; they call for no action.
    Remarks(Vec<String>),
    /// Why the store has not been listed yet, see [`Storage::unlisted`]; `None` follows the first listing.
    Unlisted(Option<String>),
    /// A file that the store keeps beside blocks of a stripe is not what it should be.
    Spoiled {
        /// Where.
        node: NodeId,
        /// The stripe.
        stripe: StripeId,
        /// The file.
        file: BlockId,
        /// What is wrong with it.
        problem: String,
    },
}

/// A stripe of which the store's answers do not tell how it stands: it may lack nothing, or be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unjudged {
    /// The stripe.
    pub stripe: StripeId,
    /// Blocks that are said to be of it.
    pub blocks: Vec<BlockId>,
    /// Why that is not known.
    pub why: String,
    /// What a person can do about it.
    pub next_step: String,
}

/// What kind of store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nature {
    /// Files are put, got and removed through Mend.
    pub files: bool,
    /// The store says whether it has what a node holds. Otherwise it has it while the node's helper is connected.
    pub tells_service: bool,
    /// Others change stripes as well, so that one is claimed before blocks of it are made.
    pub claims: bool,
    /// A node may hold several blocks of a stripe, spread evenly, where there are fewer nodes than blocks.
    pub shares_nodes: bool,
    /// What a helper lists says what it has, and has beside that. Otherwise others make and remove blocks all the time, and
    /// a list is old when it comes.
    pub trusts_lists: bool,
}

impl Nature {
    /// A store that is Mend's own.
    pub const OWN: Self =
        Self { files: true, tells_service: false, claims: false, shares_nodes: false, trusts_lists: true };
}

/// Why a [`Write`] was not carried out; nothing of it has happened then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The stripes' storage says so.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The file cannot be put so.
    #[error(transparent)]
    Put(PutError),
    /// There is no such file.
    #[error("there is no file `{0}`")]
    NoSuchFile(String),
    /// Somebody else is the coordinator now.
    #[error(
        "this coordinator's {ours} is over, the storage is at {newest}: another coordinator has taken over; stop this one"
    )]
    Fenced {
        /// The term that the write carried.
        ours: Term,
        /// The storage's.
        newest: Term,
    },
    /// The store has files of its own, and no others.
    #[error(
        "{0} keeps its files itself: put, get and remove them there; Mend repairs what they are stored in"
    )]
    OwnFiles(&'static str),
    /// Somebody else works on the stripe, or on all.
    #[error("{stripe} cannot be worked on now: {why}")]
    Taken {
        /// The stripe.
        stripe: StripeId,
        /// Who has it, or why that is not known.
        why: String,
    },
    /// A node's server cannot get a block of the stripe now. Another one may.
    #[error("{server} cannot get a block of {stripe} now: {why}")]
    Unfit {
        /// The stripe.
        stripe: StripeId,
        /// The node.
        node: NodeId,
        /// What the store calls it.
        server: String,
        /// Why.
        why: String,
    },
    /// What a node has made is not what the store has there.
    #[error("{block} was made on {server}, and the store does not have it there: {why}")]
    NotServed {
        /// The block.
        block: BlockId,
        /// The node.
        node: NodeId,
        /// What the store calls it.
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
    /// Whether the storage itself fails, so that what was asked for together with this fails as well.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Catalog(CatalogError::Storage { .. }) | Self::Fenced { .. })
    }
}

/// What only a store with files of its own has: `dir`.
pub trait Files: Send {
    /// Calls `visit` with every file, every put under way, everything that a node shall remove, and the counter.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError>;

    /// Carries out a change of files.
    ///
    /// # Errors
    /// [`StoreError`].
    fn write_files(&mut self, write: &FileWrite) -> Result<Answer, StoreError>;
}

/// The coordinator's own records: the registry of nodes, the repair queue, numbers, scrubs.
pub trait Records: Send {
    /// Begins a term higher than all before it.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn begin_term(&mut self) -> Result<Term, CatalogError>;

    /// Calls `visit` with every node.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn each_node(&self, visit: &mut dyn FnMut(NodeRecord)) -> Result<(), CatalogError>;

    /// The records whose keys begin with `prefix`, in the keys' order.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError>;

    /// Carries out a change of records for the coordinator of this term.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if there is a higher one.
    fn write_records(&mut self, term: Term, write: &RecordWrite) -> Result<Answer, StoreError>;
}

/// Hears how a write ended.
pub type Reply = Box<dyn FnOnce(Result<Done, StoreError>) + Send>;

/// All that a coordinator stores in.
pub trait Storage: Catalog + Files + Records {
    /// Carries these out in their order, each whole or not at all, and all that are carried out durably when this
    /// returns; at best at the cost of one. The answers are in the same order.
    fn carry_out(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>>;

    /// Begins what would hold up everything else, such as asking servers of the store's own, and returns at once; `done`
    /// hears of its end from another thread. What is begun for one stripe is carried out in its order. Any other write
    /// is for [`carry_out`](Self::carry_out), and `done` is given back.
    fn begin(&mut self, term: Term, write: &Write, done: Reply) -> Option<Reply> {
        let _ = (term, write);
        Some(done)
    }

    /// Makes a storage that failed usable again, and returns what has changed in it by a write that was answered with an
    /// error. Cheap where nothing failed.
    ///
    /// # Errors
    /// [`OpenError`]; unless it [is passing](OpenError::is_passing), this coordinator must never write there again.
    fn recover(&mut self, term: Term) -> Result<Vec<StoreChange>, OpenError> {
        let _ = term;
        Ok(Vec::new())
    }

    /// What kind of store it is.
    fn nature(&self) -> Nature {
        Nature::OWN
    }

    /// Why a store that others run has not been listed yet, for people.
    fn unlisted(&self) -> Option<String> {
        None
    }

    /// Tells `listener` from now on what others change; a store that nobody else changes has nothing to tell.
    fn listen(&mut self, listener: Box<dyn Fn(Vec<StoreChange>) + Send>) {
        drop(listener);
    }

    /// A copy of everything as it is now.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn snapshot(&self) -> Result<Snapshot, CatalogError>;
}
