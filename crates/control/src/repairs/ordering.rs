//! Orders from requests: checked, numbered and stored before their repairs begin.

use recovery::{HelperPolicy, Target};
use repair::{BlockId, NodeId, Scheme, StripeId};
use views::{RebalanceView, RepairRequest, RepairView};

use crate::effect::Reply;
use crate::error::{NodeError, RepairError, RequestError};
use crate::facts::Facts;
use crate::out::{Out, answer};
use crate::repairs::continuation::{Ordered, OrderedBy};
use crate::repairs::orders::{DescribedOrder, Order, Way, priority_named};

impl Facts<'_> {
    pub(crate) fn order(self, request: &RepairRequest) -> Result<Order, RequestError> {
        let policy = request.policy.as_deref().map_or(Ok(HelperPolicy::default()), str::parse)?;
        let requestors: Result<Vec<NodeId>, NodeError> =
            request.requestors.iter().map(|name| self.nodes.node_named(self.base, name)).collect();
        let (target, given) = self.target(request)?;
        let scheme = match (request.scheme.as_deref(), policy.own_scheme()) {
            (None, Some(own)) => own,
            (asked, _) => self.scheme(asked)?,
        };
        Ok(Order {
            given,
            way: Way::named(request.way.as_deref())?,
            slice_bytes: request.slice_bytes,
            verify_parity: request.verify_parity.unwrap_or(true),
            helpers: policy,
            requestors: requestors?,
            priority: priority_named(request.priority.as_deref())?,
            lease_ms: request.lease_ms,
            ..Order::new(target, scheme, self.base.unix_ms)
        })
    }

    fn target(self, request: &RepairRequest) -> Result<(Target, Option<DescribedOrder>), RequestError> {
        let RepairRequest { block, stripe, node, drain, all, homes, .. } = request;
        let target = match (block, stripe, node, drain, all) {
            (None, Some(stripe), None, None, false) if !homes.is_empty() => {
                let stripe = StripeId(stripe.clone());
                let homes = self.given_homes(&stripe, homes)?;
                let record = self
                    .stripes
                    .given
                    .get(&stripe)
                    .expect("the stripe was described, as it has blocks")
                    .clone();
                let given = DescribedOrder { stripe: record, homes, one_first: request.one_first };
                return Ok((Target::Stripe(stripe), Some(given)));
            }
            // Homes are allowed only for stripes that a plug-in described.
            _ if !homes.is_empty() => return Err(RepairError::NoOneTarget.into()),
            // People may omit the suffix of a name (after the hyphen), but records must have the full name.
            (Some(block), None, None, None, false) => {
                let (stripe, index) = self.stripes.picture.find_block(&BlockId(block.clone()))?;
                let record = self.stripes.picture.stripe(&stripe)?;
                Target::Block(record.blocks[usize::from(index.0)].id.clone())
            }
            (None, Some(stripe), None, None, false) => {
                Target::Stripe(self.stripes.picture.stripe(&StripeId(stripe.clone()))?.id)
            }
            (None, None, Some(name), None, false) => {
                let node = self.nodes.node_named(self.base, name)?;
                match self.nodes.is_connected(node) {
                    true => return Err(RepairError::NodeIsUp { name: name.clone() }.into()),
                    false => Target::Node(node),
                }
            }
            (None, None, None, Some(name), false) => Target::Drain(self.nodes.node_named(self.base, name)?),
            (None, None, None, None, true) => Target::All,
            _ => return Err(RepairError::NoOneTarget.into()),
        };
        Ok((target, None))
    }

    pub(crate) fn scheme(self, asked: Option<&str>) -> Result<Scheme, RequestError> {
        Ok(asked.unwrap_or(&self.base.settings.scheme).parse()?)
    }

    /// Returns the order of an automatic repair.
    pub(crate) fn own_order(self, target: Target) -> Result<Order, RequestError> {
        Ok(Order { by_itself: true, ..Order::new(target, self.scheme(None)?, self.base.unix_ms) })
    }

    /// Queues a requested repair.
    pub(crate) fn queue_repair(self, request: &RepairRequest, reply: Reply<RepairView>, out: &mut Out) {
        match self.order(request) {
            Ok(order) => self.queue_order(order, reply, out),
            Err(error) => answer(reply, Err(error), out),
        }
    }

    pub(crate) fn queue_order(self, order: Order, reply: Reply<RepairView>, out: &mut Out) {
        match self.number_of_order(&order, out) {
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
        match self.number_of_order(&order, out) {
            Ok(id) => {
                let (write, then) =
                    Ordered::new(id, order, OrderedBy::Rebalance(Box::new(view), reply)).stored();
                out.store(write, then);
            }
            Err(error) => answer(reply, Err(error), out),
        }
    }

    fn number_of_order(self, order: &Order, out: &mut Out) -> Result<u64, RequestError> {
        // The last list of a store that does not answer may miss losses. Before the first list, repairs wait for it.
        if order.given.is_none() && self.nodes.settled {
            self.stripes.news.check_listed()?;
        }
        self.check_not_behind()?;
        self.storing.check_storage()?;
        Ok(out.next_number()?)
    }
}
