//! The automatic repairs of a damaged stripe, with growing pauses between them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::repairs::turns::Place;

/// The pause after a repair that did not help. It doubles with each further failure, up to the longest pause.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_LAST: Duration = Duration::from_secs(600);

/// A damaged stripe that is repaired automatically.
#[derive(Default)]
pub(crate) struct Case {
    /// The repairs of the stripe.
    pub(crate) repairs: BTreeSet<u64>,
    pub(crate) attempts: u32,
    /// Whether one of these repairs was open and not paused at the last look.
    pub(crate) is_running: bool,
    pub(crate) not_before: Duration,
}

impl Case {
    /// Records whether the stripe is being repaired. The pause begins when its repair ends: otherwise a repair that takes
    /// longer than the pause would be due again at once.
    pub(crate) fn note_running(&mut self, is_running: bool, now: Duration) {
        self.is_running = is_running;
        if is_running {
            self.not_before = self.not_before.max(now + self.pause());
        }
    }

    /// Returns the pause after the last repair.
    fn pause(&self) -> Duration {
        let doublings = self.attempts.saturating_sub(1).min(16);
        PAUSE_FIRST.saturating_mul(1 << doublings).min(PAUSE_LAST)
    }

    /// Records that another repair begins.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.attempts += 1;
        self.not_before = now + self.pause();
        self.repairs.clear();
    }

    /// Returns the place of the stripe, which can still lose `left` blocks, among those that are due.
    pub(crate) fn place(&self, left: u32) -> Place {
        Place { left, attempts: self.attempts, since: self.not_before }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::repairs::open_repairs::OPEN_AT_ONCE;
    use crate::repairs::turns::{Taken, Turns};

    /// Repairs of 200 stripes that cannot lose another block fail after a minute each. A safer stripe is repaired at its
    /// third attempt.
    #[test]
    fn stripes_whose_repairs_always_fail_do_not_hold_back_a_safer_one() {
        const FAILING: usize = 200;
        const SAFER: usize = FAILING;
        let mut cases: Vec<Case> = (0..=FAILING).map(|_| Case::default()).collect();
        let (mut turns, mut begun) = (Turns::default(), 0);
        let mut running: BTreeMap<usize, Duration> = BTreeMap::new();
        for now in (0..20_000).map(Duration::from_secs) {
            running.retain(|_, end| now < *end);
            for (at, case) in cases.iter_mut().enumerate() {
                case.note_running(running.contains_key(&at), now);
            }
            let due: Vec<usize> = (0..cases.len()).filter(|&at| cases[at].not_before <= now).collect();
            let places: Vec<Place> = due.iter().map(|&at| cases[at].place(u32::from(at == SAFER))).collect();
            turns.take(&places, |at| {
                if running.len() >= OPEN_AT_ONCE {
                    return Taken::Full;
                }
                cases[due[at]].begin(now);
                running.insert(due[at], now + Duration::from_secs(60));
                begun += 1;
                Taken::Begun
            });
            if cases[SAFER].attempts == 3 {
                break;
            }
        }
        assert_eq!(cases[SAFER].attempts, 3);
        assert!(begun <= 3 * (2 * FAILING + OPEN_AT_ONCE), "{begun} repairs");
        assert!((0..FAILING).all(|at| cases[at].attempts > 0), "stripes at risk are not forgotten");
    }

    #[test]
    fn the_pause_after_a_failed_repair_begins_at_its_end() {
        let seconds = Duration::from_secs;
        let mut case = Case::default();
        case.begin(seconds(0));
        assert_eq!(case.not_before, seconds(10));
        case.note_running(true, seconds(40));
        case.note_running(false, seconds(41));
        assert_eq!(case.not_before, seconds(50));
        case.begin(seconds(50));
        assert_eq!(case.not_before, seconds(70));
        (0..20).for_each(|_| case.begin(seconds(100)));
        assert_eq!(case.not_before, seconds(100) + PAUSE_LAST);
    }
}
