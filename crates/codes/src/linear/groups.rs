//! Finds a code's local groups, and the number of losses that it always survives, from its parity rows alone.
//!
//! Groups and losses follow from the parity-check matrix H: the parity rows with an identity appended, so
//! that each block has a column. A set of blocks is a group if some combination of H's rows is non-zero
//! exactly in the columns of these blocks. A loss is decodable if the lost blocks' columns are independent.

use std::collections::BTreeSet;

use gf::mul;

use crate::Matrix;
use crate::matrix::{add_scaled, inverse_of};

/// The maximum number of sets of columns to try one by one. If there are more, groups are searched at random.
const MOST_SETS: f64 = 20_000.0;
/// The number of random block orders that the random search tries. Each order reveals as many groups as there
/// are parity blocks.
const RANDOM_ORDERS: usize = 64;

/// Returns the local groups, smallest first. A local group is a set of at most k blocks in which each block
/// is a combination of the others. The list is complete for small codes; for wide codes it contains the
/// groups that a random search finds.
pub(crate) fn find_groups(parity: &Matrix) -> Vec<Vec<usize>> {
    let (m, k) = (parity.rows(), parity.columns());
    let check = check_matrix(parity);
    let mut groups = BTreeSet::new();
    let mut keep = |row: &[u8]| {
        let group: Vec<usize> = (0..m + k).filter(|&block| row[block] != 0).collect();
        if group.len() <= k && group.len() > 1 {
            groups.insert((group.len(), group));
        }
    };
    (0..m).for_each(|row| keep(check.row(row)));
    if sets(m + k, m - 1) <= MOST_SETS {
        // A minimal group is the support of the combination of H's rows that vanishes on some m − 1 blocks.
        every_set(m + k, m - 1, |outside| {
            keep(&vanishing_on(&check, outside));
            true
        });
    } else {
        for order in 0..RANDOM_ORDERS as u64 {
            let reduced = reduced_in_order(&check, &shuffled(m + k, order));
            (0..m).for_each(|row| keep(reduced.row(row)));
        }
    }
    without_supersets(groups.into_iter().map(|(_, group)| group))
}

/// Whether every loss of `losses` blocks is decodable; `None` if that would take more than `most` trials.
pub(crate) fn tolerates(parity: &Matrix, losses: usize, most: f64) -> Option<bool> {
    let check = check_matrix(parity).transposed();
    if losses > check.columns() {
        return Some(false);
    }
    if sets(check.rows(), losses) > most {
        return None;
    }
    Some(all_independent(&check, losses, 0, &mut Vec::new()))
}

fn check_matrix(parity: &Matrix) -> Matrix {
    let (m, k) = (parity.rows(), parity.columns());
    Matrix::from_fn(m, m + k, |i, j| if j < k { parity[(i, j)] } else { u8::from(i == j - k) })
}

/// Returns the number of subsets with `size` elements of a set of `n`.
pub(crate) fn sets(n: usize, size: usize) -> f64 {
    if size > n {
        return 0.0;
    }
    (0..size).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

/// Whether `holds` returns true for every subset of `0..n` with `size` elements. Tries the subsets in
/// lexicographic order, up to the first failure.
pub(crate) fn every_set(n: usize, size: usize, mut holds: impl FnMut(&[usize]) -> bool) -> bool {
    if size > n {
        return true;
    }
    let mut set: Vec<usize> = (0..size).collect();
    while holds(&set) {
        let Some(at) = (0..size).rev().find(|&at| set[at] < n - size + at) else { return true };
        set[at] += 1;
        (at + 1..size).for_each(|next| set[next] = set[next - 1] + 1);
    }
    false
}

/// Returns the combination of the rows that is zero in `columns`. Returns all zeros if this combination is
/// not unique up to a factor.
fn vanishing_on(check: &Matrix, columns: &[usize]) -> Vec<u8> {
    let rows: Vec<usize> = (0..check.rows()).collect();
    let inside = check.select(&rows, columns);
    // Within `columns`, one row is a combination of the rows above it. Subtracting this combination from the
    // row makes the row zero there.
    let independent = inside.independent_rows();
    let dependent: Vec<usize> = rows.into_iter().filter(|row| !independent.contains(row)).collect();
    let &[dependent] = &dependent[..] else { return vec![0; check.columns()] };
    let above = inside.select_rows(&independent);
    let coefficients = above.solve_row(inside.row(dependent)).expect("it depends on these");
    let mut sum = check.row(dependent).to_vec();
    for (&row, coefficient) in independent.iter().zip(coefficients) {
        add_scaled(&mut sum, check.row(row), coefficient);
    }
    sum
}

/// Returns the rows after Gauss-Jordan elimination that picks pivot columns in the given order: in each row's
/// pivot column, all other rows are zero.
fn reduced_in_order(check: &Matrix, order: &[usize]) -> Matrix {
    let mut reduced = check.clone();
    let mut top = 0;
    for &column in order {
        let Some(found) = (top..reduced.rows()).find(|&row| reduced[(row, column)] != 0) else { continue };
        let scale = inverse_of(reduced[(found, column)]);
        let pivot: Vec<u8> = reduced.row(found).iter().map(|&element| mul(element, scale)).collect();
        let displaced = reduced.row(top).to_vec();
        reduced.row_mut(found).copy_from_slice(&displaced);
        reduced.row_mut(top).copy_from_slice(&pivot);
        for row in (0..reduced.rows()).filter(|&row| row != top) {
            let coefficient = reduced[(row, column)];
            add_scaled(reduced.row_mut(row), &pivot, coefficient);
        }
        top += 1;
    }
    reduced
}

/// Returns a deterministic shuffle of `0..n`: results must not differ between processes.
fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut order: Vec<usize> = (0..n).collect();
    for last in (1..n).rev() {
        // Xorshift, by Marsaglia.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(last, (state % (last as u64 + 1)) as usize);
    }
    order
}

fn without_supersets(groups: impl Iterator<Item = Vec<usize>>) -> Vec<Vec<usize>> {
    let mut kept: Vec<Vec<usize>> = Vec::new();
    for group in groups {
        let holds = |smaller: &Vec<usize>| smaller.iter().all(|block| group.binary_search(block).is_ok());
        if !kept.iter().any(holds) {
            kept.push(group);
        }
    }
    kept
}

/// Whether the vectors in `reduced` stay linearly independent together with any `left` of the `vectors` from
/// index `from` on. Each vector in `reduced` comes with its pivot, where it has a 1.
fn all_independent(vectors: &Matrix, left: usize, from: usize, reduced: &mut Vec<(usize, Vec<u8>)>) -> bool {
    if left == 0 {
        return true;
    }
    (from..=vectors.rows() - left).all(|next| {
        let mut vector = vectors.row(next).to_vec();
        for (pivot, other) in reduced.iter() {
            let coefficient = vector[*pivot];
            add_scaled(&mut vector, other, coefficient);
        }
        let Some(pivot) = vector.iter().position(|&element| element != 0) else { return false };
        let scale = inverse_of(vector[pivot]);
        vector.iter_mut().for_each(|element| *element = mul(*element, scale));
        reduced.push((pivot, vector));
        let independent = all_independent(vectors, left - 1, next + 1, reduced);
        reduced.pop();
        independent
    })
}
