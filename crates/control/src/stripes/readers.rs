//! Leases of readers on files that are replaced or removed.

use repair::StripeId;
use store_api::StripeRecord;

use crate::base::Base;
use crate::jobs::owner::Owner;
use crate::jobs::{Jobs, RunningJob};
use crate::stripes::Stripes;

impl Stripes {
    /// Ends expired leases, so the blocks of their stripes can be removed.
    pub(crate) fn expire_readers(&mut self, base: &Base, jobs: &Jobs) {
        let reads = |running: &&RunningJob| matches!(running.owner, Owner::Read { .. });
        let read = |stripe: &StripeId| {
            let removed = self.readers.get(stripe).cloned();
            removed.or_else(|| self.picture.stripe(stripe).ok()).filter(|_| base.store.owns_files())
        };
        let running: Vec<StripeRecord> =
            jobs.running.values().filter(reads).filter_map(|running| read(&running.stripe)).collect();
        running.iter().for_each(|stripe| self.readers.renew(base, stripe));
        if self.readers.expire(base.now) {
            self.removals_due = base.now;
        }
    }
}
