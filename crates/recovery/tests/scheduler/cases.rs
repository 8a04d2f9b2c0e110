//! Scheduler behaviour that operators rely on, case by case.

use std::time::Duration;

use codes::{BlockIndex, CodeSpec};
use recovery::{
    Action, BlockFacts, Budget, CopyState, End, Failure, HelperPolicy, ItemState, Kind, Limits, Loads,
    NodeFacts, NodeLoad, Placement, Priority, RepairId, RepairSpec, Scheduler, TrunkBudget,
};
use repair::{Accepts, JobId, NodeId, Resource, StripeId};

use crate::scheduler_test::{BLOCK, REPAIR, SchedulerTest, facts, requestors};

const OTHER: RepairId = RepairId(2);

// ---- order ----

#[test]
fn the_stripe_with_the_least_redundancy_goes_first() {
    let mut test = SchedulerTest::new(12);
    test.kill(1);
    test.kill(9);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 9, 3, 4]), ("c", [1, 2, 3, 5])]);
    assert_eq!(test.work(), ["b", "a"], "n3 has room for two");
    test.succeed("b");
    assert_eq!(test.work(), ["c"]);
}

#[test]
fn a_waiting_stripe_that_becomes_urgent_moves_to_the_front() {
    let mut test =
        SchedulerTest::with(12, Limits::default(), |_| NodeFacts { budget: Budget::jobs(1), ..facts() });
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 5]), ("c", [1, 2, 3, 6])]);
    assert_eq!(test.work(), ["a"]);
    test.kill(6);
    assert_eq!(test.scheduler.survives(test.items["c"]), Some(0));
    test.succeed("a");
    assert_eq!(test.work(), ["c"], "before b, which was named earlier");
}

#[test]
fn a_less_urgent_stripe_does_not_take_resources_that_an_urgent_one_waits_for() {
    let one = |_| NodeFacts { budget: Budget::jobs(1), ..facts() };
    let mut test = SchedulerTest::with(12, Limits::default(), one);
    test.kill(12);
    test.repair(REPAIR, &[("first", [12, 3, 4, 5])]);
    assert_eq!(test.work(), ["first"]);
    test.kill(11);
    // `urgent` needs n2 and n3, and `first` uses n3 and n4. `later` could use n2 and n9.
    test.repair(OTHER, &[("later", [11, 2, 9, 10]), ("urgent", [11, 12, 2, 3])]);
    test.kill(10);
    assert_eq!(test.scheduler.survives(test.items["urgent"]), Some(0));
    test.start(10);
    assert_eq!(test.work(), ["later"], "by n9 and n10");
    assert_eq!(test.proposal("later").helpers, [9, 10, 2].map(NodeId));
    test.succeed("later");
    test.kill(9);
    test.repair(RepairId(3), &[("last", [11, 2, 10, 4])]);
    assert_eq!(test.work(), [""; 0], "n2 and n10 have room, and `urgent` waits for n3 and n2");
    test.succeed("first");
    assert_eq!(test.work(), ["urgent", "last"], "which has n4 and n10");
}

#[test]
fn background_work_comes_after_repairs() {
    let mut test =
        SchedulerTest::with(8, Limits::default(), |_| NodeFacts { budget: Budget::jobs(1), ..facts() });
    test.scheduler.open(OTHER, RepairSpec { priority: Priority::Background, ..RepairSpec::default() });
    let mut moved = test.new_item("moved", [1, 2, 3, 4]);
    moved.kind = Kind::Migrate { from: NodeId(1) };
    test.scheduler.push(OTHER, moved);
    test.scheduler.close(OTHER);
    test.kill(5);
    test.repair(REPAIR, &[("lost", [5, 1, 2, 3])]);
    assert_eq!(test.work()[0], "lost");
}

// ---- room ----

#[test]
fn stripes_start_only_on_nodes_with_room() {
    let mut test = SchedulerTest::new(30);
    let stripes: Vec<(String, [u32; 4])> =
        (0..7).map(|at| (format!("s{at}"), [30, 1 + 4 * at, 2 + 4 * at, 3 + 4 * at])).collect();
    let stripes: Vec<(&str, [u32; 4])> =
        stripes.iter().map(|(name, nodes)| (name.as_str(), *nodes)).collect();
    test.kill(30);
    test.repair(REPAIR, &stripes);
    assert_eq!(test.work().len(), 7, "all at once, as they have different nodes");

    let mut test = SchedulerTest::new(5);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4]), ("c", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a", "b"], "n5 takes two");
    assert_eq!(test.state("c"), ItemState::Waiting);
    test.succeed("a");
    assert_eq!(test.work(), ["c"]);
}

#[test]
fn bytes_are_reserved_as_the_plan_says() {
    let narrow = Budget { jobs: 9, up_bytes: 2 * BLOCK, down_bytes: 9 * BLOCK, disk_bytes: 9 * BLOCK };
    let mut test = SchedulerTest::with(9, Limits::default(), |_| NodeFacts { budget: narrow, ..facts() });
    let same = |name| (name, [1, 2, 3, 4]);
    test.kill(1);
    test.repair(REPAIR, &["a", "b", "c", "d"].map(same));
    assert_eq!(test.work(), ["a", "b", "c"], "three survivors send two blocks each, and a repair takes two");
    let reserved = |test: &SchedulerTest, node| {
        test.scheduler.reservations().find(|(id, ..)| *id == NodeId(node)).unwrap().1
    };
    let sent: u64 = (2..=4).map(|node| reserved(&test, node).up_bytes).sum();
    assert_eq!(sent, 6 * BLOCK);
    ["a", "b", "c"].into_iter().for_each(|stripe| test.succeed(stripe));
    assert_eq!(test.work(), ["d"]);
    test.succeed("d");
    assert!((1..=9).all(|node| reserved(&test, node) == Budget::default()), "everything is given back");
}

#[test]
fn trunks_between_racks_have_budgets() {
    let rack = |node: u32| NodeFacts {
        rack: Some(if node < 5 { "a" } else { "b" }.into()),
        budget: Budget::jobs(9),
        ..facts()
    };
    let mut test = SchedulerTest::with(9, Limits::default(), rack);
    test.scheduler.set_trunk("b", TrunkBudget { up_bytes: u64::MAX, down_bytes: BLOCK });
    let same = |name| (name, [1, 2, 3, 4]);
    test.kill(1);
    test.repair(REPAIR, &["s1", "s2"].map(same));
    assert_eq!(test.work(), ["s1"], "the block must go to rack b");
    assert!(!test.scheduler.may_start(test.items["s2"]));
    assert_eq!(test.scheduler.limited_by(REPAIR), Some(Resource::TrunkInto("b".into())));
    test.succeed("s1");
    assert_eq!(test.work(), ["s2"]);
}

#[test]
fn a_degraded_read_passes_and_room_is_left_for_it() {
    let budget = |jobs| move |_| NodeFacts { budget: Budget::jobs(jobs), ..facts() };
    let mut test = SchedulerTest::with(5, Limits::default(), budget(4));
    test.kill(1);
    test.repair(REPAIR, &["a", "b", "c", "d"].map(|name| (name, [1, 2, 3, 4])));
    let loads = Loads { nodes: (2..=5).map(sends).collect(), links: Vec::new() };
    let reads: Vec<_> = (0..9).map(|_| test.scheduler.reserve(&loads)).collect();
    assert_eq!(test.work(), ["a", "b"], "half of what n5 takes is left to recoveries, however much is read");
    reads.into_iter().for_each(|read| test.scheduler.release(read));
    assert_eq!(test.work(), ["c", "d"]);
}

#[test]
fn a_proposal_that_was_put_back_waits_until_something_changes() {
    let mut test = SchedulerTest::new(9);
    test.kill(1);
    test.scheduler.open(REPAIR, RepairSpec::default());
    for (name, nodes) in [("a", [1, 2, 3, 4]), ("b", [1, 5, 6, 7])] {
        let item = test.new_item(name, nodes);
        test.scheduler.push(REPAIR, item);
    }
    for _ in 0..2 {
        let proposed = |test: &mut SchedulerTest| match test.scheduler.poll(Duration::ZERO) {
            Some(Action::Propose(proposal)) => Some(proposal),
            _ => None,
        };
        for name in ["a", "b"] {
            let proposal = proposed(&mut test).unwrap();
            assert_eq!(proposal.stripe, StripeId(name.into()));
            test.scheduler.put_back(proposal.item);
        }
        assert_eq!(proposed(&mut test), None, "each has sat out");
        test.scheduler.set_node(NodeId(9), facts());
    }
}

#[test]
fn several_blocks_are_in_flight_however_large_they_are() {
    let of = |bytes| Budget { jobs: 99, up_bytes: bytes, down_bytes: bytes, disk_bytes: bytes };
    let budgets = |narrow, wide| {
        let mut scheduler = Scheduler::new(Limits { blocks_ahead: 8, ..Limits::default() });
        for node in 1..=4 {
            let budget = of(if node == 1 { narrow } else { wide });
            scheduler.set_node(NodeId(node), NodeFacts { budget, ..facts() });
        }
        scheduler.set_node(NodeId(5), NodeFacts { budget: Budget::jobs(99), ..facts() });
        scheduler.open(REPAIR, RepairSpec::default());
        scheduler.push(REPAIR, SchedulerTest::new(4).new_item("a", [1, 2, 3, 4]));
        scheduler.reservations().map(|(.., budget)| budget).collect::<Vec<_>>()
    };
    let (wide, unbounded) = (of(8 * BLOCK), Budget::jobs(99));
    assert_eq!(budgets(BLOCK, 2 * BLOCK), [of(4 * BLOCK), wide, wide, wide, unbounded]);
    let wide = of(9 * BLOCK);
    assert_eq!(budgets(BLOCK, 9 * BLOCK), [of(BLOCK), wide, wide, wide, unbounded], "they suffice");
    let wide = of(2 * BLOCK);
    assert_eq!(budgets(0, BLOCK / 4), [of(0), wide, wide, wide, unbounded], "as far as is wise");
}

fn sends(node: u32) -> NodeLoad {
    let node = NodeId(node);
    NodeLoad { node, jobs: 1, sent_bytes: BLOCK, received_bytes: 0, read_bytes: BLOCK, stored_bytes: 0 }
}

#[test]
fn a_plan_without_room_waits_for_the_resource_that_it_lacked() {
    let budget = Budget { jobs: 9, up_bytes: BLOCK, down_bytes: BLOCK, disk_bytes: 9 * BLOCK };
    let mut test = SchedulerTest::with(6, Limits::default(), |_| NodeFacts { budget, ..facts() });
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])]);
    let relay = Loads { nodes: vec![sends(6)], links: Vec::new() };
    let Some(Action::Propose(first)) = test.scheduler.poll(test.now) else { panic!() };
    assert_eq!(test.scheduler.admit(first.item, JobId(8), &relay), Ok(()));
    let Some(Action::Propose(second)) = test.scheduler.poll(test.now) else { panic!() };
    let refused = test.scheduler.admit(second.item, JobId(9), &relay);
    assert_eq!(refused, Err(Resource::Uplink(NodeId(6))));
    assert_eq!(test.work(), [""; 0]);
    test.scheduler.handle_done(first.item, test.now);
    for wanted in &first.wanted {
        let rebuilt = BlockFacts::good_on(wanted.requestor);
        test.scheduler.handle_block(&first.stripe, wanted.block, rebuilt);
    }
    assert!(test.work().contains(&second.stripe.to_string()));
}

/// Reads may reserve half of a node's budget. A repair that needs more runs beside them.
#[test]
fn reads_hold_back_no_repair_on_a_node_without_others() {
    let budget = Budget { jobs: 9, up_bytes: BLOCK, down_bytes: BLOCK, disk_bytes: 9 * BLOCK };
    let mut test = SchedulerTest::with(6, Limits::default(), |_| NodeFacts { budget, ..facts() });
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    let relay = Loads { nodes: vec![sends(6)], links: Vec::new() };
    test.scheduler.reserve(&relay);
    let Some(Action::Propose(proposal)) = test.scheduler.poll(test.now) else { panic!() };
    assert_eq!(test.scheduler.admit(proposal.item, JobId(9), &relay), Ok(()));
}

// ---- one job per stripe ----

#[test]
fn a_stripe_of_two_repairs_is_repaired_once() {
    let mut test = SchedulerTest::new(8);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    test.repair(OTHER, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    test.succeed("a");
    assert_eq!(test.work(), [""; 0]);
    let ends = [("a".to_owned(), End::NothingLost), ("a".to_owned(), End::Repaired)];
    assert_eq!(test.ended, ends);
    test.over.sort();
    assert_eq!(test.over, [REPAIR, OTHER]);
}

/// A drain pushes a stripe whose block a rebalance was to move. The block has another copy, which counts now.
#[test]
fn a_push_whose_news_end_all_other_items_of_the_stripe_keeps_the_stripe() {
    let mut test = SchedulerTest::new(8);
    let mut item = test.new_item("a", [1, 2, 3, 4]);
    item.kind = Kind::Migrate { from: NodeId(1) };
    for (repair, home) in [(REPAIR, 1), (OTHER, 5)] {
        item.blocks[0] = BlockFacts::good_on(NodeId(home));
        test.scheduler.open(repair, RepairSpec::default());
        test.scheduler.push(repair, item.clone());
        test.scheduler.close(repair);
    }
    assert_eq!(test.work(), [""; 0]);
    assert_eq!(test.ended, [("a".into(), End::NothingLost), ("a".into(), End::NothingLost)]);
    assert_eq!(test.over, [REPAIR, OTHER]);
    test.kill(1);
    test.repair(RepairId(3), &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"], "the stripe is known no longer, and pushed again");
}

/// The store has encoded the stripe again. A job still works on the former blocks.
#[test]
fn a_stripe_that_was_encoded_anew_has_its_new_code() {
    let mut test = SchedulerTest::new(12);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    test.code = "lrc-6-2-2".parse::<CodeSpec>().unwrap().build().unwrap();
    let mut anew = test.new_item("a", [1, 2, 3, 4]);
    anew.blocks.extend((5..=10).map(|node| BlockFacts::good_on(NodeId(node))));
    test.scheduler.open(OTHER, RepairSpec::default());
    let item = test.scheduler.push(OTHER, anew);
    [2, 3].into_iter().for_each(|node| test.kill(node));
    assert_eq!(test.scheduler.survives(item), Some(0));
}

#[test]
fn a_stripe_held_by_someone_else_waits() {
    let mut test = SchedulerTest::new(8);
    test.scheduler.hold(&StripeId("a".into()));
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), [""; 0]);
    test.scheduler.let_go(&StripeId("a".into()));
    assert_eq!(test.work(), ["a"]);
}

// ---- ends ----

#[test]
fn an_unreadable_stripe_is_set_aside_until_it_can_be_read() {
    let mut test = SchedulerTest::new(12);
    [1, 2, 3].into_iter().for_each(|node| test.kill(node));
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 5, 6, 7])]);
    assert_eq!(test.work(), ["b"]);
    assert_eq!(test.state("a"), ItemState::SetAside);
    test.start(2);
    assert_eq!(test.work(), ["a"], "two blocks are enough");
    test.kill(2);
    test.fail("a", Failure::Transient);
    test.succeed("b");
    test.now += Duration::from_secs(60);
    test.work();
    assert_eq!(test.ended, [("b".into(), End::Repaired), ("a".into(), End::Unreadable { lost: 3 })]);
    assert_eq!(test.over, [REPAIR], "nothing else is left to do");
}

#[test]
fn failures_are_tried_again_later_and_not_for_ever() {
    let mut test = SchedulerTest::new(8);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    for pause in [1, 2] {
        assert_eq!(test.work(), ["a"]);
        test.fail("a", Failure::Transient);
        assert_eq!(test.work(), [""; 0]);
        let until = test.now + Duration::from_secs(pause);
        assert_eq!(test.state("a"), ItemState::BackingOff { until });
        assert_eq!(test.scheduler.wakes_at(), Some(until));
        test.now = until;
    }
    assert_eq!(test.work(), ["a"]);
    test.fail("a", Failure::Transient);
    test.work();
    assert_eq!(test.ended, [("a".into(), End::Failed)]);
    assert_eq!(test.over, [REPAIR]);
}

#[test]
fn a_permanent_failure_is_not_tried_again() {
    let mut test = SchedulerTest::new(8);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    test.work();
    test.fail("a", Failure::Permanent);
    assert_eq!(test.state("a"), ItemState::Ended(End::Failed));
}

#[test]
fn a_stripe_that_keeps_losing_blocks_is_given_up() {
    let mut test = SchedulerTest::with(8, Limits { rounds: 3, ..Limits::default() }, |_| facts());
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    for (block, node) in [(3, 4), (2, 3), (1, 2)] {
        assert_eq!(test.work(), ["a"]);
        test.lose("a", block, node);
        test.succeed("a");
    }
    test.work();
    assert_eq!(test.ended, [("a".into(), End::LostAgain)]);
}

#[test]
fn several_blocks_of_a_stripe_are_one_job() {
    let mut test = SchedulerTest::new(6);
    test.kill(1);
    test.kill(2);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    assert_eq!(requestors(test.proposal("a")), [5, 6]);
    test.succeed("a");
    test.work();
    assert_eq!(test.ended, [("a".into(), End::Repaired)]);
}

#[test]
fn blocks_without_a_node_are_left_for_a_later_round() {
    let mut test = SchedulerTest::new(5);
    test.kill(1);
    test.kill(2);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    assert_eq!(requestors(test.proposal("a")), [5]);
    test.scheduler.set_node(NodeId(6), facts());
    test.succeed("a");
    assert_eq!(test.work(), ["a"]);
    assert_eq!(requestors(test.proposal("a")), [6]);
}

#[test]
fn a_block_that_comes_back_while_it_waits_needs_no_repair() {
    let mut test = SchedulerTest::new(8);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])]);
    test.scheduler.set_paused(REPAIR, true);
    test.lose("b", 1, 2);
    assert_eq!(test.work(), [""; 0]);
    test.start(1);
    test.scheduler.set_paused(REPAIR, false);
    assert_eq!(test.work(), ["b"], "it lacks another block");
    assert_eq!(test.ended, [("a".into(), End::NothingLost)]);
}

// ---- control ----

#[test]
fn a_paused_repair_lets_others_pass() {
    let mut test = SchedulerTest::new(12);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])]);
    test.repair(OTHER, &[("c", [1, 5, 6, 7])]);
    test.scheduler.set_paused(REPAIR, true);
    assert_eq!(test.work(), ["c"]);
    test.scheduler.set_paused(REPAIR, false);
    assert_eq!(test.work(), ["a", "b"]);
}

#[test]
fn a_cancelled_repair_ends_when_its_jobs_have() {
    let mut test = SchedulerTest::new(5);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4]), ("c", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a", "b"]);
    test.scheduler.cancel(REPAIR);
    assert_eq!(test.scheduler.repair(REPAIR).unwrap().counters.cancelled, 1);
    test.work();
    assert!(test.running.is_empty());
    let state = test.scheduler.repair(REPAIR).unwrap();
    assert_eq!((state.cancelled, state.ended, state.counters.cancelled), (true, true, 3));
    test.scheduler.forget(REPAIR);
    assert_eq!(test.scheduler.repair(REPAIR), None);
}

#[test]
fn the_items_of_a_deleted_stripe_are_cancelled() {
    let mut test = SchedulerTest::new(5);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])]);
    test.work();
    test.scheduler.drop_stripe(&StripeId("a".into()));
    test.work();
    assert_eq!(test.ended, [("a".into(), End::Cancelled)]);
}

/// The job of `a` is being cancelled so that the stripe starts again, and then its file is removed.
#[test]
fn the_item_of_a_deleted_stripe_is_cancelled_although_its_job_was_called_back() {
    let mut test = SchedulerTest::new(5);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    test.work();
    test.scheduler.recall(test.items["a"]);
    test.scheduler.drop_stripe(&StripeId("a".into()));
    test.work();
    assert_eq!(test.ended, [("a".into(), End::Cancelled)]);
}

/// The file of `a` is removed while its job runs. Before the job ends, the scheduler hears of a reason to start it again.
#[test]
fn the_item_of_a_deleted_stripe_is_cancelled_however_its_job_ends() {
    let ends: [fn(&mut SchedulerTest); 4] = [
        |test| test.cancel("a"),
        |test| test.fail("a", Failure::Transient),
        |test| test.fail("a", Failure::Permanent),
        |test| test.succeed("a"),
    ];
    for end in ends {
        let mut test = SchedulerTest::new(5);
        test.kill(1);
        test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
        test.work();
        test.scheduler.drop_stripe(&StripeId("a".into()));
        assert!(matches!(test.scheduler.poll(test.now), Some(Action::CancelJob { .. })));
        test.scheduler.recall(test.items["a"]);
        test.lose("a", 1, 2);
        end(&mut test);
        assert_eq!(test.work(), [""; 0]);
        assert_eq!(test.ended, [("a".into(), End::Cancelled)]);
    }
}

/// The store refuses to record the block of a job that is being called back.
#[test]
fn an_item_whose_job_was_called_back_starts_again_also_if_the_job_fails() {
    let mut test = SchedulerTest::new(5);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    test.scheduler.recall(test.items["a"]);
    test.fail("a", Failure::Permanent);
    assert_eq!(test.work(), ["a"]);
    test.fail("a", Failure::Permanent);
    test.work();
    assert_eq!(test.ended, [("a".into(), End::Failed)], "it was not called back this time");
}

// ---- placement and helpers ----

#[test]
fn blocks_go_where_racks_are_spread_and_load_is_even() {
    let rack = |node: u32| {
        let rack = ["a", "a", "b", "b", "a", "c", "c", "c"][node as usize - 1];
        NodeFacts { rack: Some(rack.into()), blocks: node.into(), ..facts() }
    };
    let mut test = SchedulerTest::with(8, Limits::default(), rack);
    test.kill(4);
    test.repair(REPAIR, &[("s", [1, 2, 3, 4])]);
    test.work();
    assert_eq!(requestors(test.proposal("s")), [6], "rack c has none, and n6 the least");
    test.lose("s", 0, 1);
    assert_eq!(test.place("s", &[1]), Placement::Chosen(wanted(&[(0, 7), (3, 5)])));
}

#[test]
fn blocks_go_where_hosts_are_spread() {
    let host = |node: u32| NodeFacts { host: Some(format!("m{}", (node - 1) / 3)), ..facts() };
    let mut test = SchedulerTest::with(9, Limits::default(), host);
    test.kill(7);
    test.repair(REPAIR, &[("s", [1, 2, 4, 7])]);
    test.work();
    assert_eq!(requestors(test.proposal("s")), [8], "the host m2 has no block left");
}

fn wanted(blocks: &[(u16, u32)]) -> Vec<repair::Wanted> {
    let wanted = |&(block, node)| repair::Wanted { block: BlockIndex(block), requestor: NodeId(node) };
    blocks.iter().map(wanted).collect()
}

/// Prepares a node for each stripe that the scheduler proposes. Returns these nodes.
fn prepare_all(test: &mut SchedulerTest) -> Vec<u32> {
    let mut nodes = Vec::new();
    while let Some(Action::Propose(proposal)) = test.scheduler.poll(test.now) {
        nodes.push(requestors(&proposal)[0]);
        test.scheduler.preparation(proposal.item).begin(&proposal.wanted);
        test.scheduler.hold(&proposal.stripe);
        test.scheduler.put_back(proposal.item);
    }
    nodes
}

fn let_go(test: &mut SchedulerTest, stripe: &str) {
    test.scheduler.preparation(test.items[stripe]).end();
    test.scheduler.let_go(&StripeId(stripe.into()));
}

/// Each node has room for two jobs, and n5 has far fewer blocks than the others.
#[test]
fn nodes_are_prepared_as_far_as_they_have_room_and_then_kept() {
    let blocks = |node: u32| NodeFacts { blocks: if node == 5 { 0 } else { 1000 }, ..facts() };
    let mut test = SchedulerTest::with(7, Limits::default(), blocks);
    test.kill(4);
    let stripes = ["a", "b", "c", "d", "e", "f", "g"];
    test.repair(REPAIR, &stripes.map(|stripe| (stripe, [1, 2, 3, 4])));
    assert_eq!(prepare_all(&mut test), [5, 5, 6, 7, 6, 7], "none is prepared for g yet");
    let_go(&mut test, "c");
    test.work();
    assert_eq!(requestors(test.proposal("c")), [6]);
    test.kill(5);
    test.scheduler.preparation(test.items["d"]).withdraw();
    test.scheduler.let_go(&StripeId("d".into()));
    let_go(&mut test, "a");
    assert_eq!(test.work(), ["a"], "n5 is down, and d has left room at n7");
    assert_eq!(requestors(test.proposal("a")), [7]);
}

/// Blocks that only the scheduler counts as lost are left out of a claim.
#[test]
fn a_prepared_block_keeps_its_node_beside_one_that_was_not_prepared() {
    let mut test =
        SchedulerTest::with(8, Limits::default(), |node| NodeFacts { blocks: node.into(), ..facts() });
    test.kill(3);
    test.kill(4);
    test.repair(REPAIR, &[("s", [1, 2, 3, 4])]);
    let Some(Action::Propose(proposal)) = test.scheduler.poll(test.now) else { panic!("it can start") };
    assert_eq!(requestors(&proposal), [5, 6]);
    test.scheduler.preparation(proposal.item).begin(&proposal.wanted[1..]);
    test.scheduler.put_back(proposal.item);
    test.scheduler.preparation(proposal.item).end();
    test.work();
    assert_eq!(requestors(test.proposal("s")), [5, 6]);
}

/// The disk of n7 may be mounted later.
#[test]
fn a_node_that_lacks_its_blocks_gets_only_its_own_blocks() {
    let own = |node| match node {
        4 | 7 => NodeFacts { accepts: Accepts::Own, ..facts() },
        _ => facts(),
    };
    let mut test = SchedulerTest::with(7, Limits::default(), own);
    (5..=6).for_each(|node| test.kill(node));
    let mut item = test.new_item("own", [1, 2, 3, 4]);
    item.blocks[3].copy = CopyState::Bad;
    test.scheduler.open(REPAIR, RepairSpec::default());
    test.scheduler.push(REPAIR, item);
    assert_eq!(test.work(), ["own"]);
    assert_eq!(requestors(test.proposal("own")), [4]);
    let mut test = SchedulerTest::with(7, Limits::default(), own);
    [1, 5, 6].iter().for_each(|&node| test.kill(node));
    test.repair(REPAIR, &[("s", [1, 2, 3, 4])]);
    test.work();
    assert_eq!(test.state("s"), ItemState::Ended(End::Failed), "only n7 is left");
}

#[test]
fn nodes_get_more_than_an_even_share_if_the_others_refuse_the_block() {
    let mut test = SchedulerTest::with(3, Limits { shares_nodes: true, ..Limits::default() }, |_| facts());
    test.kill(3);
    test.repair(REPAIR, &[("s", [1, 1, 2, 3])]);
    test.work();
    assert_eq!(requestors(test.proposal("s")), [2]);
    assert_eq!(test.place("s", &[2]), Placement::Chosen(wanted(&[(3, 1)])));
}

#[test]
fn a_bad_block_is_rebuilt_where_it_was() {
    let mut test = SchedulerTest::new(8);
    let mut item = test.new_item("s", [1, 2, 3, 4]);
    item.blocks[2].copy = CopyState::Bad;
    test.scheduler.open(REPAIR, RepairSpec::default());
    test.scheduler.push(REPAIR, item);
    assert_eq!(test.work(), ["s"]);
    assert_eq!(requestors(test.proposal("s")), [3]);
}

/// A store that removes one of two copies of a block may remove the new one. A missing block has no copy that the store
/// could keep instead.
#[test]
fn a_bad_block_beside_another_stays_there_if_blocks_are_replaced_in_place() {
    let cases = [(false, CopyState::Bad, 4), (true, CopyState::Bad, 3), (true, CopyState::Missing, 4)];
    for (replaces_in_place, copy, expected) in cases {
        let limits = Limits { replaces_in_place, ..Limits::default() };
        let mut test = SchedulerTest::with(8, limits, |_| facts());
        let mut item = test.new_item("s", [1, 2, 3, 3]);
        item.blocks[2].copy = copy;
        test.scheduler.open(REPAIR, RepairSpec::default());
        test.scheduler.push(REPAIR, item);
        assert_eq!(test.work(), ["s"]);
        assert_eq!(requestors(test.proposal("s")), [expected], "{copy:?}");
    }
}

/// With the only other node full, even a missing block may return to a node with another block of its stripe.
#[test]
fn a_missing_block_returns_beside_another_if_no_other_node_can_take_it() {
    let limits = Limits { replaces_in_place: true, ..Limits::default() };
    let full = |node| NodeFacts { free_bytes: if node == 4 { 0 } else { 1 << 40 }, ..facts() };
    let mut test = SchedulerTest::with(4, limits, full);
    let mut item = test.new_item("s", [1, 2, 3, 3]);
    item.blocks[2].copy = CopyState::Missing;
    test.scheduler.open(REPAIR, RepairSpec::default());
    test.scheduler.push(REPAIR, item);
    assert_eq!(test.work(), ["s"]);
    assert_eq!(requestors(test.proposal("s")), [3]);
}

/// The store refuses the repair of a stripe for a while. A drain of another node moves its block of the stripe meanwhile.
#[test]
fn an_item_that_is_put_off_lets_other_items_of_its_stripe_start() {
    let mut test = SchedulerTest::new(8);
    let mut item = test.new_item("s", [1, 2, 3, 4]);
    item.blocks[2].copy = CopyState::Bad;
    test.scheduler.open(REPAIR, RepairSpec { priority: Priority::Urgent, ..RepairSpec::default() });
    let urgent = test.scheduler.push(REPAIR, item.clone());
    test.scheduler.open(OTHER, RepairSpec { priority: Priority::Background, ..RepairSpec::default() });
    (item.kind, item.only) = (Kind::Migrate { from: NodeId(1) }, vec![BlockIndex(0)]);
    test.scheduler.push(OTHER, item);
    let Some(Action::Propose(first)) = test.scheduler.poll(test.now) else { panic!("nothing is proposed") };
    assert_eq!(first.item, urgent);
    test.scheduler.put_back(urgent);
    assert!(test.scheduler.may_start(urgent));
    test.scheduler.put_off(urgent, Duration::from_secs(2));
    assert!(!test.scheduler.may_start(urgent));
    assert_eq!(test.work(), ["s"]);
    assert_eq!(test.proposal("s").kind, Kind::Migrate { from: NodeId(1) });
    test.succeed("s");
    assert_eq!(test.work(), [""; 0], "not yet");
    test.now += Duration::from_secs(2);
    assert_eq!(test.work(), ["s"]);
    assert_eq!(test.proposal("s").item, urgent);
}

#[test]
fn nodes_without_space_or_that_drain_get_no_blocks() {
    let small = |node| match node {
        5 => NodeFacts { free_bytes: BLOCK - 1, ..facts() },
        6 => NodeFacts { accepts: Accepts::Nothing, ..facts() },
        7 => NodeFacts { free_bytes: BLOCK, ..facts() },
        _ => facts(),
    };
    let mut test = SchedulerTest::with(7, Limits::default(), small);
    test.kill(1);
    test.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])]);
    assert_eq!(test.work(), ["a"]);
    assert_eq!(requestors(test.proposal("a")), [7]);
    assert_eq!(test.state("b"), ItemState::Ended(End::Failed), "the space of n7 is spoken for");
}

#[test]
fn a_node_is_drained_by_copies_and_by_repairs_once_it_is_dead() {
    let mut test = SchedulerTest::new(8);
    test.scheduler.open(REPAIR, RepairSpec::default());
    for name in ["a", "b", "c"] {
        let mut item = test.new_item(name, [1, 2, 3, 4]);
        item.kind = Kind::Migrate { from: NodeId(1) };
        let id = test.scheduler.push(REPAIR, item);
        test.items.insert(name.into(), id);
    }
    test.scheduler.close(REPAIR);
    assert_eq!(test.work(), ["a", "b"], "n1 sends two");
    assert_eq!(test.proposal("a").helpers, [NodeId(1)]);
    assert_eq!(test.proposal("a").wanted[0].block, BlockIndex(0));
    test.succeed("a");
    test.kill(1);
    assert_eq!(test.work(), ["c"]);
    assert_eq!(test.proposal("c").kind, Kind::Reconstruct);
    test.fail("b", Failure::Transient);
    test.now += Duration::from_secs(2);
    assert_eq!(test.work(), ["b"]);
    assert_eq!(test.proposal("b").kind, Kind::Reconstruct);
    test.succeed("b");
    test.succeed("c");
    test.work();
    assert!(test.ended.iter().all(|(_, end)| *end == End::Repaired), "{:?}", test.ended);
    assert_eq!(test.over, [REPAIR]);
}

#[test]
fn helpers_are_chosen_by_the_policy_of_that_name() {
    let order = |policy| {
        let mut test =
            SchedulerTest::with(9, Limits::default(), |_| NodeFacts { budget: Budget::jobs(9), ..facts() });
        test.scheduler.open(REPAIR, RepairSpec { helpers: policy, ..RepairSpec::default() });
        test.kill(1);
        for name in ["a", "b"] {
            test.scheduler.push(REPAIR, test.new_item(name, [1, 2, 3, 4]));
        }
        test.work();
        test.proposal("b").helpers.iter().map(|node| node.0).collect::<Vec<_>>()
    };
    assert_eq!(order(HelperPolicy::LowestIndex), [2, 3, 4]);
    // n2 and n3 helped with `a`, and n3 both received and sent.
    assert_eq!(order(HelperPolicy::LeastRecentlyUsed), [4, 2, 3]);
    assert_eq!(order(HelperPolicy::LoadGreedy), [4, 2, 3]);
    assert_eq!(order(HelperPolicy::MPpr), [4, 2, 3]);
    assert_eq!(order(HelperPolicy::FreeBudget), [4, 2, 3]);
}
