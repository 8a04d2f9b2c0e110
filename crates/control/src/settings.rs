//! The configuration of the coordinator.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Network, RepairAfter};

/// The configuration of the coordinator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster to which the blocks of helpers must belong.
    pub cluster_id: String,
    /// The code of new files.
    pub code: String,
    /// The block length of new files, in bytes.
    pub block_bytes: u64,
    /// The scheme of repairs and reads.
    pub scheme: String,
    /// The helpers that mend.toml lists; `None` if it has no list.
    pub helpers: Option<BTreeSet<String>>,
    /// The helper on each server of the storage system. The key is the address by which that system
    /// identifies the server.
    pub beside: BTreeMap<String, String>,
    /// How long a helper may be away before its blocks are rebuilt, from mend.toml.
    pub repair_after: RepairAfter,
    /// The policy of automatic repairs of single stripes; `None` turns them off.
    pub heal: Option<HealPolicy>,
    /// The rate of the background scrub, in bytes per second; `None` turns it off.
    pub scrub_bytes_per_s: Option<u64>,
    /// Whether the background scrub also checks the parity of whole stripes.
    pub scrub_parity: bool,
    /// The network between nodes, from mend.toml.
    pub network: Network,
}

/// The policy of automatic repairs of single stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealPolicy {
    /// Repairs are only logged and not started.
    pub dry_run: bool,
}
