//! The order of listings. Pure: time is an argument.
//!
//! Tasks request listings of the whole cluster and of single volumes at the same time, and the answers come in any
//! order. Every listing contains all servers. Their ordinary volumes are complete only in a listing of the whole
//! cluster. A listing is applied as far as no other one that was requested later was applied before it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// When the requests for the applied listings were sent.
#[derive(Default)]
pub(super) struct Freshness {
    /// The newest listing of any kind.
    servers: Option<Instant>,
    /// The newest listing of the whole cluster.
    whole: Option<Instant>,
    /// The longest time from that listing to the request for the next one.
    pause: Duration,
    /// Volumes that were listed on their own after that listing.
    volumes: BTreeMap<u32, Instant>,
}

impl Freshness {
    /// Records that a listing of the whole cluster was applied. The next one is requested after `pause` at the latest.
    pub fn note_whole(&mut self, asked: Instant, pause: Duration) {
        self.servers = self.servers.max(Some(asked));
        self.whole = Some(asked);
        self.pause = pause;
        self.volumes.retain(|_, listed| *listed > asked);
    }

    /// Records that a listing of one volume was applied.
    pub fn note_volume(&mut self, volume: u32, asked: Instant) {
        self.servers = self.servers.max(Some(asked));
        self.volumes.insert(volume, asked);
    }

    /// Whether the servers are known from a listing that was requested later than this one.
    pub fn knows_newer_servers(&self, asked: Instant) -> bool {
        self.servers.is_some_and(|servers| asked < servers)
    }

    /// Whether a volume is known from a listing that was requested later than this one.
    pub fn knows_newer(&self, volume: u32, asked: Instant) -> bool {
        self.whole.max(self.volumes.get(&volume).copied()).is_some_and(|listed| asked < listed)
    }

    /// Returns the volumes that were listed on their own by later requests than this one.
    pub fn newer_volumes(&self, asked: Instant) -> BTreeSet<u32> {
        let newer = self.volumes.iter().filter(|&(_, &listed)| asked < listed);
        newer.map(|(&volume, _)| volume).collect()
    }

    /// Returns the age of what is known of the whole cluster; `None` if the cluster was never listed. Listings of
    /// single volumes do not count: they say nothing about the others.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.whole.map(|whole| now.saturating_duration_since(whole))
    }

    /// Returns the longest time from the last listing of the whole cluster to the request for the next one.
    pub fn pause(&self) -> Duration {
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_volume_has_its_own_newest_listing() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut fresh = Freshness::default();
        assert_eq!(fresh.age(at(0)), None);
        fresh.note_whole(at(1), Duration::from_secs(3));
        fresh.note_volume(5, at(4));
        assert!(!fresh.knows_newer(6, at(2)), "another volume was listed later");
        assert!(fresh.knows_newer(5, at(2)) && fresh.knows_newer(6, at(0)) && !fresh.knows_newer(5, at(4)));
        assert!(fresh.knows_newer_servers(at(3)) && !fresh.knows_newer_servers(at(4)));
        assert_eq!(
            fresh.age(at(9)),
            Some(Duration::from_secs(8)),
            "one volume says nothing about the others"
        );
        fresh.note_volume(6, at(7));
        assert_eq!(fresh.newer_volumes(at(5)), [6].into());
        fresh.note_whole(at(5), Duration::from_secs(60));
        assert!(!fresh.knows_newer(5, at(5)) && fresh.knows_newer(6, at(5)));
        assert_eq!((fresh.newer_volumes(at(0)), fresh.pause().as_secs()), ([6].into(), 60));
    }
}
