//! The time model of section 3.3 of the CRR paper, with this machine's constants, compared with the
//! measurement.
//!
//! The model adds up the times of reading, multiplying, sending and adding a block, as if whole blocks travel
//! in rounds. With slices, the steps overlap, and the slowest one determines the time. Seek times and message
//! setup are left out: the page cache serves the reads, and setup takes one round trip of about 50 µs.

use std::time::Instant;

use gf::Kernel;
use repair::Scheme;
use serde::{Deserialize, Serialize};

use super::block_of;
use crate::report::{Report, Row, markdown_table, median};
use crate::variant::Variant;

const SAMPLE_BYTES: usize = 64 << 20;
const REPETITIONS: usize = 5;

/// Times in seconds per byte, on one core, with buffers in memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// t_p: multiplying.
    pub multiply_s: f64,
    /// t_x: adding.
    pub add_s: f64,
    /// t_m and t_rw: copying, and reading from the page cache.
    pub copy_s: f64,
}

impl Constants {
    /// Measures this machine's constants.
    pub fn measure() -> Self {
        let kernel = Kernel::best();
        let source: Vec<u8> = (0..SAMPLE_BYTES).map(|at| (at * 31 + 7) as u8).collect();
        let mut target = vec![0; SAMPLE_BYTES];
        let mut per_byte = |work: &dyn Fn(&mut [u8])| {
            let times: Vec<_> = (0..REPETITIONS)
                .map(|_| {
                    let started = Instant::now();
                    work(&mut target);
                    started.elapsed().as_secs_f64()
                })
                .collect();
            median(&times) / SAMPLE_BYTES as f64
        };
        Self {
            multiply_s: per_byte(&|target| kernel.mul_into(0x1d, &source, target)),
            add_s: per_byte(&|target| kernel.xor(&source, target)),
            copy_s: per_byte(&|target| target.copy_from_slice(&source)),
        }
    }

    /// Returns the predicted time in seconds; `None` for schemes without a formula. `slot_s` is t_w·b, the
    /// time to send one block. The formulas are as printed in the paper, except that the client of SRR, which
    /// is conventional repair, multiplies k blocks instead of one.
    fn predict(&self, scheme: Scheme, helpers: usize, block_bytes: u64, slot_s: f64) -> Option<f64> {
        let (k, b) = (helpers as f64, block_bytes as f64);
        let depth = f64::from(helpers.next_power_of_two().trailing_zeros());
        let Self { multiply_s, add_s, copy_s } = self;
        Some(match scheme {
            Scheme::Conventional => k * slot_s + b * (copy_s + k * multiply_s + (k - 1.0) * add_s + copy_s),
            Scheme::CrrR => (depth + 1.0) * slot_s + b * (copy_s + multiply_s + depth * add_s),
            Scheme::CrrS => {
                let share = (k - 1.0) / k;
                (2.0 * share + 1.0) * slot_s + b * (copy_s + multiply_s + share * add_s)
            }
            _ => return None,
        })
    }
}

/// Returns the section of a figure's page on the time model; empty if the report has no constants.
pub(super) fn section(report: &Report) -> String {
    let Some(constants) = report.constants else { return String::new() };
    let rows: Vec<_> = report.rows.iter().filter_map(|row| cells(row, &constants)).collect();
    let nanoseconds = |seconds: f64| format!("{:.3} ns", seconds * 1e9);
    format!(
        "\n## The time model of section 3.3 and the measurement\n\nPer byte: multiplying {}, adding {}, \
         copying and reading from the page cache {}; sending a block takes the direct send of the same run. \
         The model adds up the terms, as in rounds; in sliced schemes they overlap, and only the network \
         time remains.\n\n{}",
        nanoseconds(constants.multiply_s),
        nanoseconds(constants.add_s),
        nanoseconds(constants.copy_s),
        markdown_table(&["code", "block", "scheme", "model s", "measured s", "difference"], &rows)
    )
}

fn cells(row: &Row, constants: &Constants) -> Option<Vec<String>> {
    let scheme = row.used?;
    // The model assumes rounds. CRR-R is measured in rounds and in slices; skip the sliced rows.
    if scheme == Scheme::CrrR && !(Variant { pacing: row.case.pacing, ..Variant::own(scheme) }).is_in_rounds()
    {
        return None;
    }
    let model = constants.predict(scheme, row.case.data_blocks, row.case.block_bytes, row.time.direct_s)?;
    Some(vec![
        row.case.code.clone(),
        block_of(row),
        row.case.scheme.clone(),
        format!("{model:.4}"),
        format!("{:.4}", row.time.median_s),
        format!("{:+.1}%", (row.time.median_s / model - 1.0) * 100.0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_most_of_the_model() {
        let constants = Constants { multiply_s: 1e-10, add_s: 1e-10, copy_s: 1e-10 };
        let slots = |scheme, helpers| constants.predict(scheme, helpers, 1 << 20, 1.0).map(f64::round);
        assert_eq!(slots(Scheme::Conventional, 6), Some(6.0));
        assert_eq!(slots(Scheme::CrrR, 6), Some(4.0));
        assert_eq!(slots(Scheme::CrrR, 12), Some(5.0));
        assert_eq!(slots(Scheme::CrrS, 1 << 10), Some(3.0));
        assert_eq!(slots(Scheme::Pipelined, 6), None);
    }
}
