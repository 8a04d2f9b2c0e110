//! Caps on what repairs may move, and what helpers were told of them.

use std::collections::BTreeMap;
use std::time::Duration;

use recovery::Dealer;
use repair::NodeId;

use views::CapsView;

/// Caps, and what helpers were told of them.
#[derive(Default)]
pub(crate) struct Capping {
    pub(super) view: CapsView,
    pub(super) dealer: Dealer,
    pub(super) told: BTreeMap<NodeId, repair::Caps>,
    pub(super) sharing: Sharing,
}

/// Where the dealing of common caps is.
#[derive(Clone, Copy, Default)]
pub(super) enum Sharing {
    /// No repair runs, or nothing is common.
    #[default]
    Resting,
    /// Shares are used; helpers are asked then.
    Using { until: Duration },
    /// Helpers were asked what they left; what they say until then counts.
    Asked { until: Duration },
}
