//! Handles helpers' lists of blocks that are newer than the catalog (claims).

use std::collections::BTreeSet;

use repair::wire::control::ToNode;
use repair::{BlockId, NodeId};
use serde_json::json;
use store_api::{RecordWrite, Write};

use crate::effect::Reply;
use crate::error::{CatalogAgeError, RequestError};
use crate::facts::OuterFacts;
use crate::helper_queries::Subject;
use crate::nodes::Nodes;
use crate::out::{Out, answer};
use crate::signal::Signal;
use crate::stripes::continuation::StripeThen;
use crate::stripes::picture::Picture;
use crate::stripes::state::newer_claims::{NewerClaims, REJECTED};
use views::{AcceptRequest, AcceptedView, NewerBlocks};

/// The maximum number of newer blocks per helper that the status names.
const NAMED: usize = 3;

impl NewerClaims {
    /// Replaces the newer blocks that a helper lists.
    pub(in crate::stripes) fn note(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        newer: BTreeSet<BlockId>,
        out: &mut Out,
    ) {
        let (name, blocks) = (outer.nodes.name(node), newer.len());
        let doubted = self.has_claims();
        let before = self.claims.get(&node).cloned();
        let claims = self.set(node, newer);
        if self.claims.get(&node) != before.as_ref() {
            self.keep(outer.nodes, node, out);
        }
        if claims {
            let confirmed = self.is_behind();
            tracing::error!(
                helper = %name, blocks, confirmed, "a helper lists blocks that are newer than the catalog; see mend status"
            );
            let ask = out.queries.open(node, Subject::Newer, outer.base.now);
            outer.nodes.send(node, ToNode::Describe { ask }, out);
        } else if doubted && !self.has_claims() {
            out.tell(Signal::Settled);
        }
    }

    /// Continues without the blocks that are newer than the catalog; these blocks become orphans. If the
    /// request names a helper to reject, the only effect is that this helper's list of newer blocks is
    /// ignored.
    pub(crate) fn accept(
        &mut self,
        outer: OuterFacts<'_>,
        request: AcceptRequest,
        reply: Reply<AcceptedView>,
        out: &mut Out,
    ) {
        if let Some(name) = request.reject {
            return answer(reply, self.reject(outer, &name, out), out);
        }
        let claims = self.views(outer.nodes);
        let beyond: BTreeSet<BlockId> = self.claims.values().flatten().cloned().collect();
        let view = AcceptedView { blocks: beyond.len() as u64, claims };
        let then = StripeThen::Accepted { view: Box::new(view), reply };
        out.store(Write::Records(RecordWrite::Disclaim(beyond)), then);
    }

    /// Handles the end of the write by which the catalog was accepted.
    pub(crate) fn accepted(
        &mut self,
        picture: &Picture,
        outer: OuterFacts<'_>,
        view: AcceptedView,
        out: &mut Out,
    ) -> AcceptedView {
        // Lists of newer blocks that arrived during the write are kept.
        let before = self.claims.clone();
        self.retain(|block| picture.is_from_the_future(block));
        let changed = before.iter().filter(|&(node, blocks)| self.claims.get(node) != Some(blocks));
        changed.for_each(|(&node, _)| self.keep(outer.nodes, node, out));
        if !self.has_claims() {
            tracing::warn!(
                blocks = view.blocks,
                "catalog accepted; continuing without the blocks that are newer than it"
            );
            out.tell(Signal::Settled);
        }
        view
    }

    /// Ignores the newer blocks that a helper lists, until the helper is removed.
    fn reject(
        &mut self,
        outer: OuterFacts<'_>,
        name: &str,
        out: &mut Out,
    ) -> Result<AcceptedView, RequestError> {
        let node = outer.nodes.node_named(outer.base, name)?;
        let claims: Vec<NewerBlocks> =
            self.views(outer.nodes).into_iter().filter(|claim| claim.node == name).collect();
        if claims.is_empty() && !self.rejected.contains(&node) {
            return Err(CatalogAgeError::NothingClaimed(name.to_owned()).into());
        }
        tracing::warn!(helper = name, "ignoring the blocks that a helper lists as newer than the catalog");
        self.rejected.insert(node);
        out.keep_record(format!("{REJECTED}{name}"), &json!({ "at_unix_ms": outer.base.unix_ms }));
        self.note(outer, node, BTreeSet::new(), out);
        Ok(AcceptedView { blocks: claims.iter().map(|claim| claim.blocks).sum(), claims })
    }
}

impl NewerClaims {
    /// Whether several helpers confirm that the catalog is outdated.
    pub(crate) fn is_behind(&self) -> bool {
        !self.confirmed.is_empty()
    }

    /// Returns the claims for the API.
    pub(crate) fn views(&self, nodes: &Nodes) -> Vec<NewerBlocks> {
        let view = |(&node, blocks): (&NodeId, &BTreeSet<BlockId>)| NewerBlocks {
            node: nodes.name(node),
            blocks: blocks.len() as u64,
            first: blocks.iter().take(NAMED).map(|block| block.to_string()).collect(),
            confirmed: self.is_confirmed(blocks),
        };
        self.claims.iter().map(view).collect()
    }
}
