//! Recoveries of whole nodes: figures 8e, 10b and 11b of TOS'21, and figure 8 of PPR. The settings and methods are in
//! [`recoveries`](super::recoveries).

use std::fmt;

use super::recoveries::{Recovered, by_m_ppr, by_push, by_requestors, by_width};
use super::{Claim, Results, Series, Simulated, Table, for_seeds, percent, percents, points_of, range};
use crate::figure::plot::Mark;

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
    "crates/lab/src/figure/simulated/recoveries.rs",
];

pub(super) const REQUESTORS: Simulated = Simulated {
    name: "tos21-8e",
    paper: "Repair pipelining (TOS'21), figure 8e",
    title: "Full-node recovery rate by the number of requestors",
    note: "The paper: (14,10), 16 machines with helpers, one of which has 64 blocks of 64 MiB erased, links of 1 Gb/s. All \
           blocks are recovered at the same time and dealt evenly to requestors, each on a machine of its own that holds \
           no available block of the stripe. Stars, trees and chains take the helpers with the lowest numbers, and \
           `RP+scheduling` the least recently used ones. Here as well; the first requestor is on the failed machine, and \
           the others are on the machines with the lowest numbers. Section 6.1 of the paper cuts blocks into slices for \
           conventional repair and PPR as well, so PPR is simulated in slices and in rounds. Links are the only resource, \
           and figures are means of three placements. `dealt` is Mend's own recovery. The page `nodes.md` measures the \
           same question on real processes, with (9,6).",
    paths: PATHS,
    is_timed: false,
    simulate: requestors,
};

pub(super) const HDFS: Simulated = Simulated {
    name: "tos21-10b",
    paper: "Repair pipelining (TOS'21), figure 10b",
    title: "Full-node recovery rate by code, compared with HDFS's stars",
    note: "The paper: HDFS-3 on 16 DataNodes, 64 stripes, all blocks of a DataNode rebuilt on a new one; its text does not \
           say which bar is the 5.1 and which the 16.0. Here HDFS is a star for each block, two of which run at a time on \
           a node, as by default; its other costs are not simulated. 15 nodes survive and one is new, blocks have 64 \
           MiB, links 1 Gb/s; means of three placements. If blocks may go to all nodes, only the new node can take those \
           of (16,12), because each survivor has a block of the stripe. The page `hdfs.md` measures a real HDFS.",
    paths: PATHS,
    is_timed: false,
    simulate: hdfs,
};

pub(super) const PUSH: Simulated = Simulated {
    name: "tos21-11b",
    paper: "Repair pipelining (TOS'21), figure 11b",
    title: "Full-node recovery rate of PUSH and of slices",
    note: "The paper: (14,10), 16 machines, blocks of 1 to 64 MiB, slices of 32 KiB. Its `Pipe-Rep` and `Pipe-Sur` are \
           PUSH-Rep and PUSH-Sur, which push whole blocks from helper to helper. Slices have 16 requestors: all on the \
           node that receives the blocks (`RP-single`), or one on each node (`RP-all`). Here 4 GiB are recovered (the \
           paper: 4 TiB, more than a disk of its machines holds), and at most 16 repairs involve a node; for PUSH, the \
           paper does not state the number. Mend's policy for PUSH-Sur gives a block to the node with the fewest stored \
           and coming ones, which deals blocks in turn if nodes are equal. A slice costs its bytes only, and a chain is \
           full from the start. Links have 1 Gb/s; means of three placements.",
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
    /// The values with each placement.
    each: fn(&Recovered) -> Vec<f64>,
    bound: fn(&Recovered) -> f64,
}

const RATE: Quantity =
    Quantity { value: Recovered::rate, each: Recovered::rates, bound: Recovered::bound_rate };
const TIME: Quantity = Quantity {
    value: Recovered::mean_seconds,
    each: |recovered| recovered.seconds.clone(),
    bound: |recovered| recovered.bound_seconds,
};

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

    /// Returns the ranges over placements.
    fn spreads(&self, quantity: Quantity) -> Vec<Mark> {
        let of = |(at, methods): (usize, &Vec<Recovered>)| {
            let mark = |recovered: &Recovered| Mark::range(recovered.method, at, &(quantity.each)(recovered));
            methods.iter().filter_map(mark).collect::<Vec<_>>()
        };
        self.all.iter().enumerate().flat_map(of).collect()
    }

    /// Returns the results with this quantity on the y axis.
    fn results(self, quantity: Quantity, y: &'static str, bounds: &[[&str; 2]], shown: Shown) -> Results {
        let Shown { findings, claims, table } = shown;
        Results {
            findings: findings.to_owned(),
            claims,
            tables: vec![table],
            y,
            series: self.series(quantity, bounds),
            spread: "least to most of all placements",
            spreads: self.spreads(quantity),
            ticks: self.settings,
        }
    }

    fn table(&self, heading: &'static str, first: &'static str, cell: fn(&Recovered) -> String) -> Table {
        let columns = std::iter::once(first).chain(self.methods()).collect();
        let row = |(setting, methods): (&String, &Vec<Recovered>)| {
            std::iter::once(setting.clone()).chain(methods.iter().map(cell)).collect()
        };
        Table { heading, columns, rows: self.settings.iter().zip(&self.all).map(row).collect() }
    }
}

/// The texts and numbers of a page.
struct Shown {
    findings: &'static str,
    claims: Vec<Claim>,
    table: Table,
}

fn factor(value: f64) -> String {
    format!("{value:.2}×")
}

fn factors(values: &[f64]) -> String {
    let (least, most) = range(values);
    format!("{} to {}", factor(least), factor(most))
}

fn mebibytes(recovered: &Recovered) -> String {
    format!("{:.0}", recovered.rate())
}

const RATES: &str = "MiB/s";
const Y: &str = "recovery rate, MiB/s";

fn requestors() -> Results {
    const STARS: &str = "conventional, lowest node";
    const CHAINS: &str = "chains, lowest node";
    const LRU: &str = "chains, LRU";
    let sweep = Sweep::of(&[1, 2, 4, 8, 16], |&count| by_requestors(count));
    let mut claims = Vec::new();
    for (count, times, more, [chains, scheduled]) in
        [("8", 1.89, 1.133, ["1.89×", "13.3%"]), ("16", 1.51, 1.089, ["1.51×", "8.9%"])]
    {
        let at = sweep.at(count);
        let (text, here) =
            (format!("{count} requestors: chains over conventional"), sweep.times(at, CHAINS, STARS));
        let papers = sweep.find(at, STARS).rate() * times;
        claims.push(
            Claim::new(text, chains, factor(here))
                .because("Here stars and chains cost nothing but their bytes.")
                .drawn(CHAINS, at, &[papers]),
        );
        let text =
            format!("{count} requestors: least recently used helpers, rate above that of the lowest numbers");
        claims.push(
            Claim::new(text, scheduled, percent(sweep.times(at, LRU, CHAINS) - 1.0))
                .of("rate of chains, lowest node")
                .because("Here chains cost nothing but their bytes; the number of the paper's failed machine is unknown.")
                .drawn(LRU, at, &[papers * more]),
        );
    }
    let at = sweep.at("16");
    for trees in ["PPR in slices, lowest node", "PPR in rounds, lowest node"] {
        let (text, here) =
            (format!("16 requestors: conventional over {trees}"), sweep.times(at, STARS, trees));
        let claim = Claim::new(text, "slightly above 1×", factor(here));
        claims.push(
            claim.because("The paper prints no number; here stars and trees cost nothing but their bytes."),
        );
    }
    let of_bound = (0..sweep.settings.len()).map(|at| {
        let dealt = sweep.find(at, "dealt");
        dealt.rate() / dealt.bound_rate()
    });
    claims.push(Claim::new("dealt, part of the bound", "", percents(of_bound)).of("rate of the bound"));
    let findings = "The paper's numbers in the drawing are its ratios, applied to our stars.";
    let table = sweep.table(RATES, "requestors", mebibytes);
    sweep.results(RATE, Y, &[["bound of the links", "dealt"]], Shown { findings, claims, table })
}

fn hdfs() -> Results {
    const STARS: &str = "one node: stars, two at once";
    const CHAINS: &str = "one node: chains";
    let sweep = Sweep::of(&["rs-9-6", "rs-12-8", "rs-14-10", "rs-16-12"], |code| by_width(code));
    let one = sweep.all_times(CHAINS, STARS);
    let all = sweep.all_times("all nodes: dealt", "all nodes: stars, two at once");
    let chains =
        Claim::new("one node: chains over two stars at a time, all codes", "5.1× to 16.0×", factors(&one))
            .because("By bytes alone the ratio is k; HDFS's own reconstruction has further costs.");
    let chains = (0..sweep.settings.len()).fold(chains, |claim, at| {
        let stars = sweep.find(at, STARS).rate();
        claim.drawn(CHAINS, at, &[5.1 * stars, 16.0 * stars])
    });
    let dealt = Claim::new("all nodes: dealt over two stars at a time, all codes", "", factors(&all));
    let shown = Shown {
        findings: "A star brings k blocks over the link of one node, and a chain one. If blocks are rebuilt on all nodes, \
                   two stars at a time leave links idle.",
        claims: vec![chains, dealt],
        table: sweep.table(RATES, "code", mebibytes),
    };
    let bounds = [["bound, one node", CHAINS], ["bound, all nodes", "all nodes: dealt"]];
    sweep.results(RATE, Y, &bounds, shown)
}

fn push() -> Results {
    const REP: &str = "one node: PUSH-Rep";
    const SUR: &str = "all nodes: PUSH-Sur";
    const SINGLE: &str = "one node: slices";
    const ALL: &str = "all nodes: slices";
    const IN_FLIGHT: &str = "The number of blocks that the paper's PUSH has in flight is unknown; here it is that of its slices, 16.";
    const SLICES: &str =
        "Here a slice costs nothing but its bytes, so that slices are as fast for small blocks.";
    const LINKS: &str = "By links alone: one node receives what one link carries, and 15 survivors send ten blocks for each \
                         one, which allows 50% more.";
    let sweep = Sweep::of(&SIZES, |size| by_push(size.0));
    let (small, large) = (sweep.at("1 MiB"), sweep.at("64 MiB"));
    let more = |at: usize, method: &str, than: &str| percent(sweep.times(at, method, than) - 1.0);
    let papers = |at: usize, than: &str, times: f64| [sweep.find(at, than).rate() * times];
    let claims = vec![
        Claim::new(
            "64 MiB, one node: slices, rate above that of PUSH-Rep",
            "80.2%",
            more(large, SINGLE, REP),
        )
        .of("rate of PUSH-Rep")
        .because(IN_FLIGHT)
        .drawn(SINGLE, large, &papers(large, REP, 1.802)),
        Claim::new("64 MiB, all nodes: slices, rate above that of PUSH-Sur", "268.1%", more(large, ALL, SUR))
            .of("rate of PUSH-Sur")
            .because(IN_FLIGHT)
            .drawn(ALL, large, &papers(large, SUR, 3.681)),
        Claim::new(
            "64 MiB: slices on all nodes, rate above that on one node",
            "58.1%",
            more(large, ALL, SINGLE),
        )
        .of("rate of slices on one node")
        .because(LINKS),
        Claim::new("1 MiB, one node: PUSH-Rep, rate above that of slices", "9.0%", more(small, REP, SINGLE))
            .of("rate of slices on one node")
            .because(SLICES)
            .drawn(REP, small, &papers(small, SINGLE, 1.09)),
        Claim::new("1 MiB, all nodes: PUSH-Sur, rate above that of slices", "9.7%", more(small, SUR, ALL))
            .of("rate of slices on all nodes")
            .because(SLICES)
            .drawn(SUR, small, &papers(small, ALL, 1.097)),
    ];
    let shown = Shown {
        findings: "PUSH forwards a block when it has received all of it, so a chain uses one of its ten helpers at a time, and \
                   its rate depends on the number of chains in flight.",
        claims,
        table: sweep.table(RATES, "block size", mebibytes),
    };
    let bounds = [["bound, one node", "one node: dealt"], ["bound, all nodes", "all nodes: dealt"]];
    sweep.results(RATE, Y, &bounds, shown)
}

/// A block size in mebibytes.
struct Size(u64);

const SIZES: [Size; 7] = [Size(1), Size(2), Size(4), Size(8), Size(16), Size(32), Size(64)];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.0)
    }
}

fn m_ppr() -> Results {
    const STARS: &str = "time of stars";
    const GOOD_STARS: &str = "The simulated stars start at once, each on a node of its own, and cost nothing but their bytes; the \
                              paper's numbers of lost chunks are unknown.";
    let sweep = Sweep::of(&[10, 25, 50, 100, 200], |&blocks| by_m_ppr(blocks));
    let less = |method: &str| percents(sweep.all_times("stars", method).into_iter().map(|part| 1.0 - part));
    let series = sweep.series(TIME, &[]);
    let rounds = "m-PPR in rounds";
    let claims = vec![
        Claim::new(
            "m-PPR in rounds, less time than stars, all numbers of blocks",
            "31% to 47%",
            less(rounds),
        )
        .of(STARS)
        .because(GOOD_STARS)
        .drawn_below(rounds, &[31.0, 47.0], points_of(&series, "stars")),
        Claim::new("m-PPR in slices, less time than stars", "", less("m-PPR in slices")).of(STARS),
        Claim::new("dealt, less time than stars", "", less("dealt")).of(STARS),
    ];
    let seconds = |recovered: &Recovered| format!("{:.2}", recovered.mean_seconds());
    let shown = Shown {
        findings: "Both methods move twelve blocks for each lost one, so m-PPR can only use the links that stars leave idle. Its \
                   weights count the repairs of a node, but not the place of the node in the tree: the largest aggregator \
                   receives three blocks in each repair, and a leaf none. In rounds, links are idle while nodes wait for \
                   whole blocks.",
        claims,
        table: sweep.table("Seconds", "blocks lost", seconds),
    };
    sweep.results(TIME, "seconds", &[["bound of the links", "dealt"]], shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered(method: &'static str, seconds: f64) -> Recovered {
        Recovered {
            method,
            mebibytes: 640.0,
            seconds: vec![0.5 * seconds, 1.5 * seconds],
            bound_seconds: 2.0,
        }
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

    #[test]
    fn placements_are_a_spread_around_the_mean() {
        let spreads = sweep().spreads(TIME);
        let first = Mark { series: "stars".to_owned(), at: 0, low: 8.0, high: 24.0 };
        assert_eq!((spreads.len(), &spreads[0]), (4, &first));
        let rates = sweep().spreads(RATE);
        assert_eq!((rates[1].low, rates[1].high), (640.0 / 6.0, 320.0));
    }
}
