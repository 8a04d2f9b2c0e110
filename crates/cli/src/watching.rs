//! Implements `mend watch`: follows repairs, or everything that happens, by the events that the coordinator pushes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use client::{Client, Condition, ConditionCode, PushedEvent, RepairView};

use crate::answer::Answer;
use crate::failure::Failure;
use crate::format::{date, printable};
use crate::history;
use crate::progress::Bar;
use crate::recoveries::line;
use crate::repairs::{self, Detail};
use crate::status::severity_name;

#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The number of the repair [default: all running repairs]
    pub repair: Option<u64>,
    /// Print every event until interrupted: conditions that begin and end, the history, the progress of repairs
    #[arg(long, conflicts_with = "repair")]
    pub events: bool,
}

/// Implements `mend watch`.
pub async fn watch(client: &Client, args: &WatchArgs, detail: Detail) -> Result<Answer, Failure> {
    if args.events {
        return print_events(client, detail).await;
    }
    if let Some(repair) = args.repair {
        let view = client.await_progress(repair, 0, Duration::ZERO).await?;
        return repairs::await_unless(client, view, false, detail).await;
    }
    let ended = await_all(client).await?;
    let text: String = ended.iter().map(line).collect();
    let text = if text.is_empty() { "no repair is running".to_owned() } else { text };
    Ok(Answer::new(text, &ended).with_exit(repairs::worst_exit(&ended)))
}

/// Follows all open repairs, also those that begin meanwhile, until none is open. Returns the ended ones.
async fn await_all(client: &Client) -> Result<Vec<RepairView>, Failure> {
    let mut events = client.events(None).await?;
    // Not from the status: a repair that ends between the status and the first events is never pushed.
    let open = loop {
        match events.next().await? {
            Some(PushedEvent::Repairs { repairs }) => break repairs,
            Some(_) => {}
            None => return Err(stopped()),
        }
    };
    let mut open: BTreeMap<u64, RepairView> = open.into_iter().map(|view| (view.repair, view)).collect();
    let mut ended = BTreeMap::new();
    let mut shown: Option<(u64, Bar)> = None;
    while let Some(first) = open.values().next() {
        let (number, bar) = match shown.take() {
            Some((number, bar)) if number == first.repair => (number, bar),
            _ => (first.repair, repairs::bar(first)),
        };
        repairs::show(&bar, first);
        shown = Some((number, bar));
        match events.next().await? {
            Some(PushedEvent::Repair { repair }) if repair.state.has_ended() => {
                open.remove(&repair.repair);
                ended.insert(repair.repair, repairs::with_stripes(client, *repair).await?);
            }
            Some(PushedEvent::Repair { repair }) => drop(open.insert(repair.repair, *repair)),
            Some(_) => {}
            None => return Err(stopped()),
        }
    }
    Ok(ended.into_values().collect())
}

fn stopped() -> Failure {
    Failure::new("the coordinator is stopping").help("run the command again when the coordinator is up")
}

/// Prints events until the user interrupts the program, or the reader closes the pipe.
async fn print_events(client: &Client, detail: Detail) -> Result<Answer, Failure> {
    let mut events = client.events(None).await?;
    let mut conditions = BTreeMap::new();
    while let Some(event) = events.next().await? {
        let text = match detail.json {
            true => serde_json::to_string(&event).expect("events have string keys") + "\n",
            false => event_text(&event, &mut conditions),
        };
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Answer::silent()),
            Err(error) => return Err(Failure::new(format!("cannot write to stdout: {error}"))),
        }
    }
    Err(stopped())
}

/// Formats an event. `known` are the conditions that were printed last.
fn event_text(event: &PushedEvent, known: &mut BTreeMap<ConditionCode, Condition>) -> String {
    match event {
        PushedEvent::Conditions { conditions } => {
            let now: BTreeMap<ConditionCode, Condition> =
                conditions.iter().map(|condition| (condition.code, condition.clone())).collect();
            let before = std::mem::replace(known, now);
            changes_text(&before, known)
        }
        PushedEvent::History { entry } => history::line(entry),
        PushedEvent::Repairs { repairs } => repairs.iter().map(repair_text).collect(),
        PushedEvent::Repair { repair } => repair_text(repair),
    }
}

fn repair_text(repair: &RepairView) -> String {
    format!("{}  {}", date(now_unix_ms()), line(repair))
}

fn changes_text(
    before: &BTreeMap<ConditionCode, Condition>,
    now: &BTreeMap<ConditionCode, Condition>,
) -> String {
    let is_same = |condition: &Condition| {
        before.get(&condition.code).is_some_and(|known| {
            (known.severity, known.muted, &known.text)
                == (condition.severity, condition.muted, &condition.text)
        })
    };
    let began = now.values().filter(|condition| !is_same(condition)).map(|condition| {
        let muted = if condition.muted { ", muted" } else { "" };
        let text = printable(&condition.text);
        format!("{} {}{muted}: {text}", severity_name(condition.severity), condition.code)
    });
    let ended = before.keys().filter(|code| !now.contains_key(code)).map(|code| format!("ended {code}"));
    let at = date(now_unix_ms());
    began.chain(ended).map(|text| format!("{at}  {text}\n")).collect()
}

fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use client::Severity;

    use super::*;
    use crate::status::tests::condition;

    fn conditions(texts: &[(ConditionCode, &str)]) -> PushedEvent {
        let condition = |&(code, text): &(ConditionCode, &str)| Condition {
            severity: Severity::Warning,
            muted: false,
            ..condition(code, text)
        };
        PushedEvent::Conditions { conditions: texts.iter().map(condition).collect() }
    }

    #[test]
    fn only_conditions_that_change_are_printed() {
        let mut known = BTreeMap::new();
        let gone = (ConditionCode::HelperGone, "1 helper is down: h3");
        let full = (ConditionCode::Full, "full: h1");
        let text = event_text(&conditions(&[gone]), &mut known);
        assert!(text.ends_with("  warning HELPER_GONE: 1 helper is down: h3\n"), "{text}");
        assert_eq!(event_text(&conditions(&[gone]), &mut known), "");
        let text = event_text(&conditions(&[full]), &mut known);
        let lines: Vec<&str> = text.lines().map(|line| line.split_once("  ").unwrap().1).collect();
        assert_eq!(lines, ["warning FULL: full: h1", "ended HELPER_GONE"]);
    }
}
