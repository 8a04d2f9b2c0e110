//! The thread that owns the storage.
//!
//! All requests that arrive while the thread is busy form its next batch, which is one transaction. The
//! slower the medium, the more requests share one fsync. Only one batch is in flight. Further requests wait
//! in the control plane, which rejects new ones when too many wait. No other thread waits for this one:
//! heartbeats, reads and plans continue while it is stuck. Writes that a storage runs in the background are
//! answered when they finish.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use store_api::{Storage, Term};

use crate::incoming::{Events, Incoming};
use control::{Answer, Ask, Control, Event};

/// The maximum number of requests in a batch.
pub(crate) const TOGETHER: usize = 256;

/// A handle of the storage thread.
pub(crate) struct StorageThread {
    asks: SyncSender<Vec<Ask>>,
    busy: bool,
    thread: JoinHandle<()>,
}

impl StorageThread {
    /// Starts the thread, which answers by events.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(mut storage: Storage, term: Term, events: Events) -> io::Result<Self> {
        let (asks, incoming) = sync_channel(1);
        let others = events.clone();
        storage.listen(Box::new(move |changes| {
            // The send fails only during shutdown.
            let _ = others.blocking_send(Incoming::Event(Event::Changed(changes)));
        }));
        let work = move || serve(storage, term, &incoming, &events);
        let thread = thread::Builder::new().name("storage".into()).spawn(work)?;
        Ok(Self { asks, busy: false, thread })
    }

    /// Sends the control plane's waiting requests as a batch, unless the last batch is still in flight.
    pub(crate) fn feed(&mut self, core: &mut Control) {
        if self.busy {
            return;
        }
        let batch = next_batch(core);
        if !batch.is_empty() {
            self.busy = true;
            let _ = self.asks.try_send(batch); // Fails only if the thread has panicked, which is logged.
        }
    }

    /// Whether the thread has ended, which happens only after a panic.
    pub(crate) fn has_stopped(&self) -> bool {
        self.thread.is_finished()
    }

    /// Records that the last batch has been answered. The next one can be sent then.
    pub(crate) fn is_idle(&mut self) {
        self.busy = false;
    }

    /// Carries out all remaining requests, and waits until the storage is closed.
    pub(crate) fn finish(self, core: &mut Control) {
        loop {
            let batch = next_batch(core);
            if batch.is_empty() || self.asks.send(batch).is_err() {
                break;
            }
        }
        drop(self.asks);
        let _ = self.thread.join(); // A panic has been logged already.
    }
}

fn next_batch(core: &mut Control) -> Vec<Ask> {
    std::iter::from_fn(|| core.poll_storage()).take(TOGETHER).collect()
}

fn serve(mut storage: Storage, term: Term, asks: &Receiver<Vec<Ask>>, events: &Events) {
    while let Ok(batch) = asks.recv() {
        let batch = begin(&mut storage, term, batch, events);
        let (stored, copies) = control::carry_out(&mut storage, term, batch);
        let answers = copies.into_iter().filter_map(|ask| copy(&storage, ask, events)).collect();
        // The send fails only during shutdown.
        let _ = events.blocking_send(Incoming::Stored { events: stored, answers });
    }
}

/// Starts slow writes in the background, and returns the remaining requests.
fn begin(storage: &mut Storage, term: Term, batch: Vec<Ask>, events: &Events) -> Vec<Ask> {
    let mut rest = Vec::with_capacity(batch.len());
    for ask in batch {
        let Ask::Write { number, write } = ask else {
            rest.push(ask);
            continue;
        };
        let events = events.clone();
        let done = move |result| {
            // The send fails only during shutdown.
            let _ = events.blocking_send(Incoming::Event(Event::of_write(number, result)));
        };
        if storage.begin(term, &write, Box::new(done)).is_some() {
            rest.push(Ask::Write { number, write });
        }
    }
    rest
}

/// Copies the catalog. Another thread writes the copy, and the storage thread continues meanwhile.
fn copy(storage: &Storage, ask: Ask, events: &Events) -> Option<Answer> {
    match ask {
        Ask::Write { .. } | Ask::Recover => unreachable!("it is answered with the writes"),
        Ask::Snapshot(reply) => return Some(reply.with(storage.snapshot().map_err(Into::into))),
        Ask::KeepCopy => {
            let (snapshot, events) = (storage.snapshot(), events.clone());
            drop(thread::spawn(move || {
                let kept = match snapshot {
                    Ok(snapshot) => snapshot.keep().map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                if let Err(error) = &kept {
                    tracing::warn!(error, "cannot keep a copy of the catalog");
                }
                let _ = events.blocking_send(Incoming::Event(Event::Copied(kept))); // Fails only during shutdown.
            }));
        }
    }
    None
}
