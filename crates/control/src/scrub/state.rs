//! What is known of the scrubs that run, and of those that ran.

use crate::scrub::parity_checks::ParityChecks;
use codes::BlockIndex;
use repair::{NodeId, StripeId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use views::{ParityScrubView, ScrubView};

/// Both scrubs, and the parity checks that they have in flight.
#[derive(Default)]
pub(crate) struct Scrubs {
    /// The scrub that runs, or else the last one.
    pub current: Option<Scrub>,
    pub past: VecDeque<ScrubView>,
    pub background: BackgroundScrub,
    pub checks: ParityChecks,
}

/// A scrub of all blocks.
pub(crate) struct Scrub {
    pub(super) view: ScrubView,
    pub(super) nodes: BTreeMap<NodeId, NodeScrub>,
    /// The stripes whose parity is checked after the blocks.
    pub(super) parity: Option<ParityRound>,
    /// Whether the store is still inspecting its files beside blocks.
    pub(super) inspecting: bool,
}

/// The blocks that one helper has still to read.
pub(super) struct NodeScrub {
    pub(super) queue: VecDeque<(StripeId, BlockIndex)>,
    pub(super) outstanding: BTreeSet<u64>,
    pub(super) listed: bool,
    /// Blocks that were unavailable, and the last reason.
    pub(super) unavailable: (u64, String),
}

impl NodeScrub {
    pub(super) fn new(queue: VecDeque<(StripeId, BlockIndex)>) -> Self {
        Self { queue, outstanding: BTreeSet::new(), listed: false, unavailable: (0, String::new()) }
    }

    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.outstanding.is_empty() && self.listed
    }
}

/// A block on a node; a round visits all in order.
pub(super) type Place = (StripeId, BlockIndex, NodeId);

/// The position in the records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The last block that was asked for in the round: stripe, block and node.
    pub(super) after: Option<(String, u16, u64)>,
    pub(super) round_began_unix_ms: Option<u64>,
    pub(super) last_round_ended_unix_ms: Option<u64>,
}

/// The scrub at a configured rate.
#[derive(Default)]
pub(crate) struct BackgroundScrub {
    pub(super) kept: Kept,
    /// The rest of the round; `None` before the first round since the start.
    pub(super) left: Option<VecDeque<Place>>,
    /// When the next block may be asked for.
    pub(super) due: Duration,
    pub(super) keep_due: Duration,
    /// Whether the position has changed since it was kept.
    pub(super) changed: bool,
    /// The results of parity checks in this round, or in the last one until this one has read a block.
    pub(super) parity: ParityScrubView,
    pub(super) is_fresh: bool,
    /// Since when the next stripe has been waiting for busy helpers.
    pub(super) yields_since: Option<Duration>,
}

impl BackgroundScrub {
    pub(crate) fn parity_mut(&mut self) -> &mut ParityScrubView {
        &mut self.parity
    }
}

/// Attempts at checking the parity of a stripe.
const ATTEMPTS: u32 = 3;

/// Stripes that a scrub checks one after another.
pub(crate) struct ParityRound {
    pub(super) left: VecDeque<StripeId>,
    pub(super) attempts: BTreeMap<StripeId, u32>,
    /// Since when nothing has begun.
    pub(super) idle_since: Duration,
    /// When stripes are looked at next, if no check ends before.
    pub(super) look_due: Duration,
    pub(crate) view: ParityScrubView,
}

impl ParityRound {
    pub(crate) fn new(left: VecDeque<StripeId>, now: Duration) -> Self {
        let view = ParityScrubView { stripes: left.len() as u64, ..ParityScrubView::default() };
        Self { left, attempts: BTreeMap::new(), idle_since: now, look_due: Duration::ZERO, view }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Whether a stripe may be checked once more.
    pub(super) fn tries_again(&mut self, stripe: &StripeId) -> bool {
        let attempts = self.attempts.entry(stripe.clone()).or_default();
        *attempts += 1;
        let again = *attempts < ATTEMPTS;
        if again {
            self.left.push_back(stripe.clone());
        }
        again
    }
}
