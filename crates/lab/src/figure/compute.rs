//! Figure 7f of the PPR paper: the computation time on the critical path of a repair. Conventional repair
//! multiplies and adds k blocks on one node. In PPR every node multiplies one block in parallel, followed by
//! ⌈log2(k+1)⌉ additions in sequence. No network is needed: the kernels are timed on random blocks.

use std::time::Instant;

use gf::Kernel;
use serde::{Deserialize, Serialize};

use super::plot::{Chart, Marks};
use super::{OwnReport, publish};
use crate::command::Folders;
use crate::error::LabError;
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
    conventional_s: f64,
    ppr_s: f64,
}

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
        let times: Vec<_> = (0..repetitions)
            .map(|_| {
                let started = Instant::now();
                (0..multiplications).for_each(|_| kernel.mul_add(0x1d, &source, &mut target));
                (0..sums).for_each(|_| kernel.mul_add(1, &source, &mut target));
                started.elapsed().as_secs_f64()
            })
            .collect();
        median(&times)
    };
    let rounds = (helpers + 1).next_power_of_two().trailing_zeros() as usize;
    Computed { helpers, block_bytes, conventional_s: timed(helpers, 0), ppr_s: timed(1, rounds) }
}

fn cells(row: &Computed) -> Vec<String> {
    vec![
        format!("{} MiB", row.block_bytes >> 20),
        row.helpers.to_string(),
        format!("{:.2}", row.conventional_s * 1e3),
        format!("{:.2}", row.ppr_s * 1e3),
        format!("{:.2}×", row.conventional_s / row.ppr_s),
    ]
}

fn markdown(report: &ComputeReport) -> String {
    let Machine { processor, kernel: system, commit, .. } = &report.machine;
    let rows: Vec<_> = report.rows.iter().map(cells).collect();
    let table = markdown_table(&["chunk", "k", "conventional ms", "PPR ms", "PPR is faster"], &rows);
    let kernel = &report.kernel;
    format!(
        "# {PAPER}: {TITLE}\n\n![{TITLE}]({NAME}.svg)\n\nThe paper: PPR is faster at every size, and the \
         advantage grows with k; it prints no figures. Here: the kernel {kernel} on one core of a \
         {processor}, Linux {system}, commit {commit}; the computing time of a repair without any overlap. \
         In Mend, computing overlaps with the network, slice by slice.\n\n{table}"
    )
}

fn chart(report: &ComputeReport) -> Chart {
    let ticks: Vec<_> = [8, 16, 32, 64].map(|mib| format!("{mib} MiB")).into();
    let line = |name: &str, helpers: usize, value: fn(&Computed) -> f64| {
        let rows = report.rows.iter().filter(move |row| row.helpers == helpers);
        (format!("{name}, k = {helpers}"), rows.enumerate().map(|(at, row)| (at, value(row))).collect())
    };
    let both = |helpers| {
        [line("conventional", helpers, |row| row.conventional_s), line("PPR", helpers, |row| row.ppr_s)]
    };
    Chart {
        title: format!("{PAPER}: {TITLE}"),
        x: "chunk size",
        y: "seconds, median",
        ticks,
        series: [6, 12].into_iter().flat_map(both).collect(),
        marks: Marks::default(),
        bars: false,
    }
}
