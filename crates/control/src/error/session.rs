//! Refusals of requests that clients send on their control connections.

use repair::NodeId;

use crate::error::ErrorKind;

/// The reason that a client's request is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum SessionError {
    #[error("only clients can read and store files")]
    NoClient,
    #[error("this connection already has {0} open requests, which is the limit")]
    TooManyRequests(usize),
    #[error("request number {0} is in use by another request of this connection")]
    TagTaken(u64),
    #[error("node {0} has disconnected")]
    Gone(NodeId),
}

impl SessionError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoClient => ErrorKind::Invalid,
            Self::TagTaken(_) => ErrorKind::Conflict,
            Self::TooManyRequests(_) | Self::Gone(_) => ErrorKind::Unavailable,
        }
    }

    pub(crate) fn next_step(&self) -> String {
        let step = match self {
            Self::NoClient => "connect with the certificate of a client",
            Self::TooManyRequests(_) => "wait until some of these requests end",
            Self::TagTaken(_) => "use each request number only once",
            Self::Gone(_) => "connect again when the coordinator is running",
        };
        step.into()
    }
}
