//! Chooses the slice size and deals slices to lanes.

use super::error::SLICE_MULTIPLE;
use super::{PlanError, PlanRequest};
use crate::forecast::SLICE_OVERHEAD;
use crate::plan::{Footprint, PlanBuilder};
use crate::{Dealing, Geometry, SliceSet, Stripe, Topology};

/// The largest slice size that the planner chooses by itself; small slices fill a pipeline sooner.
const LARGEST_CHOSEN: u32 = 1 << 20;
/// The limit on the memory that one slice of every stream takes at a node. Plans with very many streams
/// exceed it, because slices have a smallest size.
const BYTES_AT_A_NODE: u64 = 1 << 20;
/// The smallest slice size if nodes deliver every received stream as it is. This may exceed
/// [`BYTES_AT_A_NODE`], because a sender then holds few of its streams at a time, and a receiver holds only
/// data that its disk has not yet taken. Below this size, reading and sending many small pieces takes longer
/// than encoding them.
const BYTES_PASSED_ON: u64 = 32 << 10;
/// The maximum number of bytes in a round of one slice per lane. Lanes take turns, and short turns keep all
/// links busy.
const ROUND_BYTES: u64 = 256 << 10;
/// Filling the pipeline for at most 1/64 of the transfer is negligible.
const SHARE_FOR_FILLING: u64 = 64;
/// The least number of slices per lane; with fewer, the load of the lanes would be uneven.
const SLICES_PER_LANE: u64 = 4;

/// Checks the request's offsets, sub-blocks and slices.
pub(super) fn check(stripe: &Stripe, request: &PlanRequest) -> Result<(), PlanError> {
    if let Some(sub_blocks) = &request.sub_blocks
        && (sub_blocks.is_empty() || usize::from(sub_blocks.end) > stripe.code.sub_blocks())
    {
        let in_block = stripe.code.sub_blocks();
        return Err(PlanError::SubBlocks { sub_blocks: sub_blocks.clone(), in_block });
    }
    let window = request.resume.as_ref().map_or(&request.window, |(geometry, _)| &geometry.window);
    let sub_block_bytes = stripe.sub_block_bytes();
    if window.is_empty() || window.end > sub_block_bytes {
        return Err(PlanError::Window { window: window.clone(), sub_block_bytes });
    }
    let given = request.resume.as_ref().map(|(geometry, _)| geometry.slice_bytes);
    if let Some(slice_bytes) = given.or(request.policy.slice_bytes)
        && !(slice_bytes.is_multiple_of(SLICE_MULTIPLE)
            && (Geometry::MIN_SLICE_BYTES..=Geometry::MAX_SLICE_BYTES).contains(&slice_bytes))
    {
        return Err(PlanError::SliceSize { slice_bytes });
    }
    Ok(())
}

/// Returns the geometry of a plan and the slices that the plan moves.
pub(super) fn cut(
    builder: &PlanBuilder,
    request: &PlanRequest,
    topology: &Topology,
) -> Result<(Geometry, SliceSet), PlanError> {
    if let Some((geometry, slices)) = &request.resume {
        check_count(geometry)?;
        let in_window = geometry.slices();
        if slices.is_empty() || slices.next(in_window).is_some() {
            return Err(PlanError::Resume { slices: slices.clone(), in_window });
        }
        return Ok((geometry.clone(), slices.clone()));
    }
    let window = request.window.clone();
    let slice_bytes = request.policy.slice_bytes.unwrap_or_else(|| {
        choose(&builder.footprint(), window.end - window.start, slowest_link(builder, topology))
    });
    let geometry = Geometry { window, slice_bytes };
    check_count(&geometry)?;
    let slices = SliceSet::all(geometry.slices());
    Ok((geometry, slices))
}

fn check_count(geometry: &Geometry) -> Result<(), PlanError> {
    let (slice_bytes, window_bytes) = (geometry.slice_bytes, geometry.window.end - geometry.window.start);
    match u32::try_from(window_bytes.div_ceil(u64::from(slice_bytes))) {
        Ok(_) => Ok(()),
        Err(_) => Err(PlanError::TooManySlices { slice_bytes, window_bytes }),
    }
}

/// The lowest rate, in bytes per second, among the links that a plan uses and the requestors' downlinks.
fn slowest_link(builder: &PlanBuilder, topology: &Topology) -> f64 {
    let into = builder.outputs().iter().map(|output| topology.rates(output.requestor).down);
    let links = builder.links().map(|(from, to)| topology.link_rate(from, to));
    into.chain(links).fold(f64::INFINITY, f64::min)
}

/// Chooses the power of two S that minimises `hops · S / rate + overhead · bytes / S`, the time of a pipeline
/// beyond moving the bytes: filling it, and handling slices. Larger slices are chosen as long as the time for
/// filling stays negligible, since each slice costs its nodes a wake-up. Memory and the number of lanes bound
/// the result.
fn choose(footprint: &Footprint, window_bytes: u64, rate: f64) -> u32 {
    let handling = SLICE_OVERHEAD.as_secs_f64() * window_bytes as f64;
    let filling = f64::from(footprint.hops.max(1)) / rate;
    let extra = |slice: u64| filling * slice as f64 + handling / slice as f64;
    let in_memory = BYTES_AT_A_NODE / footprint.streams.max(1) as u64;
    let in_lanes = match footprint.lanes {
        1 => window_bytes,
        lanes => (window_bytes / SLICES_PER_LANE).min(ROUND_BYTES) / lanes as u64,
    };
    let smallest = match footprint.passes_on && in_memory < BYTES_PASSED_ON {
        true => BYTES_PASSED_ON,
        false => u64::from(Geometry::MIN_SLICE_BYTES),
    };
    let largest = u64::from(LARGEST_CHOSEN).min(in_memory).min(in_lanes);
    let mut slice = smallest;
    let in_no_time = window_bytes / SHARE_FOR_FILLING / footprint.hops.max(1) as u64;
    while 2 * slice <= largest && (2 * slice <= in_no_time || extra(2 * slice) <= extra(slice)) {
        slice *= 2;
    }
    slice as u32
}

/// The maximum number of slices in a round of lanes with different shares.
const LONGEST_ROUND: u32 = 2048;

/// Deals slices to lanes in proportion to `shares`. Returns the lanes that get any slice, and the dealing
/// over these lanes.
///
/// Dropping a lane without slices changes the dealing, which may leave another lane empty, so this repeats.
pub(super) fn deal(shares: &[f64], slices: &SliceSet) -> (Vec<usize>, Dealing) {
    let weights = weights(shares, slices.len().min(LONGEST_ROUND));
    let mut kept: Vec<usize> = (0..weights.len()).filter(|&lane| weights[lane] > 0).collect();
    loop {
        let dealt: Vec<u32> = kept.iter().map(|&lane| weights[lane]).collect();
        let dealing = Dealing::weighted(&dealt).expect("shapes have a few lanes, some with weights");
        let used = |lane: usize| dealing.uses(lane as u16, slices);
        let next: Vec<usize> = (0..kept.len()).filter(|&lane| used(lane)).map(|lane| kept[lane]).collect();
        if next.len() == kept.len() {
            return (kept, dealing);
        }
        kept = next;
    }
}

/// Converts shares into whole slices of a round, by largest remainders; equal shares stay equal.
fn weights(shares: &[f64], round: u32) -> Vec<u32> {
    if shares.iter().all(|share| *share == shares[0]) {
        return vec![1; shares.len()];
    }
    let sum: f64 = shares.iter().sum();
    let exact: Vec<f64> = shares.iter().map(|share| share / sum * f64::from(round)).collect();
    let mut weights: Vec<u32> = exact.iter().map(|share| share.floor() as u32).collect();
    let rest = round.saturating_sub(weights.iter().sum());
    let mut by_remainder: Vec<usize> = (0..shares.len()).collect();
    by_remainder.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    by_remainder.into_iter().take(rest as usize).for_each(|lane| weights[lane] += 1);
    weights
}
