//! The label stored with a block, which identifies the block without a catalog.

use codes::CodeSpec;
use serde::{Deserialize, Serialize};

use crate::StripeId;

/// The stripe that a block belongs to, and that stripe's position in its file. The store also keeps the
/// block's index, length and digest. Label, index, length and digest together identify the block, so that a
/// lost catalog can be rebuilt from the blocks of all nodes (`docs/reference/dir-store.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeLabel {
    /// The id of the cluster.
    pub cluster: String,
    /// The stripe's name. The cluster never uses a name twice.
    pub stripe: StripeId,
    /// The stripe's code.
    pub code: CodeSpec,
    /// Bytes of each block as encoded.
    pub block_bytes: u64,
    /// Chunk size in bytes; `None` if each block is a single chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// The file that the stripe belongs to.
    pub file: FilePart,
}

/// The file that a stripe belongs to, and the stripe's position in that file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// The file's name.
    pub name: String,
    /// The file's length in bytes.
    pub bytes: u64,
    /// Length in bytes of the blocks in every stripe of the file except the last.
    pub block_bytes: u64,
    /// Chunk size in bytes in every stripe of the file except the last; `None` if each block is a single
    /// chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// The number of the stripe in the file, from 0.
    pub position: u32,
    /// The id of the put that wrote the file: the same in all its stripes, and different from that of every
    /// other put in the cluster.
    pub put: String,
    /// When the put that wrote the file began, in milliseconds since 1970. If two puts wrote the same name,
    /// the later one is the current version.
    pub begun_unix_ms: u64,
}
