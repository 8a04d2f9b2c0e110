//! Continuations of the writes of orders and claims.

use repair::{NodeId, StripeId};
use store_api::Write;
use views::{RebalanceView, RepairView};

use crate::effect::Reply;
use crate::repairs::order_records::kept;
use crate::repairs::orders::Order;

/// The continuation of a write of an order or a claim.
pub(crate) enum RepairThen {
    /// An order is kept, and its repair begins.
    Ordered(Ordered),
    /// The store has answered a claim on a stripe.
    Claimed { stripe: StripeId },
}

/// An order that is being stored.
pub(crate) struct Ordered {
    pub id: u64,
    pub order: Box<Order>,
    pub by: OrderedBy,
}

/// The origin of an order.
pub(crate) enum OrderedBy {
    /// An operator or a plug-in.
    Request(Reply<RepairView>),
    /// An operator who evens out helpers; the moves are known already.
    Rebalance(Box<RebalanceView>, Reply<RebalanceView>),
    /// The coordinator, since this helper has been absent for too long.
    Absence(NodeId),
    /// The coordinator, since an earlier drain of this helper left blocks.
    Drain(NodeId),
    /// The coordinator, since single stripes are damaged or misplaced.
    Damage,
}

impl Ordered {
    pub(crate) fn new(id: u64, order: Order, by: OrderedBy) -> Self {
        Self { id, order: Box::new(order), by }
    }

    /// The write that keeps the order, and what follows it.
    pub(crate) fn stored(self) -> (Write, RepairThen) {
        (kept(self.id, &self.order), RepairThen::Ordered(self))
    }
}
