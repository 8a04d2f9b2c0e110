//! Carries out the coordinator's instructions for jobs.
//!
//! Every job has a task of its own, which handles the job's messages in order: assign, stop, seal,
//! fingerprint, commit, reread, forget. Delivered bytes stay in the job's open sinks from plan to plan, until
//! the coordinator commits or forgets the job.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use block_files::yield_processors;
use repair::wire::control::{FromNode, ToNode};
use repair::{
    Assignment, BlockId, Caps, Class, JobId, MAX_WAITING_MESSAGES, Meter, Refusal, Report, too_many_messages,
};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::background_pacing::BackgroundPacing;
use crate::buffers::Buffers;
use crate::job::JobTask;
use crate::local::Local;
use crate::memory::Memory;
use crate::outbox::Reports;
use crate::recent_blocks::RecentBlocks;
use crate::rendezvous::Rendezvous;
use crate::throttle::{Allowance, Throttle};
use crate::traffic::Traffic;
use crate::workers::Workers;

/// Carries out the jobs of a node; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    node: Node,
    workers: Workers,
}

/// The state shared by all jobs of a node; cheap to clone.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) local: Local,
    pub(crate) rendezvous: Rendezvous,
    pub(crate) reports: Reports,
    pub(crate) traffic: Traffic,
    pub(crate) buffers: Buffers,
    pub(crate) throttle: Throttle,
    pub(crate) pacing: BackgroundPacing,
    pub(crate) memory: Memory,
    /// The blocks used lately, on a node with a store.
    pub(crate) recent: Option<RecentBlocks>,
    jobs: Arc<Mutex<BTreeMap<JobId, mpsc::Sender<ToNode>>>>,
}

impl Engine {
    /// Creates an engine that gets the connections of its edges from `rendezvous`, sends its reports to
    /// `reports`, and runs its jobs on `workers`.
    pub fn new(local: Local, rendezvous: Rendezvous, reports: Reports, workers: Workers) -> Self {
        let (traffic, buffers, jobs) = (Traffic::default(), Buffers::default(), Arc::default());
        let (throttle, memory) = (Throttle::new(Caps::default()), Memory::default());
        let (pacing, recent) = (BackgroundPacing::new(traffic.clone()), None);
        let node =
            Node { local, rendezvous, reports, traffic, buffers, throttle, pacing, memory, recent, jobs };
        Self { node, workers }
    }

    /// Sets the node's own caps; the coordinator can only lower them.
    pub fn within(mut self, caps: Caps) -> Self {
        self.node.throttle = Throttle::new(caps);
        self
    }

    /// Paces background transfers with `pacing`, which outlives the engine, and counts the node's traffic where it does.
    pub(crate) fn paced_by(mut self, pacing: BackgroundPacing) -> Self {
        self.node.traffic = pacing.traffic().clone();
        self.node.pacing = pacing;
        self
    }

    /// Records the blocks that jobs read and store in `recent`, which outlives the engine.
    pub(crate) fn remembering(mut self, recent: RecentBlocks) -> Self {
        self.node.recent = Some(recent);
        self
    }

    /// Handles a message that concerns jobs or caps; returns any other message.
    pub fn handle(&self, message: ToNode) -> Option<ToNode> {
        if let ToNode::Limits(caps) = message {
            self.node.throttle.set(caps);
            return None;
        }
        let Some(job) = message.job() else { return Some(message) };
        let mut jobs = self.node.jobs.lock().expect("never poisoned");
        if matches!(message, ToNode::Forget { .. } | ToNode::AtRisk { .. }) && !jobs.contains_key(&job) {
            return None; // The job's task has already ended; see `Part::is_over`.
        }
        let bytes = job_bytes(&message);
        let messages = jobs.entry(job).or_insert_with(|| self.start(job, bytes));
        // A job's task lives as long as its entry in the table, unless it has panicked. Then another task takes over.
        if messages.is_closed() {
            *messages = self.start(job, bytes);
        }
        // If the channel is full, the message is refused.
        if let Err(mpsc::error::TrySendError::Full(message)) = messages.try_send(message)
            && let Some(epoch) = message.epoch()
        {
            let report = too_many_messages();
            // The send fails only if the coordinator is lost, which drops the job anyway.
            let _ = self.node.reports.send(FromNode::Report { job, epoch, report });
        }
        None
    }

    /// Returns access to the caps for work that belongs to no job.
    pub(crate) fn allowance(&self, class: Class) -> Allowance {
        Allowance::new(self.node.throttle.clone(), None, class)
    }

    /// Returns the share of the cap on repair traffic that has not been used since the last query, in
    /// thousandths. Returns `None` if there is no such cap, or if nothing could have moved since then.
    pub(crate) fn unused(&self, meter: Meter) -> Option<u16> {
        self.node.throttle.unused(meter).map(|part| (part * 1000.0).round() as u16)
    }

    /// Returns the counters of the node's traffic.
    pub fn traffic(&self) -> &Traffic {
        &self.node.traffic
    }

    /// Returns the number of running jobs.
    pub fn jobs(&self) -> u32 {
        self.node.jobs.lock().expect("never poisoned").len() as u32
    }

    /// Returns a value that, when it is dropped, drops all jobs and everything they did not commit. The caller
    /// holds it for as long as it passes on the coordinator's messages. Without messages, many jobs would
    /// never end, and would keep the store open.
    pub fn forget_on_drop(&self) -> ForgetOnDrop {
        ForgetOnDrop(self.clone())
    }

    /// Starts the task of a job that moves about `bytes` bytes on this node.
    fn start(&self, job: JobId, bytes: u64) -> mpsc::Sender<ToNode> {
        let (sender, messages) = mpsc::channel(MAX_WAITING_MESSAGES);
        let node = self.node.clone();
        self.workers.spawn(bytes, async move { JobTask::new(job, node).run(messages).await });
        sender
    }
}

/// Drops all jobs of an engine when it is dropped; see [`Engine::forget_on_drop`].
#[must_use = "dropping it drops the jobs"]
pub struct ForgetOnDrop(Engine);

impl Drop for ForgetOnDrop {
    fn drop(&mut self) {
        self.0.node.jobs.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Returns about how many bytes the job of a message moves on this node. A question without an assignment
/// moves none: another thread answers it.
fn job_bytes(message: &ToNode) -> u64 {
    let ToNode::Assign(assignment) = message else { return 0 };
    let Assignment { geometry, chunking, locals, inlets, outlets, sinks, .. } = &**assignment;
    let window = geometry.window.end.saturating_sub(geometry.window.start);
    let streams = locals.len() + inlets.len() + outlets.len() + sinks.len();
    window.saturating_mul(chunking.sub_blocks().into()).saturating_mul(streams as u64)
}

impl Node {
    /// Records that a job of this class reads or stores a block.
    pub(crate) fn touch(&self, block: &BlockId, class: Class) {
        if let Some(recent) = self.recent.as_ref().filter(|_| class != Class::Probe) {
            recent.touch(block, class == Class::Read, Instant::now());
        }
    }

    /// Removes a finished job from the table. If another message has arrived for the job, keeps the job and
    /// returns `false`.
    pub(crate) fn retire(&self, job: JobId, messages: &mpsc::Receiver<ToNode>) -> bool {
        let mut jobs = self.jobs.lock().expect("never poisoned");
        let is_over = messages.is_empty();
        self.throttle.forget(job);
        if is_over && !messages.is_closed() {
            jobs.remove(&job);
        }
        is_over
    }

    /// Refuses an assignment with an unencrypted edge if the node's own configuration requires encryption.
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

/// Runs `work` on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The runtime is shutting down, and this task with it.
        Err(error) if error.is_cancelled() => std::future::pending().await,
        Err(error) => resume_unwind(error.into_panic()),
    }
}

/// Bounds the number of low-priority threads. The limit equals the runtime's limit of blocking threads.
static ASIDE: Semaphore = Semaphore::const_new(512);

/// Runs `work` on a low-priority thread.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let room = ASIDE.acquire().await.expect("the semaphore is never closed");
    let work = move || {
        let _room = room; // Held until the work ends, even if the caller stops waiting.
        work()
    };
    on_thread("aside", yield_processors, work).await
}

/// Runs `work` on a thread of its own. It begins at once, also if disks that hang occupy all threads for work that
/// may block.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    on_thread("apart", || {}, work).await
}

/// Runs `begin` and then `work` on a new thread; only `work` on a pooled thread if no thread can be started.
async fn on_thread<T: Send + 'static>(
    name: &str,
    begin: fn(),
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let work = Arc::new(Mutex::new(Some(work)));
    let (sender, done) = oneshot::channel();
    let thread = thread::Builder::new().name(name.to_owned()).spawn({
        let work = work.clone();
        move || {
            begin();
            let work = work.lock().expect("never poisoned").take().expect("the work is taken once");
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        }
    });
    if thread.is_err() {
        let work =
            work.lock().expect("never poisoned").take().expect("no thread was started to take the work");
        return blocking(work).await;
    }
    match done.await.expect("the thread always sends a result") {
        Ok(done) => done,
        Err(panic) => resume_unwind(panic),
    }
}
