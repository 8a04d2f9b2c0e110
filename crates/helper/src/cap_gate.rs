//! Checks how many bytes a running plan may move under the node's rate caps and the pacing of background
//! transfers, and sets a timer for the next check.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use repair::{Meter, Part};
use tokio::time::{Instant, Sleep};

use crate::background_pacing::JobPacing;
use crate::socket::OutletSocket;
use crate::throttle::Allowance;

/// The access of one running plan to the node's rate caps and to the pacing of background transfers.
pub(crate) struct CapGate {
    allowance: Allowance,
    pacing: JobPacing,
    /// The shortest wait after which a denied request may be repeated, if one was denied since the last poll.
    ask_again: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl CapGate {
    pub(crate) fn new(allowance: Allowance, pacing: JobPacing) -> Self {
        Self { allowance, pacing, ask_again: None, timer: None }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.allowance.is_limited() || self.pacing.is_paced()
    }

    /// Returns the number of bytes that may move now. `None` means that the job must wait; `poll_timer` then
    /// wakes its task.
    pub(crate) fn ask(&mut self, meter: Meter, part: &mut Part) -> Option<usize> {
        let capped = self.allowance.ask(meter);
        match capped.and_then(|bytes| self.pacing.ask(meter).map(|paced| bytes.min(paced))) {
            Ok(bytes) => Some(bytes),
            Err(wait) => {
                part.handle_limited();
                self.ask_again = Some(self.ask_again.map_or(wait, |other| other.min(wait)));
                None
            }
        }
    }

    pub(crate) fn spend(&mut self, meter: Meter, bytes: usize) {
        self.allowance.spend(meter, bytes);
        self.pacing.spend(meter, bytes);
    }

    /// Observes the connection of an outlet that has sent, if this plan is a background transfer.
    pub(crate) fn observe(&self, outlet: &mut OutletSocket) {
        if self.pacing.is_background()
            && let Some(sample) = outlet.observe_path()
        {
            self.pacing.observe(&sample);
        }
    }

    /// If a request was denied, sets the timer for the next attempt and polls it; returns whether it fired.
    pub(crate) fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(wait) = self.ask_again.take() else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        timer.as_mut().reset(Instant::now() + wait);
        timer.as_mut().poll(cx).is_ready()
    }
}
