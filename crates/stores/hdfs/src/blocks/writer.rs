//! Writes a replica to the DataNode's folder of unfinished files until all its bytes have arrived.
//!
//! The DataNode empties that folder at startup, so an incomplete replica never survives a restart. Checksums
//! are written together with the bytes, so that a writer needs little memory for a block of any size.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use block_files::{Draft, Extents, SteadyFile, block_fault, exists, fault, sync_folder};
use repair::{BlockId, Digest};
use store_api::{BlockError, BlockReader, BlockWriter, Intake, Publish, ReadBack};

use super::meta::{ChecksumFormat, SUM_BYTES};
use super::name::ReplicaName;
use super::reader::ReplicaReader;
use super::volumes::{Files, Volume, Volumes, refused};

/// The state that all writers of a DataNode share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) volumes: Volumes,
    /// Serializes commits, so that the files of two writers are never mixed.
    committing: Mutex<()>,
}

impl Shared {
    pub(super) fn new(volumes: Volumes) -> Self {
        Self { volumes, committing: Mutex::new(()) }
    }
}

/// The destination of a replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    /// The position of the volume in the list of volumes.
    pub(super) volume: usize,
    /// The replica's name.
    pub(super) name: ReplicaName,
}

/// A replica whose files have been renamed. The files stay open, so that their inodes are not reused:
/// `take_back` identifies the files by inode.
pub(super) struct Named {
    writer: Box<ReplicaWriter>,
    replaces: bool,
}

impl Named {
    /// Removes the files again, unless they replaced another replica or were replaced meanwhile.
    pub(super) fn take_back(self) {
        if !self.replaces {
            self.writer.remove_own();
        }
    }
}

/// A replica that is not visible yet.
///
/// The checksum of a chunk is written when a single write covers the whole chunk. All other chunks are read
/// back when the replica is sealed.
pub(super) struct ReplicaWriter {
    shared: Arc<Shared>,
    place: Destination,
    block: BlockId,
    temporary: Files,
    file: SteadyFile,
    meta: File,
    format: ChecksumFormat,
    draft: Draft<Digest>,
    /// The indices of chunks that some write covered only partly.
    ragged: Extents,
    committed: bool,
}

impl ReplicaWriter {
    /// Creates the temporary files of a replica of `bytes` bytes.
    pub(super) fn create(
        shared: Arc<Shared>,
        place: Destination,
        bytes: u64,
        format: ChecksumFormat,
    ) -> Result<Self, BlockError> {
        let (block, temporary) = (
            place.name.block_id(),
            shared.volumes.temporary(&shared.volumes.all()[place.volume], &place.name),
        );
        let watch = Arc::clone(&temporary.watch);
        let make = |path: &Path| {
            watch.write(|| OpenOptions::new().read(true).write(true).create_new(true).open(path))
        };
        let file = make(&temporary.bytes).map_err(block_fault(&block, &temporary.bytes))?;
        let meta = make(&temporary.meta).map_err(|error| {
            drop(fs::remove_file(&temporary.bytes));
            block_fault(&block, &temporary.meta)(error)
        })?;
        let draft = Draft::new(block.clone(), &temporary.bytes, bytes);
        let writer = Self {
            shared,
            place,
            block,
            temporary,
            file: SteadyFile::watched(file, watch),
            meta,
            format,
            draft,
            ragged: Extents::default(),
            committed: false,
        };
        writer.step(|| writer.size())?; // On an error, the writer is dropped, which removes the files.
        Ok(writer)
    }

    /// Runs one step of the [write](block_files::DiskWatch::write) on the replica's disk.
    fn step<T>(&self, work: impl FnOnce() -> T) -> T {
        self.temporary.watch.write(work)
    }

    fn size(&self) -> Result<(), BlockError> {
        self.file.set_len(self.bytes()).map_err(block_fault(&self.block, &self.temporary.bytes))?;
        let sized = self.meta.set_len(self.format.file_bytes(self.bytes()));
        let headed = sized.and_then(|()| self.meta.write_all_at(&self.format.encode(), 0));
        headed.map_err(block_fault(&self.block, &self.temporary.meta))
    }

    fn volume(&self) -> &Volume {
        &self.shared.volumes.all()[self.place.volume]
    }

    /// Writes bytes, and the checksums of the chunks that they cover completely.
    fn write(&mut self, range: &Range<u64>, bytes: &[u8]) -> Result<(), BlockError> {
        self.file
            .write_all_at(bytes, range.start)
            .map_err(block_fault(&self.block, &self.temporary.bytes))?;
        let chunk = self.format.chunk_bytes();
        let first = range.start.div_ceil(chunk);
        let end = if range.end == self.bytes() { range.end.div_ceil(chunk) } else { range.end / chunk };
        if first < end {
            let whole = first * chunk..(end * chunk).min(self.bytes());
            let whole = (whole.start - range.start) as usize..(whole.end - range.start) as usize;
            self.write_sums(first, &bytes[whole])?;
        }
        if !range.is_empty() {
            self.ragged.insert(range.start / chunk..first);
            self.ragged.insert(end.max(range.start / chunk)..range.end.div_ceil(chunk));
        }
        Ok(())
    }

    fn write_sums(&self, first_chunk: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let sums: Vec<u8> = self.format.sums(bytes).flatten().collect();
        debug_assert_eq!(sums.len() % SUM_BYTES, 0);
        let written = self.step(|| self.meta.write_all_at(&sums, self.format.sums_at(first_chunk)));
        written.map_err(block_fault(&self.block, &self.temporary.meta))
    }

    /// Reads back the chunks that were written in pieces, and writes their checksums.
    fn sum_ragged(&mut self) -> Result<(), BlockError> {
        for index in self.ragged.ranges().flatten() {
            let range = self.format.chunk(index, self.bytes());
            let mut chunk = vec![0; (range.end - range.start) as usize];
            let read = self.step(|| self.file.read_exact_at(&mut chunk, range.start));
            read.map_err(block_fault(&self.block, &self.temporary.bytes))?;
            self.write_sums(index, &chunk)?;
        }
        self.ragged = Extents::default();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.file.sync_all().map_err(block_fault(&self.block, &self.temporary.bytes))?;
        self.step(|| self.meta.sync_all()).map_err(block_fault(&self.block, &self.temporary.meta))
    }

    /// Returns the digest of the sealed replica; an error if the replica is not sealed.
    pub(super) fn check_sealed(&self) -> Result<Digest, BlockError> {
        self.draft.sealed().copied()
    }

    /// Opens the temporary files for reading.
    pub(super) fn open(&self) -> Result<ReplicaReader, BlockError> {
        ReplicaReader::open(&self.place.name, self.temporary.clone())
    }

    /// Refuses a replica that would conflict with others on the DataNode. Of two replicas of the same block,
    /// a DataNode keeps one by its own rules, and a DataNode may have only one block of a group.
    pub(super) fn check_others(&self) -> Result<(), BlockError> {
        self.shared.volumes.check_group(&self.place.name)?;
        for volume in self.shared.volumes.with(&self.place.name)? {
            let files = volume.files(&self.place.name);
            if !std::ptr::eq(volume, self.volume()) {
                let text =
                    "the DataNode has the block on another disk as well: wait until it has removed one";
                return Err(refused(&files.bytes, text.to_owned()));
            }
            let stamps = volume.stamps(&self.place.name)?;
            if let Some(other) = stamps.iter().find(|&&stamp| stamp != self.place.name.stamp()) {
                let text = format!(
                    "the DataNode has the block with generation stamp {other}, but this one has {}: wait \
                     until the DataNode has removed the other",
                    self.place.name.stamp()
                );
                return Err(refused(&files.bytes, text));
            }
        }
        Ok(())
    }

    /// Renames both files, the checksums first, because a replica does not exist without its bytes. During a
    /// replacement, there is a moment with the old bytes and the new checksums. At that moment, the replica
    /// is corrupt, or intact if only its old checksums were wrong.
    ///
    /// Returns whether the replica replaced another, which may have been removed before: `was_there`.
    fn rename(&mut self, was_there: bool) -> Result<bool, BlockError> {
        let folder = self.volume().make_folder(&self.place.name)?;
        let files = self.volume().files(&self.place.name);
        let replaces = was_there || exists(&files.bytes)?;
        fs::rename(&self.temporary.meta, &files.meta).map_err(fault(&files.meta))?;
        let renamed = fs::rename(&self.temporary.bytes, &files.bytes).map_err(fault(&files.bytes));
        self.committed = renamed.is_ok();
        let done = renamed.and_then(|()| sync_folder(&folder));
        if done.is_err() && !replaces {
            self.remove_own(); // A rename that may not be durable is treated as failed.
        }
        done.map(|()| replaces)
    }

    /// Removes the files that this writer created under the replica's names. The bytes are removed first,
    /// because checksums without bytes are ignored.
    fn remove_own(&self) {
        let files = self.volume().files(&self.place.name);
        self.step(|| {
            remove_if(&files.bytes, &self.file);
            remove_if(&files.meta, &self.meta);
        });
    }

    /// Returns the replica's name as a block id.
    pub(super) fn block(&self) -> &BlockId {
        &self.block
    }

    /// Returns the folders of the DataNode.
    pub(super) fn volumes(&self) -> &Volumes {
        &self.shared.volumes
    }

    /// Returns the name of the block pool.
    pub(super) fn pool(&self) -> &str {
        self.volumes().pool()
    }

    /// Returns the replica's name.
    pub(super) fn name(&self) -> ReplicaName {
        self.place.name
    }

    /// Returns the length of the complete replica in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.draft.bytes()
    }

    /// Returns the request by which the DataNode's plug-in adopts the renamed files.
    pub(super) fn adoption(&self) -> String {
        let name = &self.place.name;
        format!("adopt {} {} {} {}\n", self.pool(), name.block(), name.stamp(), self.bytes())
    }

    /// Renames the files of the sealed replica, durably.
    pub(super) fn give_names(self: Box<Self>) -> Result<Named, BlockError> {
        self.rename_alone(false)
    }

    /// Like [`give_names`](Self::give_names), for the place of a replica of the same block that was just
    /// removed. Other blocks of the group do not matter, because the placement stays as it was.
    pub(super) fn take_place(self: Box<Self>) -> Result<Named, BlockError> {
        self.rename_alone(true)
    }

    /// Renames the files of the sealed replica while no other writer renames files. `was_there`: a replica of the
    /// same block was just removed.
    fn rename_alone(mut self: Box<Self>, was_there: bool) -> Result<Named, BlockError> {
        self.check_sealed()?;
        let (shared, watch) = (Arc::clone(&self.shared), Arc::clone(&self.temporary.watch));
        let _alone = shared.committing.lock().unwrap_or_else(PoisonError::into_inner);
        if !was_there {
            self.check_others()?;
        }
        let replaces = watch.write(|| {
            self.volume().forget_list()?;
            self.rename(was_there)
        })?;
        Ok(Named { writer: self, replaces })
    }
}

impl Intake for ReplicaWriter {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let range = self.draft.begin_write(offset, bytes.len())?;
        let done = self.write(&range, bytes);
        self.draft.note(done)?;
        self.draft.end_write(range);
        Ok(())
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.check_sealed()?;
        Ok(Arc::new(self.open()?))
    }
}

impl BlockWriter for ReplicaWriter {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        self.draft.check_complete()?;
        if !self.draft.is_sealed() {
            let done = self.sum_ragged().and_then(|()| self.sync());
            self.draft.note(done)?;
            if let Some(digest) = self.open()?.digest() {
                self.draft.seal(digest);
            }
        }
        self.check_sealed().map(Some)
    }
}

impl Publish for ReplicaWriter {
    fn commit(self: Box<Self>) -> Result<Option<ReadBack>, BlockError> {
        self.give_names().map(|_| None)
    }
}

/// Removes `path` only if it is still this file: the DataNode or another writer may have replaced it.
fn remove_if(path: &Path, file: &File) {
    let is_it = match (fs::symlink_metadata(path), file.metadata()) {
        (Ok(there), Ok(own)) => (there.dev(), there.ino()) == (own.dev(), own.ino()),
        _ => false,
    };
    if is_it {
        let _ = fs::remove_file(path);
    }
}

impl Drop for ReplicaWriter {
    fn drop(&mut self) {
        if !self.committed {
            // If the removal fails, the helper or the DataNode removes the files at its next start.
            self.step(|| {
                let _ = fs::remove_file(&self.temporary.bytes);
                let _ = fs::remove_file(&self.temporary.meta);
            });
        }
    }
}
