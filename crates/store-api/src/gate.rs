//! Rate limits for scans of whole blocks.

use repair::BlockId;

use crate::BlockError;

/// Limits the rate of a scan of a whole block, and can cancel it. The scan calls the gate before it reads
/// each piece, on a thread that may block.
pub trait Gate: Send + Sync {
    /// Blocks until the scan may read this many bytes from the medium.
    ///
    /// # Errors
    /// [`Closed`] if the scan was cancelled.
    fn pass(&self, bytes: usize) -> Result<(), Closed>;
}

/// The scan was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl Closed {
    /// Returns the error for a cancelled scan of `block`.
    pub fn of(self, block: &BlockId) -> BlockError {
        BlockError::GivenUp(block.clone())
    }
}

/// A gate without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl Gate for OpenGate {
    fn pass(&self, _bytes: usize) -> Result<(), Closed> {
        Ok(())
    }
}
