//! The queueing delay that background transfers cause, from observations of connections to several peers.
//!
//! Each observation contains the queues of this node's links and of the peer's links. The least delay of all connections is
//! the one of this node's links. The links of peers may be full although this node's links are not, because others send to
//! them as well, so each peer counts.
//!
//! Some observations are too high. A receiver that has not read all bytes yet, because it is paced as well or waits for
//! other slices, acknowledges late, by up to 40 ms. This happens now and then, whereas a full queue stays full for long. So
//! the least delay in the last half second counts for each peer.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// The number of steps whose delays count for this node's links, and for each peer.
const OWN_STEPS: usize = 2;
const PEER_STEPS: usize = 10;
/// The delay of a peer counts as at most this many times the target: one peer whose link others fill must not stop the
/// transfers to all.
const MOST_TARGETS: f64 = 2.0;

/// The least delay of each peer in the last steps, from the current step backwards.
#[derive(Debug, Default)]
pub(super) struct Delays {
    steps: VecDeque<BTreeMap<IpAddr, Duration>>,
}

impl Delays {
    /// Notes an observation of the current step.
    pub(super) fn note(&mut self, peer: IpAddr, delay: Duration) {
        if self.steps.is_empty() {
            self.steps.push_front(BTreeMap::new());
        }
        let least = self.steps[0].entry(peer).or_insert(delay);
        *least = delay.min(*least);
    }

    /// Begins another step.
    pub(super) fn step(&mut self) {
        self.steps.push_front(BTreeMap::new());
        self.steps.truncate(PEER_STEPS);
    }

    /// Returns the delay of this node's links; `None` without any observation in the last steps.
    pub(super) fn own(&self) -> Option<Duration> {
        self.steps.iter().take(OWN_STEPS).flat_map(BTreeMap::values).min().copied()
    }

    /// Returns the delay that background transfers cause, on this node's links or on those of peers, for this target;
    /// `None` without any observation in the last steps.
    pub(super) fn of_all(&self, target: Duration) -> Option<Duration> {
        self.own().max(self.mean_of_peers(target.mul_f64(MOST_TARGETS)))
    }

    /// Returns the mean over all peers of the least delay, each at most `most`.
    fn mean_of_peers(&self, most: Duration) -> Option<Duration> {
        let mut peers: BTreeMap<IpAddr, Duration> = BTreeMap::new();
        for (&peer, &delay) in self.steps.iter().flatten() {
            let least = peers.entry(peer).or_insert(delay);
            *least = delay.min(*least);
        }
        let sum: Duration = peers.values().map(|delay| (*delay).min(most)).sum();
        sum.checked_div(peers.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(2);

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Steps with these delays of a number of peers, in milliseconds; returns the delay of the last step.
    fn after(steps: &[&[u64]]) -> Option<Duration> {
        let mut delays = Delays::default();
        let mut last = None;
        for step in steps {
            (1..).zip(*step).for_each(|(number, &delay)| delays.note(peer(number), milliseconds(delay)));
            last = delays.of_all(TARGET);
            delays.step();
        }
        last
    }

    #[test]
    fn a_queue_on_the_own_link_is_known_at_once() {
        assert_eq!(after(&[&[30, 40, 50]]), Some(milliseconds(30)));
        assert_eq!(after(&[&[0, 0, 0], &[30, 40, 50], &[30, 40, 50]]), Some(milliseconds(30)));
        assert_eq!(after(&[&[30, 40, 50], &[1, 40, 50]]), Some(milliseconds(3)), "1, 4 and 4 ms");
    }

    #[test]
    fn full_links_of_half_of_the_peers_count_as_the_target() {
        assert_eq!(after(&[&[0, 0, 30, 40][..]; 20]), Some(TARGET));
        assert_eq!(after(&[&[0, 0, 0, 40][..]; 20]), Some(TARGET / 2));
    }

    #[test]
    fn late_acknowledgements_do_not_count() {
        let steps: Vec<Vec<u64>> = (0..20).map(|at| vec![40 * (at % 3), 40 * ((at + 1) % 3)]).collect();
        let steps: Vec<&[u64]> = steps.iter().map(Vec::as_slice).collect();
        assert_eq!(after(&steps), Some(Duration::ZERO));
    }

    #[test]
    fn observations_are_forgotten() {
        assert_eq!(after(&[&[1, 3], &[], &[], &[]]), Some(milliseconds(2)));
        let mut steps: Vec<&[u64]> = vec![&[]; 12];
        steps[0] = &[1, 3];
        assert_eq!(after(&steps), None);
    }
}
