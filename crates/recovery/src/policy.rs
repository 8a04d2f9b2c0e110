//! Which survivors help, by name.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use codes::BlockIndex;
use serde::{Deserialize, Serialize};

use super::nodes::{Node, NodeNo, NodeTable};
use super::stripes::Stripe;

/// How helpers are chosen among the survivors of a stripe.
///
/// The scheduler hands the planner the survivors in the order of the policy; how many are taken, and which of them
/// the code can use, is for the planner to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HelperPolicy {
    /// Work is dealt out in shares, so that all nodes are done at the same time.
    #[default]
    Even,
    /// Those with the most of their budgets free.
    FreeBudget,
    /// Those with the lowest block indices.
    LowestIndex,
    /// Those that helped least recently (TOS'21, section 3.3).
    LeastRecentlyUsed,
    /// Those that had to send and to receive least so far, the larger of both.
    LoadGreedy,
    /// Those of the largest weight: a block in memory counts for it, running repairs and users against it (m-PPR).
    MPpr,
    /// Lowest indices, and everything goes to the node with the lowest number (PUSH-Rep, a baseline).
    PushRep,
    /// Lowest indices, and blocks go to all nodes in turn (PUSH-Sur, a baseline).
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

    /// Its name.
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

    /// Brings survivors into the order in which they are preferred.
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

    /// How a requestor of equal standing is preferred.
    pub(super) fn requestor_rank(self, node: &Node, stripe: &Stripe) -> (u64, Reverse<u64>) {
        match self {
            Self::MPpr => (Weights::of(stripe).destination(node), Reverse(0)),
            Self::PushRep => (0, Reverse(0)),
            _ => (node.done.received_bytes, Reverse(node.facts.free_bytes)),
        }
    }

    /// What goes before how many blocks a node has: what it is receiving already, in thousandths of its budget.
    pub(super) fn requestor_level(self, node: &Node) -> u64 {
        match self {
            Self::Even => (node.used().down_bytes as f64 * 1000.0 / node.width()) as u64,
            _ => 0,
        }
    }

    /// Whether shares and chains are dealt out.
    pub(super) fn deals(self) -> bool {
        self == Self::Even
    }

    /// Whether a node without room is waited for, though others have it.
    pub(super) fn waits_for_requestor(self) -> bool {
        self == Self::PushRep
    }
}

/// m-PPR's weights, in bytes of user traffic that would load a node as much (`spec`: Mitra et al., section 5).
///
/// A repair loads a link of one of its nodes `log2(k + 1)` times with a block, as partial sums come in a tree; and a
/// block in memory is worth a tenth of that.
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

    /// The weight of a source, above that of the busiest one that can be.
    fn source(&self, block: BlockIndex, node: &Node, stripe: &Stripe) -> u64 {
        let has = node.cached.contains(&(stripe.id.clone(), block));
        let load = self.repair.saturating_mul(node.in_flight.sources).saturating_add(node.user_load());
        (u64::MAX / 2).saturating_sub(load) + if has { self.cache } else { 0 }
    }

    /// How busy a destination is.
    fn destination(&self, node: &Node) -> u64 {
        self.repair.saturating_mul(node.in_flight.coming).saturating_add(node.user_load())
    }
}

impl fmt::Display for HelperPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy `{name}`; the policies are {}", names())]
pub struct UnknownPolicy {
    /// What was asked for.
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
