//! Facts for the scheduler: changes of nodes, blocks, trunks and surplus copies, and the reservations of
//! reads and puts.

use codes::BlockIndex;
use recovery::{BlockFacts, Loads, NodeFacts, ReservationId, SECONDS_AHEAD, Scheduler, TrunkBudget};
use repair::wire::control::BlockHeat;
use repair::{Job, JobRequest, NodeId, StripeId};
use store_api::{Replica, StripeRecord};

use crate::facts::Facts;
use crate::jobs::RunningJob;
use crate::jobs::owner::Owner;
use crate::jobs::placement::Domains;
use crate::jobs::reserved_bandwidth::counted_by_read;
use crate::nodes::Nodes;
use crate::repairs::Repairs;
use crate::repairs::queue::Queue;
use crate::stripes::Stripes;
use crate::stripes::indices::indexed;

/// Passes the new heat of a block on a helper to the scheduler.
pub(crate) fn tell_heat(scheduler: &mut Scheduler, stripes: &Stripes, node: NodeId, change: &BlockHeat) {
    if let Some((stripe, index, _)) = stripes.record_of(&change.id) {
        scheduler.handle_heat(node, &stripe, index, change.heat);
    }
}

/// Passes the heat of a stripe's blocks to the scheduler, which keeps it only for stripes with items.
pub(super) fn tell_heats(scheduler: &mut Scheduler, nodes: &Nodes, record: &StripeRecord) {
    for (index, block) in indexed(record) {
        for Replica { node, .. } in block.holders() {
            if let Some(session) = nodes.registry.session(node) {
                scheduler.handle_heat(node, &record.id, index, session.usage.heat(&block.id));
            }
        }
    }
}

/// Passes a helper's new number of blocks and free space to the scheduler.
pub(crate) fn tell_space(scheduler: &mut Scheduler, facts: Facts<'_>, node: NodeId) {
    if let Some(view) = facts.nodes.topology.get(node)
        && facts.nodes.is_helper(node)
    {
        let blocks = facts.stripes.picture.block_count(node) as u64;
        scheduler.handle_space(node, blocks, view.free_bytes);
    }
}

/// Passes the new homes and states of a stripe's blocks to the scheduler.
pub(crate) fn tell_blocks(scheduler: &mut Scheduler, facts: Facts<'_>, stripe: &StripeId) {
    let Ok(record) = facts.stripes.stripe_record(stripe) else { return };
    for (index, block) in indexed(&record) {
        let facts = facts.block_facts(block);
        scheduler.handle_block(stripe, index, facts);
    }
}

/// Passes the replicated blocks of a node to the scheduler, after the node has connected or disconnected.
/// The scheduler may now have to use another copy.
pub(crate) fn tell_replicas(scheduler: &mut Scheduler, facts: Facts<'_>, node: NodeId) {
    for stripe in facts.stripes.picture.replicated_on(node) {
        tell_blocks(scheduler, facts, &stripe);
    }
}

/// Reserves bandwidth for a read or a put.
pub(crate) fn reserve(scheduler: &mut Scheduler, job: &Job, stores: bool) -> Option<ReservationId> {
    let loads = Loads::of(job.running_plan()?, stores);
    Some(scheduler.reserve(&loads))
}

/// Replaces the reservation of a repair's job that has made another plan.
pub(crate) fn reserve_again(scheduler: &mut Scheduler, running: &mut RunningJob) {
    if let (Some(item), Some(plan)) = (running.item, running.job.running_plan()) {
        running.loads = Loads::of(plan, true);
        scheduler.handle_replanned(item, &running.loads);
    }
}

/// Releases the reservation of a read or a put that has ended.
pub(crate) fn end_reservation(scheduler: &mut Scheduler, running: &mut RunningJob) {
    running.reservation.take().into_iter().for_each(|reservation| scheduler.release(reservation));
    if let Owner::Put { .. } = running.owner {
        scheduler.let_go(&running.stripe);
    }
}

/// Sets the limit for repair traffic in flight over the trunk of a rack: its cap or its capacity,
/// whichever is lower.
pub(crate) fn tell_trunk(scheduler: &mut Scheduler, facts: Facts<'_>, rack: &str) {
    let cap = facts.capping.caps(facts.base, facts.nodes).trunk(rack);
    let carried = facts.base.settings.network.trunks.get(rack).copied().unwrap_or_default();
    let bytes = |rate: Option<f64>| rate.map_or(u64::MAX, |rate| (rate * SECONDS_AHEAD) as u64);
    let [up, down] = carried.map(bytes);
    let trunk = TrunkBudget { up_bytes: cap.up_bytes.min(up), down_bytes: cap.down_bytes.min(down) };
    scheduler.set_trunk(rack, trunk);
}

/// Reports to the scheduler that a helper has a copy of a block whose recorded home is another node. The
/// scheduler decides when the copy can be removed.
pub(crate) fn tell_surplus(
    scheduler: &mut Scheduler,
    facts: Facts<'_>,
    node: NodeId,
    stripe: &StripeId,
    index: BlockIndex,
) {
    let Ok(record) = facts.stripes.picture.stripe(stripe) else { return };
    let facts: Vec<BlockFacts> = record.blocks.iter().map(|block| facts.block_facts(block)).collect();
    scheduler.handle_surplus(stripe, index, node, &facts);
}

impl Repairs {
    /// Passes the facts about a helper to the scheduler, after the helper has connected or the facts have
    /// changed.
    pub(crate) fn tell_node(&mut self, facts: Facts<'_>, node: NodeId) {
        self.fullness.forget();
        let Some(view) = facts.nodes.topology.get(node) else { return };
        let Domains { rack, host } = Domains::of(&facts.nodes.topology, node);
        let facts = NodeFacts {
            alive: facts.nodes.is_helper(node)
                && (!facts.base.store.reports_service() || facts.stripes.picture.is_up(node)),
            rack,
            host,
            free_bytes: view.free_bytes,
            blocks: facts.stripes.picture.block_count(node) as u64,
            budget: facts.capping.budget(facts.base, facts.nodes, node),
            accepts: view.accepts,
        };
        self.scheduler.set_node(node, facts);
    }

    pub(crate) fn tell_node_lost(&mut self, node: NodeId) {
        self.fullness.forget();
        self.scheduler.handle_node(node, false);
        self.scheduler.handle_user_load(node, None);
    }
}

impl Queue {
    /// Returns how many of the bytes that other jobs have reserved at a resource count in a job's plan; `None` if
    /// none do.
    pub(crate) fn minds_others(&self, facts: Facts<'_>, owner: &Owner, request: &JobRequest) -> Option<u64> {
        match owner {
            Owner::Read { .. } => Some(counted_by_read(&request.stripe, &request.window)),
            Owner::Repair { repair } => {
                let has_stretches = !request.policy.stretches.is_empty();
                let minds = !self.is_wide(*repair) || (has_stretches && facts.nodes.topology.has_links());
                minds.then_some(u64::MAX)
            }
            Owner::Put { .. } | Owner::Probe | Owner::Trial => None,
        }
    }
}
