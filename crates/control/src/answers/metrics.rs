//! The figures for metrics. The coordinator encodes them for Prometheus.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use repair::NodeId;
use views::{Census, Condition, RepairState, RepairView, ScrubView, SteadyScrubView};

use crate::answers::Answers;
use crate::error::RequestError;
use crate::facts::{Facts, Standing};
use crate::totals::Totals;

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
    /// When the certificates of the coordinator and of each helper expire.
    pub certificates: Vec<(String, SystemTime)>,
    /// Writes that the storage has not acknowledged yet.
    pub writes_in_flight: usize,
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
    /// Number of running repairs by what limits them now.
    pub limited_by: BTreeMap<String, u64>,
    /// Blocks that these repairs have rebuilt so far, and their bytes.
    pub rebuilt: (u64, u64),
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
}

impl<'a> Answers<'a> {
    pub(crate) fn metrics(self) -> Result<Metrics, RequestError> {
        let (facts, census) = (self.facts, self.census()?);
        let findings = self.all_findings(&census, &self.gone_nodes());
        let is_helper = |node: &NodeId| !facts.nodes.registry.has_no_helper(facts.base, *node);
        let helpers = facts.nodes.registry.ids().filter(is_helper);
        Ok(Metrics {
            uptime: facts.base.now,
            conditions: findings.certain().map(|finding| self.condition(finding)).collect(),
            data: data(facts, &census)?,
            helpers: helpers.map(|node| helper(facts, node)).collect(),
            repairs: open_repairs(&self.open_repairs()),
            totals: self.history.totals.clone(),
            last_scrub: self.scrub.last_scrub(),
            steady_scrub: self.scrub.background_view(facts.base),
            certificates: facts.nodes.certificates.expiries(),
            writes_in_flight: facts.storing.in_flight(),
        })
    }
}

fn data(facts: Facts<'_>, census: &Census) -> Result<DataMetrics, RequestError> {
    let mut stripes = BTreeMap::new();
    for kind in facts.stripes.picture.kinds().filter(|kind| kind.stripes > 0) {
        let standing = Standing { lost: kind.lost, together: kind.together.clone(), contradictory: false };
        let survives = facts.survives(kind.code, &standing)?.map(|survives| survives.blocks);
        *stripes.entry((kind.code.to_string(), survives)).or_default() += kind.stripes;
    }
    Ok(DataMetrics {
        stripes,
        lost_blocks: census.blocks_lost,
        lost_bytes: census.bytes_lost,
        contradictory_stripes: census.contradictory,
        misplaced_stripes: census.misplaced,
        files: facts.base.store.owns_files().then(|| facts.stripes.picture.files().in_all().0),
    })
}

fn open_repairs(repairs: &[RepairView]) -> RepairMetrics {
    let mut open: BTreeMap<RepairState, u64> = BTreeMap::new();
    repairs.iter().for_each(|repair| *open.entry(repair.state).or_default() += 1);
    let progress = || repairs.iter().filter_map(|repair| repair.progress.as_ref());
    let mut limited_by: BTreeMap<String, u64> = BTreeMap::new();
    progress().filter_map(|it| it.limited_by.clone()).for_each(|by| *limited_by.entry(by).or_default() += 1);
    let left = |repair: &RepairView| repair.counts.bytes.saturating_sub(repair.counts.bytes_rebuilt);
    RepairMetrics {
        open,
        bytes_per_s: progress().filter_map(|progress| progress.rate_bytes_per_s).sum(),
        bytes_left: repairs.iter().map(left).sum(),
        time_left: progress().filter_map(|progress| progress.latest_ms).max().map(Duration::from_millis),
        bound: progress().filter_map(|progress| progress.bound_ms).max().map(Duration::from_millis),
        limited_by,
        rebuilt: repairs.iter().fold((0, 0), |(blocks, bytes), repair| {
            (blocks + repair.counts.blocks_rebuilt, bytes + repair.counts.bytes_rebuilt)
        }),
    }
}

fn helper(facts: Facts<'_>, node: NodeId) -> HelperMetrics {
    let (nodes, picture) = (facts.nodes, &facts.stripes.picture);
    let up = nodes.is_connected(node);
    HelperMetrics {
        name: nodes.name(node),
        up,
        slow: nodes.bandwidth.is_slow(node),
        free_bytes: nodes.topology.get(node).filter(|_| up).map(|profile| profile.free_bytes),
        blocks: picture.block_count(node) as u64,
        block_bytes: picture.bytes_on(node),
    }
}
