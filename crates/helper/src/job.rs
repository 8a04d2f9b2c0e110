//! Drives a node's part of one job: waits for messages, sockets and disk, tells [`repair::Part`], and does what it asks.
//!
//! One task per job, no locks, no channels on the way of a slice: the task polls every inlet that the relay wants
//! something from, every outlet with frames in its queue, and its two disk lanes, until none of them can move.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::{FromNode, ToNode};
use repair::{Assignment, Class, Epoch, Errand, JobId, Part, PartAction, Report, Sink, WATCH_EVERY};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::disk::{SharedWriter, Sinks, Source};
use crate::engine::{Node, blocking};
use crate::errands;
use crate::motion::Motion;
use crate::problems::{block_problem, sink_report};
use crate::throttle::Allowance;

/// Bytes of slices that one relay may hold.
const RELAY_BUDGET_BYTES: usize = 512 << 10;

/// Something that a thread does which may wait.
type Chore<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One job on this node.
pub(crate) struct JobTask {
    node: Node,
    part: Part,
    /// What the job is for, as its last assignment says.
    class: Class,
    /// What was delivered and not committed.
    sinks: Sinks,
    /// The plan that runs, or failed.
    motion: Option<Motion>,
    opening: Option<Chore<(Sinks, Result<Opened, Report>)>>,
    errand: Option<Chore<Report>>,
    settling: bool,
    ticks: Interval,
    /// Times are counted from here.
    start: Instant,
}

/// What an assignment reads and delivers to.
pub(crate) struct Opened {
    pub(crate) sources: BTreeMap<BlockIndex, Source>,
    pub(crate) sinks: BTreeMap<BlockIndex, (Sink, SharedWriter)>,
}

impl JobTask {
    pub(crate) fn new(job: JobId, node: Node) -> Self {
        let mut ticks = interval(WATCH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        Self {
            part: Part::new(job, RELAY_BUDGET_BYTES, node.buffers.take()),
            class: Class::default(),
            sinks: Sinks::new(),
            motion: None,
            opening: None,
            errand: None,
            settling: false,
            ticks,
            start: Instant::now(),
            node,
        }
    }

    /// Runs until the job is forgotten, or the engine drops it.
    pub(crate) async fn run(mut self, mut messages: mpsc::Receiver<ToNode>) {
        while !poll_fn(|cx| self.poll(cx, &mut messages)).await {}
        self.node.buffers.give(self.part.into_pool());
    }

    /// Ready when there is nothing left to do; `false` if there is again.
    fn poll(&mut self, cx: &mut Context<'_>, messages: &mut mpsc::Receiver<ToNode>) -> Poll<bool> {
        let is_lost = self.poll_messages(cx, messages);
        while self.ticks.poll_tick(cx).is_ready() {
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

    /// Takes all messages; whether nobody sends any more.
    fn poll_messages(&mut self, cx: &mut Context<'_>, messages: &mut mpsc::Receiver<ToNode>) -> bool {
        while let Poll::Ready(message) = messages.poll_recv(cx) {
            let Some(message) = message else {
                self.part.handle_coordinator_lost(self.now());
                return true;
            };
            self.part.handle_message(message, self.now());
        }
        false
    }

    /// Moves whatever can move; whether anything did.
    fn poll_all(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.now();
        let mut moved = self.poll_chores(cx, now);
        if let Some(motion) = self.motion.as_mut().filter(|_| self.part.is_moving()) {
            moved |= motion.poll_reads(cx, &mut self.part, now);
            moved |= motion.poll_inlets(cx, &mut self.part, now);
        }
        // What was asked for is begun in the next turn: nothing else would wake this task for it.
        moved |= self.act(now);
        if let Some(motion) = self.motion.as_mut().filter(|_| self.part.is_moving()) {
            moved |= motion.poll_outlets(cx, &mut self.part, now);
            moved |= motion.poll_writes(cx, &mut self.part, now);
            moved |= !moved && motion.poll_timer(cx);
        }
        moved
    }

    /// What other threads were asked to do.
    fn poll_chores(&mut self, cx: &mut Context<'_>, now: Duration) -> bool {
        let mut moved = false;
        if let Some(opening) = &mut self.opening
            && let Poll::Ready((sinks, opened)) = opening.as_mut().poll(cx)
        {
            (self.opening, self.sinks) = (None, sinks);
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
            && let Poll::Ready(report) = errand.as_mut().poll(cx)
        {
            self.errand = None;
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

    /// Does what the part asks for; whether it asked for anything.
    fn act(&mut self, now: Duration) -> bool {
        let mut acted = false;
        while let Some(action) = self.part.poll(now) {
            acted = true;
            match action {
                PartAction::Move(action) => {
                    let motion = self.motion.as_mut().expect("slices move in it");
                    motion.act(action, &mut self.part, now);
                }
                PartAction::Begin(assignment) => self.begin(assignment, now),
                PartAction::Settle => {
                    self.motion.as_mut().expect("it has written").drop_queued();
                    self.settling = true;
                }
                PartAction::Disconnect => self.motion = None,
                PartAction::Ask(errand) => self.errand = Some(self.ask(errand)),
                PartAction::Report { epoch, report } => self.report(epoch, report),
                PartAction::Forget => self.sinks.clear(),
            }
        }
        acted
    }

    fn report(&self, epoch: Epoch, report: Report) {
        if let Report::Refused { detail } = &report {
            tracing::warn!(job = %self.part.job(), detail, "refused an assignment");
        }
        // A closed channel means that the coordinator is gone; it will forget the job then.
        let _ = self.node.reports.send(FromNode::Report { job: self.part.job(), epoch, report });
    }

    fn begin(&mut self, assignment: Arc<Assignment>, now: Duration) {
        let memory = self.node.memory.reserve(&assignment, self.part.most_bytes());
        let memory = match self.node.check_encryption(&assignment).and(memory) {
            Ok(memory) => memory,
            Err(report) => return self.part.handle_cannot_begin(report, now),
        };
        self.class = assignment.class;
        // The edges come first: neighbours may be dialling already.
        self.motion = Some(Motion::new(assignment.clone(), &self.node, memory));
        self.opening = Some(Box::pin(open(self.node.clone(), assignment, self.sinks.clone())));
    }

    fn ask(&mut self, errand: Errand) -> Chore<Report> {
        let local = self.node.local.clone();
        match errand {
            Errand::Seal => Box::pin(errands::seal(self.sinks.clone())),
            Errand::Commit => Box::pin(errands::commit(std::mem::take(&mut self.sinks))),
            Errand::Fingerprint(asked) => {
                let sink = self.sinks.get(&asked.block.id).cloned();
                let allowance = Allowance::new(self.node.throttle.clone(), self.part.job(), self.class);
                Box::pin(errands::fingerprint(local, sink, *asked, allowance))
            }
            Errand::Reread(block) => Box::pin(errands::reread(local, block)),
        }
    }
}

/// Opens what an assignment reads, and delivers to; `sinks` are those that are open already.
async fn open(node: Node, assignment: Arc<Assignment>, mut sinks: Sinks) -> (Sinks, Result<Opened, Report>) {
    let opened = async {
        let sources = open_sources(&node, &assignment).await?;
        let sinks = open_sinks(&node, &assignment, &mut sinks).await?;
        Ok(Opened { sources, sinks })
    }
    .await;
    (sinks, opened)
}

async fn open_sources(node: &Node, assignment: &Assignment) -> Result<BTreeMap<BlockIndex, Source>, Report> {
    let (mut sources, mut cold) = (BTreeMap::new(), Vec::new());
    for block in &assignment.locals {
        match node.local.open_if_cached(assignment.tag, block) {
            Some(reader) if errands::check_identity(&*reader, block).is_ok() => {
                sources.insert(block.index, Source { id: block.id.clone(), reader });
            }
            _ => cold.push(block.clone()),
        }
    }
    if cold.is_empty() {
        return Ok(sources);
    }
    let (local, tag) = (node.local.clone(), assignment.tag);
    blocking(move || {
        for block in cold {
            let opened = local.open(tag, &block);
            let checked =
                opened.and_then(|reader| errands::check_identity(&*reader, &block).map(|()| reader));
            let reader = checked.map_err(|error| Report::BadBlock {
                block: block.id.clone(),
                problem: block_problem(&error),
            })?;
            sources.insert(block.index, Source { id: block.id, reader });
        }
        Ok(sources)
    })
    .await
}

async fn open_sinks(
    node: &Node,
    assignment: &Assignment,
    all: &mut Sinks,
) -> Result<BTreeMap<BlockIndex, (Sink, SharedWriter)>, Report> {
    let mut sinks = BTreeMap::new();
    for sink in assignment.sinks.clone() {
        let writer = match all.get(&sink.id) {
            Some(writer) => writer.clone(),
            None => {
                let (local, tag, wanted) = (node.local.clone(), assignment.tag, sink.clone());
                let created = blocking(move || local.create(tag, &wanted)).await;
                let writer = created.map_err(|error| sink_report(sink.id.clone(), &error))?;
                let writer = Arc::new(Mutex::new(writer));
                all.insert(sink.id.clone(), writer.clone());
                writer
            }
        };
        sinks.insert(sink.index, (sink, writer));
    }
    Ok(sinks)
}
