//! Azure's shape of code with global rows that others have published: kept for stripes that were written with
//! them.
//!
//! Order of blocks, as in `lrc`: data, the XOR of each group, global parity. Neither set of rows repairs all
//! that the shape could; the powers repeat in every group, and so do not even repair all losses of g + 1
//! blocks. New stripes are better off with `lrc`.

use gf::{inv, pow};

use crate::{Matrix, lrc};

/// The coefficients of the global parity blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LrcGlobals {
    /// Row i over the data block at place p of its group: (i + 2)^p, as OpenEC's WASLRC has it.
    Powers,
    /// The block of index i over data block j: 1 / (i xor j), as the AzureLRC of OpenEC's successors has it.
    Cauchy,
}

impl LrcGlobals {
    /// The suffix after the numbers of the code's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Powers => "powers",
            Self::Cauchy => "cauchy",
        }
    }

    /// Parses a suffix of the code's name.
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
