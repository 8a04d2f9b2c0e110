//! Blocks of stripes that the catalog has yet to count, as helpers claim: either the catalog is an old copy
//! that was put back, or a helper makes things up.
//!
//! If two helpers hold blocks of such a stripe, somebody has stored it: then nothing is changed until an
//! operator decides. A claim of one helper alone only holds removals back, as the other helpers may be on
//! their way.

use std::collections::{BTreeMap, BTreeSet};

use repair::{BlockId, NodeId};
use serde_json::{Value, json};
use store_api::{RecordWrite, Write};

use crate::commands::answer;
use crate::effect::Reply;
use crate::error::RequestError;
use crate::facts::Around;
use crate::facts::Facts;
use crate::nodes::Nodes;
use crate::nodes::absences::recall;
use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::Stripes;
use crate::stripes::continuation::StripeThen;
use crate::stripes::picture::Picture;
use views::{AcceptRequest, AcceptedView, NewerBlocks};

/// Keys of the helpers whose claims were rejected begin with this; the name follows.
const REJECTED: &str = "rejected/";
/// Blocks of a claim that are named.
const NAMED: usize = 3;

/// Claims by helper.
#[derive(Default)]
pub(crate) struct Newer {
    pub(crate) claims: BTreeMap<NodeId, BTreeSet<BlockId>>,
    /// Helpers that an operator does not believe.
    rejected: BTreeSet<NodeId>,
    /// Stripes of which several helpers claim blocks.
    confirmed: BTreeSet<String>,
}

impl Newer {
    /// Helpers that an operator did not believe in an earlier coordinator's time.
    pub(crate) fn recall(&mut self, picture: &Picture, records: &[(String, Value)]) {
        for (name, _) in recall::<Value>(records, REJECTED) {
            let node = picture.node_named(name).map(|node| node.id);
            self.rejected.extend(node);
        }
    }

    /// A helper is forgotten, and so is the rejection of its claims.
    pub(crate) fn forget_rejected(&mut self, nodes: &Nodes, node: NodeId, out: &mut Out) {
        if self.rejected.remove(&node) {
            out.forget_record(format!("{REJECTED}{}", nodes.name(node)));
        }
    }

    /// Replaces a helper's claim, and says whether it has one now.
    fn set(&mut self, node: NodeId, blocks: BTreeSet<BlockId>) -> bool {
        self.claims.remove(&node);
        if !blocks.is_empty() && !self.rejected.contains(&node) {
            self.claims.insert(node, blocks);
        }
        self.confirm();
        self.claims.contains_key(&node)
    }

    fn retain(&mut self, is_newer: impl Fn(&BlockId) -> bool) {
        self.claims.values_mut().for_each(|blocks| blocks.retain(&is_newer));
        self.claims.retain(|_, blocks| !blocks.is_empty());
        self.confirm();
    }

    fn confirm(&mut self) {
        let mut first: BTreeMap<&str, NodeId> = BTreeMap::new();
        let mut confirmed = BTreeSet::new();
        for (&node, blocks) in &self.claims {
            for stripe in blocks.iter().map(stripe_of) {
                if *first.entry(stripe).or_insert(node) != node {
                    confirmed.insert(stripe.to_owned());
                }
            }
        }
        self.confirmed = confirmed;
    }

    fn is_confirmed(&self, blocks: &BTreeSet<BlockId>) -> bool {
        blocks.iter().any(|block| self.confirmed.contains(stripe_of(block)))
    }

    /// The helpers whose claims others confirm, and how many blocks they list.
    pub(crate) fn stopping(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        let stopping = self.claims.iter().filter(|(_, blocks)| self.is_confirmed(blocks));
        stopping.map(|(&node, blocks)| (node, blocks.len() as u64))
    }
}

/// The name of a block's stripe.
fn stripe_of(block: &BlockId) -> &str {
    block.0.rsplit_once('.').map_or(&block.0, |(stripe, _)| stripe)
}

impl Stripes {
    pub(crate) fn note_newer(
        &mut self,
        around: Around<'_>,
        node: NodeId,
        newer: BTreeSet<BlockId>,
        out: &mut Out,
    ) {
        let (name, blocks) = (around.nodes.name(node), newer.len());
        let doubted = self.doubts_catalog();
        if self.newer.set(node, newer) {
            let confirmed = self.is_behind();
            tracing::error!(
                node = %name, blocks, confirmed, "a helper lists blocks that are newer than the catalog; see mend status"
            );
        } else if doubted && !self.doubts_catalog() {
            out.tell(Signal::Settled);
        }
    }

    /// Goes on without the blocks that are newer than the catalog; they are orphans from then on. Or a helper
    /// is not believed.
    pub(crate) fn accept_catalog(
        &mut self,
        around: Around<'_>,
        request: AcceptRequest,
        reply: Reply<AcceptedView>,
        out: &mut Out,
    ) {
        if let Some(name) = request.reject {
            return answer(reply, self.reject_claims(around, &name, out), out);
        }
        let claims = around.with(self).newer_views();
        let beyond: BTreeSet<BlockId> = self.newer.claims.values().flatten().cloned().collect();
        let view = AcceptedView { blocks: beyond.len() as u64, claims };
        let then = StripeThen::Accepted { view: Box::new(view), reply };
        out.store(Write::Records(RecordWrite::Disclaim(beyond)), then);
    }

    pub(crate) fn catalog_accepted(
        &mut self,
        _around: Around<'_>,
        view: AcceptedView,
        out: &mut Out,
    ) -> AcceptedView {
        // Claims that came meanwhile stay.
        let Self { newer, picture, .. } = self;
        newer.retain(|block| picture.is_from_the_future(block));
        if !self.doubts_catalog() {
            tracing::warn!(
                blocks = view.blocks,
                "going on without the blocks that are newer than the catalog"
            );
            out.tell(Signal::Settled);
        }
        view
    }

    /// Disregards a helper's claims until it is taken off the list of helpers.
    fn reject_claims(
        &mut self,
        around: Around<'_>,
        name: &str,
        out: &mut Out,
    ) -> Result<AcceptedView, RequestError> {
        let node = around.nodes.node_named(around.base, name)?;
        let claims: Vec<NewerBlocks> =
            around.with(self).newer_views().into_iter().filter(|claim| claim.node == name).collect();
        tracing::warn!(helper = name, "what it claims of newer blocks is not believed");
        self.newer.rejected.insert(node);
        out.keep_record(format!("{REJECTED}{name}"), &json!({ "at_unix_ms": around.base.unix_ms }));
        self.note_newer(around, node, BTreeSet::new(), out);
        Ok(AcceptedView { blocks: claims.iter().map(|claim| claim.blocks).sum(), claims })
    }
}

impl Stripes {
    /// Whether helpers hold blocks of stripes that the catalog has yet to count, and confirm each other.
    pub(crate) fn is_behind(&self) -> bool {
        !self.newer.confirmed.is_empty()
    }

    /// Whether some helper claims so.
    pub(crate) fn doubts_catalog(&self) -> bool {
        !self.newer.claims.is_empty()
    }
}

impl<'a> Facts<'a> {
    pub(crate) fn newer_views(self) -> Vec<NewerBlocks> {
        let view = |(&node, blocks): (&NodeId, &BTreeSet<BlockId>)| NewerBlocks {
            node: self.nodes.name(node),
            blocks: blocks.len() as u64,
            first: blocks.iter().take(NAMED).map(|block| block.to_string()).collect(),
            confirmed: self.stripes.newer.is_confirmed(blocks),
        };
        self.stripes.newer.claims.iter().map(view).collect()
    }
}
