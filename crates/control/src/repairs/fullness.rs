//! Full helpers, and whether there is room to rebuild another helper that fails.

use std::time::Duration;

use crate::facts::Facts;

/// A helper is nearly full if less than this fraction of its space is free.
pub(crate) const NEARLY: f64 = 0.05;
/// How long the result of a check is used before the stripes are checked again.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// The latest warning about missing room, and the time of the check.
#[derive(Default)]
pub(crate) struct Fullness {
    found: Option<(Duration, Option<String>)>,
}

impl Fullness {
    /// Whether it is time to check again for missing room.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.found.as_ref().is_none_or(|&(at, _)| now >= at + GOOD_FOR)
    }

    /// Drops the result, because helpers or what they accept have changed; it is checked again at once.
    pub(crate) fn forget(&mut self) {
        self.found = None;
    }

    pub(crate) fn set(&mut self, advice: Option<String>, now: Duration) {
        self.found = Some((now, advice));
    }

    /// Returns the warning that a failed helper could not be rebuilt, with the reason and a remedy.
    pub(crate) fn advice(&self) -> Option<String> {
        self.found.as_ref().and_then(|(_, text)| text.clone())
    }
}

impl<'a> Facts<'a> {
    /// Returns the block size of the stripes with the largest blocks; the configured one if there are no
    /// stripes.
    pub(crate) fn largest_block_bytes(self) -> u64 {
        let stored = self.stripes.picture.kinds().map(|kind| kind.block_bytes / kind.stripes.max(1)).max();
        stored.unwrap_or(self.base.settings.block_bytes)
    }
}
