//! The helper policies, by name: how survivors are chosen as helpers.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use codes::BlockIndex;
use serde::{Deserialize, Serialize};

use super::nodes::{Node, NodeNo, NodeTable};
use super::stripes::Stripe;

/// How helpers are chosen among the survivors of a stripe.
///
/// The scheduler passes the survivors to the planner in the order of the policy. The planner decides how many
/// are taken and which of them the code can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HelperPolicy {
    /// Work is divided into shares such that all nodes finish at the same time.
    #[default]
    Even,
    /// Nodes with the largest free part of their budgets.
    FreeBudget,
    /// Blocks with the lowest indices.
    LowestIndex,
    /// Least recently used nodes (TOS'21, section 3.3).
    LeastRecentlyUsed,
    /// Nodes with the least load so far: the larger of bytes sent and bytes received.
    LoadGreedy,
    /// Nodes with the largest weight. A block in memory increases the weight; running repairs and user load
    /// decrease it (m-PPR).
    MPpr,
    /// Blocks with the lowest indices. All rebuilt blocks go to the node with the lowest number (PUSH-Rep, a
    /// baseline).
    PushRep,
    /// Blocks with the lowest indices. Rebuilt blocks go to all nodes in turn (PUSH-Sur, a baseline).
    PushSur,
}

impl HelperPolicy {
    /// All policies.
    pub const ALL: [Self; 8] = [
        Self::Even,
        Self::FreeBudget,
        Self::LowestIndex,
        Self::LeastRecentlyUsed,
        Self::LoadGreedy,
        Self::MPpr,
        Self::PushRep,
        Self::PushSur,
    ];

    /// Returns the name of the policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::FreeBudget => "free-budget",
            Self::LowestIndex => "lowest-index",
            Self::LeastRecentlyUsed => "least-recently-used",
            Self::LoadGreedy => "load-greedy",
            Self::MPpr => "m-ppr",
            Self::PushRep => "push-rep",
            Self::PushSur => "push-sur",
        }
    }

    /// Sorts survivors by preference.
    pub(super) fn sort(self, survivors: &mut [(BlockIndex, NodeNo)], stripe: &Stripe, table: &NodeTable) {
        let count = survivors.len() as u64;
        survivors
            .sort_by_cached_key(|&(block, node)| (self.rank(block, table.get(node), stripe, count), block));
    }

    fn rank(self, block: BlockIndex, node: &Node, stripe: &Stripe, survivors: u64) -> (u64, u64) {
        let moved = node.done.sent_bytes.max(node.done.received_bytes);
        match self {
            Self::Even => {
                let expected = stripe.block_bytes * stripe.code.data_blocks() as u64 / survivors.max(1);
                (node.under_way().saturating_add(node.waiting_stripes() * expected), 0)
            }
            Self::FreeBudget => (node.used().fullness(&node.budget), moved),
            Self::LowestIndex | Self::PushRep | Self::PushSur => (0, 0),
            Self::LeastRecentlyUsed => (node.done.helped_at, 0),
            Self::LoadGreedy => (moved, 0),
            Self::MPpr => (u64::MAX - Weights::of(stripe).source(block, node, stripe), 0),
        }
    }

    /// Returns the sort key among requestors that are otherwise equal. The smallest is preferred.
    pub(super) fn requestor_rank(self, node: &Node, stripe: &Stripe) -> (u64, Reverse<u64>) {
        match self {
            Self::MPpr => (Weights::of(stripe).destination(node), Reverse(0)),
            Self::PushRep => (0, Reverse(0)),
            _ => (node.done.received_bytes, Reverse(node.facts.free_bytes)),
        }
    }

    /// Returns the load of a requestor: the bytes being received, in thousandths of the smaller of its link
    /// budgets. Always 0 for policies other than [`Even`](Self::Even). A lower load takes precedence over a
    /// lower number of blocks.
    pub(super) fn requestor_level(self, node: &Node) -> u64 {
        match self {
            Self::Even => (node.used().down_bytes as f64 * 1000.0 / node.width()) as u64,
            _ => 0,
        }
    }

    /// Whether the policy divides work into shares and computes chains.
    pub(super) fn deals(self) -> bool {
        self == Self::Even
    }

    /// Whether to wait for the preferred node even if others have room.
    pub(super) fn waits_for_requestor(self) -> bool {
        self == Self::PushRep
    }
}

/// Weights of m-PPR, in equivalent bytes of user traffic (Mitra et al., section 5).
///
/// A repair moves `log2(k + 1)` blocks over a link of one of its nodes, because partial sums travel along a
/// tree. A block in memory weighs a tenth as much as a repair.
struct Weights {
    repair: u64,
    cache: u64,
}

impl Weights {
    fn of(stripe: &Stripe) -> Self {
        let rounds = u64::from((stripe.code.data_blocks() as u64 + 1).next_power_of_two().ilog2());
        let repair = stripe.block_bytes.max(10).saturating_mul(rounds);
        Self { repair, cache: repair / 10 }
    }

    /// Returns the weight of a source. It is offset to be non-negative even for the busiest node.
    fn source(&self, block: BlockIndex, node: &Node, stripe: &Stripe) -> u64 {
        let has = node.cached.contains(&(stripe.id.clone(), block));
        let load = self.repair.saturating_mul(node.in_flight.sources).saturating_add(node.user_load());
        (u64::MAX / 2).saturating_sub(load) + if has { self.cache } else { 0 }
    }

    /// Returns the load of a destination.
    fn destination(&self, node: &Node) -> u64 {
        self.repair.saturating_mul(node.in_flight.coming).saturating_add(node.user_load())
    }
}

impl fmt::Display for HelperPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error: there is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy `{name}`; the policies are {}", names())]
pub struct UnknownPolicy {
    /// The name that was given.
    pub name: String,
}

impl FromStr for HelperPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| UnknownPolicy { name: text.to_owned() })
    }
}

fn names() -> String {
    HelperPolicy::ALL.map(HelperPolicy::name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names() {
        for policy in HelperPolicy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
        }
        let unknown = "lru".parse::<HelperPolicy>().unwrap_err().to_string();
        assert!(unknown.starts_with("there is no policy `lru`; the policies are even, "), "{unknown}");
    }
}
