//! Orders: requests for repairs, recorded until the repairs end.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use recovery::{HelperPolicy, Kind, Priority, RepairSpec, Target};
use repair::{NodeId, Scheme, Wanted};
use serde::{Deserialize, Serialize};
use store_api::StripeRecord;

use crate::error::RepairError;

/// An order, in memory and in the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub target: Target,
    /// A stripe that a plug-in described, and its wanted blocks with their new nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<DescribedOrder>,
    /// The way of draining, if the target is a drain.
    pub way: Way,
    pub scheme: Scheme,
    pub slice_bytes: Option<u32>,
    pub verify_parity: bool,
    pub helpers: HelperPolicy,
    /// The only nodes that may receive blocks; empty if any node may.
    pub requestors: Vec<NodeId>,
    /// Whether the repair is paused.
    pub paused: bool,
    /// Whether the coordinator, not an operator, gave the order.
    pub by_itself: bool,
    /// The time of the order.
    pub asked_unix_ms: u64,
    /// The requested priority.
    #[serde(default)]
    pub priority: Priority,
    /// The repair is cancelled if nobody asks about it for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// A stripe that a plug-in described, and the new node of each block to rebuild.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DescribedOrder {
    pub stripe: StripeRecord,
    pub homes: BTreeMap<BlockIndex, NodeId>,
    /// Whether one block is rebuilt before the others, as a spare survivor for the check of the others.
    #[serde(default)]
    pub one_first: bool,
}

impl DescribedOrder {
    /// Returns the blocks that the next job rebuilds, each with its new node, if these blocks are lost.
    pub(crate) fn next_round(&self, lost: &[BlockIndex]) -> Vec<Wanted> {
        let is_first_round = self.one_first && lost.len() == self.homes.len();
        let round = if is_first_round { &lost[..1] } else { lost };
        round.iter().map(|&block| Wanted { block, requestor: self.homes[&block] }).collect()
    }
}

/// The way in which a node is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// Copies from the node while it has bandwidth; otherwise rebuilds from other nodes.
    #[default]
    Both,
    /// Only copies from the node.
    Migrate,
    /// Rebuilds from other nodes where possible.
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

/// Returns the priority of this name. Only the coordinator's own repairs are urgent.
pub(crate) fn priority_named(name: Option<&str>) -> Result<Priority, RepairError> {
    match name {
        None | Some("normal") => Ok(Priority::Normal),
        Some("background") => Ok(Priority::Background),
        Some(other) => Err(RepairError::NoSuchPriority(other.to_owned())),
    }
}

impl Order {
    /// Creates an order for a target, with default options.
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
            priority: Priority::Normal,
            lease_ms: None,
        }
    }

    /// Whether this order differs from another one in anything but time, origin and pause.
    pub fn differs(&self, other: &Self) -> bool {
        let Self { paused, by_itself, asked_unix_ms, .. } = *other;
        Self { paused, by_itself, asked_unix_ms, ..self.clone() } != *other
    }

    /// Returns the kind of the order's items.
    pub fn kind(&self) -> Kind {
        match (&self.target, self.way) {
            (&Target::Drain(from), Way::Both) => Kind::Drain { from },
            (&Target::Drain(from), Way::Migrate) => Kind::Migrate { from },
            (&Target::Drain(from), Way::Rebuild) => Kind::Rebuild { from },
            _ => Kind::Reconstruct,
        }
    }

    /// Whether a recovery of a node repairs only this node's blocks. Other lost blocks of the same stripes
    /// are left alone, because their helpers may be in maintenance or in a grace period, or other requestors
    /// may be named for them.
    pub fn is_of_node_alone(&self) -> bool {
        self.by_itself || !self.requestors.is_empty()
    }

    /// Whether the order moves blocks that are not lost.
    pub fn moves(&self) -> bool {
        matches!(self.target, Target::Drain(_) | Target::Rebalance(_))
    }

    /// Whether the coordinator ordered the repair of a single stripe that has lost blocks.
    pub fn heals(&self) -> bool {
        self.by_itself && matches!(self.target, Target::Stripe(_) | Target::Block(_))
    }

    /// Whether the repair covers many stripes, whose work the scheduler distributes over nodes.
    pub fn is_wide(&self) -> bool {
        matches!(self.target, Target::Node(_) | Target::Drain(_) | Target::Rebalance(_) | Target::All)
    }

    /// Returns how long the repair goes on while nobody asks about it; `None` if it needs nobody. The
    /// coordinator's own repairs do not, also if they continue a requested one.
    pub fn lease(&self) -> Option<Duration> {
        self.lease_ms.filter(|_| !self.by_itself).map(Duration::from_millis)
    }

    /// Returns advice on when the remaining stripes are retried.
    pub fn next_attempt(&self) -> &'static str {
        match self.target {
            Target::Drain(_) => "the drain continues automatically when a helper has room",
            Target::Rebalance(_) => "then run mend rebalance again",
            _ if self.by_itself => "it is retried automatically",
            _ => "then run mend repair --all",
        }
    }

    pub fn spec(&self) -> RepairSpec {
        let homes = self.given.iter().flat_map(|given| given.homes.values());
        let requestors = self.requestors.iter().chain(homes).copied().collect();
        // An automatic repair is urgent: with normal priority, a drain of the same stripe could start first.
        let priority = if self.heals() { Priority::Urgent } else { self.priority };
        RepairSpec { priority, helpers: self.helpers, requestors }
    }
}
