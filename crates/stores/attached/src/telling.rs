//! Delivers changes to the listener in order, on a separate thread, because the listener may block.
//!
//! Changes wait for this thread in a queue; senders block only if the queue is full. The answer to a write is
//! delivered after the changes that the write caused.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use repair::StripeId;
use store_api::{Listener, StoreChange, Unjudged};

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
    let (mut listener, mut unjudged): (Option<Listener>, Vec<Unjudged>) = (None, Vec::new());
    while let Ok(telling) = tellings.recv() {
        match telling {
            Telling::Listen(new) => listener = Some(new),
            // Changes before the first listener can be dropped: a new listener receives the complete state.
            Telling::Changes(mut changes) => {
                if let Some(now) = last_unjudged(&changes).map(<[Unjudged]>::to_vec) {
                    changes = with_all_unjudged(changes, &unjudged, &now);
                    unjudged = now;
                }
                if let Some(listener) = &listener {
                    in_parts(changes, listener);
                }
            }
            Telling::Then(work) => work(),
        }
    }
}

/// Returns the stripes of unknown state that these changes contain.
fn last_unjudged(changes: &[StoreChange]) -> Option<&[Unjudged]> {
    changes.iter().rev().find_map(|change| match change {
        StoreChange::Unjudged(stripes) => Some(&stripes[..]),
        _ => None,
    })
}

/// Prepares changes of the stripes of unknown state for delivery in several parts. A stripe whose state becomes
/// unknown is reported as gone as well. Its unknown state is reported first, because the listener would take it for
/// removed otherwise. For a stripe whose state becomes known, it is the other way round.
fn with_all_unjudged(
    mut changes: Vec<StoreChange>,
    before: &[Unjudged],
    now: &[Unjudged],
) -> Vec<StoreChange> {
    if changes.len() <= AT_ONCE {
        return changes;
    }
    changes.retain(|change| !matches!(change, StoreChange::Unjudged(_)));
    let names: BTreeSet<&StripeId> = now.iter().map(|it| &it.stripe).collect();
    let former = before.iter().filter(|it| !names.contains(&it.stripe));
    let either = StoreChange::Unjudged(now.iter().chain(former).cloned().collect());
    [either].into_iter().chain(changes).chain([StoreChange::Unjudged(now.to_vec())]).collect()
}

fn in_parts(mut changes: Vec<StoreChange>, listener: &Listener) {
    while changes.len() > AT_ONCE {
        let rest = changes.split_off(AT_ONCE);
        listener(std::mem::replace(&mut changes, rest));
    }
    listener(changes);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn unjudged(stripe: &str) -> Unjudged {
        Unjudged {
            stripe: StripeId(stripe.to_owned()),
            blocks: Vec::new(),
            servers: BTreeSet::new(),
            why: String::new(),
            next_step: String::new(),
        }
    }

    #[test]
    fn stripes_of_unknown_state_are_told_before_the_first_part_and_after_the_last() {
        let teller = Teller::start().unwrap();
        let parts = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&parts);
        teller.listen(Box::new(move |changes| noted.lock().unwrap().push(changes)));
        let told = |stripe: &str| StoreChange::Unjudged(vec![unjudged(stripe)]);
        teller.tell(vec![told("former")]);
        let mut changes = vec![StoreChange::StripeGone(StripeId("lost".to_owned())); AT_ONCE + 1];
        changes.push(told("lost"));
        teller.tell(changes);
        teller.flush();
        let parts = parts.lock().unwrap();
        assert_eq!((parts.len(), parts[1].len(), parts[2].len()), (3, AT_ONCE, 3));
        assert_eq!(parts[0], [told("former")]);
        assert_eq!(parts[1][0], StoreChange::Unjudged(vec![unjudged("lost"), unjudged("former")]));
        assert_eq!(parts[2][2], told("lost"));
    }
}
