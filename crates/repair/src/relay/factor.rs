//! Sums of many terms that go through values which several of them share.
//!
//! A parity sub-block of Clay is a sum of some 30 data sub-blocks, three times as many as in Reed-Solomon. But the code is
//! defined by few operations: pairs of stored sub-blocks give pairs of uncoupled ones, in each plane a Reed-Solomon code
//! gives the parity of these, and pairs of them give what is stored. A plan names only the long sums, which are
//! enough to find all this again: inputs that occur in the same sums are a pair, and of two sums of the same inputs,
//! those parts that are proportional are a value by itself.
//!
//! The inputs are many, too, and do not stay in the processor's cache, nor their addresses in its translation buffer, from
//! one operation to the next. So sums that share values are done together and at once, the values of pairs anew for
//! each such part: in Clay (14, 10, 13) that is 16 parity sub-blocks of four planes, from some 80 inputs.

use std::collections::BTreeMap;
use std::ops::Range;

use gf::{Kernel, inv, mul};

use super::cover::LocalSum;

/// Bytes of each input at a time: of the hundred inputs and values of a part, half a megabyte.
const STRIP_BYTES: usize = 4 << 10;
/// Below this many sums there is nothing to gain.
const LEAST_SUMS: usize = 16;

/// A row of coefficients over numbered values.
type Row = Vec<(usize, u8)>;

/// Sums in parts that share no values but inputs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Factors {
    parts: Vec<Part>,
}

/// Sums in three steps: of pairs of inputs, of these and inputs, and of pairs of those.
#[derive(Debug, Default, PartialEq)]
struct Part {
    pairs: Step,
    /// Its sources are inputs, and beyond these the targets of the pairs.
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
        let (parts, order) = Middles::of(&rows).into_parts(&pairs, inputs);
        let factors = Self { parts };
        (factors.products() * 3 < products * 2).then_some((order, factors))
    }

    fn products(&self) -> usize {
        let of = |part: &Part| part.pairs.products() + part.middles.products() + part.sums.products();
        self.parts.iter().map(of).sum()
    }

    /// Computes the sums, which come in the order that [`Factors::of`] gave; `scratch` is for what is between.
    pub(super) fn compute(
        &self,
        kernel: Kernel,
        scratch: &mut Vec<u8>,
        inputs: &[&[u8]],
        sums: &mut [&mut [u8]],
    ) {
        let bytes = inputs.first().map_or(0, |input| input.len());
        let values =
            self.parts.iter().map(|part| part.pairs.targets + part.middles.targets).max().unwrap_or(0);
        scratch.resize(values * STRIP_BYTES, 0);
        for start in (0..bytes).step_by(STRIP_BYTES) {
            let strip = start..bytes.min(start + STRIP_BYTES);
            let mut sums = sums.iter_mut();
            for part in &self.parts {
                part.compute(kernel, scratch, &strip, inputs, sums.by_ref());
            }
        }
    }
}

impl Part {
    /// Computes a strip of the next sums.
    fn compute<'t, 'b: 't>(
        &self,
        kernel: Kernel,
        scratch: &mut [u8],
        strip: &Range<usize>,
        inputs: &[&[u8]],
        sums: impl Iterator<Item = &'t mut &'b mut [u8]>,
    ) {
        let (pairs, middles) = scratch.split_at_mut(self.pairs.targets * STRIP_BYTES);
        let length = strip.len();
        let input = |number: usize| &inputs[number][strip.clone()];
        self.pairs.compute(kernel, input, pairs.chunks_mut(STRIP_BYTES).map(|chunk| &mut chunk[..length]));
        let value = |number: usize| match number.checked_sub(inputs.len()) {
            None => input(number),
            Some(pair) => &pairs[pair * STRIP_BYTES..][..length],
        };
        let targets = middles.chunks_mut(STRIP_BYTES).map(|chunk| &mut chunk[..length]);
        self.middles.compute(kernel, value, targets);
        let middle = |number: usize| &middles[number * STRIP_BYTES..][..length];
        self.sums.compute(kernel, middle, sums.map(|sum| &mut sum[strip.clone()]));
    }
}

/// Where just two inputs occur in the same rows, and in these in one of two proportions, makes values of the two of them,
/// numbered from `inputs` on.
fn take_pairs(rows: &mut [Row], inputs: usize) -> Vec<Row> {
    let mut occurrences: Vec<Vec<(usize, u8)>> = vec![Vec::new(); inputs];
    for (number, row) in rows.iter().enumerate() {
        row.iter().for_each(|&(input, coefficient)| occurrences[input].push((number, coefficient)));
    }
    let mut alike: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (input, occurrences) in occurrences.iter().enumerate() {
        alike.entry(occurrences.iter().map(|&(row, _)| row).collect()).or_default().push(input);
    }
    let mut pairs: Vec<Row> = Vec::new();
    for (in_rows, together) in alike {
        let &[first, second] = &together[..] else { continue };
        let both = occurrences[first].iter().zip(&occurrences[second]);
        let ratios: Vec<u8> = both.map(|(&(_, a), &(_, b))| quotient(b, a)).collect();
        let classes = distinct(&ratios);
        if classes.len() > 2 || in_rows.len() <= classes.len() {
            continue;
        }
        let number = inputs + pairs.len();
        pairs.extend(classes.iter().map(|&ratio| vec![(first, 1), (second, ratio)]));
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
    pairs
}

/// What the last step adds up.
struct Middles {
    /// The sums of pairs and inputs.
    values: Vec<Row>,
    /// Sums of the same values: which, and their rows over these.
    sums: Vec<(Vec<usize>, Vec<Row>)>,
}

impl Middles {
    /// Splits two rows of the same values into the parts in which they are proportional, if there are two; other rows are
    /// values by themselves.
    fn of(rows: &[Row]) -> Self {
        let mut values: Vec<Row> = Vec::new();
        let mut sums = Vec::new();
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
        Self { values, sums }
    }

    /// Puts together what shares values; also returns the order of the sums.
    fn into_parts(self, pairs: &[Row], inputs: usize) -> (Vec<Part>, Vec<usize>) {
        let passes: Vec<Vec<usize>> = by_sources(&self.values).into_values().collect();
        let mut pass_of = vec![0; self.values.len()];
        for (pass, values) in passes.iter().enumerate() {
            values.iter().for_each(|&value| pass_of[value] = pass);
        }
        let mut together = UnionFind::new(passes.len());
        for (_, rows) in &self.sums {
            for pair in rows[0].windows(2) {
                together.union(pass_of[pair[0].0], pass_of[pair[1].0]);
            }
        }
        let mut members: BTreeMap<usize, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for pass in 0..passes.len() {
            members.entry(together.find(pass)).or_default().0.push(pass);
        }
        for (sum, (_, rows)) in self.sums.iter().enumerate() {
            members.entry(together.find(pass_of[rows[0][0].0])).or_default().1.push(sum);
        }
        let (mut parts, mut order) = (Vec::new(), Vec::new());
        for (of_passes, of_sums) in members.into_values() {
            let mut part = Part::default();
            let mut pair_numbers: BTreeMap<usize, usize> = BTreeMap::new();
            let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
            for pass in of_passes {
                let rows: Vec<Row> = passes[pass].iter().map(|&value| self.values[value].clone()).collect();
                let rows: Vec<Row> = rows
                    .into_iter()
                    .map(|row| part.with_pairs(row, pairs, inputs, &mut pair_numbers))
                    .collect();
                let first = part.middles.push(&rows.iter().collect::<Vec<_>>());
                numbers.extend(passes[pass].iter().copied().zip(first..));
            }
            for sum in of_sums {
                let (which, rows) = &self.sums[sum];
                let renumber = |row: &Row| row.iter().map(|&(value, c)| (numbers[&value], c)).collect();
                let rows: Vec<Row> = rows.iter().map(renumber).collect();
                part.sums.push(&rows.iter().collect::<Vec<_>>());
                order.extend(which);
            }
            parts.push(part);
        }
        (parts, order)
    }
}

impl Part {
    /// The row with the part's own numbers of its pairs, which are computed for it if they are not yet.
    fn with_pairs(
        &mut self,
        row: Row,
        pairs: &[Row],
        inputs: usize,
        numbers: &mut BTreeMap<usize, usize>,
    ) -> Row {
        let mut number = |value: usize| match value.checked_sub(inputs) {
            None => value,
            Some(pair) => inputs + *numbers.entry(pair).or_insert_with(|| self.pairs.push(&[&pairs[pair]])),
        };
        row.into_iter().map(|(value, coefficient)| (number(value), coefficient)).collect()
    }
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

/// Which of some things belong together.
struct UnionFind {
    parent: Vec<usize>,
}

impl UnionFind {
    fn new(things: usize) -> Self {
        Self { parent: (0..things).collect() }
    }

    fn find(&self, mut thing: usize) -> usize {
        while self.parent[thing] != thing {
            thing = self.parent[thing];
        }
        thing
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b)] = a.min(b);
    }
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
            factors.compute(Kernel::best(), &mut Vec::new(), &sources, &mut targets);
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
        assert_eq!(factors.parts.len(), 64, "planes that differ in the digit of the parity blocks only");
        // Where a virtual block is coupled with a data block, its part is not zero; so some planes have two inputs more.
        let is_plane = |pass: &Pass| matches!((pass.sources.len(), pass.targets), (10 | 12, 4));
        let is_part = |part: &Part| part.middles.passes.len() == 4 && part.sums.targets == 16;
        assert!(factors.parts.iter().all(is_part));
        assert!(factors.parts.iter().flat_map(|part| &part.middles.passes).all(is_plane));
        let long: usize = sums.iter().map(|sum| sum.terms.len()).sum();
        assert_eq!((factors.products(), long), (16_384, 31_360), "Reed-Solomon in each plane has 10,240");
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
