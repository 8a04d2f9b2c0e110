//! Helpers that have not registered since the catalog was rebuilt or restored. They may hold blocks that count
//! as missing, and blocks of files that the catalog does not contain.

use repair::NodeId;

use crate::error::list;
use crate::facts::Facts;

impl Facts<'_> {
    /// Whether a helper has not registered since the catalog was rebuilt or restored. The catalog then has no
    /// address of the helper.
    pub(crate) fn is_unheard(self, node: NodeId) -> bool {
        let record = self.stripes.picture.nodes().get(&node);
        self.base.store.owns_files()
            && !self.nodes.is_connected(node)
            && record.is_some_and(|record| record.address.is_none())
    }

    /// Returns the names of the helpers that have not registered since the catalog was rebuilt or restored.
    pub(crate) fn unheard(self) -> Vec<String> {
        let unheard = self.nodes.registry.ids().filter(|&node| self.is_unheard(node));
        let mut names: Vec<String> = unheard.map(|node| self.nodes.name(node)).collect();
        names.sort_by(|a, b| views::natural(a, b));
        names
    }

    /// Returns the sentence about these helpers; `None` if there are none.
    pub(crate) fn unheard_text(self) -> Option<String> {
        let text = match &self.unheard()[..] {
            [] => return None,
            [one] => format!("{one} has not registered"),
            several => format!("{} have not registered", list(several)),
        };
        Some(text + " since the catalog was replaced, so the catalog may lack files")
    }
}
