//! The steady scrub: every block is read again and again, at a rate that the user sets, in one order. Where it is, is kept, so
//! that a coordinator that is restarted goes on and does not begin anew.
//!
//! One block of a helper is asked for at a time. What is lost, or on a helper that is not there, is left out until the
//! next round. What is found is dealt with as after any read. If mend.toml wants it, a stripe's parity is checked after its
//! blocks: that reads them once more, out of the same rate.

use std::collections::VecDeque;
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stores::{RecordWrite, Write};
use views::{ParityScrubView, SteadyScrubView};

use crate::base::Base;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::scrub::Scrubs;
use crate::scrub::parity_checks::Asker;
use crate::scrub::parity_scrub::{Obstacle, note_unchecked};
use crate::storing::Then;

const KEY: &str = "scrub/steady";
/// How often it is written down where it is.
const KEEP_EVERY: Duration = Duration::from_secs(30);
/// A round begins at the earliest so long after the one before it: what is stored may be little.
const ROUND_AT_LEAST: Duration = Duration::from_secs(60);
/// What was not read while nothing could be is not made up for.
const CREDIT: Duration = Duration::from_secs(1);

/// Helpers of a stripe that are busy keep it from being checked for so long at most.
const YIELD_AT_MOST: Duration = Duration::from_secs(10);

/// A block on a node, as rounds go through them.
type Place = (StripeId, BlockIndex, NodeId);

/// In the place of a block: the parity of its stripe, which comes after all of its blocks.
const PARITY: (BlockIndex, NodeId) = (BlockIndex(u16::MAX), NodeId(u32::MAX));

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// The last block that was asked for in the round: stripe, block and node.
    after: Option<(String, u16, u64)>,
    round_began_unix_ms: Option<u64>,
    last_round_ended_unix_ms: Option<u64>,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Steady {
    kept: Kept,
    /// What is left of the round; `None` before the first since the start.
    left: Option<VecDeque<Place>>,
    /// When the next block may be asked for.
    due: Duration,
    keep_due: Duration,
    /// The place that is kept, if it is not where we are.
    changed: bool,
    /// The results of parity checks in this round; in the last one until this one has read something.
    parity: ParityScrubView,
    is_fresh: bool,
    /// Since when the stripe that is due waits for its helpers.
    yields_since: Option<Duration>,
}

impl Steady {
    pub(crate) fn parity_mut(&mut self) -> &mut ParityScrubView {
        &mut self.parity
    }
}

impl Scrubs {
    pub(crate) fn recall_steady_scrub(&mut self, records: &[(String, Value)]) {
        let kept = records.iter().find(|(key, _)| key == KEY);
        self.steady.kept =
            kept.and_then(|(_, value)| serde_json::from_value(value.clone()).ok()).unwrap_or_default();
    }

    /// Time has passed, or an answer has come: asks for what is due.
    pub(crate) fn scrub_steadily(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let Some(rate) = facts.base.settings.scrub_bytes_per_s.filter(|&rate| rate > 0) else { return };
        if !facts.nodes.settled || facts.stripes.is_behind() || self.is_scrubbing() {
            return;
        }
        self.steady.due = self.steady.due.max(facts.base.now.saturating_sub(CREDIT));
        while self.steady.due <= facts.base.now {
            let Some(place) = self.next_steady(facts, out) else { break };
            let Some(bytes) = self.read_steadily(facts, jobs, &place, out) else { break };
            self.steady.due += Duration::from_secs_f64(bytes as f64 / rate as f64);
        }
        self.keep_steady(facts.base, out);
    }

    /// The next block whose helper is not busy with another; the round ends when there is none left.
    fn next_steady(&mut self, facts: Facts<'_>, out: &mut Out) -> Option<Place> {
        if self.steady.left.as_ref().is_none_or(VecDeque::is_empty) {
            self.begin_round(facts);
            if self.steady.due > facts.base.now {
                return None;
            }
        }
        let (_, index, node) = *self.steady.left.as_ref()?.front()?;
        if (index, node) == PARITY {
            return self.steady.left.as_mut()?.pop_front();
        }
        if out.questions.is_verifying(node) {
            return None;
        }
        self.steady.left.as_mut()?.pop_front()
    }

    fn begin_round(&mut self, facts: Facts<'_>) {
        let resumes = self.steady.left.is_none() && self.steady.kept.after.is_some();
        if !resumes {
            if self.steady.left.is_some() {
                self.steady.kept.last_round_ended_unix_ms = Some(facts.base.unix_ms);
                self.steady.due = self.steady.due.max(facts.base.now + ROUND_AT_LEAST);
            }
            self.steady.kept.after = None;
            self.steady.is_fresh = true;
            self.steady.kept.round_began_unix_ms = Some(facts.base.unix_ms);
            self.steady.changed = true;
        }
        let after = self.steady.kept.after.clone();
        let mut places: Vec<Place> = Vec::new();
        for node in facts.nodes.live_helpers().collect::<Vec<_>>() {
            let blocks = facts.stripes.picture.blocks_of(node);
            places.extend(blocks.into_iter().map(|(stripe, index)| (stripe, index, node)));
        }
        if facts.base.settings.scrub_parity {
            let parity = |stripe| (stripe, PARITY.0, PARITY.1);
            places.extend(facts.stripes.picture.of_files().map(parity));
        }
        places.sort();
        let is_left = |(stripe, index, node): &Place| {
            after.as_ref().is_none_or(|after| key(stripe, *index, *node) > *after)
        };
        places.retain(is_left);
        self.steady.left = Some(places.into());
    }

    /// Has a block or a stripe read; the bytes that takes. `None` if it waits.
    fn read_steadily(&mut self, facts: Facts<'_>, jobs: &Jobs, place: &Place, out: &mut Out) -> Option<u64> {
        if std::mem::take(&mut self.steady.is_fresh) {
            self.steady.parity = ParityScrubView::default();
        }
        match (place.1, place.2) {
            PARITY => self.check_steadily(facts, jobs, place, out),
            _ => Some(self.ask_steady(facts, place, out)),
        }
    }

    /// Has the parity of a stripe checked, once its helpers have nothing else to do, or it has waited for long.
    fn check_steadily(&mut self, facts: Facts<'_>, jobs: &Jobs, place: &Place, out: &mut Out) -> Option<u64> {
        let since = *self.steady.yields_since.get_or_insert(facts.base.now);
        let patient = facts.base.now < since + YIELD_AT_MOST;
        let begun = self.begin_check(facts, jobs, &place.0, Asker::Steady, patient, out);
        if let Err(Obstacle::Busy) = begun {
            let left = self.steady.left.as_mut().expect("it was just in there");
            left.push_front(place.clone());
            return None;
        }
        self.steady.yields_since = None;
        self.steady.kept.after = Some(key(&place.0, place.1, place.2));
        self.steady.changed = true;
        self.steady.parity.stripes += u64::from(!matches!(begun, Err(Obstacle::Gone)));
        if let Err(Obstacle::Cannot(why)) = begun {
            note_unchecked(&mut self.steady.parity, &place.0, why);
        }
        Some(begun.unwrap_or(0))
    }

    /// Has a block read, if it is still there; its bytes.
    fn ask_steady(&mut self, facts: Facts<'_>, (stripe, index, node): &Place, out: &mut Out) -> u64 {
        self.steady.kept.after = Some(key(stripe, *index, *node));
        self.steady.changed = true;
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

    fn keep_steady(&mut self, base: &Base, out: &mut Out) {
        if !self.steady.changed || base.now < self.steady.keep_due {
            return;
        }
        self.steady.changed = false;
        self.steady.keep_due = base.now + KEEP_EVERY;
        let record = serde_json::to_value(&self.steady.kept).expect("it has string keys");
        out.store(Write::Records(RecordWrite::Put(KEY.to_owned(), record)), Then::Nothing);
    }

    pub(crate) fn steady_view(&self, base: &Base) -> Option<SteadyScrubView> {
        let kept = &self.steady.kept;
        Some(SteadyScrubView {
            rate_bytes_per_s: base.settings.scrub_bytes_per_s.filter(|&rate| rate > 0)?,
            round_began_unix_ms: kept.round_began_unix_ms,
            left_in_round: self.steady.left.as_ref().map(|left| left.len() as u64),
            last_round_ended_unix_ms: kept.last_round_ended_unix_ms,
            parity: base.settings.scrub_parity.then(|| self.steady.parity.clone()),
        })
    }
}

fn key(stripe: &StripeId, index: BlockIndex, node: NodeId) -> (String, u16, u64) {
    (stripe.0.to_string(), index.0, u64::from(node.0))
}
