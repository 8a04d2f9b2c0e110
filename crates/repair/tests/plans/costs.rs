//! The cost of each scheme, compared with the tables in the papers (corrected where those are wrong).

use repair::{Cost, NodeId, Plan, Resource};

use crate::planner_input::PlannerInput;

/// Repairs block 0 of an RS(k+1, k) stripe on a new node; 1 MiB blocks of 256 slices.
fn repair(k: usize, by: &str) -> Plan {
    PlannerInput::new(&format!("rs-{}-{k}; block 1048576; slice 4096; want b0>n100; by {by}", k + 1)).plan()
}

const REQUESTOR: NodeId = NodeId(100);

fn blocks(cost: &Cost, bytes: u64) -> f64 {
    // Rounded to three digits, like the tables.
    (cost.in_blocks(bytes) * 1000.0).round() / 1000.0
}

fn max_load(plan: &Plan) -> f64 {
    let cost = plan.cost();
    blocks(&cost, cost.nodes.iter().map(|node| node.load_bytes()).max().expect("nodes"))
}

fn into_requestor(plan: &Plan) -> f64 {
    let cost = plan.cost();
    blocks(&cost, cost.of(REQUESTOR).expect("the requestor").received_bytes)
}

fn log2_ceil(number: usize) -> u32 {
    number.next_power_of_two().trailing_zeros()
}

#[test]
fn ppr_spreads_the_traffic_as_in_its_table() {
    // Columns: k; rounds; the largest number of blocks that one helper receives; blocks that the requestor
    // receives; the largest number of blocks that one node sends and receives together.
    let table = [
        (3, 2, 1, 2, 2),
        (4, 3, 2, 1, 3),
        (6, 3, 2, 2, 3),
        (8, 4, 3, 1, 4),
        (10, 4, 3, 2, 4),
        (12, 4, 3, 2, 4),
        (16, 5, 4, 1, 5),
    ];
    for (k, rounds, into_helper, into, through) in table {
        let plan = repair(k, "ppr; pacing whole-block");
        let cost = plan.cost();
        let helpers = || cost.nodes.iter().filter(|node| node.node != REQUESTOR);
        let most = |bytes: &mut dyn Iterator<Item = u64>| blocks(&cost, bytes.max().expect("nodes"));
        assert_eq!(cost.timeslots, f64::from(rounds), "k = {k}");
        assert_eq!(most(&mut helpers().map(|node| node.received_bytes)), f64::from(into_helper), "k = {k}");
        assert_eq!(into_requestor(&plan), f64::from(into), "k = {k}");
        let mut sums = cost.nodes.iter().map(|node| node.received_bytes + node.sent_bytes);
        assert_eq!(most(&mut sums), f64::from(through), "k = {k}");
        assert_eq!(blocks(&cost, cost.network_bytes), k as f64);
    }
}

#[test]
fn rounds_of_the_block_level_schemes() {
    for k in 2..=20 {
        let rounds = |by: &str| repair(k, &format!("{by}; pacing whole-block")).cost().timeslots;
        assert_eq!(rounds("ppr"), f64::from(log2_ceil(k + 1)), "k = {k}");
        assert_eq!(rounds("crr-r"), f64::from(log2_ceil(k) + 1), "k = {k}");
        assert_eq!(rounds("conventional"), k as f64);
        assert_eq!(rounds("pipelined"), k as f64);
        assert_eq!(repair(k, "pipe-b").cost().timeslots, k as f64);
    }
}

#[test]
fn crr_loads_its_nodes_as_in_the_corrected_table() {
    // (k, halving, tree, star): the largest load of any node, in blocks, when k blocks are combined by
    // recursive halving, by splitting with the tree, and by the conventional star.
    let table = [
        (4, 2.0, 1.75, 4.0),
        (5, 3.0, 1.875, 5.0),
        (6, 3.0, 1.875, 6.0),
        (8, 3.0, 1.875, 8.0),
        (10, 4.0, 1.938, 10.0),
        (12, 4.0, 1.938, 12.0),
        (16, 4.0, 1.938, 16.0),
    ];
    for (k, halving, tree, star) in table {
        assert_eq!(max_load(&repair(k, "crr-r")), halving, "k = {k}");
        assert_eq!(max_load(&repair(k, "crr-s")), tree, "k = {k}");
        assert_eq!(max_load(&repair(k, "crr-s-direct")), 1.0, "k = {k}");
        assert_eq!(max_load(&repair(k, "conventional")), star, "k = {k}");
        let network = |by: &str| repair(k, by).cost().network_bytes;
        assert_eq!(network("crr-s-direct"), (k as u64) << 20, "k = {k}");
        // Gathering moves half of the fragments in each of its rounds.
        assert!(network("crr-s") <= ((k as u64) << 20) + (u64::from(log2_ceil(k)) << 19), "k = {k}");
    }
}

#[test]
fn no_single_block_scheme_sends_more_than_it_must_through_a_pipeline() {
    for k in 2..=20 {
        for by in ["pipelined", "cyclic", "pipe-s"] {
            let cost = repair(k, by).cost();
            assert_eq!(cost.network_bytes, k as u64 * cost.block_bytes, "{by}, k = {k}");
            assert_eq!(max_load(&repair(k, by)), 1.0, "{by}, k = {k}");
            let timeslots = match by {
                "pipe-s" => 2.0 + (k - 2) as f64 / 256.0, // A helper receives or sends, never both.
                _ => 1.0 + (k - 1) as f64 / 256.0,
            };
            assert_eq!(cost.timeslots, timeslots, "{by}, k = {k}");
        }
    }
}

/// Helpers take turns in summing slices. A repair of one block moves as many bytes as a chain, but in two
/// hops. A repair of several blocks moves as many bytes as the star, but little more than one block passes
/// through any node.
#[test]
fn scatter_loads_no_node_more_than_the_requestor() {
    for k in 2..=20 {
        let cost = repair(k, "scatter").cost();
        assert_eq!((cost.in_blocks(cost.network_bytes), cost.hops), (k as f64, 2), "k = {k}");
        // If the number of slices is not a multiple of k, the first helpers sum one slice more than the
        // others.
        assert!(max_load(&repair(k, "scatter")) <= 1.04, "k = {k}");
    }
    let input = "rs-14-10; block 10485760; slice 4096; want b0>n100 b1>n101 b2>n102 b3>n103; by";
    let cost = PlannerInput::new(&format!("{input} scatter")).plan().cost();
    assert_eq!(cost.in_blocks(cost.network_bytes), 9.0 + 4.0);
    assert_eq!(blocks(&cost, cost.of(cost.busiest).expect("a node").load_bytes()), 0.9 + 0.4);
}

/// Blocks over the network and through the busiest node, for one lost data block.
#[test]
fn codes_that_read_less_under_every_scheme() {
    let figures = |code: &str, bytes: u64| {
        ["conventional", "ppr", "crr-r", "pipelined", "crr-s-direct", "scatter"].map(|by| {
            let input = format!("{code}; block {bytes}; slice 4096; want b0>n100; by {by}");
            let cost = PlannerInput::new(&input).plan().cost();
            let busiest = cost.of(cost.busiest).expect("a node").load_bytes();
            let digits = |bytes| (cost.in_blocks(bytes) * 100.0).round() / 100.0;
            (digits(cost.network_bytes), digits(busiest))
        })
    };
    let (star, tree) = ((6.5, 6.5), (7.0, 2.5));
    let hitchhiker = figures("hitchhiker-xorplus-14-10", 7 << 20);
    assert_eq!(hitchhiker, [star, tree, (7.0, 3.5), (9.5, 1.0), (8.25, 1.0), (6.86, 1.0)]);
    let clay = figures("clay-14-10-13", 16 << 20);
    assert_eq!(clay, [(3.25, 3.25), (4.0, 2.25), (4.75, 2.75), (7.75, 1.0), (4.75, 1.0), (4.0, 1.0)]);
}

/// The cheap repair of these codes works for a single block; several lost blocks are decoded from k whole
/// blocks.
#[test]
fn several_lost_blocks_of_a_sub_packetized_code_read_k_blocks() {
    for (code, k) in [("hitchhiker-xorplus-14-10", 10.0), ("clay-9-6-8", 6.0), ("rotated-16-12-4", 12.0)] {
        for by in ["conventional", "pipelined", "scatter", "auto"] {
            let input = format!("{code}; block 221184; slice 4096; want b0>n100 b4>n101; by {by}");
            let cost = PlannerInput::new(&input).plan().cost();
            assert_eq!(cost.in_blocks(cost.read_bytes), k, "{code} {by}");
        }
    }
}

/// Each lane repeats the recipe, which can be large.
#[test]
fn scatter_takes_fewer_turns_if_the_plan_would_be_too_large() {
    let lanes =
        |input: &str| PlannerInput::new(&format!("{input}; by scatter; slice 4096")).plan().lanes().len();
    assert_eq!(lanes("rs-14-10; block 1048576; want b0>n100"), 10);
    assert_eq!(lanes("hitchhiker-xorplus-14-10; block 1048576; want b0>n100"), 7);
    assert_eq!(lanes("clay-14-10-13; block 4194304; want b0>n100"), 4);
    assert_eq!(lanes("clay-14-10-13; block 4194304; want b0>n100 b4>n101 b10>n102 b13>n103"), 2);
}

#[test]
fn disks_are_asked_for_neighbouring_bytes_at_once() {
    let disk = |input: &str| {
        let cost = PlannerInput::new(input).plan().cost();
        (cost.reads, cost.mean_read_bytes())
    };
    // Ten blocks, each read from end to end, whatever their length.
    assert_eq!(disk("rs-14-10; block 65536; slice 4096; want b0>n100; by rp"), (10, 65536));
    assert_eq!(disk("rs-14-10; block 268435456; slice 65536; want b0>n100; by rp"), (10, 268_435_456));
    // Eleven helpers read one half; two of them also read the adjacent other half.
    let hitchhiker = "hitchhiker-xorplus-14-10; block 65536; slice 4096; want b0>n100";
    assert_eq!(disk(&format!("{hitchhiker}; by rp")), (11, 13 * 32768 / 11));
    // A quarter of each block: contiguous for a block of the first grid row, in 64 pieces for a parity block.
    let clay =
        |lost: &str, block: u64| disk(&format!("clay-14-10-13; block {block}; slice 4096; want {lost}>n100"));
    assert_eq!(clay("b0", 1 << 20), (13, 262_144));
    assert_eq!(clay("b4", 1 << 20), (13 * 4, 65_536));
    assert_eq!(clay("b13", 1 << 20), (13 * 64, 4096));
    assert_eq!(clay("b0", 64 << 20), (13, 16 << 20));
    // Large blocks are read in stretches of 16 MiB. Here a stretch is 256 KiB of each of 64 sub-blocks, so
    // each sub-block of 1 MiB takes four reads.
    assert_eq!(clay("b0", 256 << 20), (13 * 64 * 4, 256 << 10));
}

#[test]
fn the_cyclic_requestor_reads_from_all_helpers_but_one() {
    let plan = repair(5, "cyclic");
    let into = plan.edges().into_iter().filter(|&(_, to)| to == REQUESTOR);
    assert_eq!(into.map(|(from, _)| from.0).collect::<Vec<_>>(), [2, 3, 4, 6]);
    assert_eq!(plan.lanes().len(), 4);
}

#[test]
fn several_lost_blocks_cost_as_much_as_in_the_papers() {
    let input = "rs-14-10; block 1048576; slice 4096; want b0>n100 b1>n101 b2>n102 b3>n103";
    let chain = PlannerInput::new(&format!("{input}; by rp")).plan().cost();
    assert_eq!(blocks(&chain, chain.of(chain.busiest).expect("a node").load_bytes()), 4.0);
    // Four helpers send their blocks raw to the fifth, and six links carry four sums each.
    assert_eq!(blocks(&chain, chain.network_bytes), 4.0 + 6.0 * 4.0);
    assert_eq!(chain.timeslots, 4.0 + 6.0 / 256.0);
    // Each helper reads its block once.
    assert_eq!(blocks(&chain, chain.read_bytes), 10.0);
    let star = PlannerInput::new(&format!("{input}; by conventional; pacing whole-block")).plan().cost();
    assert_eq!(star.timeslots, 10.0 + 3.0);
    assert_eq!(blocks(&star, star.of(REQUESTOR).expect("the decoder").sent_bytes), 3.0);
}

#[test]
fn a_range_costs_the_slices_it_needs() {
    let plan = PlannerInput::new("rs-6-4; want b0>n100; window 5000..14000; slice 4096; by rp").plan();
    let cost = plan.cost();
    assert_eq!(cost.delivered_bytes, 9000);
    assert_eq!((cost.network_bytes, cost.read_bytes, cost.reads), (36_000, 36_000, 4));
    assert_eq!(cost.mean_read_bytes(), 9000);
}

#[test]
fn predictions_follow_the_slowest_link() {
    let line = "rs-6-4; block 64000000; slice 64000; want b0>n100; rate n3=12.5e6";
    let predict = |by: &str| {
        let input = PlannerInput::new(&format!("{line}; by {by}"));
        input.plan().predict(&input.topology).as_secs_f64()
    };
    // 5.12 s for the block over the slow link, plus the first slice over that link and over two links of 125
    // MB/s.
    assert!((predict("rp") - (5.12 + 0.00512 + 2.0 * 0.000512)).abs() < 0.001, "{}", predict("rp"));
    // The slow node first reads at 500 MB/s, and then alternates between receiving and sending.
    assert!((predict("pipe-s") - (10.24 + 0.128 + 2.0 * 0.000512)).abs() < 0.001, "{}", predict("pipe-s"));
    // Four blocks into the requestor take 2.048 s, so the slow link alone decides.
    assert!((predict("srr") - 5.12).abs() < 0.01, "{}", predict("srr"));
}

/// A link that all slices pass is counted for all of them, not just for the first.
#[test]
fn predictions_count_links_for_the_whole_transfer() {
    let line = "rs-6-4; block 64000000; slice 64000; want b0>n100; rack n2=a n3=a n4=b n5=b n100=c";
    let forecast = |more: &str| {
        let input = PlannerInput::new(&format!("{line}; {more}"));
        let forecast = input.plan().forecast(&input.topology);
        (forecast.bottleneck.to_string(), (forecast.busy.as_secs_f64() * 1e3).round() / 1e3)
    };
    assert_eq!(forecast("by rp; link n3>n4=10e6"), ("link from n3 to n4".to_owned(), 6.4));
    // The chain enters and leaves each rack once; the star sends two blocks out of rack b.
    assert_eq!(forecast("by rp; trunk b=20e6/40e6"), ("trunk out of b".to_owned(), 3.2));
    assert_eq!(forecast("by srr; trunk b=20e6/40e6"), ("trunk out of b".to_owned(), 6.4));
    let mut input = PlannerInput::new(&format!("{line}; by rp; trunk b=20e6/40e6"));
    let alone = input.plan().predict(&input.topology);
    input.topology.reserve(Resource::TrunkOut("b".into()), 64_000_000);
    let beside = input.plan().predict(&input.topology);
    assert!((beside.as_secs_f64() - alone.as_secs_f64() - 3.2).abs() < 0.001, "{alone:?} {beside:?}");
}

/// With many sub-blocks a slice is large, and a plan is slower if a node needs all of a slice before it can
/// send a sum.
#[test]
fn predictions_account_for_the_size_of_a_slice() {
    let predict = |by: &str| {
        let input = PlannerInput::new(&format!("clay-14-10-13; block 33554432; want b0>n100; by {by}"));
        input.plan().predict(&input.topology).as_secs_f64() / (33_554_432.0 / 125e6)
    };
    // Before a summing node can send anything, it receives 12 · 64 = 768 pieces of 4 KiB; a whole block is
    // 8,192 pieces. The factor 1.04 is there because most helpers only send and so run ahead.
    assert!((predict("scatter") - (1.04 + 768.0 / 8192.0)).abs() < 0.01, "{}", predict("scatter"));
    assert!((1.0..1.06).contains(&predict("rp")), "{}", predict("rp"));
}

#[test]
fn the_planner_chooses_slices() {
    let chosen = |input: &str| PlannerInput::new(input).plan().geometry().slice_bytes;
    assert_eq!(chosen("rs-14-10; block 67108864; want b0>n100; by rp"), 65536);
    // Slower links and shorter ranges call for smaller slices if filling the pipeline takes noticeable time.
    assert_eq!(chosen("rs-14-10; block 67108864; want b0>n100; by rp; rate n3=12e6"), 65536);
    assert_eq!(chosen("rs-14-10; block 8388608; want b0>n100; by rp"), 32768);
    assert_eq!(chosen("rs-14-10; block 8388608; want b0>n100; by rp; rate n3=12e6"), 8192);
    assert_eq!(chosen("rs-14-10; block 67108864; want b0>n100; by rp; window 0..65536"), 4096);
    // One slice of every stream into a node takes at most 1 MiB of memory.
    assert_eq!(chosen("rs-14-10; block 67108864; want b0>n100; by srr"), 65536);
    assert_eq!(chosen("rs-40-38; block 67108864; want b0>n100; by srr"), 16384);
    // Sixteen lanes of four slices each.
    assert_eq!(chosen("rs-14-10; block 1048576; want b0>n100; by crr-s"), 16384);
    // The slices of a round, one of every lane, add up to 256 KiB.
    assert_eq!(chosen("rs-14-10; block 67108864; want b0>n100; by crr-s-direct"), 16384);
    assert_eq!(chosen("rs-6-4; block 67108864; want b0>n100; by cyclic"), 65536);
}

#[test]
fn auto_takes_the_fastest() {
    let choice = |input: &str| PlannerInput::new(input).plan().scheme().name();
    assert_eq!(choice("rs-14-10; block 67108864; want b0>n100"), "pipelined");
    assert_eq!(choice("rs-14-10; block 67108864; want b0>n100; held b0"), "migration");
    assert_eq!(choice("rs-14-10; block 67108864; want b0>n100; window 0..4096"), "ppr");
    assert_eq!(choice("rs-3-2; block 67108864; want b0>n100; window 0..4096"), "conventional");
    // As many blocks are lost as there are helpers, and all go to one node: raw blocks are no more data than
    // the sums.
    assert_eq!(choice("rs-4-2; block 67108864; want b0>n100 b1>n100; window 0..65536"), "conventional");
    // With only two helpers, `auto` compares the schemes instead of choosing a chain at once.
    assert_eq!(choice("rs-3-2; block 67108864; want b0>n100"), "pipelined");
}

/// Disk reads for one lost block of 64 MiB of Clay (14, 10, 13): the number of reads, the bytes of each read,
/// and the total in blocks, with the gaps that are read through. `docs/reference/codes.md` has this table.
#[test]
fn chunks_cost_disk_reads() {
    const KIB: u64 = 1 << 10;
    let table = [
        // Columns: bytes of a chunk; index of the lost block; reads; bytes of a read; total in blocks.
        (64 << 20, 0, 13, 16 << 20, 3.25),
        (64 << 20, 4, 52, 4 << 20, 3.25),
        (64 << 20, 13, 832, 256 * KIB, 3.25),
        (1 << 20, 0, 832, 256 * KIB, 3.25),
        (1 << 20, 4, 3328, 64 * KIB, 3.25),
        (1 << 20, 13, 53_248, 4 * KIB, 3.25),
        (64 * KIB, 0, 13_312, 16 * KIB, 3.25),
        (64 * KIB, 4, 53_248, 4 * KIB, 3.25),
        (64 * KIB, 13, 13, (64 << 20) - 768, 13.0),
    ];
    for (chunk, lost, reads, bytes, blocks_read) in table {
        let input =
            format!("clay-14-10-13; block 67108864; chunk {chunk}; want b{lost}>n100; by conventional");
        let cost = PlannerInput::new(&input).plan().cost();
        let found = (cost.reads, cost.mean_read_bytes(), blocks(&cost, cost.disk_bytes));
        assert_eq!(found, (reads, bytes, blocks_read), "chunks of {chunk}, b{lost}");
        assert_eq!(blocks(&cost, cost.network_bytes), 3.25);
    }
}

/// The MiB moved by a degraded read of 1 MiB of a lost block. In an unchunked block, this MiB lies in a few
/// sub-blocks, whose repair reads other sub-blocks than the repair of the whole block. In a chunked block, it
/// is one chunk.
#[test]
fn a_range_of_a_chunked_block_needs_only_its_chunks() {
    let mib = |input: &str| {
        let input = format!("{input}; want b0>n100; by conventional");
        let cost = PlannerInput::new(&input).plan().cost();
        assert_eq!(cost.read_bytes, cost.network_bytes);
        cost.read_bytes as f64 / f64::from(1 << 20)
    };
    let whole = "clay-14-10-13; block 67108864";
    assert_eq!(mib(&format!("{whole}; subs 0..4")), 16.0);
    assert_eq!(mib(&format!("{whole}; chunk 1048576; window 0..4096")), 3.25);
    let whole = "hitchhiker-xorplus-14-10; block 67108864";
    assert_eq!(mib(&format!("{whole}; subs 0..1; window 0..1048576")), 13.0);
    assert_eq!(mib(&format!("{whole}; subs 1..2; window 0..1048576")), 10.0);
    assert_eq!(mib(&format!("{whole}; chunk 1048576; window 0..524288")), 6.5);
}
