//! Compares the picture with a plain map of stripes under random changes.

use codes::CodeSpec;
use proptest::prelude::*;
use repair::{Digest, FilePart};
use store_api::{BlockRecord, BlockState, Replica};

use super::*;

/// A random change.
#[derive(Clone, Debug)]
enum Step {
    Stripe { at: u8, nodes: Vec<Option<u32>>, states: Vec<u8>, odd: u8, pending: bool, more: Vec<(u32, u8)> },
    Gone(u8),
    Up(u32, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let nodes = proptest::collection::vec(proptest::option::of(0..5u32), 3);
    let states = proptest::collection::vec(0..5u8, 3);
    prop_oneof![
        4 => (0..6u8, nodes, states, 0..5u8, any::<bool>(), proptest::collection::vec((0..5u32, 0..5u8), 0..3))
            .prop_map(|(at, nodes, states, odd, pending, more)| {
                Step::Stripe { at, nodes, states, odd, pending, more }
            }),
        1 => (0..6u8).prop_map(Step::Gone),
        2 => (0..5u32, any::<bool>()).prop_map(|(node, up)| Step::Up(node, up)),
    ]
}

fn name(at: u8) -> StripeId {
    StripeId(format!("{at}-abcdef"))
}

const STATES: [BlockState; 5] = [
    BlockState::Healthy,
    BlockState::Missing,
    BlockState::Corrupt,
    BlockState::NotStored,
    BlockState::Unreadable,
];

/// Creates a stripe of three blocks; `more` are further nodes that have the middle block.
fn stripe(at: u8, nodes: &[Option<u32>], states: &[u8], odd: u8, more: &[(u32, u8)]) -> StripeRecord {
    let replicas = |index: usize| {
        let mut others: Vec<Replica> = Vec::new();
        for &(node, state) in more.iter().filter(|_| index == 1) {
            let node = NodeId(node);
            if nodes[index] != Some(node.0) && others.iter().all(|other| other.node != node) {
                others.push(Replica { node, state: STATES[usize::from(state)] });
            }
        }
        others
    };
    let names = |index: usize| match odd {
        1 => format!("shard{at}x{index}"),
        4 => format!("{}.ec{index:02}", name(at)),
        _ => format!("{}.{index}", name(at)),
    };
    let block = |index: usize| BlockRecord {
        id: BlockId(names(index)),
        bytes: if odd == 2 { 50 + index as u64 } else { 64 },
        node: nodes[index].map(NodeId),
        state: STATES[usize::from(states[index])],
        replicas: replicas(index),
        digest: match (index + usize::from(at)) % 3 {
            0 => None,
            1 => Some(Digest::of_u32("crc32c-list", at.into())),
            _ => Some(Digest::new("md5", &[at; 16]).unwrap()),
        },
    };
    let part = FilePart {
        name: "f".into(),
        bytes: 1,
        block_bytes: 64,
        chunk_bytes: (at % 2 == 1).then_some(32),
        position: at.into(),
        put: (at % 2).to_string(),
        begun_unix_ms: 3,
    };
    let file = (odd != 3).then_some(part);
    StripeRecord {
        id: name(at),
        code: CodeSpec::reed_solomon(3, 2),
        block_bytes: 64 * (1 + u64::from(odd % 2)),
        chunk_bytes: [None, Some(8), Some(32)][usize::from(at % 3)],
        blocks: (0..3).map(block).collect(),
        file,
    }
}

/// Compares every query with a walk over all stripes.
fn check(picture: &Picture, truth: &BTreeMap<StripeId, (StripeRecord, bool)>, up: &BTreeSet<NodeId>) {
    let is_good = |block: &BlockRecord| {
        block.holders().any(|holder| holder.state == BlockState::Healthy && up.contains(&holder.node))
    };
    let mut kinds: BTreeMap<Vec<BlockIndex>, u64> = BTreeMap::new();
    let mut damaged = Vec::new();
    for (id, (record, pending)) in truth {
        assert_eq!(picture.stripe(id).as_ref(), Ok(record));
        assert_eq!(picture.is_pending(id), Some(*pending));
        assert_eq!(
            picture.stripe(&StripeId(id.0.split_once('-').unwrap().0.to_owned())).as_ref(),
            Ok(record)
        );
        for (block, index) in record.blocks.iter().zip(0..) {
            assert_eq!(picture.find_block(&block.id), Ok((id.clone(), BlockIndex(index))));
        }
        if *pending {
            continue;
        }
        let lost: Vec<BlockIndex> = record
            .blocks
            .iter()
            .zip(0..)
            .filter(|(block, _)| !is_good(block))
            .map(|(_, index)| BlockIndex(index))
            .collect();
        if !lost.is_empty() {
            damaged.push(record.clone());
        }
        *kinds.entry(lost).or_default() += 1;
    }
    assert_eq!(picture.damaged(), damaged);
    // The picture also distinguishes stripes by how their blocks share nodes, so its counts are added up by
    // lost blocks here.
    let mut counted: BTreeMap<Vec<BlockIndex>, u64> = BTreeMap::new();
    picture.kinds().for_each(|kind| *counted.entry(kind.lost).or_default() += kind.stripes);
    assert_eq!(counted, kinds);
    for node in (0..5).map(NodeId) {
        let mut expected: Vec<(StripeId, BlockIndex)> = Vec::new();
        for (record, _) in truth.values() {
            let there = record.blocks.iter().zip(0..).filter(|(block, _)| {
                block.state_on(node).is_some_and(|state| state != BlockState::NotStored)
            });
            expected.extend(there.map(|(_, index)| (record.id.clone(), BlockIndex(index))));
        }
        let bytes: u64 = expected.iter().map(|(id, _)| truth[id].0.block_bytes).sum();
        assert_eq!(picture.bytes_on(node), bytes);
        let mut found = picture.blocks_of(node);
        found.sort();
        assert_eq!((found.len(), &found), (picture.block_count(node), &expected));
    }
    assert!(picture.shared_parts() <= 2, "what stripes share is kept once and goes with the last");
    assert!(!truth.is_empty() || picture.shared_parts() == 0 && picture.odd.is_empty());
}

impl Picture {
    fn shared_parts(&self) -> usize {
        self.shared.parts()
    }
}

proptest! {
    #[test]
    fn queries_agree_with_a_walk_over_all_stripes(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut picture, mut truth, mut up) = (Picture::default(), BTreeMap::new(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Stripe { at, nodes, states, odd, pending, more } => {
                    let record = stripe(at, &nodes, &states, odd, &more);
                    truth.insert(record.id.clone(), (record.clone(), pending));
                    picture.apply(StoreChange::Stripe(record, pending));
                }
                Step::Gone(at) => {
                    truth.remove(&name(at));
                    picture.apply(StoreChange::StripeGone(name(at)));
                }
                Step::Up(node, is_up) => {
                    if is_up { up.insert(NodeId(node)) } else { up.remove(&NodeId(node)) };
                    picture.set_up(NodeId(node), is_up);
                }
            }
            check(&picture, &truth, &up);
        }
    }
}

#[test]
fn unknown_block_names_are_not_found() {
    let mut picture = Picture::default();
    picture.apply(StoreChange::Stripe(stripe(1, &[Some(1), None, None], &[0, 1, 1], 0, &[]), false));
    picture.apply(StoreChange::Stripe(stripe(2, &[Some(1), None, None], &[0, 1, 1], 1, &[]), false));
    for text in ["", "1", "1-abcdef", "1-abcdef.3", "1-abcdef.03", "2-abcdef.0", "3-abcdef.0", "x.0"] {
        assert!(picture.find_block(&BlockId(text.to_owned())).is_err(), "{text}");
    }
    assert!(picture.find_block(&BlockId("1.2".to_owned())).is_ok(), "people leave the era out");
    picture.apply(StoreChange::Stripe(stripe(4, &[Some(1), None, None], &[0, 1, 1], 4, &[]), false));
    for text in ["4-abcdef.1", "4-abcdef.ec1", "4-abcdef.ec03", "4-abcdef.ec001", "1-abcdef.ec01"] {
        assert!(picture.find_block(&BlockId(text.to_owned())).is_err(), "{text}");
    }
    assert!(picture.find_block(&BlockId("4-abcdef.ec01".to_owned())).is_ok());
    let mut twin = stripe(1, &[Some(1), None, None], &[0, 1, 1], 0, &[]);
    twin.id = StripeId("1-zzzzzz".to_owned());
    picture.apply(StoreChange::Stripe(twin, false));
    let error = picture.stripe(&StripeId("1".to_owned())).unwrap_err();
    assert_eq!(error.to_string(), "2 stripes have the number 1: 1-abcdef, 1-zzzzzz");
    assert_eq!(picture.find_block(&BlockId("1.2".to_owned())), Err(error));
}

/// Run this alone, because memory that other tests freed would distort the result:
/// `cargo test --release -p control memory_of_a_picture -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn memory_of_a_picture() {
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
    };
    let (before, mut picture, stripes) = (resident(), Picture::default(), 100_000u32);
    for number in 0..stripes {
        let id = StripeId(format!("{number}-k3f9x2"));
        let block = |index: u32| BlockRecord {
            id: BlockId(format!("{id}.{index}")),
            bytes: 64 << 20,
            node: Some(NodeId((number * 7919 + index * 71) % 1000)),
            state: BlockState::Healthy,
            replicas: Vec::new(),
            digest: Some(Digest::of_u32("crc32c-list", number ^ index)),
        };
        let part = FilePart {
            name: format!("file {}", number / 100),
            bytes: 1 << 40,
            block_bytes: 64 << 20,
            chunk_bytes: None,
            position: number % 100,
            put: format!("{}-k3f9x2", number / 100),
            begun_unix_ms: 1,
        };
        let blocks = (0..14).map(block).collect();
        let (code, file) = (CodeSpec::reed_solomon(14, 10), Some(part));
        let stripe = StripeRecord { id, code, block_bytes: 64 << 20, chunk_bytes: None, blocks, file };
        picture.apply(StoreChange::Stripe(stripe, false));
    }
    let bytes = resident() - before;
    println!("{stripes} stripes of 14: {:.1} MB, {:.0} bytes each", bytes / 1e6, bytes / f64::from(stripes));
}

#[test]
fn blocks_of_known_stripes_are_not_newer_than_the_catalog() {
    let mut picture = Picture::default();
    picture.apply(StoreChange::Counted(3));
    assert!(picture.is_from_the_future(&BlockId("7-abcdef.1".into())));
    picture.apply(StoreChange::Stripe(stripe(7, &[Some(1), None, None], &[0, 1, 1], 0, &[]), false));
    assert!(!picture.is_from_the_future(&BlockId("7-abcdef.1".into())));
    assert!(picture.is_from_the_future(&BlockId("7-bbbbbb.1".into())), "another stripe of that number");
    assert!(picture.is_from_the_future(&BlockId("7-abcdef.3".into())), "the stripe has three blocks");
}

#[test]
fn stripes_set_apart_are_not_counted() {
    let mut picture = Picture::default();
    for at in 1..=3 {
        picture.apply(StoreChange::Stripe(stripe(at, &[Some(1), None, None], &[0, 1, 1], 0, &[]), false));
    }
    let slot = picture.slot_of_file(&name(2)).unwrap();
    let counted = |apart: &[Slot]| {
        let apart = apart.iter().copied().collect();
        picture.kinds_without(&apart).map(|kind| (kind.stripes, kind.block_bytes)).collect::<Vec<_>>()
    };
    assert_eq!((counted(&[]), counted(&[slot])), (vec![(3, 192)], vec![(2, 128)]));
    let all: Vec<Slot> = (1..=3).map(|at| picture.slot_of_file(&name(at)).unwrap()).collect();
    assert_eq!(counted(&all), []);
}

/// Helpers choose the kinds of digests, so there may be more than a byte can number.
#[test]
fn any_number_of_kinds_of_digests_is_kept() {
    let mut picture = Picture::default();
    let record = |at: u32| {
        let mut record = stripe(2, &[Some(1), Some(2), Some(3)], &[0; 3], 0, &[]);
        record.id = StripeId(format!("{at}-abcdef"));
        for (index, block) in record.blocks.iter_mut().enumerate() {
            block.id = BlockId(format!("{}.{index}", record.id));
        }
        record.blocks[1].digest = Some(Digest::new(&format!("kind-{at}"), &at.to_be_bytes()).unwrap());
        record
    };
    (0..600).for_each(|at| picture.apply(StoreChange::Stripe(record(at), false)));
    for at in 0..600 {
        assert_eq!(picture.stripe(&record(at).id).unwrap(), record(at));
    }
}
