//! Implements `mend status`.

use std::collections::BTreeMap;

use client::{
    Client, Condition, ConditionCode, ContradictionView, HelperUse, JobKind, MuteRequest, ParityScrubView,
    ScrubState, ScrubView, Severity, Status, SteadyScrubView, UnreadablePart,
};

use crate::answer::Answer;
use crate::args::{MuteArgs, StatusArgs};
use crate::failure::{Exit, Failure};
use crate::format::{count, date, disk_rate, printable, size, table};
use crate::recoveries;

/// The maximum number of unreadable parts to list.
const PARTS_LISTED: usize = 20;
/// The maximum number of bad blocks to list.
const LOST_LISTED: usize = 10;

/// Implements `mend status`.
pub async fn status(client: &Client, args: &StatusArgs) -> Result<Answer, Failure> {
    if args.check {
        return check(client).await;
    }
    Ok(answer(&client.status().await?))
}

fn answer(status: &Status) -> Answer {
    Answer::of(status, status_text).with_exit(exit_of(&status.conditions))
}

/// Returns the exit code of `mend status`. Like the severity it follows from the conditions, but mutes do not change it.
pub fn exit_of(conditions: &[Condition]) -> Exit {
    let has = |code: ConditionCode| conditions.iter().any(|condition| condition.code == code);
    let is_critical = |code: ConditionCode| {
        conditions.iter().any(|condition| condition.code == code && condition.severity == Severity::Critical)
    };
    match () {
        () if is_critical(ConditionCode::Unreadable) || is_critical(ConditionCode::Contradiction) => {
            Exit::Data
        }
        () if is_critical(ConditionCode::CatalogOld) => Exit::Failed, // The text says STOPPED.
        () if is_critical(ConditionCode::CatalogFailing) => Exit::Failed, // The text says READ-ONLY.
        () if has(ConditionCode::StoreUnlisted) => Exit::Failed,      // The text says UNKNOWN.
        () if has(ConditionCode::NotJudged) => Exit::Failed,          // The text says NOT KNOWN.
        () => Exit::Done,
    }
}

/// Returns the result of a `status --check` that could not read the coordinator's status.
pub fn unknown(failure: &Failure) -> Answer {
    let text = format!("MEND UNKNOWN - {}", printable(failure.message()));
    Answer::new(text, &serde_json::json!({ "severity": Severity::Unknown, "error": failure.message() }))
        .with_exit(Exit::Check(Severity::Unknown))
}

/// Implements `mend status --check`: one line and an exit code in the format of Nagios plug-ins.
async fn check(client: &Client) -> Result<Answer, Failure> {
    let status = client.status().await?;
    let text = check_line(status.severity, &status.summary);
    Ok(Answer::new(text, &status).with_exit(Exit::Check(status.severity)))
}

/// Returns the line that a monitoring system shows.
pub fn check_line(severity: Severity, summary: &str) -> String {
    let word = match severity {
        Severity::Ok => "OK",
        Severity::Warning => "WARNING",
        Severity::Critical => "CRITICAL",
        Severity::Unknown => "UNKNOWN",
    };
    format!("MEND {word} - {}", printable(summary))
}

/// Implements `mend mute`.
pub async fn mute(client: &Client, args: &MuteArgs) -> Result<Answer, Failure> {
    let for_ms = args.lasts.map(|lasts| u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
    let condition = client.mute(args.code, &MuteRequest { for_ms }).await?;
    let until = condition.muted_until_unix_ms.map(|until| format!(" until {}", date(until)));
    let text = format!(
        "{} is muted{}; the mute ends when the condition ends or becomes worse",
        condition.code,
        until.unwrap_or_default()
    );
    Ok(Answer::new(text, &condition))
}

/// Implements `mend unmute`.
pub async fn unmute(client: &Client, code: ConditionCode) -> Result<Answer, Failure> {
    let condition = client.unmute(code).await?;
    Ok(Answer::new(format!("{code} is no longer muted"), &condition))
}

/// Returns the severity as a word.
pub fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "note",
        other => other.name(),
    }
}

/// Formats a condition: a line with its code, and its details below.
fn condition_text(condition: &Condition) -> String {
    let severity = severity_name(condition.severity);
    let muted = match (condition.muted, condition.muted_until_unix_ms) {
        (false, _) => String::new(),
        (true, None) => ", muted".to_owned(),
        (true, Some(until)) => format!(", muted until {}", date(until)),
    };
    let since = date(condition.since_unix_ms);
    let mut text = format!("{severity} {} (since {since}{muted}): {}\n", condition.code, condition.text);
    for detail in &condition.details {
        text += &format!("  {detail}\n");
    }
    if condition.details.is_empty() {
        text += &format!("  next: {}\n", condition.next_step);
    }
    text
}

/// Formats the status: first the coordinator's summary, then the conditions, then the details.
fn status_text(status: &Status) -> String {
    let mut text = format!("{}\n", status.summary);
    status.conditions.iter().for_each(|condition| text += &condition_text(condition));
    text += &unreadable_text(&status.damage.unreadable, status.stripes.unreadable);
    text += &contradictions_text(&status.damage.contradictions, status.stripes.contradictory);
    status.store.remarks.iter().for_each(|remark| text += &format!("note: {remark}\n"));
    if status.totals.own_files {
        text += &format!("{} of {}\n", count(status.totals.files, "file"), size(status.totals.file_bytes));
    }
    text += &redundancy_text(status);
    if status.stripes.blocks_lost > 0 {
        text += &format!(
            "{} unavailable: {}\n",
            count(status.stripes.blocks_lost, "block"),
            size(status.stripes.bytes_lost)
        );
    }
    for job in status.work.jobs.iter().filter(|job| job.kind != JobKind::Repair) {
        let phase = job.phase.name().replace('-', " ");
        text += &format!("{} of stripe {}: {}, {phase}\n", job.kind, job.stripe, job.scheme);
    }
    status.work.repairs.iter().for_each(|repair| text += &recoveries::line(repair));
    status.helpers.leaving.iter().for_each(|leaving| text += &recoveries::leaving_line(leaving));
    text += &in_use_text(&status.helpers.in_use);
    status.work.last_scrub.iter().for_each(|scrub| text += &scrub_line(scrub));
    if !status.catalog.orphans.is_empty() {
        text += &format!(
            "{} that belong to no stripe; --output json lists them\n",
            count(status.catalog.orphans.len() as u64 + status.catalog.more_orphans, "block")
        );
    }
    text += &status.work.steady_scrub.as_ref().map_or_else(String::new, steady_line);
    text + &lost_text(status)
}

/// Summarizes from which helpers clients read. Nearly every helper has blocks in memory, so these alone are no
/// reason to mention it.
fn in_use_text(helpers: &[HelperUse]) -> String {
    let read = || helpers.iter().filter(|helper| helper.user_bytes_per_s > 0);
    let Some(busiest) = read().max_by_key(|helper| helper.user_bytes_per_s) else { return String::new() };
    let total = disk_rate(read().map(|helper| helper.user_bytes_per_s).sum());
    match read().count() as u64 {
        1 => format!("clients read {total} from {}\n", busiest.node),
        helpers => {
            let most = disk_rate(busiest.user_bytes_per_s);
            format!(
                "clients read {total} from {}, most from {} ({most})\n",
                count(helpers, "helper"),
                busiest.node
            )
        }
    }
}

fn steady_line(steady: &SteadyScrubView) -> String {
    let left = steady
        .left_in_round
        .map_or_else(String::new, |left| format!(", {} left in this round", count(left, "block")));
    let parity = steady.parity.as_ref().map_or_else(String::new, parity_words);
    format!("background scrub at {}{left}{parity}\n", disk_rate(steady.rate_bytes_per_s))
}

/// Describes how many stripes a scrub has checked for parity.
fn parity_words(parity: &ParityScrubView) -> String {
    let unchecked: u64 = parity.unchecked.iter().map(|unchecked| unchecked.stripes).sum();
    let mut words = format!("; parity of {} checked", count(parity.checked, "stripe"));
    if unchecked > 0 {
        words += &format!(", {unchecked} not checkable");
    }
    if !parity.contradictory.is_empty() {
        words += &format!(", {} CONTRADICTORY", parity.contradictory.len());
    }
    words
}

fn lost_text(status: &Status) -> String {
    let lost = &status.damage.lost_lately;
    let mut text = String::new();
    for lost in lost.iter().rev().take(LOST_LISTED).rev() {
        text += &format!(
            "{} found bad on {}: {} ({})\n",
            lost.block,
            lost.node,
            lost.problem,
            date(lost.at_unix_ms)
        );
    }
    if lost.len() > LOST_LISTED {
        text += &format!(
            "and {} earlier; see --output json\n",
            count((lost.len() - LOST_LISTED) as u64, "block")
        );
    }
    text
}

/// Lists the unreadable parts of files, grouped by the helpers that must return to make the parts readable.
fn unreadable_text(parts: &[UnreadablePart], in_all: u64) -> String {
    let mut lines: BTreeMap<(Option<&str>, String), Vec<String>> = BTreeMap::new();
    for part in parts {
        let ranges = lines.entry((part.file.as_deref(), rescue(part))).or_default();
        match (part.file.is_some(), part.ranges.is_empty()) {
            (true, false) => {
                ranges.extend(part.ranges.iter().map(|range| format!("{}-{}", range.first, range.last)));
            }
            (true, true) => ranges.push(format!("none (only parity of stripe {})", part.stripe)),
            (false, _) => ranges.push(format!("stripe {}", part.stripe)),
        }
    }
    let mut text = String::new();
    for ((file, rescue), ranges) in lines.iter().take(PARTS_LISTED) {
        let what = match file {
            Some(file) => format!("{file} bytes {}", shortened(ranges)),
            None => shortened(ranges),
        };
        text += &format!("unreadable: {what}; {rescue}\n");
    }
    let left = (in_all as usize).saturating_sub(parts.len());
    if lines.len() > PARTS_LISTED || left > 0 {
        text += &format!("and more; --output json lists {}\n", count(parts.len() as u64, "part"));
    }
    text
}

/// Lists the stripes whose blocks contradict each other, each with its next step.
fn contradictions_text(contradictions: &[ContradictionView], in_all: u64) -> String {
    let mut text = String::new();
    for contradiction in contradictions.iter().take(PARTS_LISTED) {
        let ContradictionView { stripe, file, blocks, found_by, since_unix_ms, next_step } = contradiction;
        let file = file.as_ref().map(|file| format!(" of {file}")).unwrap_or_default();
        text += &format!(
            "contradiction in stripe {stripe}{file}, found by a {found_by} ({}): {}; {next_step}\n",
            date(*since_unix_ms),
            blocks.join(", ")
        );
    }
    if in_all > contradictions.len().min(PARTS_LISTED) as u64 {
        text += &format!(
            "and more; --output json lists {}\n",
            count(contradictions.len() as u64, "contradiction")
        );
    }
    text
}

fn shortened(ranges: &[String]) -> String {
    match ranges.len() {
        0..=4 => ranges.join(", "),
        more => format!("{}, … ({more} ranges)", ranges[..4].join(", ")),
    }
}

fn rescue(part: &UnreadablePart) -> String {
    match (&part.any_of[..], &part.together[..]) {
        ([], []) if !part.perhaps.is_empty() => format!(
            "start {}, which may have these blocks: not registered since the catalog was replaced",
            part.perhaps.join(" and ")
        ),
        ([], []) => "no helper that is down has these blocks: restore them from a backup".to_owned(),
        ([one], _) => format!("start {one}"),
        ([], together) => format!("start {} together", together.join(" and ")),
        (any, _) => format!("start any of {}", any.join(", ")),
    }
}

fn redundancy_text(status: &Status) -> String {
    let stripes = &status.stripes;
    if stripes.stripes == 0 {
        return String::new();
    }
    let row =
        |survives: String, number: u64, degraded: u64| [survives, number.to_string(), degraded.to_string()];
    let unreadable = (stripes.unreadable > 0)
        .then(|| row("UNREADABLE".to_owned(), stripes.unreadable, stripes.unreadable));
    let classes =
        stripes.redundancy.iter().map(|class| row(class.survives.to_string(), class.stripes, class.degraded));
    table([">can lose", ">stripes", ">degraded"], unreadable.into_iter().chain(classes))
}

fn scrub_line(scrub: &ScrubView) -> String {
    let mut found = match scrub.findings.len() as u64 {
        0 => "nothing wrong".to_owned(),
        bad => format!("{} bad", count(bad, "block")),
    };
    let skipped: u64 = scrub.skipped.iter().map(|skipped| skipped.blocks).sum();
    if skipped > 0 {
        found += &format!(", {} not checked", count(skipped, "block"));
    }
    if let Some(parity) = &scrub.parity {
        found += &parity_words(parity);
    }
    let mut when = scrub.ended_unix_ms.map_or_else(|| "running".to_owned(), date);
    if scrub.state == ScrubState::Stopped {
        when += ", stopped";
    }
    format!("last scrub ({when}): {} of {} checked, {found}\n", scrub.checked, count(scrub.blocks, "block"))
}

#[cfg(test)]
pub mod tests {
    use client::FileRange;

    use super::*;

    /// Returns a muted condition with this text.
    pub fn condition(code: ConditionCode, text: &str) -> Condition {
        Condition {
            code,
            severity: code.definition().severity,
            since_unix_ms: 0,
            count: 1,
            subjects: Vec::new(),
            text: text.to_owned(),
            next_step: String::new(),
            details: Vec::new(),
            muted: true,
            muted_until_unix_ms: None,
        }
    }

    #[test]
    fn only_a_state_in_which_all_is_known_to_be_readable_exits_with_success() {
        let exit = |codes: &[ConditionCode]| {
            exit_of(&codes.iter().map(|&code| condition(code, "")).collect::<Vec<_>>())
        };
        assert_eq!(exit(&[]), Exit::Done);
        assert_eq!(exit(&[ConditionCode::Starting, ConditionCode::AtRisk]), Exit::Done);
        for code in [
            ConditionCode::CatalogOld,
            ConditionCode::CatalogFailing,
            ConditionCode::StoreUnlisted,
            ConditionCode::NotJudged,
        ] {
            assert_eq!(exit(&[code]), Exit::Failed, "{code}");
        }
        assert_eq!(exit(&[ConditionCode::NotJudged, ConditionCode::Unreadable]), Exit::Data);
    }

    #[test]
    fn names_of_others_begin_no_line() {
        let forged = "a\nnext: run rm_5";
        let status: Status = serde_json::from_value(serde_json::json!({
            "healthy": false, "severity": "critical", "summary": forged, "conditions": [], "settling": false,
            "stripes": {
                "stripes": 1, "intact": 0, "blocks_lost": 1, "bytes_lost": 1, "redundancy": [],
                "unreadable": 1, "unreadable_stripes": [forged], "contradictory": 1,
            },
            "files": 0, "file_bytes": 0, "nodes_up": ["h1"], "nodes_down": [], "gone": [], "leaving": [],
            "unreadable": [{
                "file": null, "stripe": forged, "ranges": [], "any_of": [], "together": [], "perhaps": [],
            }],
            "contradictions": [{
                "stripe": forged, "file": forged, "blocks": [forged], "found_by": "scrub", "since_unix_ms": 0,
                "next_step": forged,
            }],
            "lost_lately": [{ "block": forged, "node": "h1", "problem": forged, "at_unix_ms": 0 }],
            "jobs": [{
                "job": 1, "kind": "read", "stripe": forged, "phase": "moving-slices", "scheme": "rp",
                "delivered_slices": 0, "slices": 1, "slice_bytes": 1, "replanned": [],
            }],
            "repairs": [], "last_scrub": null, "newer": [], "orphans": [], "remarks": [forged],
        }))
        .unwrap();
        let answer = answer(&status);
        assert!(!answer.text().contains("\nnext"), "{}", answer.text());
        assert_eq!(answer.text().matches(r"a\nnext: run rm_5").count(), 10, "{}", answer.text());
    }

    #[test]
    fn the_load_by_clients_is_one_line() {
        let helper = |node: &str, user_bytes_per_s| HelperUse {
            node: node.into(),
            hot_blocks: 1,
            very_hot_blocks: 0,
            user_bytes_per_s,
        };
        let helpers = [helper("h1", 0), helper("h2", 5_000_000), helper("h3", 9_000_000)];
        assert_eq!(in_use_text(&helpers[..1]), "");
        assert_eq!(in_use_text(&helpers[..2]), "clients read 5 MB/s from h2\n");
        assert_eq!(in_use_text(&helpers), "clients read 14 MB/s from 2 helpers, most from h3 (9 MB/s)\n");
    }

    #[test]
    fn unreadable_parts_are_listed_as_byte_ranges_with_the_helpers_to_start() {
        let part = |first, any_of: &[&str]| UnreadablePart {
            file: Some("film".into()),
            stripe: "7".into(),
            ranges: vec![FileRange { first, last: first + 9 }],
            any_of: any_of.iter().map(|&name| name.into()).collect(),
            together: Vec::new(),
            perhaps: Vec::new(),
        };
        let text = unreadable_text(&[part(0, &["h2", "h10"]), part(50, &["h2", "h10"]), part(90, &[])], 3);
        assert_eq!(
            text,
            "unreadable: film bytes 90-99; no helper that is down has these blocks: restore them from a backup\n\
             unreadable: film bytes 0-9, 50-59; start any of h2, h10\n"
        );
        assert!(unreadable_text(&[part(0, &["h2"])], 200).contains("film bytes 0-9; start h2\nand more"));
    }
}
