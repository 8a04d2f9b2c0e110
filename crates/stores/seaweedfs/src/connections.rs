//! Connections to volume servers, kept for later calls: a repair makes dozens of calls to every server of a volume, and a
//! new connection costs a server more than most calls.
//!
//! A kept connection is tested before a call if it was not tested lately, because a server that hangs would hold the call
//! up for longer than the test, and a connection whose other end is gone may not notice for half a minute. If the server
//! does not answer on it, or a call on it has failed, a new connection is made, whose error names the reason.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::address::ServerAddress;
use crate::error::AskError;
use crate::security::Security;
use crate::server::VolumeServer;

/// How long calls follow a test without another one.
const TEST_EVERY: Duration = Duration::from_secs(1);
/// Timeout of a test.
const TEST_LIMIT: Duration = Duration::from_secs(2);
/// How long an unused connection is kept.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The kept connections, by address, each with the time of its last test.
#[derive(Default)]
pub(crate) struct Connections(Mutex<BTreeMap<ServerAddress, (VolumeServer, Instant)>>);

impl Connections {
    /// Returns a connection to a server.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn to(&self, address: &ServerAddress, security: &Security) -> Result<VolumeServer, AskError> {
        if let Some((server, tested)) = self.kept(address) {
            if tested.elapsed() < TEST_EVERY {
                return Ok(server);
            }
            if server.answers_within(TEST_LIMIT).await {
                self.keep(&server);
                return Ok(server);
            }
        }
        let server = VolumeServer::connect(address, security).await?;
        self.keep(&server);
        Ok(server)
    }

    /// Returns the kept connection, if no call on it has failed. Drops the connections that were not used lately.
    fn kept(&self, address: &ServerAddress) -> Option<(VolumeServer, Instant)> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (server, tested)| !server.has_failed() && tested.elapsed() < KEPT_FOR);
        kept.get(address).cloned()
    }

    fn keep(&self, server: &VolumeServer) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(server.address().clone(), (server.clone(), Instant::now()));
    }
}
