//! Repairs that wait for room at certain nodes hold back no others, but keep these nodes free.

use recovery::{
    Action, Budget, CopyState, HelperPolicy, Kind, Limits, Loads, NodeFacts, NodeLoad, Priority, RepairId,
    RepairSpec,
};
use repair::{JobId, NodeId};

use crate::scheduler_test::{BLOCK, REPAIR, SchedulerTest, facts};

/// More stripes than a walk over the queue looks at.
const MANY: usize = 200;
const OTHER: RepairId = RepairId(2);
const BACKGROUND: RepairId = RepairId(3);

/// Creates twelve nodes. n1 is dead, and the node `narrow` has a small budget.
fn with_narrow(narrow: u32, budget: Budget) -> SchedulerTest {
    let budget = |node| if node == narrow { budget } else { Budget::jobs(999) };
    let with_budget = |node| NodeFacts { budget: budget(node), ..facts() };
    let mut test = SchedulerTest::with(12, Limits::default(), with_budget);
    test.kill(1);
    test
}

/// Opens a repair of many stripes with blocks on these nodes.
fn repair_many(
    test: &mut SchedulerTest,
    spec: RepairSpec,
    nodes: [u32; 4],
    (kind, first): (Kind, CopyState),
) {
    test.scheduler.open(REPAIR, spec);
    for at in 0..MANY {
        let mut item = test.new_item(&format!("s{at}"), nodes);
        item.kind = kind;
        item.blocks[0].copy = first;
        test.scheduler.push(REPAIR, item);
    }
    test.scheduler.close(REPAIR);
}

/// Opens two repairs with the same survivors n2 and n3: one of lost blocks, and one in the background.
fn repair_others(test: &mut SchedulerTest) {
    test.repair(OTHER, &[("other", [1, 2, 3, 6])]);
    test.scheduler.open(BACKGROUND, RepairSpec { priority: Priority::Background, ..RepairSpec::default() });
    let item = test.new_item("background", [1, 2, 3, 7]);
    test.scheduler.push(BACKGROUND, item);
    test.scheduler.close(BACKGROUND);
}

const REBUILT: (Kind, CopyState) = (Kind::Reconstruct, CopyState::Good);

#[test]
fn a_repair_onto_a_busy_node_holds_back_no_others() {
    let onto_12 = RepairSpec { requestors: vec![NodeId(12)], ..RepairSpec::default() };
    // PUSH-Rep stores all blocks on n5, the first node without a block of the stripe.
    let onto_5 = RepairSpec { helpers: HelperPolicy::PushRep, ..RepairSpec::default() };
    for (narrow, spec) in [(12, onto_12), (5, onto_5)] {
        let mut test = with_narrow(narrow, Budget::jobs(1));
        repair_many(&mut test, spec, [1, 2, 3, 4], REBUILT);
        repair_others(&mut test);
        assert_eq!(test.work(), ["s0", "other", "background"], "n{narrow} has room for one");
        test.succeed("s0");
        assert_eq!(test.work(), ["s1"]);
    }
}

#[test]
fn bad_blocks_that_stay_on_a_busy_node_hold_back_no_others() {
    let mut test = with_narrow(12, Budget::jobs(1));
    repair_many(&mut test, RepairSpec::default(), [12, 2, 3, 4], (Kind::Reconstruct, CopyState::Bad));
    repair_others(&mut test);
    assert_eq!(test.work(), ["s0", "other", "background"]);
}

#[test]
fn copies_from_a_busy_node_hold_back_no_others() {
    let mut test = with_narrow(12, Budget::jobs(1));
    let copied = (Kind::Migrate { from: NodeId(12) }, CopyState::Good);
    repair_many(&mut test, RepairSpec::default(), [12, 2, 3, 4], copied);
    repair_others(&mut test);
    assert_eq!(test.work(), ["other", "s0", "background"]);
}

/// n12 has room for one more block, but each plan brings it two.
#[test]
fn plans_without_room_at_the_only_requestor_hold_back_no_others() {
    let mut test = with_narrow(12, Budget { down_bytes: 3 * BLOCK, ..Budget::jobs(999) });
    let spec = RepairSpec { requestors: vec![NodeId(12)], ..RepairSpec::default() };
    repair_many(&mut test, spec, [1, 2, 3, 4], REBUILT);
    repair_others(&mut test);
    let star = NodeLoad {
        node: NodeId(12),
        jobs: 1,
        sent_bytes: 0,
        received_bytes: 2 * BLOCK,
        read_bytes: 0,
        stored_bytes: BLOCK,
    };
    let (mut jobs, mut started) = (0, Vec::new());
    while let Some(action) = test.scheduler.poll(test.now) {
        let Action::Propose(proposal) = action else { panic!("no item has ended") };
        let nodes = if proposal.repair == REPAIR { vec![star] } else { Vec::new() };
        jobs += 1;
        if test.scheduler.admit(proposal.item, JobId(jobs), &Loads { nodes, links: Vec::new() }).is_ok() {
            started.push(proposal.stripe.to_string());
        }
    }
    assert_eq!(started, ["s0", "other", "background"]);
}

/// Creates twelve nodes, each with room for one job. n11 is dead.
fn with_room_for_one() -> SchedulerTest {
    let one = |_| NodeFacts { budget: Budget::jobs(1), ..facts() };
    let mut test = SchedulerTest::with(12, Limits::default(), one);
    test.kill(11);
    test
}

/// Opens a repair of one stripe, which has bad copies of its first `bad` blocks. Lost blocks go to the node `onto`, if
/// it is given.
fn repair_one(
    test: &mut SchedulerTest,
    (repair, priority): (u64, Priority),
    (name, nodes, bad): (&str, [u32; 4], usize),
    onto: Option<u32>,
) {
    let requestors = onto.map(NodeId).into_iter().collect();
    let spec = RepairSpec { priority, helpers: HelperPolicy::LowestIndex, requestors };
    test.scheduler.open(RepairId(repair), spec);
    let mut item = test.new_item(name, nodes);
    item.blocks[..bad].iter_mut().for_each(|block| block.copy = CopyState::Bad);
    test.scheduler.push(RepairId(repair), item);
    test.scheduler.close(RepairId(repair));
}

/// Other repairs would take the node of the bad block whenever survivors are busy, and survivors whenever that node is.
#[test]
fn the_node_of_a_bad_block_is_kept_free_while_survivors_are_busy() {
    let mut test = with_room_for_one();
    repair_one(&mut test, (1, Priority::Normal), ("on n12", [11, 4, 5, 6], 0), Some(12));
    repair_one(&mut test, (2, Priority::Normal), ("on n1 and n2", [11, 1, 2, 9], 0), Some(7));
    assert_eq!(test.work(), ["on n12", "on n1 and n2"]);
    repair_one(&mut test, (3, Priority::Urgent), ("urgent", [12, 1, 2, 3], 1), None);
    repair_one(&mut test, (4, Priority::Normal), ("later", [11, 6, 8, 9], 0), Some(12));
    assert_eq!(test.work(), [""; 0]);
    test.succeed("on n12");
    assert_eq!(test.work(), [""; 0], "`urgent` waits for n1 or n2, and needs n12 then");
    test.succeed("on n1 and n2");
    assert_eq!(test.work(), ["urgent"]);
    test.succeed("urgent");
    assert_eq!(test.work(), ["later"]);
}

/// The same holds for the only nodes that may get blocks, such as hot standbys.
#[test]
fn the_only_requestor_is_kept_free_while_survivors_are_busy() {
    let mut test = with_room_for_one();
    repair_one(&mut test, (1, Priority::Normal), ("on n1 and n2", [11, 1, 2, 9], 0), Some(7));
    assert_eq!(test.work(), ["on n1 and n2"]);
    repair_one(&mut test, (2, Priority::Urgent), ("urgent", [11, 1, 2, 3], 0), Some(12));
    repair_one(&mut test, (3, Priority::Normal), ("later", [11, 6, 8, 10], 0), Some(12));
    assert_eq!(test.work(), [""; 0]);
    test.succeed("on n1 and n2");
    assert_eq!(test.work(), ["urgent"]);
    test.succeed("urgent");
    assert_eq!(test.work(), ["later"]);
}

#[test]
fn the_nodes_of_all_bad_blocks_are_kept_free_while_one_of_them_is_busy() {
    let mut test = with_room_for_one();
    repair_one(&mut test, (1, Priority::Normal), ("on n12", [11, 4, 5, 6], 0), Some(12));
    assert_eq!(test.work(), ["on n12"]);
    repair_one(&mut test, (2, Priority::Urgent), ("urgent", [12, 10, 2, 3], 2), None);
    repair_one(&mut test, (3, Priority::Normal), ("later", [11, 6, 8, 9], 0), Some(10));
    assert_eq!(test.work(), [""; 0]);
    test.succeed("on n12");
    assert_eq!(test.work(), ["urgent"]);
    test.succeed("urgent");
    assert_eq!(test.work(), ["later"]);
}
