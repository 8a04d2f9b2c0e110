//! Finds the slow node among several suspects.
//!
//! A slow link puts both of its nodes under suspicion, and the repair continues without either. The repair
//! cannot tell which of them is slow. Therefore each suspect exchanges some bytes with a node that is not
//! suspected, in both directions. A suspect that is fast in both directions is cleared. One trial runs at a
//! time, and never during a measurement of links ([`probes`](crate::jobs::probes)).

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{JobError, NodeId, Outcome};

use crate::base::Base;
use crate::error::RequestError;
use crate::facts::Facts;
use crate::jobs::link_tests::LinkTests;
use crate::jobs::link_tests::{RunningTrial, Trial};
use crate::jobs::owner::Owner;
use crate::nodes::Nodes;
use crate::out::Out;
use crate::signal::Signal;

/// A trial that takes longer than this has failed. Without this limit, a trial of a very slow node could take
/// hours.
const TRIAL_LIMIT: Duration = Duration::from_secs(4);

impl LinkTests {
    /// Records that nodes held up a repair at these rates, in bytes per second. If there are several nodes,
    /// some of them may not be slow, so each gets a trial.
    pub(crate) fn note_slow(&mut self, facts: Facts<'_>, nodes: &BTreeMap<NodeId, f64>, out: &mut Out) {
        for (&node, &rate) in nodes {
            out.tell(Signal::Slow { node, rate });
        }
        if nodes.len() < 2 {
            return;
        }
        let Some(other) = facts.nodes.beyond_suspicion(nodes) else { return };
        for (&suspect, &rate) in nodes {
            let trial = |from, to| Trial { suspect, from, to, rate };
            if facts.nodes.is_helper(suspect) && !self.suspects.are_of(suspect) {
                self.suspects.waiting.extend([trial(other, suspect), trial(suspect, other)]);
            }
        }
        self.try_next(facts, out);
    }

    /// Cancels a trial that has reached its time limit.
    pub(crate) fn end_late_trial(&self, base: &Base, out: &mut Out) {
        if let Some(RunningTrial { job, began, .. }) = self.suspects.running
            && base.now >= began + TRIAL_LIMIT
        {
            out.tell(Signal::Cancel(job));
        }
    }

    /// Starts the next trial, unless links are being measured: the trial and the measurement would distort
    /// each other.
    pub(crate) fn try_next(&mut self, facts: Facts<'_>, out: &mut Out) {
        while !self.suspects.is_running()
            && !self.are_links_measured()
            && let Some(trial) = self.suspects.waiting.pop_front()
        {
            let there = [trial.from, trial.to].into_iter().all(|node| facts.nodes.topology.is_alive(node));
            if !there || self.begin_trial(facts, trial, out).is_err() {
                self.suspects.fail(trial.suspect);
            }
        }
    }

    /// Starts the transfer of a trial.
    fn begin_trial(&mut self, facts: Facts<'_>, trial: Trial, out: &mut Out) -> Result<(), RequestError> {
        let job = out.next_job()?;
        let request = Self::probe_request(facts, job, (trial.from, trial.to), trial.bytes())?;
        self.suspects.running = Some(RunningTrial { trial, job, began: facts.base.now });
        out.tell(Signal::Start { owner: Owner::Trial, request: Box::new(request) });
        Ok(())
    }

    /// Handles the end of a trial: a suspect whose trials were all fast enough is cleared. Starts the next
    /// trial.
    pub(crate) fn trial_ended(
        &mut self,
        facts: Facts<'_>,
        result: &Result<Outcome, JobError>,
        out: &mut Out,
    ) {
        let Some(RunningTrial { trial, began, .. }) = self.suspects.running.take() else { return };
        let Trial { suspect, to, .. } = trial;
        let took = facts.base.now.saturating_sub(began).as_secs_f64();
        let came = result.as_ref().is_ok_and(|outcome| {
            outcome.homes.get(&BlockIndex(0)) == Some(&to) && outcome.replanned.is_empty()
        });
        if !came || !facts.nodes.bandwidth.is_faster(suspect, trial.bytes() as f64 / took.max(1e-6)) {
            self.suspects.fail(suspect);
        } else if !self.suspects.are_of(suspect) {
            tracing::info!(
                helper = %facts.nodes.name(suspect),
                "a trial transfer was fast: the node no longer counts as slow"
            );
            out.tell(Signal::Acquitted(suspect));
        }
        if self.are_links_measured() {
            self.probe_next(facts, out);
        }
        self.try_next(facts, out);
    }
}

impl Nodes {
    /// Clears a node of suspicion.
    pub(crate) fn acquit(&mut self, node: NodeId, out: &mut Out) {
        self.bandwidth.acquit(node);
        self.tell_rates(node, out);
    }

    /// Returns the least loaded helper that is not suspected.
    fn beyond_suspicion(&self, suspects: &BTreeMap<NodeId, f64>) -> Option<NodeId> {
        let is_free = |node: &NodeId| !self.bandwidth.is_slow(*node) && !suspects.contains_key(node);
        let free = self.live_helpers().filter(is_free);
        free.min_by_key(|&node| (self.topology.get(node).map_or(0, |profile| profile.load), node))
    }
}
