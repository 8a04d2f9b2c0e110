//! Rotated Reed-Solomon: parity rows are shifted against each other, so that the equations of two parity
//! blocks for neighbouring rows share most of their data.
//!
//! A block has r rows (sub-blocks), numbered modulo r. Row b of parity block j is a sum of row b + 1 of the
//! first t_j = ⌊k·j/m⌋ data blocks and of row b of the other data blocks:
//!
//! ```text
//! c[j][b] = Σ_{i < t_j} e[j][i]·d[i][b+1]  +  Σ_{i ≥ t_j} e[j][i]·d[i][b]
//! ```
//!
//! A block is a polynomial modulo x^r − 1, and a shift multiplies it by a power of x. If r is a power of two,
//! then x^r − 1 = (x − 1)^r in characteristic 2. So a square minor of the rotated code is invertible exactly
//! if its value at x = 1 is not zero, and at x = 1 the shifts vanish. Hence the rotated code is MDS exactly
//! if the plain code with coefficients e is MDS, whatever the t_j are. For other values of r this does not
//! hold, so they are refused.

use crate::erasure::Erasure;
use crate::rs::powers_of_generator;
use crate::systematic::Systematic;
use crate::{BlockIndex, Code, CodeSpec, DecodeError, Matrix, Recipe, RsFamily, SpecError};

/// The maximum number of rows. With more, a read of one row would be too short to be worth its seek.
const MAX_ROWS: usize = 16;

/// A Rotated Reed-Solomon code of n blocks with r rows each.
#[derive(Debug)]
pub struct Rotated {
    spec: CodeSpec,
    rows: usize,
    code: Systematic,
    encoding: Recipe,
}

impl Rotated {
    /// Creates the `(n, k)` code with `r` rows in a block.
    ///
    /// # Errors
    /// If the parameters are outside the code's limits.
    pub fn new(n: usize, k: usize, r: usize) -> Result<Self, SpecError> {
        let spec = CodeSpec::Rotated { n, k, r };
        spec.check()?;
        let plain = plain_rows(n, k)?;
        let mut parity = Matrix::zero((n - k) * r, k * r);
        for j in 0..n - k {
            for b in 0..r {
                for i in 0..k {
                    let row = if i < shifted(n, k, j) { (b + 1) % r } else { b };
                    parity[(j * r + b, i * r + row)] = plain[(j, i)];
                }
            }
        }
        let code = Systematic::new(r, parity);
        Ok(Self { spec, rows: r, encoding: code.encoding(), code })
    }

    /// Returns the pair of available parity blocks that rebuilds data block `lost` with the fewest reads when
    /// its equations are used alternately. Returns `None` if fewer than two parity blocks are available.
    fn best_pair(&self, lost: usize, erasure: &Erasure) -> Option<(usize, usize)> {
        let k = self.data_blocks();
        let parities: Vec<usize> = erasure.present.iter().filter_map(|block| block.checked_sub(k)).collect();
        let pairs = (1..parities.len()).flat_map(|second| {
            let parities = &parities;
            (0..second).map(move |first| (parities[first], parities[second]))
        });
        pairs.min_by_key(|&(first, second)| self.half_blocks_read(lost, first, second))
    }

    /// Returns twice the number of blocks read if the rows of data block `lost` are rebuilt with parity
    /// blocks `first` and `second` alternately.
    ///
    /// The two parity blocks shift a band of |t_first − t_second| data blocks differently. Consider a data
    /// block other than `lost`. If the band contains exactly one of these two blocks, two neighbouring
    /// equations use the same row of the other data block, so only half of that block is read.
    fn half_blocks_read(&self, lost: usize, first: usize, second: usize) -> usize {
        let k = self.data_blocks();
        let (a, b) = (shifted(self.blocks(), k, first), shifted(self.blocks(), k, second));
        let band = a.min(b)..a.max(b);
        if band.contains(&lost) { k + band.len() } else { 2 * k - band.len() }
    }

    /// Returns the recipe that rebuilds data block `lost`: even rows by the equations of the pair's first
    /// parity block, odd rows by those of the second.
    fn solve_with_pair(
        &self,
        erasure: &Erasure,
        lost: usize,
        pair: (usize, usize),
    ) -> Result<Recipe, DecodeError> {
        let (n, k, r) = (self.blocks(), self.data_blocks(), self.rows);
        let mut is_read = vec![false; n * r];
        for row in 0..r {
            let j = if row % 2 == 0 { pair.0 } else { pair.1 };
            let shift = |i: usize| usize::from(i < shifted(n, k, j));
            let equation = (row + r - shift(lost)) % r;
            (0..k).for_each(|i| is_read[i * r + (equation + shift(i)) % r] = true);
            is_read[(k + j) * r + equation] = true;
        }
        self.code.solve_reading(erasure, |block, row| is_read[block * r + row])
    }
}

/// Checks the limits on r; those on n and k were checked before.
pub(crate) fn check(r: usize) -> Result<(), SpecError> {
    if !(2..=MAX_ROWS).contains(&r) || !r.is_power_of_two() {
        return Err(SpecError::RotatedRows { r, max: MAX_ROWS });
    }
    Ok(())
}

/// Returns t_j, the number of data blocks of which parity block `j` uses the next row.
fn shifted(n: usize, k: usize, j: usize) -> usize {
    k * j / (n - k)
}

/// Returns the coefficients e: the published (2^j)^i if they are MDS, otherwise those of a Cauchy matrix.
fn plain_rows(n: usize, k: usize) -> Result<Matrix, SpecError> {
    if powers_are_mds(n - k, k) {
        Ok(powers_of_generator(n - k, k))
    } else {
        RsFamily::Cauchy.parity_rows(n, k)
    }
}

/// Whether a matrix (2^j)^i of this size is known to have only invertible square minors in GF(2^8). ISA-L
/// lists the safe sizes for `gf_gen_rs_matrix`. Rows and columns are interchangeable.
fn powers_are_mds(rows: usize, columns: usize) -> bool {
    match (rows.min(columns), rows.max(columns)) {
        (..=3, _) => true,
        (4, larger) => larger <= 21,
        (5, larger) => larger <= 5,
        _ => false,
    }
}

impl Code for Rotated {
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
        self.rows
    }

    fn encoding(&self) -> &Recipe {
        &self.encoding
    }

    fn repair(&self, wanted: &[BlockIndex], available: &[BlockIndex]) -> Result<Recipe, DecodeError> {
        let erasure = Erasure::new(self.blocks(), wanted, available)?;
        if let [lost] = erasure.lost[..]
            && lost < self.data_blocks()
            && erasure.has_all_but(lost, 0..self.data_blocks())
            && let Some(pair) = self.best_pair(lost, &erasure)
        {
            return self.solve_with_pair(&erasure, lost, pair);
        }
        self.code.solve_from(&erasure, erasure.any(self.data_blocks())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether every square minor of `matrix`, up to its smaller side, is invertible.
    fn is_mds(matrix: &Matrix) -> bool {
        let sizes = 1..=matrix.rows().min(matrix.columns());
        sizes.into_iter().all(|size| {
            subsets(matrix.rows(), size).iter().all(|rows| {
                subsets(matrix.columns(), size)
                    .iter()
                    .all(|columns| matrix.select(rows, columns).rank() == size)
            })
        })
    }

    fn subsets(n: usize, size: usize) -> Vec<Vec<usize>> {
        if size == 0 {
            return vec![vec![]];
        }
        let extend = |last: usize| {
            subsets(last, size - 1).into_iter().map(move |mut subset| {
                subset.push(last);
                subset
            })
        };
        (0..n).flat_map(extend).collect()
    }

    #[test]
    fn powers_are_used_only_where_they_are_mds() {
        for (rows, columns) in [(3, 60), (4, 21), (5, 5)] {
            assert!(powers_are_mds(rows, columns) && powers_are_mds(columns, rows));
            assert!(is_mds(&powers_of_generator(rows, columns)), "{rows}x{columns}");
        }
        assert!(!powers_are_mds(4, 22) && !is_mds(&powers_of_generator(4, 22)));
        assert!(!powers_are_mds(5, 6) && !powers_are_mds(6, 6));
    }
}
