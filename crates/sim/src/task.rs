//! What a helper does around a relay: sockets, disk, watch. Mirrors `helper`'s driver step by step.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use repair::wire::edge::{FrameHeader, HEADER_BYTES};
use repair::{
    Action, Assignment, BlockId, BlockRange, Buffer, BufferPool, NodeId, Pacing, Relay, RelayError, Report,
    SinkProblem,
};

use crate::disk::Disk;
use crate::edge::EdgeId;
use crate::event::{NodeEvent, TaskId};
use crate::scene::Scene;

/// How often progress is reported and stalls are looked for, as in `helper`.
const WATCH_EVERY: Duration = Duration::from_millis(200);

/// A relay and all that moves its bytes.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) assignment: Assignment,
    pub(crate) relay: Relay,
    node: NodeId,
    inlets: Vec<Inbound>,
    outlets: Vec<Outbound>,
    state: State,
    reported: u32,
    complained: Duration,
    /// Buffers that are out of the relay, by slice.
    out: BTreeMap<u32, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Finished,
    /// After an error: edges stay open, so that the neighbours wait and the culprit stands out.
    Parked,
}

#[derive(Debug)]
struct Inbound {
    edge: EdgeId,
    moved: Duration,
    closed: Option<&'static str>,
}

#[derive(Debug)]
struct Outbound {
    edge: EdgeId,
    queue: VecDeque<Frame>,
    /// A frame larger than the kernel's buffers: it is written when the receiver has taken it.
    too_large: Option<(u32, Buffer)>,
    moved: Duration,
    closed: Option<&'static str>,
}

#[derive(Debug)]
struct Frame {
    lane: u16,
    stream: u16,
    slice: u32,
    buffer: Buffer,
}

impl Task {
    /// Starts an assignment; its edges must be made known by [`edges`](Self::edges).
    pub(crate) fn new(
        id: TaskId,
        node: NodeId,
        assignment: Assignment,
        budget_bytes: usize,
        scene: &mut Scene,
    ) -> Result<Self, RelayError> {
        let relay = Relay::new(&assignment, budget_bytes, BufferPool::default())?;
        let (epoch, moved) = (assignment.epoch, scene.now);
        let inlets = assignment
            .inlets
            .iter()
            .map(|inlet| EdgeId { epoch, from: inlet.from, to: node })
            .map(|edge| Inbound { edge, moved, closed: None });
        let outlets = assignment
            .outlets
            .iter()
            .map(|outlet| EdgeId { epoch, from: node, to: outlet.to })
            .map(|edge| Outbound { edge, queue: VecDeque::new(), too_large: None, moved, closed: None });
        let (inlets, outlets) = (inlets.collect(), outlets.collect());
        scene.after_for(WATCH_EVERY, node, NodeEvent::Watch { task: id });
        Ok(Self {
            id,
            relay,
            node,
            inlets,
            outlets,
            state: State::Running,
            reported: 0,
            complained: scene.now,
            out: BTreeMap::new(),
            assignment,
        })
    }

    pub(crate) fn edges(&self) -> Vec<EdgeId> {
        let inlets = self.inlets.iter().map(|inlet| inlet.edge);
        inlets.chain(self.outlets.iter().map(|outlet| outlet.edge)).collect()
    }

    /// Moves whatever can move until nothing can.
    pub(crate) fn pump(&mut self, disk: &mut Disk, scene: &mut Scene) {
        while self.state == State::Running {
            let mut moved = self.take_frames(scene);
            moved |= self.act(disk, scene);
            moved |= self.send_frames(scene);
            if !moved {
                return self.notice_closed(scene);
            }
        }
    }

    pub(crate) fn read_done(&mut self, slice: u32, local: u16, buffer: Buffer, scene: &mut Scene) {
        self.give_back(slice);
        if self.state == State::Running
            && let Err(error) = self.relay.handle_read(slice, local, buffer)
        {
            scene.violate(format!("{} refuses a read: {error}", self.node));
        }
    }

    pub(crate) fn write_done(
        &mut self,
        slice: u32,
        block: u16,
        written: bool,
        buffer: Buffer,
        scene: &mut Scene,
    ) {
        self.give_back(slice);
        if self.state != State::Running {
            return;
        }
        if written {
            scene.slices_delivered += 1;
            return self.relay.handle_delivered(slice, buffer);
        }
        let sink =
            self.assignment.sinks.iter().find(|sink| sink.index.0 == block).expect("it was written to");
        let block = sink.id.clone();
        self.fail(Report::SinkFailed { block, problem: SinkProblem::NoSpace }, scene);
    }

    pub(crate) fn sent(&mut self, slice: u32, buffer: Buffer) {
        self.give_back(slice);
        if self.state == State::Running {
            self.relay.handle_sent(slice, buffer);
        }
    }

    /// The block that local number `local` of a slice's task is part of.
    pub(crate) fn block_of(&self, slice: u32, local: u16) -> BlockId {
        let lane = usize::from(self.assignment.lane_of(slice));
        let task = self.assignment.lanes[lane].as_ref().expect("the relay asked for it");
        let index = task.reads[usize::from(local)].block;
        let block = self.assignment.locals.iter().find(|local| local.index == index);
        block.expect("the relay checked").id.clone()
    }

    /// Something happened to an edge; the caller pumps afterwards.
    pub(crate) fn edge_moved(&mut self, edge: EdgeId, scene: &mut Scene) {
        let Some(outlet) = self.outlets.iter_mut().find(|outlet| outlet.edge == edge) else { return };
        outlet.moved = scene.now;
        if scene.edge(edge).is_some_and(|edge| edge.under_way == 0)
            && let Some((slice, buffer)) = outlet.too_large.take()
        {
            self.sent(slice, buffer);
        }
    }

    pub(crate) fn edge_closed(&mut self, edge: EdgeId, detail: &'static str) {
        self.inlets
            .iter_mut()
            .filter(|inlet| inlet.edge == edge)
            .for_each(|inlet| inlet.closed = Some(detail));
        self.outlets.iter_mut().filter(|out| out.edge == edge).for_each(|out| out.closed = Some(detail));
    }

    /// Reports and parks.
    pub(crate) fn fail(&mut self, report: Report, scene: &mut Scene) {
        if self.state == State::Running {
            self.state = State::Parked;
            scene.report(self.node, self.assignment.epoch, report);
        }
    }

    pub(crate) fn watch(&mut self, scene: &mut Scene) {
        if self.state != State::Running {
            return;
        }
        scene.after_for(WATCH_EVERY, self.node, NodeEvent::Watch { task: self.id });
        let slices = self.relay.delivered().len();
        if slices != self.reported && !self.assignment.sinks.is_empty() {
            self.reported = slices;
            scene.report(self.node, self.assignment.epoch, Report::Progress { slices });
        }
        let stall = Duration::from_millis(self.assignment.stall_ms.into());
        let on = self.waiting_on(scene.now, stall);
        if !on.is_empty() && scene.now >= self.complained + stall {
            self.complained = scene.now;
            scene.report(self.node, self.assignment.epoch, Report::Waiting { on });
        }
    }

    fn waiting_on(&mut self, now: Duration, stall: Duration) -> Vec<NodeId> {
        let mut on = Vec::new();
        for (index, inlet) in self.inlets.iter_mut().enumerate() {
            if !self.relay.wants(index) {
                inlet.moved = now;
            } else if now >= inlet.moved + stall {
                on.push(inlet.edge.from);
            }
        }
        for outlet in &mut self.outlets {
            if outlet.queue.is_empty() && outlet.too_large.is_none() {
                outlet.moved = now;
            } else if now >= outlet.moved + stall {
                on.push(outlet.edge.to);
            }
        }
        on.sort_unstable();
        on.dedup();
        on
    }

    // ---- sockets ----

    fn take_frames(&mut self, scene: &mut Scene) -> bool {
        let mut moved = false;
        for index in 0..self.inlets.len() {
            while self.state == State::Running
                && self.relay.wants(index)
                && let Some(frame) = scene.take_frame(self.inlets[index].edge)
            {
                self.inlets[index].moved = scene.now;
                moved = true;
                if let Err(detail) = self.take_frame(index, &frame) {
                    let from = self.inlets[index].edge.from;
                    self.fail(Report::BadFrame { from, detail }, scene);
                }
            }
        }
        moved
    }

    fn take_frame(&mut self, index: usize, frame: &[u8]) -> Result<(), String> {
        let (head, payload) = frame.split_at(HEADER_BYTES);
        let head: &[u8; HEADER_BYTES] = head.try_into().expect("a header's bytes");
        let limit = self.assignment.geometry.slice_bytes;
        let header = FrameHeader::decode(head, limit).map_err(|error| error.to_string())?;
        if self.relay.due_bytes(index) != Some(header.bytes as usize)
            || payload.len() != header.bytes as usize
        {
            return Err(format!("a frame of {} bytes", header.bytes));
        }
        header.verify(payload).map_err(|error| error.to_string())?;
        let mut buffer = self.relay.buffer(payload.len());
        buffer.copy_from_slice(payload);
        self.relay
            .handle_received(index, header.stream, header.slice, buffer)
            .map_err(|error| error.to_string())
    }

    fn send_frames(&mut self, scene: &mut Scene) -> bool {
        let mut moved = false;
        for outlet in &mut self.outlets {
            while outlet.too_large.is_none()
                && let Some(frame) = outlet.queue.front()
                && scene.network.has_room(outlet.edge, HEADER_BYTES + frame.buffer.len(), scene.now)
            {
                let Frame { lane, stream, slice, buffer } = outlet.queue.pop_front().expect("it is there");
                let mut bytes = FrameHeader::slice(lane, stream, slice, &buffer).encode().to_vec();
                bytes.extend_from_slice(&buffer);
                outlet.moved = scene.now;
                moved = true;
                let fits = bytes.len() as u64 <= scene.network.window;
                scene.send_frame(outlet.edge, bytes, buffer.len());
                if fits {
                    let delay = scene.dice.up_to(Duration::from_micros(30));
                    scene.after_for(delay, self.node, NodeEvent::Sent { task: self.id, slice, buffer });
                } else {
                    outlet.too_large = Some((slice, buffer));
                }
            }
        }
        moved
    }

    /// A broken edge matters to those who still need it.
    fn notice_closed(&mut self, scene: &mut Scene) {
        let inlet = self.inlets.iter().enumerate().find_map(|(index, inlet)| {
            let detail = inlet.closed.filter(|_| self.relay.wants(index))?;
            Some((inlet.edge.from, detail))
        });
        let outlet = self.outlets.iter().find_map(|outlet| {
            let needed = !outlet.queue.is_empty() || outlet.too_large.is_some();
            Some((outlet.edge.to, outlet.closed.filter(|_| needed)?))
        });
        if let Some((peer, detail)) = inlet.or(outlet) {
            self.fail(Report::Closed { peer, detail: detail.to_owned() }, scene);
        }
    }

    // ---- what the relay asks for ----

    fn read(
        &mut self,
        slice: u32,
        locals: Range<u16>,
        BlockRange { block, bytes }: BlockRange,
        disk: &mut Disk,
        scene: &mut Scene,
    ) {
        let block = self.assignment.locals.iter().find(|local| local.index == block);
        let block = block.expect("the relay checked").id.clone();
        let delay = disk.takes(bytes.end - bytes.start, scene);
        let part = (bytes.end - bytes.start) / locals.len() as u64;
        for (local, offset) in locals.zip(bytes.step_by(part as usize)) {
            self.take_out(slice, scene);
            let mut buffer = self.relay.buffer(part as usize);
            let result = disk.read(&block, offset, &mut buffer).map(|()| buffer);
            scene.after_for(delay, self.node, NodeEvent::ReadDone { task: self.id, slice, local, result });
        }
    }

    fn act(&mut self, disk: &mut Disk, scene: &mut Scene) -> bool {
        let mut acted = false;
        while let Some(action) = self.relay.poll() {
            acted = true;
            match action {
                Action::ReadAhead { .. } => {} // Advice, which nothing depends on.
                Action::Read { slice, locals, range } => self.read(slice, locals, range, disk, scene),
                Action::Send { outlet, lane, stream, slice, buffer } => {
                    self.take_out(slice, scene);
                    self.outlets[outlet].queue.push_back(Frame { lane, stream, slice, buffer });
                }
                Action::Deliver { output, slice, buffer } => {
                    self.take_out(slice, scene);
                    self.deliver(output, slice, buffer, disk, scene);
                }
                Action::Finished => {
                    self.finish(scene);
                    return true;
                }
            }
        }
        acted
    }

    fn deliver(&mut self, output: u32, slice: u32, buffer: Buffer, disk: &mut Disk, scene: &mut Scene) {
        let sub_block = self.assignment.outputs[output as usize];
        let offset = self.offset(sub_block.sub) + self.assignment.geometry.span(slice).start;
        let sink = self.assignment.sinks.iter().find(|sink| sink.index == sub_block.block);
        let written = disk.write(&sink.expect("the relay checked").id, offset, &buffer);
        let delay = disk.takes(buffer.len() as u64, scene);
        let block = sub_block.block.0;
        scene.after_for(
            delay,
            self.node,
            NodeEvent::WriteDone { task: self.id, slice, block, written, buffer },
        );
    }

    fn finish(&mut self, scene: &mut Scene) {
        self.state = State::Finished;
        for edge in self.edges() {
            scene.close_edge(edge, Some(self.node), "the other end has finished");
        }
        if !self.assignment.sinks.is_empty() {
            scene.report(self.node, self.assignment.epoch, Report::Delivered);
        }
        if !self.out.is_empty() {
            scene.violate(format!("{} finished with buffers out", self.node));
        }
    }

    fn offset(&self, sub: u16) -> u64 {
        u64::from(sub) * self.assignment.sub_block_bytes
    }

    // ---- bounds ----

    /// A relay works on a bounded number of slices whatever the block's size: the most that its window may
    /// be, in the words of its own documentation.
    fn take_out(&mut self, slice: u32, scene: &mut Scene) {
        *self.out.entry(slice).or_insert(0) += 1;
        let limit = match self.assignment.pacing {
            Pacing::Pipelined => (2 * self.assignment.tasks().count()).max(32),
            Pacing::Serial => 1,
            Pacing::WholeBlock => usize::MAX,
        };
        if self.out.len() > limit {
            scene.violate(format!("{} works on {} slices at once", self.node, self.out.len()));
        }
    }

    fn give_back(&mut self, slice: u32) {
        let count = self.out.get_mut(&slice).expect("it was taken out");
        *count -= 1;
        if *count == 0 {
            self.out.remove(&slice);
        }
    }
}
