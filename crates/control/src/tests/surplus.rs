//! Copies of blocks on several nodes, in a store that others run and where nodes may have several blocks of a stripe.

use store_api::{
    BlockState, Ownership, RecordWrite, Replica, Service, Spread, StoreChange, StorePolicy, StripeRecord,
};

use super::*;

impl Scene {
    /// A stripe, of which the store says for each block the helper where it belongs, and others that have it. The store takes
    /// what it is asked and does nothing.
    fn over_store(shares_nodes: bool, nodes: &[&[u32]]) -> (Self, StripeRecord) {
        let mut scene = Self::new(5);
        let file = scene.put("f", 1);
        scene.stuck = true;
        let spread = if shares_nodes { Spread::Even } else { Spread::OnePerNode };
        scene.core().base.store = StorePolicy {
            ownership: Ownership::Attached,
            service: Service::ReportedByStore,
            spread,
            ..StorePolicy::OWN
        };
        let id = StripeId(file.layout[0].stripe.stripe.clone());
        let mut record = scene.core().stripes.picture.stripe(&id).unwrap();
        for (block, numbers) in record.blocks.iter_mut().zip(nodes) {
            let mut holders = numbers.iter().map(|number| {
                let helper = scene.nodes.get_mut(&format!("h{number}")).unwrap();
                helper.disk.insert(block.id.clone(), block.bytes);
                helper.node.unwrap()
            });
            block.node = holders.next();
            block.replicas = holders.map(|node| Replica { node, state: BlockState::Healthy }).collect();
        }
        scene.handle(Event::Changed(vec![StoreChange::Stripe(record.clone(), false)]));
        (scene, record)
    }

    /// The copies that Control has the store remove.
    fn removed_of(nodes: &[&[u32]]) -> BTreeSet<(String, usize)> {
        let (mut scene, record) = Self::over_store(true, nodes);
        scene.wait(Duration::from_secs(10));
        let core = scene.core();
        let asks: Vec<Ask> = std::iter::from_fn(|| core.poll_storage()).collect();
        let removed = asks.into_iter().filter_map(|ask| match ask {
            Ask::Write { write: Write::Records(RecordWrite::Discard(node, block)), .. } => {
                let at = record.blocks.iter().position(|other| other.id == block).unwrap();
                Some((core.nodes.name(node), at))
            }
            _ => None,
        });
        removed.collect()
    }
}

#[test]
fn a_copy_goes_where_the_stripe_survives_as_many_nodes_without_it() {
    let removed = Scene::removed_of(&[&[1], &[2], &[3], &[4, 5]]);
    assert_eq!(removed, BTreeSet::from([("h5".to_owned(), 3)]));
    // Two blocks are on h1 all the same.
    let removed = Scene::removed_of(&[&[1], &[1], &[3], &[4, 5]]);
    assert_eq!(removed, BTreeSet::from([("h5".to_owned(), 3)]));
}

#[test]
fn a_copy_stays_that_makes_a_stripe_survive_more_nodes() {
    // With it any two nodes may die; without it h1 and any other are too many.
    assert_eq!(Scene::removed_of(&[&[1], &[1, 5], &[3], &[4]]), BTreeSet::new());
    // Both copies together make up for h1's four blocks, neither of them alone.
    assert_eq!(Scene::removed_of(&[&[1], &[1], &[1, 2], &[1, 3]]), BTreeSet::new());
}

#[test]
fn there_is_room_for_a_lost_block_where_placement_finds_some() {
    let stuck = |shares_nodes, full: &[u32], nodes: &[&[u32]]| {
        let (mut scene, record) = Scene::over_store(shares_nodes, nodes);
        for number in full {
            scene.say(&format!("h{number}"), FromNode::Pong { free_bytes: 0, tasks: 0 });
        }
        let core = scene.core();
        core.jobs.spare_room(core.facts(), &[record]).stuck
    };
    let (apart, twice): (&[&[u32]], &[&[u32]]) = (&[&[1], &[2], &[3], &[4]], &[&[1], &[2], &[3], &[4, 5]]);
    assert_eq!((stuck(false, &[], apart), stuck(false, &[5], apart)), (0, 1), "h5 has none of its blocks");
    assert_eq!(stuck(false, &[], twice), 0, "what h5 has is a copy that does not count");
    assert_eq!(stuck(true, &[5], apart), 0, "a block that is lost leaves room for another");
    assert_eq!(stuck(true, &[1, 2, 3, 4, 5], apart), 1);
}
