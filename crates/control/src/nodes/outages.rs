//! Absent helpers. After a grace period, their blocks are rebuilt elsewhere automatically, once per outage.
//!
//! The start of an outage is kept in the records, and a restarted coordinator continues to count from there.
//! Automatic recovery does not begin in four cases: helpers are still registering after a start, the catalog
//! is outdated, the helper is in maintenance, or more block holders are absent than connected. The last case
//! points to a broken network, and rebuilding half of all blocks would load the network further.

use std::time::Duration;

use repair::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::Base;
use crate::nodes::node::{Node, Outage};
use crate::nodes::registry::Registry;
use crate::out::Out;
use crate::records::recall;
use crate::signal::Signal;
use views::HistoryEvent;

/// The prefix of the record keys of absent helpers; the helper's name follows.
const PREFIX: &str = "gone/";
/// After a start, automatic recovery waits for this time or for the grace period of helpers, whichever is
/// shorter.
pub(crate) const START_GRACE: Duration = Duration::from_secs(120);

/// An outage, as the records store it.
#[derive(Serialize, Deserialize)]
struct Kept {
    since_unix_ms: u64,
    cancelled: bool,
}

impl Registry {
    /// Restores the outages that an earlier coordinator recorded. Their starts are times of the wall clock.
    /// If that clock is wrong, a repair starts too early or too late, which does no harm.
    pub(crate) fn recall_outages(&mut self, base: &Base, records: &[(String, Value)], out: &mut Out) {
        for (name, kept) in recall::<Kept>(records, PREFIX) {
            let (Some(kept), Some(node)) = (kept, self.known(name)) else {
                out.forget_record(format!("{PREFIX}{name}"));
                continue;
            };
            let before = Duration::from_millis(base.unix_ms.saturating_sub(kept.since_unix_ms));
            let outage = Outage {
                cancelled: kept.cancelled,
                ..Outage::new(kept.since_unix_ms, before, Duration::ZERO)
            };
            self.set_outage(node, outage);
        }
    }

    /// Starts the outages of unconnected helpers at the end of the start-up phase. These helpers count as
    /// absent since the coordinator's start, unless an earlier time is recorded.
    pub(crate) fn find_absent(&mut self, base: &Base, out: &mut Out) {
        // Servers that have no helper by configuration are not missing.
        let is_missed = |node: &NodeId| {
            !self.is_up(*node) && !self.has_no_helper(base, *node) && self.outage(*node).is_none()
        };
        for node in self.ids().filter(is_missed).collect::<Vec<_>>() {
            let since = base.unix_ms.saturating_sub(base.now.as_millis() as u64);
            self.begin_outage(
                node,
                Outage::new(since, base.now, base.now),
                "it did not reconnect after the coordinator's start",
                out,
            );
        }
    }

    /// Starts the outage of a helper that has disconnected.
    pub(crate) fn note_gone(&mut self, base: &Base, node: NodeId, why: &str, out: &mut Out) {
        self.begin_outage(node, Outage::new(base.unix_ms, Duration::ZERO, base.now), why, out);
    }

    fn begin_outage(&mut self, node: NodeId, outage: Outage, why: &str, out: &mut Out) {
        self.set_outage(node, outage);
        self.keep_outage(node, out);
        out.tell(Signal::Gone { node, why: why.to_owned() });
    }

    fn set_outage(&mut self, node: NodeId, outage: Outage) {
        if let Some(node) = self.get_mut(node) {
            node.begin_outage(outage);
        }
    }

    /// Records that an operator cancelled the recovery of an absent helper.
    pub(crate) fn cancel_recovery(&mut self, node: NodeId, out: &mut Out) {
        if self.get_mut(node).is_some_and(Node::cancel_recovery) {
            self.keep_outage(node, out);
        }
    }
}

impl Registry {
    /// Removes the record of an outage that has ended, because the helper has reconnected. If `is_told` is
    /// true, the history gets an entry.
    pub(crate) fn note_back(&self, node: NodeId, away: Duration, is_told: bool, out: &mut Out) {
        let name = self.name(node);
        out.forget_record(format!("{PREFIX}{name}"));
        if is_told {
            out.note(HistoryEvent::NodeBack { node: name, away_ms: away.as_millis() as u64 });
        }
    }

    fn keep_outage(&self, node: NodeId, out: &mut Out) {
        let Some(outage) = self.outage(node) else { return };
        let kept = Kept { since_unix_ms: outage.since_unix_ms, cancelled: outage.cancelled };
        out.keep_record(format!("{PREFIX}{}", self.name(node)), &kept);
    }

    /// Removes the record of a node's outage, because the node is being forgotten.
    pub(super) fn forget_outage(&self, node: NodeId, out: &mut Out) {
        if self.outage(node).is_some() {
            out.forget_record(format!("{PREFIX}{}", self.name(node)));
        }
    }
}
