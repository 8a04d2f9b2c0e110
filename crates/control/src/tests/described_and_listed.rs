//! Descriptions of stripes, and what the store's listing, reads and parity checks tell of the same stripes.

use views::{GivenBlock, GivenStripe};

use super::described::{LIKE_HDFS, cluster, describe, described, homes, listed};
use super::*;
use crate::commands::StripeCommand;
use crate::signal::Signal;
use store_api::{BlockRecord, BlockState, StoreChange, StripeRecord};

fn tell(cluster: &mut TestCluster, signal: Signal) {
    let core = cluster.core();
    core.out.tell(signal);
    core.route();
    cluster.pump();
}

fn number(cluster: &TestCluster, helper: &str) -> NodeId {
    cluster.nodes[helper].node.expect("it has registered")
}

/// Returns the numbers of helpers h1 to h6.
fn numbers(cluster: &TestCluster) -> Vec<NodeId> {
    (1..=6).map(|helper| number(cluster, &format!("h{helper}"))).collect()
}

/// Returns the state of a block in the view of a stripe.
fn state(cluster: &mut TestCluster, stripe: &str, index: usize) -> &'static str {
    let view = cluster.ask(|reply| StripeCommand::View(StripeId(stripe.into()), reply)).unwrap();
    view.blocks[index].state.name()
}

fn is_described(cluster: &mut TestCluster, stripe: &str) -> bool {
    cluster.core().stripes.given.get(&StripeId(stripe.into())).is_some()
}

/// Makes the cluster's store report services and be changed by others, as HDFS does.
fn become_like_hdfs(cluster: &mut TestCluster) {
    let services = numbers(cluster).into_iter().map(|helper| StoreChange::Service(helper, true)).collect();
    cluster.core().base.store = LIKE_HDFS;
    cluster.handle(Event::Changed(services));
}

/// Lists the described stripe with all blocks healthy. The catalog does not have it.
fn list(cluster: &mut TestCluster) -> StripeRecord {
    become_like_hdfs(cluster);
    let record = listed(&described(&[]), &numbers(cluster));
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(record.clone(), false)]));
    record
}

/// Stores a file of one stripe in a store like HDFS.
fn filed() -> (TestCluster, FileLayout) {
    let mut cluster = cluster();
    let file = cluster.put("film", 1);
    become_like_hdfs(&mut cluster);
    (cluster, file)
}

/// Describes the stripe of a file with these blocks lost.
fn of_file(file: &FileLayout, lost: &[u16]) -> GivenStripe {
    let stripe = &file.layout[0].stripe;
    let blocks = stripe.blocks.iter().map(|block| GivenBlock {
        block: block.block.clone(),
        bytes: block.bytes,
        node: block.node.clone().filter(|_| !lost.contains(&block.index)),
        digest: None,
    });
    GivenStripe {
        stripe: stripe.stripe.clone(),
        code: stripe.code.clone(),
        block_bytes: stripe.block_bytes,
        chunk_bytes: stripe.chunk_bytes,
        blocks: blocks.collect(),
    }
}

/// Reads block 1 of a stripe as a plug-in.
fn read(cluster: &mut TestCluster, tag: u64, stripe: &str) {
    let request = read_request(stripe, 1, &[]);
    cluster.say("hdfs", FromNode::Open { tag, request });
    cluster.play();
}

/// A reader describes a stripe from the NameNode's list, which does not contain what parity has shown.
#[test]
fn a_description_does_not_make_a_block_good_that_parity_has_shown_to_be_wrong() {
    for is_older in [true, false] {
        let (mut cluster, file) = filed();
        let (given, wrong) = (of_file(&file, &[1]), block(&file, 0));
        if is_older {
            describe(&mut cluster, &given).unwrap();
        }
        let node = number(&cluster, &home(&file, 0));
        let stripe = StripeId(given.stripe.clone());
        tell(&mut cluster, Signal::Wrong { stripe: stripe.clone(), index: BlockIndex(0), node });
        if !is_older {
            describe(&mut cluster, &given).unwrap();
        }
        assert_eq!(state(&mut cluster, &given.stripe, 0), "corrupt", "older: {is_older}");
        let facts = cluster.core().facts();
        let described = facts.stripes.stripe_record(&stripe).unwrap();
        assert_eq!(facts.readable_at(&described.blocks[0]), None);
        assert!(facts.is_lost(&described.blocks[0]) && !facts.counts(&described.blocks[0]));
        // The block is not read even if a record contains it as healthy.
        let healthy = BlockRecord { state: BlockState::Healthy, ..described.blocks[0].clone() };
        assert_eq!(facts.readable_at(&healthy), None);
        cluster.nodes.values_mut().for_each(|node| node.assigned.clear());
        read(&mut cluster, 1, &given.stripe);
        assert!(cluster.node("hdfs").closed[&1].is_ok(), "{:?}", cluster.node("hdfs").closed);
        let mut locals = cluster.nodes.values().flat_map(|node| &node.assigned).flat_map(|task| &task.locals);
        assert!(!locals.any(|local| local.id == wrong), "older: {is_older}");
    }
}

/// Without a NameNode, only descriptions tell the coordinator of the stripe.
#[test]
fn a_wrong_block_of_a_described_stripe_stays_bad_until_it_is_rebuilt() {
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[1])).unwrap();
    let node = number(&cluster, "h1");
    tell(&mut cluster, Signal::Wrong { stripe: StripeId("group".into()), index: BlockIndex(0), node });
    assert_eq!(state(&mut cluster, "group", 0), "corrupt");
    describe(&mut cluster, &described(&[1])).unwrap();
    assert_eq!(
        state(&mut cluster, "group", 0),
        "corrupt",
        "the description is newer and knows nothing of it"
    );
    describe(&mut cluster, &described(&[0, 1])).unwrap();
    let repair = cluster.repair(homes(&[(0, "h1"), (1, "h2")]));
    assert_eq!(repair.state.name(), "done", "{repair:?}");
    describe(&mut cluster, &described(&[])).unwrap();
    assert_eq!(state(&mut cluster, "group", 0), "healthy");
}

/// A scrub has found it, or the NameNode.
#[test]
fn a_copy_that_is_listed_as_corrupt_is_corrupt_in_descriptions() {
    let mut cluster = cluster();
    let mut record = list(&mut cluster);
    describe(&mut cluster, &described(&[1])).unwrap();
    let mut list_as = |cluster: &mut TestCluster, state| {
        record.blocks[0].state = state;
        cluster.handle(Event::Changed(vec![StoreChange::Stripe(record.clone(), false)]));
    };
    list_as(&mut cluster, BlockState::Corrupt);
    assert_eq!(state(&mut cluster, "group", 0), "corrupt");
    describe(&mut cluster, &described(&[1])).unwrap();
    assert_eq!(state(&mut cluster, "group", 0), "corrupt");
    list_as(&mut cluster, BlockState::Healthy);
    describe(&mut cluster, &described(&[1])).unwrap();
    assert_eq!(state(&mut cluster, "group", 0), "healthy", "it was rebuilt there");
    // A listing that misses a block is older than a description that contains it.
    list_as(&mut cluster, BlockState::Missing);
    describe(&mut cluster, &described(&[1])).unwrap();
    assert_eq!(state(&mut cluster, "group", 0), "healthy");
}

/// A read by an earlier description finds that the block is not on its former node.
#[test]
fn a_loss_on_another_node_than_the_described_one_is_ignored() {
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[])).unwrap();
    for (helper, expected) in [("h6", "healthy"), ("h2", "missing")] {
        let node = number(&cluster, helper);
        let (stripe, index) = (StripeId("group".into()), BlockIndex(1));
        tell(&mut cluster, Signal::GivenLost { stripe, index, node, state: BlockState::Missing });
        assert_eq!(state(&mut cluster, "group", 1), expected, "missing on {helper}");
    }
}

#[test]
fn reads_do_not_extend_the_time_of_a_description_of_a_listed_stripe() {
    let mut cluster = cluster();
    list(&mut cluster);
    describe(&mut cluster, &described(&[1])).unwrap();
    for tag in 0..5 {
        assert!(is_described(&mut cluster, "group"), "{:?}", cluster.now);
        read(&mut cluster, tag, "group");
        assert!(cluster.node("hdfs").closed[&tag].is_ok(), "{:?}", cluster.node("hdfs").closed);
        cluster.wait(Duration::from_millis(4500));
    }
    assert!(!is_described(&mut cluster, "group"));
    describe(&mut cluster, &described(&[1])).unwrap();
}

/// Otherwise a repair would rebuild what a reader counts as lost, without the permits of the store, and the blocks
/// that are lost would stay so while the stripe is read.
#[test]
fn own_repairs_take_a_listed_stripe_from_the_store_and_claim_it() {
    let (mut cluster, file) = filed();
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    let node = number(&cluster, &home(&file, 0));
    tell(&mut cluster, Signal::Wrong { stripe: stripe.clone(), index: BlockIndex(0), node });
    let mut given = of_file(&file, &[1]);
    let mut helpers = (1..=6).map(|helper| format!("h{helper}"));
    given.blocks[0].node = helpers.find(|helper| (0..4).all(|index| home(&file, index) != *helper));
    describe(&mut cluster, &given).unwrap();
    cluster.frozen.extend((1..=6).map(|helper| format!("h{helper}")));
    cluster.repair_all();
    let core = cluster.core();
    let running = core.jobs.running.values().next().expect("it has begun");
    let targets: Vec<BlockIndex> = running.job.targets().map(|(index, _)| index).collect();
    assert_eq!(targets, [BlockIndex(0)]);
    assert_eq!(core.repairs.claims.granted(), 1);
    assert!(!is_described(&mut cluster, &stripe.0));
    // The plug-in hears that the stripe is being repaired, and skips its command.
    let request = RepairRequest { stripe: Some(stripe.0.clone()), ..homes(&[(1, "h5")]) };
    let error = cluster.ask(|reply| RepairCommand::Queue(request.into(), reply)).unwrap_err();
    assert!(matches!(error, RequestError::Given(crate::error::DescriptionError::GivenInUse(_))), "{error}");
}

/// The plug-in has reserved the block there, or told the NameNode that it will be there.
#[test]
fn a_described_repair_stores_blocks_only_on_the_named_nodes() {
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[1])).unwrap();
    cluster.frozen.insert("h6".into());
    let repair = cluster.repair(homes(&[(1, "h6")])).repair;
    cluster.kill("h6");
    cluster.wait(Duration::from_secs(60));
    assert!(!cluster.node("h5").disk.contains_key(&BlockId("foreign-1".into())));
    assert_eq!(cluster.repair_state(repair).counts.blocks_rebuilt, 0);
}
