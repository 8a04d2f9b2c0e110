//! Lower bounds on the time of any plan: the bytes that must leave some set of nodes, or enter it.
//!
//! In an MDS code, any `k` blocks are independent. Suppose that `f` blocks are wanted, that all requestors
//! are outside a set of nodes, and that `o` surviving blocks are outside as well. Then at least `min(k − o,
//! f)` blocks' worth of bytes must leave the set. A requestor must receive one block's worth of bytes for
//! every block that it wants, but never more than decoding needs: `k` blocks, or `k − 1` if the requestor
//! holds one itself. For every slice at least `k` holders send, each of them at most one slice's worth of
//! bytes. No linear plan over these nodes can move fewer bytes, whatever the blocks contain.
//! `docs/reference/schemes.md` explains this at more length.

use std::time::Duration;

use super::candidates::Candidates;
use crate::{NodeId, Topology};

/// A lower bound and the resource that sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The least time of any plan.
    pub time: Duration,
    /// The limiting resource.
    pub limit: Limit,
}

/// The resource that limits a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The downlink of a requestor.
    Into(NodeId),
    /// The uplinks of the helpers, at least k of which must send.
    Uplinks,
    /// The trunk out of a rack or region in which no requestor is.
    OutOf(String),
    /// The trunk into a rack or region in which all requestors are.
    IntoDomain(String),
}

/// Returns the largest of the lower bounds, for `bytes` bytes of every wanted block.
pub(super) fn bound(candidates: &Candidates, bytes: u64, topology: &Topology) -> Bound {
    let bytes = bytes as f64;
    let requestors = requestors(candidates).map(|(requestor, blocks)| {
        (blocks * bytes / into(candidates, requestor), Limit::Into(candidates.network.nodes[requestor]))
    });
    let uplinks = (bytes / uplinks(candidates), Limit::Uplinks);
    let cuts = domains(candidates, topology).into_iter().filter_map(|(domain, inside)| {
        let (blocks, rate, limit) = cut(candidates, &inside, domain)?;
        Some((blocks * bytes / rate, limit))
    });
    let all = requestors.chain([uplinks]).chain(cuts).filter(|(seconds, _)| !seconds.is_nan());
    let (seconds, limit) = all.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there is at least one requestor");
    Bound { time: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX), limit }
}

/// Requestors, each with the number of blocks it has to receive.
fn requestors(candidates: &Candidates) -> impl Iterator<Item = (usize, f64)> + '_ {
    let mut once: Vec<usize> = candidates.requestors.clone();
    once.sort_unstable();
    once.dedup();
    once.into_iter().map(|requestor| {
        let wanted = candidates.requestors.iter().filter(|&&other| other == requestor).count();
        let own = usize::from(requestor < candidates.blocks.len());
        (requestor, wanted.min(candidates.needed - own) as f64)
    })
}

/// The total rate from all other nodes into node `to`, in bytes per second.
fn into(candidates: &Candidates, to: usize) -> f64 {
    let network = &candidates.network;
    let others: f64 =
        (0..network.nodes.len()).filter(|&from| from != to).map(|from| network.rate(from, to)).sum();
    network.rates[network.downlink(to)].min(others)
}

/// The rate at which the helpers' uplinks saturate, in bytes per second of a block: the largest `λ` with `Σ
/// min(up, λ) ≥ needed · λ`. The sum is over the holders that are no requestors; `needed` is reduced by the
/// blocks that requestors hold.
fn uplinks(candidates: &Candidates) -> f64 {
    let network = &candidates.network;
    let own = (0..candidates.blocks.len()).filter(|holder| candidates.requestors.contains(holder)).count();
    let needed = candidates.needed.saturating_sub(own);
    let mut up: Vec<f64> = (0..candidates.blocks.len())
        .filter(|holder| !candidates.requestors.contains(holder))
        .map(|holder| network.rates[network.uplink(holder)])
        .collect();
    up.sort_by(f64::total_cmp);
    // The rate if the slowest `slow` helpers send all the time and each of the others sends a whole block.
    let most = |slow: usize| {
        let whole = up.len() - slow;
        let slowest: f64 = up[..slow].iter().sum();
        if needed > whole { slowest / (needed - whole) as f64 } else { f64::INFINITY }
    };
    (0..=up.len()).map(most).fold(f64::INFINITY, f64::min)
}

/// Racks and regions, each with a flag per node that says whether the node is inside.
fn domains(candidates: &Candidates, topology: &Topology) -> Vec<(String, Vec<bool>)> {
    let nodes = &candidates.network.nodes;
    let mut names: Vec<String> =
        nodes.iter().flat_map(|&node| topology.domains(node)).flatten().cloned().collect();
    names.sort_unstable();
    names.dedup();
    let inside =
        |name: &String| nodes.iter().map(|&node| topology.domains(node).contains(&Some(name))).collect();
    names.into_iter().map(|name| (name.clone(), inside(&name))).collect()
}

/// The number of blocks that must leave or enter a rack or region, the highest rate at which they can, and
/// the resource that sets this rate. `None` if no block must leave or enter, or if there are requestors both
/// inside and outside.
fn cut(candidates: &Candidates, inside: &[bool], domain: String) -> Option<(f64, f64, Limit)> {
    let wanted_inside = candidates.requestors.iter().filter(|&&requestor| inside[requestor]).count();
    let f = candidates.requestors.len();
    let holders_inside = inside[..candidates.blocks.len()].iter().filter(|inside| **inside).count();
    let (holders_there, out, limit) = match wanted_inside {
        0 => (candidates.blocks.len() - holders_inside, true, Limit::OutOf(domain)),
        all if all == f => (holders_inside, false, Limit::IntoDomain(domain)),
        _ => return None,
    };
    let blocks = candidates.needed.saturating_sub(holders_there).min(f);
    (blocks > 0).then(|| (blocks as f64, crossing(candidates, |node| inside[node] == out), limit))
}

/// An upper bound on the total rate from the senders to the other nodes, in bytes per second. No sender
/// exceeds its uplink or the sum of its links; all together do not exceed the links that they share.
fn crossing(candidates: &Candidates, is_sender: impl Fn(usize) -> bool) -> f64 {
    let network = &candidates.network;
    let (senders, receivers): (Vec<usize>, Vec<usize>) =
        (0..network.nodes.len()).partition(|&node| is_sender(node));
    let of_sender = |&from: &usize| {
        let links: f64 = receivers.iter().map(|&to| network.rate(from, to)).sum();
        network.rates[network.uplink(from)].min(links)
    };
    let mut shared: Vec<usize> = Vec::new();
    let mut all_shared = true;
    let mut common: Option<f64> = None;
    for (&from, &to) in senders.iter().flat_map(|from| receivers.iter().map(move |to| (from, to))) {
        // The last resource on the way is the one that most pairs share.
        match network.passed(from, to).skip(2).last() {
            Some(between) if !network.is_pair(between) => shared.push(between),
            _ => all_shared = false,
        }
    }
    shared.sort_unstable();
    shared.dedup();
    if all_shared && !shared.is_empty() {
        common = Some(shared.iter().map(|&between| network.rates[between]).sum());
    }
    senders.iter().map(of_sender).sum::<f64>().min(common.unwrap_or(f64::INFINITY))
}
