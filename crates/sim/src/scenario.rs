//! What is played: a stripe on nodes, a request, a network, and what goes wrong.

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

/// The node that is a client, where one takes part.
pub const CLIENT: NodeId = NodeId(1000);

/// The request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client reads the wanted blocks, or a part of them.
    Read {
        /// Offsets inside each sub-block.
        window: Range<u64>,
        /// The sub-blocks; all if absent.
        sub_blocks: Option<Range<u16>>,
    },
    /// The wanted blocks become blocks of the store.
    Repair {
        /// On the nodes where they were, and not on spare ones.
        in_place: bool,
    },
    /// A client puts a stripe: it holds the data blocks, and every block goes to a helper.
    Put,
    /// The wanted blocks, which are there, move to spare nodes.
    Migrate,
}

/// Checks of a job's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Whether the blocks' digests are recorded.
    pub digests: bool,
    /// Whether a parity equation is checked.
    pub parity: bool,
    /// Whether published blocks are read back.
    pub reread: bool,
}

/// Links, disks, control messages and memory of all nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machines {
    /// Bytes per second of each link.
    pub rate: f64,
    /// The latency of a link.
    pub delay: Duration,
    /// The most bytes in flight on one edge.
    pub window: u64,
    /// The longest latency of a disk operation.
    pub disk_latency: Duration,
    /// Bytes per second of each disk.
    pub disk_rate: f64,
    /// The usual limit of the delay of a control message.
    pub control_delay: Duration,
    /// How long the coordinator waits for a node that does not answer.
    pub ping_limit: Duration,
    /// Bytes of slices that a relay may hold.
    pub budget_bytes: usize,
    /// Whether control messages are encoded and decoded on their way.
    pub json: bool,
}

impl Default for Machines {
    /// Links of 10 MB/s, faster disks, prompt messages.
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

/// A whole scenario. Helpers are `n1`, `n2`, …: first those that hold blocks, then spare ones.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Decides every delay and every byte.
    pub seed: u64,
    /// The code.
    pub code: CodeSpec,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of a chunk of it; the whole block if absent.
    pub chunk_bytes: Option<u64>,
    /// Bytes that the last data block really has.
    pub tail_bytes: u64,
    /// Nodes to which the stripe's blocks are dealt in turn.
    pub holders: u32,
    /// Nodes without a block of the stripe.
    pub spares: u32,
    /// Blocks without a holder.
    pub lost: BTreeSet<BlockIndex>,
    /// The request.
    pub kind: Kind,
    /// Of which blocks.
    pub wanted: Vec<BlockIndex>,
    /// How.
    pub policy: Policy,
    /// Checks of the result.
    pub checks: Checks,
    /// Links, disks and messages.
    pub machines: Machines,
    /// Faults, and when they strike.
    pub faults: Vec<(When, Fault)>,
}

impl Scenario {
    /// A quiet scenario: the repair of block 0 onto a spare node by `scheme`, with everything checked, of
    /// blocks of 256 KiB in slices of 4 KiB over links of 10 MB/s.
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

    /// The same with one more fault.
    #[must_use]
    pub fn with(mut self, when: When, fault: Fault) -> Self {
        self.faults.push((when, fault));
        self
    }

    /// The plan that the job begins with.
    ///
    /// # Errors
    /// [`PlanError`] if what is asked for cannot be done.
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

    /// The time that the best plan should take if it were known from the start that a node's links and disk
    /// are slower by `factor`.
    ///
    /// # Errors
    /// [`PlanError`] if what is asked for cannot be done.
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

    /// The store's name for a block.
    pub fn block_id(block: BlockIndex) -> BlockId {
        BlockId(format!("s.{}", block.0))
    }

    /// Whether a client takes part.
    pub fn has_client(&self) -> bool {
        matches!(self.kind, Kind::Read { .. } | Kind::Put)
    }

    /// Whether the deliveries become blocks of the store.
    pub fn publishes(&self) -> bool {
        !matches!(self.kind, Kind::Read { .. })
    }

    /// All nodes.
    pub fn node_ids(&self) -> Vec<NodeId> {
        let helpers = (1..=self.holders + self.spares).map(NodeId);
        helpers.chain(self.has_client().then_some(CLIENT)).collect()
    }

    /// Bytes that a block really has.
    pub fn bytes_of(&self, block: BlockIndex) -> u64 {
        let is_last = usize::from(block.0) + 1 == self.code.data_blocks();
        if is_last { self.tail_bytes } else { self.block_bytes }
    }

    /// The node to which a block belongs.
    pub fn home(&self, block: BlockIndex) -> NodeId {
        NodeId(1 + u32::from(block.0) % self.holders)
    }

    /// The node that holds a block at the start.
    pub fn holder(&self, block: BlockIndex) -> Option<NodeId> {
        match self.kind {
            Kind::Put => (usize::from(block.0) < self.code.data_blocks()).then_some(CLIENT),
            _ => (!self.lost.contains(&block)).then(|| self.home(block)),
        }
    }

    /// Where the wanted block number `position` is first to be delivered.
    pub fn requestor(&self, position: usize) -> NodeId {
        let home = self.home(self.wanted[position]);
        let spare = || (position < self.spares as usize).then(|| NodeId(self.holders + 1 + position as u32));
        match self.kind {
            Kind::Read { .. } => CLIENT,
            Kind::Put | Kind::Repair { in_place: true } => home,
            Kind::Repair { in_place: false } | Kind::Migrate => spare().unwrap_or(home),
        }
    }

    /// What one connection can carry, as the coordinator would measure it: links are only as fast as what
    /// may be under way allows.
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

    /// The stripe with the recorded digests of the wanted blocks. Sources have none: here a disk that lies
    /// has the digest that is asked for.
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

    /// The layout of sub-blocks in its blocks.
    pub(crate) fn chunking(&self, code: &dyn Code) -> Chunking {
        Chunking::of(code, self.block_bytes, self.chunk_bytes).expect("the dice keep to what divides")
    }

    /// Blocks are so small here that parity is checked ahead of the end in some scenarios only.
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
                doubted: false,
            },
            publish: self.publishes(),
            tag: self.has_client().then_some(7),
            permits: Vec::new(),
        }
    }
}
