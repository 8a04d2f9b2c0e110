//! States of blocks, repairs, scrubs and jobs as enums. `Display` prints the same text as the JSON.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Defines enums of states whose text is the same in JSON and in output for people.
macro_rules! states {
    // A text is a token tree because `utoipa` does not look into a `literal`, and would use the variant's
    // name.
    ($($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $each:literal])+ $state:ident = $text:tt,)+ })+) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        pub enum $name {
            $($(#[doc = $each])+ #[serde(rename = $text)] $state,)+
        }

        impl $name {
            /// All states.
            pub const ALL: &[Self] = &[$(Self::$state),+];

            /// Returns the text of the state in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$state => $text,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    )+

    /// Returns the schema and the texts of each type.
    #[cfg(test)]
    fn schemas() -> Vec<(serde_json::Value, Vec<&'static str>)> {
        vec![$((schema::<$name>(), $name::ALL.iter().map(|state| state.name()).collect())),+]
    } };
}

states! {
    /// The state of a block.
    BlockState {
        /// As far as is known, the block is good and can be read.
        Healthy = "healthy",
        /// The helper that should hold the block does not have it.
        Missing = "missing",
        /// The helper found that the block's bytes do not match their checksums.
        Corrupt = "corrupt",
        /// The helper could not read the block from its disk.
        Unreadable = "unreadable",
        /// The block was good, but its helper is down.
        Down = "down",
        /// The store serves the block, but no helper on its node can read it.
        OutOfReach = "out-of-reach",
        /// The block is still being written for the first time.
        NotStored = "not-stored",
    }

    /// The state of a repair.
    RepairState {
        /// No stripe has been started.
        Waiting = "waiting",
        /// At least one stripe has been started.
        Running = "running",
        /// The repair is paused until an operator resumes it.
        Paused = "paused",
        /// All stripes are repaired.
        Done = "done",
        /// The repair has ended with some stripes not repaired.
        Failed = "failed",
        /// The repair was cancelled.
        Cancelled = "cancelled",
    }

    /// The state of one stripe in a repair.
    ItemState {
        /// The stripe is queued.
        Waiting = "waiting",
        /// A job works on the stripe.
        Running = "running",
        /// All lost blocks are rebuilt, or none was lost.
        Done = "done",
        /// The repair of this stripe was given up.
        Failed = "failed",
        /// Too many blocks are lost.
        Unrepairable = "unrepairable",
        /// The blocks contradict each other, without any evidence which of them is wrong.
        Contradictory = "contradictory",
        /// The repair was cancelled.
        Cancelled = "cancelled",
    }

    /// A step in the repair of a stripe, in the order in which steps are reached. A block may be recorded
    /// before or after it is read back.
    RepairStep {
        /// The scheduler has proposed the stripe for the first time.
        Planned = "planned",
        /// The store has granted the claim on the stripe. Only stores that other programs change have claims.
        Claimed = "claimed",
        /// The job has started: its plan has the bandwidth that it needs, and the helpers get their tasks.
        Started = "started",
        /// The new helper has received the first slice.
        FirstSlice = "first-slice",
        /// The new helper has received all slices.
        Delivered = "delivered",
        /// The block is durable, and has the recorded digest.
        Sealed = "sealed",
        /// The parity check has ended.
        Checked = "checked",
        /// The block is in its place; the store's own process, if there is one, has accepted it.
        Committed = "committed",
        /// The catalog has recorded the block; an attached store lists it.
        Recorded = "recorded",
        /// The repair of the stripe has ended: the block was read back.
        Ended = "ended",
    }

    /// The state of a scrub.
    ScrubState {
        /// Blocks are being read.
        Running = "running",
        /// The scrub has ended.
        Done = "done",
        /// The scrub was stopped early. Its findings are kept.
        Stopped = "stopped",
    }

    /// The state of the recovery of a helper that is down.
    RecoveryState {
        /// The helper holds no blocks.
        Needless = "needless",
        /// The blocks are rebuilt automatically unless the helper returns in time.
        Waiting = "waiting",
        /// The helper is in maintenance; its blocks are not rebuilt before the maintenance ends.
        Maintenance = "maintenance",
        /// The blocks are being rebuilt.
        Running = "running",
        /// The repair of the blocks is paused. No other repair of the helper begins.
        Paused = "paused",
        /// The settings disable automatic repair.
        Off = "off",
        /// The automatic repair was cancelled.
        Cancelled = "cancelled",
        /// Automatic repairs are on hold: too many helpers are down, or the catalog is older than the blocks.
        Held = "held",
        /// No helper has room for any of the blocks. The repair begins when some helper has room.
        NoRoom = "no-room",
        /// A repair did not restore all blocks and will be retried.
        Failed = "failed",
        /// The store decides which of its servers are in service. Blocks are rebuilt when the store reports a
        /// server as out of service, not when the helper disconnects.
        Store = "store",
    }

    /// The severity of the cluster's state, which is also the exit code of `mend status --check`.
    Severity {
        /// There is no condition that calls for action.
        Ok = "ok",
        /// Blocks are lost, but every stripe can lose more; or the operator has to act for another reason,
        /// such as a drain that no helper has room for.
        Warning = "warning",
        /// A stripe is unreadable, cannot lose another block, or has blocks that contradict each other; or
        /// the coordinator cannot make changes.
        Critical = "critical",
        /// The coordinator has just started and does not know the state yet.
        Unknown = "unknown",
    }

    /// The operation that found a contradiction between the blocks of a stripe.
    FoundBy {
        /// A repair that checked the rebuilt blocks.
        Repair = "repair",
        /// A verified read.
        Read = "read",
        /// A scrub with parity checks.
        Scrub = "scrub",
    }

    /// The code of a condition, in the order in which the status names conditions.
    ConditionCode {
        /// Helpers hold blocks that are newer than the catalog.
        CatalogOld = "CATALOG_OLD",
        /// The catalog cannot be written.
        CatalogFailing = "CATALOG_FAILING",
        /// The attached store cannot be listed.
        StoreUnlisted = "STORE_UNLISTED",
        /// The coordinator has just started, and waits for helpers to register.
        Starting = "STARTING",
        /// The store does not tell the state of some stripes.
        NotJudged = "NOT_JUDGED",
        /// Stripes have lost more blocks than their code tolerates.
        Unreadable = "UNREADABLE",
        /// The blocks of stripes contradict each other: some are wrong although their checksums match.
        Contradiction = "CONTRADICTION",
        /// Stripes would become unreadable if one more helper failed.
        AtRisk = "AT_RISK",
        /// Blocks are lost.
        Degraded = "DEGRADED",
        /// Stripes have several blocks on one helper.
        Misplaced = "MISPLACED",
        /// Helpers have not registered since the catalog was replaced.
        Incomplete = "INCOMPLETE",
        /// The parity of stripes was not checked since the catalog was replaced.
        Unproven = "UNPROVEN",
        /// Helpers are down.
        HelperGone = "HELPER_GONE",
        /// Helpers of mend.toml have never registered.
        HelperNeverRegistered = "HELPER_NEVER_REGISTERED",
        /// Helpers disconnect again and again.
        HelperFlapping = "HELPER_FLAPPING",
        /// Helpers hold up repairs.
        HelperSlow = "HELPER_SLOW",
        /// A helper cannot write to its disk.
        HelperCannotWrite = "HELPER_CANNOT_WRITE",
        /// Helpers of another version try to register.
        VersionSkew = "VERSION_SKEW",
        /// Servers of the attached store are out of service.
        ServerDown = "SERVER_DOWN",
        /// Helpers have no room for another block.
        Full = "FULL",
        /// Helpers have hardly any room left.
        NearFull = "NEARFULL",
        /// Lost blocks cannot be rebuilt, or could not be rebuilt after a further failure, for lack of room.
        NoRoomToRepair = "NO_ROOM_TO_REPAIR",
        /// A drained helper has blocks that no other helper can take.
        NoRoomToDrain = "NO_ROOM_TO_DRAIN",
        /// The last repair failed, and blocks are still lost.
        RepairFailed = "REPAIR_FAILED",
        /// A repair has made no progress for a long time.
        RepairStalled = "REPAIR_STALLED",
        /// Repairs are paused.
        RepairsPaused = "REPAIRS_PAUSED",
        /// The blocks were not checked for a long time.
        ScrubOverdue = "SCRUB_OVERDUE",
        /// Certificates have expired or expire soon.
        CertificateExpires = "CERTIFICATE_EXPIRES",
        /// The attached store reports a problem that keeps Mend from its work.
        StoreTrouble = "STORE_TROUBLE",
        /// Mend does not cover some of the store's data.
        NotCovered = "NOT_COVERED",
    }

    /// A kind of work that the store does on a file.
    FileWorkKind {
        /// The file is encoded.
        Encode = "encode",
        /// The file was encoded before. Its blocks or its parity are put into the right places, or its parity is checked.
        Adjust = "adjust",
        /// The file becomes a replicated file again.
        Undo = "undo",
    }

    /// The purpose of a job.
    JobKind {
        /// A client's read.
        Read = "read",
        /// A client's put: storing one stripe.
        Put = "put",
        /// A repair.
        Repair = "repair",
        /// A measurement of a link, or a trial of a node that may be slow.
        Probe = "probe",
    }
}

impl RepairState {
    /// Whether the repair has ended.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

#[cfg(test)]
fn schema<T: utoipa::PartialSchema>() -> serde_json::Value {
    serde_json::to_value(T::schema()).expect("a schema is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_description_lists_the_texts_of_the_json() {
        for (schema, texts) in schemas() {
            assert_eq!(schema["enum"], serde_json::json!(texts));
        }
    }

    #[test]
    fn display_text_equals_the_json() {
        for &state in ItemState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.to_string());
            assert_eq!(serde_json::from_value::<ItemState>(state.name().into()).unwrap(), state);
        }
        assert!(serde_json::from_str::<ItemState>("\"resting\"").is_err());
    }
}
