//! A repair or an encoding as a linear combination of sub-blocks.

use gf::mul;

use crate::SubBlock;

/// Linear combinations of sub-blocks: `outputs[i] = Σ c · sources[j]` over the terms `(j, c)` of `rows[i]`.
///
/// **Invariant:** sources are distinct and each is used by at least one row; `j` is in range; no coefficient
/// is zero; the terms of a row ascend in `j`; there is one row per output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    outputs: Vec<SubBlock>,
    sources: Vec<SubBlock>,
    rows: Vec<Vec<(u32, u8)>>,
}

impl Recipe {
    /// Creates a recipe from rows over `sources`; drops zero coefficients and sources that no row uses.
    ///
    /// # Panics
    /// If the number of rows is not the number of outputs, or a term points past the sources.
    pub fn new(outputs: Vec<SubBlock>, sources: Vec<SubBlock>, rows: Vec<Vec<(u32, u8)>>) -> Self {
        assert_eq!(outputs.len(), rows.len(), "one row per output");
        let mut used = vec![false; sources.len()];
        for &(source, coefficient) in rows.iter().flatten() {
            used[source as usize] |= coefficient != 0;
        }
        let mut position = vec![0u32; sources.len()];
        let mut kept = Vec::new();
        for (index, source) in sources.into_iter().enumerate() {
            position[index] = kept.len() as u32;
            if used[index] {
                kept.push(source);
            }
        }
        let rows = rows
            .into_iter()
            .map(|row| {
                let mut row: Vec<(u32, u8)> = row
                    .into_iter()
                    .filter(|&(_, coefficient)| coefficient != 0)
                    .map(|(source, coefficient)| (position[source as usize], coefficient))
                    .collect();
                row.sort_unstable_by_key(|&(source, _)| source);
                row
            })
            .collect();
        Self { outputs, sources: kept, rows }
    }

    /// Returns the sub-blocks that the recipe computes.
    pub fn outputs(&self) -> &[SubBlock] {
        &self.outputs
    }

    /// Returns the sub-blocks that the recipe reads.
    pub fn sources(&self) -> &[SubBlock] {
        &self.sources
    }

    /// Returns the terms `(source, coefficient)` of output `output`, ascending in source.
    pub fn row(&self, output: usize) -> &[(u32, u8)] {
        &self.rows[output]
    }

    /// Returns the recipe restricted to some of its outputs; sources that are then unused are dropped.
    pub fn only(&self, keep: impl Fn(SubBlock) -> bool) -> Self {
        let kept: Vec<usize> = (0..self.outputs.len()).filter(|&i| keep(self.outputs[i])).collect();
        Self::new(
            kept.iter().map(|&i| self.outputs[i]).collect(),
            self.sources.clone(),
            kept.iter().map(|&i| self.rows[i].clone()).collect(),
        )
    }

    /// Computes the outputs byte by byte. This is the slow reference for all other implementations.
    ///
    /// # Panics
    /// If the number of sources is wrong, or the sources differ in length.
    pub fn apply(&self, sources: &[&[u8]]) -> Vec<Vec<u8>> {
        assert_eq!(sources.len(), self.sources.len(), "one byte string per source");
        let bytes = sources.first().map_or(0, |source| source.len());
        self.rows
            .iter()
            .map(|row| {
                let mut output = vec![0; bytes];
                for &(source, coefficient) in row {
                    let source = sources[source as usize];
                    assert_eq!(source.len(), bytes, "sources of one length");
                    output.iter_mut().zip(source).for_each(|(o, &s)| *o ^= mul(coefficient, s));
                }
                output
            })
            .collect()
    }
}
