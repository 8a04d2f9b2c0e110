//! Passes over local inputs: which are added to which sums at once.
//!
//! A pass reads each of its inputs once for four sums, which is what makes encoding fast. Where sums are of the same
//! inputs one pass does it. The parity of Hitchhiker and Rotated RS is almost so: rows differ in a few inputs. Then
//! passes that share most of it come first, and others add the rest.

use std::collections::{BTreeMap, BTreeSet};

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
    pub(super) terms: Vec<(usize, u8)>,
}

/// A pass: all of some local inputs are added to all of some sums.
#[derive(Debug, PartialEq)]
pub(super) struct Group {
    pub(super) locals: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    products: Products,
}

/// How a pass computes.
#[derive(Debug, PartialEq)]
enum Products {
    /// By coefficients, row-major, outputs × locals.
    Dense(Vec<u8>),
    /// Through values that its sums share; it has all there are of their terms.
    Shared(Factors),
}

impl Group {
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
type Terms = BTreeMap<usize, BTreeMap<usize, u8>>;
/// For each set of outputs: the locals that go to just these.
type Kinds = BTreeMap<BTreeSet<usize>, BTreeSet<usize>>;

/// The passes that compute the sums.
pub(super) fn cover(sums: Vec<LocalSum>) -> Vec<Group> {
    let mut terms: Terms =
        sums.into_iter().map(|LocalSum { output, terms }| (output, terms.into_iter().collect())).collect();
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

fn kinds(terms: &Terms) -> Kinds {
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

fn take(terms: &mut Terms, outputs: &BTreeSet<usize>, locals: &BTreeSet<usize>) -> Group {
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
fn shared(terms: &Terms) -> Option<Group> {
    let locals: BTreeSet<usize> = terms.values().flat_map(BTreeMap::keys).copied().collect();
    let locals: Vec<usize> = locals.into_iter().collect();
    let place = |local: &usize| locals.binary_search(local).expect("a local of the terms");
    let sums: Vec<LocalSum> = terms
        .iter()
        .map(|(&output, row)| LocalSum {
            output,
            terms: row.iter().map(|(local, &c)| (place(local), c)).collect(),
        })
        .collect();
    let (order, factors) = Factors::of(&sums, locals.len())?;
    let outputs = order.into_iter().map(|sum| sums[sum].output).collect();
    Some(Group { locals, outputs, products: Products::Shared(factors) })
}

/// A pass for each set of inputs that sums have in common as a whole.
fn equal_sums(terms: Terms) -> Vec<Group> {
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

    fn sums(rows: &[&[usize]]) -> Vec<LocalSum> {
        let terms = |row: &[usize]| row.iter().map(|&local| (local, local as u8 + 1)).collect();
        rows.iter().zip(0..).map(|(row, output)| LocalSum { output, terms: terms(row) }).collect()
    }

    fn shapes(rows: &[&[usize]]) -> Vec<(Vec<usize>, Vec<usize>)> {
        cover(sums(rows)).into_iter().map(|group| (group.locals, group.outputs)).collect()
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
        let rows: [&[usize]; 4] = [&[0, 1, 2, 3], &[1, 2, 3, 4], &[0, 2, 4, 6], &[5, 6]];
        let mut found: Vec<(usize, usize, u8)> = Vec::new();
        for group in cover(sums(&rows)) {
            for (row, &output) in group.outputs.iter().enumerate() {
                found.extend(
                    group.locals.iter().zip(group.rows(&[row])).map(|(&local, c)| (output, local, c)),
                );
            }
        }
        found.sort_unstable();
        let expected: Vec<_> = rows
            .iter()
            .enumerate()
            .flat_map(|(output, row)| row.iter().map(move |&local| (output, local, local as u8 + 1)))
            .collect();
        assert_eq!(found, expected);
    }
}
