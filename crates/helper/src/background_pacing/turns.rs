//! Hands out turns to move bytes, evenly spaced at a rate that may change at any time.
//!
//! A turn is a place in a sequence of bytes, and the rate determines which place has been reached. So a
//! change of the rate also moves the turns that are already handed out. Jobs take turns in the order in which
//! they asked.

use std::time::Duration;

/// The time that the bytes of a turn take at the current rate. A short turn makes short bursts, but each turn costs a
/// wake-up.
const TURN: Duration = Duration::from_millis(1);
/// The time whose bytes are made up for if nobody asked for a turn. Timers are a millisecond or two late.
const MADE_UP: Duration = Duration::from_millis(3);
/// The smallest and the largest number of bytes in a turn.
pub(super) const LEAST_TURN_BYTES: f64 = (8 << 10) as f64;
const MOST_TURN_BYTES: f64 = (1 << 20) as f64;

/// A sequence of turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Bytes per second.
    rate: f64,
    /// The place that was reached at `at`, and the place at which the next turn begins, in bytes.
    reached: f64,
    next: f64,
    at: Duration,
}

/// A job's turn.
#[derive(Debug)]
pub(super) struct Turn {
    place: f64,
    /// The bytes that may still be moved.
    pub(super) bytes: usize,
}

impl Turns {
    /// Advances to `now` and applies a rate from then on.
    pub(super) fn set_rate(&mut self, rate: f64, now: Duration) {
        self.reached += self.rate * now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.rate = rate;
    }

    /// Reserves the next turn. If nobody asked for a while, only a few turns' bytes are made up for.
    pub(super) fn reserve(&mut self) -> Turn {
        let bytes = (self.rate * TURN.as_secs_f64()).clamp(LEAST_TURN_BYTES, MOST_TURN_BYTES).floor();
        let made_up = bytes.max(self.rate * MADE_UP.as_secs_f64());
        let place = self.next.max(self.reached - made_up);
        self.next = place + bytes;
        Turn { place, bytes: bytes as usize }
    }

    /// Returns the time until a turn begins; `None` if it has begun.
    pub(super) fn wait(&self, turn: &Turn) -> Option<Duration> {
        let missing = turn.place - self.reached;
        (missing > 0.0).then(|| Duration::from_secs_f64((missing / self.rate.max(1.0)).min(3600.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RATE: f64 = (8 << 20) as f64;

    #[test]
    fn turns_are_evenly_spaced() {
        let mut turns = Turns::default();
        turns.set_rate(RATE, SECOND);
        let reserved: Vec<_> = (0..4).map(|_| turns.reserve()).collect();
        assert_eq!(turns.wait(&reserved[0]), None);
        let spacing = reserved[0].bytes as f64 / RATE;
        for (number, turn) in reserved.iter().enumerate().skip(1) {
            let wait = turns.wait(turn).unwrap().as_secs_f64();
            assert!((wait - spacing * number as f64).abs() < 1e-3, "turn {number} in {wait} s");
        }
        turns.set_rate(RATE, SECOND + Duration::from_secs_f64(spacing * 2.5));
        assert_eq!(turns.wait(&reserved[2]), None);
        assert!(turns.wait(&reserved[3]).is_some());
    }

    #[test]
    fn another_rate_moves_turns_that_are_handed_out() {
        let mut turns = Turns::default();
        turns.set_rate(1000.0, SECOND);
        let _ = turns.reserve();
        let waiting = turns.reserve();
        assert!(turns.wait(&waiting).unwrap() > 5 * SECOND);
        turns.set_rate(RATE, SECOND);
        assert!(turns.wait(&waiting).unwrap() < SECOND / 100);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut turns = Turns::default();
        turns.set_rate(RATE, SECOND);
        turns.set_rate(RATE, 60 * SECOND);
        let reserved: Vec<_> = (0..100).map(|_| turns.reserve()).collect();
        let begun = reserved.iter().filter(|turn| turns.wait(turn).is_none());
        let seconds = begun.map(|turn| turn.bytes as f64).sum::<f64>() / RATE;
        assert!(seconds <= 2.0 * MADE_UP.as_secs_f64(), "{seconds} s are made up for");
    }
}
