//! Control messages in both directions, without the length prefix, and relays built from assignments.

use std::convert::Infallible;
use std::fmt::Debug;

use repair::wire::control::{self, FromNode, ToNode};
use repair::{Action, Assignment, Buffer, BufferPool, Gathering, Relay};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The maximum number of actions that a relay may take for one input.
const ACTIONS: usize = 200;
/// The memory limit of a relay in bytes, and the maximum number of bytes that it moves for one input. More
/// bytes would find no more bugs.
const BYTES: usize = 1 << 20;

pub(crate) fn from_node(bytes: &[u8]) -> bool {
    message::<FromNode>(bytes).is_some()
}

pub(crate) fn to_node(bytes: &[u8]) -> bool {
    let Some(message) = message::<ToNode>(bytes) else { return false };
    if let ToNode::Assign(assignment) = message {
        carry_out(&assignment);
    }
    true
}

fn message<M: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> Option<M> {
    if let Some(Ok(length)) = bytes.first_chunk().map(|&length| control::decode_length(length)) {
        assert!(length <= control::MAX_MESSAGE_BYTES as usize);
    }
    let message: M = control::decode(bytes).ok()?;
    let encoded = control::encode(&message);
    let again: M = control::decode(&encoded[4..]).expect("what we encode can be decoded");
    assert_eq!(again, message);
    Some(message)
}

/// Handles an assignment as a node would: rejects it, or executes it with disks full of zeros.
fn carry_out(assignment: &Assignment) {
    let Ok(mut relay) = Relay::new(assignment, BYTES, BufferPool::default()) else { return };
    let mut gathering = Gathering::new(assignment);
    let mut moved = 0;
    for _ in 0..ACTIONS {
        feed(assignment, &mut relay, &mut moved);
        let Some(action) = relay.poll() else { continue };
        match action {
            Action::ReadAhead { .. } => {}
            Action::Read { slice, locals, transfer } => {
                assert!(locals.len() == transfer.buffers() && transfer.bytes() > 0, "a read of nothing");
                moved += transfer.bytes();
                if moved > BYTES {
                    return;
                }
                let mut buffers: Vec<Buffer> =
                    locals.clone().map(|_| relay.buffer(transfer.buffer_bytes())).collect();
                let zeros = |_: u64, bytes: &mut [u8]| -> Result<bool, Infallible> {
                    bytes.fill(0);
                    Ok(true)
                };
                assert_eq!(transfer.read(u64::MAX, &mut buffers, zeros), Ok(true));
                for (local, buffer) in locals.zip(buffers) {
                    relay.handle_read(slice, local, buffer).expect("a read is as long as it was asked for");
                }
            }
            Action::Send { slice, buffer, .. } => relay.handle_sent(slice, buffer),
            Action::Deliver { output, slice, buffer } => {
                let Some((transfer, buffers)) = gathering.add(output, slice, buffer) else { continue };
                let written = transfer.write(u64::MAX, &buffers, |_, _| Ok::<(), Infallible>(()));
                assert_eq!(written, Ok(()));
                buffers.into_iter().for_each(|buffer| relay.handle_delivered(slice, buffer));
            }
            Action::Finished => return,
        }
    }
}

/// Gives frames to the relay. The relay expects some of them and must reject the others.
fn feed(assignment: &Assignment, relay: &mut Relay, moved: &mut usize) {
    let inlets = assignment.inlets.len().min(4);
    for inlet in (0..inlets).filter(|&inlet| relay.wants(inlet)).collect::<Vec<_>>() {
        let Some(bytes) = relay.due_bytes(inlet) else { continue };
        for (slice, stream) in assignment.slices.iter().take(4).flat_map(|slice| [(slice, 0), (slice, 1)]) {
            *moved += bytes;
            if *moved <= BYTES {
                let buffer = relay.buffer(bytes);
                let _ = relay.handle_received(inlet, stream, slice, buffer); // The frame may be unexpected.
            }
        }
    }
}
