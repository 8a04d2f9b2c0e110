//! A code defined by an arbitrary generator matrix.
//!
//! The matrix is part of the code's name, so that a stripe can be decoded from its metadata alone:
//! `explicit-N-K-T-xHEX` contains the parity rows in hexadecimal, row by row, and T, the number of losses
//! that are always decodable. Users supply the matrix as text ([`Generator::from_text`]): n rows of k
//! numbers, beginning with the identity as the first k rows.

use std::fmt;

use super::groups::{sets, tolerates};
use crate::Matrix;
use crate::spec::MAX_BLOCKS;

/// The maximum number of sets of lost blocks tried to verify how many losses a matrix tolerates. Trying that
/// many takes a few milliseconds; metadata is verified whenever it is read, so more would take too long.
const MOST_LOSSES: f64 = 50_000.0;

/// A generator matrix, and the number of lost blocks that it always tolerates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Generator {
    parity: Matrix,
    tolerates: usize,
}

/// Why a text or a matrix is not a valid generator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeneratorError {
    /// A row contains something other than a byte.
    #[error("line {line}: `{text}` is not a number from 0 to 255")]
    Number {
        /// The line, from 1.
        line: usize,
        /// The token found.
        text: String,
    },
    /// Rows differ in length.
    #[error("line {line}: this row has {found} numbers, but the first row has {expected}")]
    Length {
        /// The line, from 1.
        line: usize,
        /// Numbers in the row.
        found: usize,
        /// Numbers in the first row.
        expected: usize,
    },
    /// The first rows are not the identity.
    #[error(
        "row {row} must be a row of the identity matrix, because the first {k} blocks are the data; write \
         the rows of the data blocks first"
    )]
    NotSystematic {
        /// The row, from 0.
        row: usize,
        /// Data blocks in a stripe.
        k: usize,
    },
    /// A row consists of zeros.
    #[error("row {row} has only zeros, so its block would contain no information; remove the row")]
    Zeros {
        /// The row, from 0.
        row: usize,
    },
    /// There is no data, no parity, or the number of blocks exceeds the limit.
    #[error(
        "{n} rows of {k} numbers are not a generator matrix: it needs more rows than columns, and at most \
         {MAX_BLOCKS} rows"
    )]
    Shape {
        /// The number of rows.
        n: usize,
        /// The length of a row.
        k: usize,
    },
    /// The digits do not form n − k rows of k bytes.
    #[error("{found} hexadecimal digits, but {} are needed: n - k = {m} rows of k = {k} bytes", 2 * m * k)]
    Digits {
        /// The number of digits found.
        found: usize,
        /// Parity blocks.
        m: usize,
        /// Data blocks.
        k: usize,
    },
    /// The matrix does not decode every loss of the claimed number of blocks.
    #[error(
        "the matrix cannot decode every loss of {claimed} blocks; the largest number that it always decodes \
         is {found}"
    )]
    Claim {
        /// The number of losses claimed to be decodable.
        claimed: usize,
        /// The number of losses that are decodable.
        found: usize,
    },
    /// Verifying the claimed number of losses would take too many trials.
    #[error(
        "cannot verify that every loss of {claimed} of {n} blocks is decodable, because there are too many \
         combinations; claim {checkable}"
    )]
    Uncheckable {
        /// The number of losses claimed to be decodable.
        claimed: usize,
        /// Blocks in a stripe.
        n: usize,
        /// The largest number of losses that could be verified.
        checkable: usize,
    },
}

impl Generator {
    /// Creates the generator with these parity rows; determines by trial how many losses it tolerates.
    ///
    /// # Errors
    /// If the shape of the matrix is invalid.
    pub fn new(parity: Matrix) -> Result<Self, GeneratorError> {
        let mut generator = Self { parity, tolerates: 0 };
        generator.check()?;
        generator.tolerates = generator.most_tolerated();
        Ok(generator)
    }

    /// Parses n rows of k numbers (decimal, or hexadecimal after `0x`), separated by blanks or commas. A line
    /// `tolerates T` claims that any T losses are decodable; without it, T is determined by trial. Text after
    /// `#` is a comment.
    ///
    /// # Errors
    /// If the text is malformed, or the matrix tolerates fewer losses than claimed.
    pub fn from_text(text: &str) -> Result<Self, GeneratorError> {
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let mut claimed = None;
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default();
            let mut words = text.split([' ', '\t', ',', '[', ']']).filter(|word| !word.is_empty()).peekable();
            if words.next_if(|word| word.eq_ignore_ascii_case("tolerates")).is_some() {
                let text = words.next().unwrap_or_default();
                claimed = Some(text.parse().map_err(|_| GeneratorError::Number { line, text: text.into() })?);
                continue;
            }
            let row: Vec<u8> = words.map(|word| number(word, line)).collect::<Result<_, _>>()?;
            match rows.first() {
                _ if row.is_empty() => continue,
                Some(first) if first.len() != row.len() => {
                    let (found, expected) = (row.len(), first.len());
                    return Err(GeneratorError::Length { line, found, expected });
                }
                _ => rows.push(row),
            }
        }
        let (n, k) = (rows.len(), rows.first().map_or(0, Vec::len));
        check_shape(n, k)?;
        let is_unit = |row: &usize| (0..k).all(|column| rows[*row][column] == u8::from(column == *row));
        if let Some(row) = (0..k).find(|row| !is_unit(row)) {
            return Err(GeneratorError::NotSystematic { row, k });
        }
        let parity = Matrix::from_rows(&rows[k..]);
        check_rows(&parity)?;
        match claimed {
            None => Self::new(parity),
            Some(tolerates) => {
                let generator = Self { parity, tolerates };
                generator.check().map(|()| generator)
            }
        }
    }

    /// Parses the parity rows in a code's name. Does not verify `tolerates`; [`check`](Self::check) does.
    pub(crate) fn from_hex(n: usize, k: usize, tolerates: usize, hex: &str) -> Result<Self, GeneratorError> {
        check_shape(n, k)?;
        let m = n - k;
        let digits: Option<Vec<u8>> =
            hex.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        let wrong = GeneratorError::Digits { found: hex.chars().count(), m, k };
        let digits = digits.filter(|digits| digits.len() == 2 * m * k).ok_or(wrong)?;
        let element = |i: usize, j: usize| digits[2 * (i * k + j)] << 4 | digits[2 * (i * k + j) + 1];
        Ok(Self { parity: Matrix::from_fn(m, k, element), tolerates })
    }

    /// Returns n, the number of blocks in a stripe.
    pub fn blocks(&self) -> usize {
        self.parity.rows() + self.parity.columns()
    }

    /// Returns k, the number of data blocks in a stripe.
    pub fn data_blocks(&self) -> usize {
        self.parity.columns()
    }

    /// Returns the rows of the parity blocks over the data blocks.
    pub fn parity_rows(&self) -> &Matrix {
        &self.parity
    }

    /// Returns the number of losses that are always decodable, whichever blocks are lost.
    pub fn tolerates(&self) -> usize {
        self.tolerates
    }

    pub(crate) fn check(&self) -> Result<(), GeneratorError> {
        check_shape(self.blocks(), self.data_blocks())?;
        check_rows(&self.parity)?;
        match tolerates(&self.parity, self.tolerates, MOST_LOSSES) {
            Some(true) => Ok(()),
            Some(false) => {
                Err(GeneratorError::Claim { claimed: self.tolerates, found: self.most_tolerated() })
            }
            None => {
                let n = self.blocks();
                let checkable =
                    (0..self.tolerates).take_while(|&losses| sets(n, losses) <= MOST_LOSSES).count();
                Err(GeneratorError::Uncheckable { claimed: self.tolerates, n, checkable: checkable - 1 })
            }
        }
    }

    fn most_tolerated(&self) -> usize {
        let holds = |&losses: &usize| tolerates(&self.parity, losses, MOST_LOSSES) == Some(true);
        (1..=self.parity.rows()).take_while(holds).count()
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "explicit-{}-{}-{}-x", self.blocks(), self.data_blocks(), self.tolerates)?;
        (0..self.parity.rows())
            .flat_map(|row| self.parity.row(row))
            .try_for_each(|element| write!(f, "{element:02x}"))
    }
}

fn check_rows(parity: &Matrix) -> Result<(), GeneratorError> {
    let is_zero = |row: &usize| parity.row(*row).iter().all(|&element| element == 0);
    let zeros = (0..parity.rows()).find(is_zero);
    zeros.map_or(Ok(()), |row| Err(GeneratorError::Zeros { row: parity.columns() + row }))
}

fn check_shape(n: usize, k: usize) -> Result<(), GeneratorError> {
    if k == 0 || k >= n || n > MAX_BLOCKS { Err(GeneratorError::Shape { n, k }) } else { Ok(()) }
}

fn number(word: &str, line: usize) -> Result<u8, GeneratorError> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| GeneratorError::Number { line, text: word.into() })
}
