//! What `auto` picks, and what is said of it.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use repair::{NodeId, Scheme, Trunk, explain};

use crate::scene::Scene;

/// A network of which nothing is even. Rates are powers of two times 1 MB/s.
#[derive(Debug)]
struct Network {
    code: (usize, usize),
    lost: usize,
    block_kib: u64,
    ports: Vec<(u8, u8)>,
    racks: Vec<u8>,
    trunks: Option<Vec<(u8, u8)>>,
    pairs: Option<u64>,
}

fn networks() -> impl Strategy<Value = Network> {
    let codes = prop::sample::select(vec![(4, 2), (6, 4), (9, 6), (12, 8), (14, 10)]);
    let ports = prop_oneof![Just(vec![(6, 6); 20]), prop::collection::vec((3u8..9, 3u8..9), 20),];
    let trunks = prop::option::of(prop::collection::vec((3u8..8, 3u8..8), 4));
    let racks = prop::collection::vec(0u8..4, 20);
    let blocks = prop::sample::select(vec![64u64, 1024, 16384, 65536]);
    (codes, 1usize..4, blocks, ports, racks, trunks, prop::option::of(any::<u64>())).prop_map(
        |(code, lost, block_kib, ports, racks, trunks, pairs)| {
            let lost = lost.min(code.0 - code.1);
            Network { code, lost, block_kib, ports, racks, trunks, pairs }
        },
    )
}

fn scene(network: &Network) -> Scene {
    let ((n, k), f) = (network.code, network.lost);
    let wanted: Vec<String> = (0..f).map(|block| format!("b{block}>n{}", n + 1 + block)).collect();
    let line = format!("rs-{n}-{k}; block {}; want {}", network.block_kib << 10, wanted.join(" "));
    let mut scene = Scene::new(&line);
    let nodes: Vec<NodeId> = scene.topology.iter().map(|(node, _)| node).collect();
    let rate = |power: u8| 1e6 * f64::from(1u32 << power);
    for (place, &node) in nodes.iter().enumerate() {
        let profile = scene.topology.get_mut(node).expect("a node");
        (profile.rates.up, profile.rates.down) = (rate(network.ports[place].0), rate(network.ports[place].1));
        profile.rack = Some(format!("r{}", network.racks[place]));
    }
    for (rack, &(up, down)) in network.trunks.iter().flatten().enumerate() {
        let trunk = Trunk { up: rate(up), down: rate(down) };
        scene.topology.set_trunk(&format!("r{rack}"), trunk).expect("rates");
    }
    if let Some(mut seed) = network.pairs {
        for (from, to) in nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to))) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if from != to {
                scene.topology.set_pair(from, to, rate((seed >> 60) as u8 % 6 + 3)).expect("a rate");
            }
        }
    }
    scene
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..Default::default()
    })]

    /// No scheme is predicted to be faster by more than 2%, and no plan beats the bound.
    #[test]
    fn auto_is_as_fast_as_the_best(network in networks()) {
        let mut scene = scene(&network);
        let picked = explain(&scene.stripe, &scene.request, &scene.topology).expect("a plan");
        prop_assert_eq!(&picked.plan, &scene.plan());
        let least = picked.bound.expect("blocks can be chosen").time.as_secs_f64();
        for scheme in Scheme::ALL.into_iter().filter(|scheme| *scheme != Scheme::Migration) {
            scene.request.policy.scheme = scheme;
            let time = scene.plan().predict(&scene.topology).as_secs_f64();
            let auto = picked.forecast.time.as_secs_f64();
            prop_assert!(auto <= 1.02 * time, "{} takes {}, {} takes {}", picked.plan.scheme(), auto, scheme, time);
            // Slices of a round are whole, so that a share may be a trifle less than it should.
            prop_assert!(time >= least * 0.9999, "{} takes {}, and the bound is {}", scheme, time, least);
        }
    }
}

#[test]
fn a_plan_says_what_speaks_for_it() {
    let text = |line: &str| {
        let scene = Scene::new(line);
        explain(&scene.stripe, &scene.request, &scene.topology).expect("a plan").text(&scene.topology)
    };
    let even = text("rs-6-4; block 125000000; slice 65536; want b0>n100; by rp");
    assert_eq!(
        even,
        "bottleneck: downlink of dn100, busy for 1000.0 ms of 1001.6 ms\n\
         bound: 1000.0 ms, as what is wanted has to come to dn100; this plan takes 1.002 of it\n"
    );
    let racks = "rs-6-4; block 125000000; slice 65536; want b0>n100; rack n2=a n3=b n4=b n5=b n6=b n100=a; \
                 trunk b=50e6/100e6";
    let racks = text(racks);
    assert!(racks.contains("trunk out of b"), "{racks}");
    assert!(racks.contains("bound: 2500.0 ms, as something has to leave b;"), "{racks}");
    assert!(racks.contains("weighed: conventional "), "{racks}");
}
