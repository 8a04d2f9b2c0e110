//! A helper's or requestor's part of a plan, slice by slice, as a state machine.
//!
//! Received frames and finished reads are passed to `handle_*` methods; [`Relay::poll`] returns what to read,
//! send and deliver. The arithmetic happens inside.
//!
//! **Invariant:** a relay works on at most `window` consecutive slices, opened in ascending order, and holds
//! buffers only for those. It accepts frames of one slice per lane at a time. Frames leave every outlet in
//! ascending order of (slice, stream), which is the order that the other end expects.
//!
//! A node that sends begins with a small window, which grows by one slice with every slice that it finishes.
//! Otherwise each node of a chain would read, and receive, a whole window before it sends anything, and the
//! first slice would reach the end of the chain late.
//!
//! Together these rules exclude deadlock. Take the lowest slice that is unfinished on any node, and the first
//! unfinished stream of this slice, in the order in which the plan creates streams. All inputs of the stream
//! have been sent, no unfinished frame is ahead of its frame on any connection, the slice is inside every
//! window, and no earlier slice is awaited. So the stream can proceed. With [`Pacing::WholeBlock`] a node
//! holds whole streams, the window is unbounded, and every frame is accepted. Two further rules throttle a
//! relay, but only where that cannot cause a deadlock: a node that receives nothing reads a large slice in
//! portions, each after most of the previous ones have left; and a node that sends nothing stops receiving
//! while its sinks are behind.
//!
//! Deliberately absent: sockets, checksums of frames (the driver verifies them first), and recovery from
//! errors. After an error the relay is dropped, and the job makes another plan.

mod asking;
pub(crate) mod cover;
mod factor;
mod passes;
mod program;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use gf::Kernel;

use self::cover::Group;
use self::program::{Destination, Program};
use crate::reading::Reading;
use crate::{
    Assignment, BlockRange, Buffer, BufferPool, Dealing, Gathering, Geometry, Pacing, SliceSet, Transfer,
};

/// Why an assignment or a frame is refused. Each error means that the coordinator or the sender of the frame
/// violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// The assignment is inconsistent or refers to something that it does not define.
    #[error("the assignment is invalid: {0}")]
    BadAssignment(&'static str),
    /// A frame arrived out of order.
    #[error("slice {found_slice} stream {found_stream} arrived, but slice {slice} stream {stream} is due")]
    OutOfOrder {
        /// The expected slice.
        slice: u32,
        /// The expected stream.
        stream: u16,
        /// The slice that arrived.
        found_slice: u32,
        /// The stream that arrived.
        found_stream: u16,
    },
    /// A frame arrived after the last expected frame of its edge.
    #[error("a frame arrived on an edge that was complete")]
    Unexpected,
    /// The length of a slice differs from the geometry.
    #[error("slice {slice} has {found} bytes, but {expected} were expected")]
    WrongLength {
        /// The slice.
        slice: u32,
        /// The length according to the geometry.
        expected: usize,
        /// The length that arrived.
        found: usize,
    },
}

/// An action for the relay's driver to carry out.
#[derive(Debug)]
pub enum Action {
    /// Announce to the disk that these ranges of local blocks will be read soon. A disk that knows all ranges
    /// in advance needs fewer seeks than one that learns of each slice separately. Every read lies in the
    /// ranges of the latest `ReadAhead` or of the one before it. Not used if slices are contiguous on disk.
    ReadAhead {
        /// The ranges, in the order in which to read them.
        ranges: Vec<BlockRange>,
    },
    /// Read from a local block and pass the buffers one by one to [`Relay::handle_read`]. Sub-blocks that are
    /// close together on disk are read together.
    Read {
        /// The slice.
        slice: u32,
        /// The numbers of the inputs that the buffers are for; pass each number back with its buffer.
        locals: Range<u16>,
        /// The bytes to read.
        transfer: Transfer,
    },
    /// Send a frame on outlet number `outlet`; call [`Relay::handle_sent`] once it is written.
    Send {
        /// Position among the assignment's outlets.
        outlet: usize,
        /// The frame's lane.
        lane: u16,
        /// The frame's stream.
        stream: u16,
        /// The frame's slice.
        slice: u32,
        /// The payload.
        buffer: Buffer,
    },
    /// Write a slice of an output to its sink, see [`Gathering`](crate::Gathering); call
    /// [`Relay::handle_delivered`] once it is written.
    Deliver {
        /// The index of the output.
        output: u32,
        /// The slice.
        slice: u32,
        /// The bytes.
        buffer: Buffer,
    },
    /// All slices have been sent and delivered. This is the last action and occurs once.
    Finished,
}

/// A node's part of a plan; see the module's documentation.
#[derive(Debug)]
pub struct Relay {
    course: Course,
    inlets: Vec<Cursor>,
    outlets: Vec<Outbox>,
    next_slice: Option<u32>,
    /// The number of the next stretch (run of slices) whose reads must be announced.
    next_stretch: u32,
    /// The number of slices opened so far.
    opened: usize,
    open: BTreeMap<u32, Work>,
    held_back: WholeStreams,
    delivered: SliceSet,
    actions: VecDeque<Action>,
    /// Frames and deliveries that were passed to the driver, or are queued for it, and are not written yet.
    leaving: usize,
    /// Local buffers that were requested and have not arrived.
    coming: usize,
    finished: bool,
    tools: Tools,
}

/// The immutable description of the relay's work.
#[derive(Debug)]
struct Course {
    geometry: Geometry,
    slices: SliceSet,
    pacing: Pacing,
    dealing: Dealing,
    /// The program of each lane; `None` if this node has no task in it.
    programs: Vec<Option<Program>>,
    reading: Reading,
    /// The maximum number of slices being worked on.
    window: usize,
    /// The window before the first slice is finished.
    first_window: usize,
    /// See [`most_undelivered`].
    most_undelivered: usize,
}

/// The next frame on an edge; frames ascend by slice, then by stream.
#[derive(Debug)]
struct Cursor {
    /// Number of streams on this edge in each lane.
    streams: Vec<u16>,
    due: Option<(u32, u16)>,
}

/// Finished frames of one outlet that wait for earlier frames.
#[derive(Debug)]
struct Outbox {
    cursor: Cursor,
    ready: BTreeMap<(u32, u16), Buffer>,
}

/// A slice being worked on.
#[derive(Debug)]
struct Work {
    /// The number of slices that were opened before this one.
    ordinal: usize,
    /// For each output of the lane's program, the sum so far.
    sums: Vec<Option<Buffer>>,
    /// For each output, the number of inputs not added yet.
    missing: Vec<u16>,
    /// Local buffers that are still needed.
    held: Vec<Option<Buffer>>,
    /// For each local buffer, the number of sums and groups that still need it.
    uses_left: Vec<u32>,
    /// For each group, the number of local buffers that have not arrived.
    awaited: Vec<usize>,
    /// Received inputs that have not arrived.
    to_receive: u16,
    reads_asked: bool,
    /// Ranges of local buffers to read together, not yet requested; the last range is requested first.
    reads: Vec<Range<u16>>,
    /// Outputs that are not yet sent or delivered.
    unfinished: usize,
    /// Deliveries that are not written yet.
    undelivered: usize,
}

/// A slice is large if its buffers together exceed this size, as in a put with Clay. A node that receives
/// nothing reads a large slice in portions.
const LARGE_SLICE_BYTES: usize = 8 << 20;
/// The number of slices whose buffers are kept for reuse, enough for a relay that only sends: one slice being
/// read and one being sent.
const KEPT_SLICES: usize = 2;

/// A relay requests no further portion of a slice while more data than this waits to be sent or written, so
/// data leaves soon after it was computed. A node without outgoing streams, such as a requestor, also stops
/// receiving while more data waits to be written; see [`most_undelivered`].
const LEAVING_BYTES: usize = 1 << 20;

/// The buffers and the kernel that the arithmetic uses.
#[derive(Debug)]
struct Tools {
    pool: BufferPool,
    kernel: Kernel,
}

/// With [`Pacing::WholeBlock`], the finished slices of each stream, kept until the stream is complete.
#[derive(Debug, Default)]
struct WholeStreams {
    /// For each (lane, output of the program), the number of slices still to be computed.
    pending: BTreeMap<(u16, usize), u32>,
    kept: BTreeMap<(u16, usize), Vec<(u32, Buffer)>>,
}

impl Relay {
    /// Creates the relay for `assignment`. The relay holds at most about `budget_bytes` of slices, in buffers
    /// of `pool`.
    ///
    /// # Errors
    /// [`RelayError::BadAssignment`] if the assignment is inconsistent.
    pub fn new(
        assignment: &Assignment,
        budget_bytes: usize,
        mut pool: BufferPool,
    ) -> Result<Self, RelayError> {
        let programs = program::compile(assignment, &mut pool.covers)?;
        let lanes = programs.len();
        let inlet_streams = |inlet: usize| -> Vec<u16> {
            (0..lanes).map(|l| programs[l].as_ref().map_or(0, |p| p.inlet_streams(inlet))).collect()
        };
        let outlet_streams = |outlet: usize| -> Vec<u16> {
            (0..lanes).map(|l| programs[l].as_ref().map_or(0, |p| p.outlet_streams(outlet))).collect()
        };
        let window = window(assignment, &programs, budget_bytes);
        // Keep free buffers: if a slice has thousands of buffers, allocating them takes longer than using
        // them.
        let buffers = programs.iter().flatten().map(Program::buffers).max().unwrap_or(0);
        pool.keep(buffers * window.min(KEPT_SLICES));
        let mut relay = Self {
            inlets: (0..assignment.inlets.len()).map(|i| Cursor::new(inlet_streams(i))).collect(),
            outlets: (0..assignment.outlets.len()).map(|o| Outbox::new(outlet_streams(o))).collect(),
            course: Course {
                geometry: assignment.geometry.clone(),
                slices: assignment.slices.clone(),
                pacing: assignment.pacing,
                dealing: assignment.lanes.dealing.clone(),
                reading: reading(assignment, &programs),
                most_undelivered: most_undelivered(assignment, &programs),
                first_window: first_window(assignment, &programs, window),
                programs,
                window,
            },
            next_slice: None,
            next_stretch: 0,
            opened: 0,
            open: BTreeMap::new(),
            held_back: WholeStreams::default(),
            delivered: SliceSet::new(),
            actions: VecDeque::new(),
            leaving: 0,
            coming: 0,
            finished: false,
            tools: Tools { pool, kernel: Kernel::best() },
        };
        relay.start();
        Ok(relay)
    }

    /// Whether the relay accepts the next frame of inlet `inlet` now. If not, the driver leaves the bytes in
    /// the socket, and TCP applies back-pressure to the sender.
    pub fn wants(&self, inlet: usize) -> bool {
        let Some((slice, _)) = self.inlets[inlet].due else { return false };
        // With whole blocks, each sender has its own round, so the order of slices does not matter.
        let in_turn = self.course.pacing == Pacing::WholeBlock || !self.earlier_is_awaited(slice);
        self.open.contains_key(&slice) && in_turn && !self.sinks_are_behind()
    }

    /// Whether too much data waits to be written. A node that also sends never stops receiving for this
    /// reason, because another node may need the data.
    fn sinks_are_behind(&self) -> bool {
        self.outlets.is_empty() && self.leaving > self.course.most_undelivered
    }

    /// Whether all frames of inlet `inlet` have arrived.
    pub fn inlet_is_complete(&self, inlet: usize) -> bool {
        self.inlets[inlet].due.is_none()
    }

    /// Whether all frames of outlet `outlet` have been passed to the driver.
    pub fn outlet_is_complete(&self, outlet: usize) -> bool {
        self.outlets[outlet].cursor.due.is_none()
    }

    /// The maximum number of bytes held at once: those of the window, or of all slices with
    /// [`Pacing::WholeBlock`].
    pub fn most_bytes(&self) -> u64 {
        let buffers = self.course.programs.iter().flatten().map(Program::buffers).max().unwrap_or(0) as u64;
        let slices = (self.course.window as u64).min(self.course.slices.len().into());
        buffers * slices * u64::from(self.course.geometry.slice_bytes)
    }

    /// Ends the relay and returns its free buffers.
    pub fn into_pool(self) -> BufferPool {
        self.tools.pool
    }

    /// The slices that were completely delivered and written on this node.
    pub fn delivered(&self) -> &SliceSet {
        &self.delivered
    }

    /// A buffer for the driver to receive or read into.
    pub fn buffer(&mut self, bytes: usize) -> Buffer {
        self.tools.pool.take(bytes)
    }

    /// The next slice on inlet `inlet`.
    pub fn due_slice(&self, inlet: usize) -> Option<u32> {
        self.inlets[inlet].due.map(|(slice, _)| slice)
    }

    /// The payload length of the next frame on inlet `inlet`.
    pub fn due_bytes(&self, inlet: usize) -> Option<usize> {
        self.inlets[inlet].due.map(|(slice, _)| self.course.geometry.bytes_of(slice))
    }

    /// Adds a frame that arrived on inlet `inlet`. The driver has verified the frame's checksum.
    ///
    /// # Errors
    /// [`RelayError`] if the frame is not the expected one.
    pub fn handle_received(
        &mut self,
        inlet: usize,
        stream: u16,
        slice: u32,
        buffer: Buffer,
    ) -> Result<(), RelayError> {
        let (due_slice, due_stream) = self.inlets[inlet].due.ok_or(RelayError::Unexpected)?;
        if (due_slice, due_stream) != (slice, stream) || !self.open.contains_key(&slice) {
            return Err(RelayError::OutOfOrder {
                slice: due_slice,
                stream: due_stream,
                found_slice: slice,
                found_stream: stream,
            });
        }
        self.course.check_length(slice, &buffer)?;
        self.inlets[inlet].advance(&self.course.slices, &self.course.dealing);
        let program = self.course.program(slice).expect("a due frame belongs to a task");
        let input = program.received_input(inlet, stream);
        self.open.get_mut(&slice).expect("the slice is open").to_receive -= 1;
        self.ask_reads(slice);
        self.add(slice, input, buffer);
        Ok(())
    }

    /// Adds a buffer that was read for [`Action::Read`].
    ///
    /// # Errors
    /// [`RelayError::WrongLength`] if the buffer's length is wrong.
    ///
    /// # Panics
    /// If the buffer was not requested.
    pub fn handle_read(&mut self, slice: u32, local: u16, buffer: Buffer) -> Result<(), RelayError> {
        self.course.check_length(slice, &buffer)?;
        self.coming -= 1;
        self.add(slice, usize::from(local), buffer);
        Ok(())
    }

    /// Call when the frame of [`Action::Send`] has been written. The relay reuses `buffer`, its payload.
    pub fn handle_sent(&mut self, slice: u32, buffer: Buffer) {
        self.tools.pool.give(buffer);
        self.finish_output(slice, false);
    }

    /// Call when the slice of [`Action::Deliver`] has been written. The relay reuses `buffer`, its data.
    pub fn handle_delivered(&mut self, slice: u32, buffer: Buffer) {
        self.tools.pool.give(buffer);
        self.finish_output(slice, true);
    }

    /// The next action for the driver.
    pub fn poll(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            self.ask_portion();
        }
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if !self.finished && self.open.is_empty() && self.next_slice.is_none() {
            self.finished = true;
            return Some(Action::Finished);
        }
        None
    }

    fn start(&mut self) {
        for cursor in self.inlets.iter_mut().chain(self.outlets.iter_mut().map(|outbox| &mut outbox.cursor)) {
            cursor.rewind(&self.course.slices, &self.course.dealing);
        }
        if self.course.pacing == Pacing::WholeBlock {
            self.held_back =
                WholeStreams::count(&self.course.programs, &self.course.slices, &self.course.dealing);
        }
        self.next_slice = self.course.slice_from(0);
        self.open_slices();
    }

    fn open_slices(&mut self) {
        while self.may_open()
            && let Some(slice) = self.next_slice
        {
            let program = self.course.program(slice).expect("slice_from chose it");
            self.open.insert(slice, Work::new(program, self.opened));
            self.opened += 1;
            self.next_slice = self.course.slice_from(slice + 1);
            self.announce(slice);
            self.ask_reads(slice);
        }
    }

    /// Whether an earlier slice of the same lane still lacks inputs. If so, frames of this slice are not
    /// accepted: senders that are ahead wait, which leaves the link to the senders that are behind. A slice
    /// is useful only once all its inputs have arrived.
    fn earlier_is_awaited(&self, slice: u32) -> bool {
        let lane = self.course.lane_of(slice);
        let mut earlier = self.open.range(..slice);
        earlier.any(|(&earlier, work)| work.to_receive > 0 && self.course.lane_of(earlier) == lane)
    }

    /// Whether the next slice is less than a window away from the first unfinished one.
    fn may_open(&self) -> bool {
        let first = self.open.first_key_value();
        first.is_none_or(|(_, work)| self.opened - work.ordinal < self.window())
    }

    /// The number of slices to work on at the moment.
    fn window(&self) -> usize {
        let finished = self.opened - self.open.len();
        self.course.first_window.saturating_add(finished).min(self.course.window)
    }

    /// Adds an input to the sums that use it, and forwards the sums that this completes.
    fn add(&mut self, slice: u32, input: usize, buffer: Buffer) {
        let lane = self.course.lane_of(slice);
        let program = self.course.programs[usize::from(lane)].as_ref().expect("the slice is open");
        let work = self.open.get_mut(&slice).expect("the slice is open");
        let complete = work.add(&mut self.tools, program, input, buffer);
        if complete.is_empty() {
            return;
        }
        for output in complete {
            let sum = work.sums[output].take().expect("a complete sum");
            let destination = program.destination(output);
            let mut pass_on = |slice, buffer| match destination {
                Destination::Deliver { output } => {
                    self.leaving += 1;
                    self.actions.push_back(Action::Deliver { output, slice, buffer });
                }
                Destination::Send { outlet, stream } => {
                    let order = (&self.course.slices, &self.course.dealing);
                    let before = self.actions.len();
                    self.outlets[outlet].put(outlet, (slice, stream), buffer, order, &mut self.actions);
                    self.leaving += self.actions.len() - before;
                }
            };
            if self.held_back.pending.is_empty() {
                pass_on(slice, sum);
                continue;
            }
            for (slice, sum) in self.held_back.keep(lane, output, slice, sum) {
                pass_on(slice, sum);
            }
        }
    }

    fn finish_output(&mut self, slice: u32, delivery: bool) {
        self.leaving -= 1;
        let work = self.open.get_mut(&slice).expect("its buffers were out");
        work.unfinished -= 1;
        if delivery {
            work.undelivered -= 1;
            if work.undelivered == 0 {
                self.delivered.insert(slice..slice + 1);
            }
        }
        if work.unfinished == 0 {
            self.open.remove(&slice);
            self.open_slices();
        }
    }
}

impl Course {
    /// The first slice from `from` on in which this node has a task.
    fn slice_from(&self, from: u32) -> Option<u32> {
        let mut candidate = self.slices.next(from);
        while let Some(slice) = candidate {
            if self.program(slice).is_some() {
                return Some(slice);
            }
            candidate = self.slices.next(slice + 1);
        }
        None
    }

    fn lane_of(&self, slice: u32) -> u16 {
        self.dealing.lane_of(slice)
    }

    fn program(&self, slice: u32) -> Option<&Program> {
        self.programs[usize::from(self.lane_of(slice))].as_ref()
    }

    fn check_length(&self, slice: u32, buffer: &Buffer) -> Result<(), RelayError> {
        let expected = self.geometry.bytes_of(slice);
        match buffer.len() {
            found if found != expected => Err(RelayError::WrongLength { slice, expected, found }),
            _ => Ok(()),
        }
    }
}

fn reading(assignment: &Assignment, programs: &[Option<Program>]) -> Reading {
    let Assignment { geometry, slices, lanes, chunking, .. } = assignment;
    let reads_in = |lane: u16| programs[usize::from(lane)].as_ref().map_or(&[][..], Program::locals);
    Reading::new(geometry, slices, &lanes.dealing, *chunking, reads_in)
}

/// Returns the number of deliveries that may wait to be written while the node still receives: as many as fit
/// into [`LEAVING_BYTES`], but at least two slices of one output. Where small deliveries are
/// [gathered](crate::Gathering), a slice is written only when all of its outputs have arrived, so the node must
/// be able to receive all outputs of a slice in every lane.
fn most_undelivered(assignment: &Assignment, programs: &[Option<Program>]) -> usize {
    let fit = LEAVING_BYTES / assignment.geometry.slice_bytes as usize;
    let gathered = match Gathering::gathers(assignment) {
        true => programs.iter().flatten().map(Program::deliveries).sum(),
        false => 0,
    };
    fit.max(2).max(gathered)
}

/// The number of slices that a relay works on at once. It is as large as the budget allows, but at least two
/// per lane with a task: one slice arriving and one leaving. If a node receives nothing and a slice exceeds
/// both the budget and [`LARGE_SLICE_BYTES`], the node works on one slice per lane: sockets buffer enough
/// outgoing data, and a second slice would cost more in cache misses than it gains. The number is limited
/// even if the budget allows more, since lanes would only drift apart, and slices would leave the cache
/// between being read and being used.
fn window(assignment: &Assignment, programs: &[Option<Program>], budget_bytes: usize) -> usize {
    match assignment.pacing {
        Pacing::Serial => return 1,
        Pacing::WholeBlock => return usize::MAX,
        Pacing::Pipelined => {}
    }
    let slice_bytes = assignment.geometry.slice_bytes as usize;
    let buffers = programs.iter().flatten().map(Program::buffers).max().unwrap_or(1);
    let lanes = programs.iter().flatten().count();
    let fit = budget_bytes / (buffers * slice_bytes);
    let least = match fit == 0 && programs.iter().flatten().all(|program| program.received() == 0) {
        true if buffers * slice_bytes > LARGE_SLICE_BYTES => lanes.max(1),
        true => 2 * lanes.max(1),
        false => (2 * lanes).max(4),
    };
    fit.clamp(least, (2 * lanes).max(32))
}

/// The number of slices that a relay with this window works on before it has finished any. A node that sends
/// begins with two slices per lane with a task: one arriving and one leaving. A node that only delivers reads
/// nothing in advance, so its whole window is open from the beginning.
fn first_window(assignment: &Assignment, programs: &[Option<Program>], window: usize) -> usize {
    if assignment.pacing != Pacing::Pipelined || assignment.outlets.is_empty() {
        return window;
    }
    window.min(2 * programs.iter().flatten().count())
}

impl Cursor {
    fn new(streams: Vec<u16>) -> Self {
        Self { streams, due: None }
    }

    fn rewind(&mut self, slices: &SliceSet, dealing: &Dealing) {
        self.due = self.first_from(0, slices, dealing);
    }

    fn advance(&mut self, slices: &SliceSet, dealing: &Dealing) {
        let (slice, stream) = self.due.expect("a frame is due");
        let lane = dealing.lane_of(slice);
        self.due = if stream + 1 < self.streams[usize::from(lane)] {
            Some((slice, stream + 1))
        } else {
            self.first_from(slice + 1, slices, dealing)
        };
    }

    fn first_from(&self, from: u32, slices: &SliceSet, dealing: &Dealing) -> Option<(u32, u16)> {
        if self.streams.iter().all(|&streams| streams == 0) {
            return None;
        }
        let mut candidate = slices.next(from);
        while let Some(slice) = candidate {
            if self.streams[usize::from(dealing.lane_of(slice))] > 0 {
                return Some((slice, 0));
            }
            candidate = slices.next(slice + 1);
        }
        None
    }
}

impl Outbox {
    fn new(streams: Vec<u16>) -> Self {
        Self { cursor: Cursor::new(streams), ready: BTreeMap::new() }
    }

    /// Adds a finished frame of outlet number `outlet`, and queues all frames that are due now for sending.
    fn put(
        &mut self,
        outlet: usize,
        frame: (u32, u16),
        buffer: Buffer,
        (slices, dealing): (&SliceSet, &Dealing),
        actions: &mut VecDeque<Action>,
    ) {
        if self.cursor.due != Some(frame) {
            self.ready.insert(frame, buffer);
            return;
        }
        let mut next = Some((frame, buffer));
        while let Some(((slice, stream), buffer)) = next {
            let lane = dealing.lane_of(slice);
            actions.push_back(Action::Send { outlet, lane, stream, slice, buffer });
            self.cursor.advance(slices, dealing);
            next = self.cursor.due.and_then(|due| Some((due, self.ready.remove(&due)?)));
        }
    }
}

impl WholeStreams {
    fn count(programs: &[Option<Program>], slices: &SliceSet, dealing: &Dealing) -> Self {
        let mut pending = BTreeMap::new();
        for slice in slices.iter() {
            let lane = dealing.lane_of(slice);
            let outputs = programs[usize::from(lane)].as_ref().map_or(0, Program::outputs);
            for output in 0..outputs {
                *pending.entry((lane, output)).or_insert(0) += 1;
            }
        }
        Self { pending, kept: BTreeMap::new() }
    }

    /// Keeps a finished slice of a stream; after the last slice, returns all slices of the stream.
    fn keep(&mut self, lane: u16, output: usize, slice: u32, sum: Buffer) -> Vec<(u32, Buffer)> {
        let key = (lane, output);
        self.kept.entry(key).or_default().push((slice, sum));
        let pending = self.pending.get_mut(&key).expect("the sum was counted");
        *pending -= 1;
        if *pending == 0 { self.kept.remove(&key).expect("just kept") } else { Vec::new() }
    }
}

impl Work {
    fn new(program: &Program, ordinal: usize) -> Self {
        Self {
            ordinal,
            sums: (0..program.outputs()).map(|_| None).collect(),
            missing: (0..program.outputs()).map(|output| program.inputs_of(output)).collect(),
            held: (0..program.locals().len()).map(|_| None).collect(),
            uses_left: (0..program.locals().len()).map(|local| program.local_uses(local)).collect(),
            awaited: program.groups().iter().map(|group| group.locals.len()).collect(),
            to_receive: program.received(),
            reads_asked: false,
            reads: Vec::new(),
            unfinished: program.outputs(),
            undelivered: program.deliveries(),
        }
    }

    /// Adds input number `input`; returns the outputs that this completes.
    fn add(&mut self, tools: &mut Tools, program: &Program, input: usize, buffer: Buffer) -> Vec<usize> {
        let mut complete = Vec::new();
        if input < program.locals().len() {
            self.held[input] = Some(buffer);
            self.add_local(tools, program, input, &mut complete);
        } else {
            self.add_received(tools, program, input, buffer, &mut complete);
        }
        complete
    }

    /// Adds a received buffer to every sum that uses it. If the last of these sums has not begun, the buffer
    /// itself, scaled in place, becomes the sum. Local buffers that arrived earlier are then added to each
    /// new sum. Multiplying into the received buffer takes one pass; scaling the local buffer first and then
    /// adding would take two.
    fn add_received(
        &mut self,
        tools: &mut Tools,
        program: &Program,
        input: usize,
        mut buffer: Buffer,
        complete: &mut Vec<usize>,
    ) {
        let (&(last, coefficient), others) = program.uses(input).split_last().expect("inputs are used");
        for &(output, coefficient) in others {
            match &mut self.sums[output] {
                Some(sum) => tools.kernel.mul_add(coefficient, &buffer, sum),
                None => {
                    self.sums[output] = Some(tools.product(coefficient, &buffer));
                    self.add_waiting(tools, program, output, complete);
                }
            }
            self.count(output, 1, complete);
        }
        match &mut self.sums[last] {
            Some(sum) => {
                tools.kernel.mul_add(coefficient, &buffer, sum);
                tools.pool.give(buffer);
            }
            None => {
                tools.kernel.mul(coefficient, &mut buffer);
                self.sums[last] = Some(buffer);
                self.add_waiting(tools, program, last, complete);
            }
        }
        self.count(last, 1, complete);
    }

    /// Adds the available local buffers to a sum that has just received its first input. Local buffers that
    /// arrive later are added on arrival.
    fn add_waiting(
        &mut self,
        tools: &mut Tools,
        program: &Program,
        output: usize,
        complete: &mut Vec<usize>,
    ) {
        for &(local, coefficient) in program.locals_of(output) {
            if let Some(buffer) = &self.held[local] {
                let sum = self.sums[output].as_mut().expect("the sum was just created");
                tools.kernel.mul_add(coefficient, buffer, sum);
                self.count(output, 1, complete);
                self.release(tools, local);
            }
        }
    }

    /// Adds a local buffer, which was stored in `held` before, to all sums that are ready for it.
    fn add_local(&mut self, tools: &mut Tools, program: &Program, local: usize, complete: &mut Vec<usize>) {
        for &number in program.groups_of(local) {
            self.awaited[number] -= 1;
            if self.awaited[number] > 0 {
                continue;
            }
            let group = &program.groups()[number];
            self.compute_group(tools, group, complete);
            let waited = group.locals.iter().filter(|&&other| other != local);
            waited.for_each(|&other| self.add_singles(tools, program, other, complete));
        }
        for &(output, coefficient) in program.mixed_uses(local) {
            if let Some(sum) = &mut self.sums[output] {
                let buffer = self.held[local].as_ref().expect("a use is left");
                tools.kernel.mul_add(coefficient, buffer, sum);
                self.count(output, 1, complete);
                self.release(tools, local);
            }
        }
        self.add_singles(tools, program, local, complete);
    }

    /// Computes the sums that consist of this local buffer alone, once no group that waits for other inputs
    /// needs the buffer. The last such sum can then reuse the buffer without a copy.
    fn add_singles(&mut self, tools: &mut Tools, program: &Program, local: usize, complete: &mut Vec<usize>) {
        if program.groups_of(local).iter().any(|&group| self.awaited[group] > 0) {
            return;
        }
        for &(output, coefficient) in program.single_uses(local) {
            self.sums[output] = Some(self.product_of(tools, local, coefficient));
            self.count(output, 1, complete);
        }
    }

    /// Computes the sums of a group, whose inputs have all arrived.
    fn compute_group(&mut self, tools: &mut Tools, group: &Group, complete: &mut Vec<usize>) {
        let held = |input: usize| self.held[group.locals[input]].as_deref().expect("the input has arrived");
        let bytes = held(0).len();
        let mut sums: Vec<Buffer> = group.outputs.iter().map(|_| tools.pool.take(bytes)).collect();
        let mut targets: Vec<&mut [u8]> = sums.iter_mut().map(|sum| &mut **sum).collect();
        group.passes.compute(tools.kernel, bytes, held, &mut targets);
        for (&output, sum) in group.outputs.iter().zip(sums) {
            self.sums[output] = Some(sum);
            let inputs = self.missing[output];
            self.count(output, inputs, complete);
        }
        group.locals.iter().for_each(|&local| self.release(tools, local));
    }

    /// Computes `coefficient · local`, in the local buffer itself if this is its last use.
    fn product_of(&mut self, tools: &mut Tools, local: usize, coefficient: u8) -> Buffer {
        self.uses_left[local] -= 1;
        if self.uses_left[local] > 0 {
            return tools.product(coefficient, self.held[local].as_ref().expect("a use is left"));
        }
        let mut buffer = self.held[local].take().expect("a use is left");
        tools.kernel.mul(coefficient, &mut buffer);
        buffer
    }

    fn release(&mut self, tools: &mut Tools, local: usize) {
        self.uses_left[local] -= 1;
        if self.uses_left[local] == 0 {
            tools.pool.give(self.held[local].take().expect("it was held for this use"));
        }
    }

    fn count(&mut self, output: usize, inputs: u16, complete: &mut Vec<usize>) {
        self.missing[output] -= inputs;
        if self.missing[output] == 0 {
            complete.push(output);
        }
    }
}

impl Tools {
    fn product(&mut self, coefficient: u8, source: &[u8]) -> Buffer {
        let mut product = self.pool.take(source.len());
        self.kernel.mul_into(coefficient, source, &mut product);
        product
    }
}
