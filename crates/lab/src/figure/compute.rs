//! Figure 7f of the PPR paper: the computation time on the critical path of a repair. Conventional repair
//! multiplies and adds k blocks on one node. In PPR every node multiplies one block in parallel, followed by
//! ⌈log2(k+1)⌉ additions in sequence. No network is needed: the kernels are timed on random blocks.

use std::time::Instant;

use gf::Kernel;
use serde::{Deserialize, Serialize};

use super::plot::{Chart, Mark, Marks, Points};
use super::{OwnReport, publish};
use crate::error::LabError;
use crate::folders::Folders;
use crate::machine::Machine;
use crate::report::{markdown_table, median};
use crate::run::Say;

pub(super) const NAME: &str = "ppr-7f";
pub(super) const PAPER: &str = "PPR (EuroSys'16), figure 7f";
pub(super) const TITLE: &str = "Computing time by chunk size";

#[derive(Serialize, Deserialize)]
struct Computed {
    helpers: usize,
    block_bytes: usize,
    /// The time of each repetition, in seconds.
    conventional_s: Vec<f64>,
    ppr_s: Vec<f64>,
}

/// Returns the times of a method.
type Times = fn(&Computed) -> &[f64];

/// The methods, with their times.
const METHODS: [(&str, Times); 2] = [("conventional", |row| &row.conventional_s), ("PPR", |row| &row.ppr_s)];

#[derive(Serialize, Deserialize)]
pub(super) struct ComputeReport {
    machine: Machine,
    kernel: String,
    rows: Vec<Computed>,
}

/// Measures the computation times, and writes the table and the drawing.
pub(super) fn measure(folders: &Folders, repetitions: u32, say: Say<'_>) -> Result<(), LabError> {
    let kernel = Kernel::best();
    let mut rows = Vec::new();
    for block_mib in [8, 16, 32, 64] {
        for helpers in [6, 8, 10, 12] {
            rows.push(compute(kernel, helpers, block_mib << 20, repetitions));
        }
    }
    let report = ComputeReport { machine: Machine::this(), kernel: kernel.name().to_owned(), rows };
    publish(&report, folders, say)
}

impl OwnReport for ComputeReport {
    const NAME: &'static str = NAME;

    fn page(&self) -> String {
        markdown(self)
    }

    fn chart(&self) -> Chart {
        chart(self)
    }
}

fn compute(kernel: Kernel, helpers: usize, block_bytes: usize, repetitions: u32) -> Computed {
    let source: Vec<u8> = (0..block_bytes).map(|at| (at * 31 + 7) as u8).collect();
    let mut target = vec![0; block_bytes];

    let mut timed = |multiplications: usize, sums: usize| {
        let mut once = || {
            let started = Instant::now();
            (0..multiplications).for_each(|_| kernel.mul_add(0x1d, &source, &mut target));
            (0..sums).for_each(|_| kernel.mul_add(1, &source, &mut target));
            started.elapsed().as_secs_f64()
        };
        (0..repetitions).map(|_| once()).collect()
    };
    let rounds = (helpers + 1).next_power_of_two().trailing_zeros() as usize;
    Computed { helpers, block_bytes, conventional_s: timed(helpers, 0), ppr_s: timed(1, rounds) }
}

fn cells(row: &Computed) -> Vec<String> {
    let (conventional_s, ppr_s) = (median(&row.conventional_s), median(&row.ppr_s));
    vec![
        format!("{} MiB", row.block_bytes >> 20),
        row.helpers.to_string(),
        format!("{:.2}", conventional_s * 1e3),
        format!("{:.2}", ppr_s * 1e3),
        format!("{:.2}×", conventional_s / ppr_s),
    ]
}

fn markdown(report: &ComputeReport) -> String {
    let machine = report.machine.summary();
    let rows: Vec<_> = report.rows.iter().map(cells).collect();
    let table = markdown_table(&["chunk", "k", "conventional ms", "PPR ms", "PPR is faster"], &rows);
    let kernel = &report.kernel;
    format!(
        "# {PAPER}: {TITLE}\n\n![{TITLE}]({NAME}.svg)\n\nThe paper: PPR is faster at every size, and the \
         advantage grows with k; it prints no figures. Here: the computing time of a repair on one core, without \
         any overlap, with the kernel {kernel}. In Mend, computing overlaps with the network, slice by \
         slice.\n\n{machine}\n\n{table}"
    )
}

fn chart(report: &ComputeReport) -> Chart {
    let ticks: Vec<_> = [8, 16, 32, 64].map(|mib| format!("{mib} MiB")).into();
    let (mut series, mut spreads) = (Vec::new(), Vec::new());
    for helpers in [6, 12] {
        for (name, times) in METHODS {
            let name = format!("{name}, k = {helpers}");
            let rows: Vec<&[f64]> =
                report.rows.iter().filter(|row| row.helpers == helpers).map(times).collect();
            spreads.extend(rows.iter().enumerate().filter_map(|(at, times)| Mark::range(&name, at, times)));
            let points: Points = rows.iter().map(|times| median(times)).enumerate().collect();
            series.push((name, points));
        }
    }
    Chart {
        title: format!("{PAPER}: {TITLE}"),
        x: "chunk size",
        y: "seconds, median",
        ticks,
        series,
        marks: Marks { spread: "shortest to longest", spreads, ..Marks::default() },
        bars: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_drawn_with_their_spread() {
        let row = |block_bytes: usize| Computed {
            helpers: 6,
            block_bytes,
            conventional_s: vec![3.0, 2.0, 4.0],
            ppr_s: vec![1.0],
        };
        let rows = vec![row(8 << 20), row(16 << 20)];
        let report = ComputeReport { machine: Machine::this(), kernel: "k".to_owned(), rows };
        let chart = report.chart();
        assert_eq!(chart.series[0], ("conventional, k = 6".to_owned(), vec![(0, 3.0), (1, 3.0)]));
        let spread = |at| Mark { series: "conventional, k = 6".to_owned(), at, low: 2.0, high: 4.0 };
        assert_eq!(chart.marks.spreads, [spread(0), spread(1)]);
        assert!(report.page().contains("| 3.00×"), "{}", report.page());
    }
}
