//! The figures for metrics. The coordinator encodes them for Prometheus.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use repair::NodeId;
use views::{Condition, RepairState, ScrubView, SteadyScrubView};

use crate::answers::Answers;
use crate::error::RequestError;
use crate::facts::Standing;
use crate::totals::Totals;

/// The figures of a coordinator at one moment. They contain no names of files.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Time since the start of the coordinator.
    pub uptime: Duration,
    /// The conditions of the cluster.
    pub conditions: Vec<Condition>,
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
    /// The helpers.
    pub helpers: Vec<HelperMetrics>,
    /// Number of open repairs by state.
    pub open_repairs: BTreeMap<RepairState, u64>,
    /// Bytes per second that running repairs rebuild.
    pub repair_rate: u64,
    /// Bytes that open repairs have yet to rebuild.
    pub repair_bytes_left: u64,
    /// The estimated time until the last running repair ends, at the slowest recent rate.
    pub repair_time_left: Option<Duration>,
    /// Counters since the start.
    pub totals: Totals,
    /// The last scrub, running or ended.
    pub last_scrub: Option<ScrubView>,
    /// The background scrub, if there is one.
    pub steady_scrub: Option<SteadyScrubView>,
    /// When the certificate of each member expires.
    pub certificates: Vec<(String, SystemTime)>,
    /// Writes that the storage has not acknowledged yet.
    pub writes_in_flight: usize,
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
        let unix_ms = facts.base.unix_ms;
        let repairs = self.open_repairs();
        let mut open_repairs: BTreeMap<RepairState, u64> = BTreeMap::new();
        repairs.iter().for_each(|repair| *open_repairs.entry(repair.state).or_default() += 1);
        let progress = || repairs.iter().filter_map(|repair| repair.progress.as_ref());
        let left = progress().filter_map(|progress| progress.latest_ms).max();
        let is_helper = |node: &NodeId| !facts.nodes.registry.has_no_helper(facts.base, *node);
        Ok(Metrics {
            uptime: facts.base.now,
            conditions: findings.certain().map(|finding| self.conditions.view(finding, unix_ms)).collect(),
            stripes: self.stripes_by_code()?,
            lost_blocks: census.blocks_lost,
            lost_bytes: census.bytes_lost,
            contradictory_stripes: census.contradictory,
            misplaced_stripes: census.misplaced,
            files: facts.base.store.owns_files().then(|| facts.stripes.picture.files().in_all().0),
            helpers: facts
                .nodes
                .registry
                .ids()
                .filter(is_helper)
                .map(|node| self.helper_metrics(node))
                .collect(),
            open_repairs,
            repair_rate: progress().filter_map(|progress| progress.rate_bytes_per_s).sum(),
            repair_bytes_left: repairs
                .iter()
                .map(|repair| repair.counts.bytes.saturating_sub(repair.counts.bytes_rebuilt))
                .sum(),
            repair_time_left: left.map(Duration::from_millis),
            totals: self.history.totals.clone(),
            last_scrub: self.scrub.last_scrub(),
            steady_scrub: self.scrub.background_view(facts.base),
            certificates: facts.nodes.certificates.expiries(),
            writes_in_flight: facts.storing.in_flight(),
        })
    }

    fn stripes_by_code(self) -> Result<BTreeMap<(String, Option<u32>), u64>, RequestError> {
        let mut stripes = BTreeMap::new();
        for kind in self.facts.stripes.picture.kinds().filter(|kind| kind.stripes > 0) {
            let standing =
                Standing { lost: kind.lost, together: kind.together.clone(), contradictory: false };
            let survives = self.facts.survives(kind.code, &standing)?.map(|survives| survives.blocks);
            *stripes.entry((kind.code.to_string(), survives)).or_default() += kind.stripes;
        }
        Ok(stripes)
    }

    fn helper_metrics(self, node: NodeId) -> HelperMetrics {
        let (nodes, picture) = (&self.facts.nodes, &self.facts.stripes.picture);
        let up = nodes.is_connected(node);
        let free_bytes = nodes.topology.get(node).filter(|_| up).map(|profile| profile.free_bytes);
        HelperMetrics {
            name: nodes.name(node),
            up,
            slow: nodes.bandwidth.is_slow(node),
            free_bytes,
            blocks: picture.block_count(node) as u64,
            block_bytes: picture.bytes_on(node),
        }
    }
}
