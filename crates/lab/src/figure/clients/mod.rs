//! Figure 5 of the CRR paper: several clients read at the same time, and one of 31 reads is degraded.
//!
//! Each client is a process behind a shaped link of its own. It reads whole blocks one after another, as the
//! paper's clients do. All schemes carry out the same reads: only the scheme of the degraded ones differs.

mod measure;
mod page;

use serde::{Deserialize, Serialize};

use super::publish;
use crate::check::Check;
use crate::error::LabError;
use crate::folders::Folders;
use crate::lab_cluster::Programs;
use crate::machine::Machine;
use crate::network::Names;
use crate::report::median;
use crate::run::Say;

pub(super) const NAME: &str = "crr-5";
pub(super) const PAPER: &str = "CRR, figure 5";
pub(super) const TITLE: &str = "Reads by several clients, one of 31 degraded, RS(6,2)";
/// The number of the paper's clients.
const CLIENTS: u16 = 3;
/// Normal reads for each degraded one.
const NORMAL: usize = 30;
/// The scheme with which the others are compared.
const REFERENCE: &str = "conventional";

/// The numbers of clients and the sizes of blocks to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The numbers and sizes that the figure has.
    OfFigure,
    /// Two clients and small blocks, for tests.
    Small,
}

/// The measurements of the figure.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClientsReport {
    machine: Machine,
    check: Check,
    rows: Vec<Row>,
}

/// The reads by one number of clients, of one block size, with one scheme.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    clients: u16,
    block_bytes: u64,
    scheme: String,
    runs: Vec<Run>,
}

/// One repetition: mean times in seconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    all_s: f64,
    normal_s: f64,
    degraded_s: f64,
    disturbed: bool,
    cpu_bound: bool,
    /// The reasons why plans were dropped and replaced.
    replanned: Vec<String>,
}

impl Row {
    fn median(&self, of: fn(&Run) -> f64) -> f64 {
        median(&self.runs.iter().map(of).collect::<Vec<_>>())
    }

    /// The longest minus the shortest mean time, relative to the median.
    fn spread(&self) -> f64 {
        let times = || self.runs.iter().map(|run| run.all_s);
        let (longest, shortest) = (times().fold(f64::NAN, f64::max), times().fold(f64::NAN, f64::min));
        (longest - shortest) / self.median(|run| run.all_s)
    }

    fn is_same_point(&self, other: &Self) -> bool {
        (self.clients, self.block_bytes) == (other.clients, other.block_bytes)
    }

    fn marks(&self) -> String {
        let count = |is: fn(&Run) -> bool| self.runs.iter().filter(|run| is(run)).count();
        let mut marks = Vec::new();
        for (mark, count) in
            [("disturbed", count(|run| run.disturbed)), ("CPU-bound", count(|run| run.cpu_bound))]
        {
            if count > 0 {
                marks.push(format!("{mark} {count}/{}", self.runs.len()));
            }
        }
        let replanned: usize = self.runs.iter().map(|run| run.replanned.len()).sum();
        if replanned > 0 {
            marks.push(format!("replanned {replanned}×"));
        }
        marks.join(", ")
    }
}

impl ClientsReport {
    /// The schemes of the degraded reads, one for each row of the table.
    pub fn schemes(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row.scheme.as_str()).collect()
    }

    /// Returns the time of a row divided by that of conventional repair at the same point.
    fn over_reference(&self, row: &Row) -> f64 {
        row.median(|run| run.all_s) / self.reference_s(row)
    }

    /// Returns the time of each repetition of a row, divided by the median time of conventional repair.
    fn all_over_reference(&self, row: &Row) -> Vec<f64> {
        row.runs.iter().map(|run| run.all_s / self.reference_s(row)).collect()
    }

    /// Returns the time of conventional repair at the point of a row.
    fn reference_s(&self, row: &Row) -> f64 {
        let is_reference = |other: &&Row| other.scheme == REFERENCE && other.is_same_point(row);
        self.rows.iter().find(is_reference).map_or(f64::NAN, |reference| reference.median(|run| run.all_s))
    }
}

/// Creates a lab, carries out all reads, and removes the lab.
///
/// # Errors
/// [`LabError`], also if a read returns wrong bytes.
pub fn run(
    names: &Names,
    programs: &Programs,
    extent: Extent,
    repetitions: u32,
    say: Say<'_>,
) -> Result<ClientsReport, LabError> {
    measure::run(names, programs, extent, repetitions, say)
}

/// Measures the figure, and writes its files.
pub(super) fn measure(
    names: &Names,
    programs: &Programs,
    folders: &Folders,
    repetitions: u32,
    say: Say<'_>,
) -> Result<(), LabError> {
    let report = run(names, programs, Extent::OfFigure, repetitions, say)?;
    publish(&report, folders, say)
}
