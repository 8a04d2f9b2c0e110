//! Looking before repairing: what somebody asks to have repaired and the catalog thinks to be healthy is read first, as whoever
//! asks may know better.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use recovery::{BlockFacts, Target};
use repair::{NodeId, StripeId};
use store_api::StripeRecord;

use crate::facts::Facts;
use crate::out::Out;
use crate::repairs::Order;
use crate::repairs::Repairs;
use crate::stripes::indexed;

/// Blocks that are being read before their repair, and helpers that have read theirs.
#[derive(Default)]
pub(crate) struct Looks {
    /// The stripe that waits for the answer to a question.
    open: BTreeMap<u64, StripeId>,
    healthy: BTreeMap<StripeId, BTreeSet<NodeId>>,
}

impl Looks {
    /// Forgets what is known of a stripe.
    pub(crate) fn forget(&mut self, stripe: &StripeId) {
        self.healthy.remove(stripe);
    }
}

impl Repairs {
    /// Has the blocks read that an order names, if nothing is known to be lost of them. Until they are, the stripe is held.
    pub(crate) fn look_first(
        &mut self,
        facts: Facts<'_>,
        order: &Order,
        record: &StripeRecord,
        out: &mut Out,
    ) {
        let named: Vec<BlockIndex> = match (&order.target, &order.given) {
            (Target::Block(block), None) => crate::stripes::index_of(record, block).into_iter().collect(),
            (Target::Stripe(_), None) => indexed(record).map(|(index, _)| index).collect(),
            _ => return,
        };
        let lost = facts.lost_blocks(record);
        if named.iter().any(|index| lost.contains(index)) {
            return;
        }
        self.looks.forget(&record.id);
        for index in named {
            let block = record.blocks[usize::from(index.0)].clone();
            let reader = facts.readable_at(&block).filter(|&node| facts.nodes.is_helper(node));
            if let Some(node) = reader {
                let ask = facts.ask_for_block(node, record.id.clone(), index, block, false, out);
                self.looks.open.insert(ask, record.id.clone());
                self.scheduler.hold(&record.id);
            }
        }
    }

    /// A helper has read a block, or will not: `good` says what it is if that is known.
    pub(crate) fn looked(&mut self, ask: u64, node: NodeId, index: Option<BlockIndex>, good: Option<bool>) {
        let Some(stripe) = self.looks.open.remove(&ask) else { return };
        match (good, index) {
            (Some(true), _) => {
                self.looks.healthy.entry(stripe.clone()).or_default().insert(node);
            }
            (Some(false), Some(index)) => {
                // That is stored only after the stripe is let go.
                let facts = BlockFacts { node: Some(node), good: false };
                self.scheduler.handle_block(&stripe, index, facts);
            }
            _ => {}
        }
        self.scheduler.let_go(&stripe);
    }

    /// Why nothing of a stripe was repaired.
    pub(crate) fn nothing_lost(&mut self, facts: Facts<'_>, stripe: &StripeId) -> String {
        let nodes = self.looks.healthy.remove(stripe).unwrap_or_default();
        let names: Vec<String> = nodes.into_iter().map(|node| facts.nodes.name(node)).collect();
        match names.as_slice() {
            [] => "nothing is lost".to_owned(),
            [one] => format!("nothing is lost: {one} has just read its block, and it is healthy"),
            some => format!(
                "nothing is lost: {} helpers have just read their blocks, and they are healthy",
                some.len()
            ),
        }
    }
}
