//! Codes without sub-blocks, defined by their parity rows.
//!
//! Local groups are detected in the rows, so that a single loss reads as few blocks as the rows allow. A loss
//! that local groups cannot rebuild is solved with as many independent blocks as necessary.

mod ceph_lrc;
mod ceph_shec;
mod explicit;
mod groups;
mod par1;
mod published_lrc;
mod uniform_lrc;

use std::fmt;
use std::sync::Arc;

pub use self::explicit::{Generator, GeneratorError};
pub(crate) use self::groups::{every_set, sets};
pub use self::published_lrc::LrcGlobals;

use self::groups::find_groups;
use crate::erasure::Erasure;
use crate::systematic::Systematic;
use crate::{BlockIndex, Code, CodeSpec, DecodeError, Matrix, Recipe, SpecError, lrc};

/// A code that is defined by its parity rows. A file in this folder constructs the rows of each variant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LinearCode {
    /// Any generator matrix, `explicit-N-K-T-xHEX`.
    Explicit(Arc<Generator>),
    /// Ceph's plug-in lrc, `ceph-lrc-K-M-L`.
    CephLrc {
        /// Data blocks.
        k: usize,
        /// Global parity blocks.
        m: usize,
        /// The number of blocks in a local group, without its parity block.
        l: usize,
    },
    /// Ceph's plug-in shec, `ceph-shec-K-M-C`.
    CephShec {
        /// Data blocks.
        k: usize,
        /// Parity blocks.
        m: usize,
        /// The number of losses that are always repairable.
        c: usize,
    },
    /// PAR1's matrix, as in klauspost/reedsolomon, `par1-N-K`.
    Par1 {
        /// Blocks in a stripe.
        n: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// An LRC with the block layout of Azure's, whose global parity blocks have coefficients that other
    /// authors published: `lrc-K-L-G-powers` or `lrc-K-L-G-cauchy`.
    PublishedLrc {
        /// The coefficients of the global parity blocks.
        globals: LrcGlobals,
        /// Data blocks.
        k: usize,
        /// Local groups, and local parity blocks.
        l: usize,
        /// Global parity blocks.
        g: usize,
    },
    /// Google's uniform Cauchy LRC, `uniform-lrc-K-L-G`.
    UniformLrc {
        /// Data blocks.
        k: usize,
        /// Local groups, and local parity blocks.
        l: usize,
        /// Global parity blocks.
        g: usize,
    },
}

impl LinearCode {
    /// Returns n, the number of blocks in a stripe.
    pub(crate) fn blocks(&self) -> usize {
        match *self {
            Self::Explicit(ref generator) => generator.blocks(),
            Self::CephLrc { k, m, l } => {
                let parts = k.saturating_add(m);
                parts.saturating_add(parts / l.max(1))
            }
            Self::CephShec { k, m, .. } => k.saturating_add(m),
            Self::Par1 { n, .. } => n,
            Self::PublishedLrc { k, l, g, .. } | Self::UniformLrc { k, l, g } => {
                k.saturating_add(l).saturating_add(g)
            }
        }
    }

    /// Returns k, the number of data blocks in a stripe.
    pub(crate) fn data_blocks(&self) -> usize {
        match *self {
            Self::Explicit(ref generator) => generator.data_blocks(),
            Self::CephLrc { k, .. }
            | Self::CephShec { k, .. }
            | Self::Par1 { k, .. }
            | Self::PublishedLrc { k, .. }
            | Self::UniformLrc { k, .. } => k,
        }
    }

    /// Whether any k blocks decode.
    pub(crate) fn is_mds(&self) -> bool {
        matches!(self, Self::Explicit(generator) if generator.tolerates() == self.blocks() - self.data_blocks())
    }

    /// Checks the limits on the parameters, beyond those on n and k.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        match *self {
            Self::Explicit(ref generator) => generator.check().map_err(SpecError::Generator),
            Self::CephLrc { k, m, l } => ceph_lrc::check(k, m, l),
            Self::CephShec { k, m, c } => ceph_shec::check(k, m, c),
            Self::Par1 { .. } => Ok(()),
            Self::PublishedLrc { k, l, g, .. } => lrc::check(k, l, g),
            Self::UniformLrc { k, l, g } => uniform_lrc::check(k, l, g),
        }
    }

    /// Returns the rows of the parity blocks over the data blocks.
    fn parity_rows(&self) -> Result<Matrix, SpecError> {
        match *self {
            Self::Explicit(ref generator) => Ok(generator.parity_rows().clone()),
            Self::CephLrc { k, m, l } => ceph_lrc::parity_rows(k, m, l),
            Self::CephShec { k, m, c } => ceph_shec::parity_rows(k, m, c),
            Self::Par1 { n, k } => Ok(par1::parity_rows(n, k)),
            Self::PublishedLrc { globals, k, l, g } => Ok(published_lrc::parity_rows(globals, k, l, g)),
            Self::UniformLrc { k, l, g } => uniform_lrc::parity_rows(k, l, g),
        }
    }

    /// Returns the local groups, if the construction of the code gives them.
    fn known_groups(&self) -> Option<Vec<Vec<usize>>> {
        match *self {
            Self::CephLrc { k, m, l } => Some(ceph_lrc::groups(k, m, l)),
            Self::PublishedLrc { k, l, .. } => Some(lrc::local_groups(k, l)),
            Self::UniformLrc { k, l, g } => Some(uniform_lrc::groups(k, l, g)),
            Self::Explicit(_) | Self::CephShec { .. } | Self::Par1 { .. } => None,
        }
    }
}

impl fmt::Display for LinearCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explicit(generator) => write!(f, "{generator}"),
            Self::CephLrc { k, m, l } => write!(f, "ceph-lrc-{k}-{m}-{l}"),
            Self::CephShec { k, m, c } => write!(f, "ceph-shec-{k}-{m}-{c}"),
            Self::Par1 { n, k } => write!(f, "par1-{n}-{k}"),
            Self::PublishedLrc { globals, k, l, g } => write!(f, "lrc-{k}-{l}-{g}-{}", globals.suffix()),
            Self::UniformLrc { k, l, g } => write!(f, "uniform-lrc-{k}-{l}-{g}"),
        }
    }
}

/// A code defined by its parity rows.
#[derive(Debug)]
pub struct Linear {
    spec: CodeSpec,
    code: Systematic,
    /// The local groups, smallest first. In a local group each block is a combination of the others.
    groups: Vec<Vec<usize>>,
    encoding: Recipe,
}

impl Linear {
    /// Builds the code.
    ///
    /// # Errors
    /// If the parameters are outside the code's limits.
    pub fn new(code: &LinearCode) -> Result<Self, SpecError> {
        let spec = CodeSpec::Linear(code.clone());
        spec.check()?;
        let parity = code.parity_rows()?;
        let groups = code.known_groups().unwrap_or_else(|| find_groups(&parity));
        Ok(Self::assemble(spec, parity, groups))
    }

    /// Creates the code of `spec` from its parity rows and its local groups.
    pub(crate) fn assemble(spec: CodeSpec, parity: Matrix, mut groups: Vec<Vec<usize>>) -> Self {
        groups.sort_by_key(Vec::len);
        let code = Systematic::new(1, parity);
        Self { spec, encoding: code.encoding(), code, groups }
    }

    /// Returns the rows of the parity blocks over the data blocks.
    pub fn parity_rows(&self) -> &Matrix {
        self.code.parity()
    }

    /// Returns the local groups, smallest first. In a local group each block is a combination of the others.
    pub fn groups(&self) -> &[Vec<usize>] {
        &self.groups
    }

    /// Returns which blocks to read for local repairs, and whether groups suffice for all losses. A group may
    /// need a block that another group rebuilds first.
    fn read_by_groups(&self, erasure: &Erasure) -> (Vec<bool>, bool) {
        let n = self.blocks();
        let mut group_of: Vec<Option<&Vec<usize>>> = vec![None; n];
        let mut is_known: Vec<bool> = (0..n).map(|block| erasure.is_present(block)).collect();
        // Rebuild one block at a time, from the smallest group that lacks no other block. Each rebuilt block
        // may complete other groups.
        while let Some((block, group)) = self.next_by_group(&is_known) {
            group_of[block] = Some(group);
            is_known[block] = true;
        }
        let mut is_read = vec![false; n];
        let mut needed: Vec<usize> =
            erasure.lost.iter().copied().filter(|&block| group_of[block].is_some()).collect();
        let all = needed.len() == erasure.lost.len();
        let mut is_needed = vec![false; n];
        while let Some(block) = needed.pop() {
            match group_of[block] {
                None => is_read[block] = true,
                Some(group) => {
                    for &member in group.iter().filter(|&&member| member != block) {
                        if !std::mem::replace(&mut is_needed[member], true) {
                            needed.push(member);
                        }
                    }
                }
            }
        }
        (is_read, all)
    }

    /// Returns the smallest group with exactly one unknown block, and that block.
    fn next_by_group(&self, is_known: &[bool]) -> Option<(usize, &Vec<usize>)> {
        self.groups.iter().find_map(|group| {
            let mut unknown = group.iter().copied().filter(|&block| !is_known[block]);
            match (unknown.next(), unknown.next()) {
                (Some(block), None) => Some((block, group)),
                _ => None,
            }
        })
    }

    /// Returns the blocks to read: wanted blocks that are available; blocks that local groups need to rebuild
    /// their losses; and, for losses that no group rebuilds, linearly independent blocks in order of
    /// preference.
    fn sources(&self, erasure: &Erasure) -> Vec<usize> {
        let (is_read, all) = self.read_by_groups(erasure);
        let is_first = |block: &usize| erasure.read_anyway().contains(block) || is_read[*block];
        let (first, then): (Vec<usize>, Vec<usize>) =
            erasure.present.iter().partition(|block| is_first(block));
        if all && is_read.iter().filter(|&&read| read).count() <= self.data_blocks() {
            return first;
        }
        let candidates = [first, then].concat();
        let independent = self.generator_rows(&candidates).independent_rows();
        let read_anyway = |position: usize| erasure.read_anyway().contains(&candidates[position]);
        (0..candidates.len())
            .filter(|position| read_anyway(*position) || independent.contains(position))
            .map(|position| candidates[position])
            .collect()
    }

    fn generator_rows(&self, blocks: &[usize]) -> Matrix {
        let k = self.data_blocks();
        Matrix::from_fn(blocks.len(), k, |i, j| match blocks[i].checked_sub(k) {
            Some(parity) => self.code.parity()[(parity, j)],
            None => u8::from(blocks[i] == j),
        })
    }
}

impl Code for Linear {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn blocks(&self) -> usize {
        self.code.blocks()
    }

    fn data_blocks(&self) -> usize {
        self.code.data_blocks()
    }

    fn sub_blocks(&self) -> usize {
        1
    }

    fn encoding(&self) -> &Recipe {
        &self.encoding
    }

    fn repair(&self, wanted: &[BlockIndex], available: &[BlockIndex]) -> Result<Recipe, DecodeError> {
        let erasure = Erasure::new(self.blocks(), wanted, available)?;
        let solved = self.code.solve_from(&erasure, &self.sources(&erasure));
        let (needed, available) = (self.data_blocks(), erasure.present.len());
        solved.map_err(|error| match error {
            // Only repairs within intact local groups can do with fewer than k blocks. Here the groups do not
            // suffice, and every other repair needs k blocks.
            DecodeError::Undecodable { .. } if available < needed => {
                DecodeError::NotEnoughBlocks { needed, available }
            }
            error => error,
        })
    }
}
