//! The queue of messages to the coordinator, with bounded memory even if the coordinator reads slowly.
//!
//! Messages are sent in order, with three exceptions that bound the queue:
//!
//! - *Status messages* occupy one queue entry per kind, such as pongs or one job's progress reports: only the
//!   latest message is kept, at the position of the first. So the entries of a job do not grow in number
//!   while the coordinator reads nothing. No information is lost, since a late reader needs only the latest
//!   status.
//! - *Lists* of all blocks are split into parts. The thread that queues a list blocks while `MAX_PARTS` parts
//!   are waiting.
//! - *A client's request* that is cancelled before it was sent is removed.
//!
//! All other messages are answers to the coordinator's plans and requests, which bounds their number. They
//! are never dropped while the connection lives. A coordinator that leaves [`MAX_WAITING`] messages unread is
//! disconnected. It then knows that answers are lost, and repeats its requests after the next registration.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use repair::wire::control::FromNode;
use repair::{JobId, Report};
use tokio::sync::Notify;

/// The maximum number of queued messages; a thousand busy jobs need about four thousand.
pub const MAX_WAITING: usize = 1 << 16;
/// The maximum number of queued list parts, of about 512 KiB each.
const MAX_PARTS: usize = 4;

/// A kind of status message; only the latest one is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    Pong,
    Seen,
    UserLoad,
    Unused,
    Progress(JobId),
    Limited(JobId),
    Waits(JobId),
    Verifying(u64),
    Open(u64),
}

#[derive(Debug)]
enum Entry {
    /// The position of a status message of this kind; the message itself is in `Queue::latest`.
    At(Slot),
    Answer(Box<FromNode>),
    Part(Box<FromNode>),
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    latest: BTreeMap<Slot, FromNode>,
    parts: usize,
    /// Whether all senders have been dropped. If so, no more messages will be queued.
    is_last: bool,
    /// Whether the receiver has been dropped or the coordinator left too many messages unread.
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signals that a message is available, or that no more will come.
    news: Notify,
    /// Signals that a list part has left, or that the queue is closed.
    room: Condvar,
}

/// The connection has ended, so no more messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent;

/// The sending end of the queue; every reporting component has a clone.
#[derive(Clone, Debug)]
pub struct Reports {
    shared: Arc<Senders>,
}

#[derive(Debug)]
struct Senders(Arc<Shared>);

/// The receiving end of the queue, used by the session.
#[derive(Debug)]
pub struct Outgoing {
    shared: Arc<Shared>,
}

/// Creates an empty queue and its two ends.
pub fn outbox() -> (Reports, Outgoing) {
    let shared = Arc::<Shared>::default();
    (Reports { shared: Arc::new(Senders(shared.clone())) }, Outgoing { shared })
}

/// Returns the kind of a status message; `None` for other messages.
fn place(message: &FromNode) -> Option<Slot> {
    Some(match message {
        FromNode::Pong { .. } => Slot::Pong,
        FromNode::Seen { .. } => Slot::Seen,
        FromNode::UserLoad { .. } => Slot::UserLoad,
        FromNode::Unused { .. } => Slot::Unused,
        FromNode::Report { job, report: Report::Progress { .. }, .. } => Slot::Progress(*job),
        FromNode::Report { job, report: Report::Limited, .. } => Slot::Limited(*job),
        FromNode::Report { job, report: Report::Waiting { .. } | Report::AtRest, .. } => Slot::Waits(*job),
        FromNode::Verifying { ask } => Slot::Verifying(*ask),
        FromNode::Open { tag, .. } => Slot::Open(*tag),
        _ => return None,
    })
}

impl Reports {
    /// Queues a message, without blocking.
    ///
    /// # Errors
    /// [`Unsent`] if the connection has ended.
    pub fn send(&self, message: FromNode) -> Result<(), Unsent> {
        let shared = &self.shared.0;
        let mut queue = shared.queue();
        if queue.is_closed {
            return Err(Unsent);
        }
        queue.push(message);
        if queue.entries.len() > MAX_WAITING {
            tracing::error!(
                waiting = MAX_WAITING,
                "the coordinator sends requests but reads no answers: closing the connection"
            );
            queue.close();
            shared.room.notify_all();
        }
        drop(queue);
        shared.news.notify_one();
        Ok(())
    }

    /// Queues a part of a list. Blocks while `MAX_PARTS` parts are queued.
    ///
    /// # Errors
    /// [`Unsent`] if the connection has ended.
    pub fn send_part(&self, message: FromNode) -> Result<(), Unsent> {
        let shared = &self.shared.0;
        let full = |queue: &mut Queue| !queue.is_closed && queue.parts >= MAX_PARTS;
        let mut queue = shared.room.wait_while(shared.queue(), full).expect("never poisoned");
        if queue.is_closed {
            return Err(Unsent);
        }
        queue.parts += 1;
        queue.entries.push_back(Entry::Part(Box::new(message)));
        drop(queue);
        shared.news.notify_one();
        Ok(())
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.0.queue().is_closed
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.0.queue().is_last = true;
        self.0.news.notify_one();
    }
}

impl Outgoing {
    /// Waits for the next message; `None` if all senders are dropped and the queue is empty. Cancel-safe.
    pub async fn recv(&mut self) -> Option<FromNode> {
        loop {
            if let Some(message) = self.try_recv() {
                return Some(message);
            }
            if self.shared.queue().is_over() {
                return None;
            }
            self.shared.news.notified().await;
        }
    }

    /// Returns the next message, if one is queued.
    pub fn try_recv(&mut self) -> Option<FromNode> {
        let mut queue = self.shared.queue();
        let had = queue.parts;
        let message = queue.pop();
        if queue.parts < had {
            self.shared.room.notify_one();
        }
        message
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.shared.queue().close();
        self.shared.room.notify_all();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("never poisoned")
    }
}

impl Queue {
    fn push(&mut self, message: FromNode) {
        if let FromNode::Close { tag } = message
            && self.latest.remove(&Slot::Open(tag)).is_some()
        {
            return self.entries.retain(|entry| !matches!(entry, Entry::At(Slot::Open(of)) if *of == tag));
        }
        let Some(place) = place(&message) else {
            return self.entries.push_back(Entry::Answer(Box::new(message)));
        };
        if self.latest.insert(place, message).is_none() {
            self.entries.push_back(Entry::At(place));
        }
    }

    fn pop(&mut self) -> Option<FromNode> {
        match self.entries.pop_front()? {
            Entry::At(place) => self.latest.remove(&place),
            Entry::Answer(message) => Some(*message),
            Entry::Part(message) => {
                self.parts -= 1;
                Some(*message)
            }
        }
    }

    fn is_over(&self) -> bool {
        self.is_closed || self.is_last && self.entries.is_empty()
    }

    fn close(&mut self) {
        *self = Self { is_closed: true, is_last: self.is_last, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use repair::wire::control::{ClientRequest, HeldBlock};
    use repair::{BlockId, Due, Epoch, NodeId};

    use super::*;

    fn report(job: u64, epoch: u32, report: Report) -> FromNode {
        FromNode::Report { job: JobId(job), epoch: Epoch(epoch), report }
    }

    fn waiting(rested_ms: u32) -> Report {
        Report::Waiting {
            receive: vec![Due { node: NodeId(1), slice: 1, rested_ms }],
            send: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn drained(outgoing: &mut Outgoing) -> Vec<FromNode> {
        std::iter::from_fn(|| outgoing.try_recv()).collect()
    }

    #[test]
    fn a_thousand_jobs_without_a_listener_take_one_state_each() {
        const JOBS: u64 = 1_000;
        // Five reports a second for ten minutes.
        const LOOKS: u32 = 3_000;
        let (reports, mut outgoing) = outbox();
        for look in 1..=LOOKS {
            for job in 0..JOBS {
                reports.send(report(job, 1, Report::Progress { slices: look, whole: 0 })).unwrap();
                if look % 10 == 0 {
                    reports.send(report(job, 1, Report::Limited)).unwrap();
                    reports.send(report(job, 1, waiting(look))).unwrap();
                }
                if look == LOOKS / 2 {
                    reports.send(report(job, 1, Report::Delivered)).unwrap();
                }
            }
            reports.send(FromNode::Pong { free_bytes: look.into(), tasks: 1, write_problem: None }).unwrap();
            assert!(reports.shared.0.queue().entries.len() as u64 <= 4 * JOBS + 1);
        }
        let said = drained(&mut outgoing);
        assert_eq!(said.len() as u64, 4 * JOBS + 1);
        for job in 0..JOBS {
            let of: Vec<&Report> = said
                .iter()
                .filter_map(|message| match message {
                    FromNode::Report { job: of, report, .. } if of.0 == job => Some(report),
                    _ => None,
                })
                .collect();
            assert_eq!(
                of,
                [
                    &Report::Progress { slices: LOOKS, whole: 0 },
                    &Report::Limited,
                    &waiting(LOOKS),
                    &Report::Delivered
                ]
            );
        }
        assert!(said.contains(&FromNode::Pong { free_bytes: LOOKS.into(), tasks: 1, write_problem: None }));
    }

    proptest! {
        /// Compares the queue with a simple model: a list of all answers, and the latest status message of
        /// each kind.
        #[test]
        fn answers_leave_in_order_and_only_the_latest_status_leaves(
            steps in prop::collection::vec((0u64..4, 0u32..4, 0u32..6), 1..200),
            takes in prop::collection::vec(any::<bool>(), 200),
        ) {
            let (reports, mut outgoing) = outbox();
            let (mut answers, mut latest) = (VecDeque::new(), BTreeMap::new());
            for ((job, epoch, kind), takes) in steps.into_iter().zip(takes) {
                let message = match kind {
                    0 => report(job, epoch, Report::Progress { slices: epoch, whole: 0 }),
                    1 => report(job, epoch, Report::AtRest),
                    2 => report(job, epoch, waiting(epoch)),
                    3 => report(job, epoch, Report::Committed),
                    4 => FromNode::Removed { block: BlockId(job.to_string()) },
                    _ => report(job, epoch, Report::Limited),
                };
                match place(&message) {
                    None => answers.push_back(message.clone()),
                    Some(place) => drop(latest.insert(place, message.clone())),
                }
                reports.send(message).unwrap();
                if takes && let Some(said) = outgoing.try_recv() {
                    check(&said, &mut answers, &mut latest)?;
                }
            }
            for said in drained(&mut outgoing) {
                check(&said, &mut answers, &mut latest)?;
            }
            prop_assert!(answers.is_empty() && latest.is_empty(), "nothing is lost");
        }
    }

    fn check(
        said: &FromNode,
        answers: &mut VecDeque<FromNode>,
        latest: &mut BTreeMap<Slot, FromNode>,
    ) -> Result<(), TestCaseError> {
        let expected = match place(said) {
            None => answers.pop_front(),
            Some(place) => latest.remove(&place),
        };
        prop_assert_eq!(expected.as_ref(), Some(said));
        Ok(())
    }

    #[test]
    fn a_request_cancelled_while_queued_is_never_sent() {
        let (reports, mut outgoing) = outbox();
        let open = |tag| FromNode::Open { tag, request: request() };
        reports.send(open(1)).unwrap();
        assert_eq!(drained(&mut outgoing), [open(1)]);
        for tag in 2..10_000 {
            reports.send(open(tag)).unwrap();
            reports.send(FromNode::Close { tag }).unwrap();
        }
        assert_eq!(reports.shared.0.queue().entries.len(), 0);
        reports.send(FromNode::Close { tag: 1 }).unwrap();
        assert_eq!(drained(&mut outgoing), [FromNode::Close { tag: 1 }], "that one had left");
    }

    fn request() -> ClientRequest {
        ClientRequest::Read {
            stripe: repair::StripeId("1".into()),
            blocks: Vec::new(),
            sub_blocks: None,
            window: (0, 1),
            scheme: repair::Scheme::Auto,
            slice_bytes: None,
            pacing: None,
            verify: false,
            pretend_lost: Vec::new(),
            expected: Vec::new(),
        }
    }

    #[test]
    fn a_coordinator_that_takes_no_answers_is_disconnected() {
        let (reports, mut outgoing) = outbox();
        let removed = || FromNode::Removed { block: BlockId("1.2".into()) };
        (0..MAX_WAITING).for_each(|_| reports.send(removed()).unwrap());
        assert!(!reports.is_closed());
        reports.send(removed()).unwrap();
        assert!(reports.is_closed() && reports.send(removed()) == Err(Unsent));
        assert_eq!(outgoing.try_recv(), None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(outgoing.recv()), None, "the connection ends");
    }

    #[test]
    fn parts_of_a_list_wait_for_those_before_them() {
        const PARTS: u64 = 50;
        let (reports, mut outgoing) = outbox();
        let part = |at: u64| FromNode::Listed {
            ask: at,
            blocks: vec![HeldBlock { id: BlockId(at.to_string()), bytes: at }],
            more: at + 1 < PARTS,
        };
        let sender = std::thread::spawn(move || (0..PARTS).try_for_each(|at| reports.send_part(part(at))));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for at in 0..PARTS {
            assert!(outgoing.shared.queue().parts <= MAX_PARTS);
            assert_eq!(runtime.block_on(outgoing.recv()), Some(part(at)));
        }
        assert_eq!(sender.join().unwrap(), Ok(()));
        assert_eq!(runtime.block_on(outgoing.recv()), None, "nobody sends any more");
        // A waiting sender is released when the connection ends.
        let (reports, outgoing) = outbox();
        let sender = std::thread::spawn(move || (0..PARTS).try_for_each(|at| reports.send_part(part(at))));
        drop(outgoing);
        assert_eq!(sender.join().unwrap(), Err(Unsent));
    }
}
