//! Places the blocks of a new stripe: spread over racks first, then on the least used helpers, then at
//! random.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::SliceRandom;
use repair::NodeId;

/// A live helper that may get a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The helper's id.
    pub node: NodeId,
    /// The helper's rack, if known.
    pub rack: Option<String>,
    /// Number of blocks that the helper holds or will soon receive.
    pub used: usize,
}

/// Chooses `count` of the candidates, in random order so data and parity blocks mix. Returns `None` if there
/// are fewer candidates. `racks` is the number of blocks of the stripe that each rack already has.
pub(crate) fn spread(
    mut candidates: Vec<Candidate>,
    mut racks: BTreeMap<String, usize>,
    count: usize,
    rng: &mut impl Rng,
) -> Option<Vec<NodeId>> {
    candidates.shuffle(rng); // Breaks ties at random.
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        let in_rack = |candidate: &Candidate| {
            candidate.rack.as_ref().and_then(|rack| racks.get(rack)).copied().unwrap_or(0)
        };
        let best = (0..candidates.len()).min_by_key(|&at| (in_rack(&candidates[at]), candidates[at].used))?;
        let best = candidates.swap_remove(best);
        if let Some(rack) = best.rack {
            *racks.entry(rack).or_default() += 1;
        }
        chosen.push(best.node);
    }
    chosen.shuffle(rng);
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn candidate(node: u32, rack: Option<&str>, used: usize) -> Candidate {
        Candidate { node: NodeId(node), rack: rack.map(str::to_owned), used }
    }

    fn chosen(candidates: Vec<Candidate>, count: usize) -> Option<Vec<NodeId>> {
        let mut nodes = spread(candidates, BTreeMap::new(), count, &mut StdRng::seed_from_u64(7))?;
        nodes.sort();
        Some(nodes)
    }

    #[test]
    fn the_least_used_are_chosen() {
        let candidates = (0..6).map(|node| candidate(node, None, node as usize % 3)).collect();
        assert_eq!(chosen(candidates, 4), Some([0, 1, 3, 4].map(NodeId).to_vec()));
    }

    #[test]
    fn racks_are_spread_before_use_counts() {
        let racks = ["a", "a", "a", "b", "c", "c"];
        let candidates =
            racks.iter().zip(0..).map(|(rack, node)| candidate(node, Some(rack), node as usize)).collect();
        assert_eq!(chosen(candidates, 3), Some([0, 3, 4].map(NodeId).to_vec()));
    }

    #[test]
    fn racks_that_have_blocks_already_come_last() {
        let candidates = vec![candidate(0, Some("a"), 0), candidate(1, Some("b"), 9)];
        let racks = BTreeMap::from([("a".to_owned(), 1)]);
        assert_eq!(spread(candidates, racks, 1, &mut StdRng::seed_from_u64(7)), Some(vec![NodeId(1)]));
    }

    #[test]
    fn too_few_candidates_yield_none() {
        assert_eq!(chosen(vec![candidate(0, None, 0)], 2), None);
    }

    #[test]
    fn load_stays_even_over_many_stripes() {
        let mut rng = StdRng::seed_from_u64(7);
        let mut used = [0; 18];
        for _ in 0..900 {
            let candidates = (0..18).map(|node| candidate(node, None, used[node as usize])).collect();
            for node in spread(candidates, BTreeMap::new(), 14, &mut rng).unwrap() {
                used[node.0 as usize] += 1;
            }
        }
        assert_eq!(used, [700; 18]);
    }
}
