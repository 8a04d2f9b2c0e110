//! The blocks as they should be.

use codes::{Code, SubBlock};
use gf::Kernel;

use crate::dice::Dice;
use crate::scenario::Scenario;

/// All n blocks, padded with zeros to the stripe's block length.
pub(crate) fn encode(code: &dyn Code, scenario: &Scenario, dice: &mut Dice) -> Vec<Vec<u8>> {
    let block_bytes = scenario.block_bytes as usize;
    let mut blocks: Vec<Vec<u8>> = (0..code.data_blocks())
        .map(|index| {
            let mut block = dice.bytes(scenario.bytes_of(codes::BlockIndex(index as u16)) as usize);
            block.resize(block_bytes, 0);
            block
        })
        .collect();
    blocks.resize(code.blocks(), vec![0; block_bytes]);
    let sub_bytes = block_bytes / code.sub_blocks();
    let encoding = code.encoding();
    for (row, &output) in encoding.outputs().iter().enumerate() {
        let mut sum = vec![0; sub_bytes];
        for &(source, coefficient) in encoding.row(row) {
            let source = encoding.sources()[source as usize];
            Kernel::best().mul_add(coefficient, part(&blocks, source, sub_bytes), &mut sum);
        }
        let start = usize::from(output.sub) * sub_bytes;
        blocks[usize::from(output.block.0)][start..start + sub_bytes].copy_from_slice(&sum);
    }
    blocks
}

fn part(blocks: &[Vec<u8>], sub_block: SubBlock, sub_bytes: usize) -> &[u8] {
    let start = usize::from(sub_block.sub) * sub_bytes;
    &blocks[usize::from(sub_block.block.0)][start..start + sub_bytes]
}
