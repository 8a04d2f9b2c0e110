//! Row echelon form over GF(2^8), grown row by row; its rank is the number of streams that a set of sums
//! needs.
//!
//! Rows are stored densely, because a matrix is small: it describes the sums that one node makes from the
//! inputs that it reads and receives.

use gf::{Kernel, inv};

/// Independent rows. Each has a 1 in its pivot column, where all later rows have a 0.
pub(super) struct Echelon {
    kernel: Kernel,
    rows: Vec<Vec<u8>>,
    pivots: Vec<usize>,
    /// For each column, the index of the row whose pivot it is.
    row_at: Vec<Option<usize>>,
}

impl Echelon {
    /// An empty form for rows of this many columns.
    pub fn new(columns: usize) -> Self {
        Self { kernel: Kernel::best(), rows: Vec::new(), pivots: Vec::new(), row_at: vec![None; columns] }
    }

    /// The number of independent rows so far.
    pub fn rank(&self) -> usize {
        self.rows.len()
    }

    /// Whether no further row can be independent.
    pub fn is_full(&self) -> bool {
        self.rank() == self.row_at.len()
    }

    /// Inserts a row; a dependent row changes nothing.
    pub fn insert(&mut self, mut row: Vec<u8>) {
        for column in 0..row.len() {
            match (inv(row[column]), self.row_at[column]) {
                (None, _) => {}
                (Some(_), Some(at)) => self.kernel.mul_add(row[column], &self.rows[at], &mut row),
                (Some(inverse), None) => {
                    self.kernel.mul(inverse, &mut row);
                    self.row_at[column] = Some(self.rows.len());
                    self.pivots.push(column);
                    return self.rows.push(row);
                }
            }
        }
    }

    /// The reduced rows with their pivots: in the column of a row's pivot, all other rows have a 0.
    pub fn reduced(mut self) -> Vec<(usize, Vec<u8>)> {
        for (at, &pivot) in self.pivots.iter().enumerate() {
            let row = std::mem::take(&mut self.rows[at]);
            for other in self.rows.iter_mut().filter(|other| !other.is_empty()) {
                let coefficient = other[pivot];
                self.kernel.mul_add(coefficient, &row, other);
            }
            self.rows[at] = row;
        }
        self.pivots.into_iter().zip(self.rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(rows: &[[u8; 3]]) -> Echelon {
        let mut echelon = Echelon::new(3);
        rows.iter().for_each(|row| echelon.insert(row.to_vec()));
        echelon
    }

    #[test]
    fn dependent_rows_do_not_count() {
        let echelon = grown(&[[1, 2, 3], [2, 4, 6], [0, 0, 5]]);
        assert_eq!(echelon.rank(), 2);
        assert_eq!(echelon.reduced(), [(0, vec![1, 2, 0]), (2, vec![0, 0, 1])]);
    }

    #[test]
    fn as_many_rows_as_columns_are_the_identity() {
        let echelon = grown(&[[1, 2, 3], [7, 1, 0], [9, 9, 1]]);
        assert!(echelon.is_full());
        for (pivot, row) in echelon.reduced() {
            assert!((0..3).all(|column| row[column] == u8::from(column == pivot)), "{row:?}");
        }
    }
}
