//! Helpers that returned without most of their blocks, because their disks were replaced or are not mounted yet.
//!
//! During its grace period, such a helper receives only blocks that it had before. If its disk is mounted
//! later, everything written before then disappears, and the lost blocks are back.

use std::time::Duration;

use repair::NodeId;

use crate::facts::Facts;

/// Whether a helper is hollow and in its grace period.
pub(crate) fn has(facts: Facts<'_>, node: NodeId) -> bool {
    facts.stripes.inventory.hollow_since(node).is_some()
}

/// Returns these helpers and the ends of their grace periods; `None` if automatic repair is off.
pub(crate) fn until(facts: Facts<'_>) -> impl Iterator<Item = (NodeId, Option<Duration>)> {
    let grace = facts.nodes.repair_after(facts.base).time();
    facts.stripes.inventory.hollow().map(move |(node, since)| (node, grace.map(|grace| since + grace)))
}
