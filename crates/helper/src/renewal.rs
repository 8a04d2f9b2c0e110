//! Takes up a renewed certificate without a restart.
//!
//! New connections present it at once. The coordinator closes the standing connection when the certificate expires that
//! this connection was opened with, and a lost connection ends all jobs. So the helper registers again shortly
//! before, at a moment without jobs if there is one. Certificates of several helpers often expire at the same
//! time, so each helper chooses its own moment.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use cluster::{Address, Identity, RENEW_WITHIN};
use tokio::time::Instant;

use crate::engine::blocking;
use crate::session::show_certificate;

/// The interval of checks for a new certificate.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
/// The interval of warnings about a certificate that expires soon.
const WARN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// A helper without jobs registers again when its connection has less time left than this, or up to twice as much.
const IDLE_BEFORE: Duration = Duration::from_secs(60 * 60);
/// A helper with jobs registers again when its connection has less time left than this, or up to twice as much.
const LATEST_BEFORE: Duration = Duration::from_secs(2 * 60);

/// When the standing connection to the coordinator is replaced, after a renewal of the certificate.
pub(crate) struct Reconnection {
    identity: Identity,
    /// When the certificate expires with which the connection was opened.
    expires: SystemTime,
    /// Between 1 and 2: the helper's own moment.
    factor: f64,
}

impl Reconnection {
    /// Takes the certificate for a connection that is opened next.
    pub(crate) fn new(identity: &Identity) -> Self {
        let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
        Self { identity: identity.clone(), expires: identity.expires(), factor: 1.0 + random }
    }

    /// Whether to open another connection now, while the helper has this number of jobs.
    pub(crate) fn is_due(&self, jobs: u32) -> bool {
        let left = self.expires.duration_since(SystemTime::now()).unwrap_or_default();
        self.identity.expires() > self.expires && self.is_near(left, jobs)
    }

    fn is_near(&self, left: Duration, jobs: u32) -> bool {
        let before = if jobs == 0 { IDLE_BEFORE } else { LATEST_BEFORE };
        left < before.mul_f64(self.factor)
    }
}

/// Loads a renewed certificate on another thread, because the folder may respond slowly; returns whether
/// there was one.
pub(crate) async fn refresh_aside(identity: &Identity) -> bool {
    let identity = identity.clone();
    blocking(move || load_renewed(&identity)).await
}

/// Loads a renewed certificate; returns whether there was one. If its files cannot be used, or are being
/// replaced, the former one stays in use.
pub fn load_renewed(identity: &Identity) -> bool {
    match identity.refresh() {
        Ok(true) => {
            tracing::info!("loaded a new certificate");
            true
        }
        Ok(false) => false,
        Err(error) => {
            tracing::debug!(%error, "cannot reload the certificate");
            false
        }
    }
}

/// Periodically loads a renewed certificate, and warns if the current one expires soon. Never returns.
///
/// A helper runs one such task for the lifetime of its process. Its metrics use the certificate also while no
/// [`Daemon`](crate::Daemon) runs, because the folders of blocks cannot be opened.
pub async fn keep_fresh(identity: Identity, coordinator: Address) {
    let mut warned: Option<Instant> = None;
    loop {
        // The existing connection keeps using the old certificate for now, so a separate connection shows the new
        // one to the coordinator.
        if refresh_aside(&identity).await
            && let Err(error) = show_certificate(&coordinator, &identity).await
        {
            tracing::debug!(%error, "the coordinator sees the new certificate at the next connection");
        }
        let left = identity.expires().duration_since(SystemTime::now()).unwrap_or_default();
        if left < RENEW_WITHIN && warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            let (role, days) = (identity.role(), left.as_secs() / 86_400);
            tracing::warn!(
                %role, days, "this certificate expires soon; run `mend renew` on the machine with ca.key"
            );
            warned = Some(Instant::now());
        }
        tokio::time::sleep(REFRESH_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Cluster, InitOptions, Role};

    use super::*;

    #[test]
    fn a_helper_registers_again_before_its_former_certificate_expires() {
        const MINUTE: Duration = Duration::from_secs(60);
        let scratch = tempfile::tempdir().unwrap();
        let cluster = Cluster::init(&scratch.path().join("demo"), &InitOptions::default()).unwrap();
        let guest = Role::Client("guest".parse().unwrap());
        cluster.issue_for(&guest, Some(MINUTE)).unwrap();
        let identity = cluster.identity(&guest).unwrap();
        let reconnection = Reconnection::new(&identity);
        assert!(!reconnection.is_due(0), "there is no other certificate");
        cluster.issue_for(&guest, Some(1000 * MINUTE)).unwrap();
        assert!(identity.refresh().unwrap());
        assert!(reconnection.is_due(0) && reconnection.is_due(7));
        assert!(!Reconnection::new(&identity).is_due(0), "the connection has the new one");

        assert!(reconnection.is_near(59 * MINUTE, 0) && !reconnection.is_near(59 * MINUTE, 1));
        assert!(!reconnection.is_near(120 * MINUTE, 0));
        assert!(reconnection.is_near(MINUTE, 1) && !reconnection.is_near(4 * MINUTE, 1));
    }
}
