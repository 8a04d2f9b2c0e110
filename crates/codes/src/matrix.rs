//! Dense matrices over GF(2^8): product, inverse, rank and solving.
//!
//! The matrices are small (a code has at most 255 blocks), so the code is kept simple instead of fast. The
//! bytes of blocks are combined elsewhere (crate `gf`).

use std::fmt;
use std::ops::{Index, IndexMut};

use gf::mul;

/// A dense matrix over GF(2^8), stored row by row.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    elements: Vec<u8>,
}

impl Matrix {
    /// Returns a matrix of zeros.
    pub fn zero(rows: usize, columns: usize) -> Self {
        Self { rows, columns, elements: vec![0; rows * columns] }
    }

    /// Returns the square matrix with ones on the diagonal.
    pub fn identity(size: usize) -> Self {
        let mut identity = Self::zero(size, size);
        (0..size).for_each(|i| identity[(i, i)] = 1);
        identity
    }

    /// Creates a matrix from its rows.
    ///
    /// # Panics
    /// If the rows differ in length.
    pub fn from_rows<R: AsRef<[u8]>>(rows: impl IntoIterator<Item = R>) -> Self {
        let mut matrix = Self::zero(0, 0);
        for row in rows {
            let row = row.as_ref();
            assert!(matrix.rows == 0 || row.len() == matrix.columns, "rows of one length");
            matrix.columns = row.len();
            matrix.rows += 1;
            matrix.elements.extend_from_slice(row);
        }
        matrix
    }

    /// Returns the matrix whose element in row `i`, column `j` is `element(i, j)`.
    pub fn from_fn(rows: usize, columns: usize, element: impl Fn(usize, usize) -> u8) -> Self {
        let mut matrix = Self::zero(rows, columns);
        for i in 0..rows {
            (0..columns).for_each(|j| matrix[(i, j)] = element(i, j));
        }
        matrix
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns row `index`.
    pub fn row(&self, index: usize) -> &[u8] {
        &self.elements[index * self.columns..(index + 1) * self.columns]
    }

    /// Returns row `index`, mutable.
    pub fn row_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.elements[index * self.columns..(index + 1) * self.columns]
    }

    /// Returns the matrix of the given rows, in the given order.
    pub fn select_rows(&self, indices: &[usize]) -> Self {
        let elements = indices.iter().flat_map(|&index| self.row(index)).copied().collect();
        Self { rows: indices.len(), columns: self.columns, elements }
    }

    /// Returns the elements at the intersections of these rows and columns, in the given order.
    pub fn select(&self, rows: &[usize], columns: &[usize]) -> Self {
        Self::from_fn(rows.len(), columns.len(), |i, j| self[(rows[i], columns[j])])
    }

    /// Returns this matrix, followed by the rows of `below`.
    ///
    /// # Panics
    /// If the two matrices differ in the number of columns.
    pub fn stacked_on(mut self, below: &Self) -> Self {
        assert_eq!(self.columns, below.columns, "rows of one length");
        self.rows += below.rows;
        self.elements.extend_from_slice(&below.elements);
        self
    }

    /// Returns the matrix with rows and columns exchanged.
    pub fn transposed(&self) -> Self {
        Self::from_fn(self.columns, self.rows, |i, j| self[(j, i)])
    }

    /// Returns the matrix product `self · right`.
    ///
    /// # Panics
    /// If the number of rows of `right` differs from the number of columns of `self`.
    pub fn product(&self, right: &Self) -> Self {
        assert_eq!(self.columns, right.rows, "one row on the right for each column on the left");
        let mut product = Self::zero(self.rows, right.columns);
        for i in 0..self.rows {
            for (j, &coefficient) in self.row(i).iter().enumerate() {
                add_scaled(product.row_mut(i), right.row(j), coefficient);
            }
        }
        product
    }

    /// Returns the inverse, or `None` if the matrix is singular.
    ///
    /// # Panics
    /// If the matrix is not square.
    pub fn inverse(&self) -> Option<Self> {
        let size = self.columns;
        assert_eq!(self.rows, size, "only a square matrix has an inverse");
        let mut augmented = self.beside(&Self::identity(size));
        let pivots = augmented.reduce(size);
        (pivots.len() == size).then(|| Self::from_fn(size, size, |i, j| augmented[(i, size + j)]))
    }

    /// Returns the number of linearly independent rows.
    pub fn rank(&self) -> usize {
        self.clone().reduce(self.columns).len()
    }

    /// Returns the indices of the rows that are not combinations of the rows above them.
    pub fn independent_rows(&self) -> Vec<usize> {
        self.transposed().reduce(self.rows)
    }

    /// Returns coefficients `c`, one per row of `self`, with `c · self = target`; `None` if `target` is no
    /// combination of the rows.
    ///
    /// If there are several solutions, the first rows that suffice are used and the others get 0.
    ///
    /// # Panics
    /// If `target` is not as long as a row.
    pub fn solve_row(&self, target: &[u8]) -> Option<Vec<u8>> {
        self.solve_rows(&Self::from_rows([target])).ok().map(|solution| solution.elements)
    }

    /// Returns the matrix `C` with `C · self = targets`, computed by one elimination for all rows of
    /// `targets`.
    ///
    /// If there are several solutions, the first rows of `self` that suffice are used and the others get 0.
    ///
    /// # Errors
    /// The index of the first row of `targets` that is not a combination of rows of `self`.
    ///
    /// # Panics
    /// If `self` and `targets` differ in the number of columns.
    pub fn solve_rows(&self, targets: &Self) -> Result<Self, usize> {
        assert_eq!(self.columns, targets.columns, "targets are as long as rows");
        let unknowns = self.rows;
        let mut augmented = Self::from_fn(self.columns, unknowns + targets.rows, |i, j| {
            if j < unknowns { self[(j, i)] } else { targets[(j - unknowns, i)] }
        });
        let pivots = augmented.reduce(unknowns);
        let mut solution = Self::zero(targets.rows, unknowns);
        for target in 0..targets.rows {
            let unexplained = (pivots.len()..self.columns).any(|i| augmented[(i, unknowns + target)] != 0);
            if unexplained {
                return Err(target);
            }
            for (i, &column) in pivots.iter().enumerate() {
                solution[(target, column)] = augmented[(i, unknowns + target)];
            }
        }
        Ok(solution)
    }

    fn beside(&self, right: &Self) -> Self {
        Self::from_fn(self.rows, self.columns + right.columns, |i, j| {
            if j < self.columns { self[(i, j)] } else { right[(i, j - self.columns)] }
        })
    }

    /// Brings the first `columns` columns to reduced row echelon form by row operations on whole rows.
    /// Returns the column of each pivot, from the top row down. Rows below the pivots have zeros in these
    /// columns.
    pub fn reduce(&mut self, columns: usize) -> Vec<usize> {
        let mut pivots = Vec::new();
        for column in 0..columns {
            let top = pivots.len();
            let Some(found) = (top..self.rows).find(|&i| self[(i, column)] != 0) else { continue };
            self.swap_rows(top, found);
            let normalizer = inverse_of(self[(top, column)]);
            scale(self.row_mut(top), normalizer);
            self.clear_column(column, top);
            pivots.push(column);
        }
        pivots
    }

    /// Makes `column` zero in all rows except row `pivot`, by subtracting multiples of row `pivot`, which has
    /// a 1 in this column.
    fn clear_column(&mut self, column: usize, pivot: usize) {
        let pivot_row = self.row(pivot).to_vec();
        for i in (0..self.rows).filter(|&i| i != pivot) {
            let coefficient = self[(i, column)];
            add_scaled(self.row_mut(i), &pivot_row, coefficient);
        }
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        for column in 0..self.columns {
            self.elements.swap(a * self.columns + column, b * self.columns + column);
        }
    }
}

impl Index<(usize, usize)> for Matrix {
    type Output = u8;

    fn index(&self, (row, column): (usize, usize)) -> &u8 {
        &self.row(row)[column]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut u8 {
        &mut self.row_mut(row)[column]
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for i in 0..self.rows {
            let row: Vec<String> = self.row(i).iter().map(|element| format!("{element:3}")).collect();
            writeln!(f, "{}", row.join(" "))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix {}x{}\n{self}", self.rows, self.columns)
    }
}

/// Computes `target += coefficient · source`, element by element.
pub(crate) fn add_scaled(target: &mut [u8], source: &[u8], coefficient: u8) {
    match coefficient {
        0 => {}
        1 => target.iter_mut().zip(source).for_each(|(t, &s)| *t ^= s),
        c => target.iter_mut().zip(source).for_each(|(t, &s)| *t ^= mul(c, s)),
    }
}

fn scale(row: &mut [u8], coefficient: u8) {
    if coefficient != 1 {
        row.iter_mut().for_each(|element| *element = mul(*element, coefficient));
    }
}

/// Returns the inverse of an element that is non-zero by construction.
pub(crate) fn inverse_of(element: u8) -> u8 {
    gf::inv(element).expect("only elements other than zero are inverted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn square(size: usize) -> impl Strategy<Value = Matrix> {
        prop::collection::vec(any::<u8>(), size * size).prop_map(move |elements| Matrix {
            rows: size,
            columns: size,
            elements,
        })
    }

    #[test]
    fn identity_is_neutral() {
        let matrix = Matrix::from_rows([[1, 2], [3, 4], [5, 6]]);
        assert_eq!(matrix.product(&Matrix::identity(2)), matrix);
        assert_eq!(Matrix::identity(3).product(&matrix), matrix);
    }

    #[test]
    fn rank_counts_independent_rows() {
        assert_eq!(Matrix::from_rows([[1, 2, 3], [2, 4, 6], [0, 0, 1]]).rank(), 2);
        assert_eq!(Matrix::zero(2, 3).rank(), 0);
    }

    #[test]
    fn the_first_of_dependent_rows_counts() {
        let matrix = Matrix::from_rows([[0, 0, 0], [1, 2, 3], [2, 4, 6], [0, 0, 1], [1, 2, 9]]);
        assert_eq!(matrix.independent_rows(), [1, 3]);
    }

    #[test]
    fn a_target_outside_the_row_space_has_no_solution() {
        let basis = Matrix::from_rows([[1, 1, 0], [0, 1, 1]]);
        assert_eq!(basis.solve_row(&[1, 0, 1]), Some(vec![1, 1]));
        assert_eq!(basis.solve_row(&[1, 0, 0]), None);
    }

    #[test]
    fn the_first_rows_that_suffice_are_used() {
        let basis = Matrix::from_rows([[1, 0], [1, 1], [0, 1]]);
        assert_eq!(basis.solve_row(&[0, 1]), Some(vec![1, 1, 0]));
    }

    #[test]
    fn prints_one_row_a_line() {
        let matrix = Matrix::from_rows([[1, 20], [255, 0]]);
        assert_eq!(matrix.to_string(), "  1  20\n255   0\n");
        assert_eq!(format!("{matrix:?}"), "Matrix 2x2\n  1  20\n255   0\n");
    }

    proptest! {
        #[test]
        fn a_matrix_times_its_inverse_is_the_identity(matrix in square(7)) {
            match matrix.inverse() {
                Some(inverse) => {
                    prop_assert_eq!(matrix.product(&inverse), Matrix::identity(7));
                    prop_assert_eq!(inverse.product(&matrix), Matrix::identity(7));
                }
                None => prop_assert!(matrix.rank() < 7),
            }
        }

        #[test]
        fn solving_a_combination_of_rows_gives_the_combination(
            matrix in square(6), coefficients in prop::collection::vec(any::<u8>(), 6),
        ) {
            let target = Matrix::from_rows([&coefficients]).product(&matrix);
            let solved = matrix.solve_row(target.row(0)).expect("a combination of rows");
            prop_assert_eq!(Matrix::from_rows([&solved]).product(&matrix), target);
        }
    }
}
