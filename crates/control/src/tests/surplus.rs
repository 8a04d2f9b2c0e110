//! Surplus copies, in a store that others run and where a node may have several blocks of a stripe.

use store_api::{
    BlockState, Ownership, RecordWrite, Replica, Service, Spread, StoreChange, StorePolicy, StripeRecord,
};

use super::*;

impl Scene {
    /// A stripe in a store that reports, for each block, its home and further holders. The storage carries
    /// out no requests.
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

    /// The copies that Control asks the store to remove.
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
fn a_copy_is_removed_if_the_stripe_survives_as_many_nodes_without_it() {
    let removed = Scene::removed_of(&[&[1], &[2], &[3], &[4, 5]]);
    assert_eq!(removed, BTreeSet::from([("h5".to_owned(), 3)]));
    // Two blocks are on h1 in either case.
    let removed = Scene::removed_of(&[&[1], &[1], &[3], &[4, 5]]);
    assert_eq!(removed, BTreeSet::from([("h5".to_owned(), 3)]));
}

#[test]
fn a_copy_is_kept_if_it_lets_the_stripe_survive_more_nodes() {
    // With the copy, any two nodes may fail. Without it, losing h1 and another node would be too much.
    assert_eq!(Scene::removed_of(&[&[1], &[1, 5], &[3], &[4]]), BTreeSet::new());
    // Without either copy, three blocks would depend on h1, more than the stripe can lose.
    assert_eq!(Scene::removed_of(&[&[1], &[1], &[1, 2], &[1, 3]]), BTreeSet::new());
}

#[test]
fn spare_room_agrees_with_placement() {
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
