//! Checks how many bytes a running plan may move under the node's rate caps, and sets a timer for the next
//! check.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use repair::{Meter, Part};
use tokio::time::{Instant, Sleep};

use crate::throttle::Allowance;

/// The access of one running plan to the node's rate caps.
pub(crate) struct CapGate {
    allowance: Allowance,
    /// The shortest wait after which a denied request may be repeated, if one was denied since the last poll.
    ask_again: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl CapGate {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, ask_again: None, timer: None }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.allowance.is_limited()
    }

    /// Returns the number of bytes that may move now. `None` means that the job must wait; `poll_timer` then
    /// wakes its task.
    pub(crate) fn ask(&mut self, meter: Meter, part: &mut Part) -> Option<usize> {
        match self.allowance.ask(meter) {
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
    }

    /// If a request was denied, sets the timer for the next attempt and polls it; returns whether it fired.
    pub(crate) fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(wait) = self.ask_again.take() else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        timer.as_mut().reset(Instant::now() + wait);
        timer.as_mut().poll(cx).is_ready()
    }
}
