//! Reading a file, whole or a range of it.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::RequestFailure;
use repair::wire::control::Ended;
use repair::{ParityOutcome, Scheme, StripeId};
use store_api::Sinks;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::destination::Destination;
use crate::error::LocalFileError;
use crate::layout;
use crate::pieces::{ByteRange, Piece, StripeSpan, pieces_of};
use crate::rooms::{Memory, MemorySink};
use crate::session::ReadRequest;
use crate::target::{Fault, FileTarget, StripeTarget};
use crate::whole::{InOrder, WholeBlock, whole_blocks};
use crate::{Client, ClientError, Progress};
use views::{FileLayout, FileStripe};

/// Reads in flight at most, when they go to a file.
const READS_AT_ONCE: usize = 4;
/// Bytes of such reads in flight at most, unless a single one is larger: more would only crowd the links.
const BYTES_AT_ONCE: u64 = 1 << 30;
/// How long a coordinator that has just started is waited for; it waits for its helpers for less.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(300);
/// Bytes of a read that goes to a stream, and is held in memory until its turn.
const STREAM_READ_BYTES: u64 = 8 << 20;
/// Such reads in flight, so that no more than 32 MiB are held.
const STREAM_READS_AT_ONCE: usize = 4;

/// How a file is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// The scheme for what is lost.
    pub scheme: Scheme,
    /// Bytes of a slice; chosen by the planner if absent.
    pub slice_bytes: Option<u32>,
    /// Whether every read must agree with one block more than it needs, where there is one: that finds a helper which
    /// sends other bytes than it holds. It costs every helper of a stripe a read of its block.
    pub verify: bool,
}

/// A file, or a range of it, that the coordinator knows: where its blocks were when it was asked.
#[derive(Clone, Debug)]
pub struct Found {
    layout: FileLayout,
    wanted: Range<u64>,
}

impl Found {
    /// Bytes that a get delivers.
    pub fn bytes(&self) -> u64 {
        self.wanted.end - self.wanted.start
    }
}

/// Where the bytes go.
pub enum GetTarget {
    /// A path. A regular file appears there when all bytes are there, with the owner and the permissions of the one
    /// whose place it takes; symbolic links are followed. What else the path stands for, such as a device or a FIFO, is
    /// a stream.
    File(PathBuf),
    /// A stream, in order.
    Stream(Box<dyn AsyncWrite + Send + Unpin>),
}

/// What was read, and how it went.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Got {
    /// Bytes read.
    pub bytes: u64,
    /// Bytes of the whole file.
    pub file_bytes: u64,
    /// Reads that it took.
    pub reads: u64,
    /// The schemes of the plans that carried the reads out.
    pub schemes: BTreeSet<Scheme>,
    /// Plans that were dropped on the way, and why.
    pub replanned: Vec<String>,
    /// Reads that were to be verified and could not be: those [`in_part`](Self::in_part), and those of stripes without a
    /// block to spare.
    pub unverified: u64,
    /// Reads that were to be verified of some of a block's sub-blocks: a parity equation covers all of them or none.
    pub in_part: u64,
    /// Blocks that were read with other bytes than were stored, and were decoded from the others instead.
    pub garbled: Vec<String>,
}

/// The reads of a get in one stripe.
#[derive(Clone, Debug)]
struct StripePart {
    fetches: Vec<Fetch>,
    /// The blocks that are read whole.
    whole: Vec<WholeBlock>,
}

/// How a part of a stripe was read.
struct PartRead {
    ended: Vec<Ended>,
    /// The names of blocks that were decoded, as what came of them is not what was stored.
    garbled: Vec<String>,
}

/// One read of a get.
#[derive(Clone, Debug)]
struct Fetch {
    stripe: StripeId,
    span: StripeSpan,
    piece: Piece,
    /// Blocks that are not to be read, as they were found not to be what was stored. Others may be wrong as well, so that the
    /// read is verified then.
    around: Vec<BlockIndex>,
}

/// A read into memory.
type ReadAhead = JoinSet<Result<(Ended, Vec<u8>), ClientError>>;

async fn one(read: &mut ReadAhead) -> Result<(Ended, Vec<u8>), ClientError> {
    read.join_next().await.expect("it holds one read").expect("reads do not panic")
}

impl Client {
    /// Asks for a file or a range of it, to [`get`](Self::get) it.
    ///
    /// # Errors
    /// [`ClientError`]: there is no such file, or it has no such range.
    pub async fn find(&self, name: &str, range: ByteRange) -> Result<Found, ClientError> {
        let layout = self.file(name).await?;
        layout::check(&layout).map_err(|bad| self.unreadable(&bad))?;
        let wanted = range.within(name, layout.file.bytes)?;
        Ok(Found { layout, wanted })
    }

    /// Reads what was found; what is lost is decoded on the way.
    ///
    /// # Errors
    /// [`ClientError::Unreadable`] if too much is lost, with the stripes that are; nothing appears under
    /// the target's name then. Other [`ClientError`]s as they say.
    pub async fn get(
        &self,
        found: &Found,
        options: &GetOptions,
        target: GetTarget,
        progress: Progress,
    ) -> Result<Got, ClientError> {
        let reader = Reader { client: self.clone(), options: options.clone() };
        let result = match target {
            GetTarget::File(path) => reader.get_path(found, path, progress).await,
            GetTarget::Stream(out) => {
                reader.get_stream(found, (out, Path::new("the output")), progress).await
            }
        };
        match result {
            Err(ClientError::Failed { stripe, failure }) => Err(found.explain(self, stripe, failure).await),
            other => other,
        }
    }
}

/// Carries out the reads of a [`Client::get`].
#[derive(Clone)]
struct Reader {
    client: Client,
    options: GetOptions,
}

impl Reader {
    async fn get_path(&self, found: &Found, path: PathBuf, progress: Progress) -> Result<Got, ClientError> {
        let opened = path.clone();
        match waiting(move || open(&opened)).await? {
            Opened::File(target) => self.get_file(found, (target, &path), progress).await,
            Opened::Stream(file) => {
                let held = file.try_clone().map_err(LocalFileError::io("write", &path))?;
                let out = Box::new(tokio::fs::File::from_std(file));
                let got = self.get_stream(found, (out, &path), progress).await?;
                waiting(move || settle(&held)).await.map_err(LocalFileError::io("write", &path))?;
                Ok(got)
            }
        }
    }

    async fn get_file(
        &self,
        Found { layout, wanted }: &Found,
        (target, path): (Box<FileTarget>, &Path),
        progress: Progress,
    ) -> Result<Got, ClientError> {
        let (file, fault) = (target.file()?, Fault::default());
        let mut got = Got::new(layout, wanted);
        let mut running = ReadsUnderWay::default();
        for part in parts(layout, wanted, &pieces_of) {
            while running.is_full(part.bytes()) {
                got.add_part(running.next(&fault).await?);
            }
            got.expect(&part.fetches, &self.options);
            let span = part.fetches[0].span;
            let target = StripeTarget {
                file: file.clone(),
                path: path.to_owned(),
                fault: fault.clone(),
                progress: progress.clone(),
                stripe_offset: span.file_offset,
                block_bytes: span.block_bytes(),
                wanted: wanted.clone(),
            };
            running.start(self.clone(), part, target);
        }
        while !running.reads.is_empty() {
            got.add_part(running.next(&fault).await?);
        }
        waiting(move || target.finish()).await?;
        Ok(got)
    }

    async fn get_stream(
        &self,
        Found { layout, wanted }: &Found,
        (mut out, path): (Box<dyn AsyncWrite + Send + Unpin>, &Path),
        progress: Progress,
    ) -> Result<Got, ClientError> {
        let mut got = Got::new(layout, wanted);
        let mut ahead = VecDeque::new();
        let whole: Vec<WholeBlock> =
            layout.layout.iter().flat_map(|stripe| whole_blocks(layout, stripe, wanted)).collect();
        let mut in_order = InOrder::new(&whole, wanted.start);
        let mut fetches = parts(layout, wanted, &stream_pieces_of).flat_map(|part| part.fetches);
        loop {
            while ahead.len() < STREAM_READS_AT_ONCE
                && let Some(fetch) = fetches.next()
            {
                got.expect(std::slice::from_ref(&fetch), &self.options);
                ahead.push_back((self.read_ahead(fetch.clone()), fetch));
            }
            let Some((mut next, fetch)) = ahead.pop_front() else { break };
            let (ended, mut bytes) = one(&mut next).await?;
            if let Err(block) = in_order.take(&bytes) {
                bytes = self.read_around(fetch, block).await?;
                got.garbled.push(block.name.clone());
            }
            out.write_all(&bytes).await.map_err(LocalFileError::io("write", path))?;
            progress(bytes.len() as u64);
            got.add(ended);
        }
        out.flush().await.map_err(LocalFileError::io("write", path))?;
        Ok(got)
    }

    /// Reads a part of a stripe. Blocks that are read whole are held against their recorded digests; one that is not what was
    /// stored is decoded from the others, and must be then.
    async fn read_part(self, mut part: StripePart, target: StripeTarget) -> Result<PartRead, ClientError> {
        let requests = part.fetches.iter().map(|fetch| fetch.request(&self.options)).collect();
        let mut ended = self.read_all(requests, &target).await?;
        let garbled = disagreeing(std::mem::take(&mut part.whole), &target).await?;
        let names = garbled.iter().map(|block| block.name.clone()).collect();
        let indices: Vec<BlockIndex> = garbled.iter().map(|block| block.index).collect();
        for block in &garbled {
            tracing::warn!(block = block.name, "a block came with other bytes than were stored");
            let requests =
                part.fetches_of(block, &indices).map(|fetch| fetch.request(&self.options)).collect();
            let anew = self.read_all(requests, &target.silent()).await;
            ended.extend(anew.map_err(|error| error.of_garbled(block))?);
        }
        match disagreeing(garbled, &target).await?.first() {
            Some(still) => Err(ClientError::garbled(still, None)),
            None => Ok(PartRead { ended, garbled: names }),
        }
    }

    /// Carries out several reads of a stripe at once.
    async fn read_all(
        &self,
        requests: Vec<ReadRequest>,
        target: &StripeTarget,
    ) -> Result<Vec<Ended>, ClientError> {
        let mut reads = JoinSet::new();
        for request in requests {
            let (reader, target) = (self.clone(), target.clone());
            reads.spawn(async move { reader.read_settled(request, Arc::new(target)).await });
        }
        let mut ended = Vec::new();
        while let Some(read) = reads.join_next().await {
            ended.push(read.expect("reads do not panic")?);
        }
        Ok(ended)
    }

    /// Decodes a block from the others that was read with other bytes than were stored, if none of it has gone out yet.
    async fn read_around(&self, mut fetch: Fetch, block: &WholeBlock) -> Result<Vec<u8>, ClientError> {
        if fetch.piece.bytes() < block.file.end - block.file.start {
            return Err(ClientError::garbled(block, None));
        }
        fetch.around = vec![block.index];
        let read = one(&mut self.read_ahead(fetch)).await;
        let (_, bytes) = read.map_err(|error| error.of_garbled(block))?;
        let mut in_order = InOrder::new(std::slice::from_ref(block), block.file.start);
        in_order.take(&bytes).map_err(|block| ClientError::garbled(block, None))?;
        Ok(bytes)
    }

    /// A read into memory that has begun, and ends when it is dropped.
    fn read_ahead(&self, fetch: Fetch) -> ReadAhead {
        let memory = Memory::new(fetch.span.start_of(&fetch.piece), fetch.piece.bytes() as usize);
        let (reader, request) = (self.clone(), fetch.request(&self.options));
        let mut read = JoinSet::new();
        read.spawn(async move {
            let ended = reader.read_settled(request, Arc::new(MemorySink(memory.clone()))).await?;
            Ok((ended, memory.take()))
        });
        read
    }

    /// Reads, and tries again while a coordinator that has just started waits for its helpers. The last helper may have registered
    /// between a failure and the question for the status, so what fails for lack of blocks is tried once more after that.
    async fn read_settled(&self, request: ReadRequest, sinks: Arc<dyn Sinks>) -> Result<Ended, ClientError> {
        let until = Instant::now() + SETTLE_LIMIT;
        let mut was_settled = false;
        loop {
            let result = self.client.read(request.clone(), sinks.clone()).await;
            let Err(ClientError::Failed { failure, .. }) = &result else { return result };
            if was_settled || Instant::now() >= until {
                return result;
            }
            match self.client.status().await {
                Ok(status) if status.settling => sleep(TRY_AGAIN_AFTER).await,
                Ok(_) if matches!(failure, RequestFailure::TooMuchLost { .. }) => was_settled = true,
                _ => return result,
            }
        }
    }
}

impl Found {
    /// Says which stripes of a file are lost, or that it was replaced, if a read failed for that. What was found before the read does not tell:
    /// the helpers that are missing may have gone since.
    async fn explain(&self, client: &Client, stripe: String, reason: RequestFailure) -> ClientError {
        let (name, wanted) = (&self.layout.file.name, &self.wanted);
        let failed = ClientError::Failed { stripe, failure: reason.clone() };
        let Ok(layout) = client.file(name).await else { return failed };
        let stripes = |layout: &FileLayout| -> Vec<String> {
            layout.layout.iter().map(|part| part.stripe.stripe.clone()).collect()
        };
        if stripes(&layout) != stripes(&self.layout) {
            return ClientError::Replaced { file: name.clone(), reason };
        }
        let (mut stripes, mut lost) = (Vec::new(), Vec::<Range<u64>>::new());
        for FileStripe { file_offset, data_bytes, stripe, .. } in layout.layout {
            let bytes = file_offset..file_offset + data_bytes;
            if stripe.readable || bytes.end <= wanted.start || wanted.end <= bytes.start {
                continue;
            }
            stripes.push(stripe.stripe);
            match lost.last_mut().filter(|last| last.end == bytes.start) {
                Some(last) => last.end = bytes.end,
                None => lost.push(bytes),
            }
        }
        if stripes.is_empty() {
            return failed;
        }
        ClientError::Unreadable { file: name.clone(), stripes, lost, reason }
    }
}

/// What a path stands for, ready to be written to.
enum Opened {
    File(Box<FileTarget>),
    Stream(File),
}

fn open(path: &Path) -> Result<Opened, LocalFileError> {
    match Destination::open(path).map_err(LocalFileError::io("write", path))? {
        Destination::File(place) => FileTarget::create(place).map(Box::new).map(Opened::File),
        Destination::Stream(file) => Ok(Opened::Stream(file)),
    }
}

/// A disk says only now whether it took everything.
fn settle(file: &File) -> io::Result<()> {
    if file.metadata()?.file_type().is_block_device() { file.sync_all() } else { Ok(()) }
}

/// Does on another thread what may wait for a medium, or for the reader of a FIFO.
async fn waiting<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it does not panic")
}

impl Got {
    fn new(layout: &FileLayout, wanted: &Range<u64>) -> Self {
        Self { bytes: wanted.end - wanted.start, file_bytes: layout.file.bytes, ..Self::default() }
    }

    /// Counts the reads that parity cannot verify because they are of some sub-blocks only.
    fn expect(&mut self, fetches: &[Fetch], options: &GetOptions) {
        let in_part = |fetch: &&Fetch| options.verify && fetch.is_in_part();
        self.in_part += fetches.iter().filter(in_part).count() as u64;
    }

    /// Reads that were to be verified, of stripes without a block to spare.
    pub fn without_spare(&self) -> u64 {
        self.unverified.saturating_sub(self.in_part)
    }

    fn add(&mut self, ended: Ended) {
        self.reads += 1;
        self.unverified += u64::from(ended.parity == Some(ParityOutcome::NoSpareBlock));
        self.schemes.extend(ended.scheme);
        self.replanned.extend(ended.replanned);
    }

    fn add_part(&mut self, part: PartRead) {
        part.ended.into_iter().for_each(|ended| self.add(ended));
        self.garbled.extend(part.garbled);
    }
}

/// Which of these blocks are not in the target as they were stored.
async fn disagreeing(blocks: Vec<WholeBlock>, target: &StripeTarget) -> Result<Vec<WholeBlock>, ClientError> {
    if blocks.is_empty() {
        return Ok(blocks);
    }
    let target = target.clone();
    let found = waiting(move || {
        let mut garbled = Vec::new();
        for block in blocks {
            if !target.has(&block)? {
                garbled.push(block);
            }
        }
        Ok(garbled)
    });
    found.await.map_err(ClientError::File)
}

/// Reads that go to a file.
#[derive(Default)]
struct ReadsUnderWay {
    reads: JoinSet<(u64, Result<PartRead, ClientError>)>,
    bytes: u64,
}

impl ReadsUnderWay {
    fn is_full(&self, bytes: u64) -> bool {
        let count = self.reads.len();
        count >= READS_AT_ONCE || (count > 1 && self.bytes + bytes > BYTES_AT_ONCE)
    }

    fn start(&mut self, reader: Reader, part: StripePart, target: StripeTarget) {
        let bytes = part.bytes();
        self.bytes += bytes;
        self.reads.spawn(async move { (bytes, reader.read_part(part, target).await) });
    }

    /// Waits for one of them. What went wrong on this machine counts more than what the coordinator says.
    async fn next(&mut self, fault: &Fault) -> Result<PartRead, ClientError> {
        let (bytes, result) =
            self.reads.join_next().await.expect("some are running").expect("reads do not panic");
        self.bytes -= bytes;
        result.map_err(|error| fault.take().map_or(error, ClientError::File))
    }
}

impl StripePart {
    fn bytes(&self) -> u64 {
        self.fetches.iter().map(|fetch| fetch.piece.bytes()).sum()
    }

    /// The reads of one of its blocks, around some.
    fn fetches_of(&self, block: &WholeBlock, around: &[BlockIndex]) -> impl Iterator<Item = Fetch> {
        let first = Fetch { around: around.to_vec(), ..self.fetches[0].clone() };
        let pieces = pieces_of(&first.span, &first.span.clip(&block.file));
        pieces.into_iter().map(move |piece| Fetch { piece, ..first.clone() })
    }
}

impl Fetch {
    /// Whether it reads some of the sub-blocks only.
    fn is_in_part(&self) -> bool {
        self.piece.sub_blocks.len() < usize::from(self.span.chunking.sub_blocks())
    }

    fn request(&self, options: &GetOptions) -> ReadRequest {
        ReadRequest {
            stripe: self.stripe.clone(),
            blocks: self.piece.block_indices(),
            sub_blocks: Some(self.piece.sub_blocks.clone()),
            window: self.piece.window.clone(),
            scheme: options.scheme,
            slice_bytes: options.slice_bytes,
            pacing: None,
            verify: options.verify || !self.around.is_empty(),
            pretend_lost: self.around.clone(),
        }
    }
}

/// How the wanted part of a stripe is cut into reads.
type Cut = dyn Fn(&StripeSpan, &Range<u64>) -> Vec<Piece>;

/// The parts of stripes that make up a range of a file, in order, and the reads of each. None is empty.
fn parts<'a>(
    layout: &'a FileLayout,
    wanted: &'a Range<u64>,
    cut: &'a Cut,
) -> impl Iterator<Item = StripePart> + 'a {
    let part = move |stripe: &'a FileStripe| {
        let span = span_of(layout, stripe);
        let stripe_id = StripeId(stripe.stripe.stripe.clone());
        let fetch = |piece| Fetch { stripe: stripe_id.clone(), span, piece, around: Vec::new() };
        let fetches = cut(&span, &span.clip(wanted)).into_iter().map(fetch).collect();
        StripePart { fetches, whole: whole_blocks(layout, stripe, wanted) }
    };
    layout.layout.iter().map(part).filter(|part| !part.fetches.is_empty())
}

/// See [`fuzzing`](crate::fuzzing).
#[cfg(feature = "fuzzing")]
pub(crate) fn plan_reads(layout: &FileLayout, range: ByteRange) -> Option<u64> {
    layout::check(layout).ok()?;
    let wanted = range.within(&layout.file.name, layout.file.bytes).ok()?;
    let read = parts(layout, &wanted, &pieces_of).map(|part| part.bytes()).sum();
    assert_eq!(read, wanted.end - wanted.start, "the reads are not the range");
    Some(read)
}

fn span_of(layout: &FileLayout, stripe: &FileStripe) -> StripeSpan {
    StripeSpan {
        file_offset: stripe.file_offset,
        data_bytes: stripe.data_bytes,
        chunking: layout::chunking(layout, stripe).expect("the layout was checked"),
    }
}

/// Like [`pieces_of`], in parts of one block that fit into memory.
fn stream_pieces_of(span: &StripeSpan, wanted: &Range<u64>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = wanted.start;
    while at < wanted.end {
        let block_end = (at / span.block_bytes() + 1) * span.block_bytes();
        let end = (at + STREAM_READ_BYTES).min(block_end).min(wanted.end);
        pieces.extend(pieces_of(span, &(at..end)));
        at = end;
    }
    pieces
}
