//! Past events of the cluster, for operators.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{FileWorkKind, FoundBy, RepairState};

/// A past event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// The event's number. Later events have larger numbers.
    pub number: u64,
    /// Time of the event, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The event itself.
    #[serde(flatten)]
    pub what: HistoryEvent,
}

/// An event in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum HistoryEvent {
    /// A helper registered for the first time.
    NodeAdded {
        /// The helper's name.
        node: String,
    },
    /// The connection to a helper was lost.
    NodeLost {
        /// The helper's name.
        node: String,
        /// Number of blocks on the helper.
        blocks: u64,
        /// The cause, if known.
        why: String,
    },
    /// A helper has returned.
    NodeBack {
        /// The helper's name.
        node: String,
        /// Duration of the helper's absence in milliseconds.
        away_ms: u64,
    },
    /// A helper was lost again and again. This event replaces those of the single losses and returns.
    NodeFlapped {
        /// The helper's name.
        node: String,
        /// Number of losses.
        times: u64,
        /// When the first of them occurred, in milliseconds since 1970.
        since_unix_ms: u64,
        /// Number of blocks on the helper at the last loss.
        blocks: u64,
        /// The cause of the last loss, if known.
        why: String,
        /// Duration of the last absence in milliseconds; `null` if the helper has not returned.
        away_ms: Option<u64>,
    },
    /// A helper was removed from the cluster.
    NodeRemoved {
        /// The helper's name.
        node: String,
    },
    /// The maintenance of a helper has begun. Until the maintenance ends, the helper's blocks are not rebuilt
    /// elsewhere.
    MaintenanceBegun {
        /// The helper's name.
        node: String,
        /// Planned end of the maintenance, in milliseconds since 1970.
        until_unix_ms: u64,
    },
    /// The maintenance of a helper has ended.
    MaintenanceEnded {
        /// The helper's name.
        node: String,
    },
    /// Blocks were found bad or missing on a helper that is up.
    BlocksLost {
        /// The helper's name.
        node: String,
        /// Number of bad or missing blocks.
        blocks: u64,
        /// Names of some of the bad or missing blocks.
        first: Vec<String>,
        /// The defect of the first block.
        problem: String,
    },
    /// The blocks of a stripe contradict each other: some are wrong although their own checksums match.
    Contradiction {
        /// The stripe's name.
        stripe: String,
        /// The blocks in the equations that failed.
        blocks: Vec<String>,
        /// The operation that found the contradiction.
        found_by: FoundBy,
    },
    /// A contradiction is resolved: a parity check over all blocks of the stripe that are considered good has
    /// succeeded.
    ContradictionSettled {
        /// The stripe's name.
        stripe: String,
    },
    /// The recorded digest of a parity block was wrong, and a repair has replaced it: the rebuilt bytes agree with all
    /// other blocks of the stripe.
    DigestReplaced {
        /// The block's name.
        block: String,
        /// The digest that was recorded.
        recorded: String,
        /// The digest of the rebuilt block.
        found: String,
    },
    /// The store's work on a file has ended, such as its encoding.
    FileWorked {
        /// The file.
        file: String,
        /// The kind of work.
        work: FileWorkKind,
        /// The file's length in bytes.
        bytes: u64,
        /// Duration of the work in milliseconds, since the last interruption.
        took_ms: u64,
        /// Who asked for the work, such as `policy warehouse`.
        by: String,
        /// Why the work failed; `null` if the file is in the desired state.
        failure: Option<String>,
    },
    /// A repair was queued.
    RepairBegun {
        /// The repair's number.
        repair: u64,
        /// The target of the repair.
        target: String,
        /// True if the coordinator started the repair automatically, false if it was requested.
        by_itself: bool,
    },
    /// A repair has ended.
    RepairEnded {
        /// The repair's number.
        repair: u64,
        /// The target of the repair.
        target: String,
        /// True if the coordinator started the repair automatically, false if it was requested.
        by_itself: bool,
        /// The final state of the repair.
        state: RepairState,
        /// Duration of the repair in milliseconds. Pauses, and time before the last restart of the
        /// coordinator, are not counted.
        took_ms: u64,
        /// Number of blocks rebuilt.
        blocks: u64,
        /// Total size of the rebuilt blocks in bytes.
        bytes: u64,
        /// Number of these blocks that a drain or a rebalance moved: they were not lost when it began.
        #[serde(default)]
        moved_blocks: u64,
        /// Total size of the moved blocks in bytes.
        #[serde(default)]
        moved_bytes: u64,
        /// Number of stripes that were not repaired.
        stripes_failed: u64,
        /// Number of lost blocks to rebuild, by the helper that held them before. Blocks that a drain or a
        /// rebalance moves are not lost.
        lost_from: BTreeMap<String, u64>,
        /// Number of blocks rebuilt, by the helper that holds them now.
        rebuilt_on: BTreeMap<String, u64>,
        /// The reasons why stripes were not repaired, the most frequent first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<RepairReason>,
    },
}

/// The end of a command's work on a file of the store, for the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileWorkReport {
    /// The file. At most 4096 bytes are kept.
    pub file: String,
    /// The kind of work.
    pub work: FileWorkKind,
    /// The file's length in bytes.
    pub bytes: u64,
    /// Duration of the work in milliseconds.
    pub took_ms: u64,
    /// Why the work failed; absent if the file is in the desired state. At most 4096 bytes are kept.
    #[serde(default)]
    pub failure: Option<String>,
}

/// A reason why stripes of a repair were not repaired, with all stripes that failed for this reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairReason {
    /// The obstacle.
    pub reason: String,
    /// The suggested next step.
    pub next_step: Option<String>,
    /// Number of stripes.
    pub stripes: u64,
    /// Names of some of the blocks that were not rebuilt.
    pub blocks: Vec<String>,
}
