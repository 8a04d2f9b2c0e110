//! The page and the drawing of the figure.

use cluster::ByteSize;

use super::{CLIENTS, ClientsReport, NAME, PAPER, REFERENCE, Row, TITLE};
use crate::figure::plot::{Chart, Mark, Marks, gather};
use crate::figure::{ClaimRow, OwnReport, claims_table, percents};
use crate::report::markdown_table;

const NOTE: &str = "\
The paper: modified HDFS-RAID, 1 Gb/s, 13 DataNodes, three clients, 30 normal reads for each degraded one, blocks of 32 to 192 MB, means
of 30 trials. Its Table 1 also varies the number of clients, but the paper prints no figures for that. SRR is called conventional here.
Scaled, because two cores carry all nodes and clients: blocks of an eighth of the size, links of 300 Mb/s, units of 128 KiB instead of
1 MB. Each client is a process on a node of its own, behind a link like a helper's, and reads 31 random data blocks of six stripes one
after another; one of them, at a random place in the sequence, counts as lost. Every scheme carries out the same reads. CRR-R runs
in slices, because the paper's prototype pipelines units, and in rounds of whole blocks, as its Algorithm 1 is written. `pipelined` is
ours. The page `recovery.md` simulates reads like these.";

/// The relative times that follow from the paper's formulas if no client disturbs another: 30 reads of one
/// timeslot, and one read of as many timeslots as the scheme takes. For k = 6, conventional repair takes 6,
/// CRR-R 4, and CRR-S 2 · 5/6 + 1.
const FORMULAS: [(&str, f64); 3] = [(REFERENCE, 6.0), ("crr-r in rounds", 4.0), ("crr-s", 8.0 / 3.0)];

/// A claim of the paper about all block sizes.
struct PaperClaim {
    text: &'static str,
    scheme: &'static str,
    paper: &'static str,
    /// The ends of the paper's range as fractions, for the drawing.
    less: Option<[f64; 2]>,
    difference: &'static str,
}

const CLAIMS: [PaperClaim; 4] = [
    PaperClaim {
        text: "CRR-R, mean time of all reads less than SRR, all block sizes",
        scheme: "crr-r",
        paper: "2.9% to 9.7%",
        less: Some([0.029, 0.097]),
        difference: "Sliced, CRR-R takes 3 timeslots and not 4, which saves 8.3% if no client waits for another; why the \
                     paper's saving varies with the block size is unexplained.",
    },
    PaperClaim {
        text: "CRR-R in rounds, mean time of all reads less than SRR, all block sizes",
        scheme: "crr-r in rounds",
        paper: "2.9% to 9.7%",
        less: None,
        difference: "By the paper's formulas, which have rounds, the saving is 5.6% if no client waits for another.",
    },
    PaperClaim {
        text: "CRR-S, mean time of all reads less than SRR, all block sizes",
        scheme: "crr-s",
        paper: "6.7% to 19%",
        less: Some([0.067, 0.19]),
        difference: "By the paper's formulas, the saving is 9.3%; sliced, CRR-S takes 1.9 timeslots and not 2.7, which \
                     saves 11.4%; the larger savings of the paper are unexplained.",
    },
    PaperClaim {
        text: "pipelined (ours), mean time of all reads less than SRR, all block sizes",
        scheme: "pipelined",
        paper: "",
        less: None,
        difference: "",
    },
];

impl OwnReport for ClientsReport {
    const NAME: &'static str = NAME;

    fn page(&self) -> String {
        markdown(self)
    }

    fn chart(&self) -> Chart {
        let value = |row: &Row| (tick_of(row), row.scheme.clone(), self.over_reference(row));
        let (ticks, series) = gather(self.rows.iter().map(value));
        Chart {
            title: format!("{PAPER}: {TITLE}"),
            x: "clients, block size",
            y: "mean time of all reads, over conventional",
            marks: marks(self, &ticks),
            ticks,
            series,
            bars: true,
        }
    }

    fn doubt(&self) -> Option<String> {
        let row = self.rows.iter().find(|row| row.runs.iter().all(|run| run.disturbed))?;
        Some(format!("other programs disturbed all repetitions of {}, {}", row.scheme, tick_of(row)))
    }
}

fn markdown(report: &ClientsReport) -> String {
    let claims = claims_table(CLAIMS.iter().map(|claim| claim_row(claim, report)).collect());
    let columns = [
        "clients",
        "block",
        "scheme",
        "mean of all reads s",
        "spread",
        "over conventional",
        "by the formulas",
        "normal reads s",
        "degraded reads s",
        "marks",
    ];
    let rows: Vec<Vec<String>> = report.rows.iter().map(|row| cells(row, report)).collect();
    format!(
        "# {PAPER}: {TITLE}\n\n![{TITLE}]({NAME}.svg)\n\n{NOTE}\n\n{claims}\n## All measurements\n\n{}\nSelf-check: \
         {}.\n\n{}\nTimes are medians of the means of {} repetitions. Spread: the longest minus the shortest mean, \
         divided by the median. By the formulas: 30 reads of one timeslot and a degraded one of the paper's number of \
         timeslots, without waiting for other clients. Marks count repetitions. Every block was compared byte for \
         byte.\n",
        report.machine.summary(),
        report.check.summary(),
        markdown_table(&columns, &rows),
        report.rows.first().map_or(0, |row| row.runs.len()),
    )
}

fn claim_row(claim: &PaperClaim, report: &ClientsReport) -> ClaimRow {
    let rows = report.rows.iter().filter(|row| row.scheme == claim.scheme && row.clients == CLIENTS);
    ClaimRow {
        what: claim.text.to_owned(),
        paper: claim.paper.to_owned(),
        here: percents(rows.map(|row| 1.0 - report.over_reference(row))),
        of: "mean time of all reads with SRR".to_owned(),
        difference: claim.difference.to_owned(),
    }
}

fn cells(row: &Row, report: &ClientsReport) -> Vec<String> {
    vec![
        row.clients.to_string(),
        ByteSize::from_bytes(row.block_bytes).to_string(),
        row.scheme.clone(),
        format!("{:.4}", row.median(|run| run.all_s)),
        format!("{:.1}%", row.spread() * 100.0),
        format!("{:.3}", report.over_reference(row)),
        by_formulas(&row.scheme).map_or(String::new(), |part| format!("{part:.3}")),
        format!("{:.4}", row.median(|run| run.normal_s)),
        format!("{:.4}", row.median(|run| run.degraded_s)),
        row.marks(),
    ]
}

fn by_formulas(scheme: &str) -> Option<f64> {
    let mean = |name: &str| {
        let (_, timeslots) = FORMULAS.iter().find(|(known, _)| *known == name)?;
        Some((30.0 + timeslots) / 31.0)
    };
    Some(mean(scheme)? / mean(REFERENCE)?)
}

fn tick_of(row: &Row) -> String {
    format!("{}, {}", row.clients, ByteSize::from_bytes(row.block_bytes))
}

/// Returns the ranges over repetitions, and the paper's ranges at the points with the paper's number of clients.
fn marks(report: &ClientsReport, ticks: &[String]) -> Marks {
    let at = |row: &Row| ticks.iter().position(|tick| *tick == tick_of(row));
    let spread = |row: &Row| Mark::range(&row.scheme, at(row)?, &report.all_over_reference(row));
    let paper = |row: &Row| {
        let claim = CLAIMS.iter().find(|claim| claim.scheme == row.scheme)?;
        let [least, most] = claim.less?;
        Some(Mark { series: row.scheme.clone(), at: at(row)?, low: 1.0 - most, high: 1.0 - least })
    };
    let of_paper = report.rows.iter().filter(|row| row.clients == CLIENTS);
    Marks {
        spread: "shortest to longest",
        spreads: report.rows.iter().filter_map(spread).collect(),
        paper: of_paper.filter_map(paper).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::*;
    use crate::check::{CHECK_BYTES, Check};
    use crate::machine::Machine;

    fn row(clients: u16, scheme: &str, all_s: f64) -> Row {
        let run = Run {
            all_s,
            normal_s: 1.0,
            degraded_s: 2.0,
            disturbed: true,
            cpu_bound: false,
            replanned: Vec::new(),
        };
        Row { clients, block_bytes: 4 << 20, scheme: scheme.to_owned(), runs: vec![run] }
    }

    fn report() -> ClientsReport {
        let check = Check {
            link: "h1 to client".to_owned(),
            bytes: CHECK_BYTES,
            nominal_s: Some(1.0),
            measured_s: 1.0,
            disturbed: false,
            cpu_bound: false,
        };
        let rows = vec![row(3, REFERENCE, 2.0), row(3, "crr-s", 1.8), row(6, REFERENCE, 4.0)];
        ClientsReport { machine: Machine::this(), check, rows }
    }

    #[test]
    fn a_scheme_is_compared_with_conventional_repair_at_the_same_point() {
        let page = markdown(&report());
        assert!(page.contains("| 6.7% to 19%  | 10.0%        |"), "{page}");
        assert!(page.contains("| 0.900             | 0.907           |"), "{page}");
        assert!(page.contains("disturbed 1/1"), "{page}");
    }

    #[test]
    fn the_papers_savings_stand_beside_ours_in_the_drawing() {
        let chart = report().chart();
        assert_eq!(chart.ticks, ["3, 4MiB", "6, 4MiB"]);
        let (_, points) = chart.series.iter().find(|(scheme, _)| scheme == "crr-s").unwrap();
        assert_eq!(points.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0]);
        let paper = &chart.marks.paper[..];
        assert_eq!(paper.iter().map(|mark| (&*mark.series, mark.at)).collect::<Vec<_>>(), [("crr-s", 0)]);
        assert!((paper[0].low - 0.81).abs() < 1e-9 && (paper[0].high - 0.933).abs() < 1e-9);
        assert_eq!(chart.marks.spreads, [], "one repetition has no spread");
    }

    #[test]
    fn repetitions_are_a_spread_around_their_median() {
        let mut report = report();
        let run = report.rows[1].runs[0].clone();
        report.rows[1].runs.extend([1.6, 2.2].map(|all_s| Run { all_s, ..run.clone() }));
        let spreads = report.chart().marks.spreads;
        assert_eq!(spreads.len(), 1);
        assert_eq!((&*spreads[0].series, spreads[0].at), ("crr-s", 0));
        assert!((spreads[0].low - 0.8).abs() < 1e-9 && (spreads[0].high - 1.1).abs() < 1e-9, "{spreads:?}");
    }

    #[test]
    fn formulas_give_the_savings_that_the_page_states() {
        let saved = |scheme| format!("{:.1}%", (1.0 - by_formulas(scheme).unwrap()) * 100.0);
        assert_eq!(saved("crr-r in rounds"), "5.6%");
        assert_eq!(saved("crr-s"), "9.3%");
        assert_eq!(by_formulas("pipelined"), None);
    }
}
