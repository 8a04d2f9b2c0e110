//! Bounds the connections at the data port that have not yet presented an expected key, and chooses which one
//! to evict.
//!
//! Anyone can dial the data port, so unauthenticated connections get a fixed share of the process's file
//! descriptors. A new connection is always accepted. If its address already holds half of the limit, it
//! evicts the oldest connection from the same address. Otherwise, if the limit is reached, it evicts the
//! oldest connection from the address with the most connections; of several such addresses, from the one with the
//! oldest connection. So a flood from one address evicts only its own connections. A /64 of IPv6 counts as one
//! address, because a single machine usually has all of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use repair::EdgeKey;
use tokio::sync::oneshot;

/// Unauthenticated connections get one in this many of the process's file descriptors.
const SHARE: u64 = 4;
/// The maximum and minimum of the limit on unauthenticated connections, whatever the number of descriptors.
const MOST: u64 = 1024;
const FEWEST: u64 = 16;

/// A tracked connection, numbered in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// The connections that have not yet presented an expected key.
#[derive(Debug)]
pub(crate) struct Unauthenticated {
    limit: usize,
    next: u64,
    known: BTreeMap<ConnectionId, Connection>,
    /// The connections of each address, by its [network].
    by_address: BTreeMap<IpAddr, BTreeSet<ConnectionId>>,
}

#[derive(Debug)]
struct Connection {
    /// The [network] of the peer.
    address: IpAddr,
    /// The key that the connection presented before a task expected it.
    key: Option<EdgeKey>,
    evict: oneshot::Sender<()>,
}

/// Returns the maximum number of unauthenticated connections for a process with this many file descriptors.
pub(crate) fn limit(descriptors: u64) -> usize {
    (descriptors / SHARE).clamp(FEWEST, MOST) as usize
}

/// Returns the address under which connections are counted: the /64 of an IPv6 address, an IPv4 address itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

impl Unauthenticated {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, next: 0, known: BTreeMap::new(), by_address: BTreeMap::new() }
    }

    /// Admits a connection. The returned receiver is notified if the connection is evicted later. The last
    /// value is the connection evicted now, if it was waiting under a key.
    pub(crate) fn admit(
        &mut self,
        address: IpAddr,
    ) -> (ConnectionId, oneshot::Receiver<()>, Option<(ConnectionId, EdgeKey)>) {
        let address = network(address);
        let evicted = self.in_the_way(address).and_then(|oldest| {
            let connection = self.leave(oldest)?;
            let _ = connection.evict.send(()); // The connection may have just ended.
            Some((oldest, connection.key?))
        });
        let (evict, hears) = oneshot::channel();
        let id = ConnectionId(self.next);
        self.next += 1;
        self.known.insert(id, Connection { address, key: None, evict });
        self.by_address.entry(address).or_default().insert(id);
        (id, hears, evicted)
    }

    /// Returns the connection to evict if another one arrives from this address.
    fn in_the_way(&self, address: IpAddr) -> Option<ConnectionId> {
        let here = self.by_address.get(&address);
        if let Some(here) = here.filter(|here| here.len() >= self.limit.div_ceil(2)) {
            return here.first().copied();
        }
        if self.known.len() < self.limit {
            return None;
        }
        self.by_address
            .values()
            .max_by_key(|ids| (ids.len(), Reverse(ids.first().copied())))?
            .first()
            .copied()
    }

    /// Records that a connection waits for its task under this key.
    pub(crate) fn waits_for(&mut self, id: ConnectionId, key: EdgeKey) {
        if let Some(connection) = self.known.get_mut(&id) {
            connection.key = Some(key);
        }
    }

    /// Stops tracking a connection, because it has ended or is authenticated.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.leave(id);
    }

    /// Whether no connection is tracked.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn leave(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.known.remove(&id)?;
        if let Some(ids) = self.by_address.get_mut(&connection.address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_address.remove(&connection.address);
            }
        }
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn one_address_holds_half_and_loses_its_oldest() {
        let mut unauthenticated = Unauthenticated::new(8);
        let mut hears: Vec<_> = (0..6).map(|_| unauthenticated.admit(address(1))).collect();
        let evicted: Vec<bool> = hears.iter_mut().map(|(_, hears, _)| hears.try_recv().is_ok()).collect();
        assert_eq!(evicted, [true, true, false, false, false, false]);
        assert_eq!(unauthenticated.known.len(), 4);
    }

    #[test]
    fn all_together_are_bounded_and_the_greediest_address_pays() {
        let mut unauthenticated = Unauthenticated::new(8);
        let mut greedy: Vec<_> = (0..4).map(|_| unauthenticated.admit(address(1))).collect();
        let mut others: Vec<_> = (2..10).map(|last| unauthenticated.admit(address(last))).collect();
        assert_eq!(unauthenticated.known.len(), 8);
        let gone = |all: &mut Vec<(ConnectionId, oneshot::Receiver<()>, _)>| {
            all.iter_mut().filter_map(|(_, hears, _)| hears.try_recv().ok()).count()
        };
        assert_eq!(gone(&mut greedy) + gone(&mut others), 4);
        assert!(unauthenticated.by_address.values().all(|ids| ids.len() == 1));
    }

    /// Otherwise the highest addresses would always pay.
    #[test]
    fn of_many_addresses_the_one_with_the_oldest_connection_pays() {
        let mut unauthenticated = Unauthenticated::new(8);
        let mut flood: Vec<_> = (1..9).map(|last| unauthenticated.admit(address(last))).collect();
        let (_, mut member, _) = unauthenticated.admit(address(200));
        flood.extend((11..17).map(|last| unauthenticated.admit(address(last))));
        assert!(member.try_recv().is_err(), "it is one of the newest");
        let evicted = flood.iter_mut().map(|(_, hears, _)| hears.try_recv().is_ok());
        assert_eq!(evicted.take_while(|&is_evicted| is_evicted).count(), 7);
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let mut unauthenticated = Unauthenticated::new(8);
        let (_, mut member, _) = unauthenticated.admit("2001:db8:0:1::7".parse().unwrap());
        for host in 0..100_u16 {
            unauthenticated.admit(Ipv6Addr::new(0x2001, 0xdb8, 0, 2, host, host, host, host).into());
        }
        assert!(member.try_recv().is_err(), "it is in another network");
        assert_eq!(unauthenticated.known.len(), 5);
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), address(1));
    }

    #[test]
    fn an_evicted_connection_releases_its_key() {
        let mut unauthenticated = Unauthenticated::new(2);
        let (first, ..) = unauthenticated.admit(address(1));
        unauthenticated.waits_for(first, EdgeKey([7; 16]));
        let (_, _, evicted) = unauthenticated.admit(address(1));
        assert_eq!(evicted, Some((first, EdgeKey([7; 16]))));
        unauthenticated.forget(first);
        assert_eq!(unauthenticated.known.len(), 1);
    }

    #[test]
    fn the_share_follows_the_descriptors() {
        assert_eq!([limit(20), limit(256), limit(1 << 20)], [16, 64, 1024]);
    }
}
