//! The true contents of all blocks.

use codes::Code;
use gf::Kernel;
use repair::Chunking;

use crate::dice::Dice;
use crate::scenario::Scenario;

/// Encodes a random stripe for a scenario: all n blocks, padded with zeros to the stripe's block length.
pub(crate) fn encode(code: &dyn Code, scenario: &Scenario, dice: &mut Dice) -> Vec<Vec<u8>> {
    let data = (0..code.data_blocks())
        .map(|index| dice.bytes(scenario.bytes_of(codes::BlockIndex(index as u16)) as usize))
        .collect();
    encode_data(code, &scenario.chunking(code), data)
}

/// Encodes a stripe from its data blocks, which are padded with zeros to the stripe's block length. Returns
/// all n blocks.
pub(crate) fn encode_data(code: &dyn Code, chunking: &Chunking, mut blocks: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    blocks.resize(code.blocks(), Vec::new());
    blocks.iter_mut().for_each(|block| block.resize(chunking.block_bytes() as usize, 0));
    let encoding = code.encoding();
    for (row, &output) in encoding.outputs().iter().enumerate() {
        let mut sum = vec![0; chunking.sub_block_bytes() as usize];
        for &(source, coefficient) in encoding.row(row) {
            let source = encoding.sources()[source as usize];
            let source = sub_block(chunking, &blocks[usize::from(source.block.0)], source.sub);
            Kernel::best().mul_add(coefficient, &source, &mut sum);
        }
        let block = &mut blocks[usize::from(output.block.0)];
        let mut rest = &sum[..];
        for range in chunking.ranges(output.sub, 0..chunking.sub_block_bytes()) {
            let (bytes, others) = rest.split_at((range.end - range.start) as usize);
            block[range.start as usize..range.end as usize].copy_from_slice(bytes);
            rest = others;
        }
    }
    blocks
}

/// Gathers the bytes of a sub-block from their places in the block.
fn sub_block(chunking: &Chunking, block: &[u8], sub: u16) -> Vec<u8> {
    let ranges = chunking.ranges(sub, 0..chunking.sub_block_bytes());
    let pieces: Vec<&[u8]> = ranges.map(|range| &block[range.start as usize..range.end as usize]).collect();
    pieces.concat()
}
