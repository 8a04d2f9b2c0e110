//! The partial sums that have arrived at a rank of a shape, and the fewest streams that carry them on.
//!
//! The number of streams in which a set of nodes can forward its contribution is the rank of its
//! coefficients: at most one stream per sum that it adds to, and at most one per sub-block that it read. Both
//! limits matter for sub-packetized codes and for several lost blocks, where few raw sub-blocks feed many
//! sums.
//!
//! Nodes do not forward data that they would not change: a [`Parcel`] stays at the node that made it until
//! another node uses it, and is then sent directly to that node.

use std::collections::BTreeMap;

use super::echelon::Echelon;
use super::placement::Helper;
use crate::plan::{Input, PlanBuilder, Summand};
use crate::{Combination, NodeId};

/// A combination that `node` can make. It becomes a stream when another node uses it.
#[derive(Clone)]
struct Parcel {
    node: NodeId,
    combination: Combination,
}

/// A linear combination of parcels by number; no coefficient is zero, and no parcel occurs twice.
type Sum = Vec<(usize, u8)>;

/// Parcels, and each output's sum of them so far.
///
/// **Invariant:** the parcels are linearly independent, and each is used by some sum.
#[derive(Clone, Default)]
pub(super) struct PartialSums {
    parcels: Vec<Parcel>,
    sums: Vec<Sum>,
}

/// The form in which a node forwards its sums.
enum Passage {
    /// The parcels, unchanged.
    Parcels,
    /// One stream per output with a non-empty sum.
    Sums,
    /// A basis of the sums.
    Basis(Echelon),
}

impl PartialSums {
    /// Creates empty sums for this many outputs, without parcels.
    pub fn empty(outputs: usize) -> Self {
        Self { parcels: Vec::new(), sums: vec![Sum::new(); outputs] }
    }

    /// A helper's own contribution: its sub-blocks, or their sum if the helper feeds only one output.
    pub fn of(helper: &Helper) -> Self {
        if helper.rows() == 1 {
            let one = |terms: &Combination| terms.first().map(|_| (0, 1)).into_iter().collect();
            let combination = helper.terms.concat();
            let parcels = vec![Parcel { node: helper.node, combination }];
            return Self { parcels, sums: helper.terms.iter().map(one).collect() };
        }
        let reads = helper.reads();
        let at = |summand: &Summand| match summand.input {
            Input::Local(sub_block) => {
                reads.binary_search(&sub_block).expect("the sub-block is among those read")
            }
            Input::Received(_) => unreachable!("a helper's own terms are local"),
        };
        let sums = helper.terms.iter().map(|terms| terms.iter().map(|t| (at(t), t.coefficient)).collect());
        let sums = sums.collect();
        let raw = |&sub_block| vec![Summand { input: Input::Local(sub_block), coefficient: 1 }];
        let parcels = reads.iter().map(|read| Parcel { node: helper.node, combination: raw(read) }).collect();
        Self { parcels, sums }
    }

    /// Adds the parcels and sums of `other`.
    pub fn absorb(&mut self, other: Self) {
        let before = self.parcels.len();
        self.parcels.extend(other.parcels);
        for (sum, more) in self.sums.iter_mut().zip(other.sums) {
            sum.extend(more.into_iter().map(|(parcel, coefficient)| (before + parcel, coefficient)));
        }
    }

    /// Replaces the parcels by the fewest that suffice for the sums; new parcels are made at `node`.
    pub fn condensed(self, node: NodeId, builder: &mut PlanBuilder) -> Self {
        if self.sums.len() == 1 && self.parcels.len() > 1 {
            let combination = self.gathered(node, builder).concat();
            return Self { parcels: vec![Parcel { node, combination }], sums: vec![vec![(0, 1)]] };
        }
        match self.passage() {
            Passage::Parcels => self,
            Passage::Sums => self.summed(node, builder),
            Passage::Basis(echelon) => self.based(echelon, node, builder),
        }
    }

    /// Combines the parcels into one per non-empty sum, at `node`. A sum that is just one parcel of another
    /// node stays as it is if no other sum uses this parcel.
    pub fn summed(self, node: NodeId, builder: &mut PlanBuilder) -> Self {
        let users = self.users();
        let rests = |sum: &Sum| match sum[..] {
            [(parcel, _)] => users[parcel] == 1 && self.parcels[parcel].node != node,
            _ => false,
        };
        let resting: Vec<bool> = self.sums.iter().map(rests).collect();
        let mut used = vec![false; self.parcels.len()];
        for (sum, _) in self.sums.iter().zip(&resting).filter(|(_, rests)| !**rests) {
            sum.iter().for_each(|&(parcel, _)| used[parcel] = true);
        }
        let inputs = self.inputs(&used, node, builder);
        let mut next = Self::empty(0);
        for (sum, rests) in self.sums.iter().zip(resting) {
            let sum = match (&sum[..], rests) {
                ([], _) => Sum::new(),
                (&[(parcel, coefficient), ..], true) => {
                    vec![(next.add(self.parcels[parcel].clone()), coefficient)]
                }
                _ => vec![(next.add(Parcel { node, combination: weighed(sum, &inputs) }), 1)],
            };
            next.sums.push(sum);
        }
        next
    }

    /// Moves every parcel to `node`.
    pub fn brought(mut self, node: NodeId, builder: &mut PlanBuilder) -> Self {
        let bring = |parcel: Parcel| Parcel { node, combination: parcel.brought(node, builder) };
        self.parcels = self.parcels.into_iter().map(bring).collect();
        self
    }

    /// Makes each output's sum at `node`, which receives all parcels.
    pub fn gathered(self, node: NodeId, builder: &mut PlanBuilder) -> Vec<Combination> {
        let bring = |parcel: Parcel| parcel.brought(node, builder);
        let inputs: Vec<Combination> = self.parcels.into_iter().map(bring).collect();
        self.sums.iter().map(|sum| weighed(sum, &inputs)).collect()
    }

    /// Returns for each output the node that makes its sum, the combination that this node sums, and the
    /// factor by which the result must still be multiplied.
    ///
    /// # Panics
    ///
    /// If [`summed`](Self::summed) was not called before, or an output's sum is empty.
    pub fn finished(self) -> Vec<(NodeId, Combination, u8)> {
        let finish = |sum: &Sum| match sum[..] {
            [(parcel, coefficient)] => {
                let Parcel { node, combination } = self.parcels[parcel].clone();
                (node, combination, coefficient)
            }
            _ => panic!("a finished sum is one parcel"),
        };
        self.sums.iter().map(finish).collect()
    }

    /// Splits sums of one parcel each into separate ones.
    ///
    /// # Panics
    ///
    /// If [`summed`](Self::summed) was not called before.
    pub fn apart(&self) -> Vec<Self> {
        let one = |sum: &Sum| match sum[..] {
            [] => Self::empty(1),
            [(parcel, coefficient)] => {
                Self { parcels: vec![self.parcels[parcel].clone()], sums: vec![vec![(0, coefficient)]] }
            }
            _ => panic!("a summed output is one parcel"),
        };
        self.sums.iter().map(one).collect()
    }

    /// The form with the fewest streams. Ties go to parcels, which need not pass through this node at all;
    /// then to sums, which stay sparse.
    fn passage(&self) -> Passage {
        if self.parcels.len() <= 1 || self.parcels_stand_apart() {
            return Passage::Parcels;
        }
        let filled = self.sums.iter().filter(|sum| !sum.is_empty()).count();
        if filled < self.parcels.len() && self.sums_stand_apart() {
            return Passage::Sums;
        }
        let echelon = self.echelon();
        match echelon.rank() {
            rank if rank == self.parcels.len() => Passage::Parcels,
            rank if rank == filled => Passage::Sums,
            _ => Passage::Basis(echelon),
        }
    }

    /// Whether every parcel alone makes up some sum; then each parcel needs its own stream.
    fn parcels_stand_apart(&self) -> bool {
        let mut alone = vec![false; self.parcels.len()];
        for sum in &self.sums {
            if let [(parcel, _)] = sum[..] {
                alone[parcel] = true;
            }
        }
        alone.into_iter().all(|alone| alone)
    }

    /// Whether every sum contains a parcel that no other sum uses; then each sum needs its own stream.
    fn sums_stand_apart(&self) -> bool {
        let users = self.users();
        self.sums.iter().all(|sum| sum.is_empty() || sum.iter().any(|&(parcel, _)| users[parcel] == 1))
    }

    /// The number of sums that use each parcel.
    fn users(&self) -> Vec<u32> {
        let mut users = vec![0; self.parcels.len()];
        self.sums.iter().flatten().for_each(|&(parcel, _)| users[parcel] += 1);
        users
    }

    fn echelon(&self) -> Echelon {
        let mut echelon = Echelon::new(self.parcels.len());
        for sum in self.sums.iter().filter(|sum| !sum.is_empty()) {
            let mut row = vec![0; self.parcels.len()];
            sum.iter().for_each(|&(parcel, coefficient)| row[parcel] = coefficient);
            echelon.insert(row);
            if echelon.is_full() {
                break;
            }
        }
        echelon
    }

    /// Combines the parcels into one per reduced row. Let M be the matrix of the sums, R its reduced rows, P
    /// their pivots, and M_P the columns of M at the pivots. Then M = M_P · R, so the coefficients of a sum
    /// over the new parcels are those that it had at the pivots.
    fn based(self, echelon: Echelon, node: NodeId, builder: &mut PlanBuilder) -> Self {
        let rows: Vec<(usize, Sum)> =
            echelon.reduced().into_iter().map(|(pivot, row)| (pivot, sparse(&row))).collect();
        let mut used = vec![false; self.parcels.len()];
        for (_, row) in rows.iter().filter(|(_, row)| row.len() > 1) {
            row.iter().for_each(|&(parcel, _)| used[parcel] = true);
        }
        let inputs = self.inputs(&used, node, builder);
        let mut next = Self::empty(0);
        let mut number = vec![None; self.parcels.len()];
        for (pivot, row) in rows {
            number[pivot] = Some(next.add(match row.len() {
                1 => self.parcels[pivot].clone(),
                _ => Parcel { node, combination: weighed(&row, &inputs) },
            }));
        }
        let at_pivots =
            |sum: &Sum| sum.iter().filter_map(|&(parcel, c)| Some((number[parcel]?, c))).collect();
        next.sums = self.sums.iter().map(at_pivots).collect();
        next
    }

    /// Adds a parcel and returns its number.
    fn add(&mut self, parcel: Parcel) -> usize {
        self.parcels.push(parcel);
        self.parcels.len() - 1
    }

    /// Moves the used parcels to `node` and returns the combination that each becomes there.
    fn inputs(&self, used: &[bool], node: NodeId, builder: &mut PlanBuilder) -> Vec<Combination> {
        let bring = |(parcel, &used): (&Parcel, &bool)| match used {
            true => parcel.clone().brought(node, builder),
            false => Combination::new(),
        };
        self.parcels.iter().zip(used).map(bring).collect()
    }
}

impl Parcel {
    /// The combination at `node`: the parcel's own terms if it was made there, otherwise a received stream.
    fn brought(self, node: NodeId, builder: &mut PlanBuilder) -> Combination {
        match self.node == node {
            true => self.combination,
            false => vec![Summand { input: builder.send(self.node, node, self.combination), coefficient: 1 }],
        }
    }
}

/// The terms of a dense row.
fn sparse(row: &[u8]) -> Sum {
    row.iter().copied().enumerate().filter(|&(_, coefficient)| coefficient != 0).collect()
}

/// Expresses a sum of parcels as a combination of the inputs of the node that makes the sum.
fn weighed(sum: &Sum, inputs: &[Combination]) -> Combination {
    let terms = sum.iter().flat_map(|&(parcel, factor)| {
        let scaled = move |of: &Summand| Summand { coefficient: gf::mul(factor, of.coefficient), ..*of };
        inputs[parcel].iter().map(scaled)
    });
    // Two parcels can have an input in common only if at least one of them was combined at this node from
    // several inputs.
    match sum.iter().all(|&(parcel, _)| inputs[parcel].len() == 1) {
        true => terms.collect(),
        false => merged(terms),
    }
}

/// Merges terms over the same input.
fn merged(terms: impl Iterator<Item = Summand>) -> Combination {
    let mut coefficients = BTreeMap::new();
    terms.for_each(|term| *coefficients.entry(term.input).or_insert(0) ^= term.coefficient);
    let terms = coefficients.into_iter().map(|(input, coefficient)| Summand { input, coefficient });
    terms.filter(|term| term.coefficient != 0).collect()
}
