//! The scheduler of many repairs: decides which stripe is repaired next, from which nodes and onto which
//! nodes.
//!
//! A [`Scheduler`] keeps a queue of the stripes to repair and a table of the nodes. The stripe that can lose
//! the fewest further blocks is first in the queue. The table contains how much work each node may have in
//! flight. The scheduler is a state machine like [`Job`](repair::Job): events come in by calls, with the
//! time, and [`poll`](Scheduler::poll) returns the next action. The caller, the *driver*, is the coordinator
//! or the simulator.
//!
//! # Example: one repair
//! Node n3 died. It held a block of `s1` and one of `s2`, both of code rs-4-2. `s2` already lacks another
//! block.
//!
//! 1. The driver reports what it knows: `set_node` for every node, `open(repair, spec)`, `push` for `s1` and
//!    `s2` with the locations of their blocks, and `close`. `s1` can lose one more block and `s2` none, so
//!    `s2` comes first in the queue. Had `s2` lost three blocks, it would be *set aside*.
//! 2. `poll` checks `s2`. The code reads two blocks, so both survivors must have room for one more block on
//!    their uplinks. Each lost block needs a node that may store it and has room. If both conditions hold,
//!    `poll` returns [`Action::Propose`] with the requestors of the blocks, and the helpers in the order of
//!    the repair's [`HelperPolicy`].
//! 3. The driver makes the plan and reports its load: `admit(item, job, &Loads::of(&plan, true))`. The
//!    scheduler reserves the load at every node and trunk. If a [`Resource`] has no room, `admit` returns the
//!    resource, and `s2` waits for it. The driver starts the job and polls again: `s1` may fit as well.
//! 4. The driver reports each published block by `handle_block`, and the end of the job by `handle_done`. The
//!    scheduler releases the reservation. No block of `s2` is lost any more, so its item ends
//!    ([`Action::ItemEnded`]). When the last item has ended, the repair ends ([`Action::RepairEnded`]).
//!
//! Suppose n4 holds another block of `s1` and dies meanwhile. `handle_node(n4, false)` finds the stripes with
//! a block on n4 and moves their items in the queue: `s1` now comes before all stripes that can lose one more
//! block.
//!
//! **Invariants:** a stripe has at most one job. No job starts without budget for it, and none starts if it
//! would take resources that a more urgent item waits for.
//!
//! **Costs:** an event costs O(log n) for each item that it changes. A proposal looks at no more than
//! [`Limits::look_ahead`] items, and at [`Limits::look_past`] items that wait for certain nodes.
//!
//! Out of scope: plans (the planner makes them), faults within a job (the job handles them), names, messages
//! and records (the driver's), and the value of the data (a stripe's urgency depends only on its repair's
//! priority and on its losses).

#![forbid(unsafe_code)]

mod backlog;
mod bound;
mod budget;
mod caps;
mod dealing;
mod draining;
mod item;
mod nodes;
mod placement;
mod policy;
mod preparation;
mod progress;
mod queue;
mod redundancy;
mod scan;
mod shares;
mod stripes;
mod surplus;
mod transitions;
mod view;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use codes::BlockIndex;
use repair::{Heat, JobId, NodeId, Resource, StripeId};
use serde::{Deserialize, Serialize};

pub use bound::{Bottleneck, Bound, Demand, bound};
pub use budget::{Budget, JOBS_AT_ONCE, Loads, NodeLoad, SECONDS_AHEAD};
pub use caps::{Caps, Dealer, Pace, Unused};
pub use item::{
    Action, BlockFacts, CopyState, Counters, End, Failure, ItemId, ItemState, Kind, NewItem, Proposal,
    RepairSpec, Target,
};
pub use nodes::{NodeFacts, TrunkBudget};
pub use placement::Placement;
pub use policy::{HelperPolicy, UnknownPolicy};
pub use preparation::Preparation;
pub use progress::{Estimate, Progress};
pub use queue::Priority;
pub use redundancy::Redundancy;

use backlog::Backlog;
use budget::BLOCKS_AHEAD;
use item::{ItemPhase, Stopping};
use nodes::NodeTable;
use placement::Placer;
use queue::Class;
use scan::{Known, Scan};
use stripes::Stripes;
use surplus::Surplus;
use view::ItemView;

/// A repair: one request, by an operator or by the coordinator itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RepairId(pub u64);

impl fmt::Display for RepairId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Limits of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of items without room after which a walk over the queue stops. Of the items of a repair that wait
    /// for room at certain nodes, the walk looks at this many, and goes on with other items.
    pub look_ahead: usize,
    /// Number of items that wait for room at certain nodes after which a walk over the queue stops.
    pub look_past: usize,
    /// Number of attempts to repair a stripe before its item ends as failed. Between attempts, nodes may come
    /// or go.
    pub attempts: u32,
    /// Maximum number of times that an item repairs its stripe, if the stripe loses further blocks each time.
    pub rounds: u32,
    /// Pause after the first failure. It doubles with every further failure.
    pub back_off: Duration,
    /// Whether a node may get several blocks of a stripe, up to an even share. For clusters with fewer nodes
    /// than blocks.
    pub shares_nodes: bool,
    /// Whether a bad copy is replaced on its node even if another block of the stripe is there. A missing block has no
    /// copy to replace, so it goes to another node.
    pub replaces_in_place: bool,
    /// All budgets are multiplied by the same factor, such that half of the nodes have room for this many of
    /// the largest blocks.
    pub blocks_ahead: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            look_ahead: 64,
            look_past: 512,
            attempts: 3,
            rounds: 16,
            back_off: Duration::from_secs(1),
            shares_nodes: false,
            replaces_in_place: false,
            blocks_ahead: BLOCKS_AHEAD,
        }
    }
}

/// Identifies the reservation of a foreground repair, which does not queue behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservationId(u64);

/// Owner of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// The job of an item.
    Item(ItemId),
    /// A repair in the foreground.
    Foreground(ReservationId),
}

/// Decides which stripe is repaired next, from which nodes and onto which nodes. See the module
/// documentation.
///
/// This type routes events to its parts. No part holds a reference to another: a part receives the others as
/// arguments and returns the consequences.
#[derive(Debug, Default)]
pub struct Scheduler {
    limits: Limits,
    /// Nodes and trunks, with their reservations.
    table: NodeTable,
    /// Stripes with open items: locations of their blocks, and whether a job or the driver works on them.
    stripes: Stripes,
    /// Repairs and their items, indexed by what they wait for.
    backlog: Backlog,
    scan: Scan,
    surplus: Surplus,
    redundancy: Redundancy,
    actions: VecDeque<Action>,
    now: Duration,
}

/// State of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairState {
    /// Number of the repair's items by state.
    pub counters: Counters,
    /// Whether the repair is paused, so that none of its jobs starts.
    pub paused: bool,
    /// Whether the repair was cancelled.
    pub cancelled: bool,
    /// Whether all items of the repair have ended.
    pub ended: bool,
}

impl Scheduler {
    /// Creates a scheduler without nodes and repairs.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    // ---- nodes ----

    /// Sets the facts about a node. They replace the earlier ones.
    pub fn set_node(&mut self, id: NodeId, facts: NodeFacts) {
        let no = self.table.number(id);
        let before = self.table.get(no).facts.alive;
        let alive = facts.alive;
        self.table.set(id, facts);
        if alive != before {
            self.settle_stripes_of(no);
        }
        self.scan.restart();
    }

    /// Sets the user load of a node, in bytes that clients read from it per second. The policy m-PPR avoids
    /// loaded nodes. `None` if the node does not report its use any more; then the heat of its blocks is forgotten as
    /// well.
    pub fn handle_user_load(&mut self, id: NodeId, bytes_per_s: Option<u64>) {
        let no = self.table.number(id);
        self.table.get_mut(no).user_bytes = bytes_per_s.unwrap_or(0);
        for &stripe in self.table.get(no).stripes.iter().filter(|_| bytes_per_s.is_none()) {
            self.stripes.get_mut(stripe).cool(no);
        }
    }

    /// Sets the heat of a node's copy of a block. The policy m-PPR prefers hot blocks and avoids very hot ones.
    /// Only stripes with open items keep it, so the driver reports it again after [`push`](Self::push).
    pub fn handle_heat(&mut self, id: NodeId, stripe: &StripeId, block: BlockIndex, heat: Heat) {
        let no = self.table.number(id);
        if let Some(stripe) = self.stripes.find(stripe) {
            self.stripes.get_mut(stripe).set_heat(block, no, heat);
        }
    }

    /// Records that a node has come up or gone down.
    pub fn handle_node(&mut self, id: NodeId, alive: bool) {
        let no = self.table.number(id);
        if self.table.get(no).facts.alive != alive {
            self.table.get_mut(no).facts.alive = alive;
            self.settle_stripes_of(no);
            self.scan.restart();
        }
    }

    /// Sets the number of blocks and the free space of a node.
    pub fn handle_space(&mut self, id: NodeId, blocks: u64, free_bytes: u64) {
        if self.table.set_space(id, blocks, free_bytes) {
            self.scan.restart();
        }
    }

    /// Sets the budget of a rack's trunk, in both directions.
    pub fn set_trunk(&mut self, rack: &str, trunk: TrunkBudget) {
        self.table.set_trunk(rack, trunk);
        self.scan.restart();
    }

    /// Returns every node with its reservations and its budget.
    pub fn reservations(&self) -> impl Iterator<Item = (NodeId, Budget, Budget)> + '_ {
        self.table.reservations()
    }

    /// Returns the work that repairs have in flight at each node, in ascending order of nodes. A [`Dealer`]
    /// divides shared caps in proportion to this work.
    pub fn under_way(&self) -> impl Iterator<Item = (NodeId, Budget)> + '_ {
        self.table.under_way()
    }

    /// Returns the bytes that repairs other than `own` have reserved at these nodes, for the
    /// [`Topology`](repair::Topology) with which `own` is planned.
    pub fn reserved_beside(&self, nodes: &BTreeSet<NodeId>, own: Option<Mover>) -> Vec<(Resource, u64)> {
        let booking = own.and_then(|own| match own {
            Mover::Item(item) => self.backlog.booking(item.0),
            Mover::Foreground(reservation) => self.table.foreground(reservation),
        });
        self.table.reserved_beside(nodes, booking)
    }

    /// Reserves budget for work that does not queue, such as a degraded read.
    ///
    /// Such work may use up to half of the budget of each node. Until the reservation is released, fewer
    /// recoveries start.
    pub fn reserve(&mut self, loads: &Loads) -> ReservationId {
        let id = self.table.reserve(loads);
        // The reservation may change which resource a waiting item lacks, so check the items again.
        self.scan.restart();
        id
    }

    /// Releases a foreground reservation.
    pub fn release(&mut self, reservation: ReservationId) {
        if self.table.release(reservation) {
            self.scan.restart();
        }
    }

    // ---- stripes ----

    /// Sets the location of a block.
    pub fn handle_block(&mut self, stripe: &StripeId, block: BlockIndex, facts: BlockFacts) {
        let Some(no) = self.stripes.find(stripe) else { return };
        if self.stripes.set_block(no, block, facts, &mut self.table) {
            let waits = |&item: &u32| matches!(self.backlog.item(item).phase, ItemPhase::Queued(_));
            if self.stripes.get(no).items.iter().any(waits) {
                self.scan.restart();
            }
            self.settle_stripe(no);
            // A block that the stripe's own job has delivered does not end this job.
            let node = facts.node.and_then(|id| self.table.find(id));
            let busy = self.stripes.try_get(no).and_then(|stripe| stripe.busy).zip(node);
            if !busy.is_some_and(|(job, node)| self.backlog.stores_at(job, node)) {
                self.stop_needless(no);
            }
            self.drop_surplus_of(no);
        }
    }

    /// Records that the driver itself works on a stripe. No job of the stripe starts until every hold is
    /// released by [`let_go`](Self::let_go).
    pub fn hold(&mut self, stripe: &StripeId) {
        self.stripes.hold(stripe);
        self.stripes.find(stripe).into_iter().for_each(|no| self.settle_stripe(no));
    }

    /// Releases one hold.
    pub fn let_go(&mut self, stripe: &StripeId) {
        if self.stripes.let_go(stripe) {
            self.stripes.find(stripe).into_iter().for_each(|no| self.settle_stripe(no));
        }
    }

    /// Cancels all items of a deleted stripe, and the job that works on it.
    pub fn drop_stripe(&mut self, stripe: &StripeId) {
        self.surplus.forget(stripe);
        let Some(no) = self.stripes.find(stripe) else { return };
        for item in self.stripes.get(no).items.clone() {
            self.call_off(item);
        }
    }

    /// Ends an item, or requests that its job is cancelled first. The item ends then, instead of returning to the queue,
    /// also if the job is being cancelled for another reason.
    fn call_off(&mut self, no: u32) {
        match self.backlog.item(no).phase {
            ItemPhase::Ended(_) => {}
            ItemPhase::Running(job, _) => {
                self.backlog.item_mut(no).stop(Stopping::End);
                self.actions.push_back(Action::CancelJob { job });
            }
            _ => self.move_to(no, ItemPhase::Ended(End::Cancelled)),
        }
    }

    /// Records that a node has a surplus copy of a block. `blocks` are the locations of the stripe's n blocks
    /// by index, without surplus copies.
    ///
    /// [`Action::DropSurplus`] follows as soon as the stripe is whole and no job works on it: at once, or
    /// when a repair of the stripe ends. If the stripe becomes whole while no repair contains it, report the
    /// copy again.
    pub fn handle_surplus(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        blocks: &[BlockFacts],
    ) {
        self.surplus.add(stripe, block, node);
        if let Some(no) = self.stripes.find(stripe) {
            return self.drop_surplus_of(no);
        }
        let is_up = |id| self.table.find(id).is_some_and(|no| self.table.get(no).facts.alive);
        if blocks.iter().all(|facts| facts.copy == CopyState::Good && facts.node.is_some_and(is_up)) {
            let counted: Vec<Option<NodeId>> = blocks.iter().map(|facts| facts.node).collect();
            self.actions.extend(self.surplus.drop_beside(stripe, &counted));
        }
    }

    /// Returns the calculator of how many further blocks a stripe can lose, given its code and its lost
    /// blocks.
    pub fn redundancy(&mut self) -> &mut Redundancy {
        &mut self.redundancy
    }

    // ---- repairs ----

    /// Opens a repair. Its items are added by [`push`](Self::push).
    pub fn open(&mut self, id: RepairId, spec: RepairSpec) {
        self.backlog.open(id, spec);
    }

    /// Adds a stripe to an open repair. Among equally urgent items of one repair, the one added first goes
    /// first.
    ///
    /// # Panics
    /// If there is no such repair.
    pub fn push(&mut self, repair: RepairId, new: NewItem) -> ItemId {
        self.table.hold(new.block_bytes, self.limits.blocks_ahead);
        let (stripe, changed) = self.stripes.add(&new, &mut self.table);
        let no = self.backlog.push(repair, stripe, new);
        // The new item keeps the stripe if the others end now.
        self.stripes.get_mut(stripe).items.push(no);
        match changed {
            true => self.settle_stripe(stripe),
            false => self.settle(no),
        }
        ItemId(no)
    }

    /// Marks a repair as complete: no further items follow, and it ends with the last of its items.
    pub fn close(&mut self, id: RepairId) {
        self.backlog.close(id);
    }

    /// Cancels a repair. Waiting items end now, and [`Action::CancelJob`] follows for each running job.
    pub fn cancel(&mut self, id: RepairId) {
        for no in self.backlog.cancel(id) {
            self.call_off(no);
        }
    }

    /// Pauses or resumes a repair. While it is paused, none of its items starts; running jobs continue.
    pub fn set_paused(&mut self, id: RepairId, paused: bool) {
        if self.backlog.set_paused(id, paused) {
            self.scan.restart();
        }
    }

    /// Drops a repair that has ended.
    pub fn forget(&mut self, id: RepairId) {
        self.backlog.forget(id);
    }

    /// Returns the state of a repair. `None` if it is unknown.
    pub fn repair(&self, id: RepairId) -> Option<RepairState> {
        self.backlog.state(id)
    }

    /// Returns the resource that limits a repair now. `None` if the repair is paused or has no queued item.
    ///
    /// Most refused items were refused because this resource had no room for their plans. If no item was
    /// refused, this is the resource with the largest reserved share.
    pub fn limited_by(&self, id: RepairId) -> Option<Resource> {
        self.backlog.limited_by(id, &self.table)
    }

    /// Returns the running items of a repair and their jobs.
    pub fn running(&self, id: RepairId) -> impl Iterator<Item = (ItemId, JobId)> + '_ {
        self.backlog.running(id)
    }

    /// Returns the state of an item.
    pub fn state(&self, item: ItemId) -> ItemState {
        self.backlog.item(item.0).state()
    }

    /// Returns how many further blocks the item's stripe can lose in the worst case. `None` if the stripe
    /// cannot be read or the item has ended.
    pub fn survives(&mut self, item: ItemId) -> Option<u32> {
        if let ItemPhase::Ended(_) = self.backlog.item(item.0).phase {
            return None;
        }
        let of = ItemView::of(item.0, &self.backlog, &self.stripes, &self.table);
        self.redundancy.survives(&*of.stripe.code, &of.lost())
    }

    // ---- proposals ----

    /// Chooses other requestors for a proposal, without the `barred` nodes.
    pub fn place(&mut self, item: ItemId, barred: &[NodeId]) -> Placement {
        let of = ItemView::of(item.0, &self.backlog, &self.stripes, &self.table);
        let class = of.class(&mut self.redundancy);
        let class = class.unwrap_or(Class { priority: Priority::Background, survives: 0 });
        Placer::of(&of, &self.limits, class, &self.scan.claims, barred).place(&of.wanted())
    }

    /// Reserves the load of a proposal's plan. On success the driver starts the job.
    ///
    /// # Errors
    /// The [`Resource`] without room for the load. The item waits for it, and the driver drops the plan.
    ///
    /// # Panics
    /// If the item is not proposed.
    pub fn admit(&mut self, item: ItemId, job: JobId, loads: &Loads) -> Result<(), Resource> {
        self.backlog.assert_proposed(item);
        if let Some(lack) = self.table.lacks(loads) {
            let resource = lack.resource.clone();
            self.backlog.item_mut(item.0).lack = Some(lack);
            self.return_to_queue(item.0);
            return Err(resource);
        }
        let booking = self.table.book(loads);
        self.table.count(loads);
        let brought = draining::brought(self.backlog.item(item.0).kind, loads);
        brought.into_iter().for_each(|brought| self.backlog.note_brought(item.0, brought));
        preparation::forget(&mut self.backlog, item.0, &mut self.table);
        let of = self.backlog.item_mut(item.0);
        (of.lack, of.not_before) = (None, None);
        self.move_to(item.0, ItemPhase::Running(job, booking));
        self.scan.go_on();
        Ok(())
    }

    /// Returns the [`Preparation`] of an item's nodes.
    pub fn preparation(&mut self, item: ItemId) -> Preparation<'_> {
        let Self { backlog, stripes, table, scan, .. } = self;
        Preparation { backlog, stripes, table, scan, no: item.0 }
    }

    /// Puts a proposed item that cannot start now back into the queue. It waits there until the facts change, or until
    /// [`try_again`](Self::try_again).
    ///
    /// # Panics
    /// If the item is not proposed.
    pub fn put_back(&mut self, item: ItemId) {
        self.backlog.assert_proposed(item);
        self.backlog.item_mut(item.0).sat_out = Some(self.scan.news());
        self.return_to_queue(item.0);
    }

    /// Makes a waiting item wait until `until`, because the driver knows that the item cannot start before. Other items
    /// of its stripe may start meanwhile. If the item's job is being cancelled, the item waits afterwards. An item that has
    /// ended, or whose repair is forgotten, stays as it is.
    pub fn put_off(&mut self, item: ItemId, until: Duration) {
        if self.backlog.is_open(item.0) {
            self.backlog.item_mut(item.0).not_before = Some(until);
            self.settle(item.0);
        }
    }

    /// Whether an item waits, and nothing is known that would prevent its start: its last plan did not lack room, its
    /// last attempt to start was not [put off](Self::put_off), and its last job did not fail.
    pub fn may_start(&self, item: ItemId) -> bool {
        let of = self.backlog.item(item.0);
        of.state() == ItemState::Waiting && of.lack.is_none() && of.not_before.is_none()
    }

    /// Tries all waiting items again. The driver calls this when the reason for which it put items back has ended and
    /// the scheduler was told no new facts.
    pub fn try_again(&mut self) {
        self.scan.restart();
    }

    /// Puts an item back into the queue without counting that as news for other waiting items.
    fn return_to_queue(&mut self, no: u32) {
        let news = self.scan.news();
        self.requeue(no);
        self.scan.forget_since(news);
        self.scan.go_on();
    }

    /// Ends the item of a proposal that will not start, or another item that waits.
    ///
    /// # Panics
    /// If the item is running or has ended.
    pub fn decline(&mut self, item: ItemId, end: End) {
        let of = self.backlog.item(item.0);
        assert!(of.waits() || matches!(of.phase, ItemPhase::Proposed), "{item} has started or ended");
        self.move_to(item.0, ItemPhase::Ended(end));
        self.scan.go_on();
    }

    fn propose(&mut self) -> Option<Action> {
        let proposal = self.scan.next(Known {
            limits: &self.limits,
            backlog: &self.backlog,
            stripes: &self.stripes,
            table: &self.table,
            redundancy: &mut self.redundancy,
        })?;
        // A proposal must not count as news (a reason to try items again that were put back). Otherwise two
        // such items would trigger each other for ever.
        let news = self.scan.news();
        self.move_to(proposal.item.0, ItemPhase::Proposed);
        self.scan.forget_since(news);
        Some(Action::Propose(proposal))
    }

    // ---- jobs ----

    /// Replaces the reservation of an item's job after the job made another plan. The job continues even if
    /// the new load exceeds budgets.
    pub fn handle_replanned(&mut self, item: ItemId, loads: &Loads) {
        if let Some(booking) = self.backlog.booking_mut(item.0) {
            self.table.give_back(booking);
            self.table.book_again(booking, loads);
            self.scan.restart();
        }
    }

    /// Suspends an item's job until [`wake`](Self::wake), because its repair is paused.
    ///
    /// The job gives back its reservation except for the space of the blocks that it will store. A suspended
    /// job has no deadline.
    pub fn rest(&mut self, item: ItemId, loads: &Loads) {
        self.backlog.forget_due(item.0);
        self.handle_replanned(item, &loads.at_rest());
    }

    /// Reserves the load of a suspended job and returns whether it may continue. Without room it stays
    /// suspended.
    pub fn wake(&mut self, item: ItemId, loads: &Loads) -> bool {
        let Some(booking) = self.backlog.booking_mut(item.0) else { return true };
        self.table.give_back(booking);
        let is_room = self.table.lacks(loads).is_none();
        match is_room {
            true => self.table.book_again(booking, loads),
            false => self.table.book_again(booking, &loads.at_rest()),
        }
        is_room
    }

    /// Whether a suspended job has to give way to a repair that is not paused and waits for the same stripe.
    ///
    /// If so, the driver cancels the job, and its item returns to the queue.
    pub fn make_way(&mut self, item: ItemId) -> bool {
        let mut others = self.view(item.0).stripe.items.iter().filter(|&&no| no != item.0);
        let waits = others.any(|&no| !self.backlog.repair_of(no).paused);
        if waits {
            self.backlog.item_mut(item.0).stop(Stopping::Requeue);
        }
        waits
    }

    /// Lets an item return to the queue when its job, which the driver cancels, has ended.
    pub fn recall(&mut self, item: ItemId) {
        if self.backlog.booking(item.0).is_some() {
            self.backlog.item_mut(item.0).stop(Stopping::Requeue);
        }
    }

    /// Sets the deadline of an item's job. The driver calls this after [`admit`](Self::admit), because only
    /// the driver knows the predicted time of the plan.
    ///
    /// A late job is cancelled and restarted on other nodes (m-PPR), unless it has delivered a block. The
    /// scheduler does not know which node was slow, so the next proposal lists all nodes of the job last among
    /// its helpers. After [`Limits::attempts`] late jobs, the next job has no deadline.
    pub fn set_due(&mut self, item: ItemId, due: Duration) {
        self.backlog.set_due(item.0, due);
    }

    /// Records that an item's job delivers a block to a node, possibly another node than proposed. From now on, the
    /// scheduler cancels the job neither as late nor because nothing is lost any more: the job still has to read
    /// the block back.
    ///
    /// Call it before [`handle_block`](Self::handle_block). Otherwise that call would conclude that the block
    /// came back by itself, and cancel the job.
    pub fn handle_delivery(&mut self, item: ItemId, node: NodeId) {
        let Some(node) = self.table.find(node) else { return };
        if let Some(booking) = self.backlog.booking_mut(item.0) {
            booking.note_delivery(node);
        }
    }

    /// Records that an item's job succeeded. The new locations of blocks must have been reported before.
    pub fn handle_done(&mut self, item: ItemId, now: Duration) {
        self.now = self.now.max(now);
        let of = self.backlog.item_mut(item.0);
        of.rounds += 1;
        of.failures = 0;
        let (rounds, stopping) = (of.rounds, std::mem::replace(&mut of.stopping, Stopping::No));
        self.requeue(item.0);
        let end = match stopping {
            Stopping::End => End::Cancelled,
            _ if rounds >= self.limits.rounds => End::LostAgain,
            _ => return,
        };
        if self.backlog.is_open(item.0) {
            self.move_to(item.0, ItemPhase::Ended(end));
        }
    }

    /// Records that an item's job failed. A job that was being cancelled counts as cancelled.
    pub fn handle_failed(&mut self, item: ItemId, failure: Failure, now: Duration) {
        self.now = self.now.max(now);
        if self.backlog.item(item.0).stopping != Stopping::No {
            return self.handle_cancelled(item);
        }
        let limits = (self.limits.attempts, self.limits.back_off);
        let of = self.backlog.item_mut(item.0);
        of.failures += 1;
        let failures = of.failures;
        if failure == Failure::Permanent || failures >= limits.0 {
            return self.move_to(item.0, ItemPhase::Ended(End::Failed));
        }
        of.not_before = Some(now + limits.1 * 2u32.saturating_pow(failures - 1));
        self.requeue(item.0);
    }

    /// Records that an item's job was cancelled. The item returns to the queue if that was the purpose, and ends
    /// otherwise.
    pub fn handle_cancelled(&mut self, item: ItemId) {
        let of = self.backlog.item_mut(item.0);
        if of.stopping == Stopping::Requeue {
            of.stopping = Stopping::No;
            return self.requeue(item.0);
        }
        if self.backlog.is_open(item.0) {
            self.move_to(item.0, ItemPhase::Ended(End::Cancelled));
        }
    }

    // ---- time ----

    /// Returns the next action, if there is one.
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        self.now = self.now.max(now);
        while let Some(no) = self.backlog.next_timer(self.now) {
            self.settle(no);
        }
        while let Some(job) = self.backlog.next_late(self.now, self.limits.attempts) {
            self.actions.push_back(Action::CancelJob { job });
        }
        while let Some((id, aside)) = self.backlog.next_finished() {
            for no in aside {
                let lost = self.view(no).lost().len() as u16;
                self.move_to(no, ItemPhase::Ended(End::Unreadable { lost }));
            }
            self.backlog.end(id);
            self.actions.push_back(Action::RepairEnded { repair: id });
        }
        self.actions.pop_front().or_else(|| self.propose())
    }

    /// Returns the time at which [`poll`](Self::poll) may have an action even if no event comes before.
    pub fn wakes_at(&self) -> Option<Duration> {
        self.backlog.wakes_at()
    }
}
