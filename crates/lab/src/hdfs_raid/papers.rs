//! The papers' numbers about HDFS-RAID beside ours.

use repair::Scheme;

use super::codes::{OF_SIZES, Paper};
use super::detail::{Cell, Report, raid_code};
use super::readers::Reader;
use crate::experiment::report::Kind;
use crate::figure::{ClaimRow, claims_table, percents};

/// A number of a paper, or one of ours without a number of a paper.
struct PaperClaim {
    text: &'static str,
    /// The paper's number, as printed; empty if there is none.
    paper: &'static str,
    by: Scheme,
    than: Reader,
    /// Whether the number says by how much the time exceeds the other one, and not by how much it is below.
    is_over: bool,
    cells: Cells,
    difference: &'static str,
}

/// The reads that a number is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cells {
    /// All codes of a paper, with the same block size.
    Codes(Paper),
    /// All block sizes of one code.
    Sizes,
}

const SRR: Reader = Reader::Mend(Scheme::Conventional);
/// Why CRR-R saves another part of the time of SRR than in the paper.
const CRR_R: &str = "Sliced, CRR-R costs its most loaded node, which makes 50% to 66.7% by timeslots; the paper's SRR is \
                     slower than the k sends of its formula, which is unexplained.";
const CLAIMS: [PaperClaim; 8] = [
    PaperClaim {
        text: "TOS 2021, 10a: repair pipelining, less than HDFS-RAID's own degraded read, k = 6 to 12",
        paper: "82.7% to 91.2%",
        by: Scheme::Pipelined,
        than: Reader::Decoder,
        is_over: false,
        cells: Cells::Codes(Paper::Tos),
        difference: "By timeslots, 83.3% to 91.7%.",
    },
    PaperClaim {
        text: "TOS 2021, 10a: conventional repair by helpers, less than HDFS-RAID's own degraded read",
        paper: "up to 21.8%",
        by: Scheme::Conventional,
        than: Reader::Decoder,
        is_over: false,
        cells: Cells::Codes(Paper::Tos),
        difference: "Either way, k blocks come over the reader's link, which limits the speed here; the paper's HDFS-RAID is \
                     slower than its link.",
    },
    PaperClaim {
        text: "CRR, 3: CRR-R, less than SRR, all codes",
        paper: "55% to 73%",
        by: Scheme::CrrR,
        than: SRR,
        is_over: false,
        cells: Cells::Codes(Paper::Crr),
        difference: CRR_R,
    },
    PaperClaim {
        text: "CRR, 3: CRR-S, less than SRR, all codes",
        paper: "68% to 81%",
        by: Scheme::CrrS,
        than: SRR,
        is_over: false,
        cells: Cells::Codes(Paper::Crr),
        difference: "By timeslots, CRR-S saves 56% to 84%; why the paper saves more for k = 4 is unexplained.",
    },
    PaperClaim {
        text: "CRR, 4: CRR-R, less than SRR, (8, 6), all block sizes",
        paper: "57% to 62%",
        by: Scheme::CrrR,
        than: SRR,
        is_over: false,
        cells: Cells::Sizes,
        difference: "Sliced, CRR-R costs three timeslots of six, which makes 50%; the paper's SRR is slower than the six \
                     sends of its formula, which is unexplained.",
    },
    PaperClaim {
        text: "CRR, 4: CRR-S, less than SRR, (8, 6), all block sizes",
        paper: "67% to 75%",
        by: Scheme::CrrS,
        than: SRR,
        is_over: false,
        cells: Cells::Sizes,
        difference: "By timeslots, CRR-S saves 68.8%; why the paper's saving varies with the block size is unexplained.",
    },
    PaperClaim {
        text: "repair pipelining, less than PPR, k = 6 to 12",
        paper: "",
        by: Scheme::Pipelined,
        than: Reader::Mend(Scheme::Ppr),
        is_over: false,
        cells: Cells::Codes(Paper::Tos),
        difference: "",
    },
    PaperClaim {
        text: "repair pipelining, over the read of a block that is there, k = 6 to 12",
        paper: "",
        by: Scheme::Pipelined,
        than: Reader::Plain,
        is_over: true,
        cells: Cells::Codes(Paper::Tos),
        difference: "",
    },
];

/// Returns the heading and the table of the papers' numbers and ours.
pub(super) fn table(report: &Report) -> String {
    claims_table(CLAIMS.iter().map(|claim| row(claim, report)).collect())
}

fn row(claim: &PaperClaim, report: &Report) -> ClaimRow {
    let by = Reader::Mend(claim.by).name();
    let than = claim.than.name();
    let cells = report.of(Kind::Read).filter(|cell| cell.key.by == by && claim.cells.has(cell, report));
    let parts = cells.filter_map(|cell| {
        let part = cell.seconds() / report.beside(&cell.key, &than)?.seconds();
        Some(if claim.is_over { part - 1.0 } else { 1.0 - part })
    });
    ClaimRow {
        what: claim.text.to_owned(),
        paper: claim.paper.to_owned(),
        here: percents(parts),
        of: format!("time of {than}"),
        difference: claim.difference.to_owned(),
    }
}

impl Cells {
    fn has(self, cell: &Cell, report: &Report) -> bool {
        let Some(code) = raid_code(&cell.key) else { return false };
        match self {
            Self::Sizes => code == OF_SIZES,
            Self::Codes(paper) => code.paper == paper && is_common_size(cell.key.block_bytes, report),
        }
    }
}

/// Whether codes other than the one with several block sizes were read with this block size, or no other code was read.
pub(super) fn is_common_size(block_bytes: u64, report: &Report) -> bool {
    let others = report.of(Kind::Read).filter(|cell| raid_code(&cell.key) != Some(OF_SIZES));
    let sizes: Vec<u64> = others.map(|cell| cell.key.block_bytes).collect();
    sizes.is_empty() || sizes.contains(&block_bytes)
}

#[cfg(test)]
mod tests {
    use super::super::detail::tests::{cell, report};
    use super::*;

    #[test]
    fn papers_numbers_stand_beside_ours() {
        let pipelined = Reader::Mend(Scheme::Pipelined).name();
        let report = report([
            cell("14-10", 64, &Reader::Decoder.name(), &[28.0]),
            cell("14-10", 64, &pipelined, &[2.8]),
            cell("9-6", 64, &Reader::Decoder.name(), &[16.0]),
            cell("9-6", 64, &pipelined, &[2.8]),
            cell("9-6", 64, &Reader::Plain.name(), &[2.8]),
            // Without another reader at the same place, there is no number.
            cell("16-12", 64, &pipelined, &[2.8]),
        ]);
        let text = table(&report);
        assert!(text.contains("| 82.7% to 91.2% | 82.5% to 90.0% |"), "{text}");
        assert!(text.contains("| 55% to 73%     | not measured   |"), "{text}");
        assert!(text.contains("|                | 0.0%           |"), "{text}");
    }

    #[test]
    fn block_sizes_vary_in_one_figure_only() {
        let crr_s = Reader::Mend(Scheme::CrrS).name();
        let of = |code: &str, size, time: f64| {
            [cell(code, size, &crr_s, &[time]), cell(code, size, &SRR.name(), &[10.0])]
        };
        let cells = [of("8-6", 64, 3.0), of("8-6", 32, 4.0), of("10-8", 64, 2.0)];
        let text = table(&report(cells.concat()));
        assert!(text.contains("| 68% to 81%     | 70.0% to 80.0% |"), "{text}");
        assert!(text.contains("| 67% to 75%     | 60.0% to 70.0% |"), "{text}");
    }

    #[test]
    fn every_paper_number_has_an_explanation() {
        for claim in &CLAIMS {
            assert_eq!(claim.difference.ends_with('.'), !claim.paper.is_empty(), "{}", claim.text);
        }
    }
}
