//! Jobs that take too long are called off and begin anew on other nodes (m-PPR).
//!
//! Which of its nodes is slow, the scheduler does not know: all of them come last when the item is proposed again, as far
//! as there are others. After as many times as [`Limits::attempts`](super::Limits) a job may take as long as it does.

use std::time::Duration;

use super::item::{Action, Place};
use super::{ItemId, Scheduler};

impl Scheduler {
    /// The job of an item is late if it has not ended by then. The driver, who knows what its plan was predicted
    /// to take, says so after [`admit`](Self::admit).
    pub fn set_due(&mut self, item: ItemId, due: Duration) {
        self.forget_due(item.0);
        if let Place::Running(..) = self.item(item.0).place {
            self.item_mut(item.0).due = Some(due);
            self.dues.insert((due, item.0));
        }
    }

    pub(super) fn forget_due(&mut self, no: u32) {
        if let Some(due) = self.item_mut(no).due.take() {
            self.dues.remove(&(due, no));
        }
    }

    /// Calls off what is late.
    pub(super) fn stop_late(&mut self) {
        while let Some(&(_, no)) = self.dues.first().filter(|&&(at, _)| at <= self.now) {
            self.forget_due(no);
            let attempts = self.limits.attempts;
            let item = self.item_mut(no);
            let Place::Running(job, booking) = &item.place else { continue };
            if item.stopping || item.late >= attempts {
                continue;
            }
            let job = *job;
            item.slow.extend(booking.nodes());
            item.late += 1;
            item.stopping = true;
            self.actions.push_back(Action::CancelJob { job });
        }
    }
}
