//! What takes long, as servers are asked for it: claiming stripes, mounting, unmounting.

use std::sync::Arc;

use repair::StripeId;
use stores::{Answer, Done, FileWrite, StoreError, StripeWrite, Term, Write};

use super::state::Shared;
use super::view::shard_of;

/// The stripe that a write which takes long is for; `None` if it does not.
pub(super) fn stripe_of(write: &Write) -> Option<StripeId> {
    match write {
        Write::Stripes(
            StripeWrite::Publish { stripe, .. }
            | StripeWrite::Claim { stripe, .. }
            | StripeWrite::Release(stripe),
        ) => Some(stripe.clone()),
        // It is of no stripe, so that nothing which is asked about one waits for it.
        Write::Stripes(StripeWrite::Inspect) => Some(StripeId(String::new())),
        Write::Files(FileWrite::Discard(_, block)) => Some(StripeId(shard_of(block)?.volume.to_string())),
        _ => None,
    }
}

/// Does what takes long.
pub(super) async fn carry_out(shared: &Arc<Shared>, term: Term, write: &Write) -> Result<Done, StoreError> {
    match write {
        Write::Stripes(StripeWrite::Publish { stripe, blocks }) => {
            shared.publish(term, stripe, blocks).await?
        }
        Write::Stripes(StripeWrite::Claim { stripe, nodes, .. }) => shared.claim(stripe, nodes).await?,
        Write::Stripes(StripeWrite::Release(stripe)) => shared.release(stripe).await,
        Write::Stripes(StripeWrite::Inspect) => shared.inspect_all().await,
        Write::Files(FileWrite::Discard(node, block)) => {
            shared.take_out_of_service(*node, block).await?;
            return shared.state().ledger.write(term, write);
        }
        _ => unreachable!("it does not take long"),
    }
    Ok(Done { value: Answer::Nothing, changes: Vec::new() })
}
