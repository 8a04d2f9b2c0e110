//! API requests and answers in flight. Each request is answered exactly once, unless its connection breaks
//! because the coordinator ends.

use std::collections::BTreeMap;
use std::time::Duration;

use control::{Answer, Command, Reply, RequestId};

use super::event::{Happening, ProcessId};
use super::operator::Wanted;
use crate::event::Event;
use crate::shared::Shared;

/// The longest delay of a request or an answer.
const DELAY: Duration = Duration::from_millis(5);

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A client, for one of its operations.
    Flow { process: ProcessId, life: u32, flow: u64 },
    /// The operator.
    Operator(Wanted),
    /// A client that ignores the answer.
    Nobody,
}

/// Requests without an answer yet.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    next: u64,
    open: BTreeMap<RequestId, Open>,
}

#[derive(Debug)]
struct Open {
    asker: Asker,
    /// The command, until it has reached the coordinator.
    command: Option<Command>,
}

impl Requests {
    /// Returns the number of requests without an answer.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Sends a request to the coordinator.
    pub(crate) fn ask<T: Send + 'static, C: Into<Command>>(
        &mut self,
        asker: Asker,
        command: impl FnOnce(Reply<T>) -> C,
        shared: &mut Shared,
    ) {
        self.next += 1;
        let request = RequestId(self.next);
        let command = Some(command(Reply::to(request)).into());
        shared.note(|| format!("{request:?}: {command:?}"));
        self.open.insert(request, Open { asker, command });
        let delay = shared.dice.up_to(DELAY);
        shared.after(delay, Event::System(Happening::Asked { request }));
    }

    /// Takes the command of a request that has reached the coordinator.
    pub(crate) fn take_command(&mut self, request: RequestId) -> Option<Command> {
        self.open.get_mut(&request).and_then(|open| open.command.take())
    }

    /// Sends the answer to a request; `None` if the connection broke.
    pub(crate) fn send_answer(request: RequestId, answer: Option<Answer>, shared: &mut Shared) {
        let delay = shared.dice.up_to(DELAY);
        let answer = answer.map(Box::new);
        shared.after(delay, Event::System(Happening::Answered { request, answer }));
    }

    /// Closes a request and returns its sender; `None` if there is no such request.
    pub(crate) fn close(&mut self, request: RequestId) -> Option<Asker> {
        self.open.remove(&request).map(|open| open.asker)
    }
}
