//! FastPR (Shen et al., DSN 2019): which chunks of a node that will soon fail are rebuilt together, and which are copied
//! meanwhile.
//!
//! A *reconstruction set* is a set of chunks that can be rebuilt at the same time without any node helping twice: each
//! chunk gets helpers of its own. [`published_sets`] is the paper's Algorithm 1, [`sets`] ours, and [`schedule`]
//! its Algorithm 2: large sets are rebuilt, in rounds, and in each round the failing node copies as many chunks of the
//! smallest sets as the round has time for.
//!
//! Nodes and chunks have numbers here, from 0. The scheduler's own drains ([`Kind::Drain`](recovery::Kind::Drain)) have no
//! rounds; this is what they are measured against.

mod matching;
mod rounds;
mod sets;

pub use rounds::{Model, Round, RoundOrder, destinations, hot_standbys, schedule};
pub use sets::{published_sets, sets};

/// A chunk on the node that will fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Helpers that its reconstruction takes.
    pub needs: usize,
    /// The healthy nodes that can be among them.
    pub nodes: Vec<usize>,
}

/// A reconstruction set: chunks and their helpers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Chunks and the nodes that help, `needs` of each; no node helps twice.
    pub chunks: Vec<(usize, Vec<usize>)>,
}

impl Set {
    /// How many chunks it has.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}
