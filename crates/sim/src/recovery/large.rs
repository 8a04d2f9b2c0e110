//! Recoveries and drains of nodes in large clusters, without bytes. The coordinator's real scheduler and
//! planner run here; jobs are modelled as fluids.
//!
//! A job moves the bytes of its plan ([`Loads`]) and shares links and disks with all other jobs
//! ([`Flows`](super::flows::Flows)), at one pace or in rounds ([`Rounds`](super::rounds::Rounds)). A node is lost or drained at the start, and the clock jumps from the end
//! of one job to the next. Simulating a thousand nodes takes seconds.
//!
//! **Invariants**, which every run checks: a delivered block was lost or on the drained node, and goes to a
//! node without a block of the same stripe. At the end, every repairable stripe is repaired.
//!
//! Deliberately absent: slices, control messages, and faults other than a death. The scheduler and the
//! planner decide; this module lets time pass between their decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code, CodeSpec};
use recovery::{
    Action, BlockFacts, Bound, Budget, Demand, End, Failure, Kind, Limits, Loads, NewItem, NodeFacts,
    Proposal, RepairId, RepairSpec, Scheduler, TrunkBudget, bound,
};
use repair::{
    Accepts, BlockId, Chunking, JobId, NodeId, NodeProfile, Pacing, Plan, PlanError, PlanRequest, Policy,
    Rates, Scheme, Stripe, StripeBlock, StripeId, Topology, Wanted, plan,
};

use super::fabric::Fabric;
use crate::dice::Dice;

const REPAIR: RepairId = RepairId(1);
/// The node that is lost or drained.
const NODE: NodeId = NodeId(0);

/// Limits on traffic besides the common rates of nodes. There are none by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bottlenecks {
    /// Rates of the nodes that differ from the others, by number.
    pub nodes: BTreeMap<u32, Rates>,
    /// Number of racks, and the rate of each rack's trunk in bytes per second. Nodes are assigned to racks in
    /// turn.
    pub racks: Option<(u32, f64)>,
    /// Rate from one node to another in bytes per second, for pairs that are slower than the nodes' own
    /// links.
    pub pairs: BTreeMap<(u32, u32), f64>,
    /// Cap in bytes per second on the total sending rate of all nodes.
    pub cap: Option<f64>,
}

/// Limits on the work that repairs have in flight on a node. The defaults are the coordinator's limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Concurrency {
    /// Maximum number of jobs that involve the node.
    pub jobs: u64,
    /// Maximum amount of work that jobs have in flight, in seconds that the node's links and disk need for
    /// it.
    pub seconds: f64,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { jobs: recovery::JOBS_AT_ONCE, seconds: recovery::SECONDS_AHEAD }
    }
}

/// A large cluster in which node 0 is lost or drained.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The seed of the placement of blocks.
    pub seed: u64,
    /// The code of all stripes.
    pub code: CodeSpec,
    /// Number of nodes.
    pub nodes: u32,
    /// Number of nodes that hold no blocks at first. They are included in `nodes`.
    pub standbys: u32,
    /// Number of stripes. Only stripes with a block on node 0 are repaired.
    pub stripes: u32,
    /// Which nodes hold the blocks.
    pub homes: Homes,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Rates of each node's links and disk.
    pub rates: Rates,
    /// Limits on traffic besides the rates of nodes.
    pub bottlenecks: Bottlenecks,
    /// Limits on the work in flight on a node.
    pub concurrency: Concurrency,
    /// The repair's specification.
    pub spec: RepairSpec,
    /// How node 0 leaves the cluster.
    pub loss: Loss,
    /// How blocks are rebuilt.
    pub shape: Shape,
    /// How nodes forward slices; the scheme's own pacing if `None`.
    pub pacing: Option<Pacing>,
}

/// The nodes that hold the blocks of the stripes.
#[derive(Clone, Debug)]
pub enum Homes {
    /// Random nodes.
    Random,
    /// Node 0 for one block of every stripe, and random nodes for the others.
    OnNode,
    /// For each stripe, the nodes of its blocks, by number.
    Given(Vec<Vec<u32>>),
}

/// How node 0 leaves the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// The node is dead.
    Dead,
    /// The scheduler drains the node by repairs of this kind.
    Drained(Kind),
    /// The scheduler drains the node by repairs of this kind, and the node dies after this many seconds.
    DiesDrained(Kind, f64),
}

/// How blocks are rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Along the chains that the scheduler has computed for the proposal; by a single chain if there are
    /// none.
    Dealt,
    /// By a plan of the planner with this scheme.
    Scheme(Scheme),
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// Seconds until the last job ended.
    pub seconds: f64,
    /// Mean number of seconds until a block was restored.
    pub mean_seconds: f64,
    /// Lower bound on the duration, computed as if the node were dead from the start.
    pub bound: Bound,
    /// Number of jobs that were started.
    pub jobs: u64,
    /// Maximum number of concurrent jobs.
    pub at_once: usize,
    /// Number of blocks that were rebuilt.
    pub rebuilt: u64,
    /// Number of blocks that were copied.
    pub copied: u64,
    /// Utilization of the survivors' uplinks.
    pub up: Share,
    /// Utilization of the survivors' downlinks.
    pub down: Share,
    /// Utilization of the survivors' disks.
    pub disk: Share,
    /// The violated invariants.
    pub violations: Vec<String>,
}

/// Utilization of one kind of resource over the whole run, as a fraction. Each survivor has one such
/// resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// The mean over the survivors.
    pub mean: f64,
    /// The utilization on the busiest survivor.
    pub most: f64,
}

impl Finish {
    /// Returns the bound divided by the duration; 1 if the run was as fast as possible.
    pub fn of_bound(&self) -> f64 {
        self.bound.seconds / self.seconds
    }
}

impl Cluster {
    /// Returns a cluster with one dead node: 64 MiB blocks, 1 Gb/s links, fast disks.
    pub fn new(code: &str, nodes: u32, stripes: u32) -> Self {
        Self {
            seed: 1,
            code: code.parse().expect("a code's name"),
            nodes,
            standbys: 0,
            stripes,
            homes: Homes::Random,
            block_bytes: 64 << 20,
            rates: Rates { up: 125e6, down: 125e6, read: 2e9, write: 2e9 },
            bottlenecks: Bottlenecks::default(),
            concurrency: Concurrency::default(),
            spec: RepairSpec::default(),
            loss: Loss::Dead,
            shape: Shape::Dealt,
            pacing: None,
        }
    }

    /// The maximum number of lost blocks that is worth simulating. A simulation of more blocks shows nothing
    /// new, because durations are proportional to the number of blocks.
    pub const MOST_LOST: u32 = 5_000;

    /// Returns a cluster with one dead node that held one block of each of `lost` stripes: the first block of
    /// the first stripe, the second block of the next, and so on. The other blocks are placed at random.
    ///
    /// # Panics
    /// If the code exceeds its limits or needs more nodes than there are.
    pub fn losing(code: CodeSpec, nodes: u32, lost: u32) -> Self {
        let blocks = code.build().expect("a possible code").blocks();
        assert!(nodes as usize >= blocks, "a stripe has a block on each of {blocks} nodes");
        let (mut dice, mut others) = (Dice::new(1), (1..nodes).collect::<Vec<u32>>());
        let mut place = |stripe: u32| {
            dice.shuffle(&mut others);
            let mut homes = others[..blocks - 1].to_vec();
            homes.insert(stripe as usize % blocks, NODE.0);
            homes
        };
        let homes = (0..lost).map(&mut place).collect();
        Self { homes: Homes::Given(homes), stripes: lost, code, ..Self::new("rs-3-2", nodes, lost) }
    }

    /// Returns the cluster without limits on the work in flight.
    pub fn all_at_once(self) -> Self {
        Self { concurrency: Concurrency { jobs: 1 << 20, seconds: 1e6 }, ..self }
    }

    /// Returns the rates of a node's links and disk.
    pub fn rates_of(&self, node: u32) -> Rates {
        self.bottlenecks.nodes.get(&node).copied().unwrap_or(self.rates)
    }

    /// Checks that the planner can rebuild the lost blocks in this shape.
    ///
    /// # Errors
    /// [`PlanError`] if the planner cannot. [`run`](Self::run) would panic then.
    ///
    /// # Panics
    /// If the code exceeds its limits or needs more nodes than there are.
    pub fn check_shape(&self) -> Result<(), PlanError> {
        Run::new(self).check_shape()
    }

    /// Simulates the recovery or drain.
    ///
    /// # Panics
    /// If the code exceeds its limits or needs more nodes than there are, or if the planner cannot rebuild
    /// blocks in this shape.
    pub fn run(&self) -> Finish {
        Run::new(self).run()
    }
}

/// How a job moves its bytes.
enum Transfer {
    /// All streams advance at one pace, which the slowest link sets. The job takes at least this long: the
    /// predicted time if nodes either receive or send (`Pacing::Serial`), otherwise 0.
    AtOnePace { least_seconds: f64 },
    /// A stream begins when its sender has received all of its own streams.
    InRounds,
}

struct Job {
    proposal: Proposal,
    loads: Loads,
}

struct Run<'a> {
    cluster: &'a Cluster,
    code: Arc<dyn Code>,
    scheduler: Scheduler,
    topology: Topology,
    fabric: Fabric,
    /// For each stripe that had a block on node 0 at the start, the nodes of its blocks.
    homes: Vec<Vec<NodeId>>,
    running: BTreeMap<u64, Job>,
    death: Option<f64>,
    dead: bool,
    now: f64,
    tally: Tally,
    over: bool,
    violations: Vec<String>,
}

/// Counters of finished work.
struct Tally {
    jobs: u64,
    at_once: usize,
    rebuilt: u64,
    copied: u64,
    /// Sum over all restored blocks of the seconds until each was restored.
    waited: f64,
    /// Bytes that each node has sent, received, and read or written.
    moved: Vec<[u64; 3]>,
}

impl Tally {
    fn new(nodes: u32) -> Self {
        let moved = vec![[0; 3]; nodes as usize];
        Self { jobs: 0, at_once: 0, rebuilt: 0, copied: 0, waited: 0.0, moved }
    }

    fn note_loads(&mut self, loads: &Loads) {
        for load in &loads.nodes {
            let moved = &mut self.moved[load.node.0 as usize];
            moved[0] += load.sent_bytes;
            moved[1] += load.received_bytes;
            moved[2] += load.read_bytes + load.stored_bytes;
        }
    }

    /// Counts a block that was restored after `seconds`.
    fn note_block(&mut self, kind: Kind, seconds: f64) {
        self.waited += seconds;
        match kind {
            Kind::Migrate { .. } => self.copied += 1,
            _ => self.rebuilt += 1,
        }
    }

    /// Returns the utilization of a resource over `seconds`. `rate` is its rate on a node, in bytes per second.
    fn share(&self, resource: usize, rate: impl Fn(u32) -> f64, seconds: f64) -> Share {
        let survivors = (0..).zip(&self.moved).skip(1);
        let part = |(node, moved): (u32, &[u64; 3])| moved[resource] as f64 / (rate(node) * seconds);
        let parts: Vec<f64> = survivors.map(part).collect();
        Share {
            mean: parts.iter().sum::<f64>() / parts.len() as f64,
            most: parts.iter().copied().fold(0.0, f64::max),
        }
    }
}

impl<'a> Run<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let code = cluster.code.build().expect("a possible code");
        let mut run = Self {
            cluster,
            homes: homes(cluster, code.blocks()),
            code,
            scheduler: Scheduler::new(Limits::default()),
            topology: Topology::new(),
            fabric: Fabric::new(cluster),
            running: BTreeMap::new(),
            death: None,
            dead: cluster.loss == Loss::Dead,
            now: 0.0,
            tally: Tally::new(cluster.nodes),
            over: false,
            violations: Vec::new(),
        };
        run.set_up();
        run
    }

    fn set_up(&mut self) {
        (0..self.cluster.nodes).for_each(|node| self.add_node(node));
        let (racks, rate) = self.cluster.bottlenecks.racks.unwrap_or_default();
        for rack in 0..racks {
            let bytes = self.bytes_ahead(rate);
            self.scheduler.set_trunk(&format!("r{rack}"), TrunkBudget { up_bytes: bytes, down_bytes: bytes });
        }
        if let Some(cap) = self.cluster.bottlenecks.cap {
            self.fabric.set_cap(cap, self.cluster.rates.up, &self.topology);
        }
        let kind = match self.cluster.loss {
            Loss::Dead => Kind::Reconstruct,
            Loss::Drained(kind) => kind,
            Loss::DiesDrained(kind, at) => {
                self.death = Some(at);
                kind
            }
        };
        self.scheduler.open(REPAIR, self.cluster.spec.clone());
        for (stripe, homes) in self.homes.iter().enumerate() {
            let new = NewItem {
                stripe: StripeId(stripe.to_string()),
                code: self.code.clone(),
                block_bytes: self.cluster.block_bytes,
                blocks: homes.iter().map(|&home| BlockFacts::good_on(home)).collect(),
                kind,
                only: Vec::new(),
            };
            self.scheduler.push(REPAIR, new);
        }
        self.scheduler.close(REPAIR);
    }

    /// Returns the bytes that may be in flight over a resource with this rate in bytes per second.
    fn bytes_ahead(&self, rate: f64) -> u64 {
        (rate * self.cluster.concurrency.seconds) as u64
    }

    fn add_node(&mut self, node: u32) {
        let rates = self.cluster.rates_of(node);
        let budget = Budget {
            jobs: self.cluster.concurrency.jobs,
            up_bytes: self.bytes_ahead(rates.up),
            down_bytes: self.bytes_ahead(rates.down),
            disk_bytes: self.bytes_ahead(rates.disk()),
        };
        let rack = self.cluster.bottlenecks.racks.map(|(racks, _)| format!("r{}", node % racks));
        let helper = NodeProfile::helper("h", format!("h{node}:1"));
        let alive = !(self.dead && NodeId(node) == NODE);
        self.topology.set(NodeId(node), NodeProfile { rates, rack: rack.clone(), alive, ..helper });
        let facts = NodeFacts {
            alive,
            rack,
            host: None,
            free_bytes: u64::MAX / 2,
            blocks: 0,
            budget,
            accepts: if NodeId(node) == NODE { Accepts::Nothing } else { Accepts::All },
        };
        self.scheduler.set_node(NodeId(node), facts);
    }

    fn run(mut self) -> Finish {
        let bound = self.bound();
        while !self.over {
            self.act();
            if !self.over && !self.pass_time() {
                self.violations
                    .push(format!("no further event is due, but {} jobs still run", self.running.len()));
                break;
            }
        }
        let counters = self.scheduler.repair(REPAIR).expect("it is not forgotten").counters;
        if counters.done != self.homes.len() as u64 {
            self.violations.push(format!("the repair ended with unrepaired stripes: {counters:?}"));
        }
        let rates = |node| self.cluster.rates_of(node);
        Finish {
            up: self.tally.share(0, |node| rates(node).up, self.now),
            down: self.tally.share(1, |node| rates(node).down, self.now),
            disk: self.tally.share(2, |node| rates(node).disk(), self.now),
            seconds: self.now,
            mean_seconds: self.tally.waited / (self.tally.rebuilt + self.tally.copied).max(1) as f64,
            bound,
            jobs: self.tally.jobs,
            at_once: self.tally.at_once,
            rebuilt: self.tally.rebuilt,
            copied: self.tally.copied,
            violations: self.violations,
        }
    }

    fn bound(&self) -> Bound {
        let survivors = |homes: &Vec<NodeId>| homes.iter().copied().filter(|&home| home != NODE).collect();
        let demand = |homes| Demand {
            block_bytes: self.cluster.block_bytes,
            sends: self.code.data_blocks() as u32,
            lost: 1,
            survivors: survivors(homes),
            takers: (!self.cluster.spec.requestors.is_empty()).then(|| self.cluster.spec.requestors.clone()),
        };
        let demands: Vec<Demand> = self.homes.iter().map(demand).collect();
        let rates = |node| (NodeId(node), self.cluster.rates_of(node));
        bound(&demands, &(1..self.cluster.nodes).map(rates).collect())
    }

    fn clock(&self) -> Duration {
        Duration::from_secs_f64(self.now)
    }

    /// Advances the time to the next event. Returns `false` if there is none.
    fn pass_time(&mut self) -> bool {
        let wake = self.scheduler.wakes_at().map(|at| at.as_secs_f64() + 1e-9);
        let deal = self.fabric.deals_at().filter(|_| !self.running.is_empty());
        let others = [wake, self.death, deal].into_iter().flatten().fold(f64::INFINITY, f64::min);
        let others = (others - self.now).max(0.0);
        match self.fabric.next_ends() {
            Some((seconds, ends)) if seconds <= others => {
                self.advance(seconds);
                let jobs = self.fabric.end(ends);
                jobs.into_iter().for_each(|job| self.finish(job));
            }
            _ if others.is_finite() => {
                self.advance(others);
                if self.death.is_some_and(|at| at <= self.now) {
                    self.death = None;
                    self.die();
                }
            }
            _ => return false,
        }
        true
    }

    fn advance(&mut self, seconds: f64) {
        self.now += seconds;
        self.fabric.advance(seconds, self.now, &self.scheduler);
    }

    fn act(&mut self) {
        while let Some(action) = self.scheduler.poll(self.clock()) {
            match action {
                Action::Propose(proposal) => self.start(proposal),
                Action::CancelJob { job } => {
                    let item = self.running.remove(&job.0).expect("it runs").proposal.item;
                    self.fabric.stop(job.0);
                    self.scheduler.handle_cancelled(item);
                }
                Action::ItemEnded { stripe, end, .. } => {
                    if end != End::Repaired {
                        self.violations.push(format!("the repair of stripe {stripe} ended as {end:?}"));
                    }
                }
                Action::DropSurplus { stripe, .. } => {
                    self.violations.push(format!(
                        "a copy of stripe {stripe} would be dropped, but the stripe has no surplus copy"
                    ));
                }
                Action::RepairEnded { .. } => self.over = true,
            }
        }
    }

    fn start(&mut self, proposal: Proposal) {
        if proposal.wanted.is_empty() {
            return self.scheduler.decline(proposal.item, End::Failed);
        }
        self.check(&proposal);
        let (loads, transfer) = self.loads(&proposal);
        let job = self.tally.jobs + 1;
        if self.scheduler.admit(proposal.item, JobId(job), &loads).is_err() {
            return;
        }
        self.tally.jobs = job;
        match transfer {
            Transfer::AtOnePace { least_seconds } => self.fabric.start(job, &loads, least_seconds),
            Transfer::InRounds => self.fabric.start_rounds(job, &loads),
        }
        self.running.insert(job, Job { proposal, loads });
        self.tally.at_once = self.tally.at_once.max(self.running.len());
    }

    /// Checks two rules for each wanted block: it was lost or is to leave node 0, and its new node holds no
    /// block of the stripe.
    fn check(&mut self, proposal: &Proposal) {
        let homes = &self.homes[stripe_of(proposal)];
        for wanted in &proposal.wanted {
            let home = homes[usize::from(wanted.block.0)];
            let is_needed = home == NODE && (self.dead || proposal.kind != Kind::Reconstruct);
            if !is_needed || homes.contains(&wanted.requestor) {
                let wrong =
                    format!("stripe {}: unexpected {wanted:?} as {:?}", proposal.stripe, proposal.kind);
                self.violations.push(wrong);
            }
        }
    }

    /// Returns the loads of a proposal, and how its job moves its bytes.
    fn loads(&self, proposal: &Proposal) -> (Loads, Transfer) {
        let scheme = match self.cluster.shape {
            Shape::Dealt if proposal.stretches.is_empty() => Scheme::Pipelined,
            Shape::Dealt => Scheme::Auto,
            Shape::Scheme(scheme) => scheme,
        };
        let policy = proposal.policy(Policy { scheme, ..Policy::default() });
        if !policy.stretches.is_empty() {
            // Planning takes long; the plan's loads would be the same.
            let loads = Loads::of_stretches(&policy.stretches, &proposal.wanted);
            return (loads, Transfer::AtOnePace { least_seconds: 0.0 });
        }
        let plan = self.plan(stripe_of(proposal), proposal.wanted.clone(), policy);
        let plan = plan.expect("what is proposed can be planned");
        let transfer = match plan.pacing() {
            Pacing::WholeBlock => Transfer::InRounds,
            Pacing::Pipelined => Transfer::AtOnePace { least_seconds: 0.0 },
            Pacing::Serial => {
                Transfer::AtOnePace { least_seconds: plan.predict(&self.topology).as_secs_f64() }
            }
        };
        (Loads::of(&plan, true), transfer)
    }

    fn plan(&self, number: usize, wanted: Vec<Wanted>, policy: Policy) -> Result<Plan, PlanError> {
        let block = |(index, &home): (usize, &NodeId)| StripeBlock {
            id: BlockId(format!("{number}.{index}")),
            bytes: self.cluster.block_bytes,
            holder: Some(home),
            digest: None,
        };
        let stripe = Stripe {
            id: StripeId(number.to_string()),
            code: self.code.clone(),
            chunking: Chunking::whole(&*self.code, self.cluster.block_bytes),
            blocks: self.homes[number].iter().enumerate().map(block).collect(),
            label: None,
        };
        let pacing = self.cluster.pacing.filter(|_| policy.scheme != Scheme::Migration);
        let request = PlanRequest {
            wanted,
            window: 0..self.cluster.block_bytes / self.code.sub_blocks() as u64,
            sub_blocks: None,
            resume: None,
            policy: Policy { pacing, ..policy },
        };
        plan(&stripe, &request, &self.topology)
    }

    /// Checks that the lost blocks of the first stripes can be rebuilt in this shape.
    fn check_shape(&self) -> Result<(), PlanError> {
        let scheme = match self.cluster.shape {
            Shape::Dealt => Scheme::Pipelined,
            Shape::Scheme(scheme) => scheme,
        };
        for (number, homes) in self.homes.iter().enumerate().take(self.code.blocks()) {
            let free = (1..self.cluster.nodes).map(NodeId).find(|node| !homes.contains(node));
            let at = homes.iter().position(|&home| home == NODE);
            let (Some(requestor), Some(index)) = (free, at) else { continue };
            let wanted = vec![Wanted { block: BlockIndex(index as u16), requestor }];
            let policy = Policy { scheme, avoid: [NODE].into(), ..Policy::default() };
            self.plan(number, wanted, policy)?;
        }
        Ok(())
    }

    fn finish(&mut self, id: u64) {
        self.fabric.stop(id);
        let Job { proposal, loads, .. } = self.running.remove(&id).expect("it runs");
        self.tally.note_loads(&loads);
        let number = stripe_of(&proposal);
        for wanted in &proposal.wanted {
            self.homes[number][usize::from(wanted.block.0)] = wanted.requestor;
            let facts = BlockFacts::good_on(wanted.requestor);
            self.tally.note_block(proposal.kind, self.now);
            self.scheduler.handle_block(&proposal.stripe, BlockIndex(wanted.block.0), facts);
        }
        self.scheduler.handle_done(proposal.item, self.clock());
    }

    /// Lets the drained node die. Jobs that involve the node fail.
    fn die(&mut self) {
        self.dead = true;
        self.scheduler.handle_node(NODE, false);
        self.topology.get_mut(NODE).expect("it was there").alive = false;
        self.fabric.set_nodes(&self.topology);
        let has_part = |job: &Job| job.loads.nodes.iter().any(|load| load.node == NODE);
        let lost: Vec<u64> =
            self.running.iter().filter(|(_, job)| has_part(job)).map(|(&id, _)| id).collect();
        for id in lost {
            self.fabric.stop(id);
            let job = self.running.remove(&id).expect("just seen");
            self.scheduler.handle_failed(job.proposal.item, Failure::Transient, self.clock());
        }
    }
}

fn stripe_of(proposal: &Proposal) -> usize {
    proposal.stripe.0.parse().expect("stripes are numbers")
}

/// Returns the nodes of each stripe that has a block on node 0.
fn homes(cluster: &Cluster, blocks: usize) -> Vec<Vec<NodeId>> {
    let of_numbers = |homes: &Vec<u32>| homes.iter().copied().map(NodeId).collect::<Vec<_>>();
    let all = match &cluster.homes {
        Homes::Given(homes) => homes.iter().map(of_numbers).collect(),
        Homes::Random => drawn(cluster, blocks, &[]),
        Homes::OnNode => drawn(cluster, blocks, &[NODE]),
    };
    all.into_iter().filter(|homes| homes.contains(&NODE)).collect()
}

/// Returns random nodes for each stripe, after the nodes that each stripe has anyway.
fn drawn(cluster: &Cluster, blocks: usize, given: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut dice = Dice::new(cluster.seed);
    let holders = u64::from(cluster.nodes - cluster.standbys);
    assert!(holders >= blocks as u64, "a stripe has a block on each of {blocks} nodes");
    let mut place = |_| {
        let mut homes = given.to_vec();
        while homes.len() < blocks {
            let home = NodeId(dice.below(holders) as u32);
            if !homes.contains(&home) {
                homes.push(home);
            }
        }
        homes
    };
    (0..cluster.stripes).map(&mut place).collect()
}
