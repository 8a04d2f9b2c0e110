//! The thread that owns the storage.
//!
//! It gets all that has come up while it was busy, at once, and has it carried out in one transaction: the slower the
//! medium is, the more share an fsync. One batch is under way at a time, and what waits behind it waits in the core, which
//! refuses to take more on when that is too much. Nothing else waits for this thread: heartbeats, reads and plans go on
//! while it is stuck. What a storage begins aside is answered when it is done.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use store_api::{Storage, Term};
use tokio::sync::mpsc;

use crate::incoming::Incoming;
use control::{Answer, Ask, Control, Event};

/// Asks that are carried out together, at most.
pub(crate) const TOGETHER: usize = 256;

/// The way to it.
pub(crate) struct StorageThread {
    asks: SyncSender<Vec<Ask>>,
    busy: bool,
    thread: JoinHandle<()>,
}

impl StorageThread {
    /// Starts it; its answers are events.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(
        mut storage: Storage,
        term: Term,
        events: mpsc::Sender<Incoming>,
    ) -> io::Result<Self> {
        let (asks, incoming) = sync_channel(1);
        let others = events.clone();
        storage.listen(Box::new(move |changes| {
            let _ = others.blocking_send(Incoming::Event(Event::Changed(changes))); // At the end nobody hears it.
        }));
        let work = move || serve(storage, term, &incoming, &events);
        let thread = thread::Builder::new().name("storage".into()).spawn(work)?;
        Ok(Self { asks, busy: false, thread })
    }

    /// Hands over what the core wants, if the last batch has been answered.
    pub(crate) fn feed(&mut self, core: &mut Control) {
        if self.busy {
            return;
        }
        let batch = next_batch(core);
        if !batch.is_empty() {
            self.busy = true;
            let _ = self.asks.try_send(batch); // It has ended only by a fault of ours, which the log tells.
        }
    }

    /// Whether it has stopped, which it does only by a fault of ours.
    pub(crate) fn has_stopped(&self) -> bool {
        self.thread.is_finished()
    }

    /// The last batch has been answered.
    pub(crate) fn is_idle(&mut self) {
        self.busy = false;
    }

    /// Has the rest carried out, and waits until the storage is closed.
    pub(crate) fn finish(self, core: &mut Control) {
        loop {
            let batch = next_batch(core);
            if batch.is_empty() || self.asks.send(batch).is_err() {
                break;
            }
        }
        drop(self.asks);
        let _ = self.thread.join(); // Its panic has been told by its own message.
    }
}

fn next_batch(core: &mut Control) -> Vec<Ask> {
    std::iter::from_fn(|| core.poll_storage()).take(TOGETHER).collect()
}

fn serve(mut storage: Storage, term: Term, asks: &Receiver<Vec<Ask>>, events: &mpsc::Sender<Incoming>) {
    while let Ok(batch) = asks.recv() {
        let batch = begin(&mut storage, term, batch, events);
        let (stored, copies) = control::carry_out(&mut storage, term, batch);
        let answers = copies.into_iter().filter_map(|ask| copy(&storage, ask)).collect();
        let _ = events.blocking_send(Incoming::Stored { events: stored, answers }); // At the end nobody hears it.
    }
}

/// Begins what takes long; the rest.
fn begin(storage: &mut Storage, term: Term, batch: Vec<Ask>, events: &mpsc::Sender<Incoming>) -> Vec<Ask> {
    let mut rest = Vec::with_capacity(batch.len());
    for ask in batch {
        let Ask::Write { number, write } = ask else {
            rest.push(ask);
            continue;
        };
        let events = events.clone();
        let done = move |result| {
            let _ = events.blocking_send(Incoming::Event(Event::of_write(number, result))); // At the end nobody hears it.
        };
        if storage.begin(term, &write, Box::new(done)).is_some() {
            rest.push(Ask::Write { number, write });
        }
    }
    rest
}

/// Copies are written on another thread while the storage goes on.
fn copy(storage: &Storage, ask: Ask) -> Option<Answer> {
    match ask {
        Ask::Write { .. } | Ask::Recover => unreachable!("it is answered with the writes"),
        Ask::Snapshot(reply) => return Some(reply.with(storage.snapshot().map_err(Into::into))),
        Ask::KeepCopy => match storage.snapshot() {
            Err(error) => tracing::error!(%error, "cannot copy the catalog"),
            Ok(snapshot) => drop(thread::spawn(move || {
                if let Err(error) = snapshot.keep() {
                    tracing::warn!(%error, "cannot keep a copy of the catalog");
                }
            })),
        },
    }
    None
}
