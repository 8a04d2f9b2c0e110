//! Changes on their way to whoever listens, in their order.
//!
//! They are told from a thread of their own, since the listener may wait for its queue. Nobody waits for that thread but
//! for its queue, and whoever answers an ask, so that the answer is heard after what it changed.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::StoreChange;

/// Tellings that wait, at most.
const QUEUE: usize = 64;
/// Changes that are told at a time, at most: whoever listens has other things to do in between.
const AT_ONCE: usize = 1024;

/// Who hears of changes.
pub type Listener = Box<dyn Fn(Vec<StoreChange>) + Send>;

enum Telling {
    Listen(Listener),
    Changes(Vec<StoreChange>),
    /// All before it has been told when this is carried out.
    Then(Box<dyn FnOnce() + Send>),
}

/// The way to the thread. It ends when all of these are gone.
#[derive(Clone, Debug)]
pub struct Teller(SyncSender<Telling>);

impl Teller {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start() -> std::io::Result<Self> {
        let (sender, tellings) = sync_channel(QUEUE);
        thread::Builder::new().name("store-changes".into()).spawn(move || serve(&tellings))?;
        Ok(Self(sender))
    }

    /// From now on changes are told to this one.
    pub fn listen(&self, listener: Listener) {
        let _ = self.0.send(Telling::Listen(listener)); // It ends only by a fault of ours, which its message tells.
    }

    /// Tells changes; nobody waits for that.
    pub fn tell(&self, changes: Vec<StoreChange>) {
        if !changes.is_empty() {
            let _ = self.0.send(Telling::Changes(changes));
        }
    }

    /// Does something when all that was told before has been heard.
    pub fn then(&self, work: impl FnOnce() + Send + 'static) {
        let _ = self.0.send(Telling::Then(Box::new(work)));
    }

    /// Waits until all that was told before has been heard.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        self.then(move || {
            let _ = done.send(()); // Whoever waits is there.
        });
        let _ = wait.recv();
    }
}

fn serve(tellings: &Receiver<Telling>) {
    let mut listener: Option<Listener> = None;
    while let Ok(telling) = tellings.recv() {
        match telling {
            Telling::Listen(new) => listener = Some(new),
            // Whoever comes to listen is told everything.
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
