//! Requests of the API, on their way there and back. Each is answered once, or its connection breaks with the coordinator.

use std::collections::BTreeMap;
use std::time::Duration;

use control::{Answer, Command, Reply, RequestId};

use super::event::{Happening, ProcessId};
use super::operator::Wanted;
use super::world::World;
use crate::event::Event;

/// The longest that a request, or its answer, is on its way.
const DELAY: Duration = Duration::from_millis(5);

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A client, for something that it does.
    Flow { process: ProcessId, life: u32, flow: u64 },
    /// The operator.
    Operator(Wanted),
    /// Somebody who does not care for the answer.
    Nobody,
}

/// Requests that were made and not answered.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    next: u64,
    open: BTreeMap<RequestId, Open>,
}

#[derive(Debug)]
struct Open {
    asker: Asker,
    /// What is asked, until the coordinator has it.
    command: Option<Command>,
}

impl Requests {
    /// Requests that are open.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }
}

impl World {
    /// Asks for something.
    pub(crate) fn ask<T: Send + 'static, C: Into<Command>>(
        &mut self,
        asker: Asker,
        command: impl FnOnce(Reply<T>) -> C,
    ) {
        self.requests.next += 1;
        let request = RequestId(self.requests.next);
        let command = Some(command(Reply::to(request)).into());
        self.scene.note(|| format!("{request:?}: {command:?}"));
        let open = Open { asker, command };
        self.requests.open.insert(request, open);
        let delay = self.scene.dice.up_to(DELAY);
        self.scene.after(delay, Event::System(Happening::Asked { request }));
    }

    /// A request reaches the coordinator's machine.
    pub(crate) fn asked(&mut self, request: RequestId) {
        let command = self.requests.open.get_mut(&request).and_then(|open| open.command.take());
        match command {
            Some(command) if self.coordinator.running.is_some() => {
                self.coordinator.ask(request, command, self.scene.now);
            }
            _ => self.unanswered(request),
        }
    }

    /// Nobody answers a request any more.
    pub(crate) fn unanswered(&mut self, request: RequestId) {
        let delay = self.scene.dice.up_to(DELAY);
        self.scene.after(delay, Event::System(Happening::Answered { request, answer: None }));
    }

    /// The coordinator answers.
    pub(crate) fn answer(&mut self, answer: Answer) {
        let request = answer.request;
        let is_open = self.coordinator.running.as_mut().is_some_and(|running| running.open.remove(&request));
        if !is_open {
            return self.scene.violate(format!("{request:?} is answered twice"));
        }
        let delay = self.scene.dice.up_to(DELAY);
        let answer = Some(Box::new(answer));
        self.scene.after(delay, Event::System(Happening::Answered { request, answer }));
    }

    pub(crate) fn answered(&mut self, request: RequestId, answer: Option<Answer>) {
        let Some(open) = self.requests.open.remove(&request) else {
            return self.scene.violate(format!("{request:?} is answered, and nobody has asked"));
        };
        match open.asker {
            Asker::Flow { process, life, flow } => {
                if self.processes[&process].life == life {
                    self.flow_answered(process, flow, answer);
                }
            }
            Asker::Operator(wanted) => self.operator_answered(wanted, answer),
            Asker::Nobody => {}
        }
    }
}
