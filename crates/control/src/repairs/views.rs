//! States, versions and reasons of repairs, for the API.

use std::hash::{DefaultHasher, Hash, Hasher};

use recovery::{End, ItemState as Scheduled, RepairId, Target};
use repair::StripeId;

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::repairs::Repairs;
use crate::repairs::reasons::Reasons;
use crate::repairs::repair::{Item, Repair};
use ::views::{ItemState, RepairCounts, RepairReason, RepairState};

/// Which stripes of a repair a view lists.
#[derive(Clone, Debug)]
pub struct ItemPage {
    /// Lists only stripes whose names come after the name of this stripe.
    pub after: Option<StripeId>,
    /// The maximum number of stripes to list.
    pub limit: usize,
}

impl ItemPage {
    pub(crate) const NONE: Self = Self { after: None, limit: 0 };
    /// The first stripes, for the answers to changes, which must be short.
    pub(crate) const FIRST: Self = Self { after: None, limit: 16 };
}

impl Default for ItemPage {
    fn default() -> Self {
        Self { after: None, limit: usize::MAX }
    }
}

impl Repairs {
    pub(crate) fn state_of_repair(&self, id: u64, repair: &Repair) -> RepairState {
        let counters = self.counters(id);
        if self.scheduler.repair(RepairId(id)).is_some_and(|state| state.cancelled) {
            RepairState::Cancelled
        } else if repair.end.is_some() {
            match counters.failed + counters.unreadable + repair.left_on_node() {
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

    /// Returns the reasons that stripes were not repaired, grouped.
    pub(crate) fn reasons(&self, id: u64, repair: &Repair) -> Vec<RepairReason> {
        let counters = self.counters(id);
        let mut reasons = Reasons::default();
        if counters.failed + counters.unreadable > 0 {
            let ended = |item: &Item| {
                let state = self.scheduler.state(item.id);
                matches!(state, Scheduled::Ended(End::Failed | End::LostAgain | End::Unreadable { .. }))
            };
            repair.items.values().filter(|item| ended(item)).for_each(|item| reasons.add(item));
        } else if repair.left_on_node() > 0 {
            reasons.add_left(repair.left_on_node());
        }
        reasons.into_views()
    }
}

impl Repairs {
    /// Returns the bytes that running jobs of a repair have delivered.
    pub(crate) fn bytes_coming(&self, jobs: &Jobs, id: u64, repair: &Repair) -> u64 {
        let running = self.scheduler.running(RepairId(id));
        let jobs = running.filter_map(|(_, job)| jobs.running.get(&job));
        jobs.filter_map(|running| {
            let (state, item) = (running.job.state(), repair.items.get(&running.stripe)?);
            let share = f64::from(state.delivered) / f64::from(state.slices.max(1));
            Some((share * item.bytes_left() as f64) as u64)
        })
        .sum()
    }

    /// Returns the counters of a repair.
    pub(crate) fn counts(&self, jobs: &Jobs, id: u64, repair: &Repair) -> RepairCounts {
        let counters = self.counters(id);
        RepairCounts {
            stripes: counters.items(),
            stripes_done: counters.done,
            stripes_failed: counters.failed + counters.unreadable,
            blocks_rebuilt: repair.blocks_rebuilt,
            bytes_rebuilt: repair.bytes_rebuilt + self.bytes_coming(jobs, id, repair),
            bytes: repair.bytes,
        }
    }
}

impl<'a> Facts<'a> {
    /// Returns the target of a repair as text, with node names.
    pub(crate) fn target_text(self, target: &Target) -> String {
        match target {
            Target::Node(node) => format!("node {}", self.nodes.name(*node)),
            Target::Drain(node) => format!("drain {}", self.nodes.name(*node)),
            target => target.to_string(),
        }
    }
}

/// Returns a number that changes with the state and the counters of a repair, but not with its estimates.
pub(crate) fn version(state: RepairState, counts: RepairCounts, ended_unix_ms: Option<u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (state.name(), counts, ended_unix_ms).hash(&mut hasher);
    hasher.finish() >> 12 // 52 bits, which a JavaScript number (a double) holds exactly.
}

pub(crate) fn item_state(place: Scheduled) -> ItemState {
    match place {
        Scheduled::Waiting | Scheduled::BackingOff { .. } | Scheduled::SetAside => ItemState::Waiting,
        Scheduled::Running(_) => ItemState::Running,
        Scheduled::Ended(End::Repaired | End::NothingLost) => ItemState::Done,
        Scheduled::Ended(End::Failed | End::LostAgain) => ItemState::Failed,
        Scheduled::Ended(End::Unreadable { .. }) => ItemState::Unrepairable,
        Scheduled::Ended(End::Cancelled) => ItemState::Cancelled,
    }
}
