//! Many jobs that share links and disks, as fluids: no bytes, only rates.
//!
//! A job uses resources in fixed proportions, as its slices pass all its nodes at one pace: whichever of its
//! links is slowest sets the pace of all. Rates are max-min fair: the paces of all jobs grow alike until some
//! resource is used up; the jobs that use it stay at that pace, and the others grow on. A job that is carried
//! out in rounds takes as long as its rounds even if nothing else is under way, so that it has a pace that it
//! never exceeds.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use recovery::Loads;
use repair::Rates;

/// A resource's place in [`Flows`].
pub(super) type ResourceNo = usize;

/// What is left of a job that is less than this has been done: rounding.
const NOTHING: f64 = 1e-9;

#[derive(Debug)]
struct Flow {
    /// Bytes over each resource in all.
    uses: Vec<(ResourceNo, f64)>,
    /// Parts per second, at most.
    most: f64,
    /// The part that is still to be done.
    left: f64,
    /// Parts per second.
    pace: f64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// Bytes per second.
    rates: Vec<f64>,
    flows: BTreeMap<u64, Flow>,
    stale: bool,
}

impl Flows {
    pub fn add_resource(&mut self, rate: f64) -> ResourceNo {
        self.rates.push(rate);
        self.rates.len() - 1
    }

    /// A job that takes `least_seconds` at least, whatever is free.
    pub fn start(&mut self, id: u64, mut uses: Vec<(ResourceNo, f64)>, least_seconds: f64) {
        uses.retain(|&(_, bytes)| bytes > 0.0);
        self.flows.insert(id, Flow { uses, most: 1.0 / least_seconds, left: 1.0, pace: 0.0 });
        self.stale = true;
    }

    pub fn stop(&mut self, id: u64) {
        self.flows.remove(&id);
        self.stale = true;
    }

    /// A resource carries so many bytes per second from now on.
    pub fn set_rate(&mut self, resource: ResourceNo, rate: f64) {
        self.stale |= self.rates[resource] != rate;
        self.rates[resource] = rate;
    }

    /// How many bytes per second of each resource are used.
    pub fn used(&mut self) -> Vec<f64> {
        self.settle();
        let mut used = vec![0.0; self.rates.len()];
        for flow in self.flows.values() {
            flow.uses.iter().for_each(|&(resource, bytes)| used[resource] += flow.pace * bytes);
        }
        used
    }

    /// The jobs that end next, and in how many seconds.
    pub fn next_ends(&mut self) -> Option<(f64, Vec<u64>)> {
        self.settle();
        let time = |flow: &Flow| flow.left / flow.pace;
        let first = self.flows.values().map(time).min_by(f64::total_cmp)?;
        let ends = self.flows.iter().filter(|(_, flow)| time(flow) <= first * (1.0 + NOTHING));
        Some((first, ends.map(|(&id, _)| id).collect()))
    }

    /// Lets time pass, no more than until the next end.
    pub fn advance(&mut self, seconds: f64) {
        self.settle();
        for flow in self.flows.values_mut() {
            flow.left -= (flow.pace * seconds).min(flow.left);
        }
    }

    /// Shares the resources out anew, if something started, ended or changed.
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

/// The links and the disk of each of some nodes.
#[derive(Debug, Default)]
pub(super) struct Ports(Vec<[ResourceNo; 3]>);

impl Ports {
    /// Adds the ports of a node.
    pub fn add(&mut self, flows: &mut Flows, rates: Rates) {
        self.0.push([rates.up, rates.down, rates.disk()].map(|rate| flows.add_resource(rate)));
    }

    /// The uplink of each node.
    pub fn uplinks(&self) -> Vec<ResourceNo> {
        self.0.iter().map(|&[up, ..]| up).collect()
    }

    /// What a job uses of them; its nodes have their places here as numbers.
    pub fn uses(&self, loads: &Loads) -> Vec<(ResourceNo, f64)> {
        let used = |load: &recovery::NodeLoad| {
            let bytes = [load.sent_bytes, load.received_bytes, load.read_bytes + load.stored_bytes];
            let port = self.0[load.node.0 as usize];
            port.into_iter().zip(bytes.map(|bytes| bytes as f64))
        };
        loads.nodes.iter().flat_map(used).collect()
    }
}

/// Progressive filling: resources by the pace at which they are used up.
struct Filling<'a> {
    flows: Vec<&'a Flow>,
    paces: Vec<Option<f64>>,
    room: Vec<f64>,
    /// Bytes per part of the jobs that still grow.
    weights: Vec<f64>,
    users: Vec<Vec<u32>>,
    queue: BinaryHeap<Level>,
}

/// A resource is used up at this pace; an entry that is out of date is looked at and put back.
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

    /// A pace that a job never exceeds is a resource that only this job uses.
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
            // Paces only grow, as those that stay behind leave more to the rest.
            if now > pace * (1.0 + NOTHING) {
                self.queue.push(Level { pace: now, resource });
                continue;
            }
            return Some(resource);
        }
        None
    }

    /// The jobs of a resource that is used up grow no more.
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
    /// The least pace is the greatest, as the heap gives that first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.pace.total_cmp(&self.pace).then(other.resource.cmp(&self.resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shares_a_link_gets_equal_parts_and_leaves_the_rest_to_others() {
        let mut flows = Flows::default();
        let (narrow, wide) = (flows.add_resource(10.0), flows.add_resource(100.0));
        flows.start(1, vec![(narrow, 100.0)], 0.0);
        flows.start(2, vec![(narrow, 100.0), (wide, 100.0)], 0.0);
        flows.start(3, vec![(wide, 100.0)], 0.0);
        // 1 and 2 have 5 B/s each, and 3 the other 95.
        let (seconds, ends) = flows.next_ends().unwrap();
        assert!((seconds - 100.0 / 95.0).abs() < 1e-9 && ends == [3], "{seconds} {ends:?}");
        flows.advance(seconds);
        flows.stop(3);
        let (rest, ends) = flows.next_ends().unwrap();
        assert!((seconds + rest - 20.0).abs() < 1e-9 && ends == [1, 2], "{rest} {ends:?}");
    }
    #[test]
    fn what_goes_in_rounds_leaves_what_it_cannot_use_to_others() {
        let mut flows = Flows::default();
        let link = flows.add_resource(100.0);
        flows.start(1, vec![(link, 100.0)], 4.0);
        flows.start(2, vec![(link, 150.0)], 0.0);
        // 1 has 25 B/s, and 2 the other 75.
        let (seconds, ends) = flows.next_ends().unwrap();
        assert!((seconds - 2.0).abs() < 1e-9 && ends == [2], "{seconds} {ends:?}");
        flows.advance(seconds);
        flows.stop(2);
        let (rest, _) = flows.next_ends().unwrap();
        assert!((seconds + rest - 4.0).abs() < 1e-9, "nothing makes it faster: {rest}");
    }
}
