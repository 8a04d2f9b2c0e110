//! Keeps the open requests of a client, each with the sources or sinks that the embedded engine uses for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use helper::Ends;
use repair::wire::RequestFailure;
use repair::wire::control::Ended;
use tokio::sync::oneshot;

/// The outcome of a request.
pub(crate) type Closed = Result<Ended, NotEnded>;

/// The reason why a request failed.
pub(crate) enum NotEnded {
    /// The coordinator reported a failure.
    Failed(RequestFailure),
    /// The session ended before this client's engine began the request, so the request may be retried.
    LostBeforeIt,
    /// The session ended after the engine had begun the request.
    LostWithin,
}

/// The open requests, by the tag that identifies each in messages.
#[derive(Default)]
pub(crate) struct Requests {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Open>,
    /// Whether the session has ended.
    ended: bool,
}

struct Open {
    ends: Ends,
    /// Whether the engine has started the request.
    begun: bool,
    closed: oneshot::Sender<Closed>,
}

impl Requests {
    /// Adds a request; returns `None` if the session has ended.
    pub(crate) fn open(&self, ends: Ends) -> Option<(u64, oneshot::Receiver<Closed>)> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.lock();
        if table.ended {
            return None;
        }
        let tag = table.next;
        table.next += 1;
        table.open.insert(tag, Open { ends, begun: false, closed: sender });
        Some((tag, receiver))
    }

    /// Passes the outcome of a request to its caller; returns `false` if the caller no longer waits.
    pub(crate) fn close(&self, tag: u64, result: Result<Ended, RequestFailure>) -> bool {
        match self.lock().open.remove(&tag) {
            Some(open) => open.closed.send(result.map_err(NotEnded::Failed)).is_ok(),
            None => false,
        }
    }

    /// Removes a request that its caller has abandoned; returns whether the request was still open.
    pub(crate) fn forget(&self, tag: u64) -> bool {
        self.lock().open.remove(&tag).is_some()
    }

    /// Fails all open and future requests.
    pub(crate) fn end(&self) {
        let mut table = self.lock();
        table.ended = true;
        for open in std::mem::take(&mut table.open).into_values() {
            let lost = if open.begun { NotEnded::LostWithin } else { NotEnded::LostBeforeIt };
            let _ = open.closed.send(Err(lost)); // The caller may have given up.
        }
    }

    /// Whether the session has ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.lock().ended
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // A poisoned lock is safe to use, because a panic leaves no partial update in the table.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl helper::Requests for Requests {
    fn begin(&self, tag: u64) -> Option<Ends> {
        let mut table = self.lock();
        let open = table.open.get_mut(&tag)?;
        open.begun = true;
        Some(open.ends.clone())
    }
}
