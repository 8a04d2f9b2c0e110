//! A world of one job: its nodes, the job with its driver, and the event loop.

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
use crate::shared::{Control, Shared, Trace, Tracing};
use crate::stripe;

/// Time limit of a run: many times the sum of a job's timeouts.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
/// Time for messages in flight to arrive after the end of the job.
const SETTLE: Duration = Duration::from_secs(30);
/// The longest time that a restarted or disconnected node takes to register.
const REGISTER_LIMIT: Duration = Duration::from_millis(500);

/// A scenario while it is being simulated.
#[derive(Debug)]
pub struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) shared: Shared,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) driver: JobDriver,
    /// The true contents of every block, padded to the stripe's block length.
    pub(crate) truth: Vec<Vec<u8>>,
    pub(crate) code: Arc<dyn Code>,
    /// For each fault of the scenario, whether it has struck.
    pub(crate) struck: Vec<bool>,
    /// Blocks that were published with wrong bytes.
    pub(crate) published_wrong: Vec<BlockIndex>,
    /// Deliveries to the client at the end of the job, unless the client had died before.
    pub(crate) delivered_to_client: Option<Deliveries>,
    pub(crate) events: u64,
    pub(crate) ended_at: Option<Duration>,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The job's result; `None` if the job did not end.
    pub result: Option<Result<Outcome, JobError>>,
    /// Virtual time at which the job ended.
    pub after: Duration,
    /// Payload bytes sent over each edge, over all plans.
    pub edges: BTreeMap<(NodeId, NodeId), u64>,
    /// The violated invariants.
    pub violations: Vec<String>,
    /// The events as text, if they were recorded.
    pub trace: Vec<String>,
    /// Number of events that were handled.
    pub events: u64,
}

impl Ended {
    /// Returns the payload bytes sent over all edges.
    pub fn network_bytes(&self) -> u64 {
        self.edges.values().sum()
    }
}

impl<'a> World<'a> {
    /// Creates a world in its initial state, in which the job has made its first plan.
    ///
    /// # Panics
    /// If the scenario's code exceeds its limits.
    pub fn new(scenario: &'a Scenario, tracing: Tracing) -> Self {
        let code = scenario.code.build().expect("scenarios have possible codes");
        let mut dice = Dice::new(scenario.seed);
        let truth = stripe::encode(&*code, scenario, &mut dice);
        let mut network = Network::new(scenario.machines.delay, scenario.machines.window);
        scenario.node_ids().into_iter().for_each(|node| network.add_port(node, scenario.machines.rate));
        let shared = Shared {
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
        let driver = JobDriver::new(request, scenario.seed, scenario.topology(), &shared);
        let struck = vec![false; scenario.faults.len()];
        let mut world = Self {
            scenario,
            shared,
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

    /// Simulates the scenario to its end and checks the invariants.
    pub fn run(mut self) -> Ended {
        self.plan_faults();
        self.shared.after(Duration::ZERO, Event::Tick);
        self.act();
        while let Some((at, event)) = self.shared.agenda.pop() {
            if at > self.ended_at.map_or(TIME_LIMIT, |end| end + SETTLE) {
                break;
            }
            self.shared.now = at;
            self.events += 1;
            self.happen(event);
            self.strike_by_deliveries();
            self.act();
        }
        self.judge();
        let mut edges = BTreeMap::new();
        for (id, edge) in &self.shared.network.edges {
            *edges.entry((id.from, id.to)).or_insert(0) += edge.payload_bytes;
        }
        Ended {
            result: self.driver.result,
            after: self.ended_at.unwrap_or(self.shared.now),
            edges,
            violations: self.shared.violations,
            trace: self.shared.trace.lines,
            events: self.events,
        }
    }

    pub(crate) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("it is a node")
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick => {
                self.driver.tick(&self.shared);
                if self.driver.result.is_none() {
                    self.shared.after(Duration::from_millis(TICK_MS), Event::Tick);
                }
            }
            Event::ToNode { node, connection, message } => {
                if connection == self.shared.connection(node) {
                    self.deliver(node, Waiting::Message(connection, message));
                }
            }
            Event::FromNode { node, connection, epoch, report } => {
                if connection == self.shared.connection(node) {
                    self.shared.note(|| format!("{node} {epoch:?} reports {report:?}"));
                    self.driver.take_report(node, epoch, *report, &self.shared);
                }
            }
            Event::NodeLost { node, connection } => {
                if connection == self.shared.connection(node) {
                    self.driver.lose_node(node, &mut self.shared);
                }
            }
            Event::PingsUnanswered { node, pause } => {
                let paused = self.nodes[&node].state == State::Paused && self.nodes[&node].pauses == pause;
                if paused && self.driver.topology.is_alive(node) {
                    self.driver.lose_node(node, &mut self.shared);
                }
            }
            Event::Registers { node } => {
                if self.nodes[&node].state != State::Dead {
                    self.node(node).registered = true;
                    self.driver.register(node, &mut self.shared);
                }
            }
            Event::Fault(number) => self.strike(number),
            Event::Restarts { node } => {
                self.node(node).state = State::Running;
                let delay = self.shared.dice.up_to(REGISTER_LIMIT);
                self.shared.after(delay, Event::Registers { node });
            }
            Event::Continues { node, pause } => self.continue_node(node, pause),
            Event::Node { node, what, .. } => self.deliver(node, Waiting::Event(what)),
            Event::System(_) => unreachable!("a world of one job has none"),
            Event::Arrives { edge, frame } => {
                if let Some(state) = self.shared.network.edges.get_mut(&edge).filter(|edge| !edge.silent) {
                    state.arrived.push_back(frame);
                    self.deliver(edge.to, Waiting::Event(NodeEvent::EdgeMoved { edge }));
                }
            }
        }
    }

    /// Passes an event or message to a node. A paused process handles it later, a dead one never.
    fn deliver(&mut self, id: NodeId, what: Waiting) {
        let node = self.nodes.get_mut(&id).expect("it is a node");
        match node.state {
            State::Running => match what {
                Waiting::Event(event) => node.handle(event, &mut self.shared),
                Waiting::Message(connection, message) => {
                    if node.registered && connection == self.shared.connection(id) {
                        self.shared.note(|| format!("{id} receives {}", headline(&message)));
                        node.take(*message, &mut self.shared);
                    }
                }
            },
            State::Paused => node.deferred.push(what),
            State::Dead => {}
        }
    }

    /// Continues a paused process. If the coordinator has treated the node as lost meanwhile, the process
    /// finds the connection closed, drops all state of the job and registers again.
    fn continue_node(&mut self, id: NodeId, pause: u32) {
        let node = self.nodes.get_mut(&id).expect("it is a node");
        if node.state != State::Paused || node.pauses != pause {
            return;
        }
        self.shared.note(|| format!("{id} resumes"));
        node.state = State::Running;
        let deferred = std::mem::take(&mut node.deferred);
        if !self.driver.topology.is_alive(id) {
            node.forget_all(&mut self.shared);
            let delay = self.shared.dice.up_to(REGISTER_LIMIT);
            return self.shared.after(delay, Event::Registers { node: id });
        }
        deferred.into_iter().for_each(|what| self.deliver(id, what));
    }

    /// Carries out the job's actions and checks the blocks that it published.
    fn act(&mut self) {
        for (block, node, digest) in self.driver.act(&mut self.shared) {
            self.check_published(block, node, digest);
        }
        if self.driver.result.is_some() && self.ended_at.is_none() {
            self.ended_at = Some(self.shared.now);
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
