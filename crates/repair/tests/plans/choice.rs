//! The choice made by `auto`, and its explanation.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use repair::{NodeId, NodeProfile, Reach, Resource, Scheme, Trunk, explain};

use crate::planner_input::PlannerInput;

/// A network in which all rates may differ. Rates are 1 MB/s times a power of two.
#[derive(Debug)]
struct Network {
    code: (usize, usize),
    lost: usize,
    block_kib: u64,
    ports: Vec<(u8, u8)>,
    racks: Vec<u8>,
    trunks: Option<Vec<(u8, u8)>>,
    pairs: Option<u64>,
    spares: u32,
}

fn networks() -> impl Strategy<Value = Network> {
    let codes = prop::sample::select(vec![(4, 2), (6, 4), (9, 6), (12, 8), (14, 10)]);
    let ports = prop_oneof![Just(vec![(6, 6); 24]), prop::collection::vec((3u8..9, 3u8..9), 24),];
    let trunks = prop::option::of(prop::collection::vec((3u8..8, 3u8..8), 4));
    let racks = prop::collection::vec(0u8..4, 24);
    let blocks = prop::sample::select(vec![64u64, 1024, 16384, 65536]);
    (codes, 1usize..4, blocks, ports, racks, trunks, prop::option::of(any::<u64>()), 0u32..4).prop_map(
        |(code, lost, block_kib, ports, racks, trunks, pairs, spares)| {
            let lost = lost.min(code.0 - code.1);
            Network { code, lost, block_kib, ports, racks, trunks, pairs, spares }
        },
    )
}

fn input(network: &Network) -> PlannerInput {
    let ((n, k), f) = (network.code, network.lost);
    let wanted: Vec<String> = (0..f).map(|block| format!("b{block}>n{}", n + 1 + block)).collect();
    let line = format!("rs-{n}-{k}; block {}; want {}", network.block_kib << 10, wanted.join(" "));
    let mut input = PlannerInput::new(&line);
    (0..network.spares).for_each(|spare| input.know(NodeId(50 + spare)));
    let nodes: Vec<NodeId> = input.topology.iter().map(|(node, _)| node).collect();
    let rate = |power: u8| 1e6 * f64::from(1u32 << power);
    for (position, &node) in nodes.iter().enumerate() {
        let profile = input.topology.get_mut(node).expect("a node");
        (profile.rates.up, profile.rates.down) =
            (rate(network.ports[position].0), rate(network.ports[position].1));
        profile.rack = Some(format!("r{}", network.racks[position]));
    }
    for (rack, &(up, down)) in network.trunks.iter().flatten().enumerate() {
        let trunk = Trunk { up: rate(up), down: rate(down) };
        input.topology.set_trunk(&format!("r{rack}"), trunk).expect("rates");
    }
    if let Some(mut seed) = network.pairs {
        for (from, to) in nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to))) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if from != to {
                input.topology.set_pair(from, to, rate((seed >> 60) as u8 % 6 + 3)).expect("a rate");
            }
        }
    }
    input
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..Default::default()
    })]

    /// No other scheme is predicted to be more than 2% faster, and no plan beats the bound.
    #[test]
    fn auto_is_as_fast_as_the_best(network in networks()) {
        let mut input = input(&network);
        let picked = explain(&input.stripe, &input.request, &input.topology).expect("a plan");
        prop_assert_eq!(&picked.plan, &input.plan());
        let least = picked.bound.expect("blocks can be chosen").time.as_secs_f64();
        for scheme in Scheme::ALL.into_iter().filter(|scheme| *scheme != Scheme::Migration) {
            input.request.policy.scheme = scheme;
            let time = input.plan().predict(&input.topology).as_secs_f64();
            let auto = picked.forecast.time.as_secs_f64();
            prop_assert!(auto <= 1.02 * time, "{} takes {}, {} takes {}", picked.plan.scheme(), auto, scheme, time);
            // Shares are rounded to whole slices of a round, so a plan may miss its share slightly.
            prop_assert!(time >= least * 0.9999, "{} takes {}, and the bound is {}", scheme, time, least);
        }
    }
}

#[test]
fn a_plan_explains_itself() {
    let text = |line: &str| {
        let input = PlannerInput::new(line);
        explain(&input.stripe, &input.request, &input.topology).expect("a plan").text(&input.topology)
    };
    let even = text("rs-6-4; block 125000000; slice 65536; want b0>n100; by rp");
    assert_eq!(
        even,
        "bottleneck: downlink of dn100, busy for 1000.0 ms of 1001.6 ms\nlower bound: 1000.0 ms, set by the \
         downlink of dn100; this plan takes 1.002 times as long\n"
    );
    let racks = "rs-6-4; block 125000000; slice 65536; want b0>n100; rack n2=a n3=b n4=b n5=b n6=b n100=a; \
                 trunk b=50e6/100e6";
    let racks = text(racks);
    assert!(racks.contains("trunk out of b"), "{racks}");
    assert!(racks.contains("lower bound: 2500.0 ms, set by the bandwidth out of b;"), "{racks}");
    assert!(racks.contains("compared: conventional "), "{racks}");
}

/// The nodes that send data.
fn senders(line: &str) -> Vec<u32> {
    let costs = PlannerInput::new(line).plan().cost().nodes;
    costs.iter().filter(|cost| cost.sent_bytes > 0).map(|cost| cost.node.0).collect()
}

#[test]
fn reserved_bandwidth_is_avoided() {
    let line = "rs-6-3; block 16777216; want b0>n100";
    assert_eq!(senders(line), [2, 3, 4]);
    assert_eq!(senders(&format!("{line}; load n3=1; busy n2=99000000")), [4, 5, 6]);
    for by in ["rp", "srr", "ppr", "weighted"] {
        // Reserved bytes count more than the number of tasks.
        let busy = format!("{line}; by {by}; load n4=5 n5=5 n6=5; busy n2=50000000 n3=60000000");
        assert_eq!(senders(&busy), [4, 5, 6], "{by}");
    }
    // The scheduler's explicit preference overrides reservations.
    assert_eq!(senders(&format!("{line}; by rp; prefer n2 n3 n4; busy n2=50000000")), [2, 3, 4]);
    // Reservations of resources that a node does not use in this plan do not matter.
    let mut input = PlannerInput::new(&format!("{line}; by rp"));
    let alone = input.plan().predict(&input.topology);
    input.topology.reserve(Resource::Downlink(NodeId(2)), 99_000_000);
    assert_eq!(input.plan().predict(&input.topology), alone, "the head of a chain receives nothing");
}

/// Chains assigned by the scheduler are kept if no link slows their plan down, because another plan would
/// gain nothing and upset the balance of load. If a link slows it down, the stripe is planned on its own.
#[test]
fn a_slow_link_replaces_only_the_chains_that_use_it() {
    let chains = "rs-6-3; block 16777216; want b0>n100; chain 8388608*n2>n3>n4 8388608*n5>n6>n2";
    let dealt = PlannerInput::new(chains).plan();
    for more in [
        "busy n2=99000000 n3=1",
        "link n4>n3=1e6",                                        // Not on any chain.
        "link n2>n3=120e6 n4>n100=126e6", // As fast as the ports, within measurement error.
        "link n2>n3=63e6",                // Carries half of what its ports can.
        "rack n2=a n3=a n4=a n5=a n6=a n100=a; trunk a=1e6/1e6", // No chain leaves the rack.
    ] {
        assert_eq!(PlannerInput::new(&format!("{chains}; {more}")).plan(), dealt, "{more}");
    }
    for more in ["link n2>n3=10e6", "link n4>n100=10e6", "rack n2=a n3=a; trunk a=10e6/10e6"] {
        let input = PlannerInput::new(&format!("{chains}; {more}"));
        let plan = input.plan();
        let least = explain(&input.stripe, &input.request, &input.topology).expect("a plan").forecast.time;
        assert_eq!(plan.predict(&input.topology), least, "{more}");
        assert!(least < dealt.predict(&input.topology) / 2, "{more}");
    }
}

/// A node without a block takes part if its links are better, provided that it is reachable and not avoided.
#[test]
fn nodes_without_a_block_relay_around_slow_links() {
    let thin: Vec<String> = (2..=9).map(|holder| format!("n{holder}>n100=5e6")).collect();
    let line = format!("rs-9-6; block 16777216; want b0>n100; dead n1; link {}", thin.join(" "));
    let alone = PlannerInput::new(&line);
    let (without, slow) = (alone.plan(), alone.plan().predict(&alone.topology));
    for (code, more) in [("rs-9-6", "load n50=0"), ("lrc-6-2-2", "load n50=0"), ("rs-9-6", "rate n50=60e6")] {
        let input = PlannerInput::new(&format!("{}; {more}", line.replace("rs-9-6", code)));
        let plan = input.plan();
        assert!(plan.scheme() == Scheme::Packed && plan.nodes().contains(&NodeId(50)), "{plan}");
        assert!(plan.predict(&input.topology) < slow / 2 * 11 / 10, "{plan}");
    }
    for more in ["dead n50", "avoid n50", "rate n50=4e6", "link n50>n100=5e6"] {
        assert_eq!(PlannerInput::new(&format!("{line}; {more}")).plan(), without, "{more}");
    }
    let mut client = PlannerInput::new(&line);
    client.topology.set(NodeId(50), NodeProfile::client("n50"));
    assert_eq!(client.plan(), without, "nobody can dial a client");
    let even = PlannerInput::new("rs-9-6; block 16777216; want b0>n100; load n50=0; link n2>n3=5e6");
    assert!(!even.plan().nodes().contains(&NodeId(50)), "{}", even.plan());
}

/// Lanes interfere with each other, so a single chain is preferred if its links make it equally fast.
#[test]
fn a_chain_is_chosen_if_lanes_gain_nothing() {
    let nodes: Vec<u32> = (1..=9).filter(|node| *node != 8).collect();
    let said = |what: &dyn Fn(u32) -> String| nodes.iter().map(|&node| what(node)).collect::<String>();
    // The lost block was on n8, and the client is in the first rack.
    let on: String = (0..9).map(|block| format!(" b{block}=n{}", (7 + block) % 9 + 1)).collect();
    let racks = said(&|node| format!(" n{node}=r{}", (node - 1) / 3));
    let trunks = "trunk r0=50e6/50e6 r1=50e6/50e6 r2=50e6/50e6";
    let line = format!("rs-9-6; block 67108864; on{on}; want b0>n100; rack n100=r0{racks}; {trunks}");
    assert_eq!(PlannerInput::new(&line).plan().scheme(), Scheme::RackAware);
    let rates: String = (2..=14).map(|node| format!(" n{node}=25e6")).collect();
    let slow = format!("rs-14-10; block 67108864; want b0>n100; rate n100=25e6{rates} n5=2500000");
    assert_eq!(PlannerInput::new(&slow).plan().scheme(), Scheme::Weighted);
}

#[test]
fn helpers_ports_keep_slack_if_that_costs_nothing() {
    let input = PlannerInput::new("rs-14-10; block 67108864; want b0>n100; by packed");
    let plan = input.plan();
    let bytes = input.stripe.block_bytes() as f64;
    for cost in plan.cost().nodes.iter().filter(|cost| cost.node != NodeId(100)) {
        assert!(cost.load_bytes() as f64 <= 0.81 * bytes, "{cost:?}");
    }
    let received = plan.cost().of(NodeId(100)).expect("the requestor").received_bytes as f64;
    assert!(received <= 1.003 * bytes, "{plan}");
}

/// The bottleneck's time in the plan of `auto`, divided by the lower bound.
fn of_bound(input: &PlannerInput) -> (Scheme, f64) {
    let explained = explain(&input.stripe, &input.request, &input.topology).expect("a plan");
    let least = explained.bound.expect("blocks can be chosen").time.as_secs_f64();
    (explained.plan.scheme(), explained.forecast.busy.as_secs_f64() / least)
}

/// Networks in which trees must be formed at several nodes, and wide codes, which `packed` once left out.
#[test]
fn packings_reach_the_bound() {
    let ports: String =
        (2..=80).map(|node| format!(" n{node}={}", 5_000_000 + node * node * 7919 % 120_000_000)).collect();
    let own = "rs-6-3; block 67108864; want b0>n2; rate n3=40e6 n4=40e6 n5=40e6 n6=40e6";
    let wide = format!("rs-80-66; block 67108864; want b0>n100; rate{ports}");
    // One lost block, all helpers behind trunks: sums are formed in each rack.
    let racks = "rs-9-6; block 67108864; want b0>n100; rack n2=a n3=a n4=a n5=b n6=b n7=b n8=c n9=c n100=d; \
                 trunk a=20e6/20e6 b=30e6/20e6 c=25e6/30e6";
    // Two lost blocks, whose requestors are in different racks.
    let two = "rs-8-6; block 67108864; want b0>n20 b1>n21; rack n3=a n4=a n5=a n20=a n6=b n7=b n8=b n21=b; \
               trunk a=10e6/10e6 b=10e6/10e6";
    for line in [own, &wide, racks, two] {
        let (scheme, ratio) = of_bound(&PlannerInput::new(line));
        assert!(ratio <= 1.05, "{line}: {scheme} takes {ratio}");
    }
}

/// A requestor that stores rebuilt blocks needs its disk; a client does not.
#[test]
fn the_requestors_disk_sets_the_bound() {
    let mut input = PlannerInput::new("rs-6-3; block 125000000; want b0>n100 b1>n100");
    input.topology.get_mut(NodeId(100)).expect("a node").rates.write = 50e6;
    let text = |input: &PlannerInput| {
        explain(&input.stripe, &input.request, &input.topology).expect("a plan").text(&input.topology)
    };
    let stored = text(&input);
    assert!(stored.contains("lower bound: 5000.0 ms, set by the disk of dn100;"), "{stored}");
    input.topology.get_mut(NodeId(100)).expect("a node").reach = Reach::DialsOut;
    let read = text(&input);
    assert!(read.contains("lower bound: 2000.0 ms, set by the downlink of dn100;"), "{read}");
}

/// The links out of n2 carry 75 MB/s together, although none of the nodes' ports is slower than 125 MB/s.
#[test]
fn several_links_set_a_bound_together() {
    let line = "rs-3-2; block 150000000; want b0>n100; dead n1; rate n2=200e6 n3=200e6; \
                link n2>n100=50e6 n3>n100=50e6 n2>n3=25e6 n3>n2=25e6";
    let input = PlannerInput::new(line);
    let text = explain(&input.stripe, &input.request, &input.topology).expect("a plan").text(&input.topology);
    assert!(text.contains("lower bound: 2000.0 ms, set by several links together;"), "{text}");
    assert!(of_bound(&input).1 <= 1.01, "{text}");
}
