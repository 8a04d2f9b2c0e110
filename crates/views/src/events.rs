//! The events that the coordinator pushes to subscribers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Condition, HistoryEntry, RepairView};

/// A message of the stream of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PushedEvent {
    /// The conditions of the cluster, all of them: at the beginning of the stream, and after each change.
    Conditions {
        /// The conditions.
        conditions: Vec<Condition>,
    },
    /// A new entry of the history.
    History {
        /// The entry.
        entry: HistoryEntry,
    },
    /// All open repairs, without their stripes, at the beginning of the stream. Each of them is in a later `Repair`
    /// event when it has ended.
    Repairs {
        /// The repairs.
        repairs: Vec<RepairView>,
    },
    /// The progress of a repair, without its stripes: after each change, and when the repair has ended.
    Repair {
        /// The repair.
        repair: Box<RepairView>,
    },
}

impl PushedEvent {
    /// Returns the name of the event in the stream, which is also its `kind`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Conditions { .. } => "conditions",
            Self::History { .. } => "history",
            Self::Repairs { .. } => "repairs",
            Self::Repair { .. } => "repair",
        }
    }
}
