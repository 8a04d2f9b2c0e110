//! A condition that the cluster has now, with its text.

use views::{ConditionCode, Severity};

/// A condition that the cluster has now.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub code: ConditionCode,
    pub severity: Severity,
    pub count: u64,
    /// The names of all helpers, stripes or repairs that the condition concerns.
    pub subjects: Vec<String>,
    pub text: String,
    pub details: Vec<String>,
    /// The word with which the first line of the status begins, for conditions of the data and the catalog.
    pub word: Option<&'static str>,
}

impl Finding {
    pub(crate) fn new(code: ConditionCode, count: u64, text: String) -> Self {
        let severity = code.definition().severity;
        Self { code, severity, count, subjects: Vec::new(), text, details: Vec::new(), word: None }
    }

    /// Creates a finding about these subjects, such as `3 helpers …`.
    pub(crate) fn about(code: ConditionCode, subjects: &[String], text: String) -> Self {
        Self::new(code, subjects.len() as u64, text).with_subjects(subjects)
    }

    pub(crate) fn with_word(self, word: &'static str) -> Self {
        Self { word: Some(word), ..self }
    }

    pub(crate) fn with_severity(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }

    pub(crate) fn with_subjects(self, subjects: &[String]) -> Self {
        Self { subjects: subjects.to_vec(), ..self }
    }

    pub(crate) fn with_details(self, details: impl IntoIterator<Item = String>) -> Self {
        Self { details: details.into_iter().collect(), ..self }
    }

    /// Whether blocks may be lost under this condition that do not count as lost.
    pub(crate) fn leaves_blocks_unknown(&self) -> bool {
        use ConditionCode::*;
        matches!(self.code, CatalogOld | StoreUnlisted | NotJudged | Incomplete)
    }

    /// Whether the condition is about stripes or helpers, whose state is not known while helpers are still
    /// registering or the store is not listed.
    pub(crate) fn needs_view(&self) -> bool {
        use ConditionCode::*;
        matches!(
            self.code,
            NotJudged
                | Unreadable
                | AtRisk
                | Degraded
                | Misplaced
                | Incomplete
                | HelperGone
                | ServerDown
                | NoRoomToRepair
                | NoRoomToDrain
                | RepairFailed
                | NotCovered
        )
    }
}
