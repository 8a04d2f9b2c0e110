//! Helpers that are gone. After a grace period what they held is rebuilt elsewhere: by itself, and once.
//!
//! Since when a helper is gone is kept in the records, so that a coordinator that starts again goes on counting. Nothing
//! begins before all helpers had time to come back, while the catalog is an old one, while the helper is in maintenance,
//! nor while more of those that hold something are gone than are there: then it is the network that is broken, and
//! rebuilding half of everything on the other half would only make it worse.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::RepairAfter;
use repair::NodeId;
use repair::recovery::Target;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answers::Answers;
use crate::answers::safety::count;
use crate::base::Base;
use crate::durations::in_words;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::nodes::Nodes;
use crate::out::Out;
use crate::repairs::Order;
use crate::repairs::Repairs;
use crate::signal::Signal;
use crate::storing::Then;
use views::{GoneNode, HistoryEvent, RecoveryState};

/// Keys of the helpers that are gone begin with this; the name follows.
const PREFIX: &str = "gone/";
/// Nothing begins by itself so soon after a start, unless helpers may be gone for a shorter time anyway.
pub(crate) const START_GRACE: Duration = Duration::from_secs(120);

/// What is known of a helper that is gone.
pub(crate) struct Absence {
    since_unix_ms: u64,
    /// How long it had been gone at `at`.
    before: Duration,
    at: Duration,
    /// Somebody called it off: it does not begin by itself again.
    pub(crate) cancelled: bool,
}

/// The same in the records.
#[derive(Serialize, Deserialize)]
struct Kept {
    since_unix_ms: u64,
    cancelled: bool,
}

impl Absence {
    fn new(since_unix_ms: u64, before: Duration, at: Duration) -> Self {
        Self { since_unix_ms, before, at, cancelled: false }
    }

    pub(crate) fn lasts(&self, now: Duration) -> Duration {
        self.before + now.saturating_sub(self.at)
    }
}

impl Nodes {
    /// Helpers that were gone when an earlier coordinator ended. The clock on the wall is asked once, here; one that is
    /// wrong makes a repair begin too early or too late, and harms nothing.
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
            self.absences.insert(node, absence);
        }
    }

    /// All have had time to come: those who are not here are gone since the start, unless it is known better.
    pub(crate) fn find_absent(&mut self, base: &Base, out: &mut Out) {
        let absent = |node: &NodeId| {
            // Servers that are meant to have no helper are not missed.
            let awaited = !self.peers.contains_key(node) && !self.has_no_helper(base, *node);
            awaited && !self.absences.contains_key(node)
        };
        for node in self.names.keys().copied().filter(absent).collect::<Vec<_>>() {
            let since = base.unix_ms.saturating_sub(base.now.as_millis() as u64);
            self.begin_absence(node, Absence::new(since, base.now, base.now), "it did not come back", out);
        }
    }

    /// A helper has gone.
    pub(crate) fn note_gone(&mut self, base: &Base, node: NodeId, why: &str, out: &mut Out) {
        self.begin_absence(node, Absence::new(base.unix_ms, Duration::ZERO, base.now), why, out);
    }

    fn begin_absence(&mut self, node: NodeId, absence: Absence, why: &str, out: &mut Out) {
        self.absences.insert(node, absence);
        self.keep_absence(node, out);
        out.tell(Signal::Gone { node, why: why.to_owned() });
    }
}

impl Repairs {
    /// Begins the repairs whose time has come.
    pub(crate) fn begin_recoveries(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        if !facts.nodes.settled
            || !facts.may_change()
            || facts.nodes.absences.is_empty()
            || facts.too_many_gone().is_some()
        {
            return;
        }
        for node in facts.nodes.absences.keys().copied().collect::<Vec<_>>() {
            let waits = matches!(
                self.recovery_of(facts, node),
                RecoveryState::Waiting | RecoveryState::Failed | RecoveryState::Maintenance
            );
            let is_due = waits && self.recovery_due(facts, node) == Some(Duration::ZERO);
            if is_due && !self.look_again_for_room(facts, jobs, node).is_none() {
                self.recover(facts, node, out);
            }
        }
    }

    pub(crate) fn recover(&mut self, facts: Facts<'_>, node: NodeId, out: &mut Out) {
        let (Ok(scheme), Ok(id)) = (facts.scheme(None), out.next_number()) else { return };
        let order = Order { by_itself: true, ..Order::new(Target::Node(node), scheme, facts.base.unix_ms) };
        self.recoveries.of(node).repair = Some(id);
        let write = crate::repairs::kept(id, &order);
        out.store(write, Then::Recovers { node, id, order: Box::new(order) });
    }
}

impl Repairs {
    /// A helper that is gone and may be back before its repair begins.
    pub(crate) fn awaited_helper(&self, facts: Facts<'_>) -> Option<NodeId> {
        facts.nodes.absences.keys().copied().find(|&node| match self.recovery_of(facts, node) {
            RecoveryState::Needless => {
                !facts.nodes.retired.contains(&node) && self.is_discarding(facts, node)
            }
            RecoveryState::Running | RecoveryState::Failed | RecoveryState::Store => false,
            _ => true,
        })
    }

    /// In what time the repair of a helper that is gone begins by itself; `None` if it does not.
    fn recovery_due(&self, facts: Facts<'_>, node: NodeId) -> Option<Duration> {
        Some(facts.nodes.due_in(facts.base, node)?.max(self.recoveries.wait(node, facts.base.now)))
    }

    /// Whether a helper may have blocks that it is to remove.
    fn is_discarding(&self, facts: Facts<'_>, node: NodeId) -> bool {
        facts.stripes.picture.files().discard_count(node) > 0
            && self.recovery_due(facts, node).is_none_or(|due| !due.is_zero())
    }

    fn recovery_of(&self, facts: Facts<'_>, node: NodeId) -> RecoveryState {
        let Some(absence) = facts.nodes.absences.get(&node) else { return RecoveryState::Needless };
        let tries = self.recoveries.get(node);
        match () {
            () if self.open_of(node).is_some() || tries.is_some_and(|tries| tries.repair.is_some()) => {
                RecoveryState::Running
            }
            () if facts.base.nature.tells_service => RecoveryState::Store,
            () if facts.stripes.picture.block_count(node) == 0 => RecoveryState::Needless,
            () if facts.nodes.maintenance_left(facts.base, node).is_some() => RecoveryState::Maintenance,
            () if absence.cancelled => RecoveryState::Cancelled,
            () if facts.nodes.repair_after(facts.base) == RepairAfter::Never => RecoveryState::Off,
            () if facts.stripes.is_behind() || facts.too_many_gone().is_some() => RecoveryState::Held,
            () if self.room_of(node).is_none() => RecoveryState::NoRoom,
            () if tries.is_some_and(|tries| tries.attempts.have_failed()) => RecoveryState::Failed,
            () => RecoveryState::Waiting,
        }
    }
}

impl<'a> Answers<'a> {
    /// The helpers that are gone, and what is done about each.
    pub(crate) fn gone_nodes(self) -> Vec<GoneNode> {
        let mut gone: Vec<GoneNode> =
            self.facts.nodes.absences.keys().filter_map(|&node| self.gone_node(node)).collect();
        gone.sort_by(|a, b| views::natural(&a.node, &b.node));
        gone
    }

    pub(crate) fn gone_node(self, node: NodeId) -> Option<GoneNode> {
        let absence = self.facts.nodes.absences.get(&node)?;
        let recovery = self.repairs.recovery_of(self.facts, node);
        let starts =
            matches!(recovery, RecoveryState::Waiting | RecoveryState::Maintenance | RecoveryState::Failed);
        let due = self.repairs.recovery_due(self.facts, node).filter(|_| starts && !absence.cancelled);
        let repair = self.repairs.open_of(node).or(self.repairs.recoveries.repair(node));
        Some(GoneNode {
            node: self.facts.nodes.name(node),
            since_unix_ms: absence.since_unix_ms,
            blocks: self.facts.stripes.picture.block_count(node) as u64,
            recovery,
            starts_in_ms: due.map(|due| due.as_millis() as u64),
            repair,
            text: self.gone_text(&self.facts.nodes.name(node), node, recovery, due, repair),
        })
    }

    fn gone_text(
        self,
        name: &str,
        node: NodeId,
        recovery: RecoveryState,
        due: Option<Duration>,
        repair: Option<u64>,
    ) -> String {
        let due_text = due.map(in_words).unwrap_or_default();
        match recovery {
            RecoveryState::Needless => {
                format!("{name} is down and holds nothing: mend node remove {name} takes it off the list")
            }
            RecoveryState::Store => format!(
                "{name} is down: no repair reads or makes anything on its server until it is started (mend helper {name})"
            ),
            RecoveryState::Waiting => format!(
                "repair of {name} starts in {due_text}; mend node maintenance {name} --for 1h puts it off{}",
                self.stuck_beside(node)
            ),
            RecoveryState::Maintenance => {
                let left = self
                    .facts
                    .nodes
                    .maintenance_left(self.facts.base, node)
                    .map(in_words)
                    .unwrap_or_default();
                let then = due.map(|_| format!("; if it is not back, its repair starts in {due_text}"));
                format!("{name} is in maintenance for {left}{}", then.unwrap_or_default())
            }
            RecoveryState::Running => {
                let repair = repair.map(|repair| format!(" {repair}")).unwrap_or_default();
                format!("repair{repair} rebuilds what {name} held")
            }
            RecoveryState::Off => format!(
                "{name} is down and nothing is repaired by itself, as repair_after is never: start it, or run mend \
                 repair --all"
            ),
            RecoveryState::Cancelled => {
                format!("the repair of {name} was called off: start it, or run mend repair --all")
            }
            RecoveryState::Held => match self.facts.too_many_gone() {
                Some((gone, there)) => format!(
                    "repair of {name} does not start by itself: {gone} helpers are gone and {there} are there, as if the \
                     network was cut; run mend repair --all if they are lost"
                ),
                None => format!("repair of {name} does not start while an old catalog stops everything"),
            },
            RecoveryState::NoRoom => {
                let room = self.repairs.room_of(node);
                format!(
                    "{} of {name} cannot be rebuilt: no helper can take {}; their repair starts when one can",
                    count(room.blocks, "block"),
                    self.stuck_text(node, room.stuck, room)
                )
            }
            RecoveryState::Failed => {
                let last = self.last_failure(&Target::Node(node)).map(|last| format!(" ({last})"));
                format!(
                    "a repair of {name} left blocks lost{}; it is tried again in {due_text}{}",
                    last.unwrap_or_default(),
                    self.stuck_beside(node)
                )
            }
        }
    }

    /// Which blocks of a helper have nowhere to go though others have.
    fn stuck_beside(self, node: NodeId) -> String {
        match self.repairs.room_of(node) {
            room if room.stuck > 0 && room.is_any() => format!(
                "; of {} there, no helper can take {}",
                count(room.blocks, "block"),
                self.stuck_text(node, room.stuck, room)
            ),
            _ => String::new(),
        }
    }
}

impl Nodes {
    /// A helper is there.
    pub(crate) fn note_back(&mut self, base: &Base, node: NodeId, out: &mut Out) {
        let Some(absence) = self.absences.remove(&node) else { return };
        let name = self.name(node);
        out.forget_record(format!("{PREFIX}{name}"));
        // Before all have come, one that is back was not gone for anybody.
        if self.settled {
            let away_ms = absence.lasts(base.now).as_millis() as u64;
            out.note(HistoryEvent::NodeBack { node: name, away_ms });
        }
    }

    pub(crate) fn keep_absence(&mut self, node: NodeId, out: &mut Out) {
        let Some(absence) = self.absences.get(&node) else { return };
        let kept = Kept { since_unix_ms: absence.since_unix_ms, cancelled: absence.cancelled };
        out.keep_record(format!("{PREFIX}{}", self.name(node)), &kept);
    }
}

/// The records whose keys begin so, by what follows in the key; `None` is one that cannot be read.
pub(crate) fn recall<'r, T: serde::de::DeserializeOwned>(
    records: &'r [(String, Value)],
    prefix: &'r str,
) -> impl Iterator<Item = (&'r str, Option<T>)> {
    records.iter().filter_map(move |(key, record)| {
        let rest = key.strip_prefix(prefix)?;
        let read = serde_json::from_value(record.clone());
        if read.is_err() {
            tracing::warn!(key, "a record that cannot be read is dropped");
        }
        Some((rest, read.ok()))
    })
}

/// All helpers that are gone.
pub(crate) type Absences = BTreeMap<NodeId, Absence>;
