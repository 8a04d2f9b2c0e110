//! A cluster of many stripes, and the loop that lets things happen in order of virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code};
use recovery::{
    Action, BlockFacts, End, Failure, ItemId, ItemState, Kind, Limits, Loads, NewItem, NodeFacts, Proposal,
    RepairId, RepairSpec, Scheduler,
};
use repair::{
    BlockId, Chunking, Digest, Geometry, JobError, JobId, JobRequest, NodeId, NodeProfile, Policy, Rates,
    Scheme, Stripe, StripeBlock, StripeId, Topology, Verify, Wanted,
};

use super::scenario::{Scenario, Turn};
use crate::coordinator::{Coordinator, TICK_MS};
use crate::dice::Dice;
use crate::disk::{Disk, Stored, digest_of};
use crate::edge::Network;
use crate::event::{Agenda, Event, NodeEvent};
use crate::node::{Node, State};
use crate::scene::{Control, Scene, Trace, Tracing};

/// A process has the number of its job times this, and its machine's.
const PROCESSES: u32 = 1_000;
/// No recovery takes longer.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
const DISK_LATENCY: Duration = Duration::from_micros(200);
const DISK_RATE: f64 = 200e6;
const BUDGET_BYTES: usize = 1 << 20;

/// How a recovery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When the last repair ended, in virtual time.
    pub after: Duration,
    /// Jobs that were started.
    pub jobs: u32,
    /// The most that ran at once.
    pub at_once: usize,
    /// Items by how they ended.
    pub repaired: usize,
    /// Those of stripes that could not be read.
    pub unreadable: usize,
    /// What happened that must not happen.
    pub violations: Vec<String>,
    /// What started and ended, and when.
    pub log: Vec<String>,
}

/// A job and its processes.
struct Run {
    coordinator: Coordinator,
    item: ItemId,
    stripe: u32,
    loads: Loads,
    /// It was called off.
    stopped: bool,
}

/// One scenario being played.
pub struct World<'a> {
    scenario: &'a Scenario,
    scene: Scene,
    scheduler: Scheduler,
    code: Arc<dyn Code>,
    blocks: Blocks,
    alive: BTreeSet<NodeId>,
    runs: BTreeMap<JobId, Run>,
    nodes: BTreeMap<NodeId, Node>,
    items: BTreeMap<ItemId, u32>,
    unmet: Unmet,
    repairs: u64,
    open: BTreeSet<RepairId>,
    turns: usize,
    record: Record,
}

/// What has happened so far, for [`Ended`].
#[derive(Default)]
struct Record {
    /// Items that have ended, by their stripes.
    ends: Vec<(u32, End)>,
    /// Jobs that were started.
    jobs: u32,
    /// The most that ran at once.
    at_once: usize,
    log: Vec<String>,
}

/// Every block: as it should be, where it belongs, and as it is.
struct Blocks {
    /// By stripe and index.
    truth: Vec<Vec<Vec<u8>>>,
    /// The machine that each block belongs to.
    homes: Vec<Vec<NodeId>>,
    disks: BTreeMap<(NodeId, BlockId), Stored>,
}

impl Blocks {
    /// All where they belong.
    fn new(truth: Vec<Vec<Vec<u8>>>, homes: Vec<Vec<NodeId>>) -> Self {
        let mut disks = BTreeMap::new();
        for (stripe, (truth, homes)) in (0..).zip(truth.iter().zip(&homes)) {
            for (index, (bytes, &home)) in (0..).zip(truth.iter().zip(homes)) {
                disks.insert((home, block_id(stripe, BlockIndex(index))), Stored::good(bytes.clone()));
            }
        }
        Self { truth, homes, disks }
    }

    fn truth(&self, stripe: u32, block: BlockIndex) -> &[u8] {
        &self.truth[stripe as usize][usize::from(block.0)]
    }

    fn homes(&self, stripe: u32) -> &[NodeId] {
        &self.homes[stripe as usize]
    }

    fn stored(&self, stripe: u32, block: BlockIndex) -> Option<&Stored> {
        let home = self.homes(stripe)[usize::from(block.0)];
        self.disks.get(&(home, block_id(stripe, block)))
    }

    /// Whether a block that is there has the bytes that it should have.
    fn is_right(&self, stripe: u32, block: BlockIndex) -> bool {
        self.stored(stripe, block).is_some_and(|stored| stored.bytes == self.truth(stripe, block))
    }

    /// A block is at `home` from now on, and wherever it was before it is no more; blocks of the stripe that are there now.
    fn publish(&mut self, stripe: u32, block: BlockIndex, home: NodeId, stored: Stored) -> usize {
        let id = block_id(stripe, block);
        let homes = &mut self.homes[stripe as usize];
        let before = std::mem::replace(&mut homes[usize::from(block.0)], home);
        let there = homes.iter().filter(|&&other| other == home).count();
        self.disks.remove(&(before, id.clone()));
        self.disks.insert((home, id), stored);
        there
    }
}

/// Stripes whose repair did not succeed, to be asked for again.
#[derive(Default)]
struct Unmet {
    /// Found no node to go to, since they were last asked for and ever.
    placeless: BTreeSet<u32>,
    was_placeless: BTreeSet<u32>,
    /// Too little was up when they were to be repaired.
    unreadable: BTreeSet<u32>,
    asked_again: bool,
}

impl Unmet {
    fn note_placeless(&mut self, stripe: u32) {
        self.placeless.insert(stripe);
        self.was_placeless.insert(stripe);
    }

    /// Those without a place, the first time that this is asked and there are some.
    fn take_placeless(&mut self) -> BTreeSet<u32> {
        let stripes = std::mem::take(&mut self.placeless);
        if stripes.is_empty() || std::mem::replace(&mut self.asked_again, true) {
            return BTreeSet::new();
        }
        stripes
    }
}

fn machine(process: NodeId) -> NodeId {
    NodeId(process.0 % PROCESSES)
}

fn process(job: JobId, machine: NodeId) -> NodeId {
    NodeId(job.0 as u32 * PROCESSES + machine.0)
}

fn job_of(process: NodeId) -> JobId {
    JobId((process.0 / PROCESSES).into())
}

fn block_id(stripe: u32, block: BlockIndex) -> BlockId {
    BlockId(format!("{stripe}.{}", block.0))
}

impl<'a> World<'a> {
    /// All nodes up, all stripes whole.
    ///
    /// # Panics
    /// If the scenario's code is beyond its limits.
    pub fn new(scenario: &'a Scenario) -> Self {
        let code = scenario.code.build().expect("scenarios have possible codes");
        let mut dice = Dice::new(scenario.seed);
        let one = crate::Scenario {
            block_bytes: scenario.block_bytes,
            tail_bytes: scenario.block_bytes,
            ..crate::Scenario::repair(scenario.code.clone(), scenario.scheme)
        };
        let truth = (0..scenario.stripes).map(|_| crate::stripe::encode(&*code, &one, &mut dice)).collect();
        let mut machines: Vec<NodeId> = (1..=scenario.nodes).map(NodeId).collect();
        let homes = (0..scenario.stripes).map(|_| {
            dice.shuffle(&mut machines);
            machines[..code.blocks()].to_vec()
        });
        let homes: Vec<Vec<NodeId>> = homes.collect();
        let mut network = Network::new(Duration::from_micros(100), 64 << 10);
        machines.iter().for_each(|&machine| network.add_port(machine, scenario.rate));
        let scene = Scene {
            now: Duration::ZERO,
            agenda: Agenda::default(),
            dice,
            network,
            control: Control::new(Duration::from_millis(1), false),
            trace: Trace { how: Tracing::Off, lines: Vec::new() },
            slices_delivered: 0,
            reports: None,
            violations: Vec::new(),
        };
        let mut world = Self {
            scenario,
            scene,
            scheduler: Scheduler::new(Limits::default()),
            code,
            blocks: Blocks::new(truth, homes),
            alive: machines.into_iter().collect(),
            runs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            items: BTreeMap::new(),
            unmet: Unmet::default(),
            repairs: 0,
            open: BTreeSet::new(),
            turns: 0,
            record: Record::default(),
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        for &node in &self.alive {
            let facts = NodeFacts {
                alive: true,
                rack: None,
                free_bytes: 1 << 40,
                blocks: self.blocks.homes.iter().flatten().filter(|&&home| home == node).count() as u64,
                budget: self.scenario.budget,
                draining: false,
            };
            self.scheduler.set_node(node, facts);
        }
        for (number, &(at, _)) in self.scenario.turns.iter().enumerate() {
            self.scene.agenda.add(at, Event::Fault(number));
        }
        self.scene.after(Duration::ZERO, Event::Tick);
    }

    /// Plays the scenario to its end, and judges it.
    pub fn run(mut self) -> Ended {
        while let Some((at, event)) = self.scene.agenda.pop() {
            self.scene.now = at;
            if at > TIME_LIMIT {
                self.scene.violate(format!("no end: {} repairs are open", self.open.len()));
                break;
            }
            self.happen(event);
            self.act();
            let is_over = self.turns == self.scenario.turns.len() && self.open.is_empty();
            if is_over && !self.ask_again() {
                break;
            }
        }
        self.judge();
        let count = |wanted: fn(&End) -> bool| self.record.ends.iter().filter(|(_, end)| wanted(end)).count();
        Ended {
            after: self.scene.now,
            jobs: self.record.jobs,
            at_once: self.record.at_once,
            repaired: count(|end| matches!(end, End::Repaired)),
            unreadable: count(|end| matches!(end, End::Unreadable { .. })),
            violations: self.scene.violations,
            log: self.record.log,
        }
    }

    fn note(&mut self, what: String) {
        self.record.log.push(format!("{:>10.6} {what}", self.scene.now.as_secs_f64()));
    }

    // ---- what happens ----

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick => {
                self.runs.values_mut().for_each(|run| run.coordinator.tick(&self.scene));
                self.scene.after(Duration::from_millis(TICK_MS), Event::Tick);
            }
            Event::Fault(number) => {
                self.turns += 1;
                match self.scenario.turns[number].1 {
                    Turn::Dies(node) => self.die(NodeId(node)),
                    Turn::Returns(node) => self.come_back(NodeId(node)),
                }
            }
            Event::ToNode { node, connection, message } => {
                let Some(process) = self.nodes.get_mut(&node).filter(|node| node.state == State::Running)
                else {
                    return;
                };
                if connection == self.scene.connection(node) {
                    process.take(*message, &mut self.scene);
                }
            }
            Event::FromNode { node, connection, epoch, report } => {
                if connection == self.scene.connection(node)
                    && let Some(run) = self.runs.get_mut(&job_of(node))
                {
                    run.coordinator.take_report(node, epoch, *report, &self.scene);
                }
            }
            Event::Node { node, what, .. } => self.notice(node, what),
            Event::Arrives { edge, frame } => {
                if let Some(state) = self.scene.network.edges.get_mut(&edge) {
                    state.arrived.push_back(frame);
                    self.notice(edge.to, NodeEvent::EdgeMoved { edge });
                }
            }
            other => self.scene.violate(format!("nobody asked for {other:?}")),
        }
    }

    /// Lets a process notice something, if there still is one.
    fn notice(&mut self, node: NodeId, what: NodeEvent) {
        if let Some(process) = self.nodes.get_mut(&node).filter(|node| node.state == State::Running) {
            process.handle(what, &mut self.scene);
        }
    }

    fn die(&mut self, node: NodeId) {
        if !self.alive.remove(&node) {
            return;
        }
        self.note(format!("{node} dies"));
        for (&job, run) in &mut self.runs {
            let process = process(job, node);
            if let Some(of) = self.nodes.get_mut(&process) {
                of.die(&mut self.scene, false);
                run.coordinator.lose_node(process, &mut self.scene);
            }
        }
        self.scheduler.handle_node(node, false);
        self.recover(node);
    }

    fn come_back(&mut self, node: NodeId) {
        if self.alive.insert(node) {
            self.note(format!("{node} is back"));
            self.scheduler.handle_node(node, true);
            self.ask_for_readable();
        }
    }

    /// What could not be read may be readable again: it is asked for once more, as an operator would.
    fn ask_for_readable(&mut self) {
        let stripes = std::mem::take(&mut self.unmet.unreadable);
        if !stripes.is_empty() {
            self.repair(|stripe, _| stripes.contains(&stripe));
        }
    }

    /// What found no node to go to when few were up is asked for once more, as an operator would.
    fn ask_again(&mut self) -> bool {
        let stripes = self.unmet.take_placeless();
        if stripes.is_empty() {
            return false;
        }
        self.repair(|stripe, _| stripes.contains(&stripe));
        true
    }

    /// Asks for all that the stripes of a node lack.
    fn recover(&mut self, node: NodeId) {
        self.repair(|_, homes| homes.contains(&node));
    }

    fn repair(&mut self, wanted: impl Fn(u32, &[NodeId]) -> bool) {
        self.repairs += 1;
        let repair = RepairId(self.repairs);
        self.open.insert(repair);
        self.scheduler.open(repair, RepairSpec { helpers: self.scenario.helpers, ..RepairSpec::default() });
        for stripe in 0..self.scenario.stripes {
            let homes = self.blocks.homes(stripe);
            if !wanted(stripe, homes) {
                continue;
            }
            let new = NewItem {
                stripe: StripeId(stripe.to_string()),
                code: self.code.clone(),
                block_bytes: self.scenario.block_bytes,
                blocks: homes.iter().map(|&home| BlockFacts { node: Some(home), good: true }).collect(),
                kind: Kind::Reconstruct,
                only: Vec::new(),
            };
            let item = self.scheduler.push(repair, new);
            self.items.insert(item, stripe);
        }
        self.scheduler.close(repair);
    }

    // ---- what is done ----

    fn act(&mut self) {
        let jobs: Vec<JobId> = self.runs.keys().copied().collect();
        for job in jobs {
            let run = self.runs.get_mut(&job).expect("just listed");
            for (block, node, digest) in run.coordinator.act(&mut self.scene) {
                self.publish(job, block, node, digest);
            }
            if self.runs[&job].coordinator.result.is_some() {
                self.finish(job);
            }
        }
        while let Some(action) = self.scheduler.poll(self.scene.now) {
            match action {
                Action::Propose(proposal) => self.start(proposal),
                Action::CancelJob { job } => self.stop(job),
                Action::DropSurplus { stripe, .. } => {
                    self.scene.violate(format!("stripe {stripe} has no surplus"));
                }
                Action::ItemEnded { item, end, stripe, .. } => {
                    self.note(format!("stripe {stripe} is {end:?}"));
                    let stripe = self.items.remove(&item).expect("it was named");
                    if let End::Unreadable { .. } = end {
                        self.unmet.unreadable.insert(stripe);
                    }
                    self.record.ends.push((stripe, end));
                }
                Action::RepairEnded { repair } => {
                    self.open.remove(&repair);
                    self.scheduler.forget(repair);
                }
            }
        }
    }

    /// What a job wanted is back.
    fn stop(&mut self, job: JobId) {
        let Some(run) = self.runs.get_mut(&job) else { return };
        run.stopped = true;
        run.coordinator.job.cancel();
    }

    fn start(&mut self, proposal: Proposal) {
        let stripe: u32 = proposal.stripe.0.parse().expect("stripes are numbers");
        if self.runs.values().any(|run| run.stripe == stripe) {
            self.scene.violate(format!("stripe {stripe} is repaired twice at once"));
        }
        if proposal.wanted.is_empty() {
            if self.free_nodes(stripe) > 0 {
                self.scene.violate(format!("stripe {stripe} could be placed"));
            }
            self.unmet.note_placeless(stripe);
            return self.scheduler.decline(proposal.item, End::Failed);
        }
        self.check_urgency(&proposal);
        let job = JobId(u64::from(self.record.jobs) + 1);
        let request = self.request(job, stripe, &proposal);
        let topology = self.topology(job);
        let mut coordinator = Coordinator::new(request, self.scenario.seed ^ job.0, topology, &self.scene);
        let loads = coordinator.job.running_plan().map_or_else(Loads::default, |plan| Loads::of(plan, true));
        let loads = on_machines(loads);
        if let Err(resource) = self.scheduler.admit(proposal.item, job, &loads) {
            return self.note(format!("stripe {stripe} waits for {resource}"));
        }
        self.record.jobs += 1;
        self.set_up_processes(job, stripe);
        self.note(format!(
            "{job} repairs stripe {stripe} with {:?} to {:?}",
            proposal.helpers, proposal.wanted
        ));
        let published = coordinator.act(&mut self.scene);
        assert!(published.is_empty(), "nothing was done yet");
        self.runs.insert(job, Run { coordinator, item: proposal.item, stripe, loads, stopped: false });
        self.record.at_once = self.record.at_once.max(self.runs.len());
        self.check_budgets();
    }

    fn set_up_processes(&mut self, job: JobId, stripe: u32) {
        for &node in &self.alive {
            let id = process(job, node);
            self.scene.network.machines.insert(id, node);
            let mut disk = Disk::new(DISK_LATENCY, DISK_RATE);
            for index in (0..self.code.blocks() as u16).map(BlockIndex) {
                if self.blocks.homes(stripe)[usize::from(index.0)] == node
                    && let Some(stored) = self.blocks.stored(stripe, index)
                {
                    disk.blocks.insert(block_id(stripe, index), stored.clone());
                }
            }
            self.nodes.insert(id, Node::new(id, disk, BUDGET_BYTES));
        }
    }

    fn request(&self, job: JobId, stripe: u32, proposal: &Proposal) -> JobRequest {
        let homes = self.blocks.homes(stripe);
        let block = |(index, home): (u16, &NodeId)| StripeBlock {
            id: block_id(stripe, BlockIndex(index)),
            bytes: self.scenario.block_bytes,
            holder: self.alive.contains(home).then(|| process(job, *home)),
            digest: Some(digest_of(self.blocks.truth(stripe, BlockIndex(index)))),
        };
        let to_process = |wanted: &Wanted| Wanted { requestor: process(job, wanted.requestor), ..*wanted };
        JobRequest {
            job,
            stripe: Stripe {
                id: proposal.stripe.clone(),
                code: self.code.clone(),
                chunking: Chunking::whole(&*self.code, self.scenario.block_bytes),
                blocks: (0..).zip(homes).map(block).collect(),
                label: None,
            },
            wanted: proposal.wanted.iter().map(to_process).collect(),
            window: 0..self.scenario.block_bytes / self.code.sub_blocks() as u64,
            sub_blocks: None,
            policy: Policy {
                scheme: self.scenario.scheme,
                slice_bytes: Some(Geometry::MIN_SLICE_BYTES),
                prefer: proposal.helpers.iter().map(|&node| process(job, node)).collect(),
                ..Policy::default()
            },
            verify: Verify {
                parity: self.scenario.scheme != Scheme::Conventional,
                reread: true,
                ..Verify::default()
            },
            publish: true,
            tag: None,
            permits: Vec::new(),
        }
    }

    fn topology(&self, job: JobId) -> Topology {
        let mut topology = Topology::new();
        for &node in &self.alive {
            let id = process(job, node);
            let link = self.scenario.rate;
            let rates = Rates { up: link, down: link, read: DISK_RATE, write: DISK_RATE };
            let helper = NodeProfile::helper(node.to_string(), format!("{node}:1"));
            topology.set(id, NodeProfile { rates, ..helper });
        }
        topology
    }

    /// A block is the store's from now on, and wherever it was before it is no more.
    fn publish(&mut self, job: JobId, block: BlockIndex, node: NodeId, digest: Option<Digest>) {
        let stripe = self.runs[&job].stripe;
        let id = block_id(stripe, block);
        let truth = self.blocks.truth(stripe, block);
        let stored = self.nodes.get(&node).and_then(|node| node.disk.blocks.get(&id)).cloned();
        match stored.filter(|stored| stored.bytes == *truth && Some(digest_of(truth)) == digest) {
            None => self.scene.violate(format!("{id} is published at {node} with wrong bytes")),
            Some(stored) => {
                let home = machine(node);
                if self.blocks.publish(stripe, block, home, stored) > 1 {
                    self.scene.violate(format!("{home} has two blocks of stripe {stripe}"));
                }
                let facts = BlockFacts { node: Some(home), good: true };
                self.scheduler.handle_block(&StripeId(stripe.to_string()), block, facts);
            }
        }
    }

    fn finish(&mut self, job: JobId) {
        let run = self.runs.remove(&job).expect("it runs");
        let is_of = |node: NodeId| job_of(node) == job;
        self.nodes.retain(|&node, _| !is_of(node));
        self.scene.network.edges.retain(|edge, _| !is_of(edge.from));
        self.scene.network.machines.retain(|&node, _| !is_of(node));
        let now = self.scene.now;
        match run.coordinator.result.expect("it has one") {
            Ok(_) => {
                self.note(format!("{job} is done"));
                self.scheduler.handle_done(run.item, now);
            }
            Err(JobError::Cancelled) if run.stopped => {
                self.note(format!("{job} is called off"));
                self.scheduler.handle_cancelled(run.item);
            }
            Err(error) => {
                self.note(format!("{job} failed: {error}"));
                if let JobError::Cancelled = error {
                    self.scene.violate(format!("nobody cancelled {job}"));
                }
                self.scheduler.handle_failed(run.item, Failure::Transient, now);
            }
        }
    }

    // ---- what must hold ----

    fn jobs_on(&self, node: NodeId) -> u64 {
        let parts = self.runs.values().flat_map(|run| &run.loads.nodes);
        parts.filter(|load| load.node == node).count() as u64
    }

    fn check_budgets(&mut self) {
        let over: Vec<NodeId> = (1..=self.scenario.nodes)
            .map(NodeId)
            .filter(|&node| self.jobs_on(node) > self.scenario.budget.jobs)
            .collect();
        for node in over {
            self.scene.violate(format!("{node} has {} jobs at once", self.jobs_on(node)));
        }
    }

    /// Nothing starts while something more urgent has all that it needs.
    fn check_urgency(&mut self, proposal: &Proposal) {
        let urgency = self.scheduler.survives(proposal.item);
        for (item, stripe) in self.items.clone() {
            let waits = self.scheduler.state(item) == ItemState::Waiting && item != proposal.item;
            let is_busy = self.runs.values().any(|run| run.stripe == stripe);
            let survives = self.scheduler.survives(item);
            if waits && !is_busy && survives.is_some() && survives < urgency && self.could_start(stripe) {
                self.scene.violate(format!("stripe {} starts before stripe {stripe}", proposal.stripe));
            }
        }
    }

    /// Whether the survivors that its code reads have room, and there is a node to take each lost block. A block that the
    /// code reads whatever is preferred, such as one of a local group, is waited for: doing without it moves more.
    fn could_start(&self, stripe: u32) -> bool {
        let homes = self.blocks.homes(stripe);
        let has_room = |node: &NodeId| self.jobs_on(*node) < self.scenario.budget.jobs;
        let home = |index: &BlockIndex| &homes[usize::from(index.0)];
        let (up, lost): (Vec<BlockIndex>, Vec<BlockIndex>) =
            (0..homes.len() as u16).map(BlockIndex).partition(|index| self.alive.contains(home(index)));
        let (roomy, full): (Vec<BlockIndex>, Vec<BlockIndex>) =
            up.into_iter().partition(|index| has_room(home(index)));
        let takers = self.alive.iter().filter(|node| !homes.contains(node) && has_room(node)).count();
        let recipe = self.code.repair(&lost, &[roomy, full].concat());
        let reads_roomy =
            recipe.is_ok_and(|recipe| recipe.sources().iter().all(|source| has_room(home(&source.block))));
        takers >= lost.len() && reads_roomy
    }

    fn judge(&mut self) {
        let mut wrong = Vec::new();
        for &(stripe, end) in &self.record.ends {
            let excused = match end {
                End::Repaired | End::NothingLost | End::Unreadable { .. } => true,
                End::Failed => self.unmet.was_placeless.contains(&stripe),
                End::LostAgain | End::Cancelled => false,
            };
            if !excused {
                wrong.push(format!("stripe {stripe} is {end:?}"));
            }
        }
        for stripe in 0..self.scenario.stripes {
            let homes = self.blocks.homes(stripe);
            let up = |index: &BlockIndex| self.alive.contains(&homes[usize::from(index.0)]);
            let (have, lost): (Vec<BlockIndex>, Vec<BlockIndex>) =
                (0..homes.len() as u16).map(BlockIndex).partition(up);
            if !lost.is_empty() && self.code.repair(&lost, &have).is_ok() && !self.lacks_takers(stripe) {
                wrong.push(format!("stripe {stripe} can be read, and lacks {lost:?}"));
            }
            for index in have {
                if !self.blocks.is_right(stripe, index) {
                    wrong.push(format!("{} is not what it was", block_id(stripe, index)));
                }
            }
        }
        for (node, reserved, _) in self.scheduler.reservations() {
            if self.runs.is_empty() && reserved.jobs > 0 {
                wrong.push(format!("{node} has {} jobs reserved for nothing", reserved.jobs));
            }
        }
        wrong.into_iter().for_each(|what| self.scene.violate(what));
    }

    /// Nodes that are up and have no block of the stripe.
    fn free_nodes(&self, stripe: u32) -> usize {
        let homes = self.blocks.homes(stripe);
        self.alive.iter().filter(|node| !homes.contains(node)).count()
    }

    /// Whether there are fewer free nodes than lost blocks: not all can be placed.
    fn lacks_takers(&self, stripe: u32) -> bool {
        let lost = self.blocks.homes(stripe).iter().filter(|home| !self.alive.contains(home)).count();
        self.free_nodes(stripe) < lost
    }
}

fn on_machines(loads: Loads) -> Loads {
    let mut loads = loads;
    loads.nodes.iter_mut().for_each(|load| load.node = machine(load.node));
    for (from, to, _) in &mut loads.links {
        (*from, *to) = (machine(*from), machine(*to));
    }
    loads
}
