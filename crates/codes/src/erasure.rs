//! The request for a repair (lost, available and wanted blocks), validated once for all codes.

use crate::{BlockIndex, DecodeError};

/// The wanted and available blocks of one repair, as indices below n and without repetition.
#[derive(Debug)]
pub(crate) struct Erasure {
    /// The wanted blocks, in the requested order.
    pub wanted: Vec<usize>,
    /// The wanted blocks that are not available.
    pub lost: Vec<usize>,
    /// The available blocks in order of use: wanted ones first, since they are read in any case, then
    /// the others in the caller's order of preference.
    pub present: Vec<usize>,
    is_present: Vec<bool>,
}

impl Erasure {
    pub fn new(blocks: usize, wanted: &[BlockIndex], available: &[BlockIndex]) -> Result<Self, DecodeError> {
        let (wanted, is_wanted) = distinct(blocks, wanted)?;
        let (available, is_present) = distinct(blocks, available)?;
        let lost = wanted.iter().copied().filter(|&block| !is_present[block]).collect();
        let read_anyway = wanted.iter().filter(|&&block| is_present[block]);
        let by_preference = available.iter().filter(|&&block| !is_wanted[block]);
        let present = read_anyway.chain(by_preference).copied().collect();
        Ok(Self { wanted, lost, present, is_present })
    }

    /// Returns the wanted blocks that are available.
    pub fn read_anyway(&self) -> &[usize] {
        &self.present[..self.wanted.len() - self.lost.len()]
    }

    /// Whether all of `blocks` are available, not counting the block `lost`.
    pub fn has_all_but(&self, lost: usize, mut blocks: impl Iterator<Item = usize>) -> bool {
        blocks.all(|block| block == lost || self.is_present[block])
    }

    pub fn is_present(&self, block: usize) -> bool {
        self.is_present[block]
    }

    /// Returns the first `needed` available blocks in order of use. An MDS code decodes everything from these
    /// blocks. If more than `needed` of the wanted blocks are available, returns all of those instead. If
    /// nothing is lost, fewer than `needed` blocks may be available; then returns them all.
    ///
    /// # Errors
    /// If a wanted block is lost and fewer than `needed` blocks are available.
    pub fn any(&self, needed: usize) -> Result<&[usize], DecodeError> {
        let available = self.present.len();
        if !self.lost.is_empty() && available < needed {
            return Err(DecodeError::NotEnoughBlocks { needed, available });
        }
        Ok(&self.present[..available.min(needed.max(self.read_anyway().len()))])
    }
}

/// Returns the indices without repetition, and for each block of the stripe whether it is among them.
fn distinct(blocks: usize, indices: &[BlockIndex]) -> Result<(Vec<usize>, Vec<bool>), DecodeError> {
    let mut seen = vec![false; blocks];
    let mut distinct = Vec::with_capacity(indices.len());
    for &block in indices {
        let index = usize::from(block.0);
        let Some(seen) = seen.get_mut(index) else {
            return Err(DecodeError::NoSuchBlock { block, blocks });
        };
        if !std::mem::replace(seen, true) {
            distinct.push(index);
        }
    }
    Ok((distinct, seen))
}
