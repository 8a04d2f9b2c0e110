//! Stripes that are claimed before blocks of them are made, in stores that others change as well.
//!
//! A proposal for a stripe that is not claimed is put back, and the stripe held in the scheduler until the store has
//! answered. A claim names the blocks and the nodes that are to get them, so that the store can prepare these, and is answered
//! by what their own processes want to see. It is given back as soon as nothing is worked on, and what runs is called off when
//! it is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, Permit, StripeId, Wanted};
use store_api::{Answer, StoreError, StripeWrite, Write};

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::Repairs;
use crate::signal::Signal;
use crate::storing::Then;

/// A stripe that somebody else works on is asked for again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// A claim that nothing uses is given back after this time: its repair may wait for room.
const UNUSED_LIMIT: Duration = Duration::from_secs(5);

/// A claim, or the wish for one.
struct Claim {
    /// Nodes that get blocks.
    nodes: BTreeSet<NodeId>,
    /// The blocks.
    blocks: BTreeSet<BlockIndex>,
    state: ClaimState,
}

enum ClaimState {
    /// The store has been asked.
    Asked,
    /// The store has refused, and is asked again then.
    Refused { again: Duration },
    /// It is ours; since when no job has used it, and what the store's own processes want to see before they take blocks.
    Ours { unused_since: Duration, permits: Vec<(BlockIndex, Permit)> },
}

/// All claims.
#[derive(Default)]
pub(crate) struct Claims(BTreeMap<StripeId, Claim>);

impl Repairs {
    /// Others may change a stripe: what runs would be in their way.
    pub(crate) fn claim_lost(&mut self, jobs: &Jobs, stripe: &StripeId, out: &mut Out) {
        let is_ours = |claim: &Claim| matches!(claim.state, ClaimState::Ours { .. } | ClaimState::Asked);
        if !self.claims.0.get(stripe).is_some_and(is_ours) {
            return;
        }
        tracing::warn!(%stripe, "others may change it now: its repair is called off and begun anew");
        if let Some(Claim { state: ClaimState::Ours { .. }, .. }) = self.claims.0.get(stripe) {
            self.claims.0.remove(stripe);
        }
        for job in jobs.makers_of(stripe) {
            out.tell(Signal::Cancel(job));
        }
    }
}

impl Repairs {
    /// Whether blocks of a stripe may be made on these nodes now. If not, that is asked for, and its repair waits.
    pub(crate) fn is_claimed(
        &mut self,
        facts: Facts<'_>,
        stripe: &StripeId,
        wanted: &[Wanted],
        out: &mut Out,
    ) -> bool {
        if !facts.base.store.claims_stripes() || facts.stripes.given.get(stripe).is_some() {
            return true;
        }
        let nodes: BTreeSet<NodeId> = wanted.iter().map(|wanted| wanted.requestor).collect();
        let blocks: BTreeSet<BlockIndex> = wanted.iter().map(|wanted| wanted.block).collect();
        let claim = self.claims.0.get(stripe);
        if let Some(claim) = claim
            && matches!(claim.state, ClaimState::Ours { .. })
            && nodes.is_subset(&claim.nodes)
            && blocks.is_subset(&claim.blocks)
        {
            return true;
        }
        let write = StripeWrite::Claim {
            stripe: stripe.clone(),
            nodes: nodes.iter().copied().collect(),
            blocks: blocks.iter().copied().collect(),
        };
        self.claims.0.insert(stripe.clone(), Claim { nodes, blocks, state: ClaimState::Asked });
        self.scheduler.hold(stripe);
        out.store(Write::Stripes(write), Then::Claimed { stripe: stripe.clone() });
        false
    }

    /// The store has answered.
    pub(crate) fn claimed(
        &mut self,
        facts: Facts<'_>,
        stripe: &StripeId,
        result: Result<Answer, StoreError>,
    ) {
        let now = facts.base.now;
        let Some(claim) = self.claims.0.get_mut(stripe) else { return };
        match result {
            Ok(answer) => {
                let permits = match answer {
                    Answer::Claimed(permits) => permits,
                    _ => Vec::new(), // Nobody asks for any.
                };
                claim.state = ClaimState::Ours { unused_since: now, permits };
                self.scheduler.let_go(stripe);
            }
            Err(error) => {
                tracing::info!(%stripe, %error, "its repair waits");
                claim.state = ClaimState::Refused { again: now + ASK_AGAIN };
                self.note_refusal(facts, stripe, &error);
            }
        }
    }

    /// Time has passed, or a job has ended.
    pub(crate) fn look_at_claims(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let now = facts.base.now;
        let mut over = Vec::new();
        for stripe in self.claims.0.keys().cloned().collect::<Vec<_>>() {
            let used = !jobs.makers_of(&stripe).is_empty();
            match &mut self.claims.0.get_mut(&stripe).expect("just listed").state {
                ClaimState::Ours { unused_since, .. } if used => *unused_since = now,
                ClaimState::Ours { unused_since, .. } if *unused_since + UNUSED_LIMIT <= now => {
                    over.push(stripe);
                }
                ClaimState::Refused { again } if *again <= now => {
                    self.claims.0.remove(&stripe);
                    self.scheduler.let_go(&stripe);
                    if !used {
                        // An earlier claim of it may still be the store's, and nobody may ask again.
                        out.store(Write::Stripes(StripeWrite::Release(stripe)), Then::Nothing);
                    }
                }
                _ => {}
            }
        }
        over.iter().for_each(|stripe| self.release(stripe, out));
    }

    /// A job on a stripe has ended: nobody waits longer for it than needed.
    pub(crate) fn release_unused(&mut self, jobs: &Jobs, stripe: &StripeId, out: &mut Out) {
        if self.claims.0.contains_key(stripe) && jobs.makers_of(stripe).is_empty() {
            self.release(stripe, out);
        }
    }

    pub(crate) fn release(&mut self, stripe: &StripeId, out: &mut Out) {
        if let Some(Claim { state: ClaimState::Ours { .. }, .. }) = self.claims.0.get(stripe) {
            self.claims.0.remove(stripe);
            out.store(Write::Stripes(StripeWrite::Release(stripe.clone())), Then::Nothing);
        }
    }
}

impl Repairs {
    /// What the store's own processes want to see before they take blocks of a stripe that is claimed.
    pub(crate) fn permits(&self, stripe: &StripeId) -> Vec<(BlockIndex, Permit)> {
        match self.claims.0.get(stripe).map(|claim| &claim.state) {
            Some(ClaimState::Ours { permits, .. }) => permits.clone(),
            _ => Vec::new(),
        }
    }
}
