//! The lock of SeaweedFS's own maintenance. While Mend holds it, `ec.rebuild`, `ec.balance` and all other
//! commands of `weed shell` that change the cluster must wait.
//!
//! The master grants the lock as a lease of 10 s, which it keeps in memory only. Mend renews the lease every
//! 3 s over a dedicated connection, and treats the lock as lost when that connection breaks or the lease
//! expires. In both cases the master may have forgotten the lease. After its restart, after an election or
//! after the expiry, the master grants a "renewal" to any client, even if another client has held the lock
//! meanwhile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::address::ServerAddress;
use crate::error::AskError;
use crate::generated::master_pb::{
    LeaseAdminTokenRequest, LeaseAdminTokenResponse, ReleaseAdminTokenRequest,
};
use crate::master::{Client, MasterClient};

/// The name of the lock that SeaweedFS's shell and scripts use.
pub const LOCK_NAME: &str = "shell";

const RENEW_EVERY: Duration = Duration::from_secs(3);
/// Timeout for the master's answer when the lock is taken or released. A renewal waits until the lease expires.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// How long Mend relies on a lease, counted from the time at which the request was sent. The master's lease
/// of 10 s starts later, when the master receives the request.
const LEASE: Duration = Duration::from_secs(9);

/// The holder of the lock, as the master reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The name that the holder gave.
    pub client: String,
    /// The activity that the holder gave.
    pub message: String,
}

/// The lock, held by this client. Dropping this value releases the lock.
#[derive(Debug)]
pub struct Lock {
    expiry: Arc<Expiry>,
    lost: watch::Receiver<Option<AskError>>,
    stop: Option<oneshot::Sender<()>>,
    renewal: JoinHandle<()>,
}

/// The time at which the lease expires.
#[derive(Debug)]
struct Expiry {
    until: Mutex<Instant>,
}

impl Expiry {
    fn set(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn get(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lock {
    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// [`AskError::Locked`] if another client holds it; other errors if the master cannot be reached.
    pub async fn take(master: &MasterClient, name: &str, message: &str) -> Result<Self, AskError> {
        let (address, client) = master.own_connection().await?;
        let mut lease =
            Lease { client, address, name: name.to_owned(), message: message.to_owned(), token: None };
        let until = match lease.renew(ANSWER_LIMIT).await {
            Err(error @ AskError::NotLeader { .. }) => {
                master.forget_leader().await;
                return Err(error);
            }
            until => until?,
        };
        let expiry = Arc::new(Expiry { until: Mutex::new(until) });
        let (stop, stopped) = oneshot::channel();
        let (tell, lost) = watch::channel(None);
        let renewal = tokio::spawn(keep(lease, Arc::clone(&expiry), stopped, tell));
        Ok(Self { expiry, lost, stop: Some(stop), renewal })
    }

    /// Checks that the lock is still held, with a margin of at least one second.
    ///
    /// # Errors
    /// The reason for the loss. Operations in progress may finish or stop, but no new one may start.
    pub fn check(&self) -> Result<(), AskError> {
        if let Some(error) = &*self.lost.borrow() {
            return Err(error.clone());
        }
        if Instant::now() < self.expiry.get() {
            return Ok(());
        }
        Err(run_out())
    }

    /// Returns the time at which the lease expires unless it is renewed.
    pub fn held_until(&self) -> Instant {
        self.expiry.get()
    }

    /// Waits until the lock is lost, and returns the reason.
    pub async fn lost(&self) -> AskError {
        let mut lost = self.lost.clone();
        let found = lost.wait_for(Option::is_some).await;
        // The renewal task sends the reason before it ends.
        found.ok().and_then(|error| error.clone()).expect("the lock is not released while it is borrowed")
    }

    /// Releases the lock, and waits for the master's confirmation or a timeout.
    pub async fn release(mut self) {
        drop(self.stop.take());
        let _ = (&mut self.renewal).await; // Even if the task panicked, it has ended.
    }
}

/// Renews the lease until `stopped`, then returns it to the master.
async fn keep(
    mut lease: Lease,
    expiry: Arc<Expiry>,
    mut stopped: oneshot::Receiver<()>,
    tell: watch::Sender<Option<AskError>>,
) {
    loop {
        // A renewal is never cancelled: the master might issue a token that this client does not receive.
        if tokio::time::timeout(RENEW_EVERY, &mut stopped).await.is_ok() {
            return lease.release().await;
        }
        match lease.renew_before(expiry.get()).await {
            Ok(until) => expiry.set(until),
            Err(error) => {
                expiry.set(Instant::now());
                tell.send_replace(Some(error));
                return lease.release().await; // The master may have renewed the lease despite the error.
            }
        }
    }
}

fn run_out() -> AskError {
    AskError::Locked { holder: "our lease has expired, because the master did not answer".to_owned() }
}

/// A lease and the connection to the master that granted it.
struct Lease {
    client: Client,
    address: ServerAddress,
    name: String,
    message: String,
    token: Option<LeaseAdminTokenResponse>,
}

impl Lease {
    /// Takes or renews the lease. Waits for the master's answer up to `limit`. Returns the time until which the lease is
    /// held.
    async fn renew(&mut self, limit: Duration) -> Result<Instant, AskError> {
        let call = "LeaseAdminToken";
        let token = self.token.unwrap_or_default();
        let request = LeaseAdminTokenRequest {
            previous_token: token.token,
            previous_lock_time: token.lock_ts_ns,
            lock_name: LOCK_NAME.to_owned(),
            client_name: self.name.clone(),
            message: self.message.clone(),
        };
        let asked = Instant::now();
        match tokio::time::timeout(limit, self.client.lease_admin_token(request)).await {
            Ok(Ok(answer)) => {
                self.token = Some(answer.into_inner());
                Ok(asked + LEASE)
            }
            Ok(Err(status)) => Err(AskError::of(&self.address, call, &status)),
            Err(_) => Err(AskError::TimedOut { address: self.address.clone(), call }),
        }
    }

    /// Renews a lease that expires at `until`, and waits for the answer until then. Fails after the expiry, because the
    /// master then grants the lease to any client, and another client may have held the lock meanwhile.
    async fn renew_before(&mut self, until: Instant) -> Result<Instant, AskError> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(run_out());
        }
        let renewed = self.renew(left).await?;
        if Instant::now() < until { Ok(renewed) } else { Err(run_out()) }
    }

    async fn release(&mut self) {
        let Some(token) = self.token.take() else { return };
        let request = ReleaseAdminTokenRequest {
            previous_token: token.token,
            previous_lock_time: token.lock_ts_ns,
            lock_name: LOCK_NAME.to_owned(),
        };
        // If the request does not reach the master, the lease expires.
        let _ = tokio::time::timeout(ANSWER_LIMIT, self.client.release_admin_token(request)).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tonic::transport::Endpoint;

    use super::*;

    /// One slow answer must not cost the lock while the lease lasts, and no answer counts after it.
    #[tokio::test]
    async fn a_renewal_waits_for_its_answer_until_the_lease_expires() {
        // The kernel accepts the connection, and nothing answers on it.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("bound"));
        let client = Client::new(Endpoint::from_shared(url).expect("an address").connect_lazy());
        let (address, name) = ("127.0.0.1:9333".parse().expect("an address"), "mend".to_owned());
        let mut lease = Lease { client, address, name, message: String::new(), token: None };
        let until = Instant::now() + Duration::from_millis(50);
        lease.renew_before(until).await.expect_err("nothing answers");
        assert!(Instant::now() >= until);
        assert!(until.elapsed() < ANSWER_LIMIT / 2, "the limit is that of the lease");
    }
}
