//! Repairs: each order is split into items, one per stripe, which [`recovery::Scheduler`] starts.
//!
//! This state machine drives the scheduler and owns smaller state machines: the [`queue`] of all repairs,
//! automatic repairs of single stripes ([`healing`]) and of whole helpers ([`node_recovery`], [`commanded`]),
//! [`claims`] on stripes, and reads before repairs ([`verify_first`]). It passes facts to the scheduler
//! ([`scheduler_facts`]), adds [`items`], prepares the jobs of [`proposals`], and explains results
//! ([`views`], [`advice`]). Only the scheduler decides what starts next, where, and with which helpers.

pub(crate) mod advice;
pub(crate) mod attempts;
pub(crate) mod automatic;
pub(crate) mod balance;
mod bound;
mod case;
pub(crate) mod claims;
pub(crate) mod commanded;
pub(crate) mod continuation;
mod course;
mod damage_search;
pub(crate) mod fullness;
pub(crate) mod giving_way;
pub(crate) mod grace;
pub(crate) mod healing;
mod items;
pub(crate) mod misplaced;
pub(crate) mod node_recovery;
pub(crate) mod obstacle;
pub(crate) mod omitted;
mod open_repairs;
pub(crate) mod order_records;
mod ordering;
pub(crate) mod orders;
pub(crate) mod paused_jobs;
pub(crate) mod plans;
pub(crate) mod progress;
pub(crate) mod proposals;
pub(crate) mod queue;
pub(crate) mod reasons;
pub(crate) mod refusals;
pub(crate) mod repair;
pub(crate) mod room;
pub(crate) mod scheduler_facts;
pub(crate) mod stand_in;
pub(crate) mod timeline;
mod turns;
pub(crate) mod verify_first;
pub(crate) mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ::recovery::{
    BlockFacts, CopyState, Counters, End, Failure, ItemId, ItemState, Limits, RepairId, Scheduler, Target,
};
use ::repair::{JobError, NodeId, Outcome, PlanError, StripeId};
use codes::BlockIndex;
use store_api::{BlockState, StoreError, StorePolicy};

pub use views::ItemPage;

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::claims::{Claims, Stuck};
use crate::repairs::commanded::Commanded;
use crate::repairs::fullness::Fullness;
use crate::repairs::healing::Healing;
use crate::repairs::misplaced::Misplaced;
use crate::repairs::node_recovery::NodeRecovery;
use crate::repairs::order_records::dropped;
use crate::repairs::orders::Order;
use crate::repairs::paused_jobs::PausedJobs;
use crate::repairs::queue::Queue;
use crate::repairs::refusals::Refusals;
use crate::repairs::repair::RepairEnd;
use crate::repairs::stand_in::OpenOrders;
use crate::repairs::verify_first::VerifyFirst;
use crate::storing::then::Then;

/// The shortest time between answers to requests that wait for a change of a repair. The end of a repair is
/// reported at once.
pub(crate) const CHANGES_EVERY: Duration = Duration::from_millis(200);

/// All repairs, and the state machines that start and schedule them.
pub(super) struct Repairs {
    pub(crate) queue: Queue,
    pub scheduler: Scheduler,
    pub(crate) refusals: Refusals,
    pub(crate) paused_jobs: PausedJobs,
    pub(crate) verify_first: VerifyFirst,
    /// The time at which waiting requests were last answered.
    pub(crate) changes_told: Duration,
    pub healing: Healing,
    pub nodes: NodeRecovery,
    pub fullness: Fullness,
    pub claims: Claims,
    pub(crate) commanded: Commanded,
    pub misplaced: Misplaced,
}

impl Repairs {
    pub(super) fn new(store: StorePolicy) -> Self {
        let limits = Limits {
            shares_nodes: store.shares_nodes(),
            replaces_in_place: store.replaces_in_place(),
            ..Limits::default()
        };
        Self {
            queue: Queue::default(),
            scheduler: Scheduler::new(limits),
            refusals: Refusals::default(),
            paused_jobs: PausedJobs::default(),
            verify_first: VerifyFirst::default(),
            changes_told: Duration::ZERO,
            healing: Healing::default(),
            nodes: NodeRecovery::default(),
            fullness: Fullness::default(),
            claims: Claims::default(),
            commanded: Commanded::default(),
            misplaced: Misplaced::default(),
        }
    }

    /// Adds a repair to the queue and to the scheduler.
    pub(crate) fn add(&mut self, id: u64, order: Order) {
        self.scheduler.open(RepairId(id), order.spec());
        if order.paused {
            self.scheduler.set_paused(RepairId(id), true);
        }
        self.queue.add(id, order);
    }

    /// Starts due recoveries and repeated drains of helpers.
    pub(crate) fn begin_recoveries(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let Self { nodes, queue, .. } = self;
        nodes.look_for_room(facts, jobs);
        nodes.begin(facts, jobs, queue, out);
        nodes.drain_again(facts, jobs, queue, out);
    }

    /// Records that the store has reported a node in or out of service.
    pub(crate) fn note_service(&mut self, facts: Facts<'_>, node: NodeId, up: bool) {
        self.healing.note_service(facts, node, up);
        if !up {
            self.commanded.note_outage(facts, &self.queue, node);
        }
    }

    /// Updates claims, and starts due repairs of single stripes.
    pub(crate) fn heal(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let waiting = self.waiting_though_refused();
        self.claims.expire((jobs, facts.base.now), &waiting, &mut self.scheduler, out);
        self.commanded.follow(facts, &self.queue, out);
        let orders = OpenOrders { queue: &self.queue, scheduler: &self.scheduler };
        let give_way = self.healing.heal(facts, (orders, &waiting), out);
        give_way.into_iter().for_each(|repair| self.give_up_refused(repair));
        self.make_way_for_healing(facts, jobs, out);
    }

    /// Ends an automatic repair that the store refuses, because repairs of other stripes take its place.
    fn give_up_refused(&mut self, id: u64) {
        let why = self.claims.refusal_of(id).unwrap_or("it refuses every helper").to_owned();
        let Some(repair) = self.queue.by_id.get_mut(&id) else { return };
        for item in repair.items.values_mut() {
            if !matches!(self.scheduler.state(item.id), ItemState::Running(_) | ItemState::Ended(_)) {
                let next_step = "it is retried automatically; repairs of other stripes come first";
                item.fail(format!("the store refuses it: {why}"), next_step);
                self.scheduler.decline(item.id, End::Failed);
            }
        }
    }

    /// Moves blocks of misplaced stripes to other helpers.
    pub(crate) fn mend_placement(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let orders = OpenOrders { queue: &self.queue, scheduler: &self.scheduler };
        self.misplaced.mend(facts, jobs, (orders, &self.nodes), out);
    }

    /// Records that the store has accepted blocks of a stripe, or why it has refused them. Nodes of refused
    /// blocks are avoided.
    pub(crate) fn note_publication(&mut self, stripe: &StripeId, error: Option<&StoreError>) {
        match error {
            None => self.refusals.forget(stripe),
            Some(error) => {
                self.refusals.note_error(stripe, error);
            }
        }
    }

    /// Returns the stripes whose repairs wait because the store refuses every node that could take their blocks.
    pub(crate) fn refused_by_store(&self) -> BTreeMap<&StripeId, &Stuck> {
        let waits = |&(item, stuck): &(ItemId, &Stuck)| self.waits(item, stuck.repair, &stuck.stripe);
        let stuck = self.claims.all_stuck().filter(waits);
        stuck.map(|(_, stuck)| (&stuck.stripe, stuck)).collect()
    }

    /// Returns the refused items that wait and are not paused: those for which the store refuses every node,
    /// and those whose stripes it refuses for another reason at present.
    fn waiting_though_refused(&self) -> BTreeSet<ItemId> {
        let stuck = self.claims.all_stuck().map(|(item, stuck)| (item, stuck.repair, &stuck.stripe));
        let refused = stuck.chain(self.claims.all_refused());
        let waits = |&(item, repair, stripe): &(ItemId, u64, &StripeId)| {
            !self.queue.is_paused(repair) && self.waits(item, repair, stripe)
        };
        refused.filter(waits).map(|(item, ..)| item).collect()
    }

    /// Whether a refused item has neither started nor ended.
    fn waits(&self, item: ItemId, repair: u64, stripe: &StripeId) -> bool {
        let known = self.queue.by_id.get(&repair).and_then(|repair| repair.items.get(stripe));
        known.is_some_and(|known| known.id == item)
            && !matches!(self.scheduler.state(item), ItemState::Running(_) | ItemState::Ended(_))
    }

    /// Handles the result of reading a block before its repair; `found` is `None` if the block's state is unknown.
    pub(crate) fn note_verified(
        &mut self,
        question: (u64, NodeId),
        index: Option<BlockIndex>,
        found: Option<BlockState>,
    ) {
        self.verify_first.answered(question, index, found, &mut self.scheduler);
    }

    /// Suspends these stripes: none of their jobs starts until `let_go` was called once for each call of
    /// `hold`.
    pub(crate) fn hold(&mut self, stripes: &[StripeId]) {
        stripes.iter().for_each(|stripe| self.scheduler.hold(stripe));
    }

    pub(crate) fn let_go(&mut self, stripes: &[StripeId]) {
        stripes.iter().for_each(|stripe| self.scheduler.let_go(stripe));
    }

    /// Reports a bad block to the scheduler at once, because the scheduler may resume the stripe before the
    /// block's state is recorded.
    pub(crate) fn note_bad_block(&mut self, stripe: &StripeId, index: BlockIndex, node: NodeId) {
        self.scheduler.handle_block(stripe, index, BlockFacts { node: Some(node), copy: CopyState::Bad });
    }

    /// Drops all state about a stripe that was removed.
    pub(crate) fn forget_stripe(&mut self, stripe: &StripeId) {
        self.refusals.forget(stripe);
        self.scheduler.drop_stripe(stripe);
        self.verify_first.forget(stripe, &mut self.scheduler);
    }

    /// Handles the end of a job of a repair: reports the result to the scheduler and records it in the item.
    pub(super) fn repair_ended(
        &mut self,
        facts: Facts<'_>,
        repair: u64,
        stripe: &StripeId,
        trouble: Option<String>,
        result: Result<Outcome, JobError>,
    ) {
        if let Err(JobError::NoRequestor { node, .. }) = &result {
            self.refusals.note(stripe, *node);
        }
        let now = facts.base.now;
        let Some(item) = self.queue.item(repair, stripe) else { return };
        match (result, trouble) {
            // Its last block may have been refused, because the stripe was removed or its claim was lost.
            (Err(JobError::Cancelled), _) => self.scheduler.handle_cancelled(item.id),
            (_, Some(trouble)) => {
                item.fail(trouble, "check the coordinator's log and disk");
                self.scheduler.handle_failed(item.id, Failure::Permanent, now);
            }
            (Ok(outcome), None) => {
                self.scheduler.handle_done(item.id, now);
                self.queue.job_succeeded(repair, stripe, now);
                let record = facts.stripes.stripe_record(stripe).ok();
                let repair = self.queue.by_id.get_mut(&repair).expect("the repair of an item exists");
                repair.note_rebuilt(stripe, record.as_ref(), outcome);
            }
            (Err(error), None) => self.item_failed(facts, repair, stripe, &error),
        }
    }

    /// Handles the failure of an item's job. The scheduler decides whether to retry the item.
    fn item_failed(&mut self, facts: Facts<'_>, repair: u64, stripe: &StripeId, error: &JobError) {
        let Some(item) = self.queue.item(repair, stripe) else { return };
        self.scheduler.handle_failed(item.id, failure(error), facts.base.now);
        match self.scheduler.state(item.id) {
            ItemState::Ended(_) if matches!(error, JobError::Contradiction { .. }) => {
                let record = facts.stripes.stripe_record(stripe).ok();
                let settled_by = record.as_ref().map(|record| facts.settled_by(record)).unwrap_or_default();
                item.contradictory = true;
                item.fail(error.to_string(), &format!("nothing was published; {settled_by}"));
            }
            ItemState::Ended(_) if matches!(error, JobError::Unproven { .. }) => {
                item.fail(error.to_string(), UNPROVEN_NEXT);
            }
            ItemState::Ended(_) => {
                let next_step = "start the helpers that mend status lists as down, then repair again";
                item.fail(error.to_string(), next_step);
            }
            _ => item.replanned.push(error.to_string()),
        }
    }

    /// Returns the number of blocks left on the node that a repair drains.
    fn left_on_node(&self, facts: Facts<'_>, id: u64) -> u64 {
        match self.queue.by_id.get(&id).map(|repair| &repair.order.target) {
            Some(Target::Drain(node)) => facts.left_on(*node),
            _ => 0,
        }
    }

    /// Ends a repair that has no work left. Returns whether it was open.
    pub(crate) fn end(&mut self, facts: Facts<'_>, jobs: &Jobs, id: u64, out: &mut Out) -> bool {
        out.store(dropped(id), Then::Nothing);
        let (unix_ms, left_on_node) = (facts.base.unix_ms, self.left_on_node(facts, id));
        let Some(repair) = self.queue.by_id.get_mut(&id) else { return false };
        repair.end = Some(RepairEnd { unix_ms, left_on_node, unknown: Vec::new() });
        repair.waiting.drain(..).for_each(|waiting| out.answer(waiting.reply, Ok(())));
        self.queue.note_ended(id);
        self.end_course(facts, jobs, id);
        true
    }

    /// Forgets the oldest ended repairs.
    pub(crate) fn forget_oldest(&mut self) {
        self.queue.forget_oldest().into_iter().for_each(|id| self.scheduler.forget(RepairId(id)));
    }

    pub(crate) fn counters(&self, repair: u64) -> Counters {
        self.scheduler.repair(RepairId(repair)).map_or_else(Counters::default, |state| state.counters)
    }
}

/// The next step for a stripe whose rebuilt blocks cannot be checked.
pub(crate) const UNPROVEN_NEXT: &str = "nothing was published; bring back one more block of the stripe (start \
     helpers that are down), or write the right checksums to all servers; to publish the block unchecked, repair \
     with --no-verify: if one of the remaining blocks is wrong, so is the new one";

/// Classifies the error of a job: transient if another attempt may succeed, otherwise permanent.
fn failure(error: &JobError) -> Failure {
    match error {
        // The source of a migration may have died; the next attempt rebuilds its blocks.
        JobError::Plan {
            error:
                PlanError::Decode { .. } | PlanError::DeadRequestor { .. } | PlanError::NothingToMigrate { .. },
            ..
        } => Failure::Transient,
        // Another attempt would find the same contradiction.
        JobError::Plan { .. } | JobError::Contradiction { .. } | JobError::Unproven { .. } => {
            Failure::Permanent
        }
        _ => Failure::Transient,
    }
}
