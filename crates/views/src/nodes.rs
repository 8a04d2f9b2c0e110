//! Helpers: their state, the recovery of absent helpers, and checks before a helper is stopped or removed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RecoveryState;

/// A node: a helper, a server of another system's store, or both on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// The node's number.
    pub node: u32,
    /// The node's name.
    pub name: String,
    /// Whether the node has a helper. If not, it is only a server of the store.
    #[serde(default = "crate::yes")]
    pub has_helper: bool,
    /// Whether the helper is connected.
    pub up: bool,
    /// Whether the store's server on the node serves the blocks there; absent in stores that do not report
    /// this.
    #[serde(default)]
    pub serves: Option<bool>,
    /// Current or last known address of the data port.
    pub address: Option<String>,
    /// The node's rack, if known.
    pub rack: Option<String>,
    /// The configured rate of the node's link in bytes per second; the lower one, if the two directions
    /// differ. Absent if no rate is configured or the helper is down.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Free space for blocks in bytes, if the helper is up.
    pub free_bytes: Option<u64>,
    /// The load of the helper.
    #[serde(flatten)]
    pub load: LoadView,
    /// Number of blocks that the catalog places on the node.
    pub blocks: u64,
    /// Number of blocks on the node that the catalog does not place there.
    pub orphans: u64,
    /// Whether the node is being drained and receives no blocks.
    pub leaving: bool,
    /// Number of blocks that the helper has yet to remove.
    pub to_remove: u64,
    /// End of the maintenance in milliseconds since 1970; absent if the node is not in maintenance.
    pub maintenance_until_unix_ms: Option<u64>,
}

/// The load of a helper; absent values if the helper is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadView {
    /// Number of tasks that the helper is working on.
    pub tasks: Option<u32>,
    /// Bytes per second that clients read from the helper.
    #[serde(default)]
    pub user_bytes_per_s: Option<u64>,
    /// Number of blocks in the helper's memory that clients do not read often.
    #[serde(default)]
    pub hot_blocks: Option<u64>,
    /// Number of blocks that clients read often.
    #[serde(default)]
    pub very_hot_blocks: Option<u64>,
}

/// A helper that is being drained and receives no blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeavingView {
    /// The helper's name.
    pub node: String,
    /// Number of blocks that the catalog still places on the helper.
    pub blocks: u64,
    /// Whether the helper holds no needed blocks any more.
    pub safe_to_remove: bool,
    /// The state of the drain as text for people: its progress, obstacles, and the suggested next step.
    #[serde(default)]
    pub text: String,
}

/// How clients use a helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HelperUse {
    /// The helper's name.
    pub node: String,
    /// Number of blocks in the helper's memory that clients do not read often.
    pub hot_blocks: u64,
    /// Number of blocks that clients read often. Repairs by the policy `m-ppr` avoid them.
    pub very_hot_blocks: u64,
    /// Bytes per second that clients read from the helper.
    pub user_bytes_per_s: u64,
}

/// A helper that is full or nearly full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FullNode {
    /// The helper's name.
    pub node: String,
    /// Free space for blocks in bytes.
    pub free_bytes: u64,
    /// True if no further block fits, false if the helper is nearly full.
    pub full: bool,
}

/// A helper that is not connected, and the recovery of the helper's blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GoneNode {
    /// The helper's name.
    pub node: String,
    /// Start of the helper's absence, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Number of blocks that the catalog places on the helper.
    pub blocks: u64,
    /// The state of the recovery of these blocks.
    pub recovery: RecoveryState,
    /// Milliseconds until the repair of these blocks starts automatically; absent if no automatic repair is
    /// due.
    pub starts_in_ms: Option<u64>,
    /// The number of the repair of these blocks, while it runs.
    pub repair: Option<u64>,
    /// The state as text for people, with the suggested next step.
    pub text: String,
}

/// A request to put a helper into maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceRequest {
    /// Duration of the maintenance in milliseconds from now.
    pub for_ms: u64,
}

/// A request to replace a helper by another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceRequest {
    /// The name of the helper that receives the blocks.
    pub by: String,
}

/// The result of checking whether helpers may be stopped or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SafetyView {
    /// Whether the helpers may be stopped or removed.
    pub safe: bool,
    /// The helpers' names.
    pub nodes: Vec<String>,
    /// Number of readable stripes with blocks on these helpers.
    pub stripes: u64,
    /// Number of the stripes counted in `stripes` that would be unreadable without these helpers.
    pub unreadable: u64,
    /// Number of stripes of files with blocks on these helpers that cannot be read now; `stripes` omits them.
    #[serde(default)]
    pub unreadable_now: u64,
    /// Names of stripes that would be unreadable. The list may be truncated.
    pub unreadable_stripes: Vec<String>,
    /// Number of readable stripes on these helpers whose blocks contradict each other.
    #[serde(default)]
    pub contradictory: u64,
    /// Number of further helpers that every stripe can lose, among the stripes that stay readable without
    /// these helpers. Absent if no stripe stays readable.
    pub survives: Option<u32>,
    /// The result as text for people.
    pub text: String,
    /// The suggested next step if the check failed.
    pub next_step: Option<String>,
}

/// Settings of automatic repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingsView {
    /// The grace period: how long a helper may be absent before its blocks are rebuilt elsewhere, such as
    /// `10m`, or `never`.
    pub repair_after: String,
    /// The grace period in milliseconds; `null` for `never`.
    pub repair_after_ms: Option<u64>,
    /// The grace period in `mend.toml`, which applies unless it was changed at run time.
    pub configured_repair_after: String,
}

/// A change of settings. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingsRequest {
    /// The grace period, such as `10m`; `never`; or `default` for the value in `mend.toml`.
    pub repair_after: Option<String>,
}

/// A request to move blocks from full helpers to empty ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebalanceRequest {
    /// Whether to only list the moves, without carrying them out.
    #[serde(default)]
    pub dry_run: bool,
}

/// The moves of a rebalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebalanceView {
    /// The number of the repair that moves the blocks; absent for a dry run and if there are no moves.
    pub repair: Option<u64>,
    /// The best moves at this time. The final target of a block is decided when its move starts, so the block
    /// may move to a different helper.
    pub moves: Vec<BlockMove>,
    /// Total size of the moved blocks in bytes.
    pub bytes: u64,
    /// The helpers' fill levels before and after the moves.
    pub nodes: Vec<NodeFill>,
}

/// The move of one block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockMove {
    /// The block's name.
    pub block: String,
    /// The helper that holds the block.
    pub from: String,
    /// The likely target helper.
    pub to: String,
    /// The block's size in bytes.
    pub bytes: u64,
}

/// The fill level of a helper before and after a rebalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeFill {
    /// The helper's name.
    pub node: String,
    /// Number of blocks on the helper now.
    pub blocks: u64,
    /// Number of blocks on the helper after the moves.
    pub blocks_after: u64,
}
