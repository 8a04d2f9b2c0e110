//! Reads a stored file or a byte range of it.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::num::TryFromIntError;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, CodeSpec, SpecError};
use repair::wire::RequestFailure;
use repair::wire::control::{Ended, ExpectedBlock};
use repair::{Chunking, ParityOutcome, Scheme, StripeId};
use store_api::Sinks;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::destination::{Destination, FilePlace};
use crate::error::LocalFileError;
use crate::layout;
use crate::pieces::{ByteRange, Piece, RangePastEnd, StripeSpan, pieces_of};
use crate::rooms::{Memory, MemorySink};
use crate::session::ReadRequest;
use crate::target::{Fault, FileTarget, StripeTarget};
use crate::whole::{InOrder, WholeBlock, whole_block, whole_blocks};
use crate::{Client, ClientError, Progress, no_progress};
use views::{BlockView, FileLayout, FileStripe};

/// The maximum number of concurrent reads into a file.
const READS_AT_ONCE: usize = 4;
/// A third or fourth concurrent read into a file starts only if all concurrent reads, including the new one,
/// cover at most this many bytes in total. More bytes in flight would only congest the links.
const BYTES_AT_ONCE: u64 = 1 << 30;
/// How long to retry failed reads while a coordinator is starting. The coordinator waits for its helpers for
/// a shorter time.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(300);
/// The maximum number of restarts of a get. A get restarts, with the newer version, when the file was
/// replaced during the read.
const MAX_RESTARTS: u32 = 8;
/// The size in bytes of one read for a stream. The bytes stay in memory until all earlier bytes are written.
const STREAM_READ_BYTES: u64 = 8 << 20;
/// The number of concurrent reads for a stream, which bounds memory to 32 MiB.
const STREAM_READS_AT_ONCE: usize = 4;

/// Options for reading a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// The scheme for decoding lost blocks.
    pub scheme: Scheme,
    /// Slice size in bytes; chosen by the planner if absent.
    pub slice_bytes: Option<u32>,
    /// Whether to check every read against one more block than it needs, if one is available. This detects a
    /// helper that sends wrong bytes, but makes every helper of the stripe read its block.
    pub verify: bool,
}

/// A file or a range of it, with the locations of its blocks at the time of the query.
#[derive(Clone, Debug)]
pub struct Found {
    layout: Arc<FileLayout>,
    range: ByteRange,
    wanted: Range<u64>,
}

impl Found {
    /// The number of bytes that a get delivers.
    pub fn bytes(&self) -> u64 {
        self.wanted.end - self.wanted.start
    }

    /// Returns another range of the same version of the file.
    ///
    /// # Errors
    /// [`RangePastEnd`].
    pub fn with_range(&self, range: ByteRange) -> Result<Self, RangePastEnd> {
        let wanted = range.within(&self.layout.file.name, self.layout.file.bytes)?;
        Ok(Self { range, wanted, ..self.clone() })
    }
}

/// A block of a stripe or a range of it, with the layout of its bytes at the time of the query.
#[derive(Clone, Debug)]
pub struct FoundBlock {
    stripe: StripeId,
    block: Arc<BlockView>,
    chunking: Chunking,
    wanted: Range<u64>,
}

impl FoundBlock {
    /// The number of bytes that a get delivers.
    pub fn bytes(&self) -> u64 {
        self.wanted.end - self.wanted.start
    }

    /// Returns another range of the block.
    ///
    /// # Errors
    /// [`RangePastEnd`].
    pub fn with_range(&self, range: ByteRange) -> Result<Self, RangePastEnd> {
        let wanted = range.within(&self.block.block, self.block_bytes())?;
        Ok(Self { wanted, ..self.clone() })
    }

    fn block_bytes(&self) -> u64 {
        self.block.bytes.min(self.chunking.block_bytes())
    }

    fn expected(&self) -> ExpectedBlock {
        let digest = self.block.digest.as_ref().and_then(|digest| digest.parse().ok());
        ExpectedBlock { index: BlockIndex(self.block.index), bytes: self.block.bytes, digest }
    }
}

/// The destination of a get.
pub enum GetTarget {
    /// A path. A regular file appears only when complete, with the owner and permissions of the file that it
    /// replaces. Symbolic links are followed. A device, FIFO or socket is written to in order, like a stream.
    File(PathBuf),
    /// The path of a file that must not exist yet. It appears only when complete, and never replaces another file.
    NewFile(PathBuf),
    /// A stream, written in order.
    Stream(Box<dyn AsyncWrite + Send + Unpin>),
    /// A channel, which receives the bytes in order, in pieces of at most 8 MiB.
    Channel(mpsc::Sender<Vec<u8>>),
}

/// The result of a get.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Got {
    /// The number of bytes of the requested range.
    pub bytes: u64,
    /// The size of the whole file in bytes.
    pub file_bytes: u64,
    /// The number of stripe reads.
    pub reads: u64,
    /// The schemes of the plans that were used.
    pub schemes: BTreeSet<Scheme>,
    /// The reasons why plans were dropped and replaced.
    pub replanned: Vec<String>,
    /// The number of reads that should have been verified but could not be: partial reads
    /// ([`in_part`](Self::in_part)), and reads of stripes without a spare block.
    pub unverified: u64,
    /// The number of reads that could not be verified because they cover only some sub-blocks of a block:
    /// parity equations need all sub-blocks.
    pub in_part: u64,
    /// Blocks that arrived with wrong bytes and were decoded from other blocks instead.
    pub garbled: Vec<String>,
}

/// The reads of one stripe that a get needs.
#[derive(Clone, Debug)]
struct StripePart {
    fetches: Vec<Fetch>,
    /// The blocks of the stripe that these reads cover completely.
    whole: Vec<WholeBlock>,
}

/// The result of reading a part of a stripe.
struct PartRead {
    ended: Vec<Ended>,
    /// The names of blocks that arrived with wrong bytes and were decoded instead.
    garbled: Vec<String>,
}

/// One read of a get.
#[derive(Clone, Debug)]
struct Fetch {
    stripe: StripeId,
    span: StripeSpan,
    piece: Piece,
    /// Blocks to decode from others because they arrived with wrong bytes. If there are any, the read is also
    /// verified, because more blocks may be wrong.
    around: Vec<BlockIndex>,
    /// The blocks as they were found, if several reads must return bytes of the same version of them. A stripe of a
    /// stored file has only one version.
    expected: Vec<ExpectedBlock>,
}

/// A running read into memory.
type ReadAhead = JoinSet<Result<(Ended, Vec<u8>), ClientError>>;

async fn one(read: &mut ReadAhead) -> Result<(Ended, Vec<u8>), ClientError> {
    read.join_next().await.expect("it holds one read").expect("reads do not panic")
}

impl Client {
    /// Looks up a file or a range of it, for [`get`](Self::get).
    ///
    /// # Errors
    /// [`ClientError`] if the file does not exist or is shorter than the range.
    pub async fn find(&self, name: &str, range: ByteRange) -> Result<Found, ClientError> {
        let layout = self.file(name).await?;
        layout::check(&layout).map_err(|bad| self.http().protocol(bad))?;
        let wanted = range.within(name, layout.file.bytes)?;
        Ok(Found { layout: Arc::new(layout), range, wanted })
    }

    /// Reads the file or range, decoding lost blocks on the way. If the file is replaced before anything is
    /// delivered, reads the new version instead.
    ///
    /// # Errors
    /// [`ClientError::Unreadable`] with the affected stripes if too many blocks are lost; the target file is
    /// then not created. Other [`ClientError`]s as documented there.
    pub async fn get(
        &self,
        found: &Found,
        options: &GetOptions,
        target: GetTarget,
        progress: Progress,
    ) -> Result<Got, ClientError> {
        let reader = Reader { client: self.clone(), options: options.clone() };
        let mut output = waiting(move || Output::open(target)).await?;
        let mut result = reader.get(found, &mut output, progress).await;
        for _ in 0..MAX_RESTARTS {
            if !matches!(result, Err(ClientError::Replaced { .. })) || output.has_begun() {
                break;
            }
            let newer = self.find(&found.layout.file.name, found.range).await?;
            // The read of the old version has already reported these bytes as progress.
            result = reader.get(&newer, &mut output, no_progress()).await;
        }
        result
    }

    /// Like [`get`](Self::get), but reads the found version of the file, or fails.
    ///
    /// # Errors
    /// [`ClientError::Replaced`] if the version is no longer available. Otherwise as [`get`](Self::get).
    pub async fn get_version(
        &self,
        found: &Found,
        options: &GetOptions,
        target: GetTarget,
        progress: Progress,
    ) -> Result<Got, ClientError> {
        let reader = Reader { client: self.clone(), options: options.clone() };
        let mut output = waiting(move || Output::open(target)).await?;
        reader.get(found, &mut output, progress).await
    }

    /// Looks up a block of a stripe, for [`get_block`](Self::get_block).
    ///
    /// # Errors
    /// [`ClientError`] if the stripe or the block does not exist.
    pub async fn find_block(&self, stripe: &str, index: u16) -> Result<FoundBlock, ClientError> {
        let mut view = self.stripe(stripe).await?;
        let code: CodeSpec = view.code.parse().map_err(|bad: SpecError| self.http().protocol(bad))?;
        let sub_blocks =
            code.sub_blocks().try_into().map_err(|bad: TryFromIntError| self.http().protocol(bad))?;
        let chunk_bytes = view.chunk_bytes.unwrap_or(view.block_bytes);
        let chunking = Chunking::new(view.block_bytes, chunk_bytes, sub_blocks)
            .map_err(|bad| self.http().protocol(bad))?;
        let Some(place) = view.blocks.iter().position(|block| block.index == index) else {
            return Err(ClientError::NoBlock { stripe: view.stripe, index, blocks: view.blocks.len() });
        };
        let block = Arc::new(view.blocks.swap_remove(place));
        let found = FoundBlock { stripe: StripeId(view.stripe), block, chunking, wanted: 0..0 };
        Ok(found.with_range(ByteRange::ALL)?)
    }

    /// Reads the block or range into a channel in order, decoding the block if it is lost.
    ///
    /// # Errors
    /// [`ClientError::Failed`] with [`RequestFailure::Replaced`] if the block was replaced since it was found. Otherwise
    /// as [`get`](Self::get).
    pub async fn get_block(
        &self,
        found: &FoundBlock,
        options: &GetOptions,
        channel: mpsc::Sender<Vec<u8>>,
    ) -> Result<Got, ClientError> {
        let reader = Reader { client: self.clone(), options: options.clone() };
        let mut stream = Stream::to_channel(channel);
        let got = Got { bytes: found.bytes(), file_bytes: found.block_bytes(), ..Got::default() };
        reader.get_stream(found.reads(), &mut stream, no_progress(), got).await
    }
}

/// Runs the reads of a [`Client::get`].
#[derive(Clone)]
struct Reader {
    client: Client,
    options: GetOptions,
}

impl Reader {
    async fn get(&self, found: &Found, output: &mut Output, progress: Progress) -> Result<Got, ClientError> {
        let result = match output {
            Output::File { place, path } => {
                let place = place.clone();
                let target = waiting(move || FileTarget::create(place)).await?;
                self.get_file(found, (target, path), progress).await
            }
            Output::Stream(stream) => {
                let got = Got::new(&found.layout, &found.wanted);
                self.get_stream(found.reads(), stream, progress, got).await
            }
        };
        match result {
            Err(ClientError::Failed { stripe, failure }) => {
                Err(found.explain(&self.client, stripe, failure).await)
            }
            other => other,
        }
    }

    async fn get_file(
        &self,
        Found { layout, wanted, .. }: &Found,
        (target, path): (FileTarget, &Path),
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
        reads: OrderedReads<impl Iterator<Item = Fetch>>,
        stream: &mut Stream,
        progress: Progress,
        mut got: Got,
    ) -> Result<Got, ClientError> {
        let mut ahead = VecDeque::new();
        let OrderedReads { whole, start, mut fetches } = reads;
        let mut in_order = InOrder::new(&whole, start);
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
                report_garbled(&self.client, &fetch.stripe, block.index).await;
                bytes = self.read_around(fetch, block).await?;
                got.garbled.push(block.name.clone());
            }
            let delivered = bytes.len() as u64;
            stream.write(bytes).await?;
            progress(delivered);
            got.add(ended);
        }
        stream.finish().await?;
        Ok(got)
    }

    /// Reads a part of a stripe. Blocks that are read completely are verified against their recorded digests.
    /// A block that differs is decoded from the stripe's other blocks, and the result must match its digest.
    async fn read_part(self, mut part: StripePart, target: StripeTarget) -> Result<PartRead, ClientError> {
        let requests = part.fetches.iter().map(|fetch| fetch.request(&self.options)).collect();
        let mut ended = self.read_all(requests, &target).await?;
        let garbled = disagreeing(std::mem::take(&mut part.whole), &target).await?;
        let names = garbled.iter().map(|block| block.name.clone()).collect();
        let indices: Vec<BlockIndex> = garbled.iter().map(|block| block.index).collect();
        for block in &garbled {
            tracing::warn!(block = block.name, "a block arrived with wrong bytes");
            report_garbled(&self.client, &part.fetches[0].stripe, block.index).await;
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

    /// Runs several reads of a stripe concurrently.
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

    /// Decodes a block that arrived with wrong bytes from the stripe's other blocks. Fails if some of the
    /// wrong bytes may already be in the stream.
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

    /// Starts a read into memory; dropping the result cancels the read.
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

    /// Runs a read, and retries it if it fails while a starting coordinator waits for its helpers. The last
    /// helper may register between a failure and the status query, so the read is retried once more after the
    /// coordinator is ready.
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

/// The reads of a range, in order.
struct OrderedReads<F> {
    /// The blocks that the reads cover completely.
    whole: Vec<WholeBlock>,
    /// The offset of the first byte.
    start: u64,
    fetches: F,
}

impl FoundBlock {
    fn reads(&self) -> OrderedReads<impl Iterator<Item = Fetch>> {
        let Self { stripe, block, chunking, wanted } = self;
        let span = StripeSpan { file_offset: 0, data_bytes: chunking.block_bytes(), chunking: *chunking };
        let (blocks, expected) = (block.index..block.index + 1, vec![self.expected()]);
        let fetch = move |piece| {
            let piece = Piece { blocks: blocks.clone(), ..piece };
            Fetch { stripe: stripe.clone(), span, piece, around: Vec::new(), expected: expected.clone() }
        };
        OrderedReads {
            whole: whole_block(block, chunking.block_bytes(), wanted).into_iter().collect(),
            start: wanted.start,
            fetches: stream_pieces_of(&span, wanted).into_iter().map(fetch),
        }
    }
}

impl Found {
    fn reads(&self) -> OrderedReads<impl Iterator<Item = Fetch>> {
        let Self { layout, wanted, .. } = self;
        OrderedReads {
            whole: layout.layout.iter().flat_map(|stripe| whole_blocks(layout, stripe, wanted)).collect(),
            start: wanted.start,
            fetches: parts(layout, wanted, &stream_pieces_of).flat_map(|part| part.fetches),
        }
    }

    /// Returns the error for a failed read: which stripes are unreadable, or that the file was replaced.
    /// Fetches the layout again, because helpers may have failed since the first query.
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

/// The opened destination of a get.
enum Output {
    /// A regular file, which appears only when complete.
    File {
        place: FilePlace,
        path: PathBuf,
    },
    Stream(Stream),
}

impl Output {
    fn open(target: GetTarget) -> Result<Self, LocalFileError> {
        let path = match target {
            GetTarget::Stream(out) => return Ok(Self::Stream(Stream::new(Out::Writer(out)))),
            GetTarget::Channel(channel) => return Ok(Self::Stream(Stream::to_channel(channel))),
            GetTarget::NewFile(path) => {
                let place = FilePlace::new_file(&path).map_err(LocalFileError::io("write", &path))?;
                return Ok(Self::File { place, path });
            }
            GetTarget::File(path) => path,
        };
        let failed = || LocalFileError::io("write", &path);
        match Destination::open(&path).map_err(failed())? {
            Destination::File(place) => Ok(Self::File { place, path }),
            Destination::Stream(file) => {
                let held = Some(file.try_clone().map_err(failed())?);
                let out = Out::Writer(Box::new(tokio::fs::File::from_std(file)));
                Ok(Self::Stream(Stream { out, path, held, begun: false }))
            }
        }
    }

    /// Whether any byte was delivered.
    fn has_begun(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.begun)
    }
}

/// A destination that is written from beginning to end.
struct Stream {
    out: Out,
    /// The path, for messages.
    path: PathBuf,
    /// A second handle to the opened file, to sync it at the end; `None` if the caller passed a stream.
    held: Option<File>,
    /// Whether any byte was written.
    begun: bool,
}

/// The receiver of a stream's bytes.
enum Out {
    Writer(Box<dyn AsyncWrite + Send + Unpin>),
    Channel(mpsc::Sender<Vec<u8>>),
}

impl Out {
    async fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        match self {
            Self::Writer(writer) => writer.write_all(&bytes).await,
            Self::Channel(channel) => channel.send(bytes).await.map_err(|_| io::ErrorKind::BrokenPipe.into()),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Writer(writer) => writer.flush().await,
            Self::Channel(_) => Ok(()),
        }
    }
}

impl Stream {
    fn new(out: Out) -> Self {
        Self { out, path: PathBuf::from("the output"), held: None, begun: false }
    }

    fn to_channel(channel: mpsc::Sender<Vec<u8>>) -> Self {
        Self::new(Out::Channel(channel))
    }

    async fn write(&mut self, bytes: Vec<u8>) -> Result<(), ClientError> {
        self.begun |= !bytes.is_empty();
        self.out.write(bytes).await.map_err(LocalFileError::io("write", &self.path))?;
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), ClientError> {
        self.out.flush().await.map_err(LocalFileError::io("write", &self.path))?;
        if let Some(file) = self.held.take() {
            waiting(move || settle(&file)).await.map_err(LocalFileError::io("write", &self.path))?;
        }
        Ok(())
    }
}

/// Syncs a block device, which reports write errors only on sync.
fn settle(file: &File) -> io::Result<()> {
    if file.metadata()?.file_type().is_block_device() { file.sync_all() } else { Ok(()) }
}

/// Runs blocking work on another thread, such as disk I/O or waiting for the reader of a FIFO.
pub(crate) async fn waiting<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it does not panic")
}

impl Got {
    fn new(layout: &FileLayout, wanted: &Range<u64>) -> Self {
        Self { bytes: wanted.end - wanted.start, file_bytes: layout.file.bytes, ..Self::default() }
    }

    /// If reads are to be verified, counts those among `fetches` that cover only some sub-blocks of a block,
    /// because parity cannot verify these.
    fn expect(&mut self, fetches: &[Fetch], options: &GetOptions) {
        let in_part = |fetch: &&Fetch| options.verify && fetch.is_in_part();
        self.in_part += fetches.iter().filter(in_part).count() as u64;
    }

    /// Returns the number of reads that could not be verified because their stripe had no spare block.
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

/// Reports to the coordinator that a block arrived with wrong bytes, so that the block's helper verifies it. If no
/// session can be opened, nothing is reported; a later read will notice the same block.
async fn report_garbled(client: &Client, stripe: &StripeId, block: BlockIndex) {
    if let Ok(session) = client.session().await {
        session.report_garbled(stripe.clone(), block);
    }
}

/// Returns the blocks whose bytes in the target do not match their digests.
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

/// The running reads into a file.
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

    /// Waits for one read. If it failed because of a local file error, returns that error rather than the
    /// coordinator's message.
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

    /// Returns the reads that deliver `block` while the blocks in `around` are treated as lost.
    fn fetches_of(&self, block: &WholeBlock, around: &[BlockIndex]) -> impl Iterator<Item = Fetch> {
        let first = Fetch { around: around.to_vec(), ..self.fetches[0].clone() };
        let pieces = pieces_of(&first.span, &first.span.clip(&block.file));
        pieces.into_iter().map(move |piece| Fetch { piece, ..first.clone() })
    }
}

impl Fetch {
    /// Whether the read covers only some of a block's sub-blocks.
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
            expected: self.expected.clone(),
        }
    }
}

/// A function that splits the wanted range of a stripe into reads.
type Cut = dyn Fn(&StripeSpan, &Range<u64>) -> Vec<Piece> + Sync;

/// Returns the reads of each stripe that together cover a range of a file, in file order. Stripes outside the
/// range are skipped.
fn parts<'a>(
    layout: &'a FileLayout,
    wanted: &'a Range<u64>,
    cut: &'a Cut,
) -> impl Iterator<Item = StripePart> + 'a {
    let part = move |stripe: &'a FileStripe| {
        let span = span_of(layout, stripe);
        let stripe_id = StripeId(stripe.stripe.stripe.clone());
        let fetch = |piece| Fetch {
            stripe: stripe_id.clone(),
            span,
            piece,
            around: Vec::new(),
            expected: Vec::new(),
        };
        let fetches = cut(&span, &span.clip(wanted)).into_iter().map(fetch).collect();
        StripePart { fetches, whole: whole_blocks(layout, stripe, wanted) }
    };
    layout.layout.iter().map(part).filter(|part| !part.fetches.is_empty())
}

/// Entry point of the fuzz target; see [`fuzzing`](crate::fuzzing).
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

/// Like [`pieces_of`], but limits each piece to one block and to `STREAM_READ_BYTES`.
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

#[cfg(test)]
mod tests {
    use views::BlockState;

    use super::*;

    #[test]
    fn every_read_of_a_found_block_names_the_block_as_it_was_found() {
        let bytes = 2 * STREAM_READ_BYTES + 4096;
        let digest = "ecsum:0011aaff";
        let block = BlockView {
            block: "7.ec03".to_owned(),
            index: 3,
            bytes,
            node: None,
            state: BlockState::Healthy,
            replicas: Vec::new(),
            digest: Some(digest.to_owned()),
        };
        let chunking = Chunking::new(bytes, bytes, 1).unwrap();
        let found =
            FoundBlock { stripe: StripeId("7".into()), block: Arc::new(block), chunking, wanted: 0..bytes };
        let requests: Vec<ReadRequest> =
            found.reads().fetches.map(|fetch| fetch.request(&GetOptions::default())).collect();
        assert_eq!(requests.len(), 3);
        let expected = ExpectedBlock { index: BlockIndex(3), bytes, digest: Some(digest.parse().unwrap()) };
        for request in requests {
            assert_eq!(request.expected, std::slice::from_ref(&expected));
        }
    }
}
