//! Parity scrubs, and checks of the stripes in which jobs found contradictions. This module decides the order
//! of the checks and the consequences of their results.
//!
//! A block that the equations identify as wrong is condemned and repaired like any corrupt one. If the
//! equations contradict each other without identifying the wrong block, or if some block could not be read in
//! full, the stripe is recorded as contradictory until its parity holds.

use std::time::Duration;

use codes::BlockIndex;
use rand::RngExt;
use repair::{
    BlockProblem, Epoch, Fingerprint, JobId, NodeId, Report, Stripe, StripeId, StripeParity, stripe_parity,
};
use store_api::StripeRecord;
use views::{ContradictoryStripe, Finding, FoundBy, ParityScrubView, SuspectBlock, UncheckedStripes};

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::scrub::parity_checks::{Asker, Checked, Step, Subject, Verdict};
use crate::scrub::state::{Scrubs, StripeQueue};
use crate::signal::Signal;

/// How many stripes are tried in search of one with idle helpers, and the pause before the next search.
pub(super) const LOOK_AHEAD: usize = 16;
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest time that a check waits for reads, puts and repairs on its helpers.
pub(super) const YIELD_AT_MOST: Duration = Duration::from_secs(10);
/// The maximum number of stripes that are named per reason for not checking them.
const NAMED: usize = 20;
/// The maximum number of contradictory stripes that are listed.
const LISTED: usize = 1000;

/// Why blocks of a stripe of unknown state are not checked.
pub(super) const UNJUDGED: &str =
    "the state of the stripe was unknown during the scrub; scrub again once mend status does not list it";
const NO_SPARE: &str =
    "too few blocks are readable: a parity check needs at least one block more than decoding";
const NONE_READABLE: &str = "none of its blocks can be read";
const PARTLY: &str = "parity could be checked for only some of its blocks";
const CHANGED: &str = "it changed during the check";
const BAD_BLOCKS: &str = "full reads found bad blocks, without which parity was not checked again";
const UNSETTLED: &str = "repeated reads of its blocks returned different bytes";

/// The reason that a stripe is not checked now.
pub(crate) enum Obstacle {
    /// The stripe does not exist any more.
    Gone,
    /// A helper is busy with another check or with other jobs.
    Busy,
    Cannot(&'static str),
}

impl Scrubs {
    /// Starts checks of stripes in the queue of `asker`, until the queue is empty or too many of the stripes
    /// have busy helpers.
    pub(crate) fn check_stripes(&mut self, facts: Facts<'_>, jobs: &Jobs, asker: Asker, out: &mut Out) {
        let now = facts.base.now;
        let mut busy = 0;
        while busy < LOOK_AHEAD
            && let Some(queue) = self.queue_of(asker).filter(|queue| queue.look_due <= now)
            && let Some(stripe) = queue.left.pop_front()
        {
            let patient = now < queue.idle_since + YIELD_AT_MOST;
            let begun = self.begin_check(facts, jobs, &stripe, asker, patient, out);
            let Some(queue) = self.queue_of(asker) else { return };
            match begun {
                Ok(_) => queue.idle_since = now,
                Err(Obstacle::Busy) => {
                    queue.left.push_back(stripe);
                    busy += 1;
                }
                Err(Obstacle::Gone) if facts.stripes.unjudged.contain(&stripe) => {
                    self.tally(asker, |view| note_unchecked(view, &stripe, UNJUDGED));
                }
                Err(Obstacle::Gone) => self.tally(asker, |view| view.stripes -= 1),
                Err(Obstacle::Cannot(why)) => self.tally(asker, |view| note_unchecked(view, &stripe, why)),
            }
        }
        if busy > 0
            && let Some(queue) = self.queue_of(asker)
        {
            queue.look_due = now + LOOK_EVERY;
        }
    }

    /// Returns the stripes that wait for a check; the background scrub has its own order.
    fn queue_of(&mut self, asker: Asker) -> Option<&mut StripeQueue> {
        match asker {
            Asker::Scrub => self.parity_round().map(|round| &mut round.queue),
            Asker::Job => Some(&mut self.doubted),
            Asker::Background | Asker::Proof | Asker::Distrust => None,
        }
    }

    /// Starts the check of a stripe. Returns the number of bytes that the check reads. A patient check waits
    /// while other jobs use its helpers.
    pub(crate) fn begin_check(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        stripe: &StripeId,
        asker: Asker,
        patient: bool,
        out: &mut Out,
    ) -> Result<u64, Obstacle> {
        let record = facts.stripes.picture.stripe(stripe).map_err(|_| Obstacle::Gone)?;
        let stripe = checkable(facts, &record)?;
        let is_taken = |node| self.checks.occupies(node) || patient && jobs.works_for_others(node);
        if stripe.held().any(|(_, node)| is_taken(node)) {
            return Err(Obstacle::Busy);
        }
        let Ok(job) = out.next_job() else { return Err(Obstacle::Busy) };
        let subject = subject(asker, record, stripe);
        let bytes = subject.readable.values().map(|(_, block)| block.bytes).sum();
        let steps = self.checks.begin(job, subject, out.rng.random(), facts.base.now);
        self.follow_checks(facts, steps, out);
        Ok(bytes)
    }

    /// Carries out the actions of checks.
    pub(crate) fn follow_checks(&mut self, facts: Facts<'_>, steps: Vec<Step>, out: &mut Out) {
        for step in steps {
            match step {
                Step::Tell(node, message) => facts.nodes.send(node, message, out),
                Step::End(checked) => {
                    self.reopened.note_checked(facts, &checked);
                    self.stripe_checked(facts, &checked, out);
                }
            }
        }
    }

    /// Handles a helper's report on a check.
    pub(crate) fn take_check_report(
        &mut self,
        facts: Facts<'_>,
        node: NodeId,
        check: (JobId, Epoch),
        report: Report,
        out: &mut Out,
    ) {
        let steps = self.checks.handle_report(node, check, report, || out.rng.random(), facts.base.now);
        self.follow_checks(facts, steps, out);
    }

    /// Continues checks without helpers that have exceeded the time limit.
    pub(crate) fn expire_checks(&mut self, facts: Facts<'_>, out: &mut Out) {
        let steps = self.checks.handle_tick(|| out.rng.random(), facts.base.now);
        self.follow_checks(facts, steps, out);
    }

    /// Continues checks without a helper that has disconnected.
    pub(crate) fn leave_out_of_checks(&mut self, facts: Facts<'_>, node: NodeId, out: &mut Out) {
        let steps = self.checks.handle_node_lost(node, || out.rng.random(), facts.base.now);
        self.follow_checks(facts, steps, out);
    }

    fn stripe_checked(&mut self, facts: Facts<'_>, checked: &Checked, out: &mut Out) {
        for asker in [Asker::Scrub, Asker::Job] {
            // The helpers of this stripe are idle now, so the next search for a stripe is due at once.
            self.queue_of(asker).into_iter().for_each(|queue| queue.look_due = Duration::ZERO);
        }
        self.distrusted.look_due = Duration::ZERO;
        let (stripe, asker) = (&checked.record.id, checked.asker);
        let is_same = facts.stripes.picture.stripe(stripe).is_ok_and(|now| now == checked.record);
        if is_same {
            checked.unread.iter().for_each(|(index, node, problem)| {
                self.note_unread(facts, checked, *index, *node, problem, out);
            });
        }
        match &checked.verdict {
            _ if !is_same => self.check_again(asker, stripe, CHANGED),
            Verdict::Unsettled => self.check_again(asker, stripe, UNSETTLED),
            Verdict::BadBlocks if matches!(asker, Asker::Background | Asker::Proof) => {
                self.tally(asker, |view| note_unchecked(view, stripe, BAD_BLOCKS));
                self.doubted.doubt(stripe, facts.base.now);
            }
            Verdict::BadBlocks => self.check_again(asker, stripe, BAD_BLOCKS),
            Verdict::Parity(StripeParity::Unknown) => {
                let why = checked.unread.first().map(|(_, node, problem)| (facts.nodes.name(*node), problem));
                let why = why.map_or(NO_SPARE.to_owned(), |(node, problem)| format!("{node}: {problem}"));
                self.tally(asker, |view| note_unchecked(view, stripe, &why));
            }
            Verdict::Parity(StripeParity::Holds { unproven }) if unproven.is_empty() => {
                self.tally(asker, |view| view.checked += 1);
                out.tell(Signal::ParityHeld { stripe: stripe.clone(), read: checked.read.clone() });
            }
            Verdict::Parity(StripeParity::Holds { .. }) => {
                self.tally(asker, |view| note_unchecked(view, stripe, PARTLY));
            }
            Verdict::Parity(StripeParity::Wrong(blocks)) => {
                self.tally(asker, |view| view.checked += 1);
                for (index, node) in blocks.iter().filter_map(|&index| Some((index, checked.asked(index)?))) {
                    out.tell(Signal::Wrong { stripe: stripe.clone(), index, node });
                    self.note_condemned(facts, checked, index, node);
                }
                // In an MDS code, the remaining equations prove all other blocks.
                if checked.record.code.is_mds() {
                    let agree = checked.read.iter().filter(|(index, _)| !blocks.contains(index));
                    let read = agree.map(|(&index, &node)| (index, node)).collect();
                    out.tell(Signal::ParityHeld { stripe: stripe.clone(), read });
                }
            }
            Verdict::Parity(StripeParity::Contradictory(blocks)) => {
                let suspects: Vec<SuspectBlock> =
                    blocks.iter().map(|&index| suspect(facts, checked, index)).collect();
                let found = ContradictoryStripe { stripe: stripe.to_string(), suspects };
                self.tally(asker, |view| {
                    view.checked += 1;
                    view.contradictory.push(found);
                    view.contradictory.truncate(LISTED);
                });
                out.tell(Signal::Contradiction {
                    stripe: stripe.clone(),
                    blocks: blocks.clone(),
                    found_by: FoundBy::Scrub,
                });
            }
        }
    }

    /// Handles a block that could not be read, as after any other read.
    fn note_unread(
        &mut self,
        facts: Facts<'_>,
        checked: &Checked,
        index: BlockIndex,
        node: NodeId,
        problem: &BlockProblem,
        out: &mut Out,
    ) {
        let (stripe, known) = (&checked.record.id, &checked.record.blocks[usize::from(index.0)]);
        if matches!(problem, BlockProblem::Unavailable(_)) {
            return;
        }
        out.tell(Signal::Unread {
            stripe: stripe.clone(),
            index,
            node,
            known: known.clone(),
            problem: problem.clone(),
        });
        if checked.asker == Asker::Scrub {
            let node = facts.nodes.name(node);
            self.find_in_scrub(finding(&checked.record, index, node, problem.to_string()));
        }
    }

    fn note_condemned(&mut self, facts: Facts<'_>, checked: &Checked, index: BlockIndex, node: NodeId) {
        if checked.asker == Asker::Scrub {
            let node = facts.nodes.name(node);
            self.find_in_scrub(finding(
                &checked.record,
                index,
                node,
                BlockProblem::ContradictsParity.to_string(),
            ));
        }
    }

    /// Repeats a check without a result, at most a few times.
    fn check_again(&mut self, asker: Asker, stripe: &StripeId, why: &str) {
        // The background scrub, and the checks after a restore or of doubted digests, have no queue here: they check
        // the stripe again without being asked.
        let again = self.queue_of(asker).is_some_and(|queue| queue.tries_again(stripe));
        if !again {
            self.tally(asker, |view| note_unchecked(view, stripe, why));
        }
    }

    fn tally(&mut self, asker: Asker, note: impl FnOnce(&mut ParityScrubView)) {
        let view = match asker {
            Asker::Scrub => self.parity_round().map(|round| &mut round.view),
            Asker::Background => Some(self.background.parity_mut()),
            Asker::Job | Asker::Proof | Asker::Distrust => None,
        };
        if let Some(view) = view {
            note(view);
        }
    }
}

fn suspect(facts: Facts<'_>, checked: &Checked, index: BlockIndex) -> SuspectBlock {
    let block = checked.record.blocks[usize::from(index.0)].id.to_string();
    SuspectBlock { block, node: checked.asked(index).map_or_else(String::new, |node| facts.nodes.name(node)) }
}

/// Returns the stripe as it is now, if its parity can be checked.
fn checkable(facts: Facts<'_>, record: &StripeRecord) -> Result<Stripe, Obstacle> {
    let cannot = |_| Obstacle::Cannot("its record is inconsistent (code or blocks)");
    let stripe = facts.stripe_now(record, &[]).map_err(cannot)?;
    if stripe.held().next().is_none() {
        return Err(Obstacle::Cannot(NONE_READABLE));
    }
    if !has_equations(&stripe) {
        return Err(Obstacle::Cannot(NO_SPARE));
    }
    Ok(stripe)
}

/// Returns the subject of a check that reads all readable blocks of the stripe.
fn subject(asker: Asker, record: StripeRecord, stripe: Stripe) -> Subject {
    let readable = stripe.held().map(|(index, node)| (index, (node, stripe.local(index)))).collect();
    Subject { asker, record, code: stripe.code, chunking: stripe.chunking, readable }
}

/// Whether at least one parity equation covers only readable blocks.
fn has_equations(stripe: &Stripe) -> bool {
    if stripe.code.spec().is_mds() {
        return stripe.held().count() > stripe.code.data_blocks();
    }
    let zeros = vec![Fingerprint::zero(); stripe.code.sub_blocks()];
    let read = stripe.held().map(|(index, _)| (index, zeros.clone())).collect();
    stripe_parity(&*stripe.code, &read) != StripeParity::Unknown
}

fn finding(record: &StripeRecord, index: BlockIndex, node: String, problem: String) -> Finding {
    let block = record.blocks[usize::from(index.0)].id.to_string();
    Finding { block, stripe: record.id.to_string(), node, problem }
}

/// Adds a stripe to the count for this reason.
pub(crate) fn note_unchecked(view: &mut ParityScrubView, stripe: &StripeId, why: &str) {
    let known = view.unchecked.iter_mut().find(|unchecked| unchecked.why == why);
    let unchecked = match known {
        Some(unchecked) => unchecked,
        None => {
            let none = UncheckedStripes { why: why.to_owned(), stripes: 0, first: Vec::new() };
            view.unchecked.push(none);
            view.unchecked.last_mut().expect("just pushed")
        }
    };
    unchecked.stripes += 1;
    if unchecked.first.len() < NAMED {
        unchecked.first.push(stripe.to_string());
    }
}
