//! Packed (ours): slices dealt over many routes so that all links are busy.
//!
//! For several lost blocks every helper and every requestor decodes a share of the slices, which loads no link with much
//! more than one block. For uneven links the shares follow what links carry. `docs/schemes.md` has the bounds and why
//! they hold.

use super::candidates::Candidates;
use super::packing::pack;
use super::routes::Route;
use crate::Topology;

/// Routes that carry less than this share of the best are not worth their connections.
const LEAST_SHARE: f64 = 0.004;

/// The routes, and the share of slices that each carries; none if nothing gets through.
pub(super) fn routes(candidates: &Candidates, topology: &Topology) -> Vec<(Route, f64)> {
    // Sums pay where several links share a trunk, or some links are much slower than others.
    let trees = candidates.requestors.len() == 1 && topology.has_links();
    let mut routes = candidates.routes(trees);
    let packing = pack(&candidates.network.rates, &mut routes);
    let value: f64 = packing.routes.iter().map(|(_, amount)| amount).sum();
    debug_assert!(trees || value <= packing.bound * 1.0001, "{value} is more than {}", packing.bound);
    let most = packing.routes.iter().map(|&(_, amount)| amount).fold(0.0, f64::max);
    let mut kept: Vec<(Route, f64)> =
        packing.routes.into_iter().filter(|&(_, amount)| amount >= LEAST_SHARE * most).collect();
    // The same plan in every run, largest shares first.
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    kept
}
