//! Chooses the node for a repaired block. The criteria are, in this order, the spread over racks, the spread
//! over hosts, and even load.
//!
//! A node never gets two blocks of a stripe, except in clusters with fewer nodes than blocks
//! (`Limits::shares_nodes`). There, a node never gets more than an even share.
//!
//! A block returns to its old node if this node is up and has space. Otherwise the block goes to a node
//! without a block of the stripe. If the best rack or host has no room now, the repair waits rather than use
//! a rack or host with more blocks of the stripe: the location of a block matters for longer than the start
//! time of its repair.

use std::collections::BTreeMap;

use codes::BlockIndex;
use repair::{Accepts, NodeId, Wanted};

use super::Limits;
use super::item::CopyState;
use super::nodes::{Node, NodeNo, NodeTable};
use super::policy::HelperPolicy;
use super::queue::Class;
use super::scan::Claims;
use super::stripes::{BlockState, Stripe};
use super::view::ItemView;

/// Result of choosing requestors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Blocks and their requestors, in ascending order. Fewer than requested if no further node may take a
    /// block.
    Chosen(Vec<Wanted>),
    /// The suitable nodes have no room now.
    Busy,
    /// No node may take any of the blocks: for example, each is down, full, or has another block of the
    /// stripe.
    Nowhere,
}

/// Chooses requestors for blocks of a stripe.
pub(super) struct Placer<'a> {
    table: &'a NodeTable,
    stripe: &'a Stripe,
    policy: HelperPolicy,
    /// Urgency of the item, and the nodes that are kept free for more urgent items.
    class: Class,
    claims: &'a Claims,
    /// Nodes that must not be chosen.
    barred: &'a [NodeId],
    /// The node that is being drained.
    leaving: Option<NodeId>,
    /// The only nodes that may be chosen; if empty, any node may.
    allowed: &'a [NodeId],
    /// The nodes that the driver has prepared for the item's blocks.
    prepared: &'a [Wanted],
    /// Whether a node may have several blocks of the stripe.
    shares_nodes: bool,
    /// Whether a bad copy is replaced on its node even if another block of the stripe is there.
    replaces_in_place: bool,
}

impl<'a> Placer<'a> {
    /// Creates a placer for the blocks of an item.
    pub fn of(
        of: &ItemView<'a>,
        limits: &Limits,
        class: Class,
        claims: &'a Claims,
        barred: &'a [NodeId],
    ) -> Self {
        Self {
            table: of.table,
            stripe: of.stripe,
            policy: of.repair.spec.helpers,
            class,
            claims,
            barred,
            leaving: of.item.kind.leaves(),
            allowed: &of.repair.spec.requestors,
            prepared: &of.item.prepared.wanted,
            shares_nodes: limits.shares_nodes,
            replaces_in_place: limits.replaces_in_place,
        }
    }

    /// Chooses requestors for these blocks.
    pub fn place(&self, blocks: &[BlockIndex]) -> Placement {
        match self.choose(blocks) {
            Ok(wanted) if wanted.is_empty() => Placement::Nowhere,
            Ok(wanted) => Placement::Chosen(wanted),
            Err(_) => Placement::Busy,
        }
    }

    /// Chooses requestors for these blocks, without the blocks that no node may take. Blocks go to the nodes that were
    /// prepared for them, if these have room.
    ///
    /// # Errors
    /// The nodes to which the blocks must go, if some of these nodes are busy. The list is empty if the blocks wait for
    /// any node with room.
    pub fn choose(&self, blocks: &[BlockIndex]) -> Result<Vec<Wanted>, Vec<NodeNo>> {
        let (stay, moving): (Vec<BlockIndex>, Vec<BlockIndex>) =
            blocks.iter().partition(|&&block| self.home(block).is_some());
        let mut chosen: Vec<(BlockIndex, NodeNo)> = Vec::with_capacity(blocks.len());
        chosen.extend(stay.into_iter().filter_map(|block| Some((block, self.home(block)?))));
        if chosen.iter().any(|&(_, home)| !self.has_room(home)) {
            return Err(self.certain(blocks));
        }
        let mut domains = self.domains();
        let ready: Vec<(BlockIndex, NodeNo)> =
            moving.iter().filter_map(|&block| Some((block, self.ready(block)?))).collect();
        ready.iter().for_each(|&(_, node)| domains.add(self.table.get(node)));
        for block in moving.into_iter().filter(|block| ready.iter().all(|(other, _)| other != block)) {
            let taken = |node| chosen.iter().chain(&ready).filter(|&&(_, other)| other == node).count();
            let Some((node, roomy)) = self.best(&domains, taken) else { break };
            if !roomy {
                let any_may_take = self.allowed.is_empty() && !self.policy.waits_for_requestor();
                return Err(if any_may_take { Vec::new() } else { self.certain(blocks) });
            }
            domains.add(self.table.get(node));
            chosen.push((block, node));
        }
        chosen.extend(ready);
        chosen.sort_unstable();
        let wanted = |(block, node)| Wanted { block, requestor: self.table.get(node).id };
        Ok(chosen.into_iter().map(wanted).collect())
    }

    /// Returns the nodes to which these blocks must go: the old nodes of blocks that return to them, and the nodes to
    /// which the policy or the repair restricts the others. Empty if any node may take the blocks.
    pub fn certain(&self, blocks: &[BlockIndex]) -> Vec<NodeNo> {
        let mut nodes: Vec<NodeNo> = blocks.iter().filter_map(|&block| self.home(block)).collect();
        let moving = blocks.len() - nodes.len();
        if !self.policy.waits_for_requestor() {
            let allowed = self.allowed.iter().filter(|_| moving > 0);
            nodes.extend(allowed.filter_map(|&id| self.table.find(id)));
            return nodes;
        }
        let mut domains = self.domains();
        for _ in 0..moving {
            let taken = |node| nodes.iter().filter(|&&other| other == node).count();
            let Some((node, _)) = self.best(&domains, taken) else { break };
            domains.add(self.table.get(node));
            nodes.push(node);
        }
        nodes
    }

    /// Returns the old node of the block, if it can have the block again.
    ///
    /// If nodes may have several blocks of a stripe (`shares_nodes`), the old node must have less than its
    /// even share. Otherwise, an old node with another block of the stripe is returned only if no other node
    /// may take the block, or if it has a bad copy of the block and copies are replaced in place.
    fn home(&self, block: BlockIndex) -> Option<NodeNo> {
        let BlockState { node, copy } = self.stripe.blocks[usize::from(block.0)];
        let home = node.filter(|&home| self.may_take(self.table.get(home), Accepts::Own))?;
        let in_place = self.replaces_in_place && copy == CopyState::Bad;
        let others = self.survivors_on(home);
        let fits = match self.shares_nodes {
            true => others < self.share(),
            false => others == 0 || in_place || self.best(&Domains::default(), |_| 0).is_none(),
        };
        fits.then_some(home)
    }

    /// Returns the node that was prepared for the block, if it may take the block and has room now.
    fn ready(&self, block: BlockIndex) -> Option<NodeNo> {
        let wanted = self.prepared.iter().find(|wanted| wanted.block == block)?;
        let no = self.table.find(wanted.requestor)?;
        let is_free = match self.shares_nodes {
            true => self.survivors_on(no) < self.share(),
            false => !self.stripe.has(no),
        };
        (is_free && self.may_take(self.table.get(no), Accepts::All) && self.has_room(no)).then_some(no)
    }

    /// Returns the best node for one more block of the stripe, and whether it has room now.
    fn best(&self, domains: &Domains, taken: impl Fn(NodeNo) -> usize) -> Option<(NodeNo, bool)> {
        let fit = self.table.all().filter(|(_, node)| self.may_take(node, Accepts::All));
        let share = if self.shares_nodes { self.share() } else { 1 };
        let on = |no| if self.shares_nodes { self.survivors_on(no) + taken(no) } else { 0 };
        let free = fit.filter(|&(no, _)| match self.shares_nodes {
            true => on(no) < share,
            false => !self.stripe.has(no) && taken(no) == 0,
        });
        free.map(|(no, node)| {
            let full = !self.has_room(no);
            let used = node.facts.blocks + node.in_flight.coming;
            let full_now = full && !self.policy.waits_for_requestor();
            let used = if self.policy.waits_for_requestor() { 0 } else { used };
            let level = self.policy.requestor_level(node, self.stripe);
            let preferred = self.policy.requestor_rank(node);
            let rank = (domains.beside(node), on(no), full_now, level, used, preferred, node.id);
            (rank, (no, !full))
        })
        .min_by_key(|&(rank, _)| rank)
        .map(|(_, best)| best)
    }

    /// Returns the maximum number of blocks of the stripe per node, if nodes may have several.
    fn share(&self) -> usize {
        // Nodes that cannot take a block right now are counted too, so that the share of the other nodes does
        // not grow. Barred nodes are not counted: the other nodes together must be able to take all blocks.
        let may = |node: &Node| self.may_ever_take(node, Accepts::Own) && !self.barred.contains(&node.id);
        let takers = self.table.all().filter(|(_, node)| may(node)).count();
        self.stripe.blocks.len().div_ceil(takers.max(1))
    }

    fn survivors_on(&self, node: NodeNo) -> usize {
        self.stripe.survivors(self.table).filter(|&(_, other)| other == node).count()
    }

    /// Whether a node may get a block; `kind` is [`Accepts::Own`] for a block that was on this node.
    fn may_take(&self, node: &Node, kind: Accepts) -> bool {
        self.may_ever_take(node, kind)
            && node.facts.free_bytes >= self.stripe.block_bytes.saturating_add(node.in_flight.coming_bytes)
            && !self.barred.contains(&node.id)
    }

    /// Whether a node may get a block, apart from temporary obstacles.
    fn may_ever_take(&self, node: &Node, kind: Accepts) -> bool {
        let facts = &node.facts;
        facts.alive
            && (facts.accepts == Accepts::All || facts.accepts == kind)
            && facts.budget.jobs > 0
            && facts.free_bytes >= self.stripe.block_bytes
            && self.leaving != Some(node.id)
            && (self.allowed.is_empty() || self.allowed.contains(&node.id))
    }

    /// Whether a node has room for a block now.
    fn has_room(&self, no: NodeNo) -> bool {
        let bytes = self.stripe.block_bytes;
        self.table.get(no).has_room(0, bytes, bytes) && !self.claims.keep(no, self.class)
    }

    /// Returns the failure domains of the stripe's readable blocks.
    fn domains(&self) -> Domains {
        let mut domains = Domains::default();
        for (_, node) in self.stripe.survivors(self.table) {
            domains.add(self.table.get(node));
        }
        domains
    }
}

/// Number of the stripe's blocks in each rack and on each host.
#[derive(Default)]
struct Domains {
    racks: BTreeMap<usize, u32>,
    hosts: BTreeMap<usize, u32>,
}

impl Domains {
    fn add(&mut self, node: &Node) {
        node.rack.into_iter().for_each(|rack| *self.racks.entry(rack).or_default() += 1);
        node.host.into_iter().for_each(|host| *self.hosts.entry(host).or_default() += 1);
    }

    /// Number of blocks in the node's rack and on its host.
    fn beside(&self, node: &Node) -> (u32, u32) {
        let blocks = |counts: &BTreeMap<usize, u32>, domain: Option<usize>| {
            domain.and_then(|domain| counts.get(&domain)).copied().unwrap_or(0)
        };
        (blocks(&self.racks, node.rack), blocks(&self.hosts, node.host))
    }
}
