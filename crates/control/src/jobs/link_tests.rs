//! Jobs that move bytes over a link to learn what it carries: probes, which an operator asks for, and trials
//! of suspects.
//!
//! One of them runs at a time, since each would falsify the other's result.

use repair::{JobId, NodeId};
use std::collections::VecDeque;
use std::time::Duration;

/// A trial takes so many seconds at the rate at which a node was found to be slow.
const TRIAL_S: f64 = 0.4;
/// What it moves at least: with less, connecting would count for more than the link.
const LEAST_TRIAL: u64 = 1 << 20;
const MOST_TRIAL: u64 = 64 << 20;

/// The latest probes, and the trials of nodes that may be slow.
#[derive(Default)]
pub(crate) struct LinkTests {
    /// The measurement that runs, or the last one.
    pub(super) probes: Option<Probes>,
    pub(super) suspects: Suspects,
}

pub(super) type Link = (NodeId, NodeId);

/// A measurement, running or ended.
#[derive(Debug)]
pub(crate) struct Probes {
    pub(super) pairs: bool,
    pub(super) bytes: u64,
    pub(super) waiting: VecDeque<Link>,
    pub(super) running: Option<RunningProbe>,
    pub(super) results: Vec<(Link, Result<f64, String>)>,
}

#[derive(Debug)]
pub(super) struct RunningProbe {
    pub(super) link: Link,
    pub(super) job: JobId,
    pub(super) began: Duration,
    /// How long the few bytes took, once they are there.
    pub(super) few: Option<Duration>,
}

/// Trials that wait and the one that runs.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    pub(super) waiting: VecDeque<Trial>,
    pub(super) running: Option<RunningTrial>,
}

#[derive(Debug)]
pub(super) struct RunningTrial {
    pub(super) trial: Trial,
    pub(super) job: JobId,
    pub(super) began: Duration,
}

/// Bytes from one node to another, one of which is suspected. It passes after the last of its trials.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) suspect: NodeId,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// Bytes per second that the suspect was found to carry.
    pub(super) rate: f64,
}

impl Trial {
    pub(super) fn bytes(&self) -> u64 {
        ((self.rate * TRIAL_S) as u64).clamp(LEAST_TRIAL, MOST_TRIAL)
    }
}

impl Suspects {
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether trials of a node wait or run.
    pub(super) fn are_of(&self, suspect: NodeId) -> bool {
        let running = self.running.iter().map(|running| &running.trial);
        running.chain(&self.waiting).any(|trial| trial.suspect == suspect)
    }

    /// A suspect stays one.
    pub(crate) fn fail(&mut self, suspect: NodeId) {
        self.waiting.retain(|trial| trial.suspect != suspect);
    }
}
