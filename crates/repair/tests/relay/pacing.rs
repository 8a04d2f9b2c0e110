//! Tests of the frames that a relay accepts.

use repair::{Assignment, BufferPool, Relay, Scheme};

use crate::assignments::assignments;

const SLICE_BYTES: u32 = 8192;

/// The requestor of a star with four helpers and ten slices.
fn requestor() -> Assignment {
    let all = assignments("rs-6-4", 10 * u64::from(SLICE_BYTES), Scheme::Conventional, SLICE_BYTES);
    all.into_iter().find(|assignment| assignment.inlets.len() == 4).expect("a star has a centre")
}

/// The number of slices that the requestor accepts from its first inlet while the other inlets receive
/// nothing.
fn taken(assignment: &Assignment) -> u32 {
    let mut relay = Relay::new(assignment, 512 << 10, BufferPool::default()).unwrap();
    let mut slice = 0;
    while relay.wants(0) {
        let buffer = relay.buffer(SLICE_BYTES as usize);
        relay.handle_received(0, 0, slice, buffer).unwrap();
        slice += 1;
    }
    slice
}

#[test]
fn senders_that_are_ahead_wait_for_those_behind() {
    assert_eq!(taken(&requestor()), 1);
}

#[test]
fn in_rounds_a_whole_stream_comes_before_the_next() {
    let mut assignment = requestor();
    assignment.pacing = repair::Pacing::WholeBlock;
    assert_eq!(taken(&assignment), 10);
}
