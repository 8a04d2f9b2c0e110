//! How long Mend may hold the cluster's lock without a break. Pure: time is an argument.
//!
//! Claims overlap in a long recovery, so the lock would be held for hours, and other clients of the lock would
//! starve. SeaweedFS's own admin server has the same rule for its jobs, with the same times. Unlike SeaweedFS, Mend
//! ends the wait after a while: a slow repair keeps the lock anyway, so nobody gains from further waiting.

use std::time::{Duration, Instant};

/// After holding the lock for this long, Mend begins no work on other volumes, so that it can release the lock. If the
/// work in progress keeps the lock for as long again, Mend begins other work again, for as long, and so on.
const TURN: Duration = Duration::from_secs(60);
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
    /// Whether work on another volume may begin. A volume that cannot lose another shard (`is_at_risk`) never waits
    /// for the others.
    pub fn may_begin(self, now: Instant, is_at_risk: bool) -> bool {
        match self {
            Self::Free => true,
            Self::HeldSince(since) => is_at_risk || turns(since, now).is_multiple_of(2),
            Self::BreakUntil(end) => end <= now,
        }
    }

    /// Records that the lock was taken.
    pub fn begin(&mut self, now: Instant) {
        *self = Self::HeldSince(now);
    }

    /// Records that the lock was released or lost.
    pub fn end(&mut self, now: Instant) {
        if let Self::HeldSince(since) = *self {
            *self = if turns(since, now) == 0 { Self::Free } else { Self::BreakUntil(now + BREAK) };
        }
    }
}

/// Returns how many times [`TURN`] has passed.
fn turns(since: Instant, now: Instant) -> u64 {
    now.saturating_duration_since(since).as_secs() / TURN.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_minute_no_work_begins_until_the_lock_was_free() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut turn = Turn::default();
        assert!(turn.may_begin(start, false));
        turn.begin(start);
        assert!(turn.may_begin(after(59), false));
        assert!(!turn.may_begin(after(60), false));
        turn.end(after(90));
        assert!(!turn.may_begin(after(91), false) && !turn.may_begin(after(91), true));
        assert!(turn.may_begin(after(92), false));
        // A short turn needs no break.
        turn.begin(after(100));
        turn.end(after(110));
        assert!(turn.may_begin(after(110), false));
    }

    /// A repair under a cap keeps the lock for hours.
    #[test]
    fn slow_work_does_not_keep_other_work_from_beginning() {
        let start = Instant::now();
        let mut turn = Turn::default();
        turn.begin(start);
        let begins = |is_at_risk| {
            let times = (0..7200).filter(|&at| turn.may_begin(start + Duration::from_secs(at), is_at_risk));
            times.collect::<Vec<u64>>()
        };
        assert_eq!(begins(true).len(), 7200, "a volume at risk waits for no other");
        let pauses: Vec<u64> = begins(false).windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses.iter().max(), Some(&61), "the longest wait, in seconds");
        assert_eq!(pauses.iter().filter(|&&pause| pause == 61).count(), 59, "chances of a break");
    }
}
