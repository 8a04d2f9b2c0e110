//! Admission of connections, shared by all listeners of a process: performs the TLS handshake, bounds the numbers of
//! handshakes and connections, and limits the log messages that outsiders can cause.
//!
//! Strangers and members have separate slots: a connection gets a member's slot after its handshake, once its
//! certificate has proved to be the cluster's. A burst of strangers therefore fills only the strangers'
//! slots. When these are full, a newcomer displaces a handshake; otherwise idle strangers would occupy their
//! slots for the whole timeout. The displaced handshake belongs to the IP address with the most handshakes in
//! progress; a /64 of IPv6 counts as one address, because a single machine usually has all of it. Among the
//! handshakes of this address, the oldest whose peer has sent nothing is displaced; if every peer has sent
//! something, the oldest. Several addresses with equally many handshakes are compared in the same way. This rarely
//! hits a member, because members send data at once and finish within milliseconds.
//!
//! When the members' slots are full, a newcomer displaces the oldest connection of the member with the most
//! connections. One member, a faulty plug-in for instance, therefore cannot shut the others out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use cluster::{Role, expiry, peer_role};

/// Timeout of a handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// A listener may use 1/`SHARE` of the process's file descriptors for connections, but at least
/// `FEWEST_CONNECTIONS` and at most `MOST_CONNECTIONS`.
const SHARE: u64 = 4;
const MOST_CONNECTIONS: u64 = 4096;
const FEWEST_CONNECTIONS: u64 = 64;
/// At most 1/`STRANGERS_SHARE` of a listener's connections, and at most `MOST_STRANGERS` of them, may be in
/// their handshakes.
const STRANGERS_SHARE: u64 = 2;
const MOST_STRANGERS: u64 = 1024;
/// The log reports the number of refused connections at most once in this interval.
pub const TELL_EVERY: Duration = Duration::from_secs(30);
/// Interval of checks whether a certificate has expired. The clock may be set meanwhile.
const EXPIRY_CHECKS: Duration = Duration::from_secs(60);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The admission control of one listener.
pub struct Door {
    /// The listener's name, for the log.
    name: &'static str,
    tls: TlsAcceptor,
    /// The maximum number of members' connections.
    members: usize,
    /// The maximum number of concurrent handshakes.
    strangers: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Handshakes in progress, by the peer's [network].
    shaking: Slots<IpAddr>,
    /// Members' connections, by the role in the certificate.
    members: Slots<Option<Role>>,
    /// Refused connections since the last log message.
    refused: u64,
    last: String,
    told: Option<Instant>,
}

/// A connection of a member.
pub struct Admitted {
    /// The connection after its handshake.
    pub stream: TlsStream<TcpStream>,
    /// The role in the peer's certificate; `None` if the certificate names no role.
    pub role: Option<Role>,
    /// When the peer's certificate expires; `None` if this cannot be read.
    pub expires: Option<SystemTime>,
    /// The connection's slot.
    pub slot: MemberSlot,
}

/// Returns once a certificate with this expiry has expired by the system's clock. Never returns for `None`.
pub async fn expired(expires: Option<SystemTime>) {
    let Some(expires) = expires else { return std::future::pending().await };
    while let Ok(left) = expires.duration_since(SystemTime::now())
        && !left.is_zero()
    {
        sleep(left.min(EXPIRY_CHECKS)).await;
    }
}

/// A member's slot, freed when dropped.
pub struct MemberSlot {
    door: Arc<Door>,
    member: Option<Role>,
    number: u64,
    given_up: Arc<Notify>,
}

impl MemberSlot {
    /// Returns once the connection must be closed, because a newcomer needs the slot.
    pub async fn displaced(&self) {
        self.given_up.notified().await;
        let member = self.member.as_ref().map_or_else(|| "a member".to_owned(), Role::to_string);
        self.door.refused(
            member,
            "closed the oldest connection of this member, because it has the most connections",
        );
    }
}

impl Drop for MemberSlot {
    fn drop(&mut self) {
        self.door.state().members.end(&self.member, self.number);
    }
}

impl Door {
    /// Creates the admission control for a process with this limit of file descriptors.
    pub fn new(name: &'static str, tls: Arc<ServerConfig>, descriptors: u64) -> Arc<Self> {
        let connections = (descriptors / SHARE).clamp(FEWEST_CONNECTIONS, MOST_CONNECTIONS);
        let strangers = (connections / STRANGERS_SHARE).min(MOST_STRANGERS);
        Arc::new(Self {
            name,
            tls: TlsAcceptor::from(tls),
            members: (connections - strangers) as usize,
            strangers: strangers as usize,
            state: Mutex::default(),
        })
    }

    /// Performs the handshake of a new connection. If it fails, counts the connection as refused and returns
    /// `None`.
    pub async fn enter(self: &Arc<Self>, socket: TcpStream, address: SocketAddr) -> Option<Admitted> {
        match self.shake(socket, address.ip()).await.and_then(|stream| self.admit(stream)) {
            Ok(admitted) => Some(admitted),
            Err(why) => {
                self.refused(address, &why);
                None
            }
        }
    }

    /// Gives a member's connection a slot, if its certificate is still valid: a resumed session presents the certificate
    /// of its first handshake, which is not verified again.
    fn admit(self: &Arc<Self>, stream: TlsStream<TcpStream>) -> Result<Admitted, String> {
        let certificates = stream.get_ref().1.peer_certificates();
        let role = certificates.and_then(peer_role);
        let expires = certificates.and_then(|chain| expiry(chain.first()?));
        if expires.is_some_and(|expires| expires <= SystemTime::now()) {
            let member = role.map_or_else(|| "a member".to_owned(), |role| role.to_string());
            return Err(format!("the certificate of {member} has expired"));
        }
        let mut state = self.state();
        if state.members.count() >= self.members {
            state.members.give_up_one();
        }
        let (number, given_up) = state.members.begin(role.clone());
        drop(state);
        Ok(Admitted {
            stream,
            role: role.clone(),
            expires,
            slot: MemberSlot { door: self.clone(), member: role, number, given_up },
        })
    }

    async fn shake(&self, socket: TcpStream, address: IpAddr) -> Result<TlsStream<TcpStream>, String> {
        let shaking = Shaking::begin(self, address);
        let _ = socket.set_nodelay(true); // A failure only makes the connection slower.
        let handshake = async {
            socket.readable().await?;
            shaking.speaks();
            self.tls.accept(socket).await
        };
        let shaken = tokio::select! {
            shaken = timeout(HANDSHAKE_LIMIT, handshake) => shaken,
            () = shaking.given_up.notified() => return Err("too many handshakes at once".into()),
        };
        match shaken {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the handshake took longer than {} s", HANDSHAKE_LIMIT.as_secs())),
        }
    }

    /// Counts a refused connection, and logs the number at intervals.
    pub fn refused(&self, address: impl std::fmt::Display, why: &str) {
        let mut state = self.state();
        state.refused += 1;
        state.last = format!("{address}: {why}");
        self.tell(&mut state);
    }

    /// Logs refused connections that were not reported yet; called at intervals.
    pub fn tell_rest(&self) {
        let mut state = self.state();
        if state.refused > 0 {
            self.tell(&mut state);
        }
    }

    fn tell(&self, state: &mut State) {
        if state.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return;
        }
        tracing::warn!(door = self.name, refused = state.refused, last = %state.last, "refused connections");
        (state.refused, state.told) = (0, Some(Instant::now()));
    }

    /// Pauses after a failed accept. The process has probably run out of file descriptors, and some may
    /// become free during the pause.
    pub async fn pause_after(&self, error: std::io::Error) {
        self.refused("cannot accept connections", &error.to_string());
        sleep(ACCEPT_PAUSE).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Occupied slots, by the peer that occupies them.
pub(crate) struct Slots<Peer> {
    /// The number of slots that were ever occupied.
    begun: u64,
    /// Each peer's slots in the order of displacement: first the connections whose peer has sent nothing, then
    /// the others; the oldest first in both groups.
    by_peer: BTreeMap<Peer, BTreeMap<Standing, Arc<Notify>>>,
}

/// Whether the peer has sent something (during its handshake, or a request without encryption), and the sequence number of the connection.
type Standing = (bool, u64);

impl<Peer> Default for Slots<Peer> {
    fn default() -> Self {
        Self { begun: 0, by_peer: BTreeMap::new() }
    }
}

impl<Peer: Ord + Clone> Slots<Peer> {
    pub(crate) fn count(&self) -> usize {
        self.by_peer.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn begin(&mut self, peer: Peer) -> (u64, Arc<Notify>) {
        self.begun += 1;
        let given_up = Arc::new(Notify::new());
        self.by_peer.entry(peer).or_default().insert((false, self.begun), given_up.clone());
        (self.begun, given_up)
    }

    pub(crate) fn speaks(&mut self, peer: &Peer, number: u64) {
        if let Some(here) = self.by_peer.get_mut(peer)
            && let Some(given_up) = here.remove(&(false, number))
        {
            here.insert((true, number), given_up);
        }
    }

    pub(crate) fn end(&mut self, peer: &Peer, number: u64) {
        if let Some(here) = self.by_peer.get_mut(peer) {
            here.remove(&(false, number));
            here.remove(&(true, number));
            if here.is_empty() {
                self.by_peer.remove(peer);
            }
        }
    }

    /// Displaces a connection of the peer with the most connections; of several such peers, that with the connection
    /// that is displaced first.
    pub(crate) fn give_up_one(&mut self) {
        let rank = |here: &BTreeMap<Standing, _>| (here.len(), Reverse(here.keys().next().copied()));
        let most = self.by_peer.iter().max_by_key(|(_, here)| rank(here)).map(|(peer, _)| peer.clone());
        let Some(peer) = most else { return };
        let here = self.by_peer.get_mut(&peer).expect("the peer was just found");
        if let Some(((_, number), given_up)) = here.pop_first() {
            given_up.notify_one(); // The notification is kept if the task is not waiting yet.
            self.end(&peer, number);
        }
    }
}

/// Returns the address under which handshakes are counted: the /64 of an IPv6 address, an IPv4 address itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// A handshake in progress.
struct Shaking<'a> {
    door: &'a Door,
    /// The peer's [network].
    address: IpAddr,
    number: u64,
    given_up: Arc<Notify>,
}

impl<'a> Shaking<'a> {
    fn begin(door: &'a Door, address: IpAddr) -> Self {
        let (address, mut state) = (network(address), door.state());
        if state.shaking.count() >= door.strangers {
            state.shaking.give_up_one();
        }
        let (number, given_up) = state.shaking.begin(address);
        Self { door, address, number, given_up }
    }

    /// Records that the peer has sent something.
    fn speaks(&self) {
        self.door.state().shaking.speaks(&self.address, self.number);
    }
}

impl Drop for Shaking<'_> {
    fn drop(&mut self) {
        self.door.state().shaking.end(&self.address, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_handshake_of_the_busiest_address_is_displaced() {
        let mut shaking = Slots::default();
        let [busy, calm] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        shaking.begin(calm);
        let (oldest, given_up) = shaking.begin(busy);
        shaking.begin(busy);
        shaking.give_up_one();
        assert_eq!(shaking.count(), 2);
        assert!(!shaking.by_peer[&busy].contains_key(&(false, oldest)));
        assert_eq!(Arc::strong_count(&given_up), 1, "nothing of it is kept");
        shaking.end(&busy, oldest); // The displaced task does this when it is notified.
        assert_eq!(shaking.count(), 2);
    }

    /// Otherwise the highest addresses would always pay.
    #[test]
    fn of_many_addresses_the_one_with_the_oldest_silent_handshake_pays() {
        let mut shaking = Slots::default();
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let speaking = shaking.begin(address(1)).0;
        shaking.speaks(&address(1), speaking);
        for last in [2, 3, 200] {
            shaking.begin(address(last));
        }
        for displaced in [2, 3, 200, 1] {
            shaking.give_up_one();
            assert!(!shaking.by_peer.contains_key(&address(displaced)));
        }
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:1::7"), of("2001:db8:0:1:ffff::8"));
        assert_ne!(of("2001:db8:0:1::7"), of("2001:db8:0:2::7"));
        assert_eq!(of("::ffff:10.0.0.1"), IpAddr::from([10, 0, 0, 1]));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[tokio::test]
    async fn a_certificate_expires_by_the_clock() {
        let soon = Duration::from_millis(200);
        let now = SystemTime::now();
        timeout(soon, expired(Some(now - soon))).await.unwrap();
        timeout(2 * soon, expired(Some(now + soon / 2))).await.unwrap();
        assert!(timeout(soon, expired(Some(now + 100 * soon))).await.is_err());
        assert!(timeout(soon, expired(None)).await.is_err());
    }

    #[test]
    fn silent_handshakes_are_displaced_before_active_ones() {
        let mut shaking = Slots::default();
        let here = IpAddr::from([10, 0, 0, 1]);
        let [speaking, silent] = [(); 2].map(|()| shaking.begin(here).0);
        shaking.speaks(&here, speaking);
        shaking.give_up_one();
        assert_eq!(shaking.by_peer[&here].keys().collect::<Vec<_>>(), [&(true, speaking)]);
        shaking.speaks(&here, silent); // A cancelled handshake stays cancelled.
        assert_eq!(shaking.count(), 1);
        shaking.end(&here, speaking);
        assert_eq!(shaking.count(), 0);
    }
}
