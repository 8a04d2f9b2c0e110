//! Files, where their bytes are, and puts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::StripeView;

/// A file in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The code of its stripes.
    pub code: String,
    /// Bytes of a block in all its stripes but the last.
    pub block_bytes: u64,
    /// Bytes of the chunks that those blocks are encoded in; absent if each is a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Number of stripes.
    pub stripes: u64,
    /// When it became visible, in milliseconds since 1970.
    pub created_unix_ms: u64,
}

/// A file with its layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileLayout {
    /// The file.
    #[serde(flatten)]
    pub file: FileView,
    /// k: data blocks of a stripe.
    pub data_blocks: usize,
    /// α: sub-blocks of a block.
    pub sub_blocks: usize,
    /// Its stripes, in file order.
    pub layout: Vec<FileStripe>,
}

/// One stripe's part of a file. Its block `i < k` holds the bytes from `file_offset + i · block_bytes` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileStripe {
    /// Its position in the file.
    pub position: u64,
    /// Where its first byte is in the file.
    pub file_offset: u64,
    /// Bytes of the file that it holds; zeros follow up to k blocks.
    pub data_bytes: u64,
    /// The stripe.
    #[serde(flatten)]
    pub stripe: StripeView,
}

/// A file to be put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutRequest {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The code of its stripes; the cluster's default if absent.
    pub code: Option<String>,
    /// Bytes of a block; the cluster's default if absent.
    pub block_bytes: Option<u64>,
    /// Bytes of the chunks that a block is encoded in, of which it is a whole number; a single one if absent. Codes without
    /// sub-blocks have no use for it, and the file none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_bytes: Option<u64>,
    /// Whether it may take the place of a file that has its name.
    #[serde(default)]
    pub replace: bool,
}

/// A put that was begun. Each stripe is stored by a `PutStripe` request on a control connection; then the put
/// is committed. It is aborted when that connection ends first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PutView {
    /// Its number.
    pub put: u64,
    /// The code of the stripes.
    pub code: String,
    /// n: blocks of a stripe.
    pub blocks: usize,
    /// k: data blocks of a stripe.
    pub data_blocks: usize,
    /// α: sub-blocks of a block.
    pub sub_blocks: usize,
    /// The stripes to store, in file order.
    pub stripes: Vec<PutStripe>,
}

/// One stripe of a put. Its block `i < k` holds the bytes from `file_offset + i · block_bytes` on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PutStripe {
    /// Its position in the file.
    pub position: u64,
    /// Where its first byte is in the file.
    pub file_offset: u64,
    /// Bytes of the file that it holds; zeros follow up to k blocks.
    pub data_bytes: u64,
    /// Bytes of each of its blocks.
    pub block_bytes: u64,
}
