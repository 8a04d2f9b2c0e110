//! Runs calls to the store's own servers off the coordinator's storage thread. Calls for the same stripe keep
//! their order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use repair::StripeId;
use store_api::{Done, Reply, StoreError};
use tokio::runtime::Handle;
use tokio::sync::RwLock;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::Teller;

/// Timeout for calls in flight when the coordinator shuts down.
const END_LIMIT: Duration = Duration::from_secs(10);

/// The calls in flight.
#[derive(Debug, Default)]
pub struct Aside {
    /// Per stripe, a channel that closes when the stripe's last call ends.
    last: BTreeMap<StripeId, oneshot::Receiver<()>>,
    /// Every call in flight holds a read lock; the write lock therefore waits for all of them.
    under_way: Arc<RwLock<()>>,
}

impl Aside {
    /// Queues work for a stripe and returns at once. The work starts when all earlier work for that stripe
    /// has ended. `done` receives the result after the listener has received the changes that the work
    /// reported.
    pub fn begin(
        &mut self,
        runtime: &Handle,
        teller: &Teller,
        stripe: StripeId,
        work: impl Future<Output = Result<Done, StoreError>> + Send + 'static,
        done: Reply,
    ) {
        self.last.retain(|_, last| matches!(last.try_recv(), Err(TryRecvError::Empty)));
        let (ended, last) = oneshot::channel();
        let before = self.last.insert(stripe, last);
        let teller = teller.clone();
        let under_way = Arc::clone(&self.under_way).try_read_owned(); // Fails only during shutdown.
        runtime.spawn(async move {
            let _under_way = under_way;
            if let Some(before) = before {
                let _ = before.await; // Waits for the end of the earlier call, even if it failed.
            }
            let result = work.await;
            teller.then(move || done(result));
            drop(ended);
        });
    }

    /// Waits until no call is in flight. Returns `false` on a timeout.
    pub async fn end(&self) -> bool {
        tokio::time::timeout(END_LIMIT, self.under_way.write()).await.is_ok()
    }
}
