//! Gathers small deliveries into larger writes.
//!
//! With small chunks, a slice of one output consists of many pieces smaller than a page (4 KiB), interleaved
//! with pieces of the block's other outputs. All outputs of a block are delivered at one node, which gathers
//! them here and writes them together, a whole run of chunks at a time. Pieces of a page or more are written
//! as they arrive.

use std::collections::BTreeMap;

use codes::{BlockIndex, SubBlock};

use crate::transfer::GAP_BYTES;
use crate::{Assignment, Buffer, Chunking, Geometry, Transfer};

/// Gathers the slices of a block's outputs until they can be written together; see the module's
/// documentation.
#[derive(Debug)]
pub struct Gathering {
    chunking: Chunking,
    geometry: Geometry,
    outputs: Vec<SubBlock>,
    /// For each block that is delivered to this node, its sub-blocks in ascending order. Empty if sub-blocks
    /// are written one by one instead of being gathered.
    of_block: BTreeMap<BlockIndex, Vec<SubBlock>>,
    waiting: BTreeMap<(u32, BlockIndex), BTreeMap<u16, Buffer>>,
}

impl Gathering {
    /// Whether the deliveries of an assignment are gathered, because the pieces of its slices are small.
    pub(crate) fn gathers(assignment: &Assignment) -> bool {
        assignment.chunking.part_bytes() < GAP_BYTES
    }

    /// Prepares to gather the deliveries of an assignment.
    pub fn new(assignment: &Assignment) -> Self {
        let mut of_block: BTreeMap<BlockIndex, Vec<SubBlock>> = BTreeMap::new();
        if Self::gathers(assignment) {
            for &output in &assignment.outputs {
                of_block.entry(output.block).or_default().push(output);
            }
        }
        for outputs in of_block.values_mut() {
            outputs.sort_unstable();
            outputs.dedup();
        }
        Self {
            chunking: assignment.chunking,
            geometry: assignment.geometry.clone(),
            outputs: assignment.outputs.clone(),
            of_block,
            waiting: BTreeMap::new(),
        }
    }

    /// Adds a slice of one output, as received in [`Action::Deliver`](crate::Action::Deliver). If it
    /// completes a write, returns that write with a buffer for each of its sub-blocks.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn add(&mut self, output: u32, slice: u32, buffer: Buffer) -> Option<(Transfer, Vec<Buffer>)> {
        let output = self.outputs[output as usize];
        let within = self.geometry.span(slice);
        let Some(all) = self.of_block.get(&output.block) else {
            return Some((Transfer::new(self.chunking, &[output], within), vec![buffer]));
        };
        let waiting = self.waiting.entry((slice, output.block)).or_default();
        waiting.insert(output.sub, buffer);
        if waiting.len() < all.len() {
            return None;
        }
        let buffers = self.waiting.remove(&(slice, output.block)).unwrap_or_default();
        Some((Transfer::new(self.chunking, all, within), buffers.into_values().collect()))
    }

    /// Drops all pending slices.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}
