//! [`Recounts`]: stripes whose blocks the NameNode lists with more replicas than it should, or, of raided files, with
//! fewer. Neither the edit log nor the lists of losses tell when HDFS has removed a surplus replica, for example
//! after `setrep`, a move by the balancer, or the return of a DataNode whose blocks were rebuilt elsewhere. So these
//! stripes are queried again, first soon and then ever more rarely, until the numbers agree. Pure: this module sends
//! no queries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The first and the longest pause between queries for a stripe. The pauses double. DataNodes remove surplus
/// replicas at later heartbeats, and many of them over minutes.
const FIRST: Duration = Duration::from_secs(2);
const LAST: Duration = Duration::from_secs(600);
/// Maximum number of stripes that are remembered. For further ones, all files are listed later.
const MOST: usize = 100_000;

/// How many replicas of a stripe's blocks the NameNode lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// As many as the replication of their files; of a group, none has several.
    Agreed,
    /// Some block has more: HDFS will remove replicas.
    Surplus,
    /// Some block has fewer, and none has more: HDFS will put the block on its lists, or will learn of a replica.
    Short,
}

/// The stripes to query again.
#[derive(Debug, Default)]
pub(super) struct Recounts {
    stripes: BTreeMap<i64, Recount>,
    /// Stripes on the NameNode's own lists of losses, which cause queries themselves.
    reported: BTreeSet<i64>,
    /// Whether stripes were left out, as there were too many.
    are_left_out: bool,
    /// When a listing was last called for.
    relisted: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Recount {
    due: Duration,
    pause: Duration,
    /// The time at which the query was sent whose answer disagreed last.
    asked: Duration,
}

impl Recounts {
    /// Records an answer about a stripe. The query was sent at `asked`.
    pub fn note(&mut self, now: Duration, asked: Duration, number: i64, count: Count) {
        let is_over = match count {
            Count::Agreed => true,
            Count::Surplus => false,
            Count::Short => self.reported.contains(&number),
        };
        if self.stripes.get(&number).is_some_and(|known| asked < known.asked) {
            return; // An earlier query was answered later.
        }
        if is_over {
            self.stripes.remove(&number);
        } else if let Some(known) = self.stripes.get_mut(&number) {
            known.asked = asked;
        } else if self.stripes.len() >= MOST {
            self.are_left_out = true;
        } else {
            self.stripes.insert(number, Recount { due: now + FIRST, pause: FIRST, asked });
        }
    }

    /// Begins with short pauses again, because an event concerns these stripes.
    pub fn restart(&mut self, now: Duration, numbers: &BTreeSet<i64>) {
        for number in numbers {
            if let Some(known) = self.stripes.get_mut(number) {
                (known.due, known.pause) = (now + FIRST, FIRST);
            }
        }
    }

    /// Replaces the stripes on the NameNode's lists of losses.
    pub fn take_lists(&mut self, listed: impl IntoIterator<Item = i64>) {
        self.reported = listed.into_iter().collect();
    }

    /// Returns the stripes to query now, those first that have been due longest. Forgets the due ones that no
    /// longer exist.
    pub fn take_due(&mut self, now: Duration, most: usize, exists: impl Fn(i64) -> bool) -> Vec<i64> {
        self.stripes.retain(|&number, stripe| stripe.due > now || exists(number));
        let due = self.stripes.iter().filter(|(_, stripe)| stripe.due <= now);
        let mut due: Vec<(Duration, i64)> = due.map(|(&number, stripe)| (stripe.due, number)).collect();
        due.sort_unstable();
        due.truncate(most);
        for (_, number) in &due {
            let stripe = self.stripes.get_mut(number).expect("listed above");
            stripe.pause = (stripe.pause * 2).min(LAST);
            stripe.due = now + stripe.pause;
        }
        due.into_iter().map(|(_, number)| number).collect()
    }

    /// Whether to list all files now, because stripes were left out and there is room for them.
    pub fn take_left_out(&mut self, now: Duration) -> bool {
        let is_due = self.relisted.is_none_or(|relisted| now >= relisted + LAST);
        if !self.are_left_out || !is_due || self.stripes.len() > MOST / 2 {
            return false;
        }
        (self.are_left_out, self.relisted) = (false, Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns the times at which a stripe is queried until `until`, if each answer has this count.
    fn queries(recounts: &mut Recounts, from: u64, until: u64, count: impl Fn(u64) -> Count) -> Vec<u64> {
        let mut queries = Vec::new();
        for at in from..until {
            for number in recounts.take_due(seconds(at), 9, |_| true) {
                queries.push(at);
                recounts.note(seconds(at), seconds(at), number, count(at));
            }
        }
        queries
    }

    #[test]
    fn a_stripe_is_queried_until_its_replicas_agree() {
        let mut recounts = Recounts::default();
        recounts.note(seconds(0), seconds(0), 10, Count::Surplus);
        let removed_at = |removed: u64| move |at| if at < removed { Count::Surplus } else { Count::Agreed };
        assert_eq!(queries(&mut recounts, 0, 1000, removed_at(70)), [2, 6, 14, 30, 62, 126]);
        assert!(recounts.stripes.is_empty());
        recounts.note(seconds(0), seconds(0), 10, Count::Surplus);
        let all = queries(&mut recounts, 0, 5000, removed_at(9999));
        assert!(all.windows(2).skip(9).all(|pair| pair[1] - pair[0] == LAST.as_secs()), "{all:?}");
        assert!(all.len() > 10);
        recounts.restart(seconds(5000), &BTreeSet::from([10]));
        assert_eq!(queries(&mut recounts, 5000, 5100, removed_at(5003)), [5002, 5006]);
    }

    #[test]
    fn a_shortage_on_the_lists_needs_no_other_query() {
        let mut recounts = Recounts::default();
        recounts.note(seconds(0), seconds(0), 10, Count::Short);
        assert_eq!(recounts.take_due(seconds(2), 9, |_| true), [10], "it is not on the lists yet");
        recounts.take_lists([10]);
        recounts.note(seconds(3), seconds(3), 10, Count::Short);
        assert!(recounts.take_due(seconds(99), 9, |_| true).is_empty());
        recounts.note(seconds(99), seconds(99), 10, Count::Surplus);
        assert_eq!(recounts.take_due(seconds(101), 9, |_| true), [10]);
    }

    #[test]
    fn a_late_answer_to_an_earlier_query_ends_nothing() {
        let mut recounts = Recounts::default();
        recounts.note(seconds(5), seconds(5), 10, Count::Surplus);
        recounts.note(seconds(6), seconds(4), 10, Count::Agreed);
        assert_eq!(recounts.take_due(seconds(7), 9, |_| true), [10]);
    }

    #[test]
    fn queries_and_memory_are_bounded() {
        let mut recounts = Recounts::default();
        let most = MOST as i64;
        (0..=most).for_each(|number| recounts.note(seconds(0), seconds(0), number, Count::Surplus));
        assert_eq!(recounts.stripes.len(), MOST);
        assert_eq!(recounts.take_due(seconds(9), 3, |_| true), [0, 1, 2]);
        assert_eq!(recounts.take_due(seconds(9), 3, |_| true), [3, 4, 5]);
        assert!(!recounts.take_left_out(seconds(9)));
        assert_eq!(recounts.take_due(seconds(9), 9, |number| number > most - 5).len(), 4);
        assert_eq!(recounts.stripes.len(), 4 + 6, "stripes that are gone are forgotten");
        assert!(recounts.take_left_out(seconds(10)));
        assert!(!recounts.take_left_out(seconds(10)));
    }
}
