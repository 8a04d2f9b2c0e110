//! Claims: locks on stripes in stores that other programs also change. A stripe is claimed before its blocks
//! are rebuilt.
//!
//! A proposal for an unclaimed stripe is put back, and the scheduler suspends the stripe until the store
//! answers. A claim names the blocks and their new nodes, so the store can prepare these nodes. The answer
//! contains the permits that the store's own processes require. A claim is released when no job uses it. If a
//! claim is lost, its jobs are cancelled.
//!
//! The store may refuse a node on which it accepts no block of the stripe. Then the repair tries another node. If there
//! is no other node, the claim is requested at growing intervals, and the conditions name the stripe.
//!
//! While the job of a paused repair is on hold, its claim is returned to the store. The job resumes only after
//! the store has granted the claim again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use recovery::Scheduler;
use repair::{JobPhase, NodeId, Permit, StripeId, Wanted};
use store_api::{Answer, StoreError, StripeWrite, Write};

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::continuation::RepairThen;
use crate::repairs::refusals::Refusals;
use crate::signal::Signal;
use crate::storing::then::Then;

/// The time after which a refused claim is requested again. It doubles while the store refuses the same nodes again.
const ASK_AGAIN: Duration = Duration::from_secs(2);
const ASK_AGAIN_AT_MOST: Duration = Duration::from_secs(60);
/// How long after the end of a pause its refusals are remembered.
const REFUSALS_KEPT: Duration = Duration::from_secs(10);
/// The time after which an unused claim is released. Until then, its repair may be waiting for budget.
const UNUSED_LIMIT: Duration = Duration::from_secs(5);

/// A claim that is granted or requested.
struct Claim {
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
    Refused { again: Duration },
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

/// A stripe for which the store has refused a node again, because no other node can take the block.
#[derive(Default)]
pub(crate) struct Stuck {
    refusals: u32,
    /// The store's reason.
    pub(crate) why: String,
    /// The time at which the claim is requested again.
    pub(crate) again: Duration,
}

impl Stuck {
    /// Records another refusal. Returns the pause before the next request.
    fn refuse(&mut self, error: &StoreError, now: Duration) -> Duration {
        self.refusals += 1;
        let pause = ASK_AGAIN.saturating_mul(1 << self.refusals.min(10)).min(ASK_AGAIN_AT_MOST);
        (self.why, self.again) = (error.to_string(), now + pause);
        pause
    }
}

/// All claims, by stripe.
#[derive(Default)]
pub(crate) struct Claims {
    claims: BTreeMap<StripeId, Claim>,
    stuck: BTreeMap<StripeId, Stuck>,
}

impl Claims {
    /// Returns why the store refuses the claim of a stripe, if no other node can take the block.
    pub(crate) fn stuck(&self, stripe: &StripeId) -> Option<&Stuck> {
        self.stuck.get(stripe)
    }

    /// Returns the stripes for which the store refuses all possible nodes.
    pub(crate) fn all_stuck(&self) -> impl Iterator<Item = (&StripeId, &Stuck)> {
        self.stuck.iter()
    }

    /// Cancels the jobs on a stripe whose claim the store has revoked, because other programs may change the
    /// stripe now.
    pub(crate) fn lose(&mut self, jobs: &Jobs, stripe: &StripeId, out: &mut Out) {
        let is_ours = |claim: &Claim| matches!(claim.state, ClaimState::Ours { .. } | ClaimState::Asked);
        if !self.claims.get(stripe).is_some_and(is_ours) {
            return;
        }
        tracing::warn!(%stripe, "lost the store's lock on a stripe; restarting the repair of the stripe");
        if let Some(Claim { state: ClaimState::Ours { .. }, .. }) = self.claims.get(stripe) {
            self.claims.remove(stripe);
        }
        for job in jobs.makers_of(stripe) {
            out.tell(Signal::Cancel(job));
        }
    }

    /// Whether blocks of a stripe may be rebuilt on these nodes now. If not, requests a claim; the repair
    /// waits.
    pub(crate) fn is_claimed(
        &mut self,
        facts: Facts<'_>,
        stripe: &StripeId,
        wanted: &[Wanted],
        scheduler: &mut Scheduler,
        out: &mut Out,
    ) -> bool {
        if !facts.base.store.claims_stripes() || facts.stripes.given.get(stripe).is_some() {
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
        self.request(stripe, nodes, blocks, scheduler, out);
        false
    }

    fn request(
        &mut self,
        stripe: &StripeId,
        nodes: BTreeSet<NodeId>,
        blocks: BTreeSet<BlockIndex>,
        scheduler: &mut Scheduler,
        out: &mut Out,
    ) {
        let write = StripeWrite::Claim {
            stripe: stripe.clone(),
            nodes: nodes.iter().copied().collect(),
            blocks: blocks.iter().copied().collect(),
        };
        self.claims.insert(stripe.clone(), Claim { nodes, blocks, state: ClaimState::Asked });
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
        let Some(Claim { nodes, blocks, state: ClaimState::Returned }) = self.claims.get(stripe) else {
            return false;
        };
        self.request(stripe, nodes.clone(), blocks.clone(), scheduler, out);
        true
    }

    /// Handles the store's answer to the request for a claim. If the claim is granted, the repair of the
    /// stripe may start. If it is refused, it is requested again later.
    pub(crate) fn answered(
        &mut self,
        stripe: &StripeId,
        result: Result<Answer, StoreError>,
        now: Duration,
        (scheduler, refusals): (&mut Scheduler, &mut Refusals),
    ) {
        let Some(claim) = self.claims.get_mut(stripe) else { return };
        match result {
            Ok(answer) => {
                let permits = match answer {
                    Answer::Claimed(permits) => permits,
                    _ => Vec::new(), // The store requires no permits.
                };
                claim.state = ClaimState::Ours { unused_since: now, permits };
                self.stuck.remove(stripe);
                scheduler.let_go(stripe);
            }
            Err(error) => {
                tracing::info!(%stripe, %error, "cannot lock a stripe in the store yet; its repair waits");
                let pause = match refusals.note_error(stripe, &error) {
                    true => self.stuck.entry(stripe.clone()).or_default().refuse(&error, now),
                    false => {
                        self.stuck.remove(stripe);
                        ASK_AGAIN
                    }
                };
                claim.state = ClaimState::Refused { again: now + pause };
            }
        }
    }

    /// Releases unused claims, and returns the claims of jobs on hold. If the store refused a claim some time
    /// ago, resumes the stripe in the scheduler. The next proposal for the stripe then requests the claim
    /// again.
    pub(crate) fn expire(&mut self, jobs: &Jobs, now: Duration, scheduler: &mut Scheduler, out: &mut Out) {
        for stripe in self.claims.keys().cloned().collect::<Vec<_>>() {
            let used = Use::of(jobs, &stripe);
            let claim = self.claims.get_mut(&stripe).expect("just listed");
            match &mut claim.state {
                ClaimState::Ours { unused_since, .. } if used == Use::Used => *unused_since = now,
                ClaimState::Ours { unused_since, .. } if *unused_since + UNUSED_LIMIT <= now => {
                    claim.state = ClaimState::Returned;
                    out.store(Write::Stripes(StripeWrite::Release(stripe.clone())), Then::Nothing);
                }
                ClaimState::Refused { again } if *again <= now => {
                    claim.state = ClaimState::Returned;
                    scheduler.let_go(&stripe);
                    if used != Use::Used {
                        // The store may still have an earlier claim, and this repair may never request
                        // another one, so the earlier claim is released.
                        out.store(Write::Stripes(StripeWrite::Release(stripe.clone())), Then::Nothing);
                    }
                }
                _ => {}
            }
            if matches!(claim.state, ClaimState::Returned) && used != Use::OnHold {
                self.claims.remove(&stripe);
            }
        }
        let is_asked = |claim: &Claim| matches!(claim.state, ClaimState::Asked);
        self.stuck.retain(|stripe, stuck| {
            now < stuck.again + REFUSALS_KEPT || self.claims.get(stripe).is_some_and(is_asked)
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
