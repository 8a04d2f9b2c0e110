//! Experiments 1 to 6 of the FastPR paper's supplement, executed in `sim::fastpr`.

use std::collections::BTreeMap;

use rustix::time::{ClockId, clock_gettime};
use sim::fastpr::{
    Disks, Drain, Drained, Method, Model, Placement, Shape, Standbys, first_sets, published_sets, sets,
};

use super::{Claim, Results, Series, Simulated, Table, for_seeds, mean, percent, percents, points_of, range};
use crate::figure::plot::Mark;

pub(super) const PATHS: &[&str] =
    &["crates/sim/src/fastpr", "crates/sim/src/recovery/flows.rs", "crates/sim/src/dice.rs"];
const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// Number of chunks that the failing node holds. The paper's text says 1,000 stripes; Experiment 3 counts the
/// stripes that are repaired.
const CHUNKS: usize = 1000;
const RS_9_6: Shape = Shape::ReedSolomon { n: 9, k: 6 };
/// Bytes per second of a link of 1 Gb/s, as the published prototype computes.
const GIGABIT: f64 = Model::PAPER.link;

pub(super) const SCATTERED: Simulated = Simulated {
    name: "fastpr-1",
    paper: "FastPR (supplement), experiment 1",
    title: "Scattered repair by nodes, code, disk and network",
    note: "The paper: 100 nodes, RS(9,6), chunks of 64 MB, disks of 100 MB/s, links of 1 Gb/s, 1,000 stripes; one \
           parameter varies at a time. Its text prints no values of the sweeps, so the values of nodes and rates \
           are ours. 1 Gb/s is 128 MB/s, as in the published prototype. Here the failing node holds 1,000 chunks, sets are found by Algorithm 1 on all of them \
           together, rounds are scheduled by Algorithm 2 and executed on simulated disks and links, and figures \
           are means of three seeds (the paper: 30).",
    paths: PATHS,
    is_timed: false,
    simulate: scattered,
};

pub(super) const STANDBYS: Simulated = Simulated {
    name: "fastpr-2",
    paper: "FastPR (supplement), experiment 2",
    title: "Hot-standby repair by nodes and standbys",
    note: "The set-up is that of `fastpr-1.md`, with three hot standbys unless a row says otherwise. *Computed* is \
           the time that the published simulator computes for the same rounds: a set of |R| chunks takes the time \
           of ⌈|R|/h⌉ chunks on one standby, and copies burden no standby. *Executed* assigns chunks like the \
           published prototype: copies go to the first standby, rebuilt chunks to the others in turn. *Leveled* \
           is ours: a rebuilt chunk goes to the standby that is free first.",
    paths: PATHS,
    is_timed: false,
    simulate: standbys,
};

pub(super) const STRIPES: Simulated = Simulated {
    name: "fastpr-3",
    paper: "FastPR (supplement), experiment 3",
    title: "Scattered repair by the number of stripes",
    note: "The set-up is that of `fastpr-1.md`. The number of stripes is the number of chunks that are repaired.",
    paths: PATHS,
    is_timed: false,
    simulate: stripes,
};

pub(super) const PACKETS: Simulated = Simulated {
    name: "fastpr-4",
    paper: "FastPR (supplement), experiment 4",
    title: "Packet size, links of 5 Gb/s",
    note: "The paper: RS(9,6) on Amazon EC2, 64 MB chunks, links of 5 Gb/s; its section 6.1, with the number of \
           nodes and the rate of the disks, is not available to us. Here 21 nodes (and three standbys), disks of \
           100 MB/s, links whose 1 Gb/s is 128 MB/s, as in the published prototype, 50 chunks, means of 30 seeds. The steps of a packet follow one another, and those of different \
           packets overlap. *Shared disks*: reads and writes of a disk share its rate, which the paper's model \
           assumes away.",
    paths: PATHS,
    is_timed: false,
    simulate: packets,
};

pub(super) const BANDWIDTH: Simulated = Simulated {
    name: "fastpr-5",
    paper: "FastPR (supplement), experiment 5",
    title: "Network bandwidth, packets of 4 MB",
    note: "The set-up is that of `fastpr-4.md`, with packets of 4 MB.",
    paths: PATHS,
    is_timed: false,
    simulate: bandwidth,
};

pub(super) const SETS: Simulated = Simulated {
    name: "fastpr-6",
    paper: "FastPR (supplement), experiment 6",
    title: "Reconstruction sets and the running time of Algorithm 1",
    note: "The paper: RS(9,6), running times on one m5.large instance; the number of nodes is not available to us. \
           Here 100 nodes, means of three seeds, and processor seconds of one thread; rates play no part. `first` is Algorithm 1 \
           without lines 18 to 38, `Algorithm 1` is the complete algorithm, `ours` is the algorithm of \
           `docs/explanation/drains.md`.",
    paths: PATHS,
    is_timed: true,
    simulate: reconstruction_sets,
};

/// A point of a sweep.
#[derive(Clone)]
struct Point {
    name: String,
    model: Model,
    shape: Shape,
    chunks: usize,
    disks: Disks,
}

impl Point {
    fn new(name: impl Into<String>, model: Model) -> Self {
        Self { name: name.into(), model, shape: RS_9_6, chunks: CHUNKS, disks: Disks::Duplex }
    }

    /// Returns the parameters n and k of the code.
    fn code(&self) -> (usize, usize) {
        let Shape::ReedSolomon { n, k } = self.shape else { unreachable!("experiments 1 to 6 use RS") };
        (n, k)
    }
}

/// Seconds per chunk at a point of a sweep. Times of methods are means over seeds.
struct Measured {
    point: Point,
    sets: f64,
    fastpr: f64,
    computed: f64,
    leveled: f64,
    migration: f64,
    reconstruction: f64,
    computed_reconstruction: f64,
    /// The paper's optimum; see [`Model::optimum`].
    optimum: f64,
    /// The times of reconstruction only, of FastPR and of the computation with each seed, by the name of the series.
    runs: [(&'static str, Vec<f64>); 3],
    /// Number of chunks whose receiver had another chunk in the same round.
    doubled: usize,
}

impl Measured {
    fn above_optimum(&self) -> f64 {
        self.fastpr / self.optimum - 1.0
    }

    fn below_migration(&self) -> f64 {
        1.0 - self.fastpr / self.migration
    }

    fn below_reconstruction(&self) -> f64 {
        1.0 - self.fastpr / self.reconstruction
    }

    fn bars(&self) -> [(&'static str, f64); 4] {
        [
            (MIGRATION_ONLY, self.migration),
            (RECONSTRUCTION_ONLY, self.reconstruction),
            (FASTPR, self.fastpr),
            ("optimum", self.optimum),
        ]
    }
}

/// The names of the series.
const MIGRATION_ONLY: &str = "migration only";
const RECONSTRUCTION_ONLY: &str = "reconstruction only";
const FASTPR: &str = "FastPR";
const COMPUTED: &str = "FastPR, computed";

/// Drains a node at every point, by all methods. Points that differ in rates only share their sets.
fn measure(points: &[Point], seeds: std::ops::RangeInclusive<u64>) -> Vec<Measured> {
    let runs: Vec<Vec<[Drained; 4]>> = for_seeds(seeds, |seed| {
        let mut known = BTreeMap::new();
        points.iter().map(|point| run(point, seed, &mut known)).collect()
    });
    let measured = |(at, point): (usize, &Point)| {
        let all =
            |value: fn(&[Drained; 4]) -> f64| runs.iter().map(|run| value(&run[at])).collect::<Vec<_>>();
        let of = |value: fn(&[Drained; 4]) -> f64| mean(all(value));
        Measured {
            sets: of(|[fastpr, ..]| fastpr.sets as f64),
            fastpr: of(|[fastpr, ..]| fastpr.per_chunk()),
            computed: of(|[fastpr, ..]| fastpr.computed_per_chunk()),
            leveled: of(|[_, leveled, ..]| leveled.per_chunk()),
            migration: of(|[.., migration, _]| migration.per_chunk()),
            reconstruction: of(|[.., reconstruction]| reconstruction.per_chunk()),
            computed_reconstruction: of(|[.., reconstruction]| reconstruction.computed_per_chunk()),
            optimum: point.model.optimum(point.code().1),
            runs: [
                (RECONSTRUCTION_ONLY, all(|[.., reconstruction]| reconstruction.per_chunk())),
                (FASTPR, all(|[fastpr, ..]| fastpr.per_chunk())),
                (COMPUTED, all(|[fastpr, ..]| fastpr.computed_per_chunk())),
            ],
            doubled: runs.iter().map(|run| run[at][0].doubled).sum(),
            point: point.clone(),
        }
    };
    points.iter().enumerate().map(measured).collect()
}

type Known = BTreeMap<(usize, usize, usize, usize), (Placement, Vec<sim::fastpr::Set>)>;

/// Drains a node by FastPR, by FastPR with leveled standbys, by migration only and by reconstruction only.
fn run(point: &Point, seed: u64, known: &mut Known) -> [Drained; 4] {
    let Point { model, shape, chunks, disks, .. } = point;
    let (n, k) = point.code();
    let key = (model.nodes, n, *chunks, model.largest_set(k));
    let drain_of = |placement: &Placement| Drain { disks: *disks, ..Drain::new(*model, placement.clone()) };
    let (placement, sets) = known.entry(key).or_insert_with(|| {
        let placement = Placement::random(*shape, model.nodes - 1, *chunks, seed);
        let sets = drain_of(&placement).sets();
        (placement, sets)
    });
    let drain = drain_of(placement);
    let leveled = Drain { standbys: Standbys::Level, ..drain.clone() };
    [
        drain.run(Method::FastPr, sets),
        leveled.run(Method::FastPr, sets),
        drain.run(Method::MigrationOnly, sets),
        drain.run(Method::ReconstructionOnly, sets),
    ]
}

/// Returns results with all points in the drawing.
fn results(findings: String, claims: Vec<Claim>, tables: Vec<Table>, all: &[Measured]) -> Results {
    let series = series(all);
    Results {
        findings,
        claims,
        tables,
        y: "seconds per chunk",
        ticks: all.iter().map(|measured| measured.point.name.clone()).collect(),
        spread: "least to most of all seeds",
        spreads: spreads(all, &series),
        series,
    }
}

fn series(all: &[Measured]) -> Series {
    let names = all.first().map(|measured| measured.bars().map(|(name, _)| name)).unwrap_or_default();
    let series = names.into_iter().enumerate().map(|(bar, name)| {
        let points = all.iter().enumerate().map(|(at, measured)| (at, measured.bars()[bar].1));
        (name.to_owned(), points.collect())
    });
    series.collect()
}

/// Returns the ranges over seeds of those of these series that depend on the placement.
fn spreads(all: &[Measured], series: &Series) -> Vec<Mark> {
    let is_drawn = |name: &str| series.iter().any(|(known, _)| known == name);
    let of = |(at, measured): (usize, &Measured)| {
        let runs = measured.runs.iter().filter(|(name, _)| is_drawn(name));
        runs.filter_map(|(name, times)| Mark::range(name, at, times)).collect::<Vec<_>>()
    };
    all.iter().enumerate().flat_map(of).collect()
}

/// Returns the points of a series.
fn times(all: &[Measured], of: fn(&Measured) -> f64) -> Vec<(usize, f64)> {
    all.iter().map(of).enumerate().collect()
}

/// The quantities of which percentages are a part.
const MIGRATION: &str = "time of migration only";
const RECONSTRUCTION: &str = "time of reconstruction only";
const OPTIMUM: &str = "optimum time";
/// Explanations of differences.
const PLACEMENTS: &str = "Placements are random, in three runs here and 30 in the paper.";
const RANDOM: &str = "The remaining difference is unexplained; placements are random.";
const EXECUTED: &str =
    "The paper computes rounds on h standbys, while its prototype, executed here, rebuilds on h − 1.";
const DUPLEX: &str = "Here disks read and write at full rate at once; whether those on EC2 do is unknown.";
const NO_SETTING: &str =
    "Unexplained; the paper's number of nodes and rate of disks are not available to us.";
const COLUMNS: [&str; 9] = [
    "",
    "sets",
    "migration only, s/chunk",
    "reconstruction only",
    "FastPR",
    "optimum",
    "above it",
    "less than migration only",
    "less than reconstruction only",
];

fn cells(measured: &Measured) -> Vec<String> {
    vec![
        measured.point.name.clone(),
        format!("{:.1}", measured.sets),
        format!("{:.3}", measured.migration),
        format!("{:.3}", measured.reconstruction),
        format!("{:.3}", measured.fastpr),
        format!("{:.3}", measured.optimum),
        percent(measured.above_optimum()),
        percent(measured.below_migration()),
        percent(measured.below_reconstruction()),
    ]
}

fn table(heading: &'static str, all: &[Measured]) -> Table {
    Table { heading, columns: COLUMNS.to_vec(), rows: all.iter().map(cells).collect() }
}

fn find<'a>(all: &'a [Measured], name: &str) -> &'a Measured {
    &all[tick(all, name)]
}

/// Returns the index of a point.
fn tick(all: &[Measured], name: &str) -> usize {
    all.iter().position(|measured| measured.point.name == name).expect("a point of the sweep")
}

fn scattered() -> Results {
    let mut points = Vec::new();
    for nodes in [20, 40, 60, 80, 100] {
        points.push(Point::new(format!("M = {nodes}"), Model { nodes, ..Model::PAPER }));
    }
    for (n, k) in [(14, 10), (16, 12)] {
        let shape = Shape::ReedSolomon { n, k };
        points.push(Point { shape, ..Point::new(format!("({n},{k})"), Model::PAPER) });
    }
    for disk in [50.0, 200.0, 400.0] {
        points.push(Point::new(format!("disk {disk} MB/s"), Model { disk: disk * 1e6, ..Model::PAPER }));
    }
    for gigabits in [0.5, 2.0, 5.0] {
        let link = gigabits * GIGABIT;
        points.push(Point::new(format!("net {gigabits} Gb/s"), Model { link, ..Model::PAPER }));
    }
    let all = measure(&points, SEEDS);
    let doubled: usize = all.iter().map(|measured| measured.doubled).sum();
    let mut columns = COLUMNS.to_vec();
    columns.insert(7, "all sets full, above it");
    let row = |measured: &Measured| {
        let mut row = cells(measured);
        row.insert(7, percent(full_sets(measured)));
        row
    };
    let findings = format!(
        "A round takes as long as the model expects if each chunk has a receiver of its own; {doubled} chunks of all \
         runs shared one. The optimum assumes (M − 1)/k chunks in each set and copies without pauses, but sets and \
         copies are whole numbers: with the largest sets, and as many copies in each round as its time allows, \
         FastPR would be {} above the optimum. The rest is gaps, that is, sets that are not full. The paper's 33.1% \
         for RS(16,12) and 41.3% for three hot standbys, by which FastPR takes less time than reconstruction only at best, \
         need 1 Gb/s = 128 MB/s: the optimum gives {} and {} then, and with 125 MB/s {} and {}.",
        percents(all.iter().map(full_sets)),
        percent(model_saving(GIGABIT, None, 12)),
        percent(model_saving(GIGABIT, Some(3), 6)),
        percent(model_saving(125e6, None, 12)),
        percent(model_saving(125e6, Some(3), 6)),
    );
    let rows = all.iter().map(row).collect();
    let tables = vec![Table { heading: "All points", columns, rows }];
    results(findings, scattered_claims(&all), tables, &all)
}

/// Returns by which part of the time of reconstruction only the paper's model is faster at best.
fn model_saving(link: f64, standbys: Option<usize>, needs: usize) -> f64 {
    let model = Model { link, standbys, ..Model::PAPER };
    1.0 - model.optimum(needs) / model.reactive(needs)
}

fn scattered_claims(all: &[Measured]) -> Vec<Claim> {
    let (at, widest) = (tick(all, "(16,12)"), find(all, "(16,12)"));
    let above = mean(all.iter().map(Measured::above_optimum));
    vec![
        Claim::new("RS(16,12), less than migration only", "62.7%", percent(widest.below_migration()))
            .of(MIGRATION)
            .because(PLACEMENTS)
            .drawn_below(FASTPR, &[62.7], &[(at, widest.migration)]),
        Claim::new(
            "RS(16,12), less than reconstruction only",
            "40.6%",
            percent(widest.below_reconstruction()),
        )
        .of(RECONSTRUCTION)
        .because(PLACEMENTS),
        Claim::new("above the optimum, mean of all rows", "11.4%", percent(above)).of(OPTIMUM).because(
            "The paper does not print the values of its sweeps, so the means are of different rows.",
        ),
        Claim::new("the same if all sets were full", "", percent(mean(all.iter().map(full_sets))))
            .of(OPTIMUM),
    ]
}

/// Returns how far above the optimum scattered repair would be if every set had the largest possible whole
/// number of chunks, and the failing node copied as many chunks in each round as its time allows.
fn full_sets(measured: &Measured) -> f64 {
    let Point { model, .. } = &measured.point;
    let (_, k) = measured.point.code();
    let full = model.largest_set(k) as f64;
    let seconds = model.reconstruction(full, k);
    let copied = (seconds / model.migration() + 1e-9).floor();
    seconds / (full + copied) / measured.optimum - 1.0
}

fn standbys() -> Results {
    let mut points = Vec::new();
    for nodes in [20, 40, 60, 80, 100] {
        let model = Model { nodes, standbys: Some(3), ..Model::PAPER };
        points.push(Point::new(format!("M = {nodes}"), model));
    }
    for standbys in [2, 5, 7, 9] {
        let model = Model { standbys: Some(standbys), ..Model::PAPER };
        points.push(Point::new(format!("h = {standbys}"), model));
    }
    let all = measure(&points, SEEDS);
    let tables = vec![standby_table(&all)];
    let mut results = results(standby_findings(&all), standby_claims(&all), tables, &all);
    results.series.push((COMPUTED.to_owned(), times(&all, |measured| measured.computed)));
    results.spreads = spreads(&all, &results.series);
    results
}

fn standby_findings(all: &[Measured]) -> String {
    let is_same = |measured: &&Measured| (measured.fastpr / measured.computed - 1.0).abs() < 1e-3;
    let same: Vec<&str> = all.iter().filter(is_same).map(|measured| measured.point.name.as_str()).collect();
    let same = if same.is_empty() { "no point".to_owned() } else { same.join(", ") };
    format!(
        "The computation uses a standby twice: it divides a set by all h standbys, although the prototype reserves one \
         for copies and rebuilds on h − 1. Executed rounds take longer where this changes the number of chunks on a \
         standby, ⌈|R|/(h − 1)⌉ instead of ⌈|R|/h⌉. Algorithm 2 then expects rounds that are too short, so the failing \
         node is idle at the end of each round. Both times are equal at: {same}. With two standbys, one standby rebuilds \
         whole sets; executed FastPR then takes {} of the time of migration only. The optimum divides by all standbys \
         as well and cannot be reached.",
        percent(1.0 - find(all, "h = 2").below_migration())
    )
}

fn standby_claims(all: &[Measured]) -> Vec<Claim> {
    let (at, three) = (tick(all, "M = 100"), find(all, "M = 100"));
    let migration = [(at, three.migration)];
    let above = |value: fn(&Measured) -> f64| {
        percent(mean(all.iter().map(|measured| value(measured) / measured.optimum - 1.0)))
    };
    let less = |value: f64, than: f64| percent(1.0 - value / than);
    vec![
        Claim::new(
            "h = 3, computed, less than migration only",
            "57.7%",
            less(three.computed, three.migration),
        )
        .of(MIGRATION)
        .because(RANDOM)
        .drawn_below(COMPUTED, &[57.7], &migration),
        Claim::new(
            "h = 3, computed, less than reconstruction only, computed",
            "41.0%",
            less(three.computed, three.computed_reconstruction),
        )
        .of(RECONSTRUCTION)
        .because(RANDOM),
        Claim::new("computed, above the optimum, mean of all rows", "5.4%", above(|point| point.computed))
            .of(OPTIMUM)
            .because("Unexplained; the paper does not print the values of its sweeps."),
        Claim::new("h = 3, executed, less than migration only", "57.7%", percent(three.below_migration()))
            .of(MIGRATION)
            .because(EXECUTED)
            .drawn_below(FASTPR, &[57.7], &migration),
        Claim::new(
            "h = 3, executed, less than reconstruction only",
            "41.0%",
            percent(three.below_reconstruction()),
        )
        .of(RECONSTRUCTION)
        .because(EXECUTED),
        Claim::new("executed, above the optimum, mean of all rows", "5.4%", above(|point| point.fastpr))
            .of(OPTIMUM)
            .because(EXECUTED),
        Claim::new("h = 3, leveled, less than migration only", "", less(three.leveled, three.migration))
            .of(MIGRATION),
    ]
}

/// Returns all points, also with the computed and the leveled times.
fn standby_table(all: &[Measured]) -> Table {
    let columns = vec![
        "",
        "sets",
        "migration only, s/chunk",
        "reconstruction only",
        "FastPR, executed",
        "FastPR, leveled",
        "FastPR, computed",
        "optimum",
        "executed, above it",
        "less than migration only",
        "less than reconstruction only",
    ];
    let row = |measured: &Measured| {
        let mut row = cells(measured);
        row.insert(5, format!("{:.3}", measured.leveled));
        row.insert(6, format!("{:.3}", measured.computed));
        row
    };
    Table { heading: "All points", columns, rows: all.iter().map(row).collect() }
}

fn stripes() -> Results {
    let point = |chunks: usize| Point { chunks, ..Point::new(chunks.to_string(), Model::PAPER) };
    let all = measure(&[100, 200, 400, 600, 800, 1000].map(point), SEEDS);
    let from_400 = all.iter().filter(|measured| measured.point.chunks >= 400);
    let here = percents(from_400.map(Measured::above_optimum));
    let claim = Claim::new("at 400 stripes and more, above the optimum", "within 15%", here).of(OPTIMUM);
    let claim =
        claim.because("Sets have more gaps if there are fewer chunks to choose from; placements are random.");
    let is_many = |&(at, _): &(usize, &Measured)| all[at].point.chunks >= 400;
    let claim = all.iter().enumerate().filter(is_many).fold(claim, |claim, (at, measured)| {
        claim.drawn(FASTPR, at, &[measured.optimum, 1.15 * measured.optimum])
    });
    let within = all.iter().rev().take_while(|measured| measured.above_optimum() <= 0.15).last();
    let within = within.map_or("no number of".to_owned(), |measured| measured.point.chunks.to_string());
    let findings = format!(
        "More chunks give Algorithm 1 more choice, so its sets have fewer gaps. Here FastPR is within 15% of the optimum \
         from {within} stripes on, in the paper from 400."
    );
    results(findings, vec![claim], vec![table("All numbers of stripes", &all)], &all)
}

/// The kinds of repair in Experiments 4 and 5.
const KINDS: [(&str, Option<usize>, Disks); 3] = [
    ("scattered", None, Disks::Duplex),
    ("scattered, shared disks", None, Disks::Shared),
    ("3 standbys", Some(3), Disks::Duplex),
];

/// The set-up of Experiments 4 and 5.
fn on_ec2(at: &str, packet_bytes: f64, link: f64) -> [Point; 3] {
    KINDS.map(|(kind, standbys, disks)| {
        let model = Model { nodes: 21, packet_bytes, link, standbys, ..Model::PAPER };
        Point { chunks: 50, disks, ..Point::new(format!("{kind}, {at}"), model) }
    })
}

fn of_kind<'a>(all: &'a [Measured], kind: &str) -> impl Iterator<Item = &'a Measured> {
    let (_, standbys, disks) = *KINDS.iter().find(|(name, ..)| *name == kind).expect("a kind of repair");
    all.iter().filter(move |at| (at.point.model.standbys, at.point.disks) == (standbys, disks))
}

fn packets() -> Results {
    let points = [1, 2, 4, 8, 16, 32, 64]
        .into_iter()
        .flat_map(|megabytes| on_ec2(&format!("{megabytes} MB"), f64::from(megabytes) * 1e6, 5.0 * GIGABIT));
    let all = measure(&points.collect::<Vec<_>>(), 1..=30);
    let claims = KINDS[..2].iter().flat_map(|(kind, ..)| packet_claims(&all, kind)).collect();
    let saved = |kind: &str| {
        let at = |size: u32| find(&all, &format!("{kind}, {size} MB")).fastpr;
        percent(1.0 - at(4) / at(64))
    };
    let standbys = percents(of_kind(&all, KINDS[2].0).map(Measured::below_reconstruction));
    let findings = format!(
        "With packets, the steps of a chunk overlap. If a disk reads and writes at its full rate at the same time, as the \
         paper's model assumes, packets of 4 MB save {} of the time of packets of 64 MB; if reads and writes share the \
         disk's rate, {}, because the disks of nodes that both read and write are then the bottleneck. On EC2 it is \
         31.4%. The savings over the other methods depend on the number of nodes and the rate of disks, and the paper's \
         are not available to us. With three standbys, FastPR takes {standbys} less time than reconstruction only.",
        saved(KINDS[0].0),
        saved(KINDS[1].0),
    );
    results(findings, claims, vec![table("All points", &all)], &all)
}

fn packet_claims(all: &[Measured], kind: &str) -> Vec<Claim> {
    let at = |size: u32| find(all, &format!("{kind}, {size} MB")).fastpr;
    let overlap = if kind == KINDS[0].0 { DUPLEX } else { NO_SETTING };
    let claim = |text: &str, paper, here, of, difference| {
        Claim::new(format!("{kind}: {text}"), paper, here).of(of).because(difference)
    };
    let migration: Vec<(usize, f64)> =
        of_kind(all, kind).map(|measured| (tick(all, &measured.point.name), measured.migration)).collect();
    let below_migration = percents(of_kind(all, kind).map(Measured::below_migration));
    let below_reconstruction = percents(of_kind(all, kind).map(Measured::below_reconstruction));
    let sizes = "time of FastPR with the larger packets";
    vec![
        claim("FastPR, 4 MB less than 64 MB", "31.4%", percent(1.0 - at(4) / at(64)), sizes, overlap),
        claim("FastPR, 1 MB less than 4 MB", "negligible", percent(1.0 - at(1) / at(4)), sizes, overlap),
        claim(
            "less than migration only, all sizes",
            "37.7% to 52.3%",
            below_migration,
            MIGRATION,
            NO_SETTING,
        )
        .drawn_below(FASTPR, &[37.7, 52.3], &migration),
        claim(
            "less than reconstruction only, all sizes",
            "1.9% to 24.7%",
            below_reconstruction,
            RECONSTRUCTION,
            NO_SETTING,
        ),
    ]
}

fn bandwidth() -> Results {
    let points = [0.5, 1.0, 5.0]
        .into_iter()
        .flat_map(|gigabits| on_ec2(&format!("{gigabits} Gb/s"), 4e6, gigabits * GIGABIT));
    let all = measure(&points.collect::<Vec<_>>(), 1..=30);
    let (mut claims, mut differences) = (Vec::new(), Vec::new());
    for (rate, [migration, reconstruction]) in [("0.5", ["27.7%", "62.5%"]), ("1", ["27.1%", "61.5%"])] {
        for (kind, ..) in &KINDS[..2] {
            let name = format!("{kind}, {rate} Gb/s");
            let (at, measured) = (tick(&all, &name), find(&all, &name));
            let mut claim = |text: &str, paper: &'static str, here: f64, of| {
                differences.push((here * 100.0 - printed(paper)).abs());
                Claim::new(format!("{name}: {text}"), paper, percent(here)).of(of).because(NO_SETTING)
            };
            let below = claim("less than migration only", migration, measured.below_migration(), MIGRATION);
            claims.push(below.drawn_below(FASTPR, &[printed(migration)], &[(at, measured.migration)]));
            let below = measured.below_reconstruction();
            claims.push(claim("less than reconstruction only", reconstruction, below, RECONSTRUCTION));
        }
    }
    let (least, most) = range(&differences);
    let below = |kind: usize, of: fn(&Measured) -> f64| percents(of_kind(&all, KINDS[kind].0).map(of));
    let findings = format!(
        "Slow links burden reconstruction, which receives k chunks over one link, more than migration. The savings differ \
         from the paper's by {least:.1} to {most:.1} points. The number of nodes, which decides how many chunks a set has, \
         is ours. Over all rates, FastPR takes {} less time than migration only and {} less than reconstruction only \
         scattered, and {} and {} less with three standbys.",
        below(0, Measured::below_migration),
        below(0, Measured::below_reconstruction),
        below(2, Measured::below_migration),
        below(2, Measured::below_reconstruction),
    );
    results(findings, claims, vec![table("All points", &all)], &all)
}

/// Returns the number of a percentage that the paper prints.
fn printed(percentage: &str) -> f64 {
    percentage.trim_end_matches('%').parse().expect("a percentage")
}

/// The number of sets and the processor seconds of one algorithm, as means over seeds.
struct Found {
    sets: f64,
    /// The number of sets with each seed.
    all_sets: Vec<f64>,
    seconds: f64,
}

type Algorithm = fn(&[sim::fastpr::Chunk], usize, usize) -> Vec<sim::fastpr::Set>;
const ALGORITHMS: [(&str, Algorithm); 3] =
    [("first", first_sets), ("Algorithm 1", published_sets), ("ours", sets)];

const FASTER: &str = "Ours keeps the matching of a set and tries fewer exchanges, on another processor.";

fn reconstruction_sets() -> Results {
    let counts = [100, 200, 400, 600, 800, 1000];
    let found: Vec<[Found; 3]> = counts.iter().map(|&count| sets_of(count)).collect();
    let fewer = |[first, published, _]: &[Found; 3]| 1.0 - published.sets / first.sets;
    let from_200 = found[1..].iter().map(fewer);
    let seconds = |at: usize| format!("{:.2} s", found[at][1].seconds);
    let line = |(algorithm, (name, _)): (usize, &(&str, Algorithm))| {
        let points = found.iter().enumerate().map(|(at, found)| (at, found[algorithm].sets));
        ((*name).to_owned(), points.collect())
    };
    let series: Series = ALGORITHMS.iter().enumerate().map(line).collect();
    let spreads = ALGORITHMS.iter().enumerate().flat_map(|(algorithm, (name, _))| {
        let all = found.iter().enumerate();
        all.filter_map(move |(at, found)| Mark::range(name, at, &found[algorithm].all_sets))
    });
    let first = points_of(&series, ALGORITHMS[0].0);
    let claims = vec![
        Claim::new("sets, Algorithm 1 fewer than first, from 200 chunks on", "13%", percents(from_200))
            .of("sets of the first part")
            .because(PLACEMENTS)
            .drawn_below(ALGORITHMS[1].0, &[13.0], &first[1..]),
        Claim::new("running time of Algorithm 1, 100 chunks", "0.84 s", seconds(0)).because(FASTER),
        Claim::new("running time of Algorithm 1, 1,000 chunks", "254.63 s", seconds(counts.len() - 1))
            .because(FASTER),
        Claim::new(
            "running time of ours, 1,000 chunks",
            "",
            format!("{:.2} s", found[counts.len() - 1][2].seconds),
        ),
    ];
    let row = |(count, found): (&usize, &[Found; 3])| {
        let mut row = vec![count.to_string(), count.div_ceil(Model::PAPER.largest_set(6)).to_string()];
        row.extend(found.iter().map(|found| format!("{:.1}", found.sets)));
        row.push(percent(fewer(found)));
        row.extend(found.iter().map(|found| format!("{:.3}", found.seconds)));
        row
    };
    let columns = vec![
        "chunks",
        "no fewer sets than",
        "first, sets",
        "Algorithm 1, sets",
        "ours, sets",
        "Algorithm 1, fewer than first",
        "first, CPU s",
        "Algorithm 1, CPU s",
        "ours, CPU s",
    ];
    Results {
        findings: "Our implementation of Algorithm 1 keeps the matching of a set, skips chunks that cannot have enough \
                   helpers, and stops looking for an exchange when a set is full."
            .to_owned(),
        claims,
        tables: vec![Table { heading: "All numbers of chunks", columns, rows: counts.iter().zip(&found).map(row).collect() }],
        y: "reconstruction sets",
        ticks: counts.iter().map(usize::to_string).collect(),
        series,
        spread: "least to most of all seeds",
        spreads: spreads.collect(),
    }
}

fn sets_of(count: usize) -> [Found; 3] {
    let runs = for_seeds(SEEDS, |seed| {
        let placement = Placement::random(RS_9_6, Model::PAPER.nodes - 1, count, seed);
        ALGORITHMS.map(|(_, find)| {
            let before = thread_seconds();
            let sets = find(&placement.chunks, Model::PAPER.nodes - 1, Model::PAPER.largest_set(6)).len();
            (sets as f64, thread_seconds() - before)
        })
    });
    std::array::from_fn(|algorithm| {
        let all_sets: Vec<f64> = runs.iter().map(|run| run[algorithm].0).collect();
        Found {
            sets: mean(all_sets.iter().copied()),
            all_sets,
            seconds: mean(runs.iter().map(|run| run[algorithm].1)),
        }
    })
}

/// Returns the processor time that this thread has used, in seconds.
fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_savings_need_128_megabytes_per_gigabit() {
        assert_eq!(percent(model_saving(GIGABIT, None, 12)), "33.1%");
        assert_eq!(percent(model_saving(GIGABIT, Some(3), 6)), "41.3%");
        assert_ne!(percent(model_saving(125e6, None, 12)), "33.1%");
    }
}
