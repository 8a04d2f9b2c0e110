//! Carries out what the coordinator asks of a node's jobs.
//!
//! Every job has a task of its own that takes its messages in order: a new plan, stop, seal, fingerprint,
//! commit, reread, forget. What a job delivered lives in its sinks from plan to plan until it is committed
//! or forgotten.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use codes::BlockIndex;
use repair::wire::control::{FromNode, ToNode};
use repair::wire::edge::{Direction, Greeting};
use repair::{
    Assignment, BlockId, EdgeKey, Epoch, Fingerprint, Fingerprinter, JobId, LocalBlock, Relay, Report, Sink,
    SliceSet,
};
use stores::{BlockError, BlockReader, BlockWriter};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::buffers::Buffers;
use crate::disk::{Lane, ReadAhead, SharedWriter, Sinks, Source};
use crate::drive::{Driver, block_problem, sink_report};
use crate::rendezvous::{Rendezvous, Terms};
use crate::socket::{Connecting, InletSocket, OutletSocket};
use crate::traffic::Traffic;
use crate::workers::Workers;

/// Bytes of slices that one relay may hold.
const RELAY_BUDGET_BYTES: usize = 512 << 10;
/// Bytes read at once when a whole block is read through.
const READ_THROUGH_BYTES: usize = 1 << 20;

/// Where a node's blocks come from and where deliveries go.
pub trait Local: Send + Sync + 'static {
    /// Opens a block that an assignment reads. `tag` is the client's number for its request.
    ///
    /// # Errors
    /// [`BlockError`].
    fn open(&self, tag: Option<u64>, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError>;

    /// Like [`open`](Self::open), but never waits: `None` if that would take waiting, or something is wrong.
    fn open_if_cached(&self, tag: Option<u64>, block: &LocalBlock) -> Option<Arc<dyn BlockReader>> {
        let _ = (tag, block);
        None
    }

    /// Starts a block that an assignment delivers.
    ///
    /// # Errors
    /// [`BlockError`].
    fn create(&self, tag: Option<u64>, sink: &Sink) -> Result<Box<dyn BlockWriter>, BlockError>;

    /// Opens a committed block by name.
    ///
    /// # Errors
    /// [`BlockError`].
    fn held(&self, block: &BlockId) -> Result<Arc<dyn BlockReader>, BlockError>;
}

/// Where a node's messages to the coordinator go.
pub type Reports = mpsc::UnboundedSender<FromNode>;

/// The reports of one job's plan.
#[derive(Clone)]
pub(crate) struct TaskReports {
    job: JobId,
    epoch: Epoch,
    reports: Reports,
}

impl TaskReports {
    pub(crate) fn send(&self, report: Report) {
        // A closed channel means that the coordinator is gone; it will forget the job then.
        let _ = self.reports.send(FromNode::Report { job: self.job, epoch: self.epoch, report });
    }
}

/// Carries out assignments; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    local: Arc<dyn Local>,
    rendezvous: Rendezvous,
    reports: Reports,
    workers: Workers,
    traffic: Traffic,
    buffers: Buffers,
    jobs: Mutex<BTreeMap<JobId, mpsc::UnboundedSender<Order>>>,
}

/// What a job's task is told.
enum Order {
    Assign(Box<Assignment>),
    Stop(Epoch),
    Seal(Epoch),
    Fingerprint(Epoch, Box<Asked>),
    Commit(Epoch),
    Reread { epoch: Epoch, block: BlockId },
    Forget,
}

/// A question for the fingerprints of a block.
struct Asked {
    block: LocalBlock,
    sub_block_bytes: u64,
    sub_blocks: u16,
    window: (u64, u64),
    seed: u64,
}

impl Asked {
    fn fingerprints(&self, reader: &dyn BlockReader) -> Result<Vec<Fingerprint>, BlockError> {
        // What does not lie in a sub-block is nobody's business, and hostile numbers must not overflow.
        let (start, end) = (self.window.0.min(self.sub_block_bytes), self.window.1.min(self.sub_block_bytes));
        let starts = (0..u64::from(self.sub_blocks)).map(|sub| sub.saturating_mul(self.sub_block_bytes));
        let bytes = end.saturating_sub(start);
        starts.map(|sub| fingerprint(reader, sub.saturating_add(start), bytes, self.seed)).collect()
    }
}

impl Engine {
    /// An engine whose edges meet at `rendezvous`, whose reports go to `reports`, and whose jobs run on
    /// `workers`.
    pub fn new(local: Arc<dyn Local>, rendezvous: Rendezvous, reports: Reports, workers: Workers) -> Self {
        let (traffic, buffers, jobs) = (Traffic::default(), Buffers::default(), Mutex::default());
        Self { inner: Arc::new(Inner { local, rendezvous, reports, workers, traffic, buffers, jobs }) }
    }

    /// Takes a message that concerns a job; gives back one that does not.
    pub fn handle(&self, message: ToNode) -> Option<ToNode> {
        match message {
            ToNode::Assign(assignment) => self.order(assignment.job, Order::Assign(assignment)),
            ToNode::Stop { job, epoch } => self.order(job, Order::Stop(epoch)),
            ToNode::Seal { job, epoch } => self.order(job, Order::Seal(epoch)),
            ToNode::Fingerprint { job, epoch, block, sub_block_bytes, sub_blocks, window, seed } => {
                let asked = Asked { block, sub_block_bytes, sub_blocks, window, seed };
                self.order(job, Order::Fingerprint(epoch, Box::new(asked)));
            }
            ToNode::Commit { job, epoch } => self.order(job, Order::Commit(epoch)),
            ToNode::Reread { job, epoch, block } => self.order(job, Order::Reread { epoch, block }),
            ToNode::Forget { job } => self.forget(job),
            other => return Some(other),
        }
        None
    }

    /// What went through it so far.
    pub fn traffic(&self) -> &Traffic {
        &self.inner.traffic
    }

    /// Number of jobs in hand.
    pub fn jobs(&self) -> u32 {
        self.inner.jobs.lock().expect("no holder panics").len() as u32
    }

    /// Drops all jobs and what they did not commit: the coordinator that gave them is gone.
    pub fn forget_all(&self) {
        self.inner.jobs.lock().expect("no holder panics").clear();
    }

    fn order(&self, job: JobId, order: Order) {
        let mut jobs = self.inner.jobs.lock().expect("no holder panics");
        let orders = jobs.entry(job).or_insert_with(|| self.start(job));
        // The task lives as long as its entry in the table.
        let _ = orders.send(order);
    }

    fn forget(&self, job: JobId) {
        // The last order is sent before the channel closes, so that earlier ones are still carried out.
        if let Some(orders) = self.inner.jobs.lock().expect("no holder panics").remove(&job) {
            let _ = orders.send(Order::Forget);
        }
    }

    fn start(&self, job: JobId) -> mpsc::UnboundedSender<Order> {
        let (sender, orders) = mpsc::unbounded_channel();
        let task = JobTask {
            job,
            local: self.inner.local.clone(),
            rendezvous: self.inner.rendezvous.clone(),
            reports: self.inner.reports.clone(),
            traffic: self.inner.traffic.clone(),
            buffers: self.inner.buffers.clone(),
            sinks: Sinks::new(),
            delivered: SliceSet::new(),
            running: None,
        };
        self.inner.workers.spawn(task.run(orders));
        sender
    }
}

/// One job on this node.
struct JobTask {
    job: JobId,
    local: Arc<dyn Local>,
    rendezvous: Rendezvous,
    reports: Reports,
    traffic: Traffic,
    buffers: Buffers,
    sinks: Sinks,
    delivered: SliceSet,
    running: Option<Running>,
}

struct Running {
    stop: oneshot::Sender<()>,
    driver: JoinHandle<SliceSet>,
}

impl JobTask {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Assign(assignment) => self.assign(*assignment).await,
                Order::Stop(epoch) => {
                    self.stop().await;
                    let delivered = self.delivered.clone();
                    self.task_reports(epoch).send(Report::Stopped { delivered });
                }
                Order::Seal(epoch) => self.seal(epoch).await,
                Order::Fingerprint(epoch, asked) => self.fingerprint(epoch, *asked).await,
                Order::Commit(epoch) => self.commit(epoch).await,
                Order::Reread { epoch, block } => self.reread(epoch, block).await,
                Order::Forget => break,
            }
        }
        self.stop().await;
    }

    fn task_reports(&self, epoch: Epoch) -> TaskReports {
        TaskReports { job: self.job, epoch, reports: self.reports.clone() }
    }

    async fn assign(&mut self, assignment: Assignment) {
        self.stop().await;
        let reports = self.task_reports(assignment.epoch);
        match self.driver(assignment, reports.clone()).await {
            Ok(driver) => {
                let (stop, stopped) = oneshot::channel();
                self.running = Some(Running { stop, driver: tokio::spawn(driver.run(stopped)) });
            }
            Err(report) => reports.send(report),
        }
    }

    /// Stops the running plan, if there is one, and adds up what it delivered.
    async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.stop.send(()); // It may have finished.
            if let Ok(delivered) = running.driver.await {
                self.delivered = self.delivered.union(&delivered);
            }
        }
    }

    async fn driver(&mut self, assignment: Assignment, reports: TaskReports) -> Result<Driver, Report> {
        let relay = Relay::new(&assignment, RELAY_BUDGET_BYTES, self.buffers.take())
            .map_err(|error| Report::Refused { detail: error.to_string() })?;
        self.check_encryption(&assignment)?;
        let now = Instant::now();
        // The edges come first: neighbours may be dialling already.
        let inlets = assignment
            .inlets
            .iter()
            .map(|inlet| {
                let (dial, tls_name) = (inlet.dial.clone(), inlet.tls_name.clone());
                self.connect(&assignment, inlet.key, dial, tls_name, Direction::Receive)
            })
            .map(|connecting| InletSocket::new(connecting, now))
            .collect();
        let outlets = assignment
            .outlets
            .iter()
            .map(|outlet| {
                let (dial, tls_name) = (outlet.dial.clone(), outlet.tls_name.clone());
                self.connect(&assignment, outlet.key, dial, tls_name, Direction::Send)
            })
            .map(|connecting| OutletSocket::new(connecting, now))
            .collect();
        let sources = self.open_sources(&assignment).await?;
        let sinks = self.open_sinks(&assignment).await?;
        let (reads, writes) = (Lane::new(), Lane::new());
        let (traffic, rendezvous, buffers) =
            (self.traffic.clone(), self.rendezvous.clone(), self.buffers.clone());
        Ok(Driver {
            relay,
            inlets,
            outlets,
            sources,
            sinks,
            reads,
            ahead: ReadAhead::default(),
            writes,
            reports,
            traffic,
            rendezvous,
            buffers,
            assignment,
        })
    }

    /// Refuses edges that are less protected than this node's own configuration demands.
    fn check_encryption(&self, assignment: &Assignment) -> Result<(), Report> {
        let inlets = assignment.inlets.iter().map(|inlet| (inlet.from, &inlet.tls_name));
        let outlets = assignment.outlets.iter().map(|outlet| (outlet.to, &outlet.tls_name));
        let Some((peer, _)) = inlets.chain(outlets).find(|(_, tls_name)| tls_name.is_none()) else {
            return Ok(());
        };
        if !self.rendezvous.refuses_plain() {
            return Ok(());
        }
        let detail = format!(
            "the edge to node {peer} is plain, and this node's mend.toml encrypts data edges; give data_tls the same \
             value in every mend.toml and start the coordinator again"
        );
        tracing::warn!(detail, "refused an assignment");
        Err(Report::Refused { detail })
    }

    /// The connection of an edge: dialled, or awaited from the other end. `ours` is what this end does.
    fn connect(
        &self,
        assignment: &Assignment,
        key: EdgeKey,
        address: Option<String>,
        tls_name: Option<String>,
        ours: Direction,
    ) -> Connecting {
        match address {
            Some(address) => {
                let greeting =
                    Greeting { direction: ours, job: assignment.job, epoch: assignment.epoch, key };
                Box::pin(self.rendezvous.clone().dial(address, tls_name, greeting))
            }
            None => {
                let theirs = match ours {
                    Direction::Receive => Direction::Send,
                    Direction::Send => Direction::Receive,
                };
                let coming = self.rendezvous.expect(key, Terms { direction: theirs, tls_name });
                Box::pin(async move {
                    let stream =
                        coming.await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                    // It was taken on the listener's thread; from now on this job's thread polls it.
                    stream.moved_here()
                })
            }
        }
    }

    async fn open_sources(&self, assignment: &Assignment) -> Result<BTreeMap<BlockIndex, Source>, Report> {
        let (mut sources, mut cold) = (BTreeMap::new(), Vec::new());
        for block in &assignment.locals {
            match self.local.open_if_cached(assignment.tag, block) {
                Some(reader) if check_identity(&*reader, block).is_ok() => {
                    sources.insert(block.index, Source { id: block.id.clone(), reader });
                }
                _ => cold.push(block.clone()),
            }
        }
        if cold.is_empty() {
            return Ok(sources);
        }
        let (local, tag) = (self.local.clone(), assignment.tag);
        blocking(move || {
            for block in cold {
                let opened = local.open(tag, &block);
                let checked = opened.and_then(|reader| check_identity(&*reader, &block).map(|()| reader));
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
        &mut self,
        assignment: &Assignment,
    ) -> Result<BTreeMap<BlockIndex, (Sink, SharedWriter)>, Report> {
        let mut sinks = BTreeMap::new();
        for sink in assignment.sinks.clone() {
            let writer = match self.sinks.get(&sink.id) {
                Some(writer) => writer.clone(),
                None => {
                    let (local, tag, wanted) = (self.local.clone(), assignment.tag, sink.clone());
                    let created = blocking(move || local.create(tag, &wanted)).await;
                    let writer = created.map_err(|error| sink_report(sink.id.clone(), &error))?;
                    let writer = Arc::new(Mutex::new(writer));
                    self.sinks.insert(sink.id.clone(), writer.clone());
                    writer
                }
            };
            sinks.insert(sink.index, (sink, writer));
        }
        Ok(sinks)
    }

    async fn seal(&mut self, epoch: Epoch) {
        self.stop().await;
        let sinks = self.sinks.clone();
        let sealed = blocking(move || {
            let seal = |(block, writer): (BlockId, SharedWriter)| {
                let digest = writer.lock().expect("no holder panics").seal();
                digest.map(|digest| (block.clone(), digest)).map_err(|error| sink_report(block, &error))
            };
            sinks.into_iter().map(seal).collect::<Result<Vec<_>, _>>()
        })
        .await;
        let report = sealed.map_or_else(|report| report, |digests| Report::Sealed { digests });
        self.task_reports(epoch).send(report);
    }

    async fn commit(&mut self, epoch: Epoch) {
        let sinks = std::mem::take(&mut self.sinks);
        let committed = blocking(move || {
            for (block, writer) in sinks {
                let writer = Arc::into_inner(writer).expect("its driver has ended");
                let writer = writer.into_inner().expect("no holder panics");
                writer.commit().map_err(|error| sink_report(block, &error))?;
            }
            Ok::<_, Report>(())
        })
        .await;
        self.task_reports(epoch).send(committed.map_or_else(|report| report, |()| Report::Committed));
    }

    async fn fingerprint(&self, epoch: Epoch, asked: Asked) {
        let (local, sink) = (self.local.clone(), self.sinks.get(&asked.block.id).cloned());
        let block = asked.block.id.clone();
        let result = blocking(move || {
            let reader = match sink {
                Some(writer) => writer.lock().expect("no holder panics").reader()?,
                None => {
                    let reader = local.held(&asked.block.id)?;
                    check_identity(&*reader, &asked.block)?;
                    reader
                }
            };
            asked.fingerprints(&*reader)
        })
        .await;
        self.task_reports(epoch).send(match result {
            Ok(fingerprints) => Report::Fingerprinted { block, fingerprints },
            Err(error) => Report::BadBlock { problem: block_problem(&error), block },
        });
    }

    async fn reread(&self, epoch: Epoch, block: BlockId) {
        let (local, name) = (self.local.clone(), block.clone());
        let digest = blocking(move || local.held(&name)?.verify()).await;
        self.task_reports(epoch).send(match digest {
            Ok(digest) => Report::Reread { block, digest },
            Err(error) => Report::BadBlock { problem: block_problem(&error), block },
        });
    }
}

/// Holds a block that was opened against what the catalog has recorded of it, before a byte of it is served: its own
/// checksums agree with it also when both files are those of another block, or of an earlier day.
fn check_identity(reader: &dyn BlockReader, asked: &LocalBlock) -> Result<(), BlockError> {
    let detail = match (asked.digest, reader.digest()) {
        (Some(recorded), Some(found)) if found != recorded || reader.bytes() != asked.bytes => format!(
            "it has {} bytes and digest {found}, and {} bytes with digest {recorded} are recorded",
            reader.bytes(),
            asked.bytes
        ),
        // Without digests the length is all there is to tell blocks apart by.
        _ if reader.bytes() != asked.bytes => {
            format!("it has {} bytes, and {} are recorded", reader.bytes(), asked.bytes)
        }
        _ => return Ok(()),
    };
    Err(BlockError::Other { block: asked.id.clone(), detail })
}

/// The fingerprint of a sub-block; what lies beyond the block's end counts as zeros.
fn fingerprint(
    reader: &dyn BlockReader,
    start: u64,
    bytes: u64,
    seed: u64,
) -> Result<Fingerprint, BlockError> {
    let mut fingerprinter = Fingerprinter::new(seed);
    let end = reader.bytes().min(start.saturating_add(bytes));
    let mut buffer = vec![0; READ_THROUGH_BYTES];
    let mut at = start;
    while at < end {
        let piece = &mut buffer[..(end - at).min(READ_THROUGH_BYTES as u64) as usize];
        reader.read_at(at, piece)?;
        fingerprinter.update(piece);
        at += piece.len() as u64;
    }
    Ok(fingerprinter.finish())
}

/// Runs `work` on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The runtime is going away, and this task with it.
        Err(error) if error.is_cancelled() => std::future::pending().await,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
