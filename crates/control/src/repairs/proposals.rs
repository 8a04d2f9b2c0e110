//! Turns proposals of the scheduler into admitted jobs, and pauses such jobs.

use std::time::Duration;

use codes::BlockIndex;
use recovery::{End, HelperPolicy, ItemState, JOBS_AT_ONCE, Kind, Loads, Placement, Proposal, RepairId};
use repair::{BlockId, JobId, JobPhase, JobRequest, StripeId, Wanted};
use store_api::StripeRecord;
use views::RepairStep;

use crate::facts::Facts;
use crate::jobs::owner::Owner;
use crate::jobs::{Jobs, RunningJob};
use crate::out::Out;
use crate::repairs::Repairs;
use crate::repairs::obstacle::Obstacle;
use crate::repairs::orders::Order;

/// A job of m-PPR is late when it takes this many times as long as its plan would take without other jobs,
/// plus `LATE_AFTER`. The factor is twice the number of jobs that share a node, so no job is late merely
/// because it shares nodes evenly.
const LATE_TIMES: u32 = 2 * JOBS_AT_ONCE as u32;
/// The constant part of the time after which a job is late. Without it, a short job would be late at once.
const LATE_AFTER: Duration = Duration::from_secs(10);

/// A job that is ready to start, and its blocks.
pub(crate) struct Prepared {
    pub request: JobRequest,
    pub blocks: Vec<BlockId>,
}

/// The result of preparing a proposal.
enum Preparation {
    Ready(Box<Prepared>),
    /// The proposal was put back into the scheduler.
    Later,
    NothingLost,
}

/// The next state of a paused job.
pub(crate) enum Pause {
    Lasts,
    /// The job has ended.
    Over,
    /// There is budget for the job.
    Resumes,
    /// Another repair waits for the stripe.
    GivesWay,
}

impl Repairs {
    /// Prepares the job of a proposal. If this returns `None`, the proposal was already put back or declined.
    pub(crate) fn prepare(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        proposal: &Proposal,
        out: &mut Out,
    ) -> Option<Prepared> {
        let order = self.queue.by_id[&proposal.repair.0].order.clone();
        self.queue.reach(proposal.repair.0, &proposal.stripe, RepairStep::Planned, facts.base.now);
        match self.try_prepare((facts, jobs), &order, proposal, out) {
            Ok(Preparation::Ready(prepared)) => return Some(*prepared),
            Ok(Preparation::Later) => {}
            Ok(Preparation::NothingLost) => self.decline(proposal, End::NothingLost),
            Err(obstacle) => {
                self.decline(proposal, obstacle.end);
                let item = self.queue.item(proposal.repair.0, &proposal.stripe);
                item.expect("a proposed item exists").fail(obstacle.reason, &obstacle.next_step);
            }
        }
        None
    }

    fn decline(&mut self, proposal: &Proposal, end: End) {
        self.scheduler.decline(proposal.item, end);
        debug_assert!(self.scheduler.state(proposal.item) != ItemState::Waiting);
    }

    fn try_prepare(
        &mut self,
        (facts, jobs): (Facts<'_>, &Jobs),
        order: &Order,
        proposal: &Proposal,
        out: &mut Out,
    ) -> Result<Preparation, Obstacle> {
        let record = facts.stripes.stripe_record(&proposal.stripe).map_err(Obstacle::failed)?;
        if let (Kind::Migrate { .. }, []) = (proposal.kind, &proposal.wanted[..]) {
            return Err(Obstacle::no_room(facts, jobs, order, &record, 1));
        }
        let lost = lost_of(facts, order, proposal, &record);
        if lost.is_empty() {
            return Ok(Preparation::NothingLost);
        }
        // A block that the store counts as lost may still be readable on its old node. The job treats it as
        // lost and rebuilds it all the same.
        let taken_as_lost = if proposal.kind == Kind::Reconstruct { &lost[..] } else { &[] };
        let stripe = facts.stripe_now(&record, taken_as_lost).map_err(Obstacle::failed)?;
        if proposal.kind == Kind::Reconstruct {
            self.check_decodable(facts, &record, &stripe, &lost)?;
            self.check_provable(facts, order, &record, &stripe)?;
        }
        let Some(wanted) = self.wanted((facts, jobs), order, &lost, proposal, &record)? else {
            self.scheduler.put_back(proposal.item);
            return Ok(Preparation::Later);
        };
        if wanted.is_empty() {
            return Ok(Preparation::NothingLost);
        }
        // The store's own process has asked for the repair of a described stripe.
        if order.given.is_none()
            && !self.claims.is_claimed(facts, proposal, &wanted, &mut self.scheduler, out)
        {
            self.scheduler.put_back(proposal.item);
            return Ok(Preparation::Later);
        }
        let blocks = wanted.iter().map(|wanted| stripe.block(wanted.block).id.clone()).collect();
        let request =
            self.job_request(facts, order, proposal, stripe, wanted, out).map_err(Obstacle::failed)?;
        Ok(Preparation::Ready(Box::new(Prepared { request, blocks })))
    }

    /// Returns the blocks to rebuild, with their new nodes; `None` if all possible nodes are busy.
    fn wanted(
        &mut self,
        (facts, jobs): (Facts<'_>, &Jobs),
        order: &Order,
        lost: &[BlockIndex],
        proposal: &Proposal,
        record: &StripeRecord,
    ) -> Result<Option<Vec<Wanted>>, Obstacle> {
        match self.requestors(facts, order, lost, proposal, record) {
            Placement::Chosen(mut wanted) => {
                // The scheduler also counts blocks as lost that are only unreadable. Such blocks are left out
                // here, because the store has not lost them.
                wanted.retain(|wanted| lost.contains(&wanted.block));
                Ok(Some(wanted))
            }
            Placement::Nowhere => Err(Obstacle::no_room(facts, jobs, order, record, lost.len())),
            Placement::Busy => Ok(None),
        }
    }

    /// Asks the scheduler to admit a job with the load of its first plan. Returns the job if it is admitted.
    pub(crate) fn admit(
        &mut self,
        facts: Facts<'_>,
        proposal: &Proposal,
        blocks: Vec<BlockId>,
        mut running: RunningJob,
    ) -> Option<RunningJob> {
        running.item = Some(proposal.item);
        // A job without a plan ends immediately and reports the reason.
        let plan = running.job.running_plan();
        let loads = plan.map_or_else(Loads::default, |plan| Loads::of(plan, true));
        if let Err(resource) = self.scheduler.admit(proposal.item, running.job.id(), &loads) {
            tracing::debug!(stripe = %proposal.stripe, %resource, "waits");
            return None;
        }
        running.loads = loads;
        let repair =
            self.queue.by_id.get_mut(&proposal.repair.0).expect("the repair of a proposed item exists");
        repair.note_started(&proposal.stripe, blocks);
        let helpers = repair.order.helpers;
        self.queue.job_starts(proposal.repair.0, &proposal.stripe, facts.base.now);
        if let (HelperPolicy::MPpr, Some(plan)) = (helpers, running.job.running_plan()) {
            let due = facts.base.now + LATE_AFTER + plan.predict(&facts.nodes.topology) * LATE_TIMES;
            self.scheduler.set_due(proposal.item, due);
        }
        Some(running)
    }

    /// Returns the running jobs of a repair.
    pub(crate) fn jobs_of(&self, id: u64) -> Vec<JobId> {
        self.scheduler.running(RepairId(id)).map(|(_, job)| job).collect()
    }

    /// Releases the bandwidth that a paused job has reserved.
    pub(crate) fn note_paused(&mut self, jobs: &Jobs, id: JobId) {
        if let Some(RunningJob { item: Some(item), loads, .. }) = jobs.running.get(&id) {
            self.scheduler.rest(*item, loads);
            self.paused_jobs.0.insert(id);
        }
    }

    /// Returns whether a paused job stays paused, resumes, or gives way to another repair. Requests the claim
    /// of a job that is to resume.
    pub(crate) fn pause_of(&mut self, jobs: &Jobs, id: JobId, out: &mut Out) -> Pause {
        let Some(RunningJob { job, owner, stripe, item: Some(item), loads, .. }) = jobs.running.get(&id)
        else {
            return Pause::Over;
        };
        let is_paused = matches!(owner, Owner::Repair { repair } if self.queue.is_paused(*repair));
        if !is_paused {
            if self.claims.awaits_answer(stripe) || !self.scheduler.wake(*item, loads) {
                return Pause::Lasts;
            }
            if self.claims.reclaim(stripe, &mut self.scheduler, out) {
                self.scheduler.rest(*item, loads);
                return Pause::Lasts;
            }
            return Pause::Resumes;
        }
        // A job is not interrupted while it publishes.
        match job.phase() == JobPhase::OnHold && self.scheduler.make_way(*item) {
            true => Pause::GivesWay,
            false => Pause::Lasts,
        }
    }

    /// Whether a repair of a stripe is running or queued.
    pub(crate) fn is_being_repaired(&self, stripe: &StripeId) -> bool {
        let runs = |id| self.scheduler.repair(RepairId(id)).is_some_and(|state| !state.ended);
        self.queue.awaits(stripe) || self.queue.of_stripe(stripe).any(runs)
    }
}

/// Returns the blocks of a stripe that a proposal covers.
fn lost_of(facts: Facts<'_>, order: &Order, proposal: &Proposal, record: &StripeRecord) -> Vec<BlockIndex> {
    match proposal.kind {
        Kind::Migrate { .. } => proposal.wanted.iter().map(|wanted| wanted.block).collect(),
        _ => facts.wanted_of(order, record),
    }
}
