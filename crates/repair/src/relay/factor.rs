//! Sums of many terms that go through values which several of them share.
//!
//! A parity sub-block of Clay is a sum of some 30 data sub-blocks, three times as many as in Reed-Solomon. But the code is
//! defined by few operations: pairs of stored sub-blocks give pairs of uncoupled ones, in each plane a Reed-Solomon code
//! gives the parity of these, and pairs of them give what is stored. A plan names only the long sums, which are
//! enough to find all this again: inputs that occur in the same sums are a pair, and of two sums of the same inputs,
//! those parts that are proportional are a value by itself.
//!
//! The inputs are many, too, and do not stay in the processor's cache from one operation to the next. So all operations
//! are done for a strip of every input, and then for the next.

use std::collections::BTreeMap;

use gf::{Kernel, inv, mul};

use super::cover::LocalSum;

/// Bytes of each input at a time: with the 256 sub-blocks of ten blocks, what is computed of them is about a megabyte.
const STRIP_BYTES: usize = 256;
/// Below this many sums there is nothing to gain.
const LEAST_SUMS: usize = 16;

/// A row of coefficients over numbered values.
type Row = Vec<(usize, u8)>;

/// Sums in three steps: of pairs of inputs, of these and inputs, and of pairs of those.
#[derive(Debug, PartialEq)]
pub(super) struct Factors {
    pairs: Step,
    middles: Step,
    sums: Step,
}

/// Passes whose targets are numbered in turn.
#[derive(Debug, Default, PartialEq)]
struct Step {
    passes: Vec<Pass>,
    targets: usize,
}

/// Some values that are sums of the same values before them.
#[derive(Debug, PartialEq)]
struct Pass {
    sources: Vec<usize>,
    targets: usize,
    /// Row-major, targets × sources.
    coefficients: Vec<u8>,
}

impl Step {
    /// Adds targets that are sums of the same sources; returns the number of the first.
    fn push(&mut self, rows: &[&Row]) -> usize {
        let first = self.targets;
        self.targets += rows.len();
        self.passes.push(Pass {
            sources: rows[0].iter().map(|&(source, _)| source).collect(),
            targets: rows.len(),
            coefficients: rows
                .iter()
                .flat_map(|row| row.iter().map(|&(_, coefficient)| coefficient))
                .collect(),
        });
        first
    }

    fn products(&self) -> usize {
        self.passes.iter().map(|pass| pass.coefficients.len()).sum()
    }

    /// Computes all targets from the sources that `source` gives.
    fn compute<'s, 't>(
        &self,
        kernel: Kernel,
        source: impl Fn(usize) -> &'s [u8],
        mut targets: impl Iterator<Item = &'t mut [u8]>,
    ) {
        let mut sources: Vec<&[u8]> = Vec::new();
        let mut some: Vec<&mut [u8]> = Vec::new();
        for pass in &self.passes {
            sources.clear();
            sources.extend(pass.sources.iter().map(|&number| source(number)));
            some.clear();
            some.extend(targets.by_ref().take(pass.targets));
            kernel.combine(&pass.coefficients, &sources, &mut some);
        }
    }
}

impl Factors {
    /// How to compute sums of inputs `0..inputs` with far fewer products, and the order in which it computes them; `None`
    /// if they do not have it in them.
    pub(super) fn of(sums: &[LocalSum], inputs: usize) -> Option<(Vec<usize>, Self)> {
        if sums.len() < LEAST_SUMS {
            return None;
        }
        let mut rows: Vec<Row> = sums.iter().map(|sum| sum.terms.clone()).collect();
        let products: usize = rows.iter().map(Vec::len).sum();
        let pairs = take_pairs(&mut rows, inputs);
        let (middles, sums, order) = take_middles(&rows);
        let factors = Self { pairs, middles, sums };
        let left = factors.pairs.products() + factors.middles.products() + factors.sums.products();
        (left * 3 < products * 2).then_some((order, factors))
    }

    /// Computes the sums, which come in the order that [`Factors::of`] gave.
    pub(super) fn compute(&self, kernel: Kernel, inputs: &[&[u8]], sums: &mut [&mut [u8]]) {
        let bytes = inputs.first().map_or(0, |input| input.len());
        let mut pairs = vec![0; self.pairs.targets * STRIP_BYTES];
        let mut middles = vec![0; self.middles.targets * STRIP_BYTES];
        for start in (0..bytes).step_by(STRIP_BYTES) {
            let strip = start..bytes.min(start + STRIP_BYTES);
            let length = strip.len();
            let input = |number: usize| &inputs[number][strip.clone()];
            self.pairs.compute(
                kernel,
                input,
                pairs.chunks_mut(STRIP_BYTES).map(|chunk| &mut chunk[..length]),
            );
            let value = |number: usize| match number.checked_sub(inputs.len()) {
                None => input(number),
                Some(pair) => &pairs[pair * STRIP_BYTES..][..length],
            };
            let targets = middles.chunks_mut(STRIP_BYTES).map(|chunk| &mut chunk[..length]);
            self.middles.compute(kernel, value, targets);
            let middle = |number: usize| &middles[number * STRIP_BYTES..][..length];
            self.sums.compute(kernel, middle, sums.iter_mut().map(|sum| &mut sum[strip.clone()]));
        }
    }
}

/// Where just two inputs occur in the same rows, and in these in one of two proportions, makes values of the two of them,
/// numbered from `inputs` on.
fn take_pairs(rows: &mut [Row], inputs: usize) -> Step {
    let mut occurrences: Vec<Vec<(usize, u8)>> = vec![Vec::new(); inputs];
    for (number, row) in rows.iter().enumerate() {
        row.iter().for_each(|&(input, coefficient)| occurrences[input].push((number, coefficient)));
    }
    let mut alike: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (input, occurrences) in occurrences.iter().enumerate() {
        alike.entry(occurrences.iter().map(|&(row, _)| row).collect()).or_default().push(input);
    }
    let mut step = Step::default();
    for (in_rows, together) in alike {
        let &[first, second] = &together[..] else { continue };
        let both = occurrences[first].iter().zip(&occurrences[second]);
        let ratios: Vec<u8> = both.map(|(&(_, a), &(_, b))| quotient(b, a)).collect();
        let classes = distinct(&ratios);
        if classes.len() > 2 || in_rows.len() <= classes.len() {
            continue;
        }
        let values: Vec<Row> = classes.iter().map(|&ratio| vec![(first, 1), (second, ratio)]).collect();
        let number = inputs + step.push(&values.iter().collect::<Vec<_>>());
        for (&row, ratio) in in_rows.iter().zip(ratios) {
            let class = classes.iter().position(|&class| class == ratio).expect("one of them");
            rows[row].retain_mut(|term| {
                if term.0 == first {
                    term.0 = number + class;
                }
                term.0 != second
            });
        }
    }
    rows.iter_mut().for_each(|row| row.sort_unstable());
    step
}

/// Splits two rows of the same values into the parts in which they are proportional, if there are two; other rows are
/// values by themselves. Returns the steps that compute these values, and the rows from them in the order that it gives.
fn take_middles(rows: &[Row]) -> (Step, Step, Vec<usize>) {
    // What is computed in the first step, and for each row or pair of rows what it is made of.
    let mut values: Vec<Row> = Vec::new();
    let mut sums: Vec<(Vec<usize>, Vec<Row>)> = Vec::new();
    for (_, same) in by_sources(rows) {
        let split = match same[..] {
            [a, b] => split(&rows[a], &rows[b]),
            _ => None,
        };
        if let Some((parts, ratios)) = split {
            let number = values.len();
            values.extend(parts);
            let first = vec![(number, 1), (number + 1, 1)];
            sums.push((same, vec![first, vec![(number, ratios[0]), (number + 1, ratios[1])]]));
            continue;
        }
        for row in same {
            sums.push((vec![row], vec![vec![(values.len(), 1)]]));
            values.push(rows[row].clone());
        }
    }
    let mut middles = Step::default();
    let mut renumbered = vec![0; values.len()];
    for (_, same) in by_sources(&values) {
        let first = middles.push(&same.iter().map(|&value| &values[value]).collect::<Vec<_>>());
        same.into_iter().zip(first..).for_each(|(value, number)| renumbered[value] = number);
    }
    let (mut last, mut order) = (Step::default(), Vec::new());
    for (of, mut sums) in sums {
        sums.iter_mut().flatten().for_each(|term| term.0 = renumbered[term.0]);
        last.push(&sums.iter().collect::<Vec<_>>());
        order.extend(of);
    }
    (middles, last, order)
}

/// The rows that are of the same values.
fn by_sources(rows: &[Row]) -> BTreeMap<Vec<usize>, Vec<usize>> {
    let mut same: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        same.entry(row.iter().map(|&(value, _)| value).collect()).or_default().push(number);
    }
    same
}

/// The parts of row `a` on which `b` is a multiple of it, and the factors, if these are two.
fn split(a: &Row, b: &Row) -> Option<([Row; 2], [u8; 2])> {
    let ratios: Vec<u8> = a.iter().zip(b).map(|(&(_, a), &(_, b))| quotient(b, a)).collect();
    let &[first, second] = &distinct(&ratios)[..] else { return None };
    let part =
        |ratio: u8| a.iter().zip(&ratios).filter(|&(_, &of)| of == ratio).map(|(&term, _)| term).collect();
    Some(([part(first), part(second)], [first, second]))
}

fn quotient(b: u8, a: u8) -> u8 {
    mul(b, inv(a).unwrap_or(0))
}

fn distinct(values: &[u8]) -> Vec<u8> {
    let mut distinct = values.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

#[cfg(test)]
mod tests {
    use codes::CodeSpec;

    use super::*;

    fn sums_of(code: &str) -> (Vec<LocalSum>, usize) {
        let code = code.parse::<CodeSpec>().expect(code).build().expect(code);
        let encoding = code.encoding();
        let terms = |row: usize| encoding.row(row).iter().map(|&(source, c)| (source as usize, c)).collect();
        let sums = (0..encoding.outputs().len()).map(|output| LocalSum { output, terms: terms(output) });
        (sums.collect(), encoding.sources().len())
    }

    /// Whatever goes through shared values is what the long sums say, for lengths that are no multiple of a strip, too.
    #[test]
    fn factors_compute_the_sums() {
        for (code, bytes) in [
            ("clay-14-10-13", 300),
            ("clay-8-4-7", 1),
            ("clay-9-6-8", 513),
            ("clay-12-8-11-ceph-jerasure", 64),
        ] {
            let (sums, inputs) = sums_of(code);
            let (order, factors) = Factors::of(&sums, inputs).expect(code);
            let data: Vec<Vec<u8>> = (0..inputs)
                .map(|input| (0..bytes).map(|at| (input * 151 + at * 29 + (input >> 3) * at) as u8).collect())
                .collect();
            let mut found = vec![vec![0xa5; bytes]; sums.len()];
            let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut targets: Vec<&mut [u8]> = found.iter_mut().map(Vec::as_mut_slice).collect();
            factors.compute(Kernel::best(), &sources, &mut targets);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..sums.len()).collect::<Vec<_>>(), "{code}: every sum once");
            for (sum, found) in order.iter().zip(found) {
                let mut expected = vec![0; bytes];
                for &(input, coefficient) in &sums[*sum].terms {
                    expected.iter_mut().zip(&data[input]).for_each(|(e, &byte)| *e ^= mul(coefficient, byte));
                }
                assert_eq!(found, expected, "{code}: sum {sum}");
            }
        }
    }

    /// Clay's three steps are found in its sums: a pair for each coupled one, a Reed-Solomon code in each plane.
    #[test]
    fn the_operations_of_clay_are_found_again() {
        let (sums, inputs) = sums_of("clay-14-10-13");
        let (_, factors) = Factors::of(&sums, inputs).expect("Clay");
        // Where a virtual block is coupled with a data block, its part is not zero; so some planes have two inputs more.
        let is_plane = |pass: &Pass| matches!((pass.sources.len(), pass.targets), (10 | 12, 4));
        assert!(factors.middles.passes.iter().all(is_plane));
        assert_eq!(factors.middles.passes.len(), 256);
        assert!(factors.pairs.passes.iter().all(|pass| (pass.sources.len(), pass.targets) == (2, 2)));
        let long: usize = sums.iter().map(|sum| sum.terms.len()).sum();
        let products = factors.pairs.products() + factors.middles.products() + factors.sums.products();
        assert_eq!((products, long), (16_384, 31_360), "Reed-Solomon in each plane has 10,240");
    }

    #[test]
    fn sums_without_such_values_are_left_alone() {
        for code in [
            "rs-14-10",
            "hitchhiker-xor-14-10",
            "rotated-16-12-4",
            "lrc-12-2-2",
            "less-14-10-4",
            "rs-200-100",
        ] {
            let (sums, inputs) = sums_of(code);
            assert!(Factors::of(&sums, inputs).is_none(), "{code}");
        }
    }
}
