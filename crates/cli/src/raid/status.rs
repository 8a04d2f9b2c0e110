//! Implements `mend raid status`: the states of files and parity, the saving, and missing blocks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use client::Severity;
use cluster::Cluster;
use hdfs_raid::{Exclusion, Health, ParityState, ParityUnit, State, Total, Unit};
use serde_json::{Value, json};
use stores::RaidNameNode;
use stores::raid::Covered;

use super::findings::{Findings, OUTSIDE, Verdict, listed};
use super::policies_or_none;
use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::format::{count, size, table};
use crate::status::check_line;

#[derive(Debug, Args)]
pub struct RaidStatusArgs {
    /// A folder or file of HDFS
    #[arg(value_name = "PATH", default_value = "/")]
    pub path: String,
    /// A TOML file with policies, which tell why files are not encoded, and with additional codecs
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Print one line, and exit as monitoring systems expect: 0 healthy, 1 warning, 2 critical, 3 unknown
    #[arg(long)]
    pub check: bool,
}

/// Implements `mend raid status`. `is_detailed` lists every path.
pub async fn status(cluster: &Cluster, args: &RaidStatusArgs, is_detailed: bool) -> Result<Answer, Failure> {
    let policies = policies_or_none(args.policy.as_deref())?;
    let (namenode, covered) = (RaidNameNode::of(cluster)?, Covered::of(cluster)?);
    let findings = Findings::of(&namenode, &args.path, &policies, covered).await?;
    Ok(answer(&findings, args.check, is_detailed))
}

fn answer(findings: &Findings, is_check: bool, is_detailed: bool) -> Answer {
    let severity = match findings.verdict() {
        Verdict::Healthy => Severity::Ok,
        Verdict::Doubtful | Verdict::Degraded => Severity::Warning,
        Verdict::Unreadable => Severity::Critical,
    };
    let facts = facts(findings, severity);
    if is_check {
        let line = check_line(severity, &findings.summary());
        return Answer::new(line, &facts).with_exit(Exit::Check(severity));
    }
    let exit = if severity == Severity::Critical { Exit::Data } else { Exit::Done };
    Answer::new(text(findings, is_detailed), &facts).with_exit(exit)
}

fn text(findings: &Findings, is_detailed: bool) -> String {
    let survey = &findings.survey;
    let mut text = format!("{}\n\n", findings.summary());
    text += &totals_text("state", &file_totals(findings));
    text += &saving_text(findings);
    text += &stripes_text(&survey.health());
    text += "\n";
    text += &totals_text("parity", &survey.parity_totals());
    text += &units_text(findings, is_detailed);
    text += &parity_text(findings, is_detailed);
    text += &findings.limits_text(is_detailed);
    text
}

/// Returns the sums per state of all files except parity.
fn file_totals(findings: &Findings) -> BTreeMap<&'static str, Total> {
    let mut totals = findings.survey.totals();
    totals.remove(Exclusion::Parity(String::new()).name());
    totals
}

fn totals_text(title: &str, totals: &BTreeMap<&str, Total>) -> String {
    let row = |(state, total): (&&str, &Total)| {
        [(*state).to_owned(), total.files.to_string(), size(total.bytes), size(total.stored)]
    };
    table([title, ">files", ">data", ">stored"], totals.iter().map(row))
}

fn saving_text(findings: &Findings) -> String {
    let saving = findings.survey.saving();
    format!(
        "\nencoded: {} with {}; stored {} instead of {}, {:.1}% saved\n",
        count(saving.files, "file"),
        size(saving.bytes),
        size(saving.after),
        size(saving.before),
        saving.percent()
    )
}

/// Returns the numbers of stripes by missing blocks and placement.
fn stripes_text(health: &Health) -> String {
    let mut text = String::new();
    let by_missing =
        health.stripes.iter().map(|(missing, stripes)| [missing.to_string(), stripes.to_string()]);
    if !health.stripes.is_empty() {
        text += "\n";
        text += &table([">missing blocks", ">stripes"], by_missing);
    }
    for (number, what) in [
        (health.unrecoverable, "stripes that have lost more than Mend can rebuild"),
        (health.unprotected, "lost blocks without valid parity"),
        (health.still_protected, "lost blocks that the parity of changed folders protects"),
        (health.crowded_nodes, "stripes with two blocks on a DataNode"),
        (health.crowded_racks, "stripes with too many blocks in a rack"),
    ] {
        if number > 0 {
            let _ = writeln!(text, "{what}: {number}");
        }
    }
    text
}

/// Whether an operator should look at a file.
fn is_notable(findings: &Findings, unit: &Unit) -> bool {
    let is_expected = matches!(unit.state, State::Raided | State::ShouldEncode | State::NotLowered);
    match unit.state {
        State::Excluded(Exclusion::Lost { .. }) => true,
        State::Excluded(_) => false,
        _ => !is_expected || findings.is_outside(unit),
    }
}

/// Returns the reason of a state, why the file is left as it is, the number of lost blocks that the parity of a changed
/// folder protects, which replicas HDFS has not made, and whether lost blocks are not repaired.
pub fn note(findings: &Findings, unit: &Unit) -> String {
    let lost = match unit.health.still_protected {
        0 => String::new(),
        lost => format!("lost blocks that the parity protects: {lost}"),
    };
    let parts = [reason(unit), lost].into_iter().filter(|text| !text.is_empty());
    let outside = findings.is_outside(unit).then(|| OUTSIDE.to_owned());
    parts.chain(findings.lacking(unit)).chain(outside).collect::<Vec<_>>().join("; ")
}

/// Returns the reason of a state, and why the file is left as it is.
pub fn reason(unit: &Unit) -> String {
    let held = unit.held.as_ref().map(|why| format!("left as it is: {why}"));
    unit.state.reason().into_iter().chain(held).collect::<Vec<_>>().join("; ")
}

fn units_text(findings: &Findings, is_detailed: bool) -> String {
    let rows = findings.survey.units.iter().filter(|unit| is_detailed || is_notable(findings, unit));
    let row = |unit: &Unit| [unit.path.clone(), unit.state.name().to_owned(), note(findings, unit)];
    let rows = rows.map(row).collect();
    paragraph(["path", "state", "note"], rows, is_detailed)
}

/// Whether an operator should look at a parity file.
fn is_notable_parity(parity: &ParityUnit) -> bool {
    !parity.state.is_valid() && !matches!(parity.state, ParityState::Draft)
}

fn parity_text(findings: &Findings, is_detailed: bool) -> String {
    let rows = findings.survey.parity.iter().filter(|parity| is_detailed || is_notable_parity(parity));
    let rows = rows.map(|parity| {
        let reason = parity_reason(&parity.state).unwrap_or_default();
        [parity.path.clone(), parity.state.name().to_owned(), reason]
    });
    paragraph(["parity", "state", "note"], rows.collect(), is_detailed)
}

/// Returns why a parity file is not used, or not proven.
pub fn parity_reason(state: &ParityState) -> Option<String> {
    let text = match state {
        ParityState::Proven | ParityState::SourceUnlisted => return None,
        ParityState::Unproven => "it fits its file; no note proves its contents and its code",
        ParityState::Undone => "the encoding is being undone",
        ParityState::Stale(why) => return Some(why.to_string()),
        ParityState::Unused => "its file uses other parity or none",
        ParityState::Renamed(inode) => {
            return Some(format!(
                "its file (inode {inode}) was renamed and has no valid parity at its new path; `mend raid encode` of a folder with \
                 both paths renames the parity, and raises the replication of the file first if it was changed, too"
            ));
        }
        ParityState::NoSource => "there is no such file",
        ParityState::SnapshotsOnly => "its file is only in snapshots, or may be there",
        ParityState::Draft => "it is being made, or was left by an interrupted encoding",
    };
    Some(text.to_owned())
}

fn paragraph(titles: [&str; 3], rows: Vec<[String; 3]>, is_detailed: bool) -> String {
    if rows.is_empty() { String::new() } else { format!("\n{}", listed(titles, rows, is_detailed)) }
}

fn totals_facts(totals: &BTreeMap<&str, Total>) -> Value {
    let total = |(state, total): (&&str, &Total)| {
        let Total { files, bytes, stored, .. } = total;
        ((*state).to_owned(), json!({ "files": files, "bytes": bytes, "stored_bytes": stored }))
    };
    totals.iter().map(total).collect::<serde_json::Map<_, _>>().into()
}

/// Returns the JSON form of the numbers of stripes and lost blocks.
pub fn health_facts(health: &Health) -> Value {
    let by_missing = health.stripes.iter().map(|(missing, stripes)| (missing.to_string(), json!(stripes)));
    json!({
        "by_missing_blocks": by_missing.collect::<serde_json::Map<_, _>>(),
        "unrecoverable": health.unrecoverable,
        "two_blocks_on_a_datanode": health.crowded_nodes,
        "too_many_blocks_in_a_rack": health.crowded_racks,
        "lost_blocks_without_parity": health.unprotected,
        "lost_blocks_of_changed_folders": health.still_protected,
        "files_with_one_replica": health.single,
        "blocks_without_all_replicas": health.lacking,
    })
}

/// Returns the JSON form of a file, without its blocks.
pub fn unit_facts(unit: &Unit) -> Value {
    let parity = unit.protection.as_ref().map(|protection| {
        json!({
            "path": protection.path,
            "state": protection.state.name(),
            "reason": parity_reason(&protection.state),
            "former_replication": protection.former_replication,
        })
    });
    json!({
        "path": unit.path,
        "files": unit.files,
        "codec": unit.codec,
        "policy": unit.policy,
        "state": unit.state.name(),
        "reason": unit.state.reason(),
        "held": unit.held.as_ref().map(ToString::to_string),
        "bytes": unit.bytes,
        "stored_bytes": unit.stored,
        "parity": parity,
        "health": health_facts(&unit.health),
    })
}

fn facts(findings: &Findings, severity: Severity) -> Value {
    let survey = &findings.survey;
    let saving = survey.saving();
    let parity = |parity: &ParityUnit| json!({ "path": parity.path, "state": parity.state.name(), "reason": parity_reason(&parity.state) });
    let notable = survey.units.iter().filter(|unit| is_notable(findings, unit));
    let unit_facts = |unit: &Unit| {
        let mut facts = unit_facts(unit);
        facts["missing_replicas"] = json!(findings.lacking(unit));
        facts["is_outside_of_paths"] = json!(findings.is_outside(unit));
        facts
    };
    let notable_parity = survey.parity.iter().filter(|parity| is_notable_parity(parity));
    json!({
        "path": findings.listing.root,
        "severity": severity,
        "summary": findings.summary(),
        "states": totals_facts(&file_totals(findings)),
        "encoded": {
            "files": saving.files,
            "bytes": saving.bytes,
            "stored_bytes_before": saving.before,
            "stored_bytes": saving.after,
            "saved_percent": saving.percent(),
        },
        "stripes": health_facts(&survey.health()),
        "parity": totals_facts(&survey.parity_totals()),
        "files": notable.map(unit_facts).collect::<Vec<_>>(),
        "parity_files": notable_parity.map(parity).collect::<Vec<_>>(),
        "limits": findings.limits(),
    })
}

#[cfg(test)]
mod tests {
    use hdfs_raid::{Omission, Policies};

    use super::*;
    use crate::raid::doubles::{changed_folder, encoded};

    fn findings(lost: usize) -> Findings {
        Findings::judged(encoded(lost), &Policies::none(), Covered::new(&["/"]))
    }

    #[test]
    fn the_status_of_an_intact_file() {
        let answer = answer(&findings(0), false, false);
        assert_eq!(answer.exit(), Exit::Done);
        let facts = answer.facts();
        assert_eq!((&facts["severity"], &facts["states"]["raided"]["files"]), (&json!("ok"), &json!(1)));
        assert_eq!(facts["encoded"]["stored_bytes_before"], json!(6 << 20));
        assert_eq!(facts["encoded"]["saved_percent"], json!(50.0));
        assert_eq!(facts["stripes"]["by_missing_blocks"], json!({ "0": 1 }));
        assert_eq!(
            (&facts["parity"]["unproven"]["files"], &facts["states"]["parity"]),
            (&json!(1), &Value::Null)
        );
        let text = text(&findings(0), false);
        assert!(text.starts_with("1 encoded file, all healthy\n"), "{text}");
        assert!(text.contains("stored 3 MiB instead of 6 MiB, 50.0% saved"), "{text}");
    }

    #[test]
    fn the_severity_and_the_exit_code() {
        let checked = |lost| answer(&findings(lost), true, false).exit();
        assert_eq!(checked(0), Exit::Check(Severity::Ok));
        assert_eq!(checked(1), Exit::Check(Severity::Warning));
        assert_eq!(checked(2), Exit::Check(Severity::Critical));
        let plain = |lost| answer(&findings(lost), false, false).exit();
        assert_eq!([plain(1), plain(2)], [Exit::Done, Exit::Data]);
        let text = text(&findings(2), false);
        assert!(text.starts_with("1 encoded file: 1 unrecoverable stripe\n"), "{text}");
        assert!(text.contains("/data/f") && text.contains("unreadable"), "{text}");
    }

    /// Mend has raised the replication of an appended file, and HDFS creates no replicas.
    #[test]
    fn a_file_whose_replicas_are_missing_is_named_with_the_next_step() {
        let mut listing = encoded(0);
        (listing.files[0].replication, listing.files[0].modified_ms) = (3, 7000);
        let findings = Findings::judged(listing, &Policies::none(), Covered::new(&["/"]));
        let text = text(&findings, false);
        assert!(text.contains("1 file with one replica and no valid parity"), "{text}");
        let said = "2 blocks without all replicas since a change at 1970-01-01T00:00:07Z: if HDFS creates none, check";
        assert!(text.contains("/data/f") && text.contains(said), "{text}");
        assert!(text.contains("dfs.namenode.replication.max-streams"), "{text}");
        let answer = answer(&findings, true, false);
        assert_eq!(answer.exit(), Exit::Check(Severity::Warning));
        assert_eq!(answer.facts()["stripes"]["blocks_without_all_replicas"], 2);
        assert!(
            answer.facts()["files"][0]["missing_replicas"].as_str().is_some_and(|text| text.contains(said))
        );
    }

    /// A client has renamed it to a folder that the coordinator does not watch, and its parity followed.
    #[test]
    fn an_encoded_file_that_is_not_repaired_is_named() {
        let findings = Findings::judged(encoded(0), &Policies::none(), Covered::new(&["/other"]));
        let text = text(&findings, false);
        assert!(text.starts_with("1 encoded file: 1 encoded file outside of `paths`\n"), "{text}");
        assert!(text.contains("/data/f") && text.contains("[store.namenode] of mend.toml"), "{text}");
        let answer = answer(&findings, true, false);
        assert_eq!(answer.exit(), Exit::Check(Severity::Warning));
        assert_eq!(answer.facts()["files"][0]["is_outside_of_paths"], true);
    }

    /// Its parity still protects the blocks of the other files, and nobody rebuilds them.
    #[test]
    fn a_changed_folder_that_is_not_repaired_is_named() {
        let judged =
            |covered| Findings::judged(changed_folder(1), &Policies::none(), Covered::new(&[covered]));
        let outside = "2 encoded files outside of `paths`";
        let text = |covered| text(&judged(covered), false);
        assert!(text("/other").contains(outside), "{}", text("/other"));
        assert!(text("/other").contains("[store.namenode] of mend.toml"), "{}", text("/other"));
        assert!(!text("/").contains("outside of `paths`"), "{}", text("/"));
    }

    #[test]
    fn everything_that_is_left_out_is_named() {
        let mut listing = encoded(0);
        let omission = Omission {
            path: "/data/secret".to_owned(),
            why: "Permission denied".to_owned(),
            is_refused: true,
        };
        listing.gaps.omitted.push(omission);
        listing.gaps.silent.push(hdfs_raid::NodeIndex(3));
        listing.snapshots = vec!["/data/kept".to_owned(), "/other".to_owned()];
        listing.root = "/data".to_owned();
        let findings = Findings::judged(listing, &Policies::none(), Covered::new(&["/"]));
        let text = text(&findings, false);
        assert!(text.starts_with("1 encoded file: 1 refused path, 1 silent DataNode\n"), "{text}");
        for expected in [
            "left out, 1 path:",
            "Permission denied",
            "files that exist only in snapshots of /data/kept are not examined",
            "DataNode 10.0.0.3:9866 is silent",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("/other"), "{text}");
        let answer = answer(&findings, true, false);
        assert_eq!(answer.exit(), Exit::Check(Severity::Warning));
        assert_eq!(answer.facts()["limits"]["left_out"][0]["path"], "/data/secret");
    }
}
