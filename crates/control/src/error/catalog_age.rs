//! Refusals because helpers have blocks that are newer than the catalog.

use crate::error::{ErrorKind, list};

/// The reason that changes or removals are refused while the catalog may be an old copy.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum CatalogAgeError {
    #[error(
        "the catalog is an old copy: {blocks} blocks on {} are newer than it; nothing is stored, removed or \
         repaired until you choose how to continue",
        list(.nodes)
    )]
    CatalogBehind { nodes: Vec<String>, blocks: u64 },
    #[error("no blocks are removed while helper {node} lists blocks that are newer than the catalog")]
    CatalogDoubted { node: String },
    #[error("helper {0} lists no blocks that are newer than the catalog")]
    NothingClaimed(String),
}

impl CatalogAgeError {
    pub(crate) fn kind(&self) -> ErrorKind {
        ErrorKind::Conflict
    }

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::CatalogDoubted { node } => {
                format!(
                    "list these blocks with mend catalog accept --list; then run mend catalog accept to \
                     continue without them, or mend catalog accept --reject {node} to ignore this helper's \
                     list"
                )
            }
            Self::NothingClaimed(_) => "mend catalog accept --list shows the helpers that do".into(),
            Self::CatalogBehind { .. } => {
                "restore the newest copy of the catalog (`mend catalog restore FILE`), rebuild it from the \
                 helpers (`mend catalog rebuild`), or continue without the newer blocks (`mend catalog \
                 accept`); if a helper's list of blocks is wrong, ignore this list (`mend catalog accept \
                 --list` shows the lists, `mend catalog accept --reject HELPER` ignores one)"
                    .into()
            }
        }
    }
}
