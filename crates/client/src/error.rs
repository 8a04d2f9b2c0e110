//! Why a client cannot do what it was asked to.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use cluster::{Address, IdentityError};
use helper::ConnectError;
use repair::wire::RequestFailure;

use crate::RangePastEnd;
use crate::whole::WholeBlock;

/// Why a client cannot do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The client's certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Nobody listens there, or the way is blocked.
    #[error("cannot reach the coordinator at {address}: {source}")]
    Unreachable {
        /// Where it should be.
        address: Address,
        /// What the system says.
        source: io::Error,
    },
    /// The other end is not this cluster's coordinator, or does not take our certificate.
    #[error("{address} is not the coordinator of this cluster, or does not accept our certificate: {source}")]
    Untrusted {
        /// Where it was dialled.
        address: Address,
        /// What TLS says.
        source: io::Error,
    },
    /// The connection broke while an answer was awaited.
    #[error("lost the coordinator at {address}: {detail}")]
    Lost {
        /// Where it was.
        address: Address,
        /// What happened.
        detail: String,
    },
    /// The coordinator answers something else than was agreed.
    #[error("the coordinator at {address} answers what this version cannot read: {detail}")]
    Protocol {
        /// Where it is.
        address: Address,
        /// What was read.
        detail: String,
    },
    /// The coordinator takes no control session of ours.
    #[error(transparent)]
    Session(ConnectError),
    /// The coordinator says no.
    #[error("{message}")]
    Refused {
        /// Its HTTP status.
        status: u16,
        /// What is wrong.
        message: String,
        /// What it proposes to do next.
        next_step: Option<String>,
    },
    /// A read or a put of a stripe ended without success.
    #[error("stripe {stripe}: {failure}")]
    Failed {
        /// The stripe, or its position for a put.
        stripe: String,
        /// What the coordinator says.
        failure: RequestFailure,
    },
    /// More of a file is lost than its code can give back.
    #[error("bytes {} of `{file}` cannot be read, as {} of its stripes lost too much ({}): {reason}",
        ranges(lost), stripes.len(), first(stripes))]
    Unreadable {
        /// The file.
        file: String,
        /// Its stripes that cannot be read now.
        stripes: Vec<String>,
        /// The bytes of the file in them, in order; ranges that touch are one.
        lost: Vec<Range<u64>>,
        /// What the coordinator says of the first that was tried.
        reason: RequestFailure,
    },
    /// A file was replaced while it was read, and the coordinator no longer keeps the old one for this read.
    #[error("`{file}` was replaced while it was read, and the rest of the old file is gone: {reason}")]
    Replaced {
        /// The file.
        file: String,
        /// The coordinator's reason for the read that failed.
        reason: RequestFailure,
    },
    /// A block was read with other bytes than were stored, and the stripe's other blocks do not make up for it.
    #[error("block {block} (bytes {}-{} of the file) was read with other bytes than were stored{}", bytes.start, bytes.end - 1,
        reason.as_ref().map_or(String::new(), |reason| format!(", and the others do not give it: {reason}")))]
    Garbled {
        /// The block.
        block: String,
        /// Its bytes in the file.
        bytes: Range<u64>,
        /// The coordinator's reason, if decoding it from the others failed.
        reason: Option<RequestFailure>,
    },
    /// A block was stored with other bytes than the file has.
    #[error(
        "block {index} of the stripe at position {position} was stored with other bytes than the file has; nothing of it was kept"
    )]
    StoredWrong {
        /// The stripe's position in the file.
        position: u64,
        /// The block's index in the stripe.
        index: u16,
    },
    /// The range is not in the file.
    #[error(transparent)]
    Range(#[from] RangePastEnd),
    /// A file on this machine is in the way of a put or a get.
    #[error(transparent)]
    File(#[from] LocalFileError),
}

/// What is wrong with a file on this machine.
#[derive(Debug, thiserror::Error)]
pub enum LocalFileError {
    /// The system refuses.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted, such as `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("{} is not a plain file, so it cannot be put", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file changed while it was being put.
    #[error("{} {change} while it was being put; nothing of it was kept", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// How.
        change: FileChange,
    },
}

/// How a file changed while it was being put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileChange {
    /// It is not there any more.
    #[error("vanished")]
    Vanished,
    /// Another file has its name.
    #[error("was replaced by another file")]
    Replaced,
    /// It has another length.
    #[error("changed its length from {from} to {to} bytes")]
    Length {
        /// When the put began.
        from: u64,
        /// Now.
        to: u64,
    },
    /// It was written to.
    #[error("was written to")]
    Written,
}

impl ClientError {
    /// Whether the coordinator could not be reached, or not be trusted.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Untrusted { .. } | Self::Lost { .. } | Self::Session(_)
        )
    }

    /// The error of a read that was to decode a block from the others.
    pub(crate) fn of_garbled(self, block: &WholeBlock) -> Self {
        match self {
            Self::Failed { failure, .. } => Self::garbled(block, Some(failure)),
            other => other,
        }
    }

    pub(crate) fn garbled(block: &WholeBlock, reason: Option<RequestFailure>) -> Self {
        Self::Garbled { block: block.name.clone(), bytes: block.file.clone(), reason }
    }

    /// Whether the coordinator knows nothing of this name.
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
            ConnectError::Untrusted { address, source } => Self::Untrusted { address, source },
            other => Self::Session(other),
        }
    }
}

/// No more things are listed in a message.
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
    fn what_is_unreadable_is_told_without_end() {
        let error = |count: u64| ClientError::Unreadable {
            file: "film".to_owned(),
            stripes: (0..count).map(|stripe| stripe.to_string()).collect(),
            lost: vec![0..10, 20..30],
            reason: RequestFailure::TooMuchLost { detail: "gone".to_owned() },
        };
        let text =
            "bytes 0-9, 20-29 of `film` cannot be read, as 2 of its stripes lost too much (0, 1): gone";
        assert_eq!(error(2).to_string(), text);
        assert!(error(1000).to_string().contains("(0, 1, 2, 3, 4, 5, 6, 7, …)"));
    }
}
