//! Errors of client operations.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use cluster::{Address, Distrust, IdentityError};
use helper::ConnectError;
use repair::wire::RequestFailure;

use crate::RangePastEnd;
use crate::whole::WholeBlock;

/// An error of a client operation.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The client's certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No connection can be established: nothing listens at the address, or the network blocks it.
    #[error("cannot reach the coordinator at {address}: {source}")]
    Unreachable {
        /// The coordinator's address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
    /// The peer is not this cluster's coordinator, or it rejects our certificate.
    #[error("{address} {distrust}: {source}")]
    Untrusted {
        /// The dialled address.
        address: Address,
        /// The reason.
        distrust: Distrust,
        /// The TLS error.
        source: io::Error,
    },
    /// The connection broke before the response arrived.
    #[error("lost the coordinator at {address}: {detail}")]
    Lost {
        /// The coordinator's address.
        address: Address,
        /// A description of the failure.
        detail: String,
    },
    /// The coordinator sent a malformed or unexpected response.
    #[error("cannot parse the answer of the coordinator at {address}: {detail}")]
    Protocol {
        /// The coordinator's address.
        address: Address,
        /// A description of the defect.
        detail: String,
    },
    /// The coordinator's answer is too long.
    #[error("the coordinator's answer is longer than the limit of {} MiB", limit >> 20)]
    LongAnswer {
        /// The limit in bytes.
        limit: usize,
    },
    /// The coordinator refused to open a control session.
    #[error(transparent)]
    Session(ConnectError),
    /// The coordinator refused the request.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The coordinator's message.
        message: String,
        /// The coordinator's suggestion for the next step.
        next_step: Option<String>,
    },
    /// A read or put of a stripe failed.
    #[error("stripe {stripe}: {failure}")]
    Failed {
        /// The stripe's id; for a put, the stripe's position in the file.
        stripe: String,
        /// The coordinator's reason.
        failure: RequestFailure,
    },
    /// Some stripes of a file have lost more blocks than the code tolerates.
    #[error("bytes {} of `{file}` are unreadable: {} of its stripes have lost more blocks than the code tolerates ({}): {reason}",
        ranges(lost), stripes.len(), first(stripes))]
    Unreadable {
        /// The file.
        file: String,
        /// The unreadable stripes of the file.
        stripes: Vec<String>,
        /// The affected byte ranges of the file, in order and merged.
        lost: Vec<Range<u64>>,
        /// The coordinator's reason for the first failed stripe.
        reason: RequestFailure,
    },
    /// The file was replaced during the read, and the coordinator no longer keeps the old version.
    #[error("`{file}` was replaced during the read, and the old version is no longer available: {reason}")]
    Replaced {
        /// The file.
        file: String,
        /// The coordinator's reason for the read that failed.
        reason: RequestFailure,
    },
    /// A block arrived with wrong bytes, and could not be decoded from the stripe's other blocks instead.
    #[error("block {block} (bytes {}-{} of the file) arrived with wrong bytes{}", bytes.start, bytes.end - 1,
        reason.as_ref().map_or(String::new(), |reason| format!(", and decoding it from other blocks failed: {reason}")))]
    Garbled {
        /// The block.
        block: String,
        /// The block's byte range in the file.
        bytes: Range<u64>,
        /// The coordinator's reason, if the coordinator reported that decoding failed.
        reason: Option<RequestFailure>,
    },
    /// A stored block differs from the local file.
    #[error(
        "block {index} of the stripe at position {position} was stored with wrong bytes; the put was discarded"
    )]
    StoredWrong {
        /// The stripe's position in the file.
        position: u64,
        /// The block's index in the stripe.
        index: u16,
    },
    /// The stripe has no block with this index.
    #[error("stripe {stripe} has no block {index}: it has {blocks} blocks, numbered from 0")]
    NoBlock {
        /// The stripe.
        stripe: String,
        /// The requested index.
        index: u16,
        /// The number of blocks of the stripe.
        blocks: usize,
    },
    /// The requested range exceeds the file or block.
    #[error(transparent)]
    Range(#[from] RangePastEnd),
    /// A local file cannot be read or written during a put or get.
    #[error(transparent)]
    File(#[from] LocalFileError),
}

/// Why a put or get cannot use a local file.
#[derive(Debug, thiserror::Error)]
pub enum LocalFileError {
    /// An I/O error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The action that failed, such as `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path is a folder, pipe or device; only regular files can be put.
    #[error("{} is not a regular file, so it cannot be stored", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file has another length than its metadata says, like many files of /proc and /sys.
    #[error("the length of {} is not {bytes} bytes, as its metadata says; copy it, and put the copy", path.display())]
    WrongLength {
        /// The path.
        path: PathBuf,
        /// The length according to the metadata.
        bytes: u64,
    },
    /// The file changed while it was being put.
    #[error("{} {change} during the put; the put was discarded", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The kind of change.
        change: FileChange,
    },
}

/// How a file changed while it was being put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileChange {
    /// The file no longer exists.
    #[error("vanished")]
    Vanished,
    /// The path now names another file.
    #[error("was replaced by another file")]
    Replaced,
    /// The file's length changed.
    #[error("changed its length from {from} to {to} bytes")]
    Length {
        /// The length when the put started.
        from: u64,
        /// The current length.
        to: u64,
    },
    /// The file was modified.
    #[error("was written to")]
    Written,
    /// The file's content or metadata changed, although its modification time did not.
    #[error("was changed")]
    Touched,
}

impl ClientError {
    /// Whether the coordinator could not be reached or authenticated.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Untrusted { .. } | Self::Lost { .. } | Self::Session(_)
        )
    }

    /// When `block` arrives with wrong bytes, a second read decodes it from other blocks. This method
    /// converts an error of the second read: a failure that the coordinator reported becomes
    /// [`ClientError::Garbled`]; other errors stay unchanged.
    pub(crate) fn of_garbled(self, block: &WholeBlock) -> Self {
        match self {
            Self::Failed { failure, .. } => Self::garbled(block, Some(failure)),
            other => other,
        }
    }

    pub(crate) fn garbled(block: &WholeBlock, reason: Option<RequestFailure>) -> Self {
        Self::Garbled { block: block.name.clone(), bytes: block.file.clone(), reason }
    }

    /// Whether the coordinator answered that the requested object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

impl LocalFileError {
    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

impl From<ConnectError> for ClientError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable { address, source } => Self::Unreachable { address, source },
            ConnectError::Untrusted { address, distrust, source } => {
                Self::Untrusted { address, distrust, source }
            }
            other => Self::Session(other),
        }
    }
}

/// The maximum number of items to list in a message.
const LISTED: usize = 8;

fn ranges(ranges: &[Range<u64>]) -> String {
    let text = |range: &Range<u64>| format!("{}-{}", range.start, range.end.saturating_sub(1));
    first(&ranges.iter().map(text).collect::<Vec<_>>())
}

fn first(names: &[String]) -> String {
    match names.get(..LISTED) {
        Some(first) if names.len() > LISTED => format!("{}, …", first.join(", ")),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_in_messages_are_truncated() {
        let error = |count: u64| ClientError::Unreadable {
            file: "film".to_owned(),
            stripes: (0..count).map(|stripe| stripe.to_string()).collect(),
            lost: vec![0..10, 20..30],
            reason: RequestFailure::TooMuchLost { detail: "gone".to_owned() },
        };
        let text = "bytes 0-9, 20-29 of `film` are unreadable: 2 of its stripes have lost more blocks than the code \
             tolerates (0, 1): gone";
        assert_eq!(error(2).to_string(), text);
        assert!(error(1000).to_string().contains("(0, 1, 2, 3, 4, 5, 6, 7, …)"));
    }
}
