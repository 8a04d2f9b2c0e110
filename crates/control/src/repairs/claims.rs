//! Claims: locks on stripes in stores that other programs also change. A stripe is claimed before its blocks
//! are rebuilt.
//!
//! A proposal for an unclaimed stripe is put back, and the scheduler suspends the stripe until the store
//! answers. A claim names the blocks and their new nodes, so the store can prepare these nodes. The answer
//! contains the permits that the store's own processes require. A claim is released when no job uses it. If a
//! claim is lost, its jobs are cancelled.
//!
//! The store may refuse a node on which it accepts no block of the stripe. Then the repair tries another node. If there
//! is no other node, the claim is requested at growing intervals, and the conditions name the stripe. Only the refused
//! repair waits: another one, such as a drain, may claim the same stripe for other blocks meanwhile.
//!
//! While the job of a paused repair is on hold, its claim is returned to the store. The job resumes only after
//! the store has granted the claim again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use recovery::{ItemId, Proposal, Scheduler};
use repair::{JobPhase, NodeId, Permit, StripeId, Wanted};
use store_api::{Answer, StoreError, StripeWrite, Write};

use crate::facts::Facts;
use crate::jobs::{Jobs, RunningJob};
use crate::out::Out;
use crate::repairs::continuation::RepairThen;
use crate::repairs::refusals::Refusals;
use crate::signal::Signal;
use crate::storing::then::Then;

/// The time after which a refused claim is requested again. It doubles while the store refuses the same nodes again.
const ASK_AGAIN: Duration = Duration::from_secs(2);
const ASK_AGAIN_AT_MOST: Duration = Duration::from_secs(60);
/// The longest such time for a stripe that cannot lose another block.
const ASK_AGAIN_IF_URGENT: Duration = Duration::from_secs(10);
/// How long after the end of a pause its refusals are remembered.
const REFUSALS_KEPT: Duration = Duration::from_secs(10);
/// The time after which an unused claim is released. Until then, its repair may be waiting for budget.
const UNUSED_LIMIT: Duration = Duration::from_secs(5);

/// A claim that is granted or requested.
struct Claim {
    /// The repair that needs the claim.
    repair: u64,
    /// The item of the repair; `None` once it has ended, because another item may get its number.
    item: Option<ItemId>,
    /// The nodes that will receive blocks.
    nodes: BTreeSet<NodeId>,
    /// The blocks to rebuild.
    blocks: BTreeSet<BlockIndex>,
    state: ClaimState,
}

enum ClaimState {
    /// The claim was requested.
    Asked,
    /// The claim was refused. It is requested again at this time.
    Refused { again: Duration, why: String },
    /// The claim is granted. The store's own processes require `permits` before they accept blocks.
    Ours { unused_since: Duration, permits: Vec<(BlockIndex, Permit)> },
    /// The claim was returned to the store because its job is on hold. It is requested again before the job
    /// resumes.
    Returned,
}

/// Whether the jobs on a claimed stripe need the claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// No job writes blocks of the stripe.
    Unused,
    /// All jobs that write blocks of the stripe are on hold.
    OnHold,
    Used,
}

impl Use {
    fn of(jobs: &Jobs, stripe: &StripeId) -> Self {
        let makers = jobs.makers_of(stripe);
        let is_on_hold = |id| jobs.running.get(id).is_some_and(|it| it.job.phase() == JobPhase::OnHold);
        match makers.iter().all(is_on_hold) {
            _ if makers.is_empty() => Self::Unused,
            true => Self::OnHold,
            false => Self::Used,
        }
    }
}

/// A repair of a stripe for which the store has refused a node again, because no other node can take the block.
pub(crate) struct Stuck {
    pub(crate) repair: u64,
    pub(crate) stripe: StripeId,
    refusals: u32,
    /// The store's reason.
    pub(crate) why: String,
    /// The time at which the claim is requested again.
    pub(crate) again: Duration,
}

impl Stuck {
    fn new(repair: u64, stripe: StripeId) -> Self {
        Self { repair, stripe, refusals: 0, why: String::new(), again: Duration::ZERO }
    }

    /// Records another refusal. Returns the pause before the next request, which is at most `most`.
    fn refuse(&mut self, error: &StoreError, now: Duration, most: Duration) -> Duration {
        self.refusals += 1;
        let pause = ASK_AGAIN.saturating_mul(1 << self.refusals.min(10)).min(most);
        (self.why, self.again) = (error.to_string(), now + pause);
        pause
    }
}

/// Why the store refuses a claim.
pub(crate) struct Refusal<'a> {
    /// The store's reason.
    pub(crate) why: &'a str,
    /// The time at which the claim is requested again.
    pub(crate) again: Duration,
    /// Whether the store refuses every node that could take the block.
    pub(crate) is_everywhere: bool,
}

/// All claims, by stripe.
#[derive(Default)]
pub(crate) struct Claims {
    claims: BTreeMap<StripeId, Claim>,
    stuck: BTreeMap<ItemId, Stuck>,
}

impl Claims {
    /// Returns why the store refuses the claim of a stripe for an item.
    pub(crate) fn refusal(&self, item: ItemId, stripe: &StripeId) -> Option<Refusal<'_>> {
        if let Some(Stuck { why, again, .. }) = self.stuck.get(&item) {
            return Some(Refusal { why, again: *again, is_everywhere: true });
        }
        match self.claims.get(stripe).filter(|claim| claim.item == Some(item))?.state {
            ClaimState::Refused { again, ref why } => Some(Refusal { why, again, is_everywhere: false }),
            _ => None,
        }
    }

    /// Returns why the store refuses a claim for some item of a repair.
    pub(crate) fn refusal_of(&self, repair: u64) -> Option<&str> {
        let mut claims = self.claims.values().filter(|claim| claim.repair == repair);
        let refused = claims.find_map(|claim| match &claim.state {
            ClaimState::Refused { why, .. } => Some(why),
            _ => None,
        });
        let stuck = || self.stuck.values().find(|stuck| stuck.repair == repair).map(|stuck| &stuck.why);
        refused.or_else(stuck).map(String::as_str)
    }

    /// Returns the items for which the store refuses all possible nodes.
    pub(crate) fn all_stuck(&self) -> impl Iterator<Item = (ItemId, &Stuck)> {
        self.stuck.iter().map(|(&item, stuck)| (item, stuck))
    }

    /// Returns the items whose claims the store refuses until they are requested again, each with its repair
    /// and stripe.
    pub(crate) fn all_refused(&self) -> impl Iterator<Item = (ItemId, u64, &StripeId)> {
        let refused =
            self.claims.iter().filter(|(_, claim)| matches!(claim.state, ClaimState::Refused { .. }));
        refused.filter_map(|(stripe, claim)| Some((claim.item?, claim.repair, stripe)))
    }

    /// Forgets the refusals of an item that has ended. If its claim was requested, the answer concerns no item.
    pub(crate) fn item_ended(&mut self, item: ItemId, stripe: &StripeId) {
        self.stuck.remove(&item);
        let claim = self.claims.get_mut(stripe).filter(|claim| claim.item == Some(item));
        claim.into_iter().for_each(|claim| claim.item = None);
    }

    /// Restarts the jobs on a stripe whose claim the store has revoked, because other programs may change the
    /// stripe now.
    pub(crate) fn lose(&mut self, jobs: &Jobs, stripe: &StripeId, scheduler: &mut Scheduler, out: &mut Out) {
        let is_ours = |claim: &Claim| matches!(claim.state, ClaimState::Ours { .. } | ClaimState::Asked);
        if !self.claims.get(stripe).is_some_and(is_ours) {
            return;
        }
        tracing::warn!(%stripe, "lost the store's lock on a stripe; restarting the repair of the stripe");
        if let Some(Claim { state: ClaimState::Ours { .. }, .. }) = self.claims.get(stripe) {
            self.withdraw(stripe, scheduler);
            self.claims.remove(stripe);
        }
        for job in jobs.makers_of(stripe) {
            jobs.running[&job].item.into_iter().for_each(|item| scheduler.recall(item));
            out.tell(Signal::Cancel(job));
        }
    }

    /// Whether the item of a proposal may rebuild blocks on these nodes now. If not, requests a claim; the stripe waits
    /// for the answer.
    pub(crate) fn is_claimed(
        &mut self,
        facts: Facts<'_>,
        proposal: &Proposal,
        wanted: &[Wanted],
        scheduler: &mut Scheduler,
        out: &mut Out,
    ) -> bool {
        let stripe = &proposal.stripe;
        let is_listed = || facts.stripes.picture.stripe(stripe).is_ok();
        if !facts.base.store.claims_stripes() || !is_listed() {
            return true;
        }
        let nodes: BTreeSet<NodeId> = wanted.iter().map(|wanted| wanted.requestor).collect();
        let blocks: BTreeSet<BlockIndex> = wanted.iter().map(|wanted| wanted.block).collect();
        let claim = self.claims.get(stripe);
        if let Some(claim) = claim
            && matches!(claim.state, ClaimState::Ours { .. })
            && nodes.is_subset(&claim.nodes)
            && blocks.is_subset(&claim.blocks)
        {
            return true;
        }
        let (repair, item) = (proposal.repair.0, proposal.item);
        let claim = Claim { repair, item: Some(item), nodes, blocks, state: ClaimState::Asked };
        self.withdraw(stripe, scheduler);
        scheduler.preparation(item).begin(wanted);
        self.request(stripe, claim, scheduler, out);
        false
    }

    /// Lets the item of a claim that ends choose other nodes.
    fn withdraw(&self, stripe: &StripeId, scheduler: &mut Scheduler) {
        let item = self.claims.get(stripe).and_then(|claim| claim.item);
        item.into_iter().for_each(|item| scheduler.preparation(item).withdraw());
    }

    fn request(&mut self, stripe: &StripeId, claim: Claim, scheduler: &mut Scheduler, out: &mut Out) {
        let write = StripeWrite::Claim {
            stripe: stripe.clone(),
            nodes: claim.nodes.iter().copied().collect(),
            blocks: claim.blocks.iter().copied().collect(),
        };
        self.claims.insert(stripe.clone(), claim);
        scheduler.hold(stripe);
        out.store(Write::Stripes(write), RepairThen::Claimed { stripe: stripe.clone() });
    }

    /// Whether the store has not granted the requested claim of a stripe yet.
    pub(crate) fn awaits_answer(&self, stripe: &StripeId) -> bool {
        let state = self.claims.get(stripe).map(|claim| &claim.state);
        matches!(state, Some(ClaimState::Asked | ClaimState::Refused { .. }))
    }

    /// Requests the claim of a stripe again if it was returned to the store. Returns whether it was.
    pub(crate) fn reclaim(&mut self, stripe: &StripeId, scheduler: &mut Scheduler, out: &mut Out) -> bool {
        let is_returned = |claim: &Claim| matches!(claim.state, ClaimState::Returned);
        if !self.claims.get(stripe).is_some_and(is_returned) {
            return false;
        }
        let claim = self.claims.remove(stripe).expect("just seen");
        self.request(stripe, Claim { state: ClaimState::Asked, ..claim }, scheduler, out);
        true
    }

    /// Handles the store's answer to the request for a claim. If the claim is granted, the item may start. If it is
    /// refused, the item requests it again later; other items of the stripe may start meanwhile.
    pub(crate) fn answered(
        &mut self,
        (facts, jobs): (Facts<'_>, &Jobs),
        stripe: &StripeId,
        result: Result<Answer, StoreError>,
        (scheduler, refusals): (&mut Scheduler, &mut Refusals),
        out: &mut Out,
    ) {
        let Some(claim) = self.claims.get_mut(stripe) else { return };
        let (now, repair, item) = (facts.base.now, claim.repair, claim.item);
        scheduler.let_go(stripe);
        match result {
            Ok(answer) => {
                let permits = match answer {
                    Answer::Claimed(permits) => permits,
                    _ => Vec::new(), // The store requires no permits.
                };
                claim.state = ClaimState::Ours { unused_since: now, permits };
                if let Some(item) = item {
                    self.stuck.remove(&item);
                    scheduler.preparation(item).end();
                }
            }
            Err(error) => {
                tracing::info!(%stripe, %error, "cannot lock a stripe in the store yet; its repair waits");
                let pause = match (item, refusals.note_error(stripe, &error)) {
                    (None, _) => ASK_AGAIN,
                    (Some(item), true) => {
                        let most = longest_pause(facts, stripe);
                        let stuck =
                            self.stuck.entry(item).or_insert_with(|| Stuck::new(repair, stripe.clone()));
                        stuck.refuse(&error, now, most)
                    }
                    // Another client has the stripe for a while, which says nothing about the refused nodes.
                    (Some(item), false) if !names_node(&error) => {
                        self.stuck.get_mut(&item).into_iter().for_each(|stuck| stuck.again = now + ASK_AGAIN);
                        ASK_AGAIN
                    }
                    (Some(item), false) => {
                        self.stuck.remove(&item);
                        ASK_AGAIN
                    }
                };
                if let Some(item) = item {
                    scheduler.preparation(item).withdraw();
                    scheduler.put_off(item, now + pause);
                }
                claim.state = ClaimState::Refused { again: now + pause, why: error.to_string() };
                stop_on_hold(jobs, stripe, &error, scheduler, out);
            }
        }
    }

    /// Releases unused claims, and returns the claims of jobs on hold. Claims that the store refused some time ago are
    /// dropped; the next proposal for the item requests them again. Refusals of the items in `waiting`, which wait for
    /// the scheduler, are remembered.
    pub(crate) fn expire(
        &mut self,
        (jobs, now): (&Jobs, Duration),
        waiting: &BTreeSet<ItemId>,
        scheduler: &mut Scheduler,
        out: &mut Out,
    ) {
        for stripe in self.claims.keys().cloned().collect::<Vec<_>>() {
            let used = Use::of(jobs, &stripe);
            let claim = self.claims.get_mut(&stripe).expect("just listed");
            match &mut claim.state {
                ClaimState::Ours { unused_since, .. } if used == Use::Used => *unused_since = now,
                ClaimState::Ours { unused_since, .. } if *unused_since + UNUSED_LIMIT <= now => {
                    claim.state = ClaimState::Returned;
                    out.store(Write::Stripes(StripeWrite::Release(stripe.clone())), Then::Nothing);
                }
                ClaimState::Refused { again, .. } if *again <= now => {
                    claim.state = ClaimState::Returned;
                    if used != Use::Used {
                        // The store may still have an earlier claim, and this repair may never request
                        // another one, so the earlier claim is released.
                        out.store(Write::Stripes(StripeWrite::Release(stripe.clone())), Then::Nothing);
                    }
                }
                _ => {}
            }
            if matches!(claim.state, ClaimState::Returned) && used != Use::OnHold {
                self.withdraw(&stripe, scheduler);
                self.claims.remove(&stripe);
            }
        }
        let is_asked =
            |item, claim: &Claim| claim.item == Some(item) && matches!(claim.state, ClaimState::Asked);
        self.stuck.retain(|&item, stuck| {
            let claim = self.claims.get(&stuck.stripe);
            let is_open = waiting.contains(&item) || claim.is_some_and(|claim| is_asked(item, claim));
            is_open || now < stuck.again + REFUSALS_KEPT
        });
    }

    /// Releases the claim on a stripe when a job has ended, unless another job uses the claim.
    pub(crate) fn release_unused(&mut self, jobs: &Jobs, stripe: &StripeId, out: &mut Out) {
        if self.claims.contains_key(stripe) && jobs.makers_of(stripe).is_empty() {
            self.release(stripe, out);
        }
    }

    fn release(&mut self, stripe: &StripeId, out: &mut Out) {
        if let Some(Claim { state: ClaimState::Ours { .. }, .. }) = self.claims.get(stripe) {
            self.claims.remove(stripe);
            out.store(Write::Stripes(StripeWrite::Release(stripe.clone())), Then::Nothing);
        }
    }

    /// Returns the permits that the store's own processes require before they accept blocks of a claimed
    /// stripe.
    pub(crate) fn permits(&self, stripe: &StripeId) -> Vec<(BlockIndex, Permit)> {
        match self.claims.get(stripe).map(|claim| &claim.state) {
            Some(ClaimState::Ours { permits, .. }) => permits.clone(),
            _ => Vec::new(),
        }
    }

    /// Returns the number of claims that the store has granted.
    #[cfg(test)]
    pub(crate) fn granted(&self) -> usize {
        self.claims.values().filter(|claim| matches!(claim.state, ClaimState::Ours { .. })).count()
    }
}

/// Cancels the jobs on hold that wait in vain for the claim of a stripe: the store refuses their node, or another repair
/// waits for the stripe. Their items return to the queue.
fn stop_on_hold(
    jobs: &Jobs,
    stripe: &StripeId,
    error: &StoreError,
    scheduler: &mut Scheduler,
    out: &mut Out,
) {
    let names_node = names_node(error);
    for id in jobs.makers_of(stripe) {
        let RunningJob { job, item: Some(item), .. } = &jobs.running[&id] else { continue };
        if job.phase() != JobPhase::OnHold {
            continue;
        }
        if names_node {
            scheduler.recall(*item);
        }
        if names_node || scheduler.make_way(*item) {
            out.tell(Signal::Cancel(id));
        }
    }
}

/// Whether the store refuses a certain node.
fn names_node(error: &StoreError) -> bool {
    matches!(error, StoreError::NotServed { .. } | StoreError::Unfit { .. })
}

/// Returns the longest pause between two requests for a refused claim.
fn longest_pause(facts: Facts<'_>, stripe: &StripeId) -> Duration {
    let left = facts.stripes.picture.stripe(stripe).ok().and_then(|record| {
        let code = facts.stripes.codes.get(&record.code).ok()?;
        facts.stripes.codes.survives(&*code, &facts.lost_blocks(&record))
    });
    if left == Some(0) { ASK_AGAIN_IF_URGENT } else { ASK_AGAIN_AT_MOST }
}
