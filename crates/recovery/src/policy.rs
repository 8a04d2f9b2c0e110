//! The helper policies, by name: how survivors are chosen as helpers.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use codes::BlockIndex;
use repair::{Heat, Scheme};
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
    /// Nodes with the largest weight. A block in memory increases the weight; a block that clients read often,
    /// running repairs and user load decrease it (m-PPR).
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
        let rank = |&(block, node): &(BlockIndex, NodeNo)| {
            let heat = stripe.heat(block, node);
            (self.rank(heat, table.get(node), stripe, count), block)
        };
        survivors.sort_by_cached_key(rank);
    }

    fn rank(self, heat: Heat, node: &Node, stripe: &Stripe, survivors: u64) -> (u64, u64) {
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
            Self::MPpr => (descending(Weights::of(stripe).source(heat, node)), 0),
        }
    }

    /// Returns the sort key among requestors that are otherwise equal. The smallest is preferred.
    pub(super) fn requestor_rank(self, node: &Node) -> (u64, Reverse<u64>) {
        match self {
            Self::PushRep => (0, Reverse(0)),
            _ => (node.done.received_bytes, Reverse(node.facts.free_bytes)),
        }
    }

    /// Returns the load of a requestor. A lower load takes precedence over a lower number of blocks. For
    /// [`Even`](Self::Even), it is the bytes being received, in thousandths of the smaller of its link budgets;
    /// for [`MPpr`](Self::MPpr), it follows from the weight; for other policies, it is always 0.
    pub(super) fn requestor_level(self, node: &Node, stripe: &Stripe) -> u64 {
        match self {
            Self::Even => (node.used().down_bytes as f64 * 1000.0 / node.width()) as u64,
            Self::MPpr => descending(Weights::of(stripe).destination(node)),
            _ => 0,
        }
    }

    /// Returns the scheme of repairs for which no scheme is requested; `None` for the cluster's scheme. m-PPR plans
    /// the trees of PPR, and PUSH forwards whole blocks.
    pub fn own_scheme(self) -> Option<Scheme> {
        match self {
            Self::MPpr => Some(Scheme::Ppr),
            Self::PushRep | Self::PushSur => Some(Scheme::PipeB),
            Self::Even
            | Self::FreeBudget
            | Self::LowestIndex
            | Self::LeastRecentlyUsed
            | Self::LoadGreedy => None,
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

/// Weights of m-PPR, in equivalent bytes of user traffic (Mitra et al., section 5):
///
/// ```text
/// w_src = a1 · hasCache − (a2 · running repairs as a source + a3 · userLoad)
/// w_dst = −(b1 · running repairs as a destination + b2 · userLoad)
/// ```
///
/// Here a3 = b2 = 1. A repair moves `⌈log2(k + 1)⌉` blocks over a link of one of its nodes, because partial sums
/// travel along a tree; these bytes are a2 = b1. A block in memory weighs a tenth of a repair, which is a1.
/// `hasCache` is 1 for a block in memory, 0 for a block on the disk, and −1 for a block that clients read often.
#[derive(Clone, Copy, Debug)]
struct Weights {
    repair: i64,
    cache: i64,
}

impl Weights {
    fn of(stripe: &Stripe) -> Self {
        Self::new(stripe.code.data_blocks(), stripe.block_bytes)
    }

    fn new(data_blocks: usize, block_bytes: u64) -> Self {
        let rounds = i64::from((data_blocks as u64 + 1).next_power_of_two().ilog2());
        let repair = signed(block_bytes.max(10)).saturating_mul(rounds);
        Self { repair, cache: repair / 10 }
    }

    /// Returns the weight of a source.
    fn source(self, heat: Heat, node: &Node) -> i64 {
        let cache = match heat {
            Heat::Cold => 0,
            Heat::Hot => self.cache,
            Heat::VeryHot => -self.cache,
        };
        cache.saturating_sub(self.load(node.in_flight.sources, node))
    }

    /// Returns the weight of a destination.
    fn destination(self, node: &Node) -> i64 {
        -self.load(node.in_flight.coming, node)
    }

    fn load(self, repairs: u64, node: &Node) -> i64 {
        self.repair.saturating_mul(signed(repairs)).saturating_add(signed(node.user_load()))
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a sort key that puts the largest weight first.
fn descending(weight: i64) -> u64 {
    weight.abs_diff(i64::MAX)
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
    use repair::NodeId;

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

    #[test]
    fn weights_follow_the_equations_of_the_paper() {
        const BLOCK: i64 = 64 << 20;
        let (mut table, weights) = (NodeTable::default(), Weights::new(12, BLOCK as u64));
        let no = table.number(NodeId(1));
        let a2 = BLOCK * 4;
        let a1 = a2 / 10;
        let mut source = |heat, repairs: u64, user_bytes: u64| {
            let node = table.get_mut(no);
            (node.in_flight.sources, node.user_bytes) = (repairs, user_bytes);
            weights.source(heat, node)
        };
        assert_eq!(source(Heat::Cold, 0, 0), 0);
        assert_eq!(source(Heat::Hot, 0, 0), a1);
        assert_eq!(source(Heat::VeryHot, 0, 0), -a1);
        assert_eq!(source(Heat::Hot, 2, 7), a1 - (2 * a2 + 7));
        assert_eq!(
            source(Heat::Cold, 0, a2 as u64),
            source(Heat::Cold, 1, 0),
            "a repair loads a link like this"
        );
        assert!(source(Heat::Hot, 1, 0) < source(Heat::VeryHot, 0, 0), "disjoint servers matter more");
        assert!(source(Heat::Hot, u64::MAX, u64::MAX) < source(Heat::Cold, 1, 0));
        let node = table.get_mut(no);
        (node.in_flight.coming, node.user_bytes) = (3, 5);
        assert_eq!(weights.destination(node), -(3 * a2 + 5));
        assert!(descending(a1) < descending(0) && descending(0) < descending(-a2));
    }

    #[test]
    fn a_repair_weighs_as_many_blocks_as_the_tree_has_rounds() {
        let rounds = [(1, 1), (2, 2), (3, 2), (4, 3), (6, 3), (8, 4), (10, 4), (12, 4), (16, 5)];
        for (data_blocks, rounds) in rounds {
            assert_eq!(Weights::new(data_blocks, 1000).repair, 1000 * rounds, "k = {data_blocks}");
        }
    }
}
