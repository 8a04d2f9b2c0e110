//! Reads before repairs. An order may name blocks that are healthy according to the catalog. Because the
//! operator may have better information, helpers read these blocks first.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use recovery::{BlockFacts, Scheduler, Target};
use repair::{NodeId, StripeId};
use store_api::{BlockState, StripeRecord};

use crate::facts::{Facts, copy_state};
use crate::out::Out;
use crate::repairs::orders::Order;
use crate::stripes::indices::indexed;

/// Reads in flight before repairs, and the helpers whose blocks proved healthy.
#[derive(Default)]
pub(crate) struct VerifyFirst {
    /// The stripe of each query that is not answered.
    open: BTreeMap<u64, StripeId>,
    healthy: BTreeMap<StripeId, BTreeSet<NodeId>>,
}

impl VerifyFirst {
    /// Drops the results for a stripe.
    pub(crate) fn forget(&mut self, stripe: &StripeId) {
        self.healthy.remove(stripe);
    }

    /// Asks helpers to read the blocks that an order names. The scheduler suspends the stripe until the
    /// answers arrive. If one of the blocks is already lost, there is something to repair and nothing is
    /// read.
    pub(crate) fn begin(
        &mut self,
        facts: Facts<'_>,
        order: &Order,
        record: &StripeRecord,
        scheduler: &mut Scheduler,
        out: &mut Out,
    ) {
        let named: Vec<BlockIndex> = match (&order.target, &order.given) {
            (Target::Block(block), None) => {
                crate::stripes::indices::index_of(record, block).into_iter().collect()
            }
            (Target::Stripe(_), None) => indexed(record).map(|(index, _)| index).collect(),
            _ => return,
        };
        let lost = facts.lost_blocks(record);
        if named.iter().any(|index| lost.contains(index)) {
            return;
        }
        self.forget(&record.id);
        for index in named {
            let block = record.blocks[usize::from(index.0)].clone();
            let reader = facts.readable_at(&block).filter(|&node| facts.nodes.is_helper(node));
            if let Some(node) = reader {
                let ask = facts.ask_for_block(node, record.id.clone(), index, block, false, out);
                self.open.insert(ask, record.id.clone());
                scheduler.hold(&record.id);
            }
        }
    }

    /// Handles the result of reading a block; `found` is `None` if the block's state is unknown.
    pub(crate) fn answered(
        &mut self,
        (ask, node): (u64, NodeId),
        index: Option<BlockIndex>,
        found: Option<BlockState>,
        scheduler: &mut Scheduler,
    ) {
        let Some(stripe) = self.open.remove(&ask) else { return };
        match (found, index) {
            (Some(BlockState::Healthy), _) => {
                self.healthy.entry(stripe.clone()).or_default().insert(node);
            }
            (Some(bad), Some(index)) => {
                // The stripe is resumed below, before the new state is recorded, so the scheduler must know
                // of the loss now.
                let facts = BlockFacts { node: Some(node), copy: copy_state(bad) };
                scheduler.handle_block(&stripe, index, facts);
            }
            _ => {}
        }
        scheduler.let_go(&stripe);
    }

    /// Returns the reason that no block of a stripe was repaired.
    pub(crate) fn nothing_lost(&mut self, facts: Facts<'_>, stripe: &StripeId) -> String {
        let nodes = self.healthy.remove(stripe).unwrap_or_default();
        let names: Vec<String> = nodes.into_iter().map(|node| facts.nodes.name(node)).collect();
        match names.as_slice() {
            [] => "nothing is lost".to_owned(),
            [one] => format!("nothing is lost: {one} has just read its block without errors"),
            some => {
                format!("nothing is lost: {} helpers have just read their blocks without errors", some.len())
            }
        }
    }
}
