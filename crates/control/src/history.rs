//! The history: the last thousand events, recorded across restarts.

use std::collections::VecDeque;

use serde_json::Value;
use views::{HistoryEntry, HistoryEvent, RepairReason, RepairState};

use crate::counts::count;
use crate::nodes::Nodes;
use crate::out::{Bad, Out};
use crate::records::recall;
use crate::totals::Totals;

/// The maximum number of entries that are kept.
pub(crate) const KEPT: usize = 1000;
/// The prefix of the record keys of entries; the entry's number follows.
const PREFIX: &str = "history/";

/// The entries of the history, the oldest first.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) entries: VecDeque<HistoryEntry>,
    pub(crate) totals: Totals,
}

impl History {
    /// Records the events that state machines have reported.
    pub(crate) fn take(&mut self, unix_ms: u64, out: &mut Out) {
        while let Some(what) = out.notes.pop_front() {
            self.totals.note(&what);
            let number = self.entries.back().map_or(1, |last| last.number + 1);
            let entry = HistoryEntry { number, at_unix_ms: unix_ms, what };
            out.keep_record(key(number), &entry);
            self.entries.push_back(entry);
            while self.entries.len() > KEPT {
                let oldest = self.entries.pop_front().expect("the queue is not empty");
                out.forget_record(key(oldest.number));
            }
        }
    }
}

impl History {
    pub(crate) fn recall_history(&mut self, records: &[(String, Value)], out: &mut Out) {
        let mut entries = Vec::new();
        for (number, entry) in recall::<HistoryEntry>(records, PREFIX) {
            match entry {
                Some(entry) => entries.push(entry),
                None => out.forget_record(format!("{PREFIX}{number}")),
            }
        }
        entries.sort_by_key(|entry| entry.number);
        self.entries = entries.into();
    }

    /// Adds one event to the history for each node on which bad blocks were found since the last tick.
    pub(crate) fn note_all_bad(&mut self, nodes: &Nodes, out: &mut Out) {
        for (node, Bad { blocks, first, problem }) in std::mem::take(&mut out.bad) {
            out.note(HistoryEvent::BlocksLost { node: nodes.name(node), blocks, first, problem });
        }
    }

    /// If the last repair failed, returns text with the repair's number, its target and the reasons.
    pub(crate) fn failed_last(&self) -> Option<String> {
        let last = self.entries.iter().rev().find_map(|entry| match &entry.what {
            HistoryEvent::RepairEnded { repair, target, state, reasons, .. } => {
                Some((repair, target, *state, reasons))
            }
            _ => None,
        });
        let (repair, target, _, reasons) = last.filter(|(_, _, state, _)| *state == RepairState::Failed)?;
        let texts: Vec<String> = reasons.iter().map(failure_text).collect();
        (!texts.is_empty()).then(|| format!("repair {repair} ({target}) failed: {}", texts.join("; ")))
    }

    /// Returns the last `most` entries since this time, the oldest first.
    pub(crate) fn history(&self, since_unix_ms: u64, most: usize) -> Vec<HistoryEntry> {
        let recent: Vec<&HistoryEntry> =
            self.entries.iter().filter(|entry| entry.at_unix_ms >= since_unix_ms).collect();
        recent[recent.len().saturating_sub(most)..].iter().map(|&entry| entry.clone()).collect()
    }
}

/// Formats a reason, such as `17 stripes: REASON; NEXT STEP`.
pub(crate) fn failure_text(reason: &RepairReason) -> String {
    let next = reason.next_step.as_ref().map_or_else(String::new, |next| format!("; {next}"));
    format!("{}: {}{next}", count(reason.stripes, "stripe"), reason.reason)
}

fn key(number: u64) -> String {
    format!("{PREFIX}{number:020}")
}
