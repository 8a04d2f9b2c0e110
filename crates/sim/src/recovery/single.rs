//! The repair of one block over uneven links: racks, regions, pairs of nodes.
//!
//! The real planner makes the plan. [`execute`] moves its streams over the links of the topology:
//!
//! - slice by slice (`Pacing::Pipelined`), all streams advance at one pace;
//! - in rounds (`Pacing::WholeBlock`), a node sends when it has received everything that it waits for;
//! - serially (`Pacing::Serial`, the baseline Pipe-S), a node receives or sends one slice at a time, and begins
//!   the next slice when it has sent the last one.
//!
//! Streams share links in a max-min fair way ([`Flows`]).
//!
//! Deliberately absent: disks, latency, and with `Pacing::Pipelined` the time until the first slice has passed
//! all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use codes::{BlockIndex, Code, CodeSpec};
use recovery::Loads;
use repair::{
    BlockId, Chunking, NodeId, Pacing, Plan, PlanError, PlanRequest, Policy, Resource, Scheme, Stripe,
    StripeBlock, StripeId, Topology, Wanted, plan,
};

use super::flows::{Flows, ResourceNo};
use super::rounds::Rounds;

/// A block to repair.
#[derive(Clone, Debug)]
pub struct SingleRepair {
    /// The stripe's code.
    pub code: CodeSpec,
    /// The node of each block of the stripe; `None` for the block to repair and for other lost ones. Planners
    /// that do not look at the network read the first blocks, in this order.
    pub homes: Vec<Option<NodeId>>,
    /// Index of the block to repair.
    pub block: usize,
    /// The node that receives the block.
    pub requestor: NodeId,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Slice size in bytes; the planner's choice if `None`.
    pub slice_bytes: Option<u32>,
    /// The nodes and links.
    pub topology: Topology,
}

impl SingleRepair {
    /// Returns the plan. `pacing` is the scheme's own if `None`.
    ///
    /// # Errors
    /// [`PlanError`] if the block cannot be repaired by this scheme, or has no bytes.
    ///
    /// # Panics
    /// If the code exceeds its limits.
    pub fn plan(&self, scheme: Scheme, pacing: Option<Pacing>) -> Result<Plan, PlanError> {
        if self.block_bytes == 0 {
            return Err(PlanError::Window { window: 0..0, sub_block_bytes: 0 });
        }
        let code: Arc<dyn Code> = self.code.build().expect("a possible code");
        let block = |(index, &holder): (usize, &Option<NodeId>)| StripeBlock {
            id: BlockId(index.to_string()),
            bytes: self.block_bytes,
            holder,
            digest: None,
        };
        let stripe = Stripe {
            id: StripeId("s".to_owned()),
            chunking: Chunking::whole(&*code, self.block_bytes),
            blocks: self.homes.iter().enumerate().map(block).collect(),
            label: None,
            code: code.clone(),
        };
        let request = PlanRequest {
            wanted: vec![Wanted { block: BlockIndex(self.block as u16), requestor: self.requestor }],
            window: 0..self.block_bytes / code.sub_blocks() as u64,
            sub_blocks: None,
            resume: None,
            policy: Policy { scheme, pacing, slice_bytes: self.slice_bytes, ..Policy::default() },
        };
        plan(&stripe, &request, &self.topology)
    }

    /// Plans and executes the repair. Returns its duration in seconds.
    ///
    /// # Errors
    /// As for [`plan`](Self::plan).
    pub fn seconds(&self, scheme: Scheme, pacing: Option<Pacing>) -> Result<f64, PlanError> {
        Ok(execute(&self.plan(scheme, pacing)?, &self.topology))
    }
}

/// Moves the streams of a plan over the links of a topology. Returns the seconds until the last byte arrives.
fn execute(plan: &Plan, topology: &Topology) -> f64 {
    let mut links = Links { flows: Flows::default(), known: BTreeMap::new(), topology };
    match plan.pacing() {
        Pacing::WholeBlock => in_rounds(plan, links),
        Pacing::Serial => Serial::new(plan, links).run(),
        Pacing::Pipelined => {
            let uses =
                plan.link_bytes().into_iter().flat_map(|((from, to), bytes)| links.uses(from, to, bytes));
            let mut sums: BTreeMap<ResourceNo, f64> = BTreeMap::new();
            uses.collect::<Vec<_>>()
                .into_iter()
                .for_each(|(resource, bytes)| *sums.entry(resource).or_default() += bytes);
            links.flows.start(0, sums.into_iter().collect(), 0.0);
            links.flows.next_ends().map_or(0.0, |(seconds, _)| seconds)
        }
    }
}

/// Sends each stream when its sender has received all of its own streams.
fn in_rounds(plan: &Plan, mut links: Links) -> f64 {
    let mut rounds = Rounds::new(&Loads::of(plan, false));
    let mut seconds = 0.0;
    while !rounds.is_over() {
        for (stream, loads) in rounds.start_ready() {
            let uses =
                loads.links.iter().flat_map(|&(from, to, bytes)| links.uses(from, to, bytes)).collect();
            links.flows.start(stream as u64, uses, 0.0);
        }
        let (passed, ends) = links.flows.next_ends().expect("no stream waits for itself");
        links.flows.advance(passed);
        seconds += passed;
        for stream in ends {
            links.flows.stop(stream);
            rounds.arrive(stream as usize);
        }
    }
    seconds
}

/// A stream of a plan with serial nodes.
struct Stream {
    from: NodeId,
    to: NodeId,
    /// Bytes of each slice.
    slice_bytes: u64,
    /// Number of slices that have arrived.
    arrived: u64,
    is_moving: bool,
}

/// A plan whose nodes handle one slice at a time, and either receive or send.
struct Serial<'a> {
    links: Links<'a>,
    streams: Vec<Stream>,
    slices: u64,
    busy: BTreeSet<NodeId>,
}

impl<'a> Serial<'a> {
    fn new(plan: &Plan, links: Links<'a>) -> Self {
        let slices = u64::from(plan.geometry().slices());
        let stream = |((from, to), bytes): ((NodeId, NodeId), u64)| Stream {
            from,
            to,
            slice_bytes: bytes.div_ceil(slices),
            arrived: 0,
            is_moving: false,
        };
        let streams = plan.link_bytes().into_iter().map(stream).collect();
        Self { links, streams, slices, busy: BTreeSet::new() }
    }

    /// Whether a stream's next slice can move: its sender has received the slice, its receiver has sent the
    /// last one, and both are idle.
    fn is_ready(&self, stream: &Stream) -> bool {
        let slice = stream.arrived;
        !stream.is_moving
            && slice < self.slices
            && !self.busy.contains(&stream.from)
            && !self.busy.contains(&stream.to)
            && self.streams.iter().all(|other| other.to != stream.from || other.arrived > slice)
            && self.streams.iter().all(|other| other.from != stream.to || other.arrived >= slice)
    }

    fn run(mut self) -> f64 {
        let mut seconds = 0.0;
        loop {
            for number in 0..self.streams.len() {
                if self.is_ready(&self.streams[number]) {
                    let Stream { from, to, slice_bytes, .. } = self.streams[number];
                    self.streams[number].is_moving = true;
                    self.busy.extend([from, to]);
                    let uses = self.links.uses(from, to, slice_bytes);
                    self.links.flows.start(number as u64, uses, 0.0);
                }
            }
            let Some((passed, ends)) = self.links.flows.next_ends() else { break };
            self.links.flows.advance(passed);
            seconds += passed;
            for number in ends {
                self.links.flows.stop(number);
                let stream = &mut self.streams[number as usize];
                stream.arrived += 1;
                stream.is_moving = false;
                self.busy.remove(&stream.from);
                self.busy.remove(&stream.to);
            }
        }
        assert!(self.streams.iter().all(|stream| stream.arrived == self.slices), "every slice arrives");
        seconds
    }
}

/// The links of a topology, as resources of flows.
struct Links<'a> {
    flows: Flows,
    known: BTreeMap<Resource, ResourceNo>,
    topology: &'a Topology,
}

impl Links<'_> {
    /// Returns the links that `bytes` bytes from one node to another pass.
    fn uses(&mut self, from: NodeId, to: NodeId, bytes: u64) -> Vec<(ResourceNo, f64)> {
        let mut passed = self.topology.between(from, to);
        passed.extend([Resource::Uplink(from), Resource::Downlink(to)]);
        passed.into_iter().map(|resource| (self.number(resource), bytes as f64)).collect()
    }

    fn number(&mut self, resource: Resource) -> ResourceNo {
        let rate = self.topology.rate(&resource);
        *self.known.entry(resource).or_insert_with(|| self.flows.add_resource(rate))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use repair::{NodeProfile, Rates, Trunk};

    use super::*;

    const BYTES: u64 = 1 << 20;

    /// A stripe of (6,3) on the nodes 1 to 5 and a requestor on node 0. Block 0 is lost.
    fn stripe(topology: Topology) -> SingleRepair {
        SingleRepair {
            code: "rs-6-3".parse().unwrap(),
            homes: (0..6).map(|node| (node > 0).then_some(NodeId(node))).collect(),
            block: 0,
            requestor: NodeId(0),
            block_bytes: BYTES,
            slice_bytes: Some(32 << 10),
            topology,
        }
    }

    fn nodes(rack: impl Fn(u32) -> Option<String>) -> Topology {
        let mut topology = Topology::new();
        for node in 0..6 {
            let rates = Rates { up: 1e9, down: 1e9, read: 1e12, write: 1e12 };
            let profile = NodeProfile::helper("h", format!("h{node}:1"));
            topology.set(NodeId(node), NodeProfile { rates, rack: rack(node), ..profile });
        }
        topology
    }

    /// Returns the time of the fastest chain, by executing the chains of all ordered choices of three helpers.
    fn fastest_chain(repair: &SingleRepair) -> f64 {
        let mut best = f64::INFINITY;
        for first in 1..6 {
            for second in (1..6).filter(|&node| node != first) {
                for third in (1..6).filter(|&node| node != first && node != second) {
                    let chain = [first, second, third];
                    let rest = (1..6).filter(|node| !chain.contains(node));
                    let homes = chain.into_iter().chain(rest).map(|node| Some(NodeId(node)));
                    let homes = std::iter::once(None).chain(homes).collect();
                    let permuted = SingleRepair { homes, ..repair.clone() };
                    best = best.min(permuted.seconds(Scheme::Pipelined, None).unwrap());
                }
            }
        }
        best
    }

    #[test]
    fn a_block_without_bytes_is_refused() {
        let empty = SingleRepair { block_bytes: 0, ..stripe(nodes(|_| None)) };
        let error = empty.seconds(Scheme::Pipelined, None).unwrap_err();
        assert_eq!(error.to_string(), "window 0..0 is not a part of a sub-block of 0 bytes");
    }

    fn near(seconds: f64, expected: f64) -> bool {
        (seconds / expected - 1.0).abs() < 1e-6
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// TOS'21, Algorithm 1: no chain is faster than the rack-aware one if the trunks are the bottleneck.
        #[test]
        fn rack_aware_chains_agree_with_brute_force(racks in prop::collection::vec(0..4u32, 6)) {
            let mut topology = nodes(|node| Some(format!("r{}", racks[node as usize])));
            for rack in 0..4 {
                topology.set_trunk(&format!("r{rack}"), Trunk { up: 1e6, down: 1e6 }).unwrap();
            }
            let repair = stripe(topology);
            let aware = repair.seconds(Scheme::RackAware, None).unwrap();
            let best = fastest_chain(&repair);
            prop_assert!(near(aware, best), "{} s, the fastest chain {} s", aware, best);
        }

        /// TOS'21, Algorithm 2: no chain has a faster slowest link than the weighted one.
        #[test]
        fn weighted_chains_agree_with_brute_force(rates in prop::collection::vec(1..100u32, 36)) {
            let mut topology = nodes(|_| None);
            for from in 0..6u32 {
                for to in (0..6).filter(|&to| to != from) {
                    let rate = f64::from(rates[(from * 6 + to) as usize]) * 1e4;
                    topology.set_pair(NodeId(from), NodeId(to), rate).unwrap();
                }
            }
            let repair = stripe(topology);
            let weighted = repair.seconds(Scheme::Weighted, None).unwrap();
            let best = fastest_chain(&repair);
            prop_assert!(near(weighted, best), "{} s, the fastest chain {} s", weighted, best);
        }
    }

    #[test]
    fn rounds_take_the_time_of_the_published_formula() {
        let repair = stripe(nodes(|_| None));
        let block = BYTES as f64 / 1e9;
        let rounds = repair.seconds(Scheme::Ppr, Some(Pacing::WholeBlock)).unwrap();
        assert!(near(rounds, 2.0 * block), "⌈log2(k + 1)⌉ = 2 rounds, not {rounds} s");
        let star = repair.seconds(Scheme::Conventional, None).unwrap();
        assert!(near(star, 3.0 * block), "k = 3 blocks over one link, not {star} s");
        let chain = repair.seconds(Scheme::Pipelined, None).unwrap();
        assert!(near(chain, block), "one block over each link, not {chain} s");
    }

    /// A node of Pipe-S receives a slice in one step and sends it in the next, so a chain needs two steps for
    /// each slice, and k − 1 more until the first slice has passed all helpers.
    #[test]
    fn serial_nodes_take_two_steps_for_a_slice() {
        let repair = stripe(nodes(|_| None));
        let plan = repair.plan(Scheme::PipeS, None).unwrap();
        let slices = f64::from(plan.geometry().slices());
        assert!(slices > 4.0, "{slices} slices");
        let step = BYTES as f64 / slices / 1e9;
        let seconds = execute(&plan, &repair.topology);
        assert!(near(seconds, (2.0 * (slices - 1.0) + 3.0) * step), "{} steps of a slice", seconds / step);
    }
}
