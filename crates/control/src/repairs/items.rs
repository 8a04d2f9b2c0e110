//! The items of a repair, one per stripe, and the requests for their jobs.

use std::collections::VecDeque;

use codes::BlockIndex;
use recovery::{Kind, NewItem, Placement, Proposal, RepairId, Target};
use repair::{BlockId, JobRequest, NodeId, Policy, Replacements, Stripe, StripeId, Verify, Wanted};
use store_api::StripeRecord;

use crate::base::SETTLE_LIMIT;
use crate::error::RequestError;
use crate::facts::Facts;
use crate::jobs::requests::policy;
use crate::out::Out;
use crate::repairs::Repairs;
use crate::repairs::advice::must_prove;
use crate::repairs::orders::Order;
use crate::repairs::repair::Repair;
use crate::repairs::scheduler_facts::tell_heats;
use crate::stripes::indices::indexed;

impl Repairs {
    /// Removes and returns the queued repairs whose items can be added, because the start-up phase has ended. Repairs of
    /// stripes that plug-ins described do not wait for the store's listing.
    pub(crate) fn take_due(&mut self, facts: Facts<'_>) -> VecDeque<u64> {
        let is_due = |repair: &Repair| {
            facts.nodes.settled || (facts.base.now >= SETTLE_LIMIT && repair.order.given.is_some())
        };
        self.queue.take_unexpanded(is_due)
    }

    /// Returns the described stripes that these repairs take as the store lists them. A stripe that a plug-in has
    /// repaired as described keeps its description.
    pub(crate) fn superseded(&self, facts: Facts<'_>, due: &VecDeque<u64>) -> Vec<StripeId> {
        let orders = due.iter().map(|id| &self.queue.by_id[id].order);
        let orders: Vec<&Order> = orders.filter(|order| order.given.is_none()).collect();
        if orders.is_empty() {
            return Vec::new();
        }
        let listed =
            facts.stripes.given.names().filter_map(|stripe| facts.stripes.picture.stripe(stripe).ok());
        let covered = listed.filter(|record| orders.iter().any(|order| covers(&order.target, record)));
        let stripes = covered.map(|record| record.id);
        stripes.filter(|stripe| !self.queue.has_described(facts.storing, stripe)).collect()
    }

    /// Adds the items of these repairs.
    pub(crate) fn expand_repairs(&mut self, facts: Facts<'_>, due: VecDeque<u64>, out: &mut Out) {
        for id in due {
            let order = self.queue.by_id[&id].order.clone();
            let records = facts.stripes_of(&order.target);
            for record in &records {
                self.verify_first.begin(facts, (id, &order), record, &mut self.scheduler, out);
                self.push_item(facts, id, &order, record);
            }
            self.begin_course(facts, id, &records);
            self.scheduler.close(RepairId(id));
        }
    }

    /// Builds the request for the job of an item.
    pub(crate) fn job_request(
        &mut self,
        facts: Facts<'_>,
        order: &Order,
        proposal: &Proposal,
        stripe: Stripe,
        wanted: Vec<Wanted>,
        out: &mut Out,
    ) -> Result<JobRequest, RequestError> {
        let replacements = Replacements {
            shares_nodes: facts.base.store.shares_nodes(),
            only: match &order.given {
                Some(_) => wanted.iter().map(|wanted| wanted.requestor).collect(),
                None => order.requestors.clone(),
            },
            never: unsuitable(self, facts, order, &stripe),
        };
        let repair = Policy { replacements, ..policy(order.scheme, order.slice_bytes) };
        let mut policy = proposal.policy(repair);
        if !order.is_wide() {
            // Chains balance the load over many stripes. A repair of few stripes is left to the planner.
            policy.stretches.clear();
        }
        Ok(JobRequest {
            job: out.next_job()?,
            window: 0..stripe.sub_block_bytes(),
            sub_blocks: None,
            policy,
            verify: Verify {
                reread: true,
                proven: facts
                    .stripes
                    .stripe_record(&stripe.id)
                    .is_ok_and(|record| must_prove(facts, order, &record)),
                replaces_digests: facts.base.store.owns_files() && order.given.is_none(),
                ..facts.stripes.verify(&stripe.id, order.verify_parity)
            },
            publish: true,
            tag: None,
            permits: self.claims.permits(&stripe.id),
            stripe,
            wanted,
        })
    }
}

impl Repairs {
    /// Adds an item for a stripe to a repair and to the scheduler.
    fn push_item(&mut self, facts: Facts<'_>, id: u64, order: &Order, record: &StripeRecord) {
        let Ok(code) = facts.stripes.codes.get(&record.code) else {
            return tracing::error!(stripe = %record.id, code = %record.code, "no such code");
        };
        let (kind, moving) = match &order.target {
            Target::Rebalance(blocks) => match facts.moving(blocks, &order.requestors, record) {
                Some((index, from)) => (Kind::Migrate { from }, Some(index)),
                None => return, // The block has already moved.
            },
            _ => (order.kind(), None),
        };
        let only = match (&order.target, &order.given) {
            (_, Some(given)) => given.homes.keys().copied().collect(),
            (Target::Block(block), None) => {
                crate::stripes::indices::index_of(record, block).into_iter().collect()
            }
            (Target::Rebalance(_), None) => moving.into_iter().collect(),
            (Target::Node(node), None) if order.is_of_node_alone() => on_node(record, *node),
            (_, None) => Vec::new(),
        };
        let new = NewItem {
            stripe: record.id.clone(),
            code,
            block_bytes: record.block_bytes,
            blocks: record.blocks.iter().map(|block| facts.block_facts(block)).collect(),
            kind,
            only,
        };
        let item = self.scheduler.push(RepairId(id), new);
        tell_heats(&mut self.scheduler, facts.nodes, record);
        let wanted = match moving {
            Some(index) => vec![index],
            None => facts.wanted_of(order, record),
        };
        let repair = self.queue.by_id.get_mut(&id).expect("the repair was just taken from the queue");
        repair.add_item(item, record, &wanted, |block| facts.is_lost(block));
    }

    /// Returns the nodes that will receive the blocks: for a described stripe, those that the order names;
    /// otherwise those that the scheduler proposed. If the store refused blocks of the stripe on a proposed
    /// node, or a removal in flight could hit the new copy on it, other nodes are chosen.
    pub(crate) fn requestors(
        &mut self,
        facts: Facts<'_>,
        order: &Order,
        lost: &[BlockIndex],
        proposal: &Proposal,
        record: &StripeRecord,
    ) -> Placement {
        if let Some(given) = &order.given {
            return Placement::Chosen(given.next_round(lost));
        }
        let removers = removers(facts, record.blocks.iter().map(|block| &block.id));
        let refusers: Vec<NodeId> = self.refusals.of(&record.id).collect();
        let wants = |nodes: &[NodeId]| proposal.wanted.iter().any(|wanted| nodes.contains(&wanted.requestor));
        if wants(&refusers) {
            let placement =
                self.scheduler.place(proposal.item, &[removers.as_slice(), refusers.as_slice()].concat());
            if placement != Placement::Nowhere {
                return placement;
            }
        }
        if wants(&removers) {
            return self.scheduler.place(proposal.item, &removers);
        }
        match proposal.wanted.as_slice() {
            [] => Placement::Nowhere,
            wanted => Placement::Chosen(wanted.to_vec()),
        }
    }
}

/// Whether a target contains a stripe, or may contain it.
fn covers(target: &Target, record: &StripeRecord) -> bool {
    match target {
        Target::Stripe(stripe) => record.id == *stripe,
        Target::Block(block) => record.blocks.iter().any(|known| known.id == *block),
        Target::Rebalance(blocks) => record.blocks.iter().any(|known| blocks.contains(&known.id)),
        Target::Node(node) | Target::Drain(node) => {
            record.blocks.iter().any(|known| known.state_on(*node).is_some())
        }
        Target::All => true,
    }
}

/// Returns the nodes that must not receive a block of this stripe if a requestor fails: those on which the store
/// refused blocks of it, those that are removing copies of it, and the node that the order empties.
fn unsuitable(repairs: &Repairs, facts: Facts<'_>, order: &Order, stripe: &Stripe) -> Vec<NodeId> {
    let emptied = match order.target {
        Target::Drain(node) => Some(node),
        _ => None,
    };
    let removers = removers(facts, stripe.blocks.iter().map(|block| &block.id));
    repairs.refusals.of(&stripe.id).chain(removers).chain(emptied).collect()
}

/// Returns the nodes on which removals of any of these blocks are in flight.
fn removers<'b>(facts: Facts<'_>, blocks: impl Iterator<Item = &'b BlockId> + Clone) -> Vec<NodeId> {
    let inventory = &facts.stripes.inventory;
    let removing = |&node: &NodeId| blocks.clone().any(|block| inventory.is_removing(node, block));
    inventory.removers().filter(removing).collect()
}

impl<'a> Facts<'a> {
    /// Returns the stripes of a target that still exist.
    fn stripes_of(self, target: &Target) -> Vec<StripeRecord> {
        let one = |stripe: &StripeId| self.stripes.stripe_record(stripe).ok();
        match target {
            Target::Block(block) => {
                let found = self.stripes.picture.find_block(block).ok();
                found.and_then(|(stripe, _)| one(&stripe)).into_iter().collect()
            }
            Target::Stripe(stripe) => one(stripe).into_iter().collect(),
            Target::Node(node) | Target::Drain(node) => {
                let mut stripes: Vec<StripeId> =
                    self.stripes.picture.blocks_of(*node).into_iter().map(|(stripe, _)| stripe).collect();
                stripes.dedup();
                // A stripe that belongs to no file yet is left to the put that stores it.
                stripes.retain(|stripe| self.stripes.picture.is_pending(stripe) == Some(false));
                stripes.iter().filter_map(one).collect()
            }
            Target::Rebalance(blocks) => {
                let found = blocks.iter().filter_map(|block| self.stripes.picture.find_block(block).ok());
                found.filter_map(|(stripe, _)| one(&stripe)).collect()
            }
            Target::All => {
                let as_described =
                    |stripe: StripeRecord| self.stripes.given.get(&stripe.id).cloned().unwrap_or(stripe);
                self.stripes.picture.damaged().into_iter().map(as_described).collect()
            }
        }
    }

    /// Returns the block of this stripe that a rebalance moves, and the block's present node; `None` if the
    /// block cannot be read or need not be moved any more.
    fn moving(
        self,
        blocks: &[BlockId],
        onto: &[NodeId],
        record: &StripeRecord,
    ) -> Option<(BlockIndex, NodeId)> {
        let (index, block) = indexed(record).find(|(_, block)| blocks.contains(&block.id))?;
        let from = self.readable_at(block)?;
        let moves = match onto {
            [] => self.shares_helper(record, index, from), // The helper has another block of the stripe.
            onto => !onto.contains(&from),
        };
        moves.then_some((index, from))
    }

    /// Returns the blocks of a stripe that a repair must place on other nodes.
    pub(crate) fn wanted_of(self, order: &Order, record: &StripeRecord) -> Vec<BlockIndex> {
        let mut lost = self.lost_blocks(record);
        if let Some(given) = &order.given {
            lost.retain(|index| given.homes.contains_key(index));
            return lost;
        }
        match &order.target {
            Target::Block(block) => {
                let index = crate::stripes::indices::index_of(record, block);
                lost.retain(|&lost| Some(lost) == index);
            }
            Target::Drain(node) if self.nodes.is_connected(*node) => return on_node(record, *node),
            Target::Node(node) if order.is_of_node_alone() => {
                let there = on_node(record, *node);
                lost.retain(|index| there.contains(index));
            }
            _ => {}
        }
        lost
    }
}

/// Returns the blocks of a stripe whose recorded home is this node.
fn on_node(record: &StripeRecord, node: NodeId) -> Vec<BlockIndex> {
    indexed(record).filter(|(_, block)| block.node == Some(node)).map(|(index, _)| index).collect()
}
