//! `mend repair` and `mend cancel`; waiting for any repair.

use std::time::Duration;

use client::{Client, ItemState, ParityCheck, RepairItem, RepairRequest, RepairState, RepairView};

use crate::answer::Answer;
use crate::args::RepairArgs;
use crate::blocks::{Target, find};
use crate::failure::{Exit, Failure};
use crate::format::{count, lasting, printable, rate, size};
use crate::progress::Bar;
use crate::recoveries;

/// How often it is shown how a repair goes.
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// Stripes that are listed one by one without being asked for.
const ITEMS_LISTED: usize = 20;

/// How much is told of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What was done in all, and the stripes that were not repaired.
    Bad,
    /// A line for each stripe.
    Stripes,
}

/// `mend repair`
pub async fn repair(client: &Client, args: &RepairArgs, detail: Detail) -> Result<Answer, Failure> {
    let request = request(client, args).await?;
    let view = client.repair(&request).await?;
    await_unless(client, view, args.no_wait, detail).await
}

/// What became of a repair, or that it goes on.
pub async fn await_unless(
    client: &Client,
    view: RepairView,
    no_wait: bool,
    detail: Detail,
) -> Result<Answer, Failure> {
    if no_wait {
        let text = format!(
            "repair {} ({}) is {}; watch it with `mend watch {}`",
            view.repair, view.target, view.state, view.repair
        );
        return Ok(Answer::new(text, &view));
    }
    let view = await_end(client, view).await?;
    let exit = exit_of(&view);
    Ok(Answer::new(ended_text(&view, detail), &view).with_exit(exit))
}

/// Waits for the end of a repair, and shows how it goes.
pub async fn await_end(client: &Client, mut view: RepairView) -> Result<RepairView, Failure> {
    let bar = Bar::new(&format!("repair {} ({})", view.repair, view.target), view.bytes);
    while !view.state.has_ended() {
        view = client.await_repair(view.repair, SHOW_EVERY).await?;
        bar.set(view.bytes_rebuilt, view.bytes);
        bar.say(recoveries::line(&view).trim_end());
    }
    Ok(view)
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

fn exit_of(view: &RepairView) -> Exit {
    let is_damage =
        |item: &RepairItem| matches!(item.state, ItemState::Unrepairable | ItemState::Contradictory);
    if view.items.iter().any(is_damage) {
        Exit::Data
    } else if view.state == RepairState::Done {
        Exit::Done
    } else {
        Exit::Failed
    }
}

fn ended_text(view: &RepairView, detail: Detail) -> String {
    if view.stripes == 0 {
        return "nothing is lost".to_owned();
    }
    let took =
        view.ended_unix_ms.map(|ended| Duration::from_millis(ended.saturating_sub(view.started_unix_ms)));
    let took = took.unwrap_or_default();
    let mut text = format!(
        "repair {} ({}) {} after {}: {}, {} rebuilt in {} of {}, {}\n",
        view.repair,
        view.target,
        view.state,
        lasting(took),
        count(view.blocks_rebuilt, "block"),
        size(view.bytes_rebuilt),
        view.stripes_done,
        count(view.stripes, "stripe"),
        rate(view.bytes_rebuilt, took)
    );
    let bound = view.progress.as_ref().and_then(recoveries::beside_the_bound);
    text.extend(bound.map(|bound| bound + "\n"));
    // What went wrong comes first, and what went well is told on demand.
    let (done, bad): (Vec<_>, Vec<_>) = view.items.iter().partition(|item| item.state == ItemState::Done);
    let listed: Vec<_> = match detail {
        Detail::Stripes => bad.iter().chain(&done).collect(),
        Detail::Bad => bad.iter().take(ITEMS_LISTED).collect(),
    };
    listed.iter().for_each(|item| text += &item_text(item));
    if detail == Detail::Bad && bad.len() > ITEMS_LISTED {
        let more = (bad.len() - ITEMS_LISTED) as u64;
        text += &format!("and {} more; --verbose lists them\n", count(more, "stripe"));
    }
    if detail == Detail::Bad {
        let replanned: Vec<&String> = done.iter().flat_map(|item| &item.replanned).collect();
        replanned
            .iter()
            .take(ITEMS_LISTED)
            .for_each(|why| text += &format!("planned anew: {}\n", printable(why)));
    }
    text
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
    let notes = item.reason.iter().chain(&item.next_step).map(|note| format!("  {}\n", printable(note)));
    let replanned = item.replanned.iter().map(|reason| format!("  planned anew: {}\n", printable(reason)));
    text.extend(notes.chain(replanned));
    text
}

/// `mend cancel`
pub async fn cancel(client: &Client, repair: u64) -> Result<Answer, Failure> {
    client.cancel_repair(repair).await?;
    let text = format!("gave up repair {repair}; what it has rebuilt stays");
    Ok(Answer::new(text, &serde_json::json!({ "cancelled": repair })))
}

/// What came of the parity check, for people.
fn parity_in_words(parity: ParityCheck) -> &'static str {
    match parity {
        ParityCheck::Holds => ", parity holds",
        ParityCheck::Overruled => ", right by its digest (another block breaks parity)",
        ParityCheck::NoSpareBlock => ", parity not checked (no more blocks survive than are needed)",
        ParityCheck::NotAsked => ", parity not checked",
    }
}
