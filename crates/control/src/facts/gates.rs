//! Whether anything may be changed or removed now.

use repair::NodeId;

use crate::error::CatalogAgeError;
use crate::facts::Facts;

impl<'a> Facts<'a> {
    /// Whether anything may be repaired: the catalog is as new as the blocks, and takes writes.
    pub(crate) fn may_change(self) -> bool {
        !self.stripes.is_behind() && !self.storing.write_path.is_failing()
    }

    /// Whether anything may be removed: no helper claims that the catalog is an old one.
    pub(crate) fn may_remove(self) -> bool {
        !self.stripes.doubts_catalog() && self.may_change()
    }

    /// Refuses to change anything while the catalog is an old one.
    pub(crate) fn check_not_behind(self) -> Result<(), CatalogAgeError> {
        if !self.stripes.is_behind() {
            return Ok(());
        }
        let (nodes, blocks): (Vec<NodeId>, Vec<u64>) = self.stripes.newer.stopping().unzip();
        Err(CatalogAgeError::CatalogBehind {
            nodes: nodes.into_iter().map(|node| self.nodes.name(node)).collect(),
            blocks: blocks.into_iter().sum(),
        })
    }

    /// Refuses to remove anything while it may be an old one.
    pub(crate) fn check_not_doubted(self) -> Result<(), CatalogAgeError> {
        self.check_not_behind()?;
        match self.stripes.newer.claims.keys().next() {
            None => Ok(()),
            Some(&node) => Err(CatalogAgeError::CatalogDoubted { node: self.nodes.name(node) }),
        }
    }
}
