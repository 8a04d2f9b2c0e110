//! Recoveries of whole nodes: figures 8e, 10b and 11b of TOS'21, and figure 8 of PPR. The coordinator's scheduler
//! and planner decide, and `sim::recovery` moves the bytes.

use sim::recovery::published::{Recovered, by_m_ppr, by_push, by_requestors, by_width};

use super::{Claim, Results, Series, Simulated, Table, for_seeds, percent, percents};
use crate::figure::plot::{Mark, Marks};

const PATHS: &[&str] = &[
    "crates/sim/src/recovery",
    "crates/sim/src/dice.rs",
    "crates/codes",
    "crates/recovery",
    "crates/repair/src/cost.rs",
    "crates/repair/src/forecast.rs",
    "crates/repair/src/plan.rs",
    "crates/repair/src/planner",
    "crates/repair/src/topology",
];

pub(super) const REQUESTORS: Simulated = Simulated {
    name: "tos21-8e",
    paper: "Repair pipelining (TOS'21), figure 8e",
    title: "Full-node recovery rate by the number of requestors",
    note: "The paper: (14,10), 64 blocks of 64 MiB, 16 helpers, links of 1 Gb/s. Its stars, trees and chains take the \
           helpers with the lowest numbers, and `RP+scheduling` the least recently used ones. Here the requestors hold \
           no blocks, links are the only resource, and figures are means of three placements. `dealt` is Mend's own \
           recovery. The page `nodes.md` measures the same question on real processes, with (9,6).",
    paths: PATHS,
    is_timed: false,
    simulate: requestors,
};

pub(super) const HDFS: Simulated = Simulated {
    name: "tos21-10b",
    paper: "Repair pipelining (TOS'21), figure 10b",
    title: "Full-node recovery rate by code, compared with HDFS's stars",
    note: "The paper: HDFS-3, 64 stripes, all blocks of a DataNode rebuilt on a new one; its text does not say which bar \
           is the 5.1 and which the 16.0. Here HDFS is a star for each block, two of which run at a time on a node, as by \
           default; its other costs are not simulated. 17 nodes, 160 blocks of 64 MiB, links of 1 Gb/s, means of three \
           placements. The page `hdfs.md` measures a real HDFS.",
    paths: PATHS,
    is_timed: false,
    simulate: hdfs,
};

pub(super) const PUSH: Simulated = Simulated {
    name: "tos21-11b",
    paper: "Repair pipelining (TOS'21), figure 11b",
    title: "Full-node recovery rate of PUSH and of slices",
    note: "The paper: (14,10), 4 TiB, blocks of 1 to 64 MiB. Its `Pipe-Rep` and `Pipe-Sur` are PUSH-Rep and PUSH-Sur, which \
           push whole blocks from helper to helper, and the number of blocks that they have in flight is not stated. Here \
           that number varies instead of the size of blocks: 640 blocks of 64 MiB, links of 1 Gb/s, means of three \
           placements. A slice costs its bytes only, so the size of blocks makes no difference.",
    paths: PATHS,
    is_timed: false,
    simulate: push,
};

pub(super) const M_PPR: Simulated = Simulated {
    name: "ppr-8",
    paper: "PPR (EuroSys'16), figure 8",
    title: "m-PPR by the number of blocks that are lost at the same time",
    note: "The paper: 83 chunk servers, RS(12,4), 64 MB chunks, links of 1.4 Gb/s, several servers killed; its text does not \
           state the numbers of lost chunks. Here one node with so many blocks is lost, and all repairs start at once. \
           Stars are the traditional repair. No block is in memory, and clients do not read. `dealt` is Mend's own \
           recovery. Means of three placements.",
    paths: PATHS,
    is_timed: false,
    simulate: m_ppr,
};

/// A quantity on the y axis, and its bound.
#[derive(Clone, Copy)]
struct Quantity {
    value: fn(&Recovered) -> f64,
    bound: fn(&Recovered) -> f64,
}

const RATE: Quantity = Quantity { value: Recovered::rate, bound: Recovered::bound_rate };
const TIME: Quantity =
    Quantity { value: |recovered| recovered.seconds, bound: |recovered| recovered.bound_seconds };

/// The recoveries of a figure: for each setting, the same methods.
struct Sweep {
    settings: Vec<String>,
    all: Vec<Vec<Recovered>>,
}

impl Sweep {
    fn of<T: ToString + Sync>(settings: &[T], recover: fn(&T) -> Vec<Recovered>) -> Self {
        let last = settings.len() as u64 - 1;
        Self {
            settings: settings.iter().map(T::to_string).collect(),
            all: for_seeds(0..=last, |at| recover(&settings[at as usize])),
        }
    }

    fn at(&self, setting: &str) -> usize {
        self.settings.iter().position(|known| known == setting).expect("a setting of the figure")
    }

    fn find(&self, at: usize, method: &str) -> &Recovered {
        let found = self.all[at].iter().find(|recovered| recovered.method == method);
        found.expect("a method of the figure")
    }

    /// Returns the rate of a method divided by that of another one.
    fn times(&self, at: usize, method: &str, than: &str) -> f64 {
        self.find(at, method).rate() / self.find(at, than).rate()
    }

    /// Returns [`times`](Self::times) for each setting.
    fn all_times(&self, method: &str, than: &str) -> Vec<f64> {
        (0..self.settings.len()).map(|at| self.times(at, method, than)).collect()
    }

    fn methods(&self) -> Vec<&'static str> {
        self.all[0].iter().map(|recovered| recovered.method).collect()
    }

    /// Returns the series of the drawing: all methods, and bounds, each with its name and a method that it limits.
    fn series(&self, quantity: Quantity, bounds: &[[&str; 2]]) -> Series {
        let line = |name: &str, method: &str, value: fn(&Recovered) -> f64| {
            let points = (0..self.settings.len()).map(|at| (at, value(self.find(at, method))));
            (name.to_owned(), points.collect())
        };
        let mut series: Series =
            self.methods().into_iter().map(|method| line(method, method, quantity.value)).collect();
        series.extend(bounds.iter().map(|[name, method]| line(name, method, quantity.bound)));
        series
    }

    fn table(&self, heading: &'static str, first: &'static str, cell: fn(&Recovered) -> String) -> Table {
        let columns = std::iter::once(first).chain(self.methods()).collect();
        let row = |(setting, methods): (&String, &Vec<Recovered>)| {
            std::iter::once(setting.clone()).chain(methods.iter().map(cell)).collect()
        };
        Table { heading, columns, rows: self.settings.iter().zip(&self.all).map(row).collect() }
    }
}

fn factor(value: f64) -> String {
    format!("{value:.2}×")
}

fn factors(values: &[f64]) -> String {
    let (least, most) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &value| {
        (least.min(value), most.max(value))
    });
    format!("{} to {}", factor(least), factor(most))
}

fn mebibytes(recovered: &Recovered) -> String {
    format!("{:.0}", recovered.rate())
}

const RATES: &str = "MiB/s";
const Y: &str = "recovery rate, MiB/s";

fn requestors() -> Results {
    const STARS: &str = "conventional, lowest node";
    const TREES: &str = "PPR in rounds, lowest node";
    const CHAINS: &str = "chains, lowest node";
    const LRU: &str = "chains, LRU";
    let sweep = Sweep::of(&[1, 2, 4, 8, 16], |&count| by_requestors(count));
    let published = [("8", 1.89, 0.133, ["1.89×", "13.3%"]), ("16", 1.51, 0.089, ["1.51×", "8.9%"])];
    let (mut claims, mut paper) = (Vec::new(), Vec::new());
    for (count, times, more, [chains, scheduled]) in published {
        let at = sweep.at(count);
        claims.push(
            Claim::new(
                format!("{count} requestors: chains over conventional"),
                chains,
                factor(sweep.times(at, CHAINS, STARS)),
            )
            .because("Stars cost nothing but their bytes here, so they are faster than the paper's."),
        );
        claims.push(
            Claim::new(
                format!("{count} requestors: least recently used helpers, rate above that of the lowest numbers"),
                scheduled,
                percent(sweep.times(at, LRU, CHAINS) - 1.0),
            )
            .of("rate of chains, lowest node")
            .because("Helpers with low numbers send more than others here; how the paper numbers blocks is unknown."),
        );
        let stars = sweep.find(at, STARS).rate();
        let mut add = |series: &str, rate: f64| {
            paper.push(Mark { series: series.to_owned(), at, low: rate, high: rate });
        };
        add(CHAINS, stars * times);
        add(LRU, stars * times * (1.0 + more));
    }
    let at = sweep.at("16");
    claims.push(
        Claim::new(
            "16 requestors: conventional over PPR",
            "slightly above 1×",
            factor(sweep.times(at, STARS, TREES)),
        )
        .because("Unexplained; the paper's PPR is not timed in the text."),
    );
    let of_bound = (0..sweep.settings.len()).map(|at| {
        let dealt = sweep.find(at, "dealt");
        dealt.rate() / dealt.bound_rate()
    });
    claims.push(Claim::new("dealt, part of the bound", "", percents(of_bound)).of("rate of the bound"));
    Results {
        findings: "The paper's numbers in the drawing are its ratios, applied to our stars.".to_owned(),
        claims,
        tables: vec![sweep.table(RATES, "requestors", mebibytes)],
        y: Y,
        series: sweep.series(RATE, &[["bound of the links", "dealt"]]),
        ticks: sweep.settings,
        marks: Marks { paper, ..Marks::default() },
    }
}

fn hdfs() -> Results {
    let sweep = Sweep::of(&["rs-9-6", "rs-12-8", "rs-14-10", "rs-16-12"], |code| by_width(code));
    let one = sweep.all_times("one node: chains", "one node: stars, two at once");
    let all = sweep.all_times("all nodes: dealt", "all nodes: stars, two at once");
    let claims = vec![
        Claim::new("one node: chains over two stars at a time, all codes", "5.1× to 16.0×", factors(&one))
            .because("By bytes alone the ratio is k; HDFS's own reconstruction has further costs."),
        Claim::new("all nodes: dealt over two stars at a time, all codes", "", factors(&all)),
    ];
    Results {
        findings: "A star brings k blocks over the link of one node, and a chain one. If blocks are rebuilt on all nodes, \
                   two stars at a time leave most links idle."
            .to_owned(),
        claims,
        tables: vec![sweep.table(RATES, "code", mebibytes)],
        y: Y,
        series: sweep.series(RATE, &[["bound, one node", "one node: chains"], ["bound, all nodes", "all nodes: dealt"]]),
        ticks: sweep.settings,
        marks: Marks::default(),
    }
}

fn push() -> Results {
    const IN_FLIGHT: &str =
        "The number of blocks that the paper's PUSH has in flight is unknown; the range is over ours.";
    const SLICES: &str = "A slice costs its bytes only here, so slices are never slower than blocks.";
    let sweep = Sweep::of(&[1_u64, 4, 8, 16], |&jobs| by_push(jobs));
    let more = |method: &str, than: &str| {
        percents(sweep.all_times(method, than).into_iter().map(|times| times - 1.0))
    };
    let claims = vec![
        Claim::new(
            "one node, 64 MiB: slices, rate above that of PUSH-Rep",
            "80.2%",
            more("one node: slices", "one node: PUSH-Rep"),
        )
        .of("rate of PUSH-Rep")
        .because(IN_FLIGHT),
        Claim::new(
            "all nodes, 64 MiB: slices, rate above that of PUSH-Sur",
            "268.1%",
            more("all nodes: slices", "all nodes: PUSH-Sur"),
        )
        .of("rate of PUSH-Sur")
        .because(IN_FLIGHT),
        Claim::new(
            "64 MiB: slices on all nodes, rate above that on one node",
            "58.1%",
            more("all nodes: slices", "one node: slices"),
        )
        .of("rate of slices on one node")
        .because(IN_FLIGHT),
        Claim::new(
            "1 MiB: PUSH-Rep and PUSH-Sur, rate above that of slices",
            "9.0% and 9.7%",
            "not simulated",
        )
        .because(SLICES),
    ];
    Results {
        findings: "PUSH forwards a block when it has received all of it, so a chain uses one of its ten helpers at a time, and \
                   its rate depends on the number of chains in flight."
            .to_owned(),
        claims,
        tables: vec![sweep.table(RATES, "blocks in flight on a node", mebibytes)],
        y: Y,
        series: sweep.series(RATE, &[["bound, one node", "one node: dealt"], ["bound, all nodes", "all nodes: dealt"]]),
        ticks: sweep.settings,
        marks: Marks::default(),
    }
}

fn m_ppr() -> Results {
    const STARS: &str = "time of stars";
    const GOOD_STARS: &str = "The simulated stars start at once, each on a node of its own, and cost nothing but their bytes; the \
                              paper's numbers of lost chunks are unknown.";
    let sweep = Sweep::of(&[10, 25, 50, 100, 200], |&blocks| by_m_ppr(blocks));
    let less = |method: &str| percents(sweep.all_times("stars", method).into_iter().map(|part| 1.0 - part));
    let claims = vec![
        Claim::new(
            "m-PPR in rounds, less time than stars, all numbers of blocks",
            "31% to 47%",
            less("m-PPR in rounds"),
        )
        .of(STARS)
        .because(GOOD_STARS),
        Claim::new("m-PPR in slices, less time than stars", "", less("m-PPR in slices")).of(STARS),
        Claim::new("dealt, less time than stars", "", less("dealt")).of(STARS),
    ];
    let seconds = |recovered: &Recovered| format!("{:.2}", recovered.seconds);
    Results {
        findings: "Both methods move twelve blocks for each lost one, so m-PPR can only use the links that stars leave idle. Its \
                   weights count the repairs of a node, but not the place of the node in the tree: the largest aggregator \
                   receives three blocks in each repair, and a leaf none. Rounds take longer than slices, because links \
                   are idle while nodes wait for whole blocks."
            .to_owned(),
        claims,
        tables: vec![sweep.table("Seconds", "blocks lost", seconds)],
        y: "seconds",
        series: sweep.series(TIME, &[["bound of the links", "dealt"]]),
        ticks: sweep.settings,
        marks: Marks::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered(method: &'static str, seconds: f64) -> Recovered {
        Recovered { method, blocks: 10, seconds, bound_seconds: 2.0 }
    }

    fn sweep() -> Sweep {
        Sweep::of(&[1_u32, 4], |&count| {
            vec![recovered("stars", 16.0 / f64::from(count)), recovered("chains", 4.0)]
        })
    }

    #[test]
    fn rates_are_compared_at_the_same_setting() {
        let sweep = sweep();
        assert_eq!(sweep.at("4"), 1);
        assert_eq!(sweep.all_times("chains", "stars"), [4.0, 1.0]);
        assert_eq!(factors(&sweep.all_times("chains", "stars")), "1.00× to 4.00×");
        let table = sweep.table("MiB/s", "requestors", mebibytes);
        assert_eq!(table.columns, ["requestors", "stars", "chains"]);
        assert_eq!(table.rows[0], ["1", "40", "160"]);
    }

    #[test]
    fn every_drawing_has_the_bound() {
        let series = sweep().series(RATE, &[["bound of the links", "chains"]]);
        let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["stars", "chains", "bound of the links"]);
        assert_eq!(series[2].1, [(0, 320.0), (1, 320.0)]);
    }
}
