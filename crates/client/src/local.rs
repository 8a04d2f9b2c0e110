//! What an embedded engine reads from and delivers to: per request, what the request brought along.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use helper::Local;
use repair::wire::control::Ended;
use repair::{BlockId, LocalBlock, Sink};
use stores::{BlockError, BlockReader, BlockWriter};
use tokio::sync::oneshot;

use crate::endpoints::Endpoints;

/// How a request ended.
pub(crate) enum Closed {
    /// By the coordinator's word.
    Told(Result<Ended, String>),
    /// The session ended.
    Lost {
        /// Whether anything of the request was begun here.
        begun: bool,
    },
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
    endpoints: Arc<dyn Endpoints>,
    /// Whether the endpoints were asked for anything.
    begun: bool,
    closed: oneshot::Sender<Closed>,
}

impl Requests {
    /// Enters a request; `None` if the session has ended.
    pub(crate) fn open(&self, endpoints: Arc<dyn Endpoints>) -> Option<(u64, oneshot::Receiver<Closed>)> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.lock();
        if table.ended {
            return None;
        }
        let tag = table.next;
        table.next += 1;
        table.open.insert(tag, Open { endpoints, begun: false, closed: sender });
        Some((tag, receiver))
    }

    /// Hands a request its end; `false` if nobody waits for it any more.
    pub(crate) fn close(&self, tag: u64, result: Result<Ended, String>) -> bool {
        match self.lock().open.remove(&tag) {
            Some(open) => open.closed.send(Closed::Told(result)).is_ok(),
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
            let _ = open.closed.send(Closed::Lost { begun: open.begun }); // Its caller may have given up.
        }
    }

    /// Whether the session has ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.lock().ended
    }

    /// The endpoints of a request that begins.
    fn endpoints(&self, tag: Option<u64>) -> Option<Arc<dyn Endpoints>> {
        let mut table = self.lock();
        let open = table.open.get_mut(&tag?)?;
        open.begun = true;
        Some(open.endpoints.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // Nothing is left half-done by whoever panicked.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Local for Requests {
    fn open(&self, tag: Option<u64>, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.endpoints(tag).ok_or_else(|| not_here(&block.id))?.source(block)
    }

    fn create(&self, tag: Option<u64>, sink: &Sink) -> Result<Box<dyn BlockWriter>, BlockError> {
        self.endpoints(tag).ok_or_else(|| not_here(&sink.id))?.sink(sink)
    }

    fn held(&self, block: &BlockId) -> Result<Arc<dyn BlockReader>, BlockError> {
        Err(not_here(block))
    }
}

pub(crate) fn not_here(block: &BlockId) -> BlockError {
    BlockError::Missing { block: block.clone(), path: "a client holds no blocks".to_owned() }
}
