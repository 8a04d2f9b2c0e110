//! Finds the helpers that cannot receive blocks now, with the reasons.

use repair::NodeId;

use crate::error::Omitted;
use crate::facts::{Facts, hollow};
use crate::jobs::Jobs;
use crate::nodes::sorted;

impl Jobs {
    /// Returns the helpers that cannot receive a block of this size now, apart from `but`. If helpers are
    /// named in `only`, no others are considered.
    pub(crate) fn omitted(
        &self,
        facts: Facts<'_>,
        block_bytes: u64,
        but: Option<NodeId>,
        only: &[NodeId],
    ) -> Omitted {
        let mut omitted = Omitted::default();
        let may = |node: &NodeId| Some(*node) != but && (only.is_empty() || only.contains(node));
        let known = facts.nodes.registry.ids().filter(may);
        for node in known.filter(|node| {
            !facts.nodes.registry.is_retired(*node) && !facts.nodes.registry.has_no_helper(facts.base, *node)
        }) {
            let group = match () {
                () if facts.nodes.registry.is_leaving(node) => &mut omitted.leaving,
                () if !facts.nodes.is_helper(node)
                    && facts.nodes.maintenance.left(facts.base, node).is_some() =>
                {
                    &mut omitted.maintained
                }
                () if !facts.nodes.is_helper(node) => &mut omitted.down,
                () if facts.base.store.reports_service() && !facts.stripes.picture.is_up(node) => {
                    &mut omitted.out_of_service
                }
                () if facts.nodes.registry.write_problem(node).is_some() => &mut omitted.unwritable,
                () if hollow::has(facts, node) => &mut omitted.hollow,
                () if !self.has_room(facts, node, block_bytes) => &mut omitted.full,
                () => continue,
            };
            group.push(facts.nodes.name(node));
        }
        let Omitted { down, maintained, out_of_service, leaving, unwritable, full, hollow } = &mut omitted;
        for names in [down, maintained, out_of_service, leaving, unwritable, full, hollow] {
            *names = sorted(std::mem::take(names).into_iter());
        }
        omitted
    }
}
