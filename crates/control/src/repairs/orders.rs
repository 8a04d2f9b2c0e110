//! Orders: the requests for repairs, as they are kept until the repairs end.

use std::collections::BTreeMap;

use codes::BlockIndex;
use recovery::{HelperPolicy, Kind, RepairSpec, Target};
use repair::{NodeId, Scheme};
use serde::{Deserialize, Serialize};
use store_api::StripeRecord;

use crate::error::RepairError;

/// An order, as it is kept in the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub target: Target,
    /// A stripe that was described with the request, and its wanted blocks with their new nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<GivenOrder>,
    /// How a node is emptied, if that is the target.
    pub way: Way,
    pub scheme: Scheme,
    pub slice_bytes: Option<u32>,
    pub verify_parity: bool,
    pub helpers: HelperPolicy,
    /// The only nodes that get blocks; any, if there are none.
    pub requestors: Vec<NodeId>,
    /// The repair is paused.
    pub paused: bool,
    /// The coordinator ordered it, not an operator.
    pub by_itself: bool,
    /// The time of the order.
    pub asked_unix_ms: u64,
}

/// The blocks of a given stripe to rebuild, with their new nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GivenOrder {
    pub stripe: StripeRecord,
    pub homes: BTreeMap<BlockIndex, NodeId>,
}

/// How a node is emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// By copies from it while it has bandwidth, and else by rebuilding from others.
    #[default]
    Both,
    /// By copies from it.
    Migrate,
    /// Rebuilt from others, as far as they can.
    Rebuild,
}

impl Way {
    const ALL: [(Self, &str); 3] =
        [(Self::Both, "both"), (Self::Migrate, "migrate"), (Self::Rebuild, "rebuild")];

    pub(crate) fn named(name: Option<&str>) -> Result<Self, RepairError> {
        let Some(name) = name else { return Ok(Self::default()) };
        let found = Self::ALL.into_iter().find(|(_, known)| *known == name);
        found.map(|(way, _)| way).ok_or_else(|| RepairError::NoSuchWay(name.to_owned()))
    }
}

impl Order {
    /// An order for a target, in the usual way.
    pub fn new(target: Target, scheme: Scheme, asked_unix_ms: u64) -> Self {
        Self {
            target,
            given: None,
            way: Way::default(),
            scheme,
            slice_bytes: None,
            verify_parity: true,
            helpers: HelperPolicy::default(),
            requestors: Vec::new(),
            paused: false,
            by_itself: false,
            asked_unix_ms,
        }
    }

    /// Whether it differs from another order in more than time and origin.
    pub fn differs(&self, other: &Self) -> bool {
        let Self { paused, by_itself, asked_unix_ms, .. } = *other;
        Self { paused, by_itself, asked_unix_ms, ..self.clone() } != *other
    }

    /// The kind of its items.
    pub fn kind(&self) -> Kind {
        match (&self.target, self.way) {
            (&Target::Drain(from), Way::Both) => Kind::Drain { from },
            (&Target::Drain(from), Way::Migrate) => Kind::Migrate { from },
            (&Target::Drain(from), Way::Rebuild) => Kind::Rebuild { from },
            _ => Kind::Reconstruct,
        }
    }

    /// Whether other lost blocks of the node's stripes stay as they are: their helpers may be in maintenance
    /// or in their grace period, or what takes their place may be another.
    pub fn is_of_node_alone(&self) -> bool {
        self.by_itself || !self.requestors.is_empty()
    }

    /// Whether many stripes are repaired, so that work is dealt out among nodes.
    pub fn is_wide(&self) -> bool {
        matches!(self.target, Target::Node(_) | Target::Drain(_) | Target::Rebalance(_) | Target::All)
    }

    /// When the stripes that were not repaired are tried again.
    pub fn next_attempt(&self) -> &'static str {
        match self.target {
            Target::Drain(_) => "it goes on by itself when one can",
            Target::Rebalance(_) => "then run mend rebalance again",
            _ if self.by_itself => "it is tried again by itself",
            _ => "then run mend repair --all",
        }
    }

    pub fn spec(&self) -> RepairSpec {
        let homes = self.given.iter().flat_map(|given| given.homes.values());
        let requestors = self.requestors.iter().chain(homes).copied().collect();
        RepairSpec { helpers: self.helpers, requestors, ..RepairSpec::default() }
    }
}
