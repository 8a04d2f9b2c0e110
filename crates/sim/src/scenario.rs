//! Scenarios: a stripe on nodes, a request, machines, and faults.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code, CodeSpec};
use repair::{
    BlockId, Chunking, Digest, Geometry, JobId, JobRequest, NodeId, NodeProfile, Plan, PlanError,
    PlanRequest, Policy, Rates, Scheme, Stripe, StripeBlock, StripeId, Topology, Verify, Wanted,
};

use crate::faults::{Fault, When};

/// The client's node, in scenarios with a client.
pub const CLIENT: NodeId = NodeId(1000);

/// The kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client reads the wanted blocks or parts of them.
    Read {
        /// Range of offsets to read in each sub-block.
        window: Range<u64>,
        /// Range of sub-blocks to read; all if `None`.
        sub_blocks: Option<Range<u16>>,
    },
    /// The wanted blocks are rebuilt in the store.
    Repair {
        /// True if the blocks are rebuilt on their original nodes, false if they are rebuilt on spare nodes.
        in_place: bool,
    },
    /// A client puts a stripe: the client holds the data blocks, and every block goes to a helper.
    Put,
    /// The wanted blocks, which are not lost, are moved to spare nodes.
    Migrate,
}

/// The checks that a job makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Whether the digests of blocks are recorded.
    pub digests: bool,
    /// Whether a parity equation is checked.
    pub parity: bool,
    /// Whether published blocks are read back.
    pub reread: bool,
}

/// Links, disks, control connections and memory, alike on all nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machines {
    /// Rate of each link in bytes per second.
    pub rate: f64,
    /// Latency of a link.
    pub delay: Duration,
    /// Maximum number of bytes in flight on one edge.
    pub window: u64,
    /// The longest latency of a disk operation.
    pub disk_latency: Duration,
    /// Rate of each disk in bytes per second.
    pub disk_rate: f64,
    /// The longest delay of a control message, except where a fault changes it.
    pub control_delay: Duration,
    /// Time after which the coordinator treats a node that does not answer pings as lost.
    pub ping_limit: Duration,
    /// Memory for slices in a relay, in bytes.
    pub budget_bytes: usize,
    /// Whether control messages are encoded and decoded on their way.
    pub json: bool,
}

impl Default for Machines {
    /// Returns machines with links of 10 MB/s, faster disks and prompt messages.
    fn default() -> Self {
        Self {
            rate: 10e6,
            delay: Duration::from_micros(100),
            window: 64 << 10,
            disk_latency: Duration::from_micros(200),
            disk_rate: 200e6,
            control_delay: Duration::from_millis(1),
            ping_limit: Duration::from_secs(10),
            budget_bytes: 1 << 20,
            json: false,
        }
    }
}

/// A scenario. Helpers are `n1`, `n2`, …: first those with blocks of the stripe, then spare ones.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of all delays and bytes.
    pub seed: u64,
    /// The stripe's code.
    pub code: CodeSpec,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Chunk size in bytes; `None` if each block is a single chunk.
    pub chunk_bytes: Option<u64>,
    /// Size of the last data block in bytes, without padding.
    pub tail_bytes: u64,
    /// Number of nodes that hold the stripe's blocks. The blocks are placed on these nodes in turn.
    pub holders: u32,
    /// Number of spare nodes, which hold no block of the stripe.
    pub spares: u32,
    /// Lost blocks, which have no holder.
    pub lost: BTreeSet<BlockIndex>,
    /// The kind of request.
    pub kind: Kind,
    /// The wanted blocks.
    pub wanted: Vec<BlockIndex>,
    /// The policy of the plan.
    pub policy: Policy,
    /// The checks that the job makes.
    pub checks: Checks,
    /// Links, disks, control connections and memory.
    pub machines: Machines,
    /// Faults, each with the time at which it strikes.
    pub faults: Vec<(When, Fault)>,
}

impl Scenario {
    /// Returns a scenario without faults, in which `scheme` repairs block 0 onto a spare node with all
    /// checks. Blocks have 256 KiB, slices 4 KiB, links 10 MB/s.
    pub fn repair(code: CodeSpec, scheme: Scheme) -> Self {
        let wanted = vec![BlockIndex(0)];
        Self {
            seed: 1,
            holders: code.blocks() as u32,
            code,
            block_bytes: 256 << 10,
            chunk_bytes: None,
            tail_bytes: 256 << 10,
            spares: 2,
            lost: wanted.iter().copied().collect(),
            kind: Kind::Repair { in_place: false },
            wanted,
            policy: Policy { scheme, slice_bytes: Some(Geometry::MIN_SLICE_BYTES), ..Policy::default() },
            checks: Checks { digests: true, parity: true, reread: true },
            machines: Machines::default(),
            faults: Vec::new(),
        }
    }

    /// Adds a fault to the scenario.
    #[must_use]
    pub fn with(mut self, when: When, fault: Fault) -> Self {
        self.faults.push((when, fault));
        self
    }

    /// Returns the job's first plan.
    ///
    /// # Errors
    /// [`PlanError`] if the request cannot be planned.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        self.plan_in(&self.topology())
    }

    fn plan_in(&self, topology: &Topology) -> Result<Plan, PlanError> {
        let code = self.code.build().expect("scenarios have possible codes");
        let request = self.request(code, &[]);
        let plan_request = PlanRequest {
            wanted: request.wanted,
            window: request.window,
            sub_blocks: request.sub_blocks,
            resume: None,
            policy: request.policy,
        };
        repair::plan(&request.stripe, &plan_request, topology)
    }

    /// Returns the predicted duration of the best plan for a planner that knows from the start that the links
    /// and the disk of node `slow` are slower by `factor`.
    ///
    /// # Errors
    /// [`PlanError`] if the request cannot be planned.
    pub fn predicted_knowing(&self, slow: NodeId, factor: u32) -> Result<Duration, PlanError> {
        let mut topology = self.topology();
        if let Some(profile) = topology.get_mut(slow) {
            let rates = &mut profile.rates;
            for rate in [&mut rates.up, &mut rates.down, &mut rates.read, &mut rates.write] {
                *rate /= f64::from(factor);
            }
        }
        let mut without = self.clone();
        without.policy.avoid.insert(slow);
        let plans = [self.plan_in(&topology), without.plan_in(&topology)];
        let times = plans.map(|plan| plan.map(|plan| plan.predict(&topology)));
        match times {
            [Ok(with), Ok(without)] => Ok(with.min(without)),
            [with, without] => with.or(without),
        }
    }

    /// Returns the name of a block in the store.
    pub fn block_id(block: BlockIndex) -> BlockId {
        BlockId(format!("s.{}", block.0))
    }

    /// Whether a client takes part.
    pub fn has_client(&self) -> bool {
        matches!(self.kind, Kind::Read { .. } | Kind::Put)
    }

    /// Whether delivered blocks are published in the store. Only a read does not publish its blocks.
    pub fn publishes(&self) -> bool {
        !matches!(self.kind, Kind::Read { .. })
    }

    /// Returns all nodes: holders, spare nodes, and the client if there is one.
    pub fn node_ids(&self) -> Vec<NodeId> {
        let helpers = (1..=self.holders + self.spares).map(NodeId);
        helpers.chain(self.has_client().then_some(CLIENT)).collect()
    }

    /// Returns the size of a block in bytes, without padding.
    pub fn bytes_of(&self, block: BlockIndex) -> u64 {
        let is_last = usize::from(block.0) + 1 == self.code.data_blocks();
        if is_last { self.tail_bytes } else { self.block_bytes }
    }

    /// Returns the node that should hold a block.
    pub fn home(&self, block: BlockIndex) -> NodeId {
        NodeId(1 + u32::from(block.0) % self.holders)
    }

    /// Returns the node that holds a block at the start.
    pub fn holder(&self, block: BlockIndex) -> Option<NodeId> {
        match self.kind {
            Kind::Put => (usize::from(block.0) < self.code.data_blocks()).then_some(CLIENT),
            _ => (!self.lost.contains(&block)).then(|| self.home(block)),
        }
    }

    /// Returns the first requestor of the wanted block at `position`.
    pub fn requestor(&self, position: usize) -> NodeId {
        let home = self.home(self.wanted[position]);
        let spare = || (position < self.spares as usize).then(|| NodeId(self.holders + 1 + position as u32));
        match self.kind {
            Kind::Read { .. } => CLIENT,
            Kind::Put | Kind::Repair { in_place: true } => home,
            Kind::Repair { in_place: false } | Kind::Migrate => spare().unwrap_or(home),
        }
    }

    /// Returns the rate of one connection as the coordinator would measure it, in bytes per second: at most
    /// one window per round trip.
    fn link_rate(&self) -> f64 {
        let round_trip = self.machines.delay * 2 + Duration::from_micros(200);
        self.machines.rate.min(self.machines.window.min(4096) as f64 / round_trip.as_secs_f64())
    }

    pub(crate) fn topology(&self) -> Topology {
        let mut topology = Topology::new();
        for node in self.node_ids() {
            let client = node == CLIENT;
            let profile = match client {
                true => NodeProfile::client("client"),
                false => NodeProfile::helper(node.to_string(), format!("{node}:1")),
            };
            let (link, disk) = (self.link_rate(), self.machines.disk_rate);
            let rates = Rates { up: link, down: link, read: disk, write: disk };
            topology.set(node, NodeProfile { rates, knows_links: true, ..profile });
        }
        topology
    }

    /// Returns the stripe, with recorded digests only for the wanted blocks. Digests of other blocks would
    /// reveal nothing, because a simulated disk that corrupts data silently still reports the right digest.
    fn stripe(&self, code: Arc<dyn Code>, digests: &[Digest]) -> Stripe {
        let recorded = |index: &BlockIndex| self.checks.digests && self.wanted.contains(index);
        let block = |index: BlockIndex| StripeBlock {
            id: Self::block_id(index),
            bytes: self.bytes_of(index),
            holder: self.holder(index),
            digest: digests.get(usize::from(index.0)).copied().filter(|_| recorded(&index)),
        };
        let blocks = (0..self.code.blocks() as u16).map(BlockIndex).map(block).collect();
        Stripe { id: StripeId("s".into()), chunking: self.chunking(&*code), code, blocks, label: None }
    }

    /// Returns the layout of sub-blocks in a block.
    pub(crate) fn chunking(&self, code: &dyn Code) -> Chunking {
        Chunking::of(code, self.block_bytes, self.chunk_bytes).expect("the dice keep to what divides")
    }

    /// Returns the number of bytes after which the job checks parity during a transfer. One seed in three
    /// gets the default value, which exceeds the small blocks of a random scenario, so the job checks parity
    /// only at the end. The other seeds get smaller values, so the job also checks during the transfer.
    fn stretch_bytes(&self) -> u64 {
        [64, 1024, Verify::default().stretch_bytes][self.seed as usize % 3]
    }

    pub(crate) fn request(&self, code: Arc<dyn Code>, digests: &[Digest]) -> JobRequest {
        let whole = 0..self.chunking(&*code).sub_block_bytes();
        let (window, sub_blocks) = match &self.kind {
            Kind::Read { window, sub_blocks } => (window.clone(), sub_blocks.clone()),
            _ => (whole, None),
        };
        let wanted = self.wanted.iter().enumerate();
        JobRequest {
            job: JobId(1),
            stripe: self.stripe(code, digests),
            wanted: wanted
                .map(|(position, &block)| Wanted { block, requestor: self.requestor(position) })
                .collect(),
            window,
            sub_blocks,
            policy: self.policy.clone(),
            verify: Verify {
                parity: self.checks.parity,
                stretch_bytes: self.stretch_bytes(),
                reread: self.checks.reread,
                ..Verify::default()
            },
            publish: self.publishes(),
            tag: self.has_client().then_some(7),
            permits: Vec::new(),
        }
    }
}
