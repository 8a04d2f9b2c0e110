//! Implements `mend scrub`.

use std::time::Duration;

use client::{CatalogState, Client, OrphanView, ParityScrubView, ScrubState, ScrubView, UncheckedStripes};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::args::ScrubArgs;
use crate::failure::{Exit, Failure};
use crate::format::{count, size};
use crate::progress::Bar;

const ASK_EVERY: Duration = Duration::from_millis(200);
/// How long to wait until the helpers have removed orphans (blocks that belong to no stripe). Orphans that
/// remain after this time are listed in the result; they may not be safe to remove.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);
/// The maximum number of stripes to name for each reason that prevented a parity check.
const NAMED: usize = 5;

/// Implements `mend scrub`.
pub async fn scrub(client: &Client, args: &ScrubArgs) -> Result<Answer, Failure> {
    if args.stop {
        return stop(client).await;
    }
    let mut view = client.scrub(args.parity).await?;
    let bar = Bar::new("scrub", progress(&view).1);
    while view.state == ScrubState::Running {
        tokio::time::sleep(ASK_EVERY).await;
        view = ScrubView { joined: view.joined, ..client.scrub_state(view.scrub).await? };
        let (done, all) = progress(&view);
        bar.set(done, all);
    }
    drop(bar);
    if !args.remove_orphans {
        return Ok(answer(&view));
    }
    Ok(after_removal(view, remove_orphans(client).await))
}

/// Orphans, and the number of further ones.
type Orphans = (Vec<OrphanView>, u64);

/// Returns the report of a scrub after the removal of orphans. If the removal failed, the report lists the orphans that the
/// scrub has found.
fn after_removal(view: ScrubView, left: Result<Orphans, Failure>) -> Answer {
    match left {
        Ok((orphans, more_orphans)) => answer(&ScrubView { orphans, more_orphans, ..view }),
        Err(failure) => answer(&view).but(failure),
    }
}

fn answer(view: &ScrubView) -> Answer {
    Answer::of(view, text).with_exit(exit(view))
}

/// Returns the bytes read so far, and the total. A scrub that also checks parity reads every block twice, so
/// its total is twice the size of the blocks.
fn progress(view: &ScrubView) -> (u64, u64) {
    let Some(parity) = view.parity.as_ref().filter(|parity| parity.stripes > 0) else {
        return (view.checked_bytes, view.bytes);
    };
    let unchecked: u64 = parity.unchecked.iter().map(|unchecked| unchecked.stripes).sum();
    let part = (parity.checked + unchecked) as f64 / parity.stripes as f64;
    (view.checked_bytes + (view.bytes as f64 * part) as u64, 2 * view.bytes)
}

/// Stops the running scrub.
async fn stop(client: &Client) -> Result<Answer, Failure> {
    let running = client.status().await?.work.last_scrub.filter(|scrub| scrub.state == ScrubState::Running);
    let Some(running) = running else {
        return Err(Failure::new("no scrub is running").help("start one with `mend scrub`"));
    };
    let view = client.stop_scrub(running.scrub).await?;
    Ok(answer(&view))
}

fn exit(view: &ScrubView) -> Exit {
    let contradicts = view.parity.as_ref().is_some_and(|parity| !parity.contradictory.is_empty());
    let is_parity_unchecked = view.parity.as_ref().is_some_and(|parity| !parity.unchecked.is_empty());
    match view.state {
        _ if contradicts || !view.findings.is_empty() => Exit::Data,
        ScrubState::Stopped => Exit::Failed,
        _ if !view.skipped.is_empty() || is_parity_unchecked => Exit::Failed,
        _ if view.without_checksums > 0 && view.parity.is_none() => Exit::Failed,
        _ if view.joined => Exit::Failed,
        _ => Exit::Done,
    }
}

/// Removes orphans that are safe to remove, waits for a short time, and returns the orphans that remain.
async fn remove_orphans(client: &Client) -> Result<Orphans, Failure> {
    let asked = client.remove_orphans().await?.orphans;
    let until = Instant::now() + REMOVAL_LIMIT;
    loop {
        let CatalogState { orphans, more_orphans, .. } = client.status().await?.catalog;
        if asked == 0 || orphans.is_empty() || Instant::now() >= until {
            return Ok((orphans, more_orphans));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn text(view: &ScrubView) -> String {
    let found = match view.findings.len() as u64 {
        0 if view.without_checksums > 0 && view.without_checksums == view.checked => {
            "all can be read".to_owned()
        }
        0 => "all checksums match".to_owned(),
        bad => format!("{} BAD; to repair now, run `mend repair --all`", count(bad, "block")),
    };
    let stopped = if view.state == ScrubState::Stopped { "stopped: " } else { "" };
    let mut text = format!(
        "{stopped}checked {} of {} ({}): {found}\n",
        view.checked,
        count(view.blocks, "block"),
        size(view.checked_bytes)
    );
    for finding in &view.findings {
        let on = if finding.node.is_empty() { String::new() } else { format!(" on {}", finding.node) };
        text += &format!("{} of stripe {}{on}: {}\n", finding.block, finding.stripe, finding.problem);
    }
    text += &without_checksums_text(view);
    text += &view.parity.as_ref().map_or_else(String::new, parity_text);
    for skipped in &view.skipped {
        let why = &skipped.why;
        text += &match (skipped.blocks, skipped.node.as_str()) {
            (0, node) => format!("{node} was checked only in part: {why}\n"),
            (blocks, "") => format!("not checked: {}: {why}\n", count(blocks, "block")),
            (blocks, node) => format!("not checked: {} on {node}: {why}\n", count(blocks, "block")),
        };
    }
    for orphan in &view.orphans {
        text += &format!("{} on {} belongs to no stripe\n", orphan.block, orphan.node);
    }
    if view.more_orphans > 0 {
        text += &format!("{} more on helpers belong to no stripe\n", count(view.more_orphans, "block"));
    }
    if view.joined {
        text += &format!(
            "scrub {} was running already: it does not read again what it had read before this request, nor blocks \
             stored since it began; to check these too, repeat the command\n",
            view.scrub
        );
    }
    text
}

fn without_checksums_text(view: &ScrubView) -> String {
    if view.without_checksums == 0 {
        return String::new();
    }
    let blocks = count(view.without_checksums, "block");
    let next = match view.parity {
        Some(_) => "only parity was compared",
        None => "so wrong bytes in them were not found; to compare their parity, run `mend scrub --parity`",
    };
    format!("{blocks} without checksums in the store: {next}\n")
}

fn parity_text(parity: &ParityScrubView) -> String {
    let found = match parity.contradictory.len() as u64 {
        0 => "no unresolved contradiction".to_owned(),
        stripes => format!("{} CONTRADICTORY", count(stripes, "stripe")),
    };
    let mut text =
        format!("parity of {} of {} checked: {found}\n", parity.checked, count(parity.stripes, "stripe"));
    for stripe in &parity.contradictory {
        let suspects = stripe.suspects.iter();
        let suspects: Vec<String> =
            suspects.map(|suspect| format!("{} on {}", suspect.block, suspect.node)).collect();
        text += &format!(
            "the blocks of stripe {} contradict each other; at least one of these is wrong: {}\n",
            stripe.stripe,
            suspects.join(", ")
        );
    }
    for unchecked in &parity.unchecked {
        text += &format!(
            "parity of {} not checked: {} ({})\n",
            count(unchecked.stripes, "stripe"),
            unchecked.why,
            shortened(unchecked)
        );
    }
    text
}

/// Formats the names of the first few stripes.
fn shortened(unchecked: &UncheckedStripes) -> String {
    let named = &unchecked.first[..unchecked.first.len().min(NAMED)];
    let more = if unchecked.stripes > named.len() as u64 { ", …" } else { "" };
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_begin_no_line() {
        let forged = "a\nnext: run rm_5";
        let view: ScrubView = serde_json::from_value(serde_json::json!({
            "scrub": 1, "state": "done", "blocks": 9, "checked": 9, "bytes": 9, "checked_bytes": 9,
            "started_unix_ms": 0, "ended_unix_ms": 1,
            "findings": [{ "block": forged, "stripe": forged, "node": "h1", "problem": forged }],
            "skipped": [{ "node": "h2", "blocks": 1, "why": forged }],
            "orphans": [{ "node": "h1", "block": forged }],
            "parity": {
                "stripes": 2, "checked": 1,
                "unchecked": [{ "why": forged, "stripes": 1, "first": [forged] }],
                "contradictory": [{ "stripe": forged, "suspects": [{ "block": forged, "node": "h1" }] }],
            },
        }))
        .unwrap();
        let answer = answer(&view);
        assert!(!answer.text().contains("\nnext"), "{}", answer.text());
        assert_eq!(answer.text().matches(r"a\nnext: run rm_5").count(), 9, "{}", answer.text());
        assert_eq!(answer.facts()["findings"][0]["stripe"], forged, "JSON has the name as it is");
    }

    #[test]
    fn a_refused_removal_of_orphans_hides_no_findings() {
        let view: ScrubView = serde_json::from_value(serde_json::json!({
            "scrub": 1, "state": "done", "blocks": 9, "checked": 9, "bytes": 9, "checked_bytes": 9,
            "started_unix_ms": 0, "ended_unix_ms": 1, "skipped": [],
            "findings": [{ "block": "1.2", "stripe": "1", "node": "h1", "problem": "wrong bytes" }],
            "orphans": [{ "node": "h2", "block": "7.0" }],
        }))
        .unwrap();
        let refused = || Err(Failure::new("the coordinator waits for helpers"));
        let reported = after_removal(view.clone(), refused());
        assert!(reported.text().contains("1.2 of stripe 1 on h1: wrong bytes"), "{}", reported.text());
        assert!(reported.text().contains("7.0 on h2 belongs to no stripe"), "{}", reported.text());
        assert_eq!(reported.exit(), Exit::Data);
        let clear = ScrubView { findings: Vec::new(), ..view };
        assert_eq!(after_removal(clear.clone(), refused()).exit(), Exit::Failed);
        let removed = after_removal(clear, Ok((Vec::new(), 0)));
        assert!(removed.exit() == Exit::Done && !removed.text().contains("7.0"), "{}", removed.text());
    }

    #[test]
    fn a_joined_scrub_is_reported_as_incomplete() {
        let own: ScrubView = serde_json::from_value(serde_json::json!({
            "scrub": 7, "state": "done", "blocks": 9, "checked": 9, "bytes": 9, "checked_bytes": 9,
            "started_unix_ms": 0, "ended_unix_ms": 1, "findings": [], "skipped": [], "orphans": [],
        }))
        .unwrap();
        let joined = answer(&ScrubView { joined: true, ..own.clone() });
        let own = answer(&own);
        assert_eq!((own.exit(), joined.exit()), (Exit::Done, Exit::Failed));
        let note = "scrub 7 was running already: it does not read again";
        assert!(joined.text().contains(note) && !own.text().contains("running already"), "{}", joined.text());
        assert_eq!(joined.facts()["joined"], true);
        assert_eq!(own.facts().get("joined"), None);
    }
}
