//! Compares helper policies over whole recoveries.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use recovery::{
    Action, BlockFacts, Budget, Demand, HelperPolicy, Limits, Loads, NodeFacts, NodeLoad, RepairSpec, bound,
};
use repair::{Heat, JobId, NodeId, Rates, Scheme, StripeId};

use crate::scheduler_test::{BLOCK, REPAIR, SchedulerTest, chain, facts};

/// Starts all stripes at once. Returns the largest load of a node in blocks, sent or received, and the lower
/// bound of this load.
fn loads(policy: HelperPolicy, nodes: u32, stripes: u32) -> (f64, f64) {
    let roomy = NodeFacts { budget: Budget::jobs(1 << 20), ..facts() };
    let mut test = SchedulerTest::with(nodes, Limits::default(), |_| roomy.clone());
    test.scheduler.open(REPAIR, RepairSpec { helpers: policy, ..RepairSpec::default() });
    test.kill(1);
    let mut demands = Vec::new();
    let mut state = 7u32;
    for stripe in 0..stripes {
        let mut holders = vec![1];
        while holders.len() < 4 {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let node = 2 + (state >> 16) % (nodes - 1);
            if !holders.contains(&node) {
                holders.push(node);
            }
        }
        let item = test.new_item(&stripe.to_string(), [holders[0], holders[1], holders[2], holders[3]]);
        demands.push(Demand {
            block_bytes: BLOCK,
            sends: 2,
            lost: 1,
            survivors: holders[1..].iter().copied().map(NodeId).collect(),
            takers: None,
        });
        test.scheduler.push(REPAIR, item);
    }
    let (mut up, mut down) = (BTreeMap::new(), BTreeMap::new());
    let mut jobs = 0;
    while let Some(action) = test.scheduler.poll(test.now) {
        let Action::Propose(proposal) = action else { continue };
        let loads = match proposal.stretches.is_empty() {
            true => chain(&proposal, 2),
            false => Loads::of_stretches(&proposal.stretches, &proposal.wanted),
        };
        jobs += 1;
        test.scheduler.admit(proposal.item, JobId(jobs), &loads).unwrap();
        for load in &loads.nodes {
            *up.entry(load.node).or_insert(0) += load.sent_bytes;
            *down.entry(load.node).or_insert(0) += load.received_bytes;
        }
    }
    assert_eq!(jobs, u64::from(stripes));
    let most = up.values().chain(down.values()).copied().max().unwrap();
    let rates = Rates { up: BLOCK as f64, down: BLOCK as f64, read: 1e9, write: 1e9 };
    let bound = bound(&demands, &(2..=nodes).map(|node| (NodeId(node), rates)).collect());
    (most as f64 / BLOCK as f64, bound.seconds)
}

#[test]
fn dealt_work_is_as_even_as_can_be() {
    for (nodes, stripes) in [(10, 40), (16, 64), (50, 200)] {
        let (even, bound) = loads(HelperPolicy::Even, nodes, stripes);
        let (lru, _) = loads(HelperPolicy::LeastRecentlyUsed, nodes, stripes);
        let (lowest, _) = loads(HelperPolicy::LowestIndex, nodes, stripes);
        println!(
            "{nodes} nodes, {stripes} stripes: bound {bound:.2}, even {even:.2}, lru {lru}, lowest {lowest}"
        );
        assert!(even <= bound * 1.2 && even <= lru * 0.9, "{even} {lru} {lowest}, bound {bound}");
    }
}

/// Returns the helpers and the requestor that m-PPR chooses for the first block of stripe `a`. The other blocks
/// are on n2, n3 and n4.
fn m_ppr_order(prepare: fn(&mut SchedulerTest)) -> (Vec<u32>, u32) {
    let mut test = SchedulerTest::new(9);
    test.scheduler.open(REPAIR, RepairSpec { helpers: HelperPolicy::MPpr, ..RepairSpec::default() });
    test.kill(1);
    test.scheduler.push(REPAIR, test.new_item("a", [1, 2, 3, 4]));
    prepare(&mut test);
    test.work();
    let proposal = test.proposal("a").clone();
    (proposal.helpers.iter().map(|node| node.0).collect(), proposal.wanted[0].requestor.0)
}

fn set_heat(test: &mut SchedulerTest, node: u32, block: u16, heat: Heat) {
    test.scheduler.handle_heat(NodeId(node), &StripeId("a".into()), BlockIndex(block), heat);
}

#[test]
fn m_ppr_prefers_blocks_in_memory_and_avoids_those_read_often() {
    assert_eq!(m_ppr_order(|_| {}).0, [2, 3, 4]);
    let in_memory = |test: &mut SchedulerTest| {
        set_heat(test, 4, 3, Heat::Hot);
        set_heat(test, 3, 0, Heat::Hot);
    };
    assert_eq!(m_ppr_order(in_memory).0, [4, 2, 3], "n3 has another block in memory");
    assert_eq!(m_ppr_order(|test| set_heat(test, 2, 1, Heat::VeryHot)).0, [3, 4, 2]);
    let no_more = |test: &mut SchedulerTest| {
        set_heat(test, 4, 3, Heat::Hot);
        set_heat(test, 4, 3, Heat::Cold);
    };
    assert_eq!(m_ppr_order(no_more).0, [2, 3, 4]);
    let disconnected = |test: &mut SchedulerTest| {
        set_heat(test, 4, 3, Heat::Hot);
        test.scheduler.handle_user_load(NodeId(2), Some(1000));
        test.scheduler.handle_user_load(NodeId(4), None);
        test.scheduler.handle_user_load(NodeId(2), None);
    };
    assert_eq!(m_ppr_order(disconnected).0, [2, 3, 4]);
}

#[test]
fn m_ppr_avoids_nodes_from_which_clients_read() {
    assert_eq!(m_ppr_order(|_| {}), (vec![2, 3, 4], 5));
    assert_eq!(m_ppr_order(|test| test.scheduler.handle_user_load(NodeId(2), Some(1000))).0, [3, 4, 2]);
    assert_eq!(m_ppr_order(|test| test.scheduler.handle_user_load(NodeId(5), Some(1000))).1, 6);
    // The report of n2 includes the read that is in flight.
    let in_flight = |test: &mut SchedulerTest| {
        let load = NodeLoad {
            node: NodeId(2),
            jobs: 1,
            sent_bytes: 5000,
            received_bytes: 0,
            read_bytes: 5000,
            stored_bytes: 0,
        };
        test.scheduler.reserve(&Loads { nodes: vec![load], links: Vec::new() });
        test.scheduler.handle_user_load(NodeId(2), Some(1000));
        test.scheduler.handle_user_load(NodeId(3), Some(5500));
    };
    assert_eq!(m_ppr_order(in_flight).0, [4, 2, 3]);
}

#[test]
fn published_policies_repair_by_the_schemes_of_their_papers() {
    for policy in HelperPolicy::ALL {
        let scheme = match policy {
            HelperPolicy::PushRep | HelperPolicy::PushSur => Some(Scheme::PipeB),
            HelperPolicy::MPpr => Some(Scheme::Ppr),
            _ => None,
        };
        assert_eq!(policy.own_scheme(), scheme, "{policy}");
    }
}

#[test]
fn push_rep_waits_for_its_only_node_and_push_sur_takes_all_in_turn() {
    let takers = |policy| {
        let mut test = SchedulerTest::with(9, Limits::default(), |node| match node {
            5.. => NodeFacts { budget: Budget::jobs(2), ..facts() },
            _ => NodeFacts { budget: Budget::jobs(9), ..facts() },
        });
        test.scheduler.open(REPAIR, RepairSpec { helpers: policy, ..RepairSpec::default() });
        test.kill(1);
        for name in ["a", "b", "c", "d"] {
            test.scheduler.push(REPAIR, test.new_item(name, [1, 2, 3, 4]));
        }
        test.work();
        let takers = test.running.values().map(|proposal| proposal.wanted[0].requestor.0);
        takers.collect::<Vec<_>>()
    };
    assert_eq!(takers(HelperPolicy::PushRep), [5, 5]);
    assert_eq!(takers(HelperPolicy::PushSur), [5, 6, 7, 8]);
}

/// SeaweedFS's own `ec.rebuild` leaves nodes like this: all blocks that it makes are on one server.
#[test]
fn a_node_with_several_blocks_of_a_stripe_is_dealt_one_of_them() {
    let stretches = |nodes: [u32; 9]| {
        let mut test = SchedulerTest::new(12);
        test.code = "rs-9-6".parse::<codes::CodeSpec>().unwrap().build().unwrap();
        let good_on = |node| BlockFacts::good_on(NodeId(node));
        let blocks = nodes.map(good_on).to_vec();
        let item = recovery::NewItem { blocks, ..test.new_item("a", [1, 2, 3, 4]) };
        test.scheduler.open(REPAIR, RepairSpec::default());
        test.kill(1);
        test.scheduler.push(REPAIR, item);
        test.work();
        test.proposal("a").stretches.clone()
    };
    let dealt = stretches([1, 2, 2, 2, 3, 4, 5, 6, 7]);
    assert!(!dealt.is_empty());
    for stretch in dealt {
        let helpers: BTreeSet<NodeId> = stretch.helpers.iter().copied().collect();
        assert_eq!(helpers.len(), 6, "{stretch:?}");
    }
    assert!(
        stretches([1, 2, 2, 2, 3, 4, 5, 6, 6]).is_empty(),
        "five others have to send more than a block each"
    );
}

#[test]
fn a_code_with_fixed_reads_is_not_dealt() {
    use codes::CodeSpec;
    let mut test = SchedulerTest::new(12);
    test.code = "lrc-4-2-2".parse::<CodeSpec>().unwrap().build().unwrap();
    let good_on = |node| BlockFacts::good_on(NodeId(node));
    let blocks = (1..=8).map(good_on).collect();
    let item = recovery::NewItem { blocks, ..test.new_item("a", [1, 2, 3, 4]) };
    test.scheduler.open(REPAIR, RepairSpec::default());
    test.kill(1);
    test.scheduler.push(REPAIR, item);
    test.work();
    assert!(test.proposal("a").stretches.is_empty());
}
