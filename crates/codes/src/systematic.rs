//! Encodes and decodes a systematic code given its parity rows, by solving for the missing data.
//!
//! A code decides which sub-blocks to read; the coefficients are computed here. Sub-blocks are numbered
//! through the stripe, block by block: sub-block s of block b has index b·α + s.

use crate::erasure::Erasure;
use crate::matrix::add_scaled;
use crate::{BlockIndex, DecodeError, Matrix, Recipe, SubBlock};

/// A code whose first blocks are the data, defined by the rows of its parity sub-blocks over the data
/// sub-blocks.
#[derive(Debug)]
pub(crate) struct Systematic {
    sub_blocks: usize,
    parity: Matrix,
}

impl Systematic {
    /// Creates the code with these parity rows. `parity` has α = `sub_blocks` rows for each parity block and
    /// α columns for each data block.
    pub fn new(sub_blocks: usize, parity: Matrix) -> Self {
        assert!(parity.rows().is_multiple_of(sub_blocks) && parity.columns().is_multiple_of(sub_blocks));
        Self { sub_blocks, parity }
    }

    pub fn parity(&self) -> &Matrix {
        &self.parity
    }

    pub fn data_blocks(&self) -> usize {
        self.parity.columns() / self.sub_blocks
    }

    pub fn blocks(&self) -> usize {
        self.data_blocks() + self.parity.rows() / self.sub_blocks
    }

    pub fn encoding(&self) -> Recipe {
        let data = self.parity.columns();
        let all = data + self.parity.rows();
        Recipe::new(
            (data..all).map(|index| self.sub_block(index)).collect(),
            (0..data).map(|index| self.sub_block(index)).collect(),
            (0..self.parity.rows()).map(|row| terms(self.parity.row(row))).collect(),
        )
    }

    /// Returns the recipe that rebuilds the wanted blocks from all sub-blocks of `blocks`.
    ///
    /// # Errors
    /// If the sub-blocks read do not determine a lost block.
    pub fn solve_from(&self, erasure: &Erasure, blocks: &[usize]) -> Result<Recipe, DecodeError> {
        let sources: Vec<usize> = blocks.iter().flat_map(|&block| self.indices(block)).collect();
        self.solve(erasure, &sources)
    }

    /// Returns the recipe that rebuilds the wanted blocks from those sub-blocks of available blocks for which
    /// `reads` returns true.
    ///
    /// # Errors
    /// If the sub-blocks read do not determine a lost block.
    pub fn solve_reading(
        &self,
        erasure: &Erasure,
        reads: impl Fn(usize, usize) -> bool,
    ) -> Result<Recipe, DecodeError> {
        let mut sources = Vec::new();
        for (order, &block) in erasure.present.iter().enumerate() {
            let read_anyway = order < erasure.read_anyway().len();
            let subs = (0..self.sub_blocks).filter(|&sub| read_anyway || reads(block, sub));
            sources.extend(subs.map(|sub| block * self.sub_blocks + sub));
        }
        self.solve(erasure, &sources)
    }

    fn solve(&self, erasure: &Erasure, sources: &[usize]) -> Result<Recipe, DecodeError> {
        let lost: Vec<usize> = erasure.lost.iter().flat_map(|&block| self.indices(block)).collect();
        let combined = self.combine(&lost, sources).map_err(|target| DecodeError::Undecodable {
            block: self.sub_block(lost[target]).block,
            available: erasure.present.len(),
        })?;
        let mut lost_rows = (0..lost.len()).map(|row| terms(combined.row(row)));
        let position = positions(self.blocks() * self.sub_blocks, sources);
        let mut outputs = Vec::new();
        let mut rows = Vec::new();
        for &block in &erasure.wanted {
            outputs.extend(self.indices(block).map(|index| self.sub_block(index)));
            if erasure.is_present(block) {
                let source = |index: usize| position[index].expect("available wanted blocks are sources");
                rows.extend(self.indices(block).map(|index| vec![(source(index) as u32, 1)]));
            } else {
                rows.extend(lost_rows.by_ref().take(self.sub_blocks));
            }
        }
        Ok(Recipe::new(outputs, sources.iter().map(|&index| self.sub_block(index)).collect(), rows))
    }

    /// Expresses the targets, none of which is a source, in terms of the sources: one row of coefficients per
    /// target.
    ///
    /// Only data sub-blocks that are not sources are unknowns. So the matrix to invert has the size of the
    /// loss, whatever k is.
    ///
    /// # Errors
    /// The position of a target that the sources do not determine.
    pub fn combine(&self, targets: &[usize], sources: &[usize]) -> Result<Matrix, usize> {
        let data = self.parity.columns();
        let position = positions(data + self.parity.rows(), sources);
        let parities: Vec<usize> = sources.iter().filter_map(|source| source.checked_sub(data)).collect();
        let by_parity = self.solve_unknown(targets, &position[..data], &parities)?;
        let mut combined = Matrix::zero(targets.len(), sources.len());
        for (i, &target) in targets.iter().enumerate() {
            let row = combined.row_mut(i);
            let mut known: Vec<u8> = (0..data).map(|j| self.element(target, j)).collect();
            for (&parity, &coefficient) in parities.iter().zip(by_parity.row(i)) {
                add_scaled(&mut known, self.parity.row(parity), coefficient);
                row[position[data + parity].expect("it is a source")] = coefficient;
            }
            for (&source, coefficient) in position.iter().zip(known) {
                source.into_iter().for_each(|source| row[source] = coefficient);
            }
        }
        Ok(combined)
    }

    /// Returns a row of coefficients per target, one for each parity sub-block among the sources. The sum of
    /// these sub-blocks with these coefficients contains every unknown data sub-block with the same
    /// coefficient as the target does.
    fn solve_unknown(
        &self,
        targets: &[usize],
        data_position: &[Option<usize>],
        parities: &[usize],
    ) -> Result<Matrix, usize> {
        let unknown: Vec<usize> =
            (0..data_position.len()).filter(|&data| data_position[data].is_none()).collect();
        let equations = self.parity.select(parities, &unknown);
        let part = |i: usize, j: usize| self.element(targets[i], unknown[j]);
        equations.solve_rows(&Matrix::from_fn(targets.len(), unknown.len(), part))
    }

    /// Returns the coefficient of data sub-block `data` in sub-block `index`.
    fn element(&self, index: usize, data: usize) -> u8 {
        match index.checked_sub(self.parity.columns()) {
            Some(parity) => self.parity[(parity, data)],
            None => u8::from(index == data),
        }
    }

    fn indices(&self, block: usize) -> std::ops::Range<usize> {
        block * self.sub_blocks..(block + 1) * self.sub_blocks
    }

    fn sub_block(&self, index: usize) -> SubBlock {
        let (block, sub) = (index / self.sub_blocks, index % self.sub_blocks);
        SubBlock { block: BlockIndex(block as u16), sub: sub as u16 }
    }
}

/// Returns the position of each index below `size` in `sources`, or `None` if it is not there.
fn positions(size: usize, sources: &[usize]) -> Vec<Option<usize>> {
    let mut position = vec![None; size];
    sources.iter().enumerate().for_each(|(source, &index)| position[index] = Some(source));
    position
}

/// Returns the terms of a dense row, including zeros, which [`Recipe::new`] drops.
fn terms(row: &[u8]) -> Vec<(u32, u8)> {
    (0u32..).zip(row.iter().copied()).collect()
}
