//! Runs the continuations of writes when the storage has answered.

use crate::effect::ConnectionId;
use crate::nodes::joining::Refusal;
use crate::routes::file_requests::file_removed;
use crate::routes::repair_requests::begin_repair;
use cluster::Role;
use codes::BlockIndex;
use repair::wire::control::FromNode;
use repair::{JobId, NodeId, StripeId};
use store_api::{Answer, CatalogError, RecordWrite, StoreError, Write};
use views::HistoryEvent;

use crate::control::{Control, facts, outer_facts};
use crate::error::RequestError;
use crate::jobs::continuation::{Published, PutThen};
use crate::nodes::continuation::NodeThen;
use crate::out::answer;
use crate::repairs::continuation::{Ordered, OrderedBy, RepairThen};
use crate::repairs::order_records::dropped;
use crate::routes::jobs::note_recorded;
use crate::storing::then::Then;
use crate::stripes::continuation::StripeThen;
use crate::stripes::{states, verdicts};

/// The answer of the storage to a write.
type Stored = Result<Answer, StoreError>;

impl Control {
    pub(super) fn go_on(&mut self, then: Then, result: Stored) {
        match then {
            Then::Nothing => {}
            Then::Numbers => {
                self.out.add_numbers(match result {
                    Ok(Answer::First(first)) => Some(first),
                    _ => None,
                });
            }
            Then::Put(then) => then.go_on(self, result),
            Then::Published(published) => published.go_on(self, result.err()),
            Then::FileRemoved { stripes, reply } => file_removed(self, &stripes, reply, result),
            Then::Stripe(then) => then.go_on(self, result),
            Then::Repair(RepairThen::Ordered(ordered)) => ordered.go_on(self, result),
            Then::Repair(RepairThen::Claimed { stripe }) => {
                let repairs = &mut self.repairs;
                if result.is_ok() {
                    repairs.queue.claim_granted(&stripe, self.base.now);
                }
                let others = (&mut repairs.scheduler, &mut repairs.refusals);
                let known = (facts!(self), &self.jobs);
                repairs.claims.answered(known, &stripe, result, others, &mut self.out);
            }
            Then::Node(then) => then.go_on(self, result),
            Then::Audited(reply) => self.out.answer(reply, result.map(drop).map_err(Into::into)),
            Then::Inspected { scrub } => self.scrub.inspected_in_scrub(facts!(self), scrub, &mut self.out),
        }
    }
}

impl PutThen {
    fn go_on(self, control: &mut Control, result: Stored) {
        let Control { jobs, base, out, .. } = control;
        match self {
            Self::Begun(begun) => jobs.puts.begun(base, begun, result, out),
            Self::Committed { put, reply } => jobs.puts.committed(put, reply, result, out),
            Self::Aborted { put, reply } => jobs.puts.aborted(base, put, reply, result, out),
            Self::Allocated { client, tag, put, position } => {
                let (jobs, facts, out) = (&mut control.jobs, facts!(control), &mut control.out);
                jobs.stripe_allocated(facts, client, tag, (put, position), result, out);
            }
        }
    }
}

impl Published {
    fn go_on(self, control: &mut Control, error: Option<StoreError>) {
        let Self { job, stripe, blocks, replaced } = self;
        if let Some(replaced) = replaced.filter(|_| error.is_none()) {
            control.out.note(replaced.entry());
        }
        if error.is_none()
            && let Ok(record) = control.stripes.picture.stripe(&stripe)
        {
            let running = control.jobs.running.get(&job);
            let is_home = |node| record.blocks.iter().any(|block| block.node == Some(node));
            let made_on = |node| running.map_or_else(|| is_home(node), |running| running.is_target(node));
            control.stripes.condemned.absolve(&record, &blocks, made_on, &mut control.out);
            for block in blocks.iter().filter_map(|&index| record.block(index)) {
                for holder in block.holders().filter(|holder| made_on(holder.node)) {
                    control.stripes.unrecorded.settle(&(block.id.clone(), holder.node), Some(holder.state));
                }
            }
        }
        // The store may refuse the block of a cancelled job only because the claim was lost.
        let running = control.jobs.running.get(&job);
        if error.is_none() || running.is_none_or(|running| !running.job.is_cancelled()) {
            control.repairs.note_publication(&stripe, error.as_ref());
        }
        if let Some(StoreError::Catalog(CatalogError::NoSuchStripe(_))) = &error {
            discard_stored(control, job, &blocks);
        }
        if error.is_none() {
            let made = made_by(control, job, &stripe, &blocks);
            control.stripes.contradictions.note_made(&stripe, &made, &mut control.out);
            let (outer, jobs, out) = (outer_facts!(control), &control.jobs, &mut control.out);
            control.stripes.note_made(outer, jobs, job, &stripe, &blocks, out);
        }
        control.jobs.blocks_published(facts!(control), job, error, &mut control.out);
        let (outer, jobs, out) = (outer_facts!(control), &control.jobs, &mut control.out);
        verdicts::mark_condemned(&mut control.stripes, outer, jobs, &stripe, out);
        note_recorded(control, job);
    }
}

/// Returns blocks that a job has stored, each with its node. The storage may not list them there yet.
fn made_by(
    control: &Control,
    job: JobId,
    stripe: &StripeId,
    blocks: &[BlockIndex],
) -> Vec<(BlockIndex, NodeId)> {
    let (running, record) = (control.jobs.running.get(&job), control.stripes.picture.stripe(stripe).ok());
    let node = |index: BlockIndex| match running {
        Some(running) => running.holder(index),
        None => record.as_ref()?.block(index)?.node,
    };
    blocks.iter().filter_map(|&index| Some((index, node(index)?))).collect()
}

/// Marks blocks for removal that a job has stored although their stripe was removed meanwhile. No record names them.
fn discard_stored(control: &mut Control, job: JobId, blocks: &[BlockIndex]) {
    let owns_files = control.base.store.owns_files();
    let Some(running) = control.jobs.running.get(&job).filter(|_| owns_files) else { return };
    for &index in blocks {
        let Some(node) = running.holder(index) else { continue };
        let block = running.job.stripe().block(index).id.clone();
        control.out.store(Write::Records(RecordWrite::Discard(node, block)), Then::Nothing);
    }
}

impl StripeThen {
    fn go_on(self, control: &mut Control, result: Stored) {
        let (stripes, outer, out) = (&mut control.stripes, outer_facts!(control), &mut control.out);
        match self {
            Self::Known { write, copies, bad } => {
                states::stored(stripes, write, &copies, result.is_ok(), out);
                if let Ok(Answer::Overruled(copies)) = &result {
                    states::overruled(stripes, copies, out);
                }
                if result.is_ok() {
                    stripes.seek_copies_of(outer, &bad, out);
                }
            }
            Self::Adopted { node, stripe, block, by_name } => {
                stripes.inventory.adopting.remove(&stripe);
                match &result {
                    Ok(_) => {
                        stripes.adopted(outer, node, &block, out);
                        if by_name {
                            // A check may have ended meanwhile that did not read the block yet.
                            control.scrub.proof.doubt(&stripe, out);
                        }
                    }
                    Err(error) => {
                        let helper = outer.nodes.name(node);
                        tracing::warn!(%block, helper, %error, "cannot use a block that was found");
                        stripes.inventory.unadopted.failed(node, block, outer.base.now);
                    }
                }
            }
            Self::Needless { node, block } if result.is_ok() => stripes.inventory.drop_orphan(node, &block),
            Self::Needless { .. } => {}
            Self::Discarded { node, block } => {
                stripes.block_discarded(outer, &control.jobs, node, &block, out);
            }
            Self::Accepted { view, reply } => {
                let accepted = result.map(|_| stripes.newer.accepted(&stripes.picture, outer, *view, out));
                answer(reply, accepted, out);
            }
        }
    }
}

impl NodeThen {
    fn go_on(self, control: &mut Control, result: Stored) {
        match self {
            Self::Join { connection, role, hello } => {
                join_numbered(control, connection, role, *hello, result.err());
            }
            Self::Capped { view, reply } => {
                let Control { nodes, capping, base, out, .. } = control;
                capping.note_written();
                let changed = result.map(|_| capping.changed(base, nodes, *view, out));
                answer(reply, changed, out);
            }
            Self::Removed { node, view, reply } => {
                match &result {
                    Ok(_) => {
                        tracing::info!(helper = control.nodes.name(node), "helper removed");
                        control.drop_node(node);
                    }
                    Err(_) => control.nodes.registry.keep_node(node),
                }
                answer(reply, result.map(|_| *view), &mut control.out);
            }
            Self::Forgotten { node } if result.is_ok() => {
                let helper = control.nodes.name(node);
                tracing::info!(helper = %helper, "forgot a helper that is no longer in mend.toml");
                control.drop_node(node);
            }
            Self::Forgotten { node } => control.nodes.registry.keep_node(node), // The removal is retried.
        }
    }
}

impl Ordered {
    /// Handles the result of the write of an order. Starts the repair if it is still wanted.
    fn go_on(self, control: &mut Control, result: Stored) {
        let Self { id, order, by } = self;
        let is_wanted = control.repairs.nodes.order_kept(facts!(control), &by, result.is_ok());
        if result.is_ok() && !is_wanted {
            return control.out.store(dropped(id), Then::Nothing);
        }
        let begun = result.map_err(RequestError::from).and_then(|_| begin_repair(control, id, *order));
        match by {
            OrderedBy::Request(reply) => control.out.answer(reply, begun),
            OrderedBy::Rebalance(mut view, reply) => {
                view.repair = Some(id);
                control.out.answer(reply, begun.map(|_| *view));
            }
            OrderedBy::Outage(_) | OrderedBy::Drain(_) | OrderedBy::Damage => {
                if let Err(error) = begun {
                    tracing::debug!(%error, repair = id, "cannot start an automatic repair");
                }
            }
        }
    }
}

/// Handles the result of the write of a new helper's number: admits or refuses the helper.
fn join_numbered(
    control: &mut Control,
    connection: ConnectionId,
    role: Role,
    hello: FromNode,
    error: Option<StoreError>,
) {
    if !control.storing.joining.remove(&connection) {
        return; // The connection has ended in the meantime.
    }
    if let Some(error) = error {
        control.out.refuse(connection, &role, Refusal { reason: error.to_string(), passing: true });
    } else if let Some(node) = control.try_admit(connection, &role, hello) {
        control.out.note(HistoryEvent::NodeAdded { node: control.nodes.name(node) });
    }
}
