//! Helpers: who there is, who is gone and what happens about it, and what may be stopped or removed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RecoveryState;

/// A node: a helper, a server of a store that others run, or both beside each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its number.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// Whether it has a helper, or is a server of the store alone.
    #[serde(default = "crate::yes")]
    pub has_helper: bool,
    /// Whether the helper is connected.
    pub up: bool,
    /// Whether its server serves what it holds, in stores that say so.
    #[serde(default)]
    pub serves: Option<bool>,
    /// Where its data port is, or was last.
    pub address: Option<String>,
    /// Its rack, if known.
    pub rack: Option<String>,
    /// Its link in bytes per second, if configured.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Bytes free for blocks, if it is up.
    pub free_bytes: Option<u64>,
    /// Tasks in hand, if it is up.
    pub tasks: Option<u32>,
    /// Blocks that the catalog places on it.
    pub blocks: u64,
    /// Blocks on it that no stripe knows.
    pub orphans: u64,
    /// Whether it is being drained; it gets no new blocks.
    pub leaving: bool,
    /// Blocks that it shall remove.
    pub to_remove: u64,
    /// When its maintenance ends, in milliseconds since 1970, if it is in maintenance.
    pub maintenance_until_unix_ms: Option<u64>,
}

/// A helper that is being drained; it gets no new blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeavingView {
    /// The helper.
    pub node: String,
    /// Blocks that the catalog still places on it.
    pub blocks: u64,
    /// Whether nothing is on it that is needed.
    pub safe_to_remove: bool,
    /// The same for people: how far it is, what keeps blocks there, and what can be done.
    #[serde(default)]
    pub text: String,
}

/// A helper that has room for no further block, or for few.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FullNode {
    /// The helper.
    pub node: String,
    /// Bytes free for blocks.
    pub free_bytes: u64,
    /// Whether there is room for none; otherwise it is nearly full.
    pub full: bool,
}

/// A helper that is not connected, and what becomes of its blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GoneNode {
    /// The helper.
    pub node: String,
    /// Since when it is gone, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Blocks that the catalog places on it.
    pub blocks: u64,
    /// What is done about them.
    pub recovery: RecoveryState,
    /// In how many milliseconds its repair starts by itself, if it does.
    pub starts_in_ms: Option<u64>,
    /// The repair, while it goes on.
    pub repair: Option<u64>,
    /// The same for people, with what can be done.
    pub text: String,
}

/// A helper that is to be left alone for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceRequest {
    /// For how many milliseconds from now.
    pub for_ms: u64,
}

/// By which helper another one is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceRequest {
    /// The name of the one that gets the blocks.
    pub by: String,
}

/// Whether helpers may be stopped or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SafetyView {
    /// Whether they may.
    pub safe: bool,
    /// The helpers.
    pub nodes: Vec<String>,
    /// Stripes with blocks on them that can be read now.
    pub stripes: u64,
    /// How many of those could not be read without the helpers.
    pub unreadable: u64,
    /// The first of them.
    pub unreadable_stripes: Vec<String>,
    /// Further blocks that the weakest of the others could lose without the helpers.
    pub survives: Option<u32>,
    /// The answer for people.
    pub text: String,
    /// What to do if they may not.
    pub next_step: Option<String>,
}

/// What the coordinator does by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingsView {
    /// How long a helper may be gone before its blocks are rebuilt elsewhere, such as `10m`, or `never`.
    pub repair_after: String,
    /// The same in milliseconds; `null` if never.
    pub repair_after_ms: Option<u64>,
    /// What `mend.toml` says, which holds while nothing else was set.
    pub configured_repair_after: String,
}

/// A change of the settings; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingsRequest {
    /// How long a helper may be gone, such as `10m`; `never`; or `default` for what `mend.toml` says.
    pub repair_after: Option<String>,
}

/// Whether blocks are to be moved, or only to be named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RebalanceRequest {
    /// Only say what would be moved.
    #[serde(default)]
    pub dry_run: bool,
}

/// Blocks that move from full helpers to empty ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebalanceView {
    /// The repair that moves them; none if nothing is to be moved, or was only asked about.
    pub repair: Option<u64>,
    /// What moves. Where a block goes is decided when its turn comes; this is what would be best now.
    pub moves: Vec<BlockMove>,
    /// Bytes of all of it.
    pub bytes: u64,
    /// Helpers as they are, and as they would be.
    pub nodes: Vec<NodeFill>,
}

/// A block that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockMove {
    /// The block.
    pub block: String,
    /// The helper that has it.
    pub from: String,
    /// The helper that may get it.
    pub to: String,
    /// Its bytes.
    pub bytes: u64,
}

/// How full a helper is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeFill {
    /// The helper.
    pub node: String,
    /// Its blocks now.
    pub blocks: u64,
    /// Its blocks after the moves.
    pub blocks_after: u64,
}
