//! Probes measure links: one helper sends zeros to another, which discards them.
//!
//! A probe is an ordinary job with a block that no store has and no node keeps
//! ([`Class::Probe`](repair::Class)). It therefore uses the same connections as repairs and ends when a node
//! disconnects. One probe runs at a time and delays no other job, so a busy node is measured by its spare
//! capacity. Each link is measured twice, with few bytes and with many. The rate is the difference in bytes
//! divided by the difference in time, which cancels the time for connecting and starting.
//!
//! The results are stored in the records and passed to the topology (`network`).

use std::collections::VecDeque;
use std::time::Duration;

use codes::{BlockIndex, CodeSpec};
use repair::{
    BlockId, Chunking, JobError, JobId, JobRequest, NodeId, Outcome, Policy, Scheme, Stripe, StripeBlock,
    StripeId, Verify, Wanted,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use views::{ProbeRequest, ProbeView, ProbedLink};

use crate::base::Base;
use crate::error::{NetworkError, RequestError};
use crate::facts::Facts;
use crate::jobs::link_tests::LinkTests;
use crate::jobs::link_tests::{Link, Probes, RunningProbe};
use crate::jobs::owner::Owner;
use crate::nodes::Nodes;
use crate::nodes::bandwidth::Found;
use crate::out::Out;
use crate::signal::Signal;

/// The key of measured rates in the records.
const KEY: &str = "measured";
/// Bytes of the first transfer over a link, which measures the fixed costs.
const FEW: u64 = 1 << 20;
/// Bytes of the second transfer, unless the request sets another number.
const MANY: u64 = 32 << 20;
const LEAST: u64 = 4 << 20;
const MOST: u64 = 1 << 30;
/// If not every pair is measured, each helper sends to the helpers at these distances behind it in the list
/// of helpers.
const DISTANCES: [usize; 3] = [1, 2, 5];
/// The largest number of links per measurement; more would take too long.
const MOST_LINKS: usize = 10_000;
/// The smallest difference between two durations that is used for a rate. Smaller ones are below the
/// resolution of the measurement and are raised to this.
const NO_TIME: Duration = Duration::from_micros(100);

/// The measured rates, as the records store them.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    nodes: Vec<(NodeId, [Option<Found>; 2])>,
    pairs: Vec<(NodeId, NodeId, Found)>,
}

impl LinkTests {
    /// Starts to measure links.
    pub(crate) fn start_probes(
        &mut self,
        facts: Facts<'_>,
        request: &ProbeRequest,
        out: &mut Out,
    ) -> Result<ProbeView, RequestError> {
        if self.probes.as_ref().is_some_and(Probes::is_running) {
            return Err(NetworkError::ProbesRun.into());
        }
        let nodes = Self::probed_nodes(facts, &request.nodes)?;
        let waiting = links(&nodes, request.pairs);
        if waiting.len() > MOST_LINKS {
            return Err(NetworkError::TooManyLinks { links: waiting.len(), most: MOST_LINKS }.into());
        }
        let bytes = request.bytes.unwrap_or(MANY).clamp(LEAST, MOST);
        // The clock may have been set back.
        let after_last = self.probes.as_ref().map_or(0, |last| last.started_unix_ms + 1);
        self.probes = Some(Probes {
            started_unix_ms: facts.base.unix_ms.max(after_last),
            pairs: request.pairs,
            bytes,
            waiting,
            running: None,
            results: Vec::new(),
        });
        self.probe_next(facts, out);
        self.probe_view(facts)
    }

    /// Stops a measurement; the results so far are kept.
    pub(crate) fn stop_probes(&mut self, facts: Facts<'_>, out: &mut Out) -> Result<ProbeView, RequestError> {
        let probes = self.probes.as_mut().ok_or(NetworkError::NoProbes)?;
        let was_running = probes.is_running();
        probes.waiting.clear();
        match probes.running.as_ref().map(|running| running.job) {
            Some(job) => out.tell(Signal::Cancel(job)),
            None if was_running => self.end_measurement(facts, out),
            None => {}
        }
        self.probe_view(facts)
    }

    /// Measures the next link, unless the trial of a suspect is running; in that case the link waits.
    pub(crate) fn probe_next(&mut self, facts: Facts<'_>, out: &mut Out) {
        while !self.suspects.is_running()
            && let Some(probes) = self.probes.as_mut().filter(|probes| probes.running.is_none())
        {
            let Some(link) = probes.waiting.pop_front() else { return self.end_measurement(facts, out) };
            if let Err(why) = self.probe(facts, link, FEW, None, out) {
                self.note_probed(link, Err(why.to_string()), out);
            }
        }
    }

    /// Starts a transfer from one node to another. For the second transfer over a link, `few` is the duration
    /// of the first.
    pub(crate) fn probe(
        &mut self,
        facts: Facts<'_>,
        link: Link,
        bytes: u64,
        few: Option<Duration>,
        out: &mut Out,
    ) -> Result<(), RequestError> {
        let job = out.next_job()?;
        let request = Self::probe_request(facts, job, link, bytes)?;
        let probes = self.probes.as_mut().expect("a measurement is in progress");
        probes.running = Some(RunningProbe { link, job, began: facts.base.now, few });
        out.tell(Signal::Start { owner: Owner::Probe, request: Box::new(request) });
        Ok(())
    }

    /// Handles the end of a transfer: starts the second transfer over the link, or computes the link's rate
    /// and measures the next link.
    pub(crate) fn probe_ended(&mut self, facts: Facts<'_>, result: Result<Outcome, JobError>, out: &mut Out) {
        let Some(RunningProbe { link, began, few, .. }) =
            self.probes.as_mut().and_then(|probes| probes.running.take())
        else {
            return;
        };
        let took = facts.base.now.saturating_sub(began);
        let came = result.map_err(|error| error.to_string()).and_then(|outcome| {
            // If peers complained about the receiver, the job has replaced it. The time then says nothing
            // about this link.
            let there = outcome.homes.get(&BlockIndex(0)) == Some(&link.1) && outcome.replanned.is_empty();
            if there { Ok(()) } else { Err(outcome.replanned.join("; ")) }
        });
        match (came, few) {
            (Err(why), _) => self.note_probed(link, Err(why), out),
            (Ok(()), None) => {
                let bytes = self.probes.as_ref().expect("a measurement is in progress").bytes;
                if let Err(why) = self.probe(facts, link, bytes, Some(took), out) {
                    self.note_probed(link, Err(why.to_string()), out);
                }
            }
            (Ok(()), Some(few)) => {
                let bytes = self.probes.as_ref().expect("a measurement is in progress").bytes - FEW;
                let rate = bytes as f64 / took.saturating_sub(few).max(NO_TIME).as_secs_f64();
                self.note_probed(link, Ok(rate), out);
            }
        }
        self.probe_next(facts, out);
    }

    fn note_probed(&mut self, link: Link, result: Result<f64, String>, out: &mut Out) {
        let probes = self.probes.as_mut().expect("a measurement is in progress");
        probes.running = None;
        probes.results.push((link, result));
        let ports = probes.ports(link);
        let pair = probes.results.last().and_then(|(_, result)| result.clone().ok());
        let pair = pair.filter(|_| probes.pairs);
        out.tell(Signal::Measured { link, ports, pair });
    }

    /// Ends a measurement of links: has the results stored, and starts waiting trials.
    fn end_measurement(&mut self, facts: Facts<'_>, out: &mut Out) {
        out.tell(Signal::MeasuredAll);
        self.try_next(facts, out);
    }
}

impl LinkTests {
    fn probed_nodes(facts: Facts<'_>, names: &[String]) -> Result<Vec<NodeId>, RequestError> {
        let mut nodes = match names {
            [] => facts.nodes.live_helpers().collect(),
            names => names
                .iter()
                .map(|name| facts.nodes.node_named(facts.base, name))
                .collect::<Result<Vec<_>, _>>()?,
        };
        if let Some(&down) = nodes.iter().find(|node| !facts.nodes.topology.is_alive(**node)) {
            return Err(NetworkError::NodeDown(facts.nodes.name(down)).into());
        }
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() < 2 { Err(NetworkError::TooFewToProbe(nodes.len()).into()) } else { Ok(nodes) }
    }
}

impl Nodes {
    /// Restores the rates that an earlier coordinator measured.
    pub(crate) fn recall_measured(&mut self, records: &[(String, Value)]) {
        let Some((_, record)) = records.iter().find(|(key, _)| key == KEY) else { return };
        match serde_json::from_value::<Kept>(record.clone()) {
            Ok(kept) => {
                for (node, rates) in kept.nodes {
                    self.bandwidth.measure(node, rates);
                }
                kept.pairs
                    .into_iter()
                    .for_each(|(from, to, found)| self.bandwidth.measure_pair(from, to, found));
            }
            Err(error) => tracing::warn!(%error, "dropping unreadable measured rates"),
        }
    }
}

impl LinkTests {
    /// Returns the view of the running measurement, or otherwise of the last one.
    pub(crate) fn probe_view(&self, facts: Facts<'_>) -> Result<ProbeView, RequestError> {
        let probes = self.probes.as_ref().ok_or(NetworkError::NoProbes)?;
        let link = |((from, to), result): &(Link, Result<f64, String>)| ProbedLink {
            from: facts.nodes.name(*from),
            to: facts.nodes.name(*to),
            bytes_per_s: result.as_ref().ok().map(|&rate| rate as u64),
            error: result.as_ref().err().cloned(),
        };
        Ok(ProbeView {
            running: probes.is_running(),
            pairs: probes.pairs,
            bytes: probes.bytes,
            left: probes.left() as u64,
            links: probes.results.iter().map(link).collect(),
            started_unix_ms: probes.started_unix_ms,
        })
    }
}

impl LinkTests {
    /// Returns the request for a job that moves bytes over a link; an error if there are none.
    pub(crate) fn probe_request(
        facts: Facts<'_>,
        job: JobId,
        link: Link,
        bytes: u64,
    ) -> Result<JobRequest, RequestError> {
        let (from, to) = link;
        // Only the first data block is transferred.
        let code = facts.stripes.codes.get(&CodeSpec::reed_solomon(2, 1))?;
        let chunking = Chunking::of(&*code, bytes, None)?;
        let name = format!("probe-{job}");
        let block = |index: u16| StripeBlock {
            id: BlockId(format!("{name}.{index}")),
            bytes,
            holder: (index == 0).then_some(from),
            digest: None,
        };
        let blocks = (0..code.blocks() as u16).map(block).collect();
        Ok(JobRequest {
            job,
            window: 0..chunking.sub_block_bytes(),
            stripe: Stripe { id: StripeId(name.clone()), code, chunking, blocks, label: None },
            wanted: vec![Wanted { block: BlockIndex(0), requestor: to }],
            sub_blocks: None,
            policy: Policy { scheme: Scheme::Migration, ..Policy::default() },
            verify: Verify::default(),
            publish: false,
            tag: None,
            permits: Vec::new(),
        })
    }
}

impl Nodes {
    /// Records the measured rate of a link.
    pub(crate) fn note_measured(
        &mut self,
        base: &Base,
        (from, to): Link,
        ports: [Option<f64>; 2],
        pair: Option<f64>,
    ) {
        let found = |rate| Found { rate, at_unix_ms: base.unix_ms };
        let [up, down] = ports.map(|rate| rate.map(found));
        self.bandwidth.measure(from, [up, None]);
        self.bandwidth.measure(to, [None, down]);
        if let Some(rate) = pair {
            self.bandwidth.measure_pair(from, to, found(rate));
        }
    }

    /// Stores the measured rates after the last link was measured, and passes them to the planner and the
    /// scheduler.
    pub(crate) fn keep_measured(&mut self, base: &Base, out: &mut Out) {
        let kept =
            Kept { nodes: self.bandwidth.measured().collect(), pairs: self.bandwidth.pairs().collect() };
        out.keep_record(KEY.to_owned(), &kept);
        self.tell_all_rates(out);
        self.lay_links(base);
    }
}

impl LinkTests {
    /// Whether links are being measured.
    pub(crate) fn are_links_measured(&self) -> bool {
        self.probes.as_ref().is_some_and(Probes::is_running)
    }
}

impl Probes {
    fn is_running(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty()
    }

    fn left(&self) -> usize {
        self.waiting.len() + usize::from(self.running.is_some())
    }

    /// Returns the best rate measured over all links from the link's sender, and the best one over all links
    /// to the link's receiver.
    fn ports(&self, (from, to): Link) -> [Option<f64>; 2] {
        let most = |is_it: &dyn Fn(&Link) -> bool| {
            let rates = self.results.iter().filter(|(link, _)| is_it(link));
            rates.filter_map(|(_, result)| result.as_ref().ok().copied()).reduce(f64::max)
        };
        [most(&|link| link.0 == from), most(&|link| link.1 == to)]
    }
}

/// Returns the links to measure, ordered so consecutive links share no node where possible.
fn links(nodes: &[NodeId], pairs: bool) -> VecDeque<Link> {
    let distances: Vec<usize> = match pairs {
        true => (1..nodes.len()).collect(),
        false => DISTANCES.into_iter().filter(|&distance| distance < nodes.len()).collect(),
    };
    let at = |from: usize, distance: usize| (nodes[from], nodes[(from + distance) % nodes.len()]);
    let from = |distance| (0..nodes.len()).map(move |from| (from, distance));
    distances.into_iter().flat_map(from).map(|(from, distance)| at(from, distance)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_port_is_measured_over_several_links_and_every_pair_once() {
        let nodes: Vec<NodeId> = (1..=7).map(NodeId).collect();
        let few = links(&nodes, false);
        assert_eq!(few.len(), 21);
        for node in &nodes {
            let peers = |end: fn(&Link) -> (NodeId, NodeId)| {
                few.iter().map(end).filter(|(own, _)| own == node).map(|(_, peer)| peer).collect::<Vec<_>>()
            };
            assert_eq!(peers(|link| *link).len(), 3);
            assert_eq!(peers(|&(from, to)| (to, from)).len(), 3);
        }
        let all = links(&nodes, true);
        let once: BTreeSet<Link> = all.iter().copied().collect();
        assert_eq!((all.len(), once.len()), (42, 42));
        assert_eq!(links(&nodes[..2], false), [(NodeId(1), NodeId(2)), (NodeId(2), NodeId(1))]);
    }

    #[test]
    fn a_port_carries_what_its_best_link_does() {
        let [a, b, c] = [1, 2, 3].map(NodeId);
        let results = vec![((a, b), Ok(5.0)), ((a, c), Ok(9.0)), ((b, c), Err("gone".to_owned()))];
        let waiting = VecDeque::new();
        let probes = Probes { started_unix_ms: 1, pairs: false, bytes: 1, waiting, running: None, results };
        assert_eq!(probes.ports((a, b)), [Some(9.0), Some(5.0)]);
        assert_eq!(probes.ports((b, c)), [None, Some(9.0)]);
    }
}
