//! Drives one relay: waits for its sockets and its disk, feeds it, and does what it asks.
//!
//! One task per relay, no locks, no channels on the way of a slice: the task polls every inlet that the
//! relay wants something from, every outlet with frames in its queue, and its two disk lanes, until none of
//! them can move.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use codes::BlockIndex;
use repair::{
    Action, Assignment, BlockId, BlockProblem, NodeId, Relay, RelayError, Report, Sink, SinkProblem, SliceSet,
};
use stores::BlockError;
use tokio::sync::oneshot;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::buffers::Buffers;
use crate::disk::{DiskError, Lane, ReadAhead, ReadJob, SharedWriter, Source, WriteJob};
use crate::engine::TaskReports;
use crate::rendezvous::Rendezvous;
use crate::socket::{InletSocket, OutletSocket, SocketError};
use crate::traffic::Traffic;

/// How often progress is reported and stalls are looked for.
const WATCH_EVERY: Duration = Duration::from_millis(200);
/// If so much time passed since the last look, this process was stopped or starved itself.
const ASLEEP: Duration = Duration::from_secs(1);
/// A task that failed keeps its edges open this long, so that its neighbours wait instead of failing too
/// and the true culprit stands out; normally the coordinator stops it much earlier.
const PARK_LIMIT: Duration = Duration::from_secs(60);

/// A relay and all that moves its bytes.
pub(crate) struct Driver {
    pub(crate) assignment: Assignment,
    pub(crate) relay: Relay,
    pub(crate) inlets: Vec<InletSocket>,
    pub(crate) outlets: Vec<OutletSocket>,
    pub(crate) sources: BTreeMap<BlockIndex, Source>,
    pub(crate) sinks: BTreeMap<BlockIndex, (Sink, SharedWriter)>,
    pub(crate) reads: Lane<ReadJob>,
    pub(crate) ahead: ReadAhead,
    pub(crate) writes: Lane<WriteJob>,
    pub(crate) reports: TaskReports,
    pub(crate) traffic: Traffic,
    pub(crate) rendezvous: Rendezvous,
    pub(crate) buffers: Buffers,
}

/// Why driving ended.
enum End {
    Finished,
    Stopped,
    Failed(Report),
}

/// Whether the relay wanted anything.
enum Acted {
    Nothing,
    Something,
    Finished,
}

/// What is watched for between ticks.
struct Watch {
    ticks: Interval,
    stall: Duration,
    reported: u32,
    complained: Instant,
    /// When the last tick came.
    seen: Instant,
}

impl Driver {
    /// Runs until all is delivered, or `stop` fires; returns the slices that were delivered and written.
    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<()>) -> SliceSet {
        let mut watch = Watch::new(self.assignment.stall_ms);
        let end = poll_fn(|cx| self.poll(cx, &mut stop, &mut watch)).await;
        self.settle().await;
        match end {
            End::Finished if !self.sinks.is_empty() => self.reports.send(Report::Delivered),
            End::Finished | End::Stopped => {}
            End::Failed(report) => {
                self.reports.send(report);
                let _ = tokio::time::timeout(PARK_LIMIT, stop).await;
            }
        }
        let delivered = self.relay.delivered().clone();
        self.buffers.give(self.relay.into_pool());
        delivered
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stop: &mut oneshot::Receiver<()>,
        watch: &mut Watch,
    ) -> Poll<End> {
        if Pin::new(stop).poll(cx).is_ready() {
            return Poll::Ready(End::Stopped);
        }
        while watch.ticks.poll_tick(cx).is_ready() {
            self.watch(watch);
        }
        match self.poll_all(cx) {
            Ok(true) => Poll::Ready(End::Finished),
            Ok(false) => Poll::Pending,
            Err(report) => Poll::Ready(End::Failed(report)),
        }
    }

    /// Moves whatever can move until nothing can; whether all is done.
    fn poll_all(&mut self, cx: &mut Context<'_>) -> Result<bool, Report> {
        loop {
            let now = Instant::now();
            let mut moved = self.poll_reads(cx)?;
            moved |= self.poll_inlets(cx, now)?;
            match self.act(now)? {
                Acted::Finished => return Ok(true),
                // What was asked for is begun in the next turn: nothing else would wake this task for it.
                Acted::Something => moved = true,
                Acted::Nothing => {}
            }
            moved |= self.poll_outlets(cx, now)?;
            moved |= self.poll_writes(cx)?;
            if !moved {
                return Ok(false);
            }
        }
    }

    fn poll_reads(&mut self, cx: &mut Context<'_>) -> Result<bool, Report> {
        let mut moved = false;
        while let Poll::Ready(done) = self.reads.poll_done(cx) {
            done.map_err(bad_block)?.into_iter().try_for_each(|job| self.has_read(job))?;
            moved = true;
        }
        Ok(moved)
    }

    fn has_read(&mut self, job: ReadJob) -> Result<(), Report> {
        for (local, buffer) in (job.local..).zip(job.buffers) {
            self.traffic.read(buffer.len());
            let handled = self.relay.handle_read(job.slice, local, buffer);
            handled.map_err(|error| Report::Refused { detail: error.to_string() })?;
        }
        Ok(())
    }

    fn has_written(&mut self, job: WriteJob) {
        self.traffic.delivered(job.buffer.len());
        self.relay.handle_delivered(job.slice, job.buffer);
    }

    fn poll_inlets(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Report> {
        let mut moved = false;
        for index in 0..self.inlets.len() {
            while self.relay.wants(index)
                && let Some(due) = self.relay.due_bytes(index)
            {
                let relay = &mut self.relay;
                let polled = self.inlets[index].poll_frame(cx, now, due, &mut |bytes| relay.buffer(bytes));
                let Poll::Ready(result) = polled else { break };
                let from = self.assignment.inlets[index].from;
                let (header, buffer) = result.map_err(|error| broken(from, error))?;
                self.traffic.received(buffer.len());
                self.relay
                    .handle_received(index, header.stream, header.slice, buffer)
                    .map_err(|error| bad_frame(from, &error))?;
                moved = true;
            }
            if self.relay.inlet_is_complete(index) {
                self.release_inlet(index);
            }
        }
        Ok(moved)
    }

    /// Does what the relay asks for.
    fn act(&mut self, now: Instant) -> Result<Acted, Report> {
        let mut acted = Acted::Nothing;
        while let Some(action) = self.relay.poll() {
            match action {
                Action::ReadAhead { ranges } => {
                    let ranges = ranges.into_iter();
                    let ranges = ranges.map(|range| (self.sources[&range.block].clone(), range.bytes));
                    self.ahead.announce(ranges);
                }
                Action::Read { slice, locals, range } => {
                    let bytes = (range.bytes.end - range.bytes.start) as usize / locals.len();
                    let buffers = locals.clone().map(|_| self.relay.buffer(bytes)).collect();
                    let source = self.sources[&range.block].clone();
                    let offset = range.bytes.start;
                    let job = ReadJob { slice, local: locals.start, source, offset, buffers };
                    match self.reads.push(job).map_err(bad_block)? {
                        Some(job) => self.has_read(job)?,
                        None => self.ahead.miss(),
                    }
                }
                Action::Send { outlet, lane, stream, slice, buffer } => {
                    self.outlets[outlet].push(now, lane, stream, slice, buffer);
                }
                Action::Deliver { output, slice, buffer } => {
                    let sub_block = self.assignment.outputs[output as usize];
                    let offset = self.offset(sub_block.sub) + self.assignment.geometry.span(slice).start;
                    let (sink, writer) = &self.sinks[&sub_block.block];
                    let bytes = sink.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
                    let (block, writer) = (sink.id.clone(), writer.clone());
                    let job = WriteJob { slice, block, writer, offset, bytes, buffer };
                    if let Some(job) = self.writes.push(job).map_err(sink_failed)? {
                        self.has_written(job);
                    }
                }
                Action::Finished => return Ok(Acted::Finished),
            }
            acted = Acted::Something;
        }
        Ok(acted)
    }

    fn offset(&self, sub: u16) -> u64 {
        u64::from(sub) * self.assignment.sub_block_bytes
    }

    fn poll_outlets(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, Report> {
        let mut moved = false;
        for index in 0..self.outlets.len() {
            if self.outlets[index].is_gone() {
                continue;
            }
            while let Poll::Ready(sent) = self.outlets[index].poll_sent(cx, now) {
                let to = self.assignment.outlets[index].to;
                let (slice, buffer) =
                    sent.map_err(|error| Report::Closed { peer: to, detail: error.to_string() })?;
                self.traffic.sent(buffer.len());
                self.relay.handle_sent(slice, buffer);
                moved = true;
            }
            if self.relay.outlet_is_complete(index) && self.outlets[index].is_empty() {
                self.release_outlet(index);
            }
        }
        Ok(moved)
    }

    /// Gives up the connection of a complete inlet. One that the sender dialled is not used again: what comes
    /// after the last frame would be its next greeting, and reading ahead may have taken some of it.
    fn release_inlet(&mut self, index: usize) {
        let dialled = self.assignment.inlets[index].dial.as_deref();
        if let (Some(stream), Some(address)) = (self.inlets[index].take(), dialled) {
            self.rendezvous.rest(stream, Some(address));
        }
    }

    /// Gives up the connection of a complete outlet, unless this end dialled, see above.
    fn release_outlet(&mut self, index: usize) {
        let stream = self.outlets[index].take();
        if let (Some(stream), None) = (stream, &self.assignment.outlets[index].dial) {
            self.rendezvous.rest(stream, None);
        }
    }

    fn poll_writes(&mut self, cx: &mut Context<'_>) -> Result<bool, Report> {
        let mut moved = false;
        while let Poll::Ready(done) = self.writes.poll_done(cx) {
            done.map_err(sink_failed)?.into_iter().for_each(|job| self.has_written(job));
            moved = true;
        }
        Ok(moved)
    }

    /// Waits for writes that have begun, so that what is counted as delivered is exact and nothing touches
    /// a sink after this.
    async fn settle(&mut self) {
        self.reads.drop_queue();
        self.writes.drop_queue();
        while !self.writes.is_idle() {
            if let Ok(done) = poll_fn(|cx| self.writes.poll_done(cx)).await {
                done.into_iter().for_each(|job| self.relay.handle_delivered(job.slice, job.buffer));
            }
        }
    }

    fn watch(&mut self, watch: &mut Watch) {
        let now = Instant::now();
        let delivered = self.relay.delivered().len();
        if delivered != watch.reported && !self.sinks.is_empty() {
            watch.reported = delivered;
            self.reports.send(Report::Progress { slices: delivered });
        }
        if now >= watch.seen + ASLEEP {
            // This process itself did not run for a while: nobody else is to blame for that.
            self.inlets.iter_mut().for_each(|inlet| inlet.moved = now);
            self.outlets.iter_mut().for_each(|outlet| outlet.moved = now);
        }
        watch.seen = now;
        let on = self.waiting_on(now, watch.stall);
        if !on.is_empty() && now >= watch.complained + watch.stall {
            watch.complained = now;
            self.reports.send(Report::Waiting { on });
        }
    }

    /// The nodes that have let this one wait for too long.
    fn waiting_on(&mut self, now: Instant, stall: Duration) -> Vec<NodeId> {
        let mut on = Vec::new();
        for (index, inlet) in self.inlets.iter_mut().enumerate() {
            if !self.relay.wants(index) {
                inlet.moved = now;
            } else if now >= inlet.moved + stall {
                on.push(self.assignment.inlets[index].from);
            }
        }
        for (index, outlet) in self.outlets.iter_mut().enumerate() {
            if outlet.is_empty() {
                outlet.moved = now;
            } else if now >= outlet.moved + stall {
                on.push(self.assignment.outlets[index].to);
            }
        }
        on.sort_unstable();
        on.dedup();
        on
    }
}

impl Watch {
    fn new(stall_ms: u32) -> Self {
        let mut ticks = interval(WATCH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let stall = Duration::from_millis(stall_ms.into());
        let now = Instant::now();
        Self { ticks, stall, reported: 0, complained: now, seen: now }
    }
}

fn broken(from: NodeId, error: SocketError) -> Report {
    match error {
        SocketError::Closed(error) => Report::Closed { peer: from, detail: error.to_string() },
        SocketError::Bad(error) => Report::BadFrame { from, detail: error.to_string() },
    }
}

fn bad_frame(from: NodeId, error: &RelayError) -> Report {
    Report::BadFrame { from, detail: error.to_string() }
}

fn bad_block(DiskError { block, error }: DiskError) -> Report {
    Report::BadBlock { block, problem: block_problem(&error) }
}

/// What the coordinator is told of a block that cannot be read.
pub(crate) fn block_problem(error: &BlockError) -> BlockProblem {
    match error {
        BlockError::Missing { .. } => BlockProblem::Missing,
        BlockError::Corrupt { detail, .. } | BlockError::Other { detail, .. } => {
            BlockProblem::Corrupt(detail.clone())
        }
        BlockError::Io { source, .. } if is_of_the_machine(source) => {
            BlockProblem::Unavailable(error.to_string())
        }
        other => BlockProblem::Unreadable(other.to_string()),
    }
}

/// Whether an error says something of the machine at this moment, and nothing of the file.
fn is_of_the_machine(error: &io::Error) -> bool {
    let passing =
        [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN, libc::EINTR, libc::EIO];
    error.raw_os_error().is_some_and(|code| passing.contains(&code))
        || matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted)
}

fn sink_failed(DiskError { block, error }: DiskError) -> Report {
    sink_report(block, &error)
}

/// The report on a sink that cannot be written.
pub(crate) fn sink_report(block: BlockId, error: &BlockError) -> Report {
    let problem = match error {
        BlockError::NoSpace { .. } => SinkProblem::NoSpace,
        other => SinkProblem::Io(other.to_string()),
    };
    Report::SinkFailed { block, problem }
}
