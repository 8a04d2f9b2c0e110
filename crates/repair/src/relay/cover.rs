//! Passes over local inputs: which are added to which sums at once.
//!
//! A pass reads each of its inputs once for four sums, which is what makes encoding fast. Where sums are of the same
//! inputs one pass does it. The parity of Hitchhiker and Rotated RS is almost so: rows differ in a few inputs. Then
//! passes that share most of it come first, and others add the rest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::factor::Factors;

/// Beyond so many kinds of inputs (Clay's) passes are not looked for: the sums go through values that they share, or only
/// equal sums share a pass.
const MOST_KINDS: usize = 64;
/// Sums that the kernels compute in one walk over the inputs.
const AT_ONCE: usize = 4;

/// A sum of two or more local inputs and nothing received.
#[derive(Debug)]
pub(super) struct LocalSum {
    pub(super) output: usize,
    pub(super) terms: Terms,
}

/// The locals of a sum, ascending, and their coefficients.
pub(super) type Terms = Vec<(usize, u8)>;

/// A pass: all of some local inputs are added to all of some sums.
#[derive(Debug, PartialEq)]
pub(super) struct Group {
    pub(super) locals: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    products: Products,
}

/// How a pass computes.
#[derive(Clone, Debug, PartialEq)]
enum Products {
    /// By coefficients, row-major, outputs × locals.
    Dense(Vec<u8>),
    /// Through values that its sums share; it has all there are of their terms.
    Shared(Arc<Factors>),
}

impl Group {
    /// The same pass for sums that go to other outputs.
    fn with_outputs(&self, outputs: &[usize]) -> Self {
        let outputs = self.outputs.iter().map(|&number| outputs[number]).collect();
        Self { locals: self.locals.clone(), outputs, products: self.products.clone() }
    }

    /// The coefficients of some of its outputs, by their positions.
    pub(super) fn rows(&self, rows: &[usize]) -> Vec<u8> {
        let Products::Dense(coefficients) = &self.products else { return Vec::new() };
        let columns = self.locals.len();
        rows.iter().flat_map(|row| &coefficients[row * columns..][..columns]).copied().collect()
    }

    /// How it computes all of its sums at once, if they go through shared values.
    pub(super) fn factors(&self) -> Option<&Factors> {
        match &self.products {
            Products::Dense(_) => None,
            Products::Shared(factors) => Some(factors),
        }
    }
}

/// Terms that no pass covers yet, by output and local.
type Uncovered = BTreeMap<usize, BTreeMap<usize, u8>>;
/// For each set of outputs: the locals that go to just these.
type Kinds = BTreeMap<BTreeSet<usize>, BTreeSet<usize>>;

/// The passes that were found for recent sums. Stripe follows stripe with the same code, and looking for Clay's passes
/// takes as long as a megabyte takes to encode.
#[derive(Debug, Default)]
pub(crate) struct Covers {
    /// Least recently used first.
    known: VecDeque<Known>,
}

/// Sums by number, and the passes that compute these.
#[derive(Debug)]
struct Known {
    rows: Vec<Terms>,
    groups: Vec<Group>,
}

impl Covers {
    /// Sums beyond so many terms in all are forgotten: three times those of Clay (14, 10, 13), 1.5 MiB.
    const MOST_TERMS: usize = 96 << 10;
    /// And so are sums beyond so many kinds, which all have to be looked through.
    const MOST_KNOWN: usize = 32;

    /// The passes that compute the sums.
    pub(super) fn of(&mut self, mut sums: Vec<LocalSum>) -> Vec<Group> {
        // Where blocks are on other nodes, the same sums come in another order.
        sums.sort_by(|a, b| a.terms.cmp(&b.terms));
        let (outputs, rows): (Vec<usize>, Vec<Terms>) =
            sums.into_iter().map(|sum| (sum.output, sum.terms)).unzip();
        let known = match self.known.iter().position(|known| known.rows == rows) {
            Some(place) => self.known.remove(place).expect("it has just been found"),
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

/// The passes that compute the sums, whose number is their output.
fn cover(rows: &[Terms]) -> Vec<Group> {
    let mut terms: Uncovered = rows.iter().map(|row| row.iter().copied().collect()).enumerate().collect();
    let mut groups = Vec::new();
    while !terms.is_empty() {
        let kinds = kinds(&terms);
        if kinds.len() > MOST_KINDS {
            // What passes came before would have begun the sums; but each of them leaves fewer kinds, and so there are none.
            debug_assert!(groups.is_empty());
            groups.extend(shared(&terms).map_or_else(|| equal_sums(terms), |group| vec![group]));
            break;
        }
        let (outputs, locals) = best_pass(&kinds);
        groups.push(take(&mut terms, &outputs, &locals));
    }
    groups
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

/// The outputs and locals of the pass that does most for what it reads and writes.
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
        .expect("there is a term")
}

/// Products for each register that is loaded or stored.
fn worth((outputs, locals): &(BTreeSet<usize>, BTreeSet<usize>)) -> f64 {
    let moved = locals.len() * outputs.len().div_ceil(AT_ONCE) + 2 * outputs.len();
    (locals.len() * outputs.len()) as f64 / moved as f64
}

fn take(terms: &mut Uncovered, outputs: &BTreeSet<usize>, locals: &BTreeSet<usize>) -> Group {
    let mut coefficients = Vec::new();
    for output in outputs {
        let row = terms.get_mut(output).expect("it has terms left");
        coefficients.extend(locals.iter().map(|local| row.remove(local).expect("it goes to all outputs")));
        if row.is_empty() {
            terms.remove(output);
        }
    }
    Group {
        locals: locals.iter().copied().collect(),
        outputs: outputs.iter().copied().collect(),
        products: Products::Dense(coefficients),
    }
}

/// One pass for all sums, if they go through values that they share.
fn shared(terms: &Uncovered) -> Option<Group> {
    let locals: BTreeSet<usize> = terms.values().flat_map(BTreeMap::keys).copied().collect();
    let locals: Vec<usize> = locals.into_iter().collect();
    let place = |local: &usize| locals.binary_search(local).expect("a local of the terms");
    let rows: Vec<Terms> =
        terms.values().map(|row| row.iter().map(|(local, &c)| (place(local), c)).collect()).collect();
    let (order, factors) = Factors::of(rows, locals.len())?;
    let numbers: Vec<usize> = terms.keys().copied().collect();
    let outputs = order.into_iter().map(|sum| numbers[sum]).collect();
    Some(Group { locals, outputs, products: Products::Shared(Arc::new(factors)) })
}

/// A pass for each set of inputs that sums have in common as a whole.
fn equal_sums(terms: Uncovered) -> Vec<Group> {
    let mut groups: BTreeMap<Vec<usize>, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (output, row) in terms {
        let (outputs, coefficients) = groups.entry(row.keys().copied().collect()).or_default();
        outputs.push(output);
        coefficients.extend(row.into_values());
    }
    let group = |(locals, (outputs, coefficients))| Group {
        locals,
        outputs,
        products: Products::Dense(coefficients),
    };
    groups.into_iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[usize]]) -> Vec<Terms> {
        rows.iter().map(|row| row.iter().map(|&local| (local, (local % 255) as u8 + 1)).collect()).collect()
    }

    fn shapes(of: &[&[usize]]) -> Vec<(Vec<usize>, Vec<usize>)> {
        cover(&rows(of)).into_iter().map(|group| (group.locals, group.outputs)).collect()
    }

    fn sums(of: &[&[usize]], outputs: &[usize]) -> Vec<LocalSum> {
        rows(of).into_iter().zip(outputs).map(|(terms, &output)| LocalSum { output, terms }).collect()
    }

    /// Each output's terms, as the passes say.
    fn terms_of(groups: &[Group]) -> BTreeMap<usize, Terms> {
        let mut found: BTreeMap<usize, Terms> = BTreeMap::new();
        for group in groups {
            for (row, &output) in group.outputs.iter().enumerate() {
                let terms = group.locals.iter().copied().zip(group.rows(&[row]));
                found.entry(output).or_default().extend(terms);
            }
        }
        found.values_mut().for_each(|terms| terms.sort_unstable());
        found
    }

    #[test]
    fn passes_that_are_known_serve_other_outputs() {
        let of: [&[usize]; 3] = [&[0, 1, 2, 3], &[1, 2, 3, 4], &[5, 6]];
        let mut covers = Covers::default();
        for outputs in [[0, 1, 2], [9, 4, 7]] {
            let expected: BTreeMap<usize, Terms> = outputs.into_iter().zip(rows(&of)).collect();
            assert_eq!(terms_of(&covers.of(sums(&of, &outputs))), expected);
        }
        let turned: Vec<&[usize]> = of.iter().rev().copied().collect();
        let expected: BTreeMap<usize, Terms> = [3, 2, 1].into_iter().zip(rows(&turned)).collect();
        assert_eq!(terms_of(&covers.of(sums(&turned, &[3, 2, 1]))), expected);
        assert_eq!(covers.known.len(), 1, "looked for once");
    }

    #[test]
    fn what_is_known_is_bounded() {
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
    fn what_sums_share_comes_first_and_the_rest_is_added() {
        let shapes = shapes(&[&[0, 1, 2, 3], &[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3, 6, 7]]);
        assert_eq!(shapes, [(vec![0, 1, 2, 3], vec![0, 1, 2]), (vec![6, 7], vec![2]), (vec![4, 5], vec![1])]);
    }

    #[test]
    fn every_term_is_in_one_pass() {
        let of: [&[usize]; 4] = [&[0, 1, 2, 3], &[1, 2, 3, 4], &[0, 2, 4, 6], &[5, 6]];
        let expected: BTreeMap<usize, Terms> = rows(&of).into_iter().enumerate().collect();
        assert_eq!(terms_of(&cover(&rows(&of))), expected);
    }
}
