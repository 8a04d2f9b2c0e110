//! Which node gets a repaired block: racks spread first, then load even, and never two blocks of a stripe on one.
//!
//! A block goes back to where it was if that node is up and has space. Otherwise it goes to a node that has nothing of
//! the stripe. A rack that has fewer blocks of the stripe is worth waiting for: where a block lies matters for longer
//! than when its repair begins.

use codes::BlockIndex;

use super::nodes::{Node, NodeNo, NodeTable};
use super::policy::HelperPolicy;
use super::queue::Class;
use super::stripes::Stripe;
use crate::{NodeId, Wanted};

/// What came of looking for requestors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Blocks and their requestors, ascending; fewer than were asked for if no further node may take one.
    Chosen(Vec<Wanted>),
    /// The nodes that are right have no room now.
    Busy,
    /// No node may take any of them: none is up, has space and has no other block of the stripe.
    Nowhere,
}

/// Chooses requestors for blocks of a stripe.
pub(super) struct Placer<'a> {
    pub table: &'a NodeTable,
    pub stripe: &'a Stripe,
    pub policy: HelperPolicy,
    /// How urgent it is, and the number of the scan in which others may have claims.
    pub class: Class,
    pub scan: u64,
    /// Nodes that shall not be chosen.
    pub barred: &'a [NodeId],
    /// The node that is to be emptied.
    pub leaving: Option<NodeId>,
    /// The only nodes that may be chosen; any if there are none.
    pub allowed: &'a [NodeId],
}

impl Placer<'_> {
    pub fn place(&self, blocks: &[BlockIndex]) -> Placement {
        let (stay, moving): (Vec<BlockIndex>, Vec<BlockIndex>) =
            blocks.iter().partition(|&&block| self.home(block).is_some());
        let mut chosen: Vec<(BlockIndex, NodeNo)> = Vec::with_capacity(blocks.len());
        chosen.extend(stay.into_iter().filter_map(|block| Some((block, self.home(block)?))));
        if chosen.iter().any(|&(_, node)| !self.has_room(self.table.get(node))) {
            return Placement::Busy;
        }
        let mut racks = self.racks();
        for block in moving {
            let taken = |node| chosen.iter().any(|&(_, other)| other == node);
            let Some((node, roomy)) = self.best(&racks, taken) else { break };
            if !roomy {
                return Placement::Busy;
            }
            count_in(&mut racks, self.table.get(node).rack);
            chosen.push((block, node));
        }
        if chosen.is_empty() {
            return Placement::Nowhere;
        }
        chosen.sort_unstable();
        let wanted = |(block, node)| Wanted { block, requestor: self.table.get(node).id };
        Placement::Chosen(chosen.into_iter().map(wanted).collect())
    }

    /// The node that had the block, if it can have it again.
    fn home(&self, block: BlockIndex) -> Option<NodeNo> {
        let home = self.stripe.blocks[usize::from(block.0)].node?;
        self.may_take(self.table.get(home)).then_some(home)
    }

    /// The best node without a block of the stripe, and whether it has room now.
    fn best(&self, racks: &[(usize, u32)], taken: impl Fn(NodeNo) -> bool) -> Option<(NodeNo, bool)> {
        let in_rack = |rack: Option<usize>| {
            racks.iter().find(|&&(other, _)| rack == Some(other)).map_or(0, |&(_, blocks)| blocks)
        };
        let fit = self.table.all().filter(|(_, node)| self.may_take(node));
        let free = fit.filter(|&(no, _)| !self.stripe.has(no) && !taken(no));
        free.map(|(no, node)| {
            let full = !self.has_room(node);
            let used = node.facts.blocks + node.coming;
            let full_now = full && !self.policy.waits_for_requestor();
            let used = if self.policy.waits_for_requestor() { 0 } else { used };
            let level = self.policy.requestor_level(node);
            let preferred = self.policy.requestor_rank(node, self.stripe);
            let rank = (in_rack(node.rack), full_now, level, used, preferred, node.id);
            (rank, (no, !full))
        })
        .min_by_key(|&(rank, _)| rank)
        .map(|(_, best)| best)
    }

    /// Whether a node may get a block at all.
    fn may_take(&self, node: &Node) -> bool {
        let facts = &node.facts;
        facts.alive
            && !facts.draining
            && facts.budget.jobs > 0
            && facts.free_bytes >= self.stripe.block_bytes.saturating_add(node.coming_bytes)
            && self.leaving != Some(node.id)
            && (self.allowed.is_empty() || self.allowed.contains(&node.id))
            && !self.barred.contains(&node.id)
    }

    /// Whether it can take one now.
    fn has_room(&self, node: &Node) -> bool {
        let bytes = self.stripe.block_bytes;
        node.has_room(0, bytes, bytes) && !node.is_claimed(self.scan, self.class)
    }

    /// Readable blocks of the stripe in each rack.
    fn racks(&self) -> Vec<(usize, u32)> {
        let mut racks = Vec::new();
        for (_, node) in self.stripe.survivors(self.table) {
            count_in(&mut racks, self.table.get(node).rack);
        }
        racks
    }
}

fn count_in(racks: &mut Vec<(usize, u32)>, rack: Option<usize>) {
    let Some(rack) = rack else { return };
    match racks.iter_mut().find(|(other, _)| *other == rack) {
        Some((_, blocks)) => *blocks += 1,
        None => racks.push((rack, 1)),
    }
}
