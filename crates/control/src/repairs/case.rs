//! The automatic repairs of damaged stripes, with growing pauses between the repairs of a stripe.
//!
//! **Invariant:** the work of a look does not depend on the number of cases, which may grow to millions if
//! the cluster is full. Only the cases with open repairs are looked at each time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use repair::StripeId;

use crate::repairs::turns::Place;

/// The pause after a repair that did not help. It doubles with each further failure, up to the longest pause.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_LAST: Duration = Duration::from_secs(600);

/// How many cases are looked at in search of stripes that are whole again.
const LOOK_AT: usize = 2048;

/// The damaged stripes that are repaired automatically.
#[derive(Default)]
pub(crate) struct Cases {
    by_stripe: BTreeMap<StripeId, Case>,
    /// The stripes whose repairs were open at the last look.
    open: BTreeSet<StripeId>,
    /// The case that was looked at last in search of stripes that are whole again.
    looked_at: Option<StripeId>,
}

impl Cases {
    pub(crate) fn get(&self, stripe: &StripeId) -> Option<&Case> {
        self.by_stripe.get(stripe)
    }

    pub(crate) fn get_mut(&mut self, stripe: &StripeId) -> Option<&mut Case> {
        self.by_stripe.get_mut(stripe)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Case> {
        self.by_stripe.values()
    }

    /// Records that a repair of a stripe begins.
    pub(crate) fn begin(&mut self, stripe: &StripeId, now: Duration) {
        self.by_stripe.entry(stripe.clone()).or_default().begin(now);
        self.open.insert(stripe.clone());
    }

    /// Records which of the repairs are running.
    pub(crate) fn note_running(&mut self, now: Duration, progress: impl Fn(&StripeId, &Case) -> Progress) {
        let Self { by_stripe, open, .. } = self;
        open.retain(|stripe| {
            let Some(case) = by_stripe.get_mut(stripe) else { return false };
            let progress = progress(stripe, case);
            case.note_running(progress == Progress::Running, now);
            progress != Progress::Over
        });
    }

    /// Drops the cases of stripes that are whole again. Looks at some of the cases, and the next time at the
    /// following ones.
    pub(crate) fn close(&mut self, is_whole: impl Fn(&StripeId) -> bool) {
        let after = self.looked_at.take().map_or(Unbounded, Excluded);
        let later = self.by_stripe.range::<StripeId, _>((after, Unbounded));
        let next: Vec<StripeId> = later.take(LOOK_AT).map(|(stripe, _)| stripe.clone()).collect();
        self.looked_at = next.last().filter(|_| next.len() == LOOK_AT).cloned();
        for stripe in next.iter().filter(|stripe| is_whole(stripe)) {
            self.by_stripe.remove(stripe);
        }
    }
}

/// The progress of the repairs of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    Paused,
    Over,
}

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
    /// Records whether the stripe is being repaired. The pause begins when its repair ends: otherwise a
    /// repair that takes longer than the pause would be due again at once.
    fn note_running(&mut self, is_running: bool, now: Duration) {
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
    fn begin(&mut self, now: Duration) {
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
    use std::cell::Cell;

    use super::*;
    use crate::repairs::open_repairs::OPEN_AT_ONCE;
    use crate::repairs::turns::{Taken, Turns};

    /// Repairs of 200 stripes that cannot lose another block fail after a minute each. A safer stripe is
    /// repaired at its third attempt.
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
    fn few_of_many_cases_are_looked_at_each_time_and_all_in_the_end() {
        let name = |number: usize| StripeId(format!("{number:06}"));
        let mut cases = Cases::default();
        (0..10_000).for_each(|number| cases.begin(&name(number), Duration::ZERO));
        cases.note_running(Duration::ZERO, |_, _| Progress::Over);
        let looks = Cell::new(0);
        let count = || looks.set(looks.get() + 1);
        for _ in 0..5 {
            looks.set(0);
            cases.note_running(Duration::ZERO, |_, _| {
                count();
                Progress::Running
            });
            cases.close(|stripe| {
                count();
                *stripe != name(7777)
            });
            assert!(looks.get() <= LOOK_AT, "{}", looks.get());
        }
        assert_eq!(cases.by_stripe.keys().collect::<Vec<_>>(), [&name(7777)]);
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
