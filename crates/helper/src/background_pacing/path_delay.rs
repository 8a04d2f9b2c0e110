//! Observes how long packets queue on the paths of connections, from the kernel's statistics of TCP.

use std::collections::BTreeMap;
use std::mem::{offset_of, take};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use nix::sys::socket::GetSockOpt;
use nix::{getsockopt_impl, sockopt_impl};
use tokio::net::TcpStream;

/// The shortest interval between two looks at a connection, and the least number of packets that must have
/// arrived in between. Each acknowledgement is one measurement of the round-trip time.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const FRESH_PACKETS: u32 = 4;
/// The weight that the kernel's mean round-trip time keeps with each measurement.
const KERNEL_KEEPS: f64 = 7.0 / 8.0;
/// The period after which the least round-trip times begin to be forgotten, because routes may change.
const LEAST_LASTS: Duration = Duration::from_secs(300);

/// The positions of fields in the kernel's statistics, in words. Kernels since 4.9 have all of them; later
/// ones have further fields after these.
const ROUND_TRIP: usize = offset_of!(libc::tcp_info, tcpi_rtt) / size_of::<u32>();
const PACKETS_RECEIVED: usize = offset_of!(libc::tcp_info, tcpi_segs_in) / size_of::<u32>();
const LEAST_ROUND_TRIP: usize = offset_of!(libc::tcp_info, tcpi_min_rtt) / size_of::<u32>();
const WORDS: usize = LEAST_ROUND_TRIP + 1;

sockopt_impl!(
    /// `TCP_INFO`: the statistics of a connection, up to the least round-trip time.
    TcpStatistics, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, [u32; WORDS]
);

/// The recent round-trip time of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSample {
    pub(super) peer: IpAddr,
    round_trip: Duration,
    /// The least round-trip time that the kernel remembers.
    least: Duration,
}

/// Watches one connection on which this node sends.
#[derive(Debug, Default)]
pub(crate) struct PathWatch {
    before: Option<Look>,
}

/// The statistics at one time.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    packets: u32,
    /// The kernel's mean round-trip time, in microseconds.
    mean_us: f64,
}

/// The least round-trip times of peers, over all connections. A connection that begins while a link is busy
/// has no low round-trip time of its own.
#[derive(Debug, Default)]
pub(super) struct LeastRoundTrips {
    /// The values of the current period, and of the one before.
    recent: BTreeMap<IpAddr, Duration>,
    older: BTreeMap<IpAddr, Duration>,
    since: Duration,
}

impl PathWatch {
    /// Looks at the connection. Returns `None` if too little has happened since the last look.
    pub(crate) fn look(&mut self, tcp: &TcpStream) -> Option<PathSample> {
        let at = Instant::now();
        if self.before.is_some_and(|before| at < before.at + LOOK_EVERY) {
            return None;
        }
        let words = TcpStatistics.get(tcp).ok()?;
        let look = Look { at, packets: words[PACKETS_RECEIVED], mean_us: f64::from(words[ROUND_TRIP]) };
        let round_trip = look.round_trip_since(self.before.get_or_insert(look))?;
        self.before = Some(look);
        let least = Duration::from_micros(u64::from(words[LEAST_ROUND_TRIP]));
        Some(PathSample { peer: tcp.peer_addr().ok()?.ip(), round_trip, least })
    }
}

impl Look {
    /// Returns the mean of the measurements between two looks, which the kernel has mixed with earlier ones.
    fn round_trip_since(&self, before: &Self) -> Option<Duration> {
        let packets = self.packets.wrapping_sub(before.packets);
        if packets < FRESH_PACKETS {
            return None;
        }
        let kept = KERNEL_KEEPS.powf(f64::from(packets));
        let mean_us = (self.mean_us - kept * before.mean_us) / (1.0 - kept);
        Some(Duration::from_secs_f64(mean_us.max(0.0) / 1e6))
    }
}

impl LeastRoundTrips {
    /// Returns by how much the round-trip time of a connection exceeds the least one to the same peer.
    pub(super) fn queueing_delay(&mut self, sample: &PathSample, now: Duration) -> Duration {
        if now >= self.since + LEAST_LASTS {
            (self.older, self.since) = (take(&mut self.recent), now);
        }
        let recent = self.recent.entry(sample.peer).or_insert(sample.least);
        *recent = sample.least.min(*recent);
        let least = self.older.get(&sample.peer).map_or(*recent, |&older| older.min(*recent));
        sample.round_trip.saturating_sub(least)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[tokio::test]
    async fn the_kernel_reports_round_trip_times() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let mut watch = PathWatch::default();
        assert!(watch.look(&near).is_none(), "there is nothing to compare with");
        for _ in 0..20 {
            near.write_all(&[1]).await.unwrap();
            far.read_u8().await.unwrap();
            far.write_all(&[2]).await.unwrap();
            near.read_u8().await.unwrap();
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let sample = watch.look(&near).expect("many packets have arrived");
        assert_eq!(sample.peer, listener.local_addr().unwrap().ip());
        assert!(sample.least > Duration::ZERO && sample.least < Duration::from_secs(1), "{sample:?}");
        assert!(sample.round_trip < Duration::from_secs(1), "{sample:?}");
        assert!(watch.look(&near).is_none(), "nothing has arrived since");
    }

    /// The kernel's mean follows a change of the round-trip time only slowly.
    #[test]
    fn a_change_is_seen_at_once() {
        let mut look = Look { at: Instant::now(), packets: 7, mean_us: 1000.0 };
        let before = look;
        for _ in 0..5 {
            look.packets += 1;
            look.mean_us += (9000.0 - look.mean_us) / 8.0;
        }
        assert!(look.mean_us < 5000.0);
        let round_trip = look.round_trip_since(&before).unwrap();
        assert!(round_trip.abs_diff(milliseconds(9)) < Duration::from_micros(1), "{round_trip:?}");
        let unchanged = Look { packets: look.packets + FRESH_PACKETS - 1, ..look };
        assert_eq!(unchanged.round_trip_since(&look), None);
    }

    #[test]
    fn delays_are_relative_to_the_least_round_trip_of_the_peer() {
        let sample = |last: u8, round_trip, least| {
            let peer = IpAddr::from([127, 0, 0, last]);
            PathSample { peer, round_trip: milliseconds(round_trip), least: milliseconds(least) }
        };
        let (mut least, start) = (LeastRoundTrips::default(), Duration::ZERO);
        assert_eq!(least.queueing_delay(&sample(1, 8, 2), start), milliseconds(6));
        assert_eq!(least.queueing_delay(&sample(2, 80, 70), start), milliseconds(10), "another peer");
        assert_eq!(least.queueing_delay(&sample(1, 8, 5), start), milliseconds(6), "a busy connection");
        assert_eq!(least.queueing_delay(&sample(1, 8, 5), LEAST_LASTS), milliseconds(6));
        assert_eq!(least.queueing_delay(&sample(1, 8, 5), 2 * LEAST_LASTS), milliseconds(3), "long ago");
    }
}
