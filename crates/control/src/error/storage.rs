//! Refusals by the storage, and refusals while the storage is failing or too slow.

use store_api::{CatalogError, StoreError, Term};

use crate::error::ErrorKind;

/// The reason that a write fails, or that an entry is missing from the catalog.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum StorageError {
    #[error("the catalog's disk is too slow: {waiting} changes are waiting to be stored")]
    StorageBehind { waiting: usize },
    #[error("nothing can be stored: {0}")]
    StorageFails(StoreError),
    #[error("another coordinator has taken over ({newest}); this one ({ours}) can no longer write")]
    Fenced { ours: Term, newest: Term },
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Store(StoreError),
}

impl StorageError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Catalog(CatalogError::NoSuchStripe(_) | CatalogError::NoSuchBlock(_)) => {
                ErrorKind::NotFound
            }
            Self::Catalog(CatalogError::Ambiguous { .. }) => ErrorKind::Conflict,
            Self::Catalog(
                CatalogError::Storage { .. } | CatalogError::Damaged { .. } | CatalogError::NumbersUsedUp,
            ) => ErrorKind::Internal,
            Self::Catalog(CatalogError::Moved { .. })
            | Self::StorageBehind { .. }
            | Self::StorageFails(_)
            | Self::Fenced { .. }
            | Self::Store(_) => ErrorKind::Unavailable,
        }
    }

    pub(crate) fn next_step(&self) -> String {
        let step = match self {
            Self::StorageBehind { .. } => "try again later; if this persists, check the coordinator's disk",
            Self::Catalog(CatalogError::Moved { .. })
            | Self::StorageFails(StoreError::Catalog(CatalogError::Moved { .. })) => {
                "move the catalog file back: the coordinator then continues automatically"
            }
            Self::StorageFails(_) => {
                "free space on the coordinator's disk or repair it: the coordinator then continues \
                 automatically (see `mend status`)"
            }
            Self::Fenced { .. } => "stop this coordinator, and use the other one",
            Self::Store(_) => "try again in a few seconds",
            Self::Catalog(CatalogError::NoSuchStripe(_) | CatalogError::NoSuchBlock(_)) => {
                "see a file's stripes and blocks with `mend stat`"
            }
            Self::Catalog(CatalogError::Ambiguous { .. }) => {
                "use the full name, including the part after the hyphen"
            }
            Self::Catalog(CatalogError::Storage { .. }) => "check the coordinator's log and disk",
            Self::Catalog(CatalogError::Damaged { .. } | CatalogError::NumbersUsedUp) => {
                "stop the coordinator, then take one of these steps"
            }
        };
        step.into()
    }
}
