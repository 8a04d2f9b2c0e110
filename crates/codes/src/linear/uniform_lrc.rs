//! Uniform Cauchy LRC: a wide code whose groups also contain the global parity blocks.
//!
//! The first g rows of a Cauchy matrix of g + 1 rows form the global parity blocks. The k + g blocks are
//! divided into l groups, as evenly as possible. A group's local parity block is the sum of the group's data
//! blocks, each multiplied by its coefficient in the last row, and of the group's global parity blocks. So
//! the sum of all local and global parity blocks equals the block that the last row defines.
//!
//! Order of blocks: data, global parity, local parity. Source: Kadekodi, Silas, Clausen and Merchant,
//! "Practical Design Considerations for Wide Locally Recoverable Codes (LRCs)" (USENIX FAST 2023).

use std::ops::Range;

use crate::{Matrix, RsFamily, SpecError};

pub(super) fn check(k: usize, l: usize, g: usize) -> Result<(), SpecError> {
    if l == 0 || l > k {
        return Err(SpecError::LrcGroups { k, l });
    }
    if g == 0 {
        return Err(SpecError::LrcGlobals { k, l });
    }
    Ok(())
}

pub(super) fn parity_rows(k: usize, l: usize, g: usize) -> Result<Matrix, SpecError> {
    let cauchy = RsFamily::Cauchy.parity_rows(k + g + 1, k)?;
    let globals = cauchy.select_rows(&(0..g).collect::<Vec<_>>());
    let all = Matrix::identity(k).stacked_on(&globals);
    let sums = Matrix::from_fn(l, k + g, |group, block| match members(k, l, g, group).contains(&block) {
        true if block < k => cauchy[(g, block)],
        true => 1,
        false => 0,
    });
    Ok(globals.stacked_on(&sums.product(&all)))
}

/// Returns the data and global parity blocks of a group.
fn members(k: usize, l: usize, g: usize, group: usize) -> Range<usize> {
    group * (k + g) / l..(group + 1) * (k + g) / l
}

pub(super) fn groups(k: usize, l: usize, g: usize) -> Vec<Vec<usize>> {
    (0..l).map(|group| members(k, l, g, group).chain([k + g + group]).collect()).collect()
}
