//! Records of files, puts and nodes.

use std::fmt;

use codes::CodeSpec;
use repair::wire::control::Description;
use repair::{FilePart, NodeId, StripeId};
use serde::{Deserialize, Serialize};

use crate::BlockSize;

/// A file of a store that owns its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// The file's name.
    pub name: String,
    /// The file's length in bytes.
    pub bytes: u64,
    /// The code of the file's stripes.
    pub code: CodeSpec,
    /// Length of a block in all stripes but the last, whose blocks may be shorter.
    pub block_bytes: u64,
    /// Length of a chunk of the file's blocks; `None` if each block is one chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// The file's stripes in file order. Each stripe but the last stores k · `block_bytes` bytes of the file.
    pub stripes: Vec<StripeId>,
    /// When the file became visible, in milliseconds since 1970.
    pub created_unix_ms: u64,
}

/// A helper that is, or was, a member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The node's number; numbers are never reused.
    pub id: NodeId,
    /// The node's name, as in its certificate.
    pub name: String,
    /// The last known address of the node's data port.
    pub address: Option<String>,
}

/// The number of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PutId(pub u64);

impl fmt::Display for PutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// An open put: a file that is not visible yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutRecord {
    /// The put's number.
    pub id: PutId,
    /// The name of the future file.
    pub name: String,
    /// The length of the future file in bytes.
    pub bytes: u64,
    /// The code of the file's stripes.
    pub code: CodeSpec,
    /// Length of a block in all stripes but the last.
    pub block_bytes: u64,
    /// Length of a chunk of the file's blocks; `None` if each block is one chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Whether the commit may replace an existing file of this name.
    pub replace: bool,
    /// The put's name in the labels of its blocks, unique in the cluster.
    pub name_of_put: String,
    /// When the put began, in milliseconds since 1970. Greater than the times of all earlier puts, even if
    /// the clock was set back.
    pub begun_unix_ms: u64,
}

/// The blocks that a helper reports. A lost catalog is rebuilt from the inventories of all helpers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// The helper's name.
    pub node: String,
    /// The address from which the helper answered.
    pub address: String,
    /// The helper's blocks.
    pub blocks: Vec<Description>,
}

impl FileRecord {
    /// Returns the size of the file's blocks, except in the last stripe.
    pub fn size(&self) -> BlockSize {
        BlockSize { block_bytes: self.block_bytes, chunk_bytes: self.chunk_bytes }
    }
}

impl PutRecord {
    /// Creates the record of a put whose blocks are labelled with the put's number. `begun_unix_ms` is 0.
    pub fn new(id: PutId, name: &str, bytes: u64, code: &CodeSpec, size: BlockSize, replace: bool) -> Self {
        let BlockSize { block_bytes, chunk_bytes } = size;
        let (name, code, name_of_put) = (name.to_owned(), code.clone(), id.to_string());
        Self { id, name, bytes, code, block_bytes, chunk_bytes, replace, name_of_put, begun_unix_ms: 0 }
    }

    /// Converts the put into the record of its committed file, which consists of these stripes.
    pub fn into_file(self, stripes: Vec<StripeId>, created_unix_ms: u64) -> FileRecord {
        let Self { name, bytes, code, block_bytes, chunk_bytes, .. } = self;
        FileRecord { name, bytes, code, block_bytes, chunk_bytes, stripes, created_unix_ms }
    }

    /// Returns the size of the file's blocks, except in the last stripe.
    pub fn size(&self) -> BlockSize {
        BlockSize { block_bytes: self.block_bytes, chunk_bytes: self.chunk_bytes }
    }

    /// Returns the part of the file that is stored in the stripe at this position.
    pub fn part(&self, position: u32) -> FilePart {
        FilePart {
            name: self.name.clone(),
            bytes: self.bytes,
            block_bytes: self.block_bytes,
            chunk_bytes: self.chunk_bytes,
            position,
            put: self.name_of_put.clone(),
            begun_unix_ms: self.begun_unix_ms,
        }
    }

    /// Returns the number of stripes that the file needs; 0 for an empty file.
    pub fn stripes(&self) -> u64 {
        stripe_count(self.bytes, &self.code, self.block_bytes)
    }
}

/// Returns the number of stripes of a file of `bytes` bytes.
pub fn stripe_count(bytes: u64, code: &CodeSpec, block_bytes: u64) -> u64 {
    let stripe_bytes = u128::from(block_bytes) * code.data_blocks() as u128;
    u128::from(bytes).div_ceil(stripe_bytes.max(1)) as u64
}
