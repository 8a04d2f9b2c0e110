//! What things can be doing, each as a type that a program can match. The text is that of the JSON.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// States whose text, for people as for programs, is that of their JSON.
macro_rules! states {
    // A text is a token tree because `utoipa` does not look into a `literal`, and would use the variant's name.
    ($($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $each:literal])+ $state:ident = $text:tt,)+ })+) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        pub enum $name {
            $($(#[doc = $each])+ #[serde(rename = $text)] $state,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$state),+];

            /// Its text.
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

    /// The schema and the texts of each type.
    #[cfg(test)]
    fn schemas() -> Vec<(serde_json::Value, Vec<&'static str>)> {
        vec![$((schema::<$name>(), $name::ALL.iter().map(|state| state.name()).collect())),+]
    } };
}

states! {
    /// How a block is.
    BlockState {
        /// It is good, as far as is known, and can be read.
        Healthy = "healthy",
        /// Its helper does not have it.
        Missing = "missing",
        /// Its helper found that its bytes differ from their checksums.
        Corrupt = "corrupt",
        /// It was good on a helper that is down.
        Down = "down",
        /// Its store has it in service, and no helper is there to read it.
        OutOfReach = "out-of-reach",
        /// It is on its way to its helper for the first time.
        NotStored = "not-stored",
    }

    /// How far a repair is.
    RepairState {
        /// Nothing of it has begun.
        Waiting = "waiting",
        /// Some of it has begun.
        Running = "running",
        /// Nothing more of it starts until it is resumed.
        Paused = "paused",
        /// All its stripes are repaired.
        Done = "done",
        /// It has ended, and some stripes are not repaired.
        Failed = "failed",
        /// It was called off.
        Cancelled = "cancelled",
    }

    /// How far one stripe of a repair is.
    ItemState {
        /// It waits for its turn.
        Waiting = "waiting",
        /// A job works on it.
        Running = "running",
        /// What was lost is rebuilt, or nothing was lost.
        Done = "done",
        /// It was given up.
        Failed = "failed",
        /// Too much is lost.
        Unrepairable = "unrepairable",
        /// Its blocks contradict each other, and nothing tells which of them is wrong.
        Contradictory = "contradictory",
        /// It was called off.
        Cancelled = "cancelled",
    }

    /// How far a scrub is.
    ScrubState {
        /// Blocks are being read.
        Running = "running",
        /// It has ended.
        Done = "done",
        /// It was stopped before its end; what it had found stays.
        Stopped = "stopped",
    }

    /// What is done about the blocks of a helper that is gone.
    RecoveryState {
        /// Nothing is on it.
        Needless = "needless",
        /// They are rebuilt by themselves if it is not back in time.
        Waiting = "waiting",
        /// It is in maintenance, and they are not rebuilt before that is over.
        Maintenance = "maintenance",
        /// They are being rebuilt.
        Running = "running",
        /// Nothing is done by itself, as the settings say so.
        Off = "off",
        /// The repair that began by itself was called off.
        Cancelled = "cancelled",
        /// Nothing is begun by itself now.
        Held = "held",
        /// No helper can take any of them; their repair begins when one can.
        NoRoom = "no-room",
        /// A repair did not bring all of them back, and is tried again.
        Failed = "failed",
        /// The store itself says what is in service, and repairs go by that.
        Store = "store",
    }

    /// How bad the state of the cluster is; `mend status --check` exits with it.
    Severity {
        /// Everything is whole.
        Ok = "ok",
        /// Something is lost, and no stripe is at its limit.
        Warning = "warning",
        /// A stripe cannot be read, or cannot lose another block, or its blocks contradict each other, or nothing can be changed.
        Critical = "critical",
        /// The coordinator has just started and does not know yet.
        Unknown = "unknown",
    }

    /// What noticed that the blocks of a stripe contradict each other.
    FoundBy {
        /// A repair that checked what it had rebuilt.
        Repair = "repair",
        /// A read that was verified.
        Read = "read",
        /// A scrub that compared parity.
        Scrub = "scrub",
    }

    /// What a job is for.
    JobKind {
        /// A client reads.
        Read = "read",
        /// A client stores a stripe.
        Put = "put",
        /// A repair.
        Repair = "repair",
        /// A link is measured, or a node tried that may be slow.
        Probe = "probe",
    }
}

impl RepairState {
    /// Whether nothing of it is left to do.
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
    fn the_text_for_people_is_that_of_the_json() {
        for &state in ItemState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.to_string());
            assert_eq!(serde_json::from_value::<ItemState>(state.name().into()).unwrap(), state);
        }
        assert!(serde_json::from_str::<ItemState>("\"resting\"").is_err());
    }
}
