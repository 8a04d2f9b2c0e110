//! Refusals because no plan meets the request.

use repair::{PlanError, StripeId, UnknownScheme};

use crate::error::ErrorKind;

/// The reason that no plan can be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum PlanningError {
    #[error("stripe {stripe} has blocks b0 to b{}, but no b{index}", blocks - 1)]
    NoSuchIndex { stripe: String, index: u16, blocks: usize },
    #[error("block b{index} of stripe {stripe} was replaced since it was found")]
    BlockReplaced { stripe: String, index: u16 },
    #[error("no block of stripe {0} is lost, so there is nothing to plan")]
    NothingLost(StripeId),
    #[error(transparent)]
    Scheme(#[from] UnknownScheme),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl PlanningError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::BlockReplaced { .. } | Self::Plan(PlanError::Decode { .. }) => ErrorKind::Conflict,
            Self::NoSuchIndex { .. } | Self::NothingLost(_) | Self::Scheme(_) | Self::Plan(_) => {
                ErrorKind::Invalid
            }
        }
    }

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::NoSuchIndex { .. } => "see the stripe's blocks with `mend stat`".into(),
            Self::BlockReplaced { .. } => "find the block again, and read all of it".into(),
            Self::NothingLost(_) => "name a block instead, or treat blocks as lost (mend plan --lost)".into(),
            Self::Scheme(_) => "choose one of the schemes listed".into(),
            Self::Plan(PlanError::Decode { .. }) => "start helpers that are down, then try again".into(),
            Self::Plan(_) => "choose other blocks, another scheme or another requestor".into(),
        }
    }
}
