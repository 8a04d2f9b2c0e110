//! A world of one job: nodes, the job with its driver, and the loop that lets things happen in order of
//! virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code};
use repair::{JobError, NodeId, Outcome};

use crate::dice::Dice;
use crate::disk::{Deliveries, Disk, Stored, digest_of};
use crate::edge::Network;
use crate::event::{Agenda, Event, NodeEvent};
use crate::job_driver::{JobDriver, TICK_MS};
use crate::node::{Node, State, Waiting};
use crate::scenario::{CLIENT, Scenario};
use crate::scene::{Control, Scene, Trace, Tracing};
use crate::stripe;

/// No job takes longer: the sum of all limits that a job has, many times over.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
/// After the end of a job, messages in flight get this long to arrive.
const SETTLE: Duration = Duration::from_secs(30);
/// How long a node that was started again, or cut off, takes to register.
const REGISTER_LIMIT: Duration = Duration::from_millis(500);

/// One scenario being played.
#[derive(Debug)]
pub struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) scene: Scene,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) driver: JobDriver,
    /// Every block as it should be, padded to the stripe's block length.
    pub(crate) truth: Vec<Vec<u8>>,
    pub(crate) code: Arc<dyn Code>,
    /// Which of the scenario's faults have struck.
    pub(crate) struck: Vec<bool>,
    /// Blocks published with other bytes than they should have.
    pub(crate) published_wrong: Vec<BlockIndex>,
    /// Deliveries to the client at the end of the job, if it still runs.
    pub(crate) delivered_to_client: Option<Deliveries>,
    pub(crate) events: u64,
    pub(crate) ended_at: Option<Duration>,
}

/// How a world ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How the job ended; `None` if it never did.
    pub result: Option<Result<Outcome, JobError>>,
    /// When it ended, in virtual time.
    pub after: Duration,
    /// Bytes of payload that were sent over each edge, over all plans.
    pub edges: BTreeMap<(NodeId, NodeId), u64>,
    /// Violated invariants.
    pub violations: Vec<String>,
    /// The events as text, if they were kept.
    pub trace: Vec<String>,
    /// Events that happened.
    pub events: u64,
}

impl Ended {
    /// Bytes of payload that were sent over all edges.
    pub fn network_bytes(&self) -> u64 {
        self.edges.values().sum()
    }
}

impl<'a> World<'a> {
    /// A world in which nothing has happened yet but the job's first plan.
    ///
    /// # Panics
    /// If the scenario's code is beyond its limits.
    pub fn new(scenario: &'a Scenario, tracing: Tracing) -> Self {
        let code = scenario.code.build().expect("scenarios have possible codes");
        let mut dice = Dice::new(scenario.seed);
        let truth = stripe::encode(&*code, scenario, &mut dice);
        let mut network = Network::new(scenario.machines.delay, scenario.machines.window);
        scenario.node_ids().into_iter().for_each(|node| network.add_port(node, scenario.machines.rate));
        let scene = Scene {
            now: Duration::ZERO,
            agenda: Agenda::default(),
            dice,
            network,
            control: Control::new(scenario.machines.control_delay, scenario.machines.json),
            trace: Trace { how: tracing, lines: Vec::new() },
            slices_delivered: 0,
            reports: None,
            violations: Vec::new(),
        };
        let digests = truth.iter().enumerate().map(|(index, block)| {
            let bytes = scenario.bytes_of(BlockIndex(index as u16)) as usize;
            digest_of(&block[..bytes])
        });
        let request = scenario.request(code.clone(), &digests.collect::<Vec<_>>());
        let driver = JobDriver::new(request, scenario.seed, scenario.topology(), &scene);
        let struck = vec![false; scenario.faults.len()];
        let mut world = Self {
            scenario,
            scene,
            nodes: BTreeMap::new(),
            driver,
            truth,
            code,
            struck,
            published_wrong: Vec::new(),
            delivered_to_client: None,
            events: 0,
            ended_at: None,
        };
        world.place_blocks();
        world
    }

    fn place_blocks(&mut self) {
        let scenario = self.scenario;
        for id in scenario.node_ids() {
            let disk = Disk::new(scenario.machines.disk_latency, scenario.machines.disk_rate);
            self.nodes.insert(id, Node::new(id, disk, scenario.machines.budget_bytes));
        }
        for (index, bytes) in self.truth.iter().enumerate() {
            let block = BlockIndex(index as u16);
            if let Some(holder) = scenario.holder(block) {
                let bytes = bytes[..scenario.bytes_of(block) as usize].to_vec();
                let node = self.nodes.get_mut(&holder).expect("holders are nodes");
                node.disk.blocks.insert(Scenario::block_id(block), Stored::good(bytes));
            }
        }
    }

    /// Plays the scenario to its end, and judges it.
    pub fn run(mut self) -> Ended {
        self.plan_faults();
        self.scene.after(Duration::ZERO, Event::Tick);
        self.act();
        while let Some((at, event)) = self.scene.agenda.pop() {
            if at > self.ended_at.map_or(TIME_LIMIT, |end| end + SETTLE) {
                break;
            }
            self.scene.now = at;
            self.events += 1;
            self.happen(event);
            self.strike_by_deliveries();
            self.act();
        }
        self.judge();
        let mut edges = BTreeMap::new();
        for (id, edge) in &self.scene.network.edges {
            *edges.entry((id.from, id.to)).or_insert(0) += edge.payload_bytes;
        }
        Ended {
            result: self.driver.result,
            after: self.ended_at.unwrap_or(self.scene.now),
            edges,
            violations: self.scene.violations,
            trace: self.scene.trace.lines,
            events: self.events,
        }
    }

    pub(crate) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("it is a node")
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick => {
                self.driver.tick(&self.scene);
                if self.driver.result.is_none() {
                    self.scene.after(Duration::from_millis(TICK_MS), Event::Tick);
                }
            }
            Event::ToNode { node, connection, message } => {
                if connection == self.scene.connection(node) {
                    self.deliver(node, Waiting::Message(connection, message));
                }
            }
            Event::FromNode { node, connection, epoch, report } => {
                if connection == self.scene.connection(node) {
                    self.scene.note(|| format!("{node} {epoch:?} reports {report:?}"));
                    self.driver.take_report(node, epoch, *report, &self.scene);
                }
            }
            Event::NodeLost { node, connection } => {
                if connection == self.scene.connection(node) {
                    self.driver.lose_node(node, &mut self.scene);
                }
            }
            Event::PingsUnanswered { node, pause } => {
                let paused = self.nodes[&node].state == State::Paused && self.nodes[&node].pauses == pause;
                if paused && self.driver.topology.is_alive(node) {
                    self.driver.lose_node(node, &mut self.scene);
                }
            }
            Event::Registers { node } => {
                if self.nodes[&node].state != State::Dead {
                    self.node(node).registered = true;
                    self.driver.register(node, &mut self.scene);
                }
            }
            Event::Fault(number) => self.strike(number),
            Event::Restarts { node } => {
                self.node(node).state = State::Running;
                let delay = self.scene.dice.up_to(REGISTER_LIMIT);
                self.scene.after(delay, Event::Registers { node });
            }
            Event::Continues { node, pause } => self.continue_node(node, pause),
            Event::Node { node, what, .. } => self.deliver(node, Waiting::Event(what)),
            Event::System(_) => unreachable!("a world of one job has none"),
            Event::Arrives { edge, frame } => {
                if let Some(state) = self.scene.network.edges.get_mut(&edge).filter(|edge| !edge.silent) {
                    state.arrived.push_back(frame);
                    self.deliver(edge.to, Waiting::Event(NodeEvent::EdgeMoved { edge }));
                }
            }
        }
    }

    /// Lets a node notice something, if its process runs.
    fn deliver(&mut self, id: NodeId, what: Waiting) {
        let node = self.nodes.get_mut(&id).expect("it is a node");
        match node.state {
            State::Running => match what {
                Waiting::Event(event) => node.handle(event, &mut self.scene),
                Waiting::Message(connection, message) => {
                    if node.registered && connection == self.scene.connection(id) {
                        self.scene.note(|| format!("{id} is told {}", headline(&message)));
                        node.take(*message, &mut self.scene);
                    }
                }
            },
            State::Paused => node.deferred.push(what),
            State::Dead => {}
        }
    }

    /// A stopped process goes on. If the coordinator has given it up, it finds its connection closed,
    /// drops what it has and registers anew.
    fn continue_node(&mut self, id: NodeId, pause: u32) {
        let node = self.nodes.get_mut(&id).expect("it is a node");
        if node.state != State::Paused || node.pauses != pause {
            return;
        }
        self.scene.note(|| format!("{id} goes on"));
        node.state = State::Running;
        let deferred = std::mem::take(&mut node.deferred);
        if !self.driver.topology.is_alive(id) {
            node.forget_all(&mut self.scene);
            let delay = self.scene.dice.up_to(REGISTER_LIMIT);
            return self.scene.after(delay, Event::Registers { node: id });
        }
        deferred.into_iter().for_each(|what| self.deliver(id, what));
    }

    /// Does what the job asks, and holds what it publishes against the truth.
    fn act(&mut self) {
        for (block, node, digest) in self.driver.act(&mut self.scene) {
            self.check_published(block, node, digest);
        }
        if self.driver.result.is_some() && self.ended_at.is_none() {
            self.ended_at = Some(self.scene.now);
            if let Some(client) = self.nodes.get(&CLIENT).filter(|client| client.state != State::Dead) {
                self.delivered_to_client = Some(client.task.deliveries.clone());
            }
        }
    }
}

fn headline(message: &repair::wire::control::ToNode) -> String {
    let text = format!("{message:?}");
    text.chars().take(100).collect()
}
