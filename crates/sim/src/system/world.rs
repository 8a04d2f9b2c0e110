//! A whole system with its clients, operator and judge, and the event loop.

use std::time::Duration;

use control::{Answer, ConnectionId, Event as ToControl, RequestId};
use repair::NodeId;
use repair::wire::control::{FromNode, ToNode};
use views::{ScrubView, Status};

use super::api::Asker;
use super::assembly::System;
use super::client::Clients;
use super::event::{Happening, ProcessId};
use super::faults::{COPY_EVERY, Copy};
use super::judge::{Judge, Phase};
use super::operator::{Operator, Wanted};
use super::process::name_of;
use super::script::{Fault, Operation, Script, Trigger, When};
use super::wires::{COORDINATOR_SILENCE, Carried, NODE_SILENCE, PING_EVERY, Way};
use crate::event::Event;
use crate::shared::Tracing;

/// A simulated system with its clients, operator and judge.
pub(crate) struct World {
    pub(crate) system: System,
    pub(crate) clients: Clients,
    pub(crate) judge: Judge,
    /// Backups of the catalog, oldest first.
    pub(crate) copies: Vec<Copy>,
    /// Faults that wait for a trigger, by number.
    pub(crate) armed: Vec<(Trigger, usize)>,
    /// Number of commit orders to helpers.
    pub(crate) commits: u64,
    pub(crate) events: u64,
}

impl World {
    /// Creates a system in which no process runs yet.
    pub(crate) fn new(script: &Script, tracing: Tracing) -> Self {
        Self {
            system: System::new(script, tracing),
            clients: Clients::new(script),
            judge: Judge::new(),
            copies: Vec::new(),
            armed: Vec::new(),
            commits: 0,
            events: 0,
        }
    }

    /// Simulates the script to its end.
    pub(crate) fn run(mut self) -> Self {
        self.begin();
        while self.judge.phase != Phase::Over
            && self.system.shared.violations.is_empty()
            && let Some((at, event)) = self.system.shared.agenda.pop()
        {
            self.system.shared.now = at;
            self.events += 1;
            match event {
                Event::System(happening) => self.happens(happening),
                event => self.system.notice(event),
            }
            if self.system.settle() {
                self.pull(Trigger::Stores, None);
            }
            self.judge.check_always(&mut self.system);
        }
        self.system.coordinator.platter.let_go(); // The catalog need not be closed properly.
        self
    }

    fn begin(&mut self) {
        let system = &mut self.system;
        system.after(Duration::ZERO, Happening::CoordinatorStarts);
        Judge::begin(system);
        for process in system.processes.ids() {
            let delay = system.shared.dice.up_to(Duration::from_secs(1));
            system.after(delay, Happening::Starts { process, life: 0 });
        }
        for (number, &(at, _)) in system.script.operations.iter().enumerate() {
            system.shared.agenda.add(at, Event::System(Happening::Operation(number)));
        }
        for (number, &(when, _)) in system.script.faults.iter().enumerate() {
            system.shared.agenda.add(when.at, Event::System(Happening::Arms(number)));
        }
        let restores = |(_, fault): &(When, Fault)| matches!(fault, Fault::CatalogRestored { .. });
        if system.script.faults.iter().any(restores) {
            system.after(COPY_EVERY, Happening::Copies);
        }
        system.shared.agenda.add(system.script.calm_at(), Event::System(Happening::Calm));
    }

    fn happens(&mut self, happening: Happening) {
        let system = &mut self.system;
        match happening {
            Happening::CoordinatorStarts => {
                if system.start_coordinator() {
                    self.judge.coordinator_starts();
                }
            }
            Happening::Tick { run } => {
                if run == system.coordinator.run {
                    system.coordinator.tick(system.shared.now);
                }
            }
            Happening::StorageDone { run } => {
                if run == system.coordinator.run {
                    system.storage_done();
                }
            }
            Happening::Starts { process, life } => self.start(process, life),
            Happening::Dials { process, life } => {
                if system.processes.get(process).life == life {
                    system.dial(process);
                }
            }
            Happening::Arrives { connection, way } => self.arrives(connection, way),
            Happening::Heartbeat { connection } => self.heartbeat(connection),
            Happening::ChoreDone { process, connection, chore } => {
                let process = system.processes.get_mut(process);
                if process.session.connection() == Some(connection)
                    && let Some(answer) = process.chore(*chore)
                {
                    system.say(connection, answer);
                }
            }
            Happening::Asked { request } => system.asked(request),
            Happening::Answered { request, answer } => self.answered(request, answer.map(|answer| *answer)),
            Happening::GoesOn { process, life, flow } => {
                if system.processes.get(process).life == life {
                    self.clients.go_on(process, flow, system);
                }
            }
            Happening::Operation(number) => {
                let operation = system.script.operations[number].1;
                system.shared.note(|| format!("{operation:?}"));
                self.operate(operation);
            }
            Happening::Arms(number) => self.arm(number),
            Happening::Fault { number, at } => self.strike(number, at),
            Happening::FaultEnds(fault) => system.end_fault(fault),
            Happening::Copies => self.copy_catalog(),
            Happening::Calm => {
                system.cease();
                self.judge.calm(system);
            }
            Happening::Look => self.judge.look(&self.clients, system),
        }
    }

    fn start(&mut self, id: ProcessId, life: u32) {
        let process = self.system.processes.get_mut(id);
        if process.life == life && !process.alive {
            (process.alive, process.dead_since) = (true, None);
            self.system.shared.note(|| format!("{} starts", name_of(id)));
            self.system.dial(id);
        }
    }

    // ---- people ----

    fn operate(&mut self, operation: Operation) {
        let system = &mut self.system;
        match operation {
            Operation::Put { client, file, bytes, replace } => {
                let bytes = system.shared.dice.bytes(bytes as usize);
                self.clients.put(client, &format!("f{file}"), bytes, replace, system);
            }
            Operation::Read { client, file } => self.clients.read(client, &format!("f{file}"), false, system),
            Operation::Remove { client, file } => self.clients.remove(client, &format!("f{file}"), system),
            operation => Operator::of(system).operate(operation),
        }
    }

    /// Handles the API's answer to a request, or the end of the request's connection (`None`).
    fn answered(&mut self, request: RequestId, answer: Option<Answer>) {
        let system = &mut self.system;
        match system.requests.close(request) {
            None => system.shared.violate(format!("{request:?} was answered, but no such request is open")),
            Some(Asker::Flow { process, life, flow }) => {
                if system.processes.get(process).life == life {
                    self.clients.answered(process, flow, answer, system);
                }
            }
            Some(Asker::Operator(wanted)) => self.operator_answered(wanted, answer),
            Some(Asker::Nobody) => {}
        }
    }

    fn operator_answered(&mut self, wanted: Wanted, answer: Option<Answer>) {
        let system = &mut self.system;
        let Some(answer) = answer else { return self.judge.look_failed(wanted, system) };
        match wanted {
            Wanted::Nothing => {}
            Wanted::Pause(_) | Wanted::Cancel => Operator::of(system).change_repairs(wanted, answer),
            Wanted::Status => match answer.take::<Status>() {
                Ok(status) => self.judge.judge_status(&status, &mut self.clients, system),
                Err(error) => system.shared.violate(format!("the status request failed: {error}")),
            },
            Wanted::Scrub => match answer.take::<ScrubView>() {
                Ok(scrub) => self.judge.judge_scrub(&scrub),
                Err(_) => self.judge.look_failed(wanted, system),
            },
        }
    }

    // ---- control connections ----

    /// Handles the arrival of the next message on a connection.
    fn arrives(&mut self, connection: ConnectionId, way: Way) {
        let Some(what) = self.system.wires.arrive(connection, way) else { return };
        let now = self.system.shared.now;
        let Some(wire) = self.system.wires.all.get_mut(&connection) else { return };
        let process = wire.process;
        match (way, what) {
            (Way::Up, what) if wire.coordinator_open => {
                wire.coordinator_heard = now;
                wire.coordinator_open = !matches!(what, Carried::Fin);
                self.coordinator_hears(process, connection, what);
            }
            (Way::Down, what) if wire.process_open => {
                wire.process_heard = now;
                wire.process_open = !matches!(what, Carried::Fin);
                match what {
                    Carried::ToNode(message) => self.hears(process, connection, *message),
                    _ => self.lose_session(process),
                }
            }
            _ => {}
        }
        self.system.wires.tidy(connection);
    }

    fn coordinator_hears(&mut self, process: ProcessId, connection: ConnectionId, what: Carried) {
        let system = &mut self.system;
        match what {
            Carried::Hello(role, hello) => {
                system.coordinator.connect(connection);
                system.control(ToControl::Joined { connection, role, hello });
            }
            Carried::FromNode(message) if system.coordinator.is_connected(connection) => {
                let trigger = Trigger::of_report(&message);
                if !matches!(*message, FromNode::Pong { .. }) {
                    system.note_message(process, "sends", &message);
                    self.judge.note_bad(process, &message, system.shared.now);
                }
                system.control(ToControl::Said { connection, message });
                trigger.into_iter().for_each(|trigger| self.pull(trigger, Some(process)));
            }
            Carried::FromNode(_) => {}
            Carried::Fin => system.left(connection, "it closed the connection"),
            Carried::ToNode(_) => unreachable!("only the coordinator sends that"),
        }
    }

    /// Sends the coordinator's ping and checks at both ends for how long the peer has been silent.
    fn heartbeat(&mut self, connection: ConnectionId) {
        let system = &mut self.system;
        let now = system.shared.now;
        let Some(wire) = system.wires.all.get_mut(&connection) else { return };
        let process = wire.process;
        if wire.coordinator_open {
            if now > wire.coordinator_heard + NODE_SILENCE {
                wire.coordinator_open = false;
                system.wires.send(connection, Way::Down, Carried::Fin, &mut system.shared);
                system.left(connection, "it sent no message for 5 s");
            } else {
                system.wires.tell(connection, ToNode::Ping, &mut system.shared);
            }
        }
        let Some(wire) = system.wires.all.get_mut(&connection) else { return };
        if wire.process_open && now > wire.process_heard + COORDINATOR_SILENCE {
            wire.process_open = false;
            system.wires.send(connection, Way::Up, Carried::Fin, &mut system.shared);
            self.lose_session(process);
        }
        self.system.wires.tidy(connection);
        if self.system.wires.all.contains_key(&connection) {
            self.system.after(PING_EVERY, Happening::Heartbeat { connection });
        }
    }

    /// Handles the loss of a process's session with the coordinator.
    pub(crate) fn lose_session(&mut self, id: ProcessId) {
        self.system.lose_session(id);
        if self.system.processes.get(id).is_client() {
            self.clients.lost_session(id, &mut self.system);
        }
    }

    /// Handles a message from the coordinator at a process.
    fn hears(&mut self, id: ProcessId, connection: ConnectionId, message: ToNode) {
        let system = &mut self.system;
        let process = system.processes.get(id);
        if !process.alive || process.session.connection() != Some(connection) {
            return;
        }
        let (pong, is_client) = (process.pong(), process.is_client());
        if message != ToNode::Ping {
            system.note_message(id, "receives", &message);
        }
        self.commits += u64::from(matches!(message, ToNode::Commit { .. }));
        if let Some(trigger) = Trigger::of_order(&message).filter(|_| !is_client) {
            self.pull(trigger, Some(id));
        }
        let system = &mut self.system;
        match message {
            ToNode::Registered { node } => self.registered(id, connection, node),
            ToNode::Refused { .. } => {
                system.hang_up(id, false);
                self.lose_session(id);
            }
            ToNode::Ping => system.say(connection, pong),
            ToNode::Limits(_) => {}
            message if message.job().is_some() => self.task_hears(id, message),
            message if is_client => self.clients.hears(id, message, system),
            chore => system.begin_chore(id, connection, chore),
        }
    }

    fn registered(&mut self, id: ProcessId, connection: ConnectionId, node: NodeId) {
        let System { processes, shared, .. } = &mut self.system;
        processes.register(id, connection, node, shared);
    }

    /// Handles a message to a process's task in a job.
    fn task_hears(&mut self, id: ProcessId, message: ToNode) {
        let job = message.job().expect("it is for a task");
        let is_wanted = match &message {
            ToNode::Assign(assignment) if self.system.processes.get(id).is_client() => {
                self.clients.assigned(id, assignment, &mut self.system)
            }
            _ => true,
        };
        if is_wanted {
            let System { processes, shared, .. } = &mut self.system;
            processes.get_mut(id).take(job, message, shared);
        }
    }
}
