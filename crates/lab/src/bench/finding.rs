//! [`Finding`]: a target, what was measured of it, and whether it holds.

use crate::report::{Row, markdown_table};

/// A target and what was measured of it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Finding {
    /// What is measured.
    pub what: String,
    /// What it shall be; empty if it is only told.
    pub target: String,
    /// What it is.
    pub measured: String,
    /// Whether it is.
    pub verdict: Verdict,
    /// What to know before it is believed.
    pub marks: String,
}

/// What came of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not.
    Fails,
    /// The processors set the time of the yardstick already, so that the figure says nothing about Mend.
    NotCarried,
    /// Other programs disturbed every repetition.
    Disturbed,
    /// There is no target.
    Told,
}

impl Verdict {
    /// Of a target that holds or not.
    pub fn of(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Fails }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "DOES NOT HOLD",
            Self::NotCarried => "not judged: this machine does not carry it",
            Self::Disturbed => "not judged: other programs ran",
            Self::Told => "",
        }
    }
}

impl Finding {
    /// A target of a row's, judged if the machine carried the row's yardstick.
    pub(super) fn of(row: &Row, what: String, target: String, measured: String, holds: bool) -> Self {
        let verdict = match Verdict::of(holds) {
            _ if row.is_worthless() => Verdict::Disturbed,
            _ if row.saturated => Verdict::NotCarried,
            verdict => verdict,
        };
        Self { what, target, measured, verdict, marks: row.marks() }
    }

    /// What has no target.
    pub(super) fn told(row: &Row, what: String, measured: String) -> Self {
        Self { what, target: String::new(), measured, verdict: Verdict::Told, marks: row.marks() }
    }
}

/// All of them, for the head of the page.
pub(super) fn table(findings: &[Finding]) -> String {
    let cells = |finding: &Finding| {
        let Finding { what, target, measured, verdict, marks } = finding.clone();
        vec![what, target, measured, verdict.text().to_owned(), marks]
    };
    markdown_table(
        &["what", "target", "measured", "verdict", "marks"],
        &findings.iter().map(cells).collect::<Vec<_>>(),
    )
}
