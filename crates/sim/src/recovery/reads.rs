//! Clients that read whole blocks one after the other. Some blocks are lost and are rebuilt for the read
//! only.
//!
//! The real planner plans every read. [`Flows`] models how concurrent reads share links and disks. A read
//! moves its bytes at one pace or in rounds ([`Rounds`]).
//!
//! Deliberately absent: caches, recoveries at the same time, and `Pacing::Serial`.

use std::sync::Arc;

use codes::{Code, CodeSpec};
use recovery::Loads;
use repair::{
    BlockId, Chunking, NodeId, NodeProfile, Pacing, PlanRequest, Policy, Rates, Scheme, Stripe, StripeBlock,
    StripeId, Topology, Wanted, plan,
};

use super::flows::{Flows, Ports};
use super::rounds::Rounds;
use crate::dice::Dice;

/// An experiment with reading clients. Each client has a link of its own.
#[derive(Clone, Debug)]
pub struct Reads {
    /// The seed of the placement of blocks.
    pub seed: u64,
    /// The code of all stripes.
    pub code: CodeSpec,
    /// Number of nodes that hold blocks.
    pub nodes: u32,
    /// Number of clients. Each reads one block at a time.
    pub clients: u32,
    /// Number of blocks that each client reads.
    pub each: u32,
    /// One in this many blocks is lost.
    pub lost_in: u32,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Rates of each node's links and disk.
    pub rates: Rates,
    /// The scheme that rebuilds lost blocks.
    pub scheme: Scheme,
    /// How nodes forward slices when a block is rebuilt; the scheme's own pacing if `None`.
    pub pacing: Option<Pacing>,
}

/// Mean durations of reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadTimes {
    /// Mean over all reads, in seconds.
    pub all: f64,
    /// Mean over the reads of lost blocks, in seconds.
    pub lost: f64,
}

/// Sums over finished reads.
#[derive(Default)]
struct Ended {
    reads: u32,
    seconds: f64,
}

struct Reading {
    began: f64,
    /// Number of blocks that the client has read, including the current one.
    number: u32,
    is_lost: bool,
    /// The streams of a read in rounds.
    rounds: Option<Rounds>,
}

struct Run<'a> {
    reads: &'a Reads,
    code: Arc<dyn Code>,
    topology: Topology,
    dice: Dice,
    /// The current reads. Stream `s` of client `c` is flow `s * clients + c`; a read at one pace has only
    /// stream 0.
    flows: Flows,
    ports: Ports,
    now: f64,
    /// The current read of each client.
    reading: Vec<Reading>,
    healthy: Ended,
    lost: Ended,
}

impl Reads {
    /// Runs the experiment.
    ///
    /// # Panics
    /// If the code exceeds its limits or needs more nodes than there are, if no block is lost, or if nodes
    /// would either receive or send (`Pacing::Serial`).
    pub fn run(&self) -> ReadTimes {
        let mut flows = Flows::default();
        let (mut ports, mut topology) = (Ports::default(), Topology::new());
        for node in 0..self.nodes + self.clients {
            ports.add(&mut flows, self.rates);
            let profile = match node < self.nodes {
                true => NodeProfile::helper("h", format!("h{node}:1")),
                false => NodeProfile::client("c"),
            };
            topology.set(NodeId(node), NodeProfile { rates: self.rates, ..profile });
        }
        let run = Run {
            reads: self,
            code: self.code.build().expect("a possible code"),
            topology,
            dice: Dice::new(self.seed),
            flows,
            ports,
            now: 0.0,
            reading: Vec::new(),
            healthy: Ended::default(),
            lost: Ended::default(),
        };
        run.run()
    }
}

impl Run<'_> {
    fn run(mut self) -> ReadTimes {
        for client in 0..self.reads.clients {
            let first = self.begin(client, 1);
            self.reading.push(first);
        }
        while let Some((seconds, ends)) = self.flows.next_ends() {
            self.flows.advance(seconds);
            self.now += seconds;
            ends.into_iter().for_each(|flow| self.end_stream(flow));
        }
        let Self { healthy, lost, .. } = self;
        assert!(lost.reads > 0, "some blocks are lost");
        ReadTimes {
            all: (healthy.seconds + lost.seconds) / f64::from(healthy.reads + lost.reads),
            lost: lost.seconds / f64::from(lost.reads),
        }
    }

    fn end_stream(&mut self, flow: u64) {
        self.flows.stop(flow);
        let clients = u64::from(self.reads.clients);
        let (client, stream) = ((flow % clients) as u32, (flow / clients) as usize);
        if let Some(rounds) = &mut self.reading[client as usize].rounds {
            rounds.arrive(stream);
            if !rounds.is_over() {
                let ready = rounds.start_ready();
                return self.start_streams(client, ready);
            }
        }
        self.end(client);
    }

    fn start_streams(&mut self, client: u32, streams: Vec<(usize, Loads)>) {
        for (stream, loads) in streams {
            let flow = stream as u64 * u64::from(self.reads.clients) + u64::from(client);
            self.flows.start(flow, self.ports.uses(&loads), 0.0);
        }
    }

    fn end(&mut self, client: u32) {
        let Reading { began, number, is_lost, .. } = self.reading[client as usize];
        let ended = if is_lost { &mut self.lost } else { &mut self.healthy };
        ended.reads += 1;
        ended.seconds += self.now - began;
        if number < self.reads.each {
            self.reading[client as usize] = self.begin(client, number + 1);
        }
    }

    /// Starts a client's next read. The clients' reads of lost blocks are spread evenly over time.
    fn begin(&mut self, client: u32, number: u32) -> Reading {
        let Reads { clients, lost_in, .. } = *self.reads;
        let is_lost = (number + client * lost_in / clients).is_multiple_of(lost_in);
        let stripe = self.stripe(is_lost);
        let scheme = if is_lost { self.reads.scheme } else { Scheme::Migration };
        let requestor = NodeId(self.reads.nodes + client);
        let request = PlanRequest {
            wanted: vec![Wanted { block: codes::BlockIndex(0), requestor }],
            window: 0..self.reads.block_bytes / self.code.sub_blocks() as u64,
            sub_blocks: None,
            resume: None,
            policy: Policy {
                scheme,
                pacing: self.reads.pacing.filter(|_| is_lost && scheme != Scheme::Conventional),
                ..Policy::default()
            },
        };
        let plan = plan(&stripe, &request, &self.topology).expect("what is lost can be rebuilt");
        let loads = Loads::of(&plan, false);
        let mut rounds = match plan.pacing() {
            Pacing::Pipelined => None,
            Pacing::WholeBlock => Some(Rounds::new(&loads)),
            Pacing::Serial => panic!("serial reads are not simulated"),
        };
        let streams = rounds.as_mut().map_or_else(|| vec![(0, loads)], Rounds::start_ready);
        self.start_streams(client, streams);
        Reading { began: self.now, number, is_lost, rounds }
    }

    /// Returns a stripe on random nodes. The client reads the first block.
    fn stripe(&mut self, is_lost: bool) -> Stripe {
        let mut nodes: Vec<u32> = (0..self.reads.nodes).collect();
        self.dice.shuffle(&mut nodes);
        assert!(nodes.len() >= self.code.blocks(), "a stripe has a block on each of so many nodes");
        let block = |index: usize| StripeBlock {
            id: BlockId(index.to_string()),
            bytes: self.reads.block_bytes,
            holder: (index > 0 || !is_lost).then_some(NodeId(nodes[index])),
            digest: None,
        };
        Stripe {
            id: StripeId("s".to_owned()),
            code: self.code.clone(),
            chunking: Chunking::whole(&*self.code, self.reads.block_bytes),
            blocks: (0..self.code.blocks()).map(block).collect(),
            label: None,
        }
    }
}
