//! Repair pipelining over uneven links: figures 8h (racks) and 9 (regions of EC2) of TOS'21, with helpers and
//! paths chosen at random as in the paper. The planner plans, and `sim::recovery` moves the streams.

use repair::{NodeId, NodeProfile, Pacing, Rates, Scheme, Topology, Trunk};
use sim::Dice;
use sim::recovery::SingleRepair;

use super::{Claim, Results, Series, Simulated, Table, for_seeds, mean, percent, percents};
use crate::figure::plot::Mark;
use crate::topology::Matrix;

const PATHS: &[&str] = &[
    "crates/sim/src/recovery/single.rs",
    "crates/sim/src/recovery/rounds.rs",
    "crates/sim/src/recovery/flows.rs",
    "crates/sim/src/dice.rs",
    "crates/lab/src/topology.rs",
    "crates/codes",
    "crates/recovery",
    "crates/repair/src/cost.rs",
    "crates/repair/src/plan.rs",
    "crates/repair/src/planner",
    "crates/repair/src/topology",
];
const BLOCK_BYTES: u64 = 64 << 20;
/// Number of random choices of blocks and paths. The paper averages ten runs.
const RUNS: u64 = 100;

pub(super) const RACKS: Simulated = Simulated {
    name: "tos21-8h-random",
    paper: "Repair pipelining (TOS'21), figure 8h",
    title: "(9,6) in three racks, helpers spread at random",
    note: "The paper: three blocks in each of three racks, 10 Gb/s in racks, 400 or 800 Mb/s between them, blocks of \
           64 MiB. Here each rack has a trunk of 400 or 800 Mb/s in either direction, and the requestor is in the rack \
           of the lost block, without holding a block. Conventional repair and unaware pipelining take six of the \
           eight helpers in random order; means of 100 orders.",
    paths: PATHS,
    is_timed: false,
    simulate: racks,
};

pub(super) const REGIONS: Simulated = Simulated {
    name: "tos21-9-requestors",
    paper: "Repair pipelining (TOS'21), figure 9",
    title: "(16,12) over four regions of EC2, a requestor in each region",
    note: "The paper: four instances in each of four regions, blocks of 64 MiB, paths through random helpers, and the \
           optimal path by Algorithm 2. Here the links have the rates of the paper's Table 1, for each pair of instances \
           or shared by all pairs of two regions, and an instance's port has the rate within its region. The lost block and the order of \
           helpers are random; means and standard deviations of 100 runs (the paper: ten, during which the rates \
           changed). Section 6.1 of the paper cuts blocks into slices for conventional repair and for PPR as well; section \
           6.2, which this figure belongs to, mentions slices for repair pipelining only. So the paper's number stands \
           beside PPR in slices and beside PPR in rounds, in which a node sends when it has received everything that it \
           waits for.",
    paths: PATHS,
    is_timed: false,
    simulate: regions,
};

/// The mean and the standard deviation of some times, in seconds.
#[derive(Clone, Copy)]
struct Spread {
    mean: f64,
    deviation: f64,
}

impl Spread {
    fn of(times: &[f64]) -> Self {
        let average = mean(times.iter().copied());
        let variance = mean(times.iter().map(|time| (time - average).powi(2)));
        Self { mean: average, deviation: variance.sqrt() }
    }

    fn cell(self) -> String {
        format!("{:.2} ± {:.2}", self.mean, self.deviation)
    }

    fn below(self, other: Self) -> f64 {
        1.0 - self.mean / other.mean
    }
}

/// A way to repair a block.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) scheme: Scheme,
    pub(super) pacing: Option<Pacing>,
}

const CONVENTIONAL: Way = Way { name: "conventional", scheme: Scheme::Conventional, pacing: None };
const PPR: Way = Way { name: "PPR in rounds", scheme: Scheme::Ppr, pacing: Some(Pacing::WholeBlock) };
const PPR_SLICES: Way = Way { name: "PPR in slices", scheme: Scheme::Ppr, pacing: None };
pub(super) const PIPELINED: Way =
    Way { name: "pipelining, random path", scheme: Scheme::Pipelined, pacing: None };
const RACK_AWARE: Way = Way { name: "pipelining, rack-aware", scheme: Scheme::RackAware, pacing: None };
const WEIGHTED: Way = Way { name: "pipelining, weighted", scheme: Scheme::Weighted, pacing: None };

/// Repairs blocks in many ways, one block per seed.
fn measure<const WAYS: usize>(
    ways: [Way; WAYS],
    repair: impl Fn(u64) -> SingleRepair + Sync,
) -> [Spread; WAYS] {
    let run = |seed: u64| {
        let repair = repair(seed);
        let seconds =
            |way: Way| repair.seconds(way.scheme, way.pacing).expect("every way can repair a block");
        ways.map(seconds)
    };
    let runs: Vec<[f64; WAYS]> = (1..=RUNS).map(run).collect();
    std::array::from_fn(|way| Spread::of(&runs.iter().map(|run| run[way]).collect::<Vec<_>>()))
}

/// Returns a topology of nodes with these racks and rates in bytes per second, numbered from 0.
pub(super) fn nodes(profiles: impl Iterator<Item = (String, f64)>) -> Topology {
    let mut topology = Topology::new();
    for (node, (rack, rate)) in (0..).zip(profiles) {
        let rates = Rates { up: rate, down: rate, read: 1e12, write: 1e12 };
        let helper = NodeProfile::helper(format!("h{node}"), format!("h{node}:1"));
        topology.set(NodeId(node), NodeProfile { rates, rack: Some(rack), ..helper });
    }
    topology
}

/// Places a stripe on nodes 1 to n in random order; node `lost` held the lost block, whose index is the last,
/// so that the order of the others is the order in which planners take helpers.
fn repair(code: &str, n: u32, lost: u32, topology: &Topology, dice: &mut Dice) -> SingleRepair {
    let mut helpers: Vec<u32> = (1..=n).filter(|&node| node != lost).collect();
    dice.shuffle(&mut helpers);
    ordered(code, &helpers, topology)
}

/// Returns the repair of the last block of a stripe for node 0. The others are on these nodes.
pub(super) fn ordered(code: &str, helpers: &[u32], topology: &Topology) -> SingleRepair {
    let homes = helpers.iter().map(|&node| Some(NodeId(node))).chain([None]).collect();
    SingleRepair {
        code: code.parse().expect("a code's name"),
        homes,
        block: helpers.len(),
        requestor: NodeId(0),
        block_bytes: BLOCK_BYTES,
        slice_bytes: None,
        topology: topology.clone(),
    }
}

fn racks() -> Results {
    const WAYS: [Way; 3] = [CONVENTIONAL, PIPELINED, RACK_AWARE];
    let cases: Vec<(u32, bool)> =
        [400, 800].into_iter().flat_map(|rate| [(rate, true), (rate, false)]).collect();
    let run = |&(rate, is_home): &(u32, bool)| {
        // Nodes 1 to 9 in three racks; the requestor, node 0, is in rack 0.
        let rack = |node: u32| if node == 0 { 0 } else { (node - 1) / 3 };
        let mut topology = nodes((0..10).map(|node| (format!("r{}", rack(node)), 1.25e9)));
        let rate = f64::from(rate) * 1e6 / 8.0;
        for rack in 0..3 {
            topology.set_trunk(&format!("r{rack}"), Trunk { up: rate, down: rate }).expect("a rate");
        }
        let lost = if is_home { 1 } else { 4 };
        measure(WAYS, |seed| repair("rs-9-6", 9, lost, &topology, &mut Dice::new(seed)))
    };
    let all: Vec<[Spread; 3]> = cases.iter().map(run).collect();
    let less = |case: usize, way: usize| percent(all[case][way].below(all[case][0]));
    let claim = |text: &str, paper, here: String| Claim::new(text, paper, here).of("time of conventional");
    let conventional = [(2, all[2][0].mean)];
    let claims = vec![
        claim("800 Mb/s, without awareness, less than conventional", "60.9%", less(2, 1))
            .because("The paper's placements are unknown; the difference is unexplained.")
            .drawn_below(PIPELINED.name, &[60.9], &conventional),
        claim("800 Mb/s, rack-aware, less than conventional", "77.6%", less(2, 2))
            .because("Disks, processors and headers take no time here.")
            .drawn_below(RACK_AWARE.name, &[77.6], &conventional),
        claim("400 Mb/s, without awareness, less than conventional", "", less(0, 1)),
        claim("400 Mb/s, rack-aware, less than conventional", "", less(0, 2)),
        claim("800 Mb/s, requestor in another rack, without awareness", "", less(3, 1)),
        claim("800 Mb/s, requestor in another rack, rack-aware", "", less(3, 2)),
    ];
    let name = |&(rate, is_home): &(u32, bool)| {
        format!("{rate} Mb/s, {}", if is_home { "rack of the lost block" } else { "another rack" })
    };
    let mut results = table_of(
        "The requestor's trunk carries 4.5 blocks on average in conventional repair, because two of the eight helpers \
         are in its rack and six are read. An unaware chain may enter a rack more than once; the rack-aware one enters \
         each rack at most once.",
        claims,
        WAYS.map(|way| way.name),
        cases.iter().map(name).zip(all.iter().copied()).collect(),
    );
    let bound =
        |(at, &(rate, _)): (usize, &(u32, bool))| (at, BLOCK_BYTES as f64 * 8.0 / f64::from(rate) / 1e6);
    results.series.push(("bound of a trunk".to_owned(), cases.iter().enumerate().map(bound).collect()));
    results
}

/// Whether pairs of instances share the rate between two regions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// Each pair of instances has the rate to itself.
    Own,
    /// All pairs of instances of the two regions share it.
    Shared,
}

/// The results of a requestor in one region.
struct Place {
    name: String,
    random: [Spread; WAYS.len()],
    /// With links that all pairs of two regions share.
    shared: [Spread; WAYS.len()],
    /// Seconds with the helpers in the order of regions.
    in_order: [f64; WAYS.len()],
}

const WAYS: [Way; 5] = [CONVENTIONAL, PPR, PPR_SLICES, PIPELINED, WEIGHTED];
/// Why the savings over four regions differ from the paper's.
const RATES: &str = "The paper's rates changed between runs; the rest is unexplained.";

/// The regions of an area, and the paper's savings there, as printed and in percent.
struct Area {
    name: &'static str,
    /// By pipelining over PPR.
    ppr: (&'static str, [f64; 2]),
    /// By weighting over a random path.
    weighted: (&'static str, [f64; 2]),
}

const AREAS: [Area; 2] = [
    Area {
        name: "north-america",
        ppr: ("62.7% to 78.0%", [62.7, 78.0]),
        weighted: ("7.3% to 45.4%", [7.3, 45.4]),
    },
    Area { name: "asia", ppr: ("66.6% to 87.1%", [66.6, 87.1]), weighted: ("14.5% to 45.0%", [14.5, 45.0]) },
];

fn regions() -> Results {
    let mut places: Vec<Place> = Vec::new();
    let mut claims = Vec::new();
    for area in AREAS {
        let matrix: Matrix = area.name.parse().expect("a known matrix");
        let last = u64::from(matrix.places()) - 1;
        let of_area = for_seeds(0..=last, |place| requestor(area.name, &matrix, place as u16));
        claims.extend(claims_of_area(&area, &of_area, places.len()));
        places.extend(of_area);
    }
    let names = WAYS.map(|way| way.name);
    let rows = |of: fn(&Place) -> [Spread; WAYS.len()]| {
        places.iter().map(|place| (place.name.clone(), of(place))).collect::<Vec<_>>()
    };
    let less = |of: fn(&Place) -> f64| percents(places.iter().map(of));
    let findings = format!(
        "PPR in rounds waits for the slowest link of every round, and pipelining passes its slowest link once. If each \
         pair of instances has a link of its own, pipelining takes {} less time than PPR in rounds, and on shared links \
         {} less. In slices, PPR has no rounds, and is as slow as the slowest link that it uses: pipelining takes {} \
         less time than PPR in slices on own links, and {} less on shared links. The lab's pages `tos21-9-*` measure \
         three placements of blocks each; the standard deviations show how much placements differ.",
        less(|at| at.random[3].below(at.random[1])),
        less(|at| at.shared[3].below(at.shared[1])),
        less(|at| at.random[3].below(at.random[2])),
        less(|at| at.shared[3].below(at.shared[2])),
    );
    let mut results = table_of(&findings, claims, names, rows(|place| place.random));
    let columns: Vec<&str> = std::iter::once("requestor").chain(names).collect();
    let shared = rows(|place| place.shared).iter().map(cells).collect();
    let heading = "Links shared by all pairs of two regions, seconds";
    results.tables.push(Table { heading, columns: columns.clone(), rows: shared });
    let in_order = |place: &Place| {
        [vec![place.name.clone()], place.in_order.map(|time| format!("{time:.2}")).to_vec()].concat()
    };
    let rows = places.iter().map(in_order).collect();
    results.tables.push(Table { heading: "Helpers in the order of regions, seconds", columns, rows });
    results
}

/// Returns the claims about an area whose first requestor is at the tick `first`.
fn claims_of_area(area: &Area, of_area: &[Place], first: usize) -> Vec<Claim> {
    let less = |of: fn(&Place) -> f64| percents(of_area.iter().map(of));
    let claim = |text: &str, paper: &'static str, of, here| {
        let claim = Claim::new(format!("{}: {text}", area.name), paper, here).of(of);
        if paper.is_empty() { claim } else { claim.because(RATES) }
    };
    let points = |way: usize| -> Vec<(usize, f64)> {
        (first..).zip(of_area).map(|(at, place)| (at, place.random[way].mean)).collect()
    };
    let ((ppr, ppr_less), (weighted, weighted_less)) = (area.ppr, area.weighted);
    let (rounds, slices) = ("time of PPR in rounds", "time of PPR in slices");
    let unweighted = "time of pipelining over a random path";
    let in_order = "helpers in the order of regions";
    vec![
        claim(
            "pipelining, less than PPR in rounds",
            ppr,
            rounds,
            less(|at| at.random[3].below(at.random[1])),
        )
        .drawn_below(PIPELINED.name, &ppr_less, &points(1)),
        claim(
            "pipelining, less than PPR in slices",
            ppr,
            slices,
            less(|at| at.random[3].below(at.random[2])),
        ),
        claim(
            "weighted, less than pipelining",
            weighted,
            unweighted,
            less(|at| at.random[4].below(at.random[3])),
        )
        .drawn_below(WEIGHTED.name, &weighted_less, &points(3)),
        claim(
            "pipelining, less than PPR in rounds, shared links",
            ppr,
            rounds,
            less(|at| at.shared[3].below(at.shared[1])),
        ),
        claim(
            "pipelining, less than PPR in slices, shared links",
            ppr,
            slices,
            less(|at| at.shared[3].below(at.shared[2])),
        ),
        claim(
            "weighted, less than pipelining, shared links",
            weighted,
            unweighted,
            less(|at| at.shared[4].below(at.shared[3])),
        ),
        claim(
            &format!("pipelining, less than PPR in rounds, {in_order}"),
            "",
            rounds,
            less(|at| 1.0 - at.in_order[3] / at.in_order[1]),
        ),
        claim(
            &format!("pipelining, less than PPR in slices, {in_order}"),
            "",
            slices,
            less(|at| 1.0 - at.in_order[3] / at.in_order[2]),
        ),
    ]
}

fn requestor(area: &str, matrix: &Matrix, place: u16) -> Place {
    let topology = region_links(matrix, place, Sharing::Own);
    let random = |topology: &Topology, seed: u64| {
        let mut dice = Dice::new(seed);
        let lost = 1 + dice.below(16) as u32;
        repair("rs-16-12", 16, lost, topology, &mut dice)
    };
    let by_region = ordered("rs-16-12", &(2..=16).collect::<Vec<_>>(), &topology);
    let shared = region_links(matrix, place, Sharing::Shared);
    Place {
        name: format!("{area}, {}", matrix.place(place)),
        random: measure(WAYS, |seed| random(&topology, seed)),
        shared: measure(WAYS, |seed| random(&shared, seed)),
        in_order: WAYS
            .map(|way| by_region.seconds(way.scheme, way.pacing).expect("every way can repair a block")),
    }
}

/// Returns a network of 16 helpers, four in each place, as nodes 1 to 16, and a requestor in `place` as node 0.
fn region_links(matrix: &Matrix, place: u16, sharing: Sharing) -> Topology {
    let place_of = |node: u32| if node == 0 { place } else { (node as u16 - 1) / 4 };
    let rate = |from: u16, to: u16| matrix.between(from, to).bytes_per_second();
    let port = |node| (matrix.place(place_of(node)).to_owned(), rate(place_of(node), place_of(node)));
    let mut topology = nodes((0..17).map(port));
    match sharing {
        Sharing::Own => {
            for from in 0..17 {
                for to in (0..17).filter(|&to| to != from) {
                    let rate = rate(place_of(from), place_of(to));
                    topology.set_pair(NodeId(from), NodeId(to), rate).expect("a rate");
                }
            }
        }
        Sharing::Shared => {
            for from in 0..matrix.places() {
                for to in (0..matrix.places()).filter(|&to| to != from) {
                    let rate = rate(from, to);
                    topology.set_between(matrix.place(from), matrix.place(to), rate).expect("a rate");
                }
            }
        }
    }
    topology
}

fn cells<const WAYS: usize>((name, run): &(String, [Spread; WAYS])) -> Vec<String> {
    [vec![name.clone()], run.map(Spread::cell).to_vec()].concat()
}

fn table_of<const WAYS: usize>(
    findings: &str,
    claims: Vec<Claim>,
    names: [&'static str; WAYS],
    rows: Vec<(String, [Spread; WAYS])>,
) -> Results {
    let series: Series = names
        .iter()
        .enumerate()
        .map(|(way, name)| {
            let points = rows.iter().enumerate().map(|(at, (_, run))| (at, run[way].mean));
            ((*name).to_owned(), points.collect())
        })
        .collect();
    let columns = std::iter::once("requestor").chain(names).collect();
    let spreads = names.iter().enumerate().flat_map(|(way, name)| {
        let mark = move |(at, (_, run)): (usize, &(String, [Spread; WAYS]))| {
            let Spread { mean, deviation } = run[way];
            Mark { series: (*name).to_owned(), at, low: mean - deviation, high: mean + deviation }
        };
        rows.iter().enumerate().map(mark)
    });
    let spreads = spreads.collect();
    Results {
        findings: findings.to_owned(),
        claims,
        tables: vec![Table {
            heading: "Seconds, mean ± standard deviation",
            columns,
            rows: rows.iter().map(cells).collect(),
        }],
        y: "seconds, mean",
        ticks: rows.iter().map(|(name, _)| name.clone()).collect(),
        series,
        spread: "standard deviation",
        spreads,
    }
}
