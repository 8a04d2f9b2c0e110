//! Scrubs, and removals of blocks on helpers.

use views::ScrubView;

use super::*;
use crate::commands::{FileCommand, ScrubCommand};

#[test]
fn a_scrub_keeps_two_questions_open_per_helper() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 10);
    cluster.frozen.insert("h1".into());
    cluster.node("h2").disk.remove(&BlockId("7.7".into()));
    let gone = block(&file, (0..4).find(|&index| home(&file, index) == "h2").unwrap());
    cluster.node("h2").disk.remove(&gone);
    cluster.node("h3").disk.insert(BlockId("stray".into()), 1);
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.play();
    let asked = |message: &&ToNode| matches!(message, ToNode::Verify { .. });
    assert_eq!(cluster.node("h1").backlog.iter().filter(asked).count(), 2);
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.blocks, state.checked), ("running", 40, 30));
    assert_eq!(cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub, scrub, "one at a time");

    cluster.kill("h1");
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.skipped[0].blocks), ("done", 10));
    assert_eq!((state.findings[0].block.clone(), state.findings[0].problem.as_str()), (gone.0, "missing"));
    assert_eq!(state.orphans[0].block, "stray");
    cluster.restart();
    assert_eq!(cluster.status().work.last_scrub.unwrap(), state, "it is remembered");
}

#[test]
fn a_second_request_joins_the_running_scrub() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.frozen.insert("h1".into());
    let first = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    let second = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    assert_eq!((first.joined, second.joined, second.scrub), (false, true, first.scrub));
    let state = cluster.ask(|reply| ScrubCommand::State(first.scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.joined), ("running", false));

    cluster.frozen.clear();
    cluster.play();
    let state = cluster.ask(|reply| ScrubCommand::State(first.scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.joined), ("done", false));
    let third = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap();
    assert!(!third.joined && third.scrub != first.scrub, "{third:?}");
}

/// A read finds the damage after the scrub's question was sent and before it is answered.
#[test]
fn a_scrub_lists_damage_that_a_read_records_first() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let (stripe, helper) = (file.layout[0].stripe.stripe.clone(), home(&file, 0));
    cluster.rotten.insert(block(&file, 0));
    cluster.frozen.extend([helper.clone(), "admin".to_owned()]);
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.read(9, &stripe, 0, &[]);
    cluster.play();
    // The helper handles the read before the scrub's question.
    cluster.node(&helper).backlog.make_contiguous().reverse();
    cluster.frozen.remove(&helper);
    cluster.play();
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.checked), ("done", 4));
    let found: Vec<&str> = state.findings.iter().map(|found| found.block.as_str()).collect();
    assert_eq!(found, [block(&file, 0).0]);
}

/// The record of a block changes after the scrub's question was sent. The helper cannot read the block.
#[test]
fn a_problem_with_a_block_whose_record_has_changed_does_not_count_as_checked() {
    let mut cluster = TestCluster::new(5);
    let file = cluster.put("f", 1);
    let (stripe, helper) = (StripeId(file.layout[0].stripe.stripe.clone()), home(&file, 0));
    cluster.rotten.insert(block(&file, 0));
    cluster.frozen.insert(helper.clone());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.play();
    let mut record = cluster.core().stripes.picture.stripe(&stripe).unwrap();
    let other = (0..5).map(NodeId).find(|&node| record.blocks.iter().all(|block| block.node != Some(node)));
    let copy = store_api::Replica { node: other.unwrap(), state: store_api::BlockState::Healthy };
    record.blocks[0].replicas.push(copy);
    cluster.handle(Event::Changed(vec![store_api::StoreChange::Stripe(record, false)]));
    cluster.frozen.clear();
    cluster.play();
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.checked, state.skipped.len()), ("done", 3, 1), "{state:?}");
    assert_eq!((state.skipped[0].node.clone(), state.skipped[0].blocks), (helper, 1));
}

/// A helper answers a question with an answer of another kind. It does not count, so the question stays open.
#[test]
fn an_answer_of_another_kind_ends_no_question() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.frozen.insert("h1".to_owned());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.play();
    let asked: Vec<ToNode> = cluster.node("h1").backlog.iter().cloned().collect();
    for message in asked {
        match message {
            ToNode::List { ask } => {
                let result = Err(BlockProblem::Missing);
                cluster.say("h1", FromNode::Verified { ask, block: BlockId("x.0".into()), result });
                cluster.say("h1", FromNode::Verifying { ask });
            }
            ToNode::Verify { ask, .. } => {
                cluster.say("h1", FromNode::Listed { ask, blocks: Vec::new(), more: false });
            }
            _ => {}
        }
    }
    cluster.frozen.clear();
    cluster.play();
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.checked, state.skipped.len()), ("done", 4, 0), "{state:?}");
}

#[test]
fn a_scrub_without_helpers_is_not_complete() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.wait(Duration::from_secs(1));
    let before = cluster.core().scrub.unscrubbed_since_unix_ms;
    cluster.wait(Duration::from_secs(1));
    for helper in ["h1", "h2", "h3", "h4"] {
        cluster.kill(helper);
    }
    let scrub = |cluster: &mut TestCluster| {
        let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
        cluster.play();
        cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap()
    };
    let state = scrub(&mut cluster);
    assert_eq!((state.state.name(), state.skipped.len()), ("done", 4), "{state:?}");
    assert_eq!(cluster.core().scrub.unscrubbed_since_unix_ms, before);
    for helper in ["h1", "h2", "h3", "h4"] {
        cluster.start(helper);
    }
    assert_eq!(scrub(&mut cluster).checked, 4);
    assert_ne!(cluster.core().scrub.unscrubbed_since_unix_ms, before);
}

fn unjudged(stripe: &str, servers: &[&str]) -> store_api::Unjudged {
    store_api::Unjudged {
        stripe: StripeId(stripe.to_owned()),
        blocks: Vec::new(),
        servers: servers.iter().map(|&server| server.to_owned()).collect(),
        why: "two encodings are listed".into(),
        next_step: "look at it".into(),
    }
}

fn tell_unjudged(cluster: &mut TestCluster, stripes: &[store_api::Unjudged]) {
    cluster.handle(Event::Changed(vec![store_api::StoreChange::Unjudged(stripes.to_vec())]));
}

/// Returns the helpers that the report of a scrub names as not checked, each with the number of its blocks.
fn skipped(view: &ScrubView) -> Vec<(&str, u64)> {
    view.skipped.iter().map(|it| (it.node.as_str(), it.blocks)).collect()
}

#[test]
fn a_scrub_reports_stripes_of_unknown_state_as_not_checked() {
    for remain in [true, false] {
        let mut cluster = TestCluster::new(4);
        cluster.put("f", 1);
        cluster.wait(Duration::from_secs(1));
        let before = cluster.core().scrub.unscrubbed_since_unix_ms;
        cluster.wait(Duration::from_secs(1));
        let stripes =
            vec![unjudged("7", &["h2", "10.0.0.9:8080"]), unjudged("8", &["h2"]), unjudged("9", &[])];
        tell_unjudged(&mut cluster, &stripes);
        cluster.frozen.insert("h1".to_owned());
        let scrub = cluster.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
        cluster.play();
        if !remain {
            tell_unjudged(&mut cluster, &[]);
        }
        cluster.frozen.clear();
        cluster.wait(Duration::from_secs(10));
        let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
        assert_eq!((state.state.name(), state.checked), ("done", 4), "{state:?}");
        let parity = state.parity.as_ref().expect("it was asked for");
        if remain {
            assert_eq!(skipped(&state), [("", 1), ("10.0.0.9:8080", 1), ("h2", 2)]);
            assert_eq!(
                (parity.checked, parity.stripes, parity.unchecked[0].stripes),
                (1, 4, 3),
                "{parity:?}"
            );
            assert_eq!(parity.unchecked[0].first, ["7", "8", "9"]);
            assert_eq!(cluster.core().scrub.unscrubbed_since_unix_ms, before);
        } else {
            // They were removed, or decoded.
            assert_eq!(
                (skipped(&state), parity.stripes, parity.unchecked.len()),
                (vec![], 1, 0),
                "{state:?}"
            );
            assert_ne!(cluster.core().scrub.unscrubbed_since_unix_ms, before);
        }
    }
}

/// SeaweedFS encodes another volume during the scrub. It mounts the shards one after another, so too few are listed for a
/// moment.
#[test]
fn a_stripe_that_appears_during_a_scrub_is_not_part_of_it() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.wait(Duration::from_secs(1));
    let before = cluster.core().scrub.unscrubbed_since_unix_ms;
    cluster.wait(Duration::from_secs(1));
    cluster.frozen.insert("h1".to_owned());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(true, reply)).unwrap().scrub;
    cluster.play();
    tell_unjudged(&mut cluster, &[unjudged("7", &["h2"])]);
    cluster.frozen.clear();
    cluster.wait(Duration::from_secs(10));
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.checked, skipped(&state)), ("done", 4, vec![]), "{state:?}");
    let parity = state.parity.expect("it was asked for");
    assert_eq!((parity.checked, parity.stripes, parity.unchecked.len()), (1, 1, 0), "{parity:?}");
    assert_ne!(cluster.core().scrub.unscrubbed_since_unix_ms, before);
}

/// What becomes of a stripe whose state is unknown.
#[derive(Clone, Copy, Debug)]
enum Fate {
    StaysUnknown,
    Gone,
    /// It is listed again before the scrub comes to its other blocks.
    ListedInTime,
    /// It is listed again after the scrub has come to its block on h1.
    ListedLate,
}

/// Returns a stripe of which h1 and h2 were not asked for their blocks yet, and its blocks.
fn waiting_stripe(cluster: &TestCluster, file: &FileLayout) -> (StripeId, Vec<BlockId>) {
    let asked = |block: &BlockId| {
        let mut messages = ["h1", "h2"].into_iter().flat_map(|helper| &cluster.nodes[helper].backlog);
        messages.any(|message| matches!(message, ToNode::Verify { block: other, .. } if other == block))
    };
    let mut stripes = file.layout.iter().map(|it| {
        let blocks = it.stripe.blocks.iter().map(|block| BlockId(block.block.clone()));
        (StripeId(it.stripe.stripe.clone()), blocks.collect::<Vec<_>>())
    });
    stripes.find(|(_, blocks)| !blocks.iter().any(asked)).expect("most stripes wait")
}

/// The state of a stripe becomes unknown when two of its blocks have been read.
#[test]
fn a_scrub_reports_the_blocks_that_it_could_not_read_while_the_state_of_their_stripe_was_unknown() {
    for (fate, expected) in [
        (Fate::StaysUnknown, vec![("h1", 1), ("h2", 1)]),
        (Fate::Gone, vec![]),
        (Fate::ListedInTime, vec![]),
        (Fate::ListedLate, vec![("h1", 1)]),
    ] {
        let mut cluster = TestCluster::new(4);
        let file = cluster.put("f", 10);
        cluster.wait(Duration::from_secs(1));
        let before = cluster.core().scrub.unscrubbed_since_unix_ms;
        cluster.wait(Duration::from_secs(1));
        cluster.frozen.extend(["h1", "h2"].map(str::to_owned));
        let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
        cluster.play();
        let (stripe, blocks) = waiting_stripe(&cluster, &file);
        let record = cluster.core().stripes.picture.stripe(&stripe).unwrap();
        let unknown = store_api::Unjudged { blocks, ..unjudged(&stripe.0, &["h1"]) };
        let gone = store_api::StoreChange::StripeGone(stripe);
        cluster.handle(Event::Changed(vec![gone, store_api::StoreChange::Unjudged(vec![unknown])]));
        let judged = store_api::StoreChange::Unjudged(Vec::new());
        let listed = vec![store_api::StoreChange::Stripe(record, false), judged];
        match fate {
            Fate::StaysUnknown => {}
            Fate::Gone => tell_unjudged(&mut cluster, &[]),
            Fate::ListedInTime => cluster.handle(Event::Changed(listed)),
            Fate::ListedLate => {
                cluster.frozen.remove("h1");
                cluster.play();
                cluster.handle(Event::Changed(listed));
            }
        }
        cluster.frozen.clear();
        cluster.play();
        let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
        let is_complete = expected.is_empty();
        assert_eq!((state.state.name(), skipped(&state)), ("done", expected), "{fate:?}: {state:?}");
        let is_noted = cluster.core().scrub.unscrubbed_since_unix_ms != before;
        assert_eq!(is_noted, is_complete, "{fate:?}");
    }
}

#[test]
fn a_report_lists_a_limited_number_of_orphans() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.kill("h1");
    let strays = (0..10_500).map(|at| (BlockId(format!("stray-{at}")), 1));
    cluster.node("h1").disk.extend(strays);
    cluster.start("h1");
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.play();
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.orphans.len(), state.more_orphans), ("done", 10_000, 500));
}

#[test]
fn a_scrub_reports_a_silent_helper_and_ends() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.frozen.insert("h1".into());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.play();
    assert_eq!(cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap().state.name(), "running");
    cluster.wait(Duration::from_secs(130));
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.blocks, state.checked), ("done", 4, 3));
    assert_eq!((state.skipped[0].node.as_str(), state.skipped[0].blocks), ("h1", 1));
    assert_eq!(state.skipped[0].why, "it does not answer");
}

#[test]
fn a_scrub_waits_for_a_helper_that_is_held_back_by_a_cap() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.frozen.insert("h1".into());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.play();
    let asked = |message: &ToNode| match message {
        ToNode::Verify { ask, .. } => Some(*ask),
        _ => None,
    };
    let ask = cluster.node("h1").backlog.iter().find_map(asked).unwrap();
    let listed = cluster.node("h1").backlog.iter().find_map(|message| match message {
        ToNode::List { ask } => Some(*ask),
        _ => None,
    });
    let held: Vec<HeldBlock> =
        cluster.node("h1").disk.iter().map(|(id, &bytes)| HeldBlock { id: id.clone(), bytes }).collect();
    cluster.say("h1", FromNode::Listed { ask: listed.unwrap(), blocks: held, more: false });
    for _ in 0..10 {
        cluster.wait(Duration::from_secs(60));
        cluster.say("h1", FromNode::Verifying { ask });
        // A report by h2 must not extend the time limit of the query to h1.
        cluster.say("h2", FromNode::Verifying { ask });
        let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
        assert_eq!((state.state.name(), state.skipped.len()), ("running", 0));
    }
    cluster.wait(Duration::from_secs(130));
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.skipped[0].why.as_str()), ("done", "it does not answer"));
}

#[test]
fn temporary_problems_of_a_helper_do_not_mark_its_blocks_bad() {
    let mut cluster = TestCluster::new(4);
    cluster.put("f", 1);
    cluster.frozen.insert("h1".into());
    let scrub = cluster.ask(|reply| ScrubCommand::Start(false, reply)).unwrap().scrub;
    cluster.play();
    let few = || "too many open files".to_owned();
    for message in std::mem::take(&mut cluster.node("h1").backlog) {
        let answer = match message {
            ToNode::Verify { ask, block, .. } => {
                FromNode::Verified { ask, block, result: Err(BlockProblem::Unavailable(few())) }
            }
            ToNode::List { ask } => FromNode::ListFailed { ask, problem: StoreProblem::Machine(few()) },
            _ => continue,
        };
        cluster.say("h1", answer);
    }
    let state = cluster.ask(|reply| ScrubCommand::State(scrub, reply)).unwrap();
    assert_eq!((state.state.name(), state.checked, state.findings.len()), ("done", 3, 0));
    let skipped: Vec<_> =
        state.skipped.iter().map(|skipped| (skipped.node.as_str(), skipped.blocks)).collect();
    assert_eq!(skipped, [("h1", 0), ("h1", 1)], "{:?}", state.skipped);
    assert!(state.skipped.iter().all(|skipped| skipped.why.contains("too many open files")));
    assert_eq!(states(&cluster.file("f")), ["healthy"; 4]);
}

#[test]
fn a_failed_removal_is_retried_later() {
    let mut cluster = TestCluster::new(4);
    let file = cluster.put("f", 1);
    let (name, block) = (home(&file, 0), block(&file, 0));
    cluster.frozen.insert(name.clone());
    cluster.ask(|reply| FileCommand::Remove("f".into(), reply)).unwrap();
    cluster.wait(Duration::from_secs(40)); // A reader may still have a lease.
    let asked = |cluster: &mut TestCluster| {
        let backlog = std::mem::take(&mut cluster.node(&name).backlog);
        backlog.iter().filter(|message| matches!(message, ToNode::Remove { .. })).count()
    };
    assert_eq!(asked(&mut cluster), 1);
    let problem = StoreProblem::Store("is a directory".into());
    cluster.say(&name, FromNode::RemoveFailed { block, problem });
    cluster.wait(Duration::from_secs(10));
    assert_eq!(asked(&mut cluster), 0);
    cluster.wait(Duration::from_secs(30));
    assert_eq!(asked(&mut cluster), 1);
}
