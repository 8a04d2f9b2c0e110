//! Encoding and decoding of a systematic code from its parity rows, by solving for what is missing.

use crate::erasure::Erasure;
use crate::matrix::add_scaled;
use crate::{BlockIndex, DecodeError, Matrix, Recipe, SubBlock};

/// A code whose first blocks are the data, given by the rows of its parity sub-blocks over the data
/// sub-blocks. Sub-blocks are numbered block by block.
#[derive(Debug)]
pub(crate) struct Systematic {
    sub_blocks: usize,
    parity: Matrix,
}

impl Systematic {
    /// `parity` has α rows for each parity block and α columns for each data block.
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
        let terms = |row: &[u8]| (0u32..).zip(row.iter().copied()).collect();
        Recipe::new(
            self.sub_blocks_of(self.data_blocks()..self.blocks()),
            self.sub_blocks_of(0..self.data_blocks()),
            (0..self.parity.rows()).map(|i| terms(self.parity.row(i))).collect(),
        )
    }

    /// All sub-blocks of the wanted blocks from those of `source_blocks`.
    ///
    /// Only the missing data are unknowns, so the work is that of inverting a matrix as large as the
    /// loss, whatever k is.
    ///
    /// # Errors
    /// If the sources do not determine a lost block.
    pub fn solve(&self, erasure: &Erasure, source_blocks: &[usize]) -> Result<Recipe, DecodeError> {
        let sources = Sources::new(self, source_blocks);
        let lost: Vec<usize> = self.indices_of(&erasure.lost).collect();
        let unknown: Vec<usize> =
            (0..self.parity.columns()).filter(|&data| sources.position[data].is_none()).collect();
        let by_parity = self.solve_unknown(&lost, &unknown, &sources.parities).map_err(|row| {
            let block = BlockIndex((lost[row] / self.sub_blocks) as u16);
            DecodeError::Undecodable { block, available: erasure.present.len() }
        })?;
        let mut lost_rows = (0..lost.len()).map(|i| self.row_of(lost[i], &sources, by_parity.row(i)));
        let mut outputs = Vec::new();
        let mut rows = Vec::new();
        for &block in &erasure.wanted {
            outputs.extend(self.sub_blocks_of([block]));
            if erasure.is_present(block) {
                rows.extend(self.indices_of(&[block]).map(|index| vec![(sources.expect(index), 1)]));
            } else {
                rows.extend(lost_rows.by_ref().take(self.sub_blocks));
            }
        }
        Ok(Recipe::new(outputs, self.sub_blocks_of(source_blocks.iter().copied()), rows))
    }

    /// For each lost sub-block the coefficients of the source parities that cancel or supply its part
    /// in the unknown data; an error is the position of a lost sub-block for which there are none.
    fn solve_unknown(&self, lost: &[usize], unknown: &[usize], parities: &[usize]) -> Result<Matrix, usize> {
        let equations = self.parity.select(parities, unknown);
        let targets = Matrix::from_fn(lost.len(), unknown.len(), |i, j| self.element(lost[i], unknown[j]));
        equations.solve_rows(&targets)
    }

    /// The row of sub-block `index` over the sources, given the coefficients of the source parities:
    /// known data contribute their own coefficient less what those parities bring in.
    fn row_of(&self, index: usize, sources: &Sources, by_parity: &[u8]) -> Vec<(u32, u8)> {
        let mut data_part: Vec<u8> = (0..self.parity.columns()).map(|j| self.element(index, j)).collect();
        let mut row = Vec::new();
        for (&parity, &coefficient) in sources.parities.iter().zip(by_parity) {
            add_scaled(&mut data_part, self.parity.row(parity), coefficient);
            row.push((sources.expect(self.parity.columns() + parity), coefficient));
        }
        let known = data_part.iter().enumerate().filter(|&(_, &coefficient)| coefficient != 0);
        row.extend(known.map(|(data, &coefficient)| (sources.expect(data), coefficient)));
        row
    }

    /// The coefficient of data sub-block `data` in sub-block `index`.
    fn element(&self, index: usize, data: usize) -> u8 {
        match index.checked_sub(self.parity.columns()) {
            Some(parity) => self.parity[(parity, data)],
            None => u8::from(index == data),
        }
    }

    fn indices_of(&self, blocks: &[usize]) -> impl Iterator<Item = usize> {
        let per_block = self.sub_blocks;
        blocks.iter().flat_map(move |block| block * per_block..(block + 1) * per_block)
    }

    fn sub_blocks_of(&self, blocks: impl IntoIterator<Item = usize>) -> Vec<SubBlock> {
        let per_block = self.sub_blocks as u16;
        let sub_blocks = |block| (0..per_block).map(move |sub| SubBlock { block: BlockIndex(block), sub });
        blocks.into_iter().flat_map(|block| sub_blocks(block as u16)).collect()
    }
}

/// Where each sub-block stands among the sources, if it is one.
struct Sources {
    position: Vec<Option<u32>>,
    /// Parity rows among the sources, in the sources' order.
    parities: Vec<usize>,
}

impl Sources {
    fn new(code: &Systematic, blocks: &[usize]) -> Self {
        let mut position = vec![None; code.blocks() * code.sub_blocks];
        let indices: Vec<usize> = code.indices_of(blocks).collect();
        (0u32..).zip(&indices).for_each(|(place, &index)| position[index] = Some(place));
        let parities = indices.iter().filter_map(|index| index.checked_sub(code.parity.columns())).collect();
        Self { position, parities }
    }

    fn expect(&self, index: usize) -> u32 {
        self.position[index].expect("unknown data cancel, so that only sources have coefficients")
    }
}
