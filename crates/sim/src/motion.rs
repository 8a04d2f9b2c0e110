//! The sockets and the disk of a node that carries out a plan, on virtual time. In a daemon, the crate
//! `helper` provides them to [`repair::Part`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use repair::wire::edge::{Credit, FrameHeader, HEADER_BYTES};
use repair::{
    Action, Assignment, BlockId, Buffer, Class, Gathering, JobId, NodeId, Pacing, Part, Report, SinkProblem,
    Transfer, WATCH_EVERY,
};

use crate::disk::{Deliveries, Disk};
use crate::edge::{EdgeId, Frame};
use crate::event::{NodeEvent, TaskId};
use crate::shared::Shared;

/// A running plan on a node.
#[derive(Debug)]
pub(crate) struct Motion {
    pub(crate) id: TaskId,
    assignment: Arc<Assignment>,
    node: NodeId,
    inlets: Vec<Inbound>,
    outlets: Vec<Outbound>,
    /// Number of writes in progress.
    writing: u32,
    settling: bool,
    /// Collects deliveries that are written together.
    gathering: Gathering,
    /// For each slice, the number of buffers that the relay has handed out and that were not returned yet.
    out: BTreeMap<u32, u32>,
}

#[derive(Debug)]
struct Inbound {
    edge: EdgeId,
    closed: Option<&'static str>,
}

#[derive(Debug)]
struct Outbound {
    edge: EdgeId,
    queue: VecDeque<Queued>,
    /// A frame that is larger than the kernel's buffers. Its write completes only when the receiver has read
    /// the frame.
    too_large: Option<(u32, Buffer)>,
    /// Credits that have arrived. They are read while the part moves slices, as from a socket.
    credits: VecDeque<Credit>,
    closed: Option<&'static str>,
}

/// A slice that waits for room in the kernel.
#[derive(Debug)]
struct Queued {
    lane: u16,
    stream: u16,
    slice: u32,
    buffer: Buffer,
}

impl Queued {
    fn whole(&self) -> Frame {
        let header = FrameHeader::slice(self.lane, self.stream, self.slice, &self.buffer);
        Frame { bytes: [&header.encode()[..], &self.buffer].concat(), omitted_bytes: 0 }
    }

    fn omitting_payload(&self) -> Frame {
        let mut header = FrameHeader::slice(self.lane, self.stream, self.slice, &[]);
        header.bytes = self.buffer.len() as u32;
        Frame { bytes: header.encode().to_vec(), omitted_bytes: self.buffer.len() }
    }
}

impl Motion {
    /// Opens the edges of an assignment.
    pub(crate) fn new(id: TaskId, node: NodeId, assignment: Arc<Assignment>, shared: &mut Shared) -> Self {
        let (job, epoch) = (assignment.job, assignment.epoch);
        let edge = |from, to, key| EdgeId { job, epoch, from, to, key };
        let inlets = assignment.inlets.iter().map(|inlet| edge(inlet.from, node, inlet.key));
        let outlets = assignment.outlets.iter().map(|outlet| edge(node, outlet.to, outlet.key));
        let outbound = |edge| Outbound {
            edge,
            queue: VecDeque::new(),
            too_large: None,
            credits: VecDeque::new(),
            closed: None,
        };
        let motion = Self {
            id,
            node,
            inlets: inlets.map(|edge| Inbound { edge, closed: None }).collect(),
            outlets: outlets.map(outbound).collect(),
            writing: 0,
            settling: false,
            gathering: Gathering::new(&assignment),
            out: BTreeMap::new(),
            assignment,
        };
        motion.edges().for_each(|edge| shared.edge_known(edge, node));
        motion.watch_again(shared);
        motion
    }

    /// Returns the node and the job that handle the events of this plan.
    fn owner(&self) -> (NodeId, JobId) {
        (self.node, self.assignment.job)
    }

    fn edges(&self) -> impl Iterator<Item = EdgeId> {
        let inlets = self.inlets.iter().map(|inlet| inlet.edge);
        inlets.chain(self.outlets.iter().map(|outlet| outlet.edge))
    }

    pub(crate) fn close(self, shared: &mut Shared) {
        self.edges().for_each(|edge| shared.close_edge(edge, Some(self.node), "closed by peer"));
    }

    pub(crate) fn watch_again(&self, shared: &mut Shared) {
        shared.after_for(WATCH_EVERY, self.owner(), NodeEvent::Watch { task: self.id });
    }

    // ---- actions of `Part` ----

    pub(crate) fn act(
        &mut self,
        part: &mut Part,
        action: Action,
        (disk, deliveries): (&mut Disk, &mut Deliveries),
        shared: &mut Shared,
    ) {
        match action {
            Action::ReadAhead { .. } => {} // The action is only a hint to the disk.
            Action::Read { slice, locals, transfer } => {
                self.read(part, slice, (locals, transfer), disk, shared);
            }
            Action::Send { outlet, lane, stream, slice, buffer } => {
                self.take_out(slice, shared);
                self.outlets[outlet].queue.push_back(Queued { lane, stream, slice, buffer });
            }
            Action::Deliver { output, slice, buffer } => {
                self.take_out(slice, shared);
                self.deliver(output, slice, buffer, (disk, deliveries), shared);
            }
            Action::Finished => shared.violate(format!("{} received the end of the job twice", self.node)),
        }
    }

    fn read(
        &mut self,
        part: &mut Part,
        slice: u32,
        (locals, transfer): (Range<u16>, Transfer),
        disk: &mut Disk,
        shared: &mut Shared,
    ) {
        let block = self.assignment.locals.iter().find(|local| local.index == transfer.block());
        let block = block.expect("the relay checked").id.clone();
        let delay = disk.takes(transfer.bytes() as u64, shared);
        let mut buffers: Vec<Buffer> = locals.clone().map(|_| part.buffer(transfer.buffer_bytes())).collect();
        let read = match self.assignment.class {
            Class::Probe => Ok(()), // A probe sends arbitrary bytes.
            _ => disk.read(&block, &transfer, &mut buffers),
        };
        for (local, buffer) in locals.zip(buffers) {
            self.take_out(slice, shared);
            let result = read.clone().map(|()| buffer);
            shared.after_for(
                delay,
                self.owner(),
                NodeEvent::ReadDone { task: self.id, slice, local, result },
            );
        }
    }

    fn deliver(
        &mut self,
        output: u32,
        slice: u32,
        buffer: Buffer,
        (disk, deliveries): (&mut Disk, &mut Deliveries),
        shared: &mut Shared,
    ) {
        let Some((transfer, buffers)) = self.gathering.add(output, slice, buffer) else { return };
        let sink = self.assignment.sinks.iter().find(|sink| sink.index == transfer.block());
        let written = disk.write(deliveries, &sink.expect("the relay checked").id, &transfer, &buffers);
        let delay = disk.takes(transfer.bytes() as u64, shared);
        let (task, block, owner) = (self.id, transfer.block().0, self.owner());
        for buffer in buffers {
            self.writing += 1;
            shared.after_for(delay, owner, NodeEvent::WriteDone { task, slice, block, written, buffer });
        }
    }

    /// Handles the end of a write. `buffer` is `None` if the write failed.
    pub(crate) fn write_done(
        &mut self,
        part: &mut Part,
        slice: u32,
        block: u16,
        buffer: Option<Buffer>,
        shared: &mut Shared,
    ) {
        self.give_back(slice, shared);
        self.writing -= 1;
        match buffer {
            Some(buffer) => {
                shared.slices_delivered += 1;
                part.handle_delivered(slice, buffer);
            }
            None => {
                let sink = self.assignment.sinks.iter().find(|sink| sink.index.0 == block);
                let block = sink.expect("it was written to").id.clone();
                part.fail(Report::SinkFailed { block, problem: SinkProblem::NoSpace }, shared.now);
            }
        }
        if self.settling && self.writing == 0 {
            part.handle_settled(shared.now);
        }
    }

    pub(crate) fn settle(&mut self, part: &mut Part, now: Duration) {
        self.settling = true;
        if self.writing == 0 {
            part.handle_settled(now);
        }
    }

    /// Returns the block of a local read. `local` is the number of the read in the slice's task.
    pub(crate) fn block_of(&self, slice: u32, local: u16) -> BlockId {
        let lane = usize::from(self.assignment.lane_of(slice));
        let task = self.assignment.lanes.tasks[lane].as_ref().expect("the relay asked for it");
        let index = task.reads[usize::from(local)].block;
        let block = self.assignment.locals.iter().find(|local| local.index == index);
        block.expect("the relay checked").id.clone()
    }

    // ---- sockets ----

    /// Handles an edge that may be ready to send or to receive. The caller calls `pump` afterwards.
    pub(crate) fn edge_moved(&mut self, part: &mut Part, edge: EdgeId, shared: &mut Shared) {
        let Some(index) = self.outlets.iter().position(|outlet| outlet.edge == edge) else { return };
        part.handle_outlet_moved(index, shared.now);
        if shared.edge(edge).is_some_and(|edge| edge.under_way == 0)
            && let Some((slice, buffer)) = self.outlets[index].too_large.take()
        {
            self.give_back(slice, shared);
            part.handle_sent(index, slice, buffer, shared.now);
        }
    }

    /// Sends a credit. The kernel accepts it at once, because credits are small and few.
    pub(crate) fn send_credit(&self, part: &mut Part, inlet: usize, credit: Credit, shared: &mut Shared) {
        shared.send_credit(self.inlets[inlet].edge, credit);
        part.handle_credits_written(1);
    }

    /// Keeps a credit that has arrived until the part moves slices.
    pub(crate) fn take_credit(&mut self, edge: EdgeId, credit: Credit) {
        if let Some(outlet) = self.outlets.iter_mut().find(|outlet| outlet.edge == edge) {
            outlet.credits.push_back(credit);
        }
    }

    pub(crate) fn edge_closed(&mut self, edge: EdgeId, detail: &'static str) {
        self.inlets
            .iter_mut()
            .filter(|inlet| inlet.edge == edge)
            .for_each(|inlet| inlet.closed = Some(detail));
        self.outlets.iter_mut().filter(|out| out.edge == edge).for_each(|out| out.closed = Some(detail));
    }

    pub(crate) fn take_frames(&mut self, part: &mut Part, shared: &mut Shared) -> bool {
        let mut moved = false;
        for (index, inlet) in self.inlets.iter().enumerate() {
            while let Some(due_bytes) = part.due_bytes(index)
                && let Some(frame) = shared.take_frame(inlet.edge)
            {
                moved = true;
                if let Err(detail) = self.take_frame(part, index, &frame, due_bytes, shared.now) {
                    part.fail(Report::BadFrame { from: inlet.edge.from, detail }, shared.now);
                }
            }
        }
        moved
    }

    fn take_frame(
        &self,
        part: &mut Part,
        index: usize,
        frame: &Frame,
        due_bytes: usize,
        now: Duration,
    ) -> Result<(), String> {
        let (head, payload) = frame.bytes.split_at(HEADER_BYTES);
        let head: &[u8; HEADER_BYTES] = head.try_into().expect("a header's bytes");
        let limit = self.assignment.geometry.slice_bytes;
        let header = FrameHeader::decode(head, limit).map_err(|error| error.to_string())?;
        let bytes = header.bytes as usize;
        if due_bytes != bytes || frame.len() - HEADER_BYTES != bytes {
            return Err(format!("a frame of {bytes} bytes"));
        }
        let mut buffer = part.buffer(bytes);
        if frame.omitted_bytes == 0 {
            header.verify(payload).map_err(|error| error.to_string())?;
            buffer.copy_from_slice(payload);
        }
        part.handle_received(index, header.stream, header.slice, buffer, now);
        Ok(())
    }

    pub(crate) fn send_frames(&mut self, part: &mut Part, shared: &mut Shared) -> bool {
        let (mut moved, owner) = (false, self.owner());
        for (index, outlet) in self.outlets.iter_mut().enumerate() {
            while let Some(credit) = outlet.credits.pop_front() {
                moved = true;
                part.handle_credit(index, credit, shared.now);
            }
            while outlet.too_large.is_none()
                && let Some(frame) = outlet.queue.front()
                && shared.network.has_room(outlet.edge, HEADER_BYTES + frame.buffer.len(), shared.now)
            {
                let queued = outlet.queue.pop_front().expect("it is there");
                let is_looked_at = self.assignment.class != Class::Probe || shared.flips_next(outlet.edge);
                let frame = if is_looked_at { queued.whole() } else { queued.omitting_payload() };
                let Queued { slice, buffer, .. } = queued;
                part.handle_outlet_moved(index, shared.now);
                moved = true;
                let fits = frame.len() as u64 <= shared.network.window;
                shared.send_frame(outlet.edge, frame, buffer.len());
                if fits {
                    let delay = shared.dice.up_to(Duration::from_micros(30));
                    let sent = NodeEvent::Sent { task: self.id, outlet: index, slice, buffer };
                    shared.after_for(delay, owner, sent);
                } else {
                    outlet.too_large = Some((slice, buffer));
                }
            }
        }
        moved
    }

    /// Fails the plan on this node if an edge that the plan still needs has closed. Returns whether the plan
    /// failed.
    pub(crate) fn notice_closed(&mut self, part: &mut Part, shared: &mut Shared) -> bool {
        let inlet = self.inlets.iter().enumerate().find_map(|(index, inlet)| {
            let detail = inlet.closed.filter(|_| part.due_bytes(index).is_some())?;
            Some((inlet.edge.from, detail))
        });
        let outlet = self.outlets.iter().enumerate().find_map(|(index, outlet)| {
            let awaits_credits = self.assignment.pacing == Pacing::Serial && !part.outlet_is_complete(index);
            let needed = !outlet.queue.is_empty() || outlet.too_large.is_some() || awaits_credits;
            Some((outlet.edge.to, outlet.closed.filter(|_| needed)?))
        });
        let broken = inlet.or(outlet);
        if let Some((peer, detail)) = broken {
            part.fail(Report::Closed { peer, detail: detail.to_owned() }, shared.now);
        }
        broken.is_some()
    }

    // ---- limits on the relay ----

    /// Counts a buffer that leaves the relay, and checks that the relay works on a bounded number of slices,
    /// independent of the block's size. The limit is the documented maximum of the relay's window.
    fn take_out(&mut self, slice: u32, shared: &mut Shared) {
        *self.out.entry(slice).or_insert(0) += 1;
        let limit = match self.assignment.pacing {
            Pacing::Pipelined => (2 * self.assignment.tasks().count()).max(32),
            Pacing::Serial => 1,
            Pacing::WholeBlock => usize::MAX,
        };
        if self.out.len() > limit {
            shared.violate(format!(
                "{} processes {} slices at once, more than allowed",
                self.node,
                self.out.len()
            ));
        }
    }

    pub(crate) fn give_back(&mut self, slice: u32, shared: &mut Shared) {
        match self.out.get_mut(&slice) {
            Some(1) => drop(self.out.remove(&slice)),
            Some(count) => *count -= 1,
            None => shared.violate(format!("{} received a buffer of slice {slice} back twice", self.node)),
        }
    }

    pub(crate) fn has_buffers_out(&self) -> bool {
        !self.out.is_empty()
    }
}
