//! The disk I/O of a running plan. Operations that cannot block run at once: reads from the page cache,
//! writes to memory. All others run in batches on threads that may block: at most one batch of reads and one
//! batch of writes at a time. So a slow disk does not block the thread of the plan's job, on which other jobs
//! may run.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use prometheus_client::metrics::histogram::Histogram;
use repair::{BlockId, Buffer, Transfer};
use store_api::{BlockError, BlockReader, Delivery};
use tokio::task::JoinHandle;

use crate::background_pacing::DiskBatches;
use crate::traffic::Traffic;

/// The maximum number of bytes in a batch.
const BATCH_BYTES: usize = 1 << 20;

/// A block that is being delivered here; shared because the successive plans of a job continue it.
pub(crate) type SharedDelivery = Arc<Mutex<Delivery>>;

/// A local block that is being read.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) id: BlockId,
    pub(crate) reader: Arc<dyn BlockReader>,
}

/// A read that fills buffers.
pub(crate) struct ReadJob {
    pub(crate) slice: u32,
    /// The relay's index of the local input that is read into the first buffer. The following inputs are read
    /// into the following buffers.
    pub(crate) local: u16,
    pub(crate) source: Source,
    pub(crate) transfer: Transfer,
    pub(crate) buffers: Vec<Buffer>,
}

/// Upcoming reads. Once a read has missed the page cache, they are announced to the disk; before that, they
/// are only recorded.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// The last two announcements of the relay; every read lies in one of them.
    announced: [Vec<(Source, Range<u64>)>; 2],
    missed: bool,
}

/// A write of buffers.
pub(crate) struct WriteJob {
    pub(crate) slice: u32,
    pub(crate) block: BlockId,
    pub(crate) writer: SharedDelivery,
    pub(crate) transfer: Transfer,
    /// The length of the block; bytes beyond it are padding.
    pub(crate) block_bytes: u64,
    pub(crate) buffers: Vec<Buffer>,
}

/// The error of a disk job, with its block.
pub(crate) struct DiskError {
    pub(crate) block: BlockId,
    pub(crate) error: BlockError,
}

type Batch<J> = JoinHandle<Result<Vec<J>, DiskError>>;

/// A queue of reads or a queue of writes, executed in order and in batches.
pub(crate) struct DiskQueue<J> {
    queue: VecDeque<J>,
    batch: Option<Batch<J>>,
    traffic: Traffic,
    /// Holds batches back while clients read, if this is a queue of background reads.
    background: Option<DiskBatches>,
}

/// A read or write that a [`DiskQueue`] executes.
pub(crate) trait DiskJob: Send + 'static {
    /// Executes the operation, on a thread that may block.
    fn run(&mut self) -> Result<(), DiskError>;
    /// Executes the operation if that cannot block; returns whether it was executed.
    fn run_without_waiting(&mut self) -> Result<bool, DiskError>;
    fn bytes(&self) -> usize;
    /// The histogram of the operation's durations.
    fn times(traffic: &Traffic) -> &Histogram;
}

impl<J: DiskJob> DiskQueue<J> {
    pub(crate) fn new(traffic: &Traffic, background: Option<DiskBatches>) -> Self {
        Self { queue: VecDeque::new(), batch: None, traffic: traffic.clone(), background }
    }

    /// Executes the job at once and returns it, if the queue is idle and the job cannot block. Otherwise
    /// queues the job and returns `None`.
    pub(crate) fn push(&mut self, mut job: J) -> Result<Option<J>, DiskError> {
        if self.is_idle() && job.run_without_waiting()? {
            return Ok(Some(job));
        }
        self.queue.push_back(job);
        Ok(None)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.batch.is_none() && self.queue.is_empty()
    }

    /// Drops all jobs that have not begun.
    pub(crate) fn drop_queue(&mut self) {
        self.queue.clear();
    }

    /// Returns the jobs of the next finished batch; starts a batch if none is running.
    pub(crate) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<J>, DiskError>> {
        if self.batch.is_none() {
            self.begin();
        }
        let Some(batch) = &mut self.batch else { return Poll::Pending };
        let done = ready!(Pin::new(batch).poll(cx));
        self.batch = None;
        match done {
            Ok(done) => Poll::Ready(done),
            // The runtime is shutting down, and this task with it.
            Err(error) if error.is_cancelled() => Poll::Pending,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn begin(&mut self) {
        let mut bytes = 0;
        let mut jobs = Vec::new();
        while bytes < BATCH_BYTES
            && let Some(job) = self.queue.pop_front()
        {
            bytes += job.bytes();
            jobs.push(job);
        }
        if !jobs.is_empty() {
            let (traffic, background) = (self.traffic.clone(), self.background.clone());
            self.batch = Some(tokio::task::spawn_blocking(move || {
                let _running = background.as_ref().map(DiskBatches::begin);
                let begun = Instant::now();
                let done = jobs.iter_mut().try_for_each(DiskJob::run);
                J::times(&traffic).observe(begun.elapsed().as_secs_f64());
                done.map(|()| jobs)
            }));
        }
    }
}

impl ReadJob {
    /// Fills the buffers by calling `read` with the reader, an offset and the bytes to fill. Both `read` and
    /// this function return whether the bytes were filled.
    fn fill(
        &mut self,
        read: impl Fn(&dyn BlockReader, u64, &mut [u8]) -> Result<bool, BlockError>,
    ) -> Result<bool, DiskError> {
        let reader = &*self.source.reader;
        let read = |offset: u64, bytes: &mut [u8]| read(reader, offset, bytes);
        let filled = self.transfer.read(reader.bytes(), &mut self.buffers, read);
        filled.map_err(|error| DiskError { block: self.source.id.clone(), error })
    }
}

impl DiskJob for ReadJob {
    fn run(&mut self) -> Result<(), DiskError> {
        self.fill(|reader, offset, bytes| reader.read_at(offset, bytes).map(|()| true)).map(drop)
    }

    fn run_without_waiting(&mut self) -> Result<bool, DiskError> {
        self.fill(|reader, offset, bytes| reader.read_if_cached(offset, bytes))
    }

    fn times(traffic: &Traffic) -> &Histogram {
        traffic.disk_reads()
    }

    fn bytes(&self) -> usize {
        self.transfer.bytes()
    }
}

impl ReadAhead {
    /// Records the next reads, and announces them to the disk if an earlier read missed the page cache.
    pub(crate) fn announce(&mut self, ranges: impl Iterator<Item = (Source, Range<u64>)>) {
        let [_, last] = std::mem::take(&mut self.announced);
        self.announced = [last, ranges.collect()];
        if self.missed {
            self.ask();
        }
    }

    /// Records that a read missed the page cache. From now on, reads are announced to the disk.
    pub(crate) fn miss(&mut self) {
        self.missed = true;
        self.ask();
    }

    fn ask(&mut self) {
        let announced = std::mem::take(&mut self.announced).concat();
        if !announced.is_empty() {
            // The announcement itself may block if the disk is busy. Its result is not used.
            tokio::task::spawn_blocking(move || {
                announced.into_iter().for_each(|(source, bytes)| source.reader.read_ahead(bytes));
            });
        }
    }
}

impl WriteJob {
    fn write(&self, writer: &mut Delivery) -> Result<(), DiskError> {
        let store = |offset: u64, bytes: &[u8]| writer.write_at(offset, bytes);
        let written = self.transfer.write(self.block_bytes, &self.buffers, store);
        written.map_err(|error| DiskError { block: self.block.clone(), error })
    }
}

impl DiskJob for WriteJob {
    fn run(&mut self) -> Result<(), DiskError> {
        self.write(&mut self.writer.lock().expect("never poisoned"))
    }

    fn run_without_waiting(&mut self) -> Result<bool, DiskError> {
        let Ok(mut writer) = self.writer.try_lock() else { return Ok(false) };
        if writer.may_wait() {
            return Ok(false);
        }
        self.write(&mut writer).map(|()| true)
    }

    fn times(traffic: &Traffic) -> &Histogram {
        traffic.disk_writes()
    }

    fn bytes(&self) -> usize {
        self.transfer.bytes()
    }
}

/// The deliveries of a job on this node, by block.
pub(crate) type Deliveries = BTreeMap<BlockId, SharedDelivery>;
