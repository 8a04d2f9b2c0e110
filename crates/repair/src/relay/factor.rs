//! Sums of many terms that go through values which several of them share.
//!
//! A parity sub-block of Clay is a sum of some 30 data sub-blocks, three times as many as in Reed-Solomon. But the code is
//! defined by few operations: pairs of stored sub-blocks give pairs of uncoupled ones, in each plane a Reed-Solomon code
//! gives the parity of these, and pairs of them give what is stored. A plan names only the long sums, which are
//! enough to find all this again: inputs that occur in the same sums are a pair, and of two sums of the same inputs,
//! those parts that are proportional are a value by itself.
//!
//! The inputs are many, too, and do not stay in the processor's cache, nor their addresses in its translation buffer, from
//! one operation to the next. So sums that share values are done together and at once, and nothing that is between has a
//! place in memory: a pair is added up in registers where a pass reads it, and what a pass computes for two sums is mixed
//! in the place of these. In Clay (14, 10, 13) that is 16 parity sub-blocks of four planes, from some 80 inputs.

use std::collections::BTreeMap;
use std::ops::Range;

use gf::{Kernel, Pair, inv, mul};

use super::cover::Terms;

/// Bytes of each input at a time: of the hundred inputs and sums of a part, what a processor keeps close by.
const STRIP_BYTES: usize = 4 << 10;
/// Below this many sums there is nothing to gain.
const LEAST_SUMS: usize = 16;

/// Sums in parts that share no values but inputs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Factors {
    parts: Vec<Part>,
}

/// Some sums: each a target of one pass, numbered in turn, and then mixed with another if they share their values.
#[derive(Debug, Default, PartialEq)]
struct Part {
    passes: Vec<Pass>,
    mixes: Vec<Mix>,
    targets: usize,
}

/// Some values that are sums of the same inputs and pairs of inputs.
#[derive(Debug, PartialEq)]
struct Pass {
    sources: Vec<usize>,
    pairs: Vec<Couple>,
    targets: usize,
    /// Row-major, targets × sources and pairs.
    coefficients: Vec<u8>,
}

/// Two inputs that occur together: `first + ratio · second`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Couple {
    first: usize,
    ratio: u8,
    second: usize,
}

/// Two values become two sums: first + second, and ratios[0] · first + ratios[1] · second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mix {
    first: usize,
    second: usize,
    ratios: [u8; 2],
}

impl Factors {
    /// How to compute sums of inputs `0..inputs` with far fewer products, and the order in which it computes them; `None`
    /// if they do not have it in them.
    pub(super) fn of(mut rows: Vec<Terms>, inputs: usize) -> Option<(Vec<usize>, Self)> {
        if rows.len() < LEAST_SUMS {
            return None;
        }
        let products: usize = rows.iter().map(Vec::len).sum();
        let couples = take_couples(&mut rows, inputs);
        let (parts, order) = Middles::of(&rows).into_parts(&couples, inputs);
        let factors = Self { parts };
        (factors.products() * 3 < products * 2).then_some((order, factors))
    }

    fn products(&self) -> usize {
        let of_pass = |pass: &Pass| pass.coefficients.len() + pass.pairs.len();
        let of_part = |part: &Part| part.passes.iter().map(of_pass).sum::<usize>() + 2 * part.mixes.len();
        self.parts.iter().map(of_part).sum()
    }

    /// Computes the sums, which come in the order that [`Factors::of`] gave.
    pub(super) fn compute(&self, kernel: Kernel, inputs: &[&[u8]], sums: &mut [&mut [u8]]) {
        let bytes = inputs.first().map_or(0, |input| input.len());
        for start in (0..bytes).step_by(STRIP_BYTES) {
            let strip = start..bytes.min(start + STRIP_BYTES);
            let mut sums = sums.iter_mut();
            for part in &self.parts {
                let of_part = sums.by_ref().take(part.targets);
                let mut targets: Vec<&mut [u8]> = of_part.map(|sum| &mut sum[strip.clone()]).collect();
                part.compute(kernel, &strip, inputs, &mut targets);
            }
        }
    }
}

impl Part {
    /// Computes a strip of its sums.
    fn compute(&self, kernel: Kernel, strip: &Range<usize>, inputs: &[&[u8]], targets: &mut [&mut [u8]]) {
        let input = |number: usize| &inputs[number][strip.clone()];
        let (mut sources, mut pairs) = (Vec::new(), Vec::new());
        let mut done = 0;
        for pass in &self.passes {
            sources.clear();
            sources.extend(pass.sources.iter().map(|&number| input(number)));
            pairs.clear();
            pairs.extend(pass.pairs.iter().map(|couple| Pair {
                first: input(couple.first),
                c: couple.ratio,
                second: input(couple.second),
            }));
            let of_pass = &mut targets[done..done + pass.targets];
            kernel.combine_pairs(&pass.coefficients, &sources, &pairs, of_pass);
            done += pass.targets;
        }
        for mix in &self.mixes {
            let both = targets.get_disjoint_mut([mix.first, mix.second]);
            let [first, second] = both.expect("a mix is of two targets");
            kernel.mix(mix.ratios, first, second);
        }
    }

    /// Adds targets that are sums of the same sources.
    fn push(&mut self, rows: &[&Terms], couples: &[Couple], inputs: usize) {
        let numbers = || rows[0].iter().map(|&(source, _)| source);
        self.targets += rows.len();
        self.passes.push(Pass {
            sources: numbers().filter(|&number| number < inputs).collect(),
            pairs: numbers().filter_map(|number| Some(couples[number.checked_sub(inputs)?])).collect(),
            targets: rows.len(),
            coefficients: rows.iter().flat_map(|row| row.iter().map(|&(_, c)| c)).collect(),
        });
    }
}

/// Where just two inputs occur in the same rows, and in these in one of two proportions, makes values of the two of them,
/// numbered from `inputs` on.
fn take_couples(rows: &mut [Terms], inputs: usize) -> Vec<Couple> {
    let mut occurrences: Vec<Vec<(usize, u8)>> = vec![Vec::new(); inputs];
    for (number, row) in rows.iter().enumerate() {
        row.iter().for_each(|&(input, coefficient)| occurrences[input].push((number, coefficient)));
    }
    let mut alike: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (input, occurrences) in occurrences.iter().enumerate() {
        alike.entry(occurrences.iter().map(|&(row, _)| row).collect()).or_default().push(input);
    }
    let mut couples: Vec<Couple> = Vec::new();
    for (in_rows, together) in alike {
        let &[first, second] = &together[..] else { continue };
        let both = occurrences[first].iter().zip(&occurrences[second]);
        let ratios: Vec<u8> = both.map(|(&(_, a), &(_, b))| quotient(b, a)).collect();
        let classes = distinct(&ratios);
        if classes.len() > 2 || in_rows.len() <= classes.len() {
            continue;
        }
        let number = inputs + couples.len();
        couples.extend(classes.iter().map(|&ratio| Couple { first, ratio, second }));
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
    // Pairs come after inputs, as the kernel takes them.
    rows.iter_mut().for_each(|row| row.sort_unstable());
    couples
}

/// What the passes compute.
#[derive(Default)]
struct Middles {
    /// A value in the place of each sum.
    values: Vec<Terms>,
    /// For each value: the sum in whose place it is.
    sums: Vec<usize>,
    /// Which values are mixed, so that they become the sums.
    mixes: Vec<Mix>,
}

impl Middles {
    /// Splits two rows of the same values into the parts in which they are proportional, if there are two; other rows are
    /// values by themselves.
    fn of(rows: &[Terms]) -> Self {
        let mut middles = Self::default();
        for (_, same) in by_sources(rows) {
            let split = match same[..] {
                [a, b] => split(&rows[a], &rows[b]),
                _ => None,
            };
            match split {
                Some((parts, ratios)) => {
                    let first = middles.values.len();
                    middles.values.extend(parts);
                    middles.mixes.push(Mix { first, second: first + 1, ratios });
                }
                None => middles.values.extend(same.iter().map(|&row| rows[row].clone())),
            }
            middles.sums.extend(same);
        }
        middles
    }

    /// Puts together what is mixed; also returns the order of the sums.
    fn into_parts(self, couples: &[Couple], inputs: usize) -> (Vec<Part>, Vec<usize>) {
        let passes: Vec<Vec<usize>> = by_sources(&self.values).into_values().collect();
        let mut pass_of = vec![0; self.values.len()];
        for (pass, values) in passes.iter().enumerate() {
            values.iter().for_each(|&value| pass_of[value] = pass);
        }
        let mut together = UnionFind::new(passes.len());
        self.mixes.iter().for_each(|mix| together.union(pass_of[mix.first], pass_of[mix.second]));
        let mut members: BTreeMap<usize, (Vec<usize>, Vec<Mix>)> = BTreeMap::new();
        for pass in 0..passes.len() {
            members.entry(together.find(pass)).or_default().0.push(pass);
        }
        for mix in &self.mixes {
            members.entry(together.find(pass_of[mix.first])).or_default().1.push(*mix);
        }
        let (mut parts, mut order) = (Vec::new(), Vec::new());
        let mut place = vec![0; self.values.len()];
        for (of_passes, mixes) in members.into_values() {
            let mut part = Part::default();
            for pass in of_passes {
                passes[pass].iter().zip(part.targets..).for_each(|(&value, target)| place[value] = target);
                let rows: Vec<&Terms> = passes[pass].iter().map(|&value| &self.values[value]).collect();
                part.push(&rows, couples, inputs);
                order.extend(passes[pass].iter().map(|&value| self.sums[value]));
            }
            let placed = |mix: Mix| Mix { first: place[mix.first], second: place[mix.second], ..mix };
            part.mixes = mixes.into_iter().map(placed).collect();
            parts.push(part);
        }
        (parts, order)
    }
}

/// The rows that are of the same values.
fn by_sources(rows: &[Terms]) -> BTreeMap<Vec<usize>, Vec<usize>> {
    let mut same: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        same.entry(row.iter().map(|&(value, _)| value).collect()).or_default().push(number);
    }
    same
}

/// The parts of row `a` on which `b` is a multiple of it, and the factors, if these are two.
fn split(a: &Terms, b: &Terms) -> Option<([Terms; 2], [u8; 2])> {
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

    fn sums_of(code: &str) -> (Vec<Terms>, usize) {
        let code = code.parse::<CodeSpec>().expect(code).build().expect(code);
        let encoding = code.encoding();
        let terms = |row: usize| encoding.row(row).iter().map(|&(source, c)| (source as usize, c)).collect();
        ((0..encoding.outputs().len()).map(terms).collect(), encoding.sources().len())
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
            let (order, factors) = Factors::of(sums.clone(), inputs).expect(code);
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
                for &(input, coefficient) in &sums[*sum] {
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
        let (_, factors) = Factors::of(sums.clone(), inputs).expect("Clay");
        assert_eq!(factors.parts.len(), 64, "planes that differ in the digit of the parity blocks only");
        // Where a virtual block is coupled with a data block, its part is not zero; so some planes have two inputs more.
        let is_plane =
            |pass: &Pass| matches!((pass.sources.len() + pass.pairs.len(), pass.targets), (10 | 12, 4));
        let is_part = |part: &Part| (part.passes.len(), part.targets) == (4, 16);
        assert!(factors.parts.iter().all(is_part));
        assert!(factors.parts.iter().flat_map(|part| &part.passes).all(is_plane));
        let long: usize = sums.iter().map(Vec::len).sum();
        assert_eq!((factors.products(), long), (13_696, 31_360), "Reed-Solomon in each plane has 10,240");
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
            assert!(Factors::of(sums, inputs).is_none(), "{code}");
        }
    }
}
