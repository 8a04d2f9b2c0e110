//! Reads a block. Every chunk that a read touches is compared with its checksum.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use block_files::{
    StoredBlock, Wait, block_fault, corrupt, fault, forget_all, missing, open_cached, open_file, range_end,
    read_ahead, read_by_chunks, read_exact, read_exact_cached, read_through,
};
use repair::BlockId;
use repair::wire::control::Description;
use store_api::{BlockError, BlockHash, BlockReader, Gate};

use super::checksums::{CHUNK_BYTES, Checksums, ChecksumsError, MAX_ENCODED_BYTES};

/// Bytes per read when a whole block is verified.
pub(super) const VERIFY_BYTES: NonZeroU64 = NonZeroU64::new(64 * CHUNK_BYTES as u64).unwrap();

/// An open block. It keeps its files open, so it continues to read the same bytes if the block is replaced or
/// removed.
#[derive(Debug)]
pub(super) struct DirReader {
    block: BlockId,
    path: PathBuf,
    file: File,
    list_path: PathBuf,
    list: File,
    checksums: Checksums,
}

impl DirReader {
    /// Opens the block at `path` with the checksums at `list_path`.
    pub(super) fn open(block: &BlockId, path: &Path, list_path: &Path) -> Result<Self, BlockError> {
        let file = open_file(path, || missing(block, path))?;
        let list = open_file(list_path, || {
            corrupt(block, path, format!("its checksum file {} is missing", list_path.display()))
        })?;
        let checksums = load(block, &list, list_path)?;
        Self::checked(block, (path, file), (list_path, list), checksums)
    }

    /// Opens the block if its names, inodes and checksums are all cached. Returns `None` on any error.
    pub(super) fn open_if_cached(block: &BlockId, path: &Path, list_path: &Path) -> Option<Self> {
        let (file, list) = (open_cached(path)?, open_cached(list_path)?);
        let bytes = list.metadata().ok()?.len();
        let mut encoded = vec![0; usize::try_from(bytes.min(MAX_ENCODED_BYTES)).ok()?];
        if !read_exact_cached(&list, &mut encoded, 0) {
            return None;
        }
        let checksums = Checksums::decode(&encoded).ok()?;
        Self::checked(block, (path, file), (list_path, list), checksums).ok()
    }

    fn checked(
        block: &BlockId,
        (path, file): (&Path, File),
        (list_path, list): (&Path, File),
        checksums: Checksums,
    ) -> Result<Self, BlockError> {
        let (path, list_path) = (path.to_owned(), list_path.to_owned());
        let reader = Self { block: block.clone(), path, file, list_path, list, checksums };
        reader.check_length()?;
        reader.check_label()?;
        Ok(reader)
    }

    fn check_length(&self) -> Result<(), BlockError> {
        let found = self.file.metadata().map_err(fault(&self.path))?.len();
        let expected = self.checksums.block_bytes();
        if found == expected {
            return Ok(());
        }
        Err(self.corrupt(format!("its file has {found} bytes, but its checksums are for {expected}")))
    }

    fn check_label(&self) -> Result<(), BlockError> {
        let label = self.checksums.label();
        if label.id == self.block {
            return Ok(());
        }
        let detail = format!("{} contains block {}", self.path.display(), label.id);
        Err(BlockError::Other { block: self.block.clone(), detail })
    }

    /// Describes the block by its label.
    pub(super) fn describe(&self) -> Description {
        let label = self.checksums.label();
        let label = label.stripe.clone().map(|stripe| (label.index, stripe));
        let (bytes, digest) = (self.checksums.block_bytes(), Some(self.checksums.block_digest()));
        Description { id: self.block.clone(), bytes, digest, label }
    }

    fn corrupt(&self, detail: String) -> BlockError {
        corrupt(&self.block, &self.path, detail)
    }

    fn read(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool, BlockError> {
        range_end(&self.path, offset, buffer.len(), self.bytes())?;
        read_by_chunks(offset, buffer, CHUNK_BYTES as u64, self.bytes(), |offset, chunks| {
            self.read_chunks(offset, chunks, wait)
        })
    }

    /// Reads whole chunks directly into the caller's buffer. The block's last chunk may be short.
    fn read_chunks(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool, BlockError> {
        let read = read_exact(&self.file, buffer, offset, wait);
        if !read.map_err(block_fault(&self.block, &self.path))? {
            return Ok(false);
        }
        let first = chunk_of(offset);
        let mut chunks = buffer.chunks(CHUNK_BYTES).enumerate();
        chunks.try_for_each(|(at, chunk)| self.check_chunk(first + at, chunk))?;
        Ok(true)
    }

    fn check_chunk(&self, index: usize, chunk: &[u8]) -> Result<(), BlockError> {
        if self.checksums.agrees(index, chunk) {
            return Ok(());
        }
        let range = self.checksums.chunk(index);
        Err(self.corrupt(format!("bytes {} to {} do not match their checksum", range.start, range.end)))
    }

    /// Whether `file` is the file from which this reader reads the block.
    pub(super) fn is_of(&self, file: &File) -> Result<bool, BlockError> {
        let (ours, other) = (self.file.metadata(), file.metadata());
        let (ours, other) = (ours.map_err(fault(&self.path))?, other.map_err(fault(&self.path))?);
        Ok((ours.dev(), ours.ino()) == (other.dev(), other.ino()))
    }

    /// Returns the block's checksums.
    pub(super) fn checksums(&self) -> &Checksums {
        &self.checksums
    }

    /// Checks the block's length, and compares the checksum file on the medium with its copy in memory.
    pub(super) fn verify_list(&self) -> Result<(), BlockError> {
        self.check_length()?;
        forget_all(&self.list);
        if load(&self.block, &self.list, &self.list_path)? == self.checksums {
            return Ok(());
        }
        Err(self.corrupt("its checksum file has changed while it was open".to_owned()))
    }

    fn verify_bytes(&self, gate: &dyn Gate) -> Result<(), BlockError> {
        let mut hash = self.checksums.label().digest.map(|recorded| (recorded, BlockHash::default()));
        read_through(&self.block, 0..self.bytes(), VERIFY_BYTES, gate, |piece, buffer| {
            buffer.resize((piece.end - piece.start) as usize, 0);
            self.read_chunks(piece.start, buffer, Wait::AsLongAsItTakes)?;
            hash.iter_mut().for_each(|(_, hash)| hash.update(buffer));
            Ok(())
        })?;
        let found = hash.map(|(recorded, hash)| (recorded, hash.finish()));
        found.filter(|(recorded, found)| recorded != found).map_or(Ok(()), |(recorded, found)| {
            let text = "every checksum matches, but its bytes have the digest";
            Err(self.corrupt(format!(
                "{text} {found} instead of {recorded}: they were changed deliberately or by a fault"
            )))
        })
    }
}

impl BlockReader for DirReader {
    fn bytes(&self) -> u64 {
        self.checksums.block_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.read(offset, buffer, Wait::AsLongAsItTakes).map(drop)
    }

    fn read_if_cached(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, BlockError> {
        self.read(offset, buffer, Wait::Never)
    }

    fn read_ahead(&self, bytes: Range<u64>) {
        read_ahead(&self.file, bytes.start..bytes.end.min(self.bytes()));
    }

    fn digest(&self) -> Option<repair::Digest> {
        Some(self.checksums.block_digest())
    }
}

impl StoredBlock for DirReader {
    fn verify(&self, gate: &dyn Gate) -> Result<Option<repair::Digest>, BlockError> {
        forget_all(&self.file);
        self.verify_list()?;
        self.verify_bytes(gate)?;
        Ok(Some(self.checksums.block_digest()))
    }
}

fn chunk_of(offset: u64) -> usize {
    (offset / CHUNK_BYTES as u64) as usize
}

/// Reads a checksum file.
fn load(block: &BlockId, list: &File, path: &Path) -> Result<Checksums, BlockError> {
    let bytes = list.metadata().map_err(fault(path))?.len();
    if bytes > MAX_ENCODED_BYTES {
        return Err(corrupt(
            block,
            path,
            format!("its checksum file has an impossible size of {bytes} bytes"),
        ));
    }
    let mut encoded = vec![0; bytes as usize];
    list.read_exact_at(&mut encoded, 0).map_err(block_fault(block, path))?;
    Checksums::decode(&encoded).map_err(|error| match error {
        // The block may be intact, but this program cannot read its checksums.
        ChecksumsError::OtherVersion(_) => fault(path)(io::Error::new(io::ErrorKind::Unsupported, error)),
        _ => corrupt(block, path, error.to_string()),
    })
}
