//! Absent and drained helpers, and the state of their blocks.

use std::time::Duration;

use recovery::Target;
use repair::NodeId;
use views::{GoneNode, HistoryEvent, LeavingView, RecoveryState, RepairState};

use crate::answers::Answers;
use crate::counts::count;
use crate::durations::in_words;
use crate::error::list;
use crate::facts::{Facts, unheard};
use crate::history::failure_text;
use crate::nodes::sorted;
use crate::repairs::room::Room;

impl<'a> Answers<'a> {
    /// Returns the reason that the last repair of a target failed, if it did.
    fn last_failure(self, target: &Target) -> Option<String> {
        let text = self.facts.target_text(target);
        let ends = self.history.entries.iter().rev().filter_map(|entry| match &entry.what {
            HistoryEvent::RepairEnded { target, state, reasons, .. } if *target == text => {
                Some((*state, reasons))
            }
            _ => None,
        });
        let (state, reasons) = ends.take(1).next()?;
        let first = reasons.first().filter(|_| state == RepairState::Failed)?;
        Some(failure_text(first))
    }

    pub(crate) fn leaving_views(self) -> Vec<LeavingView> {
        let view = |node: NodeId| LeavingView {
            node: self.facts.nodes.name(node),
            blocks: self.facts.stripes.picture.block_count(node) as u64,
            safe_to_remove: self.need_for(node).is_none(),
            text: self.leaving_text(node),
        };
        self.facts.nodes.registry.leaving().map(view).collect()
    }

    /// Returns the drained helpers with blocks that no helper can take. Their drains wait for the operator.
    pub(crate) fn stuck_drains(self) -> Vec<String> {
        let is_stuck = |&node: &NodeId| self.repairs.nodes.room_of(node).stuck > 0;
        let stuck = self.facts.nodes.registry.leaving().filter(is_stuck);
        sorted(stuck.map(|node| self.facts.nodes.name(node)))
    }

    fn leaving_text(self, node: NodeId) -> String {
        let name = self.facts.nodes.name(node);
        match self.need_for(node) {
            None => return format!("{name} is empty and safe to remove"),
            Some(need) if self.jobs.is_emptied(self.facts, node) => {
                let (facts, blocks) = (self.facts, need.blocks(self.facts, node));
                return format!("{name} still has {blocks}: {}", need.next_step(facts, node));
            }
            Some(_) => {}
        }
        let blocks = count(self.facts.stripes.picture.block_count(node) as u64, "block");
        format!("draining {name}: {blocks} left{}", self.what_keeps(node))
    }

    /// Returns the reason that a drained helper still has blocks, and the time of the next attempt.
    fn what_keeps(self, node: NodeId) -> String {
        let open = self.repairs.queue.open_for(&Target::Drain(node)).next();
        let room = self.repairs.nodes.room_of(node);
        let stuck = match room.stuck {
            0 => String::new(),
            stuck => format!("; no helper can take {}", self.stuck_text(node, stuck, room)),
        };
        let wait = self.repairs.nodes.drains.wait(node, self.facts.base.now);
        let next = match open {
            Some(id) if self.repairs.queue.is_paused(id) => {
                format!("; the drain is paused; to continue, run mend resume {id}")
            }
            Some(_) => String::new(),
            None if !room.is_any() => "; the drain continues automatically when a helper has room".to_owned(),
            None => {
                let last = self.last_failure(&Target::Drain(node)).map(|last| format!("; {last}"));
                format!(
                    "{}; the drain continues automatically in {}",
                    last.unwrap_or_default(),
                    in_words(wait)
                )
            }
        };
        stuck + &next
    }

    /// Returns text such as `12 of them (full: h5): free space on h5, or …`.
    fn stuck_text(self, node: NodeId, stuck: u64, room: Room) -> String {
        let which = if stuck == room.blocks { "any of them".to_owned() } else { format!("{stuck} of them") };
        let nodes = &self.facts.nodes;
        let only = nodes.registry.drain_requestors(node);
        let but = Some(node).filter(|_| nodes.is_helper(node));
        let omitted = self.jobs.omitted(self.facts, room.stuck_bytes, but, only);
        if only.is_empty() {
            return format!("{which} ({}): {}", omitted.why(), omitted.remedy());
        }
        let names: Vec<String> = only.iter().map(|&taker| nodes.name(taker)).collect();
        format!(
            "{which} (only {} may take blocks; {}): {}",
            list(&names),
            omitted.why_of_named(),
            omitted.remedy_or(&nodes.drain_to_any(node))
        )
    }

    /// Returns the absent helpers, and the state of their repairs.
    pub(crate) fn gone_nodes(self) -> Vec<GoneNode> {
        let mut gone: Vec<GoneNode> =
            self.facts.nodes.registry.gone().filter_map(|node| self.gone_node(node)).collect();
        gone.sort_by(|a, b| views::natural(&a.node, &b.node));
        gone
    }

    pub(crate) fn gone_node(self, node: NodeId) -> Option<GoneNode> {
        let outage = self.facts.nodes.registry.outage(node)?;
        let recovery = self.repairs.nodes.state(self.facts, &self.repairs.queue, node);
        let starts =
            matches!(recovery, RecoveryState::Waiting | RecoveryState::Maintenance | RecoveryState::Failed);
        let due = self.repairs.nodes.due_in(self.facts, node).filter(|_| starts && !outage.cancelled);
        let repair = self.repairs.nodes.repair_of(&self.repairs.queue, node);
        Some(GoneNode {
            node: self.facts.nodes.name(node),
            since_unix_ms: outage.since_unix_ms,
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
            RecoveryState::Needless => needless_text(self.facts, name, node),
            RecoveryState::Store => format!(
                "{name} is down: repairs cannot read or store blocks on its server; start it (mend helper \
                 {name})"
            ),
            RecoveryState::Waiting => format!(
                "repair of {name} starts in {due_text}; to delay it, run mend node maintenance {name} --for \
                 1h{}",
                self.stuck_beside(node)
            ),
            RecoveryState::Maintenance => self.maintenance_text(name, node, due),
            RecoveryState::Running => {
                let repair = repair.map(|repair| format!(" {repair}")).unwrap_or_default();
                format!("repair{repair} is rebuilding the blocks of {name}")
            }
            RecoveryState::Paused => {
                let repair = repair.unwrap_or_default();
                format!(
                    "repair {repair} of the blocks of {name} is paused; to continue, run mend resume {repair}"
                )
            }
            RecoveryState::Off => format!(
                "{name} is down, and automatic repair is off (repair_after = never, or a coordinator with \
                 --dry-run): start the helper, or run mend repair --all"
            ),
            RecoveryState::Cancelled => {
                format!(
                    "{name} is down, and its repair was cancelled: start the helper, or run mend repair --all"
                )
            }
            RecoveryState::Held => held_text(self.facts, name),
            RecoveryState::NoRoom => self.no_room_text(name, node),
            RecoveryState::Failed => {
                let last = self.last_failure(&Target::Node(node)).map(|last| format!(" ({last})"));
                format!(
                    "the last repair of {name} could not rebuild all blocks{}; the next attempt starts in \
                     {due_text}{}",
                    last.unwrap_or_default(),
                    self.stuck_beside(node)
                )
            }
        }
    }

    fn maintenance_text(self, name: &str, node: NodeId, due: Option<Duration>) -> String {
        let left = self.facts.nodes.maintenance.left(self.facts.base, node).map(in_words);
        let then = due
            .map(|due| format!("; if the helper is still down then, its repair starts in {}", in_words(due)));
        let (left, then) = (left.unwrap_or_default(), then.unwrap_or_default());
        format!("{name} is in maintenance for {left}{then}")
    }

    fn no_room_text(self, name: &str, node: NodeId) -> String {
        let room = self.repairs.nodes.room_of(node);
        format!(
            "{} of {name} cannot be rebuilt: no helper can take {}; their repair starts when a helper has \
             room",
            count(room.blocks, "block"),
            self.stuck_text(node, room.stuck, room)
        )
    }

    /// Returns text about the blocks of a helper that no other helper can accept. The text is empty if there
    /// are no such blocks, or if the other helpers can accept none of the helper's blocks.
    fn stuck_beside(self, node: NodeId) -> String {
        match self.repairs.nodes.room_of(node) {
            room if room.stuck > 0 && room.is_any() => format!(
                "; of its {}, no other helper can take {}",
                count(room.blocks, "block"),
                self.stuck_text(node, room.stuck, room)
            ),
            _ => String::new(),
        }
    }
}

/// Returns text about an absent helper without recorded blocks.
fn needless_text(facts: Facts<'_>, name: &str, node: NodeId) -> String {
    if unheard::is_unheard(facts, node) {
        return format!(
            "{name} has not registered since the catalog was replaced, so the catalog may lack blocks and files \
             of this helper: start it (mend helper {name})"
        );
    }
    if facts.stripes.newer.claims.contains_key(&node) {
        return format!(
            "{name} is down and has blocks that are newer than the catalog: start it (mend helper {name}), and \
             see mend status"
        );
    }
    format!("{name} is down and holds no blocks; to remove it from the list, run mend node remove {name}")
}

/// Returns text about an absent helper whose automatic repair is on hold.
fn held_text(facts: Facts<'_>, name: &str) -> String {
    match facts.too_many_gone() {
        Some((gone, there)) => format!(
            "automatic repair of {name} is on hold: {gone} helpers are down and only {there} are up, which looks \
             like a network failure; if the helpers are lost for good, run mend repair --all"
        ),
        None => format!(
            "repair of {name} is on hold because the catalog is an old copy (see the first line of mend status)"
        ),
    }
}
