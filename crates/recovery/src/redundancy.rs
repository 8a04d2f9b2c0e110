//! Computes how many further blocks a stripe can lose. The repair queue is ordered by this number.

use std::collections::BTreeMap;

use codes::{BlockIndex, Code, CodeSpec, Matrix};

/// Maximum number of loss sets to try for a code that is not MDS.
const SETS_TRIED: usize = 5_000;
/// Maximum work of these tries, in operations on single bytes; about a quarter of a second.
const WORK: usize = 1 << 30;
/// Maximum number of entries in each cache. Clients can describe any number of codes.
const KEPT: usize = 4096;

/// Computes facts about codes with some blocks lost, and caches them by code and lost blocks. Clusters have
/// few different codes and losses.
#[derive(Debug, Default)]
pub struct Redundancy {
    survives: BTreeMap<(String, Vec<BlockIndex>), Option<u32>>,
    reads: BTreeMap<(String, Vec<BlockIndex>, Vec<BlockIndex>), Reads>,
}

/// Read effort of a repair.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    /// Number of surviving blocks that are read, in whole or in part.
    sources: usize,
    /// Amount read, in blocks.
    blocks: f64,
}

impl Redundancy {
    /// Returns how many further blocks a stripe can lose in the worst case, in addition to `lost`. `None` if
    /// the stripe cannot be read.
    pub fn survives(&mut self, code: &dyn Code, lost: &[BlockIndex]) -> Option<u32> {
        let spare = (code.blocks() - code.data_blocks()).checked_sub(lost.len())? as u32;
        if code.spec().is_mds() {
            return Some(spare);
        }
        let key = (code.spec().to_string(), lost.to_vec());
        make_room(&mut self.survives);
        *self.survives.entry(key).or_insert_with(|| try_losses(code, lost, spare))
    }

    /// Returns a lower bound on the number of blocks that a repair reads with this code.
    pub(super) fn least_sources(&self, code: &dyn Code) -> usize {
        match code.spec() {
            CodeSpec::ReedSolomon { .. } => code.data_blocks(),
            _ => 1,
        }
    }

    /// Returns how many surviving blocks are read to rebuild `wanted`, if the code chooses the sources. 0 if
    /// `wanted` cannot be rebuilt.
    pub(super) fn sources(&mut self, code: &dyn Code, lost: &[BlockIndex], wanted: &[BlockIndex]) -> usize {
        if let CodeSpec::ReedSolomon { .. } = code.spec() {
            return code.data_blocks();
        }
        self.reads(code, lost, wanted).sources
    }

    /// Returns the amount read to rebuild `wanted`, in blocks, if the code chooses the sources. 0 if `wanted`
    /// cannot be rebuilt.
    pub(super) fn blocks_read(&mut self, code: &dyn Code, lost: &[BlockIndex], wanted: &[BlockIndex]) -> f64 {
        if let CodeSpec::ReedSolomon { .. } = code.spec() {
            return code.data_blocks() as f64;
        }
        self.reads(code, lost, wanted).blocks
    }

    fn reads(&mut self, code: &dyn Code, lost: &[BlockIndex], wanted: &[BlockIndex]) -> Reads {
        let key = (code.spec().to_string(), lost.to_vec(), wanted.to_vec());
        make_room(&mut self.reads);
        *self.reads.entry(key).or_insert_with(|| {
            let Ok(recipe) = code.repair(wanted, &left(code, lost)) else { return Reads::default() };
            let mut sources: Vec<BlockIndex> = recipe.sources().iter().map(|source| source.block).collect();
            sources.sort_unstable();
            sources.dedup();
            let blocks = recipe.sources().len() as f64 / code.sub_blocks() as f64;
            Reads { sources: sources.len(), blocks }
        })
    }
}

/// Empties a full cache; what is in use is computed again.
fn make_room<K: Ord, V>(cache: &mut BTreeMap<K, V>) {
    if cache.len() >= KEPT {
        cache.clear();
    }
}

/// Returns how many further losses a stripe survives, by trying all sets of one further loss, then of two,
/// and so on. `None` if the lost blocks are already too many. After [`SETS_TRIED`] sets, or as much [`WORK`], it
/// returns the number that was proven so far.
fn try_losses(code: &dyn Code, lost: &[BlockIndex], spare: u32) -> Option<u32> {
    let equations = Equations::new(code);
    if !equations.determine(lost) {
        return None;
    }
    let left = left(code, lost);
    let (mut sets, mut work) = (0, 0);
    for further in 1..=spare {
        let mut set: Vec<usize> = (0..further as usize).collect();
        loop {
            let all: Vec<BlockIndex> = lost.iter().copied().chain(set.iter().map(|&at| left[at])).collect();
            (sets, work) = (sets + 1, work + equations.work(all.len()));
            if sets > SETS_TRIED || work > WORK || !equations.determine(&all) {
                return Some(further - 1);
            }
            if !next_set(&mut set, left.len()) {
                break;
            }
        }
    }
    Some(spare)
}

/// The equations between the blocks of a code: each parity sub-block is a sum of data sub-blocks.
struct Equations {
    sub_blocks: usize,
    /// For each block, the terms of the equations in which it occurs: equation, sub-block and coefficient.
    terms: Vec<Vec<(usize, usize, u8)>>,
    count: usize,
}

impl Equations {
    fn new(code: &dyn Code) -> Self {
        let encoding = code.encoding();
        let mut terms = vec![Vec::new(); code.blocks()];
        for (row, parity) in encoding.outputs().iter().enumerate() {
            let sources = encoding.row(row).iter().map(|&(at, c)| (encoding.sources()[at as usize], c));
            for (sub_block, coefficient) in sources.chain([(*parity, 1)]) {
                terms[usize::from(sub_block.block.0)].push((row, usize::from(sub_block.sub), coefficient));
            }
        }
        Self { sub_blocks: code.sub_blocks(), terms, count: encoding.outputs().len() }
    }

    /// Whether the equations determine these blocks if all others are known: the columns of their sub-blocks are
    /// linearly independent.
    fn determine(&self, lost: &[BlockIndex]) -> bool {
        let mut matrix = Matrix::zero(self.count, lost.len() * self.sub_blocks);
        for (position, block) in lost.iter().enumerate() {
            for &(row, sub, coefficient) in &self.terms[usize::from(block.0)] {
                matrix[(row, position * self.sub_blocks + sub)] = coefficient;
            }
        }
        matrix.columns() <= self.count && matrix.rank() == matrix.columns()
    }

    /// The work of [`determine`](Self::determine) for this number of blocks.
    fn work(&self, blocks: usize) -> usize {
        let columns = blocks * self.sub_blocks;
        self.count * columns * columns
    }
}

fn left(code: &dyn Code, lost: &[BlockIndex]) -> Vec<BlockIndex> {
    (0..code.blocks() as u16).map(BlockIndex).filter(|block| !lost.contains(block)).collect()
}

/// Advances `set` to the next set of the same size with numbers below `end`, in lexicographic order. Returns
/// `false` after the last set.
fn next_set(set: &mut [usize], end: usize) -> bool {
    let size = set.len();
    for at in (0..size).rev() {
        if set[at] < end - (size - at) {
            set[at] += 1;
            for next in at + 1..size {
                set[next] = set[next - 1] + 1;
            }
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives(code: &str, lost: &[u16]) -> Option<u32> {
        let code = code.parse::<CodeSpec>().unwrap().build().unwrap();
        let lost: Vec<BlockIndex> = lost.iter().copied().map(BlockIndex).collect();
        Redundancy::default().survives(&*code, &lost)
    }

    #[test]
    fn an_mds_code_survives_as_many_losses_as_parity_is_left() {
        assert_eq!(survives("rs-14-10", &[]), Some(4));
        assert_eq!(survives("rs-14-10", &[0, 1, 2]), Some(1));
        assert_eq!(survives("rs-14-10", &[0, 1, 2, 3]), Some(0));
        assert_eq!(survives("rs-14-10", &[0, 1, 2, 3, 4]), None);
    }

    #[test]
    fn a_local_code_survives_only_what_every_set_does() {
        assert_eq!(survives("lrc-6-2-2", &[]), Some(3));
        // Whether this code survives four losses depends on the blocks that are lost.
        assert_eq!(survives("lrc-6-2-2", &[0, 1, 2]), Some(0));
        assert_eq!(survives("lrc-6-2-2", &[0, 1, 2, 6]), None);
        assert_eq!(survives("lrc-6-2-2", &[0, 1, 3, 4]), Some(0));
    }

    /// A loss is survived if and only if the code can decode it.
    #[test]
    fn equations_agree_with_decoding() {
        for code in ["lrc-6-2-2", "lrc1-4-2-2", "lrc-12-2-2", "rs-5-3", "hitchhiker-xor-5-3", "rotated-8-6-2"]
        {
            let code = code.parse::<CodeSpec>().unwrap().build().unwrap();
            let equations = Equations::new(&*code);
            for losses in 0..1_u32 << code.blocks() {
                let lost: Vec<BlockIndex> =
                    (0..code.blocks() as u16).filter(|at| losses >> at & 1 == 1).map(BlockIndex).collect();
                if lost.len() <= code.blocks() - code.data_blocks() + 1 {
                    let decodes = code.repair(&lost, &left(&*code, &lost)).is_ok();
                    assert_eq!(equations.determine(&lost), decodes, "{} without {lost:?}", code.spec());
                }
            }
        }
    }

    /// Anybody who may describe stripes can name any number of codes.
    #[test]
    fn caches_are_bounded() {
        let mut redundancy = Redundancy::default();
        let code = "lrc-6-2-2".parse::<CodeSpec>().unwrap().build().unwrap();
        let (lost, wanted) = ([BlockIndex(0)], [BlockIndex(0)]);
        for number in 0..KEPT as u32 {
            redundancy.survives.insert((number.to_string(), Vec::new()), None);
            redundancy.reads.insert((number.to_string(), Vec::new(), Vec::new()), Reads::default());
        }
        assert_eq!(redundancy.survives(&*code, &lost), Some(2));
        assert_eq!(redundancy.sources(&*code, &lost, &wanted), 3);
        assert!(redundancy.survives.len() <= KEPT && redundancy.reads.len() <= KEPT);
    }

    #[test]
    fn a_local_repair_reads_its_group() {
        let sources = |code: &str| {
            let code = code.parse::<CodeSpec>().unwrap().build().unwrap();
            Redundancy::default().sources(&*code, &[BlockIndex(0)], &[BlockIndex(0)])
        };
        assert_eq!(sources("rs-14-10"), 10);
        assert_eq!(sources("lrc-6-2-2"), 3);
    }

    #[test]
    fn all_sets_are_enumerated() {
        let mut set = vec![0, 1];
        let mut count = 1;
        while next_set(&mut set, 5) {
            count += 1;
        }
        assert_eq!((count, set), (10, vec![3, 4]));
    }
}
