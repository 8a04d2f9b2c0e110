//! The label of a block, which is stored in its checksum file.

use codes::BlockIndex;
use repair::{BlockId, Digest, Sink, StripeLabel};
use serde::{Deserialize, Serialize};

/// The greatest length of a label in bytes. The largest part is a file name: at most 1,024 bytes, each of
/// which takes up to six bytes if it is escaped in JSON.
pub(super) const MAX_LABEL_BYTES: usize = 64 << 10;

/// Identifies a block. If a block's two files were swapped with those of another block, the checksums would
/// still match the bytes, but the label would reveal the swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    /// The block's name.
    pub(super) id: BlockId,
    /// The block's index in its stripe.
    pub(super) index: BlockIndex,
    /// The digest of the block's bytes; absent until the block is sealed, and in blocks of old versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<Digest>,
    /// The block's stripe; absent if the writer did not specify one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stripe: Option<StripeLabel>,
}

impl Label {
    pub(super) fn of(sink: &Sink) -> Self {
        Self { id: sink.id.clone(), index: sink.index, digest: None, stripe: sink.label().cloned() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a label has string keys and goes to memory")
    }

    /// Returns `None` if the bytes are not a label.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
