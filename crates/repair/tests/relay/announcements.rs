//! A relay announces exactly the ranges that it then reads.

use std::ops::Range;

use repair::{Action, Assignment, BufferPool, Relay, Scheme, SliceSet};

use crate::assignments::chunked;

const SLICE_BYTES: u32 = 1 << 20;

/// Runs a helper that only reads and sends; returns the announced and the read ranges.
fn drive(assignment: &Assignment) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
    let mut relay = Relay::new(assignment, 512 << 10, BufferPool::default()).unwrap();
    let (mut announcements, mut read) = (Vec::new(), Vec::new());
    while let Some(action) = relay.poll() {
        match action {
            Action::ReadAhead { ranges } => {
                announcements.push(ranges.into_iter().map(|range| range.bytes).collect::<Vec<_>>());
            }
            Action::Read { slice, locals, transfer } => {
                for bytes in transfer.reads() {
                    let mut recent = announcements.iter().rev().take(2).flatten();
                    assert!(
                        recent.any(|range| range.start <= bytes.start && bytes.end <= range.end),
                        "{bytes:?} is in none of the last two announcements"
                    );
                    read.push(bytes);
                }
                for local in locals {
                    let buffer = relay.buffer(transfer.buffer_bytes());
                    relay.handle_read(slice, local, buffer).unwrap();
                }
            }
            Action::Send { slice, buffer, .. } => relay.handle_sent(slice, buffer),
            Action::Deliver { .. } => unreachable!("it only sends"),
            Action::Finished => return (announcements.concat(), read),
        }
    }
    panic!("it waits for something");
}

/// The ranges sorted, with neighbours joined; panics if ranges overlap.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    ranges.windows(2).for_each(|pair| assert!(pair[0].end <= pair[1].start, "{pair:?} overlap"));
    ranges.dedup_by(|next, before| {
        let follows = before.end == next.start;
        before.end = if follows { next.end } else { before.end };
        follows
    });
    ranges
}

/// The assignment of a helper in a star.
fn helper(code: &str, block_bytes: u64) -> Assignment {
    chunked_helper(code, block_bytes, None)
}

fn chunked_helper(code: &str, block_bytes: u64, chunk_bytes: Option<u64>) -> Assignment {
    let all = chunked(code, (block_bytes, chunk_bytes), Scheme::Conventional, SLICE_BYTES);
    all.into_iter().find(|assignment| assignment.inlets.is_empty()).expect("a star has leaves")
}

#[test]
fn every_read_is_announced_once_and_in_time() {
    // The helper reads two of four sub-blocks of 22 MiB each, in three stretches of two ranges.
    let mut assignment = helper("clay-4-2-3", 88 << 20);
    let (announced, read) = drive(&assignment);
    assert_eq!(announced.len(), 6);
    assert_eq!(joined(announced), joined(read));
    // The remaining slices of an interrupted plan.
    for left in [vec![(3, 4), (9, 22)], vec![(15, 17)], vec![(0, 1), (6, 7), (12, 22)]] {
        assignment.slices = SliceSet::from(left);
        let (announced, read) = drive(&assignment);
        assert_eq!(joined(announced), joined(read));
    }
}

#[test]
fn reads_of_scattered_chunks_are_announced_too() {
    let mut assignment = chunked_helper("clay-4-2-3", 88 << 20, Some(1 << 20));
    let (announced, read) = drive(&assignment);
    // Two adjacent quarters of each of 88 chunks of one megabyte.
    assert_eq!((joined(announced.clone()).len(), joined(announced)), (88, joined(read)));
    assignment.slices = SliceSet::from(vec![(3, 4), (9, 22)]);
    let (announced, read) = drive(&assignment);
    assert_eq!(joined(announced), joined(read));
}

#[test]
fn contiguous_slices_are_not_announced() {
    let mut relay = Relay::new(&helper("rs-6-4", 4 << 20), 512 << 10, BufferPool::default()).unwrap();
    let actions = std::iter::from_fn(|| relay.poll());
    assert!(actions.into_iter().all(|action| matches!(action, Action::Read { .. })));
}
