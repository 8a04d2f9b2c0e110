//! Writes in flight to the storage, each with its continuation.
//!
//! Control never waits. A [`Write`](store_api::Write) goes out as an [`Ask`] with a number, its continuation
//! ([`Then`]) is kept, and the storage answers with `Stored` or `Failed`. Until then, the
//! [`Picture`](crate::stripes::picture::Picture) shows the old state. Acknowledgements to clients and
//! messages to helpers are part of the continuation, so they are sent only when the write is durable. The
//! storage carries out requests in order and refuses contradictory ones. Conflicts that only control can see
//! are prevented by reservations while a write is in flight (`OpenPuts::ending`, `OpenPuts::allocating`,
//! `joining`, and stripes that the scheduler suspends).

pub(crate) mod ask;
pub(crate) mod storage_thread;
pub(crate) mod then;
pub(crate) mod write_path;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use repair::{NodeId, StripeId};

use crate::effect::ConnectionId;
use crate::error::StorageError;
use crate::out::{Out, Wish};
use crate::repairs::continuation::RepairThen;
use crate::repairs::orders::Order;
use crate::storing::ask::Ask;
use crate::storing::then::Then;
use crate::storing::write_path::WritePath;
use crate::stripes::continuation::StripeThen;

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

impl Storing {
    /// Whether a block that was found on this node is being recorded there.
    pub(crate) fn adopts_on(&self, node: NodeId) -> bool {
        self.waiting.values().any(
            |then| matches!(then, Then::Stripe(StripeThen::Adopted { node: other, .. }) if *other == node),
        )
    }

    /// Whether blocks that a job has stored are being recorded for this stripe.
    pub(crate) fn is_publishing(&self, stripe: &StripeId) -> bool {
        let mut published = self.waiting.values().filter_map(|then| match then {
            Then::Published(published) => Some(&published.stripe),
            _ => None,
        });
        published.any(|other| other == stripe)
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
