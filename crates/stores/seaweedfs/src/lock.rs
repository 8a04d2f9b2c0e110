//! The lock that SeaweedFS's own maintenance takes: while Mend has it, `ec.rebuild`, `ec.balance` and all other
//! commands of `weed shell` that change something wait, by hand or from a script.
//!
//! The master keeps it for 10 s at a time, in memory. It is renewed each 3 s over one connection of its own; when that
//! connection breaks the lock is lost, since a master that was restarted, or another one that was elected, has forgotten
//! it, and would "renew" it for anybody, also after somebody else had it meanwhile. So would any master once the lease
//! has run out, which therefore loses the lock as well.

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

/// SeaweedFS's shell and its scripts take the lock of this name.
pub const LOCK_NAME: &str = "shell";

const RENEW_EVERY: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// The master's lease is 10 s from when it heard of it; ours begins when it was asked, and ends a second earlier.
const LEASE: Duration = Duration::from_secs(9);

/// Who has the lock, as the master tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// What it calls itself.
    pub client: String,
    /// What it says it does.
    pub message: String,
}

/// The lock, held. It is let go when this is dropped.
#[derive(Debug)]
pub struct Lock {
    state: Arc<State>,
    lost: watch::Receiver<Option<AskError>>,
    stop: Option<oneshot::Sender<()>>,
    renewal: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    until: Mutex<Instant>,
}

impl State {
    fn set(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn get(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lock {
    /// Takes the lock, if nobody has it.
    ///
    /// # Errors
    /// [`AskError::Locked`] if somebody has it; others if the master cannot be asked.
    pub async fn take(master: &MasterClient, name: &str, message: &str) -> Result<Self, AskError> {
        let (address, client) = master.own_connection().await?;
        let mut lease =
            Lease { client, address, name: name.to_owned(), message: message.to_owned(), token: None };
        let until = match lease.renew().await {
            Err(error @ AskError::NotLeader { .. }) => {
                master.forget_leader().await;
                return Err(error);
            }
            until => until?,
        };
        let state = Arc::new(State { until: Mutex::new(until) });
        let (stop, stopped) = oneshot::channel();
        let (tell, lost) = watch::channel(None);
        let renewal = tokio::spawn(keep(lease, Arc::clone(&state), stopped, tell));
        Ok(Self { state, lost, stop: Some(stop), renewal })
    }

    /// Whether it is held now, for at least another second by all that the master can know.
    ///
    /// # Errors
    /// Why it was lost. What is under way then is finished or left as it is; nothing new is begun.
    pub fn check(&self) -> Result<(), AskError> {
        if let Some(error) = &*self.lost.borrow() {
            return Err(error.clone());
        }
        if Instant::now() < self.state.get() {
            return Ok(());
        }
        Err(run_out())
    }

    /// Until when it is held if nothing more is heard of the master.
    pub fn held_until(&self) -> Instant {
        self.state.get()
    }

    /// Waits until it is lost, and says why.
    pub async fn lost(&self) -> AskError {
        let mut lost = self.lost.clone();
        let found = lost.wait_for(Option::is_some).await;
        // The task that renews it says why before it ends.
        found.ok().and_then(|error| error.clone()).expect("it is not let go while it is borrowed")
    }

    /// Lets it go, and waits until the master knows.
    pub async fn release(mut self) {
        drop(self.stop.take());
        let _ = (&mut self.renewal).await; // Whatever became of it, it is over.
    }
}

/// Renews the lease until `stopped`, then gives it back.
async fn keep(
    mut lease: Lease,
    state: Arc<State>,
    mut stopped: oneshot::Receiver<()>,
    tell: watch::Sender<Option<AskError>>,
) {
    loop {
        // A renewal is never cut short: the master would have a token that we do not know.
        if tokio::time::timeout(RENEW_EVERY, &mut stopped).await.is_ok() {
            return lease.release().await;
        }
        match lease.renew_before(state.get()).await {
            Ok(until) => state.set(until),
            Err(error) => {
                state.set(Instant::now());
                tell.send_replace(Some(error));
                return lease.release().await; // Should the master have renewed it after all.
            }
        }
    }
}

fn run_out() -> AskError {
    AskError::Locked { holder: "our lease has run out, since nothing was heard of the master".to_owned() }
}

/// A lease with the master that gave it.
struct Lease {
    client: Client,
    address: ServerAddress,
    name: String,
    message: String,
    token: Option<LeaseAdminTokenResponse>,
}

impl Lease {
    /// Takes it or renews it; until when it is ours.
    async fn renew(&mut self) -> Result<Instant, AskError> {
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
        match tokio::time::timeout(ANSWER_LIMIT, self.client.lease_admin_token(request)).await {
            Ok(Ok(answer)) => {
                self.token = Some(answer.into_inner());
                Ok(asked + LEASE)
            }
            Ok(Err(status)) => Err(AskError::of(&self.address, call, &status)),
            Err(_) => Err(AskError::TimedOut { address: self.address.clone(), call }),
        }
    }

    /// Renews it while it is ours until `until`. One that has run out the master gives to anybody, us included, also after
    /// somebody else had it.
    async fn renew_before(&mut self, until: Instant) -> Result<Instant, AskError> {
        if Instant::now() >= until {
            return Err(run_out());
        }
        let renewed = self.renew().await?;
        if Instant::now() < until { Ok(renewed) } else { Err(run_out()) }
    }

    async fn release(&mut self) {
        let Some(token) = self.token.take() else { return };
        let request = ReleaseAdminTokenRequest {
            previous_token: token.token,
            previous_lock_time: token.lock_ts_ns,
            lock_name: LOCK_NAME.to_owned(),
        };
        // If the master does not hear of it, the lease runs out.
        let _ = tokio::time::timeout(ANSWER_LIMIT, self.client.release_admin_token(request)).await;
    }
}
