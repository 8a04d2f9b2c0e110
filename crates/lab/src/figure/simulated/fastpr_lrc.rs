//! FastPR for Azure-LRC: section 1 of the supplement, executed in `sim::fastpr`.

use sim::fastpr::{Drain, Method, Model, ParityGroup, Placement, RoundOrder, Rounds, Set, Shape};

use super::{Claim, Results, Simulated, Table, for_seeds, mean, percent, percents};
use crate::figure::plot::Mark;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
const CHUNKS: usize = 400;

pub(super) const LRC: Simulated = Simulated {
    name: "fastpr-lrc",
    paper: "FastPR (supplement), section 1",
    title: "Azure-LRC, independent and mixed rounds",
    note: "The paper proves that independent rounds, of local or of global chunks only, are not slower than mixed \
           ones, if every set has the maximum size. It prints no figures. Here 100 nodes, 400 chunks of 64 MB, disks \
           of 100 MB/s, links of 1 Gb/s, which are 128 MB/s as in the published prototype, sets by Algorithm 1, rounds executed on simulated disks and links, means of \
           three seeds. Each chunk of the failing node is a random one of its stripe. FastPR orders sets by weight, \
           like the published prototype.",
    paths: super::fastpr::PATHS,
    is_timed: false,
    simulate,
};

/// The codes, by name.
const CODES: [(&str, Shape); 4] = [
    ("lrc-6-2-2", Shape::AzureLrc { k: 6, l: 2, g: 2, plus: false }),
    ("lrc-12-2-2", Shape::AzureLrc { k: 12, l: 2, g: 2, plus: false }),
    ("lrc1-6-2-2", Shape::AzureLrc { k: 6, l: 2, g: 2, plus: true }),
    ("lrc1-12-2-2", Shape::AzureLrc { k: 12, l: 2, g: 2, plus: true }),
];

/// Results of one code, in chunks and in seconds per chunk.
struct Measured {
    code: &'static str,
    local: f64,
    global: f64,
    independent: Way,
    mixed: Way,
    migration: f64,
    /// The results with each seed, of which the others are means.
    each: Vec<Measured>,
}

type Value = fn(&Measured) -> f64;

/// Results of independent or mixed rounds, in seconds per chunk.
struct Way {
    migration: f64,
    /// By equation 1 for independent rounds, by equation 2 for mixed ones.
    least: f64,
    sets: f64,
    reconstruction: f64,
    fastpr: f64,
}

/// The quantity of which percentages of mixed rounds are a part.
const INDEPENDENT: &str = "time of independent rounds";

fn simulate() -> Results {
    let all: Vec<Measured> = CODES.iter().map(|&(code, shape)| measure(code, shape)).collect();
    let bars: [(&str, Value); 5] = [
        ("reconstruction only, independent", |measured| measured.independent.reconstruction),
        ("reconstruction only, mixed", |measured| measured.mixed.reconstruction),
        ("FastPR, independent", |measured| measured.independent.fastpr),
        ("FastPR, mixed", |measured| measured.mixed.fastpr),
        ("migration only", |measured| measured.migration),
    ];
    let series = bars.map(|(name, value)| {
        (name.to_owned(), all.iter().enumerate().map(|(at, measured)| (at, value(measured))).collect())
    });
    let spreads = bars.iter().flat_map(|&(name, value)| {
        let values = move |measured: &Measured| measured.each.iter().map(value).collect::<Vec<_>>();
        all.iter().enumerate().filter_map(move |(at, measured)| Mark::range(name, at, &values(measured)))
    });
    Results {
        findings: "A global chunk of Azure-LRC needs k sources and a local one k/l, and a round takes as long as its largest \
                   reconstruction. With Azure-LRC+1, a global chunk needs fewer sources than a local one. The proof assumes \
                   that all sets are full, and so do the equations, which are lower bounds; mixed rounds have fewer sets, \
                   which are fuller."
            .to_owned(),
        claims: claims(&all),
        tables: vec![table(&all)],
        y: "seconds per chunk",
        ticks: all.iter().map(|measured| measured.code.to_owned()).collect(),
        series: series.into(),
        spread: "least to most of all seeds",
        spreads: spreads.collect(),
    }
}

fn claims(all: &[Measured]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (family, prefix) in [("Azure-LRC", "lrc-"), ("Azure-LRC+1", "lrc1-")] {
        let of_family = || all.iter().filter(|measured| measured.code.starts_with(prefix));
        let mut claim = |text: &str, here, of| {
            claims.push(Claim::new(format!("{family}: {text}"), "", here).of(of));
        };
        let more = |value: fn(&Way) -> f64| {
            percents(of_family().map(|at| value(&at.mixed) / value(&at.independent) - 1.0))
        };
        let below = |than: Value| percents(of_family().map(|at| 1.0 - at.independent.fastpr / than(at)));
        claim("mixed rounds over independent ones, by equations 1 and 2", more(|way| way.least), INDEPENDENT);
        claim("the same, executed, reconstruction only", more(|way| way.reconstruction), INDEPENDENT);
        claim("the same, executed, FastPR", more(|way| way.fastpr), INDEPENDENT);
        let than_migration = below(|at| at.independent.migration);
        claim("FastPR, less than migration only", than_migration, "time of migration only");
        let than_reconstruction = below(|at| at.independent.reconstruction);
        claim("FastPR, less than reconstruction only", than_reconstruction, "time of reconstruction only");
    }
    claims
}

fn table(all: &[Measured]) -> Table {
    let rows = all.iter().flat_map(|measured| {
        let Measured { code, local, global, independent, mixed, migration, .. } = measured;
        let row = |name: &str, way: &Way| {
            vec![
                (*code).to_owned(),
                name.to_owned(),
                format!("{local:.0} + {global:.0}"),
                format!("{:.1}", way.sets),
                format!("{:.3}", way.least),
                format!("{:.3}", way.reconstruction),
                percent(way.reconstruction / way.least - 1.0),
                format!("{:.3}", way.fastpr),
                format!("{migration:.3}"),
            ]
        };
        [row("independent", independent), row("mixed", mixed)]
    });
    let columns = vec![
        "code",
        "rounds",
        "local + global chunks",
        "sets",
        "equation, s/chunk",
        "reconstruction only",
        "above the equation",
        "FastPR",
        "migration only",
    ];
    Table { heading: "All codes", columns, rows: rows.collect() }
}

fn measure(code: &'static str, shape: Shape) -> Measured {
    let runs = for_seeds(SEEDS, |seed| {
        let placement = Placement::random(shape, Model::PAPER.nodes - 1, CHUNKS, seed);
        let local = placement.of_group(ParityGroup::Local).len() as f64;
        (local, way(&placement, Rounds::Independent), way(&placement, Rounds::Mixed))
    });
    let each = runs.iter().map(|run| mean_of(code, std::slice::from_ref(run))).collect();
    Measured { each, ..mean_of(code, &runs) }
}

/// Returns the means over runs, each with its number of local chunks.
fn mean_of(code: &'static str, runs: &[(f64, Way, Way)]) -> Measured {
    let local = mean(runs.iter().map(|&(local, ..)| local));
    Measured {
        code,
        local,
        global: CHUNKS as f64 - local,
        independent: mean_way(runs.iter().map(|(_, independent, _)| independent)),
        mixed: mean_way(runs.iter().map(|(.., mixed)| mixed)),
        migration: mean(runs.iter().map(|(_, independent, _)| independent.migration)),
        each: Vec::new(),
    }
}

fn mean_way<'a>(ways: impl Iterator<Item = &'a Way>) -> Way {
    let ways: Vec<&Way> = ways.collect();
    let of = |value: fn(&Way) -> f64| mean(ways.iter().map(|way| value(way)));
    Way {
        migration: of(|way| way.migration),
        least: of(|way| way.least),
        sets: of(|way| way.sets),
        reconstruction: of(|way| way.reconstruction),
        fastpr: of(|way| way.fastpr),
    }
}

fn way(placement: &Placement, rounds: Rounds) -> Way {
    let drain = Drain { rounds, order: RoundOrder::Weight, ..Drain::new(Model::PAPER, placement.clone()) };
    let sets = drain.sets();
    Way {
        least: equation(&drain, &sets) / CHUNKS as f64,
        sets: sets.len() as f64,
        migration: drain.run(Method::MigrationOnly, &sets).per_chunk(),
        reconstruction: drain.run(Method::ReconstructionOnly, &sets).per_chunk(),
        fastpr: drain.run(Method::FastPr, &sets).per_chunk(),
    }
}

/// Returns the least time of reconstruction in seconds. This is the paper's equation 2, where the chunks that
/// are repaired independently are those in sets of one group; without sets of both groups, it is equation 1.
fn equation(drain: &Drain, sets: &[Set]) -> f64 {
    let slowest = sets.iter().map(|set| drain.expected(set)).fold(0.0, f64::max);
    let needed = |set: &Set| set.chunks.iter().map(|(_, helpers)| helpers.len()).sum::<usize>() as f64;
    let group = |&(chunk, _): &(usize, Vec<usize>)| drain.placement.groups[chunk];
    let time = |set: &Set| {
        let is_mixed = set.chunks.iter().any(|chunk| group(chunk) != group(&set.chunks[0]));
        if is_mixed { slowest } else { drain.expected(set) }
    };
    sets.iter().map(|set| needed(set) * time(set)).sum::<f64>() / (drain.model.nodes - 1) as f64
}
