//! Table 1 and figure 1 of the Hitchhiker paper, as far as they need no network: storage, parameters, fault
//! tolerance, blocks read, and computing times.
//!
//! The time of reading and the bytes on the network are measured by the figure `hitchhiker-1`.

use std::time::Instant;

use codes::{BlockIndex, Code, CodeSpec, Recipe};
use gf::Kernel;
use serde::{Deserialize, Serialize};

use super::plot::{Chart, Mark, Marks, Points};
use super::{ClaimRow, OwnReport, claims_table, percent, percents, publish};
use crate::error::LabError;
use crate::folders::Folders;
use crate::machine::Machine;
use crate::report::median;
use crate::run::Say;

pub(super) const NAME: &str = "hitchhiker-code";
pub(super) const PAPER: &str = "Hitchhiker (SIGCOMM'14), table 1 and figure 1";
pub(super) const TITLE: &str = "Properties and computing times of XOR+ and RS(10,4)";
pub(super) const PATHS: &[&str] = &["crates/gf", "crates/codes", "crates/lab/src/figure/arithmetic.rs"];

const NOTE: &str = "\
The rows of the paper's table 1 that need no network, for its default parameters (10 data and 4 parity units), and the arithmetic of its
introduction; the table has nine rows. Times are those of one core over buffers in memory, in pieces of 32 KiB: a block of 4 MiB is rebuilt from the units that the
code reads, or the parity blocks of a stripe of such blocks are computed, one sum after the other. Mend's encoder shares passes between sums
(`encoding.md`). The rows on reading times are on the page `hitchhiker-1.md`.";

const REED_SOLOMON: &str = "rs-14-10";
const HITCHHIKER: &str = "hitchhiker-xorplus-14-10";
const BLOCK_BYTES: usize = 4 << 20;
const SLICE_BYTES: usize = 32 << 10;
/// The terabytes that pass top-of-rack switches in a day for repairs in the paper's warehouse.
const DAILY_TERABYTES: f64 = 180.0;
/// The paper's computing times relative to Reed-Solomon: rebuilding a block, and encoding a stripe.
const PAPERS_TIMES: [f64; 2] = [1.0 - 0.361, 1.721];
const SERIES: [&str; 2] = ["RS(10,4)", "Hitchhiker XOR+"];

/// The results. Pairs are those of Reed-Solomon and of Hitchhiker.
#[derive(Serialize, Deserialize)]
pub(super) struct ArithmeticReport {
    machine: Machine,
    kernel: String,
    /// Stored bytes per byte of data.
    storage: [f64; 2],
    /// How many of the tried parameters Hitchhiker supports, and how many were tried.
    parameters: [usize; 2],
    /// How many of the sets of lost blocks Hitchhiker rebuilds, and how many there are.
    losses: [usize; 2],
    /// The parts of the data that repairs of each data block read less with Hitchhiker.
    saved: Vec<f64>,
    /// The units that the repair of figure 1 transfers.
    units: usize,
    /// Seconds of rebuilding a block, in each repetition.
    rebuild_s: [Vec<f64>; 2],
    /// Seconds of encoding a stripe, in each repetition.
    encode_s: [Vec<f64>; 2],
}

/// Computes and measures the figure, and writes its files.
pub(super) fn measure(folders: &Folders, repetitions: u32, say: Say<'_>) -> Result<(), LabError> {
    let codes = [REED_SOLOMON, HITCHHIKER].map(spec);
    let built = codes.each_ref().map(|spec| spec.build().expect("a possible code"));
    let kernel = Kernel::best();
    let seconds =
        |recipe: &Recipe, code: &dyn Code| computing_s(kernel, recipe, code.sub_blocks(), repetitions);
    let report = ArithmeticReport {
        machine: Machine::this(),
        kernel: kernel.name().to_owned(),
        storage: codes.each_ref().map(|spec| spec.blocks() as f64 / spec.data_blocks() as f64),
        parameters: parameters(),
        losses: losses(&*built[1], 4),
        saved: (0..10).map(|lost| 1.0 - part_read(&*built[1], lost)).collect(),
        units: repair_of(&*spec("rs-4-2").build().expect("a possible code"), &[0])
            .map_or(0, |recipe| recipe.sources().len()),
        rebuild_s: built
            .each_ref()
            .map(|code| seconds(&repair_of(&**code, &[0]).expect("one block can be rebuilt"), &**code)),
        encode_s: built.each_ref().map(|code| seconds(code.encoding(), &**code)),
    };
    publish(&report, folders, say)
}

fn spec(name: &str) -> CodeSpec {
    name.parse().expect("a code's name")
}

/// Returns the recipe that rebuilds these blocks from all others; `None` if they cannot be rebuilt.
fn repair_of(code: &dyn Code, lost: &[u16]) -> Option<Recipe> {
    let others: Vec<BlockIndex> =
        (0..code.blocks() as u16).filter(|block| !lost.contains(block)).map(BlockIndex).collect();
    let wanted: Vec<BlockIndex> = lost.iter().copied().map(BlockIndex).collect();
    code.repair(&wanted, &others).ok()
}

/// Returns the part of the stripe's data that the repair of a block reads.
fn part_read(code: &dyn Code, lost: u16) -> f64 {
    let read = repair_of(code, &[lost]).expect("one block can be rebuilt").sources().len();
    read as f64 / (code.data_blocks() * code.sub_blocks()) as f64
}

/// Returns for how many parameters with two to four parity blocks Hitchhiker can be built, and how many are tried.
fn parameters() -> [usize; 2] {
    let tried = (2..=16).flat_map(|k| (2..=4).map(move |parities| (k + parities, k)));
    let tried: Vec<String> = tried
        .flat_map(|(n, k)| ["xor", "nonxor"].map(|variant| format!("hitchhiker-{variant}-{n}-{k}")))
        .collect();
    let is_possible = |name: &&String| name.parse::<CodeSpec>().is_ok_and(|spec| spec.build().is_ok());
    [tried.iter().filter(is_possible).count(), tried.len()]
}

/// Returns how many of all sets of `count` lost blocks can be rebuilt, and the number of these sets.
fn losses(code: &dyn Code, count: u32) -> [usize; 2] {
    let blocks = code.blocks() as u16;
    let sets = (0_u32..1 << blocks).filter(|set| set.count_ones() == count);
    let lost = |set: u32| (0..blocks).filter(|&block| (set >> block) & 1 == 1).collect::<Vec<u16>>();
    let sets: Vec<Vec<u16>> = sets.map(lost).collect();
    [sets.iter().filter(|lost| repair_of(code, lost).is_some()).count(), sets.len()]
}

/// Returns the seconds that all sums of a recipe take, in each repetition.
fn computing_s(kernel: Kernel, recipe: &Recipe, sub_blocks: usize, repetitions: u32) -> Vec<f64> {
    let bytes = BLOCK_BYTES / sub_blocks;
    let noise = |seed: usize| (0..bytes).map(|at| (at * 31 + seed * 7) as u8).collect::<Vec<u8>>();
    let sources: Vec<Vec<u8>> = (0..recipe.sources().len()).map(noise).collect();
    let mut target = vec![0; bytes];
    let mut once = || {
        let started = Instant::now();
        for output in 0..recipe.outputs().len() {
            combine(kernel, recipe.row(output), &sources, &mut target);
        }
        started.elapsed().as_secs_f64()
    };
    (0..repetitions).map(|_| once()).collect()
}

/// Computes one sum of a recipe, piece by piece.
fn combine(kernel: Kernel, terms: &[(u32, u8)], sources: &[Vec<u8>], target: &mut [u8]) {
    let coefficients: Vec<u8> = terms.iter().map(|&(_, coefficient)| coefficient).collect();
    for start in (0..target.len()).step_by(SLICE_BYTES) {
        let slice = start..target.len().min(start + SLICE_BYTES);
        let read: Vec<&[u8]> =
            terms.iter().map(|&(source, _)| &sources[source as usize][slice.clone()]).collect();
        kernel.combine(&coefficients, &read, &mut [&mut target[slice]]);
    }
}

impl OwnReport for ArithmeticReport {
    const NAME: &'static str = NAME;

    fn page(&self) -> String {
        let Self { kernel, rebuild_s, encode_s, .. } = self;
        let milliseconds = |times: &[Vec<f64>; 2]| {
            let [reed_solomon, hitchhiker] = times.each_ref().map(|times| median(times) * 1e3);
            format!("{reed_solomon:.2} ms and {hitchhiker:.2} ms")
        };
        format!(
            "# {PAPER}: {TITLE}\n\n![{TITLE}]({NAME}.svg)\n\n{NOTE}\n\n{}\n## The measurement\n\n{}\n\nMedians with the kernel \
             {kernel}, RS(10,4) and Hitchhiker XOR+: rebuilding a block takes {}, and encoding a stripe {}.\n",
            claims_table(self.claims()),
            self.machine.summary(),
            milliseconds(rebuild_s),
            milliseconds(encode_s),
        )
    }

    fn chart(&self) -> Chart {
        let all = [&self.rebuild_s, &self.encode_s].map(over_reed_solomon);
        let over =
            |code: usize| -> Points { all.iter().map(|pair| median(&pair[code])).enumerate().collect() };
        let spreads = SERIES.iter().enumerate().flat_map(|(code, name)| {
            all.iter().enumerate().filter_map(move |(at, pair)| Mark::range(name, at, &pair[code]))
        });
        let series = SERIES.iter().enumerate().map(|(code, name)| ((*name).to_owned(), over(code)));
        let paper = PAPERS_TIMES.iter().enumerate().map(|(at, &time)| Mark {
            series: SERIES[1].to_owned(),
            at,
            low: time,
            high: time,
        });
        Chart {
            title: format!("{PAPER}: {TITLE}"),
            x: "",
            y: "computing time over Reed-Solomon",
            ticks: ["rebuilding a block", "encoding a stripe"].map(str::to_owned).into(),
            series: series.collect(),
            marks: Marks {
                spread: "shortest to longest",
                spreads: spreads.collect(),
                paper: paper.collect(),
            },
            bars: true,
        }
    }
}

/// Returns the times of both codes, divided by the median time of Reed-Solomon.
fn over_reed_solomon(times: &[Vec<f64>; 2]) -> [Vec<f64>; 2] {
    let reed_solomon = median(&times[0]);
    times.each_ref().map(|times| times.iter().map(|seconds| seconds / reed_solomon).collect())
}

impl ArithmeticReport {
    fn claims(&self) -> Vec<ClaimRow> {
        let mut claims = self.claims_about_data();
        claims.extend(self.claims_about_costs());
        claims
    }

    /// Returns the claims about storage, parameters and fault tolerance.
    fn claims_about_data(&self) -> Vec<ClaimRow> {
        let [supported, tried] = self.parameters;
        let [rebuilt, sets] = self.losses;
        vec![
            row(
                "storage requirement, RS and Hitchhiker",
                "same (optimal)",
                format!("{:.2} and {:.2} × the data", self.storage[0], self.storage[1]),
                "",
                "None.",
            ),
            row(
                "supported parameters, XOR and nonXOR, k = 2 to 16, r = 2 to 4",
                "all",
                format!("{supported} of {tried}"),
                "",
                "Only these parameters were tried.",
            ),
            row(
                "fault tolerance, XOR+: sets of four lost blocks that are rebuilt",
                "same (optimal)",
                format!("{rebuilt} of {sets}"),
                "",
                "None.",
            ),
        ]
    }

    /// Returns the claims about the traffic and the time of repairs and encoding.
    fn claims_about_costs(&self) -> Vec<ClaimRow> {
        let over = |times: &[Vec<f64>; 2]| median(&over_reed_solomon(times)[1]) - 1.0;
        let least = self.saved.iter().copied().fold(f64::INFINITY, f64::min);
        vec![
            row(
                "data downloaded and read, XOR+, each data block, less than RS",
                "35%",
                percents(self.saved.iter().copied()),
                "bytes that RS reads",
                "None: 13 of 20 half-blocks.",
            ),
            row(
                "computation time of a repair, XOR+, less than RS",
                "36.1%",
                percent(-over(&self.rebuild_s)),
                "computation time of RS",
                "The paper's processors and coder are others.",
            ),
            row(
                "encoding time, XOR+, more than RS",
                "72.1%",
                percent(over(&self.encode_s)),
                "encoding time of RS",
                "The paper's processors and coder are others.",
            ),
            row(
                "figure 1: units that cross the network to rebuild one unit, RS(2,2)",
                "2",
                self.units.to_string(),
                "",
                "None.",
            ),
            row(
                "traffic of top-of-rack switches saved in a day, of 180 TB",
                "close to 62 TB",
                format!("{:.0} TB", least * DAILY_TERABYTES),
                "",
                "The paper says that more than 180 TB are transferred; how it rounds is not stated.",
            ),
        ]
    }
}

fn row(what: &str, paper: &str, here: String, of: &str, difference: &str) -> ClaimRow {
    ClaimRow {
        what: what.to_owned(),
        paper: paper.to_owned(),
        here,
        of: of.to_owned(),
        difference: difference.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_recipe() {
        let code = spec(HITCHHIKER).build().unwrap();
        let recipe = repair_of(&*code, &[0]).unwrap();
        let sources: Vec<Vec<u8>> =
            (0..recipe.sources().len()).map(|seed| vec![seed as u8 + 1; SLICE_BYTES + 64]).collect();
        let expected = recipe.apply(&sources.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut target = vec![0; SLICE_BYTES + 64];
        for (output, expected) in expected.iter().enumerate() {
            combine(Kernel::best(), recipe.row(output), &sources, &mut target);
            assert!(target == *expected, "sum {output}");
        }
    }

    #[test]
    fn properties_are_those_of_the_papers_table() {
        let code = spec(HITCHHIKER).build().unwrap();
        for lost in 0..10 {
            assert_eq!(part_read(&*code, lost), 0.65, "block {lost}");
        }
        let [supported, tried] = parameters();
        assert_eq!((supported, tried), (90, 90));
        assert_eq!(losses(&*spec("hitchhiker-xorplus-9-6").build().unwrap(), 3), [84, 84]);
        assert_eq!(repair_of(&*spec("rs-4-2").build().unwrap(), &[0]).unwrap().sources().len(), 2);
    }

    #[test]
    fn every_row_of_the_table_has_the_papers_value_and_ours() {
        let report = ArithmeticReport {
            machine: Machine::this(),
            kernel: "k".to_owned(),
            storage: [1.4, 1.4],
            parameters: [90, 90],
            losses: [1001, 1001],
            saved: vec![0.35; 10],
            units: 2,
            rebuild_s: [vec![2.0], vec![1.5, 1.0, 2.0]],
            encode_s: [vec![1.0], vec![1.25]],
        };
        let page = report.page();
        for text in ["1.40 and 1.40 × the data", "1001 of 1001", "| 36.1%", "| 25.0%", "| 72.1%", "63 TB"] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        let chart = report.chart();
        assert_eq!(chart.series[1], ("Hitchhiker XOR+".to_owned(), vec![(0, 0.75), (1, 1.25)]));
        assert_eq!(chart.marks.paper.len(), 2);
        let spread = Mark { series: SERIES[1].to_owned(), at: 0, low: 0.5, high: 1.0 };
        assert_eq!(chart.marks.spreads, [spread]);
    }
}
