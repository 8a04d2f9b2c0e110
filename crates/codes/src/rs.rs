//! Reed-Solomon with eight matrix families.
//!
//! All families are MDS: any k blocks of a stripe rebuild the others. The families differ only in the parity
//! rows. A store's blocks decode only with the rows that encoded them.

use std::fmt;
use std::str::FromStr;

use gf::{mul, pow};

use crate::erasure::Erasure;
use crate::matrix::{add_scaled, inverse_of};
use crate::systematic::Systematic;
use crate::{BlockIndex, Code, CodeSpec, DecodeError, Matrix, Recipe, SpecError};

/// The primitive element used by all families.
const GENERATOR: u8 = 2;
const QFS_PARITIES: usize = 3;
/// The most data blocks that QFS has tables for. QFS's rows are MDS at least up to this number.
const QFS_MAX_DATA: usize = 64;
/// Up to this many parity blocks, the powers of the generator are MDS for any k.
const ISAL_ANY_DATA_PARITIES: usize = 3;
/// With this many parity blocks, the powers of the generator are MDS for up to `ISAL_MAX_DATA` data blocks.
const ISAL_MAX_PARITIES: usize = 4;
const ISAL_MAX_DATA: usize = 21;

/// The matrix family of a Reed-Solomon code's parity blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RsFamily {
    /// `1 / (i xor j)` for parity block i and data block j: ISA-L's `gf_gen_cauchy1_matrix`, which Hadoop's
    /// native and Java coders use as well.
    Cauchy,
    /// A Vandermonde matrix made systematic: klauspost/reedsolomon (SeaweedFS, MinIO) and Backblaze.
    Vandermonde,
    /// jerasure's `reed_sol_vandermonde_coding_matrix` for w = 8; its first parity block is the XOR.
    Jerasure,
    /// The P, Q, R syndromes of the Quantcast File System; three parity blocks only.
    Qfs,
    /// The remainder of the data modulo a generator polynomial: HDFS-RAID, and `rs-legacy` in Hadoop.
    HdfsRaid,
    /// `2^(i·j)`: ISA-L's `gf_gen_rs_matrix`, as in Ceph's isa plug-in with `reed_sol_van`, Swift's
    /// `isa_l_rs_vand`, and RAID-6; MDS only for few parity blocks.
    Isal,
    /// A Vandermonde matrix over 1, 2, 4, 8, … made systematic: Swift's `isa_l_rs_vand_inv`.
    IsalInverse,
    /// A Vandermonde matrix over 0, 1, 2, 4, … made systematic: zfec, which Tahoe-LAFS uses.
    Zfec,
}

impl RsFamily {
    /// Every family.
    pub const ALL: [Self; 8] = [
        Self::Cauchy,
        Self::Vandermonde,
        Self::Jerasure,
        Self::Qfs,
        Self::HdfsRaid,
        Self::Isal,
        Self::IsalInverse,
        Self::Zfec,
    ];

    /// Returns the rows of the n−k parity blocks over the k data blocks.
    ///
    /// # Errors
    /// If the family has no code of this size.
    pub fn parity_rows(self, n: usize, k: usize) -> Result<Matrix, SpecError> {
        CodeSpec::ReedSolomon { family: self, n, k }.check()?;
        Ok(match self {
            Self::Cauchy => cauchy(n, k),
            Self::Vandermonde => vandermonde(n, k, |point| point as u8),
            Self::IsalInverse => vandermonde(n, k, |point| pow(GENERATOR, point as u32)),
            Self::Zfec => vandermonde(n, k, |point| match point.checked_sub(1) {
                None => 0,
                Some(power) => pow(GENERATOR, power as u32),
            }),
            Self::Jerasure => jerasure(n, k),
            Self::Qfs | Self::Isal => powers_of_generator(n - k, k),
            Self::HdfsRaid => polynomial_remainders(n, k),
        })
    }

    /// Checks the family's own limits, beyond 1 ≤ k < n ≤ 255.
    pub(crate) fn check(self, n: usize, k: usize) -> Result<(), SpecError> {
        if self == Self::Qfs && n - k != QFS_PARITIES {
            return Err(SpecError::QfsParities { n, k });
        }
        if self == Self::Qfs && k > QFS_MAX_DATA {
            return Err(SpecError::QfsData { k, max: QFS_MAX_DATA });
        }
        if self == Self::Isal {
            return check_powers(n, k);
        }
        Ok(())
    }
}

impl fmt::Display for RsFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cauchy => "cauchy",
            Self::Vandermonde => "vandermonde",
            Self::Jerasure => "jerasure",
            Self::Qfs => "qfs",
            Self::HdfsRaid => "hdfs-raid",
            Self::Isal => "isal",
            Self::IsalInverse => "isal-inverse",
            Self::Zfec => "zfec",
        })
    }
}

impl FromStr for RsFamily {
    type Err = SpecError;

    fn from_str(name: &str) -> Result<Self, SpecError> {
        match name {
            "legacy" => Ok(Self::HdfsRaid),
            _ => Self::ALL
                .into_iter()
                .find(|family| family.to_string() == name)
                .ok_or_else(|| SpecError::UnknownFamily { name: name.to_owned() }),
        }
    }
}

/// Refuses m > 4 parity blocks, and m = 4 with k > 21 data blocks, because then some loss of m blocks may be
/// unrepairable. With m = 4 this begins at k = 22: data blocks 0, 10, 21 and parity block 2 cannot be rebuilt
/// together. With m = 5 it begins at k = 6.
fn check_powers(n: usize, k: usize) -> Result<(), SpecError> {
    let parities = n - k;
    if parities > ISAL_MAX_PARITIES {
        return Err(SpecError::IsalParities { n, k, max: ISAL_MAX_PARITIES });
    }
    if parities > ISAL_ANY_DATA_PARITIES && k > ISAL_MAX_DATA {
        return Err(SpecError::IsalData { k, max: ISAL_MAX_DATA });
    }
    Ok(())
}

fn cauchy(n: usize, k: usize) -> Matrix {
    Matrix::from_fn(n - k, k, |i, j| inverse_of((k + i) as u8 ^ j as u8))
}

/// Returns the parity rows of a Vandermonde matrix made systematic. Row r of the matrix is 1, x, x², … for
/// the r-th point x. A change of basis then makes the first k rows the identity.
fn vandermonde(n: usize, k: usize, point: impl Fn(usize) -> u8) -> Matrix {
    let matrix = Matrix::from_fn(n, k, |i, j| pow(point(i), j as u32));
    let top: Vec<usize> = (0..k).collect();
    let below: Vec<usize> = (k..n).collect();
    let to_systematic =
        matrix.select_rows(&top).inverse().expect("any k rows of Vandermonde's are independent");
    matrix.select_rows(&below).product(&to_systematic)
}

/// Returns the parity rows of jerasure's matrix: an extended Vandermonde matrix that is made systematic and
/// then scaled. First the columns are scaled, to make the first parity row all ones, then the rows, to make
/// the first column all ones.
fn jerasure(n: usize, k: usize) -> Matrix {
    let mut extended = Matrix::from_fn(n, k, |i, j| pow(i as u8, j as u32));
    extended.row_mut(0).fill(0);
    extended[(0, 0)] = 1;
    extended.row_mut(n - 1).fill(0);
    extended[(n - 1, k - 1)] = 1;
    let top: Vec<usize> = (0..k).collect();
    let below: Vec<usize> = (k..n).collect();
    let to_systematic = extended.select_rows(&top).inverse().expect("any k rows are independent");
    let parity = extended.select_rows(&below).product(&to_systematic);
    let scaled_columns = Matrix::from_fn(n - k, k, |i, j| mul(parity[(i, j)], inverse_of(parity[(0, j)])));
    Matrix::from_fn(n - k, k, |i, j| mul(scaled_columns[(i, j)], inverse_of(scaled_columns[(i, 0)])))
}

/// Returns a matrix whose row i contains the powers of 2^i.
pub(crate) fn powers_of_generator(rows: usize, columns: usize) -> Matrix {
    Matrix::from_fn(rows, columns, |i, j| pow(GENERATOR, (i * j) as u32))
}

/// Returns the parity rows of a cyclic code. Data block i is the coefficient of x^(m+i) in a polynomial that
/// is divisible by g(x) = Π (x − 2^j), j < m. The parity blocks are the polynomial's m lowest coefficients,
/// that is, the remainder of the data part modulo g.
fn polynomial_remainders(n: usize, k: usize) -> Matrix {
    let parities = n - k;
    let divisor = generator_polynomial(parities);
    let mut parity = Matrix::zero(parities, k);
    // The remainder of x^(m+i) follows from that of x^(m+i−1): multiply by x and subtract the leading
    // coefficient times g. The loop starts from x^(m−1), which is its own remainder.
    let mut remainder = vec![0; parities];
    remainder[parities - 1] = 1;
    for data in 0..k {
        let leading = remainder[parities - 1];
        remainder.rotate_right(1);
        remainder[0] = 0;
        add_scaled(&mut remainder, &divisor[..parities], leading);
        (0..parities).for_each(|i| parity[(i, data)] = remainder[i]);
    }
    parity
}

/// Returns the coefficients of Π (x − 2^j) for j < `degree`, lowest first.
fn generator_polynomial(degree: usize) -> Vec<u8> {
    let mut polynomial = vec![1];
    for j in 0..degree {
        let mut times_x = polynomial.clone();
        times_x.insert(0, 0);
        add_scaled(&mut times_x, &polynomial, pow(GENERATOR, j as u32));
        polynomial = times_x;
    }
    polynomial
}

/// A Reed-Solomon code: any k of its n blocks rebuild the others.
#[derive(Debug)]
pub struct ReedSolomon {
    spec: CodeSpec,
    code: Systematic,
    encoding: Recipe,
}

impl ReedSolomon {
    /// Creates the `(n, k)` code of `family`.
    ///
    /// # Errors
    /// If the family has no code of this size.
    pub fn new(family: RsFamily, n: usize, k: usize) -> Result<Self, SpecError> {
        let code = Systematic::new(1, family.parity_rows(n, k)?);
        Ok(Self { spec: CodeSpec::ReedSolomon { family, n, k }, encoding: code.encoding(), code })
    }

    /// Creates the code of k data blocks and their XOR.
    ///
    /// # Errors
    /// If there are no data blocks, or more than a stripe can have.
    pub fn xor(k: usize) -> Result<Self, SpecError> {
        let spec = CodeSpec::Xor { k };
        spec.check()?;
        let code = Systematic::new(1, Matrix::from_fn(1, k, |_, _| 1));
        Ok(Self { spec, encoding: code.encoding(), code })
    }

    /// Returns the rows of the n−k parity blocks over the k data blocks.
    pub fn parity_rows(&self) -> &Matrix {
        self.code.parity()
    }
}

impl Code for ReedSolomon {
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
        self.code.solve_from(&erasure, erasure.any(self.data_blocks())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(family: RsFamily, n: usize, k: usize, expected: &[&[u8]]) {
        let rows = family.parity_rows(n, k).expect("a code of this size");
        assert_eq!(rows, Matrix::from_rows(expected), "{family} ({n},{k})");
    }

    /// Compares with the rows that the systems' own libraries print for six data and three parity blocks.
    #[test]
    fn parity_rows_are_those_of_the_systems() {
        check(
            RsFamily::Cauchy,
            9,
            6,
            &[&[122, 186, 71, 167, 142, 244], &[186, 122, 167, 71, 244, 142], &[173, 157, 221, 152, 61, 170]],
        );
        check(
            RsFamily::Vandermonde,
            9,
            6,
            &[&[7, 6, 5, 4, 3, 2], &[6, 7, 4, 5, 2, 3], &[160, 223, 223, 183, 254, 232]],
        );
        check(
            RsFamily::Jerasure,
            9,
            6,
            &[&[1, 1, 1, 1, 1, 1], &[1, 225, 151, 172, 82, 200], &[1, 123, 245, 143, 244, 142]],
        );
        check(RsFamily::Qfs, 9, 6, &[&[1, 1, 1, 1, 1, 1], &[1, 2, 4, 8, 16, 32], &[1, 4, 16, 64, 29, 116]]);
        check(RsFamily::Isal, 9, 6, &[&[1, 1, 1, 1, 1, 1], &[1, 2, 4, 8, 16, 32], &[1, 4, 16, 64, 29, 116]]);
        check(
            RsFamily::HdfsRaid,
            9,
            6,
            &[&[8, 56, 216, 63, 4, 245], &[14, 34, 186, 176, 56, 127], &[7, 27, 99, 142, 61, 139]],
        );
    }

    #[test]
    fn jerasure_rows_for_ten_data_blocks() {
        check(
            RsFamily::Jerasure,
            14,
            10,
            &[
                &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
                &[1, 147, 138, 73, 93, 161, 103, 58, 99, 178],
                &[1, 103, 156, 151, 123, 187, 166, 175, 244, 83],
                &[1, 220, 166, 123, 82, 143, 245, 40, 167, 122],
            ],
        );
    }

    #[test]
    fn one_parity_block_works_in_every_family_that_allows_it() {
        check(RsFamily::Jerasure, 5, 4, &[&[1, 1, 1, 1]]);
        // All coefficients are 1, since x^j mod (x − 1) = 1.
        check(RsFamily::HdfsRaid, 5, 4, &[&[1, 1, 1, 1]]);
    }
}
