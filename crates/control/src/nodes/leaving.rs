//! Helpers that are about to fail or to be taken away: they get no blocks, and are emptied by a drain.
//!
//! The mark outlives the drain and restarts of the coordinator, so that nothing is placed on a node that somebody is about
//! to remove. It goes when the drain is called off, or the mark is taken back. A drain that ends while blocks are left has
//! failed; another one like it begins by itself as soon as a helper can take one of them.

use std::collections::BTreeMap;

use repair::NodeId;
use repair::recovery::Target;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stores::{RecordWrite, Write};

use crate::answers::Answers;
use crate::answers::safety::count;
use crate::base::Base;
use crate::durations::in_words;
use crate::error::list;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::nodes::Nodes;
use crate::out::Out;
use crate::repairs::Order;
use crate::repairs::Repairs;
use crate::repairs::room::Room;
use crate::signal::Signal;
use crate::storing::Then;
use views::LeavingView;

/// Keys of marks in the records begin with this.
const PREFIX: &str = "leaving/";

/// Helpers that are to be emptied.
#[derive(Default)]
pub(crate) struct Leaving(BTreeMap<NodeId, Departure>);

/// A helper that is to be emptied.
#[derive(Default)]
struct Departure {
    /// The order that later drains repeat; none if an earlier version kept the mark.
    order: Option<Order>,
}

/// The same in the records.
#[derive(Serialize, Deserialize)]
struct Kept {
    since_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<Order>,
}

impl Leaving {
    pub(crate) fn contains(&self, node: &NodeId) -> bool {
        self.0.contains_key(node)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.keys().copied()
    }

    /// Marks a node; whether it was not marked, or for another order.
    pub(crate) fn insert(&mut self, node: NodeId, order: &Order) -> bool {
        let departure = self.0.entry(node).or_default();
        let is_new = departure.order.as_ref().is_none_or(|known| known.differs(order));
        departure.order = Some(order.clone());
        is_new
    }

    /// The only helpers that get the blocks of a node; any if there are none.
    pub(crate) fn requestors(&self, node: NodeId) -> &[NodeId] {
        let order = self.0.get(&node).and_then(|departure| departure.order.as_ref());
        order.map_or(&[], |order| &order.requestors)
    }
}

impl Repairs {
    /// Begins drains of what earlier ones left, where some of it can go somewhere now. A helper that is down is for the
    /// repairs of those that are gone.
    pub(crate) fn drain_again(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        if !facts.nodes.settled || !facts.may_change() {
            return;
        }
        for node in facts.nodes.leaving.nodes().collect::<Vec<_>>() {
            let room = self.room_of(node);
            let drains = &self.drains;
            let is_due = drains.repair(node).is_none() && drains.wait(node, facts.base.now).is_zero();
            let may = is_due && facts.nodes.is_helper(node) && room.is_any();
            // The last finding may be older than the end of the last drain.
            if may
                && self.open_repairs_of(&Target::Drain(node)).is_empty()
                && self.look_again_for_room(facts, jobs, node).is_any()
            {
                self.drain_rest(facts, node, out);
            }
        }
    }

    fn drain_rest(&mut self, facts: Facts<'_>, node: NodeId, out: &mut Out) {
        let (Ok(scheme), Ok(id)) = (facts.scheme(None), out.next_number()) else { return };
        let Some(departure) = facts.nodes.leaving.0.get(&node) else { return };
        self.drains.of(node).repair = Some(id);
        let order = departure
            .order
            .clone()
            .unwrap_or_else(|| Order::new(Target::Drain(node), scheme, facts.base.unix_ms));
        let order = Order { by_itself: true, paused: false, asked_unix_ms: facts.base.unix_ms, ..order };
        out.store(crate::repairs::kept(id, &order), Then::Drains { node, id, order: Box::new(order) });
    }
}

impl<'a> Answers<'a> {
    pub(crate) fn leaving_views(self) -> Vec<LeavingView> {
        let view = |node: NodeId| LeavingView {
            node: self.facts.nodes.name(node),
            blocks: self.facts.stripes.picture.block_count(node) as u64,
            safe_to_remove: self.jobs.is_emptied(self.facts, node),
            text: self.leaving_text(node),
        };
        self.facts.nodes.leaving.nodes().map(view).collect()
    }

    fn leaving_text(self, node: NodeId) -> String {
        let name = self.facts.nodes.name(node);
        if self.jobs.is_emptied(self.facts, node) {
            return format!("{name} is empty and safe to remove");
        }
        let blocks = count(self.facts.stripes.picture.block_count(node) as u64, "block");
        format!("{name} is to be emptied: {blocks} on it{}", self.what_keeps(node))
    }

    /// Why blocks are still on a helper that is to be emptied, and when that changes.
    fn what_keeps(self, node: NodeId) -> String {
        let (open, room) = (self.repairs.open_repairs_of(&Target::Drain(node)), self.repairs.room_of(node));
        let stuck = match room.stuck {
            0 => String::new(),
            stuck => format!("; no helper can take {}", self.stuck_text(node, stuck, room)),
        };
        let wait = self.repairs.drains.wait(node, self.facts.base.now);
        let next = match open.first() {
            Some(id) if self.repairs.is_paused(*id) => format!("; mend resume {id} goes on with it"),
            Some(_) => String::new(),
            None if !room.is_any() => "; it goes on by itself when one can".to_owned(),
            None => {
                let last = self.last_failure(&Target::Drain(node)).map(|last| format!("; {last}"));
                format!("{}; it goes on by itself in {}", last.unwrap_or_default(), in_words(wait))
            }
        };
        stuck + &next
    }

    /// `12 of them (full: h5): free space on h5, or …`
    pub(crate) fn stuck_text(self, node: NodeId, stuck: u64, room: Room) -> String {
        let which = if stuck == room.blocks { "any of them".to_owned() } else { format!("{stuck} of them") };
        let only: Vec<String> = self
            .facts
            .nodes
            .leaving
            .requestors(node)
            .iter()
            .map(|&taker| self.facts.nodes.name(taker))
            .collect();
        let only = if only.is_empty() { String::new() } else { format!("only {} may; ", list(&only)) };
        let omitted = self.jobs.omitted(
            self.facts,
            room.stuck_bytes,
            Some(node).filter(|_| self.facts.nodes.is_helper(node)),
        );
        format!("{which} ({only}{}): {}", omitted.why(), omitted.remedy())
    }
}

impl Nodes {
    /// Marks that an earlier coordinator kept.
    pub(crate) fn recall_leaving(&mut self, records: &[(String, Value)]) {
        for (key, record) in records {
            let Some(id) = key.strip_prefix(PREFIX).and_then(|id| id.parse().ok()) else { continue };
            let kept: Option<Kept> = serde_json::from_value(record.clone()).ok();
            let order = kept.and_then(|kept| kept.order);
            self.leaving.0.insert(NodeId(id), Departure { order });
        }
    }

    pub(crate) fn mark_leaving(&mut self, base: &Base, node: NodeId, order: &Order, out: &mut Out) {
        if self.leaving.insert(node, order) {
            tracing::info!(node = %self.name(node), "it is to be emptied, and gets no blocks");
            out.keep_record(key(node), &Kept { since_unix_ms: base.unix_ms, order: Some(order.clone()) });
            out.tell(Signal::Node(node));
        }
    }

    pub(crate) fn unmark_leaving(&mut self, node: NodeId, out: &mut Out) {
        if self.leaving.0.remove(&node).is_some() {
            tracing::info!(node = %self.name(node), "it gets blocks again");
            out.store(Write::Records(RecordWrite::Remove(key(node))), Then::Nothing);
            out.tell(Signal::Node(node));
        }
    }
}

impl Jobs {
    /// Whether the catalog places nothing on a helper that is to be emptied, and nothing is on its way there.
    fn is_emptied(&self, facts: Facts<'_>, node: NodeId) -> bool {
        facts.stripes.picture.block_count(node) == 0 && !self.is_target(node)
    }
}

fn key(node: NodeId) -> String {
    format!("{PREFIX}{:010}", node.0)
}
