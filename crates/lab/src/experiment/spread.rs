//! The median and the extremes of a value over repetitions.

use std::fmt;

use crate::report::median;

/// The median, the lowest and the highest value; NaN if there are none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let (low, high) = (
            values.iter().copied().fold(f64::NAN, f64::min),
            values.iter().copied().fold(f64::NAN, f64::max),
        );
        Self { median: median(&values), low, high }
    }

    /// Returns the highest minus the lowest value, relative to the median.
    pub(crate) fn relative(self) -> f64 {
        (self.high - self.low) / self.median
    }
}

/// Formats the median, and the range if the values differ: `0.86 (0.85 to 0.88)`.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let [median, low, high] = [self.median, self.low, self.high].map(|value| format!("{value:.digits$}"));
        match low == high {
            true => f.write_str(&median),
            false => write!(f, "{median} ({low} to {high})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_shown_if_there_is_one() {
        let spread = Spread::of([0.88, 0.85, 0.86]);
        assert_eq!(spread.to_string(), "0.86 (0.85 to 0.88)");
        assert!((spread.relative() - 0.03 / 0.86).abs() < 1e-9);
        assert_eq!(format!("{:.1}", Spread::of([2.0])), "2.0");
        assert!(Spread::of([]).median.is_nan());
    }
}
