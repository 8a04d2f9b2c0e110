//! News from a store that others run: whether it has been listed, and remarks for operators.
//!
//! Before the first listing the picture (the catalog in memory) is empty, so no stripe counts as safe, lost
//! or surplus. The block lists of helpers that register are kept until they can be compared with the picture.

use std::collections::{BTreeMap, BTreeSet};

use repair::NodeId;
use repair::wire::control::HeldBlock;
use store_api::{FileBacklog, OtherData};

use crate::error::RequestError;

/// The state of the first listing, and remarks for operators.
#[derive(Default)]
pub(crate) struct StoreNews {
    /// Problems that the store reports and that keep it from working.
    pub(crate) troubles: Vec<String>,
    /// The nodes on which the store keeps other data than the blocks of stripes.
    pub(crate) needed: BTreeMap<NodeId, OtherData>,
    /// The nodes that the store's operators have put into maintenance.
    pub(crate) maintained: BTreeSet<NodeId>,
    /// Whether stripes that were there before the first listing are still to be listed.
    pub(crate) has_late_stripes: bool,
    /// The files on which the store works; `None` if it never works on files unasked.
    pub(crate) file_backlog: Option<FileBacklog>,
    pub(in crate::stripes) unlisted: Option<String>,
    pub(in crate::stripes) remarks: Vec<String>,
    /// The block lists of helpers that registered before the first listing.
    pub(in crate::stripes) held: Vec<(NodeId, Vec<HeldBlock>)>,
}

impl StoreNews {
    /// Creates the news of a store. `unlisted` is the reason that it has not been listed yet; `None` if it
    /// has.
    pub(crate) fn new(unlisted: Option<String>) -> Self {
        Self { unlisted, ..Self::default() }
    }

    /// Returns the reason that the store has not been listed yet.
    pub(crate) fn unlisted(&self) -> Option<&str> {
        self.unlisted.as_deref()
    }

    /// Returns an error while the store is not listed, because an empty picture would look healthy.
    pub(crate) fn check_listed(&self) -> Result<(), RequestError> {
        self.unlisted().map_or(Ok(()), |why| Err(RequestError::Unlisted(why.to_owned())))
    }

    /// Returns remarks for operators that require no action.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    pub(crate) fn set_remarks(&mut self, remarks: &[String]) {
        self.remarks = remarks.to_vec();
    }

    /// Keeps a helper's block list if the store has not been listed yet. Returns whether the list was kept.
    pub(crate) fn keep(&mut self, node: NodeId, blocks: &[HeldBlock]) -> bool {
        let keeps = self.unlisted.is_some();
        if keeps {
            self.held.retain(|(other, _)| *other != node);
            self.held.push((node, blocks.to_vec()));
        }
        keeps
    }

    /// Sets the reason that the store is not listed. If there is none, returns the kept block lists.
    pub(in crate::stripes) fn set_unlisted(&mut self, why: Option<&String>) -> Vec<(NodeId, Vec<HeldBlock>)> {
        self.unlisted = why.cloned();
        if why.is_some() { Vec::new() } else { std::mem::take(&mut self.held) }
    }
}
