//! The digest of blocks that are put through Mend. The client and the helpers compute it with the same
//! algorithm, and the catalog records it, so their digests can be compared.

use blake3::Hasher;
use repair::Digest;

/// The name of the digest's algorithm.
pub const DIGEST_KIND: &str = "blake3";

/// Computes the digest of a block from a sequential stream of its bytes.
///
/// ```
/// let mut hash = store_api::BlockHash::default();
/// hash.update(b"ab");
/// hash.update(b"c");
/// let digest = hash.finish().to_string();
/// assert_eq!(digest, "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85");
/// ```
#[derive(Clone, Default)]
pub struct BlockHash(Hasher);

impl BlockHash {
    /// Appends bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes appended so far.
    pub fn finish(&self) -> Digest {
        Digest::new(DIGEST_KIND, self.0.finalize().as_bytes()).expect("32 bytes are a digest")
    }
}
