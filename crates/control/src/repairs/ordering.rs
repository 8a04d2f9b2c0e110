//! Orders of requests: checked, numbered and stored before their repairs begin.

use views::{RebalanceView, RepairRequest, RepairView};

use crate::commands::answer;
use crate::effect::Reply;
use crate::error::RequestError;
use crate::facts::Facts;
use crate::out::Out;
use crate::repairs::continuation::{Ordered, OrderedBy};
use crate::repairs::orders::Order;

impl Facts<'_> {
    /// Queues the repair that a request asks for.
    pub(crate) fn queue_repair(self, request: &RepairRequest, reply: Reply<RepairView>, out: &mut Out) {
        match self.order(request) {
            Ok(order) => self.queue_order(order, reply, out),
            Err(error) => answer(reply, Err(error), out),
        }
    }

    pub(crate) fn queue_order(self, order: Order, reply: Reply<RepairView>, out: &mut Out) {
        match self.number_of_order(out) {
            Ok(id) => {
                let (write, then) = Ordered::new(id, order, OrderedBy::Request(reply)).stored();
                out.store(write, then);
            }
            Err(error) => answer(reply, Err(error), out),
        }
    }

    pub(crate) fn queue_rebalance(
        self,
        order: Order,
        view: RebalanceView,
        reply: Reply<RebalanceView>,
        out: &mut Out,
    ) {
        match self.number_of_order(out) {
            Ok(id) => {
                let (write, then) =
                    Ordered::new(id, order, OrderedBy::Rebalance(Box::new(view), reply)).stored();
                out.store(write, then);
            }
            Err(error) => answer(reply, Err(error), out),
        }
    }

    fn number_of_order(self, out: &mut Out) -> Result<u64, RequestError> {
        self.check_not_behind()?;
        self.storing.check_storage()?;
        Ok(out.next_number()?)
    }
}
