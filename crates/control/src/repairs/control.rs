//! Repairs that are called off, paused and resumed.

use std::time::Duration;

use repair::recovery::{RepairId, Target};

use crate::answers::Answers;
use crate::base::Base;
use crate::commands::answer;
use crate::effect::Reply;
use crate::error::RequestError;
use crate::repairs::{CHANGES_EVERY, Control, ItemPage, Waiting};
use crate::storing::Then;
use ::views::RepairView;

impl Control {
    /// Calls a repair off. A node that it was emptying gets blocks again.
    pub(crate) fn cancel_repair(&mut self, id: u64) -> Result<RepairView, RequestError> {
        self.answers().check_open(id)?;
        let target = self.repairs.by_id[&id].order.target.clone();
        if let Target::Drain(node) = target
            && self.repairs.open_repairs_of(&target) == [id]
        {
            self.nodes.unmark_leaving(node, &mut self.out);
        }
        self.repairs.unexpanded.retain(|&other| other != id);
        self.repairs.scheduler.cancel(RepairId(id));
        self.poll_repairs();
        self.drain_jobs();
        self.poll_repairs();
        self.answers().repair_state(id)
    }

    /// Pauses or resumes a repair. Paused, also over a restart, it starts no job; running jobs stop between two slices and keep
    /// the delivered ones.
    pub(crate) fn pause_repair(&mut self, id: u64, paused: bool) -> Result<RepairView, RequestError> {
        self.answers().check_open(id)?;
        let repair = self.repairs.by_id.get_mut(&id).expect("just checked");
        if repair.order.paused != paused {
            repair.order.paused = paused;
            let kept = crate::repairs::kept(id, &repair.order);
            self.out.store(kept, Then::Nothing);
        }
        match paused {
            true => {
                self.repairs.scheduler.pause(RepairId(id));
                self.hold_jobs(id);
            }
            false => self.repairs.scheduler.resume(RepairId(id)),
        }
        self.repairs.pause_course(facts!(self), id, paused);
        self.resume_jobs();
        self.poll_repairs();
        self.answers().repair_state(id)
    }

    /// Answers when a repair has ended, when its version is not `since` any more, or after this time.
    pub(crate) fn await_change(&mut self, id: u64, since: Option<u64>, limit: Duration, reply: Reply<()>) {
        let version =
            since.and_then(|_| self.answers().repair_page(id, &ItemPage::NONE).ok()).map(|view| view.version);
        match self.repairs.by_id.get_mut(&id) {
            Some(repair) if repair.ended_unix_ms.is_none() && version == since => {
                repair.waiting.push(Waiting { since, until: self.base.now + limit, reply });
            }
            Some(_) => answer(reply, Ok(()), &mut self.out),
            None => answer(reply, Err(RequestError::NoSuchRepair(id)), &mut self.out),
        }
    }

    /// Answers requests that wait for another version of a repair, or have waited long enough.
    pub(crate) fn tell_changes(&mut self) {
        if self.base.now < self.repairs.changes_told + CHANGES_EVERY {
            return;
        }
        self.repairs.changes_told = self.base.now;
        let awaited = self.repairs.by_id.iter().filter(|(_, repair)| !repair.waiting.is_empty());
        let versions: Vec<(u64, u64)> =
            awaited.map(|(&id, _)| (id, self.answers().repair_view(id, &ItemPage::NONE).version)).collect();
        let Self { repairs, out, base: Base { now, .. }, .. } = self;
        for (id, version) in versions {
            let repair = repairs.by_id.get_mut(&id).expect("it was there");
            let is_due = |waiting: &mut Waiting| {
                waiting.until <= *now || waiting.since.is_some_and(|since| since != version)
            };
            repair.waiting.extract_if(.., is_due).for_each(|waiting| answer(waiting.reply, Ok(()), out));
        }
    }

    /// Calls a repair of a given stripe off.
    pub(crate) fn cancel_given_repair(&mut self, id: u64) -> Result<RepairView, RequestError> {
        self.answers().given_repair_state(id)?;
        self.cancel_repair(id)
    }
}

impl<'a> Answers<'a> {
    /// A repair of a given stripe.
    pub(crate) fn given_repair_state(self, id: u64) -> Result<RepairView, RequestError> {
        match self.repairs.by_id.get(&id) {
            Some(repair) if repair.order.given.is_some() => self.repair_state(id),
            _ => Err(RequestError::NoSuchRepair(id)),
        }
    }

    fn check_open(self, id: u64) -> Result<(), RequestError> {
        let repair = self.repairs.by_id.get(&id).ok_or(RequestError::NoSuchRepair(id))?;
        match repair.ended_unix_ms {
            None => Ok(()),
            Some(_) => Err(RequestError::RepairEnded {
                repair: id,
                state: self.repair_view(id, &ItemPage::NONE).state,
            }),
        }
    }
}
