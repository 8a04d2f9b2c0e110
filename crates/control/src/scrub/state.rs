//! The state of running scrubs, and the results of earlier ones.

use crate::nodes::Nodes;
use crate::pace::Pace;
use crate::repairs::attempts::Attempts;
use crate::scrub::parity_checks::ParityChecks;
use crate::scrub::put_off::{BlockOnNode, PutOff};
use codes::BlockIndex;
use repair::{NodeId, StripeId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use store_api::Unproven;
use views::{ParityScrubView, ScrubView};

/// The scrub on request, the background scrub, the stripes and blocks to check one by one, and all parity
/// checks in flight.
#[derive(Default)]
pub(crate) struct Scrubs {
    /// The running scrub, or the last one.
    pub current: Option<Scrub>,
    pub past: VecDeque<ScrubView>,
    /// When the last scrub of all blocks was completed, or since when there are blocks that were never scrubbed.
    pub unscrubbed_since_unix_ms: Option<u64>,
    pub background: BackgroundScrub,
    pub checks: ParityChecks,
    /// Stripes in which jobs found contradictions, or whose contradictions were opened again, waiting for a parity check.
    pub doubted: StripeQueue,
    pub reopened: Reopened,
    pub reported: Reported,
    pub proof: Proof,
    pub distrusted: Distrusted,
}

/// A scrub of all blocks.
pub(crate) struct Scrub {
    pub(super) view: ScrubView,
    pub(super) nodes: BTreeMap<NodeId, NodeScrub>,
    /// The parity checks that follow after the blocks, if requested.
    pub(super) parity: Option<ParityRound>,
    /// Whether the store is still inspecting the files that it keeps next to blocks.
    pub(super) inspecting: bool,
    /// The stripes whose state was unknown at some time during the scrub. They are not in the picture then, so their
    /// blocks are not read.
    pub(super) unjudged: BTreeSet<StripeId>,
    /// The stripes of which blocks were not read for that reason, each with the helpers that have these blocks.
    pub(super) unread: BTreeMap<StripeId, BTreeSet<String>>,
}

/// The blocks that a helper must still read.
pub(super) struct NodeScrub {
    pub(super) queue: VecDeque<(StripeId, BlockIndex)>,
    pub(super) outstanding: BTreeSet<u64>,
    pub(super) listed: bool,
    /// The number of unavailable blocks, and the reason for the last one.
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

/// The position, as the records store it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The last block of the round that was requested: stripe, block and node.
    pub(super) after: Option<(String, u16, u64)>,
    pub(super) round_began_unix_ms: Option<u64>,
    pub(super) last_round_ended_unix_ms: Option<u64>,
}

/// The scrub at a configured rate.
#[derive(Default)]
pub(crate) struct BackgroundScrub {
    pub(super) kept: Kept,
    /// The rest of the round; `None` before the first round since the start.
    pub(super) left: Option<VecDeque<BlockOnNode>>,
    pub(super) put_off: PutOff,
    /// The time at which the next block may be requested.
    pub(super) pace: Pace,
    pub(super) keep_due: Duration,
    /// Whether the position has changed since it was recorded.
    pub(super) changed: bool,
    /// The results of the parity checks of this round or, before the first read of this round, of the
    /// previous round.
    pub(super) parity: ParityScrubView,
    pub(super) is_fresh: bool,
    /// The time since which the next stripe has been waiting for busy helpers.
    pub(super) yields_since: Option<Duration>,
}

impl BackgroundScrub {
    pub(crate) fn parity_mut(&mut self) -> &mut ParityScrubView {
        &mut self.parity
    }
}

/// The stripes that no parity check has proven since the catalog was rebuilt or restored.
#[derive(Default)]
pub(crate) struct Proof {
    /// The record, as it was written last; `None` if nothing is unproven.
    pub(super) kept: Option<Unproven>,
    pub(super) left: BTreeSet<StripeId>,
    /// The stripes that are still to be checked in this pass. The next pass retries those that could not be
    /// checked.
    pub(super) queue: VecDeque<StripeId>,
    /// The copies that checks of unproven stripes could read so far. While blocks cannot be read, a stripe is checked
    /// again only if another copy can.
    pub(super) tried: BTreeMap<StripeId, BTreeSet<(BlockIndex, NodeId)>>,
    /// The time at which the next check may start.
    pub(super) pace: Pace,
    pub(super) keep_due: Duration,
    /// The time since which the next stripe has been waiting for busy helpers.
    pub(super) yields_since: Option<Duration>,
    /// The reason why the last stripe could not be checked.
    pub(super) obstacle: Option<&'static str>,
}

/// The stripes with doubted digests; see [`distrusted`](super::distrusted).
#[derive(Default)]
pub(crate) struct Distrusted {
    /// The stripes that the store named last.
    pub(super) doubted: BTreeSet<StripeId>,
    /// The stripes that no check has proven completely.
    pub(super) open: BTreeMap<StripeId, UnprovenStripe>,
    /// The reason why the last stripe could not be checked.
    pub(super) obstacle: Option<&'static str>,
    /// The stripe that was looked at last. The next search continues after it.
    pub(super) looked_at: Option<StripeId>,
    /// The time of the next search. New stripes and the end of a check make the search due at once.
    pub(super) look_due: Duration,
    /// The number of stripes looked at so far.
    #[cfg(test)]
    pub(crate) looks: u64,
}

/// A stripe with doubted digests that no check has proven completely.
#[derive(Default)]
pub(crate) struct UnprovenStripe {
    pub(super) attempts: Attempts,
    /// The blocks over which checks have passed, each with the node whose copy was read.
    pub(super) proven: BTreeMap<BlockIndex, NodeId>,
}

/// The checks of contradictions that were opened again; see [`reopened`](super::reopened).
#[derive(Default)]
pub(crate) struct Reopened {
    /// The last check of each stripe.
    pub(super) checked: BTreeMap<StripeId, LastCheck>,
    /// The time of the next search.
    pub(super) look_due: Duration,
}

/// The last check of a stripe whose contradiction was opened again.
pub(super) struct LastCheck {
    pub(super) read: BTreeSet<(BlockIndex, NodeId)>,
    /// Whether parity held over these copies, so that the next check may end the contradiction.
    pub(super) has_held: bool,
}

/// The maximum number of attempts to check the parity of a stripe.
const ATTEMPTS: u32 = 3;
/// The maximum number of stripes that wait because jobs found contradictions.
const MOST_DOUBTED: usize = 1000;

/// The stripes that a scrub still has to check, and the results so far.
pub(crate) struct ParityRound {
    pub(super) queue: StripeQueue,
    pub(crate) view: ParityScrubView,
}

/// Stripes that wait for a parity check.
#[derive(Default)]
pub(crate) struct StripeQueue {
    pub(super) left: VecDeque<StripeId>,
    pub(super) attempts: BTreeMap<StripeId, u32>,
    /// The time since which no check has started.
    pub(super) idle_since: Duration,
    /// The time of the next search. The end of a check makes the search due at once.
    pub(super) look_due: Duration,
}

impl ParityRound {
    pub(crate) fn new(left: VecDeque<StripeId>, now: Duration) -> Self {
        let view = ParityScrubView { stripes: left.len() as u64, ..ParityScrubView::default() };
        Self { queue: StripeQueue { left, idle_since: now, ..StripeQueue::default() }, view }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.queue.left.is_empty()
    }
}

impl StripeQueue {
    /// Adds a stripe in which a job found a contradiction. Ignores the stripe if it is already queued or if
    /// the queue is full.
    pub(crate) fn doubt(&mut self, stripe: &StripeId, now: Duration) {
        if self.left.is_empty() {
            (self.idle_since, self.look_due) = (now, Duration::ZERO);
            self.attempts.clear();
        }
        if self.left.len() < MOST_DOUBTED && !self.left.contains(stripe) {
            self.left.push_back(stripe.clone());
        }
    }

    /// Queues a stripe for another check, if it has attempts left. Returns whether the stripe was queued.
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

/// The maximum number of blocks on connected helpers that wait for verification or were verified lately. As many may
/// wait for each helper that is away; they must not keep others from being verified.
pub(super) const MOST_REPORTED: usize = 100;

/// The reported blocks with their helpers, each with the time of its verification if that has begun.
#[derive(Default)]
pub(crate) struct Reported(pub(super) BTreeMap<(NodeId, StripeId, BlockIndex), Option<Duration>>);

impl Reported {
    /// Adds an existing block that was reported on a helper, unless too many blocks are listed.
    pub(crate) fn note(&mut self, nodes: &Nodes, node: NodeId, stripe: StripeId, index: BlockIndex) {
        let is_beside = |other: NodeId| match nodes.is_connected(node) {
            true => nodes.is_connected(other),
            false => other == node,
        };
        if self.0.keys().filter(|&&(other, ..)| is_beside(other)).count() < MOST_REPORTED {
            self.0.entry((node, stripe, index)).or_default();
        }
    }

    /// Has a block verified again whose helper did not answer, because it disconnected or its disk is slow.
    pub(crate) fn note_unanswered(
        &mut self,
        nodes: &Nodes,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
    ) {
        if let Some(begun) = self.0.get_mut(&(node, stripe.clone(), index)) {
            *begun = None;
        } else {
            self.note(nodes, node, stripe, index);
        }
    }
}
