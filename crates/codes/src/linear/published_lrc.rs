//! LRCs with the block layout of Azure's, whose global parity blocks have coefficients that other authors
//! published. They are supported for existing stripes; new stripes should use `lrc`.
//!
//! The order of blocks is that of `lrc`: data, the XOR of each group, global parity. Neither set of
//! coefficients repairs every loss that a better choice for the same layout could repair. `Powers` uses the
//! same coefficients in every group, and therefore does not even repair all losses of g + 1 blocks.

use gf::{inv, pow};

use crate::{Matrix, lrc};

/// The coefficients of the global parity blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LrcGlobals {
    /// (i + 2)^p in global parity block i (from 0) for the data block at position p of its group, as in
    /// OpenEC's WASLRC.
    Powers,
    /// 1 / (i xor j) for data block j in the global parity block with index i in the stripe, as in AzureLRC
    /// of OpenEC's successors.
    Cauchy,
}

impl LrcGlobals {
    /// Returns the suffix that follows the numbers in the code's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Powers => "powers",
            Self::Cauchy => "cauchy",
        }
    }

    /// Parses the suffix of a code's name.
    pub(crate) fn of(suffix: &str) -> Option<Self> {
        [Self::Powers, Self::Cauchy].into_iter().find(|globals| globals.suffix() == suffix)
    }
}

pub(super) fn parity_rows(globals: LrcGlobals, k: usize, l: usize, g: usize) -> Matrix {
    let size = k / l;
    let rows = Matrix::from_fn(g, k, |row, data| match globals {
        LrcGlobals::Powers => pow((row + 2) as u8, (data % size) as u32),
        LrcGlobals::Cauchy => inv(((k + l + row) ^ data) as u8).expect("parity has no index of data"),
    });
    lrc::local_rows(k, l).stacked_on(&rows)
}
