//! Stores a local file in the cluster.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use codes::BlockIndex;
use helper::Ends;
use repair::wire::control::{ClientRequest, Ended};
use repair::{Digest, LocalBlock};
use store_api::{BlockError, BlockHash, BlockReader, Sources};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use views::endpoints::{AbortPut, BeginPut, CommitPut};

use crate::error::{FileChange, LocalFileError};
use crate::target::Fault;
use crate::whole::PIECE_BYTES;
use crate::{Client, ClientError, Progress};
use views::{FileView, PutRequest, PutStripe, PutView};

/// The number of stripes in flight: while one stripe is being committed, the other keeps the links busy.
const STRIPES_AT_ONCE: usize = 2;

/// Options for storing a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// The code, such as `rs-14-10`; the cluster's default if absent.
    pub code: Option<String>,
    /// Block size in bytes; the cluster's default if absent.
    pub block_bytes: Option<u64>,
    /// Chunk size in bytes, for codes with sub-blocks; the whole block is one chunk if absent.
    pub chunk_bytes: Option<u64>,
    /// Whether to replace an existing file of the same name.
    pub replace: bool,
}

impl Client {
    /// Stores the file at `path` under `name`, completely or not at all. Dropping the future aborts the put;
    /// [`settle`](Client::settle) waits until the blocks stored so far are discarded.
    ///
    /// # Errors
    /// [`ClientError::File`] if the file changes during the put. Other [`ClientError`]s as documented there.
    pub async fn put(
        &self,
        path: &Path,
        name: &str,
        options: &PutOptions,
        progress: Progress,
    ) -> Result<FileView, ClientError> {
        let source = SourceFile::open(path)?;
        let request = PutRequest {
            name: name.to_owned(),
            bytes: source.at_start.len(),
            code: options.code.clone(),
            block_bytes: options.block_bytes,
            chunk_bytes: options.chunk_bytes,
            replace: options.replace,
        };
        let PutView { put, data_blocks, stripes, .. } = self.http().send::<BeginPut>((), &request).await?;
        let put = Put { client: self.clone(), put, data_blocks };
        let unfinished = Unfinished { put: Some(put.clone()) };
        let result = put.store(stripes, source, progress, unfinished).await;
        self.settle().await;
        result
    }
}

/// A put that the coordinator has accepted.
#[derive(Clone)]
struct Put {
    client: Client,
    put: u64,
    data_blocks: usize,
}

impl Put {
    async fn store(
        &self,
        stripes: Vec<PutStripe>,
        source: SourceFile,
        progress: Progress,
        unfinished: Unfinished,
    ) -> Result<FileView, ClientError> {
        let (source, fault) = (Arc::new(source), Fault::default());
        let mut running = JoinSet::new();
        for stripe in stripes {
            if running.len() >= STRIPES_AT_ONCE {
                next(&mut running, &fault).await?;
            }
            let source = StripeSource {
                source: source.clone(),
                fault: fault.clone(),
                progress: progress.clone(),
                stripe,
            };
            let put = self.clone();
            running.spawn(async move { put.store_proven(source).await });
        }
        while !running.is_empty() {
            next(&mut running, &fault).await?;
        }
        source.check_unchanged()?;
        let file = self.commit().await?;
        unfinished.finished();
        Ok(file)
    }

    /// Stores a stripe. Then compares the digests of the stored data blocks, which helpers computed, with
    /// digests of the local file. Parity blocks are not compared: helpers compute these blocks, so the client
    /// has no digests of its own for them.
    async fn store_proven(&self, source: StripeSource) -> Result<(), ClientError> {
        let digests = StripeDigests::begin(&source, self.data_blocks);
        let (file, position) = (source.source.clone(), source.stripe.position);
        let ended = self.store_stripe(position as u32, Arc::new(source)).await?;
        let digests = digests.finish().await.map_err(LocalFileError::io("read", &file.path));
        // The digests also differ if the local file was written to meanwhile, so check for such a change
        // first.
        file.check_unchanged()?;
        match first_other(&digests?, &ended) {
            None => Ok(()),
            Some(BlockIndex(index)) => Err(ClientError::StoredWrong { position, index }),
        }
    }

    /// Stores the stripe at `position` from `sources`.
    async fn store_stripe(&self, position: u32, sources: Arc<dyn Sources>) -> Result<Ended, ClientError> {
        let name = format!("at position {position}");
        let request = ClientRequest::PutStripe { put: self.put, position };
        let session = self.client.session().await?;
        session.open_request(&name, request, Ends::Sources(sources)).await?.ok_or_else(|| session.lost())
    }

    async fn commit(&self) -> Result<FileView, ClientError> {
        self.client.http().ask::<CommitPut>(self.put).await
    }

    async fn abort(&self) -> Result<(), ClientError> {
        self.client.http().ask::<AbortPut>(self.put).await.map(drop)
    }
}

/// Returns the first data block whose stored digest is missing or differs from the local one.
fn first_other(digests: &[Digest], ended: &Ended) -> Option<BlockIndex> {
    let mut indices = (0..).map(BlockIndex).zip(digests);
    let other = indices.find(|&(index, &digest)| !ended.digests.contains(&(index, digest)));
    other.map(|(index, _)| index)
}

/// Computes the digests of a stripe's data blocks on a separate thread while the stripe is stored. The thread
/// reads the file a second time, mostly from the page cache, in the order in which slices are sent. The
/// thread stops when this value is dropped.
struct StripeDigests {
    made: JoinHandle<io::Result<Vec<Digest>>>,
    _interest: Arc<()>,
}

impl StripeDigests {
    fn begin(source: &StripeSource, data_blocks: usize) -> Self {
        let blocks: Vec<BlockSource> =
            (0..data_blocks as u16).map(|index| source.block(BlockIndex(index))).collect();
        let (interest, bytes) = (Arc::new(()), source.stripe.block_bytes);
        let wanted = Arc::downgrade(&interest);
        let made = spawn_blocking(move || digests(&blocks, bytes, &wanted));
        Self { made, _interest: interest }
    }

    async fn finish(self) -> io::Result<Vec<Digest>> {
        self.made.await.expect("hashing does not panic")
    }
}

fn digests(blocks: &[BlockSource], block_bytes: u64, wanted: &Weak<()>) -> io::Result<Vec<Digest>> {
    let mut hashes = vec![BlockHash::default(); blocks.len()];
    let mut buffer = vec![0; PIECE_BYTES];
    for offset in (0..block_bytes).step_by(PIECE_BYTES) {
        let piece = &mut buffer[..(block_bytes - offset).min(PIECE_BYTES as u64) as usize];
        for (block, hash) in blocks.iter().zip(&mut hashes) {
            wanted.upgrade().ok_or(io::ErrorKind::Interrupted)?;
            block.fill(offset, piece)?;
            hash.update(piece);
        }
    }
    Ok(hashes.iter().map(BlockHash::finish).collect())
}

/// Waits for one running stripe. If storing it failed because of a local file error, returns that error
/// rather than the coordinator's message.
async fn next(running: &mut JoinSet<Result<(), ClientError>>, fault: &Fault) -> Result<(), ClientError> {
    let result = running.join_next().await.expect("some are running").expect("puts do not panic");
    result.map_err(|error| fault.take().map_or(error, ClientError::File))
}

/// Aborts the put when dropped, unless the put has finished.
struct Unfinished {
    put: Option<Put>,
}

impl Unfinished {
    fn finished(mut self) {
        self.put = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(put) = self.put.take() {
            let client = put.client.clone();
            client.in_background(async move {
                if let Err(error) = put.abort().await {
                    // The coordinator discards the put some time after our session ends.
                    tracing::debug!(put = put.put, %error, "cannot abort the put");
                }
            });
        }
    }
}

/// The local file to store, and its metadata when the put began.
struct SourceFile {
    path: PathBuf,
    file: File,
    at_start: Metadata,
}

impl SourceFile {
    fn open(path: &Path) -> Result<Self, LocalFileError> {
        // The type is checked before the file is opened, because opening a FIFO would wait for a writer.
        let found = std::fs::metadata(path).map_err(LocalFileError::io("read", path))?;
        if !found.is_file() {
            return Err(LocalFileError::NotAFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(LocalFileError::io("read", path))?;
        let at_start = file.metadata().map_err(LocalFileError::io("read", path))?;
        let bytes = at_start.len();
        let more = file.read_at(&mut [0], bytes).map_err(LocalFileError::io("read", path))?;
        let grew = file.metadata().map_err(LocalFileError::io("read", path))?.len() != bytes;
        if more > 0 && !grew {
            return Err(LocalFileError::WrongLength { path: path.to_owned(), bytes });
        }
        Ok(Self { path: path.to_owned(), file, at_start })
    }

    fn check_unchanged(&self) -> Result<(), LocalFileError> {
        let now = match std::fs::metadata(&self.path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.changed(FileChange::Vanished));
            }
            Err(error) => return Err(LocalFileError::io("read", &self.path)(error)),
        };
        match change(&self.at_start, &now) {
            Some(change) => Err(self.changed(change)),
            None => Ok(()),
        }
    }

    fn changed(&self, change: FileChange) -> LocalFileError {
        LocalFileError::Changed { path: self.path.clone(), change }
    }
}

fn change(before: &Metadata, now: &Metadata) -> Option<FileChange> {
    if (before.dev(), before.ino()) != (now.dev(), now.ino()) {
        Some(FileChange::Replaced)
    } else if before.len() != now.len() {
        Some(FileChange::Length { from: before.len(), to: now.len() })
    } else if (before.mtime(), before.mtime_nsec()) != (now.mtime(), now.mtime_nsec()) {
        Some(FileChange::Written)
    } else if (before.ctime(), before.ctime_nsec()) != (now.ctime(), now.ctime_nsec()) {
        Some(FileChange::Touched)
    } else {
        None
    }
}

/// Provides the data blocks of one stripe of the file.
#[derive(Clone)]
struct StripeSource {
    source: Arc<SourceFile>,
    fault: Fault,
    progress: Progress,
    stripe: PutStripe,
}

impl Sources for StripeSource {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(Arc::new(BlockSource { bytes: block.bytes, ..self.block(block.index) }))
    }
}

impl StripeSource {
    /// Returns the source of one data block.
    fn block(&self, index: BlockIndex) -> BlockSource {
        let bytes = self.stripe.block_bytes;
        let before = u64::from(index.0) * bytes;
        let file_bytes = self.stripe.data_bytes.saturating_sub(before).min(bytes);
        BlockSource { stripe: self.clone(), bytes, start: self.stripe.file_offset + before, file_bytes }
    }
}

/// Reads one data block of the file. The last blocks may lie partly or completely beyond the end of the file;
/// they are padded with zeros, because the plan expects full blocks.
struct BlockSource {
    stripe: StripeSource,
    bytes: u64,
    start: u64,
    /// The number of bytes in the block that come from the file.
    file_bytes: u64,
}

impl BlockReader for BlockSource {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        let read = self.fill(offset, buffer).map_err(|error| self.failed(error))?;
        (self.stripe.progress)(read);
        Ok(())
    }

    fn digest(&self) -> Option<repair::Digest> {
        None
    }
}

impl BlockSource {
    /// Fills `buffer` from `offset` on, and returns how many of the bytes come from the file.
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> io::Result<u64> {
        let left = self.file_bytes.saturating_sub(offset).min(buffer.len() as u64);
        let (data, zeros) = buffer.split_at_mut(left as usize);
        zeros.fill(0);
        if !data.is_empty() {
            self.stripe.source.file.read_exact_at(data, self.start + offset)?;
        }
        Ok(left)
    }

    fn failed(&self, error: io::Error) -> BlockError {
        let source = &self.stripe.source;
        let path = source.path.display().to_string();
        let said = BlockError::Io { path, source: error.kind().into() };
        let shrunk = error.kind() == io::ErrorKind::UnexpectedEof;
        let fault = match source.file.metadata() {
            Ok(now) if shrunk && now.len() == source.at_start.len() => {
                LocalFileError::WrongLength { path: source.path.clone(), bytes: now.len() }
            }
            Ok(now) if shrunk => {
                source.changed(FileChange::Length { from: source.at_start.len(), to: now.len() })
            }
            _ => LocalFileError::io("read", &source.path)(error),
        };
        self.stripe.fault.record(fault);
        said
    }
}
