//! Automatic recovery of whole helpers: absent helpers after their grace period, and drains that left blocks.
//!
//! For the conditions under which a recovery starts, see [`outages`](crate::nodes::outages).

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::RepairAfter;
use recovery::Target;
use repair::NodeId;
use views::{RecoveryState, RepairState};

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::attempts::TRY_AGAIN;
use crate::repairs::automatic::Automatic;
use crate::repairs::continuation::{Ordered, OrderedBy};
use crate::repairs::orders::Order;
use crate::repairs::queue::Queue;
use crate::repairs::room::{Room, Rooms};

/// The automatic repairs of absent and drained helpers.
#[derive(Default)]
pub(crate) struct NodeRecovery {
    /// Repairs of absent helpers.
    pub(crate) absent: Automatic,
    /// Repeated drains of marked helpers.
    pub(crate) drains: Automatic,
    rooms: Rooms,
}

impl NodeRecovery {
    /// Restores, for each absent helper, the number of the automatic repair that an earlier coordinator
    /// started.
    pub(crate) fn recall(&mut self, gone: impl Iterator<Item = NodeId>, queue: &Queue) {
        for node in gone {
            self.absent.of(node).repair = queue.automatic_of(node);
        }
    }

    /// Starts the recoveries that are due.
    pub(crate) fn begin(&mut self, facts: Facts<'_>, jobs: &Jobs, queue: &Queue, out: &mut Out) {
        if facts.base.is_dry_run()
            || !facts.nodes.settled
            || !facts.may_change()
            || facts.nodes.registry.gone().next().is_none()
            || facts.too_many_gone().is_some()
        {
            return;
        }
        for node in facts.nodes.registry.gone().collect::<Vec<_>>() {
            let waits = matches!(
                self.state(facts, queue, node),
                RecoveryState::Waiting | RecoveryState::Failed | RecoveryState::Maintenance
            );
            let is_due = waits && self.due_in(facts, node) == Some(Duration::ZERO);
            if is_due && !self.find_room(facts, jobs, node).is_none() {
                self.recover(facts, node, out);
            }
        }
    }

    fn recover(&mut self, facts: Facts<'_>, node: NodeId, out: &mut Out) {
        let (Ok(scheme), Ok(id)) = (facts.scheme(None), out.next_number()) else { return };
        let order = Order { by_itself: true, ..Order::new(Target::Node(node), scheme, facts.base.unix_ms) };
        self.absent.of(node).repair = Some(id);
        let (write, then) = Ordered::new(id, order, OrderedBy::Outage(node)).stored();
        out.store(write, then);
    }

    /// Returns an absent helper that may return before its recovery starts.
    pub(crate) fn awaited_helper(&self, facts: Facts<'_>, queue: &Queue) -> Option<NodeId> {
        facts.nodes.registry.gone().find(|&node| match self.state(facts, queue, node) {
            RecoveryState::Needless => {
                !facts.nodes.registry.is_retired(node) && self.is_discarding(facts, node)
            }
            RecoveryState::Running | RecoveryState::Failed | RecoveryState::Store => false,
            _ => true,
        })
    }

    /// Returns the time until the automatic recovery of an absent helper; `None` if there will be none.
    pub(crate) fn due_in(&self, facts: Facts<'_>, node: NodeId) -> Option<Duration> {
        Some(facts.nodes.due_in(facts.base, node)?.max(self.absent.wait(node, facts.base.now)))
    }

    /// Whether an absent helper still has blocks to remove, and its recovery is not due yet.
    fn is_discarding(&self, facts: Facts<'_>, node: NodeId) -> bool {
        facts.stripes.picture.files().discard_count(node) > 0
            && self.due_in(facts, node).is_none_or(|due| !due.is_zero())
    }

    /// Returns the open repair that recovers an absent helper. The write of the repair's order may still be
    /// in flight.
    pub(crate) fn repair_of(&self, queue: &Queue, node: NodeId) -> Option<u64> {
        queue.recovery_of(node).or(self.absent.repair(node))
    }

    pub(crate) fn state(&self, facts: Facts<'_>, queue: &Queue, node: NodeId) -> RecoveryState {
        let Some(outage) = facts.nodes.registry.outage(node) else { return RecoveryState::Needless };
        let tries = self.absent.get(node);
        let repair = self.repair_of(queue, node);
        match () {
            () if repair.is_some_and(|repair| queue.is_paused(repair)) => RecoveryState::Paused,
            () if repair.is_some() => RecoveryState::Running,
            () if facts.base.store.reports_service() => RecoveryState::Store,
            () if facts.stripes.picture.block_count(node) == 0 => RecoveryState::Needless,
            () if facts.nodes.maintenance.left(facts.base, node).is_some() => RecoveryState::Maintenance,
            () if outage.cancelled => RecoveryState::Cancelled,
            () if facts.nodes.repair_after(facts.base) == RepairAfter::Never || facts.base.is_dry_run() => {
                RecoveryState::Off
            }
            () if facts.stripes.newer.is_behind() || facts.too_many_gone().is_some() => RecoveryState::Held,
            () if self.room_of(node).is_none() => RecoveryState::NoRoom,
            () if tries.is_some_and(|tries| tries.attempts.have_failed()) => RecoveryState::Failed,
            () => RecoveryState::Waiting,
        }
    }

    /// Repeats drains that left blocks behind, if other helpers can accept some of these blocks now. Only
    /// connected helpers are drained; [`begin`](Self::begin) recovers absent ones.
    pub(crate) fn drain_again(&mut self, facts: Facts<'_>, jobs: &Jobs, queue: &Queue, out: &mut Out) {
        if facts.base.is_dry_run() || !facts.nodes.settled || !facts.may_change() {
            return;
        }
        for node in facts.nodes.registry.leaving().collect::<Vec<_>>() {
            let (room, drains) = (self.room_of(node), &self.drains);
            let is_due = drains.repair(node).is_none() && drains.wait(node, facts.base.now).is_zero();
            let may = is_due && facts.nodes.is_helper(node) && room.is_any();
            // The last check for room may date from before the end of the last drain, so room is checked
            // again.
            if may
                && queue.open_for(&Target::Drain(node)).next().is_none()
                && self.find_room(facts, jobs, node).is_any()
            {
                self.drain_rest(facts, node, out);
            }
        }
    }

    fn drain_rest(&mut self, facts: Facts<'_>, node: NodeId, out: &mut Out) {
        let (Ok(scheme), Ok(id)) = (facts.scheme(None), out.next_number()) else { return };
        if !facts.nodes.registry.is_leaving(node) {
            return;
        }
        self.drains.of(node).repair = Some(id);
        let known = facts.nodes.registry.drain_order(node).cloned();
        let order = known.unwrap_or_else(|| Order::new(Target::Drain(node), scheme, facts.base.unix_ms));
        let order = Order { by_itself: true, paused: false, asked_unix_ms: facts.base.unix_ms, ..order };
        let (write, then) = Ordered::new(id, order, OrderedBy::Drain(node)).stored();
        out.store(write, then);
    }

    /// Handles the result of the write of an order; `kept` is whether the write succeeded. Returns whether
    /// the repair is still wanted.
    pub(crate) fn order_kept(&mut self, facts: Facts<'_>, by: &OrderedBy, kept: bool) -> bool {
        let now = facts.base.now;
        match by {
            OrderedBy::Outage(node) => {
                let is_gone = facts.nodes.registry.outage(*node).is_some();
                if is_gone && !kept {
                    let tries = self.absent.of(*node);
                    tries.repair = None;
                    tries.attempts.put_off(now);
                }
                is_gone
            }
            OrderedBy::Drain(node) => {
                let tries = self.drains.of(*node);
                tries.repair = None;
                tries.attempts.put_off(now);
                facts.nodes.registry.is_leaving(*node)
            }
            OrderedBy::Request(_) | OrderedBy::Rebalance(..) | OrderedBy::Damage => true,
        }
    }

    /// Handles the end of a recovery or drain of a helper. Returns whether it was an automatic recovery that
    /// was cancelled.
    pub(crate) fn ended(&mut self, facts: Facts<'_>, node: NodeId, id: u64, state: RepairState) -> bool {
        let was_cancelled = self.outage_repaired(facts, node, id, state);
        self.drained(facts, node);
        was_cancelled
    }

    fn outage_repaired(&mut self, facts: Facts<'_>, node: NodeId, id: u64, state: RepairState) -> bool {
        if facts.nodes.registry.outage(node).is_none() {
            return false;
        }
        let tries = self.absent.of(node);
        if tries.repair.take_if(|repair| *repair == id).is_none() {
            return false;
        }
        let is_cancelled = state == RepairState::Cancelled;
        if !is_cancelled && facts.stripes.picture.block_count(node) > 0 {
            let after = facts.nodes.repair_after(facts.base).time().unwrap_or(TRY_AGAIN);
            tries.attempts.fail(facts.base.now, after);
        }
        is_cancelled
    }

    fn drained(&mut self, facts: Facts<'_>, node: NodeId) {
        if facts.nodes.registry.is_leaving(node) {
            match facts.left_on(node) > 0 {
                true => self.drains.of(node).attempts.fail(facts.base.now, TRY_AGAIN),
                false => self.drains.forget(node),
            }
        }
    }

    /// Checks whether the blocks of absent and drained helpers can be placed, for each helper whose last
    /// check is too old.
    pub(crate) fn look_for_room(&mut self, facts: Facts<'_>, jobs: &Jobs) {
        let (leaving, gone) = (facts.nodes.registry.leaving(), facts.nodes.registry.gone());
        let nodes: BTreeSet<NodeId> = leaving.chain(gone).collect();
        self.rooms.retain(&nodes);
        for node in nodes {
            if self.rooms.is_due(node, facts.base.now) {
                self.find_room(facts, jobs, node);
            }
        }
    }

    /// Checks now whether the blocks of a helper can be placed, and keeps the result.
    fn find_room(&mut self, facts: Facts<'_>, jobs: &Jobs, node: NodeId) -> Room {
        let room = jobs.find_room(facts, node);
        self.rooms.note(node, facts.base.now, room);
        if facts.nodes.registry.is_leaving(node) {
            self.drains.of(node).attempts.note_room(room.is_any());
        }
        if facts.nodes.registry.outage(node).is_some() {
            self.absent.of(node).attempts.note_room(room.is_any());
        }
        room
    }

    /// Returns the result of the latest check whether other helpers have room for the blocks of an absent or
    /// drained helper.
    pub(crate) fn room_of(&self, node: NodeId) -> Room {
        self.rooms.get(node).unwrap_or_default()
    }
}
