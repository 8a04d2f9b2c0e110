//! Repairs as people see them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;

use repair::recovery::{End, ItemState as Place, RepairId, Target};
use repair::{BlockId, NodeId, ParityOutcome, StripeId};

use crate::answers::Answers;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::jobs::RunningJob;
use crate::repairs::Repairs;
use crate::repairs::reasons::Reasons;
use crate::repairs::{Item, Repair, RequestError};
use ::views::{ItemState, ParityCheck, RebuiltBlock, RepairItem, RepairReason, RepairState, RepairView};

/// Which stripes of a repair a view lists.
#[derive(Clone, Debug)]
pub struct ItemPage {
    /// Only stripes whose names come after this one.
    pub after: Option<StripeId>,
    /// The most stripes in the view.
    pub limit: usize,
}

impl ItemPage {
    pub(crate) const NONE: Self = Self { after: None, limit: 0 };
}

impl Default for ItemPage {
    fn default() -> Self {
        Self { after: None, limit: usize::MAX }
    }
}

impl<'a> Answers<'a> {
    pub(crate) fn repair_state(self, id: u64) -> Result<RepairView, RequestError> {
        self.repair_page(id, &ItemPage::default())
    }

    /// A repair with some of its stripes.
    pub(crate) fn repair_page(self, id: u64, page: &ItemPage) -> Result<RepairView, RequestError> {
        if !self.repairs.by_id.contains_key(&id) {
            return Err(RequestError::NoSuchRepair(id));
        }
        Ok(self.repair_view(id, page))
    }

    pub(crate) fn repair_views(self) -> Vec<RepairView> {
        self.repairs.by_id.keys().map(|&id| self.repair_view(id, &ItemPage::NONE)).collect()
    }

    pub(crate) fn open_repairs(self) -> Vec<RepairView> {
        let open = self.repairs.by_id.iter().filter(|(_, repair)| repair.ended_unix_ms.is_none());
        open.map(|(&id, _)| self.repair_view(id, &ItemPage::NONE)).collect()
    }

    /// A repair by its counters, with some of its stripes.
    pub(crate) fn repair_view(self, id: u64, page: &ItemPage) -> RepairView {
        let repair = &self.repairs.by_id[&id];
        let counters = self.repairs.counters(id);
        let mut view = RepairView {
            repair: id,
            target: self.facts.target_text(&repair.order.target),
            by_itself: repair.order.by_itself,
            policy: repair.order.helpers.name().to_owned(),
            scheme: repair.order.scheme.name().to_owned(),
            state: self.repairs.state_of_repair(id, repair),
            stripes: counters.items(),
            stripes_done: counters.done,
            stripes_failed: counters.failed + counters.unreadable,
            blocks_rebuilt: repair.blocks_rebuilt,
            bytes_rebuilt: repair.bytes_rebuilt + self.repairs.bytes_coming(self.jobs, id, repair),
            bytes: repair.bytes,
            started_unix_ms: repair.order.asked_unix_ms,
            ended_unix_ms: repair.ended_unix_ms,
            progress: self.progress_view(id, repair),
            reasons: self.repairs.reasons(id, repair),
            version: 0,
            items: self.item_views(repair, page),
        };
        view.version = version(&view);
        view
    }

    fn item_views(self, repair: &Repair, page: &ItemPage) -> Vec<RepairItem> {
        let first = page.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let items = repair.items.range((first, Bound::Unbounded)).take(page.limit);
        items.map(|(stripe, item)| self.item_view(stripe, item)).collect()
    }

    fn item_view(self, stripe: &StripeId, item: &Item) -> RepairItem {
        let state = self.repairs.scheduler.state(item.id);
        let job = match state {
            Place::Running(job) => self.jobs.running.get(&job).map(RunningJob::view),
            _ => None,
        };
        let rebuilt = |(block, &node): (&BlockId, &NodeId)| RebuiltBlock {
            block: block.to_string(),
            node: self.facts.nodes.name(node),
        };
        RepairItem {
            stripe: stripe.to_string(),
            state: if item.contradictory { ItemState::Contradictory } else { item_state(state) },
            blocks: item.blocks.iter().map(BlockId::to_string).collect(),
            rebuilt: item.rebuilt.iter().map(rebuilt).collect(),
            scheme: item.scheme.map(|scheme| scheme.name().to_owned()),
            parity: item.parity.map(parity_check),
            reason: item.reason.clone(),
            next_step: item.next_step.clone(),
            replanned: item.replanned.clone(),
            job,
        }
    }
}

impl Repairs {
    pub(super) fn state_of_repair(&self, id: u64, repair: &Repair) -> RepairState {
        let counters = self.counters(id);
        if self.scheduler.repair(RepairId(id)).is_some_and(|state| state.cancelled) {
            RepairState::Cancelled
        } else if repair.ended_unix_ms.is_some() {
            match counters.failed + counters.unreadable + repair.left_on_node {
                0 => RepairState::Done,
                _ => RepairState::Failed,
            }
        } else if repair.order.paused {
            RepairState::Paused
        } else if counters.waiting == counters.items() {
            RepairState::Waiting
        } else {
            RepairState::Running
        }
    }

    /// Why stripes were not repaired, those that failed alike together.
    pub(super) fn reasons(&self, id: u64, repair: &Repair) -> Vec<RepairReason> {
        let counters = self.counters(id);
        let mut reasons = Reasons::default();
        if counters.failed + counters.unreadable > 0 {
            let ended = |item: &Item| {
                let state = self.scheduler.state(item.id);
                matches!(state, Place::Ended(End::Failed | End::LostAgain | End::Unreadable { .. }))
            };
            repair.items.values().filter(|item| ended(item)).for_each(|item| reasons.add(item));
        } else if repair.left_on_node > 0 {
            reasons.add_left(repair.left_on_node);
        }
        reasons.into_views()
    }
}

impl Repairs {
    /// What running jobs of a repair have delivered.
    pub(super) fn bytes_coming(&self, jobs: &Jobs, id: u64, repair: &Repair) -> u64 {
        let running = self.scheduler.running(RepairId(id));
        let jobs = running.filter_map(|(_, job)| jobs.running.get(&job));
        jobs.filter_map(|running| {
            let (state, item) = (running.job.state(), repair.items.get(&running.stripe)?);
            let share = f64::from(state.delivered) / f64::from(state.slices.max(1));
            let coming = item.blocks.iter().filter(|block| !item.rebuilt.contains_key(block)).count() as u64;
            Some((share * (coming * item.block_bytes) as f64) as u64)
        })
        .sum()
    }
}

impl<'a> Facts<'a> {
    /// What a repair is about, with names.
    pub(crate) fn target_text(self, target: &Target) -> String {
        match target {
            Target::Node(node) => format!("node {}", self.nodes.name(*node)),
            Target::Drain(node) => format!("drain {}", self.nodes.name(*node)),
            target => target.to_string(),
        }
    }
}

/// A number that changes with the state and the counters of a repair. Estimates change all the time and have no part in it.
fn version(view: &RepairView) -> u64 {
    let mut hasher = DefaultHasher::new();
    (view.state.name(), view.stripes, view.stripes_done, view.stripes_failed).hash(&mut hasher);
    (view.blocks_rebuilt, view.bytes_rebuilt, view.bytes, view.ended_unix_ms).hash(&mut hasher);
    hasher.finish() >> 12 // A double, as JavaScript has, holds it exactly.
}

fn item_state(place: Place) -> ItemState {
    match place {
        Place::Waiting | Place::BackingOff { .. } | Place::SetAside => ItemState::Waiting,
        Place::Running(_) => ItemState::Running,
        Place::Ended(End::Repaired | End::NothingLost) => ItemState::Done,
        Place::Ended(End::Failed | End::LostAgain) => ItemState::Failed,
        Place::Ended(End::Unreadable { .. }) => ItemState::Unrepairable,
        Place::Ended(End::Cancelled) => ItemState::Cancelled,
    }
}

fn parity_check(parity: ParityOutcome) -> ParityCheck {
    match parity {
        ParityOutcome::NotAsked => ParityCheck::NotAsked,
        ParityOutcome::NoSpareBlock => ParityCheck::NoSpareBlock,
        ParityOutcome::Holds => ParityCheck::Holds,
        ParityOutcome::Overruled => ParityCheck::Overruled,
    }
}
