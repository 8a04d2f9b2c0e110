//! Scheduler behaviour that operators rely on, case by case.

use std::time::Duration;

use codes::BlockIndex;
use recovery::{
    Action, Budget, End, Failure, HelperPolicy, ItemState, Kind, Limits, Loads, NodeFacts, NodeLoad,
    Placement, Priority, RepairId, RepairSpec, Scheduler, TrunkBudget,
};
use repair::{JobId, NodeId, Resource, StripeId};

use crate::scene::{BLOCK, REPAIR, Scene, facts, requestors};

const OTHER: RepairId = RepairId(2);

// ---- order ----

#[test]
fn the_stripe_with_the_least_redundancy_goes_first() {
    let mut scene = Scene::new(12);
    scene.kill(1);
    scene.kill(9);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 9, 3, 4]), ("c", [1, 2, 3, 5])]);
    assert_eq!(scene.work(), ["b", "a"], "n3 has room for two");
    scene.succeed("b");
    assert_eq!(scene.work(), ["c"]);
}

#[test]
fn a_waiting_stripe_that_becomes_urgent_moves_to_the_front() {
    let mut scene = Scene::with(12, Limits::default(), |_| NodeFacts { budget: Budget::jobs(1), ..facts() });
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 5]), ("c", [1, 2, 3, 6])]);
    assert_eq!(scene.work(), ["a"]);
    scene.kill(6);
    assert_eq!(scene.scheduler.survives(scene.items["c"]), Some(0));
    scene.succeed("a");
    assert_eq!(scene.work(), ["c"], "before b, which was named earlier");
}

#[test]
fn a_less_urgent_stripe_does_not_take_resources_that_an_urgent_one_waits_for() {
    let one = |_| NodeFacts { budget: Budget::jobs(1), ..facts() };
    let mut scene = Scene::with(12, Limits::default(), one);
    scene.kill(12);
    scene.repair(REPAIR, &[("first", [12, 3, 4, 5])]);
    assert_eq!(scene.work(), ["first"]);
    scene.kill(11);
    // `urgent` needs n2 and n3, and `first` uses n3 and n4. `later` could use n2 and n9.
    scene.repair(OTHER, &[("later", [11, 2, 9, 10]), ("urgent", [11, 12, 2, 3])]);
    scene.kill(10);
    assert_eq!(scene.scheduler.survives(scene.items["urgent"]), Some(0));
    scene.start(10);
    assert_eq!(scene.work(), ["later"], "by n9 and n10");
    assert_eq!(scene.proposal("later").helpers, [9, 10, 2].map(NodeId));
    scene.succeed("later");
    scene.kill(9);
    scene.repair(RepairId(3), &[("last", [11, 2, 10, 4])]);
    assert_eq!(scene.work(), [""; 0], "n2 and n10 have room, and `urgent` waits for n3 and n2");
    scene.succeed("first");
    assert_eq!(scene.work(), ["urgent", "last"], "which has n4 and n10");
}

#[test]
fn background_work_comes_after_repairs() {
    let mut scene = Scene::with(8, Limits::default(), |_| NodeFacts { budget: Budget::jobs(1), ..facts() });
    scene.scheduler.open(OTHER, RepairSpec { priority: Priority::Background, ..RepairSpec::default() });
    let mut moved = scene.new_item("moved", [1, 2, 3, 4]);
    moved.kind = Kind::Migrate { from: NodeId(1) };
    scene.scheduler.push(OTHER, moved);
    scene.scheduler.close(OTHER);
    scene.kill(5);
    scene.repair(REPAIR, &[("lost", [5, 1, 2, 3])]);
    assert_eq!(scene.work()[0], "lost");
}

// ---- room ----

#[test]
fn stripes_start_only_on_nodes_with_room() {
    let mut scene = Scene::new(30);
    let stripes: Vec<(String, [u32; 4])> =
        (0..7).map(|at| (format!("s{at}"), [30, 1 + 4 * at, 2 + 4 * at, 3 + 4 * at])).collect();
    let stripes: Vec<(&str, [u32; 4])> =
        stripes.iter().map(|(name, nodes)| (name.as_str(), *nodes)).collect();
    scene.kill(30);
    scene.repair(REPAIR, &stripes);
    assert_eq!(scene.work().len(), 7, "all at once, as they have different nodes");

    let mut scene = Scene::new(5);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4]), ("c", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["a", "b"], "n5 takes two");
    assert_eq!(scene.state("c"), ItemState::Waiting);
    scene.succeed("a");
    assert_eq!(scene.work(), ["c"]);
}

#[test]
fn bytes_are_reserved_as_the_plan_says() {
    let narrow = Budget { jobs: 9, up_bytes: 2 * BLOCK, down_bytes: 9 * BLOCK, disk_bytes: 9 * BLOCK };
    let mut scene = Scene::with(9, Limits::default(), |_| NodeFacts { budget: narrow, ..facts() });
    let same = |name| (name, [1, 2, 3, 4]);
    scene.kill(1);
    scene.repair(REPAIR, &["a", "b", "c", "d"].map(same));
    assert_eq!(scene.work(), ["a", "b", "c"], "three survivors send two blocks each, and a repair takes two");
    let reserved =
        |scene: &Scene, node| scene.scheduler.reservations().find(|(id, ..)| *id == NodeId(node)).unwrap().1;
    let sent: u64 = (2..=4).map(|node| reserved(&scene, node).up_bytes).sum();
    assert_eq!(sent, 6 * BLOCK);
    ["a", "b", "c"].into_iter().for_each(|stripe| scene.succeed(stripe));
    assert_eq!(scene.work(), ["d"]);
    scene.succeed("d");
    assert!((1..=9).all(|node| reserved(&scene, node) == Budget::default()), "everything is given back");
}

#[test]
fn trunks_between_racks_have_budgets() {
    let rack = |node: u32| NodeFacts {
        rack: Some(if node < 5 { "a" } else { "b" }.into()),
        budget: Budget::jobs(9),
        ..facts()
    };
    let mut scene = Scene::with(9, Limits::default(), rack);
    scene.scheduler.set_trunk("b", TrunkBudget { up_bytes: u64::MAX, down_bytes: BLOCK });
    let same = |name| (name, [1, 2, 3, 4]);
    scene.kill(1);
    scene.repair(REPAIR, &["s1", "s2"].map(same));
    assert_eq!(scene.work(), ["s1"], "the block must go to rack b");
    assert_eq!(scene.scheduler.lack(scene.items["s2"]), Some(&Resource::TrunkInto("b".into())));
    scene.succeed("s1");
    assert_eq!(scene.work(), ["s2"]);
}

#[test]
fn a_degraded_read_passes_and_room_is_left_for_it() {
    let budget = |jobs| move |_| NodeFacts { budget: Budget::jobs(jobs), ..facts() };
    let mut scene = Scene::with(5, Limits::default(), budget(4));
    scene.kill(1);
    scene.repair(REPAIR, &["a", "b", "c", "d"].map(|name| (name, [1, 2, 3, 4])));
    let loads = Loads { nodes: (2..=5).map(sends).collect(), links: Vec::new() };
    let reads: Vec<_> = (0..9).map(|_| scene.scheduler.reserve(&loads)).collect();
    assert_eq!(scene.work(), ["a", "b"], "half of what n5 takes is left to recoveries, however much is read");
    reads.into_iter().for_each(|read| scene.scheduler.release(read));
    assert_eq!(scene.work(), ["c", "d"]);
}

#[test]
fn a_proposal_that_was_put_back_waits_until_something_changes() {
    let mut scene = Scene::new(9);
    scene.kill(1);
    scene.scheduler.open(REPAIR, RepairSpec::default());
    for (name, nodes) in [("a", [1, 2, 3, 4]), ("b", [1, 5, 6, 7])] {
        let item = scene.new_item(name, nodes);
        scene.scheduler.push(REPAIR, item);
    }
    for _ in 0..2 {
        let proposed = |scene: &mut Scene| match scene.scheduler.poll(Duration::ZERO) {
            Some(Action::Propose(proposal)) => Some(proposal),
            _ => None,
        };
        for name in ["a", "b"] {
            let proposal = proposed(&mut scene).unwrap();
            assert_eq!(proposal.stripe, StripeId(name.into()));
            scene.scheduler.put_back(proposal.item);
        }
        assert_eq!(proposed(&mut scene), None, "each has sat out");
        scene.scheduler.set_node(NodeId(9), facts());
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
        scheduler.push(REPAIR, Scene::new(4).new_item("a", [1, 2, 3, 4]));
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
    let mut scene = Scene::with(6, Limits::default(), |_| NodeFacts { budget, ..facts() });
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    let relay = Loads { nodes: vec![sends(6)], links: Vec::new() };
    let read = scene.scheduler.reserve(&relay);
    let Some(Action::Propose(proposal)) = scene.scheduler.poll(scene.now) else { panic!() };
    let refused = scene.scheduler.admit(proposal.item, JobId(9), &relay);
    assert_eq!(refused, Err(Resource::Uplink(NodeId(6))));
    assert_eq!(scene.work(), [""; 0]);
    scene.scheduler.release(read);
    assert_eq!(scene.work(), ["a"]);
}

// ---- one job per stripe ----

#[test]
fn a_stripe_of_two_repairs_is_repaired_once() {
    let mut scene = Scene::new(8);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    scene.repair(OTHER, &[("a", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["a"]);
    scene.succeed("a");
    assert_eq!(scene.work(), [""; 0]);
    let ends = [("a".to_owned(), End::NothingLost), ("a".to_owned(), End::Repaired)];
    assert_eq!(scene.ended, ends);
    scene.over.sort();
    assert_eq!(scene.over, [REPAIR, OTHER]);
}

#[test]
fn a_stripe_held_by_someone_else_waits() {
    let mut scene = Scene::new(8);
    scene.scheduler.hold(&StripeId("a".into()));
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), [""; 0]);
    scene.scheduler.let_go(&StripeId("a".into()));
    assert_eq!(scene.work(), ["a"]);
}

// ---- ends ----

#[test]
fn an_unreadable_stripe_is_set_aside_until_it_can_be_read() {
    let mut scene = Scene::new(12);
    [1, 2, 3].into_iter().for_each(|node| scene.kill(node));
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 5, 6, 7])]);
    assert_eq!(scene.work(), ["b"]);
    assert_eq!(scene.state("a"), ItemState::SetAside);
    scene.start(2);
    assert_eq!(scene.work(), ["a"], "two blocks are enough");
    scene.kill(2);
    scene.fail("a", Failure::Transient);
    scene.succeed("b");
    scene.now += Duration::from_secs(60);
    scene.work();
    assert_eq!(scene.ended, [("b".into(), End::Repaired), ("a".into(), End::Unreadable { lost: 3 })]);
    assert_eq!(scene.over, [REPAIR], "nothing else is left to do");
}

#[test]
fn failures_are_tried_again_later_and_not_for_ever() {
    let mut scene = Scene::new(8);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    for pause in [1, 2] {
        assert_eq!(scene.work(), ["a"]);
        scene.fail("a", Failure::Transient);
        assert_eq!(scene.work(), [""; 0]);
        let until = scene.now + Duration::from_secs(pause);
        assert_eq!(scene.state("a"), ItemState::BackingOff { until });
        assert_eq!(scene.scheduler.wakes_at(), Some(until));
        scene.now = until;
    }
    assert_eq!(scene.work(), ["a"]);
    scene.fail("a", Failure::Transient);
    scene.work();
    assert_eq!(scene.ended, [("a".into(), End::Failed)]);
    assert_eq!(scene.over, [REPAIR]);
}

#[test]
fn a_permanent_failure_is_not_tried_again() {
    let mut scene = Scene::new(8);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    scene.work();
    scene.fail("a", Failure::Permanent);
    assert_eq!(scene.state("a"), ItemState::Ended(End::Failed));
}

#[test]
fn a_stripe_that_keeps_losing_blocks_is_given_up() {
    let mut scene = Scene::with(8, Limits { rounds: 3, ..Limits::default() }, |_| facts());
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    for (block, node) in [(3, 4), (2, 3), (1, 2)] {
        assert_eq!(scene.work(), ["a"]);
        scene.lose("a", block, node);
        scene.succeed("a");
    }
    scene.work();
    assert_eq!(scene.ended, [("a".into(), End::LostAgain)]);
}

#[test]
fn several_blocks_of_a_stripe_are_one_job() {
    let mut scene = Scene::new(6);
    scene.kill(1);
    scene.kill(2);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["a"]);
    assert_eq!(requestors(scene.proposal("a")), [5, 6]);
    scene.succeed("a");
    scene.work();
    assert_eq!(scene.ended, [("a".into(), End::Repaired)]);
}

#[test]
fn blocks_without_a_node_are_left_for_a_later_round() {
    let mut scene = Scene::new(5);
    scene.kill(1);
    scene.kill(2);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["a"]);
    assert_eq!(requestors(scene.proposal("a")), [5]);
    scene.scheduler.set_node(NodeId(6), facts());
    scene.succeed("a");
    assert_eq!(scene.work(), ["a"]);
    assert_eq!(requestors(scene.proposal("a")), [6]);
}

#[test]
fn a_block_that_comes_back_while_it_waits_needs_no_repair() {
    let mut scene = Scene::new(8);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])]);
    scene.scheduler.pause(REPAIR);
    scene.lose("b", 1, 2);
    assert_eq!(scene.work(), [""; 0]);
    scene.start(1);
    scene.scheduler.resume(REPAIR);
    assert_eq!(scene.work(), ["b"], "it lacks another block");
    assert_eq!(scene.ended, [("a".into(), End::NothingLost)]);
}

// ---- control ----

#[test]
fn a_paused_repair_lets_others_pass() {
    let mut scene = Scene::new(12);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])]);
    scene.repair(OTHER, &[("c", [1, 5, 6, 7])]);
    scene.scheduler.pause(REPAIR);
    assert_eq!(scene.work(), ["c"]);
    scene.scheduler.resume(REPAIR);
    assert_eq!(scene.work(), ["a", "b"]);
}

#[test]
fn a_cancelled_repair_ends_when_its_jobs_have() {
    let mut scene = Scene::new(5);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4]), ("c", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["a", "b"]);
    scene.scheduler.cancel(REPAIR);
    assert_eq!(scene.scheduler.repair(REPAIR).unwrap().counters.cancelled, 1);
    scene.work();
    assert!(scene.running.is_empty());
    let state = scene.scheduler.repair(REPAIR).unwrap();
    assert_eq!((state.cancelled, state.ended, state.counters.cancelled), (true, true, 3));
    scene.scheduler.forget(REPAIR);
    assert_eq!(scene.scheduler.repair(REPAIR), None);
}

#[test]
fn the_items_of_a_deleted_stripe_are_cancelled() {
    let mut scene = Scene::new(5);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])]);
    scene.work();
    scene.scheduler.drop_stripe(&StripeId("a".into()));
    scene.work();
    assert_eq!(scene.ended, [("a".into(), End::Cancelled)]);
}

// ---- placement and helpers ----

#[test]
fn blocks_go_where_racks_are_spread_and_load_is_even() {
    let rack = |node: u32| {
        let rack = ["a", "a", "b", "b", "a", "c", "c", "c"][node as usize - 1];
        NodeFacts { rack: Some(rack.into()), blocks: node.into(), ..facts() }
    };
    let mut scene = Scene::with(8, Limits::default(), rack);
    scene.kill(4);
    scene.repair(REPAIR, &[("s", [1, 2, 3, 4])]);
    scene.work();
    assert_eq!(requestors(scene.proposal("s")), [6], "rack c has none, and n6 the least");
    scene.lose("s", 0, 1);
    assert_eq!(scene.place("s", &[1]), Placement::Chosen(wanted(&[(0, 7), (3, 5)])));
}

#[test]
fn blocks_go_where_hosts_are_spread() {
    let host = |node: u32| NodeFacts { host: Some(format!("m{}", (node - 1) / 3)), ..facts() };
    let mut scene = Scene::with(9, Limits::default(), host);
    scene.kill(7);
    scene.repair(REPAIR, &[("s", [1, 2, 4, 7])]);
    scene.work();
    assert_eq!(requestors(scene.proposal("s")), [8], "the host m2 has no block left");
}

fn wanted(blocks: &[(u16, u32)]) -> Vec<repair::Wanted> {
    let wanted = |&(block, node)| repair::Wanted { block: BlockIndex(block), requestor: NodeId(node) };
    blocks.iter().map(wanted).collect()
}

#[test]
fn a_bad_block_is_rebuilt_where_it_was() {
    let mut scene = Scene::new(8);
    let mut item = scene.new_item("s", [1, 2, 3, 4]);
    item.blocks[2].good = false;
    scene.scheduler.open(REPAIR, RepairSpec::default());
    scene.scheduler.push(REPAIR, item);
    assert_eq!(scene.work(), ["s"]);
    assert_eq!(requestors(scene.proposal("s")), [3]);
}

#[test]
fn nodes_without_space_or_that_drain_get_no_blocks() {
    let small = |node| match node {
        5 => NodeFacts { free_bytes: BLOCK - 1, ..facts() },
        6 => NodeFacts { draining: true, ..facts() },
        7 => NodeFacts { free_bytes: BLOCK, ..facts() },
        _ => facts(),
    };
    let mut scene = Scene::with(7, Limits::default(), small);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["a"]);
    assert_eq!(requestors(scene.proposal("a")), [7]);
    assert_eq!(scene.state("b"), ItemState::Ended(End::Failed), "the space of n7 is spoken for");
}

#[test]
fn a_node_is_drained_by_copies_and_by_repairs_once_it_is_dead() {
    let mut scene = Scene::new(8);
    scene.scheduler.open(REPAIR, RepairSpec::default());
    for name in ["a", "b", "c"] {
        let mut item = scene.new_item(name, [1, 2, 3, 4]);
        item.kind = Kind::Migrate { from: NodeId(1) };
        let id = scene.scheduler.push(REPAIR, item);
        scene.items.insert(name.into(), id);
    }
    scene.scheduler.close(REPAIR);
    assert_eq!(scene.work(), ["a", "b"], "n1 sends two");
    assert_eq!(scene.proposal("a").helpers, [NodeId(1)]);
    assert_eq!(scene.proposal("a").wanted[0].block, BlockIndex(0));
    scene.succeed("a");
    scene.kill(1);
    assert_eq!(scene.work(), ["c"]);
    assert_eq!(scene.proposal("c").kind, Kind::Reconstruct);
    scene.fail("b", Failure::Transient);
    scene.now += Duration::from_secs(2);
    assert_eq!(scene.work(), ["b"]);
    assert_eq!(scene.proposal("b").kind, Kind::Reconstruct);
    scene.succeed("b");
    scene.succeed("c");
    scene.work();
    assert!(scene.ended.iter().all(|(_, end)| *end == End::Repaired), "{:?}", scene.ended);
    assert_eq!(scene.over, [REPAIR]);
}

#[test]
fn helpers_are_chosen_by_the_policy_of_that_name() {
    let order = |policy| {
        let mut scene =
            Scene::with(9, Limits::default(), |_| NodeFacts { budget: Budget::jobs(9), ..facts() });
        scene.scheduler.open(REPAIR, RepairSpec { helpers: policy, ..RepairSpec::default() });
        scene.kill(1);
        for name in ["a", "b"] {
            scene.scheduler.push(REPAIR, scene.new_item(name, [1, 2, 3, 4]));
        }
        scene.work();
        scene.proposal("b").helpers.iter().map(|node| node.0).collect::<Vec<_>>()
    };
    assert_eq!(order(HelperPolicy::LowestIndex), [2, 3, 4]);
    // n2 and n3 helped with `a`, and n3 both received and sent.
    assert_eq!(order(HelperPolicy::LeastRecentlyUsed), [4, 2, 3]);
    assert_eq!(order(HelperPolicy::LoadGreedy), [4, 2, 3]);
    assert_eq!(order(HelperPolicy::MPpr), [4, 2, 3]);
    assert_eq!(order(HelperPolicy::FreeBudget), [4, 2, 3]);
}
