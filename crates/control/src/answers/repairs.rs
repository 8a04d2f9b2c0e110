//! The API's views of repairs, with the reasons why repairs wait.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use ::views::{
    Condition, HistoryEvent, ItemState, ProgressView, RebuiltBlock, RepairItem, RepairState, RepairView,
};
use recovery::{Estimate, ItemState as Scheduled, RepairId, Target};
use repair::{BlockId, NodeId, StripeId};
use views::Census;

use crate::answers::{Answers, conditions};
use crate::counts::count;
use crate::durations::in_words;
use crate::error::RepairError;
use crate::jobs::RunningJob;
use crate::repairs::ItemPage;
use crate::repairs::claims::Refusal;
use crate::repairs::misplaced::{Waits, moves, open_move};
use crate::repairs::progress::resource_name;
use crate::repairs::repair::{Item, Repair};
use crate::repairs::views::{item_state, version};

impl<'a> Answers<'a> {
    fn progress_view(self, id: u64, repair: &Repair) -> Option<ProgressView> {
        let course = &repair.course;
        course.began?;
        let coming = self.repairs.bytes_coming(self.jobs, id, repair);
        let (done, left) = (repair.bytes_rebuilt + coming, repair.bytes_left(coming));
        let took = course.lasts(self.facts.base.now);
        let running = course.ended.is_none();
        let mean = (took > Duration::ZERO).then(|| (done as f64 / took.as_secs_f64()) as u64);
        let seen = || course.progress.rate().map(|rate| rate as u64).or(mean);
        let rate = if running { seen().filter(|_| course.paused.is_none()) } else { mean };
        let estimate = course.progress.estimate(left).filter(|_| running && course.paused.is_none());
        let limit = match running {
            true => self.repairs.scheduler.limited_by(RepairId(id)),
            false => course.limits.iter().max_by_key(|&(_, &times)| times).map(|(limit, _)| limit.clone()),
        };
        // An ended repair is compared with the bound only if it is complete. If it was faster than the bound,
        // the assumed rates were too low, and the bound is omitted.
        let is_whole = self.repairs.state_of_repair(id, repair) == RepairState::Done && done >= repair.bytes;
        let bound = course.bound.filter(|&bound| running || (is_whole && bound <= took));
        Some(ProgressView {
            rate_bytes_per_s: rate,
            soonest_ms: estimate.map(|Estimate { soonest, .. }| soonest.as_millis() as u64),
            latest_ms: estimate.and_then(|estimate| estimate.latest).map(|latest| latest.as_millis() as u64),
            limited_by: limit.map(|limit| resource_name(self.facts, &limit)),
            elapsed_ms: took.as_millis() as u64,
            bound_ms: bound.map(|bound| bound.as_millis() as u64),
        })
    }

    /// Returns the view of a repair of the one stripe that a plug-in described. Other repairs are reported as
    /// unknown.
    pub(crate) fn given_repair_state(self, id: u64) -> Result<RepairView, RepairError> {
        match self.repairs.queue.by_id.get(&id) {
            Some(repair) if repair.order.given.is_some() => self.repair_state(id),
            _ => Err(RepairError::NoSuchRepair(id)),
        }
    }

    pub(crate) fn check_open(self, id: u64) -> Result<(), RepairError> {
        let repair = self.repairs.queue.by_id.get(&id).ok_or(RepairError::NoSuchRepair(id))?;
        match repair.is_open() {
            true => Ok(()),
            false => Err(RepairError::RepairEnded {
                repair: id,
                state: self.repair_view(id, &ItemPage::NONE).state,
            }),
        }
    }

    /// Returns the view of a repair with its first stripes.
    pub(crate) fn repair_state(self, id: u64) -> Result<RepairView, RepairError> {
        self.repair_page(id, &ItemPage::FIRST)
    }

    /// Returns the view of a repair with a page of its stripes.
    pub(crate) fn repair_page(self, id: u64, page: &ItemPage) -> Result<RepairView, RepairError> {
        if !self.repairs.queue.by_id.contains_key(&id) {
            return Err(RepairError::NoSuchRepair(id));
        }
        Ok(self.repair_view(id, page))
    }

    pub(crate) fn repair_views(self) -> Vec<RepairView> {
        self.repairs.queue.by_id.keys().map(|&id| self.repair_view(id, &ItemPage::NONE)).collect()
    }

    pub(crate) fn open_repairs(self) -> Vec<RepairView> {
        let open = self.repairs.queue.by_id.iter().filter(|(_, repair)| repair.is_open());
        open.map(|(&id, _)| self.repair_view(id, &ItemPage::NONE)).collect()
    }

    /// Returns the version of a repair's view without the view, which takes longer for a repair of many stripes; `None`
    /// if there is no such repair.
    pub(crate) fn repair_version(self, id: u64) -> Option<u64> {
        let repair = self.repairs.queue.by_id.get(&id)?;
        let state = self.repairs.state_of_repair(id, repair);
        Some(version(state, self.repairs.counts(self.jobs, id, repair), repair.ended_unix_ms()))
    }

    /// Returns the view of a repair from its counters, with a page of its stripes.
    pub(crate) fn repair_view(self, id: u64, page: &ItemPage) -> RepairView {
        let repair = &self.repairs.queue.by_id[&id];
        let state = self.repairs.state_of_repair(id, repair);
        let counts = self.repairs.counts(self.jobs, id, repair);
        RepairView {
            repair: id,
            target: self.facts.target_text(&repair.order.target),
            by_itself: repair.order.by_itself,
            policy: repair.order.helpers.name().to_owned(),
            scheme: repair.order.scheme.name().to_owned(),
            state,
            counts,
            started_unix_ms: repair.order.asked_unix_ms,
            ended_unix_ms: repair.ended_unix_ms(),
            progress: self.progress_view(id, repair),
            reasons: self.repairs.reasons(id, repair),
            unknown: repair.end.as_ref().map_or_else(Vec::new, |end| end.unknown.clone()),
            version: version(state, counts, repair.ended_unix_ms()),
            items: self.item_views(repair, page),
        }
    }

    fn item_views(self, repair: &Repair, page: &ItemPage) -> Vec<RepairItem> {
        let first = page.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let items = repair.items.range((first, Bound::Unbounded)).take(page.limit);
        items.map(|(stripe, item)| self.item_view(stripe, item)).collect()
    }

    fn item_view(self, stripe: &StripeId, item: &Item) -> RepairItem {
        let state = self.repairs.scheduler.state(item.id);
        let job = match state {
            Scheduled::Running(job) => self.jobs.running.get(&job).map(RunningJob::view),
            _ => None,
        };
        let rebuilt = |(block, &node): (&BlockId, &NodeId)| RebuiltBlock {
            block: block.to_string(),
            node: self.facts.nodes.name(node),
        };
        let is_waiting = item_state(state) == ItemState::Waiting;
        let refused = self.repairs.claims.refusal(item.id, stripe).filter(|_| is_waiting);
        let next_step = |refused: &Refusal<'_>| {
            let left = in_words(refused.again.saturating_sub(self.facts.base.now));
            let remedy = match refused.is_everywhere {
                true => "add a helper that has no block of the stripe; ",
                false => "",
            };
            format!("{remedy}the store is asked again in {left}")
        };
        RepairItem {
            stripe: stripe.to_string(),
            state: if item.contradictory { ItemState::Contradictory } else { item_state(state) },
            blocks: item.blocks.iter().map(BlockId::to_string).collect(),
            rebuilt: item.rebuilt.iter().map(rebuilt).collect(),
            scheme: item.scheme.map(|scheme| scheme.name().to_owned()),
            parity: item.checks.weakest(),
            reason: item.reason.clone().or_else(|| refused.as_ref().map(|refused| refused.why.to_owned())),
            next_step: item.next_step.clone().or_else(|| refused.as_ref().map(next_step)),
            replanned: item.replanned.clone(),
            job,
            timeline_us: item.timeline.view(),
        }
    }

    /// Returns the status line about misplaced stripes: the repair that moves their blocks, or the reason for
    /// waiting.
    pub(crate) fn misplaced_advice(self, census: &Census) -> Option<String> {
        if census.misplaced == 0 || !self.facts.nodes.settled || self.facts.stripes.newer.is_behind() {
            return None;
        }
        let stripes = count(census.misplaced, "stripe");
        let known = (&self.repairs.queue, &self.repairs.nodes);
        let does = match open_move(&self.repairs.queue) {
            Some(repair) if self.repairs.queue.is_paused(repair) => format!(
                "repair {repair}, which moves blocks to other helpers, is paused; \
                 to continue, run mend resume {repair}"
            ),
            Some(repair) => format!("repair {repair} is moving blocks to other helpers"),
            None => match moves(self.facts, self.jobs, known, &BTreeSet::new()) {
                Ok(_) => match self.repairs.misplaced.tried_again_in(self.facts.base.now) {
                    Some(left) => {
                        format!("moving blocks has failed; the next attempt starts in {}", in_words(left))
                    }
                    None => "their blocks will be moved to other helpers automatically".to_owned(),
                },
                Err(Waits::Helper(node)) => {
                    format!("waiting until {node} is up, because its copies may be better placed")
                }
                Err(Waits::Copies) => "helpers verify better placed copies first".to_owned(),
                Err(Waits::Room) => "no other helper has room: add a helper, or free space".to_owned(),
            },
        };
        Some(format!("{stripes} with several blocks on one helper: {does}"))
    }

    /// Returns the present conditions under which the state of some blocks is unknown, if the result of an ended repair
    /// depends on them: the repair was to rebuild all lost blocks, or found none.
    pub(crate) fn unknown_after(self, id: u64) -> Vec<Condition> {
        let is_of_all = self.repairs.queue.by_id[&id].order.target == Target::All;
        match is_of_all || self.repair_view(id, &ItemPage::NONE).found_nothing() {
            true => conditions::unknown(self),
            false => Vec::new(),
        }
    }

    /// Logs the end of a repair. Returns its final view.
    pub(crate) fn log_end(self, id: u64) -> RepairView {
        let view = self.repair_view(id, &ItemPage::NONE);
        let reason = view.reasons.first().map(|first| first.reason.as_str()).unwrap_or_default();
        tracing::info!(
            repair = id, target = view.target, state = %view.state, blocks = view.counts.blocks_rebuilt,
            failed_stripes = view.counts.stripes_failed, took = in_words(duration_of(&view)), reason,
            "a repair has ended"
        );
        view
    }

    /// Returns the history entry for the end of a repair.
    pub(crate) fn end_of(self, id: u64, view: &RepairView) -> HistoryEvent {
        let repair = &self.repairs.queue.by_id[&id];
        let by_name = |counts: &BTreeMap<NodeId, u64>| -> BTreeMap<String, u64> {
            counts.iter().map(|(&node, &blocks)| (self.facts.nodes.name(node), blocks)).collect()
        };
        HistoryEvent::RepairEnded {
            repair: id,
            target: view.target.clone(),
            by_itself: view.by_itself,
            state: view.state,
            took_ms: duration_of(view).as_millis() as u64,
            blocks: view.counts.blocks_rebuilt,
            bytes: view.counts.bytes_rebuilt,
            moved_blocks: repair.moved.blocks,
            moved_bytes: repair.moved.bytes,
            stripes_failed: view.counts.stripes_failed,
            lost_from: by_name(&repair.lost_from),
            rebuilt_on: by_name(&repair.rebuilt_on),
            reasons: view.reasons.clone(),
            unknown: view.unknown.clone(),
        }
    }
}

/// Returns how long a repair worked; pauses do not count. For a repair that never began, returns the time
/// from its request to its end.
fn duration_of(view: &RepairView) -> Duration {
    let ended = view.ended_unix_ms.unwrap_or_default();
    let worked = view.progress.as_ref().map(|progress| progress.elapsed_ms);
    Duration::from_millis(worked.unwrap_or_else(|| ended.saturating_sub(view.started_unix_ms)))
}
