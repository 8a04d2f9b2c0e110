//! A block under construction: which bytes have arrived, whether a write failed, and the result of the seal.

use std::ops::Range;
use std::path::{Path, PathBuf};

use repair::BlockId;
use store_api::BlockError;

use crate::{Extents, corrupt, range_end};

/// A block under construction. `T` is the result of a seal, such as the block's digest.
#[derive(Debug)]
pub struct Draft<T> {
    block: BlockId,
    /// The temporary file, for errors.
    path: PathBuf,
    bytes: u64,
    written: Extents,
    /// The result of the seal; `None` if there was a write since.
    sealed: Option<T>,
    /// Whether a write or a sync failed. The system reports a failed write only once, so a second sync would
    /// wrongly succeed.
    broken: bool,
}

impl<T> Draft<T> {
    /// Creates the state of a block of `bytes` bytes in the file `path`; no byte has arrived yet.
    pub fn new(block: BlockId, path: &Path, bytes: u64) -> Self {
        let path = path.to_owned();
        Self { block, path, bytes, written: Extents::default(), sealed: None, broken: false }
    }

    /// Returns the length of the complete block.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begins a write, which invalidates the seal. Returns the range of the write.
    ///
    /// # Errors
    /// [`BlockError::Io`] if the range exceeds the block; nothing has changed then.
    pub fn begin_write(&mut self, offset: u64, length: usize) -> Result<Range<u64>, BlockError> {
        let end = range_end(&self.path, offset, length, self.bytes)?;
        self.sealed = None;
        Ok(offset..end)
    }

    /// Records the range of a write that succeeded.
    pub fn end_write(&mut self, range: Range<u64>) {
        self.written.insert(range);
    }

    /// Passes on the result of a write or a sync. After a failure the block cannot be sealed any more.
    ///
    /// # Errors
    /// The error of `done`.
    pub fn note<R>(&mut self, done: Result<R, BlockError>) -> Result<R, BlockError> {
        self.broken |= done.is_err();
        done
    }

    /// Whether all bytes have arrived.
    pub fn is_complete(&self) -> bool {
        self.written.first_gap(self.bytes).is_none()
    }

    /// Checks that all bytes have arrived and no write failed.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`].
    pub fn check_complete(&self) -> Result<(), BlockError> {
        if self.broken {
            return Err(
                self.corrupt("an earlier write to it failed; write it again from the beginning".to_owned())
            );
        }
        let Some(gap) = self.written.first_gap(self.bytes) else { return Ok(()) };
        Err(self.corrupt(format!("bytes {} to {} were never written", gap.start, gap.end)))
    }

    /// Whether the block was sealed and has not been written to since.
    pub fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Records the result of a seal.
    pub fn seal(&mut self, result: T) {
        self.sealed = Some(result);
    }

    /// Returns the result of the seal.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if the block was not sealed after the last write.
    pub fn sealed(&self) -> Result<&T, BlockError> {
        let unsealed = || self.corrupt("it was not sealed after the last write".to_owned());
        self.sealed.as_ref().ok_or_else(unsealed)
    }

    /// Returns the error for a block with wrong bytes.
    pub fn corrupt(&self, detail: String) -> BlockError {
        corrupt(&self.block, &self.path, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft<u8> {
        Draft::new(BlockId("s.0".to_owned()), Path::new("folder/draft"), 10)
    }

    #[test]
    fn a_draft_is_sealed_once_all_bytes_are_there_and_until_the_next_write() {
        let mut draft = draft();
        assert!(draft.begin_write(8, 3).is_err());
        for (offset, is_complete) in [(5, false), (0, true)] {
            let range = draft.begin_write(offset, 5).unwrap();
            draft.end_write(range);
            assert_eq!((draft.is_complete(), draft.check_complete().is_ok()), (is_complete, is_complete));
        }
        assert!(draft.sealed().is_err());
        draft.seal(7);
        assert_eq!(draft.sealed().ok(), Some(&7));
        draft.begin_write(0, 0).unwrap();
        assert!(!draft.is_sealed());
    }

    #[test]
    fn a_draft_with_a_failed_write_is_never_complete() {
        let mut draft = draft();
        let range = draft.begin_write(0, 10).unwrap();
        draft.end_write(range);
        let failed = draft.corrupt("the disk".to_owned());
        assert!(draft.note::<()>(Err(failed)).is_err());
        assert!(draft.check_complete().unwrap_err().to_string().contains("an earlier write"));
    }
}
