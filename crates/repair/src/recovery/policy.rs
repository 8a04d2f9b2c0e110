//! Which survivors help, by name.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use codes::BlockIndex;
use serde::{Deserialize, Serialize};

use super::nodes::{Node, NodeNo, NodeTable};

/// How helpers are chosen among the survivors of a stripe.
///
/// The scheduler hands the planner the survivors in the order of the policy; how many are taken, and which of them
/// the code can use, is for the planner to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HelperPolicy {
    /// Those with the most of their budgets free.
    #[default]
    FreeBudget,
    /// Those with the lowest block indices.
    LowestIndex,
    /// Those that helped least recently (TOS'21, section 3.3).
    LeastRecentlyUsed,
    /// Those that had to send and to receive least so far, the larger of both.
    LoadGreedy,
    /// Those that are sources of the fewest running repairs (m-PPR; without its cache of blocks).
    MPpr,
}

impl HelperPolicy {
    /// All policies.
    pub const ALL: [Self; 5] =
        [Self::FreeBudget, Self::LowestIndex, Self::LeastRecentlyUsed, Self::LoadGreedy, Self::MPpr];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::FreeBudget => "free-budget",
            Self::LowestIndex => "lowest-index",
            Self::LeastRecentlyUsed => "least-recently-used",
            Self::LoadGreedy => "load-greedy",
            Self::MPpr => "m-ppr",
        }
    }

    /// Brings survivors into the order in which they are preferred.
    pub(super) fn sort(self, survivors: &mut [(BlockIndex, NodeNo)], table: &NodeTable) {
        survivors.sort_by_cached_key(|&(block, node)| (self.rank(table.get(node)), block));
    }

    fn rank(self, node: &Node) -> (u64, u64) {
        let moved = node.sent.max(node.received);
        match self {
            Self::FreeBudget => (node.used().fullness(&node.facts.budget), moved),
            Self::LowestIndex => (0, 0),
            Self::LeastRecentlyUsed => (node.helped_at, 0),
            Self::LoadGreedy => (moved, 0),
            Self::MPpr => (node.sources, 0),
        }
    }

    /// How a requestor of equal standing is preferred.
    pub(super) fn requestor_rank(self, node: &Node) -> (u64, Reverse<u64>) {
        match self {
            Self::MPpr => (node.coming, Reverse(0)),
            _ => (node.received, Reverse(node.facts.free_bytes)),
        }
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
        assert!(unknown.starts_with("there is no policy `lru`; the policies are free-budget, "), "{unknown}");
    }
}
