//! Retries of automatic repairs.
//!
//! Each failure doubles the pause. After a time in which no helper had room, the pause ends as soon as a
//! helper has room again.

use std::time::Duration;

/// The pause after the first failure.
pub(crate) const TRY_AGAIN: Duration = Duration::from_secs(60);
const TRY_AGAIN_AT_MOST: Duration = Duration::from_secs(3600);

/// Failed automatic repairs of one helper, and the pause before the next.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    failures: u32,
    not_before: Duration,
    /// Whether the last check found no helper with room.
    without_room: bool,
}

impl Attempts {
    /// Records that a repair ended although some blocks are still lost or still on the drained helper. The
    /// next repair waits at least `least`, and longer after each failure.
    pub(crate) fn fail(&mut self, now: Duration, least: Duration) {
        let pause = least.max(TRY_AGAIN).saturating_mul(1 << self.failures.min(10));
        self.failures += 1;
        self.not_before = now + pause.min(TRY_AGAIN_AT_MOST.max(least));
    }

    /// Allows the next attempt only when [`TRY_AGAIN`] has passed, without counting a failure.
    pub(crate) fn put_off(&mut self, now: Duration) {
        self.not_before = now + TRY_AGAIN;
    }

    /// Whether any attempt has failed.
    pub(crate) fn have_failed(&self) -> bool {
        self.failures > 0
    }

    /// Returns the time until the next attempt is allowed.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        self.not_before.saturating_sub(now)
    }

    /// Records whether any helper has room now. If one has, but none had at the last check, failures are
    /// forgotten.
    pub(crate) fn note_room(&mut self, is_room: bool) {
        if is_room && self.without_room {
            *self = Self::default();
        }
        self.without_room = !is_room;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_there_is_room_again() {
        let seconds = Duration::from_secs;
        let mut attempts = Attempts::default();
        attempts.fail(seconds(0), seconds(0));
        assert_eq!(attempts.wait(seconds(0)), seconds(60));
        attempts.fail(seconds(60), seconds(0));
        assert_eq!(attempts.wait(seconds(60)), seconds(120));
        attempts.note_room(true);
        assert!(attempts.have_failed(), "there was room before");
        attempts.note_room(false);
        attempts.note_room(true);
        assert_eq!((attempts.wait(seconds(60)), attempts.have_failed()), (Duration::ZERO, false));
        (0..20).for_each(|_| attempts.fail(seconds(0), seconds(0)));
        assert_eq!(attempts.wait(seconds(0)), TRY_AGAIN_AT_MOST);
    }
}
