//! How far repairs have come, how fast, when they should be done, what limits them, and how near to the bound they came.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::CodeSpec;
use repair::recovery::{Demand, Kind, Pace, Progress, RepairId, bound};
use repair::{NodeId, Rates, Resource};
use stores::StripeRecord;

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::repairs::Repairs;
use crate::repairs::{Order, Repair};
use crate::stripes::indexed;

/// Progress is noted this often.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// The bound of more stripes is that of so many of them, taken evenly: a flow over all of them would hold everybody up.
const DEMANDS: usize = 512;
/// Among more nodes than this it is not looked at which of them may take a block: hardly ever does that bound anything.
const FEW_NODES: usize = 64;

/// What is known of a repair's course.
#[derive(Default)]
pub(crate) struct Course {
    pub(crate) progress: Progress,
    noted: Duration,
    /// Since when it is paused.
    pub(crate) paused: Option<Duration>,
    /// How long it was paused before.
    paused_for: Duration,
    pub(crate) began: Option<Duration>,
    pub(crate) ended: Option<Duration>,
    /// The least that it can take, from what links and disks carry within their caps as it began.
    pub(crate) bound: Option<Duration>,
    /// What limited it, and how often it was seen to.
    pub(crate) limits: BTreeMap<Resource, u32>,
}

impl Course {
    /// How long it has gone on, without pauses.
    pub(crate) fn lasts(&self, now: Duration) -> Duration {
        let until = self.ended.unwrap_or(now);
        let pause = self.paused.map_or(Duration::ZERO, |since| until.saturating_sub(since));
        self.began.map_or(Duration::ZERO, |began| until.saturating_sub(began + self.paused_for + pause))
    }

    /// Rates from before a pause say nothing about the time after it.
    fn set_paused(&mut self, paused: bool, now: Duration) {
        match (paused, self.paused) {
            (true, None) => self.paused = Some(now),
            (false, Some(since)) => {
                self.paused = None;
                self.paused_for += now.saturating_sub(since.max(self.began.unwrap_or(now)));
                self.progress = Progress::default();
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
}

impl Repairs {
    /// The stripes of a repair are known: it begins.
    pub(crate) fn begin_course(&mut self, facts: Facts<'_>, id: u64, records: &[StripeRecord]) {
        let bound = self.bound_of(facts, id, records);
        let course = &mut self.by_id.get_mut(&id).expect("it is being expanded").course;
        (course.began, course.bound) = (Some(facts.base.now), bound);
        course.progress.note(facts.base.now, 0);
        self.pause_course(facts, id, self.is_paused(id));
    }

    /// A repair is paused, or goes on.
    pub(crate) fn pause_course(&mut self, facts: Facts<'_>, id: u64, paused: bool) {
        let now = facts.base.now;
        self.by_id.get_mut(&id).expect("it is open").course.set_paused(paused, now);
    }

    /// Time has passed.
    pub(crate) fn note_progress(&mut self, facts: Facts<'_>, jobs: &Jobs) {
        let due = |repair: &Repair| {
            let Course { began, ended, noted, paused, .. } = repair.course;
            began.is_some() && ended.is_none() && paused.is_none() && facts.base.now >= noted + NOTE_EVERY
        };
        let open = self.by_id.iter().filter(|(_, repair)| due(repair));
        for id in open.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.note_progress_of(facts, jobs, id);
        }
    }

    fn note_progress_of(&mut self, facts: Facts<'_>, jobs: &Jobs, id: u64) {
        let repair = &self.by_id[&id];
        let bytes = repair.bytes_rebuilt + self.bytes_coming(jobs, id, repair);
        let limit = self.scheduler.limited_by(RepairId(id));
        let course = &mut self.by_id.get_mut(&id).expect("just seen").course;
        course.noted = facts.base.now;
        course.progress.note(facts.base.now, bytes);
        limit.into_iter().for_each(|limit| *course.limits.entry(limit).or_default() += 1);
    }

    pub(crate) fn end_course(&mut self, facts: Facts<'_>, jobs: &Jobs, id: u64) {
        self.note_progress_of(facts, jobs, id);
        self.by_id.get_mut(&id).expect("just seen").course.ended = Some(facts.base.now);
    }

    pub(crate) fn resource_name(&self, facts: Facts<'_>, resource: &Resource) -> String {
        let paces = facts.nodes.paces(facts.base);
        let is_capped = |node: &NodeId, by: fn(&Pace) -> Option<f64>| paces.get(node).and_then(by).is_some();
        match resource {
            Resource::Uplink(node) if is_capped(node, |pace| pace.up) => {
                format!("the cap of {}", facts.nodes.name(*node))
            }
            Resource::Downlink(node) if is_capped(node, |pace| pace.down) => {
                format!("the cap of {}", facts.nodes.name(*node))
            }
            Resource::Disk(node) if is_capped(node, |pace| pace.disk) => {
                format!("the cap on the disk of {}", facts.nodes.name(*node))
            }
            Resource::Uplink(node) => format!("the uplink of {}", facts.nodes.name(*node)),
            Resource::Downlink(node) => format!("the downlink of {}", facts.nodes.name(*node)),
            Resource::Disk(node) => format!("the disk of {}", facts.nodes.name(*node)),
            Resource::Jobs(node) => format!("the number of jobs on {}", facts.nodes.name(*node)),
            Resource::TrunkOut(rack) => format!("what may leave rack {rack}"),
            Resource::TrunkInto(rack) => format!("what may enter rack {rack}"),
            Resource::Pair(from, to) => {
                format!("the link from {} to {}", facts.nodes.name(*from), facts.nodes.name(*to))
            }
            Resource::Between(from, to) => format!("the link from rack {from} to rack {to}"),
        }
    }

    /// The least time that a repair can take; nothing is said of codes that read less than whole blocks.
    fn bound_of(&self, facts: Facts<'_>, id: u64, records: &[StripeRecord]) -> Option<Duration> {
        let order = &self.by_id[&id].order;
        if records.iter().any(|record| !matches!(record.code, CodeSpec::ReedSolomon { .. })) {
            return None;
        }
        let step = records.len().div_ceil(DEMANDS).max(1);
        let sampled: Vec<&StripeRecord> = records.iter().step_by(step).collect();
        let scale = records.len() as f64 / sampled.len().max(1) as f64;
        let (rates, cluster) = (self.rates_within_caps(facts), facts.nodes.caps(facts.base).cluster);
        let seconds = |kind: Kind| {
            let demand = |record: &&StripeRecord| self.demand(facts, order, kind, record);
            let demands: Vec<Demand> = sampled.iter().filter_map(demand).collect();
            let sent: f64 =
                demands.iter().map(|demand| f64::from(demand.sends) * demand.block_bytes as f64).sum();
            let seconds = bound(&demands, &rates).seconds.max(cluster.map_or(0.0, |cap| sent / cap));
            Some(seconds * scale).filter(|seconds| seconds.is_finite() && *seconds > 0.0)
        };
        let seconds = match order.kind() {
            // Both go on at once, and neither takes much of what the other needs.
            Kind::Drain { from } if facts.nodes.is_connected(from) => {
                1.0 / (1.0 / seconds(Kind::Migrate { from })? + 1.0 / seconds(Kind::Rebuild { from })?)
            }
            kind => seconds(kind)?,
        };
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// What each helper that is up may move, if others leave it all of the caps that they share.
    fn rates_within_caps(&self, facts: Facts<'_>) -> BTreeMap<NodeId, Rates> {
        let caps = facts.nodes.caps(facts.base);
        let within = |node: NodeId| {
            let rack = facts.nodes.topology.get(node).and_then(|view| view.rack.as_deref());
            (node, caps.utmost(node, rack).slow(facts.nodes.topology.rates(node)))
        };
        facts.nodes.live_helpers().map(within).collect()
    }

    /// What has to be carried for a stripe, if something of it is wanted.
    fn demand(&self, facts: Facts<'_>, order: &Order, kind: Kind, record: &StripeRecord) -> Option<Demand> {
        let CodeSpec::ReedSolomon { k, .. } = record.code else { return None };
        let lost = facts.wanted_of(order, record);
        let readable = |from: Option<NodeId>| {
            let holders = indexed(record).filter_map(|(_, block)| facts.readable_at(block));
            holders.filter(|&node| Some(node) != from).collect::<Vec<_>>()
        };
        let (sends, survivors) = match kind {
            Kind::Migrate { from } => (lost.len() as u32, vec![from]),
            _ => (k as u32, readable(kind.leaves())),
        };
        let holders: BTreeSet<NodeId> = record.blocks.iter().filter_map(|block| block.node).collect();
        let free = |node: &NodeId| !holders.contains(node) && !facts.nodes.registry.is_leaving(*node);
        // Where there are many, any will do.
        let takers = match &order.requestors[..] {
            [] if facts.nodes.connected_count() > FEW_NODES => None,
            [] => Some(facts.nodes.live_helpers().filter(free).collect()),
            some => Some(some.to_vec()),
        };
        let lost = lost.len() as u32;
        (lost > 0).then_some(Demand { block_bytes: record.block_bytes, sends, lost, survivors, takers })
    }
}
