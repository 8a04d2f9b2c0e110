//! The setting for how long a helper may be down before its blocks are rebuilt elsewhere: `10m`, `1h 30m`, or
//! `never`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a helper may be down before its blocks are rebuilt elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RepairAfter {
    /// The blocks are rebuilt after this time.
    Time(Duration),
    /// The blocks are rebuilt only on request.
    Never,
}

/// The text is not a [`RepairAfter`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time: write one such as 10m or 1h 30m, at most a year, or never")]
pub struct ParseRepairAfterError {
    /// The rejected text.
    pub text: String,
}

impl RepairAfter {
    /// The longest accepted time. Longer times are useless, and arithmetic with them might overflow.
    const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

    /// Returns the time; `None` for `Never`.
    pub fn time(self) -> Option<Duration> {
        match self {
            Self::Time(time) => Some(time),
            Self::Never => None,
        }
    }
}

/// Ten minutes: longer than a machine takes to reboot, and long enough for most operators to notice the
/// failure.
impl Default for RepairAfter {
    fn default() -> Self {
        Self::Time(Duration::from_secs(600))
    }
}

impl FromStr for RepairAfter {
    type Err = ParseRepairAfterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "never" {
            return Ok(Self::Never);
        }
        let time = humantime::parse_duration(text).ok().filter(|&time| time <= Self::LONGEST);
        time.map(Self::Time).ok_or_else(|| ParseRepairAfterError { text: text.to_owned() })
    }
}

impl TryFrom<String> for RepairAfter {
    type Error = ParseRepairAfterError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<RepairAfter> for String {
    fn from(after: RepairAfter) -> Self {
        after.to_string()
    }
}

impl fmt::Display for RepairAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => humantime::format_duration(*time).fmt(f),
            Self::Never => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_state_can_be_read() {
        for text in ["10m", "1h 30m", "2s", "never", "0s"] {
            assert_eq!(text.parse::<RepairAfter>().unwrap().to_string(), text);
        }
        assert_eq!(RepairAfter::default().to_string(), "10m");
        for text in ["", "soon", "10", "-1m", "500years", "Never"] {
            assert!(text.parse::<RepairAfter>().is_err(), "{text}");
        }
    }
}
