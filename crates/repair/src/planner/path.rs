//! Chains whose members and order are chosen (Li et al., TOS 2021): the rack-aware path (Algorithm 1) and the weighted
//! path (Algorithm 2).

use std::collections::BTreeSet;

use super::candidates::Candidates;
use super::routes::Route;
use crate::Topology;

/// Algorithm 1: first the helpers in the requestor's rack, next to it, then those of the rack with most, and so on.
/// Slices leave each rack once and enter it once, and as few racks as possible are used.
pub(super) fn rack_aware(candidates: &Candidates, topology: &Topology) -> Route {
    let rack = |number: usize| topology.rack(candidates.network.nodes[number]);
    let home = rack(candidates.requestors[0]);
    let mut helpers = helpers(candidates);
    let in_rack = |number: usize| helpers.iter().filter(|&&other| rack(other) == rack(number)).count();
    let key = |&number: &usize| {
        let there = rack(number).is_some() && rack(number) == home;
        (!there, std::cmp::Reverse(in_rack(number)), rack(number), number)
    };
    let mut keyed: Vec<_> = helpers.iter().map(|number| (key(number), *number)).collect();
    keyed.sort();
    helpers = keyed.into_iter().map(|(_, number)| number).collect();
    helpers.truncate(members(candidates));
    chain(candidates, &helpers)
}

/// Algorithm 2: of all chains the one whose slowest link is fastest; `None` if no chain gets through.
///
/// Link rates are tried in order of bisection, and for each it is searched whether there is a chain of links that are at
/// least as fast. Exact, unless the search is given up for its length, which random networks do not come near.
pub(super) fn weighted(candidates: &Candidates) -> Option<Route> {
    if members(candidates) == 0 {
        return Some(chain(candidates, &[]));
    }
    let network = &candidates.network;
    let helpers = helpers(candidates);
    let end = |from: usize| {
        let into = candidates
            .requestors
            .iter()
            .map(|&to| if from == to { f64::INFINITY } else { network.rate(from, to) });
        into.fold(f64::INFINITY, f64::min)
    };
    let rates: Vec<Vec<f64>> =
        helpers.iter().map(|&from| helpers.iter().map(|&to| network.rate(from, to)).collect()).collect();
    let ends: Vec<f64> = helpers.iter().map(|&helper| end(helper)).collect();
    let mut thresholds: Vec<f64> =
        ends.iter().chain(rates.iter().flatten()).copied().filter(|&rate| rate > 0.0).collect();
    thresholds.sort_by(f64::total_cmp);
    thresholds.dedup();
    let mut best = None;
    let (mut low, mut high) = (0, thresholds.len());
    while low < high {
        let middle = (low + high) / 2;
        match Search::new(&rates, &ends, thresholds[middle]).chain(members(candidates)) {
            Some(found) => {
                best = Some(found);
                low = middle + 1;
            }
            None => high = middle,
        }
    }
    let found: Vec<usize> = best?.into_iter().map(|at| helpers[at]).collect();
    Some(chain(candidates, &found))
}

/// Holders other than the only requestor, whose block needs no link.
fn helpers(candidates: &Candidates) -> Vec<usize> {
    let end = candidates.sole_requestor();
    (0..candidates.blocks.len()).filter(|&holder| Some(holder) != end).collect()
}

/// How many helpers a chain has.
fn members(candidates: &Candidates) -> usize {
    let own = candidates.sole_requestor().is_some_and(|end| end < candidates.blocks.len());
    candidates.needed - usize::from(own)
}

/// The chain of these helpers, of whom the first is next to the requestors.
fn chain(candidates: &Candidates, outward: &[usize]) -> Route {
    let end = candidates.sole_requestor();
    let stations: Vec<usize> = outward.iter().rev().copied().chain(end).collect();
    let mut readers = outward.to_vec();
    readers.extend(end.filter(|&end| end < candidates.blocks.len()));
    readers.sort_unstable();
    let moves = stations.windows(2).map(|pair| (pair[0], pair[1])).collect();
    Route { readers, moves, root: stations[stations.len() - 1] }
}

/// Whether some helpers form a chain of fast links only.
struct Search {
    /// For each helper those that can send to it.
    into: Vec<Vec<usize>>,
    last: Vec<usize>,
    /// Heads with helpers used, from which nothing was found.
    failed: BTreeSet<(usize, Vec<u64>)>,
    steps: u32,
}

/// After so many steps it is taken that there is no chain.
const MOST_STEPS: u32 = 200_000;

impl Search {
    fn new(rates: &[Vec<f64>], ends: &[f64], least: f64) -> Self {
        let senders =
            |to: usize| (0..rates.len()).filter(|&from| from != to && rates[from][to] >= least).collect();
        let into: Vec<Vec<usize>> = (0..rates.len()).map(senders).collect();
        let mut last: Vec<usize> = (0..rates.len()).filter(|&helper| ends[helper] >= least).collect();
        last.sort_by_key(|&helper| into[helper].len());
        Self { into, last, failed: BTreeSet::new(), steps: 0 }
    }

    /// A chain of `members` helpers from the requestor outward.
    fn chain(mut self, members: usize) -> Option<Vec<usize>> {
        let mut used = vec![0u64; self.into.len().div_ceil(64)];
        for last in self.last.clone() {
            let mut chain = vec![last];
            mark(&mut used, last, true);
            if self.extend(&mut chain, &mut used, members) {
                return Some(chain);
            }
            mark(&mut used, last, false);
        }
        None
    }

    fn extend(&mut self, chain: &mut Vec<usize>, used: &mut Vec<u64>, members: usize) -> bool {
        let head = chain[chain.len() - 1];
        let missing = members - chain.len();
        if missing == 0 {
            return true;
        }
        self.steps += 1;
        if self.steps > MOST_STEPS
            || self.reachable(head, used) < missing
            || !self.failed.insert((head, used.clone()))
        {
            return false;
        }
        // Helpers that few can send to are dead ends later on.
        let free = |used: &[u64], helper: usize| {
            self.into[helper].iter().filter(|&&from| !is_used(used, from)).count()
        };
        let mut next: Vec<(usize, usize)> = self.into[head]
            .iter()
            .filter(|&&from| !is_used(used, from))
            .map(|&from| (free(used, from), from))
            .collect();
        next.sort_unstable();
        for (_, from) in next {
            chain.push(from);
            mark(used, from, true);
            if self.extend(chain, used, members) {
                return true;
            }
            mark(used, from, false);
            chain.pop();
        }
        false
    }

    /// How many unused helpers there are from which one can come to `head` at all.
    fn reachable(&self, head: usize, used: &[u64]) -> usize {
        let mut seen = used.to_vec();
        let (mut waiting, mut count) = (vec![head], 0);
        while let Some(at) = waiting.pop() {
            for &from in &self.into[at] {
                if !is_used(&seen, from) {
                    mark(&mut seen, from, true);
                    count += 1;
                    waiting.push(from);
                }
            }
        }
        count
    }
}

fn is_used(used: &[u64], helper: usize) -> bool {
    used[helper / 64] >> (helper % 64) & 1 == 1
}

fn mark(used: &mut [u64], helper: usize, is: bool) {
    let bit = 1 << (helper % 64);
    used[helper / 64] = if is { used[helper / 64] | bit } else { used[helper / 64] & !bit };
}
