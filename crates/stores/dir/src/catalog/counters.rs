//! The values at which the counters of a rebuilt catalog continue.
//!
//! A faulty helper may report blocks with arbitrary numbers and times. A number that only one helper reports
//! is therefore used only if an interrupted put can explain it. A wrong counter does not cause duplicate
//! names, because each coordinator adds a random number of its own to the names of stripes and puts (its
//! era). But a counter that is too high leaves too few numbers for later stripes, and a block whose number is
//! above the counter is treated as newer than the catalog.

use std::iter;

use store_api::names::{FAR, MAX_COUNT};

/// An interrupted put may leave a block on only one helper. A number that only one helper reports is
/// therefore accepted if it is at most this far above the numbers that several helpers report.
const NEAR: u64 = 1 << 20;
/// The longest time, in milliseconds, by which the clock of the previous coordinator's machine is assumed to
/// have been ahead: 200 years. The limit only leaves later times for later puts. It is long, because a put
/// that begins after the rebuild must count as newer than all earlier ones (see `choose` in
/// [`rebuild`](super::rebuild)).
const CLOCKS_DIFFER_MS: u64 = 200 * 365 * 24 * 60 * 60 * 1000;

/// Returns the next unused number. `reported` lists the numbers in use, each with the number of helpers that
/// report it.
pub(super) fn next_number(reported: impl Iterator<Item = (u64, usize)>) -> u64 {
    let (confirmed, others): (Vec<_>, Vec<_>) = reported.partition(|&(_, helpers)| helpers > 1);
    let last = before_free_run(confirmed.into_iter().map(|(number, _)| number).collect());
    let near = others.into_iter().map(|(number, _)| number).filter(|&number| number <= last + NEAR);
    near.max().map_or(last, |number| number.max(last)) + 1
}

/// Returns the number in use that precedes the first run of at least [`FAR`] free numbers. If no run is that
/// long, returns the number that precedes the longest run.
fn before_free_run(mut used: Vec<u64>) -> u64 {
    used.sort_unstable();
    let starts = iter::once(0).chain(used.iter().copied());
    let ends = used.iter().copied().chain([MAX_COUNT + 1]);
    let runs: Vec<(u64, u64)> = starts.zip(ends).map(|(start, end)| (start, end - start)).collect();
    let long = runs.iter().find(|(_, length)| *length > FAR);
    long.or_else(|| runs.iter().max_by_key(|(_, length)| *length)).map_or(0, |&(start, _)| start)
}

/// Returns the time of the newest put that several helpers report, but at most 200 years after `now`.
/// `reported` lists the times of all puts, each with the number of helpers that report it.
pub(super) fn last_begun(reported: impl Iterator<Item = (u64, usize)>, now: u64) -> u64 {
    let confirmed = reported.filter(|&(_, helpers)| helpers > 1).map(|(begun, _)| begun);
    bounded(confirmed.max().unwrap_or(0), now)
}

/// Returns this time, but at most 200 years after `now`.
pub(super) fn bounded(time: u64, now: u64) -> u64 {
    time.min(now + CLOCKS_DIFFER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(confirmed: &[u64], single: &[u64]) -> u64 {
        let reported =
            |numbers: &[u64], helpers| numbers.iter().map(move |&number| (number, helpers)).collect();
        let all: [Vec<(u64, usize)>; 2] = [reported(confirmed, 2), reported(single, 1)];
        next_number(all.into_iter().flatten())
    }

    #[test]
    fn one_helper_alone_cannot_use_up_numbers() {
        assert_eq!(next(&[], &[]), 1);
        assert_eq!(next(&[1, 2, 5], &[]), 6);
        assert_eq!(next(&[1, 2, 5], &[3, 7]), 8, "an interrupted put");
        assert_eq!(next(&[], &[1, 2]), 3, "the other helper is gone");
        assert_eq!(next(&[1, 2, 5], &[6, 5 + NEAR + 1]), 7);
        assert_eq!(next(&[1, 2, 5], &[MAX_COUNT]), 6);
    }

    /// Several helpers may report an invented number, if a repair has rebuilt the invented block on another
    /// helper.
    #[test]
    fn invented_numbers_that_several_helpers_report_leave_a_long_free_run() {
        assert_eq!(next(&[1, 2, MAX_COUNT / 2], &[]), 3);
        assert_eq!(next(&[1, 2, MAX_COUNT], &[]), 3);
        assert_eq!(next(&[1, 2, FAR - 1], &[]), FAR);
        let chain: Vec<u64> = (1..=4).map(|step| step * (FAR - 1)).collect();
        let found = next(&chain, &[]);
        assert!(chain.contains(&(found - 1)) || found == 1, "{found}");
        assert!(!chain.iter().any(|&number| (found..found + FAR / 2).contains(&number)), "{found}");
        assert!(found + FAR / 2 < MAX_COUNT, "{found}");
    }

    #[test]
    fn times_need_two_helpers_and_leave_later_times() {
        let begun = |reported: &[(u64, usize)]| last_begun(reported.iter().copied(), 1_000);
        assert_eq!(begun(&[(700, 3), (u64::MAX, 1)]), 700);
        assert_eq!(begun(&[(1_500, 2)]), 1_500, "the clocks differ");
        assert_eq!(begun(&[(u64::MAX, 2)]), 1_000 + CLOCKS_DIFFER_MS);
        assert_eq!(begun(&[]), 0);
    }
}
