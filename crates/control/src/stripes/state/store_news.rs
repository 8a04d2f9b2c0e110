//! News of a store that others run: whether it has been listed, and remarks for operators.
//!
//! Before the first listing the picture is empty, so no stripe counts as safe, lost or surplus, and the
//! blocks that helpers register with are kept until they can be compared with it.

use repair::NodeId;
use repair::wire::control::HeldBlock;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct StoreNews {
    pub(in crate::stripes) unlisted: Option<String>,
    pub(in crate::stripes) remarks: Vec<String>,
    /// The blocks that helpers registered with before the first listing.
    pub(in crate::stripes) held: Vec<(NodeId, Vec<HeldBlock>)>,
}

impl StoreNews {
    /// A store that may not have been listed yet, for this reason.
    pub(crate) fn new(unlisted: Option<String>) -> Self {
        Self { unlisted, ..Self::default() }
    }

    /// Why the store has not been listed yet.
    pub(crate) fn unlisted(&self) -> Option<&str> {
        self.unlisted.as_deref()
    }

    /// Remarks for operators; they call for no action.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    pub(crate) fn set_remarks(&mut self, remarks: &[String]) {
        self.remarks = remarks.to_vec();
    }

    /// Keeps the blocks that a helper registered with until the first listing; returns whether it did.
    pub(crate) fn keep(&mut self, node: NodeId, blocks: &[HeldBlock]) -> bool {
        let keeps = self.unlisted.is_some();
        if keeps {
            self.held.retain(|(other, _)| *other != node);
            self.held.push((node, blocks.to_vec()));
        }
        keeps
    }

    /// Returns the kept blocks once the store has been listed.
    pub(in crate::stripes) fn set_unlisted(&mut self, why: Option<&String>) -> Vec<(NodeId, Vec<HeldBlock>)> {
        self.unlisted = why.cloned();
        if why.is_some() { Vec::new() } else { std::mem::take(&mut self.held) }
    }
}
