//! Jobs that move bytes over a link to measure its rate: probes, which an operator requests, and trials of
//! suspected stragglers.
//!
//! Only one probe or trial runs at a time, because two would distort each other's results.

use repair::{JobId, NodeId};
use std::collections::VecDeque;
use std::time::Duration;

/// The duration of a trial in seconds if the suspect is as slow as observed.
const TRIAL_S: f64 = 0.4;
/// The minimum number of bytes of a trial. With fewer bytes, the time to connect would dominate.
const LEAST_TRIAL: u64 = 1 << 20;
const MOST_TRIAL: u64 = 64 << 20;

/// The latest probes, and the trials of suspected stragglers.
#[derive(Default)]
pub(crate) struct LinkTests {
    /// The probes that are running, or otherwise the last ones.
    pub(super) probes: Option<Probes>,
    pub(super) suspects: Suspects,
}

pub(super) type Link = (NodeId, NodeId);

/// A series of probes, running or ended.
#[derive(Debug)]
pub(crate) struct Probes {
    pub(super) started_unix_ms: u64,
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
    /// The duration of the first, small transfer over the link, once it has ended.
    pub(super) few: Option<Duration>,
}

/// Waiting trials and the running one.
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

/// A transfer between a suspect and another node. The suspect is cleared when all of its trials have
/// succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) suspect: NodeId,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// The rate at which the suspect held up a repair, in bytes per second.
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

    /// Whether a trial of a node is waiting or running.
    pub(super) fn are_of(&self, suspect: NodeId) -> bool {
        let running = self.running.iter().map(|running| &running.trial);
        running.chain(&self.waiting).any(|trial| trial.suspect == suspect)
    }

    /// Drops the waiting trials of a node after one of its trials has failed. The node stays suspected.
    pub(crate) fn fail(&mut self, suspect: NodeId) {
        self.waiting.retain(|trial| trial.suspect != suspect);
    }
}
