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

use codes::{BlockIndex, Code, Matrix, SubBlock};
use gf::Kernel;

use crate::fingerprint::{FINGERPRINT_BYTES, Fingerprint};

/// Limit on the search for exchanged and wrong blocks, in multiplications and additions of single bytes; about
/// one second of work. Within this limit a code with hundreds of sub-blocks is searched for one wrong block
/// only, other codes for several. A search that reaches the limit names no block.
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
    judge_within(code, read, &mut Budget(SEARCH_WORK))
}

/// Whether all equations that can be checked hold. Searches for no wrong block.
pub(crate) fn is_consistent(code: &dyn Code, read: &BTreeMap<BlockIndex, Vec<Fingerprint>>) -> bool {
    Equations::new(code, syndromes(code, read)).without(&unread(code, read)).hold
}

fn judge_within(
    code: &dyn Code,
    read: &BTreeMap<BlockIndex, Vec<Fingerprint>>,
    budget: &mut Budget,
) -> StripeParity {
    let (known, absent): (Vec<BlockIndex>, _) = (read.keys().copied().collect(), unread(code, read));
    let equations = Equations::new(code, syndromes(code, read));
    let left = equations.without(&absent);
    match (left.equations, left.hold) {
        (0, _) => StripeParity::Unknown,
        (_, true) => StripeParity::Holds { unproven: equations.unproven(&known, &absent) },
        (_, false) => {
            let found = equations.explanation(read, &absent, budget);
            found.unwrap_or_else(|| StripeParity::Contradictory(known.into_iter().collect()))
        }
    }
}

fn unread(code: &dyn Code, read: &BTreeMap<BlockIndex, Vec<Fingerprint>>) -> Vec<BlockIndex> {
    (0..code.blocks() as u16).map(BlockIndex).filter(|block| !read.contains_key(block)).collect()
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

/// The work that a search may still do, in multiplications and additions of single bytes.
struct Budget(u64);

impl Budget {
    /// Takes `work` from the budget; `None` if too little is left, which ends the search.
    fn spend(&mut self, work: u64) -> Option<()> {
        self.0 = self.0.checked_sub(work)?;
        Some(())
    }
}

/// Equations of a stripe, with their syndromes.
struct Equations<'code> {
    code: &'code dyn Code,
    syndromes: Matrix,
    /// For each block, its terms in the equations, in the order of the equations.
    terms: BTreeMap<BlockIndex, Vec<Term>>,
}

/// A sub-block of a block in an equation; small, because a code with hundreds of sub-blocks has millions.
struct Term {
    equation: u32,
    sub: u16,
    coefficient: u8,
}

/// The equations that remain after some blocks are eliminated.
struct Left {
    equations: usize,
    hold: bool,
}

impl<'code> Equations<'code> {
    fn new(code: &'code dyn Code, syndromes: Matrix) -> Self {
        let mut equations = Self { code, syndromes, terms: BTreeMap::new() };
        let encoding = code.encoding();
        for (row, parity) in encoding.outputs().iter().enumerate() {
            let sources = encoding.row(row).iter().map(|&(at, c)| (encoding.sources()[at as usize], c));
            for (sub_block, coefficient) in sources.chain([(*parity, 1)]) {
                equations.add_term(row, sub_block, coefficient);
            }
        }
        equations
    }

    fn add_term(&mut self, row: usize, sub_block: SubBlock, coefficient: u8) {
        let term = Term { equation: row as u32, sub: sub_block.sub, coefficient };
        self.terms.entry(sub_block.block).or_default().push(term);
    }

    /// The terms of a block in one equation.
    fn terms_in(&self, row: usize, block: BlockIndex) -> &[Term] {
        let Some(terms) = self.terms.get(&block) else { return &[] };
        let first = terms.partition_point(|term| (term.equation as usize) < row);
        let end = terms.partition_point(|term| term.equation as usize <= row);
        &terms[first..end]
    }

    /// The matrix of these blocks' coefficients, with the syndromes appended as further columns.
    fn beside_syndromes(&self, blocks: &[BlockIndex]) -> Matrix {
        let (sub_blocks, columns) = (self.code.sub_blocks(), self.columns(blocks));
        let mut matrix = Matrix::zero(self.syndromes.rows(), columns + FINGERPRINT_BYTES);
        for row in 0..self.syndromes.rows() {
            matrix.row_mut(row)[columns..].copy_from_slice(self.syndromes.row(row));
        }
        for (position, block) in blocks.iter().enumerate() {
            for term in self.terms.get(block).into_iter().flatten() {
                let column = position * sub_blocks + usize::from(term.sub);
                matrix[(term.equation as usize, column)] = term.coefficient;
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
        let hold = (used..matrix.rows()).all(|row| is_zero(&matrix.row(row)[columns..]));
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
    /// Otherwise, looks for the smallest set of blocks that explains the syndromes. Returns `None` if there is
    /// none, or if the budget does not suffice.
    fn explanation(
        self,
        read: &BTreeMap<BlockIndex, Vec<Fingerprint>>,
        absent: &[BlockIndex],
        budget: &mut Budget,
    ) -> Option<StripeParity> {
        let known: Vec<BlockIndex> = read.keys().copied().collect();
        let equations = self.remaining(absent, &known, budget)?;
        let exchanged = equations.exchanged(read, budget)?;
        match exchanged.is_empty() {
            true => equations.fewest(&known, budget),
            false => Some(StripeParity::Contradictory(exchanged)),
        }
    }

    /// The equations that remain after the absent blocks are eliminated. All their terms are of known blocks.
    fn remaining(self, absent: &[BlockIndex], known: &[BlockIndex], budget: &mut Budget) -> Option<Self> {
        if absent.is_empty() {
            return Some(self);
        }
        let all = [absent, known].concat();
        budget.spend(self.work(absent, &all))?;
        let mut matrix = self.beside_syndromes(&all);
        let (columns, sub_blocks) = (self.columns(absent), self.code.sub_blocks());
        let used = matrix.reduce(columns).len();
        let syndromes = Matrix::zero(matrix.rows() - used, FINGERPRINT_BYTES);
        let mut remaining = Self { code: self.code, syndromes, terms: BTreeMap::new() };
        for row in 0..remaining.syndromes.rows() {
            let (coefficients, syndrome) = matrix.row(used + row)[columns..].split_at(self.columns(known));
            remaining.syndromes.row_mut(row).copy_from_slice(syndrome);
            for (at, &coefficient) in coefficients.iter().enumerate().filter(|&(_, &c)| c != 0) {
                let sub_block = SubBlock { block: known[at / sub_blocks], sub: (at % sub_blocks) as u16 };
                remaining.add_term(row, sub_block, coefficient);
            }
        }
        Some(remaining)
    }

    /// The blocks of all pairs whose swap explains the syndromes.
    fn exchanged(
        &self,
        read: &BTreeMap<BlockIndex, Vec<Fingerprint>>,
        budget: &mut Budget,
    ) -> Option<BTreeSet<BlockIndex>> {
        // A swap that explains nothing usually leaves the first failing equation unsatisfied.
        let mut rows: Vec<usize> = (0..self.syndromes.rows()).collect();
        rows.sort_by_key(|&row| is_zero(self.syndromes.row(row)));
        let known: Vec<(&BlockIndex, &Vec<Fingerprint>)> = read.iter().collect();
        let mut exchanged = BTreeSet::new();
        for pair in Subsets::new(known.len(), 2) {
            let pair = [pair[0], pair[1]].map(|at| known[at]);
            if self.are_exchanged(pair, &rows, budget)? {
                exchanged.extend(pair.map(|(block, _)| *block));
            }
        }
        Some(exchanged)
    }

    /// Whether the equations of all `rows` hold if these two blocks are swapped back.
    fn are_exchanged(
        &self,
        pair: [(&BlockIndex, &Vec<Fingerprint>); 2],
        rows: &[usize],
        budget: &mut Budget,
    ) -> Option<bool> {
        for &row in rows {
            let mut syndrome = self.syndromes.row(row).to_vec();
            let terms = pair.map(|(&block, _)| self.terms_in(row, block));
            let additions = 1 + 2 * terms.iter().map(|terms| terms.len()).sum::<usize>();
            budget.spend((additions * FINGERPRINT_BYTES) as u64)?;
            for term in terms.into_iter().flatten() {
                for change in pair.map(|(_, fingerprints)| &fingerprints[usize::from(term.sub)]) {
                    Kernel::best().mul_add(term.coefficient, &change.0, &mut syndrome);
                }
            }
            if !is_zero(&syndrome) {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Looks for the smallest set of blocks that explains the syndromes.
    fn fewest(&self, known: &[BlockIndex], budget: &mut Budget) -> Option<StripeParity> {
        for size in 1..known.len() {
            let (mut found, mut is_proven) = (Vec::new(), false);
            for wrong in Subsets::new(known.len(), size) {
                let wrong: Vec<BlockIndex> = wrong.iter().map(|&at| known[at]).collect();
                budget.spend(self.work(&wrong, &wrong))?;
                let left = self.without(&wrong);
                if left.equations == 0 || left.hold {
                    is_proven = left.equations > 0;
                    found.push(wrong);
                }
            }
            let all_found = || found.iter().flatten().copied().collect();
            match found.len() {
                0 => {}
                1 if is_proven => return Some(StripeParity::Wrong(all_found())),
                _ => return Some(StripeParity::Contradictory(all_found())),
            }
        }
        None
    }

    /// The cost of eliminating some blocks from equations over `all` of these blocks, in byte operations.
    fn work(&self, eliminated: &[BlockIndex], all: &[BlockIndex]) -> u64 {
        let row_bytes = self.columns(all) + FINGERPRINT_BYTES;
        self.syndromes.rows() as u64 * self.columns(eliminated) as u64 * row_bytes as u64
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
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
mod tests;
