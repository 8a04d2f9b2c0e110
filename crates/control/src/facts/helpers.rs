//! Facts about helpers and servers that combine mend.toml, the store's reports and the connections.

use repair::{Accepts, NodeId};

use crate::facts::{Facts, hollow};
use crate::nodes::sorted;

impl<'a> Facts<'a> {
    /// Returns which blocks may be placed on a node.
    pub(crate) fn accepts(self, node: NodeId) -> Accepts {
        match () {
            () if self.base.store.reports_service() && !self.stripes.picture.is_up(node) => Accepts::Nothing,
            () if self.nodes.registry.is_leaving(node) => Accepts::Nothing,
            () if self.nodes.registry.write_problem(node).is_some() => Accepts::Nothing,
            () if hollow::has(self, node) => Accepts::Own,
            () => Accepts::All,
        }
    }

    /// Returns the names of the nodes whose server the store reports as out of service.
    pub(crate) fn servers_down(self) -> Vec<String> {
        let is_down = |node: NodeId| self.base.store.reports_service() && !self.stripes.picture.is_up(node);
        let down = self.nodes.registry.named().filter(|&(node, _)| is_down(node));
        sorted(down.map(|(_, name)| name.to_owned()))
    }

    /// Returns the number of absent helpers that hold blocks and the number of live helpers, if the first
    /// number is larger; otherwise `None`.
    pub(crate) fn too_many_gone(self) -> Option<(usize, usize)> {
        let gone =
            self.nodes.registry.gone().filter(|&node| self.stripes.picture.block_count(node) > 0).count();
        let there = self.nodes.live_helpers().count();
        (gone > there).then_some((gone, there))
    }
}
