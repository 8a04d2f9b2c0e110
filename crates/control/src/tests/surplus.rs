//! Surplus copies, in a store that others run and where a node may have several blocks of a stripe.

use store_api::{
    BlockState, NodeRecord, Origin, Ownership, RecordWrite, Replica, Service, Spread, StoreChange,
    StorePolicy, StripeRecord, StripeWrite, Unjudged,
};

use super::*;
use crate::commands::NodeCommand;
use crate::signal::Signal;

impl TestCluster {
    /// Creates a cluster with one stripe in a store. `nodes` lists the nodes that hold each block: first its
    /// home, then the holders of further copies. The storage carries out no requests.
    pub(super) fn over_store(shares_nodes: bool, nodes: &[&[u32]]) -> (Self, StripeRecord) {
        let mut cluster = Self::new(5);
        let file = cluster.put("f", 1);
        cluster.stuck = true;
        let spread = if shares_nodes { Spread::Even } else { Spread::OnePerNode };
        cluster.core().base.store = StorePolicy {
            ownership: Ownership::Attached,
            service: Service::ReportedByStore,
            spread,
            ..StorePolicy::OWN
        };
        let id = StripeId(file.layout[0].stripe.stripe.clone());
        let mut record = cluster.core().stripes.picture.stripe(&id).unwrap();
        for (block, numbers) in record.blocks.iter_mut().zip(nodes) {
            let mut holders = numbers.iter().map(|number| {
                let helper = cluster.nodes.get_mut(&format!("h{number}")).unwrap();
                helper.disk.insert(block.id.clone(), block.bytes);
                helper.node.unwrap()
            });
            block.node = holders.next();
            block.replicas = holders.map(|node| Replica { node, state: BlockState::Healthy }).collect();
        }
        cluster.handle(Event::Changed(vec![StoreChange::Stripe(record.clone(), false)]));
        (cluster, record)
    }

    /// Returns the copies that Control asks the store to remove.
    fn removed_of(nodes: &[&[u32]]) -> BTreeSet<(String, usize)> {
        let (mut cluster, record) = Self::over_store(true, nodes);
        cluster.wait(Duration::from_secs(10));
        cluster.discards(&record)
    }

    /// Returns the copies that Control has asked the store to remove since the last call.
    fn discards(&mut self, record: &StripeRecord) -> BTreeSet<(String, usize)> {
        let core = self.core();
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
    let removed = TestCluster::removed_of(&[&[1], &[2], &[3], &[4, 5]]);
    assert_eq!(removed, BTreeSet::from([("h5".to_owned(), 3)]));
    // With or without the copy on h5, two blocks of the stripe are on h1.
    let removed = TestCluster::removed_of(&[&[1], &[1], &[3], &[4, 5]]);
    assert_eq!(removed, BTreeSet::from([("h5".to_owned(), 3)]));
}

#[test]
fn a_copy_without_a_recorded_digest_is_removed_only_after_a_parity_check_of_the_other() {
    let (mut cluster, mut record) = TestCluster::over_store(true, &[&[1], &[2], &[3], &[4, 5]]);
    record.blocks.iter_mut().for_each(|block| block.digest = None);
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(record.clone(), false)]));
    cluster.frozen.insert("h1".to_owned());
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.discards(&record), BTreeSet::new(), "h4 can read its copy, but the copies may differ");
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(10));
    assert_eq!(cluster.discards(&record), BTreeSet::from([("h5".to_owned(), 3)]));
}

/// A read checks no parity, and the check of another job covers only some of the blocks.
#[test]
fn a_job_during_the_parity_check_of_a_copy_does_not_void_the_check() {
    let (mut cluster, mut record) = TestCluster::over_store(true, &[&[1], &[2], &[3], &[4, 5]]);
    record.blocks.iter_mut().for_each(|block| block.digest = None);
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(record.clone(), false)]));
    cluster.frozen.insert("h1".to_owned());
    cluster.wait(Duration::from_secs(10));
    cluster.read(9, &record.id.0, 1, &[]);
    cluster.closed(9).unwrap().unwrap();
    let read = [(BlockIndex(0), 1), (BlockIndex(1), 2), (BlockIndex(2), 3)];
    let node = |number: u32| cluster.nodes[&format!("h{number}")].node.unwrap();
    let read = read.into_iter().map(|(index, number)| (index, node(number))).collect();
    let core = cluster.core();
    core.out.tell(Signal::ParityHeld { stripe: record.id.clone(), read });
    core.route();
    assert_eq!(cluster.discards(&record), BTreeSet::new());
    cluster.frozen.clear();
    cluster.play();
    assert_eq!(cluster.discards(&record), BTreeSet::from([("h5".to_owned(), 3)]));
    assert_eq!(cluster.node("h2").fingerprinted, 1, "the stripe was read once");
}

#[test]
fn a_corrupt_block_that_was_replaced_on_disk_is_put_into_service_again() {
    let (mut cluster, mut record) = TestCluster::over_store(true, &[&[1], &[2], &[3], &[4]]);
    let found = |cluster: &mut TestCluster| {
        let core = cluster.core();
        let asks: Vec<Ask> = std::iter::from_fn(|| core.poll_storage()).collect();
        let is_found = |ask: &Ask| {
            let Ask::Write { write: Write::Stripes(write), .. } = ask else { return false };
            matches!(write, StripeWrite::Publish { origin: Origin::Found, .. })
        };
        asks.iter().any(is_found)
    };
    record.blocks[3].state = BlockState::Corrupt;
    for has_digest in [false, true] {
        if !has_digest {
            record.blocks[3].digest = None;
        }
        cluster.handle(Event::Changed(vec![StoreChange::Stripe(record.clone(), false)]));
        cluster.kill("h4");
        cluster.start("h4");
        cluster.wait(Duration::from_secs(2));
        assert_eq!(found(&mut cluster), has_digest, "without a digest, nothing shows that the file is right");
        record.blocks[3].digest = digest(&record.blocks[3].id);
    }
}

#[test]
fn a_copy_is_kept_if_it_lets_the_stripe_survive_more_nodes() {
    // With the copy, any two nodes may fail. Without it, the loss of h1 and of another node would be more
    // than the stripe tolerates.
    assert_eq!(TestCluster::removed_of(&[&[1], &[1, 5], &[3], &[4]]), BTreeSet::new());
    // If the copy on h2 or the copy on h3 were removed, three blocks would exist only on h1, more than the
    // stripe can lose.
    assert_eq!(TestCluster::removed_of(&[&[1], &[1], &[1, 2], &[1, 3]]), BTreeSet::new());
}

#[test]
fn spare_room_agrees_with_placement() {
    let stuck = |shares_nodes, full: &[u32], nodes: &[&[u32]]| {
        let (mut cluster, record) = TestCluster::over_store(shares_nodes, nodes);
        for number in full {
            cluster
                .say(&format!("h{number}"), FromNode::Pong { free_bytes: 0, tasks: 0, write_problem: None });
        }
        let core = cluster.core();
        core.jobs.spare_room(core.facts(), &[record]).stuck
    };
    let (apart, twice): (&[&[u32]], &[&[u32]]) = (&[&[1], &[2], &[3], &[4]], &[&[1], &[2], &[3], &[4, 5]]);
    assert_eq!((stuck(false, &[], apart), stuck(false, &[5], apart)), (0, 1), "h5 has none of its blocks");
    assert_eq!(stuck(false, &[], twice), 0, "what h5 has is a copy that does not count");
    assert_eq!(stuck(true, &[5], apart), 0, "a block that is lost leaves room for another");
    assert_eq!(stuck(true, &[1, 2, 3, 4, 5], apart), 1);
}

impl TestCluster {
    /// Creates a stripe whose first block was rebuilt while its helper was down. The helper is back, and the
    /// helper of the rebuilt block does not answer. Returns the names of the old and the new helper.
    pub(super) fn with_a_copy() -> (Self, FileLayout, [String; 2]) {
        let mut cluster = Self::new(7);
        let file = cluster.put("f", 1);
        let before = home(&file, 0);
        cluster.kill(&before);
        assert_eq!(cluster.repair_all().state.name(), "done");
        let now = home(&cluster.file("f"), 0);
        cluster.wait(Duration::from_secs(90));
        cluster.frozen.insert(now.clone());
        cluster.start(&before);
        cluster.wait(Duration::from_secs(40));
        assert!(cluster.node(&before).disk.contains_key(&block(&file, 0)), "nobody has read the other copy");
        (cluster, file, [before, now])
    }
}

#[test]
fn a_copy_is_removed_after_the_other_was_read() {
    let (mut cluster, file, [before, now]) = TestCluster::with_a_copy();
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(1));
    assert!(!cluster.node(&before).disk.contains_key(&block(&file, 0)));
    assert_eq!(home(&cluster.file("f"), 0), now);
}

#[test]
fn a_copy_replaces_a_rebuilt_block_that_turns_out_to_be_bad() {
    let (mut cluster, file, [before, now]) = TestCluster::with_a_copy();
    cluster.rotten.insert(block(&file, 0));
    cluster.frozen = BTreeSet::from([before.clone()]);
    cluster.play();
    cluster.rotten.clear();
    assert_ne!(states(&cluster.file("f"))[0], "healthy");
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(90));
    assert!(cluster.node(&before).disk.contains_key(&block(&file, 0)));
    assert!(!cluster.node(&now).disk.contains_key(&block(&file, 0)));
    assert_eq!((home(&cluster.file("f"), 0), states(&cluster.file("f"))[0]), (before, "healthy"));
}

#[test]
fn thousands_of_copies_are_verified_one_at_a_time_per_helper() {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 450);
    cluster.kill("h1");
    assert_eq!(cluster.repair_all().state.name(), "done");
    cluster.wait(Duration::from_secs(90));
    cluster.frozen.extend((2..=6).map(|number| format!("h{number}")));
    cluster.start("h1");
    cluster.wait(Duration::from_secs(20));
    for number in 2..=6 {
        let backlog = &cluster.nodes[&format!("h{number}")].backlog;
        let asked = backlog.iter().filter(|message| matches!(message, ToNode::Verify { .. })).count();
        assert!(asked <= 1, "h{number} has {asked} questions");
    }
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(60));
    assert!(cluster.node("h1").disk.is_empty(), "{} copies are left", cluster.node("h1").disk.len());
    assert!(cluster.status().healthy);
}

#[test]
fn servers_whose_blocks_are_not_known_are_not_safe_to_remove_or_to_stop() {
    let (mut cluster, mut record) = TestCluster::over_store(true, &[&[1], &[2], &[3], &[4]]);
    let answers = |cluster: &mut TestCluster| {
        let names = || vec!["h5".to_owned()];
        let remove = cluster.ask(|reply| NodeCommand::SafeToRemove(names(), reply)).unwrap();
        let stop = cluster.ask(|reply| NodeCommand::OkToStop(names(), 0, reply)).unwrap();
        (remove.safe, stop.safe, remove.text)
    };
    assert!(matches!(answers(&mut cluster), (true, true, _)));
    let unjudged = Unjudged {
        stripe: StripeId("c_7".to_owned()),
        blocks: Vec::new(),
        servers: BTreeSet::from(["h5".to_owned()]),
        why: "its .vif is unreadable".to_owned(),
        next_step: "look at it".to_owned(),
    };
    cluster.handle(Event::Changed(vec![StoreChange::Unjudged(vec![unjudged])]));
    assert!(matches!(answers(&mut cluster), (false, false, _)));
    cluster.handle(Event::Changed(vec![StoreChange::Unjudged(Vec::new())]));
    assert!(matches!(answers(&mut cluster), (true, true, _)));

    // The server of h5 was restarted with another port.
    let settings = &mut cluster.core().base.settings;
    settings.beside = BTreeMap::from([("10.0.0.5:8080".to_owned(), "h5".to_owned())]);
    settings.helpers = Some((1..6).map(|number| format!("h{number}")).collect());
    let server = NodeRecord { id: NodeId(77), name: "10.0.0.5:8081".to_owned(), address: None };
    record.blocks[3].node = Some(server.id);
    let old = cluster.nodes["h5"].node.unwrap();
    let changes =
        vec![StoreChange::Service(old, false), StoreChange::Node(server), StoreChange::Stripe(record, false)];
    cluster.handle(Event::Changed(changes));
    let (safe, _, text) = answers(&mut cluster);
    assert!(!safe && text.contains("perhaps 1 block of server 10.0.0.5:8081"), "{text}");
}
