//! Which of several suspects is slow.
//!
//! A link that holds a repair up shows two nodes, and the repair goes on without both; that one of them carries
//! as much as ever it cannot know. So each of them sends some bytes to a node that nobody suspects, and receives some from
//! it. Who is fast both ways counts as slow no longer. One trial runs at a time, and never beside a measurement of links
//! ([`probes`](super::probes)).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use codes::BlockIndex;
use repair::{JobError, JobId, NodeId, Outcome};

use super::Control;
use super::jobs::Owner;
use crate::error::RequestError;
use crate::nodes::Nodes;

/// A trial takes so many seconds at the rate at which a node was found to be slow.
const TRIAL_S: f64 = 0.4;
/// After this long it has failed, also where so little comes that its end would be hours away.
const TRIAL_LIMIT: Duration = Duration::from_secs(4);
/// What it moves at least: with less, connecting would count for more than the link.
const LEAST: u64 = 1 << 20;
const MOST: u64 = 64 << 20;

/// Trials that wait and the one that runs.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    waiting: VecDeque<Trial>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    trial: Trial,
    job: JobId,
    began: Duration,
}

/// Bytes from one node to another, one of which is suspected. It passes after the last of its trials.
#[derive(Clone, Copy, Debug)]
struct Trial {
    suspect: NodeId,
    from: NodeId,
    to: NodeId,
    /// Bytes per second that the suspect was found to carry.
    rate: f64,
}

impl Trial {
    fn bytes(&self) -> u64 {
        ((self.rate * TRIAL_S) as u64).clamp(LEAST, MOST)
    }
}

impl Suspects {
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether trials of a node wait or run.
    fn are_of(&self, suspect: NodeId) -> bool {
        let running = self.running.iter().map(|running| &running.trial);
        running.chain(&self.waiting).any(|trial| trial.suspect == suspect)
    }

    /// A suspect stays one.
    fn fail(&mut self, suspect: NodeId) {
        self.waiting.retain(|trial| trial.suspect != suspect);
    }
}

impl Control {
    /// Nodes held up a repair, which they let have so much; of several, perhaps not all.
    pub(crate) fn note_slow(&mut self, nodes: &BTreeMap<NodeId, f64>) {
        nodes
            .iter()
            .for_each(|(&node, &rate)| self.nodes.note_slow_node(&self.base, node, rate, &mut self.out));
        if nodes.len() < 2 {
            return;
        }
        let Some(other) = self.nodes.beyond_suspicion() else { return };
        for (&suspect, &rate) in nodes {
            let trial = |from, to| Trial { suspect, from, to, rate };
            if self.nodes.is_helper(suspect) && !self.jobs.suspects.are_of(suspect) {
                self.jobs.suspects.waiting.extend([trial(other, suspect), trial(suspect, other)]);
            }
        }
        self.try_next();
    }

    /// Time has passed.
    pub(crate) fn end_late_trial(&mut self) {
        if let Some(Running { job, began, .. }) = self.jobs.suspects.running
            && self.base.now >= began + TRIAL_LIMIT
        {
            self.jobs.cancel_job(job);
        }
    }

    /// Begins the next trial, unless links are being measured, which it would falsify, and be falsified by.
    pub(crate) fn try_next(&mut self) {
        while !self.jobs.suspects.is_running()
            && !self.jobs.are_links_measured()
            && let Some(trial) = self.jobs.suspects.waiting.pop_front()
        {
            let there = [trial.from, trial.to].into_iter().all(|node| self.nodes.topology.is_alive(node));
            if !there || self.begin_trial(trial).is_err() {
                self.jobs.suspects.fail(trial.suspect);
            }
        }
    }

    /// Moves the bytes of a trial.
    fn begin_trial(&mut self, trial: Trial) -> Result<(), RequestError> {
        let job = self.out.next_job()?;
        let request = self.facts().probe_request(job, (trial.from, trial.to), trial.bytes())?;
        self.jobs.suspects.running = Some(Running { trial, job, began: self.base.now });
        self.start_job(Owner::Trial, request);
        Ok(())
    }

    /// A trial has ended.
    pub(crate) fn trial_ended(&mut self, result: &Result<Outcome, JobError>) {
        let Some(Running { trial, began, .. }) = self.jobs.suspects.running.take() else { return };
        let Trial { suspect, to, .. } = trial;
        let took = self.base.now.saturating_sub(began).as_secs_f64();
        let came = result.as_ref().is_ok_and(|outcome| {
            outcome.homes.get(&BlockIndex(0)) == Some(&to) && outcome.replanned.is_empty()
        });
        if !came || !self.nodes.figures.is_faster(suspect, trial.bytes() as f64 / took.max(1e-6)) {
            self.jobs.suspects.fail(suspect);
        } else if !self.jobs.suspects.are_of(suspect) {
            tracing::info!(node = %self.nodes.name(suspect), "not slow, as a trial shows");
            self.nodes.figures.acquit(suspect);
            self.nodes.tell_rates(suspect, &mut self.out);
        }
        if self.jobs.are_links_measured() {
            self.probe_next();
        }
        self.try_next();
    }
}

impl Nodes {
    /// A helper with little to do that is not slow itself.
    fn beyond_suspicion(&self) -> Option<NodeId> {
        let free = self.live_helpers().filter(|&node| !self.figures.is_slow(node));
        free.min_by_key(|&node| (self.topology.get(node).map_or(0, |profile| profile.load), node))
    }
}
