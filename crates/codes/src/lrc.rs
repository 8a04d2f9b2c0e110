//! Azure's local reconstruction codes, and the same with one block more ("LRC+1").
//!
//! The data are in groups that have an XOR of their own, so that a single loss is rebuilt from its group.
//! What a group cannot rebuild is solved for with the global parity blocks.

use gf::mul;

use crate::erasure::Erasure;
use crate::systematic::Systematic;
use crate::{BlockIndex, Code, CodeSpec, DecodeError, Matrix, Recipe, RsFamily, SpecError};

/// A group's coefficients fill one nibble of a byte, of which there are two, and zero is not one.
const NIBBLE_GROUPS: usize = 2;
const NIBBLE_GLOBALS: usize = 2;
const NIBBLE_MAX_GROUP: usize = 15;

/// LRC(k, l, g): data blocks, then l local parity blocks, then g global ones; LRC+1 ends with the XOR of
/// the global ones.
#[derive(Debug)]
pub struct Lrc {
    spec: CodeSpec,
    code: Systematic,
    /// Disjoint sets of blocks whose XOR is zero: each rebuilds any one of its own.
    xor_groups: Vec<Vec<usize>>,
    encoding: Recipe,
}

impl Lrc {
    /// Azure's LRC(k, l, g).
    ///
    /// # Errors
    /// If the parameters are outside the code's limits.
    pub fn azure(k: usize, l: usize, g: usize) -> Result<Self, SpecError> {
        let spec = CodeSpec::Lrc { k, l, g };
        spec.check()?;
        let parity = local_rows(k, l).stacked_on(&global_rows(k, l, g)?);
        Ok(Self::assemble(spec, parity, local_groups(k, l)))
    }

    /// LRC(k, l, g) and the XOR of its global parity blocks, which makes these a group, too.
    ///
    /// # Errors
    /// If the parameters are outside the code's limits.
    pub fn azure_plus_one(k: usize, l: usize, g: usize) -> Result<Self, SpecError> {
        let spec = CodeSpec::LrcPlusOne { k, l, g };
        spec.check()?;
        let globals = global_rows(k, l, g)?;
        let sum = Matrix::from_fn(1, g, |_, _| 1).product(&globals);
        let parity = local_rows(k, l).stacked_on(&globals).stacked_on(&sum);
        let mut xor_groups = local_groups(k, l);
        xor_groups.push((k + l..=k + l + g).collect());
        Ok(Self::assemble(spec, parity, xor_groups))
    }

    fn assemble(spec: CodeSpec, parity: Matrix, xor_groups: Vec<Vec<usize>>) -> Self {
        let code = Systematic::new(1, parity);
        Self { spec, encoding: code.encoding(), code, xor_groups }
    }

    /// The rows of the parity blocks over the data blocks.
    pub fn parity_rows(&self) -> &Matrix {
        self.code.parity()
    }

    /// The group that rebuilds `lost`, if all else of it is available.
    fn intact_group(&self, lost: usize, erasure: &Erasure) -> Option<&Vec<usize>> {
        let group = self.xor_groups.iter().find(|group| group.contains(&lost))?;
        erasure.has_all_but(lost, group.iter().copied()).then_some(group)
    }

    /// What to read: blocks that are wanted themselves, the groups of those losses that a group
    /// rebuilds, and for the others, in order of preference, blocks that are independent of these.
    fn sources(&self, erasure: &Erasure) -> Vec<usize> {
        let groups: Vec<_> = erasure.lost.iter().map(|&lost| self.intact_group(lost, erasure)).collect();
        let in_groups: Vec<&usize> = groups.iter().copied().flatten().flatten().collect();
        let is_first = |block: &usize| erasure.read_anyway().contains(block) || in_groups.contains(&block);
        let (first, then): (Vec<usize>, Vec<usize>) =
            erasure.present.iter().partition(|block| is_first(block));
        if groups.iter().all(Option::is_some) {
            return first;
        }
        let candidates = [first, then].concat();
        let independent = self.generator_rows(&candidates).independent_rows();
        let read_anyway = |place: usize| erasure.read_anyway().contains(&candidates[place]);
        (0..candidates.len())
            .filter(|place| read_anyway(*place) || independent.contains(place))
            .map(|place| candidates[place])
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

/// The limits of LRC(k, l, g), beyond those on the number of blocks.
pub(crate) fn check(k: usize, l: usize, g: usize) -> Result<(), SpecError> {
    if l == 0 || !k.is_multiple_of(l) {
        return Err(SpecError::LrcGroups { k, l });
    }
    if g == 0 {
        return Err(SpecError::LrcGlobals { k, l });
    }
    Ok(())
}

fn local_groups(k: usize, l: usize) -> Vec<Vec<usize>> {
    let size = k / l;
    (0..l).map(|group| (group * size..(group + 1) * size).chain([k + group]).collect()).collect()
}

fn local_rows(k: usize, l: usize) -> Matrix {
    Matrix::from_fn(l, k, |group, data| u8::from(data / (k / l) == group))
}

fn global_rows(k: usize, l: usize, g: usize) -> Result<Matrix, SpecError> {
    if l == NIBBLE_GROUPS && g == NIBBLE_GLOBALS && k / l <= NIBBLE_MAX_GROUP {
        Ok(nibble_rows(k))
    } else {
        jerasure_rows(k, g)
    }
}

/// Azure's choice: group 0 has its coefficients in the low nibble, group 1 in the high one, and the
/// second row squares the first. Sums within a group stay in its nibble, so no two sums of different
/// groups are equal, and every loss that any code of this shape could repair is repaired.
fn nibble_rows(k: usize) -> Matrix {
    let size = k / NIBBLE_GROUPS;
    let coefficient = |data: usize| ((data % size + 1) << (4 * (data / size))) as u8;
    Matrix::from_fn(NIBBLE_GLOBALS, k, |row, data| match row {
        0 => coefficient(data),
        _ => mul(coefficient(data), coefficient(data)),
    })
}

/// Rows 1 to g of jerasure's MDS matrix. Its row 0 is all ones, which is the sum of the local parity
/// blocks; so together they repair every loss of g + 1 blocks.
fn jerasure_rows(k: usize, g: usize) -> Result<Matrix, SpecError> {
    let rows = RsFamily::Jerasure.parity_rows(k + g + 1, k)?;
    let without_first: Vec<usize> = (1..=g).collect();
    Ok(rows.select_rows(&without_first))
}

impl Code for Lrc {
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
            // A group alone could have done with fewer; as it is broken, the global solve needs k.
            DecodeError::Undecodable { .. } if available < needed => {
                DecodeError::NotEnoughBlocks { needed, available }
            }
            error => error,
        })
    }
}
