//! Implements `mend history`, `mend audit` and `mend wait`.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::time::{Duration, UNIX_EPOCH};

use client::{AuditEntry, AuditedRequest, Client, FileWorkKind, HistoryEntry, HistoryEvent, natural};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::args::{HistoryArgs, WaitArgs, WaitFor};
use crate::failure::Failure;
use crate::format::{count, date, lasting, printable, rate, size};

/// How many entries are listed by default.
const LISTED: usize = 50;

const ASK_EVERY: Duration = Duration::from_millis(500);

/// Implements `mend history`.
pub async fn history(client: &Client, args: &HistoryArgs) -> Result<Answer, Failure> {
    let entries = client.history(since(args), most(args)).await?;
    let text: String = entries.iter().map(line).collect();
    Ok(Answer::new(if entries.is_empty() { "no events yet".to_owned() } else { text }, &entries))
}

/// Implements `mend audit`.
pub async fn audit(client: &Client, args: &HistoryArgs) -> Result<Answer, Failure> {
    let entries = client.audit(since(args), most(args)).await?;
    let text: String = entries.iter().map(audit_line).collect();
    Ok(Answer::new(if entries.is_empty() { "no changes yet".to_owned() } else { text }, &entries))
}

fn audit_line(entry: &AuditEntry) -> String {
    let AuditedRequest { member, address, request, arguments, status, error } = &entry.request;
    let arguments = if arguments.is_null() { String::new() } else { format!(" {arguments}") };
    let result = match error {
        Some(error) => format!("refused ({status}): {error}"),
        None if *status < 400 => "done".to_owned(),
        None => format!("refused ({status})"),
    };
    let at = date(entry.at_unix_ms);
    format!("{at}  {}\n", printable(&format!("{member} from {address}: {request}{arguments}: {result}")))
}

fn since(args: &HistoryArgs) -> Option<u64> {
    let since = args.since?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn most(args: &HistoryArgs) -> usize {
    args.last.map_or(if args.since.is_some() { usize::MAX } else { LISTED }, NonZero::get)
}

/// Formats an entry of the history as a line.
pub fn line(entry: &HistoryEntry) -> String {
    format!("{}  {}\n", date(entry.at_unix_ms), printable(&event_text(&entry.what)))
}

fn event_text(event: &HistoryEvent) -> String {
    match event {
        HistoryEvent::NodeAdded { node } => format!("{node} joined the cluster"),
        HistoryEvent::NodeLost { node, blocks, why } => {
            format!("{node} was lost with {}: {why}", count(*blocks, "block"))
        }
        HistoryEvent::NodeBack { node, away_ms } => {
            format!("{node} is back after {}", lasting(Duration::from_millis(*away_ms)))
        }
        HistoryEvent::NodeFlapped { node, times, since_unix_ms, blocks, why, away_ms } => {
            let now = match away_ms {
                Some(away_ms) => format!("back after {}", lasting(Duration::from_millis(*away_ms))),
                None => format!("down, with {}", count(*blocks, "block")),
            };
            format!(
                "{node} was lost {times} times since {}, now {now}; the last cause: {why}",
                date(*since_unix_ms)
            )
        }
        HistoryEvent::NodeRemoved { node } => format!("{node} was removed"),
        HistoryEvent::MaintenanceBegun { node, until_unix_ms } => {
            format!("{node} entered maintenance until {}", date(*until_unix_ms))
        }
        HistoryEvent::MaintenanceEnded { node } => format!("{node} left maintenance"),
        HistoryEvent::BlocksLost { node, blocks, first, problem } => {
            let more = if first.len() as u64 == *blocks { "" } else { ", …" };
            format!("{} bad on {node} ({}{more}): {problem}", count(*blocks, "block"), first.join(", "))
        }
        HistoryEvent::Contradiction { stripe, blocks, found_by } => {
            format!(
                "blocks of stripe {stripe} contradict each other, found by a {found_by}: {}",
                blocks.join(", ")
            )
        }
        HistoryEvent::ContradictionSettled { stripe } => format!("parity of stripe {stripe} holds again"),
        HistoryEvent::DigestReplaced { block, recorded, found } => format!(
            "the recorded digest of block {block} was wrong ({recorded}) and was replaced by {found}: the rebuilt \
             block agrees with all others of its stripe; the helper that stored the block before may have lied"
        ),
        HistoryEvent::FileWorked { file, work, bytes, took_ms, by, failure } => {
            let took = lasting(Duration::from_millis(*took_ms));
            let [done, failed] = match work {
                FileWorkKind::Encode => ["encoded", "encoding"],
                FileWorkKind::Adjust => ["adjusted", "adjusting"],
                FileWorkKind::Undo => ["made a replicated file again", "undoing the encoding of"],
            };
            match failure {
                Some(why) => {
                    format!("{failed} {file} ({}) failed after {took}, by {by}: {why}", size(*bytes))
                }
                None => format!("{file} ({}) {done} in {took}, by {by}", size(*bytes)),
            }
        }
        HistoryEvent::RepairBegun { repair, target, by_itself } => {
            format!("repair {repair} ({target}) queued{}", if *by_itself { " automatically" } else { "" })
        }
        HistoryEvent::RepairEnded { .. } => ended_text(event),
    }
}

fn ended_text(event: &HistoryEvent) -> String {
    let HistoryEvent::RepairEnded {
        repair,
        target,
        state,
        took_ms,
        blocks,
        bytes,
        stripes_failed,
        lost_from,
        rebuilt_on,
        reasons,
        ..
    } = event
    else {
        return String::new();
    };
    let took = Duration::from_millis(*took_ms);
    let mut text = format!("repair {repair} ({target}) {state} after {}", lasting(took));
    if *blocks > 0 {
        text += &format!(": {}, {} at {}", count(*blocks, "block"), size(*bytes), rate(*bytes, took));
    }
    if *stripes_failed > 0 {
        text += &format!("; {} not repaired", count(*stripes_failed, "stripe"));
    }
    for (what, nodes) in [("lost from", lost_from), ("now on", rebuilt_on)] {
        if !nodes.is_empty() {
            text += &format!("; {what} {}", counted(nodes));
        }
    }
    for reason in reasons {
        text += &format!("; {}: {}", count(reason.stripes, "stripe"), reason.reason);
    }
    text
}

/// Formats nodes with their block counts, such as `h2 (12), h10 (3)`.
fn counted(nodes: &BTreeMap<String, u64>) -> String {
    let mut nodes: Vec<_> = nodes.iter().collect();
    nodes.sort_by(|a, b| natural(a.0, b.0));
    nodes.iter().map(|(node, blocks)| format!("{node} ({blocks})")).collect::<Vec<_>>().join(", ")
}

/// Implements `mend wait`.
pub async fn wait(client: &Client, args: &WaitArgs) -> Result<Answer, Failure> {
    let until = args.timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let status = client.status().await?;
        let there = match args.what {
            WaitFor::Safe => status.healthy && !status.settling,
            WaitFor::Done => status.work.repairs.is_empty() && !status.settling,
        };
        if there {
            return Ok(Answer::new(printable(&status.summary), &status));
        }
        if until.is_some_and(|until| Instant::now() + ASK_EVERY > until) {
            let time = args.timeout.map(lasting).unwrap_or_default();
            return Err(Failure::new(format!("timed out after {time}: {}", printable(&status.summary)))
                .help("`mend status` shows running repairs and next steps"));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use client::{RepairReason, RepairState};

    use super::*;

    #[test]
    fn the_end_of_work_on_a_file_says_who_asked_for_it_and_why_it_failed() {
        let told = |work, failure: Option<&str>| {
            let what = HistoryEvent::FileWorked {
                file: "/warehouse/a".into(),
                work,
                bytes: 3 << 30,
                took_ms: 41_000,
                by: "policy warehouse".into(),
                failure: failure.map(str::to_owned),
            };
            line(&HistoryEntry { number: 1, at_unix_ms: 0, what })
        };
        assert_eq!(
            told(FileWorkKind::Encode, None),
            "1970-01-01T00:00:00Z  /warehouse/a (3 GiB) encoded in 41 s, by policy warehouse\n"
        );
        assert_eq!(
            told(FileWorkKind::Undo, Some("safe mode")),
            "1970-01-01T00:00:00Z  undoing the encoding of /warehouse/a (3 GiB) failed after 41 s, by policy \
             warehouse: safe mode\n"
        );
    }

    #[test]
    fn the_end_of_a_repair_says_what_was_done_how_fast_and_where() {
        let nodes = |names: &[(&str, u64)]| names.iter().map(|&(name, n)| (name.to_owned(), n)).collect();
        let what = HistoryEvent::RepairEnded {
            repair: 7,
            target: "node h2".into(),
            by_itself: true,
            state: RepairState::Failed,
            took_ms: 2000,
            blocks: 3,
            bytes: 6 << 20,
            moved_blocks: 0,
            moved_bytes: 0,
            stripes_failed: 1,
            lost_from: nodes(&[("h2", 4)]),
            rebuilt_on: nodes(&[("h10", 1), ("h3", 2)]),
            reasons: vec![RepairReason {
                reason: "no helper can take 1 block".into(),
                next_step: None,
                stripes: 1,
                blocks: vec!["7.1".into()],
            }],
            unknown: Vec::new(),
        };
        assert_eq!(
            line(&HistoryEntry { number: 1, at_unix_ms: 0, what }),
            "1970-01-01T00:00:00Z  repair 7 (node h2) failed after 2 s: 3 blocks, 6 MiB at 3 MiB/s; 1 stripe not \
             repaired; lost from h2 (4); now on h3 (2), h10 (1); 1 stripe: no helper can take 1 block\n"
        );
    }
}
