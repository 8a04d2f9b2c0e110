//! Repairs: what is asked for is cut into stripes, and the stripes with the least left come first.
//!
//! A repair is kept in the catalog until it ends, so that a coordinator that starts again takes it up anew.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::{
    BlockId, JobError, JobId, JobRequest, NodeId, Outcome, ParityOutcome, PlanError, Scheme, Stripe,
    StripeId, Verify, Wanted,
};
use serde::{Deserialize, Serialize};
use stores::{Catalog, CatalogError, StripeRecord};

use super::jobs::Owner;
use super::requests::policy;
use super::stripes::indexed;
use super::{Core, log_error, unix_ms};
use crate::error::{RequestError, list};
use crate::placement::spread;
use views::{RebuiltBlock, RepairItem, RepairRequest, RepairView};

/// Stripes under repair at once.
const STRIPES_AT_ONCE: usize = 4;
/// A stripe whose repair fails is tried so often, as nodes may have come or gone.
const ATTEMPTS: u32 = 3;
/// A stripe of which further blocks are found lost during its repair is repaired so often.
const ROUNDS: u32 = 16;
/// Repairs that have ended and are remembered.
const REMEMBERED: usize = 100;
/// Keys of repairs in the catalog's queue begin with this.
const QUEUE_PREFIX: &str = "repair/";

/// All repairs since the start.
#[derive(Default)]
pub(super) struct Repairs {
    repairs: BTreeMap<u64, Repair>,
}

struct Repair {
    order: Order,
    /// Whether its stripes are known: not before helpers had time to come back after a start.
    expanded: bool,
    cancelled: bool,
    items: BTreeMap<StripeId, Item>,
    started_unix_ms: u64,
    ended_unix_ms: Option<u64>,
}

/// What was asked for, as it is kept in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    target: Target,
    scheme: Scheme,
    slice_bytes: Option<u32>,
    verify_parity: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Target {
    Block(BlockId),
    Stripe(StripeId),
    All,
}

/// A stripe of a repair.
struct Item {
    state: ItemState,
    /// Further blocks that it can lose; `None` if it cannot be read. Fewer come first.
    survives: Option<u32>,
    block_bytes: u64,
    blocks: Vec<BlockId>,
    rebuilt: BTreeMap<BlockId, NodeId>,
    attempts: u32,
    scheme: Option<Scheme>,
    parity: Option<ParityOutcome>,
    reason: Option<String>,
    next_step: Option<String>,
    replanned: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemState {
    Waiting,
    Running(JobId),
    Done,
    Failed,
    Unrepairable,
    /// Its blocks contradict each other, and nothing tells which of them is wrong.
    Contradictory,
    Cancelled,
}

/// Why the repair of a stripe cannot be started.
struct Obstacle {
    state: ItemState,
    reason: String,
    next_step: String,
}

impl Core {
    pub(super) fn queue_repair(&mut self, request: &RepairRequest) -> Result<RepairView, RequestError> {
        self.check_not_behind()?;
        let order = self.order(request)?;
        let id = self.catalog.next_job_id()?.0;
        let record = serde_json::to_value(&order).expect("an order has string keys");
        self.catalog.queue_put(&queue_key(id), &record)?;
        tracing::info!(repair = id, target = %order.target, scheme = %order.scheme, "repair asked for");
        self.repairs.add(id, order);
        self.start_repairs();
        self.repair_state(id)
    }

    fn order(&self, request: &RepairRequest) -> Result<Order, RequestError> {
        let target = match (&request.block, &request.stripe, request.all) {
            (Some(block), None, false) => Target::Block(BlockId(block.clone())),
            (None, Some(stripe), false) => Target::Stripe(StripeId(stripe.clone())),
            (None, None, true) => Target::All,
            _ => {
                let text = "a repair needs exactly one of `block`, `stripe` and `all`";
                return Err(RequestError::Malformed(text.into()));
            }
        };
        // People leave eras out of names; records of the queue do not.
        let target = match target {
            Target::Block(block) => {
                let (stripe, index) = self.catalog.find_block(&block)?;
                Target::Block(self.catalog.stripe(&stripe)?.blocks[usize::from(index.0)].id.clone())
            }
            Target::Stripe(stripe) => Target::Stripe(self.catalog.stripe(&stripe)?.id),
            Target::All => Target::All,
        };
        Ok(Order {
            target,
            scheme: self.scheme(request.scheme.as_deref())?,
            slice_bytes: request.slice_bytes,
            verify_parity: request.verify_parity.unwrap_or(true),
        })
    }

    pub(super) fn scheme(&self, asked: Option<&str>) -> Result<Scheme, RequestError> {
        Ok(asked.unwrap_or(&self.settings.scheme).parse()?)
    }

    /// Repairs that an earlier coordinator did not end start anew.
    pub(super) fn requeue_repairs(&mut self) -> Result<(), CatalogError> {
        for (key, record) in self.catalog.queue_list(QUEUE_PREFIX)? {
            let id = key.strip_prefix(QUEUE_PREFIX).and_then(|id| id.parse().ok());
            match (id, serde_json::from_value(record)) {
                (Some(id), Ok(order)) => self.repairs.add(id, order),
                _ => {
                    tracing::warn!(key, "a queued repair that cannot be read is dropped");
                    self.catalog.queue_remove(&key)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn start_repairs(&mut self) {
        if !self.settled || self.is_behind() {
            return;
        }
        self.expand_repairs();
        while self.repairs.running() < STRIPES_AT_ONCE {
            let busy: BTreeSet<&StripeId> = self.publishing_stripes().collect();
            let Some((repair, stripe)) = self.repairs.most_urgent(&busy) else { break };
            self.start_item(repair, &stripe);
        }
        self.end_repairs();
    }

    fn publishing_stripes(&self) -> impl Iterator<Item = &StripeId> {
        self.jobs.values().filter(|running| !running.targets.is_empty()).map(|running| &running.stripe)
    }

    fn expand_repairs(&mut self) {
        for id in self.repairs.unexpanded() {
            let target = self.repairs.repairs[&id].order.target.clone();
            let items = self.items(&target);
            let repair = self.repairs.repairs.get_mut(&id).expect("it was just there");
            repair.items = log_error(items).unwrap_or_default();
            repair.expanded = true;
        }
    }

    fn items(&mut self, target: &Target) -> Result<BTreeMap<StripeId, Item>, CatalogError> {
        let records = match target {
            Target::Block(block) => vec![self.catalog.stripe(&self.catalog.find_block(block)?.0)?],
            Target::Stripe(stripe) => vec![self.catalog.stripe(stripe)?],
            Target::All => self.damaged_stripes()?,
        };
        let mut items = BTreeMap::new();
        for record in records {
            let lost = self.wanted_of(target, &record);
            items.insert(record.id.clone(), self.item(&record, &lost));
        }
        Ok(items)
    }

    fn item(&mut self, record: &StripeRecord, wanted: &[BlockIndex]) -> Item {
        let lost = self.lost_blocks(record);
        let code = self.codes.get(&record.code).ok();
        Item {
            state: ItemState::Waiting,
            survives: code.and_then(|code| self.risks.survives(&*code, &lost)),
            block_bytes: record.block_bytes,
            blocks: names(record, wanted),
            rebuilt: BTreeMap::new(),
            attempts: 0,
            scheme: None,
            parity: None,
            reason: None,
            next_step: None,
            replanned: Vec::new(),
        }
    }

    fn damaged_stripes(&self) -> Result<Vec<StripeRecord>, CatalogError> {
        let mut damaged = Vec::new();
        self.catalog.each_stripe(&mut |record| {
            if !self.lost_blocks(&record).is_empty() {
                damaged.push(record);
            }
        })?;
        Ok(damaged)
    }

    /// The lost blocks that a repair is to rebuild.
    fn wanted_of(&self, target: &Target, record: &StripeRecord) -> Vec<BlockIndex> {
        let mut lost = self.lost_blocks(record);
        if let Target::Block(block) = target {
            let index = Self::index_of(record, block);
            lost.retain(|&lost| Some(lost) == index);
        }
        lost
    }

    fn start_item(&mut self, repair: u64, id: &StripeId) {
        let order = self.repairs.repairs[&repair].order.clone();
        let started = self.try_start(repair, &order, id);
        let item = self.repairs.item(repair, id).expect("it was most urgent");
        match started {
            Ok(Some((job, blocks))) => {
                let new = blocks.into_iter().filter(|block| !item.blocks.contains(block));
                item.blocks.extend(new.collect::<Vec<_>>());
                item.attempts += 1;
                item.state = ItemState::Running(job);
            }
            Ok(None) => {
                item.state = ItemState::Done;
                if item.rebuilt.is_empty() {
                    item.reason = Some("nothing is lost".into());
                }
            }
            Err(obstacle) => {
                item.state = obstacle.state;
                item.reason = Some(obstacle.reason);
                item.next_step = Some(obstacle.next_step);
            }
        }
    }

    fn try_start(
        &mut self,
        repair: u64,
        order: &Order,
        id: &StripeId,
    ) -> Result<Option<(JobId, Vec<BlockId>)>, Obstacle> {
        let failed = |error: RequestError| Obstacle {
            state: ItemState::Failed,
            reason: error.to_string(),
            next_step: error.next_step(),
        };
        let record = self.stripe_record(id).map_err(failed)?;
        let wanted = self.wanted_of(&order.target, &record);
        if wanted.is_empty() {
            return Ok(None);
        }
        let stripe = self.stripe_now(&record, &[]).map_err(failed)?;
        self.check_decodable(&record, &stripe, &wanted)?;
        let wanted = self.requestors(&record, &wanted)?;
        let blocks = wanted.iter().map(|wanted| stripe.block(wanted.block).id.clone()).collect();
        let request = JobRequest {
            job: self.catalog.next_job_id().map_err(|error| failed(error.into()))?,
            window: 0..stripe.sub_block_bytes(),
            sub_blocks: None,
            policy: policy(order.scheme, order.slice_bytes),
            verify: Verify { parity: order.verify_parity, reread: true },
            publish: true,
            tag: None,
            stripe,
            wanted,
        };
        Ok(Some((self.start_job(Owner::Repair { repair }, request), blocks)))
    }

    fn check_decodable(
        &self,
        record: &StripeRecord,
        stripe: &Stripe,
        wanted: &[BlockIndex],
    ) -> Result<(), Obstacle> {
        let available: Vec<BlockIndex> = stripe.held().map(|(index, _)| index).collect();
        let Err(error) = stripe.code.repair(wanted, &available) else { return Ok(()) };
        let (n, lost) = (record.blocks.len(), record.blocks.len() - available.len());
        let most = n - stripe.code.data_blocks();
        let reason = if lost > most {
            format!("{lost} of {n} blocks lost, at most {most} can be")
        } else {
            format!("{lost} of {n} blocks lost, and the others do not determine them: {error}")
        };
        Err(Obstacle { state: ItemState::Unrepairable, reason, next_step: self.bring_back(record) })
    }

    /// What could make a stripe repairable that is not.
    fn bring_back(&self, record: &StripeRecord) -> String {
        let down =
            indexed(record).filter_map(|(_, block)| block.node).filter(|node| !self.peers.contains_key(node));
        let down: BTreeSet<String> = down.map(|node| self.name(node)).collect();
        if down.is_empty() {
            return "restore the bad blocks' files from a backup of their helpers, then run mend scrub and mend \
                    repair --all"
                .to_owned();
        }
        let names: Vec<String> = down.into_iter().collect();
        format!("bring {} back, then run mend repair --all", names.join(" or "))
    }

    /// A node for each wanted block: the one that had it if it is up, or else one that has none of the stripe.
    fn requestors(&mut self, record: &StripeRecord, wanted: &[BlockIndex]) -> Result<Vec<Wanted>, Obstacle> {
        let mut candidates = self.candidates(record.block_bytes);
        // A removal under way must not hit the new copy.
        candidates.retain(|candidate| {
            !record.blocks.iter().any(|block| self.is_removing(candidate.node, &block.id))
        });
        let roomy: BTreeSet<NodeId> = candidates.iter().map(|candidate| candidate.node).collect();
        let home = |block: BlockIndex| record.blocks[usize::from(block.0)].node;
        let (stay, moving): (Vec<BlockIndex>, Vec<BlockIndex>) =
            wanted.iter().partition(|&&block| home(block).is_some_and(|home| roomy.contains(&home)));
        let mut chosen: Vec<Wanted> =
            stay.into_iter().filter_map(|block| Some(Wanted { block, requestor: home(block)? })).collect();
        let holders: BTreeSet<NodeId> = record.blocks.iter().filter_map(|block| block.node).collect();
        let free: Vec<_> =
            candidates.into_iter().filter(|candidate| !holders.contains(&candidate.node)).collect();
        let count = moving.len().min(free.len());
        if chosen.is_empty() && count == 0 {
            return Err(self.no_room(record, moving.len()));
        }
        let nodes = spread(free, self.racks_of(record), count, &mut self.rng).unwrap_or_default();
        chosen.extend(moving.into_iter().zip(nodes).map(|(block, requestor)| Wanted { block, requestor }));
        chosen.sort_by_key(|wanted| wanted.block);
        Ok(chosen)
    }

    fn racks_of(&self, record: &StripeRecord) -> BTreeMap<String, usize> {
        let mut racks = BTreeMap::new();
        for node in record.blocks.iter().filter_map(|block| self.readable_at(block)) {
            if let Some(rack) = self.topology.get(node).and_then(|view| view.rack.clone()) {
                *racks.entry(rack).or_default() += 1;
            }
        }
        racks
    }

    fn no_room(&self, record: &StripeRecord, blocks: usize) -> Obstacle {
        let down = self.down_helpers();
        Obstacle {
            state: ItemState::Failed,
            reason: format!(
                "{blocks} of its blocks need a live helper that holds no other block of the stripe and has {} \
                 bytes free, and there is none (down: {})",
                record.block_bytes,
                list(&down)
            ),
            next_step: "start helpers that are down, add a helper or make room, then run mend repair --all"
                .into(),
        }
    }

    /// A job of a repair has ended.
    pub(super) fn repair_ended(
        &mut self,
        repair: u64,
        stripe: &StripeId,
        trouble: Option<String>,
        result: Result<Outcome, JobError>,
    ) {
        let target = self.repairs.repairs.get(&repair).map(|repair| repair.order.target.clone());
        let Some(target) = target else { return };
        let record = self.catalog.stripe(stripe).ok();
        // Blocks that could not be placed with the others, or were found bad meanwhile.
        let left = record.as_ref().map_or(0, |record| self.wanted_of(&target, record).len());
        let Some(item) = self.repairs.item(repair, stripe) else { return };
        match (result, trouble) {
            (_, Some(trouble)) => item.fail(trouble, "look at the coordinator's log and disk"),
            (Ok(outcome), None) => {
                item.succeed(record.as_ref(), outcome);
                item.state = if left == 0 { ItemState::Done } else { ItemState::Waiting };
                if left > 0 && item.attempts >= ROUNDS {
                    item.fail(
                        "its blocks are lost again and again".into(),
                        "look at mend status for bad disks",
                    );
                }
            }
            (Err(JobError::Cancelled), None) => item.state = ItemState::Cancelled,
            (Err(error), None) => item.retry_or_fail(&error),
        }
    }

    /// Forgets what ended: its record in the catalog at once, the rest when there are many.
    fn end_repairs(&mut self) {
        for id in self.repairs.just_ended() {
            log_error(self.catalog.queue_remove(&queue_key(id)));
            let view = self.repair_view(id, false);
            tracing::info!(repair = id, state = view.state, blocks = view.blocks_rebuilt, "repair ended");
        }
        self.repairs.forget_oldest();
    }

    pub(super) fn cancel_repair(&mut self, id: u64) -> Result<RepairView, RequestError> {
        let repair = self.repairs.repairs.get_mut(&id).ok_or(RequestError::NoSuchRepair(id))?;
        repair.cancelled = repair.ended_unix_ms.is_none();
        repair.expanded = true;
        let mut jobs = Vec::new();
        for item in repair.items.values_mut() {
            match item.state {
                ItemState::Waiting => item.state = ItemState::Cancelled,
                ItemState::Running(job) => jobs.push(job),
                _ => {}
            }
        }
        jobs.into_iter().for_each(|job| self.cancel_job(job));
        self.drain_jobs();
        self.end_repairs();
        self.repair_state(id)
    }

    /// Stripes that have been removed need no repair.
    pub(super) fn drop_repairs_of(&mut self, stripes: &[StripeId]) {
        let jobs: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, running)| matches!(running.owner, Owner::Repair { .. }))
            .filter(|(_, running)| stripes.contains(&running.stripe))
            .map(|(&job, _)| job)
            .collect();
        jobs.into_iter().for_each(|job| self.cancel_job(job));
        self.drain_jobs();
        for item in self.repairs.repairs.values_mut().flat_map(|repair| &mut repair.items) {
            if stripes.contains(item.0) && item.1.state == ItemState::Waiting {
                item.1.state = ItemState::Cancelled;
            }
        }
    }

    pub(super) fn repair_state(&self, id: u64) -> Result<RepairView, RequestError> {
        if !self.repairs.repairs.contains_key(&id) {
            return Err(RequestError::NoSuchRepair(id));
        }
        Ok(self.repair_view(id, true))
    }

    pub(super) fn repair_views(&self) -> Vec<RepairView> {
        self.repairs.repairs.keys().map(|&id| self.repair_view(id, false)).collect()
    }

    pub(super) fn open_repairs(&self) -> Vec<RepairView> {
        let open = self.repairs.repairs.iter().filter(|(_, repair)| repair.ended_unix_ms.is_none());
        open.map(|(&id, _)| self.repair_view(id, false)).collect()
    }

    fn repair_view(&self, id: u64, items: bool) -> RepairView {
        let repair = &self.repairs.repairs[&id];
        let count = |states: &[ItemState]| {
            repair.items.values().filter(|item| states.contains(&item.state)).count() as u64
        };
        let bytes = |item: &Item| item.blocks.len() as u64 * item.block_bytes;
        RepairView {
            repair: id,
            target: repair.order.target.to_string(),
            scheme: repair.order.scheme.name().to_owned(),
            state: repair.state_name().to_owned(),
            stripes: repair.items.len() as u64,
            stripes_done: count(&[ItemState::Done]),
            stripes_failed: count(&ItemState::ENDED_BADLY),
            blocks_rebuilt: repair.items.values().map(|item| item.rebuilt.len() as u64).sum(),
            bytes_rebuilt: repair.items.values().map(|item| self.bytes_rebuilt(item)).sum(),
            bytes: repair.items.values().map(bytes).sum(),
            started_unix_ms: repair.started_unix_ms,
            ended_unix_ms: repair.ended_unix_ms,
            items: if items { self.item_views(repair) } else { Vec::new() },
        }
    }

    fn bytes_rebuilt(&self, item: &Item) -> u64 {
        let done = item.rebuilt.len() as u64 * item.block_bytes;
        let ItemState::Running(job) = item.state else { return done };
        let state = self.jobs.get(&job).map(|running| running.job.state());
        let share = state.map_or(0.0, |state| f64::from(state.delivered) / f64::from(state.slices.max(1)));
        let coming = item.blocks.iter().filter(|block| !item.rebuilt.contains_key(block)).count() as u64;
        done + (share * (coming * item.block_bytes) as f64) as u64
    }

    fn item_views(&self, repair: &Repair) -> Vec<RepairItem> {
        repair.items.iter().map(|(stripe, item)| self.item_view(stripe, item)).collect()
    }

    fn item_view(&self, stripe: &StripeId, item: &Item) -> RepairItem {
        let job = match item.state {
            ItemState::Running(job) => self.jobs.get(&job).map(super::jobs::Running::view),
            _ => None,
        };
        let rebuilt = |(block, &node): (&BlockId, &NodeId)| RebuiltBlock {
            block: block.to_string(),
            node: self.name(node),
        };
        RepairItem {
            stripe: stripe.to_string(),
            state: item.state.name().to_owned(),
            blocks: item.blocks.iter().map(BlockId::to_string).collect(),
            rebuilt: item.rebuilt.iter().map(rebuilt).collect(),
            scheme: item.scheme.map(|scheme| scheme.name().to_owned()),
            parity: item.parity.map(|parity| parity_name(parity).to_owned()),
            reason: item.reason.clone(),
            next_step: item.next_step.clone(),
            replanned: item.replanned.clone(),
            job,
        }
    }
}

impl Repairs {
    fn add(&mut self, id: u64, order: Order) {
        let repair = Repair {
            order,
            expanded: false,
            cancelled: false,
            items: BTreeMap::new(),
            started_unix_ms: unix_ms(),
            ended_unix_ms: None,
        };
        self.repairs.insert(id, repair);
    }

    fn item(&mut self, repair: u64, stripe: &StripeId) -> Option<&mut Item> {
        self.repairs.get_mut(&repair)?.items.get_mut(stripe)
    }

    fn unexpanded(&self) -> Vec<u64> {
        self.repairs.iter().filter(|(_, repair)| !repair.expanded).map(|(&id, _)| id).collect()
    }

    fn running(&self) -> usize {
        let items = self.repairs.values().flat_map(|repair| repair.items.values());
        items.filter(|item| matches!(item.state, ItemState::Running(_))).count()
    }

    /// The waiting stripe that can lose the fewest further blocks, unless it is worked on. Stripes that cannot
    /// be read come last: nothing can be done for them now.
    fn most_urgent(&self, busy: &BTreeSet<&StripeId>) -> Option<(u64, StripeId)> {
        let waiting = self.repairs.iter().flat_map(|(&id, repair)| {
            let items = repair.items.iter().filter(|(_, item)| item.state == ItemState::Waiting);
            items.map(move |(stripe, item)| (id, stripe, item))
        });
        waiting
            .filter(|(_, stripe, _)| !busy.contains(stripe))
            .min_by_key(|(id, stripe, item)| {
                (item.survives.is_none(), item.survives, Reverse(item.blocks.len()), *id, *stripe)
            })
            .map(|(id, stripe, _)| (id, stripe.clone()))
    }

    /// Marks the repairs of which nothing is left to do, and names them.
    fn just_ended(&mut self) -> Vec<u64> {
        let mut ended = Vec::new();
        for (&id, repair) in &mut self.repairs {
            if repair.ended_unix_ms.is_none() && repair.is_over() {
                repair.ended_unix_ms = Some(unix_ms());
                ended.push(id);
            }
        }
        ended
    }

    fn forget_oldest(&mut self) {
        while self.repairs.len() > REMEMBERED {
            let oldest = self.repairs.iter().find(|(_, repair)| repair.ended_unix_ms.is_some());
            let Some((&oldest, _)) = oldest else { return };
            self.repairs.remove(&oldest);
        }
    }
}

impl Repair {
    fn is_over(&self) -> bool {
        let open = |item: &Item| matches!(item.state, ItemState::Waiting | ItemState::Running(_));
        self.expanded && !self.items.values().any(open)
    }

    fn state_name(&self) -> &'static str {
        let any = |states: &[ItemState]| self.items.values().any(|item| states.contains(&item.state));
        if self.cancelled {
            "cancelled"
        } else if self.ended_unix_ms.is_some() || self.is_over() {
            if any(&ItemState::ENDED_BADLY) { "failed" } else { "done" }
        } else if self.items.values().all(|item| item.state == ItemState::Waiting) {
            "waiting"
        } else {
            "running"
        }
    }
}

impl Item {
    fn fail(&mut self, reason: String, next_step: &str) {
        self.state = ItemState::Failed;
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

    fn retry_or_fail(&mut self, error: &JobError) {
        let reason = error.to_string();
        // A plan that is wrong in itself will not become right.
        let hopeless = matches!(
            error,
            JobError::Plan { error, .. }
                if !matches!(error, PlanError::Decode { .. } | PlanError::DeadRequestor { .. })
        );
        if self.attempts >= ATTEMPTS && matches!(error, JobError::Contradiction { .. }) {
            self.fail(
                reason,
                "nothing was published; start helpers that are down, so that more blocks can bear witness, then repair \
                 again; what cannot be settled so must be put again from another copy",
            );
            self.state = ItemState::Contradictory;
            return;
        }
        if hopeless || self.attempts >= ATTEMPTS {
            return self.fail(reason, "look at mend status for helpers that are down, then repair again");
        }
        self.state = ItemState::Waiting;
        self.replanned.push(reason);
    }
}

impl ItemState {
    /// Ends without the blocks that were wanted, and not at anybody's wish.
    const ENDED_BADLY: [Self; 3] = [Self::Failed, Self::Unrepairable, Self::Contradictory];

    fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running(_) => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Unrepairable => "unrepairable",
            Self::Contradictory => "contradictory",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Block(block) => write!(f, "block {block}"),
            Self::Stripe(stripe) => write!(f, "stripe {stripe}"),
            Self::All => f.write_str("all"),
        }
    }
}

fn parity_name(parity: ParityOutcome) -> &'static str {
    match parity {
        ParityOutcome::NotAsked => "not-asked",
        ParityOutcome::NoSpareBlock => "no-spare-block",
        ParityOutcome::Holds => "holds",
    }
}

fn names(record: &StripeRecord, indices: &[BlockIndex]) -> Vec<BlockId> {
    indices.iter().map(|index| record.blocks[usize::from(index.0)].id.clone()).collect()
}

fn queue_key(id: u64) -> String {
    format!("{QUEUE_PREFIX}{id:020}")
}
