//! Implements `mend repair` and `mend cancel`, and waits for repairs of any kind.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::time::Duration;

use client::{
    Client, ItemState, ParityOutcome, RepairItem, RepairRequest, RepairState, RepairView, Timeline,
};

use crate::answer::Answer;
use crate::args::{RepairArgs, TimelineArgs};
use crate::blocks::{Target, find};
use crate::failure::{Exit, Failure};
use crate::format::{count, lasting, printable, rate, size};
use crate::progress::Bar;
use crate::{recoveries, status};

/// How often to refresh the displayed estimates of a repair that makes no progress.
const SHOW_EVERY: Duration = Duration::from_secs(2);
/// The maximum number of stripes to list without `--verbose`.
const ITEMS_LISTED: usize = 20;

/// How much to print about a repair. The totals, and the stripes that were not repaired, are always printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Whether to print a line for each stripe.
    pub stripes: bool,
    /// Whether to print where the time went.
    pub timeline: bool,
    /// Whether the output is JSON. Only verbs that print before they end need to know.
    pub json: bool,
}

impl Detail {
    /// Adds the timeline, if the user wants it.
    pub fn with_timeline(self, timeline: bool) -> Self {
        Self { timeline, ..self }
    }
}

/// Implements `mend repair`.
pub async fn repair(client: &Client, args: &RepairArgs, detail: Detail) -> Result<Answer, Failure> {
    let request = request(client, args).await?;
    let view = client.repair(&request).await?;
    await_unless(client, view, args.no_wait, detail.with_timeline(args.timeline)).await
}

/// Waits for a repair to end and reports it. With `no_wait`, reports only that the repair was started, unless
/// it has already ended.
pub async fn await_unless(
    client: &Client,
    view: RepairView,
    no_wait: bool,
    detail: Detail,
) -> Result<Answer, Failure> {
    if no_wait && !view.state.has_ended() {
        return Ok(Answer::of(&view, |view| {
            format!(
                "repair {} ({}) is {}; watch it with `mend watch {}`",
                view.repair, view.target, view.state, view.repair
            )
        }));
    }
    let ended = await_end(client, view).await?;
    Ok(if ended.found_nothing() { nothing_found(&ended) } else { answer(&ended, detail) })
}

/// Returns the answer of a repair that found no lost block.
fn nothing_found(view: &RepairView) -> Answer {
    let text = match unknown_text(view) {
        None => "nothing is lost".to_owned(),
        Some(unknown) => format!("no block is known to be lost; {unknown}"),
    };
    Answer::new(text, view).with_exit(exit_of(view))
}

/// Returns the conditions at the end of a repair under which the state of some blocks was unknown, on one line.
pub fn unknown_text(view: &RepairView) -> Option<String> {
    let texts: Vec<_> = view.unknown.iter().map(|condition| printable(&condition.text)).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn answer(view: &RepairView, detail: Detail) -> Answer {
    Answer::of(view, |view| ended_text(view, detail)).with_exit(exit_of(view))
}

/// Waits for a repair to end while showing its progress.
pub async fn await_end(client: &Client, mut view: RepairView) -> Result<RepairView, Failure> {
    let bar = bar(&view);
    while !view.state.has_ended() {
        view = match client.await_progress(view.repair, view.version, SHOW_EVERY).await {
            // The repair has ended, and the coordinator has forgotten it.
            Err(error) if error.is_not_found() => view.ended(&client.history(None, usize::MAX).await?),
            progress => progress?,
        };
        show(&bar, &view);
    }
    with_stripes(client, view).await
}

/// Returns an ended repair with all its stripes, or without them if the coordinator no longer keeps the repair.
pub async fn with_stripes(client: &Client, ended: RepairView) -> Result<RepairView, Failure> {
    match client.whole_repair(ended.repair).await {
        Err(error) if error.is_not_found() => Ok(ended),
        whole => Ok(whole?),
    }
}

/// Returns the bar of a repair.
pub fn bar(view: &RepairView) -> Bar {
    Bar::new(&format!("repair {} ({})", view.repair, view.target), view.counts.bytes)
}

/// Shows how far a repair has come.
pub fn show(bar: &Bar, view: &RepairView) {
    bar.set(view.counts.bytes_rebuilt, view.counts.bytes);
    bar.pause(view.state == RepairState::Paused);
    bar.say(recoveries::line(view).trim_end());
}

async fn request(client: &Client, args: &RepairArgs) -> Result<RepairRequest, Failure> {
    let mut request = RepairRequest {
        all: args.all,
        scheme: args.how.scheme.map(|scheme| scheme.to_string()),
        slice_bytes: args.how.slice_size,
        verify_parity: args.no_verify.then_some(false),
        ..RepairRequest::default()
    };
    if let Some(name) = &args.target {
        match find(client, name).await? {
            Target::Block(..) => request.block = Some(name.clone()),
            Target::Stripe(_) => request.stripe = Some(name.clone()),
        }
    }
    Ok(request)
}

/// Returns the exit code for several repairs: that of the worst one.
pub fn worst_exit(views: &[RepairView]) -> Exit {
    views.iter().map(exit_of).fold(Exit::Done, Exit::or_worse)
}

/// Returns the exit code of a repair. If the state of some blocks was unknown at its end, the exit code is at least as bad
/// as that of `mend status`.
fn exit_of(view: &RepairView) -> Exit {
    let is_damage =
        |item: &RepairItem| matches!(item.state, ItemState::Unrepairable | ItemState::Contradictory);
    let own = if view.items.iter().any(is_damage) {
        Exit::Data
    } else if view.state == RepairState::Done {
        Exit::Done
    } else {
        Exit::Failed
    };
    own.or_worse(status::exit_of(&view.unknown))
}

fn ended_text(view: &RepairView, detail: Detail) -> String {
    let took = took(view);
    let mut text = format!(
        "repair {} ({}) {} after {}: {}, {} rebuilt in {} of {}, {}\n",
        view.repair,
        view.target,
        view.state,
        lasting(took),
        count(view.counts.blocks_rebuilt, "block"),
        size(view.counts.bytes_rebuilt),
        view.counts.stripes_done,
        count(view.counts.stripes, "stripe"),
        rate(view.counts.bytes_rebuilt, took)
    );
    let bound = view.progress.as_ref().and_then(recoveries::beside_the_bound);
    text.extend(bound.map(|bound| bound + "\n"));
    // Failures come first; successes are listed only with `--verbose`.
    let (done, bad): (Vec<_>, Vec<_>) = view.items.iter().partition(|item| item.state == ItemState::Done);
    // A repair of one stripe that rebuilt nothing needs an explanation.
    let unexplained = view.counts.stripes == 1 && view.counts.blocks_rebuilt == 0 && bad.is_empty();
    if detail.stripes || unexplained {
        bad.iter().chain(&done).for_each(|item| text += &item_text(item));
    } else {
        text += &bad_text(&bad);
    }
    if bad.is_empty() {
        view.reasons.iter().for_each(|reason| text += &format!("{}\n", reason.reason));
    }
    text.extend(unknown_text(view).map(|unknown| format!("other blocks may be lost: {unknown}\n")));
    if !detail.stripes {
        let replanned: Vec<&String> = done.iter().flat_map(|item| &item.replanned).collect();
        replanned.iter().take(ITEMS_LISTED).for_each(|why| text += &format!("replanned: {why}\n"));
    }
    if detail.timeline {
        text += &format!("\n{}", Timeline::of(std::slice::from_ref(view)));
    }
    text
}

/// Implements `mend timeline`.
pub async fn timeline(client: &Client, args: TimelineArgs) -> Result<Answer, Failure> {
    let mut numbers = args.repairs;
    if numbers.is_empty() {
        numbers = client.repairs().await?.iter().map(|view| view.repair).collect();
        numbers.sort_unstable();
        numbers.drain(..numbers.len().saturating_sub(args.last.map_or(1, NonZero::get)));
    }
    let mut views = Vec::new();
    for repair in numbers {
        views.push(client.whole_repair(repair).await?);
    }
    if views.is_empty() {
        return Err(Failure::new("there was no repair since the coordinator was started")
            .help("`mend history` lists earlier repairs, without timelines"));
    }
    let heading = |view: &RepairView| format!("repair {} ({}): {}\n", view.repair, view.target, view.state);
    Ok(Answer::of(&views, |views| {
        let headings: String = views.iter().map(heading).collect();
        format!("{headings}\n{}", Timeline::of(views))
    }))
}

/// Returns how long a repair was active. Pauses do not count, because this time is compared with the lower
/// bound on the duration. If the view has no progress data, returns the time from start to end.
fn took(view: &RepairView) -> Duration {
    let ended = view.ended_unix_ms.unwrap_or_default();
    let worked = view.progress.as_ref().map(|progress| progress.elapsed_ms);
    Duration::from_millis(worked.unwrap_or_else(|| ended.saturating_sub(view.started_unix_ms)))
}

/// Formats the stripes that were not repaired, grouped by reason.
fn bad_text(bad: &[&RepairItem]) -> String {
    let mut alike: BTreeMap<_, Vec<&RepairItem>> = BTreeMap::new();
    for item in bad {
        alike.entry((item.state, &item.reason, &item.next_step)).or_default().push(item);
    }
    let mut groups: Vec<Vec<&RepairItem>> = alike.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut text: String = groups.iter().take(ITEMS_LISTED).map(|group| group_text(group)).collect();
    let more: usize = groups.iter().skip(ITEMS_LISTED).map(Vec::len).sum();
    if more > 0 {
        text += &format!("and {} more; --verbose lists them\n", count(more as u64, "stripe"));
    }
    text
}

fn group_text(group: &[&RepairItem]) -> String {
    let [first, _, ..] = group else { return group.iter().map(|item| item_text(item)).collect() };
    let mut text = format!("{} {}\n", count(group.len() as u64, "stripe"), first.state);
    text.extend(first.reason.iter().chain(&first.next_step).map(|note| format!("  {note}\n")));
    let is_left = |item: &RepairItem, block: &String| !item.rebuilt.iter().any(|made| made.block == *block);
    let left = |item: &&RepairItem| -> Vec<String> {
        item.blocks.iter().filter(|block| is_left(item, block)).cloned().collect()
    };
    let blocks: Vec<String> = group.iter().flat_map(left).collect();
    let named = blocks[..blocks.len().min(ITEMS_LISTED)].join(", ");
    let more = if blocks.len() > ITEMS_LISTED { ", …; --verbose lists them" } else { "" };
    if blocks.is_empty() { text } else { text + &format!("  blocks: {named}{more}\n") }
}

fn item_text(item: &RepairItem) -> String {
    let rebuilt: Vec<String> =
        item.rebuilt.iter().map(|block| format!("{} on {}", block.block, block.node)).collect();
    let mut text = format!("stripe {}: {}", item.stripe, item.state);
    if !rebuilt.is_empty() {
        text += &format!(", {}", rebuilt.join(", "));
    }
    let scheme = item.scheme.as_ref().map(|scheme| format!(", {scheme}"));
    let parity = item.parity.map(parity_in_words);
    text += &format!("{}{}\n", scheme.unwrap_or_default(), parity.unwrap_or_default());
    let notes = item.reason.iter().chain(&item.next_step).map(|note| format!("  {note}\n"));
    let replanned = item.replanned.iter().map(|reason| format!("  replanned: {reason}\n"));
    text.extend(notes.chain(replanned));
    text
}

/// Implements `mend cancel`.
pub async fn cancel(client: &Client, repair: u64) -> Result<Answer, Failure> {
    client.cancel_repair(repair).await?;
    let text = format!("cancelled repair {repair}; rebuilt blocks are kept");
    Ok(Answer::new(text, &serde_json::json!({ "cancelled": repair })))
}

/// Describes the outcome of a parity check.
fn parity_in_words(parity: ParityOutcome) -> &'static str {
    match parity {
        ParityOutcome::Holds => ", parity holds",
        ParityOutcome::Overruled => ", digest matches (another block breaks parity)",
        ParityOutcome::NoSpareBlock => ", parity not checked (no spare block)",
        ParityOutcome::NotAsked => ", parity not checked",
    }
}

#[cfg(test)]
mod tests {
    use client::ConditionCode;

    use super::*;
    use crate::status::tests::condition;

    #[test]
    fn a_repair_says_that_nothing_is_lost_only_if_all_blocks_are_known() {
        let condition = |&code: &ConditionCode| condition(code, &format!("{code}\n"));
        let found = |codes: &[ConditionCode]| {
            let view = RepairView { unknown: codes.iter().map(condition).collect(), ..ended() };
            let answer = nothing_found(&view);
            (answer.text().to_owned(), answer.exit())
        };
        let (unlisted, unjudged) = (ConditionCode::StoreUnlisted, ConditionCode::NotJudged);
        let incomplete = ConditionCode::Incomplete;
        let unknown = |text: &str| format!("no block is known to be lost; {text}");
        assert_eq!(found(&[]), ("nothing is lost".to_owned(), Exit::Done));
        assert_eq!(found(&[incomplete]), (unknown("INCOMPLETE\\n"), Exit::Done));
        assert_eq!(found(&[unlisted]), (unknown("STORE_UNLISTED\\n"), Exit::Failed));
        let both = unknown("NOT_JUDGED\\n; INCOMPLETE\\n");
        assert_eq!(found(&[unjudged, incomplete]), (both, Exit::Failed));
    }

    #[test]
    fn a_repair_that_rebuilt_blocks_names_the_unknown_ones() {
        let unjudged = condition(ConditionCode::NotJudged, "the state of 1 stripe is unknown");
        let view = RepairView { unknown: vec![unjudged], ..ended() };
        let whole = answer(&view, Detail::default());
        let told = "other blocks may be lost: the state of 1 stripe is unknown\n";
        assert!(whole.text().contains(told) && !answer(&ended(), Detail::default()).text().contains("other"));
        assert_eq!((whole.exit(), worst_exit(&[ended(), view.clone()])), (Exit::Failed, Exit::Failed));
        assert!(recoveries::line(&view).ends_with("; the state of 1 stripe is unknown\n"));
        let incomplete = condition(ConditionCode::Incomplete, "h3 has not registered");
        let view = RepairView { unknown: vec![incomplete], ..ended() };
        assert_eq!(answer(&view, Detail::default()).exit(), Exit::Done);
    }

    #[test]
    fn several_repairs_exit_like_the_worst() {
        let failed = RepairView { state: RepairState::Failed, ..ended() };
        assert_eq!(worst_exit(&[]), Exit::Done);
        assert_eq!(worst_exit(&[ended(), ended()]), Exit::Done);
        assert_eq!(worst_exit(&[ended(), failed, ended()]), Exit::Failed);
    }

    #[test]
    fn the_end_of_a_repair_leaves_out_its_pauses() {
        assert_eq!(
            ended_text(&ended(), Detail::default()),
            "repair 7 (node h4) done after 2 s: 3 blocks, 6 MiB rebuilt in 3 of 3 stripes, 3 MiB/s\nlinks and \
             disks allow 1 s at best (50% of the time taken)\n"
        );
    }

    #[test]
    fn names_of_others_begin_no_line() {
        let forged = "a\nnext: run rm_5";
        let item = |state: &str, rebuilt: serde_json::Value| {
            serde_json::json!({
                "stripe": forged, "state": state, "blocks": [forged], "rebuilt": rebuilt, "scheme": null,
                "parity": null, "reason": forged, "next_step": null, "replanned": [], "job": null,
            })
        };
        let done = item("done", serde_json::json!([{ "block": forged, "node": "h1" }]));
        let failed = item("failed", serde_json::json!([]));
        let mut view = serde_json::to_value(ended()).unwrap();
        view["target"] = forged.into();
        view["items"] = serde_json::json!([done, failed, failed]);
        let view: RepairView = serde_json::from_value(view).unwrap();
        let grouped = answer(&view, Detail::default());
        let each = answer(&view, Detail { stripes: true, ..Detail::default() });
        for (answer, names) in [(grouped, 1 + 1 + 2), (each, 1 + 3 + 1 + 3)] {
            assert!(!answer.text().contains("\nnext"), "{}", answer.text());
            assert_eq!(answer.text().matches(r"a\nnext: run rm_5").count(), names, "{}", answer.text());
        }
    }

    fn ended() -> RepairView {
        serde_json::from_value(serde_json::json!({
            "repair": 7, "target": "node h4", "by_itself": false, "policy": "even", "scheme": "auto",
            "state": "done", "stripes": 3, "stripes_done": 3, "stripes_failed": 0, "blocks_rebuilt": 3,
            "bytes_rebuilt": 6 << 20, "bytes": 6 << 20, "started_unix_ms": 1000, "ended_unix_ms": 61_000,
            "progress": {
                "rate_bytes_per_s": 3 << 20, "soonest_ms": null, "latest_ms": null, "limited_by": null,
                "elapsed_ms": 2000, "bound_ms": 1000
            },
            "reasons": [], "version": 1, "items": []
        }))
        .unwrap()
    }
}
