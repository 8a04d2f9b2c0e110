//! The links and disks of a large cluster: their rates, and the jobs that share them.

use std::collections::BTreeMap;

use recovery::{Loads, Scheduler};
use repair::{NodeId, Topology};

use super::flows::{Flows, Ports, ResourceNo};
use super::large::Cluster;
use super::rounds::Rounds;
use super::sharing::Sharing;

/// Events within this many seconds are treated as simultaneous.
const NOW: f64 = 1e-9;

/// Numbers from this one on are streams of jobs that run in rounds; lower ones are jobs.
const FIRST_STREAM: u64 = 1 << 40;

/// The links and disks of a large cluster.
pub(super) struct Fabric {
    flows: Flows,
    ports: Ports,
    /// For each rack, the trunk out of it and the trunk into it.
    trunks: Vec<(ResourceNo, ResourceNo)>,
    pairs: BTreeMap<(u32, u32), ResourceNo>,
    sharing: Option<Sharing>,
    /// The jobs that run in rounds.
    rounds: BTreeMap<u64, Rounds>,
    /// The streams that are moving, each with its job and its number in the job.
    streams: BTreeMap<u64, (u64, usize)>,
    next_stream: u64,
}

impl Fabric {
    pub fn new(cluster: &Cluster) -> Self {
        let mut flows = Flows::default();
        let mut ports = Ports::default();
        (0..cluster.nodes).for_each(|node| ports.add(&mut flows, cluster.rates_of(node)));
        let (racks, rate) = cluster.bottlenecks.racks.unwrap_or_default();
        let trunks = (0..racks).map(|_| (flows.add_resource(rate), flows.add_resource(rate))).collect();
        let pairs =
            cluster.bottlenecks.pairs.iter().map(|(&pair, &rate)| (pair, flows.add_resource(rate))).collect();
        Self {
            flows,
            ports,
            trunks,
            pairs,
            sharing: None,
            rounds: BTreeMap::new(),
            streams: BTreeMap::new(),
            next_stream: FIRST_STREAM,
        }
    }

    /// Caps the total sending rate of all nodes. `rate` is the rate of each uplink without the cap.
    pub fn set_cap(&mut self, cap: f64, rate: f64, topology: &Topology) {
        let uplinks = self.ports.uplinks();
        self.sharing = Some(Sharing::new(cap, topology, uplinks, rate, &mut self.flows));
    }

    /// Handles a change in the set of live nodes.
    pub fn set_nodes(&mut self, topology: &Topology) {
        if let Some(sharing) = &mut self.sharing {
            sharing.set_nodes(topology, &mut self.flows);
        }
    }

    /// Returns the time of the next adjustment of the cap's shares, if there is a cap.
    pub fn deals_at(&self) -> Option<f64> {
        self.sharing.as_ref().map(Sharing::due)
    }

    /// Returns the seconds until the next transfers end, and their numbers, which are for [`end`](Self::end).
    pub fn next_ends(&mut self) -> Option<(f64, Vec<u64>)> {
        self.flows.next_ends()
    }

    /// Advances the time by `seconds`, to `now`.
    pub fn advance(&mut self, seconds: f64, now: f64, scheduler: &Scheduler) {
        if let Some(sharing) = &mut self.sharing {
            sharing.pass(seconds, &mut self.flows);
        }
        self.flows.advance(seconds);
        if let Some(sharing) = &mut self.sharing {
            sharing.deal(now + NOW, scheduler, &mut self.flows);
        }
    }

    /// Starts the transfers of a job. The job takes at least `least_seconds`, however fast the links are.
    pub fn start(&mut self, job: u64, loads: &Loads, least_seconds: f64) {
        self.flows.start(job, self.uses(loads), least_seconds);
    }

    /// Starts the transfers of a job that runs in rounds, stream by stream.
    pub fn start_rounds(&mut self, job: u64, loads: &Loads) {
        if loads.links.is_empty() {
            return self.start(job, loads, 0.0);
        }
        self.rounds.insert(job, Rounds::new(loads));
        self.start_ready(job);
    }

    fn start_ready(&mut self, job: u64) {
        let ready = self.rounds.get_mut(&job).map(Rounds::start_ready).unwrap_or_default();
        for (number, loads) in ready {
            let uses = self.uses(&loads);
            self.flows.start(self.next_stream, uses, 0.0);
            self.streams.insert(self.next_stream, (job, number));
            self.next_stream += 1;
        }
    }

    /// Handles the end of transfers. Returns the jobs that have ended.
    pub fn end(&mut self, transfers: Vec<u64>) -> Vec<u64> {
        let mut ended = Vec::new();
        for transfer in transfers {
            self.flows.stop(transfer);
            let Some((job, number)) = self.streams.remove(&transfer) else {
                ended.push(transfer);
                continue;
            };
            let rounds = self.rounds.get_mut(&job).expect("its job runs in rounds");
            rounds.arrive(number);
            match rounds.is_over() {
                true => ended.push(job),
                false => self.start_ready(job),
            }
        }
        ended
    }

    pub fn stop(&mut self, job: u64) {
        self.flows.stop(job);
        if self.rounds.remove(&job).is_some() {
            let streams = self.streams.iter().filter(|(_, (of, _))| *of == job);
            for stream in streams.map(|(&stream, _)| stream).collect::<Vec<_>>() {
                self.flows.stop(stream);
                self.streams.remove(&stream);
            }
        }
    }

    fn uses(&self, loads: &Loads) -> Vec<(ResourceNo, f64)> {
        let mut uses = self.ports.uses(loads);
        let mut trunks: BTreeMap<ResourceNo, f64> = BTreeMap::new();
        for &(from, to, bytes) in &loads.links {
            if let Some(&pair) = self.pairs.get(&(from.0, to.0)) {
                uses.push((pair, bytes as f64));
            }
            if !self.trunks.is_empty() {
                let rack = |node: NodeId| node.0 as usize % self.trunks.len();
                if rack(from) != rack(to) {
                    *trunks.entry(self.trunks[rack(from)].0).or_default() += bytes as f64;
                    *trunks.entry(self.trunks[rack(to)].1).or_default() += bytes as f64;
                }
            }
        }
        uses.extend(trunks);
        uses
    }
}
