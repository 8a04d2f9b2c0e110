//! Descriptions of stripes, and what the store's listing, reads and parity checks tell of the same stripes.

use views::{FoundBy, GivenBlock, GivenStripe};

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

/// Returns blocks 1, 2 and 3 of the described stripe, each on its helper.
fn all_but_block_0(cluster: &TestCluster) -> BTreeMap<BlockIndex, NodeId> {
    (1..4).map(|index| (BlockIndex(index), number(cluster, &format!("h{}", index + 1)))).collect()
}

/// A check has found a contradiction between these blocks of the described stripe.
fn contradict(cluster: &mut TestCluster, blocks: std::ops::Range<u16>) -> StripeId {
    let (stripe, blocks) = (StripeId("group".into()), blocks.map(BlockIndex).collect());
    let found_by = FoundBy::Scrub;
    tell(cluster, Signal::Contradiction { stripe: stripe.clone(), blocks, found_by });
    stripe
}

/// A reader cannot reach the DataNode of block 0, which the NameNode still counts.
#[test]
fn a_contradiction_lasts_while_a_listed_block_was_not_read_that_a_description_lacks() {
    for is_described in [false, true] {
        let mut cluster = cluster();
        list(&mut cluster);
        let stripe = contradict(&mut cluster, 0..4);
        if is_described {
            describe(&mut cluster, &described(&[0])).unwrap();
        }
        let read = all_but_block_0(&cluster);
        tell(&mut cluster, Signal::ParityHeld { stripe: stripe.clone(), read });
        assert!(cluster.core().stripes.contradictions.has(&stripe), "described: {is_described}");
    }
}

/// Without a NameNode, only descriptions tell that the block is back.
#[test]
fn a_contradiction_returns_with_a_described_block_that_the_last_check_left_out() {
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[0])).unwrap();
    let stripe = contradict(&mut cluster, 1..4);
    let read = all_but_block_0(&cluster);
    tell(&mut cluster, Signal::ParityHeld { stripe: stripe.clone(), read });
    assert!(!cluster.core().stripes.contradictions.has(&stripe));
    describe(&mut cluster, &described(&[0])).unwrap();
    assert!(!cluster.core().stripes.contradictions.has(&stripe));
    describe(&mut cluster, &described(&[])).unwrap();
    assert!(cluster.core().stripes.contradictions.has(&stripe));
}

/// Lists the described stripe with its first block in this state on this helper.
fn list_block_0(cluster: &mut TestCluster, helper: &str, state: BlockState) {
    let mut record = listed(&described(&[]), &numbers(cluster));
    (record.blocks[0].node, record.blocks[0].state) = (Some(number(cluster, helper)), state);
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(record, false)]));
}

fn has_contradiction(cluster: &mut TestCluster) -> bool {
    cluster.core().stripes.contradictions.has(&StripeId("group".into()))
}

/// Parity holds over blocks 1, 2 and 3 while block 0 is missing, so a contradiction of the listed stripe ends.
fn ended_without_block_0() -> (TestCluster, StripeId) {
    let mut cluster = cluster();
    list(&mut cluster);
    list_block_0(&mut cluster, "h1", BlockState::Missing);
    let stripe = contradict(&mut cluster, 1..4);
    let read = all_but_block_0(&cluster);
    tell(&mut cluster, Signal::ParityHeld { stripe: stripe.clone(), read });
    assert!(!has_contradiction(&mut cluster));
    (cluster, stripe)
}

/// Sets whether the server of a helper is in service.
fn serve(cluster: &mut TestCluster, helper: &str, up: bool) {
    let node = number(cluster, helper);
    cluster.handle(Event::Changed(vec![StoreChange::Service(node, up)]));
}

/// Its disk is mounted again after the block was rebuilt elsewhere.
#[test]
fn a_contradiction_returns_with_the_former_copy_of_a_block_that_was_rebuilt() {
    let (mut cluster, stripe) = ended_without_block_0();
    let (made, core) = (number(&cluster, "h5"), cluster.core());
    core.stripes.contradictions.note_made(&stripe, &[(BlockIndex(0), made)], &mut core.out);
    list_block_0(&mut cluster, "h5", BlockState::Healthy);
    assert!(!has_contradiction(&mut cluster));
    list_block_0(&mut cluster, "h1", BlockState::Healthy);
    assert!(has_contradiction(&mut cluster));
    cluster.wait(Duration::from_secs(1));
    assert!(!has_contradiction(&mut cluster), "a check has read the former copy");
    list_block_0(&mut cluster, "h5", BlockState::Healthy);
    assert!(has_contradiction(&mut cluster), "it has not read the new one");
}

/// Its DataNode was dead while parity was checked, and block 0 counted there until HDFS or a job had rebuilt it.
#[test]
fn a_contradiction_returns_with_a_copy_whose_block_was_rebuilt_before_it_ended() {
    for is_made in [true, false] {
        let mut cluster = cluster();
        list(&mut cluster);
        let (stripe, made) = (contradict(&mut cluster, 0..4), number(&cluster, "h5"));
        serve(&mut cluster, "h1", false);
        cluster.kill("h1");
        if is_made {
            let core = cluster.core();
            core.stripes.contradictions.note_made(&stripe, &[(BlockIndex(0), made)], &mut core.out);
        } else {
            list_block_0(&mut cluster, "h5", BlockState::Healthy);
        }
        let mut read = all_but_block_0(&cluster);
        read.insert(BlockIndex(0), made);
        tell(&mut cluster, Signal::ParityHeld { stripe, read });
        assert!(!has_contradiction(&mut cluster));
        list_block_0(&mut cluster, "h1", BlockState::Healthy);
        assert!(!has_contradiction(&mut cluster), "nobody can read it yet");
        serve(&mut cluster, "h1", true);
        assert!(has_contradiction(&mut cluster), "made by a job: {is_made}");
    }
}

/// The NameNode knows of the returned block, and Mend lists it later. Readers use the description.
#[test]
fn a_contradiction_returns_with_a_described_block_that_is_not_listed_yet() {
    let (mut cluster, _) = ended_without_block_0();
    cluster.node("h1").disk.remove(&BlockId("foreign-0".into()));
    describe(&mut cluster, &described(&[])).unwrap();
    assert!(has_contradiction(&mut cluster));
    cluster.wait(Duration::from_secs(5));
    assert!(has_contradiction(&mut cluster), "a check reads what is listed");
    cluster.wait(Duration::from_secs(40));
    assert!(!has_contradiction(&mut cluster), "the description is no longer used");
}

/// A machine is shut down to replace another disk. Its server may start before the helper.
#[test]
fn a_contradiction_that_returns_before_its_block_can_be_read_ends_by_itself() {
    for is_served_first in [false, true] {
        let (mut cluster, _) = ended_without_block_0();
        serve(&mut cluster, "h1", false);
        cluster.kill("h1");
        list_block_0(&mut cluster, "h1", BlockState::Healthy);
        assert!(!has_contradiction(&mut cluster), "the store counts blocks on dead machines");
        if is_served_first {
            serve(&mut cluster, "h1", true);
            cluster.wait(Duration::from_secs(30));
            assert!(has_contradiction(&mut cluster), "clients may read it");
        }
        let before: u32 = cluster.nodes.values().map(|node| node.fingerprinted).sum();
        cluster.wait(Duration::from_secs(30));
        let after: u32 = cluster.nodes.values().map(|node| node.fingerprinted).sum();
        assert_eq!(before, after, "a further check would read the same blocks");
        cluster.start("h1");
        serve(&mut cluster, "h1", true);
        cluster.wait(Duration::from_secs(15));
        assert!(!has_contradiction(&mut cluster), "served first: {is_served_first}");
        assert_eq!(cluster.node("h1").fingerprinted, 1);
    }
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

/// A recovery may take hours, or be paused. Otherwise clients would decode lost blocks themselves for so long.
#[test]
fn plug_ins_read_a_listed_stripe_while_the_coordinator_repairs_it() {
    let (mut cluster, file) = filed();
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    let node = number(&cluster, &home(&file, 0));
    tell(&mut cluster, Signal::Wrong { stripe: stripe.clone(), index: BlockIndex(0), node });
    let given = of_file(&file, &[1]);
    describe(&mut cluster, &given).unwrap();
    cluster.frozen.extend((1..=6).map(|helper| format!("h{helper}")));
    let repair = cluster.repair_all().repair;
    cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    cluster.frozen.clear();
    cluster.play();
    assert!(!is_described(&mut cluster, &stripe.0));
    read(&mut cluster, 1, &stripe.0);
    cluster.wait(Duration::from_secs(21));
    read(&mut cluster, 2, &stripe.0);
    describe(&mut cluster, &given).unwrap();
    read(&mut cluster, 3, &stripe.0);
    let closed = &cluster.node("hdfs").closed;
    assert!(closed[&1].is_ok() && closed[&3].is_ok(), "{closed:?}");
    let refused = closed[&2].as_ref().unwrap_err().to_string();
    assert!(refused.contains("was not described"), "it must be described again: {refused}");
    assert!(!is_described(&mut cluster, &stripe.0), "the listing counts");
    // The plug-in skips a command of the store, also if the repair has ended since it described the stripe.
    let command = |cluster: &mut TestCluster| {
        let request = RepairRequest { stripe: Some(stripe.0.clone()), ..homes(&[(1, "h5")]) };
        cluster.ask(|reply| RepairCommand::Queue(request.into(), reply)).unwrap_err()
    };
    let during = command(&mut cluster);
    cluster.ask(|reply| RepairCommand::Cancel(repair, reply)).unwrap();
    for error in [during, command(&mut cluster)] {
        let is_in_use = matches!(error, RequestError::Given(crate::error::DescriptionError::GivenInUse(_)));
        assert!(is_in_use, "{error}");
    }
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
