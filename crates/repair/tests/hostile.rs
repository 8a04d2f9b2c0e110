//! Decoders of outside bytes bear anything: an assignment that was tampered with is refused or carried out,
//! never a panic.

use std::time::Duration;

use codes::{BlockIndex, CodeSpec};
use proptest::prelude::*;
use repair::wire::control::{self, FromNode, ToNode};
use repair::{
    Assignment, BlockId, BufferPool, Job, JobAction, JobId, JobRequest, NodeId, NodeView, Policy, Relay,
    Scheme, Stripe, StripeBlock, StripeId, Topology, Verify, Wanted,
};
use serde_json::Value;

/// The assignments of a repair of block 1 of RS(6,4).
fn assignments(scheme: Scheme) -> Vec<Assignment> {
    let mut topology = Topology::new();
    for node in 0..7 {
        let mut view = NodeView::unknown(format!("h{node}"));
        view.address = Some(format!("127.0.0.1:{}", 7410 + node));
        topology.set(NodeId(node), view);
    }
    let stripe = Stripe {
        id: StripeId("1".into()),
        code: CodeSpec::reed_solomon(6, 4).build().unwrap(),
        block_bytes: 100_000,
        blocks: (0..6)
            .map(|index| StripeBlock {
                id: BlockId(format!("1.{index}")),
                bytes: 100_000,
                holder: (index != 1).then_some(NodeId(index)),
            })
            .collect(),
    };
    let request = JobRequest {
        job: JobId(1),
        stripe,
        wanted: vec![Wanted { block: BlockIndex(1), requestor: NodeId(6) }],
        window: 0..100_000,
        sub_blocks: None,
        policy: Policy { scheme, slice_bytes: Some(8192), ..Policy::default() },
        verify: Verify::default(),
        publish: true,
        tag: None,
    };
    let mut job = Job::new(request, [1; 32], &topology, Duration::ZERO);
    std::iter::from_fn(|| job.poll())
        .filter_map(|action| match action {
            JobAction::Assign { assignment, .. } => Some(*assignment),
            _ => None,
        })
        .collect()
}

/// All places of a value that can be tampered with.
fn places(value: &Value, at: &mut String, found: &mut Vec<String>) {
    found.push(at.clone());
    let length = at.len();
    match value {
        Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| {
            at.push_str(&format!("/{index}"));
            places(item, at, found);
            at.truncate(length);
        }),
        Value::Object(fields) => fields.iter().for_each(|(name, item)| {
            at.push_str(&format!("/{name}"));
            places(item, at, found);
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
        which: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u32..100_000), 1..4),
    ) {
        let all = assignments(scheme);
        let mut value = serde_json::to_value(which.get(&all)).unwrap();
        for (place, how, number) in changes {
            let mut found = Vec::new();
            places(&value, &mut String::new(), &mut found);
            let place = place.get(&found).clone();
            tamper(value.pointer_mut(&place).unwrap(), how, number);
        }
        let Ok(assignment) = serde_json::from_value::<Assignment>(value) else { return Ok(()) };
        if let Ok(mut relay) = Relay::new(&assignment, 1 << 20, BufferPool::default()) {
            for _ in 0..100 {
                if relay.poll().is_none() {
                    break;
                }
            }
            for inlet in 0..assignment.inlets.len() {
                let buffer = relay.buffer(8192);
                let _ = relay.handle_received(inlet, 0, 0, buffer);
            }
        }
    }

    #[test]
    fn any_bytes_may_come_as_a_message(bytes in prop::collection::vec(any::<u8>(), 0..200), length: [u8; 4]) {
        let _ = control::decode::<FromNode>(&bytes);
        let _ = control::decode::<ToNode>(&bytes);
        if let Ok(length) = control::decode_length(length) {
            prop_assert!(length <= control::MAX_MESSAGE_BYTES as usize);
        }
    }
}

#[test]
fn an_assignment_survives_the_wire() {
    for assignment in Scheme::ALL.iter().filter(|&&s| s != Scheme::Migration).flat_map(|&s| assignments(s)) {
        let message = ToNode::Assign(Box::new(assignment));
        let bytes = control::encode(&message);
        assert_eq!(control::decode::<ToNode>(&bytes[4..]).unwrap(), message);
    }
}
