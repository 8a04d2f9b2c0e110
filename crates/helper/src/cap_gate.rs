//! Asks the node's caps how much a running part may move now, and when to ask again.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use repair::{Meter, Part};
use tokio::time::{Instant, Sleep};

use crate::throttle::Allowance;

/// See the module's documentation.
pub(crate) struct CapGate {
    allowance: Allowance,
    /// The delay before the next request, if one was denied.
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

    /// The number of bytes that may move now. Returns `None` if the part must wait; it is then woken by the
    /// timer.
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

    /// Polls the timer for the next request, if one was denied; returns whether it fired.
    pub(crate) fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(wait) = self.ask_again.take() else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        timer.as_mut().reset(Instant::now() + wait);
        timer.as_mut().poll(cx).is_ready()
    }
}
