//! Why a client's request did not end well, as its program can match it.

use serde::{Deserialize, Serialize};

use crate::{JobError, PlanError};

/// Why a request of a client ended without what it asked for. What each carries is for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum RequestFailure {
    /// It cannot be begun: it names what is not there, or asks for what is not possible now.
    #[error("{detail}; {next_step}")]
    Refused {
        /// What is in the way.
        detail: String,
        /// What to do about it.
        next_step: String,
    },
    /// More is lost than the code can give back.
    #[error("{detail}")]
    TooMuchLost {
        /// What is lost.
        detail: String,
    },
    /// No plan can be made for another reason.
    #[error("{detail}")]
    NoPlan {
        /// Which.
        detail: String,
    },
    /// The blocks contradict each other, and nothing tells which of them is wrong.
    #[error("{detail}")]
    Contradiction {
        /// What happened.
        detail: String,
    },
    /// Nodes failed, and no others can take their places: it may go better later.
    #[error("{detail}")]
    Nodes {
        /// Which, and how.
        detail: String,
    },
    /// This client itself cannot go on.
    #[error("{detail}")]
    Client {
        /// Why.
        detail: String,
    },
    /// What was stored cannot be recorded.
    #[error("{detail}")]
    Unrecorded {
        /// What the storage of the catalog says.
        detail: String,
    },
    /// It was called off before it began, or on the way.
    #[error("it was called off")]
    CalledOff,
}

impl From<&JobError> for RequestFailure {
    fn from(error: &JobError) -> Self {
        let detail = error.to_string();
        match error {
            JobError::Plan { error: PlanError::Decode { .. }, .. } => Self::TooMuchLost { detail },
            JobError::Plan { .. } => Self::NoPlan { detail },
            JobError::Contradiction { .. } => Self::Contradiction { detail },
            JobError::NoRequestor { .. } | JobError::NoProgress { .. } | JobError::StoreNotReady { .. } => {
                Self::Nodes { detail }
            }
            JobError::Client { .. } => Self::Client { detail },
            JobError::Cancelled => Self::CalledOff,
        }
    }
}
