//! Repairs: what is asked for is cut into stripes, which [`repair::recovery::Scheduler`] starts.
//!
//! This room drives the scheduler: it says what the catalog and the connections know ([`facts`]), keeps what was asked
//! for until it ends, so that a coordinator that starts again takes it up anew ([`records`]), names the items of a
//! repair and starts their jobs ([`start`]), and tells people ([`views`], [`advice`]). What starts next, where and
//! with whose help is decided in the scheduler alone.

pub(crate) mod advice;
pub(crate) mod attempts;
pub(crate) mod balance;
pub(crate) mod claims;
pub(crate) mod control;
mod facts;
pub(crate) mod fullness;
pub(crate) mod grace;
pub(crate) mod healing;
pub(crate) mod holding;
pub(crate) mod looks;
pub(crate) mod misplaced;
pub(crate) mod omitted;
pub(crate) mod orders;
pub(crate) mod own;
pub(crate) mod plans;
pub(crate) mod progress;
pub(crate) mod reasons;
pub(crate) mod records;
pub(crate) mod refusals;
pub(crate) mod room;
pub(crate) mod start;
pub(crate) mod surplus;
pub(crate) mod views;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use codes::BlockIndex;
use repair::recovery::{Counters, Failure, ItemId, ItemState, Limits, RepairId, Scheduler, Target};
use repair::{BlockId, JobError, NodeId, Outcome, ParityOutcome, PlanError, Scheme, StripeId};
use stores::{Nature, StoreError, StripeRecord};

pub use views::ItemPage;

use crate::commands::answer;
use crate::effect::Reply;
use crate::error::RequestError;
use crate::facts::Facts;
use crate::nodes::Nodes;
use crate::out::Out;
use crate::repairs::claims::Claims;
use crate::repairs::fullness::Fullness;
use crate::repairs::healing::Healing;
use crate::repairs::misplaced::Misplaced;
use crate::repairs::room::Rooms;
use crate::storing::Then;
use ::views::{RebalanceView, RepairRequest, RepairView};
use holding::Held;
use looks::Looks;
pub(super) use orders::Order;
use own::Own;
use progress::Course;
pub(crate) use records::kept;
use refusals::Refusals;

/// Changes of a repair are told this often at most; its end at once.
pub(crate) const CHANGES_EVERY: Duration = Duration::from_millis(200);
/// Repairs that have ended and are remembered.
const REMEMBERED: usize = 100;

/// All repairs since the start.
pub(super) struct Repairs {
    pub(crate) by_id: BTreeMap<u64, Repair>,
    /// Those whose stripes are not known: not before helpers had time to come back after a start.
    pub(crate) unexpanded: VecDeque<u64>,
    pub(crate) refusals: Refusals,
    pub(crate) held: Held,
    pub(crate) looks: Looks,
    /// When waiting requests were last told of changes.
    pub(crate) changes_told: Duration,
    pub scheduler: Scheduler,
    pub healing: Healing,
    pub rooms: Rooms,
    pub fullness: Fullness,
    pub claims: Claims,
    /// Of helpers that are gone.
    pub recoveries: Own,
    /// Of helpers that are to be emptied.
    pub drains: Own,
    pub misplaced: Misplaced,
}

impl Repairs {
    pub(super) fn new(nature: Nature) -> Self {
        let limits = Limits { shares_nodes: nature.shares_nodes, ..Limits::default() };
        Self {
            by_id: BTreeMap::new(),
            unexpanded: VecDeque::new(),
            refusals: Refusals::default(),
            held: Held::default(),
            looks: Looks::default(),
            changes_told: Duration::ZERO,
            scheduler: Scheduler::new(limits),
            healing: Healing::default(),
            rooms: Rooms::default(),
            fullness: Fullness::default(),
            claims: Claims::default(),
            recoveries: Own::default(),
            drains: Own::default(),
            misplaced: Misplaced::default(),
        }
    }
}

impl Repairs {
    /// What the storage made of blocks of a stripe that were to be recorded.
    pub(crate) fn note_publication(
        &mut self,
        facts: Facts<'_>,
        stripe: &StripeId,
        error: Option<&StoreError>,
    ) {
        match error {
            None => self.refusals.forget(stripe),
            Some(error) => self.note_refusal(facts, stripe, error),
        }
    }

    /// The store says of which node it takes no block of a stripe: another one is to make it.
    pub(crate) fn note_refusal(&mut self, _facts: Facts<'_>, stripe: &StripeId, error: &StoreError) {
        if let StoreError::NotServed { node, .. } | StoreError::Unfit { node, .. } = error {
            self.refusals.note(stripe, *node);
        }
    }
}

pub(crate) struct Repair {
    pub(crate) order: Order,
    pub(crate) items: BTreeMap<StripeId, Item>,
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    pub(crate) blocks_rebuilt: u64,
    pub(crate) bytes_rebuilt: u64,
    pub(crate) ended_unix_ms: Option<u64>,
    /// Blocks that were still on the node that it was to empty, when it ended.
    pub(crate) left_on_node: u64,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) course: Course,
    /// Blocks that were to be rebuilt, by the helper that had them.
    pub(crate) lost_from: BTreeMap<NodeId, u64>,
    /// Blocks that were rebuilt, by the helper that has them.
    pub(crate) rebuilt_on: BTreeMap<NodeId, u64>,
}

/// A request that waits for the end of a repair, or until its version is not `since` any more.
pub(crate) struct Waiting {
    pub(crate) since: Option<u64>,
    /// When it is answered in any case.
    pub(crate) until: Duration,
    pub(crate) reply: Reply<()>,
}

/// A stripe of a repair.
pub(crate) struct Item {
    pub(crate) id: ItemId,
    pub(crate) block_bytes: u64,
    pub(crate) blocks: Vec<BlockId>,
    pub(crate) rebuilt: BTreeMap<BlockId, NodeId>,
    pub(crate) scheme: Option<Scheme>,
    pub(crate) parity: Option<ParityOutcome>,
    pub(crate) reason: Option<String>,
    pub(crate) next_step: Option<String>,
    pub(crate) replanned: Vec<String>,
    /// It ended because its blocks contradict each other, and nothing tells which of them is wrong.
    pub(crate) contradictory: bool,
}

impl<'a> Facts<'a> {
    pub(super) fn queue_repair(self, request: &RepairRequest, reply: Reply<RepairView>, out: &mut Out) {
        match self.order(request) {
            Ok(order) => self.queue_order(order, reply, out),
            Err(error) => answer(reply, Err(error), out),
        }
    }

    pub(super) fn queue_order(self, order: Order, reply: Reply<RepairView>, out: &mut Out) {
        match self.number_of_order(out) {
            Ok(id) => {
                let order = Box::new(order);
                out.store(crate::repairs::kept(id, &order), Then::Queued { id, order, reply });
            }
            Err(error) => answer(reply, Err(error), out),
        }
    }

    pub(super) fn queue_rebalance(
        self,
        order: Order,
        view: RebalanceView,
        reply: Reply<RebalanceView>,
        out: &mut Out,
    ) {
        match self.number_of_order(out) {
            Ok(id) => {
                let (order, view) = (Box::new(order), Box::new(view));
                out.store(crate::repairs::kept(id, &order), Then::Rebalances { id, order, view, reply });
            }
            Err(error) => answer(reply, Err(error), out),
        }
    }

    fn number_of_order(self, out: &mut Out) -> Result<u64, RequestError> {
        self.check_not_behind().and_then(|()| self.storing.check_storage())?;
        out.next_number()
    }
}

impl Repairs {
    /// A job of a repair has ended.
    pub(super) fn repair_ended(
        &mut self,
        facts: Facts<'_>,
        repair: u64,
        stripe: &StripeId,
        trouble: Option<String>,
        result: Result<Outcome, JobError>,
    ) {
        let record = facts.stripes.stripe_record(stripe).ok();
        if let Err(JobError::NoRequestor { node, .. }) = &result {
            self.refusals.note(stripe, *node);
        }
        let settled_by = record.as_ref().map(|record| facts.settled_by(record)).unwrap_or_default();
        let Self { by_id: repairs, scheduler, .. } = self;
        let Some(repair) = repairs.get_mut(&repair) else { return };
        let Some(item) = repair.items.get_mut(stripe) else { return };
        match (result, trouble) {
            (_, Some(trouble)) => {
                item.fail(trouble, "look at the coordinator's log and disk");
                scheduler.handle_failed(item.id, Failure::Permanent, facts.base.now);
            }
            (Ok(outcome), None) => {
                let before = item.rebuilt.len();
                let homes = outcome.homes.clone();
                item.succeed(record.as_ref(), outcome);
                let more = (item.rebuilt.len() - before) as u64;
                homes.into_values().for_each(|node| *repair.rebuilt_on.entry(node).or_default() += 1);
                repair.blocks_rebuilt += more;
                repair.bytes_rebuilt += more * item.block_bytes;
                scheduler.handle_done(item.id, facts.base.now);
            }
            (Err(JobError::Cancelled), None) => scheduler.handle_cancelled(item.id),
            (Err(error), None) => {
                scheduler.handle_failed(item.id, failure(&error), facts.base.now);
                match scheduler.state(item.id) {
                    ItemState::Ended(_) if matches!(error, JobError::Contradiction { .. }) => {
                        item.contradictory = true;
                        item.fail(error.to_string(), &format!("nothing was published; {settled_by}"));
                    }
                    ItemState::Ended(_) => item.fail(
                        error.to_string(),
                        "look at mend status for helpers that are down, then repair again",
                    ),
                    _ => item.replanned.push(error.to_string()),
                }
            }
        }
    }
}

impl Repairs {
    /// Blocks on the node that a repair is to empty.
    pub(crate) fn left_on_node(&self, facts: Facts<'_>, id: u64) -> u64 {
        match self.by_id.get(&id).map(|repair| &repair.order.target) {
            Some(Target::Drain(node)) => facts.left_on(*node),
            _ => 0,
        }
    }
}

impl Repairs {
    /// Repairs of a target that have not ended.
    pub(crate) fn open_repairs_of(&self, target: &Target) -> Vec<u64> {
        self.open_for(target).collect()
    }

    /// Whether a repair has begun, or is about to, and has not ended.
    pub(crate) fn is_repair_open(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|repair| repair.ended_unix_ms.is_none())
    }

    /// Whether nothing of a repair starts for now.
    pub(crate) fn is_paused(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|repair| repair.order.paused)
    }
}

impl<'a> Facts<'a> {
    /// The order of a repair that nobody asked for.
    pub(super) fn own_order(self, target: Target) -> Result<Order, RequestError> {
        Ok(Order { by_itself: true, ..Order::new(target, self.scheme(None)?, self.base.unix_ms) })
    }
}

impl Repairs {
    pub(crate) fn add(&mut self, id: u64, order: Order) {
        self.scheduler.open(RepairId(id), order.spec());
        if order.paused {
            self.scheduler.pause(RepairId(id));
        }
        let repair = Repair {
            order,
            items: BTreeMap::new(),
            blocks: 0,
            bytes: 0,
            blocks_rebuilt: 0,
            bytes_rebuilt: 0,
            ended_unix_ms: None,
            left_on_node: 0,
            waiting: Vec::new(),
            course: Course::default(),
            lost_from: BTreeMap::new(),
            rebuilt_on: BTreeMap::new(),
        };
        self.by_id.insert(id, repair);
        self.unexpanded.push_back(id);
    }

    /// Which repairs of helpers that are gone began by themselves, in an earlier coordinator's time.
    pub(crate) fn recall_recoveries(&mut self, nodes: &Nodes) {
        for node in nodes.registry.gone() {
            self.recoveries.of(node).repair = self.own_of(node);
        }
    }

    /// The repair of a node that began by itself and has not ended.
    fn own_of(&self, node: NodeId) -> Option<u64> {
        let target = Target::Node(node);
        self.open_for(&target).find(|id| self.by_id[id].order.by_itself)
    }

    /// The repair of a node that goes on: one that is paused does not keep another from beginning.
    pub(super) fn open_of(&self, node: NodeId) -> Option<u64> {
        let is_it = |target: &Target| matches!(target, Target::Node(of) | Target::Drain(of) if *of == node);
        let goes_on = |repair: &Repair| repair.ended_unix_ms.is_none() && !repair.order.paused;
        let mut open = self.by_id.iter().filter(|(_, repair)| goes_on(repair));
        open.find(|(_, repair)| is_it(&repair.order.target)).map(|(&id, _)| id)
    }

    /// Whether a repair of a stripe is kept whose stripes are not known yet.
    pub(super) fn awaits(&self, stripe: &StripeId) -> bool {
        let target = Target::Stripe(stripe.clone());
        self.unexpanded.iter().any(|id| self.by_id[id].order.target == target)
    }

    /// The repairs that have a stripe in them.
    pub(super) fn of_stripe(&self, stripe: &StripeId) -> impl Iterator<Item = u64> {
        let with = self.by_id.iter().filter(|(_, repair)| repair.items.contains_key(stripe));
        with.map(|(&id, _)| id)
    }

    fn item(&mut self, repair: u64, stripe: &StripeId) -> Option<&mut Item> {
        self.by_id.get_mut(&repair)?.items.get_mut(stripe)
    }

    fn open_for<'a>(&'a self, target: &'a Target) -> impl Iterator<Item = u64> + 'a {
        let open = self.by_id.iter().filter(|(_, repair)| repair.ended_unix_ms.is_none());
        open.filter(move |(_, repair)| repair.order.target == *target).map(|(&id, _)| id)
    }

    pub(crate) fn counters(&self, repair: u64) -> Counters {
        self.scheduler.repair(RepairId(repair)).map_or_else(Counters::default, |state| state.counters)
    }

    pub(crate) fn forget_oldest(&mut self) {
        while self.by_id.len() > REMEMBERED {
            let oldest = self.by_id.iter().find(|(_, repair)| repair.ended_unix_ms.is_some());
            let Some((&oldest, _)) = oldest else { return };
            self.by_id.remove(&oldest);
            self.scheduler.forget(RepairId(oldest));
        }
    }
}

impl Item {
    fn new(id: ItemId, record: &StripeRecord, wanted: &[BlockIndex]) -> Self {
        let name = |index: &BlockIndex| record.blocks[usize::from(index.0)].id.clone();
        Self {
            id,
            block_bytes: record.block_bytes,
            blocks: wanted.iter().map(name).collect(),
            rebuilt: BTreeMap::new(),
            scheme: None,
            parity: None,
            reason: None,
            next_step: None,
            replanned: Vec::new(),
            contradictory: false,
        }
    }

    pub(crate) fn fail(&mut self, reason: String, next_step: &str) {
        self.reason = Some(reason);
        self.next_step = Some(next_step.to_owned());
    }

    fn succeed(&mut self, record: Option<&StripeRecord>, outcome: Outcome) {
        for (index, &node) in &outcome.homes {
            if let Some(record) = record {
                self.rebuilt.insert(record.blocks[usize::from(index.0)].id.clone(), node);
            }
        }
        self.scheme = Some(outcome.scheme);
        self.parity = Some(outcome.parity);
        self.replanned.extend(outcome.replanned);
        (self.reason, self.next_step) = (None, None);
    }
}

/// A plan that is wrong in itself will not become right.
fn failure(error: &JobError) -> Failure {
    match error {
        // What cannot be copied any more, as its node has died, is rebuilt the next time.
        JobError::Plan {
            error:
                PlanError::Decode { .. } | PlanError::DeadRequestor { .. } | PlanError::NothingToMigrate { .. },
            ..
        } => Failure::Transient,
        // The same blocks would say the same again.
        JobError::Plan { .. } | JobError::Contradiction { .. } => Failure::Permanent,
        _ => Failure::Transient,
    }
}
