//! Gates: whether blocks may be changed or removed now.

use repair::NodeId;

use crate::error::CatalogAgeError;
use crate::facts::Facts;

impl<'a> Facts<'a> {
    /// Whether repairs are allowed: the catalog is as new as the blocks, and the storage accepts writes.
    pub(crate) fn may_change(self) -> bool {
        !self.stripes.newer.is_behind() && !self.storing.write_path.is_failing()
    }

    /// Whether removals are allowed: no helper lists blocks that are newer than the catalog.
    pub(crate) fn may_remove(self) -> bool {
        !self.stripes.newer.has_claims() && self.may_change()
    }

    /// Returns an error while the catalog is known to be outdated.
    pub(crate) fn check_not_behind(self) -> Result<(), CatalogAgeError> {
        if !self.stripes.newer.is_behind() {
            return Ok(());
        }
        let (nodes, blocks): (Vec<NodeId>, Vec<u64>) = self.stripes.newer.stopping().unzip();
        Err(CatalogAgeError::CatalogBehind {
            nodes: nodes.into_iter().map(|node| self.nodes.name(node)).collect(),
            blocks: blocks.into_iter().sum(),
        })
    }

    /// Returns an error while the catalog may be outdated.
    pub(crate) fn check_not_doubted(self) -> Result<(), CatalogAgeError> {
        self.check_not_behind()?;
        match self.stripes.newer.claims.keys().next() {
            None => Ok(()),
            Some(&node) => Err(CatalogAgeError::CatalogDoubted { node: self.nodes.name(node) }),
        }
    }
}
