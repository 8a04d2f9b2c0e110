//! The system under test: the coordinator, helpers and clients as processes, their control connections and
//! the network between them, and the truth about what they store.
//!
//! The system transports messages and acts as the coordinator's driver. It does not decide what people
//! request: clients, the operator and the faults of the script act on the system from outside.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code};
use control::{Answer, Command, ConnectionId, Effect, Event as ToControl, Reply, RequestId};
use repair::wire::control::{FromNode, ToNode};
use store_api::StripeRecord;

use super::api::{Asker, Requests};
use super::coordinator::{Coordinator, START_AGAIN};
use super::event::{Happening, ProcessId};
use super::process::{Processes, Session};
use super::script::{Fault, Script};
use super::truth::Truth;
use super::wires::{Carried, PING_EVERY, Way, Wires};
use crate::dice::Dice;
use crate::edge::Network;
use crate::event::{Agenda, Event, NodeEvent};
use crate::shared::{Control, Shared, Trace, Tracing};

/// Time until a process that could not connect tries again.
const DIAL_AGAIN: Duration = Duration::from_millis(500);

/// The system under test.
pub(crate) struct System {
    pub(crate) script: Script,
    pub(crate) code: Arc<dyn Code>,
    pub(crate) shared: Shared,
    pub(crate) coordinator: Coordinator,
    pub(crate) wires: Wires,
    pub(crate) processes: Processes,
    pub(crate) requests: Requests,
    pub(crate) truth: Truth,
    /// Faults in effect that end after some time.
    pub(crate) struck: Vec<Fault>,
}

impl System {
    /// Creates a system in which no process runs yet.
    pub(crate) fn new(script: &Script, tracing: Tracing) -> Self {
        let mut dice = Dice::new(script.seed);
        let coordinator = Coordinator::new(script);
        let processes = Processes::new(script, &mut dice);
        let shared = Shared {
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
            shared,
            coordinator,
            wires: Wires::new(script),
            processes,
            requests: Requests::default(),
            truth: Truth::default(),
            struck: Vec::new(),
        }
    }

    pub(crate) fn after(&mut self, delay: Duration, happening: Happening) {
        self.shared.after(delay, Event::System(happening));
    }

    // ---- the coordinator and its driver ----

    /// Starts the coordinator's process, or schedules another attempt if the start fails. Returns `false` if
    /// the process was running already.
    pub(crate) fn start_coordinator(&mut self) -> bool {
        if self.coordinator.running.is_some() {
            return false;
        }
        let started = self.coordinator.start(self.shared.now, &mut self.shared.dice);
        self.shared.note(|| format!("the coordinator starts: {started:?}"));
        if started.is_err() {
            self.after(START_AGAIN, Happening::CoordinatorStarts);
        }
        true
    }

    /// Handles the storage's answers to a batch.
    pub(crate) fn storage_done(&mut self) {
        let (events, answers) = self.coordinator.storage_done();
        answers.into_iter().for_each(|answer| self.answer(answer));
        for event in events {
            match event {
                ToControl::Recovered(Err(error)) if !error.is_passing() => {
                    self.shared.note(|| format!("the coordinator stops: {error}"));
                    self.shared.violate(format!("the coordinator cannot open its catalog: {error}"));
                    return;
                }
                event => self.control(event),
            }
        }
    }

    /// Passes an event to the control plane and carries out its effects.
    pub(crate) fn control(&mut self, event: ToControl) {
        self.coordinator.handle(event, self.shared.now);
        self.carry_out();
    }

    /// Carries out the effects of the control plane. Returns whether there were any.
    fn carry_out(&mut self) -> bool {
        let mut acted = false;
        loop {
            let mut full = BTreeSet::new();
            while let Some(effect) = self.coordinator.poll() {
                acted = true;
                match effect {
                    Effect::Send { connection, message } => {
                        if !self.coordinator.is_connected(connection) {
                        } else if self.wires.is_full(connection) {
                            self.disconnect(connection);
                            full.insert(connection);
                        } else {
                            self.wires.tell(connection, *message, &mut self.shared);
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
                let why = "its connection does not accept messages".to_owned();
                self.coordinator.handle(ToControl::Left { connection, why }, self.shared.now);
            }
        }
    }

    fn disconnect(&mut self, connection: ConnectionId) {
        self.coordinator.forget_connection(connection);
        self.wires.disconnect(connection, &mut self.shared);
    }

    /// Notifies the coordinator that a connection has ended.
    pub(crate) fn left(&mut self, connection: ConnectionId, why: &str) {
        if self.coordinator.running.is_some() {
            self.coordinator.forget_connection(connection);
            self.control(ToControl::Left { connection, why: why.to_owned() });
        }
    }

    /// Transports the messages between the coordinator and the processes, and schedules the coordinator's
    /// next steps. Returns whether the storage got a batch.
    pub(crate) fn settle(&mut self) -> bool {
        loop {
            let mut moved = self.carry_out();
            let reports = self.shared.reports.replace(Vec::new()).unwrap_or_default();
            for (node, report) in reports {
                moved = true;
                let session = self.processes.of_node(node).map(|process| process.session);
                if let Some(Session::Up(connection)) = session {
                    self.say(connection, report);
                }
            }
            if !moved {
                break;
            }
        }
        let run = self.coordinator.run;
        let fed = self.coordinator.feed(self.shared.now, &mut self.shared.dice);
        if let Some(at) = fed {
            self.shared.agenda.add(at, Event::System(Happening::StorageDone { run }));
        }
        if let Some(at) = self.coordinator.next_tick(self.shared.now) {
            self.shared.agenda.add(at, Event::System(Happening::Tick { run }));
        }
        fed.is_some()
    }

    /// Handles the end of the coordinator's process and schedules its restart. If `quietly`, the process's
    /// connections fall silent instead of being closed.
    pub(crate) fn coordinator_ended(
        &mut self,
        open: Option<BTreeSet<RequestId>>,
        quietly: bool,
        back_after: Duration,
    ) {
        let Some(requests) = open else { return };
        requests.into_iter().for_each(|request| self.unanswered(request));
        self.wires.drop_all(quietly, &mut self.shared);
        self.after(back_after, Happening::CoordinatorStarts);
    }

    // ---- requests ----

    /// Sends a request to the coordinator's API.
    pub(crate) fn ask<T: Send + 'static, C: Into<Command>>(
        &mut self,
        asker: Asker,
        command: impl FnOnce(Reply<T>) -> C,
    ) {
        self.requests.ask(asker, command, &mut self.shared);
    }

    /// Handles a request that reaches the coordinator's machine.
    pub(crate) fn asked(&mut self, request: RequestId) {
        match self.requests.take_command(request) {
            Some(command) if self.coordinator.running.is_some() => {
                self.coordinator.ask(request, command, self.shared.now);
            }
            _ => self.unanswered(request),
        }
    }

    /// Handles a request whose connection broke: its sender gets no answer.
    fn unanswered(&mut self, request: RequestId) {
        Requests::send_answer(request, None, &mut self.shared);
    }

    /// Sends the coordinator's answer to a request.
    fn answer(&mut self, answer: Answer) {
        let request = answer.request;
        if !self.coordinator.has_answered(request) {
            return self.shared.violate(format!("{request:?} was answered twice"));
        }
        Requests::send_answer(request, Some(answer), &mut self.shared);
    }

    // ---- processes ----

    /// Sends a message from a process to the coordinator.
    pub(crate) fn say(&mut self, connection: ConnectionId, message: FromNode) {
        self.wires.say(connection, message, &mut self.shared);
    }

    /// Connects a process to the coordinator, or schedules another attempt.
    pub(crate) fn dial(&mut self, id: ProcessId) {
        let process = self.processes.get(id);
        if !process.alive || process.session != Session::None {
            return;
        }
        if self.coordinator.running.is_none() || !self.wires.reaches(id) {
            return self.dial_again(id);
        }
        let (role, hello) = (process.role(), Box::new(process.hello()));
        let connection = self.wires.open(id, self.shared.now);
        self.processes.get_mut(id).session = Session::Hello(connection);
        self.wires.send(connection, Way::Up, Carried::Hello(role, hello), &mut self.shared);
        self.after(PING_EVERY, Happening::Heartbeat { connection });
    }

    fn dial_again(&mut self, process: ProcessId) {
        let life = self.processes.get(process).life;
        self.after(DIAL_AGAIN, Happening::Dials { process, life });
    }

    /// Handles the loss of a process's session: the process drops its tasks and connects again.
    pub(crate) fn lose_session(&mut self, id: ProcessId) {
        self.shared
            .note(|| format!("{} lost the connection to the coordinator", super::process::name_of(id)));
        self.processes.get_mut(id).lose_session(&mut self.shared);
        self.dial_again(id);
    }

    /// Closes the process's end of its connection.
    pub(crate) fn hang_up(&mut self, id: ProcessId, quietly: bool) {
        if let Some(connection) = self.processes.get(id).session.connection() {
            self.wires.hang_up(connection, quietly, &mut self.shared);
        }
    }

    /// Passes an event of a node's task or of an edge to the process concerned.
    pub(crate) fn notice(&mut self, event: Event) {
        match event {
            Event::Node { node, job, what } => {
                if let Some(process) = self.processes.of_node_mut(node) {
                    process.notice(job, what, &mut self.shared);
                }
            }
            Event::Arrives { edge, frame } => {
                let Some(state) = self.shared.network.edges.get_mut(&edge).filter(|edge| !edge.silent) else {
                    return;
                };
                state.arrived.push_back(frame);
                if let Some(process) = self.processes.of_node_mut(edge.to) {
                    process.notice(edge.job, NodeEvent::EdgeMoved { edge }, &mut self.shared);
                }
            }
            other => unreachable!("{other:?} belongs to a world of one job"),
        }
    }

    pub(crate) fn note_message(&mut self, process: ProcessId, verb: &str, message: &impl std::fmt::Debug) {
        self.shared.note(|| {
            let text: String = format!("{message:?}").chars().take(160).collect();
            format!("{} {verb} {text}", super::process::name_of(process))
        });
    }

    /// Lets a helper start on a request that belongs to no job.
    pub(crate) fn begin_chore(&mut self, id: ProcessId, connection: ConnectionId, chore: ToNode) {
        let delay = self.processes.get_mut(id).chore_takes(&chore, &mut self.shared);
        self.after(delay, Happening::ChoreDone { process: id, connection, chore: Box::new(chore) });
    }

    // ---- stored blocks ----

    /// Returns the good blocks of a stripe with their holders. A good block is where the catalog places it,
    /// has the right bytes, and is on a helper that has not left for good.
    pub(crate) fn good_blocks(&self, stripe: &StripeRecord) -> Vec<(BlockIndex, ProcessId)> {
        self.processes.good_blocks(stripe, &self.truth)
    }

    /// Whether the blocks `good` suffice to read a stripe.
    pub(crate) fn decodes(&self, stripe: &StripeRecord, good: &[BlockIndex]) -> bool {
        let all = (0..stripe.blocks.len() as u16).map(BlockIndex);
        let lost: Vec<BlockIndex> = all.filter(|index| !good.contains(index)).collect();
        lost.is_empty() || self.code.repair(&lost, good).is_ok()
    }
}
