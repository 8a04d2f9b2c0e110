//! Bandwidth caps of repairs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Caps on the traffic of repairs, in bytes per second. An absent entry means no cap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CapsView {
    /// Cap on the bytes that all helpers together send.
    pub cluster: Option<u64>,
    /// Caps by helper name. Each applies to the bytes sent and, separately, to the bytes received.
    pub nodes: BTreeMap<String, u64>,
    /// Caps by helper name on the bytes read from and written to the helper's disk.
    pub disks: BTreeMap<String, u64>,
    /// Caps by rack name on the total of the rack's helpers. Each applies to the bytes sent and, separately,
    /// to the bytes received.
    pub racks: BTreeMap<String, u64>,
}

/// Changes to caps, in bytes per second. 0 removes a cap; absent entries stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapsRequest {
    /// Whether to remove all caps that this request does not name.
    pub none: bool,
    /// Cap on the bytes that all helpers together send.
    pub cluster: Option<u64>,
    /// Caps by helper name. Each applies to the bytes sent and, separately, to the bytes received.
    pub nodes: BTreeMap<String, u64>,
    /// Caps by helper name on the bytes read from and written to the helper's disk.
    pub disks: BTreeMap<String, u64>,
    /// Caps by rack name on the total of the rack's helpers. Each applies to the bytes sent and, separately,
    /// to the bytes received.
    pub racks: BTreeMap<String, u64>,
}
