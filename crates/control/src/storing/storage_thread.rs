//! The calls of the thread that owns the storage: it reads the storage once at the start, and then carries out
//! the requests of [`Storing`](super::Storing).

use std::ops::Range;

use serde_json::Value;
use store_api::{Answer, FileWrite, RecordWrite, Storage, StoreChange, StoreError, StorePolicy, Term, Write};

use crate::event::Event;
use crate::out::NUMBERS;
use crate::storing::ask::Ask;
use crate::stripes::picture::Picture;

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
