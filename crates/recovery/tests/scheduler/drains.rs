//! Drains, nodes that come back, and surplus copies.

use std::time::Duration;

use codes::BlockIndex;
use recovery::{BlockFacts, Budget, End, Failure, Kind, Limits, NodeFacts, Priority, RepairId, RepairSpec};
use repair::{NodeId, Resource, StripeId};

use crate::scene::{REPAIR, Scene, facts, requestors};

fn busy(_: u32) -> NodeFacts {
    NodeFacts { budget: Budget::jobs(1), ..facts() }
}

fn drain(scene: &mut Scene, id: RepairId, kind: Kind, stripes: &[(&str, [u32; 4])]) {
    scene.scheduler.open(id, RepairSpec { priority: Priority::Background, ..RepairSpec::default() });
    for &(name, nodes) in stripes {
        let item = scene.scheduler.push(id, recovery::NewItem { kind, ..scene.new_item(name, nodes) });
        scene.items.insert(name.into(), item);
    }
    scene.scheduler.close(id);
}

const FROM_1: Kind = Kind::Drain { from: NodeId(1) };

#[test]
fn a_drain_copies_and_rebuilds_at_once() {
    let mut scene = Scene::with(12, Limits::default(), busy);
    drain(&mut scene, REPAIR, FROM_1, &[("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4]), ("c", [1, 2, 3, 5])]);
    assert_eq!(
        scene.work(),
        ["a", "b"],
        "n1 sends one; n2 and n3 rebuild another; nobody is left for a third"
    );
    assert_eq!(scene.proposal("a").kind, Kind::Migrate { from: NodeId(1) });
    assert_eq!(scene.proposal("a").helpers, [NodeId(1)]);
    assert_eq!(scene.proposal("b").kind, Kind::Rebuild { from: NodeId(1) });
    assert!(!scene.proposal("b").helpers.contains(&NodeId(1)), "it is spared");
    assert_eq!(scene.proposal("b").wanted[0].block, BlockIndex(0));
    scene.succeed("b");
    assert_eq!(scene.work(), ["c"]);
    assert_eq!(scene.proposal("c").kind, Kind::Rebuild { from: NodeId(1) }, "n1 still sends");
    scene.succeed("a");
    scene.succeed("c");
    scene.work();
    assert_eq!(scene.over, [REPAIR]);
    assert!(scene.ended.iter().all(|(_, end)| *end == End::Repaired));
}

#[test]
fn a_node_copies_what_it_can_send_before_the_others_are_done() {
    let roomy = |_| NodeFacts { budget: Budget::jobs(9), ..facts() };
    let mut scene = Scene::with(12, Limits::default(), roomy);
    let stripes = ["a", "b", "c", "d", "e", "f"].map(|name| (name, [1, 2, 3, 4]));
    drain(&mut scene, REPAIR, FROM_1, &stripes);
    assert_eq!(scene.work(), ["a", "b", "c", "d", "e", "f"]);
    let copied = |scene: &Scene| {
        let copies = scene.running.values().filter(|proposal| matches!(proposal.kind, Kind::Migrate { .. }));
        copies.count()
    };
    // Three survivors send two blocks for each of the other four stripes. That takes 8/3 block times, in
    // which n1 sends two.
    assert_eq!(copied(&scene), 2);
    ["a", "b", "c", "d"].into_iter().for_each(|stripe| scene.succeed(stripe));
    drain(&mut scene, RepairId(2), FROM_1, &[("g", [1, 2, 3, 4]), ("h", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["g", "h"]);
    assert_eq!(
        copied(&scene),
        1,
        "the others are half done with two, and are done with h before n1 could be"
    );
}

#[test]
fn items_that_may_only_be_copied_or_only_be_rebuilt_wait_for_that() {
    for (kind, started) in [(Kind::Migrate { from: NodeId(1) }, 1), (Kind::Rebuild { from: NodeId(1) }, 3)] {
        let mut scene = Scene::with(30, Limits::default(), busy);
        let stripes = [("a", [1, 2, 3, 4]), ("b", [1, 5, 6, 7]), ("c", [1, 8, 9, 10])];
        drain(&mut scene, REPAIR, kind, &stripes);
        assert_eq!(scene.work().len(), started, "{kind:?}");
        assert!(scene.running.values().all(|proposal| proposal.kind == kind));
    }
}

#[test]
fn a_block_that_others_cannot_rebuild_is_copied() {
    let mut scene = Scene::with(12, Limits::default(), busy);
    [3, 4].into_iter().for_each(|node| scene.kill(node));
    let stripes = [("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 4])];
    drain(&mut scene, REPAIR, Kind::Rebuild { from: NodeId(1) }, &stripes);
    assert_eq!(scene.work(), ["a"]);
    assert_eq!(scene.proposal("a").kind, Kind::Migrate { from: NodeId(1) });
    scene.succeed("a");
    assert_eq!(scene.work(), ["a", "b"], "a lacks two blocks more");
    assert_eq!(scene.proposal("a").kind, Kind::Reconstruct);
    assert_eq!(scene.proposal("b").kind, Kind::Migrate { from: NodeId(1) });
}

#[test]
fn a_node_that_dies_during_its_drain_is_recovered_and_no_block_twice() {
    let mut scene = Scene::with(12, Limits::default(), busy);
    let stripes = ["a", "b", "c", "d"].map(|name| (name, [1, 2, 3, 4]));
    drain(&mut scene, REPAIR, FROM_1, &stripes);
    assert_eq!(scene.work(), ["a", "b"]);
    scene.succeed("b");
    assert_eq!(scene.work(), ["c"], "rebuilt");
    scene.kill(1);
    scene.fail("a", Failure::Transient);
    scene.succeed("c");
    assert_eq!(scene.work(), ["d"]);
    assert_eq!(scene.proposal("d").kind, Kind::Reconstruct);
    scene.succeed("d");
    scene.now += Duration::from_secs(2);
    assert_eq!(scene.work(), ["a"]);
    assert_eq!(scene.proposal("a").kind, Kind::Reconstruct);
    scene.succeed("a");
    assert_eq!(scene.work(), [""; 0]);
    let ends: Vec<&str> = scene.ended.iter().map(|(stripe, _)| stripe.as_str()).collect();
    assert_eq!(ends, ["b", "c", "d", "a"]);
    // The death also triggers a recovery, which finds no stripe left to repair.
    scene.repair(RepairId(7), &[]);
    assert_eq!(scene.work(), [""; 0]);
}

#[test]
fn after_a_restart_only_the_rest_is_done() {
    let mut scene = Scene::new(12);
    drain(&mut scene, REPAIR, FROM_1, &[("done", [9, 2, 3, 4]), ("left", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["left"]);
    assert_eq!(scene.ended, [("done".into(), End::NothingLost)]);
}

#[test]
fn standbys_get_everything() {
    let mut scene = Scene::new(12);
    let spec = RepairSpec { requestors: vec![NodeId(11), NodeId(12)], ..RepairSpec::default() };
    scene.scheduler.open(REPAIR, spec);
    for name in ["a", "b", "c", "d", "e"] {
        let item = scene.new_item(name, [1, 2, 3, 4]);
        scene.scheduler.push(REPAIR, recovery::NewItem { kind: FROM_1, ..item });
    }
    scene.work();
    let mut taken: Vec<u32> = scene.running.values().flat_map(requestors).collect();
    taken.sort_unstable();
    assert_eq!(taken, [11, 11, 12, 12], "two each, and one waits");
}

// ---- a node that comes back ----

#[test]
fn a_job_stops_when_its_block_is_back() {
    let mut scene = Scene::new(12);
    scene.kill(1);
    scene.kill(9);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4]), ("b", [1, 9, 3, 4])]);
    assert_eq!(scene.work(), ["b", "a"]);
    scene.start(1);
    assert_eq!(scene.work(), [""; 0]);
    assert_eq!(scene.cancelled, ["a"], "b lacks another block");
    assert_eq!(scene.ended, [("a".into(), End::NothingLost)]);
}

#[test]
fn a_job_whose_requestor_was_replaced_runs_to_its_end() {
    for told in [true, false] {
        let mut scene = Scene::new(12);
        scene.kill(1);
        scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
        assert_eq!(scene.work(), ["a"]);
        let proposed = scene.proposal("a").wanted[0].requestor;
        let other = (5..=12).map(NodeId).find(|&node| node != proposed).expect("several are free");
        if told {
            scene.scheduler.handle_delivery(scene.items["a"], other);
        }
        let facts = BlockFacts { node: Some(other), good: true };
        scene.scheduler.handle_block(&StripeId("a".into()), BlockIndex(0), facts);
        scene.work();
        assert_eq!(scene.cancelled.is_empty(), told, "a block that nobody delivered has come back by itself");
    }
}

#[test]
fn a_block_lost_again_while_its_job_stops_is_repaired() {
    let mut scene = Scene::new(12);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["a"]);
    scene.start(1);
    scene.kill(1);
    assert_eq!(scene.work(), ["a"], "once more, after it was called off");
    assert_eq!(scene.cancelled, ["a"]);
}

#[test]
fn a_surplus_copy_is_dropped_once_its_stripe_is_whole() {
    let mut scene = Scene::new(12);
    scene.kill(1);
    scene.kill(2);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    scene.work();
    let at = |node| BlockFacts { node: Some(NodeId(node)), good: true };
    let counted = [at(1), at(2), at(3), at(4)];
    scene.scheduler.handle_surplus(&StripeId("a".into()), BlockIndex(2), NodeId(12), &counted);
    scene.work();
    assert_eq!(scene.surplus, [], "it may be the last copy");
    scene.succeed("a");
    scene.work();
    assert_eq!(scene.surplus, [("a".into(), 2, 12)]);
}

#[test]
fn a_surplus_copy_of_a_whole_stripe_is_dropped_at_once_and_the_counted_one_never() {
    let mut scene = Scene::new(12);
    let at = |node| BlockFacts { node: Some(NodeId(node)), good: true };
    let counted = [at(1), at(2), at(3), at(4)];
    let stripe = StripeId("a".into());
    scene.scheduler.handle_surplus(&stripe, BlockIndex(2), NodeId(12), &counted);
    scene.scheduler.handle_surplus(&stripe, BlockIndex(3), NodeId(4), &counted);
    scene.work();
    assert_eq!(scene.surplus, [("a".into(), 2, 12)]);
    scene.kill(1);
    scene.scheduler.handle_surplus(&stripe, BlockIndex(2), NodeId(12), &counted);
    scene.work();
    assert_eq!(scene.surplus.len(), 1);
}

// ---- control ----

#[test]
fn a_changed_cap_holds_for_jobs_that_start_next() {
    let mut scene = Scene::with(30, Limits::default(), |_| NodeFacts { budget: Budget::jobs(9), ..facts() });
    scene.kill(1);
    scene.repair(REPAIR, &["a", "b", "c", "d"].map(|name| (name, [1, 2, 3, 4])));
    assert_eq!(scene.work().len(), 4);
    assert_eq!(scene.scheduler.limited_by(REPAIR), None, "nothing waits");
    scene.repair(RepairId(2), &["e", "f"].map(|name| (name, [1, 2, 3, 4])));
    let capped = Budget { up_bytes: crate::scene::BLOCK, ..Budget::jobs(9) };
    (2..=4).for_each(|node| scene.scheduler.set_node(NodeId(node), NodeFacts { budget: capped, ..facts() }));
    assert_eq!(scene.work(), [""; 0]);
    let limit = scene.scheduler.limited_by(RepairId(2)).unwrap();
    assert!(matches!(limit, Resource::Uplink(_)), "{limit}");
    ["a", "b", "c", "d"].into_iter().for_each(|stripe| scene.succeed(stripe));
    assert_eq!(scene.work(), ["e"], "two of three helpers are enough for one");
    (2..=4).for_each(|node| {
        scene.scheduler.set_node(NodeId(node), NodeFacts { budget: Budget::jobs(9), ..facts() });
    });
    assert_eq!(scene.work(), ["f"]);
}

#[test]
fn a_late_job_is_restarted_on_other_nodes() {
    let mut scene = Scene::new(12);
    scene.kill(1);
    scene.repair(REPAIR, &[("a", [1, 2, 3, 4])]);
    assert_eq!(scene.work(), ["a"]);
    let late = scene.proposal("a").helpers[0];
    let due = scene.now + Duration::from_secs(9);
    scene.scheduler.set_due(scene.items["a"], due);
    assert_eq!(scene.scheduler.wakes_at(), Some(due));
    scene.now = due;
    assert_eq!(scene.work(), ["a"]);
    assert_eq!(scene.cancelled, ["a"]);
    assert_ne!(scene.proposal("a").helpers[0], late, "it comes last now");
    scene.succeed("a");
    scene.now += Duration::from_secs(99);
    scene.work();
    assert_eq!(scene.ended, [("a".into(), End::Repaired)]);
    assert_eq!(scene.scheduler.wakes_at(), None);
}
