//! Requests about repairs.

use recovery::{RepairId, Target};
use repair::Job;
use views::{HistoryEvent, RepairView};

use crate::commands::{RepairCommand, answer};
use crate::error::{RepairError, RequestError};
use crate::repairs::CHANGES_EVERY;
use crate::repairs::orders::Order;
use crate::{Control, ItemPage};

impl RepairCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::Queue(request, reply) => {
                facts!(control).queue_repair(&request, reply, &mut control.out);
            }
            Self::Rebalance(request, reply) => {
                facts!(control).rebalance(request, reply, &mut control.out);
            }
            Self::List(reply) => {
                let views = control.answers().repair_views();
                control.out.answer(reply, Ok(views));
            }
            Self::State(repair, page, reply) => {
                answer(reply, control.answers().repair_page(repair, &page), &mut control.out);
            }
            Self::GivenState(repair, reply) => {
                answer(reply, control.answers().given_repair_state(repair), &mut control.out);
            }
            Self::Change(repair, since, limit, reply) => {
                let page = since.and_then(|_| control.answers().repair_page(repair, &ItemPage::NONE).ok());
                let (version, until) = (page.map(|view| view.version), control.base.now + limit);
                let awaited = (repair, since, until);
                control.repairs.queue.await_change(awaited, version, reply, &mut control.out);
            }
            Self::Cancel(repair, reply) => answer(reply, control.cancel_repair(repair), &mut control.out),
            Self::CancelGiven(repair, reply) => {
                let given = control.answers().given_repair_state(repair);
                let cancelled = given.and_then(|_| control.cancel_repair(repair));
                answer(reply, cancelled, &mut control.out);
            }
            Self::Pause(repair, paused, reply) => {
                answer(reply, control.pause_repair(repair, paused), &mut control.out);
            }
        }
    }
}

impl Control {
    /// Cancels a repair. If it was a drain, its node gets new blocks again.
    pub(super) fn cancel_repair(&mut self, id: u64) -> Result<RepairView, RepairError> {
        self.answers().check_open(id)?;
        let target = self.repairs.queue.by_id[&id].order.target.clone();
        if let Target::Drain(node) = target
            && self.repairs.queue.open_for(&target).eq([id])
        {
            self.nodes.registry.unmark_leaving(node, &mut self.out);
        }
        self.repairs.queue.forget_unexpanded(id);
        self.repairs.scheduler.cancel(RepairId(id));
        self.poll_repairs();
        self.drain_jobs();
        self.poll_repairs();
        self.answers().repair_state(id)
    }

    /// Pauses or resumes a repair. A paused repair starts no jobs, even after a restart of the coordinator.
    /// Its running jobs stop between two slices and keep the slices that they have delivered.
    fn pause_repair(&mut self, id: u64, paused: bool) -> Result<RepairView, RepairError> {
        self.answers().check_open(id)?;
        self.repairs.queue.set_paused(id, paused, self.base.now, &mut self.out);
        if paused {
            self.repairs.scheduler.pause(RepairId(id));
            for job in self.repairs.jobs_of(id) {
                self.with_job(job, Job::pause);
                self.repairs.note_paused(&self.jobs, job);
            }
        } else {
            self.repairs.scheduler.resume(RepairId(id));
        }
        self.resume_jobs();
        self.poll_repairs();
        self.answers().repair_state(id)
    }

    /// Answers requests that wait for a change of a repair, or that have timed out.
    pub(crate) fn tell_changes(&mut self) {
        let now = self.base.now;
        if now < self.repairs.changes_told + CHANGES_EVERY {
            return;
        }
        self.repairs.changes_told = now;
        for id in self.repairs.queue.awaited().collect::<Vec<_>>() {
            let version = self.answers().repair_view(id, &ItemPage::NONE).version;
            self.repairs.queue.tell_version(id, version, now, &mut self.out);
        }
    }

    /// An order is durable: starts its repair.
    pub(super) fn begin_repair(&mut self, id: u64, order: Order) -> Result<RepairView, RequestError> {
        let (target, by_itself) = (self.facts().target_text(&order.target), order.by_itself);
        tracing::info!(repair = id, target, scheme = %order.scheme, by_itself, "a repair is queued");
        self.out.note(HistoryEvent::RepairBegun { repair: id, target, by_itself });
        if let Target::Drain(node) = order.target {
            if !self.nodes.registry.is_leaving(node) {
                self.repairs.nodes.drains.forget(node);
            }
            self.nodes.registry.mark_leaving(&self.base, node, &order, &mut self.out);
        }
        self.repairs.add(id, order);
        self.start_repairs();
        Ok(self.answers().repair_state(id)?)
    }
}
