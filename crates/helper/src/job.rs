//! Drives a node's part of one job: passes messages and socket and disk events to [`repair::Part`], and
//! carries out the actions that it returns.
//!
//! There is one task per job, without locks or channels on the path of a slice. The task polls every inlet
//! that the relay wants frames from, every outlet with queued frames, and its two disk queues, until none of
//! them makes progress.

use std::future::{Future, poll_fn};
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use repair::wire::control::{FromNode, ToNode};
use repair::{Assignment, Class, Epoch, Errand, JobId, Part, PartAction, Report, WATCH_EVERY};
use store_api::Blocks;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::background_pacing::AtRisk;
use crate::disk::Deliveries;
use crate::engine::Node;
use crate::gate::{DiskGate, Interest};
use crate::motion::Motion;
use crate::opening::{Opened, open};
use crate::publishing::Committed;
use crate::throttle::Allowance;
use crate::{block_checks, publishing};

/// The memory budget of one relay for slices, in bytes.
const RELAY_BUDGET_BYTES: usize = 512 << 10;

/// An operation on a thread that may block.
type Chore<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One job on this node.
pub(crate) struct JobTask {
    node: Node,
    part: Part,
    /// The job's class (its priority), from the last assignment.
    class: Class,
    /// Blocks that are being delivered and are not committed yet.
    deliveries: Deliveries,
    /// Committed blocks that have not been completely read back yet.
    committed: Committed,
    /// The sockets and disk I/O of the running plan, or of the last plan if that failed.
    motion: Option<Motion>,
    opening: Option<Chore<(Deliveries, Result<Opened, Report>)>>,
    errand: Option<Chore<(Report, Committed)>>,
    /// Keeps reads of whole blocks running. When the coordinator is lost, the interest is replaced, which
    /// ends these reads.
    interest: Interest,
    /// The value of `Interest::held_back` at the last tick.
    held_back: u64,
    settling: bool,
    /// Whether the job's stripe cannot lose another block.
    at_risk: AtRisk,
    ticks: Interval,
    /// The origin of the job's clock.
    start: Instant,
}

impl JobTask {
    pub(crate) fn new(job: JobId, node: Node) -> Self {
        let mut ticks = interval(WATCH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        Self {
            part: Part::new(job, RELAY_BUDGET_BYTES, node.buffers.take()),
            class: Class::default(),
            deliveries: Deliveries::new(),
            committed: Committed::new(),
            motion: None,
            opening: None,
            errand: None,
            interest: Interest::default(),
            held_back: 0,
            settling: false,
            at_risk: AtRisk::default(),
            ticks,
            start: Instant::now(),
            node,
        }
    }

    /// Runs until the part is over or the engine drops the job.
    pub(crate) async fn run(mut self, mut messages: mpsc::Receiver<ToNode>) {
        while !poll_fn(|cx| self.poll(cx, &mut messages)).await {}
        self.node.buffers.give(self.part.into_pool());
    }

    /// Becomes ready when no work remains. Returns `false` if a new message has arrived, so that the task
    /// must be polled again.
    fn poll(&mut self, cx: &mut Context<'_>, messages: &mut mpsc::Receiver<ToNode>) -> Poll<bool> {
        let is_lost = self.poll_messages(cx, messages);
        while self.ticks.poll_tick(cx).is_ready() {
            let held_back = self.interest.held_back();
            if std::mem::replace(&mut self.held_back, held_back) < held_back {
                self.part.handle_errand_limited();
            }
            self.part.handle_tick(self.now());
        }
        while self.poll_all(cx) {}
        if !self.part.is_over() {
            return Poll::Pending;
        }
        Poll::Ready(is_lost || self.node.retire(self.part.job(), messages))
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Handles all queued messages; returns whether the sender was dropped.
    fn poll_messages(&mut self, cx: &mut Context<'_>, messages: &mut mpsc::Receiver<ToNode>) -> bool {
        while let Poll::Ready(message) = messages.poll_recv(cx) {
            let Some(message) = message else {
                (self.interest, self.held_back) = Default::default();
                self.part.handle_coordinator_lost(self.now());
                return true;
            };
            if let ToNode::AtRisk { .. } = message {
                self.at_risk.set();
            }
            self.part.handle_message(message, self.now());
        }
        false
    }

    /// Advances everything that can make progress; returns whether anything did.
    fn poll_all(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.now();
        let mut moved = self.poll_chores(cx, now);
        if let (Some(_), Some(motion)) = (&self.opening, &mut self.motion) {
            motion.poll_connecting(cx); // Connections are set up while the blocks are opened.
        }
        if let Some(motion) = self.motion.as_mut().filter(|_| self.part.is_moving()) {
            moved |= motion.poll_reads(cx, &mut self.part, now);
            moved |= motion.poll_inlets(cx, &mut self.part, now);
        }
        // New actions are started at once, because no event would wake this task for them.
        moved |= self.act(now);
        if let Some(motion) = self.motion.as_mut().filter(|_| self.part.is_moving()) {
            moved |= motion.poll_outlets(cx, &mut self.part, now);
            moved |= motion.poll_writes(cx, &mut self.part, now);
            moved |= !moved && motion.poll_timer(cx);
        }
        moved
    }

    /// Polls the operations on other threads; returns whether any has finished.
    fn poll_chores(&mut self, cx: &mut Context<'_>, now: Duration) -> bool {
        let mut moved = false;
        if let Some(opening) = &mut self.opening
            && let Poll::Ready((deliveries, opened)) = opening.as_mut().poll(cx)
        {
            (self.opening, self.deliveries) = (None, deliveries);
            match (opened, &mut self.motion) {
                (Ok(opened), Some(motion)) => {
                    motion.use_opened(opened);
                    self.part.handle_begun(now);
                }
                (Err(report), _) => self.part.handle_cannot_begin(report, now),
                (Ok(_), None) => {}
            }
            moved = true;
        }
        if let Some(errand) = &mut self.errand
            && let Poll::Ready((report, committed)) = errand.as_mut().poll(cx)
        {
            self.errand = None;
            self.committed.extend(committed);
            self.part.handle_answer(report, now);
            moved = true;
        }
        if self.settling
            && let Some(motion) = &mut self.motion
            && motion.poll_settled(cx, &mut self.part).is_ready()
        {
            self.settling = false;
            self.part.handle_settled(now);
            moved = true;
        }
        moved
    }

    /// Carries out the part's actions; returns whether there were any.
    fn act(&mut self, now: Duration) -> bool {
        let mut acted = false;
        while let Some(action) = self.part.poll(now) {
            acted = true;
            match action {
                PartAction::Move(action) => {
                    let motion = self.motion.as_mut().expect("a job that moves slices has a motion");
                    motion.act(action, &mut self.part, now);
                }
                PartAction::Credit { inlet, credit } => {
                    let motion = self.motion.as_mut().expect("a job that moves slices has a motion");
                    motion.queue_credit(inlet, credit);
                }
                PartAction::Begin(assignment) => self.begin(assignment, now),
                PartAction::Settle => {
                    self.motion.as_mut().expect("a job that has written has a motion").drop_queued();
                    self.settling = true;
                }
                PartAction::Disconnect => self.motion = None,
                PartAction::Ask(errand) => self.errand = Some(self.ask(errand)),
                PartAction::Report { epoch, report } => self.report(epoch, report),
                PartAction::Forget => self.forget(),
            }
        }
        acted
    }

    /// Drops the deliveries, and what is left to read back, if there are any.
    fn forget(&mut self) {
        let dropped = (take(&mut self.deliveries), take(&mut self.committed));
        if !(dropped.0.is_empty() && dropped.1.is_empty()) {
            // Dropping a delivery removes its files, and the disk may hang.
            tokio::task::spawn_blocking(move || drop(dropped));
        }
    }

    fn report(&self, epoch: Epoch, report: Report) {
        if let Report::Refused { why } = &report {
            tracing::warn!(job = %self.part.job(), %why, "refused an instruction of the coordinator");
        }
        // A closed channel means that the coordinator is lost; the job will then be forgotten.
        let _ = self.node.reports.send(FromNode::Report { job: self.part.job(), epoch, report });
    }

    fn begin(&mut self, assignment: Arc<Assignment>, now: Duration) {
        let memory = self.node.memory.reserve(&assignment, self.part.most_bytes());
        let memory = match self.node.check_encryption(&assignment).and(memory) {
            Ok(memory) => memory,
            Err(report) => return self.part.handle_cannot_begin(report, now),
        };
        self.class = assignment.class;
        // Edges are set up before blocks are opened, because neighbours may already be dialling.
        self.motion = Some(Motion::new(assignment.clone(), &self.node, &self.at_risk, memory));
        self.opening =
            Some(Box::pin(open(self.node.clone(), assignment, self.deliveries.clone(), self.gate())));
    }

    fn ask(&mut self, errand: Errand) -> Chore<(Report, Committed)> {
        let answer: Chore<Report> = match errand {
            Errand::Commit => {
                // Storing a block is no read for a client, whatever the job's class.
                self.deliveries.keys().for_each(|block| self.node.touch(block, Class::Repair));
                return Box::pin(publishing::commit(std::mem::take(&mut self.deliveries)));
            }
            Errand::Seal => Box::pin(publishing::seal(self.deliveries.clone())),
            Errand::Fingerprint(asked) => {
                let gate = self.gate();
                match self.deliveries.get(&asked.block.id).cloned() {
                    Some(delivery) => Box::pin(block_checks::fingerprint_delivery(delivery, *asked, gate)),
                    None => self
                        .ask_store(|blocks| Box::pin(block_checks::fingerprint_held(blocks, *asked, gate))),
                }
            }
            Errand::Reread { block, digest } => {
                let (rest, gate) = (self.committed.remove(&block), self.gate());
                self.ask_store(|blocks| Box::pin(publishing::reread(blocks, (block, digest), rest, gate)))
            }
        };
        Box::pin(async { (answer.await, Committed::new()) })
    }

    /// Returns a gate that throttles this job's reads of whole blocks.
    fn gate(&self) -> DiskGate {
        let job = Some(self.part.job());
        let counting = self.node.traffic.for_purpose(self.class);
        self.interest.gate(Allowance::new(self.node.throttle.clone(), job, self.class), counting)
    }

    fn ask_store(&self, ask: impl FnOnce(Arc<dyn Blocks>) -> Chore<Report>) -> Chore<Report> {
        match self.node.local.store() {
            Ok(blocks) => ask(blocks),
            Err(report) => Box::pin(std::future::ready(report)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::Receiver;

    use codes::BlockIndex;
    use repair::wire::control::HeldBlock;
    use repair::{
        BlockId, Chunking, Dealing, Digest, EdgeKey, Geometry, Inlet, Lanes, LocalBlock, NodeId, Pacing,
        Sink, SliceSet,
    };
    use store_api::{BlockError, BlockReader, Delivery, Gate, Sinks, Sources};
    use tokio::net::TcpListener;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{Engine, Local, Rendezvous, Workers, outbox};

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A store whose disk takes until `go` to find that a block is missing.
    struct Slow {
        go: Mutex<Receiver<()>>,
    }

    impl Sources for Slow {
        fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
            let _ = self.go.lock().unwrap().recv();
            Err(BlockError::Missing { block: block.id.clone(), path: "disk".to_owned() })
        }
    }

    impl Sinks for Slow {
        fn deliver(&self, _: &Sink) -> Result<Delivery, BlockError> {
            unreachable!("no block is stored")
        }
    }

    impl Blocks for Slow {
        fn verify(&self, _: &BlockId, _: &dyn Gate) -> Result<Option<Digest>, BlockError> {
            unreachable!("no block is verified")
        }

        fn remove(&self, _: &BlockId) -> Result<bool, BlockError> {
            unreachable!("no block is removed")
        }

        fn list(&self) -> Result<Vec<HeldBlock>, BlockError> {
            Ok(Vec::new())
        }

        fn free_bytes(&self) -> Result<u64, BlockError> {
            Ok(0)
        }
    }

    /// An assignment of a repair that opens a block and dials `address`.
    pub(crate) fn assignment(address: String) -> Assignment {
        Assignment {
            job: JobId(1),
            epoch: Epoch(1),
            class: Class::Repair,
            tag: None,
            geometry: Geometry { window: 0..1, slice_bytes: 1 },
            slices: SliceSet::all(1),
            pacing: Pacing::Pipelined,
            chunking: Chunking::new(1, 1, 1).unwrap(),
            lanes: Lanes { dealing: Dealing::even(1), tasks: vec![None] },
            locals: vec![LocalBlock {
                index: BlockIndex(0),
                id: BlockId("1.0".to_owned()),
                bytes: 1,
                digest: None,
            }],
            inlets: vec![Inlet {
                from: NodeId(1),
                dial: Some(address),
                key: EdgeKey([1; 16]),
                tls_name: None,
            }],
            outlets: Vec::new(),
            outputs: Vec::new(),
            sinks: Vec::new(),
            stall_ms: 1500,
        }
    }

    /// The job also ends without a message to forget it, because it delivers nothing.
    #[tokio::test]
    async fn edges_are_dialled_while_the_disk_opens_a_block() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (go, waiting) = std::sync::mpsc::channel();
        let (reports, mut outgoing) = outbox();
        let store = Local::Store(Arc::new(Slow { go: Mutex::new(waiting) }));
        let engine = Engine::new(store, Rendezvous::default(), reports, Workers::here());
        let assignment = assignment(listener.local_addr().unwrap().to_string());
        assert_eq!(engine.handle(ToNode::Assign(Box::new(assignment))), None);
        let dialled = timeout(PATIENCE, listener.accept()).await;
        assert!(dialled.is_ok(), "it dials only when the block is open");
        assert_eq!((outgoing.try_recv(), engine.jobs()), (None, 1));
        drop(go);
        let report = timeout(PATIENCE, outgoing.recv()).await.unwrap().unwrap();
        assert!(matches!(report, FromNode::Report { report: Report::BadBlock { .. }, .. }), "{report:?}");
        let ended = async {
            while engine.jobs() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, ended).await.expect("no message to forget the job is needed");
        assert_eq!(engine.handle(ToNode::Forget { job: JobId(1) }), None);
        assert_eq!(engine.jobs(), 0, "a job that has ended is not started again to be forgotten");
    }
}
