//! Caps on repairs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Caps on what repairs may move, in bytes per second; what is absent is not capped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CapsView {
    /// Sent by all helpers together.
    pub cluster: Option<u64>,
    /// Sent by a helper, and received by it, by its name.
    pub nodes: BTreeMap<String, u64>,
    /// Read from and written to the disk of a helper, by its name.
    pub disks: BTreeMap<String, u64>,
    /// Sent by the helpers of a rack together, and received, by its name.
    pub racks: BTreeMap<String, u64>,
}

/// Caps to change, in bytes per second; 0 takes a cap away, and what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapsRequest {
    /// All caps that are not named are taken away.
    pub none: bool,
    /// Sent by all helpers together.
    pub cluster: Option<u64>,
    /// Sent by a helper, and received by it, by its name.
    pub nodes: BTreeMap<String, u64>,
    /// Read from and written to the disk of a helper, by its name.
    pub disks: BTreeMap<String, u64>,
    /// Sent by the helpers of a rack together, and received, by its name.
    pub racks: BTreeMap<String, u64>,
}
