//! Puts that were begun and are neither committed nor aborted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repair::NodeId;
use store_api::PutId;

/// Puts that have begun and not ended.
#[derive(Default)]
pub(crate) struct OpenPuts {
    pub(crate) puts: BTreeMap<PutId, OpenPut>,
    /// Puts being committed or aborted; they accept no new stripes.
    pub(crate) ending: BTreeSet<PutId>,
    /// Stripes whose allocation is being stored, with the nodes that will receive their blocks.
    pub(super) allocating: BTreeMap<(PutId, u32), Vec<NodeId>>,
}

pub(crate) struct OpenPut {
    /// The clients that store stripes of the put.
    pub(super) clients: BTreeSet<NodeId>,
    /// The time at which the put is aborted, unless a client resumes it before.
    pub(crate) until: Option<Duration>,
}
