//! Computes sums of many terms through intermediate values that several sums share.
//!
//! A parity sub-block of Clay is a sum of about 30 data sub-blocks, three times as many as in Reed-Solomon.
//! But the code is defined by few operations: pairs of stored sub-blocks yield pairs of uncoupled ones, a
//! Reed-Solomon code in each plane yields the uncoupled parity, and pairs of uncoupled parity sub-blocks
//! yield the stored parity. A plan contains only the long sums (`docs/decisions/0042`), yet these operations
//! can be recovered from them. Two inputs that occur in the same sums form a pair. Two sums with the same
//! inputs share intermediate values if the inputs can be split into two subsets such that, within each
//! subset, the coefficients of one sum are a constant multiple of those of the other. The intermediate values
//! are then the partial sums over the subsets.
//!
//! There are thousands of input buffers, so the sums are computed in parts. A part contains the sums that
//! share values with each other. Intermediate values need no memory of their own: a pair is added up in
//! registers when a pass reads it, and the two values computed for two sums are mixed in place. In Clay (14,
//! 10, 13), a part is 16 parity sub-blocks of four planes, computed from about 80 inputs. Reading the inputs
//! part by part keeps them in the cache until they are used.

use std::collections::{BTreeMap, BTreeSet};

use gf::{inv, mul};

use super::cover::Row;
use super::passes::{Couple, Mix, Pass, Passes};

/// With fewer sums than this, factoring gains nothing.
const LEAST_SUMS: usize = 16;

/// A set of sums that share values with each other and with no other sums.
#[derive(Debug, PartialEq)]
pub(super) struct SumGroup {
    /// The numbers of the sums.
    pub(super) sums: Vec<usize>,
    /// The inputs of these sums.
    pub(super) inputs: Vec<usize>,
    /// The computation, in which sums and inputs are numbered by their positions in this group.
    pub(super) passes: Passes,
}

/// Splits sums over inputs `0..inputs` into parts; the sums of a part share intermediate values. Returns
/// `None` if this would save less than a third of the products.
pub(super) fn parts(mut rows: Vec<Row>, inputs: usize) -> Option<Vec<SumGroup>> {
    if rows.len() < LEAST_SUMS {
        return None;
    }
    let long: usize = rows.iter().map(Vec::len).sum();
    let couples = take_couples(&mut rows, inputs);
    let parts = Middles::of(&rows).into_parts(&couples, inputs);
    let products: usize = parts.iter().map(|part| part.passes.products()).sum();
    (products * 3 < long * 2).then_some(parts)
}

/// Finds pairs of inputs that occur in the same rows, in one or two different proportions. Replaces each pair
/// by one new value per proportion, numbered from `inputs` on.
fn take_couples(rows: &mut [Row], inputs: usize) -> Vec<Couple> {
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
    // The kernel expects pairs after plain inputs.
    rows.iter_mut().for_each(|row| row.sort_unstable());
    couples
}

/// The intermediate values that the passes compute.
#[derive(Default)]
struct Middles {
    /// One value per sum, stored in the buffer of the sum.
    values: Vec<Row>,
    /// For each value, the number of the sum whose buffer stores the value.
    sums: Vec<usize>,
    /// Pairs of values, each of which is turned into two sums at the end (see [`Mix`]).
    mixes: Vec<Mix>,
}

impl Middles {
    /// Turns rows into values: two rows over the same inputs become two values and a mix, if [`split`] can
    /// divide them. Every other row becomes a value as it is.
    fn of(rows: &[Row]) -> Self {
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

    /// Forms parts: passes whose values are mixed with each other belong to one part.
    fn into_parts(self, couples: &[Couple], inputs: usize) -> Vec<SumGroup> {
        let passes: Vec<Vec<usize>> = by_sources(&self.values).into_values().collect();
        let mut pass_of = vec![0; self.values.len()];
        for (pass, values) in passes.iter().enumerate() {
            values.iter().for_each(|&value| pass_of[value] = pass);
        }
        let mut together = UnionFind::new(passes.len());
        self.mixes.iter().for_each(|mix| together.union(pass_of[mix.first], pass_of[mix.second]));
        let mut members: BTreeMap<usize, (Vec<usize>, Vec<Mix>)> = BTreeMap::new();
        for (pass, values) in passes.into_iter().enumerate() {
            members.entry(together.find(pass)).or_default().0.extend(values);
        }
        for mix in &self.mixes {
            members.entry(together.find(pass_of[mix.first])).or_default().1.push(*mix);
        }
        members.into_values().map(|(values, mixes)| self.part(&values, mixes, couples, inputs)).collect()
    }

    /// Creates the part that computes and mixes these values.
    fn part(&self, values: &[usize], mixes: Vec<Mix>, couples: &[Couple], inputs: usize) -> SumGroup {
        let is_input = |source: &usize| *source < inputs;
        let couple = |source: usize| Some(couples[source.checked_sub(inputs)?]);
        let sources: BTreeSet<usize> =
            values.iter().flat_map(|&value| &self.values[value]).map(|&(source, _)| source).collect();
        let halves = sources.iter().filter_map(|&source| couple(source)).flat_map(|c| [c.first, c.second]);
        let used: BTreeSet<usize> = sources.iter().copied().filter(is_input).chain(halves).collect();
        let used: Vec<usize> = used.into_iter().collect();
        let input = |number: usize| used.binary_search(&number).expect("an input of the part");
        let rows: Vec<Row> = values.iter().map(|&value| self.values[value].clone()).collect();
        let passes = by_sources(&rows).into_values().map(|targets| {
            let numbers = || rows[targets[0]].iter().map(|&(source, _)| source);
            let halves = |c: Couple| Couple { first: input(c.first), second: input(c.second), ..c };
            Pass {
                sources: numbers().filter(is_input).map(input).collect(),
                pairs: numbers().filter_map(couple).map(halves).collect(),
                coefficients: targets.iter().flat_map(|&row| rows[row].iter().map(|&(_, c)| c)).collect(),
                targets,
            }
        });
        let position =
            |value: usize| values.iter().position(|&other| other == value).expect("a value of the part");
        let renumbered = |mix: Mix| Mix { first: position(mix.first), second: position(mix.second), ..mix };
        let mixes = mixes.into_iter().map(renumbered).collect();
        let passes = Passes::new(passes.collect(), mixes, values.len());
        SumGroup { sums: values.iter().map(|&value| self.sums[value]).collect(), inputs: used, passes }
    }
}

/// Groups rows by the set of their inputs.
fn by_sources(rows: &[Row]) -> BTreeMap<Vec<usize>, Vec<usize>> {
    let mut same: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        same.entry(row.iter().map(|&(value, _)| value).collect()).or_default().push(number);
    }
    same
}

/// Splits row `a` into two parts such that row `b`, restricted to the inputs of a part, is a multiple of that
/// part. Returns the parts and their factors; `None` if there are not exactly two factors.
fn split(a: &Row, b: &Row) -> Option<([Row; 2], [u8; 2])> {
    let ratios: Vec<u8> = a.iter().zip(b).map(|(&(_, a), &(_, b))| quotient(b, a)).collect();
    let &[first, second] = &distinct(&ratios)[..] else { return None };
    let part =
        |ratio: u8| a.iter().zip(&ratios).filter(|&(_, &of)| of == ratio).map(|(&term, _)| term).collect();
    Some(([part(first), part(second)], [first, second]))
}

/// A union-find over things numbered from 0.
pub(super) struct UnionFind {
    parent: Vec<usize>,
}

impl UnionFind {
    pub(super) fn new(things: usize) -> Self {
        Self { parent: (0..things).collect() }
    }

    pub(super) fn find(&self, mut thing: usize) -> usize {
        while self.parent[thing] != thing {
            thing = self.parent[thing];
        }
        thing
    }

    pub(super) fn union(&mut self, a: usize, b: usize) {
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

    fn sums_of(code: &str) -> (Vec<Row>, usize) {
        let code = code.parse::<CodeSpec>().expect(code).build().expect(code);
        let encoding = code.encoding();
        let terms = |row: usize| encoding.row(row).iter().map(|&(source, c)| (source as usize, c)).collect();
        ((0..encoding.outputs().len()).map(terms).collect(), encoding.sources().len())
    }

    /// The factored computation yields the same terms as the long sums.
    #[test]
    fn parts_compute_the_sums() {
        for code in ["clay-14-10-13", "clay-8-4-7", "clay-9-6-8", "clay-12-8-11-ceph-jerasure"] {
            let (sums, inputs) = sums_of(code);
            let mut found: Vec<Option<Row>> = vec![None; sums.len()];
            for part in parts(sums.clone(), inputs).expect(code) {
                for (position, row) in part.passes.rows() {
                    let terms = row.into_iter().map(|(input, c)| (part.inputs[input], c)).collect();
                    assert_eq!(found[part.sums[position]].replace(terms), None, "{code}: a sum once");
                }
            }
            let expected: Vec<Option<Row>> = sums.into_iter().map(Some).collect();
            assert_eq!(found, expected, "{code}");
        }
    }

    /// The three steps of Clay are recovered from its sums: pairs of data, a Reed-Solomon code in each plane,
    /// and pairs of parity.
    #[test]
    fn the_operations_of_clay_are_recovered() {
        let (sums, inputs) = sums_of("clay-14-10-13");
        let parts = parts(sums.clone(), inputs).expect("Clay");
        assert_eq!(parts.len(), 64, "planes that differ in the digit of the parity blocks only");
        // Some planes have two more inputs: those in which a virtual block is coupled with a data block, so
        // that the virtual block's uncoupled value is not zero.
        let is_plane = |size: (usize, usize)| matches!(size, (10 | 12, 4));
        for part in &parts {
            assert_eq!((part.passes.sizes().len(), part.sums.len()), (4, 16));
            assert!(part.passes.sizes().into_iter().all(is_plane));
        }
        let products: usize = parts.iter().map(|part| part.passes.products()).sum();
        let long: usize = sums.iter().map(Vec::len).sum();
        assert_eq!((products, long), (13_696, 31_360), "Reed-Solomon in each plane has 10,240");
    }

    #[test]
    fn sums_without_shared_values_are_not_factored() {
        for code in [
            "rs-14-10",
            "hitchhiker-xor-14-10",
            "rotated-16-12-4",
            "lrc-12-2-2",
            "less-14-10-4",
            "rs-200-100",
        ] {
            let (sums, inputs) = sums_of(code);
            assert!(parts(sums, inputs).is_none(), "{code}");
        }
    }
}
