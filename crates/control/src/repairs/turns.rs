//! The order in which automatic repairs of single stripes begin.
//!
//! The stripe that can lose the fewest further blocks comes first, and among equals the one with the fewest
//! failed repairs. If only this order counted, stripes whose repairs always fail would take the place of
//! safer ones whenever their pauses end. So every second repair is that of the stripe that has been due for
//! longest.
//!
//! **Invariant:** before a due stripe is repaired, each other stripe is repaired at most once more in the
//! order of time, and as many repairs begin in the order of risk.

use std::time::Duration;

/// Which of the two orders applies next.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    is_by_time: bool,
}

/// The properties of a due stripe that determine its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The number of blocks that the stripe can still lose.
    pub(crate) left: u32,
    /// The number of its repairs that did not help.
    pub(crate) attempts: u32,
    /// The time at which the pause after its last repair ended; 0 if it was never repaired.
    pub(crate) since: Duration,
}

/// What became of a stripe whose turn it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Begun,
    /// It is not repaired now.
    Passed,
    /// No repair of any stripe can begin.
    Full,
}

impl Turns {
    /// Gives each of the due stripes its turn, until no further repair can begin. `begin` gets a stripe's
    /// position in `due`.
    pub(crate) fn take(&mut self, due: &[Place], mut begin: impl FnMut(usize) -> Taken) {
        let mut by_risk: Vec<usize> = (0..due.len()).collect();
        let mut by_time = by_risk.clone();
        by_risk.sort_by_key(|&at| (due[at].left, due[at].attempts));
        by_time.sort_by_key(|&at| (due[at].since, due[at].left));
        let (mut by_risk, mut by_time) = (by_risk.into_iter(), by_time.into_iter());
        let mut had_turn = vec![false; due.len()];
        loop {
            let next = match self.is_by_time {
                true => by_time.next().or_else(|| by_risk.next()),
                false => by_risk.next().or_else(|| by_time.next()),
            };
            let Some(at) = next else { return };
            if std::mem::replace(&mut had_turn[at], true) {
                continue;
            }
            match begin(at) {
                Taken::Begun => self.is_by_time = !self.is_by_time,
                Taken::Passed => {}
                Taken::Full => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Place = Place { left: 0, attempts: 0, since: Duration::ZERO };

    /// Returns the order in which the repairs of these stripes begin.
    fn order(turns: &mut Turns, due: &[Place]) -> Vec<usize> {
        let mut order = Vec::new();
        turns.take(due, |at| {
            order.push(at);
            Taken::Begun
        });
        order
    }

    #[test]
    fn stripes_at_risk_come_first_and_every_second_repair_is_of_one_that_waits_for_long() {
        let seconds = Duration::from_secs;
        let safer = Place { left: 2, attempts: 1, since: seconds(5) };
        let failing = Place { attempts: 3, since: seconds(60), ..NEW };
        let due = [safer, failing, Place { since: seconds(70), ..failing }, Place { attempts: 4, ..failing }];
        let mut turns = Turns::default();
        assert_eq!(order(&mut turns, &due), [1, 0, 2, 3]);
        // Stripes without a failed repair come in the order of risk in any case.
        let new = [Place { left: 2, ..NEW }, Place { left: 1, ..NEW }, NEW];
        assert_eq!(order(&mut turns, &new), [2, 1, 0]);
    }

    #[test]
    fn the_orders_alternate_also_if_one_repair_begins_at_a_time() {
        let (failing, safer) = (Place { attempts: 9, ..NEW }, Place { left: 3, ..NEW });
        let due = [Place { since: Duration::from_secs(1), ..failing }, safer];
        let mut turns = Turns::default();
        let mut first = || {
            let mut begun = None;
            turns.take(&due, |at| match begun.replace(at) {
                None => Taken::Begun,
                Some(first) => {
                    begun = Some(first);
                    Taken::Full
                }
            });
            begun
        };
        assert_eq!([first(), first(), first()], [Some(0), Some(1), Some(0)]);
    }
}
