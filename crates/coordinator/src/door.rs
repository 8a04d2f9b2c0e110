//! What both listeners do with somebody of whom nothing is known yet: the handshake, with bounds on how many are under
//! way and how many connections there are, and a log that nobody can fill from outside.
//!
//! Strangers and members have separate places: a connection gets a member's place after its handshake, when its
//! certificate is known to be the cluster's. A burst of strangers therefore fills only the strangers' places. When these
//! are full, a handshake of the address that has most of them is given up for the newcomer: the oldest that has not said
//! a word, or else the oldest. A member speaks at once and is through in milliseconds; a stranger who only holds a
//! connection would stay for the whole time limit.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// One listener has at most one of so many of the process's descriptors, and this many connections at most.
const SHARE: u64 = 4;
const MOST_CONNECTIONS: u64 = 4096;
const FEWEST_CONNECTIONS: u64 = 64;
/// One of so many connections may be shaking hands, and this many at most.
const STRANGERS_SHARE: u64 = 2;
const MOST_STRANGERS: u64 = 1024;
/// Refused connections are told of once in this time, with their number.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(30);
/// How long to wait when the system gives no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The door of one listener.
pub(crate) struct Door {
    /// What is behind it, for the log.
    name: &'static str,
    tls: TlsAcceptor,
    members: Arc<Semaphore>,
    /// Handshakes that may be under way at once.
    strangers: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shaking: Handshakes,
    /// Refused since the log last said so.
    refused: u64,
    last: String,
    told: Option<Instant>,
}

/// A member's place among those that there may be.
pub(crate) type Place = OwnedSemaphorePermit;

impl Door {
    /// A door in a process that may have so many descriptors.
    pub(crate) fn new(name: &'static str, tls: Arc<ServerConfig>, descriptors: u64) -> Arc<Self> {
        let connections = (descriptors / SHARE).clamp(FEWEST_CONNECTIONS, MOST_CONNECTIONS);
        let strangers = (connections / STRANGERS_SHARE).min(MOST_STRANGERS);
        Arc::new(Self {
            name,
            tls: TlsAcceptor::from(tls),
            members: Arc::new(Semaphore::new((connections - strangers) as usize)),
            strangers: strangers as usize,
            state: Mutex::default(),
        })
    }

    /// Shakes hands with whoever has come; says so if nothing comes of it.
    pub(crate) async fn enter(
        &self,
        socket: TcpStream,
        address: SocketAddr,
    ) -> Option<(TlsStream<TcpStream>, Place)> {
        match self.shake(socket, address.ip()).await {
            Ok(entered) => Some(entered),
            Err(why) => {
                self.refused(address, &why);
                None
            }
        }
    }

    async fn shake(
        &self,
        socket: TcpStream,
        address: IpAddr,
    ) -> Result<(TlsStream<TcpStream>, Place), String> {
        let shaking = Shaking::begin(self, address);
        let _ = socket.set_nodelay(true); // Slower, but right, without it.
        let handshake = async {
            socket.readable().await?;
            shaking.speaks();
            self.tls.accept(socket).await
        };
        let shaken = tokio::select! {
            shaken = timeout(HANDSHAKE_LIMIT, handshake) => shaken,
            () = shaking.given_up.notified() => return Err("others came, and its handshake was the oldest".into()),
        };
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("the handshake took longer than {} s", HANDSHAKE_LIMIT.as_secs())),
        };
        let place = self.members.clone().try_acquire_owned();
        Ok((stream, place.map_err(|_| "members have too many connections".to_owned())?))
    }

    /// Counts a connection that was refused, and says so now and then.
    pub(crate) fn refused(&self, address: impl std::fmt::Display, why: &str) {
        let mut state = self.state();
        state.refused += 1;
        state.last = format!("{address}: {why}");
        self.tell(&mut state);
    }

    /// Says what was refused and is not told yet; to be called now and then.
    pub(crate) fn tell_rest(&self) {
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

    /// Out of file descriptors, most likely: others will close theirs.
    pub(crate) async fn pause_after(&self, error: std::io::Error) {
        self.refused("no connection can be accepted", &error.to_string());
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handshakes under way, by the address that they come from.
#[derive(Default)]
struct Handshakes {
    begun: u64,
    /// In the order in which they are given up: who has said nothing first, and the oldest of these.
    by_address: BTreeMap<IpAddr, BTreeMap<Standing, Arc<Notify>>>,
}

/// Whether the other end has said something, and the number of the handshake in the order in which they began.
type Standing = (bool, u64);

impl Handshakes {
    fn count(&self) -> usize {
        self.by_address.values().map(BTreeMap::len).sum()
    }

    fn begin(&mut self, address: IpAddr) -> (u64, Arc<Notify>) {
        self.begun += 1;
        let given_up = Arc::new(Notify::new());
        self.by_address.entry(address).or_default().insert((false, self.begun), given_up.clone());
        (self.begun, given_up)
    }

    fn speaks(&mut self, address: IpAddr, number: u64) {
        if let Some(here) = self.by_address.get_mut(&address)
            && let Some(given_up) = here.remove(&(false, number))
        {
            here.insert((true, number), given_up);
        }
    }

    fn end(&mut self, address: IpAddr, number: u64) {
        if let Some(here) = self.by_address.get_mut(&address) {
            here.remove(&(false, number));
            here.remove(&(true, number));
            if here.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }

    /// Ends a handshake of the address that has most of them.
    fn give_up_one(&mut self) {
        let most = self.by_address.iter().max_by_key(|(_, here)| here.len()).map(|(&address, _)| address);
        let Some(address) = most else { return };
        let here = self.by_address.get_mut(&address).expect("it was just found");
        if let Some(((_, number), given_up)) = here.pop_first() {
            given_up.notify_one(); // Kept for it if it does not wait yet.
            self.end(address, number);
        }
    }
}

/// A handshake that is under way.
struct Shaking<'a> {
    door: &'a Door,
    address: IpAddr,
    number: u64,
    given_up: Arc<Notify>,
}

impl<'a> Shaking<'a> {
    fn begin(door: &'a Door, address: IpAddr) -> Self {
        let mut state = door.state();
        if state.shaking.count() >= door.strangers {
            state.shaking.give_up_one();
        }
        let (number, given_up) = state.shaking.begin(address);
        Self { door, address, number, given_up }
    }

    /// The other end has said something.
    fn speaks(&self) {
        self.door.state().shaking.speaks(self.address, self.number);
    }
}

impl Drop for Shaking<'_> {
    fn drop(&mut self) {
        self.door.state().shaking.end(self.address, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_busiest_address_makes_way() {
        let mut shaking = Handshakes::default();
        let [busy, calm] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        shaking.begin(calm);
        let (oldest, given_up) = shaking.begin(busy);
        shaking.begin(busy);
        shaking.give_up_one();
        assert_eq!(shaking.count(), 2);
        assert!(!shaking.by_address[&busy].contains_key(&(false, oldest)));
        assert_eq!(Arc::strong_count(&given_up), 1, "nothing of it is kept");
        shaking.end(busy, oldest); // As its task does when it hears of it.
        assert_eq!(shaking.count(), 2);
    }

    #[test]
    fn who_has_said_nothing_makes_way_before_who_speaks() {
        let mut shaking = Handshakes::default();
        let here = IpAddr::from([10, 0, 0, 1]);
        let [speaking, silent] = [(); 2].map(|()| shaking.begin(here).0);
        shaking.speaks(here, speaking);
        shaking.give_up_one();
        assert_eq!(shaking.by_address[&here].keys().collect::<Vec<_>>(), [&(true, speaking)]);
        shaking.speaks(here, silent); // It does not come back by this.
        assert_eq!(shaking.count(), 1);
        shaking.end(here, speaking);
        assert_eq!(shaking.count(), 0);
    }
}
