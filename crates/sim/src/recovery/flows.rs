//! A fluid model of jobs that share links and disks: rates only, no bytes.
//!
//! A job uses its resources in fixed proportions, because its slices pass all its nodes at one pace: the
//! slowest link sets the pace of the whole job. Rates are max-min fair. The paces of all jobs grow equally
//! until some resource is saturated; the jobs that use this resource keep their pace, and the others continue
//! to grow. A job whose nodes either receive or send has a minimum duration even without competitors, and
//! therefore a maximum pace.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use recovery::Loads;
use repair::Rates;

/// The index of a resource in [`Flows`].
pub(crate) type ResourceNo = usize;

/// Tolerance for rounding errors.
const NOTHING: f64 = 1e-9;

#[derive(Debug)]
struct Flow {
    /// Each resource of the job, with the total bytes that the job moves over it.
    uses: Vec<(ResourceNo, f64)>,
    /// The maximum pace.
    most: f64,
    /// The fraction of the job that is left.
    left: f64,
    /// The current pace: the fraction of the job that is done per second.
    pace: f64,
}

/// All jobs and resources.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// The rate of each resource in bytes per second.
    rates: Vec<f64>,
    flows: BTreeMap<u64, Flow>,
    stale: bool,
}

impl Flows {
    pub fn add_resource(&mut self, rate: f64) -> ResourceNo {
        self.rates.push(rate);
        self.rates.len() - 1
    }

    /// Starts a job that takes at least `least_seconds`.
    pub fn start(&mut self, id: u64, mut uses: Vec<(ResourceNo, f64)>, least_seconds: f64) {
        uses.retain(|&(_, bytes)| bytes > 0.0);
        self.flows.insert(id, Flow { uses, most: 1.0 / least_seconds, left: 1.0, pace: 0.0 });
        self.stale = true;
    }

    pub fn stop(&mut self, id: u64) {
        self.flows.remove(&id);
        self.stale = true;
    }

    /// Changes the rate of a resource, in bytes per second.
    pub fn set_rate(&mut self, resource: ResourceNo, rate: f64) {
        self.stale |= self.rates[resource] != rate;
        self.rates[resource] = rate;
    }

    /// Returns the bytes per second that all jobs together move over each resource.
    pub fn used(&mut self) -> Vec<f64> {
        self.settle();
        let mut used = vec![0.0; self.rates.len()];
        for flow in self.flows.values() {
            flow.uses.iter().for_each(|&(resource, bytes)| used[resource] += flow.pace * bytes);
        }
        used
    }

    /// Returns the seconds until the next jobs end, and the numbers of these jobs.
    pub fn next_ends(&mut self) -> Option<(f64, Vec<u64>)> {
        self.settle();
        let time = |flow: &Flow| flow.left / flow.pace;
        let first = self.flows.values().map(time).min_by(f64::total_cmp)?;
        let ends = self.flows.iter().filter(|(_, flow)| time(flow) <= first * (1.0 + NOTHING));
        Some((first, ends.map(|(&id, _)| id).collect()))
    }

    /// Advances the time by `seconds`, at most to the next end of a job.
    pub fn advance(&mut self, seconds: f64) {
        self.settle();
        for flow in self.flows.values_mut() {
            flow.left -= (flow.pace * seconds).min(flow.left);
        }
    }

    /// Recomputes all paces if a job or a rate has changed.
    fn settle(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut filling = Filling::new(&self.rates, &self.flows);
        while let Some(resource) = filling.tightest() {
            filling.fill(resource);
        }
        let paces = filling.paces;
        for (flow, pace) in self.flows.values_mut().zip(paces) {
            flow.pace = pace.unwrap_or(f64::INFINITY);
        }
    }
}

/// The uplink, downlink and disk of each node.
#[derive(Debug, Default)]
pub(super) struct Ports(Vec<[ResourceNo; 3]>);

impl Ports {
    /// Adds the ports of a node.
    pub fn add(&mut self, flows: &mut Flows, rates: Rates) {
        self.0.push([rates.up, rates.down, rates.disk()].map(|rate| flows.add_resource(rate)));
    }

    /// Returns the uplink of each node.
    pub fn uplinks(&self) -> Vec<ResourceNo> {
        self.0.iter().map(|&[up, ..]| up).collect()
    }

    /// Returns the bytes that a job moves over each port. The node numbers in `loads` are indices into the
    /// ports.
    pub fn uses(&self, loads: &Loads) -> Vec<(ResourceNo, f64)> {
        let used = |load: &recovery::NodeLoad| {
            let bytes = [load.sent_bytes, load.received_bytes, load.read_bytes + load.stored_bytes];
            let port = self.0[load.node.0 as usize];
            port.into_iter().zip(bytes.map(|bytes| bytes as f64))
        };
        loads.nodes.iter().flat_map(used).collect()
    }
}

/// Max-min fair sharing by progressive filling: saturates one resource after another, in the order of the
/// paces at which the resources become saturated.
struct Filling<'a> {
    flows: Vec<&'a Flow>,
    paces: Vec<Option<f64>>,
    room: Vec<f64>,
    /// For each resource, the bytes per unit of pace, summed over the jobs whose pace is not fixed yet.
    weights: Vec<f64>,
    users: Vec<Vec<u32>>,
    queue: BinaryHeap<Level>,
}

/// An entry of the queue: the pace at which a resource is saturated. An outdated entry is recomputed and
/// queued again.
struct Level {
    pace: f64,
    resource: ResourceNo,
}

impl<'a> Filling<'a> {
    fn new(rates: &[f64], flows: &'a BTreeMap<u64, Flow>) -> Self {
        let flows: Vec<&Flow> = flows.values().collect();
        let mut filling = Self {
            paces: vec![None; flows.len()],
            room: rates.to_vec(),
            weights: vec![0.0; rates.len()],
            users: vec![Vec::new(); rates.len()],
            queue: BinaryHeap::new(),
            flows,
        };
        for (number, flow) in filling.flows.iter().enumerate() {
            for &(resource, bytes) in &flow.uses {
                filling.weights[resource] += bytes;
                filling.users[resource].push(number as u32);
            }
        }
        filling.add_own_limits();
        for resource in 0..filling.room.len() {
            if !filling.users[resource].is_empty() {
                filling.queue.push(Level { pace: filling.pace(resource), resource });
            }
        }
        filling
    }

    /// Models the maximum pace of a job as a resource that only this job uses.
    fn add_own_limits(&mut self) {
        for (number, flow) in self.flows.iter().enumerate().filter(|(_, flow)| flow.most.is_finite()) {
            self.room.push(flow.most);
            self.weights.push(1.0);
            self.users.push(vec![number as u32]);
        }
    }

    fn pace(&self, resource: ResourceNo) -> f64 {
        (self.room[resource] / self.weights[resource]).max(0.0)
    }

    fn tightest(&mut self) -> Option<ResourceNo> {
        while let Some(Level { pace, resource }) = self.queue.pop() {
            if self.users[resource].iter().all(|&flow| self.paces[flow as usize].is_some()) {
                continue;
            }
            let now = self.pace(resource);
            // The pace of a queued resource can only grow: jobs that are limited elsewhere leave more of the
            // resource to the others.
            if now > pace * (1.0 + NOTHING) {
                self.queue.push(Level { pace: now, resource });
                continue;
            }
            return Some(resource);
        }
        None
    }

    /// Fixes the pace of all jobs that use a saturated resource.
    fn fill(&mut self, resource: ResourceNo) {
        let pace = self.pace(resource);
        for flow in std::mem::take(&mut self.users[resource]) {
            if self.paces[flow as usize].is_some() {
                continue;
            }
            self.paces[flow as usize] = Some(pace);
            for &(used, bytes) in &self.flows[flow as usize].uses {
                self.room[used] -= pace * bytes;
                self.weights[used] -= bytes;
            }
        }
    }
}

impl PartialEq for Level {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Level {}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Level {
    /// Compares in reverse, because the heap returns the greatest entry first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.pace.total_cmp(&self.pace).then(other.resource.cmp(&self.resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_a_link_equally_and_leave_the_rest_to_others() {
        let mut flows = Flows::default();
        let (narrow, wide) = (flows.add_resource(10.0), flows.add_resource(100.0));
        flows.start(1, vec![(narrow, 100.0)], 0.0);
        flows.start(2, vec![(narrow, 100.0), (wide, 100.0)], 0.0);
        flows.start(3, vec![(wide, 100.0)], 0.0);
        // Jobs 1 and 2 share the link of 10 B/s, 5 B/s each. Job 3 gets the other 95 B/s of the link of 100
        // B/s.
        let (seconds, ends) = flows.next_ends().unwrap();
        assert!((seconds - 100.0 / 95.0).abs() < 1e-9 && ends == [3], "{seconds} {ends:?}");
        flows.advance(seconds);
        flows.stop(3);
        let (rest, ends) = flows.next_ends().unwrap();
        assert!((seconds + rest - 20.0).abs() < 1e-9 && ends == [1, 2], "{rest} {ends:?}");
    }

    #[test]
    fn a_job_with_a_minimum_duration_leaves_unused_rate_to_others() {
        let mut flows = Flows::default();
        let link = flows.add_resource(100.0);
        flows.start(1, vec![(link, 100.0)], 4.0);
        flows.start(2, vec![(link, 150.0)], 0.0);
        // Job 1 moves 100 bytes in at least 4 s, so it gets 25 B/s. Job 2 gets the other 75 B/s.
        let (seconds, ends) = flows.next_ends().unwrap();
        assert!((seconds - 2.0).abs() < 1e-9 && ends == [2], "{seconds} {ends:?}");
        flows.advance(seconds);
        flows.stop(2);
        let (rest, _) = flows.next_ends().unwrap();
        assert!((seconds + rest - 4.0).abs() < 1e-9, "nothing makes it faster: {rest}");
    }
}
