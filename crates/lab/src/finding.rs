//! [`Finding`]: a target with its measurement and verdict, as the benches of targets print it.

use serde::{Deserialize, Serialize};

use crate::report::{Row, markdown_table};

/// A target with its measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The measured quantity.
    pub what: String,
    /// The target; empty for figures without a target.
    pub target: String,
    /// The measured value.
    pub measured: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Caveats about the measurement.
    pub marks: String,
}

/// The verdict on a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The target is met.
    Holds,
    /// The target is missed.
    Fails,
    /// The processors limit even the measurements without Mend, so the figure proves nothing about Mend.
    NotCarried,
    /// Other programs disturbed every repetition.
    Disturbed,
    /// The quantity could not be measured, for the reason in the marks.
    NotMeasured,
    /// The figure has no target.
    Told,
}

impl Verdict {
    /// Returns the verdict for a target that is met (`holds`) or missed.
    pub fn of(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Fails }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "MISSES",
            Self::NotCarried => "not judged: the processors are too slow",
            Self::Disturbed => "not judged: disturbed by other programs",
            Self::NotMeasured => "not judged: not measured",
            Self::Told => "",
        }
    }
}

impl Finding {
    /// Creates a finding on a row's target. The target is judged only if some repetition was undisturbed and
    /// the machine is fast enough for the baseline.
    pub(crate) fn of(row: &Row, what: String, target: String, measured: String, holds: bool) -> Self {
        let verdict = match Verdict::of(holds) {
            _ if row.is_worthless() => Verdict::Disturbed,
            _ if row.load.saturated => Verdict::NotCarried,
            verdict => verdict,
        };
        Self { what, target, measured, verdict, marks: row.marks() }
    }

    /// Creates a finding without a target.
    pub(crate) fn told(row: &Row, what: String, measured: String) -> Self {
        Self { what, target: String::new(), measured, verdict: Verdict::Told, marks: row.marks() }
    }
}

/// Whether a target is missed.
pub(crate) fn any_fails(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.verdict == Verdict::Fails)
}

/// Returns all findings as a table, for the head of the page.
pub(crate) fn table(findings: &[Finding]) -> String {
    let cells = |finding: &Finding| {
        let Finding { what, target, measured, verdict, marks } = finding.clone();
        vec![what, target, measured, verdict.text().to_owned(), marks]
    };
    markdown_table(
        &["what", "target", "measured", "verdict", "marks"],
        &findings.iter().map(cells).collect::<Vec<_>>(),
    )
}
