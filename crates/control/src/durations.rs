//! Durations as text for people.

use std::time::Duration;

/// Formats a duration, such as `45 s`, `12 min`, `1 h 49 min` or `2 days 3 h`. The time is rounded up,
/// because an operator who reads a shorter time might act too early.
pub(crate) fn in_words(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1000) as u64;
    let (minutes, hours) = (seconds.div_ceil(60), seconds.div_ceil(3600));
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=3600 => format!("{minutes} min"),
        3601..=172_800 => two(minutes / 60, "h", minutes % 60, "min"),
        _ => two(hours / 24, "days", hours % 24, "h"),
    }
}

fn two(first: u64, unit: &str, rest: u64, of: &str) -> String {
    if rest == 0 { format!("{first} {unit}") } else { format!("{first} {unit} {rest} {of}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        let words = |ms| in_words(Duration::from_millis(ms));
        assert_eq!([words(0), words(1), words(90_000)], ["0 s", "1 s", "90 s"]);
        assert_eq!([words(90_001), words(720_000), words(721_000)], ["2 min", "12 min", "13 min"]);
        assert_eq!([words(3_600_000), words(6_538_350), words(10_800_000)], ["60 min", "1 h 49 min", "3 h"]);
        assert_eq!([words(172_800_000), words(172_801_000)], ["48 h", "2 days 1 h"]);
    }
}
