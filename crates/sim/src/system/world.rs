//! A whole system: the coordinator, helpers, clients and the operator, and the loop that lets things happen in order of
//! virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use codes::Code;
use control::{ConnectionId, Effect, Event as ToCore};
use repair::wire::control::{FromNode, ToNode};
use repair::{BlockId, BlockProblem, NodeId, Report, StripeId};

use super::api::Requests;
use super::coordinator::{Coordinator, START_AGAIN};
use super::event::{Happening, ProcessId};
use super::faults::{COPY_EVERY, Copy};
use super::judge::Phase;
use super::process::{Process, Session};
use super::script::{Fault, Script};
use super::truth::Truth;
use super::wires::{COORDINATOR_SILENCE, Carried, NODE_SILENCE, PING_EVERY, Way, Wires};
use crate::dice::Dice;
use crate::disk::Disk;
use crate::edge::Network;
use crate::event::{Agenda, Event};
use crate::scene::{Control, Scene, Trace, Tracing, through_the_wire};

/// A process that was refused, or finds nobody, dials again after so long.
const DIAL_AGAIN: Duration = Duration::from_millis(500);
/// Bytes per second of disks.
pub(crate) const DISK_RATE: f64 = 200e6;

/// See the module's documentation.
pub(crate) struct World {
    pub(crate) script: Script,
    pub(crate) code: Arc<dyn Code>,
    pub(crate) scene: Scene,
    pub(crate) coordinator: Coordinator,
    pub(crate) wires: Wires,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    /// Who has which number.
    pub(crate) ids: BTreeMap<NodeId, ProcessId>,
    pub(crate) requests: Requests,
    pub(crate) truth: Truth,
    /// Stripes of which a block has other bytes with which its checksums agree.
    pub(crate) forged: BTreeSet<StripeId>,
    /// Copies of the catalog, the oldest first.
    pub(crate) copies: Vec<Copy>,
    /// Blocks of which this coordinator was told that they are bad, and where.
    pub(crate) told_bad: BTreeSet<(BlockId, ProcessId)>,
    /// Since when nothing goes wrong any more.
    pub(crate) calm_since: Option<Duration>,
    pub(crate) phase: Phase,
    /// What the status said last.
    pub(crate) last_summary: String,
    /// Files that were read.
    pub(crate) reads: u64,
    /// Files that were stored.
    pub(crate) puts: u64,
    /// How often helpers were told to make deliveries blocks of the store.
    pub(crate) commits: u64,
    pub(crate) events: u64,
}

impl World {
    /// A system in which nothing runs yet.
    pub(crate) fn new(script: &Script, tracing: Tracing) -> Self {
        let mut dice = Dice::new(script.seed);
        let coordinator = Coordinator::new(script);
        let processes = script.helper_ids().chain(script.client_ids()).map(|id| {
            let latency = dice.up_to(script.disk_latency);
            (id, Process::new(id, Disk::of_dir(latency, DISK_RATE)))
        });
        let processes = processes.collect();
        let scene = Scene {
            now: Duration::ZERO,
            agenda: Agenda::default(),
            network: Network::new(Duration::from_micros(100), 64 << 10),
            control: Control::new(script.message_delay, script.json),
            trace: Trace { how: tracing, lines: Vec::new() },
            slices_delivered: 0,
            reports: Some(Vec::new()),
            violations: Vec::new(),
            dice,
        };
        Self {
            script: script.clone(),
            code: script.code.build().expect("scripts have possible codes"),
            scene,
            coordinator,
            wires: Wires::default(),
            processes,
            ids: BTreeMap::new(),
            requests: Requests::default(),
            truth: Truth::default(),
            forged: BTreeSet::new(),
            copies: Vec::new(),
            told_bad: BTreeSet::new(),
            calm_since: None,
            phase: Phase::Busy,
            last_summary: String::new(),
            reads: 0,
            puts: 0,
            commits: 0,
            events: 0,
        }
    }

    /// Plays the script to its end.
    pub(crate) fn run(mut self) -> Self {
        self.begin();
        while self.phase != Phase::Over
            && self.scene.violations.is_empty()
            && let Some((at, event)) = self.scene.agenda.pop()
        {
            self.scene.now = at;
            self.events += 1;
            self.happen(event);
            self.settle();
        }
        self
    }

    fn begin(&mut self) {
        self.after(Duration::ZERO, Happening::CoordinatorStarts);
        for process in self.processes.keys().copied().collect::<Vec<_>>() {
            let delay = self.scene.dice.up_to(Duration::from_secs(1));
            self.after(delay, Happening::Starts { process, life: 0 });
        }
        for (number, &(at, _)) in self.script.operations.iter().enumerate() {
            self.scene.agenda.add(at, Event::System(Happening::Operation(number)));
        }
        for (number, &(at, _)) in self.script.faults.iter().enumerate() {
            self.scene.agenda.add(at, Event::System(Happening::Fault(number)));
        }
        let restores = |(_, fault): &(Duration, Fault)| matches!(fault, Fault::CatalogRestored { .. });
        if self.script.faults.iter().any(restores) {
            self.after(COPY_EVERY, Happening::Copies);
        }
        self.scene.agenda.add(self.script.calm_at(), Event::System(Happening::Calm));
    }

    pub(crate) fn after(&mut self, delay: Duration, happening: Happening) {
        self.scene.after(delay, Event::System(happening));
    }

    pub(crate) fn process(&mut self, process: ProcessId) -> &mut Process {
        self.processes.get_mut(&process).expect("it is a process")
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::System(happening) => self.happens(happening),
            Event::Node { node, job, what } => {
                if let Some(process) = self.ids.get(&node).and_then(|id| self.processes.get_mut(id)) {
                    process.notice(job, what, &mut self.scene);
                }
            }
            Event::Arrives { edge, frame } => {
                let Some(state) = self.scene.network.edges.get_mut(&edge).filter(|edge| !edge.silent) else {
                    return;
                };
                state.arrived.push_back(frame);
                if let Some(process) = self.ids.get(&edge.to).and_then(|id| self.processes.get_mut(id)) {
                    let moved = crate::event::NodeEvent::EdgeMoved { edge };
                    process.notice(edge.job, moved, &mut self.scene);
                }
            }
            other => unreachable!("{other:?} is of a world of one job"),
        }
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::CoordinatorStarts => self.start_coordinator(),
            Happening::Tick { run } => {
                if run == self.coordinator.run {
                    self.coordinator.tick(self.scene.now);
                }
            }
            Happening::StorageDone { run } => {
                if run == self.coordinator.run {
                    self.storage_done();
                }
            }
            Happening::Starts { process, life } => {
                let process = self.process(process);
                if process.life == life && !process.alive {
                    process.alive = true;
                    let id = process.id;
                    self.scene.note(|| format!("{} starts", super::process::name_of(id)));
                    self.dial(id);
                }
            }
            Happening::Dials { process, life } => {
                if self.process(process).life == life {
                    self.dial(process);
                }
            }
            Happening::Arrives { connection, way } => self.arrives(connection, way),
            Happening::Heartbeat { connection } => self.heartbeat(connection),
            Happening::ChoreDone { process, connection, chore } => {
                if self.process(process).session.connection() == Some(connection)
                    && let Some(answer) = self.process(process).chore(*chore)
                {
                    self.say(connection, answer);
                }
            }
            Happening::Asked { request } => self.asked(request),
            Happening::Answered { request, answer } => self.answered(request, answer.map(|answer| *answer)),
            Happening::GoesOn { process, life, flow } => {
                if self.process(process).life == life {
                    self.go_on(process, flow);
                }
            }
            Happening::Operation(number) => {
                let operation = self.script.operations[number].1;
                self.scene.note(|| format!("{operation:?}"));
                self.operate(operation);
            }
            Happening::Fault(number) => self.strike(number),
            Happening::FaultEnds(number) => self.end_fault(number),
            Happening::Copies => self.copy_catalog(),
            Happening::Calm => self.calm(),
            Happening::Look => self.look(),
        }
    }

    // ---- the coordinator ----

    fn start_coordinator(&mut self) {
        if self.coordinator.running.is_some() {
            return;
        }
        self.told_bad.clear(); // What the one before had not stored is forgotten.
        let started = self.coordinator.start(self.scene.now, &mut self.scene.dice);
        self.scene.note(|| format!("the coordinator starts: {started:?}"));
        if started.is_err() {
            self.after(START_AGAIN, Happening::CoordinatorStarts);
        }
    }

    fn storage_done(&mut self) {
        let (events, answers) = self.coordinator.storage_done();
        answers.into_iter().for_each(|answer| self.answer(answer));
        for event in events {
            match event {
                ToCore::Recovered(Err(error)) if !error.is_passing() => {
                    self.scene.note(|| format!("the coordinator gives up: {error}"));
                    self.scene.violate(format!("the catalog is lost: {error}"));
                    return;
                }
                event => self.core(event),
            }
        }
    }

    /// Hands something to the control plane.
    pub(crate) fn core(&mut self, event: ToCore) {
        self.coordinator.handle(event, self.scene.now);
        self.carry_out();
    }

    /// Carries out what the control plane wants, as its driver does.
    fn carry_out(&mut self) -> bool {
        let mut acted = false;
        loop {
            let mut full = BTreeSet::new();
            while let Some(effect) =
                self.coordinator.running.as_mut().and_then(|running| running.control.poll())
            {
                acted = true;
                match effect {
                    Effect::Send { connection, message } => {
                        if !self.is_connected(connection) {
                        } else if self.wires.is_full(connection) {
                            self.disconnect(connection);
                            full.insert(connection);
                        } else {
                            self.tell(connection, *message);
                        }
                    }
                    Effect::Close { connection } => self.disconnect(connection),
                    Effect::Answer(answer) => self.answer(answer),
                }
            }
            if full.is_empty() {
                return acted;
            }
            for connection in full {
                let why = "its connection does not take messages".to_owned();
                self.coordinator.handle(ToCore::Left { connection, why }, self.scene.now);
            }
        }
    }

    fn is_connected(&self, connection: ConnectionId) -> bool {
        self.coordinator.running.as_ref().is_some_and(|running| running.connections.contains(&connection))
    }

    /// The coordinator closes its end of a connection.
    fn disconnect(&mut self, connection: ConnectionId) {
        if let Some(running) = &mut self.coordinator.running {
            running.connections.remove(&connection);
        }
        let Some(wire) = self.wires.all.get_mut(&connection).filter(|wire| wire.coordinator_open) else {
            return;
        };
        wire.coordinator_open = false;
        self.send(connection, Way::Down, Carried::Fin);
        self.wires.tidy(connection);
    }

    /// What the processes and the coordinator have to say to each other goes on its way.
    fn settle(&mut self) {
        loop {
            let mut moved = self.carry_out();
            let reports = self.scene.reports.replace(Vec::new()).unwrap_or_default();
            for (node, report) in reports {
                moved = true;
                let session = self.ids.get(&node).map(|process| self.processes[process].session);
                if let Some(Session::Up(connection)) = session {
                    self.say(connection, report);
                }
            }
            if !moved {
                break;
            }
        }
        if let Some(at) = self.coordinator.feed(self.scene.now, &mut self.scene.dice) {
            let run = self.coordinator.run;
            self.scene.agenda.add(at, Event::System(Happening::StorageDone { run }));
        }
        if let Some(at) = self.coordinator.next_tick(self.scene.now) {
            let run = self.coordinator.run;
            self.scene.agenda.add(at, Event::System(Happening::Tick { run }));
        }
        self.check_always();
    }

    // ---- control connections ----

    fn send(&mut self, connection: ConnectionId, way: Way, what: Carried) {
        let Some(wire) = self.wires.all.get(&connection) else { return };
        let limit = self.wires.slow.get(&wire.process).copied().unwrap_or(self.script.message_delay);
        let earliest = self.scene.now + self.scene.dice.up_to(limit);
        if let Some(at) = self.wires.send(connection, way, what, earliest) {
            self.scene.agenda.add(at, Event::System(Happening::Arrives { connection, way }));
        }
    }

    /// A process says something.
    pub(crate) fn say(&mut self, connection: ConnectionId, message: FromNode) {
        let message = if self.script.json { through_the_wire(&message) } else { message };
        if self.wires.all.get(&connection).is_some_and(|wire| wire.process_open) {
            self.send(connection, Way::Up, Carried::FromNode(Box::new(message)));
        }
    }

    /// The coordinator says something.
    fn tell(&mut self, connection: ConnectionId, message: ToNode) {
        let message = if self.script.json { through_the_wire(&message) } else { message };
        self.send(connection, Way::Down, Carried::ToNode(Box::new(message)));
    }

    pub(crate) fn dial(&mut self, id: ProcessId) {
        let process = &self.processes[&id];
        if !process.alive || process.session != Session::None {
            return;
        }
        if self.coordinator.running.is_none() || !self.wires.reaches(id) {
            return self.dial_again(id);
        }
        let (role, hello) = (process.role(), Box::new(process.hello()));
        let connection = self.wires.open(id, self.scene.now);
        self.process(id).session = Session::Hello(connection);
        self.send(connection, Way::Up, Carried::Hello(role, hello));
        self.after(PING_EVERY, Happening::Heartbeat { connection });
    }

    fn dial_again(&mut self, process: ProcessId) {
        let life = self.processes[&process].life;
        self.after(DIAL_AGAIN, Happening::Dials { process, life });
    }

    fn arrives(&mut self, connection: ConnectionId, way: Way) {
        let Some(what) = self.wires.arrive(connection, way) else { return };
        let now = self.scene.now;
        let Some(wire) = self.wires.all.get_mut(&connection) else { return };
        match way {
            Way::Up if wire.coordinator_open => {
                wire.coordinator_heard = now;
                match what {
                    Carried::Hello(role, hello) => {
                        if let Some(running) = &mut self.coordinator.running {
                            running.connections.insert(connection);
                        }
                        self.core(ToCore::Joined { connection, role, hello });
                    }
                    Carried::FromNode(message) => {
                        if self.is_connected(connection) {
                            let id = self.wires.all[&connection].process;
                            if !matches!(*message, FromNode::Pong { .. }) {
                                self.note_message(id, "says", &message);
                                self.note_bad(id, &message);
                            }
                            self.core(ToCore::Said { connection, message });
                        }
                    }
                    Carried::Fin => {
                        wire.coordinator_open = false;
                        self.left(connection, "it closed the connection");
                    }
                    Carried::ToNode(_) => unreachable!("the coordinator says that"),
                }
            }
            Way::Down if wire.process_open => {
                wire.process_heard = now;
                let process = wire.process;
                match what {
                    Carried::ToNode(message) => self.hears(process, connection, *message),
                    Carried::Fin => {
                        wire.process_open = false;
                        self.lose_session(process);
                    }
                    Carried::Hello(..) | Carried::FromNode(_) => unreachable!("processes say that"),
                }
            }
            _ => {}
        }
        self.wires.tidy(connection);
    }

    /// Takes note of what the coordinator is told of bad blocks.
    fn note_bad(&mut self, process: ProcessId, message: &FromNode) {
        let (block, problem) = match message {
            FromNode::Verified { block, result: Err(problem), .. } => (block, problem),
            FromNode::Report { report: Report::BadBlock { block, problem }, .. } => (block, problem),
            _ => return,
        };
        if matches!(problem, BlockProblem::Missing | BlockProblem::Corrupt(_)) {
            self.told_bad.insert((block.clone(), process));
        }
    }

    fn note_message(&mut self, process: ProcessId, verb: &str, message: &impl std::fmt::Debug) {
        self.scene.note(|| {
            let text: String = format!("{message:?}").chars().take(160).collect();
            format!("{} {verb} {text}", super::process::name_of(process))
        });
    }

    /// A connection has ended for the coordinator.
    fn left(&mut self, connection: ConnectionId, why: &str) {
        if let Some(running) = &mut self.coordinator.running {
            running.connections.remove(&connection);
            self.core(ToCore::Left { connection, why: why.to_owned() });
        }
    }

    fn heartbeat(&mut self, connection: ConnectionId) {
        let now = self.scene.now;
        let Some(wire) = self.wires.all.get_mut(&connection) else { return };
        let process = wire.process;
        if wire.coordinator_open {
            if now > wire.coordinator_heard + NODE_SILENCE {
                wire.coordinator_open = false;
                self.send(connection, Way::Down, Carried::Fin);
                self.left(connection, "it said nothing for 5 s");
            } else {
                self.tell(connection, ToNode::Ping);
            }
        }
        let Some(wire) = self.wires.all.get_mut(&connection) else { return };
        if wire.process_open && now > wire.process_heard + COORDINATOR_SILENCE {
            wire.process_open = false;
            self.send(connection, Way::Up, Carried::Fin);
            self.lose_session(process);
        }
        self.wires.tidy(connection);
        if self.wires.all.contains_key(&connection) {
            self.after(PING_EVERY, Happening::Heartbeat { connection });
        }
    }

    /// A process has lost the coordinator, and dials again.
    pub(crate) fn lose_session(&mut self, id: ProcessId) {
        self.scene.note(|| format!("{} has lost the coordinator", super::process::name_of(id)));
        let process = self.processes.get_mut(&id).expect("it is a process");
        process.lose_session(&mut self.scene);
        if process.client.is_some() {
            self.client_lost_session(id);
        }
        self.dial_again(id);
    }

    /// A process closes its end of its connection; `quietly`: nobody hears of it.
    pub(crate) fn hang_up(&mut self, id: ProcessId, quietly: bool) {
        let Some(connection) = self.processes[&id].session.connection() else { return };
        let Some(wire) = self.wires.all.get_mut(&connection) else { return };
        wire.process_open = false;
        if !quietly {
            self.send(connection, Way::Up, Carried::Fin);
        }
        self.wires.tidy(connection);
    }

    /// The coordinator's process is gone, with all its connections; `quietly`: nobody hears of it.
    pub(crate) fn drop_connections(&mut self, quietly: bool) {
        for connection in self.wires.all.keys().copied().collect::<Vec<_>>() {
            let wire = self.wires.all.get_mut(&connection).expect("it is there");
            if std::mem::take(&mut wire.coordinator_open) && !quietly {
                self.send(connection, Way::Down, Carried::Fin);
            }
            self.wires.tidy(connection);
        }
    }

    fn hears(&mut self, id: ProcessId, connection: ConnectionId, message: ToNode) {
        let process = self.processes.get_mut(&id).expect("it is a process");
        if !process.alive || process.session.connection() != Some(connection) {
            return;
        }
        if message != ToNode::Ping {
            self.note_message(id, "is told", &message);
        }
        self.commits += u64::from(matches!(message, ToNode::Commit { .. }));
        let process = self.processes.get_mut(&id).expect("it is a process");
        match message {
            ToNode::Registered { node } => {
                (process.session, process.node) = (Session::Up(connection), Some(node));
                self.ids.insert(node, id);
                if !self.scene.network.ports.contains_key(&node) {
                    self.scene.network.add_port(node, self.script.link_rate as f64);
                }
            }
            ToNode::Refused { .. } => {
                self.hang_up(id, false);
                self.lose_session(id);
            }
            ToNode::Ping => {
                let pong = process.pong();
                self.say(connection, pong);
            }
            ToNode::Limits(_) => {}
            message if message.job().is_some() => {
                let job = message.job().expect("it was just looked at");
                let is_wanted = match &message {
                    ToNode::Assign(assignment) if process.client.is_some() => {
                        self.client_assigned(id, assignment)
                    }
                    _ => true,
                };
                if is_wanted {
                    self.processes.get_mut(&id).expect("it is a process").take(job, message, &mut self.scene);
                }
            }
            message if process.client.is_some() => self.client_hears(id, message),
            chore => {
                let delay = process.chore_takes(&chore, &mut self.scene);
                let chore = Box::new(chore);
                self.after(delay, Happening::ChoreDone { process: id, connection, chore });
            }
        }
    }
}
