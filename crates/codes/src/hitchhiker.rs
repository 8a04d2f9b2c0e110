//! Hitchhiker: two Reed-Solomon stripes a and b that share blocks. The parity of b also contains sums of a,
//! so the repair of a data block reads only half of most other blocks.
//!
//! A block consists of two halves, a and b. Each half is contiguous ("hop-and-couple" with a hop of half a
//! block), so that reading one half is one disk read. Let f_j be the rows of a Reed-Solomon code and g_j a
//! sum over the j-th group of data blocks:
//!
//! ```text
//! data i        a_i                        b_i
//! parity 0      f_0(a)                     f_0(b)
//! parity 1      f_1(a)                     f_1(b) + g_1(a)      XOR
//! parity 1      f_1(a) + f_1(b) + g_1(a)   f_1(b) + g_1(a)      XOR+ and nonXOR
//! parity j ≥ 2  f_j(a)                     f_j(b) + g_j(a)
//! ```
//!
//! Hadoop's own coder is the variant XOR with other groups: all have the same size, except the last, which
//! also takes the remainder.
//!
//! XOR+ and nonXOR leave the last data block out of the groups. Its a half is rebuilt from parity 1's a half
//! and all g_j together, because with these codes the sum of all g_j equals f_1 except for the last block.

use std::fmt;

use crate::erasure::Erasure;
use crate::systematic::Systematic;
use crate::{BlockIndex, Code, CodeSpec, DecodeError, Matrix, Recipe, RsFamily, SpecError};

pub(crate) const HALVES: usize = 2;
const A: usize = 0;
const B: usize = 1;
/// The parity block with coupled halves in XOR+ and nonXOR.
const COUPLED: usize = 1;

/// The variant of a Hitchhiker code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HitchhikerVariant {
    /// Works over any Reed-Solomon code; every data block is in a group.
    Xor,
    /// Like XOR, but with the groups of Hadoop's `HHXORErasureEncoder`.
    Hadoop,
    /// Works over a Reed-Solomon code whose parity row 1 is all ones; sums of a are XORs.
    XorPlus,
    /// Like XOR+ but over any Reed-Solomon code; the sums use the coefficients of that code's parity row 1.
    NonXor,
}

impl HitchhikerVariant {
    /// Every variant.
    pub const ALL: [Self; 4] = [Self::Xor, Self::Hadoop, Self::XorPlus, Self::NonXor];

    fn is_coupled(self) -> bool {
        matches!(self, Self::XorPlus | Self::NonXor)
    }

    /// Returns the rows f of the underlying Reed-Solomon code.
    fn plain_rows(self, n: usize, k: usize) -> Result<Matrix, SpecError> {
        match self {
            Self::Xor | Self::Hadoop | Self::NonXor => RsFamily::Cauchy.parity_rows(n, k),
            Self::XorPlus => {
                // In jerasure's matrix the all-ones row is the first one; here it must belong to the coupled
                // parity block.
                let rows = RsFamily::Jerasure.parity_rows(n, k)?;
                let swapped: Vec<usize> = [1, 0].into_iter().chain(2..n - k).collect();
                Ok(rows.select_rows(&swapped))
            }
        }
    }

    /// Returns the groups of data blocks. Parity block 1 carries the sum of the a halves of the first group,
    /// parity block 2 the sum of the second group, and so on. In the variant Hadoop all groups have the same
    /// size, except the last, which also takes the remainder. In the other variants, the sizes of the groups
    /// differ by at most one, and larger groups come last.
    fn groups(self, n: usize, k: usize) -> Vec<std::ops::Range<usize>> {
        let grouped = if self.is_coupled() { k - 1 } else { k };
        let groups = n - k - 1;
        let (size, left) = (grouped / groups, grouped % groups);
        if self == Self::Hadoop {
            let end = |group: usize| if group + 1 == groups { k } else { (group + 1) * size };
            return (0..groups).map(|group| group * size..end(group)).collect();
        }
        let mut start = 0;
        (0..groups)
            .map(|group| {
                let size = size + usize::from(group >= groups - left);
                start += size;
                start - size..start
            })
            .collect()
    }
}

impl fmt::Display for HitchhikerVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xor => "xor",
            Self::Hadoop => "hadoop",
            Self::XorPlus => "xorplus",
            Self::NonXor => "nonxor",
        })
    }
}

/// A Hitchhiker code; any k of its n blocks rebuild the others.
#[derive(Debug)]
pub struct Hitchhiker {
    spec: CodeSpec,
    groups: Vec<std::ops::Range<usize>>,
    code: Systematic,
    encoding: Recipe,
}

impl Hitchhiker {
    /// Creates the `(n, k)` code.
    ///
    /// # Errors
    /// If the parameters are outside the code's limits.
    pub fn new(variant: HitchhikerVariant, n: usize, k: usize) -> Result<Self, SpecError> {
        let spec = CodeSpec::Hitchhiker { variant, n, k };
        spec.check()?;
        let plain = variant.plain_rows(n, k)?;
        let groups = variant.groups(n, k);
        let code = Systematic::new(HALVES, parity_rows(variant, &plain, &groups));
        Ok(Self { spec, groups, encoding: code.encoding(), code })
    }

    /// Returns the (block, half) reads that rebuild data block `lost` if all other blocks are available;
    /// `None` if plain decoding reads as little.
    fn saving_reads(&self, lost: usize) -> Option<Vec<(usize, usize)>> {
        let k = self.data_blocks();
        // The b halves of the other data blocks and of parity block 0 yield the lost b half.
        let mut reads: Vec<(usize, usize)> =
            (0..=k).filter(|&block| block != lost).map(|block| (block, B)).collect();
        // Once all b halves of data blocks are known, a parity block's b half yields its sum of a halves.
        match self.groups.iter().position(|group| group.contains(&lost)) {
            Some(group) => {
                let members = self.groups[group].clone().filter(|&member| member != lost);
                reads.extend(members.map(|member| (member, A)));
                reads.push((k + 1 + group, B));
            }
            None => {
                reads.push((k + COUPLED, A));
                let others = (k + 1..self.blocks()).filter(|&parity| parity != k + COUPLED);
                reads.extend(others.map(|parity| (parity, B)));
            }
        }
        (reads.len() < HALVES * k).then_some(reads)
    }
}

/// Checks the limits beyond those on n and k: at least two parity blocks, to carry sums, and the limits of
/// Hadoop's coder.
pub(crate) fn check(variant: HitchhikerVariant, n: usize, k: usize) -> Result<(), SpecError> {
    let m = n - k;
    if m < 2 {
        return Err(SpecError::HitchhikerParities { n, k });
    }
    // Hadoop's coder fails in two cases: if each data block is a group of its own, and if more blocks remain
    // than one group holds. It assigns the remaining blocks to further groups of the same size, but its table
    // has room for only one more group.
    let (size, left) = (k / (m - 1), k % (m - 1));
    if variant == HitchhikerVariant::Hadoop && (k < m || left > size) {
        return Err(SpecError::HitchhikerHadoop { k, m, size, left });
    }
    Ok(())
}

/// Returns the rows of the parity halves over the data halves.
fn parity_rows(variant: HitchhikerVariant, plain: &Matrix, groups: &[std::ops::Range<usize>]) -> Matrix {
    let (parities, k) = (plain.rows(), plain.columns());
    let mut rows = Matrix::zero(parities * HALVES, k * HALVES);
    for j in 0..parities {
        for i in 0..k {
            rows[(j * HALVES + A, i * HALVES + A)] = plain[(j, i)];
            rows[(j * HALVES + B, i * HALVES + B)] = plain[(j, i)];
        }
    }
    for (group, members) in groups.iter().enumerate() {
        for i in members.clone() {
            let coefficient = if variant == HitchhikerVariant::NonXor { plain[(COUPLED, i)] } else { 1 };
            rows[((group + 1) * HALVES + B, i * HALVES + A)] = coefficient;
        }
    }
    if variant.is_coupled() {
        for column in 0..k * HALVES {
            let b = rows[(COUPLED * HALVES + B, column)];
            rows[(COUPLED * HALVES + A, column)] ^= b;
        }
    }
    rows
}

impl Code for Hitchhiker {
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
        HALVES
    }

    fn encoding(&self) -> &Recipe {
        &self.encoding
    }

    fn repair(&self, wanted: &[BlockIndex], available: &[BlockIndex]) -> Result<Recipe, DecodeError> {
        let erasure = Erasure::new(self.blocks(), wanted, available)?;
        if let [lost] = erasure.lost[..]
            && lost < self.data_blocks()
            && let Some(reads) = self.saving_reads(lost)
            && reads.iter().all(|&(block, _)| erasure.is_present(block))
        {
            return self.code.solve_reading(&erasure, |block, half| reads.contains(&(block, half)));
        }
        self.code.solve_from(&erasure, erasure.any(self.data_blocks())?)
    }
}
