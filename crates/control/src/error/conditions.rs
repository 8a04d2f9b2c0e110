//! Refusals of requests about conditions.

use views::ConditionCode;

use crate::error::ErrorKind;

/// The reason that a condition is not muted or unmuted.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum ConditionError {
    #[error("there is no condition with the code {0}")]
    NoSuchCode(String),
    #[error("the cluster does not have the condition {0} now")]
    NotPresent(ConditionCode),
    #[error("the condition {0} is not muted")]
    NotMuted(ConditionCode),
}

impl ConditionError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchCode(_) | Self::NotPresent(_) => ErrorKind::NotFound,
            Self::NotMuted(_) => ErrorKind::Conflict,
        }
    }

    pub(crate) fn next_step(&self) -> String {
        "mend status lists the conditions of the cluster with their codes".into()
    }
}
