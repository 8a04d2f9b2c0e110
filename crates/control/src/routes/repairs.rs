//! Carries out the scheduler's actions: starts, resumes and cancels jobs, and ends repairs.

use recovery::{Action, Proposal, Target};
use repair::Job;
use serde_json::Value;

use crate::control::{Control, facts, outer_facts};
use crate::jobs::owner::Owner;
use crate::repairs::order_records::kept_orders;
use crate::repairs::proposals::{Pause, Prepared};

impl Control {
    /// Requeues the repairs that an earlier coordinator left unfinished.
    pub(crate) fn requeue_repairs(&mut self, records: &[(String, Value)]) {
        for order in kept_orders(records) {
            let (id, order) = match order {
                Ok(order) => order,
                Err(key) => {
                    tracing::warn!(key, "dropping a queued repair whose record is unreadable");
                    self.out.forget_record(key.to_owned());
                    continue;
                }
            };
            if let Target::Drain(node) = order.target {
                self.nodes.registry.set_departure(node, &order); // The mark may not have been recorded.
            }
            if let Some(given) = &order.given {
                self.stripes.recall_given(outer_facts!(self), given.stripe.clone());
            }
            self.repairs.add(id, order);
        }
    }

    pub(crate) fn start_repairs(&mut self) {
        if self.stripes.newer.is_behind() {
            return;
        }
        if self.facts().may_change() {
            let due = self.repairs.take_due(facts!(self));
            for stripe in self.repairs.superseded(facts!(self), &due) {
                self.stripes.supersede_given(outer_facts!(self), stripe, &mut self.out);
            }
            self.repairs.expand_repairs(facts!(self), due, &mut self.out);
            self.resume_jobs();
        }
        self.repairs.follow_reads(facts!(self));
        // Repairs can end even while the catalog accepts no writes.
        self.poll_repairs();
    }

    /// Carries out the scheduler's actions until there are none.
    pub(crate) fn poll_repairs(&mut self) {
        while let Some(action) = self.repairs.scheduler.poll(self.base.now) {
            match action {
                // While changes are not allowed, jobs can be cancelled but not started.
                Action::Propose(proposal) if !self.facts().may_change() => {
                    self.repairs.scheduler.put_back(proposal.item);
                    return;
                }
                Action::Propose(proposal) => self.try_start(&proposal),
                Action::CancelJob { job } => self.jobs.cancel_job(job),
                Action::DropSurplus { stripe, block, node } => {
                    if !self.surplus.may_drop(facts!(self), (&stripe, block, node), &mut self.out) {
                        continue;
                    }
                    self.stripes.drop_surplus(
                        outer_facts!(self),
                        &self.jobs,
                        (&stripe, block, node),
                        &mut self.out,
                    );
                }
                Action::ItemEnded { repair, item, stripe, end } => {
                    self.repairs.claims.item_ended(item, &stripe);
                    self.repairs.queue.item_ended(repair.0, &stripe);
                    self.repairs.explain_end(facts!(self), repair.0, &stripe, end);
                }
                Action::RepairEnded { repair } => self.end_repair(repair.0),
            }
        }
    }

    /// Starts the job of a proposal, if it is ready and the scheduler admits it.
    fn try_start(&mut self, proposal: &Proposal) {
        let prepared = self.repairs.prepare(facts!(self), &self.jobs, proposal, &mut self.out);
        let Some(Prepared { request, blocks }) = prepared else { return };
        let job = request.job;
        let running = self.new_job(Owner::Repair { repair: proposal.repair.0 }, request);
        if let Some(running) = self.repairs.admit(facts!(self), proposal, blocks, running) {
            self.jobs.run(job, running);
        }
    }

    /// Resumes paused jobs of resumed repairs if there is budget, and cancels paused jobs whose stripe
    /// another repair waits for.
    pub(super) fn resume_jobs(&mut self) {
        for job in self.repairs.paused_jobs.0.clone() {
            match self.repairs.pause_of(&self.jobs, job, &mut self.out) {
                Pause::Lasts => continue,
                Pause::Over => {}
                Pause::Resumes => self.with_planning_job(job, Job::resume),
                Pause::GivesWay => self.jobs.cancel_job(job),
            }
            self.repairs.paused_jobs.0.remove(&job);
        }
    }

    /// Ends a repair that has no work left: records the end in the history and answers waiting requests.
    fn end_repair(&mut self, id: u64) {
        if self.repairs.end(facts!(self), &self.jobs, id, &mut self.out) {
            let unknown = self.answers().unknown_after(id);
            self.repairs.queue.note_unknown(id, unknown);
            let view = self.answers().log_end(id);
            self.out.note(self.answers().end_of(id, &view));
            let target = self.repairs.queue.by_id[&id].order.target.clone();
            if let Target::Node(node) | Target::Drain(node) = target
                && self.repairs.nodes.ended(facts!(self), node, id, view.state)
            {
                self.nodes.registry.cancel_recovery(node, &mut self.out);
            }
        }
        self.repairs.forget_oldest();
    }
}
