//! The caps on repair traffic, and the paces that helpers were sent.

use std::collections::BTreeMap;
use std::time::Duration;

use recovery::Dealer;
use repair::NodeId;

use views::CapsView;

/// Caps on repair traffic, and the paces that helpers were sent.
#[derive(Default)]
pub(crate) struct Capping {
    pub(super) view: CapsView,
    /// The caps after the last requested change. They are the base of the next one while `unwritten` is not 0.
    pub(super) requested: CapsView,
    /// The number of changes that are not durable yet.
    pub(super) unwritten: usize,
    pub(super) dealer: Dealer,
    pub(super) told: BTreeMap<NodeId, repair::Caps>,
    pub(super) sharing: Sharing,
}

/// The phase of redistributing shared caps.
#[derive(Clone, Copy, Default)]
pub(super) enum Sharing {
    /// No repair runs, or no cap is shared.
    #[default]
    Resting,
    /// Shares are in use until the given time. Then the coordinator asks helpers which part they left unused.
    Using { until: Duration },
    /// Helpers were asked for the unused part. Their reports are accepted until the given time.
    Asked { until: Duration },
}
