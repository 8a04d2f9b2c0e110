//! Requests about repairs.

use std::time::Duration;

use recovery::{RepairId, Target};
use repair::{Job, StripeId};
use views::{HistoryEvent, RepairRequest, RepairView};

use crate::commands::RepairCommand;
use crate::control::{Control, facts};
use crate::error::{DescriptionError, RepairError, RequestError};
use crate::out::answer;
use crate::repairs::CHANGES_EVERY;
use crate::repairs::order_records::dropped;
use crate::repairs::orders::Order;
use crate::storing::then::Then;

/// After so long without a tick, the coordinator's process was stopped or overloaded, so it received no
/// requests.
const STOOD_STILL: Duration = Duration::from_secs(5);

impl RepairCommand {
    pub(super) fn carry_out(self, control: &mut Control) {
        match self {
            Self::Queue(request, reply) => match check_described(control, &request) {
                Ok(()) => facts!(control).queue_repair(&request, reply, &mut control.out),
                Err(error) => answer(reply, Err::<RepairView, _>(error), &mut control.out),
            },
            Self::Rebalance(request, reply) => {
                facts!(control).rebalance(request, reply, &mut control.out);
            }
            Self::List(reply) => {
                let views = control.answers().repair_views();
                control.out.answer(reply, Ok(views));
            }
            Self::State(repair, page, reply) => {
                control.repairs.queue.note_asked(repair, control.base.now);
                answer(reply, control.answers().repair_page(repair, &page), &mut control.out);
            }
            Self::GivenState(repair, reply) => {
                control.repairs.queue.note_asked(repair, control.base.now);
                answer(reply, control.answers().given_repair_state(repair), &mut control.out);
            }
            Self::Change(repair, since, limit, reply) => {
                control.repairs.queue.note_asked(repair, control.base.now);
                let version = since.and_then(|_| control.answers().repair_version(repair));
                let until = control.base.now + limit;
                let awaited = (repair, since, until);
                control.repairs.queue.await_change(awaited, version, reply, &mut control.out);
            }
            Self::Cancel(repair, reply) => {
                let cancelled = cancel_repair(control, repair);
                answer(reply, cancelled, &mut control.out);
            }
            Self::CancelGiven(repair, reply) => {
                let given = control.answers().given_repair_state(repair);
                let cancelled = given.and_then(|_| cancel_repair(control, repair));
                answer(reply, cancelled, &mut control.out);
            }
            Self::Pause(repair, paused, reply) => {
                let changed = pause_repair(control, repair, paused);
                answer(reply, changed, &mut control.out);
            }
        }
    }
}

/// Checks whether a described stripe can be repaired as described, if the request names one. While the coordinator
/// repairs the stripe as the store lists it, there is no description.
fn check_described(control: &Control, request: &RepairRequest) -> Result<(), RequestError> {
    let Some(stripe) = request.stripe.as_ref().filter(|_| !request.homes.is_empty()) else { return Ok(()) };
    let stripe = StripeId(stripe.clone());
    let given = &control.stripes.given;
    // The plug-in may have described the stripe shortly before the repair ended.
    if given.is_read_as_listed(&stripe)
        || (given.get(&stripe).is_none() && control.repairs.is_being_repaired(&stripe))
    {
        return Err(DescriptionError::GivenInUse(stripe).into());
    }
    Ok(control.repairs.queue.check_room(&control.storing, stripe)?)
}

/// Cancels a repair. If it was the only open drain of a node, the node gets new blocks again.
pub(super) fn cancel_repair(control: &mut Control, id: u64) -> Result<RepairView, RepairError> {
    control.answers().check_open(id)?;
    let target = control.repairs.queue.by_id[&id].order.target.clone();
    if let Target::Drain(node) = target
        && control.repairs.queue.open_for(&target).eq([id])
    {
        control.nodes.registry.unmark_leaving(node, &mut control.out);
    }
    control.repairs.queue.forget_unexpanded(id);
    // Jobs that commit blocks may take a while to end. A coordinator that starts meanwhile must not queue the repair again.
    control.out.store(dropped(id), Then::Nothing);
    control.repairs.scheduler.cancel(RepairId(id));
    control.poll_repairs();
    control.drain_jobs();
    control.poll_repairs();
    control.answers().repair_state(id)
}

/// Pauses or resumes a repair. A paused repair starts no jobs, even after a restart of the coordinator.
/// Its running jobs stop between two slices and keep the slices that they have delivered.
fn pause_repair(control: &mut Control, id: u64, paused: bool) -> Result<RepairView, RepairError> {
    control.answers().check_open(id)?;
    control.repairs.queue.set_paused(id, paused, control.base.now, &mut control.out);
    control.repairs.scheduler.set_paused(RepairId(id), paused);
    if paused {
        for job in control.repairs.jobs_of(id) {
            control.with_job(job, Job::pause);
            control.repairs.note_paused(&control.jobs, job);
        }
    }
    control.resume_jobs();
    control.poll_repairs();
    control.answers().repair_state(id)
}

/// Starts the repair of an order that is durable.
pub(super) fn begin_repair(control: &mut Control, id: u64, order: Order) -> Result<RepairView, RequestError> {
    let (target, by_itself) = (control.facts().target_text(&order.target), order.by_itself);
    tracing::info!(repair = id, target, scheme = %order.scheme, by_itself, "a repair is queued");
    control.out.note(HistoryEvent::RepairBegun { repair: id, target, by_itself });
    if let Target::Drain(node) = order.target {
        if !control.nodes.registry.is_leaving(node) {
            control.repairs.nodes.drains.forget(node);
        }
        control.nodes.registry.mark_leaving(&control.base, node, &order, &mut control.out);
    }
    if order.target == Target::All && !order.by_itself {
        control.stripes.inventory.accept_hollow(&mut control.out);
        control.route();
    }
    control.repairs.commanded.note(facts!(control), &order);
    control.repairs.add(id, order);
    control.repairs.queue.note_asked(id, control.base.now);
    control.start_repairs();
    Ok(control.answers().repair_state(id)?)
}

impl Control {
    /// Answers requests that wait for a change of a repair, or that have timed out.
    pub(crate) fn tell_changes(&mut self) {
        let now = self.base.now;
        let since = now.saturating_sub(self.repairs.changes_told);
        if since < CHANGES_EVERY {
            return;
        }
        self.repairs.changes_told = now;
        if since >= STOOD_STILL {
            self.repairs.queue.extend_leases(since);
        }
        for id in self.repairs.queue.awaited().collect::<Vec<_>>() {
            let Some(version) = self.answers().repair_version(id) else { continue };
            self.repairs.queue.tell_version(id, version, now, &mut self.out);
        }
        cancel_abandoned(self);
    }
}

/// Cancels the repairs whose clients are gone. A job that is about to publish may outlast the cancellation.
fn cancel_abandoned(control: &mut Control) {
    let scheduler = &control.repairs.scheduler;
    let is_open = |id: &u64| scheduler.repair(RepairId(*id)).is_none_or(|repair| !repair.cancelled);
    let abandoned = control.repairs.queue.abandoned(control.base.now).into_iter().filter(is_open);
    for id in abandoned.collect::<Vec<_>>() {
        tracing::info!(repair = id, "cancelling a repair, because nobody has asked about it for long");
        drop(cancel_repair(control, id));
    }
}
