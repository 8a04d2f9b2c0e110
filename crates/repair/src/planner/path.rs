//! Chains with chosen members and order (Li et al., TOS 2021): the rack-aware path (Algorithm 1) and the
//! weighted path (Algorithm 2).

use std::collections::BTreeSet;

use super::candidates::Candidates;
use super::routes::Route;
use crate::Topology;

/// Algorithm 1: the helpers of the requestor's rack are nearest to the requestor, then those of the rack with
/// the most helpers, and so on. Slices leave each rack once and enter it once, and as few racks as possible
/// are used. The nodes without a known rack count as one more rack.
pub(super) fn rack_aware(candidates: &Candidates, topology: &Topology) -> Route {
    let rack = |number: usize| topology.rack(candidates.network.nodes[number]);
    let home = rack(candidates.requestors[0]);
    let mut helpers = helpers(candidates);
    let in_rack = |number: usize| helpers.iter().filter(|&&other| rack(other) == rack(number)).count();
    let key =
        |&number: &usize| (rack(number) != home, std::cmp::Reverse(in_rack(number)), rack(number), number);
    let mut keyed: Vec<_> = helpers.iter().map(|number| (key(number), *number)).collect();
    keyed.sort();
    helpers = keyed.into_iter().map(|(_, number)| number).collect();
    helpers.truncate(members(candidates));
    chain(candidates, &helpers)
}

/// Algorithm 2: the chain whose slowest link is as fast as possible; `None` if no chain has a positive rate.
///
/// Bisects over the link rates; for each rate, searches for a chain of links that are at least as fast. Exact
/// unless a search exceeds its step limit, which random networks do not come near.
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

/// Holders other than the sole requestor, whose own block needs no link.
fn helpers(candidates: &Candidates) -> Vec<usize> {
    let end = candidates.sole_requestor();
    (0..candidates.blocks.len()).filter(|&holder| Some(holder) != end).collect()
}

/// The number of helpers in a chain.
fn members(candidates: &Candidates) -> usize {
    let own = candidates.sole_requestor().is_some_and(|end| end < candidates.blocks.len());
    candidates.needed - usize::from(own)
}

/// The route along these helpers, listed from the requestors outward, and the requestor's own block.
fn chain(candidates: &Candidates, outward: &[usize]) -> Route {
    let own = candidates.sole_requestor().filter(|&end| end < candidates.blocks.len());
    candidates.chain(&outward.iter().rev().copied().chain(own).collect::<Vec<_>>())
}

/// Searches for a chain that uses fast links only.
///
/// Helpers with fast links from and to the same other helpers are of one kind: they are interchangeable. Only
/// the first unused helper of each kind is tried, and failed states are stored as the number of helpers used
/// of each kind.
struct Search {
    /// For each helper, the helpers with a fast link to it.
    into: Vec<Vec<usize>>,
    last: Vec<usize>,
    /// For each helper, the first helper of the same kind.
    like: Vec<usize>,
    /// States from which the search failed: the chain's head and the number of helpers used of each kind.
    failed: BTreeSet<(usize, Vec<u16>)>,
    steps: u32,
}

/// The search gives up after this many steps.
const MOST_STEPS: u32 = 200_000;

/// A chain being extended.
struct Trial {
    chain: Vec<usize>,
    used: Vec<bool>,
    /// The number of helpers used of each kind, at the index of the kind's first helper.
    sorts: Vec<u16>,
}

impl Trial {
    fn push(&mut self, helper: usize, like: &[usize]) {
        self.chain.push(helper);
        self.used[helper] = true;
        self.sorts[like[helper]] += 1;
    }

    fn pop(&mut self, like: &[usize]) {
        let helper = self.chain.pop().expect("a helper was pushed before");
        self.used[helper] = false;
        self.sorts[like[helper]] -= 1;
    }
}

impl Search {
    fn new(rates: &[Vec<f64>], ends: &[f64], least: f64) -> Self {
        let helpers = 0..rates.len();
        let fast = |from: usize, to: usize| from != to && rates[from][to] >= least;
        let senders = |to: usize| helpers.clone().filter(|&from| fast(from, to)).collect();
        let into: Vec<Vec<usize>> = helpers.clone().map(senders).collect();
        let mut last: Vec<usize> = helpers.clone().filter(|&helper| ends[helper] >= least).collect();
        last.sort_by_key(|&helper| into[helper].len());
        let alike = |a: usize, b: usize| {
            let others = || helpers.clone().filter(move |&other| other != a && other != b);
            (ends[a] >= least) == (ends[b] >= least)
                && fast(a, b) == fast(b, a)
                && others().all(|other| fast(a, other) == fast(b, other) && fast(other, a) == fast(other, b))
        };
        let like = helpers.clone().map(|b| (0..b).find(|&a| alike(a, b)).unwrap_or(b)).collect();
        Self { into, last, like, failed: BTreeSet::new(), steps: 0 }
    }

    /// A chain of `members` helpers from the requestor outward.
    fn chain(mut self, members: usize) -> Option<Vec<usize>> {
        let count = self.into.len();
        let mut trial = Trial { chain: Vec::new(), used: vec![false; count], sorts: vec![0; count] };
        let last = std::mem::take(&mut self.last);
        self.try_each(&last, &mut trial, members).then_some(trial.chain)
    }

    /// Tries to complete the chain through one of the helpers in `next`; returns whether that succeeded.
    fn try_each(&mut self, next: &[usize], trial: &mut Trial, members: usize) -> bool {
        let mut tried: Vec<usize> = Vec::new();
        for &helper in next {
            if tried.contains(&self.like[helper]) {
                continue;
            }
            tried.push(self.like[helper]);
            trial.push(helper, &self.like);
            if self.extend(trial, members) {
                return true;
            }
            trial.pop(&self.like);
        }
        false
    }

    fn extend(&mut self, trial: &mut Trial, members: usize) -> bool {
        let head = trial.chain[trial.chain.len() - 1];
        let missing = members - trial.chain.len();
        if missing == 0 {
            return true;
        }
        self.steps += 1;
        if self.steps > MOST_STEPS
            || self.reachable(head, &trial.used) < missing
            || !self.failed.insert((self.like[head], trial.sorts.clone()))
        {
            return false;
        }
        // Helpers that few others can send to are tried first, because they would be dead ends later.
        let free = |helper: usize| self.into[helper].iter().filter(|&&from| !trial.used[from]).count();
        let mut next: Vec<(usize, usize)> = self.into[head]
            .iter()
            .filter(|&&from| !trial.used[from])
            .map(|&from| (free(from), from))
            .collect();
        next.sort_unstable();
        let next: Vec<usize> = next.into_iter().map(|(_, from)| from).collect();
        self.try_each(&next, trial, members)
    }

    /// The number of unused helpers with a path to `head`.
    fn reachable(&self, head: usize, used: &[bool]) -> usize {
        let mut seen = used.to_vec();
        let (mut waiting, mut count) = (vec![head], 0);
        while let Some(at) = waiting.pop() {
            for &from in &self.into[at] {
                if !std::mem::replace(&mut seen[from], true) {
                    count += 1;
                    waiting.push(from);
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference: tries all chains one by one.
    fn exists(rates: &[Vec<f64>], ends: &[f64], least: f64, chain: &mut Vec<usize>, members: usize) -> bool {
        chain.len() == members
            || (0..rates.len()).any(|next| {
                let rate = chain.last().map_or(ends[next], |&head| rates[next][head]);
                let fits = !chain.contains(&next) && rate >= least;
                fits && {
                    chain.push(next);
                    let found = exists(rates, ends, least, chain, members);
                    chain.pop();
                    found
                }
            })
    }

    proptest! {
        #[test]
        fn a_chain_is_found_if_there_is_one(
            rates in prop::collection::vec(prop::collection::vec(0u8..4, 6), 6),
            ends in prop::collection::vec(0u8..4, 6),
            (least, members, alike) in (1u8..4, 1usize..7, 0usize..4),
        ) {
            let mut rates: Vec<Vec<f64>> =
                rates.into_iter().map(|line| line.into_iter().map(f64::from).collect()).collect();
            let mut ends: Vec<f64> = ends.into_iter().map(f64::from).collect();
            // Makes the first `alike` helpers interchangeable.
            for at in 1..alike {
                rates[at] = rates[0].clone();
                ends[at] = ends[0];
                rates.iter_mut().for_each(|line| line[at] = line[0]);
            }
            let least = f64::from(least);
            let found = Search::new(&rates, &ends, least).chain(members);
            prop_assert_eq!(found.is_some(), exists(&rates, &ends, least, &mut Vec::new(), members));
            if let Some(chain) = found {
                prop_assert_eq!(chain.len(), members);
                prop_assert_eq!(chain.iter().collect::<BTreeSet<_>>().len(), members);
                prop_assert!(ends[chain[0]] >= least);
                prop_assert!(chain.windows(2).all(|pair| rates[pair[1]][pair[0]] >= least));
            }
        }
    }
}
