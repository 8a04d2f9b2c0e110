//! FastPR's rounds (Algorithm 2), and the receivers of chunks.

use super::matching::Group;
use super::{Chunk, Set};

/// The order in which sets are rebuilt. Chunks of the last sets are copied meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundOrder {
    /// Largest sets first (the paper's Algorithm 2).
    Size,
    /// Highest rate first. The rate is the number of chunks repaired per second while the set is rebuilt,
    /// including copied chunks. The paper uses this order for LRC, where sets of local and of global chunks
    /// take different times.
    Weight,
}

/// Work done at the same time. The next round begins when all of it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The rebuilt chunks with their helpers.
    pub rebuilt: Set,
    /// Chunks that are copied from the failing node.
    pub migrated: Vec<usize>,
}

/// Schedules rounds by the paper's Algorithm 2. `migration` is the expected time to copy a chunk and
/// `reconstruction` that to rebuild a set, both in seconds.
pub fn schedule(
    mut sets: Vec<Set>,
    order: RoundOrder,
    migration: f64,
    reconstruction: impl Fn(&Set) -> f64,
) -> Vec<Round> {
    let rank = |set: &Set| match order {
        RoundOrder::Size => set.len() as f64,
        RoundOrder::Weight => {
            let seconds = reconstruction(set);
            (set.len() as f64 + seconds / migration) / seconds
        }
    };
    sets.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let mut rounds = Vec::new();
    while let Some(rebuilt) = sets.pop() {
        let seconds = reconstruction(&rebuilt);
        // Add a small tolerance, so that rounding errors do not exclude a copy that ends exactly with the
        // round.
        let mut room = (seconds / migration + 1e-9) as usize;
        let mut migrated = Vec::new();
        while room > 0 && !sets.is_empty() {
            let last = &mut sets[0].chunks;
            let left = last.len().saturating_sub(room);
            room -= last.len() - left;
            migrated.extend(last.drain(left..).map(|(chunk, _)| chunk));
            if last.is_empty() {
                sets.remove(0);
            }
        }
        rounds.push(Round { rebuilt, migrated });
    }
    rounds
}

/// Chooses a healthy node for each chunk of a round. Each node takes at most one chunk, and none takes a
/// chunk if it already holds a block of the chunk's stripe. Returns `None` for chunks without a free node.
///
/// `holders` returns the nodes with a block of the chunk's stripe.
pub fn destinations(
    round: &Round,
    nodes: usize,
    holders: impl Fn(usize) -> Vec<usize>,
) -> Vec<(usize, Option<usize>)> {
    let all: Vec<usize> =
        round.rebuilt.chunks.iter().map(|&(chunk, _)| chunk).chain(round.migrated.iter().copied()).collect();
    let free = |&chunk: &usize| {
        let taken = holders(chunk);
        Chunk { needs: 1, nodes: (0..nodes).filter(|node| !taken.contains(node)).collect() }
    };
    let wishes: Vec<Chunk> = all.iter().map(free).collect();
    let mut group = Group::new(&wishes, nodes);
    for wish in 0..wishes.len() {
        group.insert(wish);
    }
    let mut found = vec![None; all.len()];
    group.into_set().chunks.into_iter().for_each(|(wish, nodes)| found[wish] = nodes.first().copied());
    all.into_iter().zip(found).collect()
}

/// Chooses a hot standby for each chunk of a round. The first standby receives the copied chunks, and the
/// other standbys receive the rebuilt ones in turn. If the round has only one kind of chunks, all standbys
/// receive them in turn.
pub fn hot_standbys(round: &Round, standbys: usize) -> Vec<(usize, usize)> {
    let rebuilt = round.rebuilt.chunks.iter().map(|&(chunk, _)| chunk);
    let mixed = standbys > 1 && !round.rebuilt.is_empty() && !round.migrated.is_empty();
    let (first, others) = if mixed { (1, standbys - 1) } else { (0, standbys) };
    let rebuilt = rebuilt.zip((0..others).cycle()).map(|(chunk, turn)| (chunk, first + turn));
    let copied = round.migrated.iter().zip((0..if mixed { 1 } else { standbys }).cycle());
    rebuilt.chain(copied.map(|(&chunk, turn)| (chunk, turn))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(chunks: &[usize]) -> Set {
        Set { chunks: chunks.iter().map(|&chunk| (chunk, vec![])).collect() }
    }

    #[test]
    fn large_sets_are_rebuilt_and_small_ones_copied_meanwhile() {
        let sets = vec![set(&[0]), set(&[1, 2, 3, 4]), set(&[5, 6, 7]), set(&[8, 9])];
        let rounds = schedule(sets, RoundOrder::Size, 1.0, |_| 2.5);
        let seen: Vec<(usize, &[usize])> =
            rounds.iter().map(|round| (round.rebuilt.len(), &round.migrated[..])).collect();
        assert_eq!(seen, [(4, &[0, 9][..]), (3, &[8][..])]);
    }

    #[test]
    fn a_set_that_takes_long_goes_after_one_that_brings_more_per_second() {
        // Rebuilding the set of two chunks takes 1 s, that of three chunks 5 s. A copy takes 0.5 s. So the
        // set of two chunks is first by rate, and that of three chunks by size.
        let seconds = |set: &Set| if set.len() == 2 { 1.0 } else { 5.0 };
        let sets = || vec![set(&[0, 1, 2]), set(&[3, 4])];
        assert_eq!(schedule(sets(), RoundOrder::Weight, 0.5, seconds)[0].rebuilt, set(&[3, 4]));
        assert_eq!(schedule(sets(), RoundOrder::Size, 0.5, seconds)[0].rebuilt, set(&[0, 1, 2]));
    }

    #[test]
    fn chunks_go_to_nodes_without_a_block_of_their_stripe() {
        let round = Round { rebuilt: set(&[0, 1]), migrated: vec![2] };
        let holders = |chunk: usize| [vec![0, 1], vec![0, 2], vec![1, 2]][chunk].clone();
        let found = destinations(&round, 3, holders);
        assert_eq!(found, [(0, Some(2)), (1, Some(1)), (2, Some(0))]);
        let found = destinations(&round, 3, |_| vec![0, 1]);
        assert_eq!(found.iter().filter(|(_, node)| node.is_some()).count(), 1, "n2 takes one");
    }

    #[test]
    fn the_first_standby_takes_the_copied_chunks() {
        let mut round = Round { rebuilt: set(&[0, 1, 2]), migrated: vec![3, 4] };
        assert_eq!(hot_standbys(&round, 3), [(0, 1), (1, 2), (2, 1), (3, 0), (4, 0)]);
        round.migrated.clear();
        assert_eq!(hot_standbys(&round, 3), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(hot_standbys(&round, 1), [(0, 0), (1, 0), (2, 0)]);
    }
}
