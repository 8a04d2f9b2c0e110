//! Writes that call SeaweedFS's servers: claims, mounts, unmounts and inspections.

use std::sync::Arc;

use repair::StripeId;
use store_api::{Done, RecordWrite, StoreError, StripeWrite, Term, Write};

use super::state::Shared;
use super::view::shard_of;

/// Returns the stripe of a write that calls servers; `None` for writes that call no server.
pub(super) fn stripe_of(write: &Write) -> Option<StripeId> {
    match write {
        // Calls for the same stripe run one after the other. An inspection runs under an empty stripe name,
        // so that no call for a stripe waits for it.
        Write::Stripes(StripeWrite::Inspect) => Some(StripeId(String::new())),
        Write::Stripes(write) => write.stripe().cloned(),
        Write::Records(RecordWrite::Discard(_, block)) => Some(StripeId(shard_of(block)?.volume.to_string())),
        _ => None,
    }
}

/// Carries out a write by calling servers.
pub(super) async fn carry_out(shared: &Arc<Shared>, term: Term, write: &Write) -> Result<Done, StoreError> {
    match write {
        Write::Stripes(StripeWrite::Publish { stripe, blocks, origin }) => {
            shared.publish(term, stripe, blocks, *origin).await?
        }
        Write::Stripes(StripeWrite::Claim { stripe, nodes, .. }) => shared.claim(stripe, nodes).await?,
        Write::Stripes(StripeWrite::Release(stripe)) => shared.lock.release(stripe).await,
        Write::Stripes(StripeWrite::Inspect) => shared.inspect_all().await,
        Write::Records(RecordWrite::Discard(node, block)) => shared.take_out_of_service(*node, block).await?,
        _ => unreachable!("it calls no server"),
    }
    Ok(Done::default())
}
