//! Refusals of codes, block sizes and chunk sizes.

use codes::SpecError;
use repair::ChunkingError;

use crate::error::ErrorKind;

/// The reason that the requested layout of blocks is not possible.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each is told by its message")]
pub enum LayoutError {
    #[error(transparent)]
    Code(#[from] SpecError),
    #[error("blocks of {asked} bytes are not possible: the size must be a multiple of {unit} bytes above 0")]
    BlockBytes { asked: u64, unit: u64, below: Option<u64>, above: u64 },
    #[error("chunks of {asked} bytes are not possible: the size must be a multiple of {unit} bytes above 0")]
    ChunkBytes { asked: u64, unit: u64, below: Option<u64>, above: u64 },
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
            Self::BlockBytes { below: Some(below), above, .. }
            | Self::ChunkBytes { below: Some(below), above, .. } => {
                format!("the nearest possible sizes are {below} and {above} bytes")
            }
            Self::BlockBytes { above, .. } | Self::ChunkBytes { above, .. } => {
                format!("the smallest possible size is {above} bytes")
            }
            Self::Chunks(_) => "a block is a whole number of chunks, and a chunk of sub-blocks".into(),
        }
    }
}
