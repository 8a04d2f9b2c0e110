//! Recoveries of a node in the settings of published figures: 8e, 10b and 11b of TOS'21, and figure 8 of PPR. The
//! coordinator's scheduler and planner decide, and `sim::recovery` moves the bytes.
//!
//! Node 0 has failed. In the settings of TOS'21, whose experiments erase the blocks of one of 16 machines, the nodes 1
//! to 15 are the other machines, and node 16 is the failed machine without its blocks: it can receive rebuilt ones.

use recovery::{HelperPolicy, RepairSpec};
use repair::{NodeId, Pacing, Rates, Scheme};
use sim::Dice;
use sim::recovery::{Cluster, Concurrency, Finish, Homes, Shape};

use super::mean;

const MIB: u64 = 1 << 20;
/// The seeds of the placements.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// The failed machine without its blocks.
const ERASED: u32 = 16;
/// The number of stripes in the experiments of TOS'21 with whole nodes.
const STRIPES: u32 = 64;
/// The number of requestors in figure 11b.
const IN_FLIGHT: u64 = 16;
/// The number of reconstructions that HDFS runs at a time on a node.
const HDFS_STREAMS: u64 = 2;

const STARS: Shape = Shape::Scheme(Scheme::Conventional);
const TREES: Shape = Shape::Scheme(Scheme::Ppr);
const CHAINS: Shape = Shape::Scheme(Scheme::Pipelined);
const CHAINS_OF_BLOCKS: Shape = Shape::Scheme(Scheme::PipeB);

/// The recovery of a node by one method.
#[derive(Clone, Debug)]
pub(super) struct Recovered {
    pub(super) method: &'static str,
    /// Mebibytes that the node held.
    pub(super) mebibytes: f64,
    /// Duration in seconds with each placement.
    pub(super) seconds: Vec<f64>,
    /// Mean lower bound on the duration in seconds.
    pub(super) bound_seconds: f64,
}

impl Recovered {
    /// Returns the mean duration in seconds.
    pub(super) fn mean_seconds(&self) -> f64 {
        mean(self.seconds.iter().copied())
    }

    /// Returns the rate of the recovery in MiB/s, by its mean duration.
    pub(super) fn rate(&self) -> f64 {
        self.mebibytes / self.mean_seconds()
    }

    /// Returns the rate with each placement.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.seconds.iter().map(|seconds| self.mebibytes / seconds).collect()
    }

    /// Returns the rate in MiB/s that no recovery exceeds.
    pub(super) fn bound_rate(&self) -> f64 {
        self.mebibytes / self.bound_seconds
    }
}

/// How the helpers of a stripe are chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Helpers {
    /// The nodes with the lowest numbers.
    LowestNodes,
    Policy(HelperPolicy),
}

const LRU: Helpers = Helpers::Policy(HelperPolicy::LeastRecentlyUsed);
const LOWEST_INDEX: Helpers = Helpers::Policy(HelperPolicy::LowestIndex);
const DEALT: (Helpers, Shape) = (Helpers::Policy(HelperPolicy::Even), Shape::Dealt);

/// Recovers 64 blocks of (14,10) at the same time onto so many of the 16 machines (TOS'21, figure 8e).
pub(super) fn by_requestors(requestors: u32) -> Vec<Recovered> {
    let machines = std::iter::once(ERASED).chain(1..ERASED).take(requestors as usize);
    let base = sixteen("rs-14-10", STRIPES, &machines.collect::<Vec<_>>()).all_at_once();
    let rounds = in_rounds(&base);
    let lowest = Helpers::LowestNodes;
    vec![
        recovered("conventional, lowest node", &base, (lowest, STARS)),
        recovered("PPR in slices, lowest node", &base, (lowest, TREES)),
        recovered("PPR in rounds, lowest node", &rounds, (lowest, TREES)),
        recovered("chains, lowest node", &base, (lowest, CHAINS)),
        recovered("chains, LRU", &base, (LRU, CHAINS)),
        recovered("dealt", &base, DEALT),
    ]
}

/// Recovers 4 GiB in blocks of this size by PUSH, by chains of slices, and by the chains that the scheduler computes,
/// onto the failed machine and onto all 16 (TOS'21, figure 11b).
pub(super) fn by_push(block_mebibytes: u64) -> Vec<Recovered> {
    let blocks = u64::from(STRIPES) * 64 / block_mebibytes;
    let on = |machines: &[u32]| {
        let cluster = sixteen("rs-14-10", blocks as u32, machines);
        limited(&Cluster { block_bytes: block_mebibytes * MIB, ..cluster }, IN_FLIGHT)
    };
    let (one, all) = (on(&[ERASED]), on(&[]));
    let (rep, sur) = (Helpers::Policy(HelperPolicy::PushRep), Helpers::Policy(HelperPolicy::PushSur));
    vec![
        recovered("one node: PUSH-Rep", &one, (rep, CHAINS_OF_BLOCKS)),
        recovered("one node: slices", &one, (LRU, CHAINS)),
        recovered("one node: dealt", &one, DEALT),
        recovered("all nodes: PUSH-Sur", &all, (sur, CHAINS_OF_BLOCKS)),
        recovered("all nodes: slices", &all, (LRU, CHAINS)),
        recovered("all nodes: dealt", &all, DEALT),
    ]
}

/// Recovers the blocks that a node has of 64 stripes on 16 nodes, by stars, as HDFS does, and by chains, onto a new
/// node and onto all nodes (TOS'21, figure 10b).
pub(super) fn by_width(code: &str) -> Vec<Recovered> {
    let width = sixteen(code, 0, &[]).code.build().expect("a possible code").blocks() as u32;
    let on = |machines: &[u32]| sixteen(code, STRIPES * width / 16, machines);
    let (one, all) = (on(&[ERASED]), on(&[]));
    vec![
        recovered("one node: stars, two at once", &limited(&one, HDFS_STREAMS), (LOWEST_INDEX, STARS)),
        recovered("one node: stars", &one, (LOWEST_INDEX, STARS)),
        recovered("one node: chains", &one, (LRU, CHAINS)),
        recovered("all nodes: stars, two at once", &limited(&all, HDFS_STREAMS), (LOWEST_INDEX, STARS)),
        recovered("all nodes: stars", &all, (LOWEST_INDEX, STARS)),
        recovered("all nodes: dealt", &all, DEALT),
    ]
}

/// Recovers some blocks of (16,12) on 83 nodes, the failed one included, by stars, by m-PPR and by the chains that the
/// scheduler computes (PPR, figure 8). All repairs start at once, as in the paper.
pub(super) fn by_m_ppr(blocks: u32) -> Vec<Recovered> {
    let rates = Rates { up: 175e6, down: 175e6, read: 2e9, write: 2e9 };
    let base = Cluster { rates, ..Cluster::new("rs-16-12", 83, blocks) }.all_at_once();
    let m_ppr = Helpers::Policy(HelperPolicy::MPpr);
    vec![
        recovered("stars", &base, (LOWEST_INDEX, STARS)),
        recovered("stars by m-PPR's weights", &base, (m_ppr, STARS)),
        recovered("m-PPR in rounds", &in_rounds(&base), (m_ppr, TREES)),
        recovered("m-PPR in slices", &base, (m_ppr, TREES)),
        recovered("dealt", &base, DEALT),
    ]
}

/// Returns the cluster of TOS'21: 16 machines, one of which has lost so many blocks. They go to these machines, or to
/// any if none are given.
fn sixteen(code: &str, blocks: u32, requestors: &[u32]) -> Cluster {
    let requestors = requestors.iter().copied().map(NodeId).collect();
    let spec = RepairSpec { requestors, ..RepairSpec::default() };
    Cluster { standbys: 1, spec, ..Cluster::new(code, ERASED + 1, blocks) }
}

fn in_rounds(base: &Cluster) -> Cluster {
    Cluster { pacing: Some(Pacing::WholeBlock), ..base.clone() }
}

fn limited(base: &Cluster, jobs: u64) -> Cluster {
    Cluster { concurrency: Concurrency { jobs, ..Concurrency::default() }, ..base.clone() }
}

fn recovered(method: &'static str, base: &Cluster, (helpers, shape): (Helpers, Shape)) -> Recovered {
    let finishes: Vec<Finish> = SEEDS.map(|seed| run(base, seed, helpers, shape)).collect();
    Recovered {
        method,
        mebibytes: f64::from(base.stripes) * (base.block_bytes / MIB) as f64,
        seconds: finishes.iter().map(|finish| finish.seconds).collect(),
        bound_seconds: mean(finishes.iter().map(|finish| finish.bound.seconds)),
    }
}

fn run(base: &Cluster, seed: u64, helpers: Helpers, shape: Shape) -> Finish {
    let policy = match helpers {
        Helpers::LowestNodes => HelperPolicy::LowestIndex,
        Helpers::Policy(policy) => policy,
    };
    let spec = RepairSpec { helpers: policy, ..base.spec.clone() };
    let homes = Homes::Given(homes(base, seed, helpers == Helpers::LowestNodes));
    let finish = Cluster { seed, spec, homes, shape, ..base.clone() }.run();
    assert!(finish.violations.is_empty(), "{:?}", finish.violations);
    finish
}

/// Places each stripe at random: the failed node has its first block, and survivors have the others, which may be in the
/// order of the nodes. The requestors take turns, and the one whose turn it is holds no block of the stripe, so that
/// rebuilt blocks can be dealt evenly.
fn homes(base: &Cluster, seed: u64, in_order: bool) -> Vec<Vec<u32>> {
    let blocks = base.code.build().expect("a possible code").blocks();
    let (requestors, survivors) = (&base.spec.requestors, 1..base.nodes - base.standbys);
    let mut dice = Dice::new(seed);
    let mut place = |stripe: u32| {
        let turn = requestors.get(stripe as usize % requestors.len().max(1));
        let mut nodes: Vec<u32> = survivors.clone().filter(|&node| turn != Some(&NodeId(node))).collect();
        dice.shuffle(&mut nodes);
        nodes.truncate(blocks - 1);
        if in_order {
            nodes.sort_unstable();
        }
        std::iter::once(0).chain(nodes).collect()
    };
    (0..base.stripes).map(&mut place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(all: &[Recovered], method: &str) -> f64 {
        all.iter().find(|recovered| recovered.method == method).expect("a method").rate()
    }

    #[test]
    fn blocks_are_on_fifteen_survivors_and_requestors_hold_none_of_their_turn() {
        let machines: Vec<u32> = std::iter::once(ERASED).chain(1..ERASED).collect();
        let base = sixteen("rs-14-10", STRIPES, &machines);
        for (stripe, homes) in homes(&base, 1, true).iter().enumerate() {
            assert_eq!((homes.len(), homes[0]), (14, 0));
            assert!(homes.is_sorted() && homes[13] < ERASED, "{homes:?}");
            assert!(!homes.contains(&machines[stripe % 16]), "{homes:?}");
        }
        let unsorted = homes(&base, 1, false);
        assert!(unsorted.iter().any(|homes| !homes.is_sorted()));
        let widest = sixteen("rs-16-12", 4, &[ERASED]);
        assert!(
            homes(&widest, 1, false).iter().all(|homes| homes.len() == 16),
            "every survivor holds a block"
        );
    }

    #[test]
    fn no_method_exceeds_the_bound_and_requestors_share_the_work() {
        let (one, two) = (by_requestors(1), by_requestors(2));
        for recovered in one.iter().chain(&two).chain(&by_m_ppr(10)) {
            assert!(recovered.rate() <= recovered.bound_rate() * 1.001, "{recovered:?}");
            assert_eq!(recovered.seconds.len(), 3);
        }
        let stars = "conventional, lowest node";
        assert!((rate(&two, stars) / rate(&one, stars) - 2.0).abs() < 0.25, "{one:?} {two:?}");
        assert!(
            rate(&one, "chains, lowest node") > 9.0 * rate(&one, stars),
            "k blocks over one link, or one"
        );
    }

    #[test]
    fn slices_use_more_of_the_links_than_blocks() {
        let all = by_push(64);
        assert!(rate(&all, "one node: slices") > rate(&all, "one node: PUSH-Rep"));
        assert!(rate(&all, "all nodes: slices") > rate(&all, "all nodes: PUSH-Sur"));
        assert!(rate(&all, "all nodes: slices") > rate(&all, "one node: slices"));
        assert!(all.iter().all(|recovered| recovered.mebibytes == 4096.0));
    }
}
