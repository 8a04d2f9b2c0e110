//! Times for people.

use std::time::Duration;

/// `45 s`, `12 min`, `3 h`, `2 days`: rounded up, since less would be a promise.
pub(super) fn in_words(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1000);
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5400 => format!("{} min", seconds.div_ceil(60)),
        5401..=172_800 => format!("{} h", seconds.div_ceil(3600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        let words = |ms| in_words(Duration::from_millis(ms));
        assert_eq!([words(0), words(1), words(90_000)], ["0 s", "1 s", "90 s"]);
        assert_eq!([words(90_001), words(720_000), words(721_000)], ["2 min", "12 min", "13 min"]);
        assert_eq!([words(5_400_000), words(10_800_000)], ["90 min", "3 h"]);
        assert_eq!(words(172_801_000), "3 days");
    }
}
