//! What both listeners do with somebody of whom nothing is known yet: the handshake, with bounds on how many are under
//! way and how many connections there are, and a log that nobody can fill from outside.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Handshakes under way at once, from one address and from all.
const SHAKING_FROM_ONE: usize = 128;
const SHAKING_AT_ONCE: usize = 512;
/// One listener has at most one of so many of the process's descriptors, and this many connections at most.
const SHARE: u64 = 4;
const MOST_CONNECTIONS: u64 = 4096;
const FEWEST_CONNECTIONS: u64 = 64;
/// Refused connections are told of once in this time, with their number.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(30);
/// How long to wait when the system gives no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The door of one listener.
pub(crate) struct Door {
    /// What is behind it, for the log.
    name: &'static str,
    tls: TlsAcceptor,
    connections: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    shaking: BTreeMap<IpAddr, usize>,
    /// Refused since the log last said so.
    refused: u64,
    last: String,
    told: Option<Instant>,
}

/// A connection's place among those that there may be.
pub(crate) type Place = OwnedSemaphorePermit;

impl Door {
    /// A door in a process that may have so many descriptors.
    pub(crate) fn new(name: &'static str, tls: Arc<ServerConfig>, descriptors: u64) -> Arc<Self> {
        let connections = (descriptors / SHARE).clamp(FEWEST_CONNECTIONS, MOST_CONNECTIONS) as usize;
        Arc::new(Self {
            name,
            tls: TlsAcceptor::from(tls),
            connections: Arc::new(Semaphore::new(connections)),
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
        let place = self.connections.clone().try_acquire_owned();
        let place = place.map_err(|_| "there are too many connections".to_owned())?;
        let _shaking = Shaking::begin(self, address).ok_or("too many others are shaking hands")?;
        let _ = socket.set_nodelay(true); // Slower, but right, without it.
        match timeout(HANDSHAKE_LIMIT, self.tls.accept(socket)).await {
            Ok(Ok(stream)) => Ok((stream, place)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the handshake took longer than {} s", HANDSHAKE_LIMIT.as_secs())),
        }
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

/// A handshake that is under way.
struct Shaking<'a> {
    door: &'a Door,
    address: IpAddr,
}

impl<'a> Shaking<'a> {
    fn begin(door: &'a Door, address: IpAddr) -> Option<Self> {
        let mut state = door.state();
        let (all, here) = (state.shaking.values().sum::<usize>(), state.shaking.entry(address).or_default());
        if all >= SHAKING_AT_ONCE || *here >= SHAKING_FROM_ONE {
            return None;
        }
        *here += 1;
        Some(Self { door, address })
    }
}

impl Drop for Shaking<'_> {
    fn drop(&mut self) {
        let mut state = self.door.state();
        if let Some(here) = state.shaking.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                state.shaking.remove(&self.address);
            }
        }
    }
}
