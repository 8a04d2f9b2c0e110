//! Writes in flight to the storage, each with its continuation.
//!
//! Control never waits. A [`Write`] goes out as an [`Ask`] with a number, its continuation ([`Then`]) is
//! kept, and the storage answers with `Stored` or `Failed`. Until then, the
//! [`Picture`](crate::stripes::picture::Picture) shows the old state. Acknowledgements to clients and
//! messages to helpers are part of the continuation, so they are sent only when the write is durable. The
//! storage carries out requests in order and refuses contradictory ones. Conflicts that only control can see
//! are prevented by reservations while a write is in flight (`OpenPuts::ending`, `OpenPuts::allocating`,
//! `joining`, and stripes that the scheduler suspends).

pub(crate) mod ask;
pub(crate) mod then;
pub(crate) mod write_path;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use repair::NodeId;
use serde_json::Value;
use store_api::{
    Answer, Done, FileWrite, RecordWrite, Storage, StoreChange, StoreError, StorePolicy, Term, Write,
};

use crate::error::StorageError;
use crate::out::{NUMBERS, Out, Wish};
use crate::repairs::continuation::RepairThen;
use crate::repairs::orders::Order;
use crate::storing::ask::Ask;
use crate::storing::then::Then;
use crate::storing::write_path::WritePath;
use crate::stripes::continuation::StripeThen;
use crate::stripes::picture::Picture;
use crate::{ConnectionId, Event};

/// The maximum number of writes in flight. Beyond that, requests are refused.
const WRITES_WAITING: usize = 4096;
/// How often a changed catalog is copied.
const COPY_EVERY: Duration = Duration::from_secs(600);

/// The writes in flight and their continuations.
#[derive(Default)]
pub(crate) struct Storing {
    next: u64,
    out: VecDeque<Ask>,
    pub(crate) waiting: BTreeMap<u64, Then>,
    /// Connections of helpers that wait until the storage has assigned them a number.
    pub joining: BTreeSet<ConnectionId>,
    /// Number of batches of changes that the storage has reported so far.
    pub changes: u64,
    /// The time of the last copy of the catalog, and the value of `changes` at that time.
    pub copied: Option<(Duration, u64)>,
    /// Why the last copy of the catalog failed, if it did.
    pub copy_problem: Option<String>,
    /// When the last copy of the catalog succeeded, in milliseconds since 1970.
    pub copied_unix_ms: Option<u64>,
    /// When the storage last acknowledged a write, in milliseconds since 1970.
    pub written_unix_ms: Option<u64>,
    /// The state of the storage: working or failing.
    pub write_path: WritePath,
}

/// The contents of a storage at the start of the coordinator.
pub struct Opened {
    pub(crate) picture: Picture,
    pub(crate) store: StorePolicy,
    pub(crate) unlisted: Option<String>,
    pub(crate) term: Term,
    pub(crate) numbers: Range<u64>,
    pub(crate) records: Vec<(String, Value)>,
}

impl Opened {
    /// Starts a term, which fences off earlier coordinators, and reads the whole storage. Puts that an
    /// earlier coordinator left unfinished are ended. Their blocks are not removed, because the catalog may
    /// be an old copy, and the puts may have been committed after the copy was taken. The operator decides
    /// about the blocks.
    ///
    /// # Errors
    /// Any error of the storage.
    pub fn read(storage: &mut Storage) -> Result<Self, StoreError> {
        let term = storage.begin_term()?;
        let mut left = Vec::new();
        storage.each_file(&mut |change| {
            if let StoreChange::Put(put) = change {
                tracing::info!(put = %put.id, name = put.name, "a put was not finished; its blocks stay on the helpers");
                left.push(Write::Files(FileWrite::LeavePut(put.id)));
            }
        })?;
        left.push(Write::Records(RecordWrite::Numbers(NUMBERS)));
        let mut first = 0;
        for done in storage.carry_out(term, &left) {
            if let Answer::First(number) = done?.value {
                first = number;
            }
        }
        let mut picture = Picture::default();
        storage.each_record(&mut |change| picture.apply(change))?;
        storage.each_stripe(&mut |stripe, pending| picture.apply(StoreChange::Stripe(stripe, pending)))?;
        storage.each_file(&mut |change| picture.apply(change))?;
        Ok(Self {
            picture,
            store: storage.policy(),
            unlisted: storage.unlisted(),
            term,
            numbers: first..first + NUMBERS,
            records: storage.list("")?,
        })
    }

    /// Returns the term that requests to the storage carry.
    pub fn term(&self) -> Term {
        self.term
    }
}

/// Carries out all writes in one transaction, then the recovery checks. Returns the events for control, and
/// the requests that are left to the driver.
pub fn carry_out(storage: &mut Storage, term: Term, asks: Vec<Ask>) -> (Vec<Event>, Vec<Ask>) {
    let (mut numbers, mut writes, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for ask in asks {
        match ask {
            Ask::Write { number, write } => {
                numbers.push(number);
                writes.push(write);
            }
            other => others.push(other),
        }
    }
    let results = if writes.is_empty() { Vec::new() } else { storage.carry_out(term, &writes) };
    assert_eq!(results.len(), numbers.len(), "each write is answered");
    let mut events: Vec<Event> =
        numbers.into_iter().zip(results).map(|(number, result)| Event::of_write(number, result)).collect();
    let recovers = others.extract_if(.., |ask| matches!(ask, Ask::Recover));
    events.extend(recovers.map(|_| Event::Recovered(storage.recover(term))));
    (events, others)
}

impl Event {
    /// Creates the event for the result of a write.
    pub fn of_write(number: u64, result: Result<Done, StoreError>) -> Self {
        match result {
            Ok(done) => Self::Stored { number, done },
            Err(error) => Self::Failed { number, error },
        }
    }
}

impl Storing {
    /// Whether a block that was found on this node is being recorded there.
    pub(crate) fn adopts_on(&self, node: NodeId) -> bool {
        self.waiting.values().any(
            |then| matches!(then, Then::Stripe(StripeThen::Adopted { node: other, .. }) if *other == node),
        )
    }

    /// Returns the orders of repairs that are being recorded. Their repairs are not in the queue yet.
    pub(crate) fn orders(&self) -> impl Iterator<Item = &Order> {
        self.waiting.values().filter_map(|then| match then {
            Then::Repair(RepairThen::Ordered(ordered)) => Some(&*ordered.order),
            _ => None,
        })
    }

    /// Queues requests in front of all queued requests.
    pub(crate) fn put_back(&mut self, asks: impl DoubleEndedIterator<Item = Ask>) {
        asks.rev().for_each(|ask| self.out.push_front(ask));
    }

    /// Removes and returns the requests that are refused during a fault of the storage.
    pub(crate) fn take_passing(&mut self) -> Vec<Ask> {
        let outlasts = |ask: &Ask| match ask {
            Ask::Write { number, write } => self.waiting[number].outlasts_faults(write),
            Ask::Snapshot(_) | Ask::KeepCopy | Ask::Recover => false,
        };
        let (kept, passing): (VecDeque<Ask>, VecDeque<Ask>) =
            std::mem::take(&mut self.out).into_iter().partition(outlasts);
        self.out = kept;
        passing.into()
    }

    /// Returns the next request to the storage. During a fault, that can only be a check whether the storage
    /// works again.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Ask> {
        if self.write_path.is_due(now) {
            return Some(Ask::Recover);
        }
        if self.write_path.is_failing() {
            return None;
        }
        let ask = self.out.pop_front()?;
        if let Ask::Write { number, write } = &ask
            && self.waiting[number].outlasts_faults(write)
        {
            self.write_path.sent(*number, write.clone());
        }
        Some(ask)
    }

    /// Queues the requests of the state machines, and keeps their continuations.
    pub(crate) fn take(&mut self, out: &mut Out) {
        while let Some(wish) = out.wishes.pop_front() {
            match wish {
                Wish::Write(write, then) => {
                    self.next += 1;
                    self.waiting.insert(self.next, then);
                    self.out.push_back(Ask::Write { number: self.next, write });
                }
                Wish::Other(ask) => self.out.push_back(ask),
            }
        }
        out.unanswered = self.waiting.len();
    }
}

impl Storing {
    /// Returns an error if the storage cannot accept further writes for requests.
    pub(crate) fn check_storage(&self) -> Result<(), StorageError> {
        self.write_path.check()?;
        match self.waiting.len() {
            waiting if waiting < WRITES_WAITING => Ok(()),
            waiting => Err(StorageError::StorageBehind { waiting }),
        }
    }

    /// Whether to copy the catalog now: at the start, and every ten minutes if it has changed. If so, records
    /// that the copy was made.
    pub(crate) fn begin_copy(&mut self, now: Duration) -> bool {
        let changes = self.changes;
        let is_due = |(at, kept): (Duration, u64)| now >= at + COPY_EVERY && changes != kept;
        let begins = self.copied.is_none_or(is_due);
        if begins {
            self.copied = Some((now, changes));
        }
        begins
    }

    /// Returns the number of writes in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}
