//! Past events of the cluster, for operators.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Condition, FileWorkKind, FoundBy, ProgressView, RepairCounts, RepairState, RepairView};

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
        /// The conditions under which the state of some blocks was unknown, as in the view of the repair.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unknown: Vec<Condition>,
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

impl RepairView {
    /// Returns the final view, without stripes, of a repair that has ended and that the coordinator no longer keeps:
    /// this earlier view with the newest entry of the history about its end. Without such an entry, the repair counts as
    /// failed, because nothing proves that it succeeded.
    #[must_use]
    pub fn ended(&self, history: &[HistoryEntry]) -> Self {
        let known = Self { progress: None, version: self.version ^ 1, items: Vec::new(), ..self.clone() };
        let ended = history.iter().rev().find_map(|entry| known.ended_by(entry));
        ended.unwrap_or_else(|| {
            let reason = RepairReason {
                reason: "it has ended, and neither the coordinator nor the history still has the result"
                    .to_owned(),
                next_step: Some("see `mend status` for blocks that are still lost".to_owned()),
                stripes: 0,
                blocks: Vec::new(),
            };
            Self { state: RepairState::Failed, reasons: vec![reason], ..known }
        })
    }

    /// Returns the view after the end that the entry describes; `None` for an entry about anything else.
    fn ended_by(&self, entry: &HistoryEntry) -> Option<Self> {
        let HistoryEvent::RepairEnded {
            repair,
            state,
            took_ms,
            blocks,
            bytes,
            stripes_failed,
            reasons,
            unknown,
            ..
        } = &entry.what
        else {
            return None;
        };
        if *repair != self.repair {
            return None;
        }
        let stripes_done = match state {
            RepairState::Cancelled => self.counts.stripes_done,
            _ => self.counts.stripes.saturating_sub(*stripes_failed),
        };
        Some(Self {
            state: *state,
            counts: RepairCounts {
                stripes_done,
                stripes_failed: *stripes_failed,
                blocks_rebuilt: *blocks,
                bytes_rebuilt: *bytes,
                bytes: self.counts.bytes.max(*bytes),
                ..self.counts
            },
            ended_unix_ms: Some(entry.at_unix_ms),
            progress: Some(ProgressView {
                rate_bytes_per_s: bytes.saturating_mul(1000).checked_div(*took_ms),
                soonest_ms: None,
                latest_ms: None,
                limited_by: None,
                elapsed_ms: *took_ms,
                bound_ms: None,
            }),
            reasons: reasons.clone(),
            unknown: unknown.clone(),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(repair: u64) -> RepairView {
        serde_json::from_value(serde_json::json!({
            "repair": repair, "target": "node h4", "by_itself": false, "policy": "even", "scheme": "auto",
            "state": "running", "stripes": 3, "stripes_done": 1, "stripes_failed": 0, "blocks_rebuilt": 1,
            "bytes_rebuilt": 2 << 20, "bytes": 6 << 20, "started_unix_ms": 1000, "ended_unix_ms": null,
            "progress": null, "version": 8
        }))
        .unwrap()
    }

    fn end(number: u64, repair: u64, state: RepairState, stripes_failed: u64) -> HistoryEntry {
        let what = HistoryEvent::RepairEnded {
            repair,
            target: "node h4".to_owned(),
            by_itself: false,
            state,
            took_ms: 2000,
            blocks: 3 - stripes_failed,
            bytes: (3 - stripes_failed) << 21,
            moved_blocks: 0,
            moved_bytes: 0,
            stripes_failed,
            lost_from: BTreeMap::new(),
            rebuilt_on: BTreeMap::new(),
            reasons: Vec::new(),
            unknown: Vec::new(),
        };
        HistoryEntry { number, at_unix_ms: 9000 + number, what }
    }

    #[test]
    fn the_history_tells_how_a_repair_ended() {
        let history = [
            end(1, 7, RepairState::Failed, 1),
            end(2, 7, RepairState::Done, 0),
            end(3, 8, RepairState::Failed, 1),
        ];
        let done = running(7).ended(&history);
        assert_eq!(
            (done.state, done.ended_unix_ms),
            (RepairState::Done, Some(9002)),
            "the newest entry counts"
        );
        assert_ne!(done.version, running(7).version);
        let counts = done.counts;
        assert_eq!((counts.stripes_done, counts.blocks_rebuilt, counts.bytes_rebuilt), (3, 3, 6 << 20));
        assert_eq!(done.progress.unwrap().rate_bytes_per_s, Some(3 << 20));
        let failed = running(8).ended(&history);
        assert_eq!(
            (failed.state, failed.counts.stripes_done, failed.counts.stripes_failed),
            (RepairState::Failed, 2, 1)
        );
    }

    #[test]
    fn the_history_tells_which_blocks_were_unknown_at_the_end() {
        let condition: Condition = serde_json::from_value(serde_json::json!({
            "code": "NOT_JUDGED", "severity": "critical", "since_unix_ms": 1, "count": 1, "subjects": ["7"],
            "text": "the state of 1 stripe is unknown", "next_step": "", "details": [], "muted": false
        }))
        .unwrap();
        let mut entry = end(1, 7, RepairState::Done, 0);
        if let HistoryEvent::RepairEnded { unknown, .. } = &mut entry.what {
            unknown.push(condition.clone());
        }
        assert_eq!(running(7).ended(&[entry]).unknown, [condition]);
    }

    #[test]
    fn a_repair_of_which_nothing_is_known_counts_as_failed() {
        let lost = running(9).ended(&[end(1, 7, RepairState::Done, 0)]);
        assert_eq!((lost.state, lost.ended_unix_ms), (RepairState::Failed, None));
        assert!(lost.reasons[0].reason.contains("the history"), "{:?}", lost.reasons);
    }
}
