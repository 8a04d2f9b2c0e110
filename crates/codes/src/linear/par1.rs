//! The matrix of PAR1 files: parity block i over data block j is (j + 1)^i.
//!
//! The matrix is MDS only for up to three parity blocks. It is supported for existing stripes (klauspost's
//! `WithPAR1Matrix`).

use gf::pow;

use crate::Matrix;

pub(super) fn parity_rows(n: usize, k: usize) -> Matrix {
    Matrix::from_fn(n - k, k, |i, j| pow((j + 1) as u8, i as u32))
}
