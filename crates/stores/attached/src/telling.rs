//! Delivers changes to the listener in order, on a separate thread, because the listener may block.
//!
//! Changes wait for this thread in a queue; senders block only if the queue is full. The answer to a write is
//! delivered after the changes that the write caused.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use store_api::{Listener, StoreChange};

/// Capacity of the queue.
const QUEUE: usize = 64;
/// Maximum number of changes per call of the listener, so that the listener can do other work between calls.
const AT_ONCE: usize = 1024;

enum Telling {
    Listen(Listener),
    Changes(Vec<StoreChange>),
    /// Runs after everything queued earlier was delivered.
    Then(Box<dyn FnOnce() + Send>),
}

/// A handle of the delivery thread. The thread ends when its last handle is dropped.
#[derive(Clone, Debug)]
pub struct Teller(SyncSender<Telling>);

impl Teller {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start another thread.
    pub fn start() -> std::io::Result<Self> {
        let (sender, tellings) = sync_channel(QUEUE);
        thread::Builder::new().name("store-changes".into()).spawn(move || serve(&tellings))?;
        Ok(Self(sender))
    }

    /// Sets the listener.
    pub fn listen(&self, listener: Listener) {
        let _ = self.0.send(Telling::Listen(listener)); // Fails only if the thread has panicked.
    }

    /// Queues changes for the listener.
    pub fn tell(&self, changes: Vec<StoreChange>) {
        if !changes.is_empty() {
            let _ = self.0.send(Telling::Changes(changes));
        }
    }

    /// Runs `work` after everything queued earlier was delivered.
    pub fn then(&self, work: impl FnOnce() + Send + 'static) {
        let _ = self.0.send(Telling::Then(Box::new(work)));
    }

    /// Waits until everything queued earlier was delivered.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        self.then(move || {
            let _ = done.send(()); // Cannot fail: the receiver is in use below.
        });
        let _ = wait.recv();
    }
}

fn serve(tellings: &Receiver<Telling>) {
    let mut listener: Option<Listener> = None;
    while let Ok(telling) = tellings.recv() {
        match telling {
            Telling::Listen(new) => listener = Some(new),
            // Changes before the first listener can be dropped: a new listener receives the complete state.
            Telling::Changes(changes) => {
                if let Some(listener) = &listener {
                    in_parts(changes, listener);
                }
            }
            Telling::Then(work) => work(),
        }
    }
}

fn in_parts(mut changes: Vec<StoreChange>, listener: &Listener) {
    while changes.len() > AT_ONCE {
        let rest = changes.split_off(AT_ONCE);
        listener(std::mem::replace(&mut changes, rest));
    }
    listener(changes);
}
