//! Random stripes to verify recipes: a repair must compute the bytes that were encoded.
#![allow(dead_code, reason = "each test binary uses only some of it")]

use std::collections::BTreeSet;
use std::sync::Arc;

use codes::{BlockIndex, Code, CodeSpec, DecodeError, Recipe, SubBlock};

/// All sub-blocks of one encoded stripe.
pub struct Stripe {
    pub code: Arc<dyn Code>,
    sub_blocks: Vec<Vec<u8>>,
}

impl Stripe {
    /// Encodes a stripe of pseudo-random data, with a few bytes per sub-block.
    pub fn of(spec: &CodeSpec) -> Self {
        Self::with_sub_block_bytes(spec, 3)
    }

    pub fn with_sub_block_bytes(spec: &CodeSpec, bytes: usize) -> Self {
        let code = spec.build().expect("a code within its limits");
        let data = code.data_blocks() * code.sub_blocks();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let mut sub_blocks: Vec<Vec<u8>> = (0..data).map(|_| (0..bytes).map(|_| byte()).collect()).collect();
        let encoding = code.encoding();
        let sources: Vec<&[u8]> =
            encoding.sources().iter().map(|&source| &*sub_blocks[index_of(&*code, source)]).collect();
        let parity = encoding.apply(&sources);
        assert_eq!(parity.len(), (code.blocks() - code.data_blocks()) * code.sub_blocks());
        sub_blocks.extend(parity);
        Self { code, sub_blocks }
    }

    pub fn named(name: &str) -> Self {
        Self::of(&name.parse().expect(name))
    }

    pub fn blocks(&self) -> usize {
        self.code.blocks()
    }

    /// Returns all blocks but those in `lost`, in order.
    pub fn others(&self, lost: &[usize]) -> Vec<usize> {
        (0..self.blocks()).filter(|block| !lost.contains(block)).collect()
    }

    /// Requests the recipe for the wanted blocks, applies it, and compares the result with the stripe.
    pub fn repair(&self, wanted: &[usize], available: &[usize]) -> Result<Recipe, DecodeError> {
        let recipe = self.code.repair(&indices(wanted), &indices(available))?;
        let name = self.code.spec();
        for source in recipe.sources() {
            assert!(available.contains(&usize::from(source.block.0)), "{name}: {source} is not available");
        }
        let runs = recipe.sources().chunk_by(|a, b| a.block == b.block && a.sub < b.sub).count();
        let read: BTreeSet<BlockIndex> = recipe.sources().iter().map(|source| source.block).collect();
        assert_eq!(runs, read.len(), "{name}: sources block by block, sub-blocks ascending");
        let asked: Vec<SubBlock> = wanted
            .iter()
            .flat_map(|&block| (0..self.code.sub_blocks()).map(move |sub| sub_block(block, sub)))
            .collect();
        assert_eq!(recipe.outputs(), asked, "{name}: every sub-block of the wanted blocks, in order");
        let sources: Vec<&[u8]> = recipe.sources().iter().map(|&source| self.bytes(source)).collect();
        for (output, bytes) in recipe.outputs().iter().zip(recipe.apply(&sources)) {
            assert_eq!(bytes, self.bytes(*output), "{name}: {output} of {wanted:?} from {available:?}");
        }
        Ok(recipe)
    }

    /// Repairs the blocks `lost` from all other blocks.
    pub fn repair_lost(&self, lost: &[usize]) -> Result<Recipe, DecodeError> {
        self.repair(lost, &self.others(lost))
    }

    /// Returns the number of sub-blocks that a repair of block `lost` alone reads.
    pub fn reads_for(&self, lost: usize) -> usize {
        self.repair_lost(&[lost]).expect("a single loss is repairable").sources().len()
    }

    fn bytes(&self, sub_block: SubBlock) -> &[u8] {
        &self.sub_blocks[index_of(&*self.code, sub_block)]
    }
}

fn index_of(code: &dyn Code, sub_block: SubBlock) -> usize {
    usize::from(sub_block.block.0) * code.sub_blocks() + usize::from(sub_block.sub)
}

pub fn sub_block(block: usize, sub: usize) -> SubBlock {
    SubBlock { block: BlockIndex(block as u16), sub: sub as u16 }
}

pub fn indices(blocks: &[usize]) -> Vec<BlockIndex> {
    blocks.iter().map(|&block| BlockIndex(block as u16)).collect()
}

/// Returns every subset of `size` elements of `0..n`, in lexicographic order.
pub fn subsets(n: usize, size: usize) -> Vec<Vec<usize>> {
    fn extend(n: usize, size: usize, chosen: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if chosen.len() == size {
            all.push(chosen.clone());
            return;
        }
        for next in chosen.last().map_or(0, |last| last + 1)..n {
            chosen.push(next);
            extend(n, size, chosen, all);
            chosen.pop();
        }
    }
    let mut all = Vec::new();
    extend(n, size, &mut Vec::new(), &mut all);
    all
}

/// Returns `0..n` in an order determined by the seed.
pub fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut order: Vec<(u64, usize)> = Vec::new();
    for index in 0..n {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.push((mixed ^ (mixed >> 31), index));
    }
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}
