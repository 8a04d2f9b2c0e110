//! Finds a code's local groups, and the number of losses it always survives, from its parity rows alone.
//!
//! Both are read off the parity-check matrix H, the parity rows beside an identity. Blocks are a group if a
//! combination of H's rows is zero everywhere else, and a loss is decodable if the lost blocks' columns of H
//! are independent.

use std::collections::BTreeSet;

use gf::mul;

use crate::Matrix;
use crate::matrix::{add_scaled, inverse_of};

/// Sets of columns that are tried one by one, before groups are looked for at random.
const MOST_SETS: f64 = 20_000.0;
/// Random orders of blocks that are tried beyond that; in each, as many groups appear as there are parity
/// blocks.
const RANDOM_ORDERS: usize = 64;

/// The sets of blocks, smallest first, of which each is a combination of the others, that are smaller than
/// what any decoding reads; all of them in a small code, those that a search finds in a wide one.
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
        // A smallest set that sums to zero is all there is outside of some m − 1 blocks.
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

/// Whether every loss of `losses` blocks is decodable; `None` if there are too many to try within `most`.
pub(crate) fn tolerates(parity: &Matrix, losses: usize, most: f64) -> Option<bool> {
    let check = check_matrix(parity).transposed();
    if sets(check.rows(), losses) > most {
        return None;
    }
    Some(losses <= check.columns() && all_independent(&check, losses, 0, &mut Vec::new()))
}

fn check_matrix(parity: &Matrix) -> Matrix {
    let (m, k) = (parity.rows(), parity.columns());
    Matrix::from_fn(m, m + k, |i, j| if j < k { parity[(i, j)] } else { u8::from(i == j - k) })
}

/// How many sets of `size` of `n` there are.
pub(crate) fn sets(n: usize, size: usize) -> f64 {
    (0..size).map(|i| (n - i.min(n)) as f64 / (i + 1) as f64).product()
}

/// Whether `holds` for every set of `size` of `0..n`, in lexicographic order up to the first for which it
/// does not.
pub(crate) fn every_set(n: usize, size: usize, mut holds: impl FnMut(&[usize]) -> bool) -> bool {
    let mut set: Vec<usize> = (0..size).collect();
    if size > n {
        return true;
    }
    while holds(&set) {
        let Some(at) = (0..size).rev().find(|&at| set[at] < n - size + at) else { return true };
        set[at] += 1;
        (at + 1..size).for_each(|next| set[next] = set[next - 1] + 1);
    }
    false
}

/// A combination of the rows that is zero in these columns; all zeros if there are several.
fn vanishing_on(check: &Matrix, columns: &[usize]) -> Vec<u8> {
    let rows: Vec<usize> = (0..check.rows()).collect();
    let inside = check.select(&rows, columns);
    // The row that depends on those above it, less that combination of them, vanishes.
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

/// The rows after elimination with the columns in this order: each is zero in all other rows' leading
/// columns.
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

/// `0..n` in an order that the seed determines: what is found must not differ from one process to another.
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

/// Whether all ways to add `left` of the vectors from `from` on to these, which are reduced, leave them
/// independent.
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
