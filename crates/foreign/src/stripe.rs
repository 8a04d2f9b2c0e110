//! A stripe made by another system's encoder, checked against Mend's code.

use std::ops::AddAssign;
use std::sync::Arc;

use codes::{BlockIndex, Code, CodeSpec, DecodeError, Recipe, SubBlock};
use gf::Kernel;
use repair::{Chunking, Scheme};

use crate::cases::Encoded;
use crate::relays;

/// The maximum number of losses of several blocks to try. If more are possible, a random sample of this many
/// is tried.
const MOST_LOSSES: usize = 300;
/// Like `MOST_LOSSES`, for codes with many sub-blocks, whose recipes take milliseconds to compute.
const MOST_LOSSES_OF_MANY_SUB_BLOCKS: usize = 30;

/// Counts of successful repairs, of flipped bits, and of detected flips.
#[derive(Default)]
pub struct Trials {
    pub repairs: usize,
    pub flips: usize,
    pub flips_found: usize,
}

impl AddAssign for Trials {
    fn add_assign(&mut self, other: Self) {
        self.repairs += other.repairs;
        self.flips += other.flips;
        self.flips_found += other.flips_found;
    }
}

pub struct Stripe {
    code: Arc<dyn Code>,
    /// The layout of sub-blocks within the encoder's blocks.
    chunking: Chunking,
    /// The blocks as the encoder wrote them.
    blocks: Vec<Vec<u8>>,
    /// The sub-blocks, ordered by block and then by number.
    sub_blocks: Vec<Vec<u8>>,
}

impl Stripe {
    pub fn new(spec: &CodeSpec, encoded: Encoded) -> Result<Self, String> {
        let code = spec.build().map_err(|error| error.to_string())?;
        if encoded.blocks.len() != code.blocks() {
            return Err(format!("{} blocks where Mend has {}", encoded.blocks.len(), code.blocks()));
        }
        let (block_bytes, chunk_bytes) = (encoded.blocks[0].len() as u64, encoded.chunk_bytes as u64);
        let chunking = Chunking::of(&*code, block_bytes, Some(chunk_bytes));
        let chunking = chunking.map_err(|error| error.to_string())?;
        let sub_block = |block: &[u8], sub: u16| -> Vec<u8> {
            let places = chunking.ranges(sub, 0..chunking.sub_block_bytes());
            places.flat_map(|place| &block[place.start as usize..place.end as usize]).copied().collect()
        };
        let of_block =
            |block: &Vec<u8>| (0..chunking.sub_blocks()).map(|sub| sub_block(block, sub)).collect::<Vec<_>>();
        let sub_blocks = encoded.blocks.iter().flat_map(of_block).collect();
        Ok(Self { code, chunking, blocks: encoded.blocks, sub_blocks })
    }

    /// Compares the parity with Mend's and repairs losses. Returns the numbers of trials.
    pub fn check(&self, seed: u64) -> Result<Trials, String> {
        self.compare_parity()?;
        let mut trials = Trials::default();
        let n = self.code.blocks();
        let mut random = fastrand::Rng::with_seed(seed);
        for lost in 0..n {
            for order in self.orders(&[lost], &mut random) {
                self.repair(&[lost], &order).map_err(|error| format!("b{lost} from {order:?}: {error}"))?;
                trials.repairs += 1;
            }
        }
        trials.repairs += self.rebuild_whole_blocks()?;
        for lost in self.larger_losses(&mut random) {
            let [_, _, order] = self.orders(&lost, &mut random);
            match self.repair(&lost, &order) {
                Ok(()) => trials.repairs += 1,
                Err(Failure::Refused(DecodeError::Undecodable { .. })) if !self.code.spec().is_mds() => {}
                Err(error) => return Err(format!("{lost:?} from {order:?}: {error}")),
            }
        }
        trials += self.flip_a_bit(&mut random);
        match trials.flips == trials.flips_found {
            true => Ok(trials),
            false => Err("a flipped bit was not found".into()),
        }
    }

    fn compare_parity(&self) -> Result<(), String> {
        let encoding = self.code.encoding();
        for (output, bytes) in encoding.outputs().iter().zip(self.apply(encoding)) {
            if bytes != self.bytes(*output) {
                return Err(format!("parity {output} differs"));
            }
        }
        Ok(())
    }

    /// For a code with sub-blocks, repairs every single loss by plans for whole blocks with all their chunks.
    /// Returns the number of repairs.
    fn rebuild_whole_blocks(&self) -> Result<usize, String> {
        if self.code.sub_blocks() == 1 {
            return Ok(0);
        }
        let mut trials = 0;
        for lost in 0..self.blocks.len() {
            for scheme in [Scheme::Conventional, Scheme::Pipelined] {
                let rebuilt = relays::rebuild(&self.code, self.chunking, &self.blocks, lost, scheme)?;
                if rebuilt != self.blocks[lost] {
                    return Err(format!("b{lost} differs when a {scheme} plan has rebuilt it"));
                }
                trials += 1;
            }
        }
        Ok(trials)
    }

    /// Makes the control experiment: with one bit flipped in each sub-block of a parity block, both the
    /// comparison and a repair that reads this block must fail.
    fn flip_a_bit(&self, random: &mut fastrand::Rng) -> Trials {
        let (n, k, alpha) = (self.code.blocks(), self.code.data_blocks(), self.code.sub_blocks());
        let block = random.usize(k..n);
        let (code, blocks) = (self.code.clone(), self.blocks.clone());
        let mut wrong = Self { code, chunking: self.chunking, blocks, sub_blocks: self.sub_blocks.clone() };
        for sub in 0..alpha {
            let bytes = &mut wrong.sub_blocks[block * alpha + sub];
            let at = random.usize(..bytes.len());
            bytes[at] ^= 1 << random.u8(..8);
        }
        // `block` is the only parity block offered, so a data block that it covers can be repaired only with
        // it.
        let is_found = (0..k).any(|lost| {
            let order: Vec<usize> = (0..k).filter(|&other| other != lost).chain([block]).collect();
            matches!(wrong.repair(&[lost], &order), Err(Failure::Differs(_)))
        });
        let found = usize::from(wrong.compare_parity().is_err()) + usize::from(is_found);
        Trials { repairs: 0, flips: 2, flips_found: found }
    }

    /// Returns the remaining blocks in ascending, descending and random order.
    fn orders(&self, lost: &[usize], random: &mut fastrand::Rng) -> [Vec<usize>; 3] {
        let ascending: Vec<usize> = (0..self.code.blocks()).filter(|block| !lost.contains(block)).collect();
        let descending = ascending.iter().rev().copied().collect();
        let mut shuffled = ascending.clone();
        random.shuffle(&mut shuffled);
        [ascending, descending, shuffled]
    }

    fn larger_losses(&self, random: &mut fastrand::Rng) -> Vec<Vec<usize>> {
        let (n, m) = (self.code.blocks(), self.code.blocks() - self.code.data_blocks());
        let most = if self.code.sub_blocks() > 16 { MOST_LOSSES_OF_MANY_SUB_BLOCKS } else { MOST_LOSSES };
        let sets: f64 =
            (2..=m).map(|size| (0..size).map(|i| (n - i) as f64 / (i + 1) as f64).product::<f64>()).sum();
        if sets <= most as f64 && n <= 16 {
            let bits = |set: u32| (0..n).filter(|&block| set >> block & 1 == 1).collect::<Vec<_>>();
            return (0..1u32 << n).map(bits).filter(|set| (2..=m).contains(&set.len())).collect();
        }
        let sample = |_| {
            let mut blocks: Vec<usize> = (0..n).collect();
            random.shuffle(&mut blocks);
            blocks.truncate(random.usize(2..=m));
            blocks
        };
        if m < 2 { Vec::new() } else { (0..most).map(sample).collect() }
    }

    fn repair(&self, lost: &[usize], available: &[usize]) -> Result<(), Failure> {
        let indices = |blocks: &[usize]| -> Vec<BlockIndex> {
            blocks.iter().map(|&block| BlockIndex(block as u16)).collect()
        };
        let recipe = self.code.repair(&indices(lost), &indices(available)).map_err(Failure::Refused)?;
        for (output, bytes) in recipe.outputs().iter().zip(self.apply(&recipe)) {
            if bytes != self.bytes(*output) {
                return Err(Failure::Differs(*output));
            }
        }
        Ok(())
    }

    fn apply(&self, recipe: &Recipe) -> Vec<Vec<u8>> {
        let bytes = self.sub_blocks[0].len();
        let sum = |output: usize| {
            let mut sum = vec![0; bytes];
            for &(source, coefficient) in recipe.row(output) {
                let source = self.bytes(recipe.sources()[source as usize]);
                Kernel::best().mul_add(coefficient, source, &mut sum);
            }
            sum
        };
        (0..recipe.outputs().len()).map(sum).collect()
    }

    fn bytes(&self, sub_block: SubBlock) -> &[u8] {
        &self.sub_blocks[usize::from(sub_block.block.0) * self.code.sub_blocks() + usize::from(sub_block.sub)]
    }
}

enum Failure {
    Refused(DecodeError),
    Differs(SubBlock),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "{error}"),
            Self::Differs(sub_block) => write!(f, "{sub_block} differs"),
        }
    }
}
