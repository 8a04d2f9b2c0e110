//! An open block of a store whose blocks are local files.

use repair::Digest;
use store_api::{BlockError, BlockReader, Gate};

/// An open block that can verify itself. It goes on reading the same file when the block is replaced meanwhile.
pub trait StoredBlock: BlockReader {
    /// Verifies this block, as [`Blocks::verify`](store_api::Blocks::verify) does by name.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if any checksum differs, [`BlockError::GivenUp`] if the gate is closed.
    fn verify(&self, gate: &dyn Gate) -> Result<Option<Digest>, BlockError>;
}
