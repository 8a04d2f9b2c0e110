//! Repairs that begin, start jobs and end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::recovery::{
    Action, BlockFacts, End, HelperPolicy, ItemId, ItemState, Kind, Loads, Placement, Proposal, RepairId,
    Target,
};
use repair::wire::control::{Description, ToNode};
use repair::{BlockId, Job, JobId, JobPhase, NodeId, StripeId};
use serde_json::Value;
use stores::{BlockState, RecordWrite, StoreError, Write};
use views::{HistoryEvent, RepairState};

use crate::Control;
use crate::commands::answer;
use crate::durations::in_words;
use crate::jobs::{Owner, RunningJob};
use crate::nodes::node::Unproven;
use crate::questions::Subject;
use crate::repairs::Order;
use crate::repairs::attempts::TRY_AGAIN;
use crate::repairs::records::QUEUE_PREFIX;
use crate::repairs::start::{LATE_AFTER, LATE_TIMES, Obstacle, Started, failed};
use crate::repairs::surplus::PATIENCE;
use crate::repairs::views::ItemPage;
use crate::storing::Then;

impl Control {
    /// A helper that was here before is back: what does it have?
    pub(crate) fn check_returned(&mut self, node: NodeId) {
        // At the start of a coordinator nobody was away; and a store that says what is in service does so without us.
        if self.base.nature.tells_service
            || !self.nodes.settled
            || self.stripes.picture.block_count(node) == 0
        {
            return;
        }
        let mut stripes: Vec<StripeId> =
            self.stripes.picture.blocks_of(node).into_iter().map(|(stripe, _)| stripe).collect();
        stripes.dedup();
        stripes.iter().for_each(|stripe| self.repairs.scheduler.hold(stripe));
        let unproven = Unproven { stripes, described: BTreeSet::new(), until: self.base.now + PATIENCE };
        self.nodes.registry.await_description(node, unproven);
        let ask = self.out.questions.open(node, Subject::Returned, self.base.now);
        self.nodes.send(node, ToNode::Describe { ask }, &mut self.out);
    }

    /// What blocks of a helper that is back say of themselves.
    pub(crate) fn take_returned(&mut self, node: NodeId, blocks: &[Description], last: bool) {
        let mut bad = Vec::new();
        self.nodes.registry.note_described(node, blocks.iter().map(|block| block.id.clone()));
        for block in blocks {
            let Ok((stripe, index)) = self.stripes.picture.find_block(&block.id) else { continue };
            let Ok(record) = self.stripes.picture.stripe(&stripe) else { continue };
            let known = &record.blocks[usize::from(index.0)];
            let differs = known.digest.is_some() && block.digest.is_some() && known.digest != block.digest;
            if known.id == block.id
                && known.node == Some(node)
                && known.state == BlockState::Healthy
                && differs
            {
                self.stripes.remember_loss(
                    around!(self),
                    node,
                    &block.id,
                    "another digest than the recorded one".to_owned(),
                    &mut self.out,
                );
                bad.push((stripe, index, node, BlockState::Corrupt));
            }
        }
        for (stripe, index, node, _) in &bad {
            // Before that is stored, their stripes may be let go.
            let facts = BlockFacts { node: Some(*node), good: false };
            self.repairs.scheduler.handle_block(stripe, *index, facts);
        }
        if !bad.is_empty() {
            self.stripes.store_states(around!(self), bad, &mut self.out);
        }
        if last && let Some(unproven) = self.nodes.registry.end_description(node) {
            self.stripes.look_at_silent(around!(self), node, &unproven.described, &mut self.out);
            self.release_stripes(&unproven.stripes);
        }
    }

    /// Repairs count on what a helper has from now on, though it did not describe all of it.
    pub(crate) fn trust_returned(&mut self, node: NodeId) {
        let unproven = self.nodes.registry.end_description(node).unwrap_or_default();
        self.release_stripes(&unproven.stripes);
    }

    /// Releases the stripes of a helper that was back: it has described its blocks, or has gone again.
    pub(crate) fn release_stripes(&mut self, stripes: &[StripeId]) {
        stripes.iter().for_each(|stripe| self.repairs.scheduler.let_go(stripe));
    }

    /// Lets stripes go that have waited long enough.
    pub(crate) fn stop_waiting_for_returned(&mut self) {
        let late = self.nodes.registry.take_late_stripes(self.base.now);
        self.release_stripes(&late);
    }

    /// All blocks of a stripe can be read without a copy, and nobody works on it.
    fn drop_surplus(&mut self, stripe: &StripeId, index: BlockIndex, node: NodeId) {
        let Ok(record) = self.stripes.picture.stripe(stripe) else { return };
        let block: BlockId = record.blocks[usize::from(index.0)].id.clone();
        if self.facts().survives_without(&record, index, node) {
            self.stripes.remove_copy(around!(self), &self.jobs, node, block, &mut self.out);
        }
    }

    /// A repair is paused: so are its jobs.
    pub(super) fn hold_jobs(&mut self, id: u64) {
        let running: Vec<(ItemId, JobId)> = self.repairs.scheduler.running(RepairId(id)).collect();
        for (item, job) in running {
            self.with_job(job, Job::pause);
            if let Some(running) = self.jobs.running.get(&job) {
                self.repairs.scheduler.rest(item, &running.loads);
                self.repairs.held.0.insert(job);
            }
        }
    }

    /// Lets jobs go on whose repairs are not paused any more, as far as there is room; calls off those whose stripe another repair
    /// waits for.
    pub(super) fn resume_jobs(&mut self) {
        for job in self.repairs.held.0.clone() {
            if self.ends_rest(job) {
                self.repairs.held.0.remove(&job);
            }
        }
    }

    fn ends_rest(&mut self, job: JobId) -> bool {
        let Some(RunningJob { job: held, owner, item: Some(item), loads, .. }) = self.jobs.running.get(&job)
        else {
            return true;
        };
        let scheduler = &mut self.repairs.scheduler;
        let repair = match owner {
            Owner::Repair { repair } => self.repairs.by_id.get(repair),
            _ => None,
        };
        if repair.is_some_and(|repair| repair.order.paused) {
            // A job that publishes goes to its end.
            let makes_way = held.phase() == JobPhase::OnHold && scheduler.make_way(*item);
            if makes_way {
                self.jobs.cancel_job(job);
            }
            return makes_way;
        }
        let wakes = scheduler.wake(*item, loads);
        if wakes {
            self.with_job(job, Job::resume);
        }
        wakes
    }

    /// Starts the job of an item, if its plan gets what it needs.
    fn try_start(&mut self, proposal: &Proposal) {
        let (id, item) = (proposal.repair.0, proposal.item);
        let order = self.repairs.by_id[&id].order.clone();
        let started = self.start_item(&order, proposal);
        let scheduler = &mut self.repairs.scheduler;
        match &started {
            Ok(Started::Yes(_) | Started::Later) => {}
            Ok(Started::NothingLost) => scheduler.decline(item, End::NothingLost),
            Err(obstacle) => scheduler.decline(item, obstacle.end),
        }
        debug_assert!(scheduler.state(item) != ItemState::Waiting || matches!(started, Ok(Started::Later)));
        let repair = self.repairs.by_id.get_mut(&id).expect("it has items");
        let info = repair.items.get_mut(&proposal.stripe).expect("it was named");
        match started {
            Ok(Started::Yes(blocks)) => {
                for block in blocks {
                    if !info.blocks.contains(&block) {
                        info.blocks.push(block);
                        repair.blocks += 1;
                        repair.bytes += info.block_bytes;
                    }
                }
            }
            Ok(Started::Later | Started::NothingLost) => {}
            Err(obstacle) => info.fail(obstacle.reason, &obstacle.next_step),
        }
    }

    fn start_item(&mut self, order: &Order, proposal: &Proposal) -> Result<Started, Obstacle> {
        let record = self.stripes.stripe_record(&proposal.stripe).map_err(failed)?;
        if let (Kind::Migrate { .. }, []) = (proposal.kind, &proposal.wanted[..]) {
            return Err(self.answers().no_room(order, &record, 1));
        }
        let lost = match proposal.kind {
            Kind::Migrate { .. } => proposal.wanted.iter().map(|wanted| wanted.block).collect(),
            _ => self.facts().wanted_of(order, &record),
        };
        if lost.is_empty() {
            return Ok(Started::NothingLost);
        }
        // What the store does not have may still be read where it was, and is made anew all the same.
        let taken_as_lost = if proposal.kind == Kind::Reconstruct { &lost[..] } else { &[] };
        let stripe = self.facts().stripe_now(&record, taken_as_lost).map_err(failed)?;
        if proposal.kind == Kind::Reconstruct {
            self.repairs.check_decodable(facts!(self), &record, &stripe, &lost)?;
        }
        let wanted = match self.repairs.requestors(facts!(self), order, &lost, proposal, &record) {
            Placement::Chosen(mut wanted) => {
                // The scheduler counts as lost what no helper can read, though the store may have it.
                wanted.retain(|wanted| lost.contains(&wanted.block));
                wanted
            }
            Placement::Nowhere => return Err(self.answers().no_room(order, &record, lost.len())),
            Placement::Busy => {
                self.repairs.scheduler.put_back(proposal.item);
                return Ok(Started::Later);
            }
        };
        if wanted.is_empty() {
            return Ok(Started::NothingLost);
        }
        if !self.repairs.is_claimed(facts!(self), &proposal.stripe, &wanted, &mut self.out) {
            self.repairs.scheduler.put_back(proposal.item);
            return Ok(Started::Later);
        }
        let names = wanted.iter().map(|wanted| stripe.block(wanted.block).id.clone()).collect();
        let request = self
            .repairs
            .job_request(facts!(self), order, proposal, stripe, wanted, &mut self.out)
            .map_err(failed)?;
        let (job, owner) = (request.job, Owner::Repair { repair: proposal.repair.0 });
        let mut running = self.new_job(owner, request);
        running.item = Some(proposal.item);
        // A job that found no plan ends at once, and says why.
        let loads = running.job.running_plan().map_or_else(Loads::default, |plan| Loads::of(plan, true));
        let predicted = running.job.running_plan().map(|plan| plan.predict(&self.nodes.topology));
        match self.repairs.scheduler.admit(proposal.item, job, &loads) {
            Ok(()) => {
                running.loads = loads;
                if let (HelperPolicy::MPpr, Some(predicted)) = (order.helpers, predicted) {
                    let due = self.base.now + LATE_AFTER + predicted * LATE_TIMES;
                    self.repairs.scheduler.set_due(proposal.item, due);
                }
                self.jobs.run(job, running);
                Ok(Started::Yes(names))
            }
            Err(resource) => {
                tracing::debug!(stripe = %proposal.stripe, %resource, "waits");
                Ok(Started::Later)
            }
        }
    }

    /// Repairs that an earlier coordinator did not end start anew.
    pub(crate) fn requeue_repairs(&mut self, records: &[(String, Value)]) {
        for (key, record) in records.iter().filter(|(key, _)| key.starts_with(QUEUE_PREFIX)) {
            let id = key.strip_prefix(QUEUE_PREFIX).and_then(|id| id.parse().ok());
            match (id, serde_json::from_value(record.clone())) {
                (Some(id), Ok(order)) => self.requeue(id, order),
                _ => {
                    tracing::warn!(key, "a queued repair that cannot be read is dropped");
                    self.out.store(Write::Records(RecordWrite::Remove(key.clone())), Then::Nothing);
                }
            }
        }
    }

    fn requeue(&mut self, id: u64, order: Order) {
        if let Target::Drain(node) = order.target {
            self.nodes.registry.set_departure(node, &order); // The mark may not have been kept.
        }
        if let Some(given) = &order.given {
            self.stripes.recall_given(around!(self), given.stripe.clone());
        }
        self.repairs.add(id, order);
    }

    pub(crate) fn start_repairs(&mut self) {
        if self.stripes.is_behind() {
            return;
        }
        if self.facts().may_change() {
            self.repairs.expand_repairs(facts!(self), &mut self.out);
            self.resume_jobs();
        }
        // Repairs also end while the catalog cannot be written.
        self.poll_repairs();
    }

    /// Does what the scheduler says, until it says nothing more.
    pub(crate) fn poll_repairs(&mut self) {
        while let Some(action) = self.repairs.scheduler.poll(self.base.now) {
            match action {
                // Cancelling goes on while nothing may be changed; starting does not.
                Action::Propose(proposal) if !self.facts().may_change() => {
                    self.repairs.scheduler.put_back(proposal.item);
                    return;
                }
                Action::Propose(proposal) => self.try_start(&proposal),
                Action::CancelJob { job } => self.jobs.cancel_job(job),
                Action::DropSurplus { stripe, block, node } => self.drop_surplus(&stripe, block, node),
                Action::ItemEnded { repair, stripe, end, .. } => {
                    self.repairs.explain_end(facts!(self), repair.0, &stripe, end)
                }
                Action::RepairEnded { repair } => self.end_repair(repair.0),
            }
        }
    }

    /// Nothing of a repair is left to do.
    fn end_repair(&mut self, id: u64) {
        self.repairs.drop_order(id, &mut self.out);
        let left = self.repairs.left_on_node(facts!(self), id);
        if let Some(repair) = self.repairs.by_id.get_mut(&id) {
            repair.ended_unix_ms = Some(self.base.unix_ms);
            repair.left_on_node = left;
            repair.waiting.drain(..).for_each(|waiting| answer(waiting.reply, Ok(()), &mut self.out));
            self.repairs.end_course(facts!(self), &self.jobs, id);
            self.tell_end(id);
        }
        self.repairs.forget_oldest();
    }

    /// Stripes that have been removed need no repair.
    pub(super) fn drop_repairs_of(&mut self, stripes: &[StripeId]) {
        stripes.iter().for_each(|stripe| self.repairs.scheduler.drop_stripe(stripe));
        self.poll_repairs();
        self.drain_jobs();
    }

    /// A repair has ended: says so, and for how long it went on.
    fn tell_end(&mut self, id: u64) {
        let view = self.answers().repair_view(id, &ItemPage::NONE);
        let repair = &self.repairs.by_id[&id];
        let took_ms = view.ended_unix_ms.unwrap_or_default().saturating_sub(view.started_unix_ms);
        let by_name = |counts: &BTreeMap<NodeId, u64>| -> BTreeMap<String, u64> {
            counts.iter().map(|(&node, &blocks)| (self.nodes.name(node), blocks)).collect()
        };
        let event = HistoryEvent::RepairEnded {
            repair: id,
            target: view.target.clone(),
            by_itself: view.by_itself,
            state: view.state,
            took_ms,
            blocks: view.blocks_rebuilt,
            bytes: view.bytes_rebuilt,
            stripes_failed: view.stripes_failed,
            lost_from: by_name(&repair.lost_from),
            rebuilt_on: by_name(&repair.rebuilt_on),
            reasons: view.reasons.clone(),
        };
        let reason = view.reasons.first().map(|first| first.reason.as_str()).unwrap_or_default();
        let target = repair.order.target.clone();
        tracing::info!(
            repair = id, target = view.target, state = %view.state, blocks = view.blocks_rebuilt,
            failed_stripes = view.stripes_failed, took = in_words(Duration::from_millis(took_ms)), reason,
            "a repair has ended"
        );
        self.out.note(event);
        if let Target::Node(node) | Target::Drain(node) = target {
            self.recovery_ended(node, id, view.state);
            self.drain_ended(node);
        }
    }

    /// A drain that begins by itself is kept, or could not be.
    pub(crate) fn drain_kept(&mut self, node: NodeId, id: u64, order: Order, result: Result<(), StoreError>) {
        let tries = self.repairs.drains.of(node);
        tries.repair = None;
        tries.attempts.put_off(self.base.now);
        match result {
            Ok(()) if self.nodes.registry.is_leaving(node) => {
                if let Err(error) = self.begin_repair(id, order) {
                    tracing::error!(%error, "a drain that begins by itself");
                }
            }
            Ok(()) => self.repairs.drop_order(id, &mut self.out), // It was called off.
            Err(_) => {}
        }
    }

    /// A drain has ended.
    fn drain_ended(&mut self, node: NodeId) {
        let (now, left) = (self.base.now, self.facts().left_on(node) > 0);
        if self.nodes.registry.is_leaving(node) {
            match left {
                true => self.repairs.drains.of(node).attempts.fail(now, TRY_AGAIN),
                false => self.repairs.drains.forget(node),
            }
        }
    }

    /// A repair by itself is kept, or could not be.
    pub(crate) fn recovery_kept(
        &mut self,
        node: NodeId,
        id: u64,
        order: Order,
        result: Result<(), StoreError>,
    ) {
        match (result, self.nodes.registry.absence(node).is_some()) {
            (Ok(()), true) => {
                if let Err(error) = self.begin_repair(id, order) {
                    tracing::error!(%error, "a repair that begins by itself");
                }
            }
            (Ok(()), false) => self.repairs.drop_order(id, &mut self.out), // It is back.
            (Err(_), true) => {
                let tries = self.repairs.recoveries.of(node);
                tries.repair = None;
                tries.attempts.put_off(self.base.now);
            }
            (Err(_), false) => {}
        }
    }

    /// A repair of what a helper held has ended.
    fn recovery_ended(&mut self, node: NodeId, id: u64, state: RepairState) {
        let (now, after) = (self.base.now, self.nodes.repair_after(&self.base).time().unwrap_or(TRY_AGAIN));
        let left = self.stripes.picture.block_count(node) > 0;
        if self.nodes.registry.absence(node).is_none() {
            return;
        }
        let tries = self.repairs.recoveries.of(node);
        if tries.repair.take_if(|repair| *repair == id).is_none() {
            return;
        }
        if state == RepairState::Cancelled {
            self.nodes.registry.cancel_recovery(node, &mut self.out);
        } else if left {
            tries.attempts.fail(now, after);
        }
    }
}
