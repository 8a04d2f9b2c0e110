//! Stripes that a plug-in describes to the coordinator (given stripes).

use crate::commands::{ClusterCommand, RepairCommand, StripeCommand};
use recovery::Priority;
use views::{GivenBlock, GivenStripe, HistoryEvent, Home, ParityOutcome, StripeView};

use super::*;
use crate::HealPolicy;
use crate::error::DescriptionError;
use store_api::{
    BlockRecord, BlockState, Checksums, Lists, Ownership, Service, Spread, StoreChange, StorePolicy,
    StripeRecord, Writers,
};

/// Creates a stripe of rs-4-2 with block `foreign-I` on helper h(I + 1); the blocks in `lost` have no node.
pub(super) fn described(lost: &[u16]) -> GivenStripe {
    let block = |index: u16| GivenBlock {
        block: format!("foreign-{index}"),
        bytes: 4096,
        node: (!lost.contains(&index)).then(|| format!("h{}", index + 1)),
        digest: None,
    };
    GivenStripe {
        stripe: "group".into(),
        code: "rs-4-2".into(),
        block_bytes: 4096,
        chunk_bytes: None,
        blocks: (0..4).map(block).collect(),
    }
}

pub(super) fn describe(cluster: &mut TestCluster, given: &GivenStripe) -> Result<StripeView, RequestError> {
    cluster.ask(|reply| StripeCommand::Describe(given.clone(), "plug-in hdfs".into(), reply))
}

pub(super) fn homes(homes: &[(u16, &str)]) -> RepairRequest {
    let home = |&(index, node): &(u16, &str)| Home { index, node: node.into() };
    let homes = homes.iter().map(home).collect();
    RepairRequest { stripe: Some("group".into()), homes, ..RepairRequest::default() }
}

fn refused(cluster: &mut TestCluster, request: RepairRequest) -> String {
    cluster.ask(|reply| RepairCommand::Queue(request.into(), reply)).unwrap_err().to_string()
}

/// Starts helpers h1 to h6 with the described blocks on their disks, and a plug-in.
pub(super) fn cluster() -> TestCluster {
    let mut cluster = TestCluster::new(6);
    for index in 0..4 {
        cluster.node(&format!("h{}", index + 1)).disk.insert(BlockId(format!("foreign-{index}")), 4096);
    }
    let client = FromNode::RegisterClient { version: control::VERSION, bandwidth: None, rack: None };
    cluster.join("hdfs", Role::Plugin("hdfs".parse().unwrap()), client);
    cluster.play();
    cluster
}

/// Describes the stripe without the blocks in `lost`, and freezes all helpers, so that no repair ends.
fn frozen(lost: &[u16]) -> TestCluster {
    let mut cluster = cluster();
    describe(&mut cluster, &described(lost)).unwrap();
    cluster.frozen.extend((1..=6).map(|number| format!("h{number}")));
    cluster
}

#[test]
fn named_blocks_of_a_given_stripe_are_placed_as_the_plug_in_requests() {
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[1, 2])).unwrap();
    // This is the address of h6's server in the plug-in's system, used in place of the name h6.
    let repair = cluster.repair(homes(&[(1, "10.0.0.6:9866")]));
    assert_eq!((repair.state.name(), repair.counts.blocks_rebuilt), ("done", 1), "{repair:?}");
    assert!(cluster.node("h6").disk.contains_key(&BlockId("foreign-1".into())));
    // The other lost block was not requested.
    let view = cluster.ask(|reply| StripeCommand::View(StripeId("group".into()), reply)).unwrap();
    let nodes: Vec<Option<&str>> = view.blocks.iter().map(|block| block.node.as_deref()).collect();
    assert_eq!(nodes, [Some("h1"), Some("h6"), None, Some("h4")]);
    // The repair adds nothing to the catalog and is not counted in the status.
    assert_eq!(cluster.status().stripes.stripes, 0);
}

#[test]
fn bad_descriptions_are_refused_with_the_reason() {
    let mut cluster = cluster();
    let file = cluster.put("film", 1);
    let mut own = described(&[1]);
    own.stripe = file.layout[0].stripe.stripe.clone();
    let mut own_block = described(&[1]);
    own_block.blocks[2].block = block(&file, 2).0;
    let mut few = described(&[1]);
    few.blocks.pop();
    let mut twice = described(&[1]);
    twice.blocks[3].block = "foreign-0".into();
    let mut unknown = described(&[1]);
    unknown.blocks[0].node = Some("h9".into());
    let mut long = described(&[1]);
    long.blocks[0].bytes = 4097;
    for (given, text) in [
        (own, "is in use in this cluster's own catalog"),
        (own_block, "is in use in this cluster's own catalog"),
        (few, "a stripe of rs-4-2 has 4 blocks, but 3 are described"),
        (twice, "contains block `foreign-0` twice"),
        (unknown, "there is no helper `h9`"),
        (long, "block foreign-0 has 4097 bytes, but blocks of its stripe have at most 4096"),
    ] {
        let error = describe(&mut cluster, &given).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    assert!(refused(&mut cluster, homes(&[(1, "h5")])).contains("was not described"));
    describe(&mut cluster, &described(&[1])).unwrap();
    assert!(
        refused(&mut cluster, homes(&[(0, "h5")]))
            .contains("block foreign-0 is not lost: the description of its stripe places it on h1")
    );
    assert!(refused(&mut cluster, homes(&[(9, "h5")])).contains("no b9"));
    assert!(refused(&mut cluster, homes(&[(1, "h9")])).contains("there is no helper `h9`"));
}

#[test]
fn homes_are_accepted_only_for_given_stripes() {
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[1])).unwrap();
    let named = homes(&[(1, "h5")]);
    for other in [
        RepairRequest { stripe: None, drain: Some("h3".into()), ..named.clone() },
        RepairRequest { stripe: None, node: Some("h3".into()), ..named.clone() },
        RepairRequest { stripe: None, all: true, ..named.clone() },
        RepairRequest { all: true, ..named },
    ] {
        let error = refused(&mut cluster, other.clone());
        assert!(error.contains("exactly one of"), "{other:?}: {error}");
    }
    assert!(cluster.status().helpers.leaving.is_empty());
    // Plug-ins have no access to other repairs.
    let own = cluster.repair_all().repair;
    assert!(cluster.ask(|reply| RepairCommand::GivenState(own, reply)).is_err());
    assert!(cluster.ask(|reply| RepairCommand::CancelGiven(own, reply)).is_err());
}

#[test]
fn a_plug_in_reads_only_given_stripes() {
    let mut cluster = cluster();
    let file = cluster.put("film", 1);
    describe(&mut cluster, &described(&[1])).unwrap();
    let read = |stripe: &str| read_request(stripe, 1, &[]);
    for (tag, request) in [
        (1, read("group")),
        (2, read(&file.layout[0].stripe.stripe)),
        (3, ClientRequest::PutStripe { put: 1, position: 0 }),
    ] {
        cluster.say("hdfs", FromNode::Open { tag, request });
        cluster.play();
    }
    let closed = &cluster.node("hdfs").closed;
    assert!(closed[&1].is_ok(), "{closed:?}");
    assert!(closed[&2].as_ref().unwrap_err().to_string().contains("was not described"), "{closed:?}");
    assert!(closed[&3].as_ref().unwrap_err().to_string().contains("only clients"), "{closed:?}");
}

#[test]
fn a_repair_of_a_given_stripe_survives_a_restart() {
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[1])).unwrap();
    cluster.frozen.insert("h6".into());
    let begun = cluster.repair(homes(&[(1, "h6")]));
    assert_eq!(begun.state.name(), "running");
    assert!(describe(&mut cluster, &described(&[2])).is_err(), "it is being repaired as it was described");
    cluster.restart();
    cluster.frozen.clear();
    for helper in 1..=6 {
        cluster.start(&format!("h{helper}"));
    }
    cluster.wait(Duration::from_secs(1));
    assert_eq!(cluster.repair_state(begun.repair).state.name(), "done");
    assert!(cluster.node("h6").disk.contains_key(&BlockId("foreign-1".into())));
}

#[test]
fn a_corrupt_block_of_a_given_stripe_is_not_read_again() {
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[1])).unwrap();
    cluster.rotten.insert(BlockId("foreign-0".into()));
    // This is the address of h6's server in the plug-in's system, used in place of the name h6.
    let repair = cluster.repair(homes(&[(1, "10.0.0.6:9866")]));
    assert_eq!(repair.state.name(), "done", "{repair:?}");
    let view = cluster.ask(|reply| StripeCommand::View(StripeId("group".into()), reply)).unwrap();
    assert_eq!(view.blocks[0].state.name(), "corrupt");
}

#[test]
fn an_unused_given_stripe_is_dropped() {
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[1])).unwrap();
    cluster.now += Duration::from_secs(601);
    cluster.tick();
    assert!(refused(&mut cluster, homes(&[(1, "h6")])).contains("was not described"));
}

/// A stripe whose parity does not exist yet looks like one that cannot lose another block, although no data
/// depends on its parity.
#[test]
fn a_repair_in_the_background_is_never_urgent() {
    for (priority, is_urgent) in [(None, true), (Some("normal"), true), (Some("background"), false)] {
        let mut cluster = frozen(&[2, 3]);
        let priority = priority.map(str::to_owned);
        let repair = cluster.repair(RepairRequest { priority, ..homes(&[(2, "h5"), (3, "h6")]) }).repair;
        let core = cluster.core();
        let running = core.jobs.running.values().next().expect("it has begun");
        assert_eq!(running.job.is_at_risk(), is_urgent);
        let spec = core.repairs.queue.by_id[&repair].order.spec();
        let expected = if is_urgent { Priority::Normal } else { Priority::Background };
        assert_eq!(spec.priority, expected);
    }
    let mut cluster = cluster();
    describe(&mut cluster, &described(&[1])).unwrap();
    let unknown = RepairRequest { priority: Some("urgent".into()), ..homes(&[(1, "h5")]) };
    assert!(refused(&mut cluster, unknown).contains("the priorities are normal and background"));
}

/// Files depend on its blocks, and no automatic repair begins beside the running job.
#[test]
fn a_repair_of_a_file_in_the_background_is_urgent_once_its_stripe_is_at_risk() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    cluster.kill(&home(&file, 0));
    cluster.kill(&home(&file, 1));
    cluster.frozen.extend((1..=6).map(|number| format!("h{number}")));
    let (stripe, priority) = (Some(file.layout[0].stripe.stripe.clone()), Some("background".to_owned()));
    cluster.repair(RepairRequest { stripe, priority, ..RepairRequest::default() });
    let running = cluster.core().jobs.running.values().next().expect("it has begun");
    assert!(running.job.is_at_risk());
}

#[test]
fn one_block_is_rebuilt_first_as_a_spare_for_the_check_of_the_others() {
    for (one_first, parity) in [(false, ParityOutcome::NoSpareBlock), (true, ParityOutcome::Holds)] {
        let mut cluster = cluster();
        describe(&mut cluster, &described(&[2, 3])).unwrap();
        let begun = cluster.repair(RepairRequest { one_first, ..homes(&[(2, "h5"), (3, "h6")]) });
        cluster.wait(Duration::from_secs(1));
        let view = cluster.repair_state(begun.repair);
        assert_eq!((view.state.name(), view.counts.blocks_rebuilt), ("done", 2), "{view:?}");
        assert_eq!(view.items[0].parity, Some(parity));
        let history = cluster.ask(|reply| ClusterCommand::History(0, usize::MAX, reply)).unwrap();
        let is_end = |event: &HistoryEvent| matches!(event, HistoryEvent::RepairEnded { .. });
        assert_eq!(history.iter().filter(|entry| is_end(&entry.what)).count(), 1);
    }
}

#[test]
fn a_repair_is_cancelled_once_its_client_is_gone_for_the_time_of_its_lease() {
    let mut cluster = frozen(&[1]);
    let leased = RepairRequest { lease_ms: Some(20_000), ..homes(&[(1, "h6")]) };
    let repair = cluster.repair(leased).repair;
    cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    cluster.frozen.clear();
    cluster.play();
    for _ in 0..3 {
        cluster.wait(Duration::from_secs(15));
        let view = cluster.ask(|reply| RepairCommand::GivenState(repair, reply)).unwrap();
        assert_eq!(view.state.name(), "paused", "its client asks in time");
    }
    // A list of all repairs says nothing about the client.
    let state = |cluster: &mut TestCluster| cluster.ask(RepairCommand::List).unwrap()[0].state.name();
    let limit = Duration::from_secs(40);
    cluster.await_later(|reply| RepairCommand::Change(repair, None, limit, reply));
    cluster.wait(Duration::from_secs(55));
    assert_eq!(state(&mut cluster), "paused", "its client has waited until 15 s ago");
    cluster.wait(Duration::from_secs(10));
    assert_eq!(state(&mut cluster), "cancelled");
}

/// The process was stopped for longer than the lease, so no client could ask.
#[test]
fn a_repair_whose_coordinator_stood_still_is_not_abandoned() {
    let mut cluster = frozen(&[1]);
    let leased = RepairRequest { lease_ms: Some(20_000), ..homes(&[(1, "h6")]) };
    let repair = cluster.repair(leased).repair;
    cluster.ask(|reply| RepairCommand::Pause(repair, true, reply)).unwrap();
    cluster.frozen.clear();
    cluster.play();
    cluster.wait(Duration::from_secs(1));
    cluster.now += Duration::from_secs(60);
    cluster.wait(Duration::from_secs(15));
    let state = |cluster: &mut TestCluster| cluster.ask(RepairCommand::List).unwrap()[0].state.name();
    assert_eq!(state(&mut cluster), "paused");
    cluster.wait(Duration::from_secs(10));
    assert_eq!(state(&mut cluster), "cancelled");
}

/// Returns a described stripe as a store lists it, with its blocks on these helpers.
pub(super) fn listed(given: &GivenStripe, helpers: &[NodeId]) -> StripeRecord {
    let block = |(given, home): (&GivenBlock, &NodeId)| BlockRecord {
        id: BlockId(given.block.clone()),
        bytes: given.bytes,
        node: Some(*home),
        state: BlockState::Healthy,
        replicas: Vec::new(),
        digest: None,
    };
    StripeRecord {
        id: StripeId(given.stripe.clone()),
        code: given.code.parse().unwrap(),
        block_bytes: given.block_bytes,
        chunk_bytes: None,
        blocks: given.blocks.iter().zip(helpers).map(block).collect(),
        file: None,
    }
}

/// A store with plug-ins that reports which servers are in service, as HDFS does.
pub(super) const LIKE_HDFS: StorePolicy = StorePolicy {
    ownership: Ownership::Attached,
    service: Service::ReportedByStore,
    writers: Writers::Others,
    spread: Spread::OnePerNode,
    lists: Lists::Stale,
    checksums: Checksums::OfAllBlocks,
};

/// Otherwise the blocks would be read and rebuilt without a comparison with their recorded digests.
#[test]
fn a_description_without_digests_keeps_the_digests_of_the_store() {
    let mut cluster = cluster();
    let helpers: Vec<NodeId> =
        (1..=6).map(|number| cluster.nodes[&format!("h{number}")].node.unwrap()).collect();
    cluster.core().base.store = LIKE_HDFS;
    let given = described(&[1]);
    let mut record = listed(&given, &helpers);
    record.blocks.iter_mut().for_each(|block| block.digest = digest(&block.id));
    let mut changes = vec![StoreChange::Stripe(record, false)];
    changes.extend(helpers.iter().map(|&helper| StoreChange::Service(helper, true)));
    cluster.handle(Event::Changed(changes));
    describe(&mut cluster, &given).unwrap();
    let stripes = &cluster.core().stripes;
    let described = stripes.given.get(&StripeId(given.stripe.clone())).expect("it was just described");
    for block in &described.blocks {
        assert_eq!(block.digest, digest(&block.id), "{}", block.id);
    }
}

/// Otherwise an outdated description would hide later losses.
#[test]
fn a_description_gives_way_to_the_store_that_lists_the_stripe_later() {
    let mut cluster = cluster();
    let helpers: Vec<NodeId> =
        (1..=6).map(|number| cluster.nodes[&format!("h{number}")].node.unwrap()).collect();
    let given = described(&[1]);
    describe(&mut cluster, &given).unwrap();
    let state = |cluster: &mut TestCluster| {
        let view = cluster.ask(|reply| StripeCommand::View(StripeId(given.stripe.clone()), reply)).unwrap();
        view.blocks[1].state.name()
    };
    cluster.handle(Event::Changed(vec![StoreChange::Stripe(listed(&given, &helpers), false)]));
    assert_eq!(state(&mut cluster), "missing", "the description is newer");
    cluster.wait(Duration::from_secs(22));
    assert_eq!(state(&mut cluster), "healthy");
}

/// Each repair of a described stripe keeps the description, also in the catalog.
#[test]
fn few_repairs_of_a_described_stripe_are_open_at_a_time() {
    let mut cluster = frozen(&[1]);
    let queued: Vec<_> = (0..20)
        .map(|_| cluster.ask(|reply| RepairCommand::Queue(homes(&[(1, "h5")]).into(), reply)))
        .collect();
    let (taken, refused): (Vec<_>, Vec<_>) = queued.into_iter().partition(Result::is_ok);
    assert_eq!((taken.len(), refused.len()), (16, 4));
    let error = refused[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("16 repairs of stripe group are open already"), "{error}");
}

/// Commands that arrive before the first ones are recorded count as well.
#[test]
fn repairs_of_a_described_stripe_count_while_they_are_being_recorded() {
    let mut cluster = frozen(&[1]);
    cluster.stuck = true;
    let queued: Vec<RequestId> = (0..20)
        .map(|_| cluster.await_later(|reply| RepairCommand::Queue(homes(&[(1, "h5")]).into(), reply)))
        .collect();
    cluster.stuck = false;
    cluster.pump();
    let answers = queued.into_iter().map(|request| cluster.answered::<RepairView>(request).unwrap());
    let (taken, refused): (Vec<_>, Vec<_>) = answers.partition(Result::is_ok);
    assert_eq!((taken.len(), refused.len()), (16, 4));
}

/// In a store that reports dead servers and rebuilds their blocks itself, the first command that a plug-in passes on
/// begins the recovery of the dead server.
#[test]
fn a_command_for_a_block_of_a_dead_server_begins_the_recovery_of_the_server() {
    for dry_run in [true, false] {
        let mut cluster = cluster();
        let helpers: Vec<NodeId> =
            (1..=6).map(|number| cluster.nodes[&format!("h{number}")].node.unwrap()).collect();
        let base = &mut cluster.core().base;
        base.settings.heal = Some(HealPolicy { dry_run });
        base.store = LIKE_HDFS;
        let given = described(&[1]);
        let record = listed(&given, &helpers);
        let mut changes = vec![StoreChange::Stripe(record, false)];
        changes.extend(helpers.iter().map(|&helper| StoreChange::Service(helper, helper != helpers[1])));
        cluster.handle(Event::Changed(changes));
        describe(&mut cluster, &given).unwrap();
        cluster.frozen.insert("h5".to_owned()); // The repairs stay open.
        cluster.ask(|reply| RepairCommand::Queue(homes(&[(1, "h5")]).into(), reply)).unwrap();
        cluster.wait(Duration::from_secs(2));
        let repairs = cluster.ask(RepairCommand::List).unwrap();
        let recoveries = repairs.iter().filter(|repair| repair.target == "node h2" && repair.by_itself);
        assert_eq!(recoveries.count(), usize::from(!dry_run), "{repairs:?}");
        // Commands about a second dead server may be skipped while this recovery is open.
        cluster.handle(Event::Changed(vec![StoreChange::Service(helpers[2], false)]));
        cluster.wait(Duration::from_secs(2));
        let repairs = cluster.ask(RepairCommand::List).unwrap();
        let is_second = |repair: &RepairView| repair.target == "node h3" && repair.by_itself;
        assert_eq!(repairs.iter().any(is_second), !dry_run, "{repairs:?}");
    }
}

/// While too few helpers are up for the recovery, a command is given back to the store, which can carry it out
/// without helpers. Otherwise the store would wait for the recovery.
#[test]
fn a_command_that_cannot_be_carried_out_now_is_given_back_to_the_store() {
    let mut cluster = cluster();
    let helpers: Vec<NodeId> =
        (1..=6).map(|number| cluster.nodes[&format!("h{number}")].node.unwrap()).collect();
    let base = &mut cluster.core().base;
    base.settings.heal = Some(HealPolicy { dry_run: false });
    base.store = LIKE_HDFS;
    let given = described(&[1]);
    let mut changes = vec![StoreChange::Stripe(listed(&given, &helpers), false)];
    changes.extend(helpers.iter().map(|&helper| StoreChange::Service(helper, helper != helpers[1])));
    cluster.handle(Event::Changed(changes));
    describe(&mut cluster, &given).unwrap();
    cluster.frozen.insert("h5".to_owned()); // The repairs stay open.
    cluster.ask(|reply| RepairCommand::Queue(homes(&[(1, "h5")]).into(), reply)).unwrap();
    cluster.wait(Duration::from_secs(2));
    let refused = |cluster: &mut TestCluster| describe(cluster, &given).unwrap_err();
    let error = refused(&mut cluster);
    assert!(matches!(error, RequestError::Given(DescriptionError::GivenInUse(_))), "{error}");
    for helper in ["h1", "h3", "h4"] {
        cluster.kill(helper);
    }
    let error = refused(&mut cluster);
    assert!(matches!(error, RequestError::Given(DescriptionError::TooFewHelpers(_))), "{error}");
}
