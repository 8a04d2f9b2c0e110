//! The number of slices that a relay works on at once.

use std::collections::VecDeque;

use repair::{Action, Assignment, Buffer, BufferPool, Relay, Scheme};

use crate::assignments::assignments;

const SLICE_BYTES: u32 = 8192;
const SLICES: u64 = 100;
/// The largest window of a relay in one lane.
const WINDOW: u64 = 32;

/// The first helper of a chain, which only reads and sends.
fn head() -> Assignment {
    let all = assignments("rs-6-4", SLICES * u64::from(SLICE_BYTES), Scheme::Pipelined, SLICE_BYTES);
    all.into_iter().find(|assignment| assignment.inlets.is_empty()).expect("a chain has a first helper")
}

/// Carries out all reads that the relay requests, and queues its frames. Returns the number of reads.
fn read(relay: &mut Relay, frames: &mut VecDeque<(u32, Buffer)>) -> u64 {
    let mut reads = 0;
    while let Some(action) = relay.poll() {
        match action {
            Action::Read { slice, locals, transfer } => {
                reads += 1;
                let buffer = relay.buffer(transfer.buffer_bytes());
                relay.handle_read(slice, locals.start, buffer).unwrap();
            }
            Action::Send { slice, buffer, .. } => frames.push_back((slice, buffer)),
            other => panic!("{other:?}"),
        }
    }
    reads
}

/// A chain delivers its first slice early only if no node reads a whole window before it sends anything.
#[test]
fn a_node_reads_few_slices_before_it_has_sent_any() {
    let mut relay = Relay::new(&head(), 512 << 10, BufferPool::default()).unwrap();
    let (mut frames, mut reads, mut ahead) = (VecDeque::new(), 0, Vec::new());
    for sent in 0..SLICES {
        reads += read(&mut relay, &mut frames);
        ahead.push(reads - sent);
        let (slice, buffer) = frames.pop_front().expect("slices are left");
        relay.handle_sent(slice, buffer);
    }
    assert_eq!(ahead[..4], [2, 3, 4, 5]);
    assert_eq!(ahead.iter().max(), Some(&WINDOW));
    assert_eq!(reads, SLICES);
}
