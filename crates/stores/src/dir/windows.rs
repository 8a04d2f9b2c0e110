//! Reading a block back from the medium while it is still being written, so that little is left to read in the end.
//!
//! A block is cut into windows. Once all of a window is written and synced, the system is asked to forget it, and what the
//! medium then gives is held against the checksums. A window that is written to again, be it while it is read back, is read
//! back again.
//!
//! No window shares a piece of the page cache with another one, of which a part might not be on the medium yet: such pieces
//! lie at multiples of their own size, and have 2 MiB at most where pages have 4 KiB.

use std::collections::BTreeSet;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use repair::BlockId;

use super::checksums::{CHUNK_BYTES, Checksums, crc32c};
use super::place::{Place, block_fault};
use super::reader::{VERIFY_BYTES, corrupt, forget};
use crate::through::read_through;
use crate::{BlockError, Closed, Gate};

/// Chunks of a window: 2 MiB.
const WINDOW_CHUNKS: usize = 512;

/// Which windows of a block are to be read back. See the module's documentation.
pub(super) struct Windows {
    gate: Arc<dyn Gate>,
    waiting: BTreeSet<usize>,
    /// Those that are being read. What is found of one that is waiting again says nothing.
    reading: Vec<usize>,
    /// Without it nothing is read any more.
    interest: Arc<()>,
}

/// What was found of windows that were read back.
pub(super) type Found = Vec<(usize, Result<(), BlockError>)>;

/// Windows that are durable and are to be read back now, by a thread that may wait.
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
    /// Whether it is the block's last one.
    is_last: bool,
    checksums: Vec<u32>,
}

impl Windows {
    /// All windows of a block of so many chunks.
    pub(super) fn new(chunks: usize, gate: Arc<dyn Gate>) -> Self {
        let waiting = numbers(&(0..chunks)).collect();
        Self { gate, waiting, reading: Vec::new(), interest: Arc::default() }
    }

    /// These chunks are written to.
    pub(super) fn handle_write(&mut self, chunks: &Range<usize>) {
        self.waiting.extend(numbers(chunks));
    }

    /// Whether all of the block was read back since it was written.
    pub(super) fn are_done(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_empty()
    }

    /// Takes those of which all chunks are `known`, if there are such. They are to be synced before they are read, and what is
    /// found is to be [taken](Self::take) before others are.
    pub(super) fn read(&mut self, place: &Place, checksums: &Checksums, known: &[bool]) -> Option<Reading> {
        debug_assert!(self.reading.is_empty(), "nothing would be known of those");
        let chunks =
            |number: usize| number * WINDOW_CHUNKS..checksums.len().min((number + 1) * WINDOW_CHUNKS);
        let is_known = |&number: &usize| known[chunks(number)].iter().all(|&known| known);
        self.reading = self.waiting.extract_if(.., is_known).collect();
        if self.reading.is_empty() {
            return None;
        }
        let window = |&number: &usize| {
            let chunks = chunks(number);
            Window {
                number,
                bytes: checksums.chunk(chunks.start).start..checksums.chunk(chunks.end - 1).end,
                is_last: chunks.end == checksums.len(),
                checksums: checksums.of(chunks).to_vec(),
            }
        };
        Some(Reading {
            block: place.id.clone(),
            path: place.block.clone(),
            windows: self.reading.iter().map(window).collect(),
            gate: self.gate.clone(),
            interest: Arc::downgrade(&self.interest),
        })
    }

    /// Takes what was found of windows, or that none was looked at.
    ///
    /// # Errors
    /// What is wrong with one of them, unless it was written to meanwhile.
    pub(super) fn take(&mut self, found: Option<Found>) -> Result<(), BlockError> {
        let reading = std::mem::take(&mut self.reading);
        let Some(found) = found else {
            self.waiting.extend(reading);
            return Ok(());
        };
        for (number, found) in found {
            match found {
                _ if self.waiting.contains(&number) => {}
                Err(BlockError::GivenUp(_)) => drop(self.waiting.insert(number)),
                found => found?,
            }
        }
        Ok(())
    }
}

/// The windows that have some of these chunks.
fn numbers(chunks: &Range<usize>) -> Range<usize> {
    if chunks.is_empty() { 0..0 } else { chunks.start / WINDOW_CHUNKS..chunks.end.div_ceil(WINDOW_CHUNKS) }
}

impl Reading {
    /// Asks the system to forget the windows.
    pub(super) fn forget(&self, file: &File) {
        for window in &self.windows {
            let bytes = NonZeroU64::new(window.bytes.end - window.bytes.start);
            forget(file, window.bytes.start, bytes.filter(|_| !window.is_last));
        }
    }

    /// Reads them from the medium.
    pub(super) fn run(self, file: &File) -> Found {
        self.forget(file);
        self.windows.iter().map(|window| (window.number, self.read(window, file))).collect()
    }

    fn read(&self, window: &Window, file: &File) -> Result<(), BlockError> {
        let fault = block_fault(&self.block, &self.path);
        read_through(&self.block, window.bytes.clone(), VERIFY_BYTES, self, |piece, buffer| {
            buffer.resize((piece.end - piece.start) as usize, 0);
            file.read_exact_at(buffer, piece.start).map_err(&fault)?;
            let first = ((piece.start - window.bytes.start) / CHUNK_BYTES as u64) as usize;
            let mut chunks = buffer.chunks(CHUNK_BYTES).zip(&window.checksums[first..]);
            let Some(wrong) = chunks.position(|(chunk, &expected)| crc32c(chunk) != expected) else {
                return Ok(());
            };
            let start = piece.start + (wrong * CHUNK_BYTES) as u64;
            let end = piece.end.min(start + CHUNK_BYTES as u64);
            let detail = format!("bytes {start} to {end} read back other than they were written");
            Err(corrupt(&self.block, &self.path, detail))
        })
    }
}

/// The gate of whoever makes the block, as long as the block is being made.
impl Gate for Reading {
    fn pass(&self, bytes: usize) -> Result<(), Closed> {
        self.interest.upgrade().ok_or(Closed)?;
        self.gate.pass(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use codes::BlockIndex;
    use proptest::prelude::*;

    use super::*;
    use crate::OpenGate;
    use crate::dir::label::Label;

    const WINDOWS: usize = 4;
    /// The last window is short.
    const CHUNKS: usize = WINDOWS * WINDOW_CHUNKS - 100;

    /// A window, its last write when it was read, and whether it was right then.
    type Looked = (usize, usize, bool);

    #[derive(Clone, Debug)]
    enum Step {
        Write(Range<usize>),
        /// Rots a chunk on the medium, until it is written again.
        Rot(usize),
        Read,
        Take,
        /// Nobody could read.
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
        /// A window is done if and only if it was read after its last write and was right then.
        #[test]
        fn agrees_with_a_plain_history(steps in steps()) {
            let file = tempfile::tempfile().unwrap();
            let id = BlockId("a".into());
            let place = Place::of(Path::new("/r"), &id).unwrap();
            let label = Label { id, index: BlockIndex(0), stripe: None };
            let mut checksums = Checksums::unknown((CHUNKS * CHUNK_BYTES) as u64, label);
            let mut known = vec![false; CHUNKS];
            let mut windows = Windows::new(CHUNKS, Arc::new(OpenGate));
            // What is known of windows by a plain history: the number of the last write, and of the last write before it was
            // read and found right.
            let (mut written, mut right) = ([0; WINDOWS], [None; WINDOWS]);
            let mut rotten = vec![false; CHUNKS];
            let mut found: Option<(Found, Vec<Looked>)> = None;
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(chunks) => {
                        windows.handle_write(&chunks);
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
                        let Some(reading) = windows.read(&place, &checksums, &known) else { continue };
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
                        prop_assert_eq!(windows.take(Some(found)).is_ok(), is_right);
                        if !is_right {
                            return Ok(()); // Nothing more is made of such a block.
                        }
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
            }
        }
    }
}
