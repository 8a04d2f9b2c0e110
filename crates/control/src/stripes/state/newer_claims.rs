//! Claims: helpers list blocks that are newer than the catalog, because their stripe numbers have not been
//! used yet. Either the catalog is an old copy that was restored, or a helper's list is wrong.
//!
//! If two helpers have blocks of the same newer stripe, the stripe was really stored, and nothing is changed
//! until an operator decides. A claim by a single helper only stops removals, because the other helpers may
//! not have registered yet. Claims are recorded, so that they also count while the helper is down and the coordinator
//! restarts.

use std::collections::{BTreeMap, BTreeSet};

use repair::wire::control::Description;
use repair::{BlockId, NodeId};
use serde_json::Value;
use store_api::{FileWrite, Write};

use crate::base::Base;
use crate::nodes::Nodes;
use crate::out::Out;
use crate::records::recall;
use crate::storing::then::Then;
use crate::stripes::picture::Picture;

/// The prefix of the record keys of helpers whose claims were rejected; the name follows.
pub(in crate::stripes) const REJECTED: &str = "rejected/";
/// The prefix of the record keys of claims; the helper's name follows. The record is the list of blocks.
const CLAIM: &str = "newer/";
/// The maximum number of blocks in the record of a claim. A helper may list any number of invented blocks.
const MOST_RECORDED: usize = 10_000;

/// The blocks newer than the catalog that each helper lists.
#[derive(Default)]
pub(crate) struct NewerClaims {
    pub(crate) claims: BTreeMap<NodeId, BTreeSet<BlockId>>,
    /// Helpers whose claims an operator has rejected.
    pub(in crate::stripes) rejected: BTreeSet<NodeId>,
    /// Stripes of which several helpers list newer blocks.
    pub(in crate::stripes) confirmed: BTreeSet<String>,
    /// The latest time at which a put began according to the labels of blocks, if that time was in the future
    /// (in ms since 1970).
    pub(in crate::stripes) begun_unix_ms: u64,
}

impl NewerClaims {
    /// Restores the rejections and claims that an earlier coordinator recorded.
    pub(crate) fn recall(&mut self, picture: &Picture, records: &[(String, Value)]) {
        for (name, _) in recall::<Value>(records, REJECTED) {
            let node = picture.node_named(name).map(|node| node.id);
            self.rejected.extend(node);
        }
        for (name, blocks) in recall::<BTreeSet<BlockId>>(records, CLAIM) {
            if let (Some(node), Some(mut blocks)) = (picture.node_named(name), blocks) {
                blocks.retain(|block| picture.is_from_the_future(block));
                self.set(node.id, blocks);
            }
        }
    }

    /// Drops a helper's claim and its rejection, because the helper was removed.
    pub(crate) fn forget(&mut self, nodes: &Nodes, node: NodeId, out: &mut Out) {
        if self.rejected.remove(&node) {
            out.forget_record(format!("{REJECTED}{}", nodes.name(node)));
        }
        if self.claims.contains_key(&node) {
            self.set(node, BTreeSet::new());
            self.keep(nodes, node, out);
        }
    }

    /// Records a helper's claim, or removes the record if there is no claim any more.
    pub(in crate::stripes) fn keep(&self, nodes: &Nodes, node: NodeId, out: &mut Out) {
        let key = format!("{CLAIM}{}", nodes.name(node));
        match self.claims.get(&node) {
            Some(blocks) => out.keep_record(key, &blocks.iter().take(MOST_RECORDED).collect::<Vec<_>>()),
            None => out.forget_record(key),
        }
    }

    /// Makes later puts count as newer than all puts in these labels. If the catalog is lost, the newest put
    /// of a name becomes the file. The clock may have been ahead when a put began, and the catalog does not
    /// know of puts that are newer than itself.
    pub(crate) fn note_begun(&mut self, base: &Base, blocks: &[Description], out: &mut Out) {
        let labels = blocks.iter().filter_map(|block| block.label.as_ref()).map(|(_, label)| label);
        let ours = labels.filter(|label| label.cluster == base.settings.cluster_id);
        let latest = ours.map(|label| label.file.begun_unix_ms).max().unwrap_or_default();
        if latest > base.unix_ms.max(self.begun_unix_ms) {
            self.begun_unix_ms = latest;
            out.store(Write::Files(FileWrite::BeginAfter(latest)), Then::Nothing);
        }
    }

    /// Whether any helper lists blocks that are newer than the catalog.
    pub(crate) fn has_claims(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Replaces the newer blocks that a helper lists. Returns whether the helper has a claim now.
    pub(in crate::stripes) fn set(&mut self, node: NodeId, blocks: BTreeSet<BlockId>) -> bool {
        self.claims.remove(&node);
        if !blocks.is_empty() && !self.rejected.contains(&node) {
            self.claims.insert(node, blocks);
        }
        self.confirm();
        self.claims.contains_key(&node)
    }

    pub(in crate::stripes) fn retain(&mut self, is_newer: impl Fn(&BlockId) -> bool) {
        self.claims.values_mut().for_each(|blocks| blocks.retain(&is_newer));
        self.claims.retain(|_, blocks| !blocks.is_empty());
        self.confirm();
    }

    pub(in crate::stripes) fn confirm(&mut self) {
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

    pub(in crate::stripes) fn is_confirmed(&self, blocks: &BTreeSet<BlockId>) -> bool {
        blocks.iter().any(|block| self.confirmed.contains(stripe_of(block)))
    }

    /// Returns the helpers whose claims are confirmed by other helpers, and the number of blocks in each
    /// claim.
    pub(crate) fn stopping(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        let stopping = self.claims.iter().filter(|(_, blocks)| self.is_confirmed(blocks));
        stopping.map(|(&node, blocks)| (node, blocks.len() as u64))
    }
}

/// Returns the name of a block's stripe.
fn stripe_of(block: &BlockId) -> &str {
    block.0.rsplit_once('.').map_or(&block.0, |(stripe, _)| stripe)
}
