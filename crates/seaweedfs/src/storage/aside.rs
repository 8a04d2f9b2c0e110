//! What takes long is done aside, so that nothing else waits for it: asking SeaweedFS for stripes, mounting, unmounting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use repair::StripeId;
use stores::{Answer, Done, FileWrite, Reply, StoreError, StripeWrite, Term, Write};
use tokio::runtime::Handle;
use tokio::sync::RwLock;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::state::Shared;
use super::telling::Teller;
use super::view::shard_of;

/// What is under way when a coordinator ends has this long.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What is under way.
#[derive(Default)]
pub(super) struct Aside {
    /// Ends with the last that was begun for a stripe.
    last: BTreeMap<StripeId, oneshot::Receiver<()>>,
    /// Held to read by all that is under way.
    under_way: Arc<RwLock<()>>,
}

/// The stripe that a write which takes long is for.
fn stripe_of(write: &Write) -> Option<StripeId> {
    match write {
        Write::Stripes(
            StripeWrite::Publish { stripe, .. }
            | StripeWrite::Claim { stripe, .. }
            | StripeWrite::Release(stripe),
        ) => Some(stripe.clone()),
        Write::Files(FileWrite::Discard(_, block)) => Some(StripeId(shard_of(block)?.volume.to_string())),
        _ => None,
    }
}

impl Aside {
    /// Begins a write if it is one that takes long; gives `done` back if not.
    pub(super) fn begin(
        &mut self,
        runtime: &Handle,
        (shared, teller): (&Arc<Shared>, &Teller),
        term: Term,
        write: &Write,
        done: Reply,
    ) -> Option<Reply> {
        let Some(stripe) = stripe_of(write) else { return Some(done) };
        self.last.retain(|_, last| matches!(last.try_recv(), Err(TryRecvError::Empty)));
        let (ended, last) = oneshot::channel();
        let before = self.last.insert(stripe, last);
        let (shared, teller, write) = (Arc::clone(shared), teller.clone(), write.clone());
        let under_way = Arc::clone(&self.under_way).try_read_owned(); // Nobody writes before the end.
        runtime.spawn(async move {
            let _under_way = under_way;
            if let Some(before) = before {
                let _ = before.await; // However it ended.
            }
            let result = carry_out(&shared, term, &write).await;
            teller.then(move || done(result));
            drop(ended);
        });
        None
    }

    /// Waits until nothing is under way.
    pub(super) async fn end(&self) {
        if tokio::time::timeout(END_LIMIT, self.under_way.write()).await.is_err() {
            tracing::warn!("a volume server that was asked for something does not answer");
        }
    }
}

/// Does what takes long.
pub(super) async fn carry_out(shared: &Arc<Shared>, term: Term, write: &Write) -> Result<Done, StoreError> {
    match write {
        Write::Stripes(StripeWrite::Publish { stripe, blocks }) => {
            shared.publish(term, stripe, blocks).await?
        }
        Write::Stripes(StripeWrite::Claim { stripe, nodes }) => shared.claim(stripe, nodes).await?,
        Write::Stripes(StripeWrite::Release(stripe)) => shared.release(stripe).await,
        Write::Files(FileWrite::Discard(node, block)) => {
            shared.take_out_of_service(*node, block).await?;
            return shared.record(term, write);
        }
        _ => unreachable!("it does not take long"),
    }
    Ok(Done { value: Answer::Nothing, changes: Vec::new() })
}
