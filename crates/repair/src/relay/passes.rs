//! Sums that are computed together, as a sequence of passes over their inputs.
//!
//! A pass reads each of its inputs once for every four sums. Each sum is begun by the largest of its passes.
//! The remaining terms of the sum, as in the rows of Hitchhiker's second half, are either added in a later
//! pass, or carried along by the first pass while the sum is in registers. Sums that are mixed at the end
//! (see `Mix`) are computed strip by strip (a strip is a short range of bytes), so that they are still in the
//! cache for the mix. Other sums are computed as a single strip: strips short enough to keep the shared
//! inputs in the cache would be slower, because every strip has to start on every input again.

use std::ops::Range;

use gf::{Kernel, Pair, Single, Terms};

/// Bytes of each sum in a strip before the mix: small enough for 16 sums of Clay to stay in the L2 cache, and
/// large enough that starting each of 80 inputs again costs little; with 2 KiB that cost shows.
const STRIP_BYTES: usize = 8 << 10;

/// The computation of some sums from some inputs, both numbered from 0.
#[derive(Debug, PartialEq)]
pub(super) struct Passes {
    steps: Vec<Step>,
    mixes: Vec<Mix>,
}

/// One pass in the sequence.
#[derive(Debug, PartialEq)]
struct Step {
    pass: Pass,
    /// Whether the pass overwrites its sums rather than adding to them.
    begins: bool,
    /// Terms carried along for single sums, ascending by row.
    extras: Vec<Extra>,
}

/// A term that the pass adds to only one of its sums.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extra {
    /// The position of the sum among the pass's targets.
    row: usize,
    coefficient: u8,
    source: usize,
}

/// A pass: all sources and pairs, multiplied by coefficients, are added to all targets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pass {
    /// The numbers of plain inputs.
    pub(super) sources: Vec<usize>,
    /// Further sources, each computed from two inputs.
    pub(super) pairs: Vec<Couple>,
    /// The numbers of the sums, ascending.
    pub(super) targets: Vec<usize>,
    /// The coefficients, row-major: targets × (sources, then pairs).
    pub(super) coefficients: Vec<u8>,
}

/// A pair of inputs, read as `first + ratio · second`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Couple {
    pub(super) first: usize,
    pub(super) ratio: u8,
    pub(super) second: usize,
}

/// Turns two values into two sums: first + second, and ratios[0] · first + ratios[1] · second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mix {
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) ratios: [u8; 2],
}

impl Passes {
    /// Puts the passes that compute sums `0..sums` into order; `mixes` are applied at the end.
    pub(super) fn new(mut passes: Vec<Pass>, mixes: Vec<Mix>, sums: usize) -> Self {
        // The pass with the most products goes first, because a pass that begins some of its sums and adds to
        // others becomes two steps, which read its inputs twice.
        passes.sort_by_key(|pass| std::cmp::Reverse(pass.products()));
        let mut begun_by: Vec<Option<usize>> = vec![None; sums];
        let mut steps: Vec<Step> = Vec::new();
        for pass in passes {
            let (adds, begins): (Vec<usize>, Vec<usize>) =
                (0..pass.targets.len()).partition(|&row| begun_by[pass.targets[row]].is_some());
            if !begins.is_empty() {
                begins.iter().for_each(|&row| begun_by[pass.targets[row]] = Some(steps.len()));
                steps.push(Step::new(pass.rows(&begins), true));
            }
            if adds.is_empty() {
                continue;
            }
            let added = pass.rows(&adds);
            if !added.is_cheaper_taken_along() {
                steps.push(Step::new(added, false));
                continue;
            }
            for (row, &target) in added.targets.iter().enumerate() {
                let step = begun_by[target].expect("an earlier pass has begun this sum");
                steps[step].take_along(added.row(row), target);
            }
        }
        debug_assert!(begun_by.iter().all(Option::is_some), "every sum is of something");
        Self { steps, mixes }
    }

    /// Computes the sums from inputs of `bytes` bytes each.
    pub(super) fn compute<'a>(
        &self,
        kernel: Kernel,
        bytes: usize,
        input: impl Fn(usize) -> &'a [u8],
        sums: &mut [&mut [u8]],
    ) {
        let strip_bytes = if self.mixes.is_empty() { bytes.max(1) } else { STRIP_BYTES };
        for start in (0..bytes).step_by(strip_bytes) {
            let strip = start..bytes.min(start + strip_bytes);
            let input = |number: usize| &input(number)[strip.clone()];
            self.steps.iter().for_each(|step| step.compute(kernel, &strip, input, sums));
            for mix in &self.mixes {
                let both = sums.get_disjoint_mut([mix.first, mix.second]);
                let [first, second] = both.expect("a mix is of two sums");
                kernel.mix(mix.ratios, &mut first[strip.clone()], &mut second[strip.clone()]);
            }
        }
    }

    /// The number of products that it takes to compute one byte of every sum.
    pub(super) fn products(&self) -> usize {
        self.steps.iter().map(Step::products).sum::<usize>() + 2 * self.mixes.len()
    }
}

impl Step {
    fn new(pass: Pass, begins: bool) -> Self {
        Self { pass, begins, extras: Vec::new() }
    }

    /// Carries more terms along for one of the pass's sums.
    fn take_along(&mut self, terms: impl Iterator<Item = (usize, u8)>, target: usize) {
        let row = self.pass.targets.binary_search(&target).expect("the pass begins this sum");
        self.extras.extend(terms.map(|(source, coefficient)| Extra { row, coefficient, source }));
        self.extras.sort_by_key(|extra| extra.row);
    }

    /// Runs the pass on a strip; `input` returns the strip of an input.
    fn compute<'a>(
        &self,
        kernel: Kernel,
        strip: &Range<usize>,
        input: impl Fn(usize) -> &'a [u8],
        sums: &mut [&mut [u8]],
    ) {
        let Pass { sources, pairs, targets, coefficients } = &self.pass;
        let sources: Vec<&[u8]> = sources.iter().map(|&number| input(number)).collect();
        let pair = |couple: &Couple| Pair {
            first: input(couple.first),
            c: couple.ratio,
            second: input(couple.second),
        };
        let pairs: Vec<Pair<'_>> = pairs.iter().map(pair).collect();
        let single =
            |extra: &Extra| Single { target: extra.row, c: extra.coefficient, source: input(extra.source) };
        let singles: Vec<Single<'_>> = self.extras.iter().map(single).collect();
        let mut next = targets.iter().copied().peekable();
        let of_pass = sums.iter_mut().enumerate().filter(|&(sum, _)| next.next_if_eq(&sum).is_some());
        let mut targets: Vec<&mut [u8]> = of_pass.map(|(_, sum)| &mut sum[strip.clone()]).collect();
        let terms = Terms { coefficients, sources: &sources, pairs: &pairs, singles: &singles };
        kernel.combine_terms(terms, &mut targets, !self.begins);
    }

    fn products(&self) -> usize {
        self.pass.products() + self.extras.len()
    }
}

impl Pass {
    /// The pass restricted to some rows, given by position.
    fn rows(&self, rows: &[usize]) -> Self {
        let columns = self.sources.len() + self.pairs.len();
        let row = |&row: &usize| &self.coefficients[row * columns..][..columns];
        Self {
            sources: self.sources.clone(),
            pairs: self.pairs.clone(),
            targets: rows.iter().map(|&row| self.targets[row]).collect(),
            coefficients: rows.iter().flat_map(row).copied().collect(),
        }
    }

    /// The terms of a row, in a pass without pairs.
    fn row(&self, row: usize) -> impl Iterator<Item = (usize, u8)> {
        let coefficients = &self.coefficients[row * self.sources.len()..];
        self.sources.iter().copied().zip(coefficients.iter().copied())
    }

    /// Whether it is cheaper to carry these terms along, which reads the sources again for each sum, than to
    /// run another pass, which loads and stores the sums again.
    fn is_cheaper_taken_along(&self) -> bool {
        let (sources, targets) = (self.sources.len(), self.targets.len());
        self.pairs.is_empty() && sources * targets <= sources + 2 * targets
    }

    fn products(&self) -> usize {
        self.coefficients.len() + self.pairs.len()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use gf::mul;
    use proptest::prelude::*;

    use super::*;

    /// The coefficients of a sum, by input.
    pub(in crate::relay) type Row = BTreeMap<usize, u8>;
    /// The sources and targets of a pass, and its extra terms as (source, target).
    pub(in crate::relay) type Shape = (Vec<usize>, Vec<usize>, Vec<(usize, usize)>);

    impl Passes {
        /// The coefficients of all sums, computed term by term.
        pub(in crate::relay) fn rows(&self) -> BTreeMap<usize, Row> {
            let mut rows = BTreeMap::new();
            for Step { pass, begins, extras } in &self.steps {
                let columns = pass.sources.len() + pass.pairs.len();
                for (&target, coefficients) in pass.targets.iter().zip(pass.coefficients.chunks(columns)) {
                    assert_eq!(rows.contains_key(&target), !begins, "sum {target}");
                    let row: &mut Row = rows.entry(target).or_default();
                    let (plain, of_pairs) = coefficients.split_at(pass.sources.len());
                    plain.iter().zip(&pass.sources).for_each(|(&c, &source)| add(row, source, c));
                    for (&c, pair) in of_pairs.iter().zip(&pass.pairs) {
                        add(row, pair.first, c);
                        add(row, pair.second, mul(c, pair.ratio));
                    }
                }
                for extra in extras {
                    let row = rows.get_mut(&pass.targets[extra.row]).expect("a target of the pass");
                    add(row, extra.source, extra.coefficient);
                }
            }
            for mix in &self.mixes {
                let [a, b] = [&rows[&mix.first], &rows[&mix.second]].map(Clone::clone);
                rows.insert(mix.first, sum([(1, &a), (1, &b)]));
                rows.insert(mix.second, sum([(mix.ratios[0], &a), (mix.ratios[1], &b)]));
            }
            rows
        }

        /// The shape of each pass, in order.
        pub(in crate::relay) fn shapes(&self) -> Vec<Shape> {
            let extra = |pass: &Pass, extra: &Extra| (extra.source, pass.targets[extra.row]);
            let shape = |Step { pass, extras, .. }: &Step| {
                let extras = extras.iter().map(|of| extra(pass, of)).collect();
                (pass.sources.clone(), pass.targets.clone(), extras)
            };
            self.steps.iter().map(shape).collect()
        }

        /// For each pass, the number of sources (including pairs) and of targets.
        pub(in crate::relay) fn sizes(&self) -> Vec<(usize, usize)> {
            let size = |Step { pass, .. }: &Step| (pass.sources.len() + pass.pairs.len(), pass.targets.len());
            self.steps.iter().map(size).collect()
        }
    }

    fn add(row: &mut Row, input: usize, c: u8) {
        let coefficient = row.entry(input).or_default();
        *coefficient ^= c;
        if *coefficient == 0 {
            row.remove(&input);
        }
    }

    fn sum(of: [(u8, &Row); 2]) -> Row {
        let mut sum = Row::new();
        for (factor, row) in of {
            row.iter().for_each(|(&input, &c)| add(&mut sum, input, mul(factor, c)));
        }
        sum
    }

    fn passes() -> impl Strategy<Value = Vec<Pass>> {
        let shape =
            (prop::collection::btree_set(0..9_usize, 1..6), prop::collection::btree_set(0..5_usize, 1..5));
        let pass = (shape, 0..4_usize, any::<u8>()).prop_map(|((sources, targets), pairs, seed)| {
            let c = |i: usize| seed.wrapping_mul(i as u8 + 3) | 1;
            let couple = |i: usize| Couple { first: i, ratio: c(i), second: 8 - i };
            let products = (sources.len() + pairs) * targets.len();
            Pass {
                sources: sources.into_iter().collect(),
                pairs: (0..pairs).map(couple).collect(),
                targets: targets.into_iter().collect(),
                coefficients: (0..products).map(c).collect(),
            }
        });
        let rest = prop::collection::vec(pass, 0..5);
        // Add a last pass, which begins all sums that no other pass begins.
        rest.prop_map(|mut passes| {
            let (sources, targets) = (vec![4], (0..5).collect());
            passes.push(Pass { sources, pairs: Vec::new(), targets, coefficients: vec![7; 5] });
            passes
        })
    }

    proptest! {
        #[test]
        fn passes_compute_the_sums_of_their_terms(
            passes in passes(),
            mixed in any::<bool>(),
            bytes in prop::sample::select(vec![1_usize, 300, STRIP_BYTES, STRIP_BYTES + 1, 2 * STRIP_BYTES + 77]),
        ) {
            let mixes = if mixed { vec![Mix { first: 3, second: 1, ratios: [2, 5] }] } else { Vec::new() };
            let passes = Passes::new(passes, mixes, 5);
            let data: Vec<Vec<u8>> = (0..9)
                .map(|input: usize| (0..bytes).map(|at| (input * 151 + at * 29 + (at >> 8)) as u8).collect())
                .collect();
            let rows = passes.rows();
            for &kernel in Kernel::available() {
                let mut sums = vec![vec![0xa5; bytes]; 5];
                let mut targets: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
                passes.compute(kernel, bytes, |input| &data[input], &mut targets);
                for (number, found) in sums.iter().enumerate() {
                    let mut expected = vec![0; bytes];
                    for (&input, &c) in &rows[&number] {
                        expected.iter_mut().zip(&data[input]).for_each(|(e, &byte)| *e ^= mul(c, byte));
                    }
                    prop_assert!(*found == expected, "{kernel:?}, sum {number}");
                }
            }
        }
    }
}
