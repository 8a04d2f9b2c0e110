//! A set of chunks with disjoint helpers. It grows by augmenting paths, and undoes an insertion that does not
//! fit.

use std::rc::Rc;

use super::{Chunk, Set};

/// Words of a [`NodeSet`].
const WORDS: usize = 4;

/// A set of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NodeSet([u64; WORDS]);

impl NodeSet {
    /// Nodes are numbered below this.
    const MOST: usize = 64 * WORDS;

    fn insert(&mut self, node: usize) {
        self.0[node / 64] |= 1 << (node % 64);
    }

    fn remove(&mut self, node: usize) {
        self.0[node / 64] &= !(1 << (node % 64));
    }

    fn common(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    fn add(&mut self, other: Self) {
        (0..WORDS).for_each(|word| self.0[word] |= other.0[word]);
    }

    fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn into_vec(self) -> Vec<usize> {
        (0..Self::MOST).filter(|node| self.0[node / 64] >> (node % 64) & 1 == 1).collect()
    }

    fn first(self) -> Option<usize> {
        let word = self.0.iter().position(|&word| word != 0)?;
        Some(64 * word + self.0[word].trailing_zeros() as usize)
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        let mut set = Self::default();
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}

/// A set of chunks with disjoint helpers.
#[derive(Clone, Debug)]
pub(super) struct Group<'a> {
    chunks: &'a [Chunk],
    /// The nodes that can help each chunk.
    nodes: Rc<[NodeSet]>,
    members: Vec<usize>,
    /// The helpers of each member, in the order of `members`.
    helpers: Vec<NodeSet>,
    /// Nodes that help no chunk.
    free: NodeSet,
}

/// A member that a search has reached.
#[derive(Clone, Copy)]
struct Reached {
    /// The member's place in `members`.
    at: usize,
    /// The step of the search that reached it.
    from: usize,
    /// The helper that it would cede to the member of that step.
    cedes: usize,
}

impl<'a> Group<'a> {
    /// Creates an empty set for `nodes` nodes.
    ///
    /// # Panics
    /// If there are more than 256 nodes.
    pub fn new(chunks: &'a [Chunk], nodes: usize) -> Self {
        assert!(nodes <= NodeSet::MOST, "at most {} nodes, not {nodes}", NodeSet::MOST);
        Self {
            chunks,
            nodes: chunks.iter().map(|chunk| chunk.nodes.iter().copied().collect()).collect(),
            members: Vec::new(),
            helpers: Vec::new(),
            free: (0..nodes).collect(),
        }
    }

    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Adds those of the chunks that fit, in order, until the set has `most` members.
    pub fn fill(&mut self, chunks: impl IntoIterator<Item = usize>, most: usize) {
        let mut exits = self.exits();
        for chunk in chunks {
            if self.members.len() >= most {
                return;
            }
            if self.nodes[chunk].common(exits).len() >= self.chunks[chunk].needs && self.insert(chunk) {
                exits = self.exits();
            }
        }
    }

    /// Returns the nodes that are free or can be freed: their chunk can switch to a node that is free or can be
    /// freed. A chunk fits only if it has as many of these as it needs.
    fn exits(&self) -> NodeSet {
        let mut exits = self.free;
        let mut rest: Vec<usize> = (0..self.members.len()).collect();
        loop {
            let before = rest.len();
            rest.retain(|&at| {
                let is_stuck = self.nodes[self.members[at]].common(exits).is_empty();
                if !is_stuck {
                    exits.add(self.helpers[at]);
                }
                is_stuck
            });
            if rest.len() == before {
                return exits;
            }
        }
    }

    /// Adds a chunk if it and all members can have disjoint helpers. Returns whether it was added.
    pub fn insert(&mut self, chunk: usize) -> bool {
        let needs = self.chunks[chunk].needs;
        if self.free.len() < needs {
            return false;
        }
        let (helpers, free) = (self.helpers.clone(), self.free);
        self.members.push(chunk);
        self.helpers.push(NodeSet::default());
        if (0..needs).all(|_| self.augment(self.members.len() - 1)) {
            return true;
        }
        self.members.pop();
        (self.helpers, self.free) = (helpers, free);
        false
    }

    pub fn remove(&mut self, chunk: usize) {
        if let Some(at) = self.members.iter().position(|&member| member == chunk) {
            self.members.remove(at);
            self.free.add(self.helpers.remove(at));
        }
    }

    /// Finds one more helper for the last member, whose place is `root`. To free a node, other members may
    /// switch to different helpers. Returns whether one was found.
    fn augment(&mut self, root: usize) -> bool {
        if let Some(free) = self.nodes[self.members[root]].common(self.free).first() {
            self.free.remove(free);
            self.helpers[root].insert(free);
            return true;
        }
        let mut reached = Vec::with_capacity(self.members.len());
        reached.push(Reached { at: root, from: 0, cedes: 0 });
        let mut rest: Vec<usize> = (0..root).collect();
        let mut next = 0;
        while let Some(&Reached { at, .. }) = reached.get(next) {
            let nodes = self.nodes[self.members[at]];
            if let Some(free) = nodes.common(self.free).first() {
                self.free.remove(free);
                self.switch(free, next, &reached);
                return true;
            }
            rest.retain(|&other| {
                let cedes = nodes.common(self.helpers[other]).first();
                reached.extend(cedes.map(|cedes| Reached { at: other, from: next, cedes }));
                cedes.is_none()
            });
            next += 1;
        }
        false
    }

    /// Gives a node to a reached member. In turn, the member cedes a helper to the member from which it was
    /// reached, and so on.
    fn switch(&mut self, mut node: usize, mut place: usize, reached: &[Reached]) {
        loop {
            let Reached { at, from, cedes } = reached[place];
            self.helpers[at].insert(node);
            if place == 0 {
                return;
            }
            self.helpers[at].remove(cedes);
            (node, place) = (cedes, from);
        }
    }

    pub fn into_set(self) -> Set {
        let helpers = self.helpers.into_iter().map(NodeSet::into_vec);
        Set { chunks: self.members.into_iter().zip(helpers).collect() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether all chunks can have disjoint helpers, by trying all choices.
    fn fits(chunks: &[Chunk], taken: &mut Vec<bool>) -> bool {
        fn choose(chunk: &Chunk, from: usize, needs: usize, rest: &[Chunk], taken: &mut Vec<bool>) -> bool {
            if needs == 0 {
                return fits(rest, taken);
            }
            (from..chunk.nodes.len()).any(|at| {
                let node = chunk.nodes[at];
                if taken[node] {
                    return false;
                }
                taken[node] = true;
                let found = choose(chunk, at + 1, needs - 1, rest, taken);
                taken[node] = false;
                found
            })
        }
        match chunks.split_first() {
            None => true,
            Some((chunk, rest)) => choose(chunk, 0, chunk.needs, rest, taken),
        }
    }

    fn chunks() -> impl Strategy<Value = Vec<Chunk>> {
        let nodes = prop::sample::subsequence((0..9).collect::<Vec<usize>>(), 4);
        let chunk = (1..4usize, nodes).prop_map(|(needs, nodes)| Chunk { needs, nodes });
        prop::collection::vec(chunk, 1..7)
    }

    proptest! {
        /// A chunk is inserted if and only if a brute-force search finds disjoint helpers for all members, and
        /// `fill` inserts the same chunks as insertions one by one.
        #[test]
        fn insertions_agree_with_brute_force(chunks in chunks(), removed in 0..6usize) {
            let mut group = Group::new(&chunks, 9);
            let mut members: Vec<usize> = Vec::new();
            for chunk in 0..chunks.len() {
                let together: Vec<Chunk> =
                    members.iter().chain([&chunk]).map(|&member| chunks[member].clone()).collect();
                let expected = fits(&together, &mut vec![false; 9]);
                prop_assert_eq!(group.insert(chunk), expected);
                members.extend(expected.then_some(chunk));
                if members.contains(&removed) && chunk == removed {
                    group.remove(chunk);
                    members.retain(|&member| member != chunk);
                }
            }
            prop_assert_eq!(group.members(), &members[..]);
            let mut one_by_one = Group::new(&chunks, 9);
            let added: Vec<usize> = (0..chunks.len()).filter(|&chunk| one_by_one.insert(chunk)).collect();
            let mut filled = Group::new(&chunks, 9);
            filled.fill(0..chunks.len(), usize::MAX);
            prop_assert_eq!(filled.members(), &added[..]);
        }
    }
}
