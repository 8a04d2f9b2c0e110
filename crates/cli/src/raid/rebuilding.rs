//! Has a running coordinator make parity, through the API.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use client::{Client, ClientError};
use coordinator::rebuilding::{connected, given, outcome, request};
use store_api::{DescribedStripe, Later, Rebuild, RebuildError, Rebuilder, Rebuilt};

/// The coordinator that a client asks.
pub struct ApiRebuilder(pub Client);

impl fmt::Debug for ApiRebuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiRebuilder")
    }
}

impl Rebuilder for ApiRebuilder {
    fn helpers_up(&self) -> Later<'_, Result<BTreeSet<String>, RebuildError>> {
        Box::pin(async move { self.0.nodes().await.map(connected).map_err(error) })
    }

    fn describe<'a>(&'a self, stripe: &'a DescribedStripe) -> Later<'a, Result<(), RebuildError>> {
        Box::pin(async move { self.0.describe(&given(stripe)).await.map(drop).map_err(error) })
    }

    fn begin<'a>(&'a self, rebuild: &'a Rebuild) -> Later<'a, Result<u64, RebuildError>> {
        Box::pin(async move { Ok(self.0.repair(&request(rebuild)).await.map_err(error)?.repair) })
    }

    fn await_end(&self, repair: u64, limit: Duration) -> Later<'_, Result<Option<Rebuilt>, RebuildError>> {
        Box::pin(async move { outcome(&self.0.await_repair(repair, limit).await.map_err(error)?) })
    }

    fn cancel(&self, repair: u64) -> Later<'_, ()> {
        Box::pin(async move {
            // The repair may have ended, and the coordinator may be gone.
            drop(self.0.cancel_repair(repair).await);
        })
    }
}

fn error(error: ClientError) -> RebuildError {
    match error.is_unreachable() {
        true => RebuildError::Unreachable(error.to_string()),
        false => RebuildError::Refused(error.to_string()),
    }
}
