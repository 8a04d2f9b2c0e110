//! Stripes whose digests the store doubts. Only parity tells whether their blocks are right. So the parity of such
//! a stripe is checked at once, whatever the rate of the background scrub, and the stripe counts as unproven until
//! checks have passed over all of its good blocks. A check proves the blocks that it has read. The others, such as
//! blocks on a server without a helper, stay unproven and are named. A check without a result is repeated at growing
//! intervals.
//!
//! **Invariant:** a stripe leaves the list only because parity holds, because its contradiction is recorded, because
//! its blocks have digests again, or because it was removed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockRecord, StripeRecord};

use crate::counts::count;
use crate::error::list;
use crate::facts::{Facts, Standing};
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::attempts::Attempts;
use crate::scrub::parity_checks::Asker;
use crate::scrub::parity_scrub::{LOOK_AHEAD, LOOK_EVERY, Obstacle};
use crate::scrub::state::{Distrusted, Scrubs, UnprovenStripe};
use crate::stripes::indices::indexed;

/// How many stripes, and how many blocks of each, the advice names.
const NAMED: usize = 5;
/// In how many stripes the advice looks for blocks that cannot be read. The status is determined every second, and all
/// stripes without such blocks leave the list in time.
const ADVISED: usize = 4096;

impl UnprovenStripe {
    /// Returns the good blocks of the stripe that no check has proven.
    fn unproven<'r>(
        &self,
        facts: Facts<'_>,
        record: &'r StripeRecord,
    ) -> impl Iterator<Item = (BlockIndex, &'r BlockRecord)> {
        indexed(record).filter(move |(index, block)| !self.proven.contains_key(index) && facts.counts(block))
    }

    /// Adds the blocks over which a check has passed. If those that an earlier check has read too do not suffice to
    /// decode the stripe, the two checks may have passed over different versions of it, and only this one counts.
    fn note_held(&mut self, facts: Facts<'_>, record: &StripeRecord, read: &BTreeMap<BlockIndex, NodeId>) {
        let is_again = |index: &BlockIndex| {
            let node = read.get(index);
            node.is_some() && node == self.proven.get(index)
        };
        let others: Vec<BlockIndex> =
            indexed(record).map(|(index, _)| index).filter(|index| !is_again(index)).collect();
        let code = facts.stripes.codes.get(&record.code);
        if !code.is_ok_and(|code| facts.stripes.codes.survives(&*code, &others).is_some()) {
            self.proven.clear();
        }
        self.proven.extend(read);
    }

    /// Whether the proven blocks outside of `gone` suffice to decode the stripe, also after the loss of `leave`
    /// further nodes.
    fn suffices_without(
        &self,
        facts: Facts<'_>,
        record: &StripeRecord,
        gone: &BTreeSet<NodeId>,
        leave: u32,
    ) -> bool {
        let stays = |index: &BlockIndex, block: &BlockRecord| {
            let &node = self.proven.get(index)?;
            let is_there = facts.readers(block).any(|reader| reader == node);
            (is_there && !gone.contains(&node)).then_some(node)
        };
        let (mut lost, mut readers) = (Vec::new(), Vec::new());
        for (index, block) in indexed(record) {
            match stays(&index, block) {
                Some(node) => readers.push(node),
                None => lost.push(index),
            }
        }
        let together = facts.stripes.picture.together(&readers);
        let standing = Standing { lost, together, contradictory: false };
        let survives = facts.survives(&record.code, &standing).ok().flatten();
        survives.is_some_and(|survives| survives.nodes >= leave)
    }

    /// Returns a sentence about the blocks that no helper can read; `None` if there are none.
    fn unread_advice(&self, facts: Facts<'_>, record: &StripeRecord) -> Option<String> {
        let is_unread = |(_, block): &(BlockIndex, &BlockRecord)| facts.readable_at(block).is_none();
        let unread: Vec<&BlockRecord> =
            self.unproven(facts, record).filter(is_unread).map(|(_, block)| block).collect();
        let nodes: BTreeSet<NodeId> = unread.iter().filter_map(|block| block.node).collect();
        let nodes: Vec<String> = nodes.into_iter().map(|node| facts.nodes.name(node)).collect();
        let mut blocks: Vec<String> = unread.iter().take(NAMED).map(|block| block.id.to_string()).collect();
        if unread.len() > NAMED {
            blocks.push(format!("{} more", unread.len() - NAMED));
        }
        (!unread.is_empty()).then(|| {
            format!(
                "{}: parity has confirmed {} of {}, but {} cannot be read: start helpers on {}",
                record.id,
                self.proven.len(),
                count(record.blocks.len() as u64, "block"),
                list(&blocks),
                list(&nodes)
            )
        })
    }
}

impl Distrusted {
    /// Applies the store's list of stripes with doubted digests.
    pub(crate) fn set(&mut self, facts: Facts<'_>, doubted: BTreeSet<StripeId>) {
        for stripe in doubted.difference(&self.doubted) {
            self.open.entry(stripe.clone()).or_default();
        }
        let lacks_digests = |stripe: &StripeId| {
            let record = facts.stripes.picture.stripe(stripe);
            record.is_ok_and(|record| record.blocks.iter().any(|block| block.digest.is_none()))
        };
        self.open.retain(|stripe, _| doubted.contains(stripe) || lacks_digests(stripe));
        self.doubted = doubted;
        self.look_due = Duration::ZERO;
    }

    /// Handles a stripe that the store lists, before the picture shows it. A copy that did not count as good
    /// before, or that was not the one to read, was not checked, so the stripe is unproven again. A repair checks
    /// the block that it publishes.
    pub(crate) fn note_listed(&mut self, facts: Facts<'_>, jobs: &Jobs, now: &StripeRecord) {
        if !self.doubted.contains(&now.id) && !self.open.contains_key(&now.id) {
            return;
        }
        let before = facts.stripes.picture.stripe(&now.id).ok();
        let counted = |index, node| {
            let block = before.as_ref().and_then(|before| before.block(index));
            block.is_some_and(|block| block.node == node && facts.counts(block))
        };
        let is_made =
            |index, node: Option<NodeId>| node.is_some_and(|node| jobs.makes(&now.id, (index, node)));
        let is_new = |(index, block): &(BlockIndex, &BlockRecord)| {
            facts.counts(block) && !counted(*index, block.node) && !is_made(*index, block.node)
        };
        let new: Vec<BlockIndex> = indexed(now).filter(is_new).map(|(index, _)| index).collect();
        if !new.is_empty() {
            let stripe = self.open.entry(now.id.clone()).or_default();
            stripe.proven.retain(|index, _| !new.contains(index));
            stripe.attempts = Attempts::default();
            self.look_due = Duration::ZERO;
        }
    }

    /// Handles a passed parity check over these blocks, each on its node.
    pub(crate) fn note_held(
        &mut self,
        facts: Facts<'_>,
        stripe: &StripeId,
        read: &BTreeMap<BlockIndex, NodeId>,
    ) {
        let Some(open) = self.open.get_mut(stripe) else { return };
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return };
        open.note_held(facts, &record, read);
        if open.unproven(facts, &record).next().is_none() {
            tracing::info!(%stripe, "parity holds in a stripe whose digests the store doubts");
            self.forget(stripe);
        }
    }

    /// Takes a stripe off the list, because parity holds, or because its contradiction is recorded elsewhere.
    pub(crate) fn forget(&mut self, stripe: &StripeId) {
        self.open.remove(stripe);
    }

    /// Takes a removed stripe off the list. A stripe whose digests the store still doubts is only not listed for a
    /// while.
    pub(crate) fn note_removed(&mut self, stripe: &StripeId) {
        if !self.doubted.contains(stripe) {
            self.forget(stripe);
        }
    }

    /// Returns the names of the unproven stripes.
    pub(crate) fn names(&self) -> Vec<String> {
        self.open.keys().map(StripeId::to_string).collect()
    }

    /// Returns the number of unproven stripes with blocks on these nodes whose proven blocks on other nodes do not
    /// suffice after the loss of `leave` further nodes.
    pub(crate) fn count_on(&self, facts: Facts<'_>, nodes: &BTreeSet<NodeId>, leave: u32) -> u64 {
        let counts = |(stripe, open): &(&StripeId, &UnprovenStripe)| {
            let Ok(record) = facts.stripes.picture.stripe(stripe) else { return false };
            let mut holders = record.blocks.iter().flat_map(|block| block.holders());
            holders.any(|it| nodes.contains(&it.node)) && !open.suffices_without(facts, &record, nodes, leave)
        };
        self.open.iter().filter(counts).count() as u64
    }

    /// Returns how many stripes are not proven; `None` if there are none.
    pub(crate) fn words(&self) -> Option<String> {
        let stripes = count(self.open.len() as u64, "stripe");
        let which = match self.open.values().any(|open| open.proven.is_empty()) {
            true => "the blocks",
            false => "all of their blocks",
        };
        (!self.open.is_empty())
            .then(|| format!("checksums of {stripes} doubted, and parity has not confirmed {which} yet"))
    }

    /// Returns sentences for the operator about the stripes that are not proven.
    pub(crate) fn advice(&self, facts: Facts<'_>) -> Vec<String> {
        let names: Vec<String> = self.names().into_iter().take(NAMED).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let why = self.obstacle.map(|why| format!(" (last obstacle: {why})")).unwrap_or_default();
        let all = format!(
            "the checksums of {} contradict too many blocks, so blocks there may be wrong without being \
             counted as lost; the parity check runs automatically{why}",
            list(&names)
        );
        let unread = self.open.iter().take(ADVISED).filter_map(|(stripe, open)| {
            open.unread_advice(facts, &facts.stripes.picture.stripe(stripe).ok()?)
        });
        [all].into_iter().chain(unread.take(NAMED)).collect()
    }

    /// Whether a check of a stripe would prove further blocks. While no helper can read any of the unproven blocks, the
    /// check is put off: it would read all others again, and prove as little as before. A stripe whose unproven blocks
    /// do not count as good any more is proven.
    fn needs_check(&mut self, facts: Facts<'_>, stripe: &StripeId) -> bool {
        let Some(open) = self.open.get_mut(stripe) else { return false };
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return true };
        let unproven: Vec<bool> =
            open.unproven(facts, &record).map(|(_, block)| facts.readable_at(block).is_some()).collect();
        if unproven.is_empty() && !open.proven.is_empty() {
            self.forget(stripe);
            return false;
        }
        let needs = unproven.is_empty() || unproven.contains(&true);
        if !needs {
            open.attempts.put_off(facts.base.now);
            self.obstacle = Some("no helper can read the other blocks");
        }
        needs
    }

    /// Returns the next stripe whose check is due, in the order of names. After the last one, the first one follows.
    fn next_due(&self, now: Duration) -> Option<StripeId> {
        let after = self.looked_at.as_ref().map_or(Unbounded, Excluded);
        let later = self.open.range::<StripeId, _>((after, Unbounded));
        let mut due = later.chain(&self.open).filter(|(_, open)| open.attempts.wait(now).is_zero());
        due.next().map(|(stripe, _)| stripe.clone())
    }
}

impl Scrubs {
    /// Starts the checks of stripes with doubted digests that are due, until too many of them have helpers that read for
    /// other checks. They do not wait for other jobs.
    pub(crate) fn check_distrusted(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let now = facts.base.now;
        let is_due = !self.distrusted.open.is_empty() && self.distrusted.look_due <= now;
        if !is_due || !facts.nodes.settled || facts.stripes.newer.is_behind() {
            return;
        }
        self.distrusted.look_due = now + LOOK_EVERY;
        let mut busy = BTreeSet::new();
        while busy.len() < LOOK_AHEAD
            && let Some(stripe) = self.distrusted.next_due(now).filter(|stripe| !busy.contains(stripe))
        {
            #[cfg(test)]
            {
                self.distrusted.looks += 1;
            }
            self.distrusted.looked_at = Some(stripe.clone());
            let stays_due = self.begin_distrusted(facts, jobs, &stripe, out);
            if stays_due {
                busy.insert(stripe);
            }
        }
    }

    /// Starts the check of a stripe with doubted digests, or puts it off. Returns whether the check stays due, because
    /// helpers of the stripe read for other checks.
    fn begin_distrusted(&mut self, facts: Facts<'_>, jobs: &Jobs, stripe: &StripeId, out: &mut Out) -> bool {
        if !self.distrusted.needs_check(facts, stripe) {
            return false;
        }
        let (now, begun) =
            (facts.base.now, self.begin_check(facts, jobs, stripe, Asker::Distrust, false, out));
        let distrusted = &mut self.distrusted;
        let Some(UnprovenStripe { attempts, .. }) = distrusted.open.get_mut(stripe) else { return false };
        match begun {
            Ok(_) => {
                distrusted.obstacle = None;
                attempts.fail(now, Duration::ZERO);
            }
            Err(Obstacle::Busy) => return true,
            // A stripe may be missing from the store's list for a while.
            Err(Obstacle::Gone) => attempts.put_off(now),
            Err(Obstacle::Cannot(why)) => {
                distrusted.obstacle = Some(why);
                attempts.put_off(now);
            }
        }
        false
    }
}
