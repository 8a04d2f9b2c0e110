//! `mend scrub`.

use std::time::Duration;

use client::{Client, OrphanView, ScrubState, ScrubView};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::args::ScrubArgs;
use crate::failure::{Exit, Failure};
use crate::format::{count, printable, size};
use crate::progress::Bar;

const ASK_EVERY: Duration = Duration::from_millis(200);
/// Orphans that are there after this long are not removed: nothing proves that they may go.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// `mend scrub`
pub async fn scrub(client: &Client, args: &ScrubArgs) -> Result<Answer, Failure> {
    let mut view = client.scrub().await?;
    let bar = Bar::new("scrub", view.bytes);
    while view.state == ScrubState::Running {
        tokio::time::sleep(ASK_EVERY).await;
        view = client.scrub_state(view.scrub).await?;
        bar.set(view.checked_bytes, view.bytes);
    }
    drop(bar);
    if args.remove_orphans {
        view.orphans = remove_orphans(client).await?;
    }
    let exit = if view.findings.is_empty() { Exit::Done } else { Exit::Data };
    Ok(Answer::new(text(&view), &view).with_exit(exit))
}

/// Removes what can be removed, and says what is left after a moment.
async fn remove_orphans(client: &Client) -> Result<Vec<OrphanView>, Failure> {
    let asked = client.remove_orphans().await?.orphans;
    let until = Instant::now() + REMOVAL_LIMIT;
    loop {
        let left = client.status().await?.orphans;
        if asked == 0 || left.is_empty() || Instant::now() >= until {
            return Ok(left);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn text(view: &ScrubView) -> String {
    let found = match view.findings.len() as u64 {
        0 => "all agree with their checksums".to_owned(),
        bad => format!("{} BAD; run: mend repair --all", count(bad, "block")),
    };
    let mut text = format!(
        "checked {} of {} ({}): {found}\n",
        view.checked,
        count(view.blocks, "block"),
        size(view.checked_bytes)
    );
    for finding in &view.findings {
        text += &format!(
            "{} of stripe {} on {}: {}\n",
            printable(&finding.block),
            finding.stripe,
            finding.node,
            printable(&finding.problem)
        );
    }
    for skipped in &view.skipped {
        text += &match skipped.blocks {
            0 => format!("not everything of {}: {}\n", skipped.node, skipped.why),
            blocks => {
                format!("not checked: {} on {}: {}\n", count(blocks, "block"), skipped.node, skipped.why)
            }
        };
    }
    for orphan in &view.orphans {
        text += &format!("{} on {} belongs to no stripe\n", printable(&orphan.block), orphan.node);
    }
    text
}
