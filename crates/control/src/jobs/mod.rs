//! The running jobs. This module carries out the actions of jobs and reports their results to their owners.

pub(crate) mod continuation;
pub(crate) mod in_flight;
pub(crate) mod link_tests;
pub(crate) mod open_puts;
pub(crate) mod owner;
pub(crate) mod placement;
pub(crate) mod probes;
pub(crate) mod puts;
pub(crate) mod requests;
pub(crate) mod reserved_bandwidth;
pub(crate) mod suspects;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use recovery::{ItemId, Loads, ReservationId};
use repair::wire::RequestFailure;
use repair::wire::control::{Ended, ToNode};
use repair::{
    BlockProblem, Copies, Digest, Job, JobAction, JobError, JobId, NodeId, Outcome, ParityOutcome,
    StripeBlock, StripeId,
};
use store_api::{BlockRecord, BlockState, CatalogError, Origin, PutId, StoreError, StripeWrite, Write};
use views::JobView;

use crate::base::Base;
use crate::facts::Facts;
use crate::helper_queries::state_for;
use crate::jobs::continuation::{Published, ReplacedDigest};
use crate::jobs::open_puts::OpenPuts;
use crate::jobs::owner::Owner;
use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::indices::is_still;

/// Running jobs, and the requests that they serve.
#[derive(Default)]
pub(crate) struct Jobs {
    pub running: BTreeMap<JobId, RunningJob>,
    /// The requests of each connected client.
    pub clients: BTreeMap<NodeId, Requests>,
    /// Jobs that may have actions to process.
    pub stirred: BTreeSet<JobId>,
    pub puts: OpenPuts,
    /// When it was last checked whether the stripes of repairs are at risk.
    pub risk_checked: Duration,
}

/// The requests of a client.
#[derive(Default)]
pub(crate) struct Requests {
    /// The jobs of open requests, by the client's tag.
    pub requests: BTreeMap<u64, JobId>,
    /// Requests that still wait for a write to be stored.
    pub opening: BTreeSet<u64>,
}

/// A running job.
pub(crate) struct RunningJob {
    pub(crate) job: Job,
    pub(crate) owner: Owner,
    pub(crate) stripe: StripeId,
    /// Former homes of the job's blocks, where copies will have to be removed.
    pub(crate) left: BTreeSet<NodeId>,
    /// The node from which the job reads each block.
    pub(crate) holders: Vec<Option<NodeId>>,
    /// Blocks of a put that are stored but not yet recorded. They are recorded together.
    pub(crate) stored: Vec<(BlockIndex, NodeId, Option<Digest>)>,
    /// The catalog's error, if a write of this job failed.
    pub(crate) trouble: Option<String>,
    /// Writes of this job in flight. The job ends only when all are answered.
    pub(crate) recording: usize,
    /// Copies that turned out bad while writes of this job were in flight.
    pub(crate) lost_meanwhile: Vec<(BlockIndex, NodeId, BlockProblem)>,
    /// The job's result, while writes are still in flight.
    pub(crate) ended: Option<Result<Outcome, JobError>>,
    /// The job's bandwidth reservation, if the job is not a repair.
    pub(crate) reservation: Option<ReservationId>,
    /// The job's item in the scheduler, if the job is a repair.
    pub(crate) item: Option<ItemId>,
    /// The load of the job's last plan, if the job is a repair.
    pub(crate) loads: Loads,
    /// How many of the bytes that other jobs have reserved at a resource count in the job's plans; `None` if
    /// none do.
    pub(crate) minds_others: Option<u64>,
}

impl Jobs {
    pub(crate) fn act(&mut self, facts: Facts<'_>, id: JobId, action: JobAction, out: &mut Out) {
        match action {
            JobAction::Tell { node, message } => self.tell_of_job(facts, node, message, out),
            JobAction::Publish { block, node, digest, replaces } => {
                let replaced = replaces.map(|recorded| {
                    let block = self.running[&id].job.stripe().block(block).id.clone();
                    Box::new(ReplacedDigest { block, recorded, found: digest })
                });
                self.publish(facts, id, (block, node, digest), replaced, out);
            }
            JobAction::BlockLost { block, node, problem } => {
                self.lose_block(facts, id, (block, node), &problem, out);
            }
            JobAction::Contradicted { blocks } => self.take_contradiction(id, &blocks, out),
            JobAction::Slow { nodes } => out.tell(Signal::HeldUp(nodes)),
            JobAction::Finish(result) => self.finish(facts, id, *result, out),
        }
    }

    fn tell_of_job(&mut self, facts: Facts<'_>, node: NodeId, message: ToNode, out: &mut Out) {
        if let ToNode::Assign(_) = &message {
            out.tell(Signal::Assigned(node));
        }
        facts.nodes.send(node, message, out);
    }

    pub(crate) fn publish(
        &mut self,
        facts: Facts<'_>,
        id: JobId,
        (block, node, digest): (BlockIndex, NodeId, Option<Digest>),
        replaced: Option<Box<ReplacedDigest>>,
        out: &mut Out,
    ) {
        let running = self.running.get_mut(&id).expect("the job is still running");
        running.holders[usize::from(block.0)] = Some(node);
        if let Some(item) = running.item {
            out.tell(Signal::Delivered { item, node });
        }
        if let Owner::Put { .. } = running.owner {
            running.stored.push((block, node, digest));
            return;
        }
        self.record(facts, id, vec![(block, node, digest)], replaced, out);
    }

    /// Records in the catalog the blocks that a job has stored.
    pub(crate) fn record(
        &mut self,
        facts: Facts<'_>,
        id: JobId,
        blocks: Vec<(BlockIndex, NodeId, Option<Digest>)>,
        replaced: Option<Box<ReplacedDigest>>,
        out: &mut Out,
    ) {
        let running = self.running.get_mut(&id).expect("the job is still running");
        running.recording += 1;
        let stripe = running.stripe.clone();
        if facts.stripes.given.get(&stripe).is_some() {
            let homes = blocks.iter().map(|&(index, node, _)| (index, node)).collect();
            out.tell(Signal::GivenStored { stripe: stripe.clone(), blocks: homes });
            if facts.stripes.picture.stripe(&stripe).is_err() {
                return self.blocks_published(facts, id, None, out);
            }
        }
        if let Ok(record) = facts.stripes.picture.stripe(&stripe) {
            let stored = running.job.stripe();
            let is_other = |index: &BlockIndex| {
                record.code != *stored.code.spec()
                    || !record.block(*index).is_some_and(|known| is_still(stored.block(*index), known))
            };
            if let Some(index) = blocks.iter().map(|(index, ..)| index).find(|index| is_other(index)) {
                let error = CatalogError::NoSuchBlock(stored.block(*index).id.clone());
                return self.blocks_published(facts, id, Some(error.into()), out);
            }
        }
        let indices = blocks.iter().map(|&(index, ..)| index).collect();
        let then = Published { job: id, stripe: stripe.clone(), blocks: indices, replaced };
        let origin = Origin::Written;
        out.store(Write::Stripes(StripeWrite::Publish { stripe, blocks, origin }), then);
    }

    /// Handles the result of a write that records blocks of a job. When no write is left, reports what had to
    /// wait: bad blocks and the job's end.
    pub(crate) fn blocks_published(
        &mut self,
        facts: Facts<'_>,
        id: JobId,
        error: Option<StoreError>,
        out: &mut Out,
    ) {
        let Some(running) = self.running.get_mut(&id) else { return };
        running.recording -= 1;
        if let Some(error) = error {
            tracing::error!(%error, stripe = %running.stripe, "cannot record blocks");
            running.trouble = Some(error.to_string());
        }
        if running.recording > 0 {
            return;
        }
        let ended = running.ended.take();
        for (block, node, problem) in std::mem::take(&mut running.lost_meanwhile) {
            self.lose_block(facts, id, (block, node), &problem, out);
        }
        if let Some(result) = ended {
            out.tell(Signal::Ended { job: id, result: Box::new(result) });
        }
    }

    /// Notes that a block is bad on a node, for jobs that have stored it there and whose writes are not answered yet.
    /// The verdict applies once the block is recorded.
    pub(crate) fn lose_unrecorded(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        problem: &BlockProblem,
    ) {
        let records = |running: &&mut RunningJob| {
            running.stripe == *stripe
                && running.recording > 0
                && running.holders.get(usize::from(block.0)) == Some(&Some(node))
        };
        for running in self.running.values_mut().filter(records) {
            running.lost_meanwhile.push((block, node, problem.clone()));
        }
    }

    fn lose_block(
        &mut self,
        facts: Facts<'_>,
        id: JobId,
        (block, node): (BlockIndex, NodeId),
        problem: &BlockProblem,
        out: &mut Out,
    ) {
        let running = self.running.get_mut(&id).expect("the job is still running");
        if running.recording > 0 {
            // The block's home is known only when the write is answered.
            return running.lost_meanwhile.push((block, node, problem.clone()));
        }
        let stripe = running.stripe.clone();
        let is_put = matches!(running.owner, Owner::Put { .. });
        if let Some(given) = facts.stripes.given.get(&stripe)
            && let Some(state) = state_for(problem)
        {
            out.tell(Signal::GivenLost { stripe: stripe.clone(), index: block, node, state });
            // The store may not list the copy yet, and the next description would contain it as good again.
            let is_described = given.block(block).is_some_and(|known| known.node == Some(node));
            if is_described && *problem == BlockProblem::ContradictsParity {
                out.tell(Signal::Wrong { stripe: stripe.clone(), index: block, node });
            }
        }
        let Ok(record) = facts.stripes.picture.stripe(&stripe) else { return };
        let Some(known) = record.block(block) else { return };
        // The job may have read a copy that the catalog no longer lists.
        let Some(recorded) = known.state_on(node) else { return };
        if is_put && recorded != BlockState::Healthy {
            // The block is not stored yet, or only not recorded yet.
            if running.stored.iter().any(|&(index, at, _)| (index, at) == (block, node)) {
                running.lost_meanwhile.push((block, node, problem.clone()));
            }
            return;
        }
        // A verdict about a block of a put may be older than the block: a helper that registers again during the put
        // lists the block before it is complete. A read may go on with the files of a former encoding.
        let is_about_it = !is_put && is_still(running.job.stripe().block(block), known);
        let Some(state) = state_for(problem).filter(|_| is_about_it) else {
            // The job continues without this block. A later verification finds out whether the block is bad.
            let known = known.clone();
            return out.tell(Signal::Unavailable { stripe, index: block, node, known });
        };
        if *problem == BlockProblem::ContradictsParity {
            out.tell(Signal::Wrong { stripe, index: block, node });
        } else if facts.stripes.unrecorded.latest(known, node) != Some(state) {
            let (known, problem) = (known.clone(), problem.clone());
            out.tell(Signal::Unread { stripe, index: block, node, known, problem });
        }
    }

    /// Handles the end of a job. The end is reported to other state machines once everything that the job
    /// stored is recorded.
    pub(crate) fn finish(
        &mut self,
        facts: Facts<'_>,
        id: JobId,
        result: Result<Outcome, JobError>,
        out: &mut Out,
    ) {
        self.record_put(facts, id, out);
        let running = self.running.get_mut(&id).expect("a running job has not finished yet");
        match running.recording {
            0 => out.tell(Signal::Ended { job: id, result: Box::new(result) }),
            _ => running.ended = Some(result),
        }
    }

    /// Reports that a job found blocks that contradict each other. Other jobs on the same stripe must know
    /// this before they publish.
    fn take_contradiction(&mut self, id: JobId, blocks: &BTreeSet<BlockIndex>, out: &mut Out) {
        let running = &self.running[&id];
        let (stripe, found_by) = (running.stripe.clone(), running.owner.found_by());
        out.tell(Signal::Contradiction { stripe, blocks: blocks.clone(), found_by });
    }

    /// If a job failed because blocks contradict each other, reports all readable blocks of its stripe,
    /// because any of them may be wrong.
    pub(crate) fn note_contradictory_end(&mut self, running: &RunningJob, error: &JobError, out: &mut Out) {
        if let JobError::Contradiction { .. } = error {
            let held = running.job.stripe().held().map(|(block, _)| block).collect();
            let (stripe, found_by) = (running.stripe.clone(), running.owner.found_by());
            out.tell(Signal::Contradiction { stripe, blocks: held, found_by });
        }
    }

    /// Records the blocks that a put's job has stored so far, even if the job fails, because only recorded
    /// blocks can be removed later.
    pub(crate) fn record_put(&mut self, facts: Facts<'_>, id: JobId, out: &mut Out) {
        let running = self.running.get_mut(&id).expect("the job is still running");
        if running.stored.is_empty() {
            return;
        }
        let stored = std::mem::take(&mut running.stored);
        self.record(facts, id, stored, None, out);
    }
}

impl Jobs {
    pub(crate) fn run(&mut self, id: JobId, running: RunningJob) {
        self.running.insert(id, running);
        self.stirred.insert(id);
    }

    /// Cancels the requests of a client that has disconnected. Its puts stay open for a while, so that a
    /// client can resume them.
    pub(crate) fn drop_client(&mut self, base: &Base, client: NodeId) {
        for job in self.clients.remove(&client).unwrap_or_default().requests.into_values() {
            self.cancel_job(job);
        }
        self.puts.orphan(base, client);
    }

    /// Returns the jobs on a stripe.
    pub(crate) fn jobs_on(&self, stripe: &StripeId) -> Vec<JobId> {
        let on = self.running.iter().filter(|(_, running)| running.stripe == *stripe);
        on.map(|(&job, _)| job).collect()
    }

    pub(crate) fn cancel_job(&mut self, job: JobId) {
        if let Some(running) = self.running.get_mut(&job) {
            running.job.cancel();
            self.stirred.insert(job);
        }
    }

    /// Remembers the present homes of blocks that are about to get new homes, because the copies on the old
    /// homes will have to be removed.
    pub(crate) fn note_former_homes(
        &mut self,
        facts: Facts<'_>,
        job: JobId,
        stripe: &StripeId,
        blocks: &[BlockIndex],
    ) {
        let (Some(running), Ok(record)) = (self.running.get_mut(&job), facts.stripes.picture.stripe(stripe))
        else {
            return;
        };
        let homes = blocks.iter().filter_map(|&index| record.block(index)).flat_map(|block| block.holders());
        running.left.extend(homes.map(|holder| holder.node));
    }

    pub(crate) fn close_request(
        &mut self,
        facts: Facts<'_>,
        client: NodeId,
        tag: u64,
        trouble: Option<String>,
        result: Result<Outcome, JobError>,
        out: &mut Out,
    ) {
        self.forget_request(client, tag);
        let result = match (result, trouble) {
            (_, Some(detail)) => Err(RequestFailure::Unrecorded { detail }),
            (Ok(Outcome { scheme, replanned, parity, digests, .. }), None) => {
                let parity = Some(parity).filter(|&parity| parity != ParityOutcome::NotAsked);
                let digests = digests.into_iter().collect();
                Ok(Ended { scheme: Some(scheme), replanned, parity, digests })
            }
            (Err(error), None) => Err(RequestFailure::from(&error)),
        };
        facts.nodes.send(client, ToNode::Closed { tag, result }, out);
    }
}

impl Jobs {
    pub(crate) fn job_views(&self) -> Vec<JobView> {
        self.running.values().map(RunningJob::view).collect()
    }

    pub(crate) fn is_stripe_worked_on(&self, stripe: &StripeId) -> bool {
        self.running.values().any(|running| running.stripe == *stripe && running.job.publishes())
    }

    /// Whether a node stores blocks for a job, or soon will.
    pub(crate) fn is_target(&self, node: NodeId) -> bool {
        self.puts.allocating.values().flatten().any(|&target| target == node)
            || self.running.values().any(|running| running.is_target(node))
    }

    pub(crate) fn jobs_of(&self, put: PutId) -> impl Iterator<Item = repair::JobId> + '_ {
        let of_put = move |owner: &Owner| matches!(owner, Owner::Put { put: other, .. } if *other == put);
        self.running.iter().filter(move |(_, running)| of_put(&running.owner)).map(|(&job, _)| job)
    }

    /// Returns the jobs that write blocks of a stripe.
    pub(crate) fn makers_of(&self, stripe: &StripeId) -> Vec<JobId> {
        let makes = self.running.iter().filter(|(_, job)| job.stripe == *stripe && job.job.publishes());
        makes.map(|(&id, _)| id).collect()
    }

    /// Whether a job stores this block of a stripe on this node.
    pub(crate) fn makes(&self, stripe: &StripeId, block: (BlockIndex, NodeId)) -> bool {
        let of_stripe = self.running.values().filter(|running| running.stripe == *stripe);
        of_stripe.flat_map(|running| running.job.targets()).any(|target| target == block)
    }

    /// Whether a node takes part in any job.
    pub(crate) fn works_for_others(&self, node: NodeId) -> bool {
        self.running.values().any(|running| running.job.nodes().contains(&node))
    }

    /// Whether a drained helper is empty: the catalog places no block on it, and no block is on its way
    /// there.
    pub(crate) fn is_emptied(&self, facts: Facts<'_>, node: NodeId) -> bool {
        facts.stripes.picture.block_count(node) == 0 && !self.is_target(node)
    }

    pub(crate) fn has_a_job(&self, stripe: &StripeId) -> bool {
        self.running.values().any(|running| running.stripe == *stripe)
    }
}

impl RunningJob {
    /// Whether a node stores a block for this job.
    pub(crate) fn is_target(&self, node: NodeId) -> bool {
        self.job.targets().any(|(_, target)| target == node)
    }

    /// Lets later plans of the job read blocks where they are now, because other jobs and stores move them.
    pub(crate) fn find_copies(&mut self, facts: Facts<'_>) {
        let Ok(record) = facts.stripes.stripe_record(&self.stripe) else { return };
        let stripe = self.job.stripe();
        if matches!(self.owner, Owner::Put { .. }) || record.code != *stripe.code.spec() {
            return;
        }
        // A store that others run can encode the same data anew, with blocks of the same names and lengths.
        let is_same = |block: &StripeBlock, known: &BlockRecord| {
            let is_proven = block.digest.is_some() && block.digest == known.digest;
            is_still(block, known) && (is_proven || facts.base.store.owns_files())
        };
        let copies = |(index, block): (BlockIndex, &StripeBlock)| {
            let known = record.block(index).filter(|known| is_same(block, known))?;
            let bad = known.holders().filter(|holder| !facts.is_good(known, holder));
            let bad = bad.map(|holder| holder.node).collect();
            Some(Copies { good: facts.readers(known).collect(), bad })
        };
        let copies = stripe.indices().zip(&stripe.blocks).map(copies).map(Option::unwrap_or_default);
        let copies: Vec<Copies> = copies.collect();
        self.job.handle_copies(&copies);
        let stored: BTreeSet<BlockIndex> = self.job.targets().map(|(index, _)| index).collect();
        let stripe = self.job.stripe();
        let read = stripe.indices().filter(|index| !stored.contains(index));
        for (index, node) in read.filter_map(|index| Some((index, stripe.block(index).holder?))) {
            self.holders[usize::from(index.0)] = Some(node);
        }
    }

    /// Returns the node from which the job reads a block, or on which it has stored the block.
    pub(crate) fn holder(&self, index: BlockIndex) -> Option<NodeId> {
        self.holders.get(usize::from(index.0)).copied().flatten()
    }

    pub(crate) fn view(&self) -> JobView {
        let state = self.job.state();
        JobView {
            job: self.job.id().0,
            kind: self.owner.kind(),
            stripe: self.stripe.to_string(),
            phase: state.phase,
            scheme: state.scheme.name().to_owned(),
            delivered_slices: state.delivered,
            slices: state.slices,
            slice_bytes: state.slice_bytes,
            replanned: state.replanned,
        }
    }
}
