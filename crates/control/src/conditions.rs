//! When conditions began, and which are muted. Both are recorded across restarts.
//!
//! [`Answers::findings`](crate::answers::Answers::findings) determines the present conditions. This module
//! only remembers them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use views::{Condition, ConditionCode, MuteRequest, Severity};

use crate::error::ConditionError;
use crate::finding::Finding;
use crate::out::Out;
use crate::records::recall;
use crate::totals::Durations;

/// How often the present conditions are compared with the remembered ones.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The maximum number of names that a condition lists.
const NAMED: usize = 20;
/// The prefix of the record keys of conditions; the code follows.
const PREFIX: &str = "condition/";

/// The record key of the time since which blocks are lost.
const LOST_KEY: &str = "lost/since";

/// The remembered conditions.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    known: BTreeMap<ConditionCode, Known>,
    due: Duration,
    /// Since when blocks are lost, whatever the condition is called.
    lost_since_unix_ms: Option<u64>,
    /// The times from the first loss until no block was lost, since the start of the coordinator.
    pub(crate) whole_again: Durations,
}

/// A condition that the cluster has.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    since_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mute: Option<Mute>,
}

/// A mute, and the state of the condition when it was muted.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mute {
    until_unix_ms: Option<u64>,
    severity: Severity,
    count: u64,
    /// Everything that the condition concerned, such as lost blocks; empty for conditions that concern nothing
    /// that has a name. Mutes of earlier versions have no such list and end.
    #[serde(default)]
    concerns: BTreeSet<String>,
}

impl Mute {
    /// Whether the mute still holds: it has not expired, and the condition has neither become more severe nor
    /// come to concern anything else.
    fn holds(&self, finding: &Finding, concerns: &BTreeSet<String>, unix_ms: u64) -> bool {
        let is_known = match concerns.is_empty() {
            true => finding.count <= self.count,
            false => concerns.is_subset(&self.concerns),
        };
        self.until_unix_ms.is_none_or(|until| unix_ms < until)
            && finding.severity.worse(self.severity) == self.severity
            && is_known
    }
}

impl Conditions {
    /// Restores the conditions that an earlier coordinator recorded.
    pub(crate) fn recall(&mut self, records: &[(String, Value)], out: &mut Out) {
        for (name, known) in recall::<Known>(records, PREFIX) {
            match ConditionCode::named(name).zip(known) {
                Some((code, known)) => {
                    self.known.insert(code, known);
                }
                None => out.forget_record(format!("{PREFIX}{name}")),
            }
        }
        self.lost_since_unix_ms = recall(records, LOST_KEY).find_map(|(_, since)| since);
    }

    /// Records whether blocks are lost now.
    pub(crate) fn note_loss(&mut self, is_lost: bool, unix_ms: u64, out: &mut Out) {
        match (self.lost_since_unix_ms, is_lost) {
            (None, true) => {
                self.lost_since_unix_ms = Some(unix_ms);
                out.keep_record(LOST_KEY.to_owned(), &unix_ms);
            }
            (Some(since), false) => {
                self.lost_since_unix_ms = None;
                self.whole_again.note(unix_ms.saturating_sub(since) as f64 / 1000.0);
                out.forget_record(LOST_KEY.to_owned());
            }
            _ => {}
        }
    }

    /// Returns since when blocks are lost, given that they are lost now.
    pub(crate) fn lost_since(&self, unix_ms: u64) -> u64 {
        self.lost_since_unix_ms.unwrap_or(unix_ms)
    }

    /// Whether it is time for [`note`](Self::note).
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now + LOOK_EVERY;
        }
        is_due
    }

    /// Records which conditions have begun or ended, and that the mutes of `loud` have ended. With
    /// `is_partial`, the state of helpers or the store is not known yet, so conditions that are not found now
    /// may still exist.
    pub(crate) fn note(
        &mut self,
        found: &[Finding],
        loud: &[ConditionCode],
        is_partial: bool,
        unix_ms: u64,
        out: &mut Out,
    ) {
        for code in found.iter().map(|finding| finding.code) {
            let before = self.known.get(&code);
            let ends = loud.contains(&code) && before.is_some_and(|known| known.mute.is_some());
            if before.is_none() || ends {
                let since_unix_ms = before.map_or(unix_ms, |known| known.since_unix_ms);
                self.keep(code, Known { since_unix_ms, mute: None }, out);
            }
        }
        if !is_partial {
            let present: BTreeSet<ConditionCode> = found.iter().map(|finding| finding.code).collect();
            let ended: Vec<ConditionCode> =
                self.known.keys().copied().filter(|code| !present.contains(code)).collect();
            for code in ended {
                self.known.remove(&code);
                out.forget_record(key(code));
            }
        }
    }

    /// Returns a condition for the API. `concerns` returns everything that the finding concerns.
    pub(crate) fn view(
        &self,
        finding: &Finding,
        concerns: impl Fn() -> BTreeSet<String>,
        unix_ms: u64,
    ) -> Condition {
        let known = self.known.get(&finding.code);
        let mute = known.and_then(|known| known.mute.as_ref());
        let mute = mute.filter(|mute| mute.holds(finding, &concerns(), unix_ms));
        Condition {
            code: finding.code,
            severity: finding.severity,
            since_unix_ms: known.map_or(unix_ms, |known| known.since_unix_ms),
            count: finding.count,
            subjects: finding.subjects.iter().take(NAMED).cloned().collect(),
            text: finding.text.clone(),
            next_step: finding.code.definition().next_step.to_owned(),
            details: finding.details.clone(),
            muted: mute.is_some(),
            muted_until_unix_ms: mute.and_then(|mute| mute.until_unix_ms),
        }
    }

    /// Mutes a condition with this state.
    pub(crate) fn mute(
        &mut self,
        finding: &Finding,
        concerns: BTreeSet<String>,
        request: MuteRequest,
        unix_ms: u64,
        out: &mut Out,
    ) {
        let until_unix_ms = request.for_ms.map(|for_ms| unix_ms.saturating_add(for_ms));
        let (severity, count) = (finding.severity, finding.count);
        self.set_mute(finding, Some(Mute { until_unix_ms, severity, count, concerns }), unix_ms, out);
    }

    /// Ends the mute of a condition.
    pub(crate) fn unmute(&mut self, finding: &Finding, unix_ms: u64, out: &mut Out) {
        self.set_mute(finding, None, unix_ms, out);
    }

    fn set_mute(&mut self, finding: &Finding, mute: Option<Mute>, unix_ms: u64, out: &mut Out) {
        let since_unix_ms = self.known.get(&finding.code).map_or(unix_ms, |known| known.since_unix_ms);
        self.keep(finding.code, Known { since_unix_ms, mute }, out);
    }

    fn keep(&mut self, code: ConditionCode, known: Known, out: &mut Out) {
        out.keep_record(key(code), &known);
        self.known.insert(code, known);
    }
}

/// Finds a condition by its code.
///
/// # Errors
/// [`ConditionError`] if there is no such code, or if the cluster does not have the condition.
pub(crate) fn named<'f>(name: &str, found: &'f [Finding]) -> Result<&'f Finding, ConditionError> {
    let code = ConditionCode::named(name).ok_or_else(|| ConditionError::NoSuchCode(name.to_owned()))?;
    found.iter().find(|finding| finding.code == code).ok_or(ConditionError::NotPresent(code))
}

fn key(code: ConditionCode) -> String {
    format!("{PREFIX}{code}")
}
