//! The output of the state machines: messages, answers, writes, history entries and signals. It also supplies
//! unique numbers for jobs and repairs, and random bits.
//!
//! Machines never wait: each [`Write`] goes out with its continuation ([`Then`]). [`Control`](crate::Control)
//! forwards the output after the state machines have handled an event.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rand::rngs::StdRng;
use repair::wire::control::ToNode;
use repair::{BlockId, JobId, NodeId};
use serde::Serialize;
use store_api::{CatalogError, RecordWrite, Write};
use views::HistoryEvent;

use crate::effect::{ConnectionId, Effect, Reply};
use crate::error::{RequestError, StorageError};
use crate::helper_queries::Queries;
use crate::signal::Signal;
use crate::storing::ask::Ask;
use crate::storing::then::Then;

/// How many numbers one write reserves, so that not every job needs a write of its own. The next range is
/// requested when half of the numbers are used. Numbers that are unused at a restart are skipped.
pub(crate) const NUMBERS: u64 = 1 << 16;

/// How many bad blocks of a helper a history entry names.
const NAMED: usize = 5;

/// Collects the output of the state machines while they handle an event.
pub(crate) struct Out {
    effects: VecDeque<Effect>,
    /// Requests to the storage, in the order in which it must carry them out.
    pub wishes: VecDeque<Wish>,
    pub notes: VecDeque<HistoryEvent>,
    /// Blocks found bad since the last tick, by helper. A failing disk makes one history entry, not one for
    /// each block.
    pub bad: BTreeMap<NodeId, Bad>,
    /// Signals, in the order in which they are delivered.
    pub signals: VecDeque<Signal>,
    pub queries: Queries,
    pub rng: StdRng,
    numbers: VecDeque<Range<u64>>,
    /// Whether a request for more numbers is in flight.
    more_numbers: bool,
    /// Number of writes that were unanswered before the current event.
    pub unanswered: usize,
}

/// Blocks of a helper that were found bad since the last tick.
pub(crate) struct Bad {
    pub blocks: u64,
    pub first: Vec<String>,
    pub problem: String,
}

/// A request to the storage.
pub(crate) enum Wish {
    Write(Write, Then),
    Other(Ask),
}

impl Out {
    pub(crate) fn new(rng: StdRng, numbers: Range<u64>) -> Self {
        Self {
            effects: VecDeque::new(),
            wishes: VecDeque::new(),
            notes: VecDeque::new(),
            bad: BTreeMap::new(),
            signals: VecDeque::new(),
            queries: Queries::default(),
            rng,
            numbers: [numbers].into(),
            more_numbers: false,
            unanswered: 0,
        }
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub(crate) fn pop(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    pub(crate) fn send(&mut self, connection: ConnectionId, message: ToNode) {
        self.push(Effect::Send { connection, message: Box::new(message) });
    }

    /// Queues a signal for another state machine.
    pub(crate) fn tell(&mut self, signal: Signal) {
        self.signals.push_back(signal);
    }

    pub(crate) fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, result: Result<T, RequestError>) {
        if let Err(RequestError::Storage(StorageError::Catalog(
            error @ (CatalogError::Storage { .. } | CatalogError::Damaged { .. }),
        ))) = &result
        {
            tracing::error!(%error, "the catalog");
        }
        self.push(Effect::Answer(reply.with(result)));
    }

    /// Queues a write with its continuation.
    pub(crate) fn store(&mut self, write: Write, then: impl Into<Then>) {
        self.wishes.push_back(Wish::Write(write, then.into()));
    }

    /// Queues a storage request other than a write.
    pub(crate) fn ask_storage(&mut self, ask: Ask) {
        self.wishes.push_back(Wish::Other(ask));
    }

    /// Writes one of the coordinator's own records.
    pub(crate) fn keep_record(&mut self, key: String, record: &impl Serialize) {
        let record = serde_json::to_value(record).expect("records have string keys");
        self.store(Write::Records(RecordWrite::Put(key, record)), Then::Nothing);
    }

    /// Removes one of the coordinator's own records.
    pub(crate) fn forget_record(&mut self, key: String) {
        self.store(Write::Records(RecordWrite::Remove(key)), Then::Nothing);
    }

    /// Adds an entry to the history.
    pub(crate) fn note(&mut self, what: HistoryEvent) {
        self.notes.push_back(what);
    }

    /// Records that a block was found bad. Bad blocks of the same helper share one history entry.
    pub(crate) fn note_bad(&mut self, node: NodeId, block: &BlockId, problem: &str) {
        let none = || Bad { blocks: 0, first: Vec::new(), problem: problem.to_owned() };
        let bad = self.bad.entry(node).or_insert_with(none);
        bad.blocks += 1;
        if bad.first.len() < NAMED {
            bad.first.push(block.to_string());
        }
    }

    /// Returns a number that no earlier job had. More numbers are requested in time; they run out only if the
    /// storage hangs for long.
    pub(crate) fn next_number(&mut self) -> Result<u64, StorageError> {
        while self.numbers.front().is_some_and(Range::is_empty) {
            self.numbers.pop_front();
        }
        let left: u64 = self.numbers.iter().map(|range| range.end - range.start).sum();
        let number = self.numbers.front_mut().and_then(Iterator::next);
        if left < NUMBERS / 2 && !self.more_numbers {
            self.more_numbers = true;
            self.store(Write::Records(RecordWrite::Numbers(NUMBERS)), Then::Numbers);
        }
        number.ok_or(StorageError::StorageBehind { waiting: self.unanswered })
    }

    /// Adds the range of numbers that the storage has reserved. If the reservation failed, allows another
    /// request.
    pub(crate) fn add_numbers(&mut self, first: Option<u64>) {
        self.more_numbers = false;
        self.numbers.extend(first.map(|first| first..first + NUMBERS));
    }

    pub(crate) fn next_job(&mut self) -> Result<JobId, StorageError> {
        Ok(JobId(self.next_number()?))
    }
}

/// Answers a request with a result that is already computed.
pub(crate) fn answer<T: Send + 'static>(
    reply: Reply<T>,
    result: Result<T, impl Into<RequestError>>,
    out: &mut Out,
) {
    out.answer(reply, result.map_err(Into::into));
}
