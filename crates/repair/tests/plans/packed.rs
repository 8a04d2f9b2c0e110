//! Compares plans over chosen routes with the bounds of `docs/reference/schemes.md`.

use repair::{NodeId, Plan, Scheme, Trunk};

use crate::planner_input::PlannerInput;

/// A plan for `f` lost blocks of RS(n, k), each rebuilt on its own new node.
fn lost(n: usize, k: usize, f: usize) -> Plan {
    let wanted: Vec<String> = (0..f).map(|block| format!("b{block}>n{}", 100 + block)).collect();
    PlannerInput::new(&format!("rs-{n}-{k}; block 8388608; slice 4096; want {}; by packed", wanted.join(" ")))
        .plan()
}

fn most(plan: &Plan) -> f64 {
    let cost = plan.cost();
    let load = cost.nodes.iter().map(|node| node.load_bytes()).max().expect("nodes");
    cost.in_blocks(load)
}

/// The number of blocks over the busiest link, in closed form: `T* = max(1, (1 + k/(f−1) + f/(k−1)) /
/// (h/(f−1) + f/(k−1)))`, with h = n − f.
#[test]
fn several_lost_blocks_load_links_according_to_the_closed_form() {
    for (n, k, f) in [(6, 4, 2), (9, 6, 2), (9, 6, 3), (14, 10, 2), (14, 10, 3), (14, 10, 4), (16, 12, 4)] {
        let (h, others, own) = ((n - f) as f64, (f - 1) as f64, (k - 1) as f64);
        let (k_f, f_f) = (k as f64, f as f64);
        let closed = ((1.0 + k_f / others + f_f / own) / (h / others + f_f / own)).max(1.0);
        let plan = lost(n, k, f);
        println!("({n},{k}) f={f}: {closed:.3}, packed {:.3}", most(&plan));
        // The margin is half a percent for rounding shares to whole slices, and as much for an optimization
        // that stops early.
        assert!(most(&plan) <= closed * 1.01, "({n},{k}) f={f}: {} against {closed}", most(&plan));
        let cost = plan.cost();
        assert!(cost.nodes.iter().all(|node| cost.in_blocks(node.read_bytes) <= 1.0), "read at most once");
        assert_eq!(plan.hops(), 2);
    }
}

#[test]
fn one_lost_block_takes_a_timeslot() {
    for (n, k) in [(6, 4), (14, 10), (20, 16)] {
        assert!(most(&lost(n, k, 1)) <= 1.01, "({n},{k})");
    }
}

/// Rates in Mb/s from a row's region to a column's region (repair pipelining paper, Table 1). Each region has
/// four nodes. The rate holds for every pair of nodes in the two regions, and ports are as fast as the links
/// within their region.
const AMERICA: [[f64; 4]; 4] = [
    [501.3, 57.2, 44.1, 299.9],
    [55.3, 732.0, 63.3, 48.0],
    [46.3, 65.7, 332.5, 95.6],
    [297.8, 50.2, 93.6, 250.1],
];
const ASIA: [[f64; 4]; 4] = [
    [624.8, 62.3, 39.5, 37.7],
    [63.8, 265.7, 86.1, 183.2],
    [41.5, 88.1, 493.0, 49.1],
    [39.7, 181.0, 46.9, 489.1],
];

/// Whether nodes of two regions share one link, or each pair has its own.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    Pairs,
    Shared,
}

/// RS(16,12) on 16 nodes, with one lost block of region `lost` rebuilt on its old node. A rate of 1 Mb/s in
/// the table becomes 10^5 bytes per second here.
fn input(table: &[[f64; 4]; 4], lost: usize, between: Between, by: Scheme) -> PlannerInput {
    let requestor = 4 * lost + 1;
    let mut input = PlannerInput::new(&format!(
        "rs-16-12; block 67108864; want b{}>n{requestor}; by {by}",
        requestor - 1
    ));
    let region = |node: u32| (node as usize - 1) / 4;
    for node in 1..=16u32 {
        let port = table[region(node)][region(node)] * 1e5;
        let profile = input.topology.get_mut(NodeId(node)).expect("a node");
        profile.rack = Some(format!("r{}", region(node)));
        (profile.rates.up, profile.rates.down) = (port, port);
        for other in (1..=16u32).filter(|&other| other != node) {
            let rate = table[region(node)][region(other)] * 1e5;
            input.topology.set_pair(NodeId(node), NodeId(other), rate).expect("a rate");
        }
    }
    if between == Between::Shared {
        for (from, to) in
            (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to)
        {
            let rate = table[from][to] * 1e5;
            input.topology.set_between(&format!("r{from}"), &format!("r{to}"), rate).expect("a rate");
        }
    }
    input
}

/// The predicted rate of the plan in Mb/s.
fn reached(input: &PlannerInput) -> f64 {
    let plan = input.plan();
    67_108_864.0 / plan.forecast(&input.topology).busy.as_secs_f64() / 1e5
}

/// Compares plans with three lists of optima in Mb/s, for a lost block in each of the four regions: the
/// linear programme over all in-trees if each pair of nodes has its own link; the same if nodes share links
/// between regions; and the best single path.
#[test]
fn uneven_links_reach_the_optimum_of_the_linear_programme() {
    let figures = [
        (&AMERICA, [466.1, 466.1, 332.5, 250.1], [166.6, 173.1, 166.6, 166.6], [63.3, 65.7, 63.3, 63.3]),
        (&ASIA, [554.6, 265.7, 493.0, 489.1], [145.0, 139.5, 139.5, 139.5], [63.8, 62.3, 62.3, 62.3]),
    ];
    println!("| lost in | best path | packed, own links | packed, shared links |");
    for (table, pairs, shared, path) in figures {
        for lost in 0..4 {
            let reach = |between, by| reached(&input(table, lost, between, by));
            let weighted = reach(Between::Pairs, Scheme::Weighted);
            assert!((weighted - path[lost]).abs() < 0.1, "path {lost}: {weighted} of {}", path[lost]);
            let own = reach(Between::Pairs, Scheme::Packed);
            assert!(own >= 0.95 * pairs[lost], "pairs {lost}: {own} of {}", pairs[lost]);
            let trunks = reach(Between::Shared, Scheme::Packed);
            assert!(trunks >= 0.95 * shared[lost], "shared {lost}: {trunks} of {}", shared[lost]);
            // A row of the table in `docs/reference/schemes.md`.
            let (own_best, shared_best) = (pairs[lost], shared[lost]);
            println!("| {lost} | {weighted:.1} | {own:.1} ({own_best}) | {trunks:.1} ({shared_best}) |");
        }
    }
}

/// Slices enter and leave each rack once, and as few racks as possible are used.
#[test]
fn the_rack_aware_path_crosses_racks_as_rarely_as_possible() {
    let line =
        "rs-9-6; block 65536; slice 4096; want b0>n10; rack n2=a n3=a n4=b n5=b n6=b n7=c n8=c n9=c n10=a";
    let input = PlannerInput::new(&format!("{line}; by rack-aware"));
    let plan = input.plan();
    let rack = |node: NodeId| input.topology.rack(node).expect("a rack");
    let crossing = plan.edges().into_iter().filter(|&(from, to)| rack(from) != rack(to)).count();
    assert_eq!(crossing, 2);
    let order: Vec<u32> = plan.edges().iter().map(|(from, _)| from.0).collect();
    assert_eq!(order.len(), 6, "{order:?}");
    // Two helpers from the requestor's rack, three from b, and any one from c.
    let mut wide = PlannerInput::new(&format!("{line}; by rack-aware; lost b8"));
    assert_eq!(wide.plan().edges().len(), 6);
    wide.topology.set_trunk("b", Trunk { up: 0.0, down: 1e6 }).expect("a rate");
    let error = wide.try_plan().expect_err("two of a and two of c are not six");
    assert_eq!(
        error.to_string(),
        "stripe 17: 6 blocks are needed and only 4 are available; lost: b0 b8, cut off: b3 on n4 b4 on n5 b5 on n6"
    );
}

/// Nodes without a rack count as one more rack, which may also be that of the requestor.
#[test]
fn nodes_without_a_rack_are_one_more_rack() {
    let line = "rs-9-6; block 65536; slice 4096; want b0>n10; rack n2=a n3=a n4=a n5=b n6=b; by rack-aware";
    let path = |line: &str| {
        let edges = PlannerInput::new(line).plan().edges();
        let mut at = edges.iter().map(|(from, _)| *from).find(|node| edges.iter().all(|(_, to)| to != node));
        let mut path = Vec::new();
        while let Some(node) = at {
            path.push(node.0);
            at = edges.iter().find(|(from, _)| *from == node).map(|(_, to)| *to);
        }
        path
    };
    // Three helpers are in the requestor's rack, and three in the rack with the most others.
    assert_eq!(path(line), [4, 3, 2, 9, 8, 7, 10]);
    // The requestor is in rack a: three helpers of a, then those without a rack.
    assert_eq!(path(&line.replace("n2=a", "n10=a n2=a")), [9, 8, 7, 4, 3, 2, 10]);
}
