//! Helpers that are gone. After a grace period what they held is rebuilt elsewhere: by itself, and once.
//!
//! Since when a helper is gone is kept in the records, so that a coordinator that starts again goes on
//! counting. Nothing begins before all helpers had time to come back, while the catalog is an old one, while
//! the helper is in maintenance, nor while more of those that hold something are gone than are there: then it
//! is the network that is broken, and rebuilding half of everything on the other half would only make it
//! worse.

use std::time::Duration;

use repair::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::Base;
use crate::nodes::node::{Absence, Node};
use crate::nodes::registry::Registry;
use crate::out::Out;
use crate::records::recall;
use crate::signal::Signal;
use views::HistoryEvent;

/// Keys of the helpers that are gone begin with this; the name follows.
const PREFIX: &str = "gone/";
/// Nothing begins by itself so soon after a start, unless helpers may be gone for a shorter time anyway.
pub(crate) const START_GRACE: Duration = Duration::from_secs(120);

/// The same in the records.
#[derive(Serialize, Deserialize)]
struct Kept {
    since_unix_ms: u64,
    cancelled: bool,
}

impl Registry {
    /// Helpers that were gone when an earlier coordinator ended. The clock on the wall is asked once, here;
    /// one that is wrong makes a repair begin too early or too late, and harms nothing.
    pub(crate) fn recall_absences(&mut self, base: &Base, records: &[(String, Value)], out: &mut Out) {
        for (name, kept) in recall::<Kept>(records, PREFIX) {
            let (Some(kept), Some(node)) = (kept, self.known(name)) else {
                out.forget_record(format!("{PREFIX}{name}"));
                continue;
            };
            let before = Duration::from_millis(base.unix_ms.saturating_sub(kept.since_unix_ms));
            let absence = Absence {
                cancelled: kept.cancelled,
                ..Absence::new(kept.since_unix_ms, before, Duration::ZERO)
            };
            self.set_absence(node, absence);
        }
    }

    /// All have had time to come: those who are not here are gone since the start, unless it is known better.
    pub(crate) fn find_absent(&mut self, base: &Base, out: &mut Out) {
        // Servers that are meant to have no helper are not missed.
        let is_missed = |node: &NodeId| {
            !self.is_up(*node) && !self.has_no_helper(base, *node) && self.absence(*node).is_none()
        };
        for node in self.ids().filter(is_missed).collect::<Vec<_>>() {
            let since = base.unix_ms.saturating_sub(base.now.as_millis() as u64);
            self.begin_absence(node, Absence::new(since, base.now, base.now), "it did not come back", out);
        }
    }

    /// A helper has gone.
    pub(crate) fn note_gone(&mut self, base: &Base, node: NodeId, why: &str, out: &mut Out) {
        self.begin_absence(node, Absence::new(base.unix_ms, Duration::ZERO, base.now), why, out);
    }

    fn begin_absence(&mut self, node: NodeId, absence: Absence, why: &str, out: &mut Out) {
        self.set_absence(node, absence);
        self.keep_absence(node, out);
        out.tell(Signal::Gone { node, why: why.to_owned() });
    }

    fn set_absence(&mut self, node: NodeId, absence: Absence) {
        if let Some(node) = self.get_mut(node) {
            node.begin_absence(absence);
        }
    }

    /// An operator called off the repair of a helper that is gone.
    pub(crate) fn cancel_recovery(&mut self, node: NodeId, out: &mut Out) {
        if self.get_mut(node).is_some_and(Node::cancel_recovery) {
            self.keep_absence(node, out);
        }
    }
}

impl Registry {
    /// A helper is back, and its absence has ended. The history tells of it if `is_told`.
    pub(crate) fn note_back(&self, node: NodeId, away: Duration, is_told: bool, out: &mut Out) {
        let name = self.name(node);
        out.forget_record(format!("{PREFIX}{name}"));
        if is_told {
            out.note(HistoryEvent::NodeBack { node: name, away_ms: away.as_millis() as u64 });
        }
    }

    fn keep_absence(&self, node: NodeId, out: &mut Out) {
        let Some(absence) = self.absence(node) else { return };
        let kept = Kept { since_unix_ms: absence.since_unix_ms, cancelled: absence.cancelled };
        out.keep_record(format!("{PREFIX}{}", self.name(node)), &kept);
    }

    /// Drops the record of the absence of a node that is forgotten.
    pub(super) fn forget_absence(&self, node: NodeId, out: &mut Out) {
        if self.absence(node).is_some() {
            out.forget_record(format!("{PREFIX}{}", self.name(node)));
        }
    }
}
