//! Connections to volume servers, kept for later calls: a repair makes dozens of calls to every server of a volume, and a
//! new connection costs a server more than most calls.
//!
//! A kept connection is tested before a call if the server has not answered on it lately, because a server that hangs would
//! hold the call up for longer than the test, and a connection whose other end is gone may not notice for half a minute. If
//! the server does not answer, or a call has failed, a new connection is made, whose error names the reason.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::address::ServerAddress;
use crate::error::AskError;
use crate::security::Security;
use crate::server::VolumeServer;

/// How long after a server's last answer calls are made without a test.
const TEST_EVERY: Duration = Duration::from_secs(1);
/// Timeout of a test.
const TEST_LIMIT: Duration = Duration::from_secs(2);
/// The first call after this time drops a connection that was not used for as long.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The kept connections, by address.
#[derive(Default)]
pub(crate) struct Connections(Mutex<BTreeMap<ServerAddress, VolumeServer>>);

impl Connections {
    /// Returns a connection to a server.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn to(&self, address: &ServerAddress, security: &Security) -> Result<VolumeServer, AskError> {
        if let Some(server) = self.kept(address)
            && (server.silence() < TEST_EVERY || server.answers_within(TEST_LIMIT).await)
        {
            return Ok(server);
        }
        let server = VolumeServer::connect(address, security).await?;
        self.lock().insert(address.clone(), server.clone());
        Ok(server)
    }

    /// Returns the kept connection, if no call on it has failed. Drops the connections that were not used lately.
    fn kept(&self, address: &ServerAddress) -> Option<VolumeServer> {
        let mut kept = self.lock();
        kept.retain(|_, server| !server.has_failed() && server.silence() < KEPT_FOR);
        kept.get(address).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerAddress, VolumeServer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
