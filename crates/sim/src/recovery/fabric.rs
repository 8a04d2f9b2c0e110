//! The links and disks of a large cluster: their rates, and the jobs that share them.

use std::collections::BTreeMap;

use recovery::{Loads, Scheduler};
use repair::{NodeId, Topology};

use super::flows::{Flows, Ports, ResourceNo};
use super::large::Cluster;
use super::sharing::Sharing;

/// Events within this many seconds are treated as simultaneous.
const NOW: f64 = 1e-9;

/// The links and disks of a large cluster.
pub(super) struct Fabric {
    flows: Flows,
    ports: Ports,
    /// For each rack, the trunk out of it and the trunk into it.
    trunks: Vec<(ResourceNo, ResourceNo)>,
    pairs: BTreeMap<(u32, u32), ResourceNo>,
    sharing: Option<Sharing>,
}

impl Fabric {
    pub fn new(cluster: &Cluster) -> Self {
        let mut flows = Flows::default();
        let mut ports = Ports::default();
        (0..cluster.nodes).for_each(|_| ports.add(&mut flows, cluster.rates));
        let (racks, rate) = cluster.bottlenecks.racks.unwrap_or_default();
        let trunks = (0..racks).map(|_| (flows.add_resource(rate), flows.add_resource(rate))).collect();
        let pairs =
            cluster.bottlenecks.pairs.iter().map(|(&pair, &rate)| (pair, flows.add_resource(rate))).collect();
        Self { flows, ports, trunks, pairs, sharing: None }
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

    /// Returns the seconds until the next jobs end, and the numbers of these jobs.
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

    pub fn stop(&mut self, job: u64) {
        self.flows.stop(job);
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
