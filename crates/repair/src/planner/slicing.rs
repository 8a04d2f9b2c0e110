//! How large slices are, and which lane each of them travels.

use super::error::SLICE_MULTIPLE;
use super::placement::Placement;
use super::{PlanError, PlanRequest};
use crate::forecast::SLICE_OVERHEAD;
use crate::plan::Footprint;
use crate::{Dealing, Geometry, SliceSet, Stripe, Topology};

/// No slice is larger unless the policy says so: a pipeline should fill soon.
const LARGEST_CHOSEN: u32 = 1 << 20;
/// What the streams of one slice number may hold in memory at one node, where that can be kept.
const BYTES_AT_A_NODE: u64 = 1 << 20;
/// What one slice of every lane amounts to at most: lanes take turns, and short turns keep all links busy.
const ROUND_BYTES: u64 = 256 << 10;
/// Fewer slices per lane would leave lanes unevenly loaded.
const SLICES_PER_LANE: u64 = 4;

/// Checks what a request says about offsets, sub-blocks and slices.
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

/// The geometry of a plan, and the slices it moves.
pub(super) fn cut(
    footprint: &Footprint,
    placement: &Placement,
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
    let slice_bytes = request
        .policy
        .slice_bytes
        .unwrap_or_else(|| choose(footprint, window.end - window.start, slowest_link(placement, topology)));
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

/// The rate of the slowest link that the plan may use, in bytes per second.
fn slowest_link(placement: &Placement, topology: &Topology) -> f64 {
    let senders = placement.helpers.iter().map(|helper| helper.node);
    let senders = senders.chain(placement.direct.iter().map(|&(_, node)| node));
    let up = senders.filter_map(|node| topology.get(node)).map(|profile| profile.rates.up);
    let down =
        placement.requestors.iter().filter_map(|&node| topology.get(node)).map(|profile| profile.rates.down);
    up.chain(down).fold(f64::INFINITY, f64::min)
}

/// The power of two S that minimises `hops · S / rate + overhead · bytes / S`, the time that a pipeline
/// takes beyond moving the bytes: filling it, and handling slices. Within bounds of memory and of lanes.
fn choose(footprint: &Footprint, window_bytes: u64, rate: f64) -> u32 {
    let handling = SLICE_OVERHEAD.as_secs_f64() * window_bytes as f64;
    let filling = f64::from(footprint.hops.max(1)) / rate;
    let extra = |slice: u64| filling * slice as f64 + handling / slice as f64;
    let in_memory = BYTES_AT_A_NODE / footprint.streams.max(1) as u64;
    let in_lanes = match footprint.lanes {
        1 => window_bytes,
        lanes => (window_bytes / SLICES_PER_LANE).min(ROUND_BYTES) / lanes as u64,
    };
    let smallest = u64::from(Geometry::MIN_SLICE_BYTES);
    let largest = u64::from(LARGEST_CHOSEN).min(in_memory).min(in_lanes);
    let mut slice = smallest;
    while 2 * slice <= largest && extra(2 * slice) <= extra(slice) {
        slice *= 2;
    }
    slice as u32
}

/// The lanes that some slice uses, and how slices are dealt to these; of each lane the weight is given.
///
/// Without lanes that get nothing the others may get other slices, and so some of them nothing, which repeats.
pub(super) fn deal(weights: &[u32], slices: &SliceSet) -> (Vec<usize>, Dealing) {
    let mut kept: Vec<usize> = (0..weights.len()).collect();
    loop {
        let dealt: Vec<u32> = kept.iter().map(|&lane| weights[lane]).collect();
        let dealing = Dealing::weighted(&dealt).expect("shapes have a few lanes with weights");
        let used = |place: usize| dealing.uses(place as u16, slices);
        let next: Vec<usize> =
            (0..kept.len()).filter(|&place| used(place)).map(|place| kept[place]).collect();
        if next.len() == kept.len() {
            return (kept, dealing);
        }
        kept = next;
    }
}
