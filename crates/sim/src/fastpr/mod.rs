//! FastPR (Shen et al., DSN 2019): for a node that will soon fail, decides which chunks are rebuilt together
//! and which are copied meanwhile.
//!
//! A *reconstruction set* is a set of chunks that can be rebuilt at the same time with disjoint helpers.
//! [`sets`] is our algorithm for finding such sets, and [`published_sets`] is the paper's Algorithm 1.
//! [`schedule`] is the paper's Algorithm 2: large sets are rebuilt in rounds, and in each round the failing
//! node copies as many chunks of the smallest sets as the time of the round allows. [`Drain`] executes the
//! rounds on simulated disks and links, and [`Model`] has the times that Algorithm 2 expects.
//!
//! Nodes and chunks are numbered from 0 here. The drains of the scheduler
//! ([`Kind::Drain`](recovery::Kind::Drain)) have no rounds; this module is their baseline.

mod drain;
mod execution;
mod matching;
mod model;
mod placement;
mod rounds;
mod sets;

pub use drain::{Drain, Drained, Method, Rounds, Standbys};
pub use execution::{Disks, Source, Transfer, execute};
pub use model::Model;
pub use placement::{ParityGroup, Placement, Shape, Sources};
pub use rounds::{Round, RoundOrder, destinations, hot_standbys, schedule};
pub use sets::{first_sets, published_sets, sets};

/// A chunk on the failing node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of helpers that the reconstruction of the chunk needs.
    pub needs: usize,
    /// The healthy nodes that can help.
    pub nodes: Vec<usize>,
}

/// A reconstruction set: chunks and their helpers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The numbers of the chunks, each with its `needs` helpers. No node helps twice.
    pub chunks: Vec<(usize, Vec<usize>)>,
}

impl Set {
    /// Returns the number of chunks.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}
