//! Records of files, puts and nodes.

use std::fmt;

use codes::CodeSpec;
use repair::wire::control::Description;
use repair::{FilePart, NodeId, StripeId};
use serde::{Deserialize, Serialize};

use crate::BlockSize;

/// A file of a store with files of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The code of its stripes.
    pub code: CodeSpec,
    /// Length of a block in all its stripes but the last, whose blocks may be shorter.
    pub block_bytes: u64,
    /// Length of the chunks of those blocks; `None` if each block is one chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Its stripes, in file order; each holds the next k · `block_bytes` bytes.
    pub stripes: Vec<StripeId>,
    /// When it became visible, in milliseconds since 1970.
    pub created_unix_ms: u64,
}

/// A helper that is, or was, part of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its number, which no other node ever gets.
    pub id: NodeId,
    /// Its name, as in its certificate.
    pub name: String,
    /// The last known address of its data port.
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
    /// Its number.
    pub id: PutId,
    /// The name that the file will have.
    pub name: String,
    /// The length that the file will have.
    pub bytes: u64,
    /// The code of its stripes.
    pub code: CodeSpec,
    /// Length of a block in all its stripes but the last.
    pub block_bytes: u64,
    /// Length of the chunks of those blocks; `None` if each block is one chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Whether it replaces a file of its name.
    pub replace: bool,
    /// Its name in the labels of its blocks, unique in the cluster.
    pub name_of_put: String,
    /// When it began, in milliseconds since 1970; later than all puts before it, whatever the clock says.
    pub begun_unix_ms: u64,
}

/// What a helper says that it holds, from which a lost catalog is rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// The helper's name.
    pub node: String,
    /// The address from which it answered.
    pub address: String,
    /// Its blocks.
    pub blocks: Vec<Description>,
}

impl FileRecord {
    /// The size of its blocks, except in the last stripe.
    pub fn size(&self) -> BlockSize {
        BlockSize { block_bytes: self.block_bytes, chunk_bytes: self.chunk_bytes }
    }
}

impl PutRecord {
    /// A new put; its blocks are labelled with its number, and the time is left out.
    pub fn new(id: PutId, name: &str, bytes: u64, code: &CodeSpec, size: BlockSize, replace: bool) -> Self {
        let BlockSize { block_bytes, chunk_bytes } = size;
        let (name, code, name_of_put) = (name.to_owned(), code.clone(), id.to_string());
        Self { id, name, bytes, code, block_bytes, chunk_bytes, replace, name_of_put, begun_unix_ms: 0 }
    }

    /// The file that a commit makes of these stripes.
    pub fn into_file(self, stripes: Vec<StripeId>, created_unix_ms: u64) -> FileRecord {
        let Self { name, bytes, code, block_bytes, chunk_bytes, .. } = self;
        FileRecord { name, bytes, code, block_bytes, chunk_bytes, stripes, created_unix_ms }
    }

    /// The size of its blocks, except in the last stripe.
    pub fn size(&self) -> BlockSize {
        BlockSize { block_bytes: self.block_bytes, chunk_bytes: self.chunk_bytes }
    }

    /// The part of the file that the stripe at a position holds.
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

    /// Number of stripes that the file needs; 0 if it is empty.
    pub fn stripes(&self) -> u64 {
        stripe_count(self.bytes, &self.code, self.block_bytes)
    }
}

/// Number of stripes in a file of `bytes` bytes.
pub fn stripe_count(bytes: u64, code: &CodeSpec, block_bytes: u64) -> u64 {
    let stripe_bytes = u128::from(block_bytes) * code.data_blocks() as u128;
    u128::from(bytes).div_ceil(stripe_bytes.max(1)) as u64
}
