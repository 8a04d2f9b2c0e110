//! Refusals because helpers have blocks that are newer than the catalog.

use crate::error::{ErrorKind, list};

/// The reason that changes or removals are refused while the catalog may be an old copy.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each is told by its message")]
pub enum CatalogAgeError {
    #[error(
        "the catalog is older than blocks on {}: {blocks} are of stripes that it has yet to count, so an old copy of it was \
         put back; nothing is stored, removed or repaired until somebody decides",
        list(.nodes)
    )]
    CatalogBehind { nodes: Vec<String>, blocks: u64 },
    #[error("nothing is removed while {node} lists blocks that are newer than the catalog")]
    CatalogDoubted { node: String },
}

impl CatalogAgeError {
    pub(crate) fn kind(&self) -> ErrorKind {
        ErrorKind::Conflict
    }

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::CatalogDoubted { node } => {
                format!("see mend catalog accept --list; then mend catalog accept, or mend catalog accept --reject {node}")
            }
            Self::CatalogBehind { .. } => {
                "restore the newest copy of the catalog (`mend catalog restore FILE`), make it anew from the helpers \
                 (`mend catalog rebuild`), go on without what is newer (`mend catalog accept`), or, if a helper makes it up, see \
                 which helper lists what (`mend catalog accept --list`) and disbelieve it (`mend catalog accept --reject HELPER`)"
                    .into()
            }
        }
    }
}
