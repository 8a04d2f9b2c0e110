//! The block I/O of a running plan on one node: reads of local blocks, and writes of blocks that are
//! delivered here.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use codes::BlockIndex;
use repair::{Action, Assignment, Gathering, Meter, Part, Report, Sink};

use crate::background_pacing::DiskBatches;
use crate::cap_gate::CapGate;
use crate::disk::{DiskError, DiskQueue, ReadAhead, ReadJob, SharedDelivery, Source, WriteJob};
use crate::error_reports::{block_problem, sink_report};
use crate::opening::Opened;
use crate::traffic::Counting;

/// Performs the block I/O of one running plan.
pub(crate) struct BlockIo {
    sources: BTreeMap<BlockIndex, Source>,
    sinks: BTreeMap<BlockIndex, (Sink, SharedDelivery)>,
    reads: DiskQueue<ReadJob>,
    ahead: ReadAhead,
    writes: DiskQueue<WriteJob>,
    /// Collects small deliveries into larger writes.
    gathering: Gathering,
    /// Reads and writes that wait because the cap on the disk's rate is used up.
    held_reads: VecDeque<ReadJob>,
    held_writes: VecDeque<WriteJob>,
    counting: Counting,
}

impl BlockIo {
    pub(crate) fn new(
        assignment: &Assignment,
        counting: Counting,
        background_reads: Option<DiskBatches>,
    ) -> Self {
        Self {
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            reads: DiskQueue::new(counting.traffic(), background_reads),
            ahead: ReadAhead::default(),
            writes: DiskQueue::new(counting.traffic(), None),
            gathering: Gathering::new(assignment),
            held_reads: VecDeque::new(),
            held_writes: VecDeque::new(),
            counting,
        }
    }

    pub(crate) fn use_opened(&mut self, Opened { sources, sinks }: Opened) {
        (self.sources, self.sinks) = (sources, sinks);
    }

    fn read(&mut self, job: ReadJob, caps: &mut CapGate, part: &mut Part, now: Duration) {
        caps.spend(Meter::Disk, job.transfer.bytes());
        match self.reads.push(job) {
            Ok(Some(job)) => self.has_read(job, part, now),
            Ok(None) => self.ahead.miss(),
            Err(error) => part.fail(bad_block(error), now),
        }
    }

    fn write(&mut self, job: WriteJob, caps: &mut CapGate, part: &mut Part, now: Duration) {
        caps.spend(Meter::Disk, job.transfer.bytes());
        match self.writes.push(job) {
            Ok(Some(job)) => self.has_written(job, part),
            Ok(None) => {}
            Err(error) => part.fail(sink_failed(error), now),
        }
    }

    /// Starts the waiting reads and writes that the disk's cap now admits; returns whether it started any.
    /// Writes go first, because they free the buffers that reads fill.
    fn release_held(&mut self, caps: &mut CapGate, part: &mut Part, now: Duration) -> bool {
        let mut moved = false;
        while !self.held_writes.is_empty() && caps.ask(Meter::Disk, part).is_some() {
            let job = self.held_writes.pop_front().expect("just looked");
            self.write(job, caps, part, now);
            moved = true;
        }
        while !self.held_reads.is_empty() && caps.ask(Meter::Disk, part).is_some() {
            let job = self.held_reads.pop_front().expect("just looked");
            self.read(job, caps, part, now);
            moved = true;
        }
        moved
    }

    pub(crate) fn poll_reads(
        &mut self,
        cx: &mut Context<'_>,
        caps: &mut CapGate,
        part: &mut Part,
        now: Duration,
    ) -> bool {
        let mut moved = self.release_held(caps, part, now);
        while let Poll::Ready(done) = self.reads.poll_done(cx) {
            match done {
                Ok(done) => done.into_iter().for_each(|job| self.has_read(job, part, now)),
                Err(error) => part.fail(bad_block(error), now),
            }
            moved = true;
        }
        moved
    }

    fn has_read(&mut self, job: ReadJob, part: &mut Part, now: Duration) {
        for (local, buffer) in (job.local..).zip(job.buffers) {
            self.counting.read(buffer.len());
            part.handle_read(job.slice, local, buffer, now);
        }
    }

    pub(crate) fn poll_writes(&mut self, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        let mut moved = false;
        while let Poll::Ready(done) = self.writes.poll_done(cx) {
            match done {
                Ok(done) => done.into_iter().for_each(|job| self.has_written(job, part)),
                Err(error) => part.fail(sink_failed(error), now),
            }
            moved = true;
        }
        moved
    }

    fn has_written(&mut self, job: WriteJob, part: &mut Part) {
        for buffer in job.buffers {
            self.counting.delivered(buffer.len());
            part.handle_delivered(job.slice, buffer);
        }
    }

    /// Drops all reads and writes that have not begun.
    pub(crate) fn drop_queued(&mut self) {
        self.held_reads.clear();
        self.held_writes.clear();
        self.gathering.clear();
        self.reads.drop_queue();
        self.writes.drop_queue();
    }

    /// Waits for writes in flight. Afterwards the count of delivered slices is exact, and no write can touch
    /// a sink any more.
    pub(crate) fn poll_settled(&mut self, cx: &mut Context<'_>, part: &mut Part) -> Poll<()> {
        while !self.writes.is_idle() {
            if let Ok(done) = ready!(self.writes.poll_done(cx)) {
                done.into_iter().for_each(|job| self.has_written(job, part));
            }
        }
        Poll::Ready(())
    }

    /// Carries out a read, a read-ahead or a delivery that the relay requests.
    pub(crate) fn act(&mut self, action: Action, caps: &mut CapGate, part: &mut Part, now: Duration) {
        match action {
            Action::ReadAhead { ranges } => {
                let ranges = ranges.into_iter();
                let ranges = ranges.map(|range| (self.sources[&range.block].clone(), range.bytes));
                self.ahead.announce(ranges);
            }
            Action::Read { slice, locals, transfer } => {
                let buffers = locals.clone().map(|_| part.buffer(transfer.buffer_bytes())).collect();
                let source = self.sources[&transfer.block()].clone();
                let job = ReadJob { slice, local: locals.start, source, transfer, buffers };
                if self.held_reads.is_empty() && caps.ask(Meter::Disk, part).is_some() {
                    self.read(job, caps, part, now);
                } else {
                    self.held_reads.push_back(job);
                }
            }
            Action::Deliver { output, slice, buffer } => {
                let Some((transfer, buffers)) = self.gathering.add(output, slice, buffer) else { return };
                let (sink, writer) = &self.sinks[&transfer.block()];
                let (block, block_bytes, writer) = (sink.id.clone(), sink.bytes, writer.clone());
                let job = WriteJob { slice, block, writer, transfer, block_bytes, buffers };
                if self.held_writes.is_empty() && caps.ask(Meter::Disk, part).is_some() {
                    self.write(job, caps, part, now);
                } else {
                    self.held_writes.push_back(job);
                }
            }
            Action::Send { .. } => unreachable!("edges take it"),
            Action::Finished => unreachable!("the part keeps it to itself"),
        }
    }
}

fn bad_block(DiskError { block, error }: DiskError) -> Report {
    Report::BadBlock { block, problem: block_problem(&error) }
}

fn sink_failed(DiskError { block, error }: DiskError) -> Report {
    sink_report(block, &error)
}
