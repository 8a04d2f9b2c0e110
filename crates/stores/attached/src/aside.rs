//! Runs calls to the store's own servers off the storage thread, in order for each stripe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use repair::StripeId;
use store_api::{Done, Reply, StoreError};
use tokio::runtime::Handle;
use tokio::sync::RwLock;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::Teller;

/// How long a coordinator that ends waits for calls in flight.
const END_LIMIT: Duration = Duration::from_secs(10);

/// The calls in flight.
#[derive(Debug, Default)]
pub struct Aside {
    /// Per stripe, completes with the last call that was begun for it.
    last: BTreeMap<StripeId, oneshot::Receiver<()>>,
    /// Read-locked by every call in flight.
    under_way: Arc<RwLock<()>>,
}

impl Aside {
    /// Begins work for a stripe, after everything begun for it before. `done` receives the result, after the changes that
    /// the work reported.
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
        let under_way = Arc::clone(&self.under_way).try_read_owned(); // Write-locked only at the end.
        runtime.spawn(async move {
            let _under_way = under_way;
            if let Some(before) = before {
                let _ = before.await; // Whatever its result.
            }
            let result = work.await;
            teller.then(move || done(result));
            drop(ended);
        });
    }

    /// Waits until no call is in flight; `false` after a timeout.
    pub async fn end(&self) -> bool {
        tokio::time::timeout(END_LIMIT, self.under_way.write()).await.is_ok()
    }
}
