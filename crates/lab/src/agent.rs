//! The lab's client process, which runs in its own namespace and executes one [`Instruction`] after another.
//! It measures times around calls of the client library, so process startup and TLS handshakes are excluded.

mod rounds;

use std::collections::BTreeSet;
use std::env;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{
    CapsRequest, Client, ClientError, ClientOptions, PutOptions, ReadRequest, RepairRequest, RepairState,
    Sinks, delivery_to, no_progress,
};
use cluster::{Cluster, Role};
use codes::BlockIndex;
use repair::{BlockId, Scheme, Sink, StripeId};
use store_api::{BlockError, Delivery};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::direct;
use crate::instruction::{
    Answer, BlockAt, CheckedRead, Expected, Instruction, Piece, ReadInstruction, SteadyRead, Took,
};

/// The environment variable with the client's rack, as for `mend get`.
pub(crate) const RACK: &str = "MEND_RACK";
/// The timeout of a request that waits for the end of a repair. After a timeout, the request is repeated.
const WAIT: Duration = Duration::from_secs(30);

/// The distance, in pieces, between two successive reads of a client: large, so that reads are not
/// sequential.
const STRIDE: usize = 7919;

/// Executes instructions from standard input until the input ends.
///
/// # Errors
/// If a pipe breaks or the cluster folder is unusable.
pub(crate) fn run(cluster: &Path) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let opened = Cluster::open(cluster).map_err(io::Error::other)?;
    let options = ClientOptions { rack: env::var(RACK).ok(), ..ClientOptions::default() };
    let client = Client::connect_with(&opened, &Role::default_client(), options).map_err(io::Error::other)?;
    // Open the session before any measurement; otherwise the time of the first read would include the
    // handshake.
    runtime.block_on(client.node()).map_err(io::Error::other)?;
    let mut agent = Agent { client, rooms: Vec::new() };
    let served = runtime.block_on(agent.serve(read_lines()));
    runtime.shutdown_background();
    served
}

/// Reads the lines of standard input on a separate thread, so that the client can answer the coordinator's
/// pings while it waits for instructions. Without answers, the coordinator would end the session.
fn read_lines() -> mpsc::UnboundedReceiver<io::Result<String>> {
    let (lines, orders) = mpsc::unbounded_channel();
    // The thread ends at the end of the input, or when the receiver is dropped.
    std::thread::spawn(move || io::stdin().lock().lines().try_for_each(|line| lines.send(line).ok()));
    orders
}

struct Agent {
    client: Client,
    /// The memory with the blocks of the last read.
    rooms: Vec<Arc<Room>>,
}

/// The reason why an instruction failed.
#[derive(Debug, thiserror::Error)]
enum AgentError {
    #[error(transparent)]
    Client(Box<ClientError>),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("file {0} must have exactly one stripe")]
    NotOneStripe(String),
    #[error("block {block} is wrong: byte {offset} is {found:#04x} and should be {wanted:#04x}")]
    Wrong { block: u16, offset: usize, found: u8, wanted: u8 },
    #[error("block {block} has {found} bytes, but {wanted} were expected")]
    Short { block: u16, found: usize, wanted: usize },
    #[error("block {0} was not read")]
    NotRead(u16),
    #[error("the repair of {blocks} ended as {state}, with {rebuilt:?}: {reason}")]
    Repair { blocks: String, state: String, rebuilt: Vec<String>, reason: String },
}

impl From<ClientError> for AgentError {
    fn from(error: ClientError) -> Self {
        Self::Client(Box::new(error))
    }
}

impl Agent {
    async fn serve(&mut self, mut lines: mpsc::UnboundedReceiver<io::Result<String>>) -> io::Result<()> {
        let mut output = io::stdout().lock();
        while let Some(line) = lines.recv().await {
            let answer = match serde_json::from_str(&line?) {
                Ok(order) => self.carry_out(order).await,
                Err(error) => Answer::Failed { reason: error.to_string() },
            };
            serde_json::to_writer(&mut output, &answer)?;
            output.write_all(b"\n")?;
            output.flush()?;
        }
        Ok(())
    }

    async fn carry_out(&mut self, order: Instruction) -> Answer {
        self.try_carry_out(order).await.unwrap_or_else(|error| Answer::Failed { reason: error.to_string() })
    }

    async fn try_carry_out(&mut self, order: Instruction) -> Result<Answer, AgentError> {
        match order {
            Instruction::Nodes => self.nodes().await,
            Instruction::Put { path, name, code, block_bytes } => {
                self.put(&path, &name, code, block_bytes).await
            }
            Instruction::Layout { name } => self.layout(name).await,
            Instruction::Remove { name } => Ok(self.client.remove(&name).await.map(|()| Answer::Done)?),
            Instruction::Direct { address, bytes } => {
                let time = tokio::task::spawn_blocking(move || direct::fetch(address, bytes)).await;
                let time = time.map_err(io::Error::other)??;
                Ok(Answer::Took(Took { ns: nanoseconds(time), ..Took::default() }))
            }
            Instruction::Read(order) => self.read(&order).await.map(Answer::Took),
            Instruction::Compare { expected } => self.compare(&expected).map(|()| Answer::Done),
            Instruction::Save { stripe, block, window, block_bytes, path } => {
                let lost = lost_block(stripe, block, window, block_bytes);
                let order = ReadInstruction { pretend_lost: false, ..lost };
                self.save(&order, &path).await
            }
            Instruction::Many { stripe, block, block_bytes, reads, bytes, scheme, expected } => {
                let order =
                    ReadInstruction { scheme, ..lost_block(stripe, block, 0..block_bytes, block_bytes) };
                self.many(&order, reads, bytes, &expected).await
            }
            Instruction::Steady { pieces, block_bytes, clients, bytes, last_ms } => {
                let last = Duration::from_millis(last_ms);
                self.steady(Arc::new(pieces), (block_bytes, bytes), clients, last).await
            }
            Instruction::Hot => self.hot().await,
            Instruction::Sequence { reads } => self.sequence(&reads).await,
            Instruction::Round { transfers, slice_bytes } => self.round(transfers, slice_bytes).await,
            Instruction::Drain { node, requestors } => self.drain(node, requestors).await,
            Instruction::CapDisks { caps } => {
                let request = CapsRequest { disks: caps, ..CapsRequest::default() };
                Ok(self.client.change_caps(&request).await.map(|_| Answer::Done)?)
            }
            Instruction::Repair { stripe, blocks, scheme, slice_bytes, policy, verify_parity } => {
                let request = RepairRequest {
                    stripe: Some(stripe),
                    scheme: Some(scheme.name().to_owned()),
                    slice_bytes,
                    policy: policy.map(|policy| policy.name().to_owned()),
                    verify_parity: Some(verify_parity),
                    ..RepairRequest::default()
                };
                self.repair(request, &blocks).await
            }
        }
    }

    async fn nodes(&self) -> Result<Answer, AgentError> {
        let nodes = self.client.nodes().await?;
        Ok(Answer::Nodes { up: nodes.into_iter().filter(|node| node.up).map(|node| node.name).collect() })
    }

    async fn hot(&self) -> Result<Answer, AgentError> {
        let nodes = self.client.nodes().await?.into_iter();
        let blocks = nodes.filter_map(|node| Some((node.name, node.load.hot_blocks?))).collect();
        Ok(Answer::Hot { blocks })
    }

    async fn put(
        &self,
        path: &Path,
        name: &str,
        code: String,
        block_bytes: u64,
    ) -> Result<Answer, AgentError> {
        let options =
            PutOptions { code: Some(code), block_bytes: Some(block_bytes), ..PutOptions::default() };
        self.client.put(path, name, &options, no_progress()).await?;
        Ok(Answer::Done)
    }

    async fn layout(&self, name: String) -> Result<Answer, AgentError> {
        let file = self.client.file(&name).await?;
        let [stripe] = &file.layout[..] else { return Err(AgentError::NotOneStripe(name)) };
        let blocks = stripe.stripe.blocks.iter();
        Ok(Answer::Layout {
            stripe: stripe.stripe.stripe.clone(),
            block_bytes: stripe.stripe.block_bytes,
            sub_blocks: file.sub_blocks as u16,
            data_blocks: file.data_blocks as u16,
            blocks: blocks
                .map(|at| BlockAt { block: at.block.clone(), node: at.node.clone().unwrap_or_default() })
                .collect(),
        })
    }

    async fn read(&mut self, order: &ReadInstruction) -> Result<Took, AgentError> {
        // Reuse the memory of the last read: page faults of fresh memory would add to the time.
        let mut used = std::mem::take(&mut self.rooms).into_iter();
        self.rooms = order
            .blocks
            .iter()
            .map(|&block| Arc::new(Room::new(block, order.block_bytes as usize, used.next())))
            .collect();
        read(&self.client, order, self.rooms.clone()).await
    }

    fn compare(&self, expected: &[Expected]) -> Result<(), AgentError> {
        for expected in expected {
            let room = self.rooms.iter().find(|room| room.block == expected.block);
            room.ok_or(AgentError::NotRead(expected.block))?.compare(expected, 0)?;
        }
        Ok(())
    }

    async fn sequence(&mut self, reads: &[CheckedRead]) -> Result<Answer, AgentError> {
        let mut took = Vec::new();
        for CheckedRead { read, expected } in reads {
            took.push(self.read(read).await?);
            self.compare(std::slice::from_ref(expected))?;
        }
        Ok(Answer::Sequence { took })
    }

    async fn save(&self, order: &ReadInstruction, path: &Path) -> Result<Answer, AgentError> {
        let room = Arc::new(Room::new(order.blocks[0], order.block_bytes as usize, None));
        read(&self.client, order, vec![room.clone()]).await?;
        std::fs::write(path, &*room.bytes())?;
        Ok(Answer::Done)
    }

    async fn many(
        &self,
        order: &ReadInstruction,
        reads: u32,
        bytes: u64,
        expected: &Expected,
    ) -> Result<Answer, AgentError> {
        let mut running = JoinSet::new();
        for number in 0..u64::from(reads) {
            let client = self.client.clone();
            let mut order = order.clone();
            let start = number * bytes % (order.block_bytes - bytes + 1);
            order.window = start..start + bytes;
            running.spawn(async move {
                let room = Arc::new(Room::at(order.blocks[0], start, bytes as usize));
                let took = read(&client, &order, vec![room.clone()]).await?;
                Ok::<_, AgentError>((took, room))
            });
        }
        let (mut latencies_ns, mut failures) = (Vec::new(), Vec::new());
        while let Some(ended) = running.join_next().await {
            match ended.map_err(io::Error::other)? {
                Ok((took, room)) => match room.compare(expected, room.start) {
                    Ok(()) => latencies_ns.push(took.ns),
                    Err(error) => failures.push(error.to_string()),
                },
                Err(error) => failures.push(error.to_string()),
            }
        }
        latencies_ns.sort_unstable();
        Ok(Answer::Many { latencies_ns, failures })
    }

    /// Runs `clients` clients for the duration `last`. Each client reads one piece after another.
    async fn steady(
        &self,
        pieces: Arc<Vec<Piece>>,
        (block_bytes, bytes): (u64, u64),
        clients: usize,
        last: Duration,
    ) -> Result<Answer, AgentError> {
        let begun = Instant::now();
        let mut running = JoinSet::new();
        for number in 0..clients {
            let (client, pieces) = (self.client.clone(), pieces.clone());
            running.spawn(async move {
                let mut reads = Vec::new();
                let mut at = number * pieces.len() / clients;
                while begun.elapsed() < last {
                    at = (at + STRIDE) % pieces.len();
                    let order = small_read(&pieces[at], block_bytes, bytes, reads.len() as u64);
                    let room = Arc::new(Room::at(order.blocks[0], order.window.start, bytes as usize));
                    let took_ns = read(&client, &order, vec![room]).await.ok().map(|took| took.ns);
                    reads.push(SteadyRead { ended_ns: nanoseconds(begun.elapsed()), took_ns });
                }
                reads
            });
        }
        let mut reads = Vec::new();
        while let Some(ended) = running.join_next().await {
            reads.extend(ended.map_err(io::Error::other)?);
        }
        Ok(Answer::Steady { reads })
    }

    /// Requests a repair of a stripe and waits for its end. Fails unless all of `blocks` were rebuilt, each
    /// on a different node.
    async fn repair(&self, request: RepairRequest, blocks: &[String]) -> Result<Answer, AgentError> {
        let started = Instant::now();
        let mut view = self.client.repair(&request).await?;
        while !view.state.has_ended() {
            view = self.client.await_repair(view.repair, WAIT).await?;
        }
        let ns = nanoseconds(started.elapsed());
        let item = view.items.first();
        let came = item.map(|item| &item.rebuilt[..]).unwrap_or_default();
        let came_back = |block: &String| came.iter().any(|rebuilt| rebuilt.block == *block);
        let nodes: BTreeSet<_> = came.iter().map(|rebuilt| &rebuilt.node).collect();
        if view.state != RepairState::Done || !blocks.iter().all(came_back) || nodes.len() != blocks.len() {
            return Err(AgentError::Repair {
                blocks: blocks.join(", "),
                state: view.state.to_string(),
                rebuilt: came
                    .iter()
                    .map(|rebuilt| format!("{} on {}", rebuilt.block, rebuilt.node))
                    .collect(),
                reason: item.and_then(|item| item.reason.clone()).unwrap_or_default(),
            });
        }
        let scheme = item.and_then(|item| item.scheme.as_deref()?.parse().ok());
        let replanned = item.map(|item| item.replanned.clone()).unwrap_or_default();
        Ok(Answer::Took(Took { ns, first_byte_ns: None, scheme, replanned }))
    }
}

/// Returns an order to read one block as if it were lost.
fn lost_block(stripe: String, block: u16, window: Range<u64>, block_bytes: u64) -> ReadInstruction {
    ReadInstruction {
        stripe,
        blocks: vec![block],
        window,
        block_bytes,
        scheme: Scheme::Auto,
        slice_bytes: None,
        pacing: None,
        pretend_lost: true,
    }
}

/// Returns a small read of a piece, at an offset that depends on `number`.
fn small_read(piece: &Piece, block_bytes: u64, bytes: u64, number: u64) -> ReadInstruction {
    let start = number * bytes % (block_bytes - bytes + 1);
    ReadInstruction {
        stripe: piece.stripe.clone(),
        blocks: vec![piece.block],
        window: start..start + bytes,
        block_bytes,
        scheme: Scheme::Auto,
        slice_bytes: None,
        pacing: None,
        pretend_lost: false,
    }
}

/// Reads blocks into `rooms`, and measures the time until the last byte has arrived.
async fn read(client: &Client, order: &ReadInstruction, rooms: Vec<Arc<Room>>) -> Result<Took, AgentError> {
    let blocks: Vec<_> = order.blocks.iter().map(|&block| BlockIndex(block)).collect();
    let request = ReadRequest {
        stripe: StripeId(order.stripe.clone()),
        verify: false,
        pretend_lost: if order.pretend_lost { blocks.clone() } else { Vec::new() },
        blocks,
        sub_blocks: None,
        window: order.window.clone(),
        scheme: order.scheme,
        slice_bytes: order.slice_bytes,
        pacing: order.pacing,
        expected: Vec::new(),
    };
    let came = Arc::new(Mutex::new(None));
    let sinks = Arc::new(Rooms { rooms, came: came.clone() });
    let started = Instant::now();
    let ended = client.read(request, sinks).await?;
    // Use the arrival time of the last byte: the call returns later, after the coordinator's confirmation.
    let came = came.lock().unwrap_or_else(PoisonError::into_inner).take();
    let ns = nanoseconds(came.as_ref().map_or(started.elapsed(), |came: &Came| came.last - started));
    let first_byte_ns = came.map(|came| nanoseconds(came.first - started));
    Ok(Took { ns, first_byte_ns, scheme: ended.scheme, replanned: ended.replanned })
}

/// The arrival times of a read's first and last bytes.
struct Came {
    first: Instant,
    last: Instant,
}

/// Memory for a block or part of one.
struct Room {
    block: u16,
    start: u64,
    bytes: Mutex<Vec<u8>>,
}

impl Room {
    /// Allocates memory for a whole block, or reuses the memory of `used`. The initial content differs from
    /// any real block in nearly all bytes, so missing data is detected.
    fn new(block: u16, bytes: usize, used: Option<Arc<Room>>) -> Self {
        let mut memory = used.map(|used| std::mem::take(&mut *used.bytes())).unwrap_or_default();
        memory.clear();
        memory.resize(bytes, 0xa5);
        Self { block, start: 0, bytes: Mutex::new(memory) }
    }

    fn at(block: u16, start: u64, bytes: usize) -> Self {
        Self { start, ..Self::new(block, bytes, None) }
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the received bytes with the expected ones in a file. The received bytes start at offset
    /// `skip` of the block.
    fn compare(&self, expected: &Expected, skip: u64) -> Result<(), AgentError> {
        let found = self.bytes();
        let mut wanted = vec![0; found.len()];
        let file = File::open(&expected.path)?;
        let mut filled = 0;
        while filled < wanted.len() {
            match file.read_at(&mut wanted[filled..], expected.offset + skip + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        if filled != found.len() {
            return Err(AgentError::Short { block: self.block, found: found.len(), wanted: filled });
        }
        match found.iter().zip(&wanted).position(|(found, wanted)| found != wanted) {
            None => Ok(()),
            Some(offset) => Err(AgentError::Wrong {
                block: self.block,
                offset,
                found: found[offset],
                wanted: wanted[offset],
            }),
        }
    }
}

/// Delivers each block of a read into the memory that is allocated for that block.
struct Rooms {
    rooms: Vec<Arc<Room>>,
    came: Arc<Mutex<Option<Came>>>,
}

impl Sinks for Rooms {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        let room = self.rooms.iter().find(|room| room.block == sink.index.0);
        let room = room.ok_or_else(|| not_asked(&sink.id))?.clone();
        let room = TimedRoom { room, id: sink.id.clone(), came: self.came.clone() };
        Ok(delivery_to(sink, Arc::new(room)))
    }
}

/// Memory for a block that records when its first and last bytes arrive.
struct TimedRoom {
    room: Arc<Room>,
    id: BlockId,
    came: Arc<Mutex<Option<Came>>>,
}

impl TimedRoom {
    /// Calls `work` with the memory that holds the given range of the block.
    fn at(&self, offset: u64, bytes: usize, work: impl FnOnce(&mut [u8])) -> Result<(), BlockError> {
        let mut room = self.room.bytes();
        let at = offset.checked_sub(self.room.start).map(|at| at as usize);
        let place = at.and_then(|at| room.get_mut(at..at.checked_add(bytes)?));
        place.map(work).ok_or_else(|| not_asked(&self.id))
    }
}

impl client::Room for TimedRoom {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.at(offset, bytes.len(), |place| place.copy_from_slice(bytes))?;
        let now = Instant::now();
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came.get_or_insert(Came { first: now, last: now }).last = now;
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.at(offset, buffer.len(), |place| buffer.copy_from_slice(place))
    }

    fn may_wait(&self) -> bool {
        false
    }
}

fn not_asked(block: &BlockId) -> BlockError {
    BlockError::Corrupt {
        block: block.clone(),
        path: "the lab's client".to_owned(),
        detail: "an unexpected slice or request arrived".to_owned(),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}
