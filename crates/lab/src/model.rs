//! The papers' formulas for the number of timeslots that the repair of one block takes. They assume uniform
//! full-duplex links and no other costs.

use repair::Scheme;

/// Returns the number of timeslots of a repair from `helpers` helpers with `slices` slices per block, as
/// derived in `docs/reference/schemes.md`; `None` if the scheme has no formula.
pub fn timeslots(scheme: Scheme, helpers: usize, slices: usize) -> Option<f64> {
    let k = helpers as f64;
    let depth = log2_ceil(helpers);
    let (load, hops) = match scheme {
        Scheme::Conventional => (k, 1),
        Scheme::Ppr => ppr(helpers),
        Scheme::CrrR => (depth as f64, depth + 1),
        Scheme::CrrS => (2.0 - 1.0 / f64::from(1u32 << depth), 2 * depth + 1),
        Scheme::CrrSDirect => (1.0, depth + 1),
        Scheme::Scatter | Scheme::Packed => (1.0, helpers.min(2)),
        Scheme::Pipelined | Scheme::Cyclic | Scheme::Weighted | Scheme::RackAware => (1.0, helpers),
        // A helper receives a slice, and then sends it.
        Scheme::PipeS => (k.min(2.0), helpers.saturating_sub(1).max(1)),
        Scheme::PipeB => (k, 1),
        Scheme::Migration => (1.0, 1),
        Scheme::Auto => return None,
    };
    Some(load + (hops as f64 - 1.0) / slices.max(1) as f64)
}

/// Returns the number of timeslots that the scheme's own paper states. Schemes in rounds move whole blocks;
/// for pipelined schemes, the number is the limit for many slices.
pub fn published_timeslots(scheme: Scheme, helpers: usize) -> Option<f64> {
    let (k, depth) = (helpers as f64, log2_ceil(helpers) as f64);
    match scheme {
        Scheme::Ppr => Some(log2_ceil(helpers + 1) as f64),
        Scheme::CrrR => Some(depth + 1.0),
        Scheme::CrrS => Some(2.0 * (k - 1.0) / k + 1.0),
        Scheme::Conventional | Scheme::PipeB => Some(k),
        Scheme::Pipelined | Scheme::Cyclic => Some(1.0),
        _ => None,
    }
}

/// Returns the number of timeslots T* of `docs/reference/schemes.md`, in which `lost` blocks of a Reed-Solomon stripe
/// can be rebuilt, each on a node of its own. No linear plan needs fewer if all other blocks are needed; otherwise,
/// that is proven only where T* is 1.
pub(crate) fn least_timeslots(blocks: usize, data_blocks: usize, lost: usize) -> f64 {
    let [k, f, helpers] = [data_blocks, lost, blocks - lost].map(|count| count as f64);
    if lost < 2 || data_blocks < 2 {
        return 1.0;
    }
    let decoding = f / (k - 1.0);
    ((1.0 + k / (f - 1.0) + decoding) / (helpers / (f - 1.0) + decoding)).max(1.0)
}

fn log2_ceil(count: usize) -> usize {
    count.max(1).next_power_of_two().trailing_zeros() as usize
}

/// Returns the maximum number of blocks that any node of PPR's tree receives, and the tree's depth.
fn ppr(helpers: usize) -> (f64, usize) {
    let mut left: Vec<usize> = (0..=helpers).collect();
    let mut received = vec![0; helpers + 1];
    let mut depth = vec![0; helpers + 1];
    while left.len() > 1 {
        let mut staying = Vec::new();
        for pair in left.chunks(2) {
            let &to = pair.last().expect("chunks are not empty");
            if let [from, to] = *pair {
                received[to] += 1;
                depth[to] = depth[to].max(depth[from] + 1);
            }
            staying.push(to);
        }
        left = staying;
    }
    let load = received.iter().copied().max().unwrap_or_default();
    (f64::from(load.max(1)), depth[helpers])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_those_of_the_schemes_page() {
        let load = |scheme, k| timeslots(scheme, k, usize::MAX).unwrap().round();
        let expected = [(3, 2), (4, 2), (6, 2), (8, 3), (10, 3), (12, 3), (16, 4)];
        for (k, slots) in expected {
            assert_eq!(load(Scheme::Ppr, k), f64::from(slots), "k = {k}");
        }
        assert_eq!(timeslots(Scheme::Conventional, 10, 1), Some(10.0));
        assert_eq!(timeslots(Scheme::Pipelined, 10, 2048), Some(1.0 + 9.0 / 2048.0));
        assert_eq!(timeslots(Scheme::PipeS, 10, 2048), Some(2.0 + 8.0 / 2048.0));
        assert_eq!(timeslots(Scheme::PipeS, 1, 2048), Some(1.0));
        assert_eq!(timeslots(Scheme::CrrS, 10, 1 << 30).map(|slots| (slots * 1e4).round()), Some(19375.0));
        assert_eq!(timeslots(Scheme::CrrR, 10, 1 << 30).map(f64::round), Some(4.0));
        assert_eq!(timeslots(Scheme::Auto, 10, 1), None);
        assert_eq!(published_timeslots(Scheme::Ppr, 10), Some(4.0));
        assert_eq!(published_timeslots(Scheme::CrrS, 4), Some(2.5));
    }

    #[test]
    fn the_least_timeslots_are_those_of_the_schemes_page() {
        let least = |n, k, f| (least_timeslots(n, k, f) * 1e3).round() / 1e3;
        let expected = [
            (6, 4, 2, 1.214),
            (9, 6, 2, 1.0),
            (9, 6, 3, 1.278),
            (14, 10, 3, 1.086),
            (14, 10, 4, 1.265),
            (16, 12, 4, 1.229),
        ];
        for (n, k, f, timeslots) in expected {
            assert_eq!(least(n, k, f), timeslots, "({n},{k}), {f} lost");
        }
        assert_eq!(least_timeslots(14, 10, 1), 1.0);
    }
}
