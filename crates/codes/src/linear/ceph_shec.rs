//! Ceph's shec plug-in: a shingled code, in which each parity block covers a part of the data.
//!
//! The matrix is jerasure's `reed_sol_van` with some elements replaced by zeros. The m parity blocks are
//! divided into two sets of m₁ and m₂ = m − m₁ blocks. The number c of losses that are always repairable is
//! divided accordingly, into c₁ and c₂ = c − c₁. Parity block r of the first set covers a share c₁/m₁ of the
//! data, from data block ⌊r·k/m₁⌋ on. The second set is built in the same way from m₂ and c₂. The plug-in
//! uses the first m₁ and c₁ that minimize the average number of blocks read to repair one block.

use std::ops::Range;

use crate::{Matrix, RsFamily, SpecError};

pub(super) fn check(k: usize, m: usize, c: usize) -> Result<(), SpecError> {
    if c == 0 || c > m || m > k {
        return Err(SpecError::CephShec { k, m, c });
    }
    Ok(())
}

/// `count` parity blocks spread evenly over the data; each data block is covered by `covers` of these parity
/// blocks.
#[derive(Clone, Copy)]
struct Shingles {
    count: usize,
    covers: usize,
}

impl Shingles {
    /// Returns the data covered by parity block `row`, before reduction modulo k.
    fn range(self, row: usize, k: usize) -> Range<usize> {
        row * k / self.count..(row + self.covers) * k / self.count
    }

    fn takes(self, row: usize, data: usize, k: usize) -> bool {
        let range = self.range(row, k);
        range.contains(&data) || range.contains(&(data + k))
    }
}

pub(super) fn parity_rows(k: usize, m: usize, c: usize) -> Result<Matrix, SpecError> {
    let [first, second] = best(k, m, c);
    let full = RsFamily::Jerasure.parity_rows(k + m, k)?;
    Ok(Matrix::from_fn(m, k, |row, data| {
        let is_taken = match row.checked_sub(first.count) {
            None => first.takes(row, data, k),
            Some(row) => second.takes(row, data, k),
        };
        if is_taken { full[(row, data)] } else { 0 }
    }))
}

fn best(k: usize, m: usize, c: usize) -> [Shingles; 2] {
    let mut best: Option<(usize, [Shingles; 2])> = None;
    for covers in 0..=c / 2 {
        for count in 0..=m {
            let pair = [Shingles { count, covers }, Shingles { count: m - count, covers: c - covers }];
            let exists = |shingles: &Shingles| {
                shingles.count >= shingles.covers && (shingles.count == 0) == (shingles.covers == 0)
            };
            let reads = || reads(k, &pair);
            if pair.iter().all(exists) && best.is_none_or(|(least, _)| reads() < least) {
                best = Some((reads(), pair));
            }
        }
    }
    best.expect("all parity blocks spread alike exist").1
}

/// Returns the number of blocks that single-block repairs read, summed over all blocks.
fn reads(k: usize, pair: &[Shingles; 2]) -> usize {
    let rows = || pair.iter().flat_map(|&shingles| (0..shingles.count).map(move |row| (shingles, row)));
    let size = |(shingles, row): (Shingles, usize)| shingles.range(row, k).len();
    let parity: usize = rows().map(size).sum();
    let least = |data: usize| rows().filter(|&(shingles, row)| shingles.takes(row, data, k)).map(size).min();
    parity + (0..k).map(|data| least(data).unwrap_or(k)).sum::<usize>()
}
