//! The progress of the search through the spare copies of all connected helpers.

use std::time::Duration;

use repair::{BlockId, NodeId};

/// The pause after a look.
const PAUSE: Duration = Duration::from_millis(500);
/// The time after which a new round begins in any case.
const ROUND_EVERY: Duration = Duration::from_secs(60);

/// A search in rounds: each round looks at all spare copies, some at a time.
#[derive(Default)]
pub(crate) struct CopySearch {
    /// The copy at which the last look has stopped; `None` between two rounds.
    pub(in crate::stripes) stopped_at: Option<(NodeId, BlockId)>,
    /// Whether another round must follow at once.
    again: bool,
    look_due: Duration,
    round_due: Duration,
    /// The number of looks so far.
    #[cfg(test)]
    pub(crate) looks: u64,
}

impl CopySearch {
    /// Has all copies looked at from now on. The first look is due at once.
    pub(in crate::stripes) fn request(&mut self) {
        (self.again, self.look_due) = (true, Duration::ZERO);
    }

    /// Begins a look if one is due. The look continues after `stopped_at`.
    pub(in crate::stripes) fn begin_look(&mut self, now: Duration) -> bool {
        let begins_round = self.stopped_at.is_none();
        if now < self.look_due || begins_round && !self.again && now < self.round_due {
            return false;
        }
        self.look_due = now + PAUSE;
        if begins_round {
            (self.again, self.round_due) = (false, now + ROUND_EVERY);
        }
        self.count_look();
        true
    }

    pub(in crate::stripes) fn count_look(&mut self) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_during_a_round_causes_another_round() {
        let mut search = CopySearch::default();
        let now = ROUND_EVERY;
        assert!(search.begin_look(now));
        search.stopped_at = Some((NodeId(1), BlockId("1.0".to_owned())));
        search.request();
        assert!(search.begin_look(now), "the look is due at once");
        assert!(!search.begin_look(now), "the next one is due after a pause");
        search.stopped_at = None; // The round is complete.
        assert!(search.begin_look(now + PAUSE), "the requested round");
        assert!(!search.begin_look(now + 2 * PAUSE));
        assert!(search.begin_look(now + PAUSE + ROUND_EVERY));
    }
}
