//! Reconstruction sets: the paper's algorithm, and ours.
//!
//! The paper's algorithm fills one set after another. If exchanging a member for a chunk outside the set
//! makes room for further chunks, it makes the exchange, and repeats this until no exchange helps. To find
//! the best exchange, it tries all pairs of a member and a chunk outside, and for each pair all other chunks.
//!
//! Our algorithm differs in two ways. First, while more than `LOOKED_AT` chunks are left, it considers only
//! the next `LOOKED_AT` chunks outside and makes the first exchange that helps, because other exchanges can
//! follow later. Second, in the end it dissolves the smallest sets, as in bin packing: each of their chunks
//! goes into another set, or replaces a chunk that moves to a third set. If there are at most `LOOKED_AT`
//! chunks in all, only the second difference remains, so our algorithm never ends with more sets than the
//! paper's.

use super::matching::Group;
use super::{Chunk, Set};

/// Number of insertions to try per chunk when dissolving sets.
const TRIES_PER_CHUNK: usize = 300;
/// Maximum number of chunks outside a set that are considered for an exchange.
const LOOKED_AT: usize = 100;

/// Finds reconstruction sets by our algorithm. `most` is the maximum number of chunks in a set.
pub fn sets(chunks: &[Chunk], nodes: usize, most: usize) -> Vec<Set> {
    let mut groups = Vec::new();
    let mut rest: Vec<usize> = (0..chunks.len()).collect();
    while !rest.is_empty() {
        let mut group = greedy(chunks, nodes, most, &rest);
        let outside = |group: &Group| {
            let outside = rest.iter().copied().filter(|chunk| !group.members().contains(chunk));
            outside.take(LOOKED_AT).collect::<Vec<_>>()
        };
        let any = if rest.len() > LOOKED_AT { Choice::First } else { Choice::Best };
        while let Some(better) = exchange(&group, &outside(&group), most, any) {
            group = better;
        }
        assert!(!group.members().is_empty(), "every chunk has as many nodes as it needs");
        rest.retain(|chunk| !group.members().contains(chunk));
        groups.push(group);
    }
    Packing { most, tries: TRIES_PER_CHUNK * chunks.len() }.pack(&mut groups);
    groups.into_iter().map(Group::into_set).collect()
}

/// Finds reconstruction sets by the paper's Algorithm 1. For a thousand chunks, this takes some seconds
/// (`docs/results/fastpr-6.md`); the paper reports 255 s.
pub fn published_sets(chunks: &[Chunk], nodes: usize, most: usize) -> Vec<Set> {
    let mut sets = Vec::new();
    let mut rest: Vec<usize> = (0..chunks.len()).collect();
    while !rest.is_empty() {
        let mut group = greedy(chunks, nodes, most, &rest);
        let outside = |group: &Group| {
            rest.iter().copied().filter(|chunk| !group.members().contains(chunk)).collect::<Vec<_>>()
        };
        while let Some(better) = exchange(&group, &outside(&group), most, Choice::Best) {
            group = better;
        }
        rest.retain(|chunk| !group.members().contains(chunk));
        sets.push(group.into_set());
    }
    sets
}

/// Finds reconstruction sets by the first part of the paper's Algorithm 1 (lines 10 to 17): each set gets, in
/// order, all remaining chunks that fit.
pub fn first_sets(chunks: &[Chunk], nodes: usize, most: usize) -> Vec<Set> {
    let mut sets = Vec::new();
    let mut rest: Vec<usize> = (0..chunks.len()).collect();
    while !rest.is_empty() {
        let group = greedy(chunks, nodes, most, &rest);
        rest.retain(|chunk| !group.members().contains(chunk));
        sets.push(group.into_set());
    }
    sets
}

fn greedy<'a>(chunks: &'a [Chunk], nodes: usize, most: usize, rest: &[usize]) -> Group<'a> {
    let mut group = Group::new(chunks, nodes);
    group.fill(rest.iter().copied(), most);
    group
}

/// The exchange to make if several help.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// The first helpful exchange.
    First,
    /// The exchange that adds the most chunks.
    Best,
}

/// Exchanges one member for a chunk outside, if the exchange makes room for further chunks.
fn exchange<'a>(group: &Group<'a>, outside: &[usize], most: usize, choice: Choice) -> Option<Group<'a>> {
    let mut best: Option<Group> = None;
    for &new in outside {
        for &old in group.members() {
            let least = best.as_ref().map_or(group.members().len(), |best| best.members().len());
            if least >= most || choice == Choice::First && best.is_some() {
                return best;
            }
            let mut changed = group.clone();
            changed.remove(old);
            if !changed.insert(new) {
                continue;
            }
            changed.fill(outside.iter().copied().filter(|&other| other != new), most);
            if changed.members().len() > least {
                best = Some(changed);
            }
        }
    }
    best
}

struct Packing {
    most: usize,
    /// Number of insertions left to try.
    tries: usize,
}

impl Packing {
    /// Dissolves sets, the smallest first, until a set cannot be dissolved.
    fn pack(&mut self, groups: &mut Vec<Group>) {
        loop {
            groups.sort_by_key(|group| std::cmp::Reverse(group.members().len()));
            let Some(mut last) = groups.pop() else { return };
            let mut moved = true;
            while moved && !last.members().is_empty() {
                moved = false;
                for chunk in last.members().to_vec() {
                    if self.put(chunk, groups) {
                        last.remove(chunk);
                        moved = true;
                    }
                }
            }
            if !last.members().is_empty() {
                groups.push(last);
                groups.sort_by_key(|group| std::cmp::Reverse(group.members().len()));
                return;
            }
        }
    }

    /// Puts a chunk into one of the groups. Another chunk may move to a third group to make room. Returns
    /// whether there was room.
    fn put(&mut self, chunk: usize, groups: &mut [Group]) -> bool {
        if (0..groups.len()).any(|at| self.insert(chunk, &mut groups[at])) {
            return true;
        }
        for at in (0..groups.len()).rev() {
            for out in groups[at].members().to_vec() {
                if self.tries == 0 {
                    return false;
                }
                let before = groups[at].clone();
                groups[at].remove(out);
                if self.insert(chunk, &mut groups[at])
                    && (0..groups.len()).any(|to| to != at && self.insert(out, &mut groups[to]))
                {
                    return true;
                }
                groups[at] = before;
            }
        }
        false
    }

    fn insert(&mut self, chunk: usize, group: &mut Group) -> bool {
        if group.members().len() == self.most {
            return false;
        }
        self.tries = self.tries.saturating_sub(1);
        group.insert(chunk)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates `count` chunks. Each can be rebuilt with any `needs` of `others` random nodes.
    fn chunks(nodes: usize, needs: usize, others: usize, count: usize) -> impl Strategy<Value = Vec<Chunk>> {
        let holders = prop::sample::subsequence((0..nodes).collect::<Vec<_>>(), others);
        prop::collection::vec(holders.prop_map(move |nodes| Chunk { needs, nodes }), count)
    }

    fn check(chunks: &[Chunk], nodes: usize, most: usize, sets: &[Set]) -> Result<(), TestCaseError> {
        let mut found = vec![0; chunks.len()];
        for set in sets {
            prop_assert!(!set.is_empty() && set.len() <= most);
            let mut used = vec![false; nodes];
            for (chunk, helpers) in &set.chunks {
                found[*chunk] += 1;
                prop_assert_eq!(helpers.len(), chunks[*chunk].needs);
                for &helper in helpers {
                    prop_assert!(chunks[*chunk].nodes.contains(&helper));
                    prop_assert!(!std::mem::replace(&mut used[helper], true), "it helps twice");
                }
            }
        }
        prop_assert!(found.iter().all(|&found| found == 1));
        Ok(())
    }

    /// Returns the minimum number of sets, by exhaustive search.
    fn fewest(chunks: &[Chunk], nodes: usize, most: usize) -> usize {
        fn place(chunk: usize, chunks: &[Chunk], most: usize, groups: &mut Vec<Group>, limit: usize) -> bool {
            if chunk == chunks.len() {
                return true;
            }
            for at in 0..limit {
                let before = groups[at].clone();
                if before.members().len() < most && groups[at].insert(chunk) {
                    if place(chunk + 1, chunks, most, groups, limit) {
                        return true;
                    }
                    groups[at] = before.clone();
                }
                if before.members().is_empty() {
                    break;
                }
            }
            false
        }
        let groups = |limit| (0..limit).map(|_| Group::new(chunks, nodes)).collect::<Vec<_>>();
        (1..)
            .find(|&limit| place(0, chunks, most, &mut groups(limit), limit))
            .expect("each by itself is enough")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn sets_are_disjoint_and_complete(chunks in chunks(12, 3, 5, 14), most in 1..5usize) {
            check(&chunks, 12, most, &sets(&chunks, 12, most))?;
            check(&chunks, 12, most, &published_sets(&chunks, 12, most))?;
            check(&chunks, 12, most, &first_sets(&chunks, 12, most))?;
            prop_assert!(sets(&chunks, 12, most).len() <= published_sets(&chunks, 12, most).len());
        }

        #[test]
        fn few_chunks_are_packed_nearly_optimally(chunks in chunks(9, 2, 3, 8)) {
            let best = fewest(&chunks, 9, 4);
            prop_assert!(best <= sets(&chunks, 9, 4).len());
            prop_assert!(sets(&chunks, 9, 4).len() <= best + 1);
        }
    }

    #[test]
    fn chunks_that_share_their_nodes_go_into_sets_of_their_own() {
        let same = || Chunk { needs: 2, nodes: vec![0, 1, 2] };
        let chunks = [same(), same(), Chunk { needs: 2, nodes: vec![3, 4, 5] }];
        let sets = sets(&chunks, 6, 3);
        assert_eq!(sets.iter().map(Set::len).collect::<Vec<_>>(), [2, 1]);
    }
}
