//! Groups sums of local inputs into passes, which add several inputs to several sums at once.
//!
//! A pass reads each of its inputs once for every four sums, which makes encoding fast. Sums over the same
//! inputs need a single pass. The parity rows of Hitchhiker and Rotated RS differ in only a few inputs:
//! there, passes over the shared inputs come first, and further passes add the remaining inputs. All of these
//! passes form one group, which is computed as soon as its inputs are available.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::factor::{self, UnionFind};
use super::passes::{Pass, Passes};

/// If the inputs feed more than this many different sets of sums, the search for passes is skipped, and only
/// sums over the same inputs share a pass.
const MOST_KINDS: usize = 64;
/// The number of sums that the kernels compute in one walk over the inputs.
const AT_ONCE: usize = 4;
/// Groups that share inputs are merged if the result has at most this many inputs and sums together, so that
/// a short piece of each buffer stays in the processor's cache.
const MOST_TOGETHER: usize = 64;

/// A sum of two or more local inputs, without received inputs.
#[derive(Debug)]
pub(super) struct LocalSum {
    pub(super) output: usize,
    pub(super) terms: Row,
}

/// The terms of a sum: the numbers of local inputs, ascending, each with its coefficient.
pub(super) type Row = Vec<(usize, u8)>;

/// Sums that are computed together once all of their inputs are available. A sum belongs to one group only.
#[derive(Debug, PartialEq)]
pub(super) struct Group {
    pub(super) locals: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    /// The computation, in which inputs and sums are numbered by their positions in this group.
    pub(super) passes: Arc<Passes>,
}

impl Group {
    /// Returns the same group for sums with other output numbers.
    fn with_outputs(&self, outputs: &[usize]) -> Self {
        let outputs = self.outputs.iter().map(|&number| outputs[number]).collect();
        Self { locals: self.locals.clone(), outputs, passes: self.passes.clone() }
    }
}

/// Terms that no pass covers yet, by output and local input.
type Uncovered = BTreeMap<usize, BTreeMap<usize, u8>>;
/// For each set of outputs, the local inputs that feed exactly these outputs.
type Kinds = BTreeMap<BTreeSet<usize>, BTreeSet<usize>>;

/// A cache of the passes found for recent sums. Consecutive stripes use the same code, and the search for
/// Clay's passes takes as long as encoding a megabyte.
#[derive(Debug, Default)]
pub(crate) struct Covers {
    /// The entries, least recently used first.
    known: VecDeque<Known>,
}

/// Sums and the groups that compute them; an output is the index of its row.
#[derive(Debug)]
struct Known {
    rows: Vec<Row>,
    groups: Vec<Group>,
}

impl Covers {
    /// The maximum number of terms kept: three times those of Clay (14, 10, 13), or 1.5 MiB.
    const MOST_TERMS: usize = 96 << 10;
    /// The maximum number of entries kept, because every lookup compares them all.
    const MOST_KNOWN: usize = 32;

    /// Returns the groups that compute the sums.
    pub(super) fn of(&mut self, mut sums: Vec<LocalSum>) -> Vec<Group> {
        // Sort the sums before the lookup: the same sums arrive in another order if the blocks lie on other
        // nodes.
        sums.sort_by(|a, b| a.terms.cmp(&b.terms));
        let (outputs, rows): (Vec<usize>, Vec<Row>) =
            sums.into_iter().map(|sum| (sum.output, sum.terms)).unzip();
        let known = match self.known.iter().position(|known| known.rows == rows) {
            Some(position) => self.known.remove(position).expect("the pass was just found"),
            None => Known { groups: cover(&rows), rows },
        };
        let groups = known.groups.iter().map(|group| group.with_outputs(&outputs)).collect();
        self.known.push_back(known);
        self.forget();
        groups
    }

    fn forget(&mut self) {
        let of = |known: &Known| known.rows.iter().map(Vec::len).sum::<usize>();
        let mut terms: usize = self.known.iter().map(of).sum();
        while (terms > Self::MOST_TERMS || self.known.len() > Self::MOST_KNOWN)
            && let Some(known) = self.known.pop_front()
        {
            terms -= of(&known);
        }
    }
}

/// Finds the groups that compute the sums; the index of a row is its output.
fn cover(rows: &[Row]) -> Vec<Group> {
    let mut terms: Uncovered = rows.iter().map(|row| row.iter().copied().collect()).enumerate().collect();
    if let Some(groups) = shared(&terms) {
        return groups;
    }
    let mut passes = Vec::new();
    while !terms.is_empty() {
        let kinds = kinds(&terms);
        if kinds.len() > MOST_KINDS {
            // Each pass reduces the number of different sets of sums, so this can only happen before the
            // first pass.
            debug_assert!(passes.is_empty());
            return grouped(equal_sums(terms));
        }
        let (outputs, locals) = best_pass(&kinds);
        passes.push(take(&mut terms, &outputs, &locals));
    }
    grouped(passes)
}

/// Forms groups: merges passes that have sums in common, and then sets of passes that have inputs in common,
/// unless the group would become too large.
fn grouped(passes: Vec<Pass>) -> Vec<Group> {
    let of_sums = families(passes, |pass| pass.targets.clone());
    let sources = |passes: &Vec<Pass>| passes.iter().flat_map(|pass| pass.sources.clone()).collect();
    let mut groups = Vec::new();
    for family in families(of_sums, sources) {
        let buffers = |passes: &[Pass]| sources_of(passes).len() + targets_of(passes).len();
        let all: Vec<Pass> = family.iter().flatten().cloned().collect();
        match buffers(&all) <= MOST_TOGETHER {
            true => groups.push(group(all)),
            false => groups.extend(family.into_iter().map(group)),
        }
    }
    groups
}

/// Puts items that have numbers in common, directly or through other items, into one family. Families are in
/// the order of their first items.
fn families<T>(things: Vec<T>, numbers: impl Fn(&T) -> Vec<usize>) -> Vec<Vec<T>> {
    let mut together = UnionFind::new(things.len());
    let mut first_of: BTreeMap<usize, usize> = BTreeMap::new();
    for (position, thing) in things.iter().enumerate() {
        for number in numbers(thing) {
            together.union(position, *first_of.entry(number).or_insert(position));
        }
    }
    let mut families: BTreeMap<usize, Vec<T>> = BTreeMap::new();
    for (position, thing) in things.into_iter().enumerate() {
        families.entry(together.find(position)).or_default().push(thing);
    }
    families.into_values().collect()
}

fn sources_of(passes: &[Pass]) -> BTreeSet<usize> {
    passes.iter().flat_map(|pass| &pass.sources).copied().collect()
}

fn targets_of(passes: &[Pass]) -> BTreeSet<usize> {
    passes.iter().flat_map(|pass| &pass.targets).copied().collect()
}

/// Makes a group of passes. The given passes refer to their inputs by the number of the local, and to their
/// sums by the number of the output. In the group, both become positions in the group's lists.
fn group(mut passes: Vec<Pass>) -> Group {
    let locals: Vec<usize> = sources_of(&passes).into_iter().collect();
    let outputs: Vec<usize> = targets_of(&passes).into_iter().collect();
    let position =
        |of: &[usize], number: usize| of.binary_search(&number).expect("the number belongs to a pass");
    for pass in &mut passes {
        pass.sources.iter_mut().for_each(|source| *source = position(&locals, *source));
        pass.targets.iter_mut().for_each(|target| *target = position(&outputs, *target));
    }
    let passes = Passes::new(passes, Vec::new(), outputs.len());
    Group { locals, outputs, passes: Arc::new(passes) }
}

fn kinds(terms: &Uncovered) -> Kinds {
    let mut outputs_of: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (&output, row) in terms {
        for &local in row.keys() {
            outputs_of.entry(local).or_default().insert(output);
        }
    }
    let mut kinds = Kinds::new();
    for (local, outputs) in outputs_of {
        kinds.entry(outputs).or_default().insert(local);
    }
    kinds
}

/// The outputs and locals of the pass with the most products per register load or store.
fn best_pass(kinds: &Kinds) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let sets: Vec<&BTreeSet<usize>> = kinds.keys().collect();
    let pairs = (0..sets.len()).flat_map(|i| (i..sets.len()).map(move |j| (i, j)));
    let candidates: BTreeSet<BTreeSet<usize>> = pairs.map(|(i, j)| sets[i] & sets[j]).collect();
    candidates
        .into_iter()
        .filter(|outputs| !outputs.is_empty())
        .map(|outputs| {
            let takers = kinds.iter().filter(|(takers, _)| takers.is_superset(&outputs));
            let locals: BTreeSet<usize> = takers.flat_map(|(_, locals)| locals).copied().collect();
            (outputs, locals)
        })
        .max_by(|a, b| worth(a).total_cmp(&worth(b)))
        .expect("there is at least one term")
}

/// The number of products per register load or store.
fn worth((outputs, locals): &(BTreeSet<usize>, BTreeSet<usize>)) -> f64 {
    let moved = locals.len() * outputs.len().div_ceil(AT_ONCE) + 2 * outputs.len();
    (locals.len() * outputs.len()) as f64 / moved as f64
}

fn take(terms: &mut Uncovered, outputs: &BTreeSet<usize>, locals: &BTreeSet<usize>) -> Pass {
    let mut coefficients = Vec::new();
    for output in outputs {
        let row = terms.get_mut(output).expect("the output has terms left");
        coefficients
            .extend(locals.iter().map(|local| row.remove(local).expect("the local goes to all outputs")));
        if row.is_empty() {
            terms.remove(output);
        }
    }
    let (sources, targets) = (locals.iter().copied().collect(), outputs.iter().copied().collect());
    Pass { sources, pairs: Vec::new(), targets, coefficients }
}

/// Returns one group for each set of sums that share intermediate values; `None` if computing the sums
/// through such values does not pay off.
fn shared(terms: &Uncovered) -> Option<Vec<Group>> {
    let locals: BTreeSet<usize> = terms.values().flat_map(BTreeMap::keys).copied().collect();
    let locals: Vec<usize> = locals.into_iter().collect();
    let position = |local: &usize| locals.binary_search(local).expect("a local of the terms");
    let rows: Vec<Row> =
        terms.values().map(|row| row.iter().map(|(local, &c)| (position(local), c)).collect()).collect();
    let outputs: Vec<usize> = terms.keys().copied().collect();
    let group = |part: factor::SumGroup| Group {
        locals: part.inputs.into_iter().map(|input| locals[input]).collect(),
        outputs: part.sums.into_iter().map(|sum| outputs[sum]).collect(),
        passes: Arc::new(part.passes),
    };
    Some(factor::parts(rows, locals.len())?.into_iter().map(group).collect())
}

/// One pass for each distinct set of inputs, shared by all sums over exactly that set.
fn equal_sums(terms: Uncovered) -> Vec<Pass> {
    let mut passes: BTreeMap<Vec<usize>, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (output, row) in terms {
        let (outputs, coefficients) = passes.entry(row.keys().copied().collect()).or_default();
        outputs.push(output);
        coefficients.extend(row.into_values());
    }
    let pass =
        |(sources, (targets, coefficients))| Pass { sources, pairs: Vec::new(), targets, coefficients };
    passes.into_iter().map(pass).collect()
}

#[cfg(test)]
mod tests {
    use codes::CodeSpec;

    use super::*;

    fn rows(rows: &[&[usize]]) -> Vec<Row> {
        rows.iter().map(|row| row.iter().map(|&local| (local, (local % 255) as u8 + 1)).collect()).collect()
    }

    fn shapes(of: &[&[usize]]) -> Vec<(Vec<usize>, Vec<usize>)> {
        cover(&rows(of)).into_iter().map(|group| (group.locals, group.outputs)).collect()
    }

    fn sums(of: &[&[usize]], outputs: &[usize]) -> Vec<LocalSum> {
        rows(of).into_iter().zip(outputs).map(|(terms, &output)| LocalSum { output, terms }).collect()
    }

    /// The terms of each output, as computed by the groups.
    fn terms_of(groups: &[Group]) -> BTreeMap<usize, Row> {
        let mut found: BTreeMap<usize, Row> = BTreeMap::new();
        for group in groups {
            for (sum, row) in group.passes.rows() {
                let terms = row.into_iter().map(|(input, c)| (group.locals[input], c)).collect();
                assert_eq!(found.insert(group.outputs[sum], terms), None, "a sum is in one group");
            }
        }
        found.values_mut().for_each(|terms| terms.sort_unstable());
        found
    }

    #[test]
    fn cached_passes_serve_other_outputs() {
        let of: [&[usize]; 3] = [&[0, 1, 2, 3], &[1, 2, 3, 4], &[5, 6]];
        let mut covers = Covers::default();
        for outputs in [[0, 1, 2], [9, 4, 7]] {
            let expected: BTreeMap<usize, Row> = outputs.into_iter().zip(rows(&of)).collect();
            assert_eq!(terms_of(&covers.of(sums(&of, &outputs))), expected);
        }
        let turned: Vec<&[usize]> = of.iter().rev().copied().collect();
        let expected: BTreeMap<usize, Row> = [3, 2, 1].into_iter().zip(rows(&turned)).collect();
        assert_eq!(terms_of(&covers.of(sums(&turned, &[3, 2, 1]))), expected);
        assert_eq!(covers.known.len(), 1, "looked for once");
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut covers = Covers::default();
        for first in 0..3 * Covers::MOST_KNOWN {
            covers.of(sums(&[&[first, first + 1]], &[0]));
            assert!(covers.known.len() <= Covers::MOST_KNOWN);
        }
        let long: Vec<usize> = (0..Covers::MOST_TERMS / 2).collect();
        covers.of(sums(&[&long], &[0]));
        assert_eq!(covers.known.len(), Covers::MOST_KNOWN, "half of what fits, and the others are short");
        covers.of(sums(&[&long[1..], &long[2..]], &[0, 1]));
        assert_eq!(covers.known.len(), 1, "the last");
    }

    #[test]
    fn sums_of_the_same_inputs_are_one_pass() {
        assert_eq!(shapes(&[&[0, 1, 2], &[0, 1, 2]]), [(vec![0, 1, 2], vec![0, 1])]);
    }

    #[test]
    fn shared_inputs_come_first_and_carry_the_rest() {
        let groups = cover(&rows(&[&[0, 1, 2, 3], &[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3, 6, 7]]));
        let [group] = &groups[..] else { panic!("{groups:?}") };
        let extras = vec![(4, 1), (5, 1), (6, 2), (7, 2)];
        assert_eq!(group.passes.shapes(), [(vec![0, 1, 2, 3], vec![0, 1, 2], extras)]);
    }

    /// A second pass is used if loading and storing the sums again costs less than reading many inputs twice.
    #[test]
    fn many_additional_inputs_get_a_pass_of_their_own() {
        let wide: Vec<usize> = (0..24).collect();
        let groups = cover(&rows(&[&wide[..12], &wide[..12], &wide, &wide]));
        let [group] = &groups[..] else { panic!("{groups:?}") };
        let shared = (wide[..12].to_vec(), vec![0, 1, 2, 3], vec![]);
        assert_eq!(group.passes.shapes(), [shared, (wide[12..].to_vec(), vec![2, 3], vec![])]);
    }

    /// The rows of Hitchhiker's second half differ in some blocks of the first half; each half is read once
    /// for up to four rows.
    #[test]
    fn the_most_productive_pass_begins_the_sums() {
        let groups = cover(&rows(&[&[0, 1, 2], &[0, 1, 2], &[3, 4, 5], &[0, 3, 4, 5], &[1, 2, 3, 4, 5]]));
        let [group] = &groups[..] else { panic!("{groups:?}") };
        let first = (vec![3, 4, 5], vec![2, 3, 4], vec![(0, 3), (1, 4), (2, 4)]);
        assert_eq!(group.passes.shapes(), [first, (vec![0, 1, 2], vec![0, 1], vec![])]);
    }

    /// A put with Clay costs little more than the products of its planes' Reed-Solomon codes, whatever the
    /// size of the code; the other codes cost one product for each term. Pairs are (terms, products).
    #[test]
    fn products_of_a_put() {
        let cost = |name: &str| {
            let code = name.parse::<CodeSpec>().expect(name).build().expect(name);
            let encoding = code.encoding();
            let row = |output| encoding.row(output).iter().map(|&(source, c)| (source as usize, c)).collect();
            let rows: Vec<Row> = (0..encoding.outputs().len()).map(row).collect();
            let terms: usize = rows.iter().map(Vec::len).sum();
            (terms, cover(&rows).iter().map(|group| group.passes.products()).sum::<usize>())
        };
        assert_eq!(cost("clay-14-10-13"), (31_360, 13_696));
        assert_eq!(cost("clay-12-8-11-ceph-jerasure"), (6_272, 2_624));
        assert_eq!(cost("clay-9-6-8"), (1_350, 648));
        assert_eq!(cost("clay-8-4-7"), (784, 352));
        for name in ["rs-14-10", "hitchhiker-xor-14-10", "rotated-16-12-4", "lrc-12-2-2", "less-14-10-4"] {
            let (terms, products) = cost(name);
            assert_eq!(terms, products, "{name}");
        }
    }

    #[test]
    fn sums_of_different_inputs_do_not_wait_for_each_other() {
        assert_eq!(shapes(&[&[0, 1], &[2, 3]]).len(), 2);
        let wide: Vec<usize> = (0..MOST_TOGETHER).collect();
        assert_eq!(shapes(&[&wide[1..], &wide[..2]]).len(), 2, "too many");
    }

    #[test]
    fn every_term_is_in_one_pass() {
        let of: [&[usize]; 4] = [&[0, 1, 2, 3], &[1, 2, 3, 4], &[0, 2, 4, 6], &[5, 6]];
        let expected: BTreeMap<usize, Row> = rows(&of).into_iter().enumerate().collect();
        assert_eq!(terms_of(&cover(&rows(&of))), expected);
    }
}
