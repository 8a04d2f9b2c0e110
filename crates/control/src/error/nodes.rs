//! Refusals of requests about helpers and settings.

use std::time::Duration;

use cluster::ParseRepairAfterError;

use crate::error::{ErrorKind, list};

/// The reason that a request about a helper or the settings is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum NodeError {
    #[error("there is no helper `{name}`; the known helpers are {}", list(.known))]
    NoSuchNode { name: String, known: Vec<String> },
    #[error("the request names no helper")]
    NoNodes,
    #[error("helper {0} is up")]
    NodeUp(String),
    #[error("helper {0} is not in maintenance")]
    NotInMaintenance(String),
    #[error("helper {0} is not being drained")]
    NotDraining(String),
    #[error("maintenance must last longer than 0 and at most {} days", most.as_secs() / 86_400)]
    MaintenanceTime { most: Duration },
    #[error("helper {name} must not be removed: it still holds {blocks}")]
    NodeNeeded { name: String, blocks: String, next_step: String },
    #[error("{0} cannot replace itself")]
    ReplacesItself(String),
    #[error("{new} cannot replace {old}: it is not up")]
    ReplacementDown { old: String, new: String },
    #[error("{new} cannot replace {old}: it is being drained itself")]
    ReplacementLeaves { old: String, new: String },
    #[error(transparent)]
    RepairAfter(#[from] ParseRepairAfterError),
}

impl NodeError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchNode { .. } => ErrorKind::NotFound,
            Self::NodeUp(_)
            | Self::NodeNeeded { .. }
            | Self::NotInMaintenance(_)
            | Self::NotDraining(_)
            | Self::ReplacementDown { .. }
            | Self::ReplacementLeaves { .. } => ErrorKind::Conflict,
            Self::NoNodes | Self::ReplacesItself(_) | Self::MaintenanceTime { .. } | Self::RepairAfter(_) => {
                ErrorKind::Invalid
            }
        }
    }

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::NoSuchNode { .. } => "list the helpers with `mend node list`".into(),
            Self::NoNodes => "name at least one helper; mend node list shows all".into(),
            Self::NodeUp(name) => {
                format!("stop the helper permanently (its process is `mend helper {name}`), then try again")
            }
            Self::NodeNeeded { next_step, .. } => next_step.clone(),
            Self::NotInMaintenance(_) => "mend node list shows the helpers in maintenance".into(),
            Self::NotDraining(_) => "mend status shows the helpers that are being drained".into(),
            Self::MaintenanceTime { .. } => "choose a time such as 10m or 2h".into(),
            Self::ReplacesItself(_) => "name another helper; mend node list shows all".into(),
            Self::ReplacementLeaves { new, .. } => {
                format!("name another helper, or stop its drain first (mend node drain {new} --stop)")
            }
            Self::ReplacementDown { new, .. } => {
                format!(
                    "start {new} with mend helper {new}; if it is a new helper, run mend node add {new} first"
                )
            }
            Self::RepairAfter(_) => "choose a time such as 10m, or never".into(),
        }
    }
}
