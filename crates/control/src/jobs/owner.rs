//! Owners of jobs: reads, puts, repairs, probes and trials.

use repair::NodeId;
use store_api::PutId;
use views::{FoundBy, JobKind};

/// The purpose of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A read by a client.
    Read { client: NodeId, tag: u64 },
    /// A client's write of one stripe.
    Put { client: NodeId, tag: u64, put: PutId, position: u32 },
    /// A repair.
    Repair { repair: u64 },
    /// The measurement of a link.
    Probe,
    /// The trial of a node that may be slow.
    Trial,
}

impl Owner {
    /// Returns the origin of a contradiction that a job of this owner finds.
    pub(crate) fn found_by(&self) -> FoundBy {
        match self {
            Self::Read { .. } | Self::Probe | Self::Trial => FoundBy::Read,
            Self::Put { .. } | Self::Repair { .. } => FoundBy::Repair,
        }
    }

    pub(crate) fn kind(&self) -> JobKind {
        match self {
            Self::Read { .. } => JobKind::Read,
            Self::Put { .. } => JobKind::Put,
            Self::Repair { .. } => JobKind::Repair,
            Self::Probe | Self::Trial => JobKind::Probe,
        }
    }
}
