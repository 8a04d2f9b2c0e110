//! Decoders of outside bytes survive any input: a tampered assignment is refused or carried out, and never
//! causes a panic.

use proptest::prelude::*;
use repair::wire::control::{self, FromNode, ToNode};
use repair::{Action, Assignment, BufferPool, Relay, Scheme};
use serde_json::Value;

use crate::assignments::assignments;

/// Codes and block lengths: one with slices smaller than a sub-block, and one with slices of whole
/// sub-blocks.
const STRIPES: [(&str, u64); 2] = [("rs-6-4", 100_000), ("clay-6-4-5", 8 * 8192)];
const SLICE_BYTES: u32 = 8192;

/// Collects the JSON pointers of all values that can be tampered with.
fn pointers(value: &Value, at: &mut String, found: &mut Vec<String>) {
    found.push(at.clone());
    let length = at.len();
    match value {
        Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| {
            at.push_str(&format!("/{index}"));
            pointers(item, at, found);
            at.truncate(length);
        }),
        Value::Object(fields) => fields.iter().for_each(|(name, item)| {
            at.push_str(&format!("/{name}"));
            pointers(item, at, found);
            at.truncate(length);
        }),
        _ => {}
    }
}

fn tamper(value: &mut Value, how: u8, number: u32) {
    *value = match (how % 6, value.take()) {
        (0, _) => Value::Null,
        (1, _) => number.into(),
        (2, Value::Array(mut items)) => {
            items.pop();
            items.into()
        }
        (3, Value::Array(items)) => items.iter().chain(items.iter()).cloned().collect(),
        (4, Value::Number(n)) => (n.as_u64().unwrap_or(0) ^ 1).into(),
        (5, Value::Number(n)) => n.as_u64().unwrap_or(0).wrapping_add(u64::from(number)).into(),
        (_, other) => other,
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_tampered_assignment_does_no_harm(
        scheme in prop::sample::select(vec![Scheme::Conventional, Scheme::Pipelined, Scheme::CrrS, Scheme::PipeB]),
        (code, block_bytes) in prop::sample::select(&STRIPES[..]),
        which: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u32..100_000), 1..4),
    ) {
        let all = assignments(code, block_bytes, scheme, SLICE_BYTES);
        let mut value = serde_json::to_value(which.get(&all)).unwrap();
        for (pointer, how, number) in changes {
            let mut found = Vec::new();
            pointers(&value, &mut String::new(), &mut found);
            let pointer = pointer.get(&found).clone();
            tamper(value.pointer_mut(&pointer).unwrap(), how, number);
        }
        let Ok(assignment) = serde_json::from_value::<Assignment>(value) else { return Ok(()) };
        if let Ok(mut relay) = Relay::new(&assignment, 1 << 20, BufferPool::default()) {
            for _ in 0..100 {
                let Some(action) = relay.poll() else { break };
                if let Action::Read { locals, transfer, .. } = action {
                    prop_assert!(!locals.is_empty() && locals.len() == transfer.buffers());
                    prop_assert!(transfer.reads().iter().all(|range| range.start < range.end));
                }
            }
            for inlet in 0..assignment.inlets.len() {
                let buffer = relay.buffer(8192);
                let _ = relay.handle_received(inlet, 0, 0, buffer);
            }
        }
    }

    #[test]
    fn decoding_survives_any_message(bytes in prop::collection::vec(any::<u8>(), 0..200), length: [u8; 4]) {
        let _ = control::decode::<FromNode>(&bytes);
        let _ = control::decode::<ToNode>(&bytes);
        if let Ok(length) = control::decode_length(length) {
            prop_assert!(length <= control::MAX_MESSAGE_BYTES as usize);
        }
    }
}

#[test]
fn an_assignment_survives_the_wire() {
    let schemes = || Scheme::ALL.into_iter().filter(|&scheme| scheme != Scheme::Migration);
    let all = STRIPES.iter().flat_map(|&(code, block_bytes)| {
        schemes().flat_map(move |scheme| assignments(code, block_bytes, scheme, SLICE_BYTES))
    });
    for assignment in all {
        let message = ToNode::Assign(Box::new(assignment));
        let bytes = control::encode(&message);
        assert_eq!(control::decode::<ToNode>(&bytes[4..]).unwrap(), message);
    }
}
