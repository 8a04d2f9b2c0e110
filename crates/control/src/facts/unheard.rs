//! Helpers that have not registered since the catalog was rebuilt or restored, or only with an incomplete list of
//! their blocks. They may hold blocks that count as missing, and blocks of files that the catalog does not contain.

use repair::NodeId;

use crate::error::list;
use crate::facts::Facts;
use crate::nodes::sorted;

/// Whether a helper is down and has not listed all of its blocks since the catalog was rebuilt or restored. The
/// catalog then has no address of the helper.
pub(crate) fn is_unheard(facts: Facts<'_>, node: NodeId) -> bool {
    let record = facts.stripes.picture.nodes().get(&node);
    facts.base.store.owns_files()
        && !facts.nodes.is_connected(node)
        && record.is_some_and(|record| record.address.is_none())
}

/// Returns the names of these helpers.
pub(crate) fn names(facts: Facts<'_>) -> Vec<String> {
    let unheard = facts.nodes.registry.ids().filter(|&node| is_unheard(facts, node));
    sorted(unheard.map(|node| facts.nodes.name(node)))
}

/// Returns the sentence about these helpers; `None` if there are none.
pub(crate) fn text(facts: Facts<'_>) -> Option<String> {
    let text = match &names(facts)[..] {
        [] => return None,
        [one] => format!("{one} has not registered"),
        several => format!("{} have not registered", list(several)),
    };
    Some(text + " since the catalog was replaced, so the catalog may lack files")
}
