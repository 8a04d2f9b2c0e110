//! Azure's local reconstruction codes, and a variant with one more block ("LRC+1").
//!
//! The data blocks are divided into groups. Each group has a local parity block, the XOR of its data blocks,
//! so a single lost block is rebuilt from its group. If a group loses more than one block, the global parity
//! blocks are needed as well.

use gf::mul;

use crate::{CodeSpec, Linear, Matrix, RsFamily, SpecError};

/// The limits of `nibble_rows`. A coefficient is a byte, of which each of the two groups uses one nibble. A
/// nibble has 15 non-zero values, one for each data block of a group.
const NIBBLE_GROUPS: usize = 2;
const NIBBLE_GLOBALS: usize = 2;
const NIBBLE_MAX_GROUP: usize = 15;

/// Builds Azure's LRC(k, l, g): k data blocks, then l local parity blocks, then g global parity blocks.
///
/// # Errors
/// If the parameters are outside the code's limits.
pub(crate) fn azure(k: usize, l: usize, g: usize) -> Result<Linear, SpecError> {
    let spec = CodeSpec::Lrc { k, l, g };
    spec.check()?;
    let parity = local_rows(k, l).stacked_on(&global_rows(k, l, g)?);
    Ok(Linear::assemble(spec, parity, local_groups(k, l)))
}

/// Builds LRC(k, l, g) plus one block, the XOR of the global parity blocks. The XOR and the global parity
/// blocks form one more local group.
///
/// # Errors
/// If the parameters are outside the code's limits.
pub(crate) fn azure_plus_one(k: usize, l: usize, g: usize) -> Result<Linear, SpecError> {
    let spec = CodeSpec::LrcPlusOne { k, l, g };
    spec.check()?;
    let globals = global_rows(k, l, g)?;
    let sum = Matrix::from_fn(1, g, |_, _| 1).product(&globals);
    let parity = local_rows(k, l).stacked_on(&globals).stacked_on(&sum);
    let mut groups = local_groups(k, l);
    groups.push((k + l..=k + l + g).collect());
    Ok(Linear::assemble(spec, parity, groups))
}

/// Checks the limits on the parameters of LRC(k, l, g), beyond those on the number of blocks.
pub(crate) fn check(k: usize, l: usize, g: usize) -> Result<(), SpecError> {
    if l == 0 || !k.is_multiple_of(l) {
        return Err(SpecError::LrcGroups { k, l });
    }
    if g == 0 {
        return Err(SpecError::LrcGlobals { k, l });
    }
    Ok(())
}

pub(crate) fn local_groups(k: usize, l: usize) -> Vec<Vec<usize>> {
    let size = k / l;
    (0..l).map(|group| (group * size..(group + 1) * size).chain([k + group]).collect()).collect()
}

pub(crate) fn local_rows(k: usize, l: usize) -> Matrix {
    Matrix::from_fn(l, k, |group, data| u8::from(data / (k / l) == group))
}

fn global_rows(k: usize, l: usize, g: usize) -> Result<Matrix, SpecError> {
    if l == NIBBLE_GROUPS && g == NIBBLE_GLOBALS && k / l <= NIBBLE_MAX_GROUP {
        Ok(nibble_rows(k))
    } else {
        jerasure_rows(k, g)
    }
}

/// Returns the coefficients that Azure chose. In the first row, the coefficients of group 0 use only the low
/// nibble, and the coefficients of group 1 only the high nibble. The second row contains the squares of the
/// first row. A sum of first-row coefficients of one group stays in that group's nibble, so non-zero sums of
/// different groups are never equal. Therefore this code repairs every loss that any code of this layout can
/// repair.
fn nibble_rows(k: usize) -> Matrix {
    let size = k / NIBBLE_GROUPS;
    let coefficient = |data: usize| ((data % size + 1) << (4 * (data / size))) as u8;
    Matrix::from_fn(NIBBLE_GLOBALS, k, |row, data| match row {
        0 => coefficient(data),
        _ => mul(coefficient(data), coefficient(data)),
    })
}

/// Returns rows 1 to g of jerasure's MDS matrix. Row 0 is all ones and thus equals the sum of the local
/// parity blocks. So the local and global parity blocks together repair every loss of g + 1 blocks.
fn jerasure_rows(k: usize, g: usize) -> Result<Matrix, SpecError> {
    let rows = RsFamily::Jerasure.parity_rows(k + g + 1, k)?;
    let without_first: Vec<usize> = (1..=g).collect();
    Ok(rows.select_rows(&without_first))
}
