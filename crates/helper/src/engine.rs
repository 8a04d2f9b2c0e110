//! Carries out what the coordinator asks of a node's jobs.
//!
//! Every job has a task of its own that takes its messages in order: a new plan, stop, seal, fingerprint,
//! commit, reread, forget. What a job delivered lives in its sinks from plan to plan until it is committed
//! or forgotten.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use block_files::yield_processors;
use repair::wire::control::{FromNode, ToNode};
use repair::{
    Assignment, Caps, Class, JobId, MAX_WAITING_MESSAGES, Meter, Refusal, Report, too_many_messages,
};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::buffers::Buffers;
use crate::job::JobTask;
use crate::local::Local;
use crate::memory::Memory;
use crate::outbox::Reports;
use crate::rendezvous::Rendezvous;
use crate::throttle::{Allowance, Throttle};
use crate::traffic::Traffic;
use crate::workers::Workers;

/// Carries out assignments; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    node: Node,
    workers: Workers,
}

/// What the jobs of a node share; cheap to clone.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) local: Local,
    pub(crate) rendezvous: Rendezvous,
    pub(crate) reports: Reports,
    pub(crate) traffic: Traffic,
    pub(crate) buffers: Buffers,
    pub(crate) throttle: Throttle,
    pub(crate) memory: Memory,
    jobs: Arc<Mutex<BTreeMap<JobId, mpsc::Sender<ToNode>>>>,
}

impl Engine {
    /// An engine whose edges meet at `rendezvous`, whose reports go to `reports`, and whose jobs run on
    /// `workers`.
    pub fn new(local: Local, rendezvous: Rendezvous, reports: Reports, workers: Workers) -> Self {
        let (traffic, buffers, jobs) = (Traffic::default(), Buffers::default(), Arc::default());
        let (throttle, memory) = (Throttle::new(Caps::default()), Memory::default());
        Self { node: Node { local, rendezvous, reports, traffic, buffers, throttle, memory, jobs }, workers }
    }

    /// It never goes beyond these caps, whatever it is told.
    pub fn within(mut self, caps: Caps) -> Self {
        self.node.throttle = Throttle::new(caps);
        self
    }

    /// Takes a message that concerns jobs; gives back one that does not.
    pub fn handle(&self, message: ToNode) -> Option<ToNode> {
        if let ToNode::Limits(caps) = message {
            self.node.throttle.set(caps);
            return None;
        }
        let Some(job) = message.job() else { return Some(message) };
        let mut jobs = self.node.jobs.lock().expect("no holder panics");
        let messages = jobs.entry(job).or_insert_with(|| self.start(job));
        // A task lives as long as its entry in the table; one that does not come to take its messages is refused more.
        if let Err(mpsc::error::TrySendError::Full(message)) = messages.try_send(message)
            && let Some(epoch) = message.epoch()
        {
            let report = too_many_messages();
            let _ = self.node.reports.send(FromNode::Report { job, epoch, report }); // A lost coordinator knows.
        }
        None
    }

    /// What may be done besides jobs, under the same caps.
    pub(crate) fn allowance(&self, class: Class) -> Allowance {
        Allowance::new(self.node.throttle.clone(), None, class)
    }

    /// Which part of what repairs may move is left unused, in thousandths.
    pub(crate) fn unused(&self, meter: Meter) -> Option<u16> {
        self.node.throttle.unused(meter).map(|part| (part * 1000.0).round() as u16)
    }

    /// What went through it so far.
    pub fn traffic(&self) -> &Traffic {
        &self.node.traffic
    }

    /// Number of jobs in hand.
    pub fn jobs(&self) -> u32 {
        self.node.jobs.lock().expect("no holder panics").len() as u32
    }

    /// Drops all jobs and what they did not commit: the coordinator that gave them is gone.
    pub fn forget_all(&self) {
        self.node.jobs.lock().expect("no holder panics").clear();
    }

    fn start(&self, job: JobId) -> mpsc::Sender<ToNode> {
        let (sender, messages) = mpsc::channel(MAX_WAITING_MESSAGES);
        let node = self.node.clone();
        self.workers.spawn(async move { JobTask::new(job, node).run(messages).await });
        sender
    }
}

impl Node {
    /// Takes a job that is over out of the table; `false` if there is another message for it.
    pub(crate) fn retire(&self, job: JobId, messages: &mpsc::Receiver<ToNode>) -> bool {
        let mut jobs = self.jobs.lock().expect("no holder panics");
        let is_over = messages.is_empty();
        self.throttle.forget(job);
        if is_over && !messages.is_closed() {
            jobs.remove(&job);
        }
        is_over
    }

    /// Refuses edges that are less protected than this node's own configuration demands.
    pub(crate) fn check_encryption(&self, assignment: &Assignment) -> Result<(), Report> {
        let inlets = assignment.inlets.iter().map(|inlet| (inlet.from, &inlet.tls_name));
        let outlets = assignment.outlets.iter().map(|outlet| (outlet.to, &outlet.tls_name));
        let Some((peer, _)) = inlets.chain(outlets).find(|(_, tls_name)| tls_name.is_none()) else {
            return Ok(());
        };
        if !self.rendezvous.refuses_plain() {
            return Ok(());
        }
        Err(Report::Refused { why: Refusal::PlainEdge { peer } })
    }
}

/// Runs `work` on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The runtime is going away, and this task with it.
        Err(error) if error.is_cancelled() => std::future::pending().await,
        Err(error) => resume_unwind(error.into_panic()),
    }
}

/// So many threads at once, as many as the runtime has for what may wait.
static ASIDE: Semaphore = Semaphore::const_new(512);

/// Runs `work`, for which nobody waits as they do for slices, on a thread of its own that lets others have the processors.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let room = ASIDE.acquire().await.expect("it is never closed");
    let work = Arc::new(Mutex::new(Some(work)));
    let (sender, done) = oneshot::channel();
    let thread = thread::Builder::new().name("aside".to_owned()).spawn({
        let work = work.clone();
        move || {
            let _room = room; // Also of those that nobody waits for any more.
            yield_processors();
            let work = work.lock().expect("no holder panics").take().expect("it is taken once");
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        }
    });
    if thread.is_err() {
        let work = work.lock().expect("no holder panics").take().expect("no thread has it");
        return blocking(work).await;
    }
    match done.await.expect("it is sent whatever happens") {
        Ok(done) => done,
        Err(panic) => resume_unwind(panic),
    }
}
