//! What a checksum file says of the block beside it.

use codes::BlockIndex;
use repair::{BlockId, Digest, Sink, StripeLabel};
use serde::{Deserialize, Serialize};

/// No label is longer: its file's name has at most 1,024 bytes, six for each at worst.
pub(super) const MAX_LABEL_BYTES: usize = 64 << 10;

/// Which block it is. A pair of files that was exchanged with another pair is known by this, whole as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    /// The block's name.
    pub(super) id: BlockId,
    /// Its index in its stripe.
    pub(super) index: BlockIndex,
    /// The digest of its bytes; absent until it is sealed, and from blocks of an earlier day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<Digest>,
    /// Its stripe; absent if whoever stored the block did not say.
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

    /// `None` if the bytes are no label.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
