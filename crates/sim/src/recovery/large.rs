//! Recoveries and drains of nodes in large clusters, without bytes: jobs of the coordinator's scheduler and
//! planner are fluids.
//!
//! A job moves what its plan moves ([`Loads`]) and shares links and disks with all other jobs
//! ([`Flows`](super::flows::Flows)). A node is lost or drained at the start, and the clock jumps from one end
//! of a job to the next; a thousand nodes take seconds.
//!
//! **Always true**, and checked: what is delivered was lost or on the node that is emptied, and goes to a
//! node without a block of its stripe; at the end everything that could be repaired is.
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
    BlockId, Chunking, JobId, NodeId, NodeProfile, Pacing, Plan, PlanError, PlanRequest, Policy, Rates,
    Scheme, Stripe, StripeBlock, StripeId, Topology, Wanted, plan,
};

use super::fabric::Fabric;
use crate::dice::Dice;

const REPAIR: RepairId = RepairId(1);
/// The node that is lost or emptied.
const NODE: NodeId = NodeId(0);

/// Limits on traffic between nodes; none by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bottlenecks {
    /// Racks, to which nodes belong in turn, and bytes per second of each one's trunk.
    pub racks: Option<(u32, f64)>,
    /// Bytes per second from one node to another, where that is less than their links.
    pub pairs: BTreeMap<(u32, u32), f64>,
    /// Bytes per second that all nodes may send together.
    pub cap: Option<f64>,
}

/// The most that repairs have in flight on a node; by default the limits of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Concurrency {
    /// Parts of jobs.
    pub jobs: u64,
    /// Bytes of jobs, in seconds of the node's links and its disk.
    pub seconds: f64,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { jobs: recovery::JOBS_AT_ONCE, seconds: recovery::SECONDS_AHEAD }
    }
}

/// A large cluster, and the loss that it suffers.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Decides where blocks are.
    pub seed: u64,
    /// The code of all stripes.
    pub code: CodeSpec,
    /// Nodes.
    pub nodes: u32,
    /// Nodes among them that hold nothing at first.
    pub standbys: u32,
    /// Stripes in all; those with a block on the node are repaired.
    pub stripes: u32,
    /// Whether every stripe has a block on the node.
    pub all_on_node: bool,
    /// Where the blocks of each stripe are, by nodes' numbers of which that of the lost one is 0; drawn by
    /// lot if `None`.
    pub homes: Option<Vec<Vec<u32>>>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes per second of each node's links and disk.
    pub rates: Rates,
    /// Limits on traffic between nodes.
    pub bottlenecks: Bottlenecks,
    /// The most that a node has in flight.
    pub concurrency: Concurrency,
    /// The repair's specification.
    pub spec: RepairSpec,
    /// How.
    pub loss: Loss,
    /// The shape of repairs.
    pub shape: Shape,
    /// How nodes move slices on; the scheme's own way if `None`.
    pub pacing: Option<Pacing>,
}

/// The fate of the node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// It is dead.
    Dead,
    /// It is emptied, in the way of this kind of items.
    Drained(Kind),
    /// It is emptied, and dies after so many seconds.
    DiesDrained(Kind, f64),
}

/// How blocks are rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// By the chains that the scheduler deals, where it does; else pipelined.
    Dealt,
    /// As the planner does it by this scheme.
    Scheme(Scheme),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// Seconds until the last job ended.
    pub seconds: f64,
    /// Seconds until a block was back, in the mean.
    pub mean_seconds: f64,
    /// The least that it could take, if the node is dead.
    pub bound: Bound,
    /// Jobs that were started.
    pub jobs: u64,
    /// The most that ran at once.
    pub at_once: usize,
    /// Blocks that were rebuilt.
    pub rebuilt: u64,
    /// Blocks that were copied.
    pub copied: u64,
    /// How much of the survivors' uplinks was in use.
    pub up: Share,
    /// The same of their downlinks.
    pub down: Share,
    /// The same of their disks.
    pub disk: Share,
    /// Violated invariants.
    pub violations: Vec<String>,
}

/// How much of a resource that each survivor has was in use, from the start to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// In the mean over the survivors.
    pub mean: f64,
    /// Of the busiest survivor.
    pub most: f64,
}

impl Finish {
    /// The part of the possible speed that was reached.
    pub fn of_bound(&self) -> f64 {
        self.bound.seconds / self.seconds
    }
}

impl Cluster {
    /// A node of `nodes` is dead; RS(n, k), 64 MiB blocks, 1 Gb/s links, fast disks.
    pub fn new(code: &str, nodes: u32, stripes: u32) -> Self {
        Self {
            seed: 1,
            code: code.parse().expect("a code's name"),
            nodes,
            standbys: 0,
            stripes,
            all_on_node: false,
            homes: None,
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

    /// More lost blocks than this take long to play; times grow in proportion to them.
    pub const MOST_LOST: u32 = 5_000;

    /// A node is dead that had one block each of so many stripes, by turns the first of them, the second and
    /// so on; other blocks are anywhere.
    ///
    /// # Panics
    /// If the code is beyond its limits, or wider than there are nodes.
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
        Self { homes: Some(homes), stripes: lost, code, ..Self::new("rs-3-2", nodes, lost) }
    }

    /// The same without a limit on the work in flight.
    pub fn all_at_once(self) -> Self {
        Self { concurrency: Concurrency { jobs: 1 << 20, seconds: 1e6 }, ..self }
    }

    /// Whether the planner can rebuild the lost blocks in this shape.
    ///
    /// # Errors
    /// [`PlanError`] if it cannot; running it would panic.
    ///
    /// # Panics
    /// If the code is beyond its limits, or wider than there are nodes.
    pub fn check_shape(&self) -> Result<(), PlanError> {
        Run::new(self).check_shape()
    }

    /// Plays it.
    ///
    /// # Panics
    /// If the code is beyond its limits, or wider than there are nodes, or cannot be rebuilt in this shape.
    pub fn run(&self) -> Finish {
        Run::new(self).run()
    }
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
    /// The stripes that have a block on the node, and their homes.
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
    /// Seconds until each block was back, added up.
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

    /// A block is back after so many seconds.
    fn note_block(&mut self, kind: Kind, seconds: f64) {
        self.waited += seconds;
        match kind {
            Kind::Migrate { .. } => self.copied += 1,
            _ => self.rebuilt += 1,
        }
    }

    /// How much of a resource was in use over so many seconds, if each survivor's carries `rate`.
    fn share(&self, resource: usize, rate: f64, seconds: f64) -> Share {
        let survivors = &self.moved[1..];
        let part = |bytes: u64| bytes as f64 / (rate * seconds);
        let most = survivors.iter().map(|moved| moved[resource]).max().unwrap_or(0);
        let sum: u64 = survivors.iter().map(|moved| moved[resource]).sum();
        Share { mean: part(sum) / survivors.len() as f64, most: part(most) }
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
        let rates = self.cluster.rates;
        let ahead = |rate: f64| (rate * self.cluster.concurrency.seconds) as u64;
        let budget = Budget {
            jobs: self.cluster.concurrency.jobs,
            up_bytes: ahead(rates.up),
            down_bytes: ahead(rates.down),
            disk_bytes: ahead(rates.disk()),
        };
        for node in 0..self.cluster.nodes {
            let rack = self.cluster.bottlenecks.racks.map(|(racks, _)| format!("r{}", node % racks));
            let helper = NodeProfile::helper("h", format!("h{node}:1"));
            let alive = !(self.dead && NodeId(node) == NODE);
            self.topology.set(NodeId(node), NodeProfile { rates, rack: rack.clone(), alive, ..helper });
            let facts = NodeFacts {
                alive,
                rack,
                free_bytes: u64::MAX / 2,
                blocks: 0,
                budget,
                draining: NodeId(node) == NODE,
            };
            self.scheduler.set_node(NodeId(node), facts);
        }
        let (racks, rate) = self.cluster.bottlenecks.racks.unwrap_or_default();
        for rack in 0..racks {
            let bytes = ahead(rate);
            self.scheduler.set_trunk(&format!("r{rack}"), TrunkBudget { up_bytes: bytes, down_bytes: bytes });
        }
        if let Some(cap) = self.cluster.bottlenecks.cap {
            self.fabric.set_cap(cap, rates.up, &self.topology);
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
        for stripe in 0..self.homes.len() {
            let new = NewItem {
                stripe: StripeId(stripe.to_string()),
                code: self.code.clone(),
                block_bytes: self.cluster.block_bytes,
                blocks: self.homes[stripe]
                    .iter()
                    .map(|&home| BlockFacts { node: Some(home), good: true })
                    .collect(),
                kind,
                only: Vec::new(),
            };
            self.scheduler.push(REPAIR, new);
        }
        self.scheduler.close(REPAIR);
    }

    fn run(mut self) -> Finish {
        let bound = self.bound();
        while !self.over {
            self.act();
            if !self.over && !self.pass_time() {
                self.violations.push(format!("nothing happens any more, {} jobs run", self.running.len()));
                break;
            }
        }
        let counters = self.scheduler.repair(REPAIR).expect("it is not forgotten").counters;
        if counters.done != self.homes.len() as u64 {
            self.violations.push(format!("not all is repaired: {counters:?}"));
        }
        let Rates { up, down, .. } = self.cluster.rates;
        let share = |resource, rate| self.tally.share(resource, rate, self.now);
        let (up, down, disk) = (share(0, up), share(1, down), share(2, self.cluster.rates.disk()));
        Finish {
            up,
            down,
            disk,
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
        bound(&demands, &(1..self.cluster.nodes).map(|node| (NodeId(node), self.cluster.rates)).collect())
    }

    fn clock(&self) -> Duration {
        Duration::from_secs_f64(self.now)
    }

    /// Goes to the next thing that happens; `false` if there is none.
    fn pass_time(&mut self) -> bool {
        let wake = self.scheduler.wakes_at().map(|at| at.as_secs_f64() + 1e-9);
        let deal = self.fabric.deals_at().filter(|_| !self.running.is_empty());
        let others = [wake, self.death, deal].into_iter().flatten().fold(f64::INFINITY, f64::min);
        let others = (others - self.now).max(0.0);
        match self.fabric.next_ends() {
            Some((seconds, ends)) if seconds <= others => {
                self.advance(seconds);
                ends.into_iter().for_each(|job| self.finish(job));
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
                        self.violations.push(format!("stripe {stripe} is {end:?}"));
                    }
                }
                Action::DropSurplus { stripe, .. } => {
                    self.violations.push(format!("stripe {stripe} has no surplus"));
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
        let (loads, least_seconds) = self.loads(&proposal);
        let job = self.tally.jobs + 1;
        if self.scheduler.admit(proposal.item, JobId(job), &loads).is_err() {
            return;
        }
        self.tally.jobs = job;
        self.fabric.start(job, &loads, least_seconds);
        self.running.insert(job, Job { proposal, loads });
        self.tally.at_once = self.tally.at_once.max(self.running.len());
    }

    /// Checks that a delivered block was lost or leaves the node, and goes to a node without a block of its
    /// stripe.
    fn check(&mut self, proposal: &Proposal) {
        let homes = &self.homes[stripe_of(proposal)];
        for wanted in &proposal.wanted {
            let home = homes[usize::from(wanted.block.0)];
            let is_needed = home == NODE && (self.dead || proposal.kind != Kind::Reconstruct);
            if !is_needed || homes.contains(&wanted.requestor) {
                let wrong = format!("stripe {}: {wanted:?} as {:?}", proposal.stripe, proposal.kind);
                self.violations.push(wrong);
            }
        }
    }

    /// The load of a proposal, and the time that its rounds take alone, if it has rounds.
    fn loads(&self, proposal: &Proposal) -> (Loads, f64) {
        let scheme = match (self.cluster.shape, proposal.kind) {
            (_, Kind::Migrate { .. }) => Scheme::Migration,
            (Shape::Dealt, _) if !proposal.stretches.is_empty() => {
                return (Loads::of_stretches(&proposal.stretches, &proposal.wanted), 0.0);
            }
            (Shape::Dealt, _) => Scheme::Pipelined,
            (Shape::Scheme(scheme), _) => scheme,
        };
        let hides = self.dead || matches!(proposal.kind, Kind::Rebuild { .. });
        let plan = self.plan(stripe_of(proposal), proposal.wanted.clone(), hides, scheme, &proposal.helpers);
        let plan = plan.expect("what is proposed can be planned");
        (Loads::of(&plan, true), least_seconds(&plan, &self.topology))
    }

    /// `hides` tells whether the node that is lost or emptied is not read.
    fn plan(
        &self,
        number: usize,
        wanted: Vec<Wanted>,
        hides: bool,
        scheme: Scheme,
        prefer: &[NodeId],
    ) -> Result<Plan, PlanError> {
        let block = |(index, &home): (usize, &NodeId)| StripeBlock {
            id: BlockId(format!("{number}.{index}")),
            bytes: self.cluster.block_bytes,
            holder: (home != NODE || !hides).then_some(home),
            digest: None,
        };
        let stripe = Stripe {
            id: StripeId(number.to_string()),
            code: self.code.clone(),
            chunking: Chunking::whole(&*self.code, self.cluster.block_bytes),
            blocks: self.homes[number].iter().enumerate().map(block).collect(),
            label: None,
        };
        let request = PlanRequest {
            wanted,
            window: 0..self.cluster.block_bytes / self.code.sub_blocks() as u64,
            sub_blocks: None,
            resume: None,
            policy: Policy {
                scheme,
                pacing: self.cluster.pacing.filter(|_| scheme != Scheme::Migration),
                prefer: prefer.to_vec(),
                ..Policy::default()
            },
        };
        plan(&stripe, &request, &self.topology)
    }

    /// Whether the lost blocks of the first stripes can be rebuilt in this shape.
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
            self.plan(number, wanted, true, scheme, &[])?;
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
            let facts = BlockFacts { node: Some(wanted.requestor), good: true };
            self.tally.note_block(proposal.kind, self.now);
            self.scheduler.handle_block(&proposal.stripe, BlockIndex(wanted.block.0), facts);
        }
        self.scheduler.handle_done(proposal.item, self.clock());
    }

    /// The node that is emptied dies, and with it the jobs in which it has a part.
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

/// The time that a plan takes alone if it waits between rounds; pipelined plans are as fast as links and
/// disks.
pub(super) fn least_seconds(plan: &Plan, topology: &Topology) -> f64 {
    match plan.pacing() {
        Pacing::Pipelined => 0.0,
        Pacing::Serial | Pacing::WholeBlock => plan.predict(topology).as_secs_f64(),
    }
}

fn stripe_of(proposal: &Proposal) -> usize {
    proposal.stripe.0.parse().expect("stripes are numbers")
}

/// The homes of the stripes that have a block on the node.
fn homes(cluster: &Cluster, blocks: usize) -> Vec<Vec<NodeId>> {
    let of_numbers = |homes: &Vec<u32>| homes.iter().copied().map(NodeId).collect::<Vec<_>>();
    let all = match &cluster.homes {
        Some(homes) => homes.iter().map(of_numbers).collect(),
        None => drawn(cluster, blocks),
    };
    all.into_iter().filter(|homes| homes.contains(&NODE)).collect()
}

fn drawn(cluster: &Cluster, blocks: usize) -> Vec<Vec<NodeId>> {
    let mut dice = Dice::new(cluster.seed);
    let holders = u64::from(cluster.nodes - cluster.standbys);
    assert!(holders >= blocks as u64, "a stripe has a block on each of {blocks} nodes");
    let mut place = |_| {
        let mut homes = if cluster.all_on_node { vec![NODE] } else { Vec::with_capacity(blocks) };
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
