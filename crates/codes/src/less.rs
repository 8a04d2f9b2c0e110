//! LESS: a code with few sub-blocks that rebuilds any single block, data or parity, from parts of the others.
//!
//! The n blocks of α sub-blocks are divided into α + 1 groups, whose sizes differ by at most one, larger ones
//! first. There are α + 1 *extended sub-stripes*. Extended sub-stripe z < α contains sub-block z of every
//! block and all sub-blocks of group z. The last one contains all sub-blocks of the last group and sub-block
//! z of the blocks of each group z < α. Each sub-block b has its own field element v. Each of the first α
//! extended sub-stripes satisfies n − k equations: Σ v^i·b = 0 over its sub-blocks b, for each i from 0 to n
//! − k − 1. The last extended sub-stripe satisfies the same equations, because they are the sums of the
//! equations of all other extended sub-stripes. All sub-blocks of a block are in the extended sub-stripe of
//! the block's group, so the block is rebuilt from that sub-stripe alone.
//!
//! Source: Cheng, Li, Li, Hu and Lee, "LESS is More for I/O-Efficient Repairs in Erasure-Coded Storage"
//! (USENIX FAST 2026), section 3. The elements v are the paper's: p to the power of (h·(α + 1) + g)·α + j for
//! sub-block j of the h-th block of group g. The paper leaves p open, because not every primitive element
//! makes the code MDS. Here p = 2^e, with the smallest e for which p makes the code MDS. A search finds e by
//! trying every loss of n − k blocks, once for each code size.

use std::collections::BTreeMap;
use std::sync::Mutex;

use gf::pow;

use crate::erasure::Erasure;
use crate::linear::{every_set, sets};
use crate::systematic::Systematic;
use crate::{BlockIndex, Code, CodeSpec, DecodeError, Matrix, Recipe, SpecError};

/// The maximum number of sets of lost blocks tried to prove that a code is MDS. Trying that many takes about
/// 0.1 s.
const MOST_LOSSES: f64 = 20_000.0;
/// The number of non-zero elements of the field.
const ELEMENTS: usize = 255;

/// A LESS code; any k of its n blocks rebuild the others.
#[derive(Debug)]
pub struct Less {
    spec: CodeSpec,
    layout: Layout,
    code: Systematic,
    encoding: Recipe,
}

/// The assignment of blocks to groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Layout {
    n: usize,
    k: usize,
    alpha: usize,
}

impl Layout {
    /// Returns the group of a block, and the block's position in it.
    fn group(self, block: usize) -> (usize, usize) {
        let (size, larger) = (self.n / (self.alpha + 1), self.n % (self.alpha + 1));
        match block.checked_sub(larger * (size + 1)) {
            None => (block / (size + 1), block % (size + 1)),
            Some(beyond) => (larger + beyond / size, beyond % size),
        }
    }

    /// Whether a sub-block belongs to an extended sub-stripe.
    fn is_in(self, block: usize, sub: usize, stripe: usize) -> bool {
        let (group, _) = self.group(block);
        group == stripe || sub == stripe || (stripe == self.alpha && group == sub)
    }

    /// Returns the equations of the first α extended sub-stripes over all sub-blocks.
    fn check_matrix(self, primitive: u8) -> Matrix {
        let (m, alpha) = (self.n - self.k, self.alpha);
        Matrix::from_fn(m * alpha, self.n * alpha, |row, column| {
            let (stripe, exponent) = (row / m, row % m);
            let (block, sub) = (column / alpha, column % alpha);
            let (group, position) = self.group(block);
            let power = (position * (alpha + 1) + group) * alpha + sub;
            let element = || pow(primitive, (power % ELEMENTS * exponent) as u32);
            if self.is_in(block, sub, stripe) { element() } else { 0 }
        })
    }

    /// Returns a primitive element that makes the code MDS. Returns `None` if there is none, or if there are
    /// too many losses to try.
    fn primitive(self) -> Option<u8> {
        let m = self.n - self.k;
        if sets(self.n, m) > MOST_LOSSES || self.n * self.alpha > ELEMENTS {
            return None;
        }
        let is_primitive = |e: &usize| ![3, 5, 17].iter().any(|&prime| e.is_multiple_of(prime));
        // Squaring preserves sums and products. So either 2^e and all its repeated squares make the code MDS,
        // or none of them does. Only the one with the least exponent is tried.
        let is_least = |e: &usize| (1..8).all(|squarings| *e <= (e << squarings) % ELEMENTS);
        let exponents = (1..ELEMENTS).filter(is_primitive).filter(is_least);
        exponents.map(|e| pow(2, e as u32)).find(|&primitive| self.is_mds(primitive))
    }

    fn is_mds(self, primitive: u8) -> bool {
        let check = self.check_matrix(primitive).transposed();
        every_set(self.n, self.n - self.k, |lost| {
            let rows: Vec<usize> =
                lost.iter().flat_map(|block| block * self.alpha..(block + 1) * self.alpha).collect();
            check.select_rows(&rows).rank() == rows.len()
        })
    }
}

/// Checks the limits on α, and that some primitive element makes the code MDS.
pub(crate) fn check(n: usize, k: usize, alpha: usize) -> Result<(), SpecError> {
    primitive(Layout { n, k, alpha }).map(drop)
}

/// Returns the primitive element of a code, which is searched for only once per process.
fn primitive(layout: Layout) -> Result<u8, SpecError> {
    static FOUND: Mutex<BTreeMap<Layout, Option<u8>>> = Mutex::new(BTreeMap::new());
    let Layout { n, k, alpha } = layout;
    if alpha < 2 || alpha > n - k || n < alpha + 1 {
        return Err(SpecError::LessSubBlocks { n, k, alpha });
    }
    let mut found = FOUND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let primitive = found.entry(layout).or_insert_with(|| layout.primitive());
    primitive.ok_or(SpecError::LessCoefficients { n, k, alpha })
}

impl Less {
    /// Creates the `(n, k)` code with `alpha` sub-blocks.
    ///
    /// # Errors
    /// If the parameters are outside the code's limits.
    pub fn new(n: usize, k: usize, alpha: usize) -> Result<Self, SpecError> {
        let spec = CodeSpec::Less { n, k, alpha };
        spec.check()?;
        let layout = Layout { n, k, alpha };
        let check = layout.check_matrix(primitive(layout)?);
        let rows: Vec<usize> = (0..check.rows()).collect();
        let part = |columns: std::ops::Range<usize>| check.select(&rows, &columns.collect::<Vec<_>>());
        let to_parity = part(k * alpha..n * alpha).inverse().expect("the parity blocks can be lost together");
        let code = Systematic::new(alpha, to_parity.product(&part(0..k * alpha)));
        Ok(Self { spec, layout, encoding: code.encoding(), code })
    }

    /// Returns the (block, sub-block) reads that rebuild a single lost block from its extended sub-stripe,
    /// preferred blocks first; `None` if too many sub-blocks are missing, or if full decoding reads no more.
    fn saving_reads(&self, lost: usize, erasure: &Erasure) -> Option<Vec<(usize, usize)>> {
        let Layout { n, k, alpha } = self.layout;
        let (stripe, _) = self.layout.group(lost);
        let all = |block: usize| (0..alpha).map(move |sub| (block, sub));
        let inside = |&(block, sub): &(usize, usize)| self.layout.is_in(block, sub, stripe);
        let size = (0..n).flat_map(all).filter(inside).count();
        let needed = size - (n - k);
        let available = erasure.present.iter().flat_map(|&block| all(block)).filter(inside);
        let reads: Vec<(usize, usize)> = available.take(needed).collect();
        (reads.len() == needed && needed < k * alpha).then_some(reads)
    }
}

impl Code for Less {
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
        self.layout.alpha
    }

    fn encoding(&self) -> &Recipe {
        &self.encoding
    }

    fn repair(&self, wanted: &[BlockIndex], available: &[BlockIndex]) -> Result<Recipe, DecodeError> {
        let erasure = Erasure::new(self.blocks(), wanted, available)?;
        if let [lost] = erasure.lost[..]
            && let Some(reads) = self.saving_reads(lost, &erasure)
        {
            return self.code.solve_reading(&erasure, |block, sub| reads.contains(&(block, sub)));
        }
        self.code.solve_from(&erasure, erasure.any(self.data_blocks())?)
    }
}
