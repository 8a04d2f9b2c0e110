//! Puts that were begun and are neither committed nor aborted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repair::NodeId;
use store_api::PutId;

/// Puts that were begun.
#[derive(Default)]
pub(crate) struct OpenPuts {
    pub(crate) puts: BTreeMap<PutId, OpenPut>,
    /// Those whose end is being stored: nothing of them begins any more.
    pub(crate) ending: BTreeSet<PutId>,
    /// Stripes whose place is being stored.
    pub(super) allocating: BTreeSet<(PutId, u32)>,
}

pub(crate) struct OpenPut {
    /// The clients that store its stripes.
    pub(super) clients: BTreeSet<NodeId>,
    /// Aborted then, unless somebody takes it up.
    pub(crate) until: Option<Duration>,
}
