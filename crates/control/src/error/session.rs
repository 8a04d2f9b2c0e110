//! Refusals of requests that clients send on their control connections.

use repair::NodeId;

use crate::error::{CORRECT_IT, ErrorKind};

/// The reason that a client's request is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each is told by its message")]
pub enum SessionError {
    #[error("only clients read and put")]
    NoClient,
    #[error("more than {0} requests of one connection at a time")]
    TooManyRequests(usize),
    #[error("the number {0} is in use by another request of this connection")]
    TagTaken(u64),
    #[error("node {0} has gone")]
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
            Self::NoClient => CORRECT_IT,
            Self::TooManyRequests(_) => "wait for some of them to end",
            Self::TagTaken(_) => "use a number once",
            Self::Gone(_) => "connect again once the coordinator is back",
        };
        step.into()
    }
}
