//! When conditions began, and which are muted. Both are recorded across restarts.
//!
//! [`Answers::findings`](crate::answers::Answers::findings) determines the present conditions. This module
//! only remembers them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use views::{Condition, ConditionCode, MuteRequest, Severity};

use crate::answers::conditions::Finding;
use crate::error::ConditionError;
use crate::out::Out;
use crate::records::recall;

/// How often the present conditions are compared with the remembered ones.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The prefix of the record keys of conditions; the code follows.
const PREFIX: &str = "condition/";

/// The remembered conditions.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    known: BTreeMap<ConditionCode, Known>,
    due: Duration,
}

/// A condition that the cluster has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Known {
    since_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mute: Option<Mute>,
}

/// A mute, and the state of the condition when it was muted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mute {
    until_unix_ms: Option<u64>,
    severity: Severity,
    count: u64,
}

impl Mute {
    /// Whether the mute still holds: it has not expired, and the condition has not become worse.
    fn holds(&self, finding: &Finding, unix_ms: u64) -> bool {
        self.until_unix_ms.is_none_or(|until| unix_ms < until)
            && finding.count <= self.count
            && finding.severity.worse(self.severity) == self.severity
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
    }

    /// Whether it is time for [`note`](Self::note).
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now + LOOK_EVERY;
        }
        is_due
    }

    /// Records which conditions have begun or ended, and which mutes. With `is_partial`, the state of helpers
    /// or the store is not known yet, so conditions that are not found now may still exist.
    pub(crate) fn note(&mut self, found: &[Finding], is_partial: bool, unix_ms: u64, out: &mut Out) {
        for finding in found {
            let before = self.known.get(&finding.code).copied();
            let mut known = before.unwrap_or(Known { since_unix_ms: unix_ms, mute: None });
            known.mute = known.mute.filter(|mute| mute.holds(finding, unix_ms));
            if before.is_none_or(|before| before.mute != known.mute) {
                self.keep(finding.code, known, out);
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

    /// Returns a condition for the API.
    pub(crate) fn view(&self, finding: &Finding, unix_ms: u64) -> Condition {
        let known = self.known.get(&finding.code);
        let mute = known.and_then(|known| known.mute).filter(|mute| mute.holds(finding, unix_ms));
        Condition {
            code: finding.code,
            severity: finding.severity,
            since_unix_ms: known.map_or(unix_ms, |known| known.since_unix_ms),
            count: finding.count,
            subjects: finding.subjects.clone(),
            text: finding.text.clone(),
            next_step: finding.code.definition().next_step.to_owned(),
            details: finding.details.clone(),
            muted: mute.is_some(),
            muted_until_unix_ms: mute.and_then(|mute| mute.until_unix_ms),
        }
    }

    /// Mutes a condition.
    ///
    /// # Errors
    /// [`ConditionError`] if the cluster does not have the condition.
    pub(crate) fn mute(
        &mut self,
        name: &str,
        found: &[Finding],
        request: MuteRequest,
        unix_ms: u64,
        out: &mut Out,
    ) -> Result<Condition, ConditionError> {
        let finding = named(name, found)?;
        let until_unix_ms = request.for_ms.map(|for_ms| unix_ms.saturating_add(for_ms));
        let mute = Mute { until_unix_ms, severity: finding.severity, count: finding.count };
        self.set_mute(finding, Some(mute), unix_ms, out);
        Ok(self.view(finding, unix_ms))
    }

    /// Ends the mute of a condition.
    ///
    /// # Errors
    /// [`ConditionError`] if the cluster does not have the condition, or it is not muted.
    pub(crate) fn unmute(
        &mut self,
        name: &str,
        found: &[Finding],
        unix_ms: u64,
        out: &mut Out,
    ) -> Result<Condition, ConditionError> {
        let finding = named(name, found)?;
        if !self.view(finding, unix_ms).muted {
            return Err(ConditionError::NotMuted(finding.code));
        }
        self.set_mute(finding, None, unix_ms, out);
        Ok(self.view(finding, unix_ms))
    }

    fn set_mute(&mut self, finding: &Finding, mute: Option<Mute>, unix_ms: u64, out: &mut Out) {
        let since_unix_ms = self.known.get(&finding.code).map_or(unix_ms, |known| known.since_unix_ms);
        self.keep(finding.code, Known { since_unix_ms, mute }, out);
    }

    fn keep(&mut self, code: ConditionCode, known: Known, out: &mut Out) {
        self.known.insert(code, known);
        out.keep_record(key(code), &known);
    }
}

fn key(code: ConditionCode) -> String {
    format!("{PREFIX}{code}")
}

fn named<'f>(name: &str, found: &'f [Finding]) -> Result<&'f Finding, ConditionError> {
    let code = ConditionCode::named(name).ok_or_else(|| ConditionError::NoSuchCode(name.to_owned()))?;
    found.iter().find(|finding| finding.code == code).ok_or(ConditionError::NotPresent(code))
}
