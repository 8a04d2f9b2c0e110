//! Recoveries of whole nodes in the settings of published figures, by the published methods and ours.
//!
//! Results are means over three placements of the blocks. All blocks have 64 MiB.

use recovery::{HelperPolicy, RepairSpec};
use repair::{NodeId, Pacing, Rates, Scheme};

use super::large::{Cluster, Concurrency, Finish, Homes, Shape};
use crate::dice::Dice;

const SEEDS: u64 = 3;
const BLOCK_MEBIBYTES: f64 = 64.0;
const CONVENTIONAL: Shape = Shape::Scheme(Scheme::Conventional);
const CHAINS: Shape = Shape::Scheme(Scheme::Pipelined);
const TREES: Shape = Shape::Scheme(Scheme::Ppr);
/// Number of reconstructions that HDFS runs at a time on a node.
const HDFS_STREAMS: u64 = 2;

/// The recovery of a node by one method.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// The method.
    pub method: &'static str,
    /// Number of blocks that the node held.
    pub blocks: u32,
    /// Mean duration in seconds.
    pub seconds: f64,
    /// Mean lower bound on the duration in seconds.
    pub bound_seconds: f64,
}

impl Recovered {
    /// Returns the rate of the recovery in MiB/s.
    pub fn rate(&self) -> f64 {
        f64::from(self.blocks) * BLOCK_MEBIBYTES / self.seconds
    }

    /// Returns the rate in MiB/s that no recovery exceeds.
    pub fn bound_rate(&self) -> f64 {
        f64::from(self.blocks) * BLOCK_MEBIBYTES / self.bound_seconds
    }

    /// Returns the mean of the recoveries of these clusters, which differ in the places of blocks only.
    fn mean(method: &'static str, clusters: impl Iterator<Item = Cluster>) -> Self {
        let clusters: Vec<Cluster> = clusters.collect();
        let run = |cluster: &Cluster| {
            let finish = cluster.run();
            assert!(finish.violations.is_empty(), "{:?}", finish.violations);
            finish
        };
        let finishes: Vec<Finish> = clusters.iter().map(run).collect();
        let mean = |of: fn(&Finish) -> f64| finishes.iter().map(of).sum::<f64>() / finishes.len() as f64;
        Self {
            method,
            blocks: clusters[0].stripes,
            seconds: mean(|finish| finish.seconds),
            bound_seconds: mean(|finish| finish.bound.seconds),
        }
    }
}

/// Recovers 64 blocks of (14,10) onto empty nodes (TOS'21, figure 8e). As in the paper, helpers are the nodes with
/// the lowest numbers or the least recently used ones. Mend's policy `lowest-index` takes the blocks with the
/// lowest indices, which are on random nodes.
pub fn by_requestors(requestors: u32) -> Vec<Recovered> {
    let base = seventeen("rs-14-10", 64, requestors);
    let rounds = Cluster { pacing: Some(Pacing::WholeBlock), ..base.clone() };
    vec![
        recovered("conventional, lowest index", &base, HelperPolicy::LowestIndex, CONVENTIONAL),
        of_lowest_nodes("conventional, lowest node", &base, CONVENTIONAL),
        of_lowest_nodes("PPR in rounds, lowest node", &rounds, TREES),
        recovered("chains, lowest index", &base, HelperPolicy::LowestIndex, CHAINS),
        of_lowest_nodes("chains, lowest node", &base, CHAINS),
        recovered("chains, LRU", &base, HelperPolicy::LeastRecentlyUsed, CHAINS),
        recovered("dealt", &base, HelperPolicy::Even, Shape::Dealt),
    ]
}

/// Recovers 640 blocks of (14,10) by PUSH, by chains of slices, and by the chains that the scheduler computes,
/// onto one node and onto all nodes (TOS'21, figure 11b). PUSH moves whole blocks.
pub fn by_push(blocks_in_flight: u64) -> Vec<Recovered> {
    let at = |beside| limited(&seventeen("rs-14-10", 640, beside), blocks_in_flight);
    let (one, all) = (at(1), at(0));
    let blocks = Shape::Scheme(Scheme::PipeB);
    vec![
        recovered("one node: PUSH-Rep", &one, HelperPolicy::PushRep, blocks),
        recovered("one node: slices", &one, HelperPolicy::LeastRecentlyUsed, CHAINS),
        recovered("one node: dealt", &one, HelperPolicy::Even, Shape::Dealt),
        recovered("all nodes: PUSH-Sur", &all, HelperPolicy::PushSur, blocks),
        recovered("all nodes: slices", &all, HelperPolicy::LeastRecentlyUsed, CHAINS),
        recovered("all nodes: dealt", &all, HelperPolicy::Even, Shape::Dealt),
    ]
}

/// Recovers 160 blocks by stars, as HDFS does, and by chains, onto one node and onto all nodes (TOS'21, figure
/// 10b).
pub fn by_width(code: &str) -> Vec<Recovered> {
    let (one, all) = (seventeen(code, 160, 1), seventeen(code, 160, 0));
    let stars = |method, base: &Cluster| recovered(method, base, HelperPolicy::LowestIndex, CONVENTIONAL);
    vec![
        stars("one node: stars, two at once", &limited(&one, HDFS_STREAMS)),
        stars("one node: stars", &one),
        recovered("one node: chains", &one, HelperPolicy::LeastRecentlyUsed, CHAINS),
        stars("all nodes: stars, two at once", &limited(&all, HDFS_STREAMS)),
        stars("all nodes: stars", &all),
        recovered("all nodes: dealt", &all, HelperPolicy::Even, Shape::Dealt),
    ]
}

/// Recovers some blocks of (16,12) on 83 nodes by stars, by m-PPR and by the chains that the scheduler computes
/// (PPR, figure 8). All repairs start at once, as in the paper.
pub fn by_m_ppr(blocks: u32) -> Vec<Recovered> {
    let rates = Rates { up: 175e6, down: 175e6, read: 2e9, write: 2e9 };
    let base = Cluster { homes: Homes::OnNode, rates, ..Cluster::new("rs-16-12", 84, blocks) }.all_at_once();
    let rounds = Cluster { pacing: Some(Pacing::WholeBlock), ..base.clone() };
    vec![
        recovered("stars", &base, HelperPolicy::LowestIndex, CONVENTIONAL),
        recovered("stars by m-PPR's weights", &base, HelperPolicy::MPpr, CONVENTIONAL),
        recovered("m-PPR in rounds", &rounds, HelperPolicy::MPpr, TREES),
        recovered("m-PPR in slices", &base, HelperPolicy::MPpr, TREES),
        recovered("dealt", &base, HelperPolicy::Even, Shape::Dealt),
    ]
}

/// Returns a cluster in which one of 17 nodes is dead. That node held `blocks` blocks, which are rebuilt on
/// `beside` additional nodes, or on the 16 other nodes if `beside` is 0.
fn seventeen(code: &str, blocks: u32, beside: u32) -> Cluster {
    let requestors = (17..17 + beside).map(NodeId).collect();
    let spec = RepairSpec { requestors, ..RepairSpec::default() };
    Cluster { homes: Homes::OnNode, standbys: beside, spec, ..Cluster::new(code, 17 + beside, blocks) }
}

fn limited(base: &Cluster, jobs: u64) -> Cluster {
    Cluster { concurrency: Concurrency { jobs, ..Concurrency::default() }, ..base.clone() }
}

fn recovered(method: &'static str, base: &Cluster, helpers: HelperPolicy, shape: Shape) -> Recovered {
    let spec = RepairSpec { helpers, ..base.spec.clone() };
    let at = |seed| Cluster { seed, spec: spec.clone(), shape, ..base.clone() };
    Recovered::mean(method, (1..=SEEDS).map(at))
}

/// Recovers a node with the help of the nodes with the lowest numbers. Each stripe's blocks are on random nodes,
/// in the order of the nodes.
fn of_lowest_nodes(method: &'static str, base: &Cluster, shape: Shape) -> Recovered {
    let spec = RepairSpec { helpers: HelperPolicy::LowestIndex, ..base.spec.clone() };
    let at = |seed| {
        let mut dice = Dice::new(seed);
        let mut nodes: Vec<u32> = (1..17).collect();
        let mut place = |_| {
            dice.shuffle(&mut nodes);
            let mut homes = nodes[..13].to_vec();
            homes.push(0);
            homes.sort_unstable();
            homes
        };
        let homes = Homes::Given((0..base.stripes).map(&mut place).collect());
        Cluster { homes, spec: spec.clone(), shape, ..base.clone() }
    };
    Recovered::mean(method, (1..=SEEDS).map(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_faster_than_blocks_and_stars() {
        let base = seventeen("rs-14-10", 20, 1);
        let of = |jobs, helpers, shape| recovered("x", &limited(&base, jobs), helpers, shape).seconds;
        let slices = of(1, HelperPolicy::LeastRecentlyUsed, CHAINS);
        let push = of(1, HelperPolicy::PushRep, Shape::Scheme(Scheme::PipeB)) / slices;
        assert!((9.0..11.0).contains(&push), "a block passes ten helpers one by one, not {push} times");
        let star = of(HDFS_STREAMS, HelperPolicy::LowestIndex, CONVENTIONAL) / slices;
        assert!((9.0..11.0).contains(&star), "ten blocks arrive over one link, not {star}");
    }

    #[test]
    fn no_method_exceeds_the_bound() {
        for recovered in by_requestors(2).iter().chain(&by_m_ppr(10)) {
            assert!(recovered.rate() <= recovered.bound_rate() * 1.001, "{recovered:?}");
        }
    }
}
