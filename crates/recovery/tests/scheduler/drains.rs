//! Drains, nodes that come back, and surplus copies.

use std::time::Duration;

use codes::BlockIndex;
use recovery::{
    Action, BlockFacts, Budget, End, Failure, Kind, Limits, NodeFacts, Priority, RepairId, RepairSpec,
};
use repair::{NodeId, Resource, StripeId};

use crate::scheduler_test::{REPAIR, SchedulerTest, chain, facts, requestors};

fn busy(_: u32) -> NodeFacts {
    NodeFacts { budget: Budget::jobs(1), ..facts() }
}

fn drain(test: &mut SchedulerTest, id: RepairId, kind: Kind, stripes: &[(&str, [u32; 4])]) {
    test.scheduler.open(id, RepairSpec { priority: Priority::Background, ..RepairSpec::default() });
    for &(name, nodes) in stripes {
        let item = test.scheduler.push(id, recovery::NewItem { kind, ..test.new_item(name, nodes) });
        test.items.insert(name.into(), item);
    }
    test.scheduler.close(id);
}

const FROM_1: Kind = Kind::Drain { from: NodeId(1) };

#[test]
fn a_drain_copies_and_rebuilds_at_once() {
    let mut test = SchedulerTest::with(12, Limits::default(), busy);
    drain(&mut test, REPAIR, FROM_1, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4]), ("c", [1, 2, 3, 5])]);
    assert_eq!(
        test.work(),
        ["a", "b"],
        "n1 sends one; n2 and n3 rebuild another; nobody is left for a third"
    );
    assert_eq!(test.proposal("a").kind, Kind::Migrate { from: NodeId(1) });
    assert_eq!(test.proposal("a").helpers, [NodeId(1)]);
    assert_eq!(test.proposal("b").kind, Kind::Rebuild { from: NodeId(1) });
    assert!(!test.proposal("b").helpers.contains(&NodeId(1)), "it is spared");
    assert_eq!(test.proposal("b").wanted[0].block, BlockIndex(0));
    test.succeed("b");
    assert_eq!(test.work(), ["c"]);
    assert_eq!(test.proposal("c").kind, Kind::Rebuild { from: NodeId(1) }, "n1 still sends");
    test.succeed("a");
    test.succeed("c");
    test.work();
    assert_eq!(test.over, [REPAIR]);
    assert!(test.ended.iter().all(|(_, end)| *end == End::Repaired));
}

#[test]
fn a_node_copies_what_it_can_send_before_the_others_are_done() {
    let roomy = |_| NodeFacts { budget: Budget::jobs(9), ..facts() };
    let mut test = SchedulerTest::with(12, Limits::default(), roomy);
    let stripes = ["a", "b", "c", "d", "e", "f"].map(|name| (name, [1, 2, 3, 4]));
    drain(&mut test, REPAIR, FROM_1, &stripes);
    assert_eq!(test.work(), ["a", "b", "c", "d", "e", "f"]);
    let copied = |test: &SchedulerTest| {
        let copies = test.running.values().filter(|proposal| matches!(proposal.kind, Kind::Migrate { .. }));
        copies.count()
    };
    // Three survivors send two blocks for each of the other four stripes. That takes 8/3 block times, in
    // which n1 sends two.
    assert_eq!(copied(&test), 2);
    ["a", "b", "c", "d"].into_iter().for_each(|stripe| test.succeed(stripe));
    drain(&mut test, RepairId(2), FROM_1, &[("g", [1, 2, 3, 4]), ("h", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["g", "h"]);
    assert_eq!(copied(&test), 1, "the others are half done with two, and are done with h before n1 could be");
}

#[test]
fn items_that_may_only_be_copied_or_only_be_rebuilt_wait_for_that() {
    for (kind, started) in [(Kind::Migrate { from: NodeId(1) }, 1), (Kind::Rebuild { from: NodeId(1) }, 3)] {
        let mut test = SchedulerTest::with(30, Limits::default(), busy);
        let stripes = [("a", [1, 2, 3, 4]), ("b", [1, 5, 6, 7]), ("c", [1, 8, 9, 10])];
        drain(&mut test, REPAIR, kind, &stripes);
        assert_eq!(test.work().len(), started, "{kind:?}");
        assert!(test.running.values().all(|proposal| proposal.kind == kind));
    }
}

#[test]
fn a_block_that_others_cannot_rebuild_is_copied() {
    let mut test = SchedulerTest::with(12, Limits::default(), busy);
    [3, 4].into_iter().for_each(|node| test.kill(node));
    let stripes = [("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])];
    drain(&mut test, REPAIR, Kind::Rebuild { from: NodeId(1) }, &stripes);
    assert_eq!(test.work(), ["a"]);
    assert_eq!(test.proposal("a").kind, Kind::Migrate { from: NodeId(1) });
    test.succeed("a");
    assert_eq!(test.work(), ["a", "b"], "a lacks two blocks more");
    assert_eq!(test.proposal("a").kind, Kind::Reconstruct);
    assert_eq!(test.proposal("b").kind, Kind::Migrate { from: NodeId(1) });
}

#[test]
fn a_node_that_dies_during_its_drain_is_recovered_and_no_block_twice() {
    let mut test = SchedulerTest::with(12, Limits::default(), busy);
    let stripes = ["a", "b", "c", "d"].map(|name| (name, [1, 2, 3, 4]));
    drain(&mut test, REPAIR, FROM_1, &stripes);
    assert_eq!(test.work(), ["a", "b"]);
    test.succeed("b");
    assert_eq!(test.work(), ["c"], "rebuilt");
    test.kill(1);
    test.fail("a", Failure::Transient);
    test.succeed("c");
    assert_eq!(test.work(), ["d"]);
    assert_eq!(test.proposal("d").kind, Kind::Reconstruct);
    test.succeed("d");
    test.now += Duration::from_secs(2);
    assert_eq!(test.work(), ["a"]);
    assert_eq!(test.proposal("a").kind, Kind::Reconstruct);
    test.succeed("a");
    assert_eq!(test.work(), [""; 0]);
    let ends: Vec<&str> = test.ended.iter().map(|(stripe, _)| stripe.as_str()).collect();
    assert_eq!(ends, ["b", "c", "d", "a"]);
    // The death also triggers a recovery, which finds no stripe left to repair.
    test.repair(RepairId(7), &[]);
    assert_eq!(test.work(), [""; 0]);
}

#[test]
fn after_a_restart_only_the_rest_is_done() {
    let mut test = SchedulerTest::new(12);
    drain(&mut test, REPAIR, FROM_1, &[("done", [9, 2, 3, 4]), ("left", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["left"]);
    assert_eq!(test.ended, [("done".into(), End::NothingLost)]);
}

#[test]
fn standbys_get_everything() {
    let mut test = SchedulerTest::new(12);
    let spec = RepairSpec { requestors: vec![NodeId(11), NodeId(12)], ..RepairSpec::default() };
    test.scheduler.open(REPAIR, spec);
    for name in ["a", "b", "c", "d", "e"] {
        let item = test.new_item(name, [1, 2, 3, 4]);
        test.scheduler.push(REPAIR, recovery::NewItem { kind: FROM_1, ..item });
    }
    test.work();
    let mut taken: Vec<u32> = test.running.values().flat_map(requestors).collect();
    taken.sort_unstable();
    assert_eq!(taken, [11, 11, 12, 12], "two each, and one waits");
}

// ---- a node that comes back ----

#[test]
fn a_job_stops_when_its_block_is_back() {
    let mut test = SchedulerTest::new(12);
    test.kill(1);
    test.kill(9);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 9, 3, 4])]);
    assert_eq!(test.work(), ["b", "a"]);
    test.start(1);
    assert_eq!(test.work(), [""; 0]);
    assert_eq!(test.cancelled, ["a"], "b lacks another block");
    assert_eq!(test.ended, [("a".into(), End::NothingLost)]);
}

#[test]
fn a_job_whose_requestor_was_replaced_runs_to_its_end() {
    for told in [true, false] {
        let mut test = SchedulerTest::new(12);
        test.kill(1);
        test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
        assert_eq!(test.work(), ["a"]);
        let proposed = test.proposal("a").wanted[0].requestor;
        let other = (5..=12).map(NodeId).find(|&node| node != proposed).expect("several are free");
        if told {
            test.scheduler.handle_delivery(test.items["a"], other);
        }
        let facts = BlockFacts::good_on(other);
        test.scheduler.handle_block(&StripeId("a".into()), BlockIndex(0), facts);
        test.work();
        assert_eq!(test.cancelled.is_empty(), told, "a block that nobody delivered has come back by itself");
    }
}

/// The job still has to read the block back.
#[test]
fn a_job_that_has_delivered_runs_to_its_end_whatever_its_nodes_do() {
    let mut test = SchedulerTest::new(12);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    let (proposal, item) = (test.proposal("a").clone(), test.items["a"]);
    let loads = chain(&proposal, 2);
    test.scheduler.set_due(item, Duration::from_secs(9));
    let first = proposal.wanted[0];
    test.scheduler.handle_delivery(item, first.requestor);
    test.scheduler.handle_block(&proposal.stripe, first.block, BlockFacts::good_on(first.requestor));
    test.kill(2);
    test.start(2);
    test.now += Duration::from_secs(9);
    test.work();
    test.scheduler.rest(item, &loads);
    assert!(test.scheduler.wake(item, &loads));
    test.kill(3);
    test.start(3);
    test.work();
    assert_eq!(test.cancelled, [""; 0]);
    test.succeed("a");
    test.work();
    assert_eq!(test.ended, [("a".into(), End::Repaired)]);
}

/// When the block is back, it is too late to cancel the job: a helper is committing the rebuilt block.
#[test]
fn a_job_that_publishes_its_block_although_it_was_cancelled_has_repaired_it() {
    let mut test = SchedulerTest::new(12);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    test.start(1);
    assert!(matches!(test.scheduler.poll(test.now), Some(Action::CancelJob { .. })));
    let requestor = test.proposal("a").wanted[0].requestor;
    test.scheduler.handle_delivery(test.items["a"], requestor);
    test.succeed("a");
    assert_eq!(test.work(), [""; 0]);
    assert_eq!(test.ended, [("a".into(), End::Repaired)]);
}

#[test]
fn a_block_lost_again_while_its_job_stops_is_repaired() {
    let mut test = SchedulerTest::new(12);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    test.start(1);
    test.kill(1);
    assert_eq!(test.work(), ["a"], "once more, after it was called off");
    assert_eq!(test.cancelled, ["a"]);
}

#[test]
fn a_surplus_copy_is_dropped_once_its_stripe_is_whole() {
    let mut test = SchedulerTest::new(12);
    test.kill(1);
    test.kill(2);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    test.work();
    let at = |node| BlockFacts::good_on(NodeId(node));
    let counted = [at(1), at(2), at(3), at(4)];
    test.scheduler.handle_surplus(&StripeId("a".into()), BlockIndex(2), NodeId(12), &counted);
    test.work();
    assert_eq!(test.surplus, [], "it may be the last copy");
    test.succeed("a");
    test.work();
    assert_eq!(test.surplus, [("a".into(), 2, 12)]);
}

#[test]
fn a_surplus_copy_of_a_whole_stripe_is_dropped_at_once_and_the_counted_one_never() {
    let mut test = SchedulerTest::new(12);
    let at = |node| BlockFacts::good_on(NodeId(node));
    let counted = [at(1), at(2), at(3), at(4)];
    let stripe = StripeId("a".into());
    test.scheduler.handle_surplus(&stripe, BlockIndex(2), NodeId(12), &counted);
    test.scheduler.handle_surplus(&stripe, BlockIndex(3), NodeId(4), &counted);
    test.work();
    assert_eq!(test.surplus, [("a".into(), 2, 12)]);
    test.kill(1);
    test.scheduler.handle_surplus(&stripe, BlockIndex(2), NodeId(12), &counted);
    test.work();
    assert_eq!(test.surplus.len(), 1);
}

// ---- control ----

#[test]
fn a_changed_cap_holds_for_jobs_that_start_next() {
    let mut test =
        SchedulerTest::with(30, Limits::default(), |_| NodeFacts { budget: Budget::jobs(9), ..facts() });
    test.kill(1);
    test.repair(REPAIR, &["a", "b", "c", "d"].map(|name| (name, [1, 2, 3, 4])));
    assert_eq!(test.work().len(), 4);
    assert_eq!(test.scheduler.limited_by(REPAIR), None, "nothing waits");
    test.repair(RepairId(2), &["e", "f"].map(|name| (name, [1, 2, 3, 4])));
    let capped = Budget { up_bytes: crate::scheduler_test::BLOCK, ..Budget::jobs(9) };
    (2..=4).for_each(|node| test.scheduler.set_node(NodeId(node), NodeFacts { budget: capped, ..facts() }));
    assert_eq!(test.work(), [""; 0]);
    let limit = test.scheduler.limited_by(RepairId(2)).unwrap();
    assert!(matches!(limit, Resource::Uplink(_)), "{limit}");
    ["a", "b", "c", "d"].into_iter().for_each(|stripe| test.succeed(stripe));
    assert_eq!(test.work(), ["e"], "two of three helpers are enough for one");
    (2..=4).for_each(|node| {
        test.scheduler.set_node(NodeId(node), NodeFacts { budget: Budget::jobs(9), ..facts() });
    });
    assert_eq!(test.work(), ["f"]);
}

#[test]
fn a_late_job_is_restarted_on_other_nodes() {
    let mut test = SchedulerTest::new(12);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    let late = test.proposal("a").helpers[0];
    let due = test.now + Duration::from_secs(9);
    test.scheduler.set_due(test.items["a"], due);
    assert_eq!(test.scheduler.wakes_at(), Some(due));
    test.now = due;
    assert_eq!(test.work(), ["a"]);
    assert_eq!(test.cancelled, ["a"]);
    assert_ne!(test.proposal("a").helpers[0], late, "it comes last now");
    test.succeed("a");
    test.now += Duration::from_secs(99);
    test.work();
    assert_eq!(test.ended, [("a".into(), End::Repaired)]);
    assert_eq!(test.scheduler.wakes_at(), None);
}
