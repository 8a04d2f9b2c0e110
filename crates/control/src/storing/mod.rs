//! Writes that the storage carries out, each with what is to follow.
//!
//! Control never waits: a [`Write`] goes out as an [`Ask`] with a number and a note of what is to follow ([`Then`]), and
//! comes back as `Stored` or `Failed`. In between the [`Picture`](crate::stripes::picture::Picture) stays as the storage is.
//! Whatever is acknowledged to a client or told to a helper follows in `Then`, and so is durable first. The storage
//! carries asks out in their order and refuses what contradicts what it has; what it cannot see, because it is decided
//! here and by the picture, is claimed while a write is under way (`OpenPuts::ending`, `OpenPuts::allocating`, `joining`,
//! and stripes held in the scheduler).

pub(crate) mod write_path;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use cluster::Role;
use codes::BlockIndex;
use repair::wire::control::FromNode;
use repair::{BlockId, JobId, NodeId, StripeId};
use serde_json::Value;
use store_api::{
    Answer, BlockState, Done, FileWrite, PutId, RecordWrite, Snapshot, Storage, StoreChange, StoreError,
    StorePolicy, StripeWrite, Term, Write,
};
use views::{AcceptedView, CapsView, FileView, NodeView, RebalanceView, RepairView};

use crate::effect::Reply;
use crate::error::RequestError;
use crate::facts::Around;
use crate::jobs::puts::Begun;
use crate::out::{NUMBERS, Out, Wish};
use crate::repairs::Order;
use crate::storing::write_path::{WritePath, outlasts_faults};
use crate::stripes::Stripes;
use crate::stripes::picture::Picture;
use crate::{ConnectionId, Event};

/// Writes that may wait for the storage; beyond that nobody may ask for more.
const WRITES_WAITING: usize = 4096;

/// What the driver has the storage do.
#[derive(Debug)]
pub enum Ask {
    /// Carry this out, and answer with this number.
    #[allow(missing_docs, reason = "the fields say no more than their names")]
    Write { number: u64, write: Write },
    /// Copy everything for somebody.
    Snapshot(Reply<Box<dyn Snapshot>>),
    /// Keep a copy beside the original.
    KeepCopy,
    /// See whether it works again after a fault.
    Recover,
}

/// What an answer of the storage is followed by.
pub(crate) enum Then {
    /// Nothing; a failure is written down.
    Nothing,
    /// There are more numbers.
    Numbers,
    /// A helper whose number is known now registers.
    Join { connection: ConnectionId, role: Role, hello: Box<FromNode> },
    /// A put is begun.
    PutBegun(Begun),
    /// A stripe of a put has its place.
    Allocated { client: NodeId, tag: u64, put: PutId, position: u32 },
    /// A file is visible.
    Committed { put: PutId, reply: Reply<FileView> },
    /// A put is given up.
    Aborted { put: PutId, reply: Option<Reply<Value>> },
    /// A file is gone, and its stripes need no repair.
    Removed { stripes: Vec<StripeId>, reply: Reply<FileView> },
    /// Blocks of a job are recorded.
    Published { job: JobId, stripe: StripeId, blocks: Vec<BlockIndex> },
    /// What is known of blocks is recorded.
    Known { good: Vec<(BlockId, NodeId)> },
    /// A block that was lost is found.
    Adopted { node: NodeId, block: BlockId },
    /// A node has removed a block.
    Discarded { node: NodeId, block: BlockId },
    /// Nothing refers to a block, and it shall go.
    Needless { node: NodeId, block: BlockId },
    /// A repair that begins by itself is kept.
    Recovers { node: NodeId, id: u64, order: Box<Order> },
    /// A drain that begins by itself is kept.
    Drains { node: NodeId, id: u64, order: Box<Order> },
    /// Moves that even helpers out are kept and begin.
    Rebalances { id: u64, order: Box<Order>, view: Box<RebalanceView>, reply: Reply<RebalanceView> },
    /// A helper is taken off the list.
    Removes { node: NodeId, view: Box<NodeView>, reply: Reply<NodeView> },
    /// A repair is kept and begins.
    Queued { id: u64, order: Box<Order>, reply: Reply<RepairView> },
    /// Caps are kept and hold.
    Capped { view: Box<CapsView>, reply: Reply<CapsView> },
    /// The catalog is good as it is.
    Accepted { view: Box<AcceptedView>, reply: Reply<AcceptedView> },
    /// A repair that nobody asked for is kept and begins.
    Healed { id: u64, order: Box<Order> },
    /// A stripe is ours, or is not.
    Claimed { stripe: StripeId },
    /// A helper is forgotten.
    Forgotten { node: NodeId },
    /// What the store keeps beside blocks was looked at, for this scrub.
    Inspected { scrub: u64 },
}

/// What is under way.
#[derive(Default)]
pub(crate) struct Storing {
    next: u64,
    out: VecDeque<Ask>,
    pub(crate) waiting: BTreeMap<u64, Then>,
    /// Connections whose helper waits for its number.
    pub joining: BTreeSet<ConnectionId>,
    /// How often something has changed.
    pub changes: u64,
    /// When the catalog was last copied, and how many changes it had seen then.
    pub copied: Option<(Duration, u64)>,
    /// Whether the storage takes writes.
    pub write_path: WritePath,
}

/// A storage that was read.
pub struct Opened {
    pub(crate) picture: Picture,
    pub(crate) store: StorePolicy,
    pub(crate) unlisted: Option<String>,
    pub(crate) term: Term,
    pub(crate) numbers: Range<u64>,
    pub(crate) records: Vec<(String, Value)>,
}

impl Opened {
    /// Begins a term and reads all that there is. Puts that an earlier coordinator left unfinished are aborted: whoever
    /// was putting has seen an error.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn read(storage: &mut Storage) -> Result<Self, StoreError> {
        let term = storage.begin_term()?;
        let mut left = Vec::new();
        storage.each_file(&mut |change| {
            if let StoreChange::Put(put) = change {
                tracing::info!(put = %put.id, name = put.name, "aborting a put that was not finished");
                left.push(Write::Files(FileWrite::AbortPut(put.id)));
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

    /// The term that asks carry.
    pub fn term(&self) -> Term {
        self.term
    }
}

/// Has a storage carry out writes in one transaction and recover, and returns what came of it; the other asks are left for
/// the driver.
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
    /// What the storage says of the write of this number.
    pub fn of_write(number: u64, result: Result<Done, StoreError>) -> Self {
        match result {
            Ok(done) => Self::Stored { number, done },
            Err(error) => Self::Failed { number, error },
        }
    }
}

impl Storing {
    /// Whether a block that was found is being recorded on a node.
    pub(crate) fn adopts_on(&self, node: NodeId) -> bool {
        self.waiting.values().any(|then| matches!(then, Then::Adopted { node: other, .. } if *other == node))
    }

    /// Puts asks in front of all others.
    pub(crate) fn put_back(&mut self, asks: impl DoubleEndedIterator<Item = Ask>) {
        asks.rev().for_each(|ask| self.out.push_front(ask));
    }

    /// Takes out what does not outlast a fault of the storage.
    pub(crate) fn take_passing(&mut self) -> Vec<Ask> {
        let outlasts = |ask: &Ask| match ask {
            Ask::Write { number, write } => outlasts_faults(write, &self.waiting[number]),
            Ask::Snapshot(_) | Ask::KeepCopy | Ask::Recover => false,
        };
        let (kept, passing): (VecDeque<Ask>, VecDeque<Ask>) =
            std::mem::take(&mut self.out).into_iter().partition(outlasts);
        self.out = kept;
        passing.into()
    }

    /// The next that the storage is to do.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Ask> {
        if self.write_path.is_failing() {
            return self.write_path.is_due(now).then_some(Ask::Recover);
        }
        let ask = self.out.pop_front()?;
        if let Ask::Write { number, write } = &ask
            && outlasts_faults(write, &self.waiting[number])
        {
            self.write_path.sent(*number, write.clone());
        }
        Some(ask)
    }

    /// Takes over what machines want of the storage.
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

impl Stripes {
    /// Has it recorded what is known of blocks on their nodes. What is bad counts as bad at once, and as long as it could
    /// not be recorded: a coordinator that forgot it would have the last good copy removed.
    pub(crate) fn store_states(
        &mut self,
        _around: Around<'_>,
        states: Vec<(StripeId, BlockIndex, NodeId, BlockState)>,
        out: &mut Out,
    ) {
        let mut good = Vec::new();
        for (stripe, index, node, state) in &states {
            let Ok(record) = self.picture.stripe(stripe) else { continue };
            let block = (record.blocks[usize::from(index.0)].id.clone(), *node);
            match state {
                BlockState::Healthy => good.push(block),
                _ => drop(self.doubted.insert(block)),
            }
        }
        out.store(Write::Stripes(StripeWrite::SetStates(states)), Then::Known { good });
    }
}

impl Storing {
    /// Whether more may be asked for on somebody's behalf.
    pub(crate) fn check_storage(&self) -> Result<(), RequestError> {
        self.check_writes()?;
        match self.waiting.len() {
            waiting if waiting < WRITES_WAITING => Ok(()),
            waiting => Err(RequestError::StorageBehind { waiting }),
        }
    }
}

impl Storing {
    /// How many writes are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}
