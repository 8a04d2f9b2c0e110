//! Who wants a job.

use repair::NodeId;
use store_api::PutId;
use views::{FoundBy, JobKind};

/// Who wants a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A client reads.
    Read { client: NodeId, tag: u64 },
    /// A client stores a stripe.
    Put { client: NodeId, tag: u64, put: PutId, position: u32 },
    /// A repair.
    Repair { repair: u64 },
    /// A link is measured.
    Probe,
    /// A node that may be slow is tried.
    Trial,
}

impl Owner {
    /// Which of those that notice contradictions its job is.
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
