//! What a block says of itself, so that it is known without a catalog.

use codes::CodeSpec;
use serde::{Deserialize, Serialize};

use crate::StripeId;

/// The stripe that a block belongs to, and that stripe's place in its file. With its index, its length and its digest,
/// which the store keeps anyway, a block that carries this can be told from any other, and a lost catalog can be made
/// anew from what the nodes hold (`docs/reference/dir-store.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeLabel {
    /// The cluster.
    pub cluster: String,
    /// The stripe's name, which no other stripe of the cluster ever had.
    pub stripe: StripeId,
    /// Its code.
    pub code: CodeSpec,
    /// Bytes of its blocks for the purpose of coding.
    pub block_bytes: u64,
    /// Bytes of the chunks that its blocks are encoded in; `None` if each is a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// The file that it is part of.
    pub file: FilePart,
}

/// A stripe's place in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// The file's name.
    pub name: String,
    /// The file's bytes.
    pub bytes: u64,
    /// Bytes of a block in all of the file's stripes but the last.
    pub block_bytes: u64,
    /// Bytes of the chunks of those blocks; `None` if each is a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Which of the file's stripes it is, from 0.
    pub position: u32,
    /// The put that brought the file: the same in all its stripes, and in no other put of the cluster.
    pub put: String,
    /// When that put began, in milliseconds since 1970. Of two files of one name the later one is the newer.
    pub begun_unix_ms: u64,
}
