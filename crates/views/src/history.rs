//! What has happened to the cluster, for whoever was not there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{FoundBy, RepairState};

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Its number; later ones are larger.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// What.
    #[serde(flatten)]
    pub what: HistoryEvent,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum HistoryEvent {
    /// A helper was there for the first time.
    NodeAdded {
        /// The helper.
        node: String,
    },
    /// A helper is gone.
    NodeLost {
        /// The helper.
        node: String,
        /// Blocks on it.
        blocks: u64,
        /// Why, as far as is known.
        why: String,
    },
    /// A helper is back.
    NodeBack {
        /// The helper.
        node: String,
        /// For how many milliseconds it was gone.
        away_ms: u64,
    },
    /// A helper was removed from the cluster.
    NodeRemoved {
        /// The helper.
        node: String,
    },
    /// A helper is left alone for some time.
    MaintenanceBegun {
        /// The helper.
        node: String,
        /// Until when, in milliseconds since 1970.
        until_unix_ms: u64,
    },
    /// The maintenance of a helper is over.
    MaintenanceEnded {
        /// The helper.
        node: String,
    },
    /// Blocks were found bad or missing on a helper that is up.
    BlocksLost {
        /// The helper.
        node: String,
        /// How many.
        blocks: u64,
        /// The first of them.
        first: Vec<String>,
        /// What is wrong with the first.
        problem: String,
    },
    /// The blocks of a stripe contradict each other: some are wrong although their own checksums hold.
    Contradiction {
        /// The stripe.
        stripe: String,
        /// The blocks of the equations that do not hold.
        blocks: Vec<String>,
        /// What noticed it.
        found_by: FoundBy,
    },
    /// Parity holds again over every block of a stripe that counts as good.
    ContradictionSettled {
        /// The stripe.
        stripe: String,
    },
    /// A repair was queued.
    RepairBegun {
        /// Its number.
        repair: u64,
        /// What is repaired.
        target: String,
        /// Whether nobody asked for it, but a helper was gone for too long.
        by_itself: bool,
    },
    /// A repair has ended.
    RepairEnded {
        /// Its number.
        repair: u64,
        /// What was repaired.
        target: String,
        /// Whether nobody asked for it.
        by_itself: bool,
        /// How it ended.
        state: RepairState,
        /// How long it took, in milliseconds.
        took_ms: u64,
        /// Blocks rebuilt.
        blocks: u64,
        /// Bytes of those blocks.
        bytes: u64,
        /// Stripes that were not repaired.
        stripes_failed: u64,
        /// Blocks that were to be rebuilt, by the helper that had them.
        lost_from: BTreeMap<String, u64>,
        /// Blocks that were rebuilt, by the helper that has them.
        rebuilt_on: BTreeMap<String, u64>,
        /// Why stripes were not repaired, the most frequent reason first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasons: Vec<RepairReason>,
    },
}

/// Why stripes of a repair were not repaired: one entry for all that failed alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairReason {
    /// The obstacle.
    pub reason: String,
    /// What to do about it.
    pub next_step: Option<String>,
    /// How many stripes.
    pub stripes: u64,
    /// The first blocks that were not rebuilt.
    pub blocks: Vec<String>,
}
