//! Reads and repairs that rebuild lost blocks.

use crate::commands::{RepairCommand, ScrubCommand, StripeCommand};
use recovery::JOBS_AT_ONCE;
use store_api::{Service, StoreChange, Unjudged, Writers};
use views::{ConditionCode, HistoryEvent, Severity};

use super::*;

#[test]
fn a_corrupt_block_is_found_by_a_read_and_recorded() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.rotten.insert(block(&file, 0));
    cluster.frozen.insert("admin".into());
    cluster.read(1, &file.layout[0].stripe.stripe, 0, &[]);
    // The client waits for slices that never arrive.
    cluster.node("admin").backlog.retain(|message| !matches!(message, ToNode::Assign(_)));
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(10));
    let ended = cluster.closed(1).unwrap().unwrap();
    assert!(ended.replanned[0].contains("corrupt"), "{:?}", ended.replanned);
    assert_eq!(states(&cluster.file("f"))[0], "corrupt");
}

// ---- repairs ----

#[test]
fn lost_blocks_are_rebuilt_elsewhere_and_removed_from_returned_helpers() {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 3);
    cluster.kill("h1");
    cluster.kill("h2");
    assert!(!cluster.status().healthy);
    let repair = cluster.repair_all();
    assert_eq!(repair.state.name(), "done", "{repair:#?}");
    assert!(repair.items.iter().all(|item| item.parity.map(|parity| parity.name()) != Some("not-asked")));
    let status = cluster.status();
    assert!(status.healthy, "{}", status.summary);
    assert!(status.summary.starts_with("safe  all 3 stripes are whole and can lose 2 blocks; 4 helpers up"));

    let before = cluster.node("h1").disk.len();
    assert!(before > 0);
    cluster.start("h1");
    assert!(cluster.node("h1").disk.is_empty());
    assert_eq!(cluster.node("h1").removed.len(), before);
    assert!(cluster.status().healthy);
}

/// Blocks of a stripe whose state is unknown may be lost too.
#[test]
fn a_repair_of_everything_reports_stripes_that_are_not_judged() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    let sure = cluster.repair_all();
    assert!(sure.found_nothing() && sure.unknown.is_empty(), "{sure:#?}");
    let unjudged = |number: usize| Unjudged {
        stripe: StripeId(format!("unjudged_{number}")),
        blocks: Vec::new(),
        servers: BTreeSet::new(),
        why: "two encodings are listed".to_owned(),
        next_step: "look at it".to_owned(),
    };
    cluster.handle(Event::Changed(vec![StoreChange::Unjudged((0..7).map(unjudged).collect())]));
    let doubtful = cluster.repair_all();
    assert!(doubtful.found_nothing(), "{doubtful:#?}");
    let [condition] = &doubtful.unknown[..] else { panic!("{doubtful:#?}") };
    assert_eq!((condition.code, condition.count), (ConditionCode::NotJudged, 7));
    assert_eq!(condition.text, "the state of 7 stripes is unknown");
    assert_eq!(condition.details.len(), 5);
    assert!(condition.details[0].contains("two encodings are listed"), "{condition:?}");

    cluster.kill(&home(&file, 0));
    let partial = cluster.repair_all();
    assert_eq!((partial.state.name(), partial.counts.blocks_rebuilt), ("done", 1), "{partial:#?}");
    assert_eq!(partial.unknown.len(), 1, "a repair that rebuilt blocks says so too");
    let stripe = Some(file.layout[0].stripe.stripe.clone());
    let single = cluster.repair(RepairRequest { stripe, ..RepairRequest::default() });
    assert_eq!((single.state.name(), single.unknown), ("done", Vec::new()), "its stripe is known");

    // The end of a repair is a fact, whatever is known later.
    cluster.handle(Event::Changed(vec![StoreChange::Unjudged(Vec::new())]));
    assert!(cluster.repair_all().unknown.is_empty());
    assert_eq!(cluster.repair_state(doubtful.repair), doubtful);
    let history = cluster.ask(|reply| ClusterCommand::History(0, usize::MAX, reply)).unwrap();
    let recorded = history.into_iter().find_map(|entry| match entry.what {
        HistoryEvent::RepairEnded { repair, unknown, .. } if repair == doubtful.repair => Some(unknown),
        _ => None,
    });
    assert_eq!(recorded, Some(doubtful.unknown));
}

#[test]
fn a_helper_that_returns_during_the_repair_makes_it_unnecessary() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let (name, lost) = (home(&file, 0), block(&file, 0));
    cluster.kill(&name);
    let all: Vec<String> = cluster.nodes.keys().cloned().collect();
    cluster.frozen.extend(all);
    let repair = cluster.repair_all().repair;
    cluster.frozen.remove(&name);
    cluster.start(&name);
    assert_eq!(states(&cluster.file("f")), ["healthy"; 4]);
    cluster.frozen.clear();
    cluster.play();
    assert_eq!(cluster.repair_state(repair).state.name(), "done");
    assert_eq!(home(&cluster.file("f"), 0), name);
    let copies = cluster.nodes.values().filter(|node| node.disk.contains_key(&lost)).count();
    assert_eq!(copies, 1, "what was begun elsewhere came to nothing");
}

/// Has h1 return with five blocks, and stops it before it describes them. Returns the query of its descriptions.
fn asked_for_its_descriptions() -> (TestCluster, u64) {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 5);
    cluster.kill("h1");
    cluster.frozen.insert("h1".to_owned());
    cluster.start("h1");
    let asks = |message: &ToNode| if let ToNode::Describe { ask } = message { Some(*ask) } else { None };
    let ask = cluster.node("h1").backlog.iter().find_map(asks).expect("it has returned");
    (cluster, ask)
}

/// The queue of messages to a helper is bounded, and a helper may have any number of such blocks.
#[test]
fn blocks_that_a_returned_helper_does_not_describe_are_verified_one_after_another() {
    let (mut cluster, ask) = asked_for_its_descriptions();
    cluster.say("h1", FromNode::Described { ask, blocks: Vec::new(), last: true });
    cluster.play();
    let is_verification = |message: &&ToNode| matches!(message, ToNode::Verify { .. });
    assert_eq!(cluster.node("h1").backlog.iter().filter(is_verification).count(), 1);
    cluster.frozen.clear();
    cluster.play();
    assert_eq!(cluster.node("h1").verified, 5);
}

/// A helper returns with five blocks, and sends one part of its description, with this many of them, but no last one.
/// Returns how many blocks it has to verify after the deadline.
fn verified_after_the_deadline(described: Option<usize>) -> u32 {
    let (mut cluster, ask) = asked_for_its_descriptions();
    if let Some(described) = described {
        let describe = |(id, &bytes): (&BlockId, &u64)| {
            let digest = digest(id);
            Description { id: id.clone(), bytes, digest, label: None }
        };
        let blocks = cluster.node("h1").disk.iter().take(described).map(describe).collect();
        cluster.say("h1", FromNode::Described { ask, blocks, last: false });
    }
    cluster.wait(Duration::from_secs(119));
    let is_verification = |message: &ToNode| matches!(message, ToNode::Verify { .. });
    assert!(!cluster.node("h1").backlog.iter().any(is_verification), "more of the answer may follow");
    cluster.wait(Duration::from_secs(2));
    cluster.frozen.clear();
    cluster.play();
    cluster.node("h1").verified
}

/// The disk may fail, and then the helper cannot tell whether these blocks are intact.
#[test]
fn blocks_that_an_incomplete_description_lacks_are_verified() {
    assert_eq!(verified_after_the_deadline(Some(4)), 1);
    assert_eq!(verified_after_the_deadline(Some(0)), 5);
    assert_eq!(verified_after_the_deadline(None), 0, "it may just be slow");
}

#[test]
fn a_block_on_a_bad_sector_is_rebuilt_in_place() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.rotten.insert(block(&file, 3));
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.play();
    let scrub = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((scrub.state.name(), scrub.blocks, scrub.checked), ("done", 4, 4));
    assert_eq!(scrub.findings[0].block, block(&file, 3).0);
    cluster.rotten.clear();
    let request = RepairRequest { block: Some(block(&file, 3).0), ..RepairRequest::default() };
    let repair = cluster.repair(request.clone());
    assert_eq!(repair.state.name(), "done", "{repair:#?}");
    assert_eq!(repair.items[0].rebuilt[0].node, home(&file, 3));
    let again = cluster.repair(request);
    let reason = again.items[0].reason.as_deref().unwrap_or_default();
    assert!(
        reason.starts_with("nothing is lost: ") && reason.contains("has just read its block"),
        "{reason}"
    );
}

/// The helper cannot open the block at the moment, its disk hangs, or only the store's server is up.
#[test]
fn a_stripe_with_a_block_that_could_not_be_read_is_not_called_whole() {
    for (why, expected) in [
        ("unavailable", "could not verify"),
        ("silent", "could not verify"),
        ("away", "no helper that is up has"),
    ] {
        let mut cluster = TestCluster::new(4);
        let file = cluster.put("f", 1);
        let (helper, named) = (home(&file, 0), block(&file, 0));
        cluster.core().base.store.service = Service::ReportedByStore;
        match why {
            "away" => cluster.kill(&helper),
            _ => drop(cluster.frozen.insert(helper.clone())),
        }
        let stripe = Some(file.layout[0].stripe.stripe.clone());
        let repair = cluster.repair(RepairRequest { stripe, ..RepairRequest::default() }).repair;
        let asked =
            |message: &ToNode| if let ToNode::Verify { ask, .. } = message { Some(*ask) } else { None };
        match why {
            "unavailable" => {
                let ask = cluster.node(&helper).backlog.iter().find_map(asked).expect("it is asked");
                let result = Err(BlockProblem::Unavailable("too many open files".into()));
                cluster.say(&helper, FromNode::Verified { ask, block: named.clone(), result });
            }
            _ => cluster.wait(Duration::from_secs(130)),
        }
        let view = cluster.repair_state(repair);
        assert_eq!((view.state.name(), view.counts.stripes_failed), ("failed", 1), "{why}: {view:#?}");
        let reason = view.items[0].reason.as_deref().expect("a reason");
        assert!(reason.contains(expected) && reason.contains(&named.0), "{why}: {reason}");
    }
}

/// Blocks may have been lost since it was listed.
#[test]
fn no_repair_is_ordered_while_the_store_does_not_answer() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    let all = RepairRequest { all: true, ..RepairRequest::default() };
    cluster.handle(Event::Changed(vec![StoreChange::Unlisted(Some("no master answers".to_owned()))]));
    let refused = cluster.ask(|reply| RepairCommand::Queue(all.clone().into(), reply)).unwrap_err();
    assert!(matches!(refused, RequestError::Unlisted(_)), "{refused}");
    cluster.handle(Event::Changed(vec![StoreChange::Unlisted(None)]));
    assert_eq!(cluster.repair(all).state.name(), "done");
}

#[test]
fn a_block_that_the_store_refuses_on_its_node_is_rebuilt_elsewhere() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    cluster.rotten.insert(block(&file, 3));
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    cluster.rotten.clear();
    let before = home(&file, 3);
    let distrusted = cluster.node(&before).node.unwrap();
    cluster.distrusted.insert(distrusted);
    let request = RepairRequest { block: Some(block(&file, 3).0), ..RepairRequest::default() };
    let repair = cluster.repair(request.clone());
    assert_eq!(repair.state.name(), "failed", "{repair:#?}");
    let repair = cluster.repair(request.clone());
    assert_eq!(repair.state.name(), "done", "{repair:#?}");
    assert_ne!(repair.items[0].rebuilt[0].node, before);
}

#[test]
fn a_refusing_node_is_tried_again_if_no_other_can_take_the_block() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.rotten.insert(block(&file, 3));
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    cluster.rotten.clear();
    let distrusted = cluster.node(&home(&file, 3)).node.unwrap();
    cluster.distrusted.insert(distrusted);
    let request = RepairRequest { block: Some(block(&file, 3).0), ..RepairRequest::default() };
    assert_eq!(cluster.repair(request.clone()).state.name(), "failed");
    cluster.distrusted.clear();
    assert_eq!(cluster.repair(request).state.name(), "done");
}

/// HDFS, for example, refuses a DataNode that has another block of the group.
#[test]
fn a_claim_that_only_a_refused_node_could_serve_is_requested_ever_less_often() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.core().base.store.writers = Writers::Others;
    cluster.rotten.insert(block(&file, 3));
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    cluster.rotten.clear();
    let only = cluster.node(&home(&file, 3)).node.unwrap();
    cluster.distrusted.insert(only);
    let repair = cluster.repair_all().repair;
    cluster.wait(Duration::from_secs(300));
    assert!((6..=12).contains(&cluster.refusals), "{} requests", cluster.refusals);
    let item = cluster.repair_state(repair).items.remove(0);
    assert_eq!(item.state.name(), "waiting");
    assert!(item.reason.is_some_and(|reason| reason.contains("it is distrusted")), "{:?}", item.next_step);
    let found =
        cluster.status().condition(ConditionCode::NoRoomToRepair).cloned().expect("no helper is left");
    assert_eq!((found.severity, found.count), (Severity::Warning, 1));
    assert!(
        found.details[0].contains("it is distrusted; the store is asked again in"),
        "{:?}",
        found.details
    );
    // The condition lasts while the scheduler has no room for the repair.
    let stripe = StripeId(file.layout[0].stripe.stripe.clone());
    cluster.core().repairs.hold(std::slice::from_ref(&stripe));
    cluster.wait(Duration::from_secs(100));
    let is_told = |cluster: &mut TestCluster| {
        let found = cluster.status().condition(ConditionCode::NoRoomToRepair).cloned();
        found.is_some_and(|it| it.severity == Severity::Warning)
    };
    assert!(is_told(&mut cluster));
    cluster.core().repairs.let_go(&[stripe]);
    // It also lasts while another client has the stripe.
    cluster.distrusted.clear();
    cluster.unclaimable.insert(block(&file, 3));
    cluster.wait(Duration::from_secs(100));
    assert!(is_told(&mut cluster));
    cluster.unclaimable.clear();
    cluster.wait(Duration::from_secs(62));
    assert_eq!(cluster.repair_state(repair).state.name(), "done");
    assert!(
        cluster
            .status()
            .condition(ConditionCode::NoRoomToRepair)
            .is_none_or(|it| it.severity == Severity::Ok)
    );
}

#[test]
fn a_refused_claim_of_a_stripe_without_redundancy_is_requested_every_few_seconds() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    cluster.core().base.store.writers = Writers::Others;
    cluster.rotten.extend([block(&file, 2), block(&file, 3)]);
    cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    cluster.rotten.clear();
    for index in [2, 3] {
        let node = cluster.node(&home(&file, index)).node.unwrap();
        cluster.distrusted.insert(node);
    }
    cluster.repair_all();
    cluster.wait(Duration::from_secs(300));
    assert!((20..=60).contains(&cluster.refusals), "{} requests", cluster.refusals);
}

/// All claims are requested before a job starts, and the store prepares the nodes that a claim names.
#[test]
fn each_stripe_is_claimed_once_and_the_blocks_are_spread() {
    let mut cluster = TestCluster::new(9);
    let file = cluster.put("f", 60);
    cluster.core().base.store.writers = Writers::Others;
    let lost: Vec<StripeId> = file
        .layout
        .iter()
        .map(|part| &part.stripe)
        .filter(|stripe| stripe.blocks.iter().any(|block| block.node.as_deref() == Some("h1")))
        .map(|stripe| StripeId(stripe.stripe.clone()))
        .collect();
    cluster.kill("h1");
    cluster.repair_all();
    cluster.wait(Duration::from_secs(60));
    let claimed: BTreeSet<StripeId> = cluster.claimed.iter().cloned().collect();
    assert_eq!((cluster.claimed.len(), claimed.len()), (lost.len(), lost.len()));
    let held: Vec<usize> = (2..=9).map(|node| cluster.node(&format!("h{node}")).disk.len()).collect();
    let (least, most) = (held.iter().min().unwrap(), held.iter().max().unwrap());
    assert!(most - least <= 2, "{held:?}");
}

#[test]
fn the_stripes_most_at_risk_come_first() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 120);
    cluster.kill("h1");
    cluster.kill("h2");
    let all: Vec<String> = cluster.nodes.keys().cloned().collect();
    cluster.frozen.extend(all);
    let lost = |stripe: &views::StripeView| {
        stripe.blocks.iter().filter(|block| ["h1", "h2"].map(Some).contains(&block.node.as_deref())).count()
    };
    let by_loss = |count| file.layout.iter().filter(|part| lost(&part.stripe) == count).count();
    let at_once = JOBS_AT_ONCE as usize;
    assert!(by_loss(2) > at_once && by_loss(1) > 16);
    cluster.repair_all();
    let running = cluster.status().work.jobs;
    assert_eq!(running.len(), at_once);
    for job in running {
        let part = file.layout.iter().find(|part| part.stripe.stripe == job.stripe).unwrap();
        assert_eq!(lost(&part.stripe), 2);
    }
}

/// Returns the helpers that wait with a message that the stripe of their job is at risk.
fn told_of_risk(cluster: &TestCluster) -> usize {
    let is_told = |node: &&PlayedNode| node.backlog.iter().any(|it| matches!(it, ToNode::AtRisk { .. }));
    cluster.nodes.values().filter(is_told).count()
}

#[test]
fn helpers_are_told_if_a_stripe_cannot_lose_another_block() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    let all: Vec<String> = cluster.nodes.keys().cloned().collect();
    cluster.frozen.extend(all);
    cluster.kill(&home(&file, 0));
    cluster.repair_all();
    assert!(cluster.nodes.values().any(PlayedNode::is_assigned));
    assert_eq!(told_of_risk(&cluster), 0, "the stripe can still lose a block");
    let taking_part = |cluster: &TestCluster| cluster.nodes.values().filter(|it| it.is_assigned()).count();
    let others = taking_part(&cluster);
    // The risk rises while the job runs.
    let lost = (1..4).map(|index| home(&file, index)).find(|name| !cluster.nodes[name].is_assigned());
    cluster.kill(&lost.unwrap_or_else(|| home(&file, 1)));
    cluster.wait(Duration::from_secs(2));
    assert!(told_of_risk(&cluster) >= others.min(2), "{} of {others}", told_of_risk(&cluster));
}

#[test]
fn the_helpers_of_a_repair_that_begins_at_risk_are_told() {
    let mut cluster = TestCluster::new(6);
    let file = cluster.put("f", 1);
    let all: Vec<String> = cluster.nodes.keys().cloned().collect();
    [0, 1].into_iter().for_each(|index| cluster.kill(&home(&file, index)));
    cluster.frozen.extend(all);
    cluster.repair_all();
    let assigned = cluster.nodes.values().filter(|node| node.is_assigned()).count();
    assert!(assigned >= 3, "{assigned}");
    assert_eq!(told_of_risk(&cluster), assigned);
}

#[test]
fn unrepairable_stripes_are_listed_and_the_rest_is_repaired() {
    let mut cluster = TestCluster::new(7);
    cluster.put("f", 40);
    ["h1", "h2", "h3"].into_iter().for_each(|name| cluster.kill(name));
    let repair = cluster.repair_all();
    let of_state = |state: &str| -> Vec<&RepairItem> {
        repair.items.iter().filter(|item| item.state.name() == state).collect()
    };
    let (done, hopeless) = (of_state("done"), of_state("unrepairable"));
    assert!(!done.is_empty() && !hopeless.is_empty(), "{repair:#?}");
    assert_eq!(done.len() + hopeless.len(), repair.items.len());
    assert_eq!(repair.state.name(), "failed");
    let item = hopeless[0];
    assert_eq!(
        item.reason.as_deref(),
        Some("unrecoverable: 3 of 4 blocks are lost, and the code tolerates 2")
    );
    let next_step = "start h1 or h2 or h3, then run mend repair --all";
    assert_eq!(item.next_step.as_deref(), Some(next_step));
    let status = cluster.status();
    assert_eq!(status.stripes.unreadable, hopeless.len() as u64);
    assert!(status.summary.starts_with("UNREADABLE"), "{}", status.summary);

    cluster.start("h2");
    assert_eq!(cluster.repair_all().state.name(), "done");
}

#[test]
fn a_repair_with_contradictory_sources_fails_without_publishing() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    cluster.node(&home(&file, 0)).disk.remove(&block(&file, 0));
    cluster.nodes.values_mut().for_each(|node| node.rebuilds_wrongly = true);
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    cluster.play();
    cluster.ask(|reply| ScrubCommand::State(scrub.scrub, reply)).unwrap();
    let repair = cluster.repair_all();
    cluster.wait(Duration::from_secs(30));
    let repair = cluster.repair_state(repair.repair);
    assert_eq!((repair.state.name(), repair.counts.stripes_failed), ("failed", 1), "{repair:#?}");
    let item = &repair.items[0];
    assert_eq!(item.state.name(), "contradictory", "{repair:#?}");
    assert!(item.reason.as_ref().unwrap().starts_with("the blocks contradict each other"), "{item:#?}");
    assert!(item.next_step.as_ref().unwrap().contains("put f again from another copy"), "{item:#?}");
    assert!(item.rebuilt.is_empty());
    assert_eq!(states(&cluster.file("f"))[0], "missing");
    assert!(cluster.nodes.values().all(|node| !node.disk.contains_key(&block(&file, 0))));
}

/// Stores a file of one stripe, and loses the helper of its last block, a parity block, for which the helper
/// stated a false digest.
fn lose_liar() -> (TestCluster, FileLayout) {
    for number in 1..=6 {
        let mut cluster = TestCluster::new(6);
        let liar = format!("h{number}");
        cluster.node(&liar).rebuilds_wrongly = true;
        let file = cluster.put("f", 1);
        if home(&file, 3) == liar {
            cluster.kill(&liar);
            return (cluster, file);
        }
    }
    panic!("some helper has the last block");
}

#[test]
fn a_false_digest_of_a_parity_block_is_replaced_and_told() {
    let (mut cluster, file) = lose_liar();
    let digest = |file: &FileLayout| file.layout[0].stripe.blocks[3].digest.clone();
    let repair = cluster.repair_all().repair;
    cluster.wait(Duration::from_secs(30));
    assert_eq!(cluster.repair_state(repair).state.name(), "done", "{:#?}", cluster.repair_state(repair));
    let after = cluster.file("f");
    assert_eq!(states(&after), ["healthy"; 4]);
    let history = cluster.core().history.history(0, 100);
    let told = history.iter().find_map(|entry| match &entry.what {
        HistoryEvent::DigestReplaced { recorded, found, .. } => Some((recorded.clone(), found.clone())),
        _ => None,
    });
    let (recorded, found) = told.expect("an event");
    assert_eq!((digest(&file), digest(&after)), (Some(recorded), Some(found)));
    assert!(cluster.status().healthy, "{}", cluster.status().summary);
}

/// The history tells only of digests that the catalog has.
#[test]
fn a_digest_that_cannot_be_recorded_is_not_told_as_replaced() {
    let (mut cluster, file) = lose_liar();
    cluster.distrusted.extend(cluster.nodes.values().filter_map(|node| node.node));
    cluster.repair_all();
    cluster.wait(Duration::from_secs(30));
    assert!(cluster.refusals > 0, "the storage refused the rebuilt block");
    let history = cluster.core().history.history(0, 100);
    let is_told = |what: &HistoryEvent| matches!(what, HistoryEvent::DigestReplaced { .. });
    assert!(!history.iter().any(|entry| is_told(&entry.what)));
    let after = cluster.file("f");
    let digest = |file: &FileLayout| file.layout[0].stripe.blocks[3].digest.clone();
    assert_eq!(digest(&after), digest(&file));
}

#[test]
fn a_repair_without_a_node_for_a_block_gives_the_reason() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.kill("h4");
    let repair = cluster.repair_all();
    assert_eq!(repair.state.name(), "failed");
    let reason = repair.items[0].reason.as_deref().unwrap();
    assert!(reason.starts_with("no helper can take 1 block of 4KiB"), "{reason}");
    assert!(reason.ends_with("(down: h4)"), "{reason}");
    assert_eq!((repair.reasons.len(), repair.reasons[0].stripes), (1, 1), "{repair:#?}");
    assert_eq!(repair.reasons[0].reason, reason);
}

#[test]
fn a_cancelled_repair_stops() {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 12);
    cluster.kill("h1");
    let all: Vec<String> = cluster.nodes.keys().cloned().collect();
    cluster.frozen.extend(all);
    let repair = cluster.repair_all().repair;
    let cancelled = cluster.ask(|reply| RepairCommand::Cancel(repair, reply)).unwrap();
    assert_eq!(cancelled.state.name(), "cancelled");
    assert!(cancelled.items.iter().all(|item| item.state.name() == "cancelled"));
    assert!(cluster.status().work.jobs.is_empty());
    cluster.wait(Duration::from_secs(1));
    assert!(cluster.status().work.repairs.is_empty());
}

/// A user removes a file while a helper commits a rebuilt block of it.
#[test]
fn a_repair_of_a_file_that_is_removed_during_a_commit_does_not_fail_and_leaves_no_block() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let lost = block(&file, 0);
    cluster.kill(&home(&file, 0));
    let is_spare = |name: &String| (0..4).all(|index| home(&file, index) != *name);
    let target = (1..=5).map(|at| format!("h{at}")).find(is_spare).expect("a stripe has four blocks");
    cluster.frozen.insert(target.clone());
    let repair = cluster.repair_all().repair;
    cluster.play_until_commit(&target);
    cluster.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    cluster.frozen.clear();
    cluster.play();
    assert!(cluster.node(&target).disk.contains_key(&lost), "it was told to commit before");
    let view = cluster.repair_state(repair);
    assert_eq!((view.counts.stripes_failed, view.items[0].state.name()), (0, "cancelled"), "{view:#?}");
    cluster.wait(Duration::from_secs(100)); // A reader may still have a lease.
    assert!(!cluster.node(&target).disk.contains_key(&lost));
}

// ---- restarts ----

#[test]
fn a_restarted_coordinator_resumes_repairs_and_aborts_puts() {
    let mut cluster = TestCluster::new(6);
    cluster.put("f", 4);
    let put = cluster.begin("half", 8192).unwrap().put;
    cluster.open(1, ClientRequest::PutStripe { put, position: 0 });
    cluster.kill("h1");
    let all: Vec<String> = cluster.nodes.keys().cloned().collect();
    cluster.frozen.extend(all);
    let repair = cluster.repair_all();
    assert_eq!(repair.state.name(), "running");

    cluster.restart();
    cluster.frozen.clear();
    assert_eq!(cluster.repair_state(repair.repair).state.name(), "waiting");
    assert!(cluster.status().settling);
    for name in ["h2", "h3", "h4", "h5", "h6"] {
        cluster.nodes.get_mut(name).unwrap().sinks.clear();
        cluster.start(name);
    }
    assert_eq!(cluster.repair_state(repair.repair).state.name(), "waiting", "h1 may still come back");
    cluster.wait(Duration::from_secs(11));
    assert_eq!(cluster.repair_state(repair.repair).state.name(), "done");
    let status = cluster.status();
    assert!(status.healthy && status.totals.files == 1, "{}", status.summary);
    let held: usize = ["h2", "h3", "h4", "h5", "h6"].iter().map(|name| cluster.nodes[*name].disk.len()).sum();
    // The catalog may be an old copy, and the put may have been committed after the copy was taken. Therefore
    // the put's blocks are kept as orphans.
    let status = cluster.status();
    let orphans = status.catalog.orphans.len();
    assert!(orphans > 0 && held == 16 + orphans, "{orphans} of {held} blocks belong to the put");
    cluster.wait(Duration::from_secs(60));
    assert_eq!(cluster.status().catalog.orphans.len(), orphans, "only the operator removes them");

    cluster.restart();
    assert!(cluster.status().work.repairs.is_empty(), "a repair that ended is not taken up again");
}

// ---- plans ----

#[test]
fn a_plan_is_explained_and_not_carried_out() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    cluster.nodes.values_mut().for_each(|node| node.assigned.clear());
    let stripe = file.layout[0].stripe.stripe.clone();
    let request = PlanRequestView { stripe, blocks: vec![0], ..PlanRequestView::default() };
    let explain = |request: PlanRequestView| move |reply| StripeCommand::Explain(request, reply);
    let plan = cluster.ask(explain(request.clone())).unwrap();
    assert!(plan.text.starts_with("pipelined rs-4-2"), "{}", plan.text);
    assert_eq!(plan.summary["scheme"], "pipelined");
    assert_eq!(plan.nodes.len(), 3);
    assert!(cluster.nodes.values().all(|node| node.assigned.is_empty()));

    let too_much = PlanRequestView { lost: vec![1, 2], ..request.clone() };
    assert!(cluster.ask(explain(too_much)).is_err());
    let unknown = PlanRequestView { scheme: Some("star".into()), ..request.clone() };
    let error = cluster.ask(explain(unknown)).unwrap_err().to_string();
    assert!(error.contains("no scheme `star`") && error.contains("pipelined"), "{error}");
    let nobody = PlanRequestView { requestor: Some("h9".into()), ..request.clone() };
    let error = cluster.ask(explain(nobody)).unwrap_err().to_string();
    assert_eq!(error, "there is no helper `h9`; the known helpers are h1, h2, h3, h4, h5");
    let client = PlanRequestView { requestor: Some("client".into()), ..request };
    assert!(cluster.ask(explain(client)).unwrap().text.contains("client"));
}
