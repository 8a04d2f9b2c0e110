//! The requests of a client that are open, with what each brought along for the embedded engine to read from or to
//! deliver to.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use helper::Ends;
use repair::wire::RequestFailure;
use repair::wire::control::Ended;
use tokio::sync::oneshot;

/// How a request ended.
pub(crate) type Closed = Result<Ended, NotEnded>;

/// Why a request did not end well.
pub(crate) enum NotEnded {
    /// The coordinator says so.
    Failed(RequestFailure),
    /// The session ended, and nothing of the request was begun here: it can be made again.
    LostBeforeIt,
    /// The session ended in the middle of it.
    LostWithin,
}

/// Requests that are open, by tag.
#[derive(Default)]
pub(crate) struct Requests {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Open>,
    /// Set when the session has ended.
    ended: bool,
}

struct Open {
    ends: Ends,
    /// Whether the engine asked for them.
    begun: bool,
    closed: oneshot::Sender<Closed>,
}

impl Requests {
    /// Enters a request; `None` if the session has ended.
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

    /// Hands a request its end; `false` if nobody waits for it any more.
    pub(crate) fn close(&self, tag: u64, result: Result<Ended, RequestFailure>) -> bool {
        match self.lock().open.remove(&tag) {
            Some(open) => open.closed.send(result.map_err(NotEnded::Failed)).is_ok(),
            None => false,
        }
    }

    /// Forgets a request that its caller gave up; whether it was still open.
    pub(crate) fn forget(&self, tag: u64) -> bool {
        self.lock().open.remove(&tag).is_some()
    }

    /// Fails all requests, those to come too.
    pub(crate) fn end(&self) {
        let mut table = self.lock();
        table.ended = true;
        for open in std::mem::take(&mut table.open).into_values() {
            let lost = if open.begun { NotEnded::LostWithin } else { NotEnded::LostBeforeIt };
            let _ = open.closed.send(Err(lost)); // Its caller may have given up.
        }
    }

    /// Whether the session has ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.lock().ended
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // Nothing is left half-done by whoever panicked.
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
