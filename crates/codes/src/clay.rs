//! Clay codes: MDS codes that rebuild a lost block from a 1/(d−k+1) part of each of d helpers.
//!
//! Blocks are nodes of a grid, q = d − k + 1 wide and t high. If n is not a multiple of q, virtual blocks of
//! zeros fill the grid. A block has α = q^t sub-blocks, one for each *plane*. A plane z has a digit below q
//! for each row y of the grid; that digit selects the node (z_y, y), which is called *dotted* in z. A
//! sub-block (x, y; z) of an undotted node is coupled with the sub-block (z_y, y; z with digit y set to x).
//! The stored ("coupled") sub-blocks C and the uncoupled U of a pair are related by
//!
//! ```text
//! U = o·C + p·C*      U* = o′·C* + p′·C      (and U = C for a dotted node)
//! ```
//!
//! where U and C belong to the node of higher x in the pair. In each plane, the U of all nodes form a
//! codeword of one Reed-Solomon code; that is the whole definition. The coupling and the Reed-Solomon code
//! are parameters ([`ClayVariant`]): the coupling must let any two of a pair's four values determine the
//! other two.
//!
//! All computations here are symbolic: a sub-block is represented by the list of source sub-blocks that sum
//! to it, not by bytes. So no generator matrix (2560 by 3584 elements for (14, 10, 13)) is ever built. The
//! work is (n − k)·k additions of lists in each solved plane. For (14, 10, 13), the list of a rebuilt
//! sub-block has about 25 terms if one block is lost, 30 for encoding, and up to 120 if losses are spread
//! over the grid, because then the sums of one plane contain those of other planes.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use gf::mul;

use crate::erasure::Erasure;
use crate::matrix::inverse_of;
use crate::systematic::Systematic;
use crate::{BlockIndex, Code, CodeSpec, DecodeError, Matrix, Recipe, RsFamily, SpecError, SubBlock};

/// The maximum α. With α = 4096, 64 MiB blocks are cut into 16 KiB sub-blocks, and a recipe has about 10^5
/// terms per lost block. A larger α would be impractical.
const MAX_SUB_BLOCKS: usize = 4096;

/// The coupling of a pair's two sub-blocks: the coefficients of C and C* in U, the node of higher x first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coupling {
    /// Coefficients of C and C* in U, for the node of higher x.
    pub high: [u8; 2],
    /// Coefficients of C and C* in U, for the node of lower x.
    pub low: [u8; 2],
}

impl Coupling {
    /// U = C + 2·C* for both nodes; products with 2 are cheapest.
    pub const SYMMETRIC: Self = Self { high: [1, 2], low: [1, 2] };

    /// Returns the coefficients in the order of the text form: o, p, o′, p′.
    fn numbers(self) -> [u8; 4] {
        [self.high[0], self.high[1], self.low[0], self.low[1]]
    }

    /// Returns the determinant of a pair's equations: o·o′ + p·p′.
    fn determinant(self) -> u8 {
        mul(self.high[0], self.low[0]) ^ mul(self.high[1], self.low[1])
    }

    /// Whether any two of a pair's four values determine the other two.
    fn is_mds(self) -> bool {
        !self.numbers().contains(&0) && self.determinant() != 0
    }
}

/// The parameters in which Clay codes of the same n, k and d differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClayVariant {
    /// The Reed-Solomon code that the uncoupled sub-blocks of each plane form.
    pub scalar: RsFamily,
    /// The coupling of pairs.
    pub coupling: Coupling,
}

impl ClayVariant {
    /// Mend's own variant, `clay-N-K-D`.
    pub const MEND: Self = Self { scalar: RsFamily::Cauchy, coupling: Coupling::SYMMETRIC };

    /// The variants with a name: those of Ceph's plug-ins. A plug-in couples pairs by its own code of two
    /// data and two parity blocks: C and C* are the data, U and U* the parity. Mend's own variant has no
    /// name.
    const NAMED: [(&str, Self); 3] = [
        (
            "ceph-jerasure",
            Self { scalar: RsFamily::Jerasure, coupling: Coupling { high: [1, 1], low: [143, 1] } },
        ),
        ("ceph-isa", Self { scalar: RsFamily::Isal, coupling: Coupling { high: [1, 1], low: [2, 1] } }),
        (
            "ceph-cauchy",
            Self { scalar: RsFamily::Cauchy, coupling: Coupling { high: [142, 244], low: [142, 244] } },
        ),
    ];

    /// Parses the suffix of a Clay code's name; returns `None` if the suffix is no variant.
    ///
    /// # Errors
    /// If the suffix names a Reed-Solomon family that does not exist.
    pub(crate) fn parse(suffix: Option<&str>) -> Result<Option<Self>, SpecError> {
        let Some(suffix) = suffix else { return Ok(Some(Self::MEND)) };
        if let Some((_, variant)) = Self::NAMED.iter().find(|(name, _)| *name == suffix) {
            return Ok(Some(*variant));
        }
        // A family's name may contain hyphens; the four numbers after it contain none.
        let mut parts = suffix.rsplitn(5, '-');
        let numbers: Vec<u8> = parts.by_ref().take(4).filter_map(|part| part.parse().ok()).collect();
        let (Ok([low_of_star, low, high_of_star, high]), Some(family)) =
            (<[u8; 4]>::try_from(numbers), parts.next())
        else {
            return Ok(None);
        };
        let coupling = Coupling { high: [high, high_of_star], low: [low, low_of_star] };
        Ok(Some(Self { scalar: family.parse()?, coupling }))
    }
}

impl fmt::Display for ClayVariant {
    /// Writes the suffix that follows the numbers in the code's name, including its hyphen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MEND {
            return Ok(());
        }
        if let Some((name, _)) = Self::NAMED.iter().find(|(_, variant)| variant == self) {
            return write!(f, "-{name}");
        }
        let [high, high_of_star, low, low_of_star] = self.coupling.numbers();
        write!(f, "-{}-{high}-{high_of_star}-{low}-{low_of_star}", self.scalar)
    }
}

/// A Clay code: any k of its n blocks rebuild the others, and d of them rebuild a single block with less
/// data.
#[derive(Debug)]
pub struct Clay {
    spec: CodeSpec,
    n: usize,
    k: usize,
    /// The number of helpers in the repair of a single block.
    d: usize,
    grid: Grid,
    coupling: Coupling,
    /// The code of the uncoupled sub-blocks of a plane, over all nodes of the grid.
    plane_code: Systematic,
    encoding: OnceLock<Recipe>,
}

/// Checks the limits on d, on the resulting α, and on the variant.
pub(crate) fn check(n: usize, k: usize, d: usize, variant: ClayVariant) -> Result<(), SpecError> {
    if d <= k || d >= n {
        return Err(SpecError::ClayHelpers { n, k, d });
    }
    if sub_blocks(n, k, d) > MAX_SUB_BLOCKS {
        let grid = Grid::new(n, k, d);
        return Err(SpecError::ClaySubBlocks { n, k, d, q: grid.width, t: grid.height, max: MAX_SUB_BLOCKS });
    }
    if !variant.coupling.is_mds() {
        return Err(SpecError::ClayCoupling { numbers: variant.coupling.numbers() });
    }
    scalar_spec(variant, n, k, d).check()
}

/// Returns the spec of the Reed-Solomon code that the nodes of each plane form. Its data blocks include the
/// virtual nodes.
fn scalar_spec(variant: ClayVariant, n: usize, k: usize, d: usize) -> CodeSpec {
    let nodes = Grid::new(n, k, d).nodes();
    CodeSpec::ReedSolomon { family: variant.scalar, n: nodes, k: nodes - (n - k) }
}

/// Returns α = q^t, or `usize::MAX` if the power overflows.
pub(crate) fn sub_blocks(n: usize, k: usize, d: usize) -> usize {
    let grid = Grid::new(n, k, d);
    grid.width.saturating_pow(grid.height as u32)
}

impl Clay {
    /// Creates the `(n, k)` code whose single-block repairs have `d` helpers.
    ///
    /// # Errors
    /// If the parameters are outside the code's limits.
    pub fn new(n: usize, k: usize, d: usize, variant: ClayVariant) -> Result<Self, SpecError> {
        let spec = CodeSpec::Clay { n, k, d, variant };
        spec.check()?;
        let grid = Grid::new(n, k, d);
        let parity = variant.scalar.parity_rows(grid.nodes(), grid.nodes() - (n - k))?;
        let (coupling, plane_code) = (variant.coupling, Systematic::new(1, parity));
        Ok(Self { spec, n, k, d, grid, coupling, plane_code, encoding: OnceLock::new() })
    }

    /// Returns the node of a block; virtual nodes lie between data and parity.
    fn node(&self, block: usize) -> usize {
        if block < self.k { block } else { block + self.grid.nodes() - self.n }
    }

    /// Returns the block of a node, or `None` if the node is virtual.
    fn block(&self, node: usize) -> Option<usize> {
        let virtual_nodes = self.grid.nodes() - self.n;
        match node {
            data if data < self.k => Some(data),
            parity if parity >= self.k + virtual_nodes => Some(parity - virtual_nodes),
            _ => None,
        }
    }

    /// Returns the d helpers that rebuild block `lost` with the fewest reads: all other blocks of its row in
    /// the grid, then further blocks in order of preference. Returns `None` if another block of the row is
    /// unavailable, or if fewer than d blocks are available.
    fn helpers(&self, lost: usize, erasure: &Erasure) -> Option<Vec<usize>> {
        let row = self.grid.row_of(self.node(lost));
        let in_row = |block: &usize| self.grid.row_of(self.node(*block)) == row;
        if !erasure.has_all_but(lost, (0..self.n).filter(in_row)) || erasure.present.len() < self.d {
            return None;
        }
        let (must, may): (Vec<usize>, Vec<usize>) = erasure.present.iter().partition(|block| in_row(block));
        Some(must.into_iter().chain(may).take(self.d).collect())
    }

    /// Returns the recipe that rebuilds the only lost block from the planes in which the block's node is
    /// dotted.
    fn repair_one(&self, erasure: &Erasure, lost: usize, helpers: &[usize]) -> Recipe {
        let node = self.node(lost);
        let row = self.grid.row_of(node);
        let planes: Vec<usize> = self.grid.planes().filter(|&z| self.grid.is_dotted(node, z)).collect();
        // In these planes, U is unknown for every node in the lost block's row: the sub-block of each other
        // node in the row is coupled with a sub-block of the lost block. With the nodes that do not help,
        // there are n − k unknown nodes, which the plane's equations determine.
        let is_unknown = |other: &usize| {
            let helps = self.block(*other).is_none_or(|block| helpers.contains(&block));
            self.grid.row_of(*other) == row || !helps
        };
        let unknown: Vec<usize> = (0..self.grid.nodes()).filter(is_unknown).collect();
        let beyond_helpers = erasure.read_anyway().iter().filter(|block| !helpers.contains(block));
        let sources: Vec<usize> = helpers.iter().chain(beyond_helpers).copied().collect();
        let layers = Layers::solve(self, unknown, &sources, &planes);
        let mut sums = vec![Sum::default(); self.sub_blocks()];
        for &z in &planes {
            for (position, &other) in layers.unknown.iter().enumerate() {
                if other == node {
                    sums[z] = layers.uncoupled[position][z].clone();
                } else if self.grid.row_of(other) == row {
                    let (partner, plane) = self.grid.partner(other, z).expect("only the lost node is dotted");
                    debug_assert_eq!(partner, node);
                    sums[plane] = layers.partner_of_known(other, partner, z, &layers.uncoupled[position][z]);
                }
            }
        }
        self.recipe(erasure, &sources, &[sums])
    }

    /// Returns the recipe that rebuilds any losses from k blocks. Solves all planes.
    fn decode(&self, erasure: &Erasure, sources: &[usize]) -> Recipe {
        let known = &sources[..self.k.min(sources.len())];
        if erasure.lost.is_empty() {
            return self.recipe(erasure, sources, &[]);
        }
        let is_unknown = |node: &usize| self.block(*node).is_some_and(|block| !known.contains(&block));
        let unknown: Vec<usize> = (0..self.grid.nodes()).filter(is_unknown).collect();
        let planes: Vec<usize> = self.grid.planes().collect();
        let layers = Layers::solve(self, unknown, sources, &planes);
        let couple = |&lost: &usize| planes.iter().map(|&z| layers.coupled(self.node(lost), z)).collect();
        let sums: Vec<Vec<Sum>> = erasure.lost.iter().map(couple).collect();
        self.recipe(erasure, sources, &sums)
    }

    /// Builds the recipe for the wanted blocks from the sums for all sub-blocks of each lost block.
    fn recipe(&self, erasure: &Erasure, sources: &[usize], lost_sums: &[Vec<Sum>]) -> Recipe {
        let sub_blocks_of = |&block: &usize| {
            let block = BlockIndex(block as u16);
            (0..self.sub_blocks() as u16).map(move |sub| SubBlock { block, sub })
        };
        let mut lost_sums = lost_sums.iter();
        let mut rows = Vec::new();
        for block in &erasure.wanted {
            if let Some(position) = sources.iter().position(|source| source == block) {
                let first = position * self.sub_blocks();
                rows.extend((first..first + self.sub_blocks()).map(|source| vec![(source as u32, 1)]));
            } else {
                let sums = lost_sums.next().expect("wanted blocks are sources or lost");
                rows.extend(sums.iter().map(|sum| sum.0.clone()));
            }
        }
        let outputs = erasure.wanted.iter().flat_map(sub_blocks_of).collect();
        Recipe::new(outputs, sources.iter().flat_map(sub_blocks_of).collect(), rows)
    }
}

/// The grid of nodes, q wide and t high, and its planes.
#[derive(Debug)]
struct Grid {
    width: usize,
    height: usize,
}

impl Grid {
    fn new(n: usize, k: usize, d: usize) -> Self {
        let width = d.saturating_sub(k) + 1;
        Self { width, height: n.div_ceil(width) }
    }

    fn nodes(&self) -> usize {
        self.width * self.height
    }

    fn planes(&self) -> Range<usize> {
        0..self.width.pow(self.height as u32)
    }

    fn row_of(&self, node: usize) -> usize {
        node / self.width
    }

    /// Returns the place value of row `row`'s digit in a plane's number; row 0 is the most significant.
    fn weight(&self, row: usize) -> usize {
        self.width.pow((self.height - 1 - row) as u32)
    }

    fn digit(&self, plane: usize, row: usize) -> usize {
        plane / self.weight(row) % self.width
    }

    fn is_dotted(&self, node: usize, plane: usize) -> bool {
        self.digit(plane, self.row_of(node)) == node % self.width
    }

    /// Returns the sub-block with which `node`'s sub-block in `plane` is coupled, as its node and its plane;
    /// `None` if `node` is dotted in `plane`.
    fn partner(&self, node: usize, plane: usize) -> Option<(usize, usize)> {
        let (x, row) = (node % self.width, self.row_of(node));
        let digit = self.digit(plane, row);
        (digit != x).then(|| {
            let weight = self.weight(row);
            (row * self.width + digit, plane - digit * weight + x * weight)
        })
    }
}

/// A sub-block as a linear combination: terms of source and coefficient, ascending in source.
#[derive(Clone, Debug, Default)]
struct Sum(Vec<(u32, u8)>);

/// A dense accumulator of coefficients. Adding a [`Sum`] takes a single pass over the terms of that sum.
struct Accumulator {
    coefficients: Vec<u8>,
    touched: Vec<u32>,
}

impl Accumulator {
    fn new(sources: usize) -> Self {
        Self { coefficients: vec![0; sources], touched: Vec::new() }
    }

    fn add_term(&mut self, source: u32, coefficient: u8) {
        let sum = &mut self.coefficients[source as usize];
        if *sum == 0 {
            self.touched.push(source);
        }
        *sum ^= coefficient;
    }

    fn add(&mut self, sum: &Sum, scale: u8) {
        sum.0.iter().for_each(|&(source, coefficient)| self.add_term(source, mul(scale, coefficient)));
    }

    /// Returns the sum and resets the accumulator to zero.
    fn take(&mut self) -> Sum {
        // If a source's coefficient became zero in between, `touched` may contain the source twice. The
        // second occurrence reads zero and is dropped.
        self.touched.sort_unstable();
        let terms = self
            .touched
            .drain(..)
            .map(|source| (source, std::mem::take(&mut self.coefficients[source as usize])));
        Sum(terms.filter(|&(_, coefficient)| coefficient != 0).collect())
    }
}

/// The uncoupled sub-blocks of unknown nodes, solved plane by plane.
struct Layers<'a> {
    grid: &'a Grid,
    coupling: Coupling,
    /// The n − k unknown nodes.
    unknown: Vec<usize>,
    /// The position of each node in `unknown`; `None` for known nodes.
    positions: Vec<Option<usize>>,
    /// The index of each node's first sub-block among the sources; `None` for virtual nodes.
    first_source: Vec<Option<u32>>,
    /// U of the unknown nodes, by position and plane.
    uncoupled: Vec<Vec<Sum>>,
}

impl<'a> Layers<'a> {
    /// Solves `planes` for the nodes in `unknown`. All sub-blocks of other nodes in these planes must be
    /// sources or zero.
    fn solve(code: &'a Clay, unknown: Vec<usize>, source_blocks: &[usize], planes: &[usize]) -> Self {
        let grid = &code.grid;
        let mut first_source = vec![None; grid.nodes()];
        for (position, &block) in source_blocks.iter().enumerate() {
            first_source[code.node(block)] = Some((position * code.sub_blocks()) as u32);
        }
        let mut positions = vec![None; grid.nodes()];
        unknown.iter().enumerate().for_each(|(position, &node)| positions[node] = Some(position));
        let known: Vec<usize> = (0..grid.nodes()).filter(|&node| positions[node].is_none()).collect();
        let decoding = code.plane_code.combine(&unknown, &known).expect("the plane's code is MDS");
        let uncoupled = vec![vec![Sum::default(); code.sub_blocks()]; unknown.len()];
        let mut layers = Self { grid, coupling: code.coupling, unknown, positions, first_source, uncoupled };
        let mut accumulator = Accumulator::new(source_blocks.len() * code.sub_blocks());
        for plane in layers.in_order(planes) {
            layers.solve_plane(plane, &known, &decoding, &mut accumulator);
        }
        layers
    }

    /// Sorts planes by the number of unknown nodes that are dotted in them. In this order each plane needs
    /// only earlier planes: a plane z needs U* of another plane if the partner of a known node is unknown. In
    /// z the partner is dotted; in the other plane the known node is dotted instead. So the other plane has
    /// one dotted unknown node less, and comes before z.
    fn in_order(&self, planes: &[usize]) -> Vec<usize> {
        let mut planes = planes.to_vec();
        planes.sort_by_key(|&z| self.unknown.iter().filter(|&&node| self.grid.is_dotted(node, z)).count());
        planes
    }

    fn solve_plane(&mut self, z: usize, known: &[usize], decoding: &Matrix, accumulator: &mut Accumulator) {
        for position in 0..self.unknown.len() {
            for (column, &node) in known.iter().enumerate() {
                self.add_uncoupled(accumulator, node, z, decoding[(position, column)]);
            }
            self.uncoupled[position][z] = accumulator.take();
        }
    }

    /// Adds `scale` times U of a known node.
    fn add_uncoupled(&self, accumulator: &mut Accumulator, node: usize, z: usize, scale: u8) {
        let Some((partner, plane)) = self.grid.partner(node, z) else {
            return self.add_stored(accumulator, node, z, scale);
        };
        let [own, of_star] = self.coefficients(node, partner);
        match self.positions[partner] {
            None => {
                self.add_stored(accumulator, node, z, mul(scale, own));
                self.add_stored(accumulator, partner, plane, mul(scale, of_star));
            }
            // C* is unknown, but U* is solved: C* = (U* + p′·C) / o′,
            // hence U = (o + p·p′ / o′)·C + p / o′·U*.
            Some(position) => {
                let [partners_own, _] = self.coefficients(partner, node);
                let scale = mul(scale, inverse_of(partners_own));
                self.add_stored(accumulator, node, z, mul(scale, self.coupling.determinant()));
                accumulator.add(&self.uncoupled[position][plane], mul(scale, of_star));
            }
        }
    }

    /// Adds `scale` times C of a known node. C is a source, or zero if the node is virtual.
    fn add_stored(&self, accumulator: &mut Accumulator, node: usize, z: usize, scale: u8) {
        if let Some(first) = self.first_source[node] {
            accumulator.add_term(first + z as u32, scale);
        }
    }

    /// Returns C of an unknown node. All planes must have been solved before.
    fn coupled(&self, node: usize, z: usize) -> Sum {
        let own = &self.uncoupled[self.positions[node].expect("an unknown node")][z];
        let Some((partner, plane)) = self.grid.partner(node, z) else { return own.clone() };
        let [of_own, of_star] = self.coefficients(node, partner);
        match self.positions[partner] {
            // C = (U + p·C*) / o with C* stored.
            None => {
                let scale = inverse_of(of_own);
                self.combination(own, scale, partner, plane, mul(scale, of_star))
            }
            // The inverse of the pair's equations: (o·o′ + p·p′)·C = o′·U + p·U*.
            Some(position) => {
                let [partners_own, _] = self.coefficients(partner, node);
                let scale = inverse_of(self.coupling.determinant());
                own.plus(&self.uncoupled[position][plane], mul(scale, partners_own), mul(scale, of_star))
            }
        }
    }

    /// Returns C* of a pair, computed from the stored C and from U in `uncoupled`: C* = (U + o·C) / p,
    /// where o is `own` and p is `of_star`.
    fn partner_of_known(&self, node: usize, partner: usize, z: usize, uncoupled: &Sum) -> Sum {
        let [own, of_star] = self.coefficients(node, partner);
        let scale = inverse_of(of_star);
        self.combination(uncoupled, scale, node, z, mul(scale, own))
    }

    /// Returns the coefficients of C and C* in a node's U.
    fn coefficients(&self, node: usize, partner: usize) -> [u8; 2] {
        if node > partner { self.coupling.high } else { self.coupling.low }
    }

    /// Returns `scale` · `sum` + `stored_scale` · C of a known node.
    fn combination(&self, sum: &Sum, scale: u8, node: usize, z: usize, stored_scale: u8) -> Sum {
        let stored = self.first_source[node].map(|first| (first + z as u32, 1));
        sum.plus(&Sum(stored.into_iter().collect()), scale, stored_scale)
    }
}

impl Sum {
    /// Returns `scale` · self + `other_scale` · other, by merging two ascending lists.
    fn plus(&self, other: &Self, scale: u8, other_scale: u8) -> Self {
        let mut merged = Vec::with_capacity(self.0.len() + other.0.len());
        let mut others = other.0.iter().map(|&(source, c)| (source, mul(other_scale, c))).peekable();
        for &(source, coefficient) in &self.0 {
            merged.extend(std::iter::from_fn(|| others.next_if(|&(next, _)| next < source)));
            let same = others.next_if(|&(next, _)| next == source).map_or(0, |(_, coefficient)| coefficient);
            merged.push((source, mul(scale, coefficient) ^ same));
        }
        merged.extend(others);
        merged.retain(|&(_, coefficient)| coefficient != 0);
        Self(merged)
    }
}

impl Code for Clay {
    fn spec(&self) -> &CodeSpec {
        &self.spec
    }

    fn blocks(&self) -> usize {
        self.n
    }

    fn data_blocks(&self) -> usize {
        self.k
    }

    fn sub_blocks(&self) -> usize {
        self.grid.planes().len()
    }

    fn encoding(&self) -> &Recipe {
        self.encoding.get_or_init(|| {
            let (data, parity) = (0..self.k, self.k..self.n);
            let indices =
                |blocks: Range<usize>| blocks.map(|block| BlockIndex(block as u16)).collect::<Vec<_>>();
            let erasure =
                Erasure::new(self.n, &indices(parity), &indices(data)).expect("blocks of the stripe");
            self.decode(&erasure, &erasure.present)
        })
    }

    fn repair(&self, wanted: &[BlockIndex], available: &[BlockIndex]) -> Result<Recipe, DecodeError> {
        let erasure = Erasure::new(self.n, wanted, available)?;
        if let [lost] = erasure.lost[..]
            && let Some(helpers) = self.helpers(lost, &erasure)
        {
            return Ok(self.repair_one(&erasure, lost, &helpers));
        }
        Ok(self.decode(&erasure, erasure.any(self.k)?))
    }
}
