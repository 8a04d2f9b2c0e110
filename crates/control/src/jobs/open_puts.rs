//! Puts that were begun and are neither committed nor aborted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repair::NodeId;
use store_api::PutId;

use crate::error::FileError;

/// The maximum number of open puts of a member.
pub(crate) const MAX_OPEN_PUTS: usize = 1024;

/// Puts that have begun and not ended.
#[derive(Default)]
pub(crate) struct OpenPuts {
    pub(crate) puts: BTreeMap<PutId, OpenPut>,
    /// The number of puts whose beginning is being stored, by the member that begins them.
    beginning: BTreeMap<String, usize>,
    /// Puts being committed or aborted; they accept no new stripes.
    pub(crate) ending: BTreeSet<PutId>,
    /// Stripes whose allocation is being stored, with the nodes that will receive their blocks.
    pub(super) allocating: BTreeMap<(PutId, u32), Vec<NodeId>>,
}

impl OpenPuts {
    /// Counts a put that a member begins, until [`has_begun`](Self::has_begun) is called.
    ///
    /// # Errors
    /// If the member has too many open puts.
    pub(super) fn begins(&mut self, member: &str) -> Result<(), FileError> {
        let open = self.puts.values().filter(|put| put.member == member).count();
        let beginning = self.beginning.get(member).copied().unwrap_or_default();
        if open + beginning >= MAX_OPEN_PUTS {
            return Err(FileError::TooManyPuts { member: member.to_owned(), most: MAX_OPEN_PUTS });
        }
        *self.beginning.entry(member.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Notes that the beginning of a put was stored, or could not be stored.
    pub(super) fn has_begun(&mut self, member: &str) {
        let beginning = self.beginning.get_mut(member).expect("the put was counted");
        *beginning -= 1;
        if *beginning == 0 {
            self.beginning.remove(member);
        }
    }
}

pub(crate) struct OpenPut {
    /// The member that began the put.
    pub(super) member: String,
    /// The clients that store stripes of the put.
    pub(super) clients: BTreeSet<NodeId>,
    /// The time at which the put is aborted, unless a client resumes it before.
    pub(crate) until: Option<Duration>,
}
