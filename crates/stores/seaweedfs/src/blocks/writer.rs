//! Writes a shard under a temporary name that SeaweedFS ignores, until all bytes have matched `.ecsum`.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block_files::{DiskWatch, Draft, SteadyFile, block_fault, exists, fault, sync_folder};
use repair::{BlockId, Digest};
use store_api::{BlockError, BlockReader, BlockWriter, Intake, Publish, ReadBack};

use super::ecsum::{ShardSums, crc32c, crc32c_joined};
use super::learned::{CHUNK_BYTES, Known};
use super::name::ShardName;
use super::reader::{Check, ShardReader, open};
use super::shard_blocks::Shared;
use super::vif::Encoding;

/// A shard that is not visible yet.
///
/// If a single write covers a whole chunk, the chunk's checksum is computed at once. All other chunks are
/// read back when the shard is sealed.
pub(super) struct ShardWriter {
    shared: Arc<Shared>,
    shard: ShardName,
    block: BlockId,
    folder: PathBuf,
    temporary: PathBuf,
    /// The watch of the folder's disk, which records the steps of the [write](DiskWatch::write).
    watch: Arc<DiskWatch>,
    file: SteadyFile,
    /// The volume's encoding when the write began.
    encoding: Encoding,
    /// Whether the coordinator uses checksums for the volume.
    uses_checksums: bool,
    /// The state of the write. The result of the seal is the checksums that the bytes have matched; `None` if
    /// the volume has no checksums.
    draft: Draft<Option<Arc<Known>>>,
    chunks: Vec<Option<u32>>,
    committed: bool,
}

impl ShardWriter {
    /// Creates a shard of `bytes` bytes in one of the server's folders.
    pub(super) fn create(
        shared: Arc<Shared>,
        shard: ShardName,
        folder: &Path,
        bytes: u64,
        uses_checksums: bool,
    ) -> Result<Self, BlockError> {
        let encoding = shared.encoding(&shard.volume, folder)?;
        let (block, temporary) = (shard.block_id(), shared.folders.temporary(folder, &shard));
        let (watch, fault) = (shared.folders.watch(folder), block_fault(&block, &temporary));
        let make = || OpenOptions::new().read(true).write(true).create_new(true).open(&temporary);
        let file = watch.write(make).map_err(&fault)?;
        let sized = watch.write(|| file.set_len(bytes)).map_err(&fault);
        drop(fault);
        let chunks = vec![None; bytes.div_ceil(CHUNK_BYTES) as usize];
        let draft = Draft::new(block.clone(), &temporary, bytes);
        let writer = Self {
            shared,
            shard,
            block,
            folder: folder.to_owned(),
            temporary,
            file: SteadyFile::watched(file, Arc::clone(&watch)),
            watch,
            encoding,
            uses_checksums,
            draft,
            chunks,
            committed: false,
        };
        // On an error, dropping the writer removes the file. If the disk was unmounted meanwhile, the file is on the disk
        // of the mount point.
        sized.and_then(|()| writer.shared.folders.check(folder)).map(|()| writer)
    }

    fn chunk(&self, index: usize) -> Range<u64> {
        let start = index as u64 * CHUNK_BYTES;
        start..(start + CHUNK_BYTES).min(self.draft.bytes())
    }

    fn learn(&mut self, range: &Range<u64>, bytes: &[u8]) {
        for index in touched(range) {
            let chunk = self.chunk(index);
            let whole = range.start <= chunk.start && chunk.end <= range.end;
            self.chunks[index] = whole.then(|| {
                let start = (chunk.start - range.start) as usize;
                crc32c(&bytes[start..start + (chunk.end - chunk.start) as usize])
            });
        }
    }

    /// Reads back the chunks that no single write covered.
    fn learn_the_rest(&mut self) -> Result<(), BlockError> {
        let mut storage = vec![0; CHUNK_BYTES as usize];
        for index in 0..self.chunks.len() {
            if self.chunks[index].is_none() {
                let range = self.chunk(index);
                let chunk = &mut storage[..(range.end - range.start) as usize];
                let fault = block_fault(&self.block, &self.temporary);
                self.watch.write(|| self.file.read_exact_at(chunk, range.start)).map_err(fault)?;
                self.chunks[index] = Some(crc32c(chunk));
            }
        }
        Ok(())
    }

    /// Returns the checksums of all chunks, after [`learn_the_rest`](Self::learn_the_rest).
    fn learned(&self) -> Vec<u32> {
        self.chunks.iter().map(|crc| crc.expect("all chunks have been read")).collect()
    }

    /// Combines the chunk checksums into checksums of blocks of this size.
    fn found(&self, block_bytes: u32) -> ShardSums {
        let chunks_in_block = (u64::from(block_bytes) / CHUNK_BYTES) as usize;
        let learned = self.learned();
        let blocks = learned.chunks(chunks_in_block).zip((0..).step_by(chunks_in_block));
        let blocks = blocks.map(|(chunks, first)| {
            let chunks = chunks.iter().zip(first..);
            chunks.fold(crc32c(&[]), |sum, (&crc, index)| {
                let range = self.chunk(index);
                crc32c_joined(sum, crc, range.end - range.start)
            })
        });
        ShardSums::new(self.draft.bytes(), block_bytes, blocks.collect())
    }

    /// Returns the checksums that the written bytes must match; `None` if the volume has none, or if the coordinator
    /// does not use them.
    fn expected(&self) -> Result<Option<ShardSums>, BlockError> {
        if !self.uses_checksums {
            return Ok(None);
        }
        self.shared.sums(&self.shard, &self.folder)
    }

    /// Fails if the volume was encoded again since the write began. The coordinator has then lost the cluster's lock,
    /// and its request to stop may come too late.
    fn check_encoding(&self) -> Result<(), BlockError> {
        let now = self.shared.encoding(&self.shard.volume, &self.folder)?;
        if now == self.encoding {
            return Ok(());
        }
        Err(self.draft.corrupt(format!(
            "the volume was encoded again (encodeTsNs {} instead of {}) while this shard was written",
            now.0, self.encoding.0
        )))
    }

    /// Compares the written bytes with the expected checksums. Returns the checksums; `None` if the volume
    /// has none.
    fn agreed(&self) -> Result<Option<ShardSums>, BlockError> {
        let Some(expected) = self.expected()? else {
            return Ok(None);
        };
        let bytes = self.draft.bytes();
        if expected.bytes() != bytes {
            let detail =
                format!("it has {bytes} bytes, but {} according to its volume's .ecsum", expected.bytes());
            return Err(self.draft.corrupt(detail));
        }
        let found = self.found(expected.block_bytes() as u32);
        let differing =
            found.blocks().iter().zip(expected.blocks()).position(|(found, expected)| found != expected);
        match differing {
            None => Ok(Some(found)),
            Some(block) => {
                let range = found.range(block);
                Err(self.draft.corrupt(format!(
                    "bytes {} to {} do not match their checksum in .ecsum, so one of the shards that it was \
                     rebuilt from is corrupt or of another encoding",
                    range.start, range.end
                )))
            }
        }
    }

    /// Fails if another disk has a copy of the shard, since the server would mount that copy instead.
    fn check_other_disks(&self) -> Result<(), BlockError> {
        let copies = self.shared.folders.copies(&self.shard)?;
        let Some(other) = copies.iter().find(|path| path.parent() != Some(&self.folder)) else {
            return Ok(());
        };
        let text =
            "the server has this shard on another disk as well and would serve that copy: remove it first";
        Err(fault(other)(io::Error::new(io::ErrorKind::AlreadyExists, text)))
    }

    /// Renames the file, durably.
    fn rename(&mut self) -> Result<(), BlockError> {
        let path = self.folder.join(self.shard.to_string());
        let replaces = exists(&path)?;
        fs::rename(&self.temporary, &path).map_err(fault(&path))?;
        self.committed = true;
        let synced = sync_folder(&self.folder);
        // The rename must be durable before SeaweedFS mounts the file, so the file is removed if the sync fails. If
        // it replaced another one, there would be none left.
        if synced.is_err() && !replaces {
            let _ = fs::remove_file(&path);
        }
        synced
    }
}

impl Intake for ShardWriter {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let range = self.draft.begin_write(offset, bytes.len())?;
        let done = self.file.write_all_at(bytes, offset);
        self.draft.note(done.map_err(block_fault(&self.block, &self.temporary)))?;
        self.learn(&range, bytes);
        self.draft.end_write(range);
        Ok(())
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        let check = match self.draft.sealed()? {
            Some(known) => Check::Ecsum(known.clone()),
            None => Check::Nothing(Some(self.draft.bytes())),
        };
        let file = open(&self.shard, &self.temporary)?;
        let watch = self.shared.folders.watch(&self.folder);
        Ok(Arc::new(ShardReader::new(&self.shard, &self.temporary, (file, check), watch)?))
    }
}

impl BlockWriter for ShardWriter {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        self.draft.check_complete()?;
        if !self.draft.is_sealed() {
            self.learn_the_rest()?;
            let agreed = self.agreed()?;
            let done = self.file.sync_all();
            self.draft.note(done.map_err(block_fault(&self.block, &self.temporary)))?;
            let seal = agreed.map(|sums| Known::of_all(sums, &self.learned()));
            self.draft.seal(seal);
        }
        Ok(self.draft.sealed()?.as_ref().map(|known| known.sums().digest()))
    }
}

impl Publish for ShardWriter {
    fn commit(mut self: Box<Self>) -> Result<Option<ReadBack>, BlockError> {
        let sealed = self.draft.sealed()?.as_ref();
        // Compare again, because the volume's `.vif` and `.ecsum` may have been copied or replaced since
        // sealing.
        self.check_encoding()?;
        if self.expected()?.as_ref() != sealed.map(|known| known.sums()) {
            return Err(self.draft.corrupt("its volume's .ecsum has changed since it was sealed".to_owned()));
        }
        self.check_other_disks()?;
        // If a crash follows, these copies of `.vif` and `.ecsum` remain and do no harm.
        self.shared.folders.complete(&self.shard.volume, &self.folder)?;
        let watch = Arc::clone(&self.watch);
        watch.write(|| self.rename()).map(|()| None)
    }
}

impl Drop for ShardWriter {
    fn drop(&mut self) {
        if !self.committed {
            // If that fails, the next start removes the file.
            self.watch.write(|| drop(fs::remove_file(&self.temporary)));
        }
    }
}

fn touched(range: &Range<u64>) -> Range<usize> {
    if range.is_empty() {
        return 0..0;
    }
    (range.start / CHUNK_BYTES) as usize..range.end.div_ceil(CHUNK_BYTES) as usize
}
