//! Why a request of the API or of a client is not carried out, and what to do about it.

use std::time::Duration;

use cluster::ParseRepairAfterError;
use codes::SpecError;
use recovery::UnknownPolicy;
use repair::{ChunkingError, NodeId, PlanError, StripeId, UnknownScheme};
use store_api::{CatalogError, OpenError, PutError, PutId, StoreError, Term};
use views::{RepairState, ScrubState};

use crate::Omitted;

/// Why a request is not carried out.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each is told by its message")]
pub enum RequestError {
    #[error("there is no file `{0}`")]
    NoSuchFile(String),
    #[error("there is no repair {0}")]
    NoSuchRepair(u64),
    #[error("repair {repair} has ended already: it is {state}")]
    RepairEnded { repair: u64, state: RepairState },
    #[error("there is no way `{0}` to empty a node; the ways are both, migrate and rebuild")]
    NoSuchWay(String),
    #[error(transparent)]
    HelperPolicy(#[from] UnknownPolicy),
    #[error("helper {name} is up, so that its blocks are not lost")]
    NodeIsUp { name: String },
    #[error("there is no scrub {0}")]
    NoSuchScrub(u64),
    #[error("scrub {0} runs, and does not check parity")]
    ScrubRuns(u64),
    #[error("scrub {scrub} has ended already: it is {state}")]
    ScrubEnded { scrub: u64, state: ScrubState },
    #[error("there is no helper `{name}`; those known are {}", list(.known))]
    NoSuchNode { name: String, known: Vec<String> },
    #[error("there is no rack `{rack}`; those known are {}", list(.known))]
    NoSuchRack { rack: String, known: Vec<String> },
    #[error("links are being measured already")]
    ProbesRun,
    #[error("no links were measured since the coordinator was started")]
    NoProbes,
    #[error("a link has two ends, and {0} helpers are there to be measured")]
    TooFewToProbe(usize),
    #[error("{links} links are to be measured, and {most} are the most at once")]
    TooManyLinks { links: usize, most: usize },
    #[error("helper {0} is down")]
    NodeDown(String),
    #[error("no helper is named")]
    NoNodes,
    #[error("helper {0} is up")]
    NodeUp(String),
    #[error("helper {0} is not in maintenance")]
    NotInMaintenance(String),
    #[error("a maintenance lasts for more than 0 and at most {} days", most.as_secs() / 86_400)]
    MaintenanceTime { most: Duration },
    #[error("the catalog counts on {blocks} on helper {name}")]
    NodeNeeded { name: String, blocks: String, next_step: String },
    #[error("{new} cannot take the place of {old}: it must be another helper, and up")]
    NoReplacement { old: String, new: String },
    #[error(transparent)]
    RepairAfter(#[from] ParseRepairAfterError),
    #[error("stripe {stripe} has blocks b0 to b{}, and no b{index}", blocks - 1)]
    NoSuchIndex { stripe: String, index: u16, blocks: usize },
    #[error(transparent)]
    Code(#[from] SpecError),
    #[error(transparent)]
    Scheme(#[from] UnknownScheme),
    #[error("blocks of {asked} bytes are not possible: the size must be a multiple of {unit} bytes above 0")]
    BlockBytes { asked: u64, unit: u64, below: Option<u64>, above: u64 },
    #[error("chunks of {asked} bytes are not possible: the size must be a multiple of {unit} bytes above 0")]
    ChunkBytes { asked: u64, unit: u64, below: Option<u64>, above: u64 },
    #[error(transparent)]
    Chunks(#[from] ChunkingError),
    #[error("the body cannot be read: {detail}")]
    Body { detail: String },
    #[error("the body of the request did not come within {} s", limit.as_secs())]
    SlowBody { limit: Duration },
    #[error("`{0}` is not a number")]
    NotANumber(String),
    #[error("a repair needs exactly one of `block`, `stripe`, `node`, `drain` and `all`")]
    NoOneTarget,
    #[error("stripe {0} is none that was described to this coordinator, or not lately")]
    NotGiven(StripeId),
    #[error("stripe {0} is being read or repaired, as it was described before")]
    GivenInUse(StripeId),
    #[error("{0} stripes are described already")]
    TooManyGiven(usize),
    #[error("the stripes that {whose} described fill the {most} bytes there are for them")]
    GivenBytes { whose: String, most: u64 },
    #[error("`{0}` is in this cluster's own catalog")]
    Catalogued(String),
    #[error("a stripe of {code} has {needed} blocks, and {blocks} are described")]
    GivenBlocks { code: String, needed: usize, blocks: usize },
    #[error("`{0}` is named twice")]
    GivenTwice(String),
    #[error("block {block} has {bytes} bytes, and blocks of its stripe have at most {block_bytes}")]
    GivenTooLong { block: String, bytes: u64, block_bytes: u64 },
    #[error("blocks of {asked} bytes are not possible: the most is {most}")]
    GivenBlockBytes { asked: u64, most: u64 },
    #[error("`{0}` is no digest, such as crc32c:0a1b2c3d")]
    NoDigest(String),
    #[error("`{0}` cannot be a name: it needs 1 to 255 bytes without control characters")]
    NoName(String),
    #[error("block {block} is not lost: {holder} has it, as the stripe was described")]
    NotLost { block: String, holder: String },
    #[error(
        "stripe {0} was described by a plug-in: its lost blocks have to be named, each with the helper that shall have it"
    )]
    NoHomes(StripeId),
    #[error("only clients read and put")]
    NoClient,
    #[error("no block of stripe {0} is lost: name the blocks to plan for")]
    NothingLost(StripeId),
    #[error("{stripes} stripes are more than {most}: choose larger blocks")]
    TooManyStripes { stripes: u64, most: u64 },
    #[error("the storage of the catalog does not keep up: {waiting} changes wait for it")]
    StorageBehind { waiting: usize },
    #[error("nothing can be stored: {0}")]
    StorageFails(StoreError),
    #[error("another coordinator has taken over: this one's {ours} is over, the storage is at {newest}")]
    Fenced { ours: Term, newest: Term },
    #[error(
        "{code} needs {needed} live helpers with room for {block_bytes} bytes each, and there are {usable}; {omitted}"
    )]
    TooFewHelpers { code: String, needed: usize, usable: usize, block_bytes: u64, omitted: Box<Omitted> },
    #[error(
        "the catalog is older than blocks on {}: {blocks} are of stripes that it has yet to count, so an old copy of it was \
         put back; nothing is stored, removed or repaired until somebody decides",
        list(.nodes)
    )]
    CatalogBehind { nodes: Vec<String>, blocks: u64 },
    #[error("nothing is removed while {node} lists blocks that are newer than the catalog")]
    CatalogDoubted { node: String },
    #[error("stripe {position} of put {put} is being stored already")]
    StripeBusy { put: PutId, position: u32 },
    #[error("stripes of put {0} are still being stored")]
    PutBusy(PutId),
    #[error("more than {0} requests of one connection at a time")]
    TooManyRequests(usize),
    #[error("the number {0} is in use by another request of this connection")]
    TagTaken(u64),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Put(PutError),
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("{0} keeps its files itself: put, get and remove them there")]
    OwnFiles(&'static str),
    #[error(transparent)]
    Store(StoreError),
    #[error("the coordinator has just started, and helpers are still registering")]
    Settling,
    #[error("{0}, so there is nothing to scrub yet")]
    Unlisted(String),
    #[error("cannot copy the catalog: {0}")]
    Copy(#[source] OpenError),
    #[error("node {0} has gone")]
    Gone(NodeId),
    #[error("the coordinator is stopping")]
    Stopping,
}

/// What kind of reason it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was named is not there.
    NotFound,
    /// The request can never be carried out.
    Invalid,
    /// It contradicts what is there.
    Conflict,
    /// What it is about is in use just now.
    InUse,
    /// It cannot be carried out now.
    Unavailable,
    /// The coordinator's own fault or that of its disk.
    Internal,
}

impl From<PutError> for RequestError {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Code(error) => Self::Code(error),
            PutError::Catalog(error) => Self::Catalog(error),
            other => Self::Put(other),
        }
    }
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Catalog(error) => Self::Catalog(error),
            StoreError::Put(error) => error.into(),
            StoreError::NoSuchFile(name) => Self::NoSuchFile(name),
            StoreError::Fenced { ours, newest } => Self::Fenced { ours, newest },
            StoreError::OwnFiles(store) => Self::OwnFiles(store),
            error @ (StoreError::Taken { .. } | StoreError::Unfit { .. } | StoreError::NotServed { .. }) => {
                Self::Store(error)
            }
        }
    }
}

impl RequestError {
    /// What kind of reason it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchFile(_)
            | Self::NoSuchRepair(_)
            | Self::NoSuchScrub(_)
            | Self::NoSuchNode { .. }
            | Self::NoSuchRack { .. }
            | Self::NoProbes
            | Self::NotGiven(_) => ErrorKind::NotFound,
            Self::Catalog(CatalogError::NoSuchStripe(_) | CatalogError::NoSuchBlock(_))
            | Self::Put(PutError::NoSuchPut(_)) => ErrorKind::NotFound,
            Self::Catalog(
                CatalogError::Storage { .. } | CatalogError::Damaged { .. } | CatalogError::NumbersUsedUp,
            )
            | Self::Copy(_) => ErrorKind::Internal,
            Self::Put(
                PutError::Exists { .. } | PutError::MissingStripe { .. } | PutError::Unpublished { .. },
            )
            | Self::StripeBusy { .. }
            | Self::TagTaken(_)
            | Self::RepairEnded { .. }
            | Self::ScrubRuns(_)
            | Self::ScrubEnded { .. }
            | Self::NodeIsUp { .. }
            | Self::CatalogBehind { .. }
            | Self::CatalogDoubted { .. }
            | Self::NodeUp(_)
            | Self::NodeDown(_)
            | Self::ProbesRun
            | Self::NodeNeeded { .. }
            | Self::NotInMaintenance(_)
            | Self::NoReplacement { .. }
            | Self::Catalog(CatalogError::Ambiguous { .. })
            | Self::Catalogued(_)
            | Self::NotLost { .. }
            | Self::PutBusy(_) => ErrorKind::Conflict,
            Self::GivenInUse(_) => ErrorKind::InUse,
            Self::TooFewHelpers { .. }
            | Self::TooManyGiven(_)
            | Self::GivenBytes { .. }
            | Self::TooManyRequests(_)
            | Self::Settling
            | Self::Unlisted(_)
            | Self::StorageBehind { .. }
            | Self::StorageFails(_)
            | Self::Fenced { .. }
            | Self::Store(_)
            | Self::Gone(_)
            | Self::Stopping => ErrorKind::Unavailable,
            Self::Plan(PlanError::Decode { .. }) => ErrorKind::Conflict,
            Self::NoSuchIndex { .. }
            | Self::GivenBlocks { .. }
            | Self::GivenTwice(_)
            | Self::GivenTooLong { .. }
            | Self::GivenBlockBytes { .. }
            | Self::NoDigest(_)
            | Self::NoName(_)
            | Self::NoHomes(_)
            | Self::Code(_)
            | Self::Scheme(_)
            | Self::HelperPolicy(_)
            | Self::NoSuchWay(_)
            | Self::BlockBytes { .. }
            | Self::ChunkBytes { .. }
            | Self::Chunks(_)
            | Self::Body { .. }
            | Self::SlowBody { .. }
            | Self::NotANumber(_)
            | Self::NoNodes
            | Self::TooFewToProbe(_)
            | Self::TooManyLinks { .. }
            | Self::MaintenanceTime { .. }
            | Self::RepairAfter(_)
            | Self::NoOneTarget
            | Self::NoClient
            | Self::NothingLost(_)
            | Self::OwnFiles(_)
            | Self::TooManyStripes { .. }
            | Self::Plan(_)
            | Self::Put(_) => ErrorKind::Invalid,
        }
    }

    /// What to do about it.
    pub fn next_step(&self) -> String {
        match self {
            Self::NoSuchFile(_) => "list the files with `mend ls`".into(),
            Self::NoSuchRepair(_) => "see those that are open with `mend status`, and what was done with `mend history`".into(),
            Self::RepairEnded { .. } => "see what it did with `mend watch`, or ask for another one".into(),
            Self::NodeIsUp { .. } => "empty it with `mend node drain`, or repair single blocks with `mend repair`".into(),
            Self::NoSuchWay(_) | Self::HelperPolicy(_) => "choose one of those listed".into(),
            Self::NoNodes => "name one or more; mend node list names those there are".into(),
            Self::NodeUp(name) => format!("stop it for good (its process `mend helper {name}`), then try again"),
            Self::NodeNeeded { next_step, .. } => next_step.clone(),
            Self::NotInMaintenance(_) => "see mend node list".into(),
            Self::MaintenanceTime { .. } => "choose a time such as 10m or 2h".into(),
            Self::NoReplacement { new, .. } => format!("start it with mend helper {new}, after mend node add {new} if it is new"),
            Self::RepairAfter(_) => "correct it".into(),
            Self::ProbesRun => "wait for their end (`mend bench links --show`), or end it with --stop".into(),
            Self::NoProbes => "measure them with `mend bench links`".into(),
            Self::TooFewToProbe(_) => "name two helpers at least, or start more of them".into(),
            Self::TooManyLinks { .. } => "name fewer helpers, or leave --pairs out".into(),
            Self::NodeDown(_) => "start it, or leave it out".into(),
            Self::NoSuchScrub(_) => "start one with `mend scrub`".into(),
            Self::ScrubRuns(_) => "wait for its end (`mend status`), or stop it with `mend scrub --stop`".into(),
            Self::ScrubEnded { .. } => "see what it found with `mend status --output json`".into(),
            Self::NoSuchNode { .. } => "see `mend status` for the helpers".into(),
            Self::NoSuchRack { .. } => "see `mend node list` for the racks; a helper's rack is set in mend.toml".into(),
            Self::NoSuchIndex { .. } => "see the stripe's blocks with `mend stat`".into(),
            Self::Code(_) => "choose a code such as rs-14-10 (n comes first)".into(),
            Self::Scheme(_) => "choose one of the schemes listed".into(),
            Self::BlockBytes { below: Some(below), above, .. }
            | Self::ChunkBytes { below: Some(below), above, .. } => {
                format!("the nearest possible sizes are {below} and {above} bytes")
            }
            Self::BlockBytes { above, .. } | Self::ChunkBytes { above, .. } => {
                format!("the smallest possible size is {above} bytes")
            }
            Self::Chunks(_) => "a block is a whole number of chunks, and a chunk of sub-blocks".into(),
            Self::StorageBehind { .. } => "try again later; look at the coordinator's disk".into(),
            Self::StorageFails(_) => {
                "free space on the coordinator's disk or repair it: the coordinator goes on by itself (see `mend status`)"
                    .into()
            }
            Self::OwnFiles(_) => "use that system's own tools".into(),
            Self::Store(_) => "try again in a few seconds".into(),
            Self::Fenced { .. } => "stop this coordinator, and ask the other one".into(),
            Self::NotGiven(_) => "have whoever described it do so again, then ask again".into(),
            Self::GivenInUse(_) => "wait for that to end, or go on with the stripe as it was described".into(),
            Self::TooManyGiven(_) | Self::GivenBytes { .. } => "try again in a few minutes: those that nobody asks for are forgotten".into(),
            Self::Catalogued(_) => "ask for it without describing it, or choose another name".into(),
            Self::NotLost { .. } => "describe the stripe as it is now: a lost block has no node".into(),
            Self::GivenBlocks { .. }
            | Self::GivenTwice(_)
            | Self::GivenTooLong { .. }
            | Self::GivenBlockBytes { .. }
            | Self::NoDigest(_)
            | Self::NoName(_)
            | Self::NoHomes(_)
            | Self::Body { .. }
            | Self::SlowBody { .. }
            | Self::NotANumber(_)
            | Self::NoOneTarget
            | Self::NoClient
            | Self::NothingLost(_)
            | Self::TooManyStripes { .. } => "correct the request; `mend openapi` describes it".into(),
            Self::TooFewHelpers { omitted, .. } => {
                format!("{}; or choose a code with fewer blocks", omitted.remedy())
            }
            Self::StripeBusy { .. } | Self::PutBusy(_) => "wait for them, or abort the put".into(),
            Self::Settling => "try again in a few seconds".into(),
            Self::Unlisted(_) => "mend status says how far the listing is; try again when it has ended".into(),
            Self::TooManyRequests(_) => "wait for some of them to end".into(),
            Self::TagTaken(_) => "use a number once".into(),
            Self::Plan(PlanError::Decode { .. }) => "start helpers that are down, then try again".into(),
            Self::Plan(_) => "change what is asked for".into(),
            Self::Put(PutError::Exists { .. }) => {
                "choose another name (--as), or replace it (--replace)".into()
            }
            Self::Put(_) => "begin a new put".into(),
            Self::Catalog(CatalogError::NoSuchStripe(_) | CatalogError::NoSuchBlock(_)) => {
                "see a file's stripes and blocks with `mend stat`".into()
            }
            Self::Catalog(CatalogError::Ambiguous { .. }) => "say which, with what is behind the hyphen".into(),
            Self::Catalog(CatalogError::Storage { .. }) | Self::Copy(_) => "look at the coordinator's log and disk".into(),
            Self::Catalog(CatalogError::Damaged { .. } | CatalogError::NumbersUsedUp) => "stop the coordinator, then do one of these".into(),
            Self::CatalogDoubted { node } => {
                format!("see mend catalog accept --list; then mend catalog accept, or mend catalog accept --reject {node}")
            }
            Self::CatalogBehind { .. } => {
                "restore the newest copy of the catalog (`mend catalog restore FILE`), make it anew from the helpers \
                 (`mend catalog rebuild`), go on without what is newer (`mend catalog accept`), or, if a helper makes it up, see \
                 which helper lists what (`mend catalog accept --list`) and disbelieve it (`mend catalog accept --reject HELPER`)"
                    .into()
            }
            Self::Gone(_) | Self::Stopping => "connect again once the coordinator is back".into(),
        }
    }
}

/// Names joined by commas, or a word for none.
pub fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
