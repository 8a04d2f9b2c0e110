//! Reasons for refusing a request of the API or of a client, each with the next step.
//!
//! Each topic has its own error enum, with kinds and next steps. [`RequestError`] wraps all of them for the
//! API.

mod catalog_age;
mod conditions;
mod described;
mod files;
mod kind;
mod layout;
mod network;
mod nodes;
mod omitted;
mod planning;
mod repairs;
mod scrubs;
mod session;
mod storage;

pub use catalog_age::CatalogAgeError;
pub use conditions::ConditionError;
pub use described::DescriptionError;
pub use files::FileError;
pub use kind::ErrorKind;
pub(crate) use kind::{CORRECT_IT, list};
pub use layout::LayoutError;
pub use network::NetworkError;
pub use nodes::NodeError;
pub use omitted::Omitted;
pub use planning::PlanningError;
pub use repairs::RepairError;
pub use scrubs::ScrubError;
pub use session::SessionError;
pub use storage::StorageError;

use cluster::ParseRepairAfterError;
use codes::SpecError;
use recovery::UnknownPolicy;
use repair::{ChunkingError, PlanError, UnknownScheme};
use store_api::PutError;
use store_api::{CatalogError, StoreError};

/// The reason for refusing a request: one variant per topic.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the variants are named after their topics")]
pub enum RequestError {
    #[error(transparent)]
    CatalogAge(#[from] CatalogAgeError),
    #[error(transparent)]
    Condition(#[from] ConditionError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Given(#[from] DescriptionError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Planning(#[from] PlanningError),
    #[error(transparent)]
    Repair(#[from] RepairError),
    #[error(transparent)]
    Scrub(#[from] ScrubError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Any request that depends on the set of helpers can fail with this error.
    #[error("the coordinator has just started, and waits for helpers to register: {}", list(.awaited))]
    Settling { awaited: Vec<String> },
    /// The attached store has not been listed, or does not answer.
    #[error("not possible now: {0}")]
    Unlisted(String),
}

impl RequestError {
    /// Returns the kind of the refusal.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::CatalogAge(error) => error.kind(),
            Self::Condition(error) => error.kind(),
            Self::File(error) => error.kind(),
            Self::Given(error) => error.kind(),
            Self::Layout(error) => error.kind(),
            Self::Network(error) => error.kind(),
            Self::Node(error) => error.kind(),
            Self::Planning(error) => error.kind(),
            Self::Repair(error) => error.kind(),
            Self::Scrub(error) => error.kind(),
            Self::Session(error) => error.kind(),
            Self::Storage(error) => error.kind(),
            Self::Settling { .. } | Self::Unlisted(_) => ErrorKind::Unavailable,
        }
    }

    /// Returns advice on how to proceed.
    pub fn next_step(&self) -> String {
        match self {
            Self::CatalogAge(error) => error.next_step(),
            Self::Condition(error) => error.next_step(),
            Self::File(error) => error.next_step(),
            Self::Given(error) => error.next_step(),
            Self::Layout(error) => error.next_step(),
            Self::Network(error) => error.next_step(),
            Self::Node(error) => error.next_step(),
            Self::Planning(error) => error.next_step(),
            Self::Repair(error) => error.next_step(),
            Self::Scrub(error) => error.next_step(),
            Self::Session(error) => error.next_step(),
            Self::Storage(error) => error.next_step(),
            Self::Settling { .. } => {
                "try again in a few seconds; mend node list shows which helpers are up".into()
            }
            Self::Unlisted(_) => "try again when the store is listed; mend status shows the progress".into(),
        }
    }
}

/// Converts an error of a lower layer to the error of its topic, and then to a [`RequestError`].
macro_rules! belongs {
    ($($error:ty => $topic:ty),+ $(,)?) => { $(
        impl From<$error> for RequestError {
            fn from(error: $error) -> Self {
                <$topic>::from(error).into()
            }
        }
    )+ };
}

belongs! {
    CatalogError => StorageError,
    ChunkingError => LayoutError,
    ParseRepairAfterError => NodeError,
    PlanError => PlanningError,
    SpecError => LayoutError,
    UnknownPolicy => RepairError,
    UnknownScheme => PlanningError,
}

impl From<PutError> for RequestError {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Code(error) => error.into(),
            PutError::Catalog(error) => error.into(),
            other => FileError::Put(other).into(),
        }
    }
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Catalog(error) => error.into(),
            StoreError::Put(error) => error.into(),
            StoreError::NoSuchFile(name) => FileError::NoSuchFile(name).into(),
            StoreError::Fenced { ours, newest } => StorageError::Fenced { ours, newest }.into(),
            StoreError::OwnFiles(store) => FileError::OwnFiles(store).into(),
            error @ (StoreError::Taken { .. } | StoreError::Unfit { .. } | StoreError::NotServed { .. }) => {
                StorageError::Store(error).into()
            }
        }
    }
}
