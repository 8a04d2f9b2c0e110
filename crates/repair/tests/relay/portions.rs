//! If a slice has very many buffers, no node ever holds all of it in memory: neither the node that reads it
//! nor one that receives it.

use std::collections::VecDeque;

use codes::{CodeSpec, SubBlock};
use repair::{Action, Assignment, Buffer, BufferPool, Relay};

use crate::assignments::put;

const CODE: &str = "clay-9-6-8";
const SUB_BLOCKS: u64 = 27;
const SLICE_BYTES: u32 = 64 << 10;
/// Two slices and a short one. A slice of all sub-blocks of all blocks is 15 MiB.
const SUB_BLOCK_BYTES: u64 = 2 * SLICE_BYTES as u64 + 3000;

fn relay(assignment: &Assignment) -> Relay {
    Relay::new(assignment, 512 << 10, BufferPool::default()).unwrap()
}

fn byte(block: u16, offset: u64) -> u8 {
    (offset * 7 + (offset >> 9) + u64::from(block) * 31) as u8
}

fn bytes(block: u16, range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(|offset| byte(block, offset)).collect()
}

/// The contents of block `block`, sub-block by sub-block.
fn sub_blocks(block: u16) -> Vec<Vec<u8>> {
    let code = CODE.parse::<CodeSpec>().unwrap().build().unwrap();
    let of = |sub: &SubBlock| {
        let start = u64::from(sub.sub) * SUB_BLOCK_BYTES;
        bytes(sub.block.0, start..start + SUB_BLOCK_BYTES)
    };
    if usize::from(block) < code.data_blocks() {
        return (0..SUB_BLOCKS as u16)
            .map(|sub| of(&SubBlock { block: codes::BlockIndex(block), sub }))
            .collect();
    }
    let encoding = code.encoding();
    let data: Vec<Vec<u8>> = encoding.sources().iter().map(of).collect();
    let parity = encoding.apply(&data.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let of_block = encoding.outputs().iter().zip(parity).filter(|(output, _)| output.block.0 == block);
    of_block.map(|(_, bytes)| bytes).collect()
}

/// The test writes frames only when the relay has no other action. Still, the relay never holds as much as
/// two thirds of a slice's data, and the frames contain the code's parity.
#[test]
fn a_put_reads_in_the_order_of_use() {
    let assignments = put(CODE, SUB_BLOCKS * SUB_BLOCK_BYTES, SLICE_BYTES);
    let client = assignments.iter().find(|assignment| assignment.inlets.is_empty()).unwrap();
    let mut relay = relay(client);
    let mut found = vec![vec![Vec::new(); SUB_BLOCKS as usize]; 9];
    let mut unsent: VecDeque<(bool, u32, Buffer)> = VecDeque::new();
    let (mut reads, mut sends, mut held_bytes, mut most_bytes) = (0_usize, 0_usize, 0, 0);
    loop {
        match relay.poll() {
            Some(Action::ReadAhead { .. }) => {}
            Some(Action::Read { slice, locals, transfer }) => {
                reads += locals.len();
                held_bytes += transfer.bytes() as u64;
                most_bytes = most_bytes.max(held_bytes);
                let mut buffers: Vec<Buffer> =
                    locals.clone().map(|_| relay.buffer(transfer.buffer_bytes())).collect();
                let block = transfer.block().0;
                let read = |at: u64, into: &mut [u8]| {
                    into.copy_from_slice(&bytes(block, at..at + into.len() as u64));
                    Ok::<bool, ()>(true)
                };
                transfer.read(SUB_BLOCKS * SUB_BLOCK_BYTES, &mut buffers, read).unwrap();
                for (local, buffer) in locals.zip(buffers) {
                    relay.handle_read(slice, local, buffer).unwrap();
                }
            }
            Some(Action::Send { outlet, stream, slice, buffer, .. }) => {
                let node = client.outlets[outlet].to.0 as usize;
                found[node][usize::from(stream)].extend_from_slice(&buffer);
                unsent.push_back((node < 6, slice, buffer));
            }
            Some(Action::Deliver { .. }) => unreachable!("the client keeps nothing"),
            Some(Action::Finished) => break,
            None => {
                let (is_data, slice, buffer) = unsent.pop_front().expect("it waits for nothing else");
                held_bytes -= if is_data { buffer.len() as u64 } else { 0 };
                relay.handle_sent(slice, buffer);
                sends += 1;
            }
        }
    }
    assert_eq!((reads, sends), (3 * 6 * 27, 3 * 9 * 27));
    let slice_bytes = 6 * 27 * u64::from(SLICE_BYTES);
    assert!(
        3 * most_bytes < 2 * slice_bytes,
        "{most_bytes} bytes of data at once, of a slice's {slice_bytes}"
    );
    for (block, found) in (0..).zip(found) {
        assert!(found == sub_blocks(block), "block {block}");
    }
}

/// If the disk stops writing, the relay stops accepting data before it has a whole slice.
#[test]
fn unwritten_data_is_bounded() {
    let assignments = put(CODE, SUB_BLOCKS * SUB_BLOCK_BYTES, SLICE_BYTES);
    let helper = assignments.iter().find(|assignment| !assignment.inlets.is_empty()).unwrap();
    let mut relay = relay(helper);
    let mut unwritten: VecDeque<(u32, Buffer)> = VecDeque::new();
    let (mut received, mut most) = (0, 0);
    loop {
        while relay.wants(0) {
            let (slice, stream) = (relay.due_slice(0).unwrap(), (received % SUB_BLOCKS) as u16);
            let buffer = relay.buffer(relay.due_bytes(0).unwrap());
            relay.handle_received(0, stream, slice, buffer).unwrap();
            received += 1;
        }
        match relay.poll() {
            Some(Action::Deliver { slice, buffer, .. }) => unwritten.push_back((slice, buffer)),
            Some(Action::Finished) => break,
            Some(other) => panic!("{other:?}"),
            None => {
                most = most.max(unwritten.len());
                let (slice, buffer) = unwritten.pop_front().expect("it waits for nothing else");
                relay.handle_delivered(slice, buffer);
            }
        }
    }
    assert_eq!(received, 3 * SUB_BLOCKS);
    assert!(
        (16..27).contains(&most),
        "{most} buffers: a MiB is 16, a slice 27, and all would fit the window"
    );
}
