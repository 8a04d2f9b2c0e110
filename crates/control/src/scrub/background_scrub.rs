//! The background scrub reads every block again and again, in a fixed order and at the configured rate. Its
//! position is recorded, so it continues from there after a restart.
//!
//! The scrub has at most one read per helper in flight. It waits a moment for a helper that is still reading,
//! then puts that helper's blocks off and continues with those of other helpers; it reads the blocks that it
//! put off as soon as their helper is idle. Lost blocks and blocks of absent helpers are skipped until the next
//! round. Findings are handled as after any other read. If mend.toml asks for parity checks,
//! each stripe is checked after its blocks. The parity check reads the blocks a second time, within the same
//! rate.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use serde_json::Value;
use store_api::{RecordWrite, Write};
use views::{ParityScrubView, SteadyScrubView};

use crate::base::Base;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::scrub::parity_checks::Asker;
use crate::scrub::parity_scrub::{Obstacle, YIELD_AT_MOST, note_unchecked};
use crate::scrub::put_off::BlockOnNode;
use crate::scrub::state::Scrubs;
use crate::storing::then::Then;

const KEY: &str = "scrub/steady";
/// How often the scrub's position is recorded.
const KEEP_EVERY: Duration = Duration::from_secs(30);
/// How many blocks and stripes that cannot be read are passed over at a time.
const PASSED_OVER: usize = 1000;
/// The shortest time between the starts of two rounds, for clusters with little data.
const ROUND_AT_LEAST: Duration = Duration::from_secs(60);

/// The entry for the parity check of a stripe. It sorts after the blocks of the stripe.
const PARITY: (BlockIndex, NodeId) = (BlockIndex(u16::MAX), NodeId(u32::MAX));

impl Scrubs {
    pub(crate) fn recall_background_scrub(&mut self, records: &[(String, Value)]) {
        let kept = records.iter().find(|(key, _)| key == KEY);
        self.background.kept =
            kept.and_then(|(_, value)| serde_json::from_value(value.clone()).ok()).unwrap_or_default();
    }

    /// Starts the reads that are due.
    pub(crate) fn scrub_in_background(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let Some(rate) = facts.base.settings.scrub_bytes_per_s.filter(|&rate| rate > 0) else { return };
        if !facts.nodes.settled || facts.stripes.newer.is_behind() || self.is_scrubbing() {
            return;
        }
        let (now, mut passed_over) = (facts.base.now, 0);
        while passed_over < PASSED_OVER && self.background.pace.is_due(now) {
            let Some(place) = self.next_place(facts, out) else { break };
            let Some(bytes) = self.read_place(facts, jobs, &place, out) else { break };
            self.background.pace.spend(bytes, rate, now);
            passed_over += usize::from(bytes == 0);
        }
        self.keep_place(facts.base, out);
    }

    /// Returns the next block to read or stripe to check. After the last one, starts a new round. Returns
    /// `None` if the scrub waits for busy helpers, or if the new round is not due yet.
    fn next_place(&mut self, facts: Facts<'_>, out: &mut Out) -> Option<BlockOnNode> {
        let now = facts.base.now;
        let background = &mut self.background;
        if let Some(place) = background.put_off.next(&out.queries) {
            return Some(place);
        }
        if background.left.as_ref().is_none_or(VecDeque::is_empty) {
            if !background.put_off.all_are_slow(now) {
                return None;
            }
            self.begin_round(facts);
            if !self.background.pace.is_due(now) {
                return None;
            }
        }
        let background = &mut self.background;
        while let Some((_, index, node)) = background.left.as_ref().and_then(VecDeque::front) {
            let is_parity = (*index, *node) == PARITY;
            let is_busy = !is_parity && out.queries.is_verifying(*node);
            if is_busy && !background.put_off.is_slow(*node, now) {
                return None;
            }
            let place = background.left.as_mut()?.pop_front()?;
            if !is_parity {
                background.kept.after = Some(key(&place.0, place.1, place.2));
                background.changed = true;
            }
            if !is_busy {
                return Some(place);
            }
            background.put_off.add(place);
        }
        None
    }

    fn begin_round(&mut self, facts: Facts<'_>) {
        let resumes = self.background.left.is_none() && self.background.kept.after.is_some();
        if !resumes {
            if self.background.left.is_some() {
                self.background.kept.last_round_ended_unix_ms = Some(facts.base.unix_ms);
                self.background.pace.rest_until(facts.base.now + ROUND_AT_LEAST);
            }
            self.background.kept.after = None;
            self.background.is_fresh = true;
            self.background.kept.round_began_unix_ms = Some(facts.base.unix_ms);
            self.background.changed = true;
        }
        let after = self.background.kept.after.clone();
        let put_off: BTreeSet<&BlockOnNode> = self.background.put_off.places().collect();
        let mut places: Vec<BlockOnNode> = Vec::new();
        for node in facts.nodes.live_helpers().collect::<Vec<_>>() {
            let blocks = facts.stripes.picture.blocks_of(node);
            places.extend(blocks.into_iter().map(|(stripe, index)| (stripe, index, node)));
        }
        if facts.base.settings.scrub_parity {
            let parity = |stripe| (stripe, PARITY.0, PARITY.1);
            places.extend(facts.stripes.picture.of_files().map(parity));
        }
        places.sort();
        let is_left = |place: &BlockOnNode| {
            let (stripe, index, node) = place;
            let is_later = |after: &_| key(stripe, *index, *node) > *after;
            !put_off.contains(place) && after.as_ref().is_none_or(is_later)
        };
        places.retain(is_left);
        self.background.left = Some(places.into());
    }

    /// Reads a block or checks a stripe. Returns the number of bytes to read, or `None` if the check must
    /// wait.
    fn read_place(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        place: &BlockOnNode,
        out: &mut Out,
    ) -> Option<u64> {
        if std::mem::take(&mut self.background.is_fresh) {
            self.background.parity = ParityScrubView::default();
        }
        match (place.1, place.2) {
            PARITY => self.check_stripe_at(facts, jobs, place, out),
            _ => Some(self.ask_block_at(facts, place, out)),
        }
    }

    /// Checks the parity of a stripe if its helpers are idle, or if the check has waited too long.
    fn check_stripe_at(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        place: &BlockOnNode,
        out: &mut Out,
    ) -> Option<u64> {
        let since = *self.background.yields_since.get_or_insert(facts.base.now);
        let patient = facts.base.now < since + YIELD_AT_MOST;
        let begun = self.begin_check(facts, jobs, &place.0, Asker::Background, patient, out);
        if let Err(Obstacle::Busy) = begun {
            let left = self.background.left.as_mut().expect("the place was just taken from the list");
            left.push_front(place.clone());
            return None;
        }
        self.background.yields_since = None;
        self.background.kept.after = Some(key(&place.0, place.1, place.2));
        self.background.changed = true;
        self.background.parity.stripes += u64::from(!matches!(begun, Err(Obstacle::Gone)));
        if let Err(Obstacle::Cannot(why)) = begun {
            note_unchecked(&mut self.background.parity, &place.0, why);
        }
        Some(begun.unwrap_or(0))
    }

    /// Asks a helper to read a block, if the catalog still places the block there. Returns the block's length
    /// in bytes, or 0 if the block is skipped.
    fn ask_block_at(&mut self, facts: Facts<'_>, (stripe, index, node): &BlockOnNode, out: &mut Out) -> u64 {
        let record = facts.stripes.picture.stripe(stripe).ok();
        let block = record.and_then(|record| record.blocks.into_iter().nth(usize::from(index.0)));
        let Some(block) = block.filter(|block| block.state_on(*node).is_some()) else { return 0 };
        if !facts.nodes.is_connected(*node) {
            return 0;
        }
        let bytes = block.bytes;
        facts.ask_for_block(*node, stripe.clone(), *index, block, false, out);
        bytes
    }

    fn keep_place(&mut self, base: &Base, out: &mut Out) {
        if !self.background.changed || base.now < self.background.keep_due {
            return;
        }
        self.background.changed = false;
        self.background.keep_due = base.now + KEEP_EVERY;
        let record = serde_json::to_value(&self.background.kept).expect("the record has string keys");
        out.store(Write::Records(RecordWrite::Put(KEY.to_owned(), record)), Then::Nothing);
    }

    pub(crate) fn background_view(&self, base: &Base) -> Option<SteadyScrubView> {
        let (kept, left) = (&self.background.kept, self.background.left.as_ref());
        Some(SteadyScrubView {
            rate_bytes_per_s: base.settings.scrub_bytes_per_s.filter(|&rate| rate > 0)?,
            round_began_unix_ms: kept.round_began_unix_ms,
            left_in_round: left.map(|left| (left.len() + self.background.put_off.len()) as u64),
            last_round_ended_unix_ms: kept.last_round_ended_unix_ms,
            parity: base.settings.scrub_parity.then(|| self.background.parity.clone()),
        })
    }
}

fn key(stripe: &StripeId, index: BlockIndex, node: NodeId) -> (String, u16, u64) {
    (stripe.0.to_string(), index.0, u64::from(node.0))
}
