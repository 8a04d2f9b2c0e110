//! Packed (ours): slices dealt over many routes so that all links are busy.
//!
//! For several lost blocks, every helper and every requestor decodes a share of the slices, so that no link
//! carries much more than one block. For uneven links, the shares follow the link rates.
//! `docs/reference/schemes.md` has the bounds and their proofs.

use super::candidates::Candidates;
use super::packing::{Packing, pack};
use super::routes::{Route, Routes};
use crate::Topology;

/// Routes that carry less than this share of the largest route's slices are not worth their connections.
const LEAST_SHARE: f64 = 0.004;
/// Helpers' ports are filled only to this share, if that costs no throughput. A node that only sends runs
/// ahead of the others and fills its connections' buffers; if all ports are full, the slice that is due waits
/// behind that backlog.
const RELAXED: f64 = 0.8;
/// The relaxed packing is used if at least this share of the throughput remains.
const ENOUGH: f64 = 0.998;

/// The routes with their shares of the slices; empty if no route has a positive rate.
pub(super) fn routes(candidates: &Candidates, topology: &Topology) -> Vec<(Route, f64)> {
    let mut routes = candidates.routes();
    // With known link rates, ports are rarely the bottleneck, and a second packing would take long.
    let packing = match topology.has_links() {
        true => pack(&candidates.network.rates, &mut routes),
        false => relaxed(candidates, &mut routes),
    };
    let most = packing.routes.iter().map(|&(_, amount)| amount).fold(0.0, f64::max);
    let mut kept: Vec<(Route, f64)> =
        packing.routes.into_iter().filter(|&(_, amount)| amount >= LEAST_SHARE * most).collect();
    // Sorted by share for a deterministic plan, largest first.
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    kept
}

/// A packing that leaves some room at helpers' ports, if one exists with nearly the same throughput as a full
/// one.
fn relaxed(candidates: &Candidates, routes: &mut Routes) -> Packing<Route> {
    let network = &candidates.network;
    let into: Vec<usize> = candidates.requestors.iter().map(|&node| network.downlink(node)).collect();
    let left =
        |(resource, &rate): (usize, &f64)| if into.contains(&resource) { rate } else { rate * RELAXED };
    let rates: Vec<f64> = network.rates.iter().enumerate().map(left).collect();
    let relaxed = pack(&rates, routes);
    // Each slice reaches every requestor, so the full packing need not be made if it cannot be much better.
    let most = into.iter().map(|&resource| network.rates[resource]).fold(f64::INFINITY, f64::min);
    if candidates.needed > 1 && value(&relaxed) >= ENOUGH * most {
        return relaxed;
    }
    let full = pack(&network.rates, routes);
    if value(&relaxed) >= ENOUGH * value(&full) { relaxed } else { full }
}

/// The total throughput of a packing.
fn value(packing: &Packing<Route>) -> f64 {
    packing.routes.iter().map(|(_, amount)| amount).sum()
}
