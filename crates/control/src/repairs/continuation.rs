//! Continuations: what the control plane does once the storage has answered a write of an order or a claim.

use repair::{NodeId, StripeId};
use store_api::Write;
use views::{RebalanceView, RepairView};

use crate::effect::Reply;
use crate::repairs::order_records::kept;
use crate::repairs::orders::Order;

/// The continuation of a write of an order or a claim.
pub(crate) enum RepairThen {
    /// The order is durable, and its repair begins.
    Ordered(Ordered),
    /// The store has answered a claim on a stripe.
    Claimed { stripe: StripeId },
}

/// An order whose write is in flight.
pub(crate) struct Ordered {
    pub id: u64,
    pub order: Box<Order>,
    pub by: OrderedBy,
}

/// The origin of an order.
pub(crate) enum OrderedBy {
    /// A request by an operator or a plug-in.
    Request(Reply<RepairView>),
    /// A rebalance by an operator, with the chosen moves.
    Rebalance(Box<RebalanceView>, Reply<RebalanceView>),
    /// The coordinator: this helper has been absent for too long.
    Outage(NodeId),
    /// The coordinator: an earlier drain of this helper left blocks behind on it.
    Drain(NodeId),
    /// The coordinator: single stripes are damaged or misplaced.
    Damage,
}

impl Ordered {
    pub(crate) fn new(id: u64, order: Order, by: OrderedBy) -> Self {
        Self { id, order: Box::new(order), by }
    }

    /// Returns the write of the order, and its continuation.
    pub(crate) fn stored(self) -> (Write, RepairThen) {
        (kept(self.id, &self.order), RepairThen::Ordered(self))
    }
}
