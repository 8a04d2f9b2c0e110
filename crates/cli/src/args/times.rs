//! Parsers of times and dates.

use std::time::{Duration, SystemTime};

/// The longest time that a command accepts. Clocks can represent moments this far away.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Parses a time such as `10m`.
pub fn time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= LONGEST => Ok(time),
        Ok(_) => Err("the longest time is 100 years".to_owned()),
        Err(error) => Err(format!("{error}; write a time such as 10m or 2h")),
    }
}

/// Parses a number of seconds, or a time such as `2m`.
pub fn seconds_or_time(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) => time(&format!("{seconds}s")),
        Err(_) => time(text),
    }
}

/// Parses a moment: a time ago, such as `2h`, or a date, with or without a time of the day.
pub fn moment(text: &str) -> Result<SystemTime, String> {
    let ago = || SystemTime::now().checked_sub(time(text).ok()?);
    let date = |text: &str| humantime::parse_rfc3339_weak(text).ok();
    ago().or_else(|| date(text)).or_else(|| date(&format!("{text}T00:00:00Z"))).ok_or_else(|| {
        "write a time ago such as 2h, or a date such as 2026-11-26 or 2026-11-26T17:00:00Z".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn times_that_no_clock_can_represent_are_refused() {
        assert_eq!(time("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(seconds_or_time("90"), Ok(Duration::from_secs(90)));
        for text in ["101years", "999999999999years", "18446744073709551615s"] {
            let error = time(text).unwrap_err();
            assert!(error.contains("100 years") || error.contains("too large"), "{text}: {error}");
        }
        assert!(seconds_or_time("18446744073709551615").is_err());
        assert!(time("soon").unwrap_err().contains("such as 10m"));
    }

    #[test]
    fn moments_are_times_ago_or_dates() {
        let day = UNIX_EPOCH + Duration::from_secs(20_454 * 86_400);
        for text in ["2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00"] {
            assert_eq!(moment(text), Ok(day), "{text}");
        }
        let (two_hours, before) = (Duration::from_secs(7200), SystemTime::now());
        let moment_ago = moment("2h").unwrap();
        assert!(before - two_hours <= moment_ago && moment_ago <= SystemTime::now() - two_hours);
        assert!(moment("yesterday").is_err() && moment("2026-13-01").is_err());
    }
}
