//! Predicts how long a plan takes, and its bottleneck.
//!
//! Slices are pipelined, so a plan takes the time of its busiest [`Resource`], plus the time to fill the
//! pipeline up to that resource and to drain it afterwards. Plans in which nodes run ahead of their receivers
//! (see `runs_ahead`) take slightly longer. The forecast counts all bytes that pass a resource, including
//! reservations of other plans, at nodes' ports and disks and on the links between nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::{Input, NodeCost, NodeId, Pacing, Plan, Resource, StreamRef, Task, Topology};

/// The assumed cost of handling one slice at one node, if this overlaps with nothing else: a few system calls
/// and a wake-up. Slices are large enough that this is small compared to their time on the wire.
pub(crate) const SLICE_OVERHEAD: Duration = Duration::from_micros(10);

/// The factor by which plans take longer if nodes run ahead (see `runs_ahead`): the slice that is due
/// sometimes waits behind later slices while the bottleneck idles. In the lab such plans take 3 to 8% longer
/// than their busiest resource.
const RUNNING_AHEAD: f64 = 1.04;

/// A measured link counts as slower than the ports at its ends only beyond this factor, because measurements
/// vary.
const SLOWER: f64 = 1.1;

/// A prediction for a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Time from the first byte to the last.
    pub time: Duration,
    /// The resource that is busy longest.
    pub bottleneck: Resource,
    /// The time for which the bottleneck is busy.
    pub busy: Duration,
}

impl Plan {
    /// The predicted time. Nodes that `topology` does not contain are assumed to have
    /// [`Rates::default`](crate::Rates).
    pub fn predict(&self, topology: &Topology) -> Duration {
        self.forecast(topology).time
    }

    /// The predicted time without the reservations of other plans.
    pub(crate) fn predict_alone(&self, topology: &Topology) -> Duration {
        self.forecast_beside(&|_| 0, topology).time
    }

    /// Whether some link between nodes is busy for more than [`SLOWER`] times as long as the busiest port or
    /// disk.
    pub(crate) fn is_held_up_between(&self, topology: &Topology) -> bool {
        let between = longest(self.between_times(&|_| 0, topology));
        between.is_some_and(|(_, seconds)| {
            let costs = self.node_costs();
            let nodes = costs.iter().flat_map(|cost| node_times(cost, &|_| 0, topology));
            seconds > SLOWER * longest(nodes).expect("a plan has tasks").1
        })
    }

    /// The predicted time and the bottleneck.
    pub fn forecast(&self, topology: &Topology) -> Forecast {
        self.forecast_beside(&|resource| topology.reserved(resource), topology)
    }

    fn forecast_beside(&self, others: &dyn Fn(&Resource) -> u64, topology: &Topology) -> Forecast {
        let costs = self.node_costs();
        let (bottleneck, busy) = self.slowest(&costs, others, topology);
        let rate = |from, to| topology.link_rate(from, to);
        let seconds = match self.pacing {
            Pacing::Pipelined | Pacing::Serial => {
                let longer = if self.runs_ahead() { RUNNING_AHEAD } else { 1.0 };
                longer * busy + self.fill(&bottleneck, topology, rate)
            }
            Pacing::WholeBlock => {
                let read = |cost: &NodeCost| cost.read_bytes as f64 / topology.rates(cost.node).read;
                costs.iter().map(read).fold(0.0, f64::max) + self.rounds(rate)
            }
        };
        Forecast { time: duration(seconds), bottleneck, busy: duration(busy) }
    }

    /// Whether slices take several lanes and some node only sends, to several receivers. Such a node receives
    /// nothing that would slow it to the receivers' pace, so it fills the buffers of its connections and
    /// causes head-of-line blocking.
    fn runs_ahead(&self) -> bool {
        if self.lanes.len() == 1 {
            return false;
        }
        let edges = self.edges();
        let receivers: BTreeSet<NodeId> = edges.iter().map(|&(_, to)| to).collect();
        let to_several = |same: &[(NodeId, NodeId)]| same.len() > 1 && !receivers.contains(&same[0].0);
        edges.chunk_by(|a, b| a.0 == b.0).any(to_several)
    }

    /// The busiest resource and its busy seconds.
    fn slowest(
        &self,
        costs: &[NodeCost],
        others: &dyn Fn(&Resource) -> u64,
        topology: &Topology,
    ) -> (Resource, f64) {
        let nodes = costs.iter().flat_map(|cost| {
            let times = node_times(cost, others, topology);
            match self.pacing {
                Pacing::Serial => {
                    let slowest = longest(times.clone()).expect("three resources").0;
                    vec![(slowest, times.iter().map(|(_, seconds)| seconds).sum())]
                }
                Pacing::Pipelined | Pacing::WholeBlock => times.to_vec(),
            }
        });
        longest(nodes.chain(self.between_times(others, topology))).expect("a plan has tasks")
    }

    /// The busy seconds of the links between nodes.
    fn between_times(
        &self,
        others: &dyn Fn(&Resource) -> u64,
        topology: &Topology,
    ) -> impl Iterator<Item = (Resource, f64)> {
        self.between_bytes(topology).into_iter().map(|(resource, bytes)| {
            let seconds = seconds(bytes + others(&resource), topology.rate(&resource));
            (resource, seconds)
        })
    }

    /// Bytes that pass each limited link between nodes.
    fn between_bytes(&self, topology: &Topology) -> BTreeMap<Resource, u64> {
        let mut passed = BTreeMap::new();
        if topology.has_links() {
            for ((from, to), bytes) in self.link_bytes() {
                for resource in topology.between(from, to) {
                    *passed.entry(resource).or_insert(0) += bytes;
                }
            }
        }
        passed
    }

    /// Seconds that the first slice takes through an empty network, minus its time at the bottleneck, which
    /// the bottleneck's busy time already includes.
    fn fill(&self, bottleneck: &Resource, topology: &Topology, rate: impl Fn(NodeId, NodeId) -> f64) -> f64 {
        let first = self.slices.next(0).expect("a plan moves at least one slice");
        let lane = self.lane_of(first);
        let seconds = |transfer: &Transfer| self.longest_slice() as f64 / rate(transfer.from, transfer.to);
        let transfers: Vec<Transfer> = lane.tasks.iter().flat_map(transfers).collect();
        let sum = |passes: &dyn Fn(&Transfer) -> bool| -> f64 {
            transfers.iter().filter(|transfer| passes(transfer)).map(seconds).sum()
        };
        let busy = match bottleneck.node() {
            Some(node) => {
                let (sends, receives) = (sum(&|t| t.from == node), sum(&|t| t.to == node));
                if self.pacing == Pacing::Serial { sends + receives } else { sends.max(receives) }
            }
            None => sum(&|transfer| topology.between(transfer.from, transfer.to).contains(bottleneck)),
        };
        let mut schedule = Schedule::default();
        for round in rounds(&transfers) {
            let mut ready: Vec<(f64, &Transfer)> = round
                .into_iter()
                .map(|at| {
                    (
                        schedule.start(&transfers[at]).expect("its inputs were scheduled before"),
                        &transfers[at],
                    )
                })
                .collect();
            ready.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            for (_, transfer) in ready {
                let start = schedule.start(transfer).expect("its inputs were scheduled before");
                schedule.run(transfer, start + seconds(transfer));
            }
        }
        let handling = f64::from(lane.hops.saturating_sub(1)) * SLICE_OVERHEAD.as_secs_f64();
        (schedule.end - busy).max(0.0) + handling
    }

    /// The time to send whole streams, by list scheduling: among the streams that are complete at their
    /// sender, the one that can start first is sent next. A node sends one stream and receives one at a time.
    /// `rate` gives the rate from one node to another.
    pub(crate) fn rounds(&self, rate: impl Fn(NodeId, NodeId) -> f64) -> f64 {
        let bytes: u64 = self.lane_shares().iter().map(|share| share.bytes).sum();
        let mut schedule = Schedule::default();
        let mut waiting: Vec<Transfer> =
            self.lanes.iter().flat_map(|lane| &lane.tasks).flat_map(transfers).collect();
        while !waiting.is_empty() {
            let starts =
                waiting.iter().enumerate().filter_map(|(at, transfer)| Some((schedule.start(transfer)?, at)));
            let (start, at) =
                starts.min_by(|a, b| a.0.total_cmp(&b.0)).expect("streams depend on earlier ones");
            let transfer = waiting.remove(at);
            let end = start + bytes as f64 / rate(transfer.from, transfer.to);
            schedule.run(&transfer, end);
        }
        schedule.end
    }
}

/// How long a node's uplink, downlink and disk are busy. Reservations count only where the plan itself moves
/// bytes. A client's disk is not counted.
fn node_times(
    cost: &NodeCost,
    others: &dyn Fn(&Resource) -> u64,
    topology: &Topology,
) -> [(Resource, f64); 3] {
    let (node, rates) = (cost.node, topology.rates(cost.node));
    let stored = if topology.dials_out(node) { 0 } else { cost.delivered_bytes };
    let port = |resource: Resource, bytes: u64, rate: f64| {
        let before = if bytes == 0 { 0 } else { others(&resource) };
        (resource, seconds(bytes + before, rate))
    };
    let disk = Resource::Disk(node);
    let own = seconds(cost.read_bytes, rates.read) + seconds(stored, rates.write);
    let beside = if own == 0.0 { 0.0 } else { seconds(others(&disk), rates.disk()) };
    [
        port(Resource::Uplink(node), cost.sent_bytes, rates.up),
        port(Resource::Downlink(node), cost.received_bytes, rates.down),
        (disk, own + beside),
    ]
}

/// The time to move `bytes` at `rate`. Zero bytes take no time, whatever the rate.
fn seconds(bytes: u64, rate: f64) -> f64 {
    if bytes == 0 { 0.0 } else { bytes as f64 / rate }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn longest(times: impl IntoIterator<Item = (Resource, f64)>) -> Option<(Resource, f64)> {
    times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// A whole stream to be sent.
struct Transfer {
    from: NodeId,
    to: NodeId,
    stream: u16,
    needs: Vec<StreamRef>,
}

fn transfers(task: &Task) -> impl Iterator<Item = Transfer> + '_ {
    task.sends.iter().flat_map(move |send| {
        send.streams.iter().zip(0..).map(move |(combination, stream)| {
            let needs = combination.iter().filter_map(|term| match term.input {
                Input::Received(stream) => Some(stream),
                Input::Local(_) => None,
            });
            Transfer { from: task.node, to: send.to, stream, needs: needs.collect() }
        })
    })
}

/// Groups the indices of transfers into rounds: a transfer needs only streams of earlier rounds.
fn rounds(transfers: &[Transfer]) -> Vec<Vec<usize>> {
    let mut users: BTreeMap<(NodeId, StreamRef), Vec<usize>> = BTreeMap::new();
    let mut missing = vec![0; transfers.len()];
    for (at, transfer) in transfers.iter().enumerate() {
        missing[at] = transfer.needs.len();
        transfer.needs.iter().for_each(|&stream| users.entry((transfer.from, stream)).or_default().push(at));
    }
    let first: Vec<usize> = (0..transfers.len()).filter(|&at| missing[at] == 0).collect();
    let mut unlock = |round: &Vec<usize>| -> Vec<usize> {
        let mut next = Vec::new();
        for Transfer { from, to, stream, .. } in round.iter().map(|&at| &transfers[at]) {
            let stream = StreamRef { from: *from, stream: *stream };
            for &at in users.get(&(*to, stream)).into_iter().flatten() {
                missing[at] -= 1;
                next.extend((missing[at] == 0).then_some(at));
            }
        }
        next
    };
    let mut rounds = Vec::new();
    let mut round = first;
    while !round.is_empty() {
        let next = unlock(&round);
        rounds.push(std::mem::replace(&mut round, next));
    }
    rounds
}

/// The arrival times of streams and the times at which ports become free.
#[derive(Default)]
struct Schedule {
    arrived: BTreeMap<(NodeId, StreamRef), f64>,
    sends_until: BTreeMap<NodeId, f64>,
    receives_until: BTreeMap<NodeId, f64>,
    end: f64,
}

impl Schedule {
    /// The earliest start of a transfer; `None` until its inputs are scheduled.
    fn start(&self, transfer: &Transfer) -> Option<f64> {
        let port = |ports: &BTreeMap<NodeId, f64>, node| ports.get(&node).copied().unwrap_or(0.0);
        let free = port(&self.sends_until, transfer.from).max(port(&self.receives_until, transfer.to));
        transfer.needs.iter().try_fold(free, |start, &stream| {
            self.arrived.get(&(transfer.from, stream)).map(|&arrival| start.max(arrival))
        })
    }

    fn run(&mut self, transfer: &Transfer, end: f64) {
        let stream = StreamRef { from: transfer.from, stream: transfer.stream };
        self.arrived.insert((transfer.to, stream), end);
        self.sends_until.insert(transfer.from, end);
        self.receives_until.insert(transfer.to, end);
        self.end = self.end.max(end);
    }
}
