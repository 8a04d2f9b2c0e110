//! Leases for files that are read while they are replaced or removed.
//!
//! A client that asks for a file's layout gets a lease on this generation of the file, and every read renews
//! the lease. While the lease lasts, removed stripes stay readable, and their blocks are not removed. Leases
//! end with the coordinator: after a restart, a reader must ask for the layout again anyway.

use std::collections::BTreeMap;
use std::time::Duration;

use repair::{BlockId, StripeId};
use store_api::StripeRecord;

use crate::base::Base;

/// The duration of a lease. The space of replaced files is freed only after this time.
const LEASE: Duration = Duration::from_secs(30);
/// The maximum number of leases. Beyond that, files are read without a lease.
const MOST_LEASES: usize = 1 << 16;

/// The leases of readers, and the removed stripes that they keep readable.
#[derive(Default)]
pub(crate) struct Readers {
    /// The end of each lease on a generation of a file, by the put that stored the generation.
    pub(in crate::stripes) leases: BTreeMap<String, Duration>,
    /// Stripes that were removed from the catalog and are still under a lease.
    pub(in crate::stripes) retired: BTreeMap<StripeId, StripeRecord>,
}

impl Readers {
    /// Renews the lease for a stripe that a client reads, if the store owns its files.
    pub(crate) fn renew(&mut self, base: &Base, stripe: &StripeRecord) {
        if base.store.owns_files() {
            self.lease(stripe, base.now);
        }
    }

    fn lease(&mut self, stripe: &StripeRecord, now: Duration) {
        let Some(part) = &stripe.file else { return };
        if self.leases.contains_key(&part.put) || self.leases.len() < MOST_LEASES {
            self.leases.insert(part.put.clone(), now + LEASE);
        }
    }

    /// Keeps a stripe that was removed from the catalog, if the stripe is under a lease.
    pub(in crate::stripes) fn retire(&mut self, stripe: StripeRecord, now: Duration) {
        if self.is_leased(&stripe, now) {
            self.retired.insert(stripe.id.clone(), stripe);
        }
    }

    pub(in crate::stripes) fn is_leased(&self, stripe: &StripeRecord, now: Duration) -> bool {
        let until = stripe.file.as_ref().and_then(|part| self.leases.get(&part.put));
        until.is_some_and(|&until| now < until)
    }

    /// Returns a removed stripe that is still under a lease.
    pub(crate) fn get(&self, stripe: &StripeId) -> Option<&StripeRecord> {
        self.retired.get(stripe)
    }

    /// Whether a block belongs to a removed stripe that is still under a lease.
    pub(crate) fn hold(&self, block: &BlockId) -> bool {
        let stripe = || block.0.rsplit_once('.').map(|(stripe, _)| StripeId(stripe.to_owned()));
        !self.retired.is_empty() && stripe().is_some_and(|stripe| self.retired.contains_key(&stripe))
    }

    /// Drops leases that have ended. Returns whether this freed any stripe: one that was already removed from
    /// the catalog, and whose blocks were kept only because of a lease.
    pub(in crate::stripes) fn expire(&mut self, now: Duration) -> bool {
        self.leases.retain(|_, until| now < *until);
        let (before, leases) = (self.retired.len(), &self.leases);
        self.retired
            .retain(|_, stripe| stripe.file.as_ref().is_some_and(|part| leases.contains_key(&part.put)));
        self.retired.len() < before
    }
}

#[cfg(test)]
mod tests {
    use repair::FilePart;

    use super::*;

    fn stripe(name: &str, put: &str) -> StripeRecord {
        let file = FilePart {
            name: "film".to_owned(),
            bytes: 1,
            block_bytes: 1,
            chunk_bytes: None,
            position: 0,
            put: put.to_owned(),
            begun_unix_ms: 1,
        };
        let (id, code) = (StripeId(name.to_owned()), "rs-3-2".parse().unwrap());
        StripeRecord { id, code, block_bytes: 1, chunk_bytes: None, blocks: Vec::new(), file: Some(file) }
    }

    #[test]
    fn a_leased_stripe_stays_readable_until_its_lease_ends() {
        let (mut readers, at) = (Readers::default(), Duration::from_secs);
        let (read, unread) = (stripe("1-aaaaab", "1-aaaaab"), stripe("2-aaaaab", "2-aaaaab"));
        readers.lease(&read, at(1));
        readers.retire(read.clone(), at(10));
        readers.retire(unread, at(10));
        let held = |readers: &Readers, block: &str| readers.hold(&BlockId(block.to_owned()));
        assert!(held(&readers, "1-aaaaab.3") && !held(&readers, "2-aaaaab.3") && !held(&readers, "odd"));
        readers.lease(&read, at(20));
        assert!(!readers.expire(at(40)), "it was renewed");
        assert!(readers.get(&read.id).is_some());
        assert!(readers.expire(at(50)) && readers.get(&read.id).is_none());
        readers.retire(read, at(51));
        assert!(!held(&readers, "1-aaaaab.3"), "nobody reads it any more");
    }
}
