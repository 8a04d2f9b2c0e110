//! Tests repairs with every scheme, during which a helper dies, stalls or finds a corrupt byte. Also tests
//! scenarios in which random runs once found bugs in the job.

use std::time::Duration;

use codes::{BlockIndex, CodeSpec};
use repair::{Geometry, NodeId, Outcome, ParityOutcome, Scheme};
use sim::{CLIENT, Ended, Fault, Kind, Scenario, Tracing, When, World};

const DECODING: [Scheme; 10] = [
    Scheme::Conventional,
    Scheme::Ppr,
    Scheme::CrrR,
    Scheme::CrrS,
    Scheme::CrrSDirect,
    Scheme::Scatter,
    Scheme::Pipelined,
    Scheme::Cyclic,
    Scheme::PipeB,
    Scheme::PipeS,
];

/// The moment when about a third of a block's 64 slices is delivered. No helper can have sent all slices by
/// then.
const MIDDLE: When = When::Delivered(20);

/// Returns a repair of one block of RS(9,6), with windows so small that no node can run far ahead.
fn repair_by(scheme: Scheme) -> Scenario {
    let mut scenario = Scenario::repair(CodeSpec::reed_solomon(9, 6), scheme);
    (scenario.machines.window, scenario.machines.budget_bytes) = (10_000, 1);
    scenario
}

fn play(scenario: &Scenario) -> (Ended, Outcome) {
    let ended = World::new(scenario, Tracing::Keep).run();
    assert!(ended.violations.is_empty(), "{:#?}\n{}", ended.violations, ended.trace.join("\n"));
    let outcome = match &ended.result {
        Some(Ok(outcome)) => outcome.clone(),
        other => panic!("{other:?}\n{}", ended.trace.join("\n")),
    };
    (ended, outcome)
}

/// Returns the network bytes of the repair without faults.
fn quiet_bytes(scenario: &Scenario) -> u64 {
    scenario.plan().expect("it can be planned").cost().network_bytes
}

/// Returns a node that reads a block in the first plan and is not a requestor.
fn a_helper(scenario: &Scenario) -> NodeId {
    let plan = scenario.plan().expect("it can be planned");
    let helper = plan.tasks().find(|task| !task.reads.is_empty() && task.delivers.is_empty());
    helper.expect("somebody reads").node
}

/// Checks that fewer bytes were sent in total than two repairs send. So delivered slices were not sent again.
fn check_kept(scenario: &Scenario, ended: &Ended) {
    let quiet = quiet_bytes(scenario);
    assert!(ended.network_bytes() < 2 * quiet, "{} of {quiet} bytes", ended.network_bytes());
}

#[test]
fn a_dead_helper_is_replaced_and_delivered_slices_are_kept() {
    for scheme in DECODING {
        let quiet = repair_by(scheme);
        let helper = a_helper(&quiet);
        let scenario = quiet.with(MIDDLE, Fault::Kill { node: helper, back_after: None });
        let (ended, outcome) = play(&scenario);
        if scheme == Scheme::PipeB {
            continue; // PipeB has sent everything when it delivers the first slice.
        }
        let [reason] = &outcome.replanned[..] else { panic!("{scheme}: {:?}", outcome.replanned) };
        assert!(reason.starts_with(&format!("{helper} ")), "{scheme}: {reason}");
        check_kept(&scenario, &ended);
    }
}

#[test]
fn a_stalled_helper_is_reported_by_its_neighbours() {
    for scheme in DECODING {
        let quiet = repair_by(scheme);
        let helper = a_helper(&quiet);
        let when = if scheme == Scheme::PipeB { When::At(Duration::from_millis(20)) } else { MIDDLE };
        let scenario = quiet.with(when, Fault::Pause { node: helper, lasts: None });
        let (ended, outcome) = play(&scenario);
        assert!(
            outcome.replanned.iter().any(|why| why.starts_with(&format!("{helper} stalled"))),
            "{scheme}"
        );
        assert!(ended.after < scenario.machines.ping_limit, "{scheme}: found before its pings are missed");
        check_kept(&scenario, &ended);
    }
}

#[test]
fn a_corrupt_byte_is_reported_for_its_block() {
    for scheme in DECODING {
        let quiet = repair_by(scheme);
        // The byte is corrupted at the start, because in the middle of the repair it may have been read
        // already.
        let scenario = quiet.with(When::At(Duration::ZERO), Fault::Corrupt { block: BlockIndex(2) });
        let (ended, outcome) = play(&scenario);
        let [reason] = &outcome.replanned[..] else { panic!("{scheme}: {:?}", outcome.replanned) };
        assert!(reason.starts_with("block s.2 is corrupt: checksum at byte "), "{scheme}: {reason}");
        check_kept(&scenario, &ended);
    }
}

#[test]
fn a_bit_flip_in_a_frame_costs_one_plan() {
    for scheme in DECODING {
        let quiet = repair_by(scheme);
        let from = a_helper(&quiet);
        let when =
            if scheme == Scheme::PipeB { When::At(Duration::from_millis(5)) } else { When::Delivered(8) };
        let (_, outcome) = play(&quiet.with(when, Fault::FlipFrame { from }));
        let sent_badly =
            outcome.replanned.iter().any(|why| why.starts_with(&format!("{from} sent a bad slice")));
        assert!(sent_badly, "{scheme}: {:?}", outcome.replanned);
    }
}

#[test]
fn silent_corruption_is_found_by_parity_alone() {
    for scheme in DECODING {
        let mut scenario = repair_by(scheme);
        scenario.checks.digests = false;
        let (_, outcome) =
            play(&scenario.with(When::At(Duration::ZERO), Fault::Lie { block: BlockIndex(3) }));
        assert_eq!(outcome.parity, ParityOutcome::Holds, "{scheme}");
        let last = outcome.replanned.last().expect("it was noticed");
        assert_eq!(last, "block s.3 is not used, because it may be wrong", "{scheme}");
    }
}

/// Parity must be checked over the sources of all plans, not only over those of the last plan.
#[test]
fn silent_corruption_read_before_a_failure_is_still_found() {
    let mut scenario = repair_by(Scheme::Pipelined);
    scenario.checks.digests = false;
    let scenario = scenario
        .with(When::At(Duration::ZERO), Fault::Lie { block: BlockIndex(3) })
        .with(When::Delivered(60), Fault::Kill { node: NodeId(4), back_after: Some(Duration::from_secs(2)) });
    play(&scenario);
}

/// With one spare block, the parity check notices silent corruption but cannot locate it, so nothing is
/// published.
#[test]
fn silent_corruption_that_cannot_be_located_fails_the_job() {
    let mut scenario = Scenario::repair(CodeSpec::reed_solomon(8, 6), Scheme::Pipelined);
    scenario.checks.digests = false;
    let scenario = scenario.with(When::At(Duration::ZERO), Fault::Lie { block: BlockIndex(3) });
    let ended = World::new(&scenario, Tracing::Keep).run();
    assert!(ended.violations.is_empty(), "{:#?}", ended.violations);
    assert!(matches!(ended.result, Some(Err(repair::JobError::Contradiction { .. }))), "{:?}", ended.result);
}

/// Returns a client's read of block 0.
fn read_by(scheme: Scheme) -> Scenario {
    let mut scenario = repair_by(scheme);
    let window = 0..scenario.block_bytes;
    scenario.kind = Kind::Read { window, sub_blocks: None };
    scenario
}

/// A cut link makes the helper and the client wait for each other. Such a read once hung forever.
#[test]
fn a_silent_connection_to_a_client_does_not_hang_the_read() {
    for scheme in DECODING {
        let quiet = read_by(scheme);
        let plan = quiet.plan().expect("it can be planned");
        let (helper, _) = *plan.edges().iter().find(|&&(_, to)| to == CLIENT).expect("somebody sends to it");
        let when = When::At(Duration::from_millis(4));
        let (_, outcome) = play(&quiet.with(when, Fault::Cut { a: helper, b: CLIENT }));
        assert_eq!(outcome.homes[&BlockIndex(0)], CLIENT, "{scheme}");
    }
}

#[test]
fn a_client_may_pause_while_its_connection_lives() {
    let scenario = read_by(Scheme::Pipelined)
        .with(MIDDLE, Fault::Pause { node: CLIENT, lasts: Some(Duration::from_secs(8)) })
        .with(MIDDLE, Fault::Kill { node: NodeId(3), back_after: None });
    let (ended, _) = play(&scenario);
    assert!(ended.after > Duration::from_secs(8));
}

/// With RS(6, 4), the repair needs four of the five remaining helpers. It can avoid any two links between
/// helpers.
#[test]
fn plans_route_around_two_cut_links_between_helpers() {
    for scheme in [Scheme::Auto, Scheme::Pipelined] {
        let quiet = Scenario::repair(CodeSpec::reed_solomon(6, 4), scheme);
        let nodes: Vec<NodeId> =
            (1..6).map(|block| quiet.holder(BlockIndex(block)).expect("it survives")).collect();
        let links: Vec<(NodeId, NodeId)> = nodes
            .iter()
            .enumerate()
            .flat_map(|(at, &a)| nodes[at + 1..].iter().map(move |&b| (a, b)))
            .collect();
        for (at, &(a, b)) in links.iter().enumerate() {
            for &(c, d) in links[at + 1..].iter().filter(|(c, d)| ![a, b].contains(c) && ![a, b].contains(d))
            {
                let scenario = quiet
                    .clone()
                    .with(When::At(Duration::ZERO), Fault::Cut { a, b })
                    .with(When::At(Duration::ZERO), Fault::Cut { a: c, b: d });
                let ended = World::new(&scenario, Tracing::Keep).run();
                assert!(
                    matches!(ended.result, Some(Ok(_))),
                    "{scheme}: {a}-{b}, {c}-{d}: {:?}",
                    ended.result
                );
            }
        }
    }
}

/// After a connection broke, the job may replace the helper, but not the requestor, which has slices already.
#[test]
fn a_broken_connection_does_not_cost_a_requestor() {
    let mut scenario = repair_by(Scheme::Pipelined);
    scenario.spares = 1;
    let requestor = scenario.requestor(0);
    let edges = scenario.plan().expect("it can be planned").edges();
    let &(helper, _) = edges.iter().find(|&&(_, to)| to == requestor).expect("somebody sends to it");
    let scenario = scenario.with(MIDDLE, Fault::Break { a: helper, b: requestor });
    let (ended, outcome) = play(&scenario);
    assert_eq!(outcome.homes[&BlockIndex(0)], requestor);
    check_kept(&scenario, &ended);
}

#[test]
fn a_full_disk_moves_the_delivery_to_another_node() {
    for scheme in DECODING {
        let quiet = repair_by(scheme);
        let full = quiet.requestor(0);
        let (_, outcome) = play(&quiet.with(When::Delivered(8), Fault::DiskFull { node: full }));
        assert_ne!(outcome.homes[&BlockIndex(0)], full, "{scheme}");
        assert!(outcome.replanned[0].contains("no space left"), "{scheme}: {:?}", outcome.replanned);
    }
}

#[test]
fn a_put_survives_a_helper_that_dies_while_the_others_commit() {
    let mut scenario = repair_by(Scheme::Auto);
    scenario.kind = Kind::Put;
    scenario.wanted = (0..9).map(BlockIndex).collect();
    scenario.lost.clear();
    scenario.machines.control_delay = Duration::from_millis(40);
    for ms in (0..600).step_by(10) {
        let dies = Fault::Kill { node: NodeId(9), back_after: None };
        play(&scenario.clone().with(When::At(Duration::from_millis(ms)), dies));
    }
}

/// Slices that a node received for one block must not be taken for slices of another block that the node is
/// assigned later.
#[test]
fn a_replaced_requestor_starts_over_with_another_block() {
    let mut scenario = repair_by(Scheme::Auto);
    scenario.kind = Kind::Put;
    scenario.wanted = (0..9).map(BlockIndex).collect();
    scenario.lost.clear();
    scenario.spares = 1;
    for slices in (40..400).step_by(20) {
        // Node 6 pauses and is replaced. Soon after, node 1 must be replaced, and only node 6 is free.
        let asleep = Fault::Pause { node: NodeId(6), lasts: Some(Duration::from_millis(2600)) };
        let full = Fault::DiskFull { node: NodeId(1) };
        let scenario = scenario.clone().with(When::Delivered(slices), asleep);
        let (_, outcome) = play(&scenario.with(When::Delivered(slices + 120), full));
        assert_eq!(outcome.homes[&BlockIndex(0)], NodeId(6), "{:?}", outcome.replanned);
    }
}

#[test]
fn without_faults_every_scheme_moves_the_bytes_of_its_plan() {
    for scheme in DECODING {
        let scenario = repair_by(scheme);
        assert_eq!(scenario.policy.slice_bytes, Some(Geometry::MIN_SLICE_BYTES));
        let (ended, outcome) = play(&scenario);
        assert_eq!(ended.network_bytes(), quiet_bytes(&scenario), "{scheme}");
        assert_eq!(outcome.parity, ParityOutcome::Holds, "{scheme}");
    }
}

/// Links are much slower than disks here, and the kernels hold 16 slices on each edge. A helper of Pipe-S
/// nevertheless receives a slice only after the next helper has the previous one, so it needs two steps for each
/// slice. The first slice of either chain passes six helpers.
#[test]
fn a_serial_chain_takes_twice_as_long_whatever_the_kernels_buffer() {
    const SLICES: u32 = 64;
    let seconds = |scheme| {
        let mut scenario = repair_by(scheme);
        (scenario.block_bytes, scenario.tail_bytes) = (4 << 20, 4 << 20);
        scenario.policy.slice_bytes = Some((4 << 20) / SLICES);
        scenario.machines.window = 17 * (4 << 20) / u64::from(SLICES);
        scenario.machines.budget_bytes = 1 << 20;
        (scenario.machines.rate, scenario.machines.disk_rate) = (1e6, 1e9);
        play(&scenario).0.after.as_secs_f64()
    };
    let pipelined = seconds(Scheme::Pipelined) / f64::from(SLICES + 5);
    let serial = seconds(Scheme::PipeS) / f64::from(2 * SLICES + 4);
    assert!((0.9..1.15).contains(&(serial / pipelined)), "{serial} s and {pipelined} s per step");
}

/// A client reads all data of a stripe with a lost block. The read needs four of the five surviving blocks.
/// If two links to the client are cut, it succeeds only if other helpers relay blocks.
#[test]
fn plans_route_around_two_cut_links_to_a_client() {
    for scheme in [Scheme::Auto, Scheme::Pipelined, Scheme::Conventional] {
        let mut quiet = read_by(scheme);
        quiet.code = CodeSpec::reed_solomon(6, 4);
        quiet.wanted = (0..4).map(BlockIndex).collect();
        let nodes: Vec<NodeId> =
            (1..6).map(|block| quiet.holder(BlockIndex(block)).expect("it survives")).collect();
        for (at, &a) in nodes.iter().enumerate() {
            for &b in &nodes[at + 1..] {
                let cut = |helper| Fault::Cut { a: helper, b: CLIENT };
                let scenario = quiet
                    .clone()
                    .with(When::At(Duration::ZERO), cut(a))
                    .with(When::At(Duration::ZERO), cut(b));
                let ended = World::new(&scenario, Tracing::Keep).run();
                assert!(matches!(ended.result, Some(Ok(_))), "{scheme}: {a}, {b}: {:?}", ended.result);
                assert!(ended.violations.is_empty(), "{scheme}: {a}, {b}: {:#?}", ended.violations);
            }
        }
    }
}
