//! The sockets and the disk of a plan that runs on a node.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::edge::{Direction, Greeting};
use repair::{Action, Assignment, EdgeKey, Meter, NodeId, Part, Report, Sink};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use crate::disk::{DiskError, DiskQueue, ReadAhead, ReadJob, SharedDelivery, Source, WriteJob};
use crate::engine::Node;
use crate::opening::Opened;
use crate::problems::{block_problem, sink_report};
use crate::rendezvous::{Rendezvous, Terms};
use crate::socket::{Connecting, InletSocket, OutletSocket, SocketError};
use crate::throttle::Allowance;
use crate::traffic::Traffic;

/// See the module's documentation.
pub(crate) struct Motion {
    assignment: Arc<Assignment>,
    inlets: Vec<InletSocket>,
    outlets: Vec<OutletSocket>,
    sources: BTreeMap<BlockIndex, Source>,
    sinks: BTreeMap<BlockIndex, (Sink, SharedDelivery)>,
    reads: DiskQueue<ReadJob>,
    ahead: ReadAhead,
    writes: DiskQueue<WriteJob>,
    traffic: Traffic,
    rendezvous: Rendezvous,
    allowance: Allowance,
    /// Reads and writes that the cap of the disk holds back.
    held_reads: VecDeque<ReadJob>,
    held_writes: VecDeque<WriteJob>,
    /// When asking the caps again is worthwhile.
    ask_again: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Room for whole blocks, if it moves them.
    _memory: Option<OwnedSemaphorePermit>,
}

impl Motion {
    /// Dials and awaits the edges of an assignment.
    pub(crate) fn new(
        assignment: Arc<Assignment>,
        node: &Node,
        memory: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let rendezvous = node.rendezvous.clone();
        let inlets = assignment.inlets.iter().map(|inlet| {
            let (dial, tls_name) = (inlet.dial.clone(), inlet.tls_name.clone());
            InletSocket::new(connect(&rendezvous, &assignment, inlet.key, dial, tls_name, Direction::Receive))
        });
        let outlets = assignment.outlets.iter().map(|outlet| {
            let (dial, tls_name) = (outlet.dial.clone(), outlet.tls_name.clone());
            OutletSocket::new(connect(&rendezvous, &assignment, outlet.key, dial, tls_name, Direction::Send))
        });
        Self {
            inlets: inlets.collect(),
            outlets: outlets.collect(),
            sources: BTreeMap::new(),
            sinks: BTreeMap::new(),
            reads: DiskQueue::new(),
            ahead: ReadAhead::default(),
            writes: DiskQueue::new(),
            traffic: node.traffic.clone(),
            rendezvous: node.rendezvous.clone(),
            allowance: Allowance::new(node.throttle.clone(), Some(assignment.job), assignment.class),
            held_reads: VecDeque::new(),
            held_writes: VecDeque::new(),
            ask_again: None,
            timer: None,
            _memory: memory,
            assignment,
        }
    }

    pub(crate) fn use_opened(&mut self, Opened { sources, sinks }: Opened) {
        (self.sources, self.sinks) = (sources, sinks);
    }

    // ---- caps ----

    /// Bytes that may move; `None` if the part is to wait, which it will be woken from.
    fn ask(&mut self, meter: Meter, part: &mut Part) -> Option<usize> {
        match self.allowance.ask(meter) {
            Ok(bytes) => Some(bytes),
            Err(wait) => {
                part.handle_limited();
                self.ask_again = Some(self.ask_again.map_or(wait, |other| other.min(wait)));
                None
            }
        }
    }

    /// Waits until asking the caps again is worthwhile, if something was held back.
    pub(crate) fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(wait) = self.ask_again.take() else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        timer.as_mut().reset(Instant::now() + wait);
        timer.as_mut().poll(cx).is_ready()
    }

    // ---- disk ----

    fn read(&mut self, job: ReadJob, part: &mut Part, now: Duration) {
        self.allowance.spend(Meter::Disk, job.buffers.iter().map(|buffer| buffer.len()).sum());
        match self.reads.push(job) {
            Ok(Some(job)) => self.has_read(job, part, now),
            Ok(None) => self.ahead.miss(),
            Err(error) => part.fail(bad_block(error), now),
        }
    }

    fn write(&mut self, job: WriteJob, part: &mut Part, now: Duration) {
        self.allowance.spend(Meter::Disk, job.bytes);
        match self.writes.push(job) {
            Ok(Some(job)) => self.has_written(job, part),
            Ok(None) => {}
            Err(error) => part.fail(sink_failed(error), now),
        }
    }

    /// Begins what the cap of the disk held back; deliveries first, since they free what reads fill.
    fn release_held(&mut self, part: &mut Part, now: Duration) -> bool {
        let mut moved = false;
        while !self.held_writes.is_empty() && self.ask(Meter::Disk, part).is_some() {
            let job = self.held_writes.pop_front().expect("just looked");
            self.write(job, part, now);
            moved = true;
        }
        while !self.held_reads.is_empty() && self.ask(Meter::Disk, part).is_some() {
            let job = self.held_reads.pop_front().expect("just looked");
            self.read(job, part, now);
            moved = true;
        }
        moved
    }

    pub(crate) fn poll_reads(&mut self, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        let mut moved = self.release_held(part, now);
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
            self.traffic.read(buffer.len());
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
        self.traffic.delivered(job.buffer.len());
        part.handle_delivered(job.slice, job.buffer);
    }

    /// Nothing is read or written any more that has not begun.
    pub(crate) fn drop_queued(&mut self) {
        self.held_reads.clear();
        self.held_writes.clear();
        self.reads.drop_queue();
        self.writes.drop_queue();
    }

    /// Waits for writes that have begun, so that what is counted as delivered is exact and nothing touches a sink after
    /// this.
    pub(crate) fn poll_settled(&mut self, cx: &mut Context<'_>, part: &mut Part) -> Poll<()> {
        while !self.writes.is_idle() {
            if let Ok(done) = ready!(self.writes.poll_done(cx)) {
                done.into_iter().for_each(|job| self.has_written(job, part));
            }
        }
        Poll::Ready(())
    }

    // ---- what the relay asks for ----

    pub(crate) fn act(&mut self, action: Action, part: &mut Part, now: Duration) {
        match action {
            Action::ReadAhead { ranges } => {
                let ranges = ranges.into_iter();
                let ranges = ranges.map(|range| (self.sources[&range.block].clone(), range.bytes));
                self.ahead.announce(ranges);
            }
            Action::Read { slice, locals, range } => {
                let bytes = (range.bytes.end - range.bytes.start) as usize / locals.len();
                let buffers = locals.clone().map(|_| part.buffer(bytes)).collect();
                let source = self.sources[&range.block].clone();
                let offset = range.bytes.start;
                let job = ReadJob { slice, local: locals.start, source, offset, buffers };
                if self.held_reads.is_empty() && self.ask(Meter::Disk, part).is_some() {
                    self.read(job, part, now);
                } else {
                    self.held_reads.push_back(job);
                }
            }
            Action::Send { outlet, lane, stream, slice, buffer } => {
                self.outlets[outlet].push(lane, stream, slice, buffer);
            }
            Action::Deliver { output, slice, buffer } => {
                let sub_block = self.assignment.outputs[output as usize];
                let offset = u64::from(sub_block.sub) * self.assignment.sub_block_bytes
                    + self.assignment.geometry.span(slice).start;
                let (sink, writer) = &self.sinks[&sub_block.block];
                let bytes = sink.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
                let (block, writer) = (sink.id.clone(), writer.clone());
                let job = WriteJob { slice, block, writer, offset, bytes, buffer };
                if self.held_writes.is_empty() && self.ask(Meter::Disk, part).is_some() {
                    self.write(job, part, now);
                } else {
                    self.held_writes.push_back(job);
                }
            }
            Action::Finished => unreachable!("the part keeps it to itself"),
        }
    }

    // ---- sockets ----

    pub(crate) fn poll_inlets(&mut self, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        let mut moved = false;
        for index in 0..self.inlets.len() {
            while let Some(due) = part.due_bytes(index) {
                // An edge on which nothing comes is not held back by a cap.
                let is_held = self.allowance.is_limited() && self.inlets[index].could_receive(cx);
                let granted = if is_held { self.ask(Meter::Down, part) } else { Some(usize::MAX) };
                let Some(granted) = granted else {
                    part.handle_inlet_moved(index, now);
                    break;
                };
                let inlet = &mut self.inlets[index];
                inlet.grant(granted);
                let polled = inlet.poll_frame(cx, due, &mut |bytes| part.buffer(bytes));
                let bytes = inlet.take_moved();
                if bytes > 0 {
                    self.allowance.spend(Meter::Down, bytes);
                    part.handle_inlet_moved(index, now);
                    moved |= granted != usize::MAX;
                }
                let Poll::Ready(result) = polled else { break };
                moved = true;
                match result {
                    Ok((header, buffer)) => {
                        self.traffic.received(buffer.len());
                        part.handle_received(index, header.stream, header.slice, buffer, now);
                    }
                    Err(error) => part.fail(broken(self.assignment.inlets[index].from, error), now),
                }
            }
            if part.inlet_is_complete(index) {
                self.release_inlet(index);
            }
        }
        moved
    }

    pub(crate) fn poll_outlets(&mut self, cx: &mut Context<'_>, part: &mut Part, now: Duration) -> bool {
        let mut moved = false;
        for index in 0..self.outlets.len() {
            if self.outlets[index].is_gone() {
                continue;
            }
            loop {
                let is_held = self.allowance.is_limited() && self.outlets[index].could_send(cx);
                let granted = if is_held { self.ask(Meter::Up, part) } else { Some(usize::MAX) };
                let Some(granted) = granted else {
                    part.handle_outlet_moved(index, now);
                    break;
                };
                self.outlets[index].grant(granted);
                let polled = self.outlets[index].poll_sent(cx);
                let bytes = self.outlets[index].take_moved();
                if bytes > 0 {
                    self.allowance.spend(Meter::Up, bytes);
                    part.handle_outlet_moved(index, now);
                    moved |= granted != usize::MAX;
                }
                let Poll::Ready(sent) = polled else { break };
                moved = true;
                match sent {
                    Ok((slice, buffer)) => {
                        self.traffic.sent(buffer.len());
                        part.handle_sent(index, slice, buffer, now);
                    }
                    Err(error) => {
                        let peer = self.assignment.outlets[index].to;
                        part.fail(Report::Closed { peer, detail: error.to_string() }, now);
                        return true;
                    }
                }
            }
            if part.outlet_is_complete(index) && self.outlets[index].is_empty() {
                self.release_outlet(index);
            }
        }
        moved
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
}

/// The connection of an edge: dialled, or awaited from the other end. `ours` is what this end does.
fn connect(
    rendezvous: &Rendezvous,
    assignment: &Assignment,
    key: EdgeKey,
    address: Option<String>,
    tls_name: Option<String>,
    ours: Direction,
) -> Connecting {
    match address {
        Some(address) => {
            let greeting = Greeting { direction: ours, job: assignment.job, epoch: assignment.epoch, key };
            Box::pin(rendezvous.clone().dial(address, tls_name, greeting))
        }
        None => {
            let theirs = match ours {
                Direction::Receive => Direction::Send,
                Direction::Send => Direction::Receive,
            };
            let coming = rendezvous.expect(key, Terms { direction: theirs, tls_name });
            Box::pin(async move {
                let stream = coming.await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                // It was taken on the listener's thread; from now on this job's thread polls it.
                stream.moved_here()
            })
        }
    }
}

fn broken(from: NodeId, error: SocketError) -> Report {
    match error {
        SocketError::Closed(error) => Report::Closed { peer: from, detail: error.to_string() },
        SocketError::Bad(error) => Report::BadFrame { from, detail: error.to_string() },
    }
}

fn bad_block(DiskError { block, error }: DiskError) -> Report {
    Report::BadBlock { block, problem: block_problem(&error) }
}

fn sink_failed(DiskError { block, error }: DiskError) -> Report {
    sink_report(block, &error)
}
