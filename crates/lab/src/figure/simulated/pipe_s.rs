//! Figure 11a of TOS'21: Pipe-B, Pipe-S and repair pipelining on ideal links.

use repair::{Pacing, Scheme};

use super::links::{PIPELINED, Way, nodes, ordered};
use super::{Claim, Results, Simulated, Table, percent, percents, points_of};
use crate::figure::plot::Series;

pub(super) const PIPE_S: Simulated = Simulated {
    name: "tos21-11a-serial",
    paper: "Repair pipelining (TOS'21), figure 11a",
    title: "Pipe-B, Pipe-S and repair pipelining on links without buffers",
    note: "The paper: (14,10), 1 Gb/s, slices of 32 KiB. Here a helper of Pipe-S receives a slice, and sends it before \
           the next one arrives. Disks, processors and round trips take no time here. The page `tos21-11a` measures the \
           same with real processes.",
    paths: &[
        "crates/sim/src/recovery/single.rs",
        "crates/sim/src/recovery/rounds.rs",
        "crates/sim/src/recovery/flows.rs",
        "crates/lab/src/figure/simulated/links.rs",
        "crates/codes",
        "crates/recovery",
        "crates/repair/src/cost.rs",
        "crates/repair/src/plan.rs",
        "crates/repair/src/planner",
        "crates/repair/src/topology",
    ],
    is_timed: false,
    simulate,
};

const SIZES: [u64; 4] = [8, 16, 32, 64];
const GIGABIT: f64 = 125e6;
const PIPE_B: Way = Way { name: "Pipe-B", scheme: Scheme::PipeB, pacing: None };
const SERIAL: Way = Way { name: "Pipe-S", scheme: Scheme::PipeS, pacing: Some(Pacing::Serial) };
const WAYS: [Way; 3] = [PIPE_B, SERIAL, PIPELINED];
const NO_DISKS: &str = "Disks, processors and headers take no time here.";

fn simulate() -> Results {
    let topology = nodes((0..14).map(|node| (format!("r{node}"), GIGABIT)));
    let seconds = |mebibytes: u64| {
        let mut repair = ordered("rs-14-10", &(1..14).collect::<Vec<_>>(), &topology);
        repair.block_bytes = mebibytes << 20;
        repair.slice_bytes = Some(32 << 10);
        WAYS.map(|way| repair.seconds(way.scheme, way.pacing).expect("a plan"))
    };
    let all = SIZES.map(seconds);
    let largest = all[SIZES.len() - 1];
    let less = |than: usize| percents(all.iter().map(|times| 1.0 - times[2] / times[than]));
    let line = |(way, Way { name, .. }): (usize, &Way)| {
        ((*name).to_owned(), all.iter().enumerate().map(|(at, times)| (at, times[way])).collect())
    };
    let mut series: Series = WAYS.iter().enumerate().map(line).collect();
    let transfer = |(at, size): (usize, &u64)| (at, (size << 20) as f64 / GIGABIT);
    series.push(("bound: one transfer".to_owned(), SIZES.iter().enumerate().map(transfer).collect()));
    let last = SIZES.len() - 1;
    let claims = vec![
        Claim::new("Pipe-B, 64 MiB", "9.0 s", format!("{:.2} s", largest[0]))
            .because("Unexplained; ten transfers of a block take 5.4 s over these links.")
            .drawn(PIPE_B.name, last, &[9.0]),
        Claim::new("Pipe-S, 64 MiB", "1.1 s", format!("{:.2} s", largest[1])).because(NO_DISKS).drawn(
            SERIAL.name,
            last,
            &[1.1],
        ),
        Claim::new("repair pipelining, 64 MiB", "0.61 s", format!("{:.2} s", largest[2]))
            .because(NO_DISKS)
            .drawn(PIPELINED.name, last, &[0.61]),
        Claim::new("repair pipelining, less than Pipe-S, all sizes", "41.1% to 43.0%", less(1))
            .of("time of Pipe-S")
            .because("Unexplained; the paper's helpers also read and compute, which takes no time here.")
            .drawn_below(PIPELINED.name, &[41.1, 43.0], points_of(&series, SERIAL.name)),
    ];
    let row = |(size, times): (&u64, &[f64; 3])| {
        let mut row = vec![format!("{size} MiB")];
        row.extend(times.iter().map(|time| format!("{time:.3}")));
        row.push(percent(1.0 - times[2] / times[1]));
        row
    };
    let columns = vec!["block", "Pipe-B, s", "Pipe-S, s", "repair pipelining, s", "less than Pipe-S"];
    Results {
        findings: "A serial helper needs two steps for each slice, so repair pipelining saves half. The paper measures 41% \
                   to 43%; its helpers also read and compute, which takes no time here. Whether this explains the \
                   difference is not known. The paper's Pipe-B takes 9.0 s, more than ten transfers of a block; its text \
                   does not say why."
            .to_owned(),
        claims,
        tables: vec![Table {
            heading: "All sizes",
            columns,
            rows: SIZES.iter().zip(&all).map(row).collect(),
        }],
        y: "seconds",
        ticks: SIZES.iter().map(|size| format!("{size} MiB")).collect(),
        series,
        spread: "",
        spreads: Vec::new(),
    }
}
