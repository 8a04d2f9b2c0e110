//! Automatic repairs of single stripes.
//!
//! Corrupt blocks are repaired immediately, and so are blocks that a connected helper or server has lost.
//! Blocks of an absent helper get a grace period, because most helpers return. The period is shorter for
//! stripes with less redundancy ([`grace`](crate::repairs::grace)), and maintenance extends it.
//!
//! In Mend's own stores, an absent helper is recovered as a whole after its own grace period
//! ([`node_recovery`](crate::repairs::node_recovery)). Stripes with blocks on absent helpers are repaired
//! here only if their grace period is shorter. A helper that returned without most of its blocks
//! counts as absent, because its disk may not be mounted. Failed repairs are retried at increasing intervals.
//! [`turns`](crate::repairs::turns) has the order in which repairs begin, and
//! [`open_repairs`](crate::repairs::open_repairs) the limits on their number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::RepairAfter;
use recovery::{ItemId, Target};
use repair::{BlockId, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, StripeRecord};

use crate::counts::count;
use crate::durations::in_words;
use crate::facts::{Facts, hollow, unheard};
use crate::out::Out;
use crate::repairs::case::{Case, Cases, Progress};
use crate::repairs::continuation::{Ordered, OrderedBy};
use crate::repairs::damage_search::{Considered, DamageSearch};
use crate::repairs::grace::shortened;
use crate::repairs::open_repairs::{OpenRepairs, RefusedRepair};
use crate::repairs::orders::Order;
use crate::repairs::queue::Queue;
use crate::repairs::repair::Repair;
use crate::repairs::stand_in::OpenOrders;
use crate::repairs::turns::{Place, Taken, Turns};
use crate::settings::HealPolicy;
use crate::stripes::indices::index_of;
use views::WaitingStripes;

/// How often the coordinator looks for damaged stripes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The maximum number of paused repairs that the status names.
const PAUSED_NAMED: usize = 5;

/// Once all nodes have been in service for this long, a block without a copy will not return.
const ALL_HAVE_TOLD: Duration = Duration::from_secs(10);

/// A damaged stripe with lost blocks that must be repaired now.
struct DueStripe<'r> {
    record: &'r StripeRecord,
    patience: Patience,
    blocks: Vec<BlockId>,
    /// The number of all lost blocks.
    lost: usize,
}

/// Stripes in a shortened grace period. For each number of blocks that such stripes can still lose: how many of
/// these stripes there are, and when the first of them is due.
type WaitingByLeft = BTreeMap<u32, (u64, Duration)>;

/// The state of automatic repairs of single stripes.
#[derive(Default)]
pub(crate) struct Healing {
    due: Duration,
    cases: Cases,
    /// The time since which each node has been out of service.
    out_since: BTreeMap<NodeId, Duration>,
    /// The time since which all nodes have been in service.
    all_since: Option<Duration>,
    waiting: WaitingByLeft,
    /// The paused repairs that hold back the repair of due blocks.
    paused: BTreeSet<u64>,
    search: DamageSearch,
    turns: Turns,
}

impl Healing {
    /// Whether an earlier automatic repair of a stripe did not help.
    pub(crate) fn is_retry(&self, stripe: &StripeId) -> bool {
        self.cases.get(stripe).is_some_and(|case| case.attempts > 1)
    }

    /// Returns the earliest time at which a repair that did not help is retried.
    fn tried_again(&self) -> Option<Duration> {
        let failed = self.cases.all().filter(|case| case.attempts > 0 && !case.is_running);
        failed.map(|case| case.not_before).min()
    }
}

/// The grace period of a damaged stripe.
#[derive(Clone, Copy)]
struct Patience {
    /// The number of blocks that the stripe can still lose.
    left: u32,
    grace: Option<Duration>,
    /// Whether `grace` is shorter than the grace period of an absent helper.
    is_shortened: bool,
}

impl Healing {
    pub(crate) fn note_service(&mut self, facts: Facts<'_>, node: NodeId, up: bool) {
        if up {
            self.out_since.remove(&node);
        } else {
            self.out_since.entry(node).or_insert(facts.base.now);
        }
    }

    /// Starts the automatic repairs that are due. The store refuses the items in `refused`. Returns the
    /// repairs that must end, because they are refused and others take their places.
    pub(crate) fn heal(
        &mut self,
        facts: Facts<'_>,
        (orders, refused): (OpenOrders<'_>, &BTreeSet<ItemId>),
        out: &mut Out,
    ) -> Vec<u64> {
        let Some(policy) = facts.heals() else {
            self.paused.clear();
            self.waiting.clear();
            return Vec::new();
        };
        if facts.base.now < self.due {
            return Vec::new();
        }
        self.due = facts.base.now + LOOK_EVERY;
        let all_serve = facts.stripes.picture.nodes().keys().all(|&node| facts.stripes.picture.is_up(node));
        self.all_since = all_serve.then(|| self.all_since.unwrap_or(facts.base.now));
        let waited = std::mem::take(&mut self.waiting);
        self.cases.close(|stripe| is_whole(facts, stripe));
        self.note_running(facts, orders.queue);
        let mut open = open_repairs(facts, orders.queue, refused);
        let Considered { stripes, left_out } = self.damaged(facts, orders.queue, open.is_full());
        let due: Vec<DueStripe<'_>> =
            stripes.iter().filter_map(|stripe| self.due_stripe(facts, stripe)).collect();
        self.count_left_out(&left_out, &waited, facts.base.now);
        if !open.is_full() {
            self.heal_due((facts, orders), policy, &due, &mut open, out);
        }
        open.give_way
    }

    /// Returns the damaged stripes to consider. If no repair can begin, the next look considers the same
    /// ones: otherwise others would be passed over whenever repairs happen to end as these are considered
    /// again.
    fn damaged(&mut self, facts: Facts<'_>, queue: &Queue, is_full: bool) -> Considered {
        let before = self.search.clone();
        let damaged = self.search.next(facts);
        // Those that hold back stripes which this check does not consider stay listed.
        let is_partial = self.search.is_partial();
        self.paused.retain(|&repair| is_partial && queue.is_open(repair) && queue.is_paused(repair));
        if is_full {
            self.search = before;
        }
        damaged
    }

    /// Starts repairs of these stripes in turn, as many as may be open.
    fn heal_due(
        &mut self,
        (facts, orders): (Facts<'_>, OpenOrders<'_>),
        policy: HealPolicy,
        due: &[DueStripe<'_>],
        open: &mut OpenRepairs,
        out: &mut Out,
    ) {
        let place = |due: &DueStripe<'_>| {
            let (left, case) = (due.patience.left, self.cases.get(&due.record.id));
            case.map_or(Place { left, attempts: 0, since: Duration::ZERO }, |case| case.place(left))
        };
        let places: Vec<Place> = due.iter().map(place).collect();
        let mut turns = std::mem::take(&mut self.turns);
        turns.take(&places, |at| {
            if open.is_full() {
                return Taken::Full;
            }
            let Some(room) = open.room_for(due[at].patience.left, facts.base.now) else {
                return Taken::Passed;
            };
            if !self.heal_stripe((facts, orders), policy, &due[at], out) {
                return Taken::Passed;
            }
            open.begin(room);
            Taken::Begun
        });
        self.turns = turns;
    }

    /// Records which stripes are being repaired. An order that is still being recorded counts.
    fn note_running(&mut self, facts: Facts<'_>, queue: &Queue) {
        let ordered: BTreeSet<StripeId> =
            facts.storing.orders().filter_map(|order| healed_stripe(facts, order)).collect();
        self.cases.note_running(facts.base.now, |stripe: &StripeId, case: &Case| {
            let open: Vec<u64> = case.repairs.iter().copied().filter(|&id| queue.is_open(id)).collect();
            match () {
                () if ordered.contains(stripe) => Progress::Running,
                () if open.is_empty() => Progress::Over,
                () if open.iter().all(|&repair| queue.is_paused(repair)) => Progress::Paused,
                () => Progress::Running,
            }
        });
    }

    /// Returns a stripe if some of its lost blocks must be repaired now, and no repair of it is running or
    /// has just failed. Unreadable stripes are skipped. They are considered again when one of their blocks
    /// returns.
    fn due_stripe<'r>(&mut self, facts: Facts<'_>, record: &'r StripeRecord) -> Option<DueStripe<'r>> {
        let patience = facts.patience_of(record)?;
        let lost: Vec<&BlockRecord> = record.blocks.iter().filter(|block| facts.is_lost(block)).collect();
        let waits: Vec<Option<Duration>> =
            lost.iter().map(|block| self.due_of(facts, block, patience)).collect();
        let due = lost.iter().zip(&waits).filter(|(_, wait)| **wait == Some(Duration::ZERO));
        let blocks: Vec<BlockId> = due.map(|(block, _)| block.id.clone()).collect();
        if blocks.is_empty() {
            self.note_waiting(facts, patience, waits.into_iter().flatten().min());
            return None;
        }
        let waits = self.cases.get(&record.id).is_some_and(|case| facts.base.now < case.not_before);
        (!waits).then_some(DueStripe { record, patience, blocks, lost: lost.len() })
    }

    /// Starts the repair of a due stripe, unless others repair it. Returns whether the repair was started.
    fn heal_stripe(
        &mut self,
        (facts, orders): (Facts<'_>, OpenOrders<'_>),
        policy: HealPolicy,
        due: &DueStripe<'_>,
        out: &mut Out,
    ) -> bool {
        let stripe = due.record;
        let blocks = self.not_in_hand((facts, orders), stripe, due.blocks.clone());
        if blocks.is_empty() {
            return false;
        }
        let names: Vec<&str> = blocks.iter().map(|block| &block.0[..]).collect();
        let (targets, listed) = (targets(stripe, &blocks, due.lost), names.join(", "));
        self.cases.begin(&stripe.id, facts.base.now);
        if policy.dry_run {
            tracing::info!(
                stripe = %stripe.id, blocks = listed,
                "an automatic repair would start now (dry run)"
            );
            return false;
        }
        tracing::info!(stripe = %stripe.id, blocks = listed, "starting an automatic repair of a stripe");
        for target in targets {
            self.heal_target(facts, &stripe.id, target, out);
        }
        true
    }

    /// Returns the `due` blocks, except two kinds: blocks that another order will rebuild at least as early
    /// as an automatic repair would, and blocks whose automatic repair is paused.
    fn not_in_hand(
        &mut self,
        (facts, orders): (Facts<'_>, OpenOrders<'_>),
        stripe: &StripeRecord,
        mut due: Vec<BlockId>,
    ) -> Vec<BlockId> {
        let rebuilt = orders.rebuilt(facts, stripe);
        due.retain(|block| index_of(stripe, block).is_none_or(|index| !rebuilt.contains(&index)));
        due.retain(|block| match orders.paused(&stripe.id, block) {
            Some(repair) => {
                self.paused.insert(repair);
                false
            }
            None => true,
        });
        due
    }

    fn note_waiting(&mut self, facts: Facts<'_>, patience: Patience, wait: Option<Duration>) {
        let Some(wait) = wait.filter(|_| patience.is_shortened) else { return };
        let due = facts.base.now + wait;
        let (stripes, first) = self.waiting.entry(patience.left).or_insert((0, due));
        (*stripes, *first) = (*stripes + 1, due.min(*first));
    }

    /// Adds the stripes that this check has left out to the waiting ones. One of them may be due first: earlier checks,
    /// whose result was `waited`, have considered others.
    fn count_left_out(&mut self, left_out: &BTreeMap<u32, u64>, waited: &WaitingByLeft, now: Duration) {
        for (left, more) in left_out {
            let Some((stripes, first)) = self.waiting.get_mut(left) else { continue };
            *stripes += more;
            if let Some(&(_, earlier)) = waited.get(left).filter(|(_, earlier)| *earlier > now) {
                *first = earlier.min(*first);
            }
        }
    }

    fn heal_target(&mut self, facts: Facts<'_>, stripe: &StripeId, target: Target, out: &mut Out) {
        let order = facts.own_order(target);
        match order.and_then(|order| Ok((out.next_number()?, order))) {
            Ok((id, order)) => {
                if let Some(case) = self.cases.get_mut(stripe) {
                    case.repairs.insert(id);
                }
                let (write, then) = Ordered::new(id, order, OrderedBy::Damage).stored();
                out.store(write, then);
            }
            Err(error) => tracing::warn!(%stripe, %error, "cannot start the automatic repair of a stripe"),
        }
    }

    /// Returns the rest of the grace period of a lost block; `None` if this module does not repair the block.
    fn due_of(&self, facts: Facts<'_>, block: &BlockRecord, patience: Patience) -> Option<Duration> {
        let Some(home) = block.node else {
            // If some node is out of service, it may have the block and may have been absent since before
            // this coordinator started. The grace period then begins with the coordinator's start.
            let all_have_told = |since| facts.base.now >= since + ALL_HAVE_TOLD;
            return match self.all_since.is_some_and(all_have_told) {
                true => Some(Duration::ZERO),
                false => Some(patience.grace?.saturating_sub(facts.base.now)),
            };
        };
        let hollow_since = facts.stripes.inventory.hollow_since(home);
        if let Some(since) = hollow_since.filter(|_| block.state == BlockState::Missing) {
            return facts.nodes.left_of(
                facts.base,
                home,
                patience.grace?.saturating_sub(facts.base.now.saturating_sub(since)),
            );
        }
        let holders = block.holders().filter(|holder| holder.state == BlockState::Healthy);
        let out = holders.filter(|holder| !facts.stripes.picture.is_up(holder.node));
        let waits: Option<Vec<Duration>> =
            out.map(|holder| self.wait_for(facts, holder.node, patience)).collect();
        Some(waits?.into_iter().max().unwrap_or_default())
    }

    /// Returns the rest of the grace period of a node that is out of service or absent; `None` if its blocks are
    /// not rebuilt automatically.
    fn wait_for(&self, facts: Facts<'_>, node: NodeId, patience: Patience) -> Option<Duration> {
        let grace = patience.grace?;
        if facts.stripes.news.maintained.contains(&node) {
            return None;
        }
        if facts.base.store.reports_service() {
            let since = self.out_since.get(&node).copied().unwrap_or_default();
            return facts.nodes.left_of(
                facts.base,
                node,
                grace.saturating_sub(facts.base.now.saturating_sub(since)),
            );
        }
        let left = facts.nodes.left_of_outage(facts.base, node, grace).filter(|_| patience.is_shortened)?;
        facts.nodes.left_of(facts.base, node, left)
    }

    /// Returns the stripes that will be repaired before their absent helpers are recovered.
    pub(crate) fn waiting_stripes(&self, facts: Facts<'_>) -> Vec<WaitingStripes> {
        let view = |(&survives, &(stripes, due)): (&u32, &(u64, Duration))| {
            let wait = due.saturating_sub(facts.base.now);
            let lose = match survives {
                0 => "cannot lose another block".to_owned(),
                survives => format!("can lose only {} more", count(survives.into(), "block")),
            };
            WaitingStripes {
                survives,
                stripes,
                starts_in_ms: wait.as_millis() as u64,
                text: format!(
                    "repair of {} that {lose} starts in {}",
                    count(stripes, "stripe"),
                    in_words(wait)
                ),
            }
        };
        self.waiting.iter().map(view).collect()
    }

    /// Returns the sentence about paused repairs that hold back the repair of lost blocks.
    pub(crate) fn paused_advice(&self) -> Option<String> {
        let verbs: Vec<String> =
            self.paused.iter().take(PAUSED_NAMED).map(|repair| format!("mend resume {repair}")).collect();
        let more = if self.paused.len() > PAUSED_NAMED { ", …" } else { "" };
        let repairs = count(self.paused.len() as u64, "automatic repair");
        let are = if self.paused.len() == 1 { "is" } else { "are" };
        (!verbs.is_empty()).then(|| {
            format!("{repairs} of lost blocks {are} paused; to continue, run {}{more}", verbs.join(", "))
        })
    }

    /// Returns sentences about lost blocks on connected helpers.
    pub(crate) fn advice(&self, facts: Facts<'_>, blocks: u64) -> Vec<String> {
        if facts.heals().is_none_or(|policy| policy.dry_run) {
            return vec![format!(
                "{} missing or corrupt on helpers that are up: run mend repair --all",
                count(blocks, "block")
            )];
        }
        let grace = facts.nodes.repair_after(facts.base).time().unwrap_or_default();
        let mut advice: Vec<String> = hollow::until(facts)
            .map(|(node, until)| {
                let name = facts.nodes.name(node);
                let next = match until.map(|until| in_words(until.saturating_sub(facts.base.now))) {
                    Some(left) => {
                        format!("The blocks are rebuilt in {left}; to start now, run mend repair --all")
                    }
                    None => "If it is a new disk, run mend repair --all".to_owned(),
                };
                format!("{name} returned without most of its blocks; check that its disk is mounted. {next}")
            })
            .collect();
        if advice.is_empty() && self.paused.is_empty() && !unheard::names(facts).is_empty() {
            let left = grace.saturating_sub(facts.base.now);
            return vec![format!(
                "{} missing or corrupt, unless the helpers that have not registered have them; they are \
                 rebuilt in {}; to start now, run mend repair --all",
                count(blocks, "block"),
                in_words(left)
            )];
        }
        if advice.is_empty() && self.paused.is_empty() {
            let again = self.tried_again().filter(|&again| again > facts.base.now);
            let when = again.map_or_else(
                || "automatic repair starts shortly".to_owned(),
                |again| {
                    format!(
                        "the next repair attempt starts in {}",
                        in_words(again.saturating_sub(facts.base.now))
                    )
                },
            );
            advice.push(format!(
                "{} missing or corrupt on helpers that are up: {when}",
                count(blocks, "block")
            ));
        }
        advice
    }
}

impl<'a> Facts<'a> {
    /// Returns the policy, if automatic repairs may start now. In Mend's own stores, the setting `never`
    /// turns all of them off.
    pub(crate) fn heals(self) -> Option<HealPolicy> {
        let is_own = !self.base.store.reports_service();
        let is_off = is_own && self.nodes.repair_after(self.base) == RepairAfter::Never;
        let may_begin =
            self.nodes.settled && self.may_change() && !(is_own && self.too_many_gone().is_some());
        self.base.settings.heal.filter(|_| may_begin && !is_off)
    }

    /// Returns the grace period of a damaged stripe; `None` if the stripe is unreadable.
    fn patience_of(self, stripe: &StripeRecord) -> Option<Patience> {
        let code = self.stripes.codes.get(&stripe.code).ok()?;
        let left = self.stripes.codes.survives(&*code, &self.lost_blocks(stripe))?;
        let full = self.stripes.codes.survives(&*code, &[])?;
        let after = self.nodes.repair_after(self.base).time();
        let grace = after.map(|after| shortened(after, left, full));
        Some(Patience { left, grace, is_shortened: grace < after })
    }
}

/// Returns the targets of a repair: the whole stripe, or single blocks while other lost blocks may still
/// return.
fn targets(stripe: &StripeRecord, due: &[BlockId], lost: usize) -> Vec<Target> {
    if due.len() == lost {
        return vec![Target::Stripe(stripe.id.clone())];
    }
    due.iter().cloned().map(Target::Block).collect()
}

/// Whether a stripe has no lost blocks any more, or was removed.
fn is_whole(facts: Facts<'_>, stripe: &StripeId) -> bool {
    facts.stripes.picture.stripe(stripe).map_or(true, |record| facts.lost_blocks(&record).is_empty())
}

/// Returns the stripe of an order for an automatic repair.
fn healed_stripe(facts: Facts<'_>, order: &Order) -> Option<StripeId> {
    match &order.target {
        _ if !order.heals() => None,
        Target::Stripe(stripe) => Some(stripe.clone()),
        Target::Block(block) => facts.stripes.picture.find_block(block).ok().map(|(stripe, _)| stripe),
        _ => None,
    }
}

/// Returns the automatic repairs of single stripes that are open. The store refuses the items in `refused`.
fn open_repairs(facts: Facts<'_>, queue: &Queue, refused: &BTreeSet<ItemId>) -> OpenRepairs {
    let being_recorded = facts.storing.orders().filter(|order| order.heals()).count();
    let (going, repairs) = queue.healing(refused);
    let left_of = |stripe: &StripeId| {
        let record = facts.stripes.picture.stripe(stripe).ok()?;
        facts.patience_of(&record).map(|patience| patience.left)
    };
    let refused = |(id, repair): (u64, &Repair)| RefusedRepair {
        repair: id,
        left: repair.items.keys().find_map(left_of).unwrap_or_default(),
        began: repair.course.began.unwrap_or(facts.base.now),
    };
    OpenRepairs {
        going: going + being_recorded,
        refused: repairs.into_iter().map(refused).collect(),
        ..OpenRepairs::default()
    }
}
