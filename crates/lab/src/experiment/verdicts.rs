//! Judges measurements against targets.

use super::spread::Spread;
use crate::report::markdown_table;

/// The range in which a value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// A measurement with its target. The median of the repetitions counts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) target: &'static str,
    pub(crate) goal: Goal,
    /// The code, the block size and the links of the measurement.
    pub(crate) place: String,
    pub(crate) reached: Spread,
    /// Doubts about the repetitions.
    pub(crate) marks: String,
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least:.2}"),
            Self::AtMost(most) => format!("≤ {most:.2}"),
        }
    }
}

impl Judged {
    fn cells(&self) -> Vec<String> {
        let verdict = if self.goal.is_met(self.reached.median) { "holds" } else { "misses" };
        vec![
            format!("{}: {}", self.target, self.goal.text()),
            self.place.clone(),
            format!("{:.3}", self.reached),
            verdict.to_owned(),
            self.marks.clone(),
        ]
    }
}

/// Returns the table of verdicts.
pub(crate) fn verdicts(judged: &[Judged]) -> String {
    let columns = ["target", "measured at", "reached", "verdict", "marks"];
    markdown_table(&columns, &judged.iter().map(Judged::cells).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides() {
        let judged = |goal, values: [f64; 3]| Judged {
            target: "asked, of the links' bound",
            goal,
            place: "RS-6-3".to_owned(),
            reached: Spread::of(values),
            marks: "disturbed 1/3".to_owned(),
        };
        let cells = judged(Goal::AtLeast(0.85), [0.9, 0.84, 0.86]).cells();
        let expected = [
            "asked, of the links' bound: ≥ 0.85",
            "RS-6-3",
            "0.860 (0.840 to 0.900)",
            "holds",
            "disturbed 1/3",
        ];
        assert_eq!(cells, expected);
        assert_eq!(judged(Goal::AtLeast(0.85), [0.849; 3]).cells()[3], "misses");
        assert_eq!(judged(Goal::AtMost(1.35), [1.35; 3]).cells()[3], "holds");
        assert_eq!(judged(Goal::AtMost(1.35), [1.36; 3]).cells()[3], "misses");
        assert_eq!(judged(Goal::AtMost(1.35), [f64::NAN; 3]).cells()[3], "misses");
    }
}
