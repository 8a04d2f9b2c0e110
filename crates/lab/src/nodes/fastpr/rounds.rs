//! The rounds of a failing node, as transfers between real helpers.
//!
//! Healthy nodes are numbered from 0 as in `sim::fastpr`: node 0 is the helper `h2`, because `h1` fails. Hot
//! standbys have the last numbers.

use client::{GivenBlock, GivenStripe, Home};
use sim::fastpr::{
    Chunk, Drain, Method, Model, ParityGroup, Placement, Round, RoundOrder, Set, destinations, hot_standbys,
    schedule,
};

use super::second_names::{copy_name, second_name};
use crate::instruction::{BlockAt, Transfer};
use crate::nodes::Setup;
use crate::nodes::cluster::LOST;

/// The code of a stripe whose second block is a copy of the first.
const COPY: &str = "explicit-2-1-1-x01";
/// The number in the name of the first healthy helper.
const FIRST: usize = 2;

/// A block of the failing node, and its stripe.
#[derive(Debug)]
pub(super) struct FailingChunk {
    stripe: String,
    /// The block's index in the stripe.
    index: usize,
    blocks: Vec<BlockAt>,
}

/// A block that a round has written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The block's name on the failing node.
    pub(super) original: String,
    /// Its name on the new node.
    pub(super) block: String,
    pub(super) node: String,
}

/// The chunks of a failing node, and their reconstruction sets.
pub(super) struct Failing {
    code: &'static str,
    chunk_bytes: u64,
    chunks: Vec<FailingChunk>,
    drain: Drain,
    pub(super) sets: Vec<Set>,
}

impl FailingChunk {
    /// Returns the failing node's block of a stripe, if it has one.
    pub(super) fn of(stripe: String, blocks: Vec<BlockAt>) -> Option<Self> {
        let index = blocks.iter().position(|at| at.node == LOST)?;
        Some(Self { stripe, index, blocks })
    }

    /// Returns the healthy nodes that hold the other blocks of the stripe.
    fn holders(&self) -> Vec<usize> {
        self.blocks.iter().filter_map(|at| number_of(&at.node)).collect()
    }
}

impl Failing {
    /// Finds the reconstruction sets by the paper's Algorithm 1.
    pub(super) fn new(setup: &Setup, model: Model, chunks: Vec<FailingChunk>) -> Self {
        let holders: Vec<Vec<usize>> = chunks.iter().map(FailingChunk::holders).collect();
        let needs = setup.data_blocks as usize;
        let placement = Placement {
            chunks: holders.iter().map(|nodes| Chunk { needs, nodes: nodes.clone() }).collect(),
            groups: vec![ParityGroup::Local; chunks.len()],
            holders,
        };
        let drain = Drain::new(model, placement);
        let sets = drain.sets();
        Self { code: setup.code, chunk_bytes: setup.block_bytes, chunks, drain, sets }
    }

    /// The number of chunks.
    pub(super) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// All blocks of the chunks' stripes.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &BlockAt> {
        self.chunks.iter().flat_map(|chunk| &chunk.blocks)
    }

    /// Returns the simulated time of a method on this cluster, in seconds.
    pub(super) fn simulated_s(&self, method: Method) -> f64 {
        self.drain.run(method, &self.sets).seconds
    }

    /// Returns the rounds of a method.
    pub(super) fn rounds(&self, method: Method) -> Vec<Round> {
        let copy = |chunk| Round { rebuilt: Set::default(), migrated: vec![chunk] };
        let rebuild = |set: &Set| Round { rebuilt: set.clone(), migrated: Vec::new() };
        match method {
            Method::MigrationOnly => (0..self.chunks.len()).map(copy).collect(),
            Method::ReconstructionOnly => self.sets.iter().map(rebuild).collect(),
            Method::FastPr => {
                let migration = self.drain.model.migration();
                schedule(self.sets.clone(), RoundOrder::Size, migration, |set| self.drain.expected(set))
            }
        }
    }

    /// Returns the transfers of a round, and the blocks that they write.
    pub(super) fn transfers(&self, round: &Round) -> (Vec<Transfer>, Vec<Written>) {
        let transfer = |(chunk, receiver): (usize, usize)| {
            let rebuilt = round.rebuilt.chunks.iter().find(|&&(rebuilt, _)| rebuilt == chunk);
            let transfer = match rebuilt {
                Some((_, helpers)) => self.rebuild(chunk, receiver, helpers),
                None => self.copy(chunk, receiver),
            };
            let FailingChunk { index, blocks, .. } = &self.chunks[chunk];
            let written = Written {
                original: blocks[*index].block.clone(),
                block: transfer.stripe.blocks[usize::from(transfer.home.index)].block.clone(),
                node: transfer.home.node.clone(),
            };
            (transfer, written)
        };
        self.receivers(round).into_iter().map(transfer).unzip()
    }

    /// Returns the chunks of a round, each with the number of its receiver.
    fn receivers(&self, round: &Round) -> Vec<(usize, usize)> {
        let healthy = self.drain.model.nodes - 1;
        match self.drain.model.standbys {
            Some(standbys) => hot_standbys(round, standbys)
                .into_iter()
                .map(|(chunk, standby)| (chunk, healthy + standby))
                .collect(),
            None => self.scattered(round, healthy),
        }
    }

    /// Chooses healthy nodes without a block of the chunk's stripe. If there are too few for a round, some
    /// receive two chunks: the ones that have the fewest.
    fn scattered(&self, round: &Round, healthy: usize) -> Vec<(usize, usize)> {
        let holders = &self.drain.placement.holders;
        let chosen = destinations(round, healthy, |chunk| holders[chunk].clone());
        let mut loads = vec![0; healthy];
        chosen.iter().filter_map(|&(_, node)| node).for_each(|node| loads[node] += 1);
        let mut complete = |(chunk, node): (usize, Option<usize>)| {
            let node = node.unwrap_or_else(|| {
                let free = (0..healthy).filter(|node| !holders[chunk].contains(node));
                let node = free.min_by_key(|&node| loads[node]).expect("the cluster is larger than a stripe");
                loads[node] += 1;
                node
            });
            (chunk, node)
        };
        chosen.into_iter().map(&mut complete).collect()
    }

    /// The failing node copies a chunk.
    fn copy(&self, chunk: usize, receiver: usize) -> Transfer {
        let FailingChunk { index, blocks, .. } = &self.chunks[chunk];
        let name = &blocks[*index].block;
        let block = |block: String, node| GivenBlock { block, bytes: self.chunk_bytes, node, digest: None };
        let blocks = vec![block(second_name(name), Some(LOST.to_owned())), block(copy_name(name), None)];
        let stripe = self.described(copy_name(&self.chunks[chunk].stripe), COPY, blocks);
        Transfer { stripe, home: Home { index: 1, node: name_of(receiver) }, is_copy: true }
    }

    /// The helpers rebuild a chunk.
    fn rebuild(&self, chunk: usize, receiver: usize, helpers: &[usize]) -> Transfer {
        let FailingChunk { stripe, index, blocks } = &self.chunks[chunk];
        let helps = |at: &BlockAt| number_of(&at.node).is_some_and(|node| helpers.contains(&node));
        let block = |at: &BlockAt| GivenBlock {
            block: second_name(&at.block),
            bytes: self.chunk_bytes,
            node: helps(at).then(|| at.node.clone()),
            digest: None,
        };
        let blocks = blocks.iter().map(block).collect();
        let home = Home { index: *index as u16, node: name_of(receiver) };
        Transfer { stripe: self.described(second_name(stripe), self.code, blocks), home, is_copy: false }
    }

    fn described(&self, stripe: String, code: &str, blocks: Vec<GivenBlock>) -> GivenStripe {
        GivenStripe {
            stripe,
            code: code.to_owned(),
            block_bytes: self.chunk_bytes,
            chunk_bytes: None,
            blocks,
        }
    }
}

/// Returns the name of the helper of this number.
fn name_of(node: usize) -> String {
    format!("h{}", node + FIRST)
}

/// Returns the number of a helper; `None` for the failing one.
fn number_of(helper: &str) -> Option<usize> {
    helper.strip_prefix('h')?.parse::<usize>().ok()?.checked_sub(FIRST)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SETUP: Setup = Setup {
        helpers: 7,
        spare: 0,
        code: "rs-4-2",
        data_blocks: 2,
        blocks: 4,
        block_bytes: 1 << 20,
        stripes: 4,
    };

    /// Four stripes of rs-4-2 on seven nodes; h1 holds a block of the first three.
    fn failing(standbys: Option<usize>) -> Failing {
        let homes = [["h1", "h2", "h3", "h4"], ["h5", "h1", "h6", "h7"], ["h2", "h5", "h1", "h7"]];
        let stripes = homes.iter().chain([&["h2", "h3", "h4", "h5"]]).enumerate();
        let at = |stripe: usize, (block, node): (usize, &&str)| BlockAt {
            block: format!("{stripe}.{block}"),
            node: (*node).to_owned(),
        };
        let chunks = stripes.filter_map(|(stripe, nodes)| {
            let blocks = nodes.iter().enumerate().map(|block| at(stripe, block));
            FailingChunk::of(stripe.to_string(), blocks.collect())
        });
        let model = Model { nodes: 7, chunk_bytes: 8e6, packet_bytes: 1e6, disk: 1e9, link: 1e7, standbys };
        Failing::new(&SETUP, model, chunks.collect())
    }

    #[test]
    fn every_method_moves_each_chunk_once_and_no_helper_helps_twice_in_a_round() {
        for standbys in [None, Some(2)] {
            let failing = failing(standbys);
            assert_eq!(failing.count(), 3);
            for method in [Method::MigrationOnly, Method::ReconstructionOnly, Method::FastPr] {
                let mut moved = BTreeSet::new();
                for round in failing.rounds(method) {
                    let (transfers, written) = failing.transfers(&round);
                    let mut helped = BTreeSet::new();
                    for Transfer { stripe, is_copy, .. } in transfers.iter().filter(|at| !at.is_copy) {
                        let named: Vec<_> = stripe.blocks.iter().filter_map(|at| at.node.clone()).collect();
                        assert_eq!((named.len(), *is_copy), (2, false), "k helpers rebuild a chunk");
                        assert!(named.into_iter().all(|node| helped.insert(node)), "one helps twice");
                    }
                    moved.extend(written.into_iter().map(|written| written.original));
                }
                assert_eq!(moved.into_iter().collect::<Vec<_>>(), ["0.0", "1.1", "2.2"], "{method:?}");
            }
        }
    }

    #[test]
    fn a_copy_is_the_repair_of_the_second_block_of_two_equal_ones() {
        let Transfer { stripe, home, is_copy } = failing(None).copy(1, 0);
        assert!(is_copy);
        assert_eq!(stripe.code.parse::<codes::CodeSpec>().unwrap().build().unwrap().blocks(), 2);
        assert_eq!((&*stripe.blocks[0].block, stripe.blocks[0].node.as_deref()), ("fastpr_1.1", Some("h1")));
        assert_eq!((&*stripe.blocks[1].block, stripe.blocks[1].node.as_deref()), ("copy_1.1", None));
        assert_eq!((home.index, &*home.node), (1, "h2"));
    }

    #[test]
    fn receivers_hold_no_block_of_the_stripe_and_standbys_come_last() {
        let failing = failing(None);
        for round in failing.rounds(Method::ReconstructionOnly) {
            for (chunk, node) in failing.receivers(&round) {
                assert!(!failing.chunks[chunk].holders().contains(&node));
            }
        }
        let failing = self::failing(Some(2));
        let (transfers, _) = failing.transfers(&failing.rounds(Method::MigrationOnly)[0]);
        assert_eq!(transfers[0].home.node, "h8", "the first standby");
    }
}
