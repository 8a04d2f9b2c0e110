//! Reads a block back from the medium while it is still being written, so that little is left to read after
//! the last write.
//!
//! A block is divided into windows. Once a window is completely written and synced, its pages are dropped
//! from the page cache, and its bytes are read from the medium, compared with the checksums, and hashed. Most
//! of the block's digest is therefore known when the block is sealed. A window that is overwritten, even
//! while it is being read back, is read back and hashed again.
//!
//! A window is 2 MiB long and aligned, so that two windows never share a page of the page cache. A shared
//! page might contain bytes of the other window that are not on the medium yet, and could then not be
//! dropped. Large pages are aligned to their own size, which is at most 2 MiB where small pages have 4 KiB.

use std::collections::BTreeSet;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use block_files::{block_fault, corrupt, forget, read_through};
use repair::BlockId;
use store_api::{BlockError, Closed, Gate, OpenGate};

use super::block_paths::BlockPaths;
use super::checksums::{CHUNK_BYTES, Checksums, crc32c};
use super::reader::VERIFY_BYTES;
use super::tree::{Sum, Tree, WINDOW_CHUNKS, WindowHash};

/// The windows of a block that must still be read back. See the module's documentation.
pub(super) struct Windows {
    gate: Arc<dyn Gate>,
    waiting: BTreeSet<usize>,
    /// Windows that are being read. If one of them is also in `waiting`, it was overwritten meanwhile, and
    /// the result of its read is ignored.
    reading: Vec<usize>,
    /// Dropped with the writer; reads in progress then stop.
    interest: Arc<()>,
}

/// The results of a read-back: for each window, its number, and its hash or the error. The hash is `None` if
/// the block's digest is not computed from hashes of windows.
pub(super) type Found = Vec<(usize, Result<Option<Sum>, BlockError>)>;

/// The windows that are read back next. The file is synced first; the reads run on a thread that may block.
pub(super) struct Reading {
    block: BlockId,
    path: PathBuf,
    windows: Vec<Window>,
    gate: Arc<dyn Gate>,
    interest: Weak<()>,
}

struct Window {
    number: usize,
    bytes: Range<u64>,
    /// Whether this is the block's last window.
    is_last: bool,
    checksums: Vec<u32>,
    hashing: Hashing,
}

/// How the bytes of a window are hashed while they are compared with the checksums.
enum Hashing {
    /// The window is not hashed, because the block's digest is computed from its checksum list.
    None,
    /// The window is hashed, as part of a block of `chunks` chunks. If the hash was computed before
    /// (`known`), the result must equal it.
    Sum { chunks: usize, known: Option<Sum> },
}

impl Windows {
    /// Creates the state of a block of `chunks` chunks: all windows must still be read back.
    pub(super) fn new(chunks: usize, gate: Arc<dyn Gate>) -> Self {
        let waiting = numbers(&(0..chunks)).collect();
        Self { gate, waiting, reading: Vec::new(), interest: Arc::default() }
    }

    /// Marks the windows of these chunks as overwritten.
    pub(super) fn handle_write(&mut self, chunks: &Range<usize>) {
        self.waiting.extend(numbers(chunks));
    }

    /// Whether the whole block was read back after its last write.
    pub(super) fn are_done(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_empty()
    }

    /// Takes the waiting windows whose chunk checksums are all `known`; returns `None` if there is no such
    /// window. The caller must sync the file before it reads these windows, and must pass the result of the
    /// reads to [`take`](Self::take) before it calls this method again.
    pub(super) fn read(
        &mut self,
        place: &BlockPaths,
        checksums: &Checksums,
        known: &[bool],
        tree: Option<&Tree>,
    ) -> Option<Reading> {
        debug_assert!(self.reading.is_empty(), "nothing would be known of those");
        let is_known = |&number: &usize| known[chunks_of(number, checksums)].iter().all(|&known| known);
        self.reading = self.waiting.extract_if(.., is_known).collect();
        if self.reading.is_empty() {
            return None;
        }
        let window = |&number: &usize| Window::new(number, checksums, tree);
        Some(Reading {
            block: place.id.clone(),
            path: place.block.clone(),
            windows: self.reading.iter().map(window).collect(),
            gate: self.gate.clone(),
            interest: Arc::downgrade(&self.interest),
        })
    }

    /// Processes the results of a read-back; `found` is `None` if the read-back did not run. Returns the
    /// hashes of the windows that are intact.
    ///
    /// # Errors
    /// The first error of a window that was not overwritten meanwhile. Windows whose read was cancelled cause
    /// no error; they must be read again.
    pub(super) fn take(&mut self, found: Option<Found>) -> Result<Vec<(usize, Sum)>, BlockError> {
        let (reading, mut sums) = (std::mem::take(&mut self.reading), Vec::new());
        let Some(found) = found else {
            self.waiting.extend(reading);
            return Ok(sums);
        };
        for (number, found) in found {
            match found {
                _ if self.waiting.contains(&number) => {}
                Err(BlockError::GivenUp(_)) => drop(self.waiting.insert(number)),
                found => sums.extend(found?.map(|sum| (number, sum))),
            }
        }
        Ok(sums)
    }
}

/// Returns the numbers of the windows that contain any of these chunks.
pub(super) fn numbers(chunks: &Range<usize>) -> Range<usize> {
    if chunks.is_empty() { 0..0 } else { chunks.start / WINDOW_CHUNKS..chunks.end.div_ceil(WINDOW_CHUNKS) }
}

/// Returns the chunks of a window.
fn chunks_of(number: usize, checksums: &Checksums) -> Range<usize> {
    number * WINDOW_CHUNKS..checksums.len().min((number + 1) * WINDOW_CHUNKS)
}

/// Hashes the remaining windows of a completely written block, from the page cache or the medium.
pub(super) fn hash_rest(
    place: &BlockPaths,
    file: &File,
    checksums: &Checksums,
    tree: &mut Tree,
) -> Result<(), BlockError> {
    for number in tree.unknown() {
        let window = Window::new(number, checksums, Some(tree));
        if let Some(sum) = window.read(&place.id, &place.block, file, &OpenGate)? {
            tree.set(number, sum);
        }
    }
    Ok(())
}

impl Reading {
    /// Asks the system to drop the windows from the page cache.
    pub(super) fn forget(&self, file: &File) {
        for window in &self.windows {
            let bytes = NonZeroU64::new(window.bytes.end - window.bytes.start);
            forget(file, window.bytes.start, bytes.filter(|_| !window.is_last));
        }
    }

    /// Reads the windows from the medium.
    pub(super) fn run(self, file: &File) -> Found {
        self.forget(file);
        let read = |window: &Window| window.read(&self.block, &self.path, file, &self);
        self.windows.iter().map(|window| (window.number, read(window))).collect()
    }
}

impl Window {
    fn new(number: usize, checksums: &Checksums, tree: Option<&Tree>) -> Self {
        let chunks = chunks_of(number, checksums);
        let sum = |tree: &Tree| Hashing::Sum { chunks: checksums.len(), known: tree.sum(number) };
        Self {
            number,
            bytes: checksums.chunk(chunks.start).start..checksums.chunk(chunks.end - 1).end,
            is_last: chunks.end == checksums.len(),
            checksums: checksums.of(chunks).to_vec(),
            hashing: tree.map_or(Hashing::None, sum),
        }
    }

    /// Reads the window and compares it with the checksums. Returns the window's hash if the block's digest
    /// needs it.
    fn read(
        &self,
        block: &BlockId,
        path: &Path,
        file: &File,
        gate: &dyn Gate,
    ) -> Result<Option<Sum>, BlockError> {
        let mut hash = self.hashing.begin(self.number);
        read_through(block, self.bytes.clone(), VERIFY_BYTES, gate, |piece, buffer| {
            buffer.resize((piece.end - piece.start) as usize, 0);
            file.read_exact_at(buffer, piece.start).map_err(block_fault(block, path))?;
            if let Some(wrong) = self.first_wrong(&piece, buffer) {
                return Err(other_than_written(block, path, &wrong));
            }
            hash.iter_mut().for_each(|hash| hash.update(buffer));
            Ok(())
        })?;
        let sum = hash.map(|hash| hash.finish());
        match self.hashing {
            Hashing::Sum { known, .. } if known.is_some() && known != sum => {
                Err(other_than_written(block, path, &self.bytes))
            }
            _ => Ok(sum),
        }
    }

    /// Returns the first chunk of a piece that differs from its checksum.
    fn first_wrong(&self, piece: &Range<u64>, bytes: &[u8]) -> Option<Range<u64>> {
        let first = ((piece.start - self.bytes.start) / CHUNK_BYTES as u64) as usize;
        let mut chunks = bytes.chunks(CHUNK_BYTES).zip(&self.checksums[first..]);
        let wrong = chunks.position(|(chunk, &expected)| crc32c(chunk) != expected)?;
        let start = piece.start + (wrong * CHUNK_BYTES) as u64;
        Some(start..piece.end.min(start + CHUNK_BYTES as u64))
    }
}

fn other_than_written(block: &BlockId, path: &Path, bytes: &Range<u64>) -> BlockError {
    let Range { start, end } = bytes;
    corrupt(block, path, format!("bytes {start} to {end} did not read back as they were written"))
}

impl Hashing {
    fn begin(&self, number: usize) -> Option<WindowHash> {
        match self {
            Self::None => None,
            Self::Sum { chunks, .. } => Some(WindowHash::new(number, *chunks)),
        }
    }
}

/// Passes reads through the gate of the block's writer, and refuses them once the writer is dropped.
impl Gate for Reading {
    fn pass(&self, bytes: usize) -> Result<(), Closed> {
        self.interest.upgrade().ok_or(Closed)?;
        self.gate.pass(bytes)
    }
}

#[cfg(test)]
mod tests {
    use codes::BlockIndex;
    use proptest::prelude::*;
    use store_api::OpenGate;

    use super::*;
    use crate::label::Label;

    const WINDOWS: usize = 4;
    /// Number of chunks of the block; the last window is short.
    const CHUNKS: usize = WINDOWS * WINDOW_CHUNKS - 100;

    /// A read of a window: the number of the window, the step of its last write before the read, and whether
    /// its bytes were intact.
    type Looked = (usize, usize, bool);

    #[derive(Clone, Debug)]
    enum Step {
        Write(Range<usize>),
        /// Corrupts a chunk on the medium, until it is overwritten.
        Rot(usize),
        Read,
        Take,
        /// Reports that the read-back could not run.
        Fail,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let chunks = (0..CHUNKS, 1..2 * WINDOW_CHUNKS);
        let write = chunks.prop_map(|(start, length)| Step::Write(start..CHUNKS.min(start + length)));
        let rot = (0..CHUNKS).prop_map(Step::Rot);
        let step = prop_oneof![6 => write, 1 => rot, 4 => Just(Step::Read), 4 => Just(Step::Take), 1 => Just(Step::Fail)];
        prop::collection::vec(step, 0..60)
    }

    fn write(file: &File, chunks: &Range<usize>, byte: u8) {
        let bytes = vec![byte; chunks.len() * CHUNK_BYTES];
        file.write_all_at(&bytes, (chunks.start * CHUNK_BYTES) as u64).unwrap();
    }

    proptest! {
        /// A window is done if and only if it was read after its last write and was intact then.
        #[test]
        fn agrees_with_a_simple_model(steps in steps()) {
            let file = tempfile::tempfile().unwrap();
            let id = BlockId("a".into());
            let place = BlockPaths::of(Path::new("/r"), &id).unwrap();
            let label = Label { id, index: BlockIndex(0), digest: None, stripe: None };
            let mut checksums = Checksums::unknown((CHUNKS * CHUNK_BYTES) as u64, label);
            let mut known = vec![false; CHUNKS];
            let mut windows = Windows::new(CHUNKS, Arc::new(OpenGate));
            let mut tree = Tree::new(CHUNKS);
            // The reference model: per window, the step of the last write, and the step of the last write
            // that was read back and found intact.
            let (mut written, mut right) = ([0; WINDOWS], [None; WINDOWS]);
            let mut rotten = vec![false; CHUNKS];
            let mut found: Option<(Found, Vec<Looked>)> = None;
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(chunks) => {
                        windows.handle_write(&chunks);
                        tree.forget(numbers(&chunks));
                        write(&file, &chunks, at as u8);
                        chunks.clone().for_each(|chunk| checksums.set(chunk, &[at as u8; CHUNK_BYTES]));
                        known[chunks.clone()].fill(true);
                        rotten[chunks.clone()].fill(false);
                        written[chunks.start / WINDOW_CHUNKS..chunks.end.div_ceil(WINDOW_CHUNKS)].fill(at);
                    }
                    Step::Rot(chunk) => {
                        write(&file, &(chunk..chunk + 1), 255);
                        rotten[chunk] = known[chunk];
                    }
                    Step::Read if found.is_none() => {
                        let Some(reading) = windows.read(&place, &checksums, &known, Some(&tree)) else { continue };
                        let chunks = |number: usize| number * WINDOW_CHUNKS..CHUNKS.min((number + 1) * WINDOW_CHUNKS);
                        let model = reading.windows.iter().map(|window| {
                            let number = window.number;
                            (number, written[number], !rotten[chunks(number)].contains(&true))
                        });
                        let model = model.collect();
                        found = Some((reading.run(&file), model));
                    }
                    Step::Take => {
                        let Some((found, model)) = found.take() else { continue };
                        let relevant = |&(number, when, _): &Looked| written[number] == when;
                        let is_right = model.iter().filter(|&one| relevant(one)).all(|&(.., is_right)| is_right);
                        let Ok(sums) = windows.take(Some(found)) else {
                            prop_assert!(!is_right);
                            return Ok(()); // The writer gives up on a block with an error.
                        };
                        prop_assert!(is_right);
                        sums.into_iter().for_each(|(number, sum)| tree.set(number, sum));
                        for (number, when, _) in model {
                            right[number] = Some(when);
                        }
                    }
                    Step::Fail => {
                        if found.take().is_some() {
                            windows.take(None).unwrap();
                        }
                    }
                    Step::Read => {}
                }
                let are_done = found.is_none() && (0..WINDOWS).all(|number| right[number] == Some(written[number]));
                prop_assert_eq!(windows.are_done(), are_done);
                if are_done {
                    prop_assert!(tree.unknown().is_empty(), "every window was hashed after its last write");
                }
            }
        }
    }
}
