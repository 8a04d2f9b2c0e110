//! Slows down a helper's link during a measurement.

use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Run;
use super::stored::Stored;
use crate::error::LabError;
use crate::network::{Change, LabNode, NetworkError};
use crate::scenario::Straggler;

/// A link that is slow, or will become slow, until the measurement ends.
pub(super) struct Slowed {
    back: Change,
    /// Dropping this sender at the end of the measurement wakes the thread.
    waits: Sender<()>,
    thread: JoinHandle<Result<(), NetworkError>>,
}

impl Run<'_> {
    /// Schedules the slowdown of the scenario's straggler, if the scenario has one.
    pub(super) fn slow_down_later(
        &mut self,
        stored: &Stored,
        lost: &[u16],
    ) -> Result<Option<Slowed>, LabError> {
        let Some(Straggler { block, rate, after }) = self.scenario.effort.straggler.clone() else {
            return Ok(None);
        };
        let Some(whole) = self.network.topology().rate.bandwidth() else { return Ok(None) };
        let there: Vec<u16> = (0..stored.blocks.len() as u16).filter(|index| !lost.contains(index)).collect();
        let at = usize::from(block + self.stragglers) % there.len();
        self.stragglers += 1;
        let helper = stored.blocks[usize::from(there[at])].node.clone();
        let index = helper.trim_start_matches('h').parse::<u16>().unwrap_or(1) - 1;
        let after = Duration::from_secs_f64(after * stored.block_bytes as f64 / whole.bytes_per_second());
        (self.say)(&format!("{helper} (b{}) becomes slow, {rate}, after {after:?}", there[at]));
        let place = LabNode::Helper(index);
        let (slow, back) = (self.network.change(place, rate), self.network.change(place, whole));
        let (waits, ended) = channel::<()>();
        let thread = thread::spawn(move || match ended.recv_timeout(after) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => slow.make(),
            _ => Ok(()), // The measurement has already ended.
        });
        Ok(Some(Slowed { back, waits, thread }))
    }
}

impl Slowed {
    /// Restores the link's rate.
    pub(super) fn end(self) -> Result<(), LabError> {
        drop(self.waits);
        let made = self.thread.join().expect("it does not panic");
        self.back.make()?;
        Ok(made?)
    }
}
