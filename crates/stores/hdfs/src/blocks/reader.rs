//! Reads a replica. Every chunk that a read touches is compared with its checksum.
//!
//! A block of 1 GiB has 8 MiB of checksums, so checksums are read in pieces, together with the bytes that
//! they cover.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use block_files::{
    StoredBlock, Wait, block_fault, corrupt, fault, forget_all, missing, open_cached, open_file, range_end,
    read_ahead, read_by_chunks, read_exact, read_exact_cached, read_through,
};
use repair::{BlockId, Digest};
use store_api::{BlockError, BlockReader, Gate};

use super::meta::{ChecksumFormat, Composite, HEADER_BYTES, MetaError, SUM_BYTES};
use super::name::ReplicaName;
use super::volumes::Files;

/// Number of checksums per read.
const RUN_SUMS: usize = 1024;
/// Bytes per read when a whole block is verified.
const VERIFY_BYTES: u64 = 256 << 10;

/// An open replica. It keeps its files open, so it continues to read the same bytes if the replica is
/// replaced or removed.
#[derive(Debug)]
pub(super) struct ReplicaReader {
    block: BlockId,
    files: Files,
    file: File,
    meta: File,
    format: ChecksumFormat,
    bytes: u64,
    digest: OnceLock<Option<Digest>>,
}

impl ReplicaReader {
    /// Opens a replica. A length that contradicts the checksums is detected here.
    pub(super) fn open(name: &ReplicaName, files: Files) -> Result<Self, BlockError> {
        let watch = Arc::clone(&files.watch);
        let opened = watch.read(|| Self::open_files(name, files));
        opened.map_err(|error| watch.explained(error))
    }

    fn open_files(name: &ReplicaName, files: Files) -> Result<Self, BlockError> {
        let block = name.block_id();
        let file = open_file(&files.bytes, || missing(&block, &files.bytes))?;
        let meta = open_file(&files.meta, || {
            let name = files.meta.display();
            corrupt(&block, &files.bytes, format!("its checksum file {name} is missing"))
        })?;
        let mut header = [0; HEADER_BYTES as usize];
        meta.read_exact_at(&mut header, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => corrupt(&block, &files.meta, MetaError::Header.to_string()),
            _ => fault(&files.meta)(error),
        })?;
        Self::checked(block, files, (file, meta), &header)
    }

    /// Opens a replica if its names, inodes and header are all cached. Returns `None` on any error.
    pub(super) fn open_if_cached(name: &ReplicaName, files: Files) -> Option<Self> {
        let (file, meta) = (open_cached(&files.bytes)?, open_cached(&files.meta)?);
        let mut header = [0; HEADER_BYTES as usize];
        let read = read_exact_cached(&meta, &mut header, 0);
        read.then(|| Self::checked(name.block_id(), files, (file, meta), &header).ok())?
    }

    fn checked(
        block: BlockId,
        files: Files,
        (file, meta): (File, File),
        header: &[u8; HEADER_BYTES as usize],
    ) -> Result<Self, BlockError> {
        let meta_bytes = meta.metadata().map_err(fault(&files.meta))?.len();
        let format = ChecksumFormat::decode(header, meta_bytes).map_err(|error| match error {
            MetaError::Header => corrupt(&block, &files.meta, error.to_string()),
            MetaError::NoChecksums => fault(&files.meta)(io::Error::new(io::ErrorKind::Unsupported, error)),
        })?;
        let bytes = file.metadata().map_err(fault(&files.bytes))?.len();
        let reader = Self { block, files, file, meta, format, bytes, digest: OnceLock::new() };
        reader.check_lengths()?;
        Ok(reader)
    }

    fn check_lengths(&self) -> Result<(), BlockError> {
        let bytes = self.file.metadata().map_err(fault(&self.files.bytes))?.len();
        let meta = self.meta.metadata().map_err(fault(&self.files.meta))?.len();
        if bytes == self.bytes && meta == self.format.file_bytes(bytes) {
            return Ok(());
        }
        Err(self.corrupt(format!(
            "it has {bytes} bytes, but the size of its checksum file, {meta} bytes, does not fit that"
        )))
    }

    fn corrupt(&self, detail: String) -> BlockError {
        corrupt(&self.block, &self.files.bytes, detail)
    }

    /// Returns the format of the replica's checksums.
    pub(super) fn format(&self) -> ChecksumFormat {
        self.format
    }

    fn read(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool, BlockError> {
        range_end(&self.files.bytes, offset, buffer.len(), self.bytes)?;
        read_by_chunks(offset, buffer, self.format.chunk_bytes(), self.bytes, |offset, chunks| {
            self.read_chunks(offset, chunks, wait)
        })
    }

    /// Fills a buffer from one of the replica's files, which is at `path`.
    fn fill(
        &self,
        (file, path): (&File, &Path),
        buffer: &mut [u8],
        offset: u64,
        wait: Wait,
    ) -> Result<bool, BlockError> {
        let mut read = || read_exact(file, buffer, offset, wait).map_err(block_fault(&self.block, path));
        match wait {
            Wait::Never => read(),
            Wait::AsLongAsItTakes => self.files.watch.read(read),
        }
    }

    /// Reads whole chunks directly into the caller's buffer. The block's last chunk may be short.
    fn read_chunks(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool, BlockError> {
        let mut storage = [0; RUN_SUMS * SUM_BYTES];
        let (chunk, mut start) = (self.format.chunk_bytes(), offset);
        for run in buffer.chunks_mut(RUN_SUMS * chunk as usize) {
            let sums = &mut storage[..run.len().div_ceil(chunk as usize) * SUM_BYTES];
            let sums_at = self.format.sums_at(start / chunk);
            let has_sums = self.fill((&self.meta, &self.files.meta), sums, sums_at, wait)?;
            if !has_sums || !self.fill((&self.file, &self.files.bytes), run, start, wait)? {
                return Ok(false);
            }
            self.check(start, run, sums)?;
            start += run.len() as u64;
        }
        Ok(true)
    }

    /// Compares chunks with their checksums.
    fn check(&self, start: u64, run: &[u8], sums: &[u8]) -> Result<(), BlockError> {
        let sums = sums.as_chunks::<SUM_BYTES>().0;
        let Some(at) = self.format.sums(run).zip(sums).position(|(found, sum)| found != *sum) else {
            return Ok(());
        };
        let range = self.format.chunk(start / self.format.chunk_bytes() + at as u64, self.bytes);
        Err(self.corrupt(format!("bytes {} to {} do not match their checksum", range.start, range.end)))
    }

    /// Computes the block's digest from the checksum file.
    fn digest_of_sums(&self) -> Result<Digest, BlockError> {
        let mut composite = Composite::new(self.format, self.bytes);
        let mut storage = [0; RUN_SUMS * SUM_BYTES];
        for first in (0..self.format.chunks(self.bytes)).step_by(RUN_SUMS) {
            let chunks = (self.format.chunks(self.bytes) - first).min(RUN_SUMS as u64);
            let sums = &mut storage[..chunks as usize * SUM_BYTES];
            let at = self.format.sums_at(first);
            self.fill((&self.meta, &self.files.meta), sums, at, Wait::AsLongAsItTakes)?;
            composite.add(sums);
        }
        Ok(composite.digest())
    }

    /// Asks the system to drop the cached pages, so that the medium itself is read.
    fn forget_cache(&self) {
        [&self.file, &self.meta].into_iter().for_each(forget_all);
    }

    fn verify_bytes(&self, gate: &dyn Gate) -> Result<(), BlockError> {
        let piece_bytes = VERIFY_BYTES.next_multiple_of(self.format.chunk_bytes());
        let piece_bytes = NonZeroU64::new(piece_bytes).expect("a multiple of a positive size");
        read_through(&self.block, 0..self.bytes, piece_bytes, gate, |piece, buffer| {
            buffer.resize((piece.end - piece.start) as usize, 0);
            self.read_chunks(piece.start, buffer, Wait::AsLongAsItTakes).map(drop)
        })
    }
}

impl BlockReader for ReplicaReader {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.read(offset, buffer, Wait::AsLongAsItTakes).map(drop)
    }

    fn read_if_cached(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, BlockError> {
        self.read(offset, buffer, Wait::Never)
    }

    fn read_ahead(&self, bytes: Range<u64>) {
        read_ahead(&self.file, bytes.start..bytes.end.min(self.bytes));
    }

    /// Reads the checksum file on the first call. Returns `None` if that fails; later reads report the error.
    fn digest(&self) -> Option<Digest> {
        *self.digest.get_or_init(|| self.digest_of_sums().ok())
    }
}

impl StoredBlock for ReplicaReader {
    fn verify(&self, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.forget_cache();
        let verified = self.check_lengths().and_then(|()| self.verify_bytes(gate));
        let digest = verified.and_then(|()| self.digest_of_sums());
        digest.map(Some).map_err(|error| self.files.watch.explained(error))
    }
}
