//! Starts jobs, passes events to them, and handles their ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use rand::RngExt;
use recovery::Loads;
use repair::{
    Epoch, Job, JobError, JobId, JobPhase, JobRequest, NodeId, Outcome, Report, Resource, StripeId, Topology,
};
use views::RepairStep;

use crate::control::{Control, facts, outer_facts};
use crate::jobs::RunningJob;
use crate::jobs::in_flight::InFlight;
use crate::jobs::owner::Owner;
use crate::jobs::reserved_bandwidth::{limited, places};
use crate::repairs::scheduler_facts::{end_reservation, reserve, reserve_again};
use crate::routes::blocks::look_for_left_out;
use crate::signal::Signal;

/// How often it is checked whether the stripes of running repairs are at risk.
const CHECK_RISK_EVERY: Duration = Duration::from_secs(1);

impl Control {
    /// Returns the jobs that publish blocks, each with its stripe. There is at most one per stripe.
    pub fn publishing_jobs(&self) -> impl Iterator<Item = (JobId, &StripeId)> {
        self.jobs
            .running
            .iter()
            .filter(|(_, running)| running.job.publishes())
            .map(|(&job, running)| (job, &running.stripe))
    }

    /// Returns the number of jobs and writes in flight.
    pub fn in_flight(&self) -> InFlight {
        InFlight { jobs: self.jobs.running.len(), writes: self.storing.in_flight() }
    }

    /// Starts a job that does not wait for budget.
    pub(crate) fn start_job(&mut self, owner: Owner, request: JobRequest) {
        let id = request.job;
        let mut running = self.new_job(owner, request);
        let stores = running.job.publishes();
        running.reservation = reserve(&mut self.repairs.scheduler, &running.job, stores);
        if stores {
            self.repairs.scheduler.hold(&running.stripe);
        }
        self.jobs.run(id, running);
    }

    /// Creates a job with its first plan. None of its actions is carried out before `Jobs::run`.
    pub(crate) fn new_job(&mut self, owner: Owner, request: JobRequest) -> RunningJob {
        let minds_others = self.repairs.queue.minds_others(facts!(self), &owner, &request);
        if let Some(limit) = minds_others {
            let targets = request.wanted.iter().map(|wanted| wanted.requestor).filter(|_| request.publish);
            let nodes = places(&request.stripe, targets, &self.nodes.topology);
            let reserved = limited(self.repairs.scheduler.reserved_beside(&nodes, None), limit);
            reserved.into_iter().for_each(|(resource, bytes)| self.nodes.topology.reserve(resource, bytes));
        }
        let mut running = RunningJob {
            owner,
            left: BTreeSet::new(),
            stripe: request.stripe.id.clone(),
            holders: request.stripe.blocks.iter().map(|block| block.holder).collect(),
            stored: Vec::new(),
            trouble: None,
            recording: 0,
            lost_meanwhile: Vec::new(),
            ended: None,
            reservation: None,
            item: None,
            loads: Loads::default(),
            minds_others,
            job: Job::new(request, self.out.rng.random(), &self.nodes.topology, self.base.now),
        };
        self.nodes.topology.clear_reserved();
        if repairs_at_risk(self, &running) {
            running.job.handle_at_risk();
        }
        running
    }

    /// Passes on to running repairs if their stripes can no longer lose a block, because others were lost meanwhile.
    pub(crate) fn note_risks(&mut self) {
        if self.base.now < self.jobs.risk_checked + CHECK_RISK_EVERY {
            return;
        }
        self.jobs.risk_checked = self.base.now;
        let is_new = |running: &RunningJob| !running.job.is_at_risk() && repairs_at_risk(self, running);
        let risen = self.jobs.running.iter().filter(|(_, running)| is_new(running));
        for job in risen.map(|(&job, _)| job).collect::<Vec<_>>() {
            self.with_job(job, |job, _, _| job.handle_at_risk());
        }
    }

    pub(crate) fn take_report(&mut self, node: NodeId, job: JobId, epoch: Epoch, report: Report) {
        if self.scrub.checks.has(job) {
            return self.scrub.take_check_report(facts!(self), node, (job, epoch), report, &mut self.out);
        }
        // A job that has ended may still wait for the storage.
        let listens = |running: &RunningJob| running.job.epoch() == epoch && !running.job.is_finished();
        let listens = self.jobs.running.get(&job).is_some_and(listens);
        if let (Report::BadBlock { block, .. }, false) = (&report, listens) {
            self.scrub.take_late_finding(facts!(self), node, block);
        }
        self.with_job(job, |job, topology, now| job.handle_report(node, epoch, report, topology, now));
    }

    pub(crate) fn drain_jobs(&mut self) {
        while let Some(id) = self.jobs.stirred.pop_first() {
            while let Some(action) = self.jobs.running.get_mut(&id).and_then(|running| running.job.poll()) {
                self.jobs.act(facts!(self), id, action, &mut self.out);
                self.route(); // Other jobs must learn the result before they act.
            }
        }
    }

    pub(crate) fn end_job(&mut self, id: JobId, result: Result<Outcome, JobError>) {
        let Some(mut running) = self.jobs.running.remove(&id) else { return };
        let trouble = running.trouble.take();
        // The storage may refuse a cancelled job's blocks for the reason of the cancellation.
        let result = match &trouble {
            Some(_) if running.job.is_cancelled() => result.and(Err(JobError::Cancelled)),
            _ => result,
        };
        end_reservation(&mut self.repairs.scheduler, &mut running);
        if let Err(error) = &result {
            let repair = match running.owner {
                Owner::Repair { repair } => Some(repair),
                _ => None,
            };
            tracing::info!(job = %id, stripe = %running.stripe, repair, %error, "a job failed");
            self.jobs.note_contradictory_end(&running, error, &mut self.out);
        }
        if let Ok(outcome) = &result {
            if matches!(running.owner, Owner::Repair { .. }) {
                self.surplus.note_made(facts!(self), &running.stripe, outcome);
            }
            let read = self.read_copies(&running, outcome);
            if !read.is_empty() {
                self.out.tell(Signal::ParityHeld { stripe: running.stripe.clone(), read });
            }
        }
        match running.owner {
            Owner::Read { client, tag } | Owner::Put { client, tag, .. } => {
                self.jobs.close_request(facts!(self), client, tag, trouble, result, &mut self.out);
            }
            Owner::Repair { repair } => {
                self.repairs.repair_ended(facts!(self), repair, &running.stripe, trouble, result)
            }
            Owner::Probe => self.link_tests.probe_ended(facts!(self), result, &mut self.out),
            Owner::Trial => self.link_tests.trial_ended(facts!(self), &result, &mut self.out),
        }
        if running.job.publishes() {
            self.repairs.claims.release_unused(&self.jobs, &running.stripe, &mut self.out);
            for &node in running.job.nodes().union(&running.left) {
                self.stripes.remove_discards(outer_facts!(self), &self.jobs, node, &mut self.out);
            }
            look_for_left_out(self, &running.stripe);
        }
    }

    /// Returns the blocks whose parity a job has proven, and their nodes. Only recorded copies count: the storage may
    /// have refused to record a new one, and the copy that it still records was not read.
    fn read_copies(&self, running: &RunningJob, outcome: &Outcome) -> BTreeMap<BlockIndex, NodeId> {
        let Ok(record) = self.stripes.stripe_record(&running.stripe) else { return BTreeMap::new() };
        let read = outcome.proven.iter().filter_map(|&index| Some((index, running.holder(index)?)));
        let is_recorded = |(index, node): &(BlockIndex, NodeId)| {
            record.block(*index).is_some_and(|block| block.state_on(*node).is_some())
        };
        read.filter(is_recorded).collect()
    }

    /// Passes an event to a job that may have to make another plan.
    pub(crate) fn with_job(&mut self, id: JobId, act: impl FnOnce(&mut Job, &Topology, Duration)) {
        let Some(running) = self.jobs.running.get(&id) else { return };
        match running.job.phase() {
            JobPhase::StoppingPlan | JobPhase::WaitingForNodes => self.with_planning_job(id, act),
            // After most events the job makes no other plan.
            _ => act_beside(self, id, Vec::new(), act),
        }
    }

    /// Passes an event to a job that makes another plan, with what the plan must consider.
    pub(crate) fn with_planning_job(&mut self, id: JobId, act: impl FnOnce(&mut Job, &Topology, Duration)) {
        let Some(running) = self.jobs.running.get_mut(&id) else { return };
        running.find_copies(facts!(self));
        let others = running.others(&self.repairs.scheduler, &self.nodes.topology);
        act_beside(self, id, others, act);
    }

    /// Passes an event to all jobs, like [`with_job`](Self::with_job).
    pub(crate) fn with_all_jobs(&mut self, act: impl Fn(&mut Job, &Topology, Duration)) {
        let ids: Vec<JobId> = self.jobs.running.keys().copied().collect();
        ids.into_iter().for_each(|id| self.with_job(id, &act));
    }
}

/// Passes an event to a job. A plan that the job makes then takes account of the bandwidth that others have reserved.
fn act_beside(
    control: &mut Control,
    id: JobId,
    others: Vec<(Resource, u64)>,
    act: impl FnOnce(&mut Job, &Topology, Duration),
) {
    let Some(running) = control.jobs.running.get_mut(&id) else { return };
    others.into_iter().for_each(|(resource, bytes)| control.nodes.topology.reserve(resource, bytes));
    let (before, epoch) = (running.job.phase(), running.job.epoch());
    act(&mut running.job, &control.nodes.topology, control.base.now);
    let phase = running.job.phase();
    if phase != before {
        let stripe = &running.stripe;
        tracing::debug!(job = %id, %stripe, ?phase, after = ?before, "job phase changed");
    }
    if running.job.epoch() != epoch {
        reserve_again(&mut control.repairs.scheduler, running);
    }
    control.nodes.topology.clear_reserved();
    control.jobs.stirred.insert(id);
    note_job_step(control, id);
}

/// Whether a job repairs a stripe that cannot lose another block. If a plug-in makes blocks in the background, this
/// is never as urgent: no data depends on them yet.
fn repairs_at_risk(control: &Control, running: &RunningJob) -> bool {
    let Owner::Repair { repair } = running.owner else { return false };
    !control.repairs.queue.makes_new_blocks(repair) && control.facts().is_at_risk(&running.stripe)
}

/// Records the progress of a job in the timeline of its stripe.
fn note_job_step(control: &mut Control, id: JobId) {
    let Some(running) = control.jobs.running.get(&id) else { return };
    let Owner::Repair { repair } = running.owner else { return };
    let (phase, delivers) = (running.job.phase(), running.job.delivered() > 0);
    control.repairs.queue.note_time(
        repair,
        &running.stripe,
        control.base.now,
        |timeline, since| match phase {
            JobPhase::MovingSlices if delivers => timeline.reach(RepairStep::FirstSlice, since),
            // A plan may be replaced after slices were delivered, or even checked.
            JobPhase::MovingSlices
            | JobPhase::StoppingPlan
            | JobPhase::WaitingForNodes
            | JobPhase::OnHold => {
                timeline.restart(RepairStep::Delivered);
            }
            JobPhase::MakingDurable => timeline.reach_in_order(RepairStep::Delivered, since),
            JobPhase::CheckingParity => timeline.reach_in_order(RepairStep::Sealed, since),
            JobPhase::Publishing => timeline.reach_in_order(RepairStep::Checked, since),
            JobPhase::ReadingBack => timeline.reach_in_order(RepairStep::Committed, since),
            JobPhase::Finished => {} // Perhaps it failed.
        },
    );
}

/// Records that the storage has recorded the blocks of a job, or refused them.
pub(crate) fn note_recorded(control: &mut Control, id: JobId) {
    let Some(running) = control.jobs.running.get(&id) else { return };
    if let (Owner::Repair { repair }, 0) = (&running.owner, running.recording) {
        control.repairs.queue.reach(*repair, &running.stripe, RepairStep::Recorded, control.base.now);
    }
}

/// Makes the running jobs of a stripe whose blocks contradict each other check every survivor, like jobs that start
/// later.
pub(crate) fn check_survivors(control: &mut Control, stripe: &StripeId) {
    for job in control.jobs.jobs_on(stripe) {
        control.with_job(job, Job::handle_contradiction);
    }
}
