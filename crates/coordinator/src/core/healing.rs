//! Repairs that nobody asked for, in stores that say themselves what is in service.
//!
//! What a server in service does not have any more, or has rotten, is repaired at once. What is on a server that is out of
//! service is repaired after the same grace period as everywhere (`repair_after`), and not while it is in maintenance: most
//! come back. What fails is tried again, at growing intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use repair::recovery::Target;
use repair::{BlockId, NodeId, StripeId};
use stores::{BlockRecord, BlockState, StripeRecord};

use super::Core;
use super::storing::Then;

/// How often damage is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Repairs of its own that are open at a time; more wait, the stripes with least left first.
const OPEN_AT_ONCE: usize = 32;
/// The pause after a repair that did not help; it doubles with every further one, up to the last.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_LAST: Duration = Duration::from_secs(600);

/// Once all nodes have been in service for so long, nobody can come back with what nobody has.
const ALL_HAVE_TOLD: Duration = Duration::from_secs(10);

/// What the coordinator does by itself about damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HealPolicy {
    /// Only what would be repaired is said.
    pub dry_run: bool,
}

/// A stripe that is being, or was, repaired without being asked for.
struct Case {
    /// Its repair, once it has a number; `None` while that is being stored.
    repairs: BTreeSet<u64>,
    attempts: u32,
    not_before: Duration,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Healing {
    due: Duration,
    cases: BTreeMap<StripeId, Case>,
    /// Since when nodes have been out of service.
    out_since: BTreeMap<NodeId, Duration>,
    /// Since when all nodes that there are have been in service.
    all_since: Option<Duration>,
}

impl Core {
    pub(super) fn note_service(&mut self, node: NodeId, up: bool) {
        if up {
            self.healing.out_since.remove(&node);
        } else {
            self.healing.out_since.entry(node).or_insert(self.now);
        }
    }

    /// Time has passed: begins what is due.
    pub(super) fn heal(&mut self) {
        let Some(policy) = self.settings.heal else { return };
        if !self.settled || self.is_behind() || self.now < self.healing.due {
            return;
        }
        self.healing.due = self.now + LOOK_EVERY;
        let all_serve = self.picture.nodes().keys().all(|&node| self.picture.is_up(node));
        self.healing.all_since = all_serve.then(|| self.healing.all_since.unwrap_or(self.now));
        let damaged = self.picture.damaged();
        let ids: BTreeSet<&StripeId> = damaged.iter().map(|stripe| &stripe.id).collect();
        self.healing.cases.retain(|stripe, _| ids.contains(stripe));
        let mut open = self.healing.cases.values().filter(|case| self.is_open(case)).count();
        let mut worst_first: Vec<(usize, &StripeRecord)> =
            damaged.iter().map(|stripe| (self.lost_blocks(stripe).len(), stripe)).collect();
        worst_first.sort_by_key(|&(lost, _)| std::cmp::Reverse(lost));
        for (_, stripe) in worst_first {
            if open >= OPEN_AT_ONCE {
                break;
            }
            open += usize::from(self.heal_stripe(policy, stripe));
        }
    }

    fn is_open(&self, case: &Case) -> bool {
        case.repairs.iter().any(|&repair| self.is_repair_open(repair))
    }

    /// Begins the repair of a stripe, if it is due; whether it did.
    fn heal_stripe(&mut self, policy: HealPolicy, stripe: &StripeRecord) -> bool {
        let lost: Vec<&BlockRecord> = stripe.blocks.iter().filter(|block| self.is_lost(block)).collect();
        let due: Vec<BlockId> =
            lost.iter().filter(|block| self.is_due(block)).map(|block| block.id.clone()).collect();
        if due.is_empty() || !self.can_be_read(stripe) {
            return false; // What cannot be rebuilt now is looked at again as soon as a block of it is back.
        }
        let now = self.now;
        if let Some(case) = self.healing.cases.get(&stripe.id)
            && (now < case.not_before || self.is_open(case))
        {
            return false;
        }
        let repairs = self.repairs.of_stripe(&stripe.id);
        if repairs.into_iter().any(|id| self.is_repair_open(id)) {
            return false; // Somebody has asked for it, or an earlier coordinator began it.
        }
        let names: Vec<&str> = due.iter().map(|block| &block.0[..]).collect();
        let (targets, listed) = (targets(stripe, &due, lost.len()), names.join(", "));
        let case = self.healing.cases.entry(stripe.id.clone()).or_insert_with(|| Case {
            repairs: BTreeSet::new(),
            attempts: 0,
            not_before: Duration::ZERO,
        });
        let pause = PAUSE_FIRST.saturating_mul(1 << case.attempts.min(16)).min(PAUSE_LAST);
        case.attempts += 1;
        case.not_before = now + pause;
        case.repairs.clear();
        if policy.dry_run {
            tracing::info!(stripe = %stripe.id, blocks = listed, "would be repaired now (dry run)");
            return false;
        }
        tracing::info!(stripe = %stripe.id, blocks = listed, "is repaired without being asked for");
        for target in targets {
            self.heal_target(&stripe.id, target);
        }
        true
    }

    fn can_be_read(&mut self, stripe: &StripeRecord) -> bool {
        let lost = self.lost_blocks(stripe);
        self.codes.get(&stripe.code).is_ok_and(|code| self.risks.survives(&*code, &lost).is_some())
    }

    fn heal_target(&mut self, stripe: &StripeId, target: Target) {
        let order = self.own_order(target);
        match order.and_then(|order| Ok((self.next_number()?, order))) {
            Ok((id, order)) => {
                if let Some(case) = self.healing.cases.get_mut(stripe) {
                    case.repairs.insert(id);
                }
                self.store(Self::kept(id, &order), Then::Healed { id, order: Box::new(order) });
            }
            Err(error) => tracing::warn!(%stripe, %error, "its repair cannot begin"),
        }
    }

    /// Whether a lost block is not waited for any more.
    fn is_due(&self, block: &BlockRecord) -> bool {
        let is_over = |since: Duration| {
            self.repair_after().time().is_some_and(|after| self.now >= since.saturating_add(after))
        };
        let waits = |node: NodeId| {
            let since = self.healing.out_since.get(&node).copied().unwrap_or_default();
            !self.picture.is_up(node) && (!is_over(since) || self.maintenance_left(node).is_some())
        };
        let mut holders = block.holders().filter(|holder| holder.state == BlockState::Healthy);
        match block.node {
            // Whoever had it may be about to come back since before this coordinator began, unless nobody is away.
            None => {
                let all_have_told = |since| self.now >= since + ALL_HAVE_TOLD;
                is_over(Duration::ZERO) || self.healing.all_since.is_some_and(all_have_told)
            }
            Some(_) => !holders.any(|holder| waits(holder.node)),
        }
    }
}

/// The whole stripe at once, unless some of it is still waited for.
fn targets(stripe: &StripeRecord, due: &[BlockId], lost: usize) -> Vec<Target> {
    if due.len() == lost {
        return vec![Target::Stripe(stripe.id.clone())];
    }
    due.iter().cloned().map(Target::Block).collect()
}
