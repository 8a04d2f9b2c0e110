//! Comparing helpers' blocks once the store has been listed.

use repair::NodeId;

use crate::facts::OuterFacts;
use crate::nodes::Nodes;
use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::Stripes;

impl Stripes {
    /// Records the reason that the store is not listed, or compares the kept block lists after the first
    /// listing.
    pub(crate) fn note_unlisted(&mut self, outer: OuterFacts<'_>, why: Option<&String>, out: &mut Out) {
        for (node, blocks) in self.news.set_unlisted(why) {
            if outer.nodes.is_helper(node) {
                self.compare(outer, node, &blocks, out);
                self.recheck_next(outer, node, out);
            }
        }
    }
}

impl Stripes {
    /// Records the store's report that a node's blocks are in service, or out of service.
    pub(crate) fn set_service(&mut self, nodes: &Nodes, node: NodeId, up: bool, out: &mut Out) {
        if self.picture.is_up(node) == up {
            return;
        }
        let (name, blocks) = (nodes.name(node), self.picture.block_count(node));
        match up {
            true => tracing::info!(helper = %name, blocks, "in service"),
            false => tracing::warn!(helper = %name, blocks, "out of service"),
        }
        self.picture.set_up(node, up);
        out.tell(Signal::Service { node, up });
        out.tell(Signal::Node(node));
        out.tell(Signal::Replicas(node));
    }
}
