//! [`Heat`]: how much a repair gains or harms by reading a block.

use serde::{Deserialize, Serialize};

/// How much a repair gains or harms by reading a block (PPR, section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heat {
    /// The block has to be read from the disk.
    #[default]
    Cold,
    /// The block is in its helper's memory, so a repair reads it without the disk.
    Hot,
    /// Clients read the block so often that a repair avoids it, in memory or not.
    VeryHot,
}
