//! Writes a block. Bytes arrive in any order; checksums are computed as they arrive.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block_files::{Draft, SteadyFile, StoredBlock, block_fault};
use repair::{Digest, Sink};
use store_api::{BlockError, BlockReader, BlockWriter, Closed, Gate, Intake, Publish, ReadBack};

use super::block_paths::{BlockPaths, Temporary};
use super::checksums::{CHUNK_BYTES, Checksums, LIST_KIND};
use super::commit;
use super::folder::Folder;
use super::label::Label;
use super::reader::DirReader;
use super::tree::Tree;
use super::windows::{Found, Reading, Windows, hash_rest, numbers};

/// A block that is not visible yet.
///
/// The checksum of a chunk is computed when a single write covers the whole chunk. All other chunks are read
/// back when the block is sealed. The digest is computed from the hashes of windows. A window is hashed when
/// it is read back; the seal hashes the remaining windows.
pub(super) struct DirWriter {
    folder: Arc<Folder>,
    place: BlockPaths,
    temporary: Temporary,
    file: SteadyFile<Found>,
    checksums: Checksums,
    known: Vec<bool>,
    draft: Draft<()>,
    /// The window hashes from which the digest is computed; `None` if the catalog has recorded a digest of
    /// the checksum list, as old versions did.
    tree: Option<Tree>,
    /// The windows to be read back; `None` if the block is not read back while it is being written.
    windows: Option<Windows>,
    /// Whether dropping the writer removes the temporary files; false once they were renamed.
    owns_files: bool,
}

impl DirWriter {
    /// Creates the temporary files in an existing subfolder.
    pub(super) fn create(folder: Arc<Folder>, place: BlockPaths, sink: &Sink) -> Result<Self, BlockError> {
        let temporary = place.temporary(folder.next_generation());
        let fault = block_fault(&place.id, &temporary.block);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary.block);
        let file = SteadyFile::new(file.map_err(&fault)?);
        let sized = file.set_len(sink.bytes).map_err(&fault);
        drop(fault);
        let checksums = Checksums::unknown(sink.bytes, Label::of(sink));
        let known = vec![false; checksums.len()];
        let draft = Draft::new(place.id.clone(), &temporary.block, sink.bytes);
        let is_of_list = sink.digest.is_some_and(|digest| digest.kind() == LIST_KIND);
        let tree = (!is_of_list).then(|| Tree::new(checksums.len()));
        let writer = Self {
            folder,
            place,
            temporary,
            file,
            checksums,
            known,
            draft,
            tree,
            windows: None,
            owns_files: true,
        };
        sized.map(|()| writer) // On an error, the writer is dropped, which removes the file.
    }

    fn write(&mut self, range: Range<u64>, bytes: &[u8]) -> Result<(), BlockError> {
        let written = self.file.write(bytes, range.start);
        let is_due = written.map_err(block_fault(&self.place.id, &self.temporary.block))?;
        self.learn(&range, bytes);
        self.draft.end_write(range);
        if is_due { self.write_out() } else { Ok(()) }
    }

    /// Computes the checksums of the chunks that `bytes` covers completely.
    fn learn(&mut self, range: &Range<u64>, bytes: &[u8]) {
        for index in touched(range) {
            let chunk = self.checksums.chunk(index);
            if range.start <= chunk.start && chunk.end <= range.end {
                let start = (chunk.start - range.start) as usize;
                let length = (chunk.end - chunk.start) as usize;
                self.checksums.set(index, &bytes[start..start + length]);
                self.known[index] = true;
            }
        }
    }

    /// Reads back the chunks that were written in pieces, and computes their checksums.
    fn learn_the_rest(&mut self) -> Result<(), BlockError> {
        let mut storage = [0; CHUNK_BYTES];
        for index in 0..self.known.len() {
            if !self.known[index] {
                let range = self.checksums.chunk(index);
                let chunk = &mut storage[..(range.end - range.start) as usize];
                let fault = block_fault(&self.place.id, &self.temporary.block);
                self.file.read_exact_at(chunk, range.start).map_err(fault)?;
                self.checksums.set(index, chunk);
                self.known[index] = true;
            }
        }
        Ok(())
    }

    /// Waits for the sync thread, and processes its result.
    fn join(&mut self) -> Result<(), BlockError> {
        let found = self.file.join().map_err(block_fault(&self.place.id, &self.temporary.block))?;
        let Some(windows) = &mut self.windows else { return Ok(()) };
        let sums = windows.take(found)?;
        if let Some(tree) = &mut self.tree {
            sums.into_iter().for_each(|(number, sum)| tree.set(number, sum));
        }
        Ok(())
    }

    /// Starts a thread that syncs the bytes written so far and reads back the complete windows. After the
    /// last write, the thread only syncs, because the seal would otherwise have to wait for the reads.
    fn write_out(&mut self) -> Result<(), BlockError> {
        self.join()?;
        let reading = if self.draft.is_complete() { None } else { self.reading() };
        let then = move |file: &File| reading.map_or_else(Found::new, |reading| reading.run(file));
        self.file.write_out(then).map_err(block_fault(&self.place.id, &self.temporary.block))
    }

    fn reading(&mut self) -> Option<Reading> {
        let windows = self.windows.as_mut()?;
        windows.read(&self.place, &self.checksums, &self.known, self.tree.as_ref())
    }

    fn sync(&mut self) -> Result<(), BlockError> {
        self.join()?;
        self.file.sync_all().map_err(block_fault(&self.place.id, &self.temporary.block))?;
        self.hash_rest()?; // The bytes are still in the page cache.
        self.read_rest_back()?;
        self.write_checksums()
    }

    fn hash_rest(&mut self) -> Result<(), BlockError> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        hash_rest(&self.place, &self.file, &self.checksums, tree)?;
        self.checksums.set_digest(tree.digest());
        Ok(())
    }

    /// Starts a thread that reads back the remaining windows. Meanwhile, other threads may read the sealed
    /// block to check it. The commit collects the result.
    fn read_rest_back(&mut self) -> Result<(), BlockError> {
        let Some(reading) = self.reading() else { return Ok(()) };
        // Drop the windows from the page cache now, before other threads read the block to check it: the
        // system does not drop pages that are being read at the same time.
        reading.forget(&self.file);
        let begun = self.file.write_out(|file| reading.run(file));
        begun.map_err(block_fault(&self.place.id, &self.temporary.block))
    }

    fn write_checksums(&self) -> Result<(), BlockError> {
        let path = &self.temporary.checksums;
        let fault = block_fault(&self.place.id, path);
        let list = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(&fault)?;
        // The encoded length is the same on every seal, so this overwrites an earlier list completely.
        list.write_all_at(&self.checksums.encode(), 0).map_err(&fault)?;
        list.sync_all().map_err(&fault)
    }

    /// Leaves the files behind, as a crash would.
    #[cfg(test)]
    pub(super) fn abandon(mut self) -> (BlockPaths, Temporary) {
        self.owns_files = false;
        (self.place.clone(), self.temporary.clone())
    }
}

impl Intake for DirWriter {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let range = self.draft.begin_write(offset, bytes.len())?;
        self.known[touched(&range)].fill(false);
        if let Some(windows) = &mut self.windows {
            windows.handle_write(&touched(&range));
        }
        if let Some(tree) = &mut self.tree {
            tree.forget(numbers(&touched(&range)));
        }
        let done = self.write(range, bytes);
        self.draft.note(done)
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        self.draft.sealed()?;
        let reader = DirReader::open(&self.place.id, &self.temporary.block, &self.temporary.checksums)?;
        Ok(Arc::new(reader))
    }
}

impl BlockWriter for DirWriter {
    fn seal(&mut self) -> Result<Option<Digest>, BlockError> {
        self.draft.check_complete()?;
        if !self.draft.is_sealed() {
            self.learn_the_rest()?;
            let done = self.sync();
            self.draft.note(done)?;
            self.draft.seal(());
        }
        Ok(Some(self.checksums.block_digest()))
    }
}

impl Publish for DirWriter {
    fn read_back_behind(&mut self, gate: Arc<dyn Gate>) {
        self.windows = Some(Windows::new(self.checksums.len(), gate));
    }

    fn commit(mut self: Box<Self>) -> Result<Option<ReadBack>, BlockError> {
        self.draft.sealed()?;
        let folder = Arc::clone(&self.folder);
        let _shard = folder.lock_shard(self.place.shard);
        commit::run(&self.place, &self.temporary)?;
        self.owns_files = false;
        Ok(self.windows.is_some().then(|| {
            let committed = Committed(self);
            Box::new(move |gate: &dyn Gate| committed.finish(gate)) as ReadBack
        }))
    }
}

/// A block whose files have been renamed.
struct Committed(Box<DirWriter>);

impl Committed {
    /// Reads back the remaining windows. Returns the digest of the block that is now visible under the name.
    fn finish(mut self, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.read_rest()?;
        let DirWriter { folder, place, file, checksums, .. } = &*self.0;
        let reader = {
            let _shard = folder.lock_shard(place.shard);
            DirReader::open(&place.id, &place.block, &place.checksums)?
        };
        if !reader.is_of(file)? || reader.checksums() != checksums {
            return reader.verify(gate); // The block was replaced meanwhile.
        }
        reader.verify_list()?;
        Ok(reader.digest())
    }

    /// Reads back the windows that the sync thread has not read back.
    fn read_rest(&mut self) -> Result<(), BlockError> {
        let writer = &mut *self.0;
        writer.join()?;
        let (Some(reading), Some(windows)) = (writer.reading(), &mut writer.windows) else { return Ok(()) };
        windows.take(Some(reading.run(&writer.file))).map(drop)?;
        if windows.are_done() { Ok(()) } else { Err(Closed.of(&writer.place.id)) }
    }
}

impl Drop for DirWriter {
    fn drop(&mut self) {
        if self.owns_files {
            // Files that cannot be removed now are removed at the next start.
            let _ = fs::remove_file(&self.temporary.block);
            let _ = fs::remove_file(&self.temporary.checksums);
        }
    }
}

/// Returns the chunks that a range touches.
fn touched(range: &Range<u64>) -> Range<usize> {
    if range.is_empty() {
        return 0..0;
    }
    (range.start / CHUNK_BYTES as u64) as usize..range.end.div_ceil(CHUNK_BYTES as u64) as usize
}
