//! What machines give out: messages, answers, writes and entries of the history; and the numbers and random
//! bits that they use.
//!
//! Machines never wait: a [`Write`] goes out with a note of what is to follow ([`Then`]).
//! [`Control`](crate::Control) passes all of it on when the machines have done what an event asks for.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rand::rngs::StdRng;
use repair::wire::control::ToNode;
use repair::{BlockId, JobId, NodeId};
use serde::Serialize;
use store_api::{CatalogError, RecordWrite, Write};
use views::HistoryEvent;

use crate::ConnectionId;
use crate::effect::{Effect, Reply};
use crate::error::{RequestError, StorageError};
use crate::questions::Questions;
use crate::signal::Signal;
use crate::storing::ask::Ask;
use crate::storing::then::Then;

/// Numbers taken at once, so that a job does not cost a write; more are taken when half of them are gone. A
/// restart leaves a gap.
pub(crate) const NUMBERS: u64 = 1 << 16;

/// Bad blocks of one helper that are named.
const NAMED: usize = 5;

/// See the module's documentation.
pub(crate) struct Out {
    effects: VecDeque<Effect>,
    /// In the order in which the storage is to carry them out.
    pub wishes: VecDeque<Wish>,
    pub notes: VecDeque<HistoryEvent>,
    /// Blocks found bad since the last tick, by helper: a disk that fails makes one entry, not one for each
    /// block.
    pub bad: BTreeMap<NodeId, Bad>,
    /// In the order in which they are routed.
    pub signals: VecDeque<Signal>,
    pub questions: Questions,
    pub rng: StdRng,
    numbers: VecDeque<Range<u64>>,
    /// More numbers were asked for.
    more_numbers: bool,
    /// Writes that the storage had not answered before this event.
    pub unanswered: usize,
}

/// Blocks of a helper that were found bad.
pub(crate) struct Bad {
    pub blocks: u64,
    pub first: Vec<String>,
    pub problem: String,
}

/// What the storage is to do.
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
            questions: Questions::default(),
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

    /// Tells another machine.
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

    /// Asks for something to be stored.
    pub(crate) fn store(&mut self, write: Write, then: impl Into<Then>) {
        self.wishes.push_back(Wish::Write(write, then.into()));
    }

    /// Asks for something else of the storage.
    pub(crate) fn ask_storage(&mut self, ask: Ask) {
        self.wishes.push_back(Wish::Other(ask));
    }

    /// Keeps something of the coordinator's own.
    pub(crate) fn keep_record(&mut self, key: String, record: &impl Serialize) {
        let record = serde_json::to_value(record).expect("records have string keys");
        self.store(Write::Records(RecordWrite::Put(key, record)), Then::Nothing);
    }

    /// Keeps it no longer.
    pub(crate) fn forget_record(&mut self, key: String) {
        self.store(Write::Records(RecordWrite::Remove(key)), Then::Nothing);
    }

    /// Writes down what has happened.
    pub(crate) fn note(&mut self, what: HistoryEvent) {
        self.notes.push_back(what);
    }

    /// A block was found bad; it is written down with others of the same helper.
    pub(crate) fn note_bad(&mut self, node: NodeId, block: &BlockId, problem: &str) {
        let none = || Bad { blocks: 0, first: Vec::new(), problem: problem.to_owned() };
        let bad = self.bad.entry(node).or_insert_with(none);
        bad.blocks += 1;
        if bad.first.len() < NAMED {
            bad.first.push(block.to_string());
        }
    }

    /// A number that no job had before. More are asked for in time; only a storage that is stuck for long
    /// runs out.
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

    /// The storage has answered the wish for more numbers.
    pub(crate) fn add_numbers(&mut self, first: Option<u64>) {
        self.more_numbers = false;
        self.numbers.extend(first.map(|first| first..first + NUMBERS));
    }

    pub(crate) fn next_job(&mut self) -> Result<JobId, StorageError> {
        Ok(JobId(self.next_number()?))
    }
}
