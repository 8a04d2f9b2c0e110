//! How fast a whole block may be read through.

use repair::BlockId;

use crate::BlockError;

/// Asked before each piece of a block that is read through to be verified, on a thread that may wait. So whoever has the
/// block read sets the pace, and can end the reading.
pub trait Gate: Send + Sync {
    /// Returns once so many bytes may be read from the medium.
    ///
    /// # Errors
    /// [`Closed`]: nobody waits for the result any more.
    fn pass(&self, bytes: usize) -> Result<(), Closed>;
}

/// Nobody waits for what is read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl Closed {
    /// The error of whoever was reading `block`.
    pub fn of(self, block: &BlockId) -> BlockError {
        BlockError::GivenUp(block.clone())
    }
}

/// Lets everything pass at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl Gate for OpenGate {
    fn pass(&self, _bytes: usize) -> Result<(), Closed> {
        Ok(())
    }
}
