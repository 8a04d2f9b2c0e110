//! FastPR executed by real processes: a node that will soon fail is emptied in the rounds of Algorithm 2, by
//! migration only, by reconstruction only, and by Mend's own drain.
//!
//! The lab plays the part of FastPR's coordinator. It finds the reconstruction sets and schedules the rounds
//! with the code of `sim::fastpr`, and orders each copy and each rebuild of a round as the repair of a described
//! stripe (`rounds`). Planning, transfer, publishing and reading back are Mend's.

mod rounds;
mod second_names;

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sim::fastpr::{Method, Model, Round};

use self::rounds::{Failing, FailingChunk, Written};
use super::Setup;
use super::cluster::{LOST, NodesLab, copy, named};
use crate::error::LabError;
use crate::instruction::{Answer, Instruction};
use crate::lab_cluster::Programs;
use crate::meter::{Meter, Metered};
use crate::network::Names;
use crate::report::median;
use crate::run::{Say, undisturbed};
use crate::scenario::RETRIES;
use crate::topology::Rate;

const CHUNK_BYTES: u64 = 4 << 20;
/// The number of packets of a chunk: the paper's best packets have 4 MB, its chunks 64 MB.
const PACKETS: u64 = 16;
/// The number of chunks on the failing node, on average over random placements.
const CHUNKS: u64 = 12;
const RATE_MBIT: u32 = 100;
/// The paper's disks relative to `RATE_MBIT`: 100 MB/s, with links of 1 Gb/s, which are 128 MB/s in its model.
const DISK_MBIT: u32 = 78;
/// The bytes that count towards a disk's cap for each byte that a repair stores: it is written and read back.
const STORED: u32 = 2;
/// The part of a link's rate that block data can use.
const PAYLOAD: f64 = 8948.0 / 9014.0;
/// The assumed rate of disks without a cap, in bytes per second: much faster than the links.
const UNCAPPED_DISK: f64 = 1e9;

const RS_9_6: Shape = ("rs-9-6", 9, 6);
const RS_14_10: Shape = ("rs-14-10", 14, 10);
const RS_16_12: Shape = ("rs-16-12", 16, 12);
/// A code: name, blocks, data blocks.
type Shape = (&'static str, u64, u64);

/// The methods of emptying the node, with their names on the page. `None` is Mend's own drain.
pub(crate) const METHODS: [(&str, Option<Method>); 4] = [
    ("migration only", Some(Method::MigrationOnly)),
    ("reconstruction only", Some(Method::ReconstructionOnly)),
    ("FastPR", Some(Method::FastPr)),
    ("Mend's drain", None),
];

/// The clusters to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clusters {
    /// The clusters of the figure `fastpr-lab`.
    OfFigure,
    /// One small cluster, for tests.
    Small,
}

/// A cluster to measure.
#[derive(Clone, Copy, Debug)]
struct Point {
    name: &'static str,
    /// The number of nodes with blocks, the failing one included.
    nodes: u16,
    shape: Shape,
    chunk_bytes: u64,
    rate_mbit: u32,
    /// The rate at which every disk stores chunks; unlimited if `None`.
    disk_mbit: Option<u32>,
    /// The number of hot standbys. If there are none, any healthy node receives chunks.
    standbys: u16,
}

const BASE: Point = Point {
    name: "M = 21",
    nodes: 21,
    shape: RS_9_6,
    chunk_bytes: CHUNK_BYTES,
    rate_mbit: RATE_MBIT,
    disk_mbit: Some(DISK_MBIT),
    standbys: 0,
};
const SMALL: [Point; 1] = [Point {
    name: "small",
    nodes: 6,
    shape: ("rs-4-2", 4, 2),
    chunk_bytes: 1 << 20,
    rate_mbit: 200,
    disk_mbit: Some(156),
    standbys: 1,
}];
const POINTS: [Point; 10] = [
    Point { name: "M = 13", nodes: 13, ..BASE },
    Point { name: "M = 17", nodes: 17, ..BASE },
    BASE,
    Point { name: "(14,10)", shape: RS_14_10, ..BASE },
    Point { name: "(16,12)", shape: RS_16_12, ..BASE },
    Point { name: "50 Mb/s", rate_mbit: 50, ..BASE },
    Point { name: "200 Mb/s", rate_mbit: 200, ..BASE },
    Point { name: "disks without limit", disk_mbit: None, ..BASE },
    Point { name: "2 standbys", standbys: 2, ..BASE },
    Point { name: "3 standbys", standbys: 3, ..BASE },
];

/// A node that was emptied on one cluster by one method.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub(crate) point: String,
    pub(crate) method: String,
    /// Number of chunks on the failing node.
    pub(crate) chunks: usize,
    /// Number of reconstruction sets.
    pub(crate) sets: usize,
    /// Number of rounds, and of chunks that were copied; unknown for Mend's own drain.
    pub(crate) rounds: Option<(usize, usize)>,
    /// Seconds of each repetition.
    pub(crate) times_s: Vec<f64>,
    /// Seconds that `sim::fastpr` takes for the same rounds on the same cluster.
    pub(crate) simulated_s: Option<f64>,
    /// Seconds per chunk of the paper's optimum.
    pub(crate) optimum_s: f64,
    /// Number of disturbed repetitions.
    pub(crate) disturbed: usize,
    /// Number of repetitions in which the processors may have been the bottleneck.
    pub(crate) cpu_bound: usize,
    /// The reasons why plans were dropped and replaced.
    pub(crate) replanned: Vec<String>,
}

impl Row {
    /// Median seconds per chunk.
    pub fn per_chunk(&self) -> f64 {
        median(&self.all_per_chunk())
    }

    /// Seconds per chunk of each repetition.
    pub(crate) fn all_per_chunk(&self) -> Vec<f64> {
        self.times_s.iter().map(|seconds| seconds / self.chunks as f64).collect()
    }

    fn add(&mut self, emptied: Emptied) {
        self.times_s.push(emptied.seconds);
        self.disturbed += usize::from(emptied.metered.disturbed);
        self.cpu_bound += usize::from(emptied.metered.cpu_bound);
        self.replanned.extend(emptied.replanned);
    }
}

impl Point {
    fn setup(&self) -> Setup {
        let (code, blocks, data_blocks) = self.shape;
        Setup {
            helpers: self.nodes + self.standbys,
            spare: self.standbys,
            code,
            data_blocks,
            blocks,
            block_bytes: self.chunk_bytes,
            stripes: CHUNKS * u64::from(self.nodes) / blocks,
        }
    }

    fn packet_bytes(&self) -> u32 {
        (self.chunk_bytes / PACKETS) as u32
    }

    fn rate(&self) -> Rate {
        format!("{}mbit", self.rate_mbit).parse().expect("a rate")
    }

    fn model(&self) -> Model {
        let bytes_per_second = |mbit: u32| f64::from(mbit) * 1e6 / 8.0;
        Model {
            nodes: self.nodes.into(),
            chunk_bytes: self.chunk_bytes as f64,
            packet_bytes: self.packet_bytes().into(),
            disk: self.disk_mbit.map_or(UNCAPPED_DISK, bytes_per_second),
            link: bytes_per_second(self.rate_mbit) * PAYLOAD,
            standbys: (self.standbys > 0).then_some(self.standbys.into()),
        }
    }
}

/// Empties a node on every cluster by every method.
///
/// # Errors
/// [`LabError`]; [`LabError::WrongBytes`] if a chunk differs on its new node.
pub fn run(
    names: &Names,
    programs: &Programs,
    clusters: Clusters,
    repetitions: u32,
    say: Say<'_>,
) -> Result<Vec<Row>, LabError> {
    let points: &[Point] = match clusters {
        Clusters::OfFigure => &POINTS,
        Clusters::Small => &SMALL,
    };
    let mut rows = Vec::new();
    for &point in points {
        let mut emptying = Emptying::prepare(names, programs, point)?;
        for (name, method) in METHODS {
            let row = emptying.row(name, method, repetitions)?;
            say(&format!("{}, {name}: {:.3} s per chunk", point.name, row.per_chunk()));
            row.replanned.iter().for_each(|why| say(&format!("  replanned: {why}")));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// One repetition.
struct Emptied {
    seconds: f64,
    /// Why plans were replaced.
    replanned: Vec<String>,
    metered: Metered,
}

/// A cluster whose first node is emptied again and again.
struct Emptying {
    lab: NodesLab,
    point: Point,
    failing: Failing,
    /// A saved cluster folder in which the failing node's stripes have a second name; rounds move these copies.
    renamed: PathBuf,
}

impl Emptying {
    fn prepare(names: &Names, programs: &Programs, point: Point) -> Result<Self, LabError> {
        let mut lab = NodesLab::up(names, programs, point.setup(), point.rate())?;
        lab.fresh()?;
        let failing = Failing::new(&point.setup(), point.model(), chunks_of(&mut lab)?);
        lab.fleet.stop();
        let renamed = lab.fleet.work().join("renamed");
        copy(&lab.kept, &renamed, false).map_err(LabError::file("copy", &renamed))?;
        second_names::add(&renamed, failing.blocks())?;
        Ok(Self { lab, point, failing, renamed })
    }

    fn row(&mut self, name: &str, method: Option<Method>, repetitions: u32) -> Result<Row, LabError> {
        let rounds = method.map(|method| self.failing.rounds(method));
        let copied = |rounds: &[Round]| rounds.iter().map(|round| round.migrated.len()).sum::<usize>();
        let mut row = Row {
            point: self.point.name.to_owned(),
            method: name.to_owned(),
            chunks: self.failing.count(),
            sets: self.failing.sets.len(),
            rounds: rounds.as_ref().map(|rounds| (rounds.len(), copied(rounds))),
            times_s: Vec::new(),
            simulated_s: method.map(|method| self.failing.simulated_s(method)),
            optimum_s: self.point.model().optimum(self.point.shape.2 as usize),
            disturbed: 0,
            cpu_bound: 0,
            replanned: Vec::new(),
        };
        for _ in 0..repetitions {
            let empty = || match &rounds {
                Some(rounds) => self.in_rounds(name, rounds),
                None => self.by_mend(),
            };
            row.add(undisturbed(RETRIES, |emptied: &Emptied| &emptied.metered, empty)?);
        }
        Ok(row)
    }

    /// Carries out rounds one after another, and adds up their times.
    fn in_rounds(&mut self, name: &str, rounds: &[Round]) -> Result<Emptied, LabError> {
        self.lab.fresh_from(&self.renamed)?;
        self.cap_disks()?;
        let meter = Meter::start(&self.lab.network)?;
        let (mut seconds, mut replanned, mut written) = (0.0, Vec::new(), Vec::new());
        for round in rounds {
            let (transfers, places) = self.failing.transfers(round);
            let slice_bytes = self.point.packet_bytes();
            let (took, why) = self.ask(&Instruction::Round { transfers, slice_bytes })?;
            seconds += took;
            replanned.extend(why);
            written.extend(places);
        }
        let metered = meter.stop()?;
        self.compare(name, &written)?;
        Ok(Emptied { seconds, replanned, metered })
    }

    fn by_mend(&mut self) -> Result<Emptied, LabError> {
        self.lab.fresh()?;
        self.cap_disks()?;
        let meter = Meter::start(&self.lab.network)?;
        let requestors = self.lab.spares();
        let (seconds, replanned) = self.ask(&Instruction::Drain { node: LOST.to_owned(), requestors })?;
        let metered = meter.stop()?;
        self.lab.compare("Mend's drain")?;
        Ok(Emptied { seconds, replanned, metered })
    }

    fn ask(&mut self, order: &Instruction) -> Result<(f64, Vec<String>), LabError> {
        match self.lab.fleet.ask_loader(&self.lab.network, order)? {
            Answer::Took(took) => Ok((took.ns as f64 / 1e9, took.replanned)),
            other => Err(unexpected(&other)),
        }
    }

    /// Caps the disk of every helper, if the cluster's disks are limited.
    fn cap_disks(&mut self) -> Result<(), LabError> {
        let Some(mbit) = self.point.disk_mbit.map(|mbit| mbit * STORED) else { return Ok(()) };
        let cap = u64::from(mbit) * 1_000_000 / 8;
        let caps = (1..=self.lab.setup.helpers).map(|number| (format!("h{number}"), cap)).collect();
        match self.lab.fleet.ask_loader(&self.lab.network, &Instruction::CapDisks { caps })? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Checks that every chunk has its bytes on its new node.
    fn compare(&self, method: &str, written: &[Written]) -> Result<(), LabError> {
        let before = self.lab.blocks_kept(LOST);
        let before = named(&before).map_err(LabError::file("read", before))?;
        for Written { original, block, node } in written {
            let folder = self.lab.fleet.blocks(node);
            let now = named(&folder).map_err(LabError::file("read", &folder))?;
            let wrong = |reason: String| LabError::WrongBytes { what: method.to_owned(), reason };
            let found = now.get(block).ok_or_else(|| wrong(format!("block {block} is not on {node}")))?;
            let read = |path: &PathBuf| fs::read(path).map_err(LabError::file("read", path));
            if read(&before[original])? != read(found)? {
                return Err(wrong(format!("block {block} on {node} differs from {original}")));
            }
        }
        Ok(())
    }
}

/// Returns the blocks of the failing node, each with its stripe.
fn chunks_of(lab: &mut NodesLab) -> Result<Vec<FailingChunk>, LabError> {
    let mut chunks = Vec::new();
    for number in 0..lab.setup.stripes {
        let layout = Instruction::Layout { name: format!("f{number}") };
        match lab.fleet.ask_loader(&lab.network, &layout)? {
            Answer::Layout { stripe, blocks, .. } => chunks.extend(FailingChunk::of(stripe, blocks)),
            other => return Err(unexpected(&other)),
        }
    }
    Ok(chunks)
}

fn unexpected(answer: &Answer) -> LabError {
    LabError::Agent { who: "loader".to_owned(), reason: format!("an answer to something else: {answer:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_as_fast_relative_to_links_as_the_papers() {
        let paper = Model::PAPER.disk / Model::PAPER.link;
        let here = f64::from(DISK_MBIT) / f64::from(RATE_MBIT);
        assert!((here / paper - 1.0).abs() < 0.01, "{here} and {paper}");
        let model = BASE.model();
        assert_eq!(model.disk, f64::from(DISK_MBIT) * 1e6 / 8.0);
    }

    #[test]
    fn every_cluster_has_room_for_its_stripes_and_about_twelve_chunks() {
        for point in POINTS.into_iter().chain(SMALL) {
            let setup = point.setup();
            assert!(setup.blocks < u64::from(point.nodes), "{}", point.name);
            assert!(setup.stripes * setup.blocks / u64::from(point.nodes) >= CHUNKS - 1, "{}", point.name);
            assert_eq!(point.model().packets(), 16);
        }
    }
}
