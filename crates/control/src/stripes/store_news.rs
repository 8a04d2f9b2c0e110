//! News of a store that others run: whether it has been listed, and remarks for operators.
//!
//! Before the first listing the picture is empty, so no stripe counts as safe, lost or surplus, and the
//! blocks that helpers register with are kept until they can be compared with it.

use repair::NodeId;
use repair::wire::control::HeldBlock;

use crate::error::ScrubError;
use crate::facts::Around;
use crate::out::Out;
use crate::stripes::Stripes;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct StoreNews {
    unlisted: Option<String>,
    remarks: Vec<String>,
    /// The blocks that helpers registered with before the first listing.
    held: Vec<(NodeId, Vec<HeldBlock>)>,
}

impl StoreNews {
    /// A store that may not have been listed yet, for this reason.
    pub fn new(unlisted: Option<String>) -> Self {
        Self { unlisted, ..Self::default() }
    }

    /// Why the store has not been listed yet.
    pub fn unlisted(&self) -> Option<&str> {
        self.unlisted.as_deref()
    }

    /// Remarks for operators; they call for no action.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    pub fn set_remarks(&mut self, remarks: &[String]) {
        self.remarks = remarks.to_vec();
    }

    /// Keeps the blocks that a helper registered with until the first listing; returns whether it did.
    pub fn keep(&mut self, node: NodeId, blocks: &[HeldBlock]) -> bool {
        let keeps = self.unlisted.is_some();
        if keeps {
            self.held.retain(|(other, _)| *other != node);
            self.held.push((node, blocks.to_vec()));
        }
        keeps
    }

    /// Returns the kept blocks once the store has been listed.
    fn set_unlisted(&mut self, why: Option<&String>) -> Vec<(NodeId, Vec<HeldBlock>)> {
        self.unlisted = why.cloned();
        if why.is_some() { Vec::new() } else { std::mem::take(&mut self.held) }
    }
}

impl Stripes {
    /// The store has not been listed yet, for this reason; or it has: helpers' blocks are compared with it.
    pub(crate) fn note_unlisted(&mut self, around: Around<'_>, why: Option<&String>, out: &mut Out) {
        for (node, blocks) in self.news.set_unlisted(why) {
            if around.nodes.is_helper(node) {
                self.compare(around, node, &blocks, out);
                self.recheck_next(around, node, out);
            }
        }
    }
}

impl Stripes {
    /// Refuses what would say of an empty picture that all is well.
    pub(crate) fn check_listed(&self) -> Result<(), ScrubError> {
        self.news.unlisted().map_or(Ok(()), |why| Err(ScrubError::Unlisted(why.to_owned())))
    }
}
