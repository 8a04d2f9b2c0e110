//! The further results of a repetition.

use serde::{Deserialize, Serialize};

use super::nodes::LostNode;
use super::reads::SmallReads;
use crate::experiment::{Reads, report};

pub(super) type Report = report::Report<Detail>;
pub(super) type Cell = report::Cell<Detail>;
pub(super) type Run = report::Run<Detail>;

/// Further results, by the kind of measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Detail {
    /// A block was rebuilt.
    Block,
    /// A DataNode was recovered.
    Node {
        lost: LostNode,
        /// The time from the NameNode's first command; `None` if an operator requested the recovery.
        from_command_s: Option<f64>,
    },
    /// A lost block was read.
    SmallReads(SmallReads),
    /// Blocks were read during a recovery, or while nothing was repaired.
    ReadsDuring(Reads),
}

impl Detail {
    /// Returns the lost DataNode and the time from the first command.
    pub(super) fn node(&self) -> Option<(LostNode, Option<f64>)> {
        match *self {
            Self::Node { lost, from_command_s } => Some((lost, from_command_s)),
            _ => None,
        }
    }
}
