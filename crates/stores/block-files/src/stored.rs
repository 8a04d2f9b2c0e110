//! An open block of a store whose blocks are local files.

use repair::Digest;
use store_api::{BlockError, BlockReader, Gate};

/// An open block that can verify itself. If another file replaces the block, the open block continues to read
/// the old file.
pub trait StoredBlock: BlockReader {
    /// Verifies this open file, as [`Blocks::verify`](store_api::Blocks::verify) does for a name.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if any checksum differs, [`BlockError::GivenUp`] if the gate is closed.
    fn verify(&self, gate: &dyn Gate) -> Result<Option<Digest>, BlockError>;
}
