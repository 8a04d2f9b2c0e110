//! Files, their layout in stripes, and puts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::StripeView;

/// A stored file, without its layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    /// The file's name.
    pub name: String,
    /// The file's length in bytes.
    pub bytes: u64,
    /// The code of the file's stripes.
    pub code: String,
    /// Size in bytes of the blocks of all stripes except the last.
    pub block_bytes: u64,
    /// Size in bytes of the chunks in which these blocks are encoded; absent if each block is a single chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Number of stripes.
    pub stripes: u64,
    /// Time at which the file became visible, in milliseconds since 1970.
    pub created_unix_ms: u64,
}

/// A file with its layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileLayout {
    /// The file.
    #[serde(flatten)]
    pub file: FileView,
    /// k: data blocks per stripe.
    pub data_blocks: usize,
    /// α: sub-blocks per block.
    pub sub_blocks: usize,
    /// The stripes in file order.
    pub layout: Vec<FileStripe>,
}

/// One stripe of a file. Data block `i < k` holds the file's bytes from `file_offset + i · block_bytes` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileStripe {
    /// The stripe's position in the file, from 0.
    pub position: u64,
    /// Offset in the file of the stripe's first byte.
    pub file_offset: u64,
    /// Number of the file's bytes in this stripe. The rest of the stripe's data blocks is filled with zeros.
    pub data_bytes: u64,
    /// The stripe.
    #[serde(flatten)]
    pub stripe: StripeView,
}

/// A file to put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutRequest {
    /// The file's name.
    pub name: String,
    /// The file's length in bytes.
    pub bytes: u64,
    /// The code of the file's stripes; the cluster's default if absent.
    pub code: Option<String>,
    /// Size of a block in bytes; the cluster's default if absent.
    pub block_bytes: Option<u64>,
    /// Size in bytes of the chunks in which a block is encoded; must divide the block size. If absent, each
    /// block is a single chunk. Ignored for codes without sub-blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Whether the file may replace an existing file of this name.
    #[serde(default)]
    pub replace: bool,
}

/// A put that has begun. The client stores each stripe with a `PutStripe` request on a control connection,
/// then commits the put. If the control connection ends before the commit, the put is aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PutView {
    /// The put's number.
    pub put: u64,
    /// The code of the file's stripes.
    pub code: String,
    /// n: blocks per stripe.
    pub blocks: usize,
    /// k: data blocks per stripe.
    pub data_blocks: usize,
    /// α: sub-blocks per block.
    pub sub_blocks: usize,
    /// The stripes to store, in file order.
    pub stripes: Vec<PutStripe>,
}

/// One stripe of a put. Data block `i < k` holds the file's bytes from `file_offset + i · block_bytes` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PutStripe {
    /// The stripe's position in the file, from 0.
    pub position: u64,
    /// Offset in the file of the stripe's first byte.
    pub file_offset: u64,
    /// Number of the file's bytes in this stripe. The rest of the stripe's data blocks is filled with zeros.
    pub data_bytes: u64,
    /// Size of each block of this stripe in bytes.
    pub block_bytes: u64,
}
