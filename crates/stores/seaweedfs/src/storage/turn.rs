//! How long Mend may hold the cluster's lock without a break. Pure: time is an argument.
//!
//! Claims overlap in a long recovery, so the lock would be held for hours, and other clients of the lock would
//! starve. SeaweedFS's own admin server has the same rule for its jobs, with the same times.

use std::time::{Duration, Instant};

/// After holding the lock for this long, Mend begins no work until it has released the lock.
const LONGEST_TURN: Duration = Duration::from_secs(60);
/// After such a turn, the lock stays free for this long. `weed shell` tries to take it once a second.
const BREAK: Duration = Duration::from_secs(2);

/// The time since which Mend holds the lock, or until which it leaves the lock to others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Turn {
    #[default]
    Free,
    HeldSince(Instant),
    BreakUntil(Instant),
}

impl Turn {
    /// Whether work on another volume may begin.
    pub fn may_begin(self, now: Instant) -> bool {
        match self {
            Self::Free => true,
            Self::HeldSince(since) => now < since + LONGEST_TURN,
            Self::BreakUntil(end) => end <= now,
        }
    }

    /// Records that the lock was taken.
    pub fn begin(&mut self, now: Instant) {
        *self = Self::HeldSince(now);
    }

    /// Records that the lock was released or lost.
    pub fn end(&mut self, now: Instant) {
        if let Self::HeldSince(_) = self {
            *self = if self.may_begin(now) { Self::Free } else { Self::BreakUntil(now + BREAK) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_minute_no_work_begins_until_the_lock_was_free() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut turn = Turn::default();
        assert!(turn.may_begin(start));
        turn.begin(start);
        assert!(turn.may_begin(after(59)));
        assert!(!turn.may_begin(after(60)));
        turn.end(after(90));
        assert!(!turn.may_begin(after(91)));
        assert!(turn.may_begin(after(92)));
        // A short turn needs no break.
        turn.begin(after(100));
        turn.end(after(110));
        assert!(turn.may_begin(after(110)));
    }
}
