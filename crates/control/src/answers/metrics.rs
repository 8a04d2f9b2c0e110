//! The figures for metrics. The coordinator encodes them for Prometheus.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use codes::{CodeSpec, LinearCode};
use recovery::RepairId;
use repair::{Heat, NodeId};
use store_api::FileBacklog;
use views::{Census, Condition, RepairState, ScrubView, SteadyScrubView};

use crate::answers::Answers;
use crate::answers::status::each_standing;
use crate::error::RequestError;
use crate::facts::Facts;
use crate::repairs::progress::kind_of;
use crate::totals::{Amount, Durations, Totals};

/// The maximum number of codes in labels. Prometheus keeps one series for each.
const CODES_NAMED: usize = 32;

/// Numbers of stripes by code and by how many further blocks they survive.
type Stripes = BTreeMap<(String, Option<u32>), u64>;

/// The figures of a coordinator at one moment. They contain no names of files.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Time since the start of the coordinator.
    pub uptime: Duration,
    /// The conditions of the cluster.
    pub conditions: Vec<Condition>,
    /// Stripes and files.
    pub data: DataMetrics,
    /// The helpers.
    pub helpers: Vec<HelperMetrics>,
    /// Repairs that have not ended.
    pub repairs: RepairMetrics,
    /// Counters since the start.
    pub totals: Totals,
    /// The last scrub, running or ended.
    pub last_scrub: Option<ScrubView>,
    /// The background scrub, if there is one.
    pub steady_scrub: Option<SteadyScrubView>,
    /// When the certificates of the coordinator and of each helper expire, and the first of each other role.
    pub certificates: BTreeMap<String, SystemTime>,
    /// The catalog.
    pub catalog: CatalogMetrics,
    /// The loss of blocks.
    pub loss: LossMetrics,
    /// The files on which the store works; `None` if it does not.
    pub file_backlog: Option<FileBacklog>,
}

/// The figures of the catalog.
#[derive(Clone, Debug, Default)]
pub struct CatalogMetrics {
    /// Writes that the storage has not acknowledged yet.
    pub writes_in_flight: usize,
    /// When the storage last acknowledged a write, in milliseconds since 1970.
    pub written_unix_ms: Option<u64>,
    /// When the catalog was last copied, in milliseconds since 1970.
    pub copied_unix_ms: Option<u64>,
}

/// How long blocks were lost.
#[derive(Clone, Debug, Default)]
pub struct LossMetrics {
    /// Since when blocks are lost, in milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
    /// The times from the first loss until no block was lost.
    pub whole_again: Durations,
}

/// The figures of stripes and files.
#[derive(Clone, Debug)]
pub struct DataMetrics {
    /// Number of stripes by code and by how many further blocks they survive; `None` if unreadable.
    pub stripes: BTreeMap<(String, Option<u32>), u64>,
    /// Number of lost blocks.
    pub lost_blocks: u64,
    /// Bytes of the lost blocks.
    pub lost_bytes: u64,
    /// Stripes whose blocks contradict each other.
    pub contradictory_stripes: u64,
    /// Stripes with several blocks on one helper.
    pub misplaced_stripes: u64,
    /// Number of files, if the store owns its files.
    pub files: Option<u64>,
}

/// The figures of repairs that have not ended.
#[derive(Clone, Debug)]
pub struct RepairMetrics {
    /// Number of repairs by state.
    pub open: BTreeMap<RepairState, u64>,
    /// Bytes per second that running repairs rebuild.
    pub bytes_per_s: u64,
    /// Bytes that are yet to be rebuilt.
    pub bytes_left: u64,
    /// The estimated time until the last running repair ends, at the slowest recent rate.
    pub time_left: Option<Duration>,
    /// The longest of the times that links and disks permit for these repairs, from their start.
    pub bound: Option<Duration>,
    /// Number of running repairs by the kind of resource that limits them now.
    pub limited_by: BTreeMap<&'static str, u64>,
    /// Blocks that these repairs have rebuilt or moved, and published, so far.
    pub rebuilt: Amount,
    /// The part of `rebuilt` that was moved: blocks that were not lost when the repair began.
    pub moved: Amount,
}

/// The figures of a helper.
#[derive(Clone, Debug)]
pub struct HelperMetrics {
    /// The helper's name.
    pub name: String,
    /// Whether it is connected.
    pub up: bool,
    /// Whether it counts as slow.
    pub slow: bool,
    /// Free space for blocks; `None` while it is down.
    pub free_bytes: Option<u64>,
    /// Number of blocks on it, according to the catalog.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub block_bytes: u64,
    /// Number of its blocks that are in memory and that clients do not read often; `None` while it is down.
    pub hot_blocks: Option<u64>,
    /// Number of its blocks that clients read often; `None` while it is down.
    pub very_hot_blocks: Option<u64>,
    /// Bytes per second that clients read from it; `None` while it is down.
    pub user_bytes_per_s: Option<u64>,
}

impl<'a> Answers<'a> {
    pub(crate) fn metrics(self) -> Result<Metrics, RequestError> {
        let (facts, census) = (self.facts, self.census()?);
        let findings = self.all_findings(&census, &self.gone_nodes());
        let is_helper = |node: &NodeId| !facts.nodes.registry.has_no_helper(facts.base, *node);
        let helpers = facts.nodes.registry.ids().filter(is_helper);
        let is_lost = census.blocks_lost > 0 && !self.is_partial();
        let (unix_ms, storing) = (facts.base.unix_ms, facts.storing);
        Ok(Metrics {
            uptime: facts.base.now,
            conditions: findings.certain().map(|finding| self.condition(finding)).collect(),
            data: data(facts, &census)?,
            helpers: helpers.map(|node| helper(facts, node)).collect(),
            repairs: open_repairs(self),
            totals: self.history.totals.clone(),
            last_scrub: self.scrub.last_scrub(),
            steady_scrub: self.scrub.background_view(facts.base),
            certificates: facts.nodes.certificates.expiries(UNIX_EPOCH + Duration::from_millis(unix_ms)),
            catalog: CatalogMetrics {
                writes_in_flight: storing.in_flight(),
                written_unix_ms: storing.written_unix_ms,
                copied_unix_ms: storing.copied_unix_ms,
            },
            loss: LossMetrics {
                since_unix_ms: is_lost.then(|| self.conditions.lost_since(unix_ms)),
                whole_again: self.conditions.whole_again.clone(),
            },
            file_backlog: facts.stripes.news.file_backlog.clone(),
        })
    }
}

fn data(facts: Facts<'_>, census: &Census) -> Result<DataMetrics, RequestError> {
    Ok(DataMetrics {
        stripes: with_few_codes(stripes(facts)?),
        lost_blocks: census.blocks_lost,
        lost_bytes: census.bytes_lost,
        contradictory_stripes: census.contradictory,
        misplaced_stripes: census.misplaced,
        files: facts.base.store.owns_files().then(|| facts.stripes.picture.files().in_all().0),
    })
}

/// Counts stripes by code and by how many further blocks they survive.
fn stripes(facts: Facts<'_>) -> Result<Stripes, RequestError> {
    let mut stripes = Stripes::new();
    each_standing(facts, |group| {
        if group.stripes > 0 {
            let survives = group.survives.map(|survives| survives.blocks);
            *stripes.entry((label(group.code), survives)).or_default() += group.stripes;
        }
    })?;
    Ok(stripes)
}

/// Returns the name of a code in labels. The names of explicit codes contain their matrices, which clients choose.
fn label(code: &CodeSpec) -> String {
    match code {
        CodeSpec::Linear(LinearCode::Explicit(generator)) => {
            format!("explicit-{}-{}", generator.blocks(), generator.data_blocks())
        }
        code => code.to_string(),
    }
}

/// Puts the codes with the fewest stripes together as `other` if there are too many codes.
fn with_few_codes(stripes: Stripes) -> Stripes {
    let mut by_code: BTreeMap<&str, u64> = BTreeMap::new();
    for ((code, _), number) in &stripes {
        *by_code.entry(code).or_default() += number;
    }
    let mut largest: Vec<(&str, u64)> = by_code.into_iter().collect();
    largest.sort_by_key(|&(_, number)| Reverse(number));
    let named: BTreeSet<String> =
        largest.iter().take(CODES_NAMED).map(|(code, _)| (*code).to_owned()).collect();
    let mut few = Stripes::new();
    for ((code, survives), number) in stripes {
        let code = if named.contains(&code) { code } else { "other".to_owned() };
        *few.entry((code, survives)).or_default() += number;
    }
    few
}

fn open_repairs(answers: Answers<'_>) -> RepairMetrics {
    let repairs = &answers.open_repairs();
    let mut open: BTreeMap<RepairState, u64> = BTreeMap::new();
    repairs.iter().for_each(|repair| *open.entry(repair.state).or_default() += 1);
    let progress = || repairs.iter().filter_map(|repair| repair.progress.as_ref());
    let mut limited_by: BTreeMap<&'static str, u64> = BTreeMap::new();
    let working = repairs.iter().filter(|repair| repair.progress.is_some());
    let limits = working.filter_map(|it| answers.repairs.scheduler.limited_by(RepairId(it.repair)));
    for limit in limits {
        *limited_by.entry(kind_of(answers.facts, &limit)).or_default() += 1;
    }
    let queue = &answers.repairs.queue;
    let (mut rebuilt, mut moved, mut bytes_left) = (Amount::default(), Amount::default(), 0);
    for (&id, repair) in queue.by_id.iter().filter(|(_, repair)| repair.is_open()) {
        // Not what running jobs have delivered: that is lost if a repair is cancelled, and the counters would decrease.
        rebuilt += Amount { blocks: repair.blocks_rebuilt, bytes: repair.bytes_rebuilt };
        moved += repair.moved;
        bytes_left += repair.bytes_left(answers.repairs.bytes_coming(answers.jobs, id, repair));
    }
    RepairMetrics {
        open,
        bytes_per_s: progress().filter_map(|progress| progress.rate_bytes_per_s).sum(),
        bytes_left,
        time_left: progress().filter_map(|progress| progress.latest_ms).max().map(Duration::from_millis),
        bound: progress().filter_map(|progress| progress.bound_ms).max().map(Duration::from_millis),
        limited_by,
        rebuilt,
        moved,
    }
}

fn helper(facts: Facts<'_>, node: NodeId) -> HelperMetrics {
    let (nodes, picture) = (facts.nodes, &facts.stripes.picture);
    let (up, usage) = (nodes.is_connected(node), nodes.registry.session(node).map(|session| &session.usage));
    HelperMetrics {
        name: nodes.name(node),
        up,
        slow: nodes.bandwidth.is_slow(node),
        free_bytes: nodes.topology.get(node).filter(|_| up).map(|profile| profile.free_bytes),
        blocks: picture.block_count(node) as u64,
        block_bytes: picture.bytes_on(node),
        hot_blocks: usage.map(|usage| usage.blocks(Heat::Hot)),
        very_hot_blocks: usage.map(|usage| usage.blocks(Heat::VeryHot)),
        user_bytes_per_s: usage.map(|usage| usage.user_bytes_per_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_cannot_make_unbounded_labels() {
        let explicit: CodeSpec = "explicit-3-2-1-x0101".parse().unwrap();
        assert_eq!(label(&explicit), "explicit-3-2");
        assert_eq!(label(&CodeSpec::reed_solomon(14, 10)), "rs-14-10");
        let code = |k: u64| ((format!("rs-{}-{k}", k + 2), Some(2)), k);
        let stripes: Stripes = (1..=200).map(code).collect();
        let few = with_few_codes(stripes);
        assert_eq!(few.len(), CODES_NAMED + 1);
        assert_eq!(few[&("rs-202-200".to_owned(), Some(2))], 200);
        assert_eq!(few[&("other".to_owned(), Some(2))], (1..=168).sum::<u64>());
    }
}
