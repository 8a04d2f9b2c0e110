//! A lower bound on what rebuilding one slice of every lost block costs at given prices, whatever the plan.
//!
//! Let `S` be a set of nodes with `r` of the readers, and let `g` of the lost blocks be wanted outside of it.
//! In an MDS code any `needed` blocks are independent. So if there are `m` readers, at least `min(g, r − (m −
//! needed))` streams must leave `S`; and at least one, if all lost blocks are wanted outside and `r` is at
//! least 1.
//! A *packing of cuts* gives sets such amounts that the amounts of all sets that a link leaves add up to no
//! more than the link's price. Then the sum of amount · streams over all sets is a lower bound for these
//! readers.
//!
//! The packing is that of the dual ascent for Steiner trees (Wong 1984), which is Edmonds' algorithm if all
//! nodes are readers: take the nodes that a holder reaches over links without a rest of their price. If each
//! holder among them reaches the others, raise the amount of this set until a further link has no rest. The
//! sets' holders are nested or disjoint, so the cheapest readers can be found by merging sets.

use super::candidates::Candidates;

/// A link whose rest is below this share of the highest price counts as having none.
const TINY: f64 = 1e-9;

/// A set of nodes.
struct Cut {
    /// The holders in the set.
    holders: Vec<usize>,
    /// The number of lost blocks that are wanted outside of the set.
    wanted: usize,
    amount: f64,
}

/// The least cost of one slice of every lost block.
pub(super) fn least_cost(candidates: &Candidates, prices: &[f64]) -> f64 {
    let cuts = packed_cuts(candidates, prices);
    let network = &candidates.network;
    let disks: Vec<f64> = (0..candidates.blocks.len()).map(|holder| prices[network.disk(holder)]).collect();
    let write = |&requestor: &usize| prices[network.disk(requestor)] * network.write(requestor);
    let writes: f64 = candidates.requestors.iter().map(write).sum();
    let counts = candidates.needed..=candidates.blocks.len();
    writes + counts.map(|readers| least(&cuts, &disks, readers, candidates)).fold(f64::INFINITY, f64::min)
}

/// The least sum over all cuts and disks, for this number of readers.
fn least(cuts: &[Cut], disks: &[f64], readers: usize, candidates: &Candidates) -> f64 {
    let lost = candidates.requestors.len();
    let spare = readers - candidates.needed;
    let streams = |cut: &Cut, inside: usize| {
        let any = usize::from(inside > 0 && cut.wanted == lost);
        match candidates.is_mds {
            true => any.max(cut.wanted.min(inside.saturating_sub(spare))),
            false => any,
        }
    };
    // Disjoint sets of holders, each with the least cost by the number of readers in it.
    let mut sets: Vec<(Vec<usize>, Vec<f64>)> =
        disks.iter().enumerate().map(|(holder, &disk)| (vec![holder], vec![0.0, disk])).collect();
    for cut in cuts {
        let mut costs = merge(&mut sets, |holder| cut.holders.contains(holder));
        costs
            .iter_mut()
            .zip(0..)
            .for_each(|(cost, inside)| *cost += cut.amount * streams(cut, inside) as f64);
        sets.push((cut.holders.clone(), costs));
    }
    merge(&mut sets, |_| true)[readers]
}

/// Removes the sets with these holders. Returns the least cost by the number of readers in their union.
fn merge(sets: &mut Vec<(Vec<usize>, Vec<f64>)>, is_in: impl Fn(&usize) -> bool) -> Vec<f64> {
    let merged = sets.extract_if(.., |(holders, _)| holders.iter().any(&is_in));
    merged.map(|(_, costs)| costs).fold(vec![0.0], |one, other| {
        let mut sums = vec![f64::INFINITY; one.len() + other.len() - 1];
        for (a, cost) in one.iter().enumerate() {
            other.iter().enumerate().for_each(|(b, more)| sums[a + b] = sums[a + b].min(cost + more));
        }
        sums
    })
}

fn packed_cuts(candidates: &Candidates, prices: &[f64]) -> Vec<Cut> {
    let network = &candidates.network;
    let nodes = 0..network.nodes.len();
    let price = |from, to| if from == to { f64::INFINITY } else { network.price(from, to, prices) };
    let mut rests: Vec<Vec<f64>> =
        nodes.clone().map(|from| nodes.clone().map(|to| price(from, to)).collect()).collect();
    let highest = rests.iter().flatten().copied().filter(|price| price.is_finite()).fold(0.0, f64::max);
    let holders = 0..candidates.blocks.len();
    let mut cuts = Vec::new();
    loop {
        let reached: Vec<Vec<bool>> =
            holders.clone().map(|holder| reached(&rests, holder, TINY * highest)).collect();
        let wanted =
            |set: &[bool]| candidates.requestors.iter().filter(|&&requestor| !set[requestor]).count();
        let mutual = |holder: usize| {
            holders.clone().filter(|&other| reached[holder][other]).all(|other| reached[other][holder])
        };
        let Some(first) = holders.clone().find(|&holder| wanted(&reached[holder]) > 0 && mutual(holder))
        else {
            return cuts;
        };
        let set = &reached[first];
        let amount = raise(&mut rests, set);
        cuts.push(Cut {
            holders: holders.clone().filter(|&at| set[at]).collect(),
            wanted: wanted(set),
            amount,
        });
    }
}

/// The nodes that a node reaches over links without a rest of their price.
fn reached(rests: &[Vec<f64>], from: usize, tiny: f64) -> Vec<bool> {
    let mut seen = vec![false; rests.len()];
    seen[from] = true;
    let mut waiting = vec![from];
    while let Some(at) = waiting.pop() {
        for (to, rest) in rests[at].iter().enumerate() {
            if *rest <= tiny && !std::mem::replace(&mut seen[to], true) {
                waiting.push(to);
            }
        }
    }
    seen
}

/// Subtracts the least rest of the links that leave a set from the rests of all of them, and returns it.
fn raise(rests: &mut [Vec<f64>], set: &[bool]) -> f64 {
    let leaves = |from: usize, to: usize| set[from] && !set[to];
    let mut amount = f64::INFINITY;
    for (from, row) in rests.iter().enumerate() {
        let leaving = row.iter().enumerate().filter(|(to, _)| leaves(from, *to));
        amount = leaving.map(|(_, &rest)| rest).fold(amount, f64::min);
    }
    for (from, row) in rests.iter_mut().enumerate() {
        let leaving = row.iter_mut().enumerate().filter(|(to, _)| leaves(from, *to));
        leaving.for_each(|(_, rest)| *rest -= amount);
    }
    amount
}
