//! Refusals of codes, block sizes and chunk sizes.

use codes::SpecError;
use repair::ChunkingError;

use crate::error::ErrorKind;

/// The reason that the requested layout of blocks is not possible.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum LayoutError {
    #[error(transparent)]
    Code(#[from] SpecError),
    #[error("blocks cannot have {asked} bytes: the size must be a positive multiple of {unit} bytes")]
    BlockBytes { asked: u64, unit: u64, below: Option<u64>, above: Option<u64> },
    #[error("chunks cannot have {asked} bytes: the size must be a positive multiple of {unit} bytes")]
    ChunkBytes { asked: u64, unit: u64, below: Option<u64>, above: Option<u64> },
    #[error(transparent)]
    Chunks(#[from] ChunkingError),
}

impl LayoutError {
    pub(crate) fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::Code(_) => "choose a code such as rs-14-10 (n comes first)".into(),
            Self::BlockBytes { below, above, .. } | Self::ChunkBytes { below, above, .. } => {
                match (below, above) {
                    (Some(below), Some(above)) => {
                        format!("the nearest possible sizes are {below} and {above} bytes")
                    }
                    (Some(below), None) => format!("the largest possible size is {below} bytes"),
                    (None, Some(above)) => format!("the smallest possible size is {above} bytes"),
                    (None, None) => "choose smaller chunks".into(),
                }
            }
            Self::Chunks(_) => {
                "choose a block size that is a multiple of the chunk size, and a chunk size that is a \
                 multiple of the number of sub-blocks"
                    .into()
            }
        }
    }
}
