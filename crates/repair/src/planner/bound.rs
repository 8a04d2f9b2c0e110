//! Lower bounds on the time of any plan: the bytes that must leave some set of nodes, or enter it.
//!
//! In an MDS code, any `k` blocks are independent. Suppose that `g` blocks are wanted outside of a set of
//! nodes, and that `o` surviving blocks are outside as well. Then at least `min(k − o, g)` blocks' worth of
//! bytes must leave the set. A requestor must receive one block's worth of bytes for every block that it
//! wants, but never more than decoding needs: `k` blocks, or `k − 1` if the requestor holds one itself. For
//! every slice at least `k` holders send, each of them at most one slice's worth of bytes. No linear plan
//! over these nodes can move fewer bytes, whatever the blocks contain.
//!
//! Each of these bounds considers one set of nodes. Prices of resources combine many sets: if all resources
//! together are worth `v` per second, and every plan costs at least `c` per slice of every lost block, no
//! plan rebuilds more than `v / c` slices per second. The prices are those of the best packing of routes, and the
//! least cost comes from a packing of cuts ([`cuts`](super::cuts)). `docs/reference/schemes.md` explains this
//! at more length.

use std::time::Duration;

use super::candidates::Candidates;
use super::cuts::least_cost;
use super::packing::pack;
use crate::{NodeId, Topology};

/// Prices are tried only with at most this many nodes, for which the search is fast.
const MOST_PRICED: usize = 64;

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
    /// The disk of a requestor, which stores the rebuilt blocks.
    Disk(NodeId),
    /// The uplinks of the helpers, at least k of which must send.
    Uplinks,
    /// The way out of a rack or region.
    OutOf(String),
    /// The way into a rack or region.
    IntoDomain(String),
    /// Several resources, none of which sets the bound alone.
    Together,
}

/// Returns the largest of all lower bounds, for `bytes` bytes of every wanted block.
pub(super) fn bound(candidates: &Candidates, bytes: u64, topology: &Topology) -> Bound {
    let single = single_bound(candidates, bytes, topology);
    let rate = priced(candidates).unwrap_or(f64::INFINITY);
    let time = duration(bytes as f64 / rate);
    if time > single.time { Bound { time, limit: Limit::Together } } else { single }
}

/// Returns the largest of the lower bounds that consider one set of nodes each. They are found fast.
pub(super) fn single_bound(candidates: &Candidates, bytes: u64, topology: &Topology) -> Bound {
    let bytes = bytes as f64;
    let requestors = requestors(candidates).map(|(requestor, blocks)| {
        (blocks * bytes / into(candidates, requestor), Limit::Into(candidates.network.nodes[requestor]))
    });
    let disks = disks(candidates)
        .map(|(requestor, seconds)| (seconds * bytes, Limit::Disk(candidates.network.nodes[requestor])));
    let uplinks = (bytes / uplinks(candidates), Limit::Uplinks);
    let cuts = domains(candidates, topology).into_iter().flat_map(|(domain, inside)| {
        let limits = [(true, Limit::OutOf(domain.clone())), (false, Limit::IntoDomain(domain))];
        limits.map(|(out, limit)| (cut(candidates, &inside, out) * bytes, limit))
    });
    let all = requestors.chain(disks).chain([uplinks]).chain(cuts).filter(|(seconds, _)| !seconds.is_nan());
    let (seconds, limit) = all.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there is at least one requestor");
    Bound { time: duration(seconds), limit }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// An upper bound on the rate, in bytes per second of every lost block; `None` if there are too many nodes,
/// or no route.
fn priced(candidates: &Candidates) -> Option<f64> {
    let rates = &candidates.network.rates;
    if candidates.network.nodes.len() > MOST_PRICED {
        return None;
    }
    let prices = pack(rates, &mut candidates.routes()).prices?;
    let worth: f64 =
        prices.iter().zip(rates).filter(|(price, _)| **price > 0.0).map(|(p, rate)| p * rate).sum();
    Some(worth / least_cost(candidates, &prices))
}

/// Requestors, each with the number of blocks it has to receive.
fn requestors(candidates: &Candidates) -> impl Iterator<Item = (usize, f64)> + '_ {
    wanted(candidates).map(|(requestor, wanted)| {
        let own = usize::from(requestor < candidates.blocks.len());
        (requestor, wanted.min(candidates.needed - own) as f64)
    })
}

/// Requestors, each with the seconds that its disk needs per byte of every lost block.
fn disks(candidates: &Candidates) -> impl Iterator<Item = (usize, f64)> + '_ {
    let network = &candidates.network;
    wanted(candidates).map(|(requestor, wanted)| {
        (requestor, wanted as f64 * network.write(requestor) / network.rates[network.disk(requestor)])
    })
}

/// Requestors, each with the number of blocks that it wants.
fn wanted(candidates: &Candidates) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut once: Vec<usize> = candidates.requestors.clone();
    once.sort_unstable();
    once.dedup();
    once.into_iter().map(|requestor| {
        (requestor, candidates.requestors.iter().filter(|&&other| other == requestor).count())
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

/// The least time that it takes to move what must leave a rack or region, or enter it, in seconds per byte of
/// every lost block.
fn cut(candidates: &Candidates, inside: &[bool], out: bool) -> f64 {
    let sends = |node: usize| inside[node] == out;
    let wanted = candidates.requestors.iter().filter(|&&requestor| !sends(requestor)).count();
    let others = (0..candidates.blocks.len()).filter(|&holder| !sends(holder)).count();
    let needed = candidates.needed.saturating_sub(others);
    let blocks = match candidates.is_mds {
        true => needed.min(wanted),
        // The blocks of the set may all be needed for the same lost block.
        false if wanted == candidates.requestors.len() => needed.min(1),
        false => 0,
    };
    if blocks == 0 { 0.0 } else { blocks as f64 / crossing(candidates, sends) }
}

/// An upper bound on the total rate from the senders to the other nodes, in bytes per second. No node exceeds
/// its port or the sum of its links; all together do not exceed the links that they share.
fn crossing(candidates: &Candidates, is_sender: impl Fn(usize) -> bool) -> f64 {
    let network = &candidates.network;
    let (senders, receivers): (Vec<usize>, Vec<usize>) =
        (0..network.nodes.len()).partition(|&node| is_sender(node));
    let of_sender = |&from: &usize| {
        let links: f64 = receivers.iter().map(|&to| network.rate(from, to)).sum();
        network.rates[network.uplink(from)].min(links)
    };
    let of_receiver = |&to: &usize| {
        let links: f64 = senders.iter().map(|&from| network.rate(from, to)).sum();
        network.rates[network.downlink(to)].min(links)
    };
    let mut shared: Vec<usize> = Vec::new();
    let mut all_shared = true;
    for (&from, &to) in senders.iter().flat_map(|from| receivers.iter().map(move |to| (from, to))) {
        // The last resource on the way is the one that most pairs share.
        match network.passed(from, to).skip(2).last() {
            Some(between) if !network.is_pair(between) => shared.push(between),
            _ => all_shared = false,
        }
    }
    shared.sort_unstable();
    shared.dedup();
    let of_shared = match all_shared && !shared.is_empty() {
        true => shared.iter().map(|&between| network.rates[between]).sum(),
        false => f64::INFINITY,
    };
    let of_senders: f64 = senders.iter().map(of_sender).sum();
    of_senders.min(receivers.iter().map(of_receiver).sum()).min(of_shared)
}
