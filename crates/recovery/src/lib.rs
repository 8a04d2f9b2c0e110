//! Many repairs at once: what starts next, where and how.
//!
//! A [`Scheduler`] has the stripes that are to be repaired in a queue, the one that can lose the fewest further
//! blocks first, and a table of nodes with what each may have under way. It is a state machine like [`Job`](repair::Job):
//! everything that happens comes in by a call, time included, and [`poll`](Scheduler::poll) says what to do. The
//! coordinator and the simulator drive the same one.
//!
//! # One repair, followed through
//! Node n3 died, and it held a block of `s1` and `s2`, both of rs-4-2. `s2` lacks another block already.
//!
//! 1. The driver tells what it knows: `set_node` for every node, `open(repair, spec)`, then `push` for `s1` and
//!    `s2` with the places of their blocks, and `close`. The scheduler sees that `s1` can lose one block more and `s2`
//!    none, so that `s2` is first in the queue. Had `s2` lost three, it would be *set aside*.
//! 2. `poll` looks at `s2`: do as many of its survivors have room for one more block on their uplinks as the code
//!    reads (2 of 2), and is there a node that may take each lost block and has room for it? Then it answers
//!    [`Action::Propose`]: what goes where, and the helpers in the order of the repair's [`HelperPolicy`].
//! 3. The driver makes the plan and says what it moves: `admit(item, job, &Loads::of(&plan, true))`. The scheduler
//!    reserves it at every node and trunk (or names the [`Resource`] that has no room, and `s2` waits for that one).
//!    The driver starts the job and polls again: `s1` may have room beside it.
//! 4. Blocks that the job publishes come in by `handle_block`, its end by `handle_done`. What was reserved is given
//!    back, nothing of `s2` is lost any more, so its item ends ([`Action::ItemEnded`]); with the last one the
//!    repair does ([`Action::RepairEnded`]).
//!
//! If n4, with another block of `s1`, dies meanwhile, `handle_node(n4, false)` finds the stripes that n4 has a block of
//! and moves their items in the queue: `s1` now goes before all that can lose one more.
//!
//! **Always true:** a stripe has at most one job; nothing starts for which there is no budget; nothing starts
//! that would take what a more urgent item waits for. **Costs:** an event costs O(log n) for each item that it changes,
//! and a proposal looks at no more items than [`Limits::look_ahead`].
//!
//! Deliberately absent: plans (the planner's), what is wrong in a job (the job's), names, texts and records (the
//! driver's), and any knowledge of what a block is worth beyond its stripe.

#![forbid(unsafe_code)]

mod backlog;
mod bound;
mod budget;
mod cache;
mod caps;
mod dealing;
mod draining;
mod item;
mod nodes;
mod placement;
mod policy;
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
use repair::{JobId, NodeId, Resource, StripeId};
use serde::{Deserialize, Serialize};

pub use bound::{Bottleneck, Bound, Demand, bound};
pub use budget::{Budget, JOBS_AT_ONCE, Loads, NodeLoad, SECONDS_AHEAD};
pub use cache::{BlockCache, CacheDelta};
pub use caps::{Caps, Dealer, Pace, Unused};
pub use item::{
    Action, BlockFacts, Counters, End, Failure, ItemId, ItemState, Kind, NewItem, Proposal, RepairSpec,
    Target,
};
pub use nodes::{NodeFacts, TrunkBudget};
pub use placement::Placement;
pub use policy::{HelperPolicy, UnknownPolicy};
pub use progress::{Estimate, Progress};
pub use queue::Priority;
pub use redundancy::Redundancy;

use backlog::Backlog;
use budget::BLOCKS_AHEAD;
use item::ItemPhase;
use nodes::NodeTable;
use placement::Placer;
use queue::Class;
use scan::{Known, Scan};
use stripes::Stripes;
use surplus::Surplus;
use view::ItemView;

/// A repair: something that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RepairId(pub u64);

impl fmt::Display for RepairId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How far the scheduler goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Items without room that are passed over before it is taken that nothing more can start.
    pub look_ahead: usize,
    /// A stripe whose repair fails is tried so often, as nodes may have come or gone.
    pub attempts: u32,
    /// A stripe of which further blocks are found lost during its repair is repaired so often.
    pub rounds: u32,
    /// The pause after a first failure; it doubles with every further one.
    pub back_off: Duration,
    /// Whether a node may get several blocks of a stripe, up to an even share, where there are fewer nodes than blocks.
    pub shares_nodes: bool,
    /// Where blocks are large, budgets are stretched, all alike, until half of the nodes have room for so many of the largest.
    pub blocks_ahead: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            look_ahead: 64,
            attempts: 3,
            rounds: 16,
            back_off: Duration::from_secs(1),
            shares_nodes: false,
            blocks_ahead: BLOCKS_AHEAD,
        }
    }
}

/// What is reserved for a repair in the foreground; it passes all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservationId(u64);

/// Whose reservation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// The job of an item.
    Item(ItemId),
    /// A repair in the foreground.
    Foreground(ReservationId),
}

/// See the module's documentation.
///
/// Routes events to its parts. No part holds a reference to another: a part gets the others that it looks at as arguments, and
/// returns what follows.
#[derive(Debug, Default)]
pub struct Scheduler {
    limits: Limits,
    /// Nodes and trunks, with what is reserved of each.
    table: NodeTable,
    /// Stripes with open items: where their blocks are, and who works on them.
    stripes: Stripes,
    /// Repairs and their items, by what they wait for.
    backlog: Backlog,
    scan: Scan,
    surplus: Surplus,
    redundancy: Redundancy,
    actions: VecDeque<Action>,
    now: Duration,
}

/// A repair as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairState {
    /// Its items.
    pub counters: Counters,
    /// Whether nothing of it starts for now.
    pub paused: bool,
    /// Whether it was called off.
    pub cancelled: bool,
    /// Whether all its items have ended.
    pub ended: bool,
}

impl Scheduler {
    /// A scheduler without nodes and repairs.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    // ---- nodes ----

    /// Says what is known of a node, in place of what was.
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

    /// What users move at a node now, in bytes, as its heartbeat says; m-PPR goes by it.
    pub fn handle_user_load(&mut self, id: NodeId, bytes: u64) {
        let no = self.table.number(id);
        self.table.get_mut(no).user_bytes = bytes;
    }

    /// A node has a block in memory now, or has it no more; m-PPR goes by it.
    pub fn handle_cached(&mut self, id: NodeId, stripe: &StripeId, block: BlockIndex, cached: bool) {
        let no = self.table.number(id);
        let blocks = &mut self.table.get_mut(no).cached;
        match cached {
            true => blocks.insert((stripe.clone(), block)),
            false => blocks.remove(&(stripe.clone(), block)),
        };
    }

    /// A node has come or gone.
    pub fn handle_node(&mut self, id: NodeId, alive: bool) {
        let no = self.table.number(id);
        if self.table.get(no).facts.alive != alive {
            self.table.get_mut(no).facts.alive = alive;
            self.settle_stripes_of(no);
            self.scan.restart();
        }
    }

    /// Says what a node holds and has room for.
    pub fn handle_space(&mut self, id: NodeId, blocks: u64, free_bytes: u64) {
        if self.table.set_space(id, blocks, free_bytes) {
            self.scan.restart();
        }
    }

    /// Bounds what repairs have under way out of and into a rack.
    pub fn set_trunk(&mut self, rack: &str, trunk: TrunkBudget) {
        self.table.set_trunk(rack, trunk);
        self.scan.restart();
    }

    /// Every node with what is reserved of its budget, and the budget.
    pub fn reservations(&self) -> impl Iterator<Item = (NodeId, Budget, Budget)> + '_ {
        self.table.reservations()
    }

    /// What repairs have under way at each node, ascending, by which a [`Dealer`] shares out what is common.
    pub fn under_way(&self) -> impl Iterator<Item = (NodeId, Budget)> + '_ {
        self.table.under_way()
    }

    /// What all repairs have reserved, for a [`Topology`](repair::Topology) to plan with.
    pub fn reserved(&self) -> impl Iterator<Item = (Resource, u64)> + '_ {
        self.table.reserved()
    }

    /// What others than `own` have reserved at these nodes, for a [`Topology`](repair::Topology) that `own` is planned with.
    pub fn reserved_beside(&self, nodes: &BTreeSet<NodeId>, own: Option<Mover>) -> Vec<(Resource, u64)> {
        let booking = own.and_then(|own| match own {
            Mover::Item(item) => self.backlog.booking(item.0),
            Mover::Foreground(reservation) => self.table.foreground(reservation),
        });
        self.table.reserved_beside(nodes, booking)
    }

    /// Reserves for something that does not wait, such as a degraded read: it takes from what recoveries may have, up
    /// to half of it, and fewer start until it is given back.
    pub fn reserve(&mut self, loads: &Loads) -> ReservationId {
        let id = self.table.reserve(loads);
        // What keeps others from starting may now wait for something else.
        self.scan.restart();
        id
    }

    /// Gives back what was reserved in the foreground.
    pub fn release(&mut self, reservation: ReservationId) {
        if self.table.release(reservation) {
            self.scan.restart();
        }
    }

    // ---- stripes ----

    /// Says where a block is now.
    pub fn handle_block(&mut self, stripe: &StripeId, block: BlockIndex, facts: BlockFacts) {
        let Some(no) = self.stripes.find(stripe) else { return };
        if self.stripes.set_block(no, block, facts, &mut self.table) {
            let waits = |&item: &u32| matches!(self.backlog.item(item).phase, ItemPhase::Queued(_));
            if self.stripes.get(no).items.iter().any(waits) {
                self.scan.restart();
            }
            self.settle_stripe(no);
            if self.stripes.try_get(no).is_some() && !self.is_delivered(no, facts) {
                self.stop_needless(no);
            }
            self.drop_surplus_of(no);
        }
    }

    /// Somebody else works on a stripe: nothing of it starts until as many have let it go.
    pub fn hold(&mut self, stripe: &StripeId) {
        self.stripes.hold(stripe);
        self.stripes.find(stripe).into_iter().for_each(|no| self.settle_stripe(no));
    }

    /// Ends a hold.
    pub fn let_go(&mut self, stripe: &StripeId) {
        if self.stripes.let_go(stripe) {
            self.stripes.find(stripe).into_iter().for_each(|no| self.settle_stripe(no));
        }
    }

    /// A stripe is gone: what waits for it is called off, and so is what works on it.
    pub fn drop_stripe(&mut self, stripe: &StripeId) {
        let Some(no) = self.stripes.find(stripe) else { return };
        for item in self.stripes.get(no).items.clone() {
            self.call_off(item);
        }
    }

    /// Ends an item, or has its job cancelled first.
    fn call_off(&mut self, no: u32) {
        match self.backlog.item(no).phase {
            ItemPhase::Ended(_) => {}
            ItemPhase::Running(job, _) => self.actions.push_back(Action::CancelJob { job }),
            _ => self.move_to(no, ItemPhase::Ended(End::Cancelled)),
        }
    }

    /// A node has a copy of a block that belongs elsewhere. `blocks` are the counted ones, all n by index.
    ///
    /// [`Action::DropSurplus`] follows as soon as the stripe is whole and nobody works on it: at once, or when a
    /// repair of the stripe ends. For stripes that are repaired later, say it again once they are.
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
        if blocks.iter().all(|facts| facts.good && facts.node.is_some_and(is_up)) {
            let counted: Vec<Option<NodeId>> = blocks.iter().map(|facts| facts.node).collect();
            self.actions.extend(self.surplus.drop_beside(stripe, &counted));
        }
    }

    /// Copies that wait for their stripes to be whole.
    pub fn surplus(&self) -> impl Iterator<Item = (&StripeId, BlockIndex, NodeId)> {
        self.surplus.iter()
    }

    /// How many further blocks a stripe can lose, by its code and what it lacks.
    pub fn redundancy(&mut self) -> &mut Redundancy {
        &mut self.redundancy
    }

    // ---- repairs ----

    /// Begins a repair, whose items follow.
    pub fn open(&mut self, id: RepairId, spec: RepairSpec) {
        self.backlog.open(id, spec);
    }

    /// Adds a stripe to a repair that is open. Of equally urgent ones, those added earlier go first.
    ///
    /// # Panics
    /// If there is no such repair.
    pub fn push(&mut self, repair: RepairId, new: NewItem) -> ItemId {
        self.table.hold(new.block_bytes, self.limits.blocks_ahead);
        let (stripe, changed) = self.stripes.add(&new, &mut self.table);
        if changed {
            self.settle_stripe(stripe);
        }
        let no = self.backlog.push(repair, stripe, new);
        self.stripes.get_mut(stripe).items.push(no);
        self.settle(no);
        ItemId(no)
    }

    /// All items of a repair are named: it ends with the last of them.
    pub fn close(&mut self, id: RepairId) {
        self.backlog.close(id);
    }

    /// Calls a repair off: what waits ends now, what runs is to be cancelled.
    pub fn cancel(&mut self, id: RepairId) {
        for no in self.backlog.cancel(id) {
            self.call_off(no);
        }
    }

    /// Nothing of a repair starts until it is resumed; what runs goes on.
    pub fn pause(&mut self, id: RepairId) {
        if self.backlog.set_paused(id, true) {
            self.scan.restart();
        }
    }

    /// A repair that was paused goes on.
    pub fn resume(&mut self, id: RepairId) {
        if self.backlog.set_paused(id, false) {
            self.scan.restart();
        }
    }

    /// Drops a repair that has ended.
    pub fn forget(&mut self, id: RepairId) {
        self.backlog.forget(id);
    }

    /// What a repair is doing.
    pub fn repair(&self, id: RepairId) -> Option<RepairState> {
        self.backlog.state(id)
    }

    /// What limits a repair now: the resource that most of its waiting items were refused; else, if anything waits,
    /// that of which most is reserved. `None` if nothing waits for room.
    pub fn limited_by(&self, id: RepairId) -> Option<Resource> {
        self.backlog.limited_by(id, &self.table)
    }

    /// The items of a repair on which a job works, and the jobs.
    pub fn running(&self, id: RepairId) -> impl Iterator<Item = (ItemId, JobId)> + '_ {
        self.backlog.running(id)
    }

    /// What an item is doing.
    pub fn state(&self, item: ItemId) -> ItemState {
        self.backlog.item(item.0).state()
    }

    /// What an item waits for that its last plan did not get.
    pub fn lack(&self, item: ItemId) -> Option<&Resource> {
        self.backlog.item(item.0).lack.as_ref().map(|lack| &lack.resource)
    }

    /// How many further blocks the stripe of an item can surely lose; `None` if it cannot be read, or the item has
    /// ended.
    pub fn survives(&mut self, item: ItemId) -> Option<u32> {
        if let ItemPhase::Ended(_) = self.backlog.item(item.0).phase {
            return None;
        }
        let of = ItemView::of(item.0, &self.backlog, &self.stripes, &self.table);
        self.redundancy.survives(&*of.stripe.code, &of.lost())
    }

    // ---- proposals ----

    /// Other requestors for what is proposed, when some of the nodes cannot take it.
    pub fn place(&mut self, item: ItemId, barred: &[NodeId]) -> Placement {
        let of = ItemView::of(item.0, &self.backlog, &self.stripes, &self.table);
        let class = of.class(&mut self.redundancy);
        let class = class.unwrap_or(Class { priority: Priority::Background, survives: 0 });
        Placer::of(&of, &self.limits, class, &self.scan.claims, barred).place(&of.wanted())
    }

    /// Reserves what the plan of a proposal moves: then the job is to be started.
    ///
    /// # Errors
    /// The [`Resource`] that has no room for it. The item waits for that, and the plan is to be dropped.
    ///
    /// # Panics
    /// If the item was not just proposed.
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
        self.backlog.item_mut(item.0).lack = None;
        self.move_to(item.0, ItemPhase::Running(job, booking));
        self.scan.go_on();
        Ok(())
    }

    /// A proposal cannot start now: it waits until something changes.
    ///
    /// # Panics
    /// If the item was not just proposed.
    pub fn put_back(&mut self, item: ItemId) {
        self.backlog.assert_proposed(item);
        self.backlog.item_mut(item.0).sat_out = Some(self.scan.news());
        self.return_to_queue(item.0);
    }

    /// Going back to the queue is no news.
    fn return_to_queue(&mut self, no: u32) {
        let news = self.scan.news();
        self.requeue(no);
        self.scan.forget_since(news);
        self.scan.go_on();
    }

    /// A proposal will not start.
    ///
    /// # Panics
    /// If the item was not just proposed.
    pub fn decline(&mut self, item: ItemId, end: End) {
        self.backlog.assert_proposed(item);
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
        // That it is proposed is no news to those that sat out: else two of them would have each other proposed for ever.
        let news = self.scan.news();
        self.move_to(proposal.item.0, ItemPhase::Proposed);
        self.scan.forget_since(news);
        Some(Action::Propose(proposal))
    }

    // ---- jobs ----

    /// The job of an item moves something else than it did, as it made another plan. It runs on whether there is room
    /// or not.
    pub fn handle_replanned(&mut self, item: ItemId, loads: &Loads) {
        if let Some(booking) = self.backlog.booking_mut(item.0) {
            self.table.give_back(std::mem::take(booking));
            *booking = self.table.book(loads);
            self.scan.restart();
        }
    }

    /// The job of an item moves nothing until [`wake`](Self::wake), as its repair is paused: it gives back what it has
    /// reserved, but for the space of what it is to store. It is not late meanwhile.
    pub fn rest(&mut self, item: ItemId, loads: &Loads) {
        self.backlog.forget_due(item.0);
        self.handle_replanned(item, &loads.at_rest());
    }

    /// Reserves what the job of an item that rests is to move from now on. Without room for that it goes on resting; returns
    /// whether it may move.
    pub fn wake(&mut self, item: ItemId, loads: &Loads) -> bool {
        let Some(booking) = self.backlog.booking_mut(item.0) else { return true };
        self.table.give_back(std::mem::take(booking));
        let is_room = self.table.lacks(loads).is_none();
        *booking = if is_room { self.table.book(loads) } else { self.table.book(&loads.at_rest()) };
        is_room
    }

    /// Whether a repair that is not paused waits for the stripe of an item whose job rests. That job is to be called off then; its
    /// item waits for its turn again.
    pub fn make_way(&mut self, item: ItemId) -> bool {
        let mut others = self.view(item.0).stripe.items.iter().filter(|&&no| no != item.0);
        let waits = others.any(|&no| !self.backlog.repair_of(no).paused);
        if waits {
            self.backlog.item_mut(item.0).stopping = true;
        }
        waits
    }

    /// The job of an item is late if it has not ended by then. The driver, who knows what its plan was predicted
    /// to take, says so after [`admit`](Self::admit).
    ///
    /// A late job is called off and begins anew on other nodes (m-PPR). Which of its nodes is slow, the scheduler does not know:
    /// all of them come last when the item is proposed again, as far as there are others. After as many times as
    /// [`Limits::attempts`] a job may take as long as it does.
    pub fn set_due(&mut self, item: ItemId, due: Duration) {
        self.backlog.set_due(item.0, due);
    }

    /// The job of an item delivers a block to a node, which may be another one than was proposed. To be told before
    /// [`handle_block`](Self::handle_block), which would take the block for one that came back by itself.
    pub fn handle_delivery(&mut self, item: ItemId, node: NodeId) {
        let Some(node) = self.table.find(node) else { return };
        if let Some(booking) = self.backlog.booking_mut(item.0) {
            booking.note_delivery(node);
        }
    }

    /// The job of an item has done what it was to do; where blocks are now was said before.
    pub fn handle_done(&mut self, item: ItemId, now: Duration) {
        self.now = self.now.max(now);
        let of = self.backlog.item_mut(item.0);
        of.stopping = false;
        of.rounds += 1;
        of.failures = 0;
        let rounds = of.rounds;
        self.requeue(item.0);
        if rounds >= self.limits.rounds && !matches!(self.backlog.item(item.0).phase, ItemPhase::Ended(_)) {
            self.move_to(item.0, ItemPhase::Ended(End::LostAgain));
        }
    }

    /// The job of an item has failed.
    pub fn handle_failed(&mut self, item: ItemId, failure: Failure, now: Duration) {
        self.now = self.now.max(now);
        let limits = (self.limits.attempts, self.limits.back_off);
        let of = self.backlog.item_mut(item.0);
        of.stopping = false;
        of.failures += 1;
        let failures = of.failures;
        if failure == Failure::Permanent || failures >= limits.0 {
            return self.move_to(item.0, ItemPhase::Ended(End::Failed));
        }
        of.not_before = Some(now + limits.1 * 2u32.saturating_pow(failures - 1));
        self.requeue(item.0);
    }

    /// The job of an item was called off.
    pub fn handle_cancelled(&mut self, item: ItemId) {
        if std::mem::take(&mut self.backlog.item_mut(item.0).stopping) {
            return self.requeue(item.0);
        }
        if !matches!(self.backlog.item(item.0).phase, ItemPhase::Ended(_)) {
            self.move_to(item.0, ItemPhase::Ended(End::Cancelled));
        }
    }

    // ---- time ----

    /// The next thing to do, if there is one.
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        self.now = self.now.max(now);
        while let Some(no) = self.backlog.next_timer(self.now) {
            self.settle(no);
        }
        while let Some(job) = self.backlog.next_late(self.now, self.limits.attempts) {
            self.actions.push_back(Action::CancelJob { job });
        }
        self.end_repairs();
        self.actions.pop_front().or_else(|| self.propose())
    }

    /// When [`poll`](Self::poll) may have something to do though nothing happens before.
    pub fn wakes_at(&self) -> Option<Duration> {
        self.backlog.wakes_at()
    }

    /// Ends repairs of which nothing can be done any more.
    fn end_repairs(&mut self) {
        while let Some((id, aside)) = self.backlog.next_finished() {
            for no in aside {
                let lost = self.view(no).lost().len() as u16;
                self.move_to(no, ItemPhase::Ended(End::Unreadable { lost }));
            }
            self.backlog.end(id);
            self.actions.push_back(Action::RepairEnded { repair: id });
        }
    }
}
