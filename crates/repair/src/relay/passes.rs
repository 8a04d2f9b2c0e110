//! Sums that are computed together: some passes over their inputs, strip by strip.
//!
//! A pass reads each of its inputs once for four sums. The widest pass over a sum begins it, and others, as those that make
//! up the rows of Hitchhiker's second half, add to it. Sums that are mixed at the end are computed strip by strip, so that
//! they are still close by then. (Strips for the others, short enough for the first cache to hold all that passes share,
//! are slower: each begins anew at each input.)

use std::ops::Range;

use gf::{Kernel, Pair};

/// Bytes of each sum before they are mixed: of Clay's 16 and their 80 inputs, what the second cache holds.
const STRIP_BYTES: usize = 4 << 10;

/// Some sums of some inputs, both numbered from 0, and how they are computed.
#[derive(Debug, PartialEq)]
pub(super) struct Passes {
    /// Those that begin their sums, and whether they do: the others add to them.
    passes: Vec<(Pass, bool)>,
    mixes: Vec<Mix>,
}

/// All sources and pairs are added to all targets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pass {
    /// Numbers of inputs.
    pub(super) sources: Vec<usize>,
    /// Further sources, each made of two inputs.
    pub(super) pairs: Vec<Couple>,
    /// Numbers of sums, ascending.
    pub(super) targets: Vec<usize>,
    /// Row-major, targets × sources and pairs.
    pub(super) coefficients: Vec<u8>,
}

/// Two inputs that occur together: `first + ratio · second`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Couple {
    pub(super) first: usize,
    pub(super) ratio: u8,
    pub(super) second: usize,
}

/// Two values become two sums: first + second, and ratios[0] · first + ratios[1] · second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mix {
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) ratios: [u8; 2],
}

impl Passes {
    /// Passes that compute sums `0..sums`, which are mixed at the end.
    pub(super) fn new(mut passes: Vec<Pass>, mixes: Vec<Mix>, sums: usize) -> Self {
        // What does most begins sums; it would read its inputs twice if it were to begin some and to add to others.
        passes.sort_by_key(|pass| std::cmp::Reverse(pass.products()));
        let mut is_begun = vec![false; sums];
        let mut halves = Vec::new();
        for pass in passes {
            let (adds, begins): (Vec<usize>, Vec<usize>) =
                (0..pass.targets.len()).partition(|&row| is_begun[pass.targets[row]]);
            pass.targets.iter().for_each(|&target| is_begun[target] = true);
            let rows = [(begins, true), (adds, false)].into_iter().filter(|(rows, _)| !rows.is_empty());
            halves.extend(rows.map(|(rows, begins)| (pass.rows(&rows), begins)));
        }
        debug_assert!(is_begun.iter().all(|&begun| begun), "every sum is of something");
        Self { passes: halves, mixes }
    }

    /// Computes the sums.
    pub(super) fn compute(&self, kernel: Kernel, inputs: &[&[u8]], sums: &mut [&mut [u8]]) {
        let bytes = inputs.first().map_or(0, |input| input.len());
        let strip_bytes = if self.mixes.is_empty() { bytes.max(1) } else { STRIP_BYTES };
        for start in (0..bytes).step_by(strip_bytes) {
            let strip = start..bytes.min(start + strip_bytes);
            self.passes.iter().for_each(|(pass, begins)| pass.compute(kernel, *begins, &strip, inputs, sums));
            for mix in &self.mixes {
                let both = sums.get_disjoint_mut([mix.first, mix.second]);
                let [first, second] = both.expect("a mix is of two sums");
                kernel.mix(mix.ratios, &mut first[strip.clone()], &mut second[strip.clone()]);
            }
        }
    }

    /// Products for each byte.
    pub(super) fn products(&self) -> usize {
        self.passes.iter().map(|(pass, _)| pass.products()).sum::<usize>() + 2 * self.mixes.len()
    }
}

impl Pass {
    fn compute(
        &self,
        kernel: Kernel,
        begins: bool,
        strip: &Range<usize>,
        inputs: &[&[u8]],
        sums: &mut [&mut [u8]],
    ) {
        let input = |number: usize| &inputs[number][strip.clone()];
        let sources: Vec<&[u8]> = self.sources.iter().map(|&number| input(number)).collect();
        let pair = |couple: &Couple| Pair {
            first: input(couple.first),
            c: couple.ratio,
            second: input(couple.second),
        };
        let pairs: Vec<Pair<'_>> = self.pairs.iter().map(pair).collect();
        let mut next = self.targets.iter().copied().peekable();
        let of_pass = sums.iter_mut().enumerate().filter(|&(sum, _)| next.next_if_eq(&sum).is_some());
        let mut targets: Vec<&mut [u8]> = of_pass.map(|(_, sum)| &mut sum[strip.clone()]).collect();
        kernel.combine_pairs(&self.coefficients, &sources, &pairs, &mut targets, !begins);
    }

    /// Some of its rows, by their positions.
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

    /// Coefficients by input.
    pub(in crate::relay) type Row = BTreeMap<usize, u8>;

    impl Passes {
        /// What the sums are, worked out term by term.
        pub(in crate::relay) fn rows(&self) -> BTreeMap<usize, Row> {
            let mut rows = BTreeMap::new();
            for (pass, begins) in &self.passes {
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
            }
            for mix in &self.mixes {
                let [a, b] = [&rows[&mix.first], &rows[&mix.second]].map(Clone::clone);
                rows.insert(mix.first, sum([(1, &a), (1, &b)]));
                rows.insert(mix.second, sum([(mix.ratios[0], &a), (mix.ratios[1], &b)]));
            }
            rows
        }

        /// What is added to what, in turn, and whether it begins it.
        pub(in crate::relay) fn shapes(&self) -> Vec<(Vec<usize>, Vec<usize>, bool)> {
            let shape = |(pass, begins): &(Pass, bool)| (pass.sources.clone(), pass.targets.clone(), *begins);
            self.passes.iter().map(shape).collect()
        }

        /// For each pass how many sources, counting pairs, and targets it has.
        pub(in crate::relay) fn sizes(&self) -> Vec<(usize, usize)> {
            let size = |(pass, _): &(Pass, bool)| (pass.sources.len() + pass.pairs.len(), pass.targets.len());
            self.passes.iter().map(size).collect()
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
        // One that begins whatever the others do not.
        rest.prop_map(|mut passes| {
            let (sources, targets) = (vec![4], (0..5).collect());
            passes.push(Pass { sources, pairs: Vec::new(), targets, coefficients: vec![7; 5] });
            passes
        })
    }

    proptest! {
        #[test]
        fn passes_compute_what_their_terms_say(
            passes in passes(),
            mixed in any::<bool>(),
            bytes in prop::sample::select(vec![1_usize, 300, STRIP_BYTES, STRIP_BYTES + 1, 2 * STRIP_BYTES + 77]),
        ) {
            let mixes = if mixed { vec![Mix { first: 3, second: 1, ratios: [2, 5] }] } else { Vec::new() };
            let passes = Passes::new(passes, mixes, 5);
            let data: Vec<Vec<u8>> = (0..9)
                .map(|input: usize| (0..bytes).map(|at| (input * 151 + at * 29 + (at >> 8)) as u8).collect())
                .collect();
            let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let rows = passes.rows();
            for &kernel in Kernel::available() {
                let mut sums = vec![vec![0xa5; bytes]; 5];
                let mut targets: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
                passes.compute(kernel, &inputs, &mut targets);
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
