//! Checks the parity of a whole stripe by fingerprints: whether its blocks agree, and if not, which block is
//! wrong.
//!
//! A linear code has one equation per parity sub-block: the combination of data blocks equals the parity.
//! Evaluated on fingerprints, an equation yields a *syndrome*, which is zero if the equation holds. A set of
//! blocks *explains* the syndromes if changing only these blocks can make all syndromes zero. Unread blocks
//! belong to every such set, so equations that involve them prove nothing.
//!
//! Two swapped blocks both deviate from their correct contents by the same bytes. If only two equations are
//! spare (two more blocks were read than decoding needs), changing a third block may explain the syndromes as
//! well. So swaps are checked first, and if two blocks are swapped, no single block is named as wrong.
//!
//! **Invariant:** a set of blocks is named as wrong only if no other set of the same size explains the
//! syndromes, and at least one equation remains and holds after the named blocks are eliminated. A faulty
//! node that holds as many blocks as there are spare equations can still cause an innocent block to be named.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, Code, Matrix};
use gf::Kernel;

use crate::fingerprint::{FINGERPRINT_BYTES, Fingerprint};

/// Limit on the search for wrong blocks, in multiplications and additions of single bytes; about one second
/// of work. Within this limit a code with hundreds of sub-blocks is searched for one wrong block only, other
/// codes for several.
const SEARCH_WORK: u64 = 3_000_000_000;

/// The verdict on a stripe's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripeParity {
    /// No equation can be checked, because too many blocks are unread.
    Unknown,
    /// All equations that remain after the unread blocks are eliminated hold.
    Holds {
        /// Blocks that were read but in which some errors would go unnoticed.
        unproven: BTreeSet<BlockIndex>,
    },
    /// These blocks are wrong: some equations fail, but all equations that remain after these blocks are
    /// eliminated hold.
    Wrong(BTreeSet<BlockIndex>),
    /// Some equations fail, and it cannot be determined which of these blocks are wrong.
    Contradictory(BTreeSet<BlockIndex>),
}

/// Judges a stripe by the fingerprints of its blocks, one per sub-block, all computed with the same seed.
/// Blocks missing from `read` count as unread.
///
/// # Panics
/// If a block does not have one fingerprint per sub-block.
pub fn stripe_parity(code: &dyn Code, read: &BTreeMap<BlockIndex, Vec<Fingerprint>>) -> StripeParity {
    let all = (0..code.blocks() as u16).map(BlockIndex);
    let (known, absent): (Vec<BlockIndex>, Vec<BlockIndex>) = all.partition(|block| read.contains_key(block));
    let equations = Equations::new(code, syndromes(code, read));
    let left = equations.without(&absent);
    match (left.equations, left.hold) {
        (0, _) => StripeParity::Unknown,
        (_, true) => StripeParity::Holds { unproven: equations.unproven(&known, &absent) },
        (_, false) => equations.blame(read, &absent),
    }
}

/// Computes the syndrome of every equation; unread blocks count as zeros.
fn syndromes(code: &dyn Code, read: &BTreeMap<BlockIndex, Vec<Fingerprint>>) -> Matrix {
    let encoding = code.encoding();
    let mut syndromes = Matrix::zero(encoding.outputs().len(), FINGERPRINT_BYTES);
    for (row, parity) in encoding.outputs().iter().enumerate() {
        let sources = encoding.row(row).iter().map(|&(at, c)| (encoding.sources()[at as usize], c));
        for (sub_block, coefficient) in sources.chain([(*parity, 1)]) {
            let Some(fingerprints) = read.get(&sub_block.block) else { continue };
            assert_eq!(fingerprints.len(), code.sub_blocks(), "there is one for each sub-block");
            let fingerprint = &fingerprints[usize::from(sub_block.sub)];
            Kernel::best().mul_add(coefficient, &fingerprint.0, syndromes.row_mut(row));
        }
    }
    syndromes
}

/// All equations of a stripe, with their syndromes.
struct Equations<'code> {
    code: &'code dyn Code,
    syndromes: Matrix,
    /// For each block, the terms of the equations in which it occurs: equation, sub-block and coefficient.
    terms: BTreeMap<BlockIndex, Vec<(usize, usize, u8)>>,
}

/// The equations that remain after some blocks are eliminated.
struct Left {
    equations: usize,
    hold: bool,
}

impl<'code> Equations<'code> {
    fn new(code: &'code dyn Code, syndromes: Matrix) -> Self {
        let encoding = code.encoding();
        let mut terms: BTreeMap<BlockIndex, Vec<(usize, usize, u8)>> = BTreeMap::new();
        for (row, parity) in encoding.outputs().iter().enumerate() {
            let sources = encoding.row(row).iter().map(|&(at, c)| (encoding.sources()[at as usize], c));
            for (sub_block, coefficient) in sources.chain([(*parity, 1)]) {
                let term = (row, usize::from(sub_block.sub), coefficient);
                terms.entry(sub_block.block).or_default().push(term);
            }
        }
        Self { code, syndromes, terms }
    }

    /// The matrix of these blocks' coefficients, with the syndromes appended as further columns.
    fn beside_syndromes(&self, blocks: &[BlockIndex]) -> Matrix {
        let (sub_blocks, columns) = (self.code.sub_blocks(), self.columns(blocks));
        let mut matrix = Matrix::zero(self.syndromes.rows(), columns + FINGERPRINT_BYTES);
        for row in 0..self.syndromes.rows() {
            matrix.row_mut(row)[columns..].copy_from_slice(self.syndromes.row(row));
        }
        for (position, block) in blocks.iter().enumerate() {
            for &(row, sub, coefficient) in self.terms.get(block).into_iter().flatten() {
                matrix[(row, position * sub_blocks + sub)] = coefficient;
            }
        }
        matrix
    }

    fn columns(&self, blocks: &[BlockIndex]) -> usize {
        blocks.len() * self.code.sub_blocks()
    }

    /// The equations that remain after these blocks are eliminated.
    fn without(&self, blocks: &[BlockIndex]) -> Left {
        let mut matrix = self.beside_syndromes(blocks);
        let columns = self.columns(blocks);
        let used = matrix.reduce(columns).len();
        let hold = (used..matrix.rows()).all(|row| matrix.row(row)[columns..].iter().all(|&byte| byte == 0));
        Left { equations: matrix.rows() - used, hold }
    }

    /// The known blocks in which an error could go unnoticed, because it satisfies all equations that remain
    /// after the absent blocks are eliminated.
    fn unproven(&self, known: &[BlockIndex], absent: &[BlockIndex]) -> BTreeSet<BlockIndex> {
        if self.code.spec().is_mds() {
            return BTreeSet::new(); // In an MDS code, one equation detects any error in one block.
        }
        let rank = |blocks: &[BlockIndex]| self.beside_syndromes(blocks).reduce(self.columns(blocks)).len();
        let rank_absent = rank(absent);
        let shows =
            |block: BlockIndex| rank(&[absent, &[block]].concat()) == rank_absent + self.code.sub_blocks();
        known.iter().copied().filter(|&block| !shows(block)).collect()
    }

    /// If the syndromes can be explained by a swap of two blocks, names all such blocks as contradictory.
    /// Otherwise, looks for the smallest set of blocks that explains the syndromes.
    fn blame(&self, read: &BTreeMap<BlockIndex, Vec<Fingerprint>>, absent: &[BlockIndex]) -> StripeParity {
        let known: Vec<BlockIndex> = read.keys().copied().collect();
        let pairs = Subsets::new(known.len(), 2).map(|pair| [known[pair[0]], known[pair[1]]]);
        let exchanged = pairs.filter(|&pair| self.are_exchanged(pair, read, absent));
        let exchanged: BTreeSet<BlockIndex> = exchanged.flatten().collect();
        match exchanged.is_empty() {
            true => self.fewest(&known, absent),
            false => StripeParity::Contradictory(exchanged),
        }
    }

    /// Whether all remaining equations hold if these two blocks are swapped back.
    fn are_exchanged(
        &self,
        pair: [BlockIndex; 2],
        read: &BTreeMap<BlockIndex, Vec<Fingerprint>>,
        absent: &[BlockIndex],
    ) -> bool {
        let [one, other] = pair.map(|block| &read[&block]);
        let mut syndromes = self.syndromes.clone();
        for &(row, sub, coefficient) in pair.iter().flat_map(|block| self.terms.get(block)).flatten() {
            for change in [&one[sub], &other[sub]] {
                Kernel::best().mul_add(coefficient, &change.0, syndromes.row_mut(row));
            }
        }
        if absent.is_empty() {
            return (0..syndromes.rows()).all(|row| syndromes.row(row).iter().all(|&byte| byte == 0));
        }
        let changed = Self { code: self.code, syndromes, terms: self.terms.clone() };
        changed.without(absent).hold
    }

    fn fewest(&self, known: &[BlockIndex], absent: &[BlockIndex]) -> StripeParity {
        let all = || StripeParity::Contradictory(known.iter().copied().collect());
        let mut work = 0;
        for size in 1..known.len() {
            let (mut found, mut is_proven) = (Vec::new(), false);
            for wrong in Subsets::new(known.len(), size) {
                let wrong: Vec<BlockIndex> = wrong.iter().map(|&at| known[at]).collect();
                let eliminated = [absent, &wrong].concat();
                work += self.work(&eliminated);
                if work > SEARCH_WORK {
                    return all();
                }
                let left = self.without(&eliminated);
                if left.equations == 0 || left.hold {
                    is_proven = left.equations > 0;
                    found.push(wrong);
                }
            }
            match &found[..] {
                [] => {}
                [wrong] if is_proven => return StripeParity::Wrong(wrong.iter().copied().collect()),
                several => return StripeParity::Contradictory(several.iter().flatten().copied().collect()),
            }
        }
        all()
    }

    /// The cost of eliminating these blocks, in byte operations.
    fn work(&self, blocks: &[BlockIndex]) -> u64 {
        let columns = self.columns(blocks) as u64;
        self.syndromes.rows() as u64 * columns * (columns + FINGERPRINT_BYTES as u64)
    }
}

/// Enumerates all subsets of `size` elements of `0..all`, in lexicographic order.
struct Subsets {
    all: usize,
    next: Option<Vec<usize>>,
}

impl Subsets {
    fn new(all: usize, size: usize) -> Self {
        Self { all, next: (size <= all).then(|| (0..size).collect()) }
    }
}

impl Iterator for Subsets {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let chosen = self.next.take()?;
        let size = chosen.len();
        let movable = (0..size).rev().find(|&at| chosen[at] < self.all - size + at);
        self.next = movable.map(|at| {
            let first = chosen[at] + 1;
            chosen[..at].iter().copied().chain(first..first + size - at).collect()
        });
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use codes::CodeSpec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::Fingerprinter;

    const CODES: [&str; 12] = [
        "rs-5-3",
        "rs-14-10",
        "rs-9-6-jerasure",
        "hitchhiker-xor-9-6",
        "hitchhiker-xorplus-9-6",
        "rotated-8-6-2",
        "clay-6-4-5",
        "less-7-4-2",
        "lrc-6-2-2",
        "lrc1-4-2-2",
        "ceph-shec-4-3-2",
        "ceph-lrc-4-2-3",
    ];
    const SUB_BLOCK_BYTES: usize = 24;

    type Contents = BTreeMap<BlockIndex, Vec<Vec<u8>>>;

    /// Encodes a stripe of random data.
    fn encoded(code: &dyn Code, seed: u64) -> Contents {
        use rand_chacha::rand_core::{Rng, SeedableRng};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut sub_block = || (0..SUB_BLOCK_BYTES).map(|_| random.next_u32() as u8).collect::<Vec<u8>>();
        let data = (0..code.data_blocks() as u16).map(BlockIndex);
        let mut contents: Contents =
            data.map(|block| (block, (0..code.sub_blocks()).map(|_| sub_block()).collect())).collect();
        let sources = code.encoding().sources().iter();
        let sources: Vec<&[u8]> =
            sources.map(|source| &contents[&source.block][usize::from(source.sub)][..]).collect();
        let parity = code.encoding().apply(&sources);
        for (index, sub_blocks) in (code.data_blocks() as u16..).zip(parity.chunks(code.sub_blocks())) {
            contents.insert(BlockIndex(index), sub_blocks.to_vec());
        }
        contents
    }

    fn judge(code: &dyn Code, contents: &Contents) -> StripeParity {
        let fingerprint = |bytes: &Vec<u8>| {
            let mut fingerprinter = Fingerprinter::new(11);
            fingerprinter.update(bytes);
            fingerprinter.finish()
        };
        let read = contents.iter().map(|(&block, subs)| (block, subs.iter().map(fingerprint).collect()));
        stripe_parity(code, &read.collect())
    }

    fn code(spec: &str) -> std::sync::Arc<dyn Code> {
        spec.parse::<CodeSpec>().unwrap().build().unwrap()
    }

    /// Replaces a block's contents by other data.
    fn forge(contents: &mut Contents, block: BlockIndex) {
        let other = encoded(&*code("rs-3-2"), u64::from(block.0)).remove(&BlockIndex(0)).unwrap();
        for sub_block in contents.get_mut(&block).unwrap() {
            sub_block.iter_mut().zip(&other[0]).for_each(|(byte, other)| *byte ^= other);
        }
    }

    fn set(blocks: &[u16]) -> BTreeSet<BlockIndex> {
        blocks.iter().copied().map(BlockIndex).collect()
    }

    proptest! {
        /// A correct stripe is never accused. A single wrong block is always detected if a remaining equation
        /// involves it, and no other block is named in its place.
        #[test]
        fn one_wrong_block_is_found_and_no_other_is_named(
            spec in select(&CODES[..]),
            absent in prop::collection::vec(any::<Index>(), 0..4),
            liar in any::<Index>(),
            seed in any::<u64>(),
        ) {
            let code = code(spec);
            let mut contents = encoded(&*code, seed);
            for index in absent {
                contents.remove(&BlockIndex(index.index(code.blocks()) as u16));
            }
            let unproven = match judge(&*code, &contents) {
                StripeParity::Holds { unproven } => unproven,
                StripeParity::Unknown => return Ok(()),
                accused => return Err(TestCaseError::fail(format!("{accused:?} of a good stripe"))),
            };
            let known: Vec<BlockIndex> = contents.keys().copied().collect();
            let liar = *liar.get(&known);
            forge(&mut contents, liar);
            match judge(&*code, &contents) {
                StripeParity::Wrong(named) => prop_assert_eq!(named, BTreeSet::from([liar])),
                StripeParity::Contradictory(blocks) => prop_assert!(blocks.contains(&liar), "{:?}", blocks),
                StripeParity::Holds { .. } => prop_assert!(unproven.contains(&liar), "{:?} of {}", liar, spec),
                StripeParity::Unknown => prop_assert!(false, "equations do not vanish"),
            }
        }
    }

    #[test]
    fn naming_a_wrong_block_takes_two_spare_equations() {
        for spec in ["rs-6-4", "clay-6-4-5", "hitchhiker-xor-9-6"] {
            let code = code(spec);
            let mut contents = encoded(&*code, 3);
            forge(&mut contents, BlockIndex(1));
            let spare = code.blocks() - code.data_blocks();
            assert_eq!(judge(&*code, &contents), StripeParity::Wrong(set(&[1])), "{spec}");
            for lost in 0..spare - 1 {
                contents.remove(&BlockIndex(3 + lost as u16));
            }
            let all: BTreeSet<BlockIndex> = contents.keys().copied().collect();
            assert_eq!(judge(&*code, &contents), StripeParity::Contradictory(all), "{spec}");
            contents.remove(&BlockIndex(0));
            assert_eq!(judge(&*code, &contents), StripeParity::Unknown, "{spec}");
        }
    }

    #[test]
    fn several_wrong_blocks_are_named_while_an_equation_is_spare() {
        let code = code("rs-14-10");
        let mut contents = encoded(&*code, 5);
        let mut wrong = BTreeSet::new();
        for (block, is_named) in [(2, true), (7, true), (12, true), (13, false)] {
            forge(&mut contents, BlockIndex(block));
            wrong.insert(BlockIndex(block));
            match judge(&*code, &contents) {
                StripeParity::Wrong(named) => assert!(is_named && named == wrong, "{named:?} of {wrong:?}"),
                StripeParity::Contradictory(blocks) => assert!(!is_named && blocks.is_superset(&wrong)),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Identical changes in several blocks leave less evidence to tell the blocks apart, so no block is
    /// named.
    #[test]
    fn dependent_changes_never_name_an_innocent_block() {
        let code = code("rs-14-10");
        let mut contents = encoded(&*code, 5);
        for block in [2, 7, 12] {
            contents.get_mut(&BlockIndex(block)).unwrap()[0][5] ^= 1;
        }
        let found = judge(&*code, &contents);
        let StripeParity::Contradictory(blocks) = found else { panic!("{found:?}") };
        assert!(blocks.is_superset(&set(&[2, 7, 12])), "{blocks:?}");
    }

    /// After a swap all blocks of the stripe still exist, only in the wrong order. A third block must not be
    /// named as wrong, because it would then be rebuilt for nothing.
    #[test]
    fn a_swap_of_two_blocks_names_no_third_block() {
        for spec in CODES {
            let code = code(spec);
            let contents = encoded(&*code, 13);
            for pair in Subsets::new(code.blocks(), 2) {
                let pair = [pair[0] as u16, pair[1] as u16].map(BlockIndex);
                let mut exchanged = contents.clone();
                exchanged.insert(pair[0], contents[&pair[1]].clone());
                exchanged.insert(pair[1], contents[&pair[0]].clone());
                match judge(&*code, &exchanged) {
                    StripeParity::Contradictory(blocks) => {
                        assert!(
                            pair.iter().all(|block| blocks.contains(block)),
                            "{spec}: {blocks:?}, {pair:?}"
                        );
                    }
                    StripeParity::Holds { .. } => {
                        assert_eq!(contents[&pair[0]], contents[&pair[1]], "{spec}")
                    }
                    other => panic!("{spec}: {other:?} of {pair:?}"),
                }
            }
        }
    }

    #[test]
    fn an_equation_of_a_local_group_accuses_the_group() {
        let code = code("lrc-6-2-2");
        let mut contents = encoded(&*code, 9);
        forge(&mut contents, BlockIndex(4));
        assert_eq!(judge(&*code, &contents), StripeParity::Wrong(set(&[4])));
        // Without the global parities only the group's own equation involves the block.
        contents.remove(&BlockIndex(8));
        contents.remove(&BlockIndex(9));
        let StripeParity::Contradictory(accused) = judge(&*code, &contents) else {
            panic!("it is one of a group")
        };
        assert!(accused.contains(&BlockIndex(4)) && accused.len() == 4, "{accused:?}");
    }

    #[test]
    fn all_subsets_come_once() {
        let all: Vec<Vec<usize>> = Subsets::new(4, 2).collect();
        assert_eq!(all, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(Subsets::new(3, 3).count(), 1);
        assert_eq!(Subsets::new(2, 3).count(), 0);
    }
}
