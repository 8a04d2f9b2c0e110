//! The state of the cluster, grouped by topic. In JSON, the fields of all groups are in one object.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    Census, Condition, ConditionCode, ContradictionView, FullNode, GoneNode, HelperUse, JobView, LeavingView,
    LostBlock, NewerBlocks, OrphanView, RepairView, ScrubView, Severity, SteadyScrubView, UnjudgedStripe,
    UnreadablePart, WaitingStripes,
};

/// The state of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// True if all stripes are intact and properly placed, and the coordinator can make changes.
    pub healthy: bool,
    /// The severity, for monitors.
    pub severity: Severity,
    /// The answer to "am I safe?" in one line.
    pub summary: String,
    /// The conditions of the cluster, the most important first. `severity` is the greatest severity of those
    /// that are not muted.
    pub conditions: Vec<Condition>,
    /// Whether the coordinator has just started and waits for helpers to register. Repairs start after a
    /// short wait.
    pub settling: bool,
    /// Counts of stripes by remaining redundancy.
    pub stripes: Census,
    /// The number and size of files.
    #[serde(flatten)]
    pub totals: FileTotals,
    /// Helpers.
    #[serde(flatten)]
    pub helpers: HelperStates,
    /// Lost and wrong data.
    #[serde(flatten)]
    pub damage: Damage,
    /// Work in progress.
    #[serde(flatten)]
    pub work: Work,
    /// The catalog, compared with the blocks on helpers.
    #[serde(flatten)]
    pub catalog: CatalogState,
    /// The state of an attached store.
    #[serde(flatten)]
    pub store: StoreState,
}

impl Status {
    /// Returns a condition, if the cluster has it.
    pub fn condition(&self, code: ConditionCode) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.code == code)
    }

    /// Returns the particulars of all conditions, one sentence each.
    pub fn details(&self) -> impl Iterator<Item = &str> {
        self.conditions.iter().flat_map(|condition| &condition.details).map(String::as_str)
    }
}

/// The number and size of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileTotals {
    /// Whether files are put through Mend. The files of an attached store are not counted here.
    #[serde(default = "crate::yes")]
    pub own_files: bool,
    /// Number of files.
    pub files: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
}

/// Helpers by state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HelperStates {
    /// Names of helpers that are up.
    pub nodes_up: Vec<String>,
    /// Names of helpers that are down.
    pub nodes_down: Vec<String>,
    /// Names of helpers that mend.toml lists and that have never registered.
    #[serde(default)]
    pub nodes_never_registered: Vec<String>,
    /// Helpers that are down, and the state of the recovery of their blocks.
    pub gone: Vec<GoneNode>,
    /// Helpers with no room, or hardly any, for further blocks.
    #[serde(default)]
    pub full: Vec<FullNode>,
    /// Helpers that are being emptied.
    pub leaving: Vec<LeavingView>,
    /// Helpers from which clients read, or which have blocks in memory.
    #[serde(default)]
    pub in_use: Vec<HelperUse>,
}

/// Lost and wrong data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Damage {
    /// Stripes with little redundancy left. Absent helpers' blocks of these stripes are rebuilt earlier than
    /// their blocks of other stripes.
    #[serde(default)]
    pub waiting: Vec<WaitingStripes>,
    /// Parts of files that cannot be read now. The list may be truncated.
    pub unreadable: Vec<UnreadablePart>,
    /// Stripes whose blocks contradict each other. The list may be truncated.
    #[serde(default)]
    pub contradictions: Vec<ContradictionView>,
    /// Recently found bad blocks, newest last.
    pub lost_lately: Vec<LostBlock>,
}

/// Work in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Work {
    /// Running jobs.
    pub jobs: Vec<JobView>,
    /// Repairs that have not ended.
    pub repairs: Vec<RepairView>,
    /// The most recent scrub, running or ended.
    pub last_scrub: Option<ScrubView>,
    /// The background scrub, if mend.toml sets a rate for it.
    #[serde(default)]
    pub steady_scrub: Option<SteadyScrubView>,
}

/// The catalog, compared with the blocks on helpers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CatalogState {
    /// Why the catalog cannot be written now. Until it can be written, nothing is stored, repaired or
    /// removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_fault: Option<String>,
    /// Helpers that hold blocks newer than the catalog, for example after an old catalog was restored. If an
    /// entry is `confirmed`, nothing is stored, removed or repaired until an operator decides what to do.
    pub newer: Vec<NewerBlocks>,
    /// Orphans: blocks on helpers on which the catalog does not place them. Orphans that are provably not
    /// needed are removed automatically; an operator decides about all others.
    pub orphans: Vec<OrphanView>,
    /// The number of further orphans, which are not listed.
    #[serde(default)]
    pub more_orphans: u64,
}

/// The state of an attached store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreState {
    /// Names of nodes on which the server is out of service according to the store; the helper there may be
    /// up. Empty in Mend's own store.
    #[serde(default)]
    pub servers_down: Vec<String>,
    /// Names of servers without a helper: their blocks are neither read nor repaired there.
    #[serde(default)]
    pub servers_without_helper: Vec<String>,
    /// Stripes whose state the store does not report; no other count includes them.
    #[serde(default)]
    pub unjudged: Vec<UnjudgedStripe>,
    /// Remarks on the store that call for no action, one sentence each.
    #[serde(default)]
    pub remarks: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a status without the keys that may be absent.
    fn least() -> Value {
        json!({
            "healthy": true, "severity": "ok", "summary": "safe", "conditions": [], "settling": false,
            "stripes": {
                "stripes": 1, "intact": 1, "blocks_lost": 0, "bytes_lost": 0, "redundancy": [], "unreadable": 0,
                "unreadable_stripes": [],
            },
            "files": 1, "file_bytes": 2, "nodes_up": ["h1"], "nodes_down": [], "gone": [], "unreadable": [],
            "leaving": [], "jobs": [], "repairs": [], "orphans": [], "newer": [], "last_scrub": null,
            "lost_lately": [],
        })
    }

    #[test]
    fn the_fields_of_all_groups_are_in_one_json_object() {
        let status: Status = serde_json::from_value(least()).unwrap();
        assert!(status.totals.own_files && status.store.remarks.is_empty());
        let written = serde_json::to_value(&status).unwrap();
        assert_eq!(serde_json::from_value::<Status>(written.clone()).unwrap(), status);
        let mut keys: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut expected: Vec<_> = least().as_object().unwrap().keys().cloned().collect();
        let defaults = [
            "contradictions",
            "full",
            "in_use",
            "more_orphans",
            "nodes_never_registered",
            "own_files",
            "remarks",
            "servers_down",
            "servers_without_helper",
            "steady_scrub",
            "unjudged",
            "waiting",
        ];
        expected.extend(defaults.map(str::to_owned));
        expected.sort_unstable();
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_missing_key_of_a_group_is_an_error() {
        for key in ["files", "nodes_up", "unreadable", "jobs", "newer"] {
            let mut value = least();
            value.as_object_mut().unwrap().remove(key);
            let error = serde_json::from_value::<Status>(value).unwrap_err().to_string();
            assert!(error.contains(&format!("missing field `{key}`")), "{error}");
        }
    }
}
