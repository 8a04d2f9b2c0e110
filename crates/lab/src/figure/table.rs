//! The tables of a figure: the paper's numbers next to ours, and all measurements.

use repair::Scheme;

use super::plot::{Series, gather};
use super::{
    About, Axis, Claim, ClaimRow, Kind, Measure, Quantity, block_of, claims_table, cold, collective,
    placements, reed_solomon, throughput,
};
use crate::pages;
use crate::report::{Report, Row, markdown_table};

/// Returns the complete page of a figure.
pub(super) fn markdown(about: &About, report: &Report) -> String {
    let About { name, paper, title, note, .. } = about;
    let mut text = format!("# {paper}: {title}\n\n![{title}]({name}.svg)\n\n{note}\n\n");
    text += &report.doubt().map_or(String::new(), |doubt| pages::unreliable(&doubt));
    if !about.claim.is_empty() {
        text += &claims_table(about.claim.iter().map(|claim| claim_row(about, claim, report)).collect());
    }
    if about.y == Quantity::OverReedSolomon {
        text += &reed_solomon::section(report);
    }
    let predicted = predictions(report);
    if !predicted.is_empty() {
        text += "\n## The formulas and the measurement\n\nPredicted is the formula of \
             `docs/reference/schemes.md` (for codes with sub-blocks, the timeslots of the plan) times the \
             direct send measured in the same run.\n\n";
        let columns = [
            "rate",
            "code",
            "block",
            "slice",
            "scheme",
            "timeslots",
            "predicted s",
            "measured s",
            "difference",
        ];
        text += &markdown_table(&columns, &predicted);
    }
    text += &placements::section(report);
    text += &collective::section(report);
    text += &cold::section(report);
    text += "\n## All measurements\n\n";
    text += &report.to_markdown();
    text += "\nTimes are medians. Spread: the longest minus the shortest time, divided by the median; ± is \
             the standard deviation. Ratio: the time divided by the direct send of one block in the same run. CPU: the sum over all \
             processes of the lab. Every repaired block was compared byte for byte.\n";
    text
}

fn claim_row(about: &About, claim: &Claim, report: &Report) -> ClaimRow {
    ClaimRow {
        what: claim.text.clone(),
        paper: claim.paper.clone(),
        here: ours(about, claim, report),
        of: percent_of(claim),
        difference: claim.difference.clone(),
    }
}

/// Returns the quantity of which a claim's percentage is a part; empty if the claim is not a percentage.
fn percent_of(claim: &Claim) -> String {
    let than = claim.than.as_deref().unwrap_or_default();
    match claim.kind {
        Kind::Less => {
            let at = claim.than_at.as_ref().map_or(String::new(), |at| format!(" at {at}"));
            format!("{} of {than}{at}", claim.measure.name())
        }
        Kind::Points => {
            let at = claim.base_at.as_ref().map_or(String::new(), |at| format!(" at {at}"));
            format!("{} of conventional{at}", claim.measure.name())
        }
        Kind::OverDirect => format!("{} of a direct send of one block", Measure::Time.name()),
        Kind::Part | Kind::Times | Kind::Seconds | Kind::Throughput => String::new(),
    }
}

/// Returns our number for a claim, or the range of our numbers if several rows match.
fn ours(about: &About, claim: &Claim, report: &Report) -> String {
    let rows = rows_of(about, claim, report);
    let values: Vec<f64> = rows.filter_map(|row| value(about, claim, row, report)).collect();
    let lowest = values.iter().copied().fold(f64::NAN, f64::min);
    let highest = values.iter().copied().fold(f64::NAN, f64::max);
    match (shown(claim.kind, lowest), shown(claim.kind, highest)) {
        _ if values.is_empty() => "not measured".to_owned(),
        (low, high) if low == high => low,
        (low, high) if about.x == Axis::Placement => {
            let mean = shown(claim.kind, values.iter().sum::<f64>() / values.len() as f64);
            format!("{low} to {high}, mean {mean}")
        }
        (low, high) => format!("{low} to {high}"),
    }
}

/// Returns the rows that a claim is about.
pub(super) fn rows_of<'a>(about: &About, claim: &Claim, report: &'a Report) -> impl Iterator<Item = &'a Row> {
    let is = |wanted: &Option<String>, found: String| wanted.as_ref().is_none_or(|wanted| *wanted == found);
    report.rows.iter().filter(move |row| {
        row.case.scheme == claim.of
            && is(&claim.at, about.x.of(row))
            && is(&claim.rate, row.case.rate.clone())
            && is(&claim.block, block_of(row))
            && is(&claim.code, row.case.code.clone())
    })
}

/// Returns the row of the scheme with which a claim compares a row.
pub(super) fn other_of<'a>(about: &About, claim: &Claim, row: &Row, report: &'a Report) -> Option<&'a Row> {
    find(about, claim.than.as_ref()?, claim.than_at.as_deref(), row, report)
}

fn value(about: &About, claim: &Claim, row: &Row, report: &Report) -> Option<f64> {
    let other = || other_of(about, claim, row, report);
    let of = |row: &Row| claim.measure.of(row);
    Some(match claim.kind {
        Kind::Less => 1.0 - of(row) / of(other()?),
        Kind::Points => {
            let base = find(about, Scheme::Conventional.name(), claim.base_at.as_deref(), row, report)?;
            (of(other()?) - of(row)) / of(base)
        }
        Kind::Part => of(row) / of(other()?),
        Kind::Times => other()?.time.median_s / row.time.median_s,
        Kind::OverDirect => row.time.ratio - 1.0,
        Kind::Seconds => row.time.median_s,
        Kind::Throughput => throughput(row),
    })
}

/// Returns the row of conventional repair with the same parameters.
pub(super) fn conventional<'a>(row: &Row, report: &'a Report) -> Option<&'a Row> {
    let is_it = |other: &&Row| other.case.scheme == Scheme::Conventional.name() && same_place(other, row);
    report.rows.iter().find(is_it)
}

/// Returns the row of another scheme: at another position on the x axis, or with the same parameters as `row`.
fn find<'a>(about: &About, scheme: &str, at: Option<&str>, row: &Row, report: &'a Report) -> Option<&'a Row> {
    let is_there = |other: &Row| match at {
        Some(at) => about.x.of(other) == *at && (about.x == Axis::Code || other.case.code == row.case.code),
        None => same_place(other, row),
    };
    report.rows.iter().find(|other| other.case.scheme == scheme && is_there(other))
}

/// Whether two rows have the same parameters, apart from the scheme.
fn same_place(a: &Row, b: &Row) -> bool {
    let place = |row: &Row| {
        (
            row.case.network.clone(),
            row.case.code.clone(),
            row.case.block_bytes,
            row.case.slice.clone(),
            row.case.lost.clone(),
            row.case.placement.clone(),
        )
    };
    place(a) == place(b)
}

fn shown(kind: Kind, value: f64) -> String {
    match kind {
        Kind::Less | Kind::OverDirect => format!("{:.1}%", value * 100.0),
        Kind::Part => format!("{value:.3}"),
        Kind::Points => format!("{:.1} points", value * 100.0),
        Kind::Times => format!("{value:.2}×"),
        Kind::Seconds => format!("{value:.3} s"),
        Kind::Throughput => format!("{value:.1} MB/s"),
    }
}

fn predictions(report: &Report) -> Vec<Vec<String>> {
    let cells = |row: &Row| {
        let timeslots = row.formula?;
        let predicted = timeslots * row.time.direct_s;
        Some(vec![
            row.case.rate.clone(),
            row.case.code.clone(),
            block_of(row),
            row.case.slice.clone(),
            row.case.scheme.clone(),
            format!("{timeslots:.3}"),
            format!("{predicted:.4}"),
            format!("{:.4}", row.time.median_s),
            format!("{:+.1}%", (row.time.median_s / predicted - 1.0) * 100.0),
        ])
    };
    report.rows.iter().filter_map(cells).collect()
}

/// Returns the ticks of the x axis in the order measured, and one series for each scheme and each combination of
/// the other parameters that vary.
pub(super) fn places(about: &About, report: &Report) -> (Vec<String>, Series) {
    let value = |row: &Row| (about.x.of(row), name_of(about, row, report), about.y.of(row, report));
    gather(report.rows.iter().map(value))
}

/// Returns the name of the series to which a row belongs.
pub(super) fn name_of(about: &About, row: &Row, report: &Report) -> String {
    let mut name = row.case.scheme.clone();
    let mut add = |axis: Axis| {
        let varies = report.rows.iter().any(|other| axis.of(other) != axis.of(row));
        // With placements, the index of the lost block follows from the placement.
        let follows = axis == Axis::Loss && about.x == Axis::Placement;
        if about.x != axis && varies && !follows {
            name += &format!(", {}", axis.of(row));
        }
    };
    [Axis::Rate, Axis::Code, Axis::Block, Axis::Slice, Axis::Edge, Axis::Loss].into_iter().for_each(&mut add);
    name
}

#[cfg(test)]
mod tests {
    use super::super::{Figure, all};
    use super::*;
    use crate::machine::Machine;

    fn row(code: &str, scheme: &str, median_s: f64) -> Row {
        let mut row = Row::default();
        (row.case.code, row.case.scheme) = (code.to_owned(), scheme.to_owned());
        row.time.median_s = median_s;
        row
    }

    #[test]
    fn points_are_of_conventional_repair_and_percentages_of_the_other_scheme() {
        let figure = all().into_iter().find(|figure| figure.figure.name == "ppr-9");
        let Figure { figure, scenario } = figure.expect("the figure exists");
        let rows = vec![
            row("rs-16-12", "conventional", 10.0),
            row("lrc-12-2-2", "conventional", 5.0),
            row("lrc-12-2-2", "ppr in rounds", 2.59),
        ];
        let machine = Machine::this();
        let report =
            Report { scenario, machine, started_unix_ms: 0, checks: Vec::new(), constants: None, rows };
        let claims: Vec<_> = figure.claim.iter().map(|claim| claim_row(&figure, claim, &report)).collect();
        assert_eq!((&*claims[0].here, &*claims[0].of), ("24.1 points", "time of conventional at rs-16-12"));
        assert_eq!((&*claims[1].here, &*claims[1].of), ("48.2%", "time of conventional at lrc-12-2-2"));
        assert_eq!(&*claims[2].here, "50.0%");
    }
}
