//! The chunks of a failing node, the nodes that can help to rebuild each, and the nodes that hold the other
//! chunks of its stripe.

use super::Chunk;
use crate::dice::Dice;

/// The code of the stripes, as far as FastPR needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A Reed-Solomon code: any k of the other chunks rebuild a chunk.
    ReedSolomon {
        /// Number of chunks of a stripe.
        n: usize,
        /// Number of data chunks.
        k: usize,
    },
    /// Azure-LRC, in the order of [`codes`]: data, local parities, globals, and for Azure-LRC+1 the parity of
    /// the globals.
    AzureLrc {
        /// Number of data chunks.
        k: usize,
        /// Number of local groups.
        l: usize,
        /// Number of globals.
        g: usize,
        /// Whether the globals have a parity chunk of their own (Azure-LRC+1).
        plus: bool,
    },
}

/// The group of chunks that rebuilds a chunk of an LRC (supplement, section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParityGroup {
    /// A local parity group, or any chunks of a Reed-Solomon code.
    Local,
    /// The global parity group.
    Global,
}

/// The chunks that rebuild a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The group to which the chunk belongs.
    pub group: ParityGroup,
    /// Number of chunks that are needed.
    pub needs: usize,
    /// The chunks of the stripe from which they can be chosen, by index.
    pub from: Vec<usize>,
}

impl Shape {
    /// Returns the number of chunks of a stripe.
    pub fn chunks(&self) -> usize {
        match *self {
            Self::ReedSolomon { n, .. } => n,
            Self::AzureLrc { k, l, g, plus } => k + l + g + usize::from(plus),
        }
    }

    /// Returns the chunks that rebuild the chunk of index `lost`.
    ///
    /// A data chunk or local parity of an LRC is rebuilt from the k/l other chunks of its local group. A
    /// global is rebuilt from any k of the data and the other globals; with Azure-LRC+1, from the g other
    /// chunks of the globals' group.
    pub fn sources(&self, lost: usize) -> Sources {
        let without_lost = |chunks: Vec<usize>| chunks.into_iter().filter(|&chunk| chunk != lost).collect();
        let sources = |group, needs, chunks: Vec<usize>| Sources { group, needs, from: without_lost(chunks) };
        match *self {
            Self::ReedSolomon { n, k } => sources(ParityGroup::Local, k, (0..n).collect()),
            Self::AzureLrc { k, l, .. } if lost < k + l => {
                let size = k / l;
                let group = if lost < k { lost / size } else { lost - k };
                let data = group * size..(group + 1) * size;
                sources(ParityGroup::Local, size, data.chain([k + group]).collect())
            }
            Self::AzureLrc { g, plus: true, .. } => {
                sources(ParityGroup::Global, g, (self.chunks() - g - 1..self.chunks()).collect())
            }
            Self::AzureLrc { k, l, .. } => {
                sources(ParityGroup::Global, k, (0..k).chain(k + l..self.chunks()).collect())
            }
        }
    }
}

/// The chunks of a failing node. Healthy nodes are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The chunks, with the nodes that can help to rebuild them.
    pub chunks: Vec<Chunk>,
    /// The group of each chunk.
    pub groups: Vec<ParityGroup>,
    /// For each chunk, the nodes that hold the other chunks of its stripe.
    pub holders: Vec<Vec<usize>>,
}

impl Placement {
    /// Places stripes on random nodes. The failing node holds a random chunk of each of `count` stripes; the
    /// other chunks are on different ones of the `healthy` nodes.
    pub fn random(shape: Shape, healthy: usize, count: usize, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let lost: Vec<usize> = (0..count).map(|_| dice.below(shape.chunks() as u64) as usize).collect();
        let mut nodes: Vec<usize> = (0..healthy).collect();
        let mut placement = Self { chunks: Vec::new(), groups: Vec::new(), holders: Vec::new() };
        for lost in lost {
            dice.shuffle(&mut nodes);
            let Sources { group, needs, from } = shape.sources(lost);
            // Nodes in the order of the stripe's chunks, without the lost one.
            let node_of = |chunk: usize| nodes[if chunk < lost { chunk } else { chunk - 1 }];
            placement.chunks.push(Chunk { needs, nodes: from.into_iter().map(node_of).collect() });
            placement.groups.push(group);
            placement.holders.push(nodes[..shape.chunks() - 1].to_vec());
        }
        placement
    }

    /// Returns the numbers of the chunks of a group.
    pub fn of_group(&self, group: ParityGroup) -> Vec<usize> {
        (0..self.chunks.len()).filter(|&chunk| self.groups[chunk] == group).collect()
    }
}

#[cfg(test)]
mod tests {
    use codes::{BlockIndex, Code, CodeSpec};
    use proptest::prelude::*;

    use super::*;

    fn code(shape: Shape) -> std::sync::Arc<dyn Code> {
        let name = match shape {
            Shape::ReedSolomon { n, k } => format!("rs-{n}-{k}"),
            Shape::AzureLrc { k, l, g, plus } => format!("lrc{}-{k}-{l}-{g}", if plus { "1" } else { "" }),
        };
        name.parse::<CodeSpec>().unwrap().build().unwrap()
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        prop::sample::select(vec![
            Shape::ReedSolomon { n: 9, k: 6 },
            Shape::AzureLrc { k: 6, l: 2, g: 2, plus: false },
            Shape::AzureLrc { k: 12, l: 2, g: 2, plus: false },
            Shape::AzureLrc { k: 12, l: 2, g: 2, plus: true },
            Shape::AzureLrc { k: 12, l: 3, g: 2, plus: true },
        ])
    }

    proptest! {
        /// Any choice of sources rebuilds the chunk, according to the codes that the daemons use, and no code
        /// reads fewer.
        #[test]
        fn any_needed_sources_rebuild_a_chunk(shape in shapes(), lost in 0..64usize, seed in any::<u64>()) {
            let (code, lost) = (code(shape), lost % shape.chunks());
            prop_assert_eq!(code.blocks(), shape.chunks());
            let Sources { needs, mut from, .. } = shape.sources(lost);
            Dice::new(seed).shuffle(&mut from);
            let block = |index: usize| BlockIndex(index as u16);
            let chosen: Vec<BlockIndex> = from[..needs].iter().map(|&index| block(index)).collect();
            prop_assert!(code.repair(&[block(lost)], &chosen).is_ok(), "{:?} of {:?}", chosen, shape);
            let fewer = &chosen[..needs - 1];
            prop_assert!(code.repair(&[block(lost)], fewer).is_err(), "{:?} of {:?}", fewer, shape);
        }

        #[test]
        fn stripes_are_on_different_nodes(shape in shapes(), seed in any::<u64>()) {
            let placement = Placement::random(shape, 20, 30, seed);
            for (chunk, holders) in placement.chunks.iter().zip(&placement.holders) {
                let mut distinct = holders.clone();
                distinct.sort_unstable();
                distinct.dedup();
                prop_assert_eq!(distinct.len(), shape.chunks() - 1);
                prop_assert!(chunk.nodes.iter().all(|node| holders.contains(node)));
                prop_assert!(chunk.needs <= chunk.nodes.len());
            }
        }
    }

    #[test]
    fn globals_are_the_only_chunks_of_the_global_group() {
        let shape = Shape::AzureLrc { k: 12, l: 2, g: 2, plus: false };
        let global: Vec<usize> =
            (0..16).filter(|&lost| shape.sources(lost).group == ParityGroup::Global).collect();
        assert_eq!(global, [14, 15]);
        assert_eq!((shape.sources(0).needs, shape.sources(14).needs), (6, 12));
        let plus = Shape::AzureLrc { k: 12, l: 2, g: 2, plus: true };
        assert_eq!((plus.sources(16).group, plus.sources(16).needs), (ParityGroup::Global, 2));
    }
}
