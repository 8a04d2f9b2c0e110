//! The queue: all open repairs and the last ended ones, by number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use recovery::{ItemId, Priority, Target};
use repair::{NodeId, StripeId};
use views::{Condition, RepairStep};

use crate::effect::Reply;
use crate::error::RepairError;
use crate::out::Out;
use crate::repairs::order_records::kept;
use crate::repairs::orders::Order;
use crate::repairs::repair::{Item, Repair, Waiting};
use crate::repairs::timeline::Timeline;
use crate::storing::Storing;
use crate::storing::then::Then;

/// How many ended repairs are kept.
const REMEMBERED: usize = 100;
/// How many repairs of a stripe that a plug-in has described may be open.
const ORDERS_OF_A_STRIPE: usize = 16;

/// All known repairs.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) by_id: BTreeMap<u64, Repair>,
    /// Repairs whose items were not added yet, because helpers may still reconnect after a start.
    unexpanded: VecDeque<u64>,
    /// Ended repairs in the order of their ends.
    ended: VecDeque<u64>,
}

impl Queue {
    pub(crate) fn add(&mut self, id: u64, order: Order) {
        self.by_id.insert(id, Repair::new(order));
        self.unexpanded.push_back(id);
    }

    /// Removes and returns the repairs whose items can be added now.
    pub(crate) fn take_unexpanded(&mut self, is_due: impl Fn(&Repair) -> bool) -> VecDeque<u64> {
        let waiting = std::mem::take(&mut self.unexpanded);
        let (due, later) = waiting.into_iter().partition(|id| is_due(&self.by_id[id]));
        self.unexpanded = later;
        due
    }

    /// Drops a cancelled repair that has no items yet.
    pub(crate) fn forget_unexpanded(&mut self, id: u64) {
        self.unexpanded.retain(|&other| other != id);
    }

    /// Returns the open repairs of a target.
    pub(crate) fn open_for<'a>(&'a self, target: &'a Target) -> impl Iterator<Item = u64> + 'a {
        let open = self.by_id.iter().filter(|(_, repair)| repair.is_open());
        open.filter(move |(_, repair)| repair.order.target == *target).map(|(&id, _)| id)
    }

    /// Returns an error if too many repairs of a described stripe are open or being recorded. Each keeps the
    /// description.
    pub(crate) fn check_room(&self, storing: &Storing, stripe: StripeId) -> Result<(), RepairError> {
        let target = Target::Stripe(stripe.clone());
        let being_recorded = storing.orders().filter(|order| order.target == target).count();
        let open = self.open_for(&target).count() + being_recorded;
        match open < ORDERS_OF_A_STRIPE {
            true => Ok(()),
            false => Err(RepairError::TooManyOrders { stripe, open }),
        }
    }

    /// Whether a plug-in has a stripe repaired as it has described it. Includes repairs that are being recorded.
    pub(crate) fn has_described(&self, storing: &Storing, stripe: &StripeId) -> bool {
        let target = Target::Stripe(stripe.clone());
        let is_described = |order: &Order| order.target == target && order.given.is_some();
        self.open_for(&target).any(|id| is_described(&self.by_id[&id].order))
            || storing.orders().any(is_described)
    }

    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(Repair::is_open)
    }

    /// Whether a repair is paused and starts no jobs.
    pub(crate) fn is_paused(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|repair| repair.order.paused)
    }

    /// Pauses or resumes a repair, and records the change.
    pub(crate) fn set_paused(&mut self, id: u64, paused: bool, now: Duration, out: &mut Out) {
        let repair = self.by_id.get_mut(&id).expect("the repair is open");
        if repair.order.paused != paused {
            repair.order.paused = paused;
            out.store(kept(id, &repair.order), Then::Nothing);
        }
        repair.course.set_paused(paused, now);
    }

    /// Records that somebody asks about a repair.
    pub(crate) fn note_asked(&mut self, id: u64, now: Duration) {
        self.by_id.get_mut(&id).into_iter().for_each(|repair| repair.asked = now);
    }

    /// Extends the leases of all repairs, because nobody could ask about them for this time.
    pub(crate) fn extend_leases(&mut self, time: Duration) {
        self.by_id.values_mut().for_each(|repair| repair.asked += time);
    }

    /// Returns the open repairs about which nobody has asked for the time of their leases.
    pub(crate) fn abandoned(&self, now: Duration) -> Vec<u64> {
        let is_abandoned = |repair: &Repair| {
            let is_over = |lease: Duration| now >= repair.asked + lease;
            repair.is_open() && repair.waiting.is_empty() && repair.order.lease().is_some_and(is_over)
        };
        self.by_id.iter().filter(|(_, repair)| is_abandoned(repair)).map(|(&id, _)| id).collect()
    }

    /// Whether the jobs of a repair start after those of all other repairs.
    pub(crate) fn is_background(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|repair| repair.order.priority == Priority::Background)
    }

    /// Whether no data depends on the blocks of a repair yet: a plug-in has them made in the background.
    pub(crate) fn makes_new_blocks(&self, id: u64) -> bool {
        self.is_background(id) && self.by_id[&id].order.given.is_some()
    }

    /// Whether any open repair rebuilds lost blocks of listed stripes and is not paused.
    pub(crate) fn rebuilds(&self, is_listed: impl Fn(&StripeId) -> bool) -> bool {
        let concerns = |target: &Target| match target {
            Target::Stripe(stripe) => is_listed(stripe),
            _ => true,
        };
        let rebuilds = |order: &Order| !order.paused && !order.moves() && concerns(&order.target);
        self.by_id.values().any(|repair| repair.is_open() && rebuilds(&repair.order))
    }

    /// Returns the number of open automatic repairs of single stripes that are not paused and can go on, including those
    /// that an earlier coordinator ordered, and those whose items are in `refused`.
    pub(crate) fn healing(&self, refused: &BTreeSet<ItemId>) -> (usize, Vec<(u64, &Repair)>) {
        let heals = |order: &Order| order.heals() && !order.paused;
        let open = self.by_id.iter().filter(|(_, repair)| repair.is_open() && heals(&repair.order));
        let is_refused = |repair: &Repair| repair.items.values().any(|item| refused.contains(&item.id));
        let (refused, going): (Vec<_>, Vec<_>) =
            open.map(|(&id, repair)| (id, repair)).partition(|(_, repair)| is_refused(repair));
        (going.len(), refused)
    }

    /// Whether a repair covers many stripes.
    pub(crate) fn is_wide(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|repair| repair.order.is_wide())
    }

    /// Returns the open automatic repair of a node.
    pub(crate) fn automatic_of(&self, node: NodeId) -> Option<u64> {
        let target = Target::Node(node);
        self.open_for(&target).find(|id| self.by_id[id].order.by_itself)
    }

    /// Returns the open repair that recovers or drains a node. A paused recovery is returned too, because the
    /// operator has stopped exactly this recovery. A paused drain is not returned, because its node may have
    /// been lost after the pause. A recovery in the background is not returned, because it waits for all
    /// other repairs, and the blocks of a lost node must not wait for them.
    pub(crate) fn recovery_of(&self, node: NodeId) -> Option<u64> {
        let (recovery, drain) = (Target::Node(node), Target::Drain(node));
        let mut open = self.open_for(&recovery).chain(self.open_for(&drain));
        open.find(|&id| !self.is_paused(id) && !self.is_background(id))
            .or_else(|| self.open_for(&recovery).find(|&id| self.is_paused(id)))
    }

    /// Whether a repair of exactly this stripe is queued and has no items yet.
    pub(crate) fn awaits(&self, stripe: &StripeId) -> bool {
        let target = Target::Stripe(stripe.clone());
        self.unexpanded.iter().any(|id| self.by_id[id].order.target == target)
    }

    /// Returns the repairs that have an item of a stripe.
    pub(crate) fn of_stripe(&self, stripe: &StripeId) -> impl Iterator<Item = u64> {
        let with = self.by_id.iter().filter(|(_, repair)| repair.items.contains_key(stripe));
        with.map(|(&id, _)| id)
    }

    pub(crate) fn item(&mut self, repair: u64, stripe: &StripeId) -> Option<&mut Item> {
        self.by_id.get_mut(&repair)?.items.get_mut(stripe)
    }

    /// Records that the item of a stripe has ended.
    pub(crate) fn item_ended(&mut self, repair: u64, stripe: &StripeId) {
        self.by_id.get_mut(&repair).into_iter().for_each(|repair| repair.item_ended(stripe));
    }

    /// Records that a repair has ended.
    pub(crate) fn note_ended(&mut self, id: u64) {
        if !self.ended.contains(&id) {
            self.ended.push_back(id);
        }
    }

    /// Records the conditions at the end of a repair under which the state of some blocks was unknown.
    pub(crate) fn note_unknown(&mut self, id: u64, unknown: Vec<Condition>) {
        if let Some(end) = self.by_id.get_mut(&id).and_then(|repair| repair.end.as_mut()) {
            end.unknown = unknown;
        }
    }

    /// Removes the repairs that ended first beyond the limit, and returns their numbers.
    pub(crate) fn forget_oldest(&mut self) -> Vec<u64> {
        let forgotten: Vec<u64> = self.ended.drain(..self.ended.len().saturating_sub(REMEMBERED)).collect();
        forgotten.iter().for_each(|id| drop(self.by_id.remove(id)));
        forgotten
    }

    /// Answers a request when the repair ends, when its version differs from `since`, or at `until`.
    pub(crate) fn await_change(
        &mut self,
        (id, since, until): (u64, Option<u64>, Duration),
        version: Option<u64>,
        reply: Reply<()>,
        out: &mut Out,
    ) {
        match self.by_id.get_mut(&id) {
            Some(repair) if repair.is_open() && version == since => {
                repair.waiting.push(Waiting { since, until, reply });
            }
            Some(_) => out.answer(reply, Ok(())),
            None => out.answer(reply, Err(RepairError::NoSuchRepair(id).into())),
        }
    }

    /// Returns the open repairs that requests are waiting for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = u64> {
        self.by_id.iter().filter(|(_, repair)| !repair.waiting.is_empty()).map(|(&id, _)| id)
    }

    /// Answers the requests whose client knows another version than `version`, and the requests that have
    /// timed out.
    pub(crate) fn tell_version(&mut self, id: u64, version: u64, now: Duration, out: &mut Out) {
        let Some(repair) = self.by_id.get_mut(&id) else { return };
        repair.asked = now;
        let is_due = |waiting: &mut Waiting| {
            waiting.until <= now || waiting.since.is_some_and(|since| since != version)
        };
        repair.waiting.extract_if(.., is_due).for_each(|waiting| out.answer(waiting.reply, Ok(())));
    }
}

impl Queue {
    /// Records that the repair of a stripe has reached a step.
    pub(crate) fn reach(&mut self, repair: u64, stripe: &StripeId, step: RepairStep, now: Duration) {
        self.note_time(repair, stripe, now, |timeline, since| timeline.reach(step, since));
    }

    /// Records that a job of the repair of a stripe starts. The steps of an earlier job are forgotten.
    pub(crate) fn job_starts(&mut self, repair: u64, stripe: &StripeId, now: Duration) {
        self.note_time(repair, stripe, now, |timeline, since| {
            timeline.restart(RepairStep::Started);
            timeline.reach(RepairStep::Started, since);
        });
    }

    /// Records that the job of the repair of a stripe has succeeded.
    pub(crate) fn job_succeeded(&mut self, repair: u64, stripe: &StripeId, now: Duration) {
        self.note_time(repair, stripe, now, |timeline, since| {
            timeline.reach_in_order(RepairStep::Ended, since);
        });
    }

    /// Records the claim on a stripe for all repairs that wait for it.
    pub(crate) fn claim_granted(&mut self, stripe: &StripeId, now: Duration) {
        for repair in self.of_stripe(stripe).collect::<Vec<_>>() {
            self.reach(repair, stripe, RepairStep::Claimed, now);
        }
    }

    /// Records a time in the timeline of a stripe, if the repair is open and has begun.
    pub(crate) fn note_time(
        &mut self,
        repair: u64,
        stripe: &StripeId,
        now: Duration,
        note: impl FnOnce(&mut Timeline, Duration),
    ) {
        let Some(repair) = self.by_id.get_mut(&repair).filter(|repair| repair.is_open()) else {
            return;
        };
        let Some(began) = repair.course.began else { return };
        if let Some(item) = repair.items.get_mut(stripe) {
            note(&mut item.timeline, now.saturating_sub(began));
        }
    }
}
