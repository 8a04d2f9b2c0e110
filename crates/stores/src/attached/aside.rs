//! What takes long is done aside, so that nothing else waits for it: asking the store's own servers for stripes, publishing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use repair::StripeId;
use tokio::runtime::Handle;
use tokio::sync::RwLock;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::Teller;
use crate::{Done, Reply, StoreError};

/// What is under way when a coordinator ends has this long.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What is under way.
#[derive(Debug, Default)]
pub struct Aside {
    /// Ends with the last that was begun for a stripe.
    last: BTreeMap<StripeId, oneshot::Receiver<()>>,
    /// Held to read by all that is under way.
    under_way: Arc<RwLock<()>>,
}

impl Aside {
    /// Begins work for a stripe, after all that was begun for it before; `done` hears its end, after what it told.
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
        let under_way = Arc::clone(&self.under_way).try_read_owned(); // Nobody writes before the end.
        runtime.spawn(async move {
            let _under_way = under_way;
            if let Some(before) = before {
                let _ = before.await; // However it ended.
            }
            let result = work.await;
            teller.then(move || done(result));
            drop(ended);
        });
    }

    /// Waits until nothing is under way, for a while; whether that came.
    pub async fn end(&self) -> bool {
        tokio::time::timeout(END_LIMIT, self.under_way.write()).await.is_ok()
    }
}
