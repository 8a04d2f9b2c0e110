//! Members' equal shares of a resource, and turns of their requests. A member has one share on all of its connections,
//! and the share is forgotten when nothing holds it any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cluster::Role;
use tokio::sync::OwnedSemaphorePermit;

/// The shares that are in use.
#[derive(Debug)]
pub(crate) struct Shares<T>(Mutex<BTreeMap<Role, Weak<T>>>);

impl<T> Default for Shares<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Shares<T> {
    /// Returns a member's share, or makes one if none is in use.
    pub(crate) fn of(&self, member: &Role, make: impl FnOnce() -> T) -> Arc<T> {
        let mut members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = members.get(member).and_then(Weak::upgrade) {
            return share;
        }
        members.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(make());
        members.insert(member.clone(), Arc::downgrade(&share));
        share
    }

    /// Returns the number of members whose shares are kept.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A member's turn for a request, if it has one. Clones are the same turn, which ends with the last of them at the latest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Turn {
    pub(crate) fn begin(&self, permit: OwnedSemaphorePermit) {
        *self.permit() = Some(permit);
    }

    /// Ends the turn, for all of its clones.
    pub(crate) fn end(&self) {
        *self.permit() = None;
    }

    /// Whether the turn has begun and not ended.
    pub(crate) fn lasts(&self) -> bool {
        self.permit().is_some()
    }

    fn permit(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
