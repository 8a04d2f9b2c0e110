//! What a harness checks between two events: the jobs that publish, and what is in flight.

use repair::{JobId, StripeId};

use crate::Control;

/// How much is in flight. All of it is bounded, and none of it is left once nobody wants anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Jobs that run.
    pub jobs: usize,
    /// Writes that the storage has not answered.
    pub writes: usize,
}

impl Control {
    /// The jobs that publish blocks, each with its stripe: at most one for each stripe.
    pub fn publishing_jobs(&self) -> impl Iterator<Item = (JobId, &StripeId)> {
        self.jobs
            .running
            .iter()
            .filter(|(_, running)| !running.targets.is_empty())
            .map(|(&job, running)| (job, &running.stripe))
    }

    /// What is in flight now.
    pub fn in_flight(&self) -> InFlight {
        InFlight { jobs: self.jobs.running.len(), writes: self.storing.in_flight() }
    }
}
