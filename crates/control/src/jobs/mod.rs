//! Jobs: handing their actions out and reports in, and what their ends mean to whoever wanted them.

pub(crate) mod beside;
pub(crate) mod continuation;
pub(crate) mod in_flight;
pub(crate) mod link_tests;
mod open_puts;
pub(crate) mod owner;
pub(crate) mod placement;
pub(crate) mod probes;
pub(crate) mod puts;
pub(crate) mod requests;
pub(crate) mod suspects;

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use recovery::{ItemId, Loads, ReservationId};
use repair::wire::RequestFailure;
use repair::wire::control::{Ended, ToNode};
use repair::{
    BlockProblem, Digest, Job, JobAction, JobError, JobId, NodeId, Outcome, ParityOutcome, StripeId,
};
use store_api::{PutId, StoreError, StripeWrite, Write};
use views::JobView;

use crate::facts::Facts;
use crate::jobs::continuation::Published;
use crate::jobs::open_puts::OpenPuts;
use crate::jobs::owner::Owner;
use crate::out::Out;
use crate::questions::state_for;
use crate::signal::Signal;

/// Jobs that run, and what wants them.
#[derive(Default)]
pub(crate) struct Jobs {
    pub running: BTreeMap<JobId, RunningJob>,
    /// What clients have asked for that are connected.
    pub clients: BTreeMap<NodeId, Requests>,
    /// Jobs that may have something to do.
    pub stirred: BTreeSet<JobId>,
    pub puts: OpenPuts,
}

/// What a client has asked for.
#[derive(Default)]
pub(crate) struct Requests {
    /// Its open requests.
    pub requests: BTreeMap<u64, JobId>,
    /// Requests whose beginning is being stored.
    pub opening: BTreeSet<u64>,
}

/// A job that runs.
pub(crate) struct RunningJob {
    pub(crate) job: Job,
    pub(crate) owner: Owner,
    pub(crate) stripe: StripeId,
    /// Nodes that get blocks of the store.
    pub(crate) targets: BTreeSet<NodeId>,
    /// Nodes that blocks were moved away from.
    pub(crate) left: BTreeSet<NodeId>,
    /// Where the job reads each block.
    pub(crate) holders: Vec<Option<NodeId>>,
    /// Blocks of a put that are stored and not yet recorded: they are recorded together.
    pub(crate) stored: Vec<(BlockIndex, NodeId, Option<Digest>)>,
    /// What the catalog said when it did not record something.
    pub(crate) trouble: Option<String>,
    /// Writes of what it stored that are under way: it is over when they are answered.
    pub(crate) recording: usize,
    /// Blocks that turned out bad meanwhile.
    pub(crate) lost_meanwhile: Vec<(BlockIndex, BlockProblem)>,
    /// How it ended, while something is still being recorded.
    pub(crate) ended: Option<Result<Outcome, JobError>>,
    /// What it reserved, if it is not a repair.
    pub(crate) reservation: Option<ReservationId>,
    /// What it is to the scheduler, if it is a repair.
    pub(crate) item: Option<ItemId>,
    /// The load of its first plan, if it is a repair.
    pub(crate) loads: Loads,
    /// Whether it chooses helpers by what others move.
    pub(crate) minds_others: bool,
}

impl Jobs {
    pub(crate) fn act(&mut self, facts: Facts<'_>, id: JobId, action: JobAction, out: &mut Out) {
        match action {
            JobAction::Tell { node, message } => self.tell_of_job(facts, node, message, out),
            JobAction::Publish { block, node, digest } => self.publish(facts, id, block, node, digest, out),
            JobAction::BlockLost { block, problem } => self.lose_block(facts, id, block, &problem, out),
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
        block: BlockIndex,
        node: NodeId,
        digest: Option<Digest>,
        out: &mut Out,
    ) {
        let running = self.running.get_mut(&id).expect("it has just acted");
        running.holders[usize::from(block.0)] = Some(node);
        if let Some(item) = running.item {
            out.tell(Signal::Delivered { item, node });
        }
        if let Owner::Put { .. } = running.owner {
            running.stored.push((block, node, digest));
            return;
        }
        self.record(facts, id, vec![(block, node, digest)], out);
    }

    /// Has blocks recorded that a job stored.
    pub(crate) fn record(
        &mut self,
        facts: Facts<'_>,
        id: JobId,
        blocks: Vec<(BlockIndex, NodeId, Option<Digest>)>,
        out: &mut Out,
    ) {
        let running = self.running.get_mut(&id).expect("it has just acted");
        running.recording += 1;
        let stripe = running.stripe.clone();
        if facts.stripes.given.get(&stripe).is_some() {
            let homes = blocks.iter().map(|&(index, node, _)| (index, node)).collect();
            out.tell(Signal::GivenStored { stripe: stripe.clone(), blocks: homes });
            if facts.stripes.picture.stripe(&stripe).is_err() {
                return self.blocks_published(facts, id, None, out);
            }
        }
        let indices = blocks.iter().map(|&(index, ..)| index).collect();
        let then = Published { job: id, stripe: stripe.clone(), blocks: indices };
        out.store(Write::Stripes(StripeWrite::Publish { stripe, blocks }), then);
    }

    /// What a job stored is recorded, or is not.
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
        for (block, problem) in std::mem::take(&mut running.lost_meanwhile) {
            self.lose_block(facts, id, block, &problem, out);
        }
        if let Some(result) = ended {
            out.tell(Signal::Ended { job: id, result: Box::new(result) });
        }
    }

    fn lose_block(
        &mut self,
        facts: Facts<'_>,
        id: JobId,
        block: BlockIndex,
        problem: &BlockProblem,
        out: &mut Out,
    ) {
        let running = self.running.get_mut(&id).expect("it has just acted");
        if let Owner::Put { .. } = running.owner {
            return; // The client's file, or a block that is not visible yet.
        }
        if running.recording > 0 {
            // Only then is it known where the block is.
            return running.lost_meanwhile.push((block, problem.clone()));
        }
        let (stripe, holder) = (running.stripe.clone(), running.holders[usize::from(block.0)]);
        if let (Some(node), Some(_)) = (holder, facts.stripes.given.get(&stripe))
            && let Some(state) = state_for(problem)
        {
            out.tell(Signal::GivenLost { stripe: stripe.clone(), index: block, node, state });
        }
        let Ok(record) = facts.stripes.picture.stripe(&stripe) else { return };
        let known = &record.blocks[usize::from(block.0)];
        // The job may have read a copy that is not the block any more.
        let there = |&node: &NodeId| known.state_on(node).is_some();
        let Some(node) = holder.filter(there) else { return };
        let Some(state) = state_for(problem) else {
            // The job goes on without it. What is wrong with it, if anything, a calm look will tell.
            let known = known.clone();
            return out.tell(Signal::Unavailable { stripe, index: block, node, known });
        };
        if known.state_on(node) != Some(state) {
            let (known, problem) = (known.clone(), problem.clone());
            out.tell(Signal::Unread { stripe, index: block, node, known, problem });
        }
    }

    /// A job has ended; it is over when all that it stored is recorded.
    pub(crate) fn finish(
        &mut self,
        facts: Facts<'_>,
        id: JobId,
        result: Result<Outcome, JobError>,
        out: &mut Out,
    ) {
        self.record_put(facts, id, out);
        let running = self.running.get_mut(&id).expect("a job finishes once");
        match running.recording {
            0 => out.tell(Signal::Ended { job: id, result: Box::new(result) }),
            _ => running.ended = Some(result),
        }
    }

    /// A job found that blocks contradict each other. Others at the same stripe have to know before they
    /// publish anything.
    fn take_contradiction(&mut self, id: JobId, blocks: &BTreeSet<BlockIndex>, out: &mut Out) {
        let running = &self.running[&id];
        let (stripe, found_by) = (running.stripe.clone(), running.owner.found_by());
        out.tell(Signal::Contradiction { stripe, blocks: blocks.clone(), found_by });
    }

    /// A job ended as blocks contradict each other: it read some that may be wrong.
    pub(crate) fn note_contradictory_end(&mut self, running: &RunningJob, error: &JobError, out: &mut Out) {
        if let JobError::Contradiction { .. } = error {
            let held = running.job.stripe().held().map(|(block, _)| block).collect();
            let (stripe, found_by) = (running.stripe.clone(), running.owner.found_by());
            out.tell(Signal::Contradiction { stripe, blocks: held, found_by });
        }
    }

    /// Records what a put's job stored, even if it failed, so that it is removed where it is.
    fn record_put(&mut self, facts: Facts<'_>, id: JobId, out: &mut Out) {
        let running = self.running.get_mut(&id).expect("a job finishes once");
        if running.stored.is_empty() {
            return;
        }
        let stored = std::mem::take(&mut running.stored);
        self.record(facts, id, stored, out);
    }
}

impl Jobs {
    pub(crate) fn run(&mut self, id: JobId, running: RunningJob) {
        self.running.insert(id, running);
        self.stirred.insert(id);
    }

    pub(crate) fn cancel_job(&mut self, job: JobId) {
        if let Some(running) = self.running.get_mut(&job) {
            running.job.cancel();
            self.stirred.insert(job);
        }
    }

    /// Blocks are about to have other homes: the old ones have something to remove.
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
        let homes = blocks.iter().flat_map(|index| record.blocks[usize::from(index.0)].holders());
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
        self.running.values().any(|running| running.stripe == *stripe && !running.targets.is_empty())
    }

    pub(crate) fn is_target(&self, node: NodeId) -> bool {
        self.running.values().any(|running| running.targets.contains(&node))
    }

    pub(crate) fn jobs_of(&self, put: PutId) -> impl Iterator<Item = repair::JobId> + '_ {
        let of_put = move |owner: &Owner| matches!(owner, Owner::Put { put: other, .. } if *other == put);
        self.running.iter().filter(move |(_, running)| of_put(&running.owner)).map(|(&job, _)| job)
    }

    /// The jobs that make blocks of a stripe.
    pub(crate) fn makers_of(&self, stripe: &StripeId) -> Vec<JobId> {
        let makes = self.running.iter().filter(|(_, job)| job.stripe == *stripe && !job.targets.is_empty());
        makes.map(|(&id, _)| id).collect()
    }

    /// Whether a node moves slices for anybody.
    pub(crate) fn works_for_others(&self, node: NodeId) -> bool {
        self.running.values().any(|running| running.job.nodes().contains(&node))
    }

    /// Whether the catalog places nothing on a helper that is to be emptied, and nothing is on its way there.
    pub(crate) fn is_emptied(&self, facts: Facts<'_>, node: NodeId) -> bool {
        facts.stripes.picture.block_count(node) == 0 && !self.is_target(node)
    }

    pub(crate) fn has_a_job(&self, stripe: &StripeId) -> bool {
        self.running.values().any(|running| running.stripe == *stripe)
    }
}

impl RunningJob {
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
