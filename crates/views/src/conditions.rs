//! Conditions: what an operator or a monitor should know about the cluster, each with a stable code.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ConditionCode, Severity};

/// A condition of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    /// The stable code. `docs/reference/conditions.md` has a runbook for each.
    pub code: ConditionCode,
    /// How serious the condition is. `ok` is for information that calls for no action.
    pub severity: Severity,
    /// When the condition began, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// The number of stripes, helpers, repairs or other things that the condition concerns.
    pub count: u64,
    /// Names of what the condition concerns. The list may be truncated.
    pub subjects: Vec<String>,
    /// The condition in one clause.
    pub text: String,
    /// The next step for an operator.
    pub next_step: String,
    /// Particulars, one sentence each: causes, and what happens next.
    pub details: Vec<String>,
    /// Whether an operator has muted the condition. A muted condition counts neither for the severity of the
    /// status nor for `mend status --check`.
    pub muted: bool,
    /// The end of the mute, in milliseconds since 1970; absent if the mute ends with the condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muted_until_unix_ms: Option<u64>,
}

/// How long to mute a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MuteRequest {
    /// Milliseconds until the mute ends; absent to mute the condition until it ends.
    #[serde(default)]
    pub for_ms: Option<u64>,
}

/// The definition of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The code.
    pub code: ConditionCode,
    /// The greatest severity that the condition has.
    pub severity: Severity,
    /// The longest time, in seconds, from the cause to the condition, while the coordinator runs. The time after
    /// which Mend notices a cause (for example a silent helper) is not included.
    pub delay_s: u64,
    /// The general advice to an operator.
    pub next_step: &'static str,
}

use ConditionCode::*;
use Severity::{Critical, Ok, Unknown, Warning};

/// The definitions of all conditions, in the order of their codes.
pub const DEFINITIONS: [Definition; ConditionCode::ALL.len()] = [
    define(
        CatalogOld,
        Critical,
        "see mend catalog accept --list; restore a newer catalog, or accept this one",
    ),
    define(CatalogFailing, Critical, "check the disk of the catalog"),
    define(StoreUnlisted, Unknown, "check that the store's masters or NameNode answer"),
    define(Starting, Unknown, "wait a few seconds"),
    define(NotJudged, Critical, "do what the details say for each stripe"),
    define(Unreadable, Critical, "start the helpers that have the blocks; mend status names them"),
    define(Contradiction, Critical, "run mend scrub --parity, then do what mend status says for each stripe"),
    define(AtRisk, Critical, "start helpers that are down, or run mend repair --all now"),
    define(Degraded, Warning, "start helpers that are down, or wait for the repair"),
    define(Misplaced, Warning, "wait; the blocks are moved automatically if there is room"),
    define(Incomplete, Warning, "start the helpers that the details name"),
    define(Unproven, Warning, "wait for the checks, or run mend scrub --parity"),
    define(HelperGone, Warning, "start the helper, or let Mend rebuild its blocks"),
    define(HelperNeverRegistered, Warning, "start the helper, or remove it with mend node remove"),
    define(HelperFlapping, Warning, "check the helper's machine, its network and its log"),
    define(HelperSlow, Warning, "check the helper's disk and links; mend topology shows their rates"),
    define(HelperCannotWrite, Warning, "check the helper's disk; the details have its error"),
    define(VersionSkew, Warning, "install the coordinator's version on the helper's machine"),
    define(ServerDown, Warning, "start the server"),
    define(Full, Warning, "free space on the helper, or add helpers"),
    define(NearFull, Warning, "free space on the helper, or add helpers and run mend rebalance"),
    define(NoRoomToRepair, Warning, "free space, or add a helper (mend node add)"),
    define(NoRoomToDrain, Warning, "free space, or add a helper (mend node add)"),
    define(RepairFailed, Warning, "do what the details say, then run mend repair --all"),
    define(
        RepairStalled,
        Warning,
        "see mend timeline for the repair, and check the helpers that it waits for",
    ),
    define(RepairsPaused, Warning, "continue them with mend resume"),
    define(ScrubOverdue, Warning, "run mend scrub, or raise the rate of the background scrub"),
    define(CertificateExpires, Critical, "run mend renew on the machine with ca.key"),
    define(StoreTrouble, Warning, "do what the details say"),
    define(NotCovered, Warning, "see the details"),
];

const fn define(code: ConditionCode, severity: Severity, next_step: &'static str) -> Definition {
    Definition { code, severity, delay_s: 2, next_step }
}

impl ConditionCode {
    /// Returns the definition of the condition.
    pub const fn definition(self) -> &'static Definition {
        &DEFINITIONS[self as usize]
    }

    /// Finds a code by its name, in upper or lower case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name().eq_ignore_ascii_case(name))
    }
}

impl Severity {
    /// Returns the greater of two severities: `critical` before `unknown` before `warning` before `ok`.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        if self.rank() >= other.rank() { self } else { other }
    }

    const fn rank(self) -> u8 {
        match self {
            Ok => 0,
            Warning => 1,
            Unknown => 2,
            Critical => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_in_the_order_of_the_codes() {
        for code in ConditionCode::ALL {
            assert_eq!(code.definition().code, *code);
        }
    }

    #[test]
    fn codes_are_found_by_name() {
        assert_eq!(ConditionCode::named("at_risk"), Some(AtRisk));
        assert_eq!(ConditionCode::named("AT RISK"), None);
    }

    /// `docs/reference/conditions.md` has one section for each condition, with its severity, and no others.
    #[test]
    fn the_page_has_a_runbook_for_each_condition() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/conditions.md");
        let page = std::fs::read_to_string(path).unwrap();
        let sections: Vec<(&str, &str)> =
            page.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')).collect();
        let titles: Vec<&str> = sections.iter().map(|(title, _)| *title).collect();
        let expected: Vec<&str> = ConditionCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(titles, expected);
        for (title, text) in sections {
            let severity = ConditionCode::named(title).unwrap().definition().severity;
            let said = text.trim_start().split(['.', ',', ' ']).next().unwrap_or_default().to_lowercase();
            assert_eq!(said, severity.name(), "{title}: the section begins with the severity");
            for part in ["**Cause.**", "**Mend.**", "**You.**"] {
                assert!(text.contains(part), "{title} lacks {part}");
            }
        }
    }
}
