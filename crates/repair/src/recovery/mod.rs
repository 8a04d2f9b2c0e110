//! Many repairs at once: what starts next, where and how.
//!
//! A [`Scheduler`] has the stripes that are to be repaired in a queue, the one that can lose the fewest further
//! blocks first, and a table of nodes with what each may have under way. It is a state machine like [`Job`](crate::Job):
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

mod bound;
mod budget;
mod cache;
mod caps;
mod dealing;
mod draining;
pub mod fastpr;
mod item;
mod late;
mod nodes;
mod placement;
mod places;
mod policy;
mod progress;
mod queue;
mod redundancy;
mod resting;
mod scan;
mod shares;
mod stripes;
mod surplus;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use codes::BlockIndex;
use serde::{Deserialize, Serialize};

pub use bound::{Bottleneck, Bound, Demand, bound};
pub use budget::{Budget, JOBS_AT_ONCE, Loads, NodeLoad, SECONDS_AHEAD, WHOLE_BLOCK_BYTES};
pub use cache::{BlockCache, CacheDelta};
pub use caps::{Caps, Dealer, Pace, Unused};
pub use dealing::Stretch;
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

use crate::{JobId, NodeId, Resource, StripeId};
use budget::BLOCKS_AHEAD;
use item::{Item, Place};
use nodes::{Booking, NodeTable};
use queue::{Class, Key};
use scan::Scan;
use stripes::Stripes;

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
#[derive(Debug, Default)]
pub struct Scheduler {
    limits: Limits,
    table: NodeTable,
    redundancy: Redundancy,
    stripes: Stripes,
    /// Stripes that somebody else works on, and how many of them.
    holds: BTreeMap<StripeId, u32>,
    items: Vec<Option<Item>>,
    free_items: Vec<u32>,
    repairs: BTreeMap<RepairId, Repair>,
    queue: BTreeSet<Key>,
    timers: BTreeSet<(Duration, u32)>,
    /// When jobs are late.
    dues: BTreeSet<(Duration, u32)>,
    scan: Scan,
    surplus: surplus::Surplus,
    now: Duration,
    /// Repairs of which an item has ended.
    stirred: BTreeSet<RepairId>,
    actions: VecDeque<Action>,
    foreground: BTreeMap<ReservationId, Booking>,
    sequence: u64,
    /// Of all stripes that were ever named: a node with room for so many bytes has room for any block.
    largest_block_bytes: u64,
}

#[derive(Debug)]
struct Repair {
    spec: RepairSpec,
    items: Vec<u32>,
    aside: BTreeSet<u32>,
    running: BTreeSet<u32>,
    counters: Counters,
    /// Bytes that its last rebuild brought to the node that keeps the block, for each byte of the block.
    brought: f64,
    /// All its items are named.
    closed: bool,
    paused: bool,
    cancelled: bool,
    ended: bool,
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
        let no = self.table.number(id);
        let node = self.table.get_mut(no);
        let more = free_bytes > node.facts.free_bytes;
        let was_short = node.facts.free_bytes < self.largest_block_bytes.saturating_add(node.coming_bytes);
        (node.facts.blocks, node.facts.free_bytes) = (blocks, free_bytes);
        if more && was_short {
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

    /// What all repairs have reserved, for a [`Topology`](crate::Topology) to plan with.
    pub fn reserved(&self) -> impl Iterator<Item = (Resource, u64)> + '_ {
        self.table.reserved()
    }

    /// What others than `own` have reserved at these nodes, for a [`Topology`](crate::Topology) that `own` is planned with.
    pub fn reserved_beside(&self, nodes: &BTreeSet<NodeId>, own: Option<Mover>) -> Vec<(Resource, u64)> {
        let booking = own.and_then(|own| match own {
            Mover::Item(item) => match &self.item(item.0).place {
                Place::Running(_, booking) => Some(booking),
                _ => None,
            },
            Mover::Foreground(reservation) => self.foreground.get(&reservation),
        });
        self.table.reserved_beside(nodes, booking)
    }

    /// Reserves for something that does not wait, such as a degraded read: it takes from what recoveries may have, up
    /// to half of it, and fewer start until it is given back.
    pub fn reserve(&mut self, loads: &Loads) -> ReservationId {
        self.sequence += 1;
        let id = ReservationId(self.sequence);
        self.foreground.insert(id, self.table.book_foreground(loads));
        // What keeps others from starting may now wait for something else.
        self.scan.restart();
        id
    }

    /// Gives back what was reserved in the foreground.
    pub fn release(&mut self, reservation: ReservationId) {
        if let Some(booking) = self.foreground.remove(&reservation) {
            self.table.give_back(booking);
            self.scan.restart();
        }
    }

    // ---- stripes ----

    /// Says where a block is now.
    pub fn handle_block(&mut self, stripe: &StripeId, block: BlockIndex, facts: BlockFacts) {
        let Some(no) = self.stripes.find(stripe) else { return };
        if self.stripes.set_block(no, block, facts, &mut self.table) {
            let waits = |&item: &u32| matches!(self.item(item).place, Place::Queued(_));
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
        *self.holds.entry(stripe.clone()).or_insert(0) += 1;
        self.settle_named(stripe);
    }

    /// Ends a hold.
    pub fn let_go(&mut self, stripe: &StripeId) {
        if let Some(holds) = self.holds.get_mut(stripe) {
            *holds -= 1;
            if *holds == 0 {
                self.holds.remove(stripe);
            }
            self.settle_named(stripe);
        }
    }

    /// A stripe is gone: what waits for it is called off, and so is what works on it.
    pub fn drop_stripe(&mut self, stripe: &StripeId) {
        let Some(no) = self.stripes.find(stripe) else { return };
        for item in self.stripes.get(no).items.clone() {
            match self.item(item).place {
                Place::Running(job, _) => self.actions.push_back(Action::CancelJob { job }),
                _ => self.move_to(item, Place::Ended(End::Cancelled)),
            }
        }
    }

    /// How many further blocks a stripe can lose, by its code and what it lacks.
    pub fn redundancy(&mut self) -> &mut Redundancy {
        &mut self.redundancy
    }

    // ---- repairs ----

    /// Begins a repair, whose items follow.
    pub fn open(&mut self, id: RepairId, spec: RepairSpec) {
        let repair = Repair {
            spec,
            items: Vec::new(),
            aside: BTreeSet::new(),
            running: BTreeSet::new(),
            counters: Counters::default(),
            brought: 1.0,
            closed: false,
            paused: false,
            cancelled: false,
            ended: false,
        };
        assert!(self.repairs.insert(id, repair).is_none(), "repair {id} is opened once");
    }

    /// Adds a stripe to a repair that is open. Of equally urgent ones, those added earlier go first.
    ///
    /// # Panics
    /// If there is no such repair.
    pub fn push(&mut self, repair: RepairId, new: NewItem) -> ItemId {
        if new.block_bytes > self.largest_block_bytes {
            self.largest_block_bytes = new.block_bytes;
            self.table.hold(new.block_bytes.saturating_mul(self.limits.blocks_ahead));
        }
        let (stripe, changed) = self.stripes.add(&new, &mut self.table);
        if changed {
            self.settle_stripe(stripe);
        }
        self.sequence += 1;
        let item = Item {
            repair,
            stripe,
            sequence: self.sequence,
            kind: new.kind,
            only: new.only,
            place: Place::Held,
            failures: 0,
            rounds: 0,
            not_before: None,
            lack: None,
            stopping: false,
            due: None,
            late: 0,
            slow: BTreeSet::new(),
            sat_out: None,
        };
        let no = self.free_items.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() as u32 - 1
        });
        self.items[no as usize] = Some(item);
        self.stripes.get_mut(stripe).items.push(no);
        let repair = self.repairs.get_mut(&repair).expect("the repair is open");
        repair.items.push(no);
        repair.counters.waiting += 1;
        self.settle(no);
        ItemId(no)
    }

    /// All items of a repair are named: it ends with the last of them.
    pub fn close(&mut self, id: RepairId) {
        if let Some(repair) = self.repairs.get_mut(&id) {
            repair.closed = true;
            self.stirred.insert(id);
        }
    }

    /// Calls a repair off: what waits ends now, what runs is to be cancelled.
    pub fn cancel(&mut self, id: RepairId) {
        let Some(repair) = self.repairs.get_mut(&id).filter(|repair| !repair.ended) else { return };
        (repair.cancelled, repair.closed) = (true, true);
        self.stirred.insert(id);
        for no in repair.items.clone() {
            match self.item(no).place {
                Place::Ended(_) => {}
                Place::Running(job, _) => self.actions.push_back(Action::CancelJob { job }),
                _ => self.move_to(no, Place::Ended(End::Cancelled)),
            }
        }
    }

    /// Nothing of a repair starts until it is resumed; what runs goes on.
    pub fn pause(&mut self, id: RepairId) {
        self.set_paused(id, true);
    }

    /// A repair that was paused goes on.
    pub fn resume(&mut self, id: RepairId) {
        self.set_paused(id, false);
    }

    fn set_paused(&mut self, id: RepairId, paused: bool) {
        if let Some(repair) = self.repairs.get_mut(&id) {
            repair.paused = paused;
            self.scan.restart();
        }
    }

    /// Drops a repair that has ended.
    pub fn forget(&mut self, id: RepairId) {
        if self.repairs.get(&id).is_some_and(|repair| repair.ended) {
            let repair = self.repairs.remove(&id).expect("just seen");
            repair.items.iter().for_each(|&no| self.items[no as usize] = None);
            self.free_items.extend(repair.items);
        }
    }

    /// What a repair is doing.
    pub fn repair(&self, id: RepairId) -> Option<RepairState> {
        self.repairs.get(&id).map(|repair| RepairState {
            counters: repair.counters,
            paused: repair.paused,
            cancelled: repair.cancelled,
            ended: repair.ended,
        })
    }

    /// The items of a repair on which a job works, and the jobs.
    pub fn running(&self, id: RepairId) -> impl Iterator<Item = (ItemId, JobId)> + '_ {
        let running = self.repairs.get(&id).into_iter().flat_map(|repair| &repair.running);
        running.filter_map(|&no| match self.item(no).place {
            Place::Running(job, _) => Some((ItemId(no), job)),
            _ => None,
        })
    }

    /// What an item is doing.
    pub fn state(&self, item: ItemId) -> ItemState {
        self.item(item.0).state()
    }

    /// What an item waits for that its last plan did not get.
    pub fn lack(&self, item: ItemId) -> Option<&Resource> {
        self.item(item.0).lack.as_ref().map(|lack| &lack.resource)
    }

    /// How many further blocks the stripe of an item can surely lose; `None` if it cannot be read, or the item has
    /// ended.
    pub fn survives(&mut self, item: ItemId) -> Option<u32> {
        let item = self.item(item.0);
        if let Place::Ended(_) = item.place {
            return None;
        }
        let stripe = self.stripes.get(item.stripe);
        self.redundancy.survives(&*stripe.code, &stripe.lost(&self.table))
    }

    // ---- proposals ----

    /// Other requestors for what is proposed, when some of the nodes cannot take it.
    pub fn place(&mut self, item: ItemId, barred: &[NodeId]) -> Placement {
        let class = self.class(item.0).unwrap_or(Class { priority: Priority::Background, survives: 0 });
        let of = self.item(item.0);
        let (kind, stripe) = (self.kind_now(of), self.stripes.get(of.stripe));
        let wanted = stripe.wanted(kind, &of.only, &stripe.lost(&self.table), &self.table);
        self.placer(item.0, class, barred).place(&wanted)
    }

    /// Reserves what the plan of a proposal moves: then the job is to be started.
    ///
    /// # Errors
    /// The [`Resource`] that has no room for it. The item waits for that, and the plan is to be dropped.
    ///
    /// # Panics
    /// If the item was not just proposed.
    pub fn admit(&mut self, item: ItemId, job: JobId, loads: &Loads) -> Result<(), Resource> {
        self.assert_proposed(item);
        if let Some(lack) = self.table.lacks(loads) {
            let resource = lack.resource.clone();
            self.item_mut(item.0).lack = Some(lack);
            self.return_to_queue(item.0);
            return Err(resource);
        }
        let booking = self.table.book(loads);
        self.table.count(loads);
        self.note_brought(item.0, loads);
        self.item_mut(item.0).lack = None;
        self.move_to(item.0, Place::Running(job, booking));
        self.scan.go_on();
        Ok(())
    }

    /// A proposal cannot start now: it waits until something changes.
    ///
    /// # Panics
    /// If the item was not just proposed.
    pub fn put_back(&mut self, item: ItemId) {
        self.assert_proposed(item);
        self.item_mut(item.0).sat_out = Some(self.scan.news);
        self.return_to_queue(item.0);
    }

    /// Going back to the queue is no news.
    fn return_to_queue(&mut self, no: u32) {
        let news = self.scan.news;
        self.requeue(no);
        self.scan.news = news;
        self.scan.go_on();
    }

    /// A proposal will not start.
    ///
    /// # Panics
    /// If the item was not just proposed.
    pub fn decline(&mut self, item: ItemId, end: End) {
        self.assert_proposed(item);
        self.move_to(item.0, Place::Ended(end));
        self.scan.go_on();
    }

    fn assert_proposed(&self, item: ItemId) {
        assert!(matches!(self.item(item.0).place, Place::Proposed), "{item} was not proposed");
    }

    // ---- jobs ----

    /// The job of an item moves something else than it did, as it made another plan. It runs on whether there is room
    /// or not.
    pub fn handle_replanned(&mut self, item: ItemId, loads: &Loads) {
        if let Place::Running(_, booking) = &mut self.item_mut(item.0).place {
            let before = std::mem::take(booking);
            self.table.give_back(before);
            let after = self.table.book(loads);
            if let Place::Running(_, booking) = &mut self.item_mut(item.0).place {
                *booking = after;
            }
            self.scan.restart();
        }
    }

    /// The job of an item has done what it was to do; where blocks are now was said before.
    pub fn handle_done(&mut self, item: ItemId, now: Duration) {
        self.now = self.now.max(now);
        let of = self.item_mut(item.0);
        of.stopping = false;
        of.rounds += 1;
        of.failures = 0;
        let rounds = of.rounds;
        self.requeue(item.0);
        if rounds >= self.limits.rounds && !matches!(self.item(item.0).place, Place::Ended(_)) {
            self.move_to(item.0, Place::Ended(End::LostAgain));
        }
    }

    /// The job of an item has failed.
    pub fn handle_failed(&mut self, item: ItemId, failure: Failure, now: Duration) {
        self.now = self.now.max(now);
        let limits = (self.limits.attempts, self.limits.back_off);
        let of = self.item_mut(item.0);
        of.stopping = false;
        of.failures += 1;
        let failures = of.failures;
        if failure == Failure::Permanent || failures >= limits.0 {
            return self.move_to(item.0, Place::Ended(End::Failed));
        }
        of.not_before = Some(now + limits.1 * 2u32.saturating_pow(failures - 1));
        self.requeue(item.0);
    }

    /// The job of an item was called off.
    pub fn handle_cancelled(&mut self, item: ItemId) {
        if std::mem::take(&mut self.item_mut(item.0).stopping) {
            return self.requeue(item.0);
        }
        if !matches!(self.item(item.0).place, Place::Ended(_)) {
            self.move_to(item.0, Place::Ended(End::Cancelled));
        }
    }

    // ---- time ----

    /// The next thing to do, if there is one.
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        self.now = self.now.max(now);
        while let Some(&(at, no)) = self.timers.first().filter(|(at, _)| *at <= self.now) {
            self.timers.remove(&(at, no));
            self.settle(no);
        }
        self.stop_late();
        self.end_repairs();
        self.actions.pop_front().or_else(|| self.propose())
    }

    /// When [`poll`](Self::poll) may have something to do though nothing happens before.
    pub fn wakes_at(&self) -> Option<Duration> {
        let (timer, due) = (self.timers.first(), self.dues.first());
        timer.into_iter().chain(due).map(|&(at, _)| at).min()
    }

    /// Ends repairs of which nothing can be done any more.
    fn end_repairs(&mut self) {
        while let Some(id) = self.stirred.pop_first() {
            let Some(repair) = self.repairs.get(&id) else { continue };
            let aside = repair.aside.len() as u64;
            if repair.ended || !repair.closed || repair.counters.open() > aside {
                continue;
            }
            for no in repair.aside.clone() {
                let lost = self.stripes.get(self.item(no).stripe).lost(&self.table).len() as u16;
                self.move_to(no, Place::Ended(End::Unreadable { lost }));
            }
            self.stirred.remove(&id);
            self.repairs.get_mut(&id).expect("just seen").ended = true;
            self.actions.push_back(Action::RepairEnded { repair: id });
        }
    }
}
