//! The rate at which whole blocks are scanned.

use repair::BlockId;

use crate::BlockError;

/// Paces a scan of a whole block: called before each piece, on a thread that may wait. The caller of the scan limits its
/// rate by it, and cancels it.
pub trait Gate: Send + Sync {
    /// Returns once this many bytes may be read from the medium.
    ///
    /// # Errors
    /// [`Closed`] if the scan is cancelled.
    fn pass(&self, bytes: usize) -> Result<(), Closed>;
}

/// The scan is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl Closed {
    /// The error of a cancelled scan of `block`.
    pub fn of(self, block: &BlockId) -> BlockError {
        BlockError::GivenUp(block.clone())
    }
}

/// Limits nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl Gate for OpenGate {
    fn pass(&self, _bytes: usize) -> Result<(), Closed> {
        Ok(())
    }
}
