//! The history: the latest events, recorded across restarts.
//!
//! The size of all entries is limited, and that of some kinds of entries even more: there may be one for each of many
//! thousand files on which the store works, and several for each stripe whose automatic repairs fail again and again.
//! If a helper is lost and returns again and again, one entry stands for all of these events, so that they do not
//! displace the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;
use store_api::FileWork;
use views::{FileWorkKind, FileWorkReport, HistoryEntry, HistoryEvent, RepairReason, RepairState};

use crate::counts::count;
use crate::nodes::Nodes;
use crate::out::{Bad, Out};
use crate::records::recall;
use crate::totals::Totals;

/// The maximum size of all entries together, in bytes of JSON.
pub(crate) const KEPT_BYTES: usize = 4 << 20;
/// The maximum size of the entries of a frequent kind.
const KEPT_FREQUENT_BYTES: usize = KEPT_BYTES / 4;
/// A helper that was lost this often, each time within [`FLAPPING_MS`] of the time before, is lost again and again.
const FLAPPING_LOSSES: u64 = 3;
pub(crate) const FLAPPING_MS: u64 = 3_600_000;
/// The most bytes of a text from a client or a store that are recorded.
const MOST_TEXT_BYTES: usize = 4096;
/// The prefix of the record keys of entries; the entry's number follows.
const PREFIX: &str = "history/";

/// The entries of the history, the oldest first.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) entries: VecDeque<HistoryEntry>,
    bytes: usize,
    /// The parts of `bytes` of frequent entries, by their kinds.
    frequent_bytes: BTreeMap<Frequent, usize>,
    pub(crate) totals: Totals,
}

/// The kinds of entries of which there may be very many. Entries of a kind displace only each other once they take
/// [`KEPT_FREQUENT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Frequent {
    /// The store's work on a file has ended.
    FileWork,
    /// The automatic repair of a single stripe was queued or has failed. Failing and refused repairs are repeated without
    /// end.
    StripeRepair,
}

impl History {
    /// Records the events that state machines have reported.
    pub(crate) fn take(&mut self, unix_ms: u64, out: &mut Out) {
        while let Some(what) = out.notes.pop_front() {
            self.totals.note(&what);
            let number = self.entries.back().map_or(1, |last| last.number + 1);
            let what = self.merge_losses(what, unix_ms, out);
            let entry = HistoryEntry { number, at_unix_ms: unix_ms, what };
            out.keep_record(key(number), &entry);
            self.add(entry);
            self.shorten(out);
        }
    }

    fn add(&mut self, entry: HistoryEntry) {
        let bytes = size_of(&entry);
        self.bytes += bytes;
        if let Some(kind) = Frequent::of(&entry) {
            *self.frequent_bytes.entry(kind).or_default() += bytes;
        }
        self.entries.push_back(entry);
    }

    /// Removes the oldest entries until the sizes are within their limits.
    fn shorten(&mut self, out: &mut Out) {
        while let Some(oldest) = self.displaced() {
            self.drop_entry(oldest, out);
        }
        while self.bytes > KEPT_BYTES && !self.entries.is_empty() {
            self.drop_entry(0, out);
        }
    }

    /// Returns the position of the oldest entry of a kind whose entries take too many bytes.
    fn displaced(&self) -> Option<usize> {
        let (kind, _) = self.frequent_bytes.iter().find(|(_, bytes)| **bytes > KEPT_FREQUENT_BYTES)?;
        self.entries.iter().position(|entry| Frequent::of(entry) == Some(*kind))
    }

    fn drop_entry(&mut self, at: usize, out: &mut Out) {
        let Some(entry) = self.entries.remove(at) else { return };
        let bytes = size_of(&entry);
        self.bytes -= bytes;
        if let Some(kind) = Frequent::of(&entry) {
            *self.frequent_bytes.entry(kind).or_default() -= bytes;
        }
        out.forget_record(key(entry.number));
    }

    /// If a helper was lost again and again, removes the entries of these events and returns one event for all of
    /// them.
    fn merge_losses(&mut self, what: HistoryEvent, unix_ms: u64, out: &mut Out) -> HistoryEvent {
        let Some(last) = Losses::of(&what, unix_ms) else { return what };
        let merged: Vec<(u64, Losses<'_>)> = self
            .entries
            .iter()
            .rev()
            .take_while(|entry| entry.at_unix_ms >= unix_ms.saturating_sub(FLAPPING_MS))
            .filter_map(|entry| Some((entry.number, Losses::of(&entry.what, entry.at_unix_ms)?)))
            .filter(|(_, losses)| losses.node == last.node)
            .collect();
        let all = || merged.iter().map(|(_, losses)| losses).chain([&last]);
        let times = all().map(|losses| losses.times).sum();
        let Some((blocks, why)) =
            [&last].into_iter().chain(merged.iter().map(|(_, it)| it)).find_map(|it| it.last)
        else {
            return what;
        };
        if times < FLAPPING_LOSSES {
            return what;
        }
        let flapped = HistoryEvent::NodeFlapped {
            node: last.node.to_owned(),
            times,
            since_unix_ms: all().map(|losses| losses.since_unix_ms).min().unwrap_or(unix_ms),
            blocks,
            why: why.to_owned(),
            away_ms: last.away_ms,
        };
        let numbers: BTreeSet<u64> = merged.into_iter().map(|(number, _)| number).collect();
        self.remove(&numbers, out);
        flapped
    }

    fn remove(&mut self, numbers: &BTreeSet<u64>, out: &mut Out) {
        let bytes = &mut self.bytes;
        self.entries.retain(|entry| {
            let stays = !numbers.contains(&entry.number);
            if !stays {
                *bytes -= size_of(entry);
                out.forget_record(key(entry.number));
            }
            stays
        });
    }
}

/// The losses of a helper that an event reports.
struct Losses<'e> {
    node: &'e str,
    times: u64,
    since_unix_ms: u64,
    /// Number of blocks on the helper at the last loss, and the loss's cause; `None` if the event is no loss.
    last: Option<(u64, &'e str)>,
    away_ms: Option<u64>,
}

impl<'e> Losses<'e> {
    fn of(event: &'e HistoryEvent, at_unix_ms: u64) -> Option<Self> {
        match event {
            HistoryEvent::NodeLost { node, blocks, why } => Some(Self {
                node,
                times: 1,
                since_unix_ms: at_unix_ms,
                last: Some((*blocks, why)),
                away_ms: None,
            }),
            HistoryEvent::NodeBack { node, away_ms } => {
                Some(Self { node, times: 0, since_unix_ms: at_unix_ms, last: None, away_ms: Some(*away_ms) })
            }
            HistoryEvent::NodeFlapped { node, times, since_unix_ms, blocks, why, away_ms } => Some(Self {
                node,
                times: *times,
                since_unix_ms: *since_unix_ms,
                last: Some((*blocks, why)),
                away_ms: *away_ms,
            }),
            _ => None,
        }
    }
}

/// Returns the event for the end of the store's work on a file.
pub(crate) fn worked(work: FileWork) -> HistoryEvent {
    let FileWork { file, kind, bytes, took_ms, by, failure } = work;
    let work = match kind {
        store_api::FileWorkKind::Encode => FileWorkKind::Encode,
        store_api::FileWorkKind::Adjust => FileWorkKind::Adjust,
        store_api::FileWorkKind::Undo => FileWorkKind::Undo,
    };
    let (file, failure) = (bounded(file), failure.map(bounded));
    HistoryEvent::FileWorked { file, work, bytes, took_ms, by, failure }
}

/// Returns the event for a command's work on a file that has ended. `member` has run the command.
pub(crate) fn reported(report: FileWorkReport, member: &str) -> HistoryEvent {
    let FileWorkReport { file, work, bytes, took_ms, failure } = report;
    let (file, failure) = (bounded(file), failure.map(bounded));
    HistoryEvent::FileWorked { file, work, bytes, took_ms, by: format!("a command of {member}"), failure }
}

/// Returns the beginning of a text, if it is long.
fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MOST_TEXT_BYTES));
    text
}

impl Frequent {
    fn of(entry: &HistoryEntry) -> Option<Self> {
        match &entry.what {
            HistoryEvent::FileWorked { .. } => Some(Self::FileWork),
            HistoryEvent::RepairBegun { by_itself: true, target, .. } => Self::of_repair(target),
            HistoryEvent::RepairEnded { by_itself: true, target, state: RepairState::Failed, .. } => {
                Self::of_repair(target)
            }
            _ => None,
        }
    }

    fn of_repair(target: &str) -> Option<Self> {
        let is_single = target.starts_with("stripe ") || target.starts_with("block ");
        is_single.then_some(Self::StripeRepair)
    }
}

/// Returns the size of an entry's record.
fn size_of(entry: &HistoryEntry) -> usize {
    serde_json::to_string(entry).expect("entries have string keys").len()
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
        entries.into_iter().for_each(|entry| self.add(entry));
    }

    /// Returns the helpers that were lost again and again until this time or later, with the number of losses and the
    /// time of the first.
    pub(crate) fn flapping(&self, since_unix_ms: u64) -> impl Iterator<Item = (&str, u64, u64)> {
        let recent = self.entries.iter().rev().take_while(move |entry| entry.at_unix_ms >= since_unix_ms);
        recent.filter_map(|entry| match &entry.what {
            HistoryEvent::NodeFlapped { node, times, since_unix_ms, .. } => {
                Some((node.as_str(), *times, *since_unix_ms))
            }
            _ => None,
        })
    }

    /// Adds one event to the history for each node on which bad blocks were found since the last tick.
    pub(crate) fn note_all_bad(&mut self, nodes: &Nodes, out: &mut Out) {
        for (node, Bad { blocks, first, problem }) in std::mem::take(&mut out.bad) {
            out.note(HistoryEvent::BlocksLost { node: nodes.name(node), blocks, first, problem });
        }
    }

    /// If the last repair failed, of those whose targets count, returns text with the repair's number, its target and
    /// the reasons.
    pub(crate) fn failed_last(&self, counts: impl Fn(&str) -> bool) -> Option<String> {
        let last = self.entries.iter().rev().find_map(|entry| match &entry.what {
            HistoryEvent::RepairEnded { repair, target, state, reasons, .. } if counts(target) => {
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

    /// Returns the first `most` entries after the one with this number and since this time.
    pub(crate) fn page(&self, after: u64, since_unix_ms: u64, most: usize) -> Vec<HistoryEntry> {
        let first = self.entries.partition_point(|entry| entry.number <= after);
        let later = self.entries.range(first..).filter(|entry| entry.at_unix_ms >= since_unix_ms);
        later.take(most).cloned().collect()
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

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    fn ended(repair: u64, target: &str, state: RepairState) -> HistoryEntry {
        let (reason, next_step) = ("too few helpers".to_owned(), None);
        let reasons = vec![RepairReason { reason, next_step, stripes: 1, blocks: Vec::new() }];
        let what = HistoryEvent::RepairEnded {
            repair,
            target: target.to_owned(),
            by_itself: false,
            state,
            took_ms: 1,
            blocks: 0,
            bytes: 0,
            moved_blocks: 0,
            moved_bytes: 0,
            stripes_failed: 1,
            lost_from: BTreeMap::new(),
            rebuilt_on: BTreeMap::new(),
            reasons: if state == RepairState::Failed { reasons } else { Vec::new() },
            unknown: Vec::new(),
        };
        HistoryEntry { number: repair, at_unix_ms: repair, what }
    }

    #[test]
    fn works_on_files_displace_only_each_other() {
        let (mut out, mut history) = (Out::new(StdRng::seed_from_u64(1), 0..0), History::default());
        out.note(HistoryEvent::NodeAdded { node: "h1".to_owned() });
        let work = |number: u64| FileWork {
            file: format!("/warehouse/{number}"),
            kind: store_api::FileWorkKind::Encode,
            bytes: 1 << 30,
            took_ms: 20_000,
            by: "policy warehouse".to_owned(),
            failure: number.is_multiple_of(2).then(|| "the quota is exceeded".repeat(20)),
        };
        (0..20_000).for_each(|number| out.note(worked(work(number))));
        history.take(7, &mut out);
        let oldest = history.entries.front().expect("an entry");
        assert!(matches!(oldest.what, HistoryEvent::NodeAdded { .. }), "{oldest:?}");
        let newest = history.entries.back().expect("an entry");
        assert!(matches!(&newest.what, HistoryEvent::FileWorked { file, .. } if file == "/warehouse/19999"));
        let bytes: usize = history.entries.iter().map(size_of).sum();
        let file_bytes = history.frequent_bytes[&Frequent::FileWork];
        assert_eq!((bytes, file_bytes), (history.bytes, bytes - size_of(oldest)));
        assert!((KEPT_FREQUENT_BYTES / 2..=KEPT_FREQUENT_BYTES).contains(&file_bytes));
        let encoded = history.totals.file_works[&FileWorkKind::Encode];
        assert_eq!((encoded.done, encoded.failed, encoded.bytes), (10_000, 10_000, 10_000 << 30));
    }

    /// The store refuses the repairs of many stripes, or they fail, for days.
    #[test]
    fn automatic_repairs_that_fail_displace_only_each_other() {
        let (mut out, mut history) = (Out::new(StdRng::seed_from_u64(1), 0..0), History::default());
        out.note(HistoryEvent::NodeAdded { node: "h1".to_owned() });
        out.note(ended(0, "node h2", RepairState::Failed).what);
        for repair in 1..20_000 {
            let target = format!("stripe f.{repair}");
            let mut end = ended(repair, &target, RepairState::Failed).what;
            if let HistoryEvent::RepairEnded { by_itself, .. } = &mut end {
                *by_itself = true;
            }
            out.note(HistoryEvent::RepairBegun { repair, target, by_itself: true });
            out.note(end);
        }
        history.take(7, &mut out);
        let bytes = history.frequent_bytes[&Frequent::StripeRepair];
        assert!((KEPT_FREQUENT_BYTES / 2..=KEPT_FREQUENT_BYTES).contains(&bytes), "{bytes}");
        let oldest: Vec<u64> = history.entries.iter().take(2).map(|entry| entry.number).collect();
        assert_eq!(oldest, [1, 2], "other entries stay");
        let newest = history.entries.back().expect("an entry");
        assert!(matches!(newest.what, HistoryEvent::RepairEnded { repair: 19_999, .. }), "{newest:?}");
    }

    #[test]
    fn pages_continue_where_the_last_one_ended() {
        let entries = [1, 2, 4, 7].map(|number| ended(number, "all", RepairState::Done));
        let history = History { entries: entries.into(), ..History::default() };
        let page = |after, since_unix_ms, most| -> Vec<u64> {
            history.page(after, since_unix_ms, most).iter().map(|entry| entry.number).collect()
        };
        assert_eq!([page(0, 0, 2), page(2, 0, 2), page(7, 0, 2)], [vec![1, 2], vec![4, 7], vec![]]);
        assert_eq!([page(3, 0, 9), page(0, 3, 1), page(2, 5, 9)], [vec![4, 7], vec![4], vec![7]]);
    }

    /// Parity that helpers make for a file is a repair, too. Its end must not hide that the repair of lost blocks failed,
    /// and its failure is none of theirs.
    #[test]
    fn repairs_that_do_not_count_are_passed_over() {
        let counts = |target: &str| !target.contains("encoding");
        let failed = |entries: Vec<HistoryEntry>| {
            let history = History { entries: entries.into(), ..History::default() };
            history.failed_last(counts)
        };
        let lost = || ended(1, "node h1", RepairState::Failed);
        let encoded = |state| ended(2, "stripe encoding_1_2", state);
        let told = "repair 1 (node h1) failed: 1 stripe: too few helpers";
        assert_eq!(failed(vec![lost(), encoded(RepairState::Done)]).as_deref(), Some(told));
        assert_eq!(failed(vec![lost(), encoded(RepairState::Failed)]).as_deref(), Some(told));
        assert_eq!(failed(vec![ended(1, "node h1", RepairState::Done), encoded(RepairState::Failed)]), None);
    }
}
