//! A set of chunks with disjoint helpers. It grows by augmenting paths, and undoes an insertion that does not
//! fit.

use super::{Chunk, Set};

/// A set of chunks with disjoint helpers.
#[derive(Clone, Debug)]
pub(super) struct Group<'a> {
    chunks: &'a [Chunk],
    /// The chunk that each node helps to rebuild.
    helps: Vec<Option<usize>>,
    members: Vec<usize>,
    free: usize,
    /// The number of the last search that visited each node.
    seen: Vec<u64>,
    searches: u64,
    /// Changes since the current insertion began: each is a node and the chunk that the node helped to
    /// rebuild before the change.
    changes: Vec<(usize, Option<usize>)>,
}

impl<'a> Group<'a> {
    pub fn new(chunks: &'a [Chunk], nodes: usize) -> Self {
        Self {
            chunks,
            helps: vec![None; nodes],
            members: Vec::new(),
            free: nodes,
            seen: vec![0; nodes],
            searches: 0,
            changes: Vec::new(),
        }
    }

    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Adds a chunk if it and all members can have disjoint helpers. Returns whether it was added.
    pub fn insert(&mut self, chunk: usize) -> bool {
        let needs = self.chunks[chunk].needs;
        if self.free < needs {
            return false;
        }
        self.changes.clear();
        for _ in 0..needs {
            self.searches += 1;
            if !self.augment(chunk) {
                self.take_back();
                return false;
            }
        }
        self.members.push(chunk);
        self.free -= needs;
        true
    }

    pub fn remove(&mut self, chunk: usize) {
        self.members.retain(|&member| member != chunk);
        for helps in self.helps.iter_mut().filter(|helps| **helps == Some(chunk)) {
            *helps = None;
        }
        self.free += self.chunks[chunk].needs;
    }

    /// Finds one more helper for the chunk. To free a node, other chunks may switch to different helpers.
    /// Returns whether one was found.
    fn augment(&mut self, chunk: usize) -> bool {
        let nodes = &self.chunks[chunk].nodes;
        if let Some(&free) = nodes.iter().find(|&&node| self.helps[node].is_none()) {
            self.give(free, chunk);
            return true;
        }
        for &node in nodes {
            if std::mem::replace(&mut self.seen[node], self.searches) == self.searches {
                continue;
            }
            let owner = self.helps[node].expect("none is free");
            if owner != chunk && self.augment(owner) {
                self.give(node, chunk);
                return true;
            }
        }
        false
    }

    fn give(&mut self, node: usize, chunk: usize) {
        self.changes.push((node, self.helps[node].replace(chunk)));
    }

    fn take_back(&mut self) {
        while let Some((node, before)) = self.changes.pop() {
            self.helps[node] = before;
        }
    }

    pub fn into_set(self) -> Set {
        let helpers = |chunk: usize| {
            (0..self.helps.len()).filter(|&node| self.helps[node] == Some(chunk)).collect::<Vec<_>>()
        };
        Set { chunks: self.members.iter().map(|&chunk| (chunk, helpers(chunk))).collect() }
    }
}
