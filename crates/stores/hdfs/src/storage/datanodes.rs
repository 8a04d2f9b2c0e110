//! The DataNodes as the NameNode lists them. Pure: this module sends no queries and stores nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use attached::ServiceReport;
use repair::NodeId;
use store_api::{OtherData, StoreChange};

use crate::listing::{Service, Standing};

/// A block of a live DataNode is treated as missing only after being unlisted for this long. A block report
/// consists of several messages, so a block may be unlisted until the last one arrives.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A DataNode that has come up serves at the latest this long after its block report, because in large namespaces
/// the listing of all groups takes longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The states of all DataNodes, and which of them were last reported to the coordinator as in service.
#[derive(Default)]
pub(super) struct DataNodes {
    nodes: BTreeMap<NodeId, DataNode>,
    service: ServiceReport,
    /// The DataNodes whose data HDFS has not moved away completely, also while the NameNode does not list them:
    /// after its restart, it lists a DataNode only once the DataNode registers.
    needed: BTreeMap<NodeId, OtherData>,
}

#[derive(Default)]
struct DataNode {
    /// Whether the NameNode has listed the DataNode before.
    is_known: bool,
    /// `None` while the NameNode does not list the DataNode.
    standing: Option<Standing>,
    /// Whether the DataNode is live, and its blocks are known. After a DataNode comes up, this is so only after
    /// its block report and a listing of all groups; it may have come back with empty disks. A restart of the
    /// NameNode changes nothing.
    serves: bool,
    /// Whether the DataNode was decommissioned while it was live. HDFS calls a DataNode that is down
    /// decommissioned at once, although nobody has its data.
    handed_over: bool,
    /// The time since which the DataNode is live and has reported its blocks; `None` if it is down or has not
    /// reported them.
    up_since: Option<Duration>,
    /// The time of the last block report, as listed when the DataNode was last seen down. If a later listing
    /// has a different time, the DataNode has reported its blocks since then.
    reported: u64,
    /// Whether the DataNode was in maintenance when it was last listed.
    was_maintained: bool,
    /// Answers to queries that were sent before this time may lack blocks of the DataNode, because the NameNode does not
    /// list the replicas of a DataNode in maintenance. Zero if it was never in maintenance.
    hidden_until: Duration,
}

impl DataNodes {
    /// Records the states of DataNodes. DataNodes that are not in the list are down.
    pub fn take(&mut self, now: Duration, standings: Vec<(NodeId, Standing)>) {
        let mut all: BTreeMap<NodeId, Standing> = BTreeMap::new();
        for (id, standing) in standings {
            // A DataNode that was set up anew under its old address is listed twice. The live one is kept.
            if all.get(&id).is_none_or(|other| !other.live) {
                all.insert(id, standing);
            }
        }
        for (id, node) in &mut self.nodes {
            if !all.contains_key(id) {
                (node.standing, node.serves, node.up_since) = (None, false, None);
            }
        }
        for (id, standing) in all {
            let node = self.nodes.entry(id).or_default();
            node.take(now, standing);
            match node.other_data() {
                Some(data) => drop(self.needed.insert(id, data)),
                None => drop(self.needed.remove(&id)),
            }
        }
    }

    /// Loads the DataNodes whose data HDFS had not moved away when an earlier coordinator last saw them.
    pub fn recall_needed(&mut self, needed: BTreeMap<NodeId, OtherData>) {
        self.needed = needed;
    }

    /// Records that all groups that lack blocks were listed by a query that was sent at `asked`. The blocks of
    /// DataNodes that had reported them before are known now. Returns whether a DataNode serves because of this.
    pub fn note_listing(&mut self, now: Duration, asked: Duration) -> bool {
        let mut is_changed = false;
        for node in self.nodes.values_mut().filter(|node| !node.serves) {
            node.serves = node.up_since.is_some_and(|up| asked >= up && now >= up + PATIENCE);
            is_changed |= node.serves;
        }
        is_changed
    }

    /// Whether a DataNode has come up and would serve after a listing.
    pub fn await_listing(&self, now: Duration) -> bool {
        let mut out = self.nodes.values().filter(|node| !node.serves);
        out.any(|node| node.up_since.is_some_and(|up| now >= up + PATIENCE))
    }

    /// Whether all live DataNodes have reported their blocks. After a restart of the NameNode, some DataNodes
    /// have not done so yet.
    pub fn all_have_reported(&self) -> bool {
        let mut standings = self.nodes.values().filter_map(|node| node.standing.as_ref());
        standings.all(|standing| !standing.live || standing.reported != 0)
    }

    /// Returns the state of a DataNode; `None` if the NameNode does not list it.
    pub fn standing(&self, node: NodeId) -> Option<&Standing> {
        self.nodes.get(&node)?.standing.as_ref()
    }

    /// Returns the time since which a DataNode is live and its blocks are known.
    pub fn up_since(&self, node: NodeId) -> Option<Duration> {
        self.nodes.get(&node)?.up_since
    }

    /// Whether a DataNode can receive blocks.
    pub fn may_take(&self, node: NodeId) -> bool {
        self.standing(node).is_some_and(|standing| !standing.is_silent && standing.service == Service::Normal)
    }

    /// Whether HDFS counts replicas on a DataNode for the replication of their files.
    pub fn counts(&self, node: NodeId) -> bool {
        self.standing(node).is_some_and(|standing| standing.service == Service::Normal)
    }

    /// Returns the DataNodes that can receive blocks. If a block has several replicas, one on such a DataNode is reported.
    pub fn takers(&self) -> BTreeSet<NodeId> {
        self.nodes.keys().copied().filter(|&node| self.may_take(node)).collect()
    }

    /// Whether operators have put a DataNode into maintenance.
    pub fn is_in_maintenance(&self, node: NodeId) -> bool {
        self.standing(node).is_some_and(|standing| standing.service == Service::Maintenance)
    }

    /// Returns the DataNodes in maintenance. HDFS does not rebuild their blocks while they are down.
    pub fn maintained(&self) -> BTreeSet<NodeId> {
        self.nodes.keys().copied().filter(|&node| self.is_in_maintenance(node)).collect()
    }

    /// Whether a DataNode is in service: it is live, has sent a heartbeat lately, and its blocks are known.
    pub fn serves(&self, node: NodeId) -> bool {
        let is_silent = |node: &DataNode| node.standing.as_ref().is_none_or(|standing| standing.is_silent);
        self.nodes.get(&node).is_some_and(|node| node.serves && !is_silent(node))
    }

    /// Whether a node was removed.
    pub fn is_removed(&self, node: NodeId) -> bool {
        !self.nodes.contains_key(&node) && !self.needed.contains_key(&node)
    }

    /// Returns the time since which queries show all copies on a DataNode that the NameNode takes for good; `None` while
    /// the DataNode is away or in maintenance.
    pub fn shown_since(&self, node: NodeId) -> Option<Duration> {
        let is_present = self.serves(node) && !self.is_in_maintenance(node);
        let shown = self.up_since(node).filter(|_| is_present)? + PATIENCE;
        Some(shown.max(self.nodes.get(&node)?.hidden_until))
    }

    /// Whether the answer to a query that was sent at `asked` may lack blocks of a DataNode, because the DataNode was in
    /// maintenance.
    pub fn is_hidden(&self, node: NodeId, asked: Duration) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.is_hidden(asked))
    }

    /// Returns the DataNodes whose blocks may be [hidden](Self::is_hidden) from an answer.
    pub fn hidden(&self, asked: Duration) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().filter(move |(_, node)| node.is_hidden(asked)).map(|(&id, _)| id)
    }

    /// Returns the time since which queries show the blocks of all DataNodes whose maintenance has ended; zero if there are
    /// none.
    pub fn shown_again(&self) -> Duration {
        let ended = self.nodes.values().filter(|node| !node.was_maintained);
        ended.map(|node| node.hidden_until).max().unwrap_or_default()
    }

    /// Returns the DataNodes whose data HDFS has not moved away completely. Files that are not erasure-coded
    /// have blocks there too; a DataNode that is down may have the only replica of such a block.
    pub fn needed(&self) -> &BTreeMap<NodeId, OtherData> {
        &self.needed
    }

    /// Forgets a node that was removed.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.needed.remove(&node);
        self.service.forget(node);
    }

    /// Assumes that a node is in service if it registers before the first listing. Returns the change to be
    /// reported.
    pub fn assume_service(&mut self, node: NodeId) -> Option<StoreChange> {
        (self.nodes.is_empty() && self.service.insert(node)).then_some(StoreChange::Service(node, true))
    }

    /// Returns the DataNodes that entered or left service since the last report.
    pub fn tell_service(&mut self) -> Vec<StoreChange> {
        let now: BTreeSet<NodeId> = self.nodes.keys().copied().filter(|&node| self.serves(node)).collect();
        self.service.update(now)
    }

    /// Returns all DataNodes in service, for a new listener.
    pub fn everything(&mut self) -> Vec<StoreChange> {
        if self.nodes.is_empty() {
            return self.service.repeat();
        }
        self.service.reset();
        self.tell_service()
    }
}

impl DataNode {
    /// Returns what HDFS keeps on the DataNode; `None` if it has moved everything away.
    fn other_data(&self) -> Option<OtherData> {
        match self.standing.as_ref()?.service {
            Service::Decommissioned if self.handed_over => None,
            Service::Decommissioned => Some(OtherData {
                what: "perhaps the only replicas of some blocks, because it was down when it was decommissioned"
                    .to_owned(),
                next_step: "start the DataNode, and wait until hdfs dfsadmin -report says Decommissioned; if it \
                            cannot be started, and hdfs fsck / finds no missing blocks, take it off with mend \
                            node remove"
                    .to_owned(),
            }),
            Service::Normal | Service::Leaving | Service::Maintenance => Some(OtherData {
                what: "data that HDFS has not moved away".to_owned(),
                next_step: "decommission the DataNode in HDFS (dfs.hosts.exclude), and wait until hdfs \
                            dfsadmin -report says Decommissioned"
                    .to_owned(),
            }),
        }
    }

    fn take(&mut self, now: Duration, standing: Standing) {
        let is_decommissioned = standing.service == Service::Decommissioned;
        self.handed_over = is_decommissioned && (standing.live || self.handed_over);
        match &self.standing {
            Some(before) if before.uuid != standing.uuid => {
                // The DataNode has new disks, and has not reported any blocks on them yet.
                (self.serves, self.up_since, self.reported) = (false, None, 0);
            }
            Some(_) => {}
            None => self.serves = !self.is_known && standing.live,
        }
        self.is_known = true;
        self.note_maintenance(now, &standing);
        self.note_report(now, &standing);
        self.serves =
            standing.live && (self.serves || self.up_since.is_some_and(|up| now >= up + LONGEST_WAIT));
        self.standing = Some(standing);
    }

    /// Whether the answer to a query that was sent at `asked` may lack blocks of the DataNode.
    fn is_hidden(&self, asked: Duration) -> bool {
        let is_maintained = |standing: &Standing| standing.service == Service::Maintenance;
        asked < self.hidden_until || self.standing.as_ref().is_some_and(is_maintained)
    }

    /// Notes that answers lack blocks while the DataNode is in maintenance. When it is listed in service again, queries
    /// that were sent before may have been answered during the maintenance.
    fn note_maintenance(&mut self, now: Duration, standing: &Standing) {
        let is_maintained = standing.service == Service::Maintenance;
        if is_maintained || self.was_maintained {
            self.hidden_until = now;
        }
        self.was_maintained = is_maintained;
    }

    /// Notes whether the DataNode has reported its blocks since it came up.
    fn note_report(&mut self, now: Duration, standing: &Standing) {
        if !standing.live {
            (self.up_since, self.reported) = (None, standing.reported);
        } else if standing.reported == 0 {
            self.up_since = None; // The NameNode was restarted and has no report yet.
        } else if self.up_since.is_none() {
            // A DataNode that starts is live before it has reported its blocks.
            self.up_since = (standing.reported != self.reported).then_some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(live: bool, service: Service, reported: u64) -> Standing {
        Standing { uuid: "u".to_owned(), rack: "/r".to_owned(), live, is_silent: !live, service, reported }
    }

    /// Whether DataNode 1 is in service after the NameNode has listed it in these states, at these seconds.
    fn serves_after(nodes: &mut DataNodes, seconds: u64, standing: Standing) -> bool {
        nodes.take(Duration::from_secs(seconds), vec![(NodeId(1), standing)]);
        nodes.serves(NodeId(1))
    }

    #[test]
    fn a_datanode_is_needed_until_it_is_decommissioned_while_it_is_live() {
        let mut nodes = DataNodes::default();
        for (live, service, needed) in [
            (true, Service::Normal, true),
            (false, Service::Normal, true),
            (false, Service::Maintenance, true),
            (false, Service::Decommissioned, true),
            (true, Service::Leaving, true),
            (true, Service::Decommissioned, false),
            (false, Service::Decommissioned, false),
            (true, Service::Normal, true),
            (false, Service::Decommissioned, true),
        ] {
            nodes.take(Duration::ZERO, vec![(NodeId(1), standing(live, service, 1))]);
            assert_eq!(nodes.needed().contains_key(&NodeId(1)), needed, "{live} {service:?}");
        }
    }

    #[test]
    fn a_datanode_that_is_not_listed_after_a_restart_is_still_needed() {
        let mut before = DataNodes::default();
        before.take(Duration::ZERO, vec![(NodeId(1), standing(true, Service::Normal, 1))]);
        before.take(Duration::ZERO, Vec::new());
        assert!(before.needed().contains_key(&NodeId(1)), "the NameNode was restarted");
        let mut nodes = DataNodes::default();
        nodes.recall_needed(before.needed().clone());
        nodes.take(Duration::ZERO, vec![(NodeId(2), standing(true, Service::Normal, 1))]);
        assert!(nodes.needed().contains_key(&NodeId(1)), "the coordinator was restarted");
        nodes.take(Duration::ZERO, vec![(NodeId(1), standing(true, Service::Decommissioned, 1))]);
        nodes.take(Duration::ZERO, Vec::new());
        assert!(!nodes.needed().contains_key(&NodeId(1)));
    }

    #[test]
    fn a_datanode_in_maintenance_serves_only_while_it_is_live() {
        let mut nodes = DataNodes::default();
        assert!(serves_after(&mut nodes, 0, standing(true, Service::Maintenance, 1)));
        assert!(!serves_after(&mut nodes, 1, standing(false, Service::Maintenance, 1)));
        assert_eq!(nodes.maintained(), BTreeSet::from([NodeId(1)]));
    }

    #[test]
    fn answers_from_before_the_end_of_a_maintenance_may_lack_blocks() {
        let (mut nodes, node, seconds) = (DataNodes::default(), NodeId(1), Duration::from_secs);
        nodes.take(seconds(1), vec![(node, standing(true, Service::Normal, 1))]);
        assert!(!nodes.is_hidden(node, seconds(0)));
        nodes.take(seconds(10), vec![(node, standing(true, Service::Maintenance, 1))]);
        assert!(nodes.is_hidden(node, seconds(99)));
        assert_eq!((nodes.shown_since(node), nodes.shown_again()), (None, Duration::ZERO));
        nodes.take(seconds(20), vec![(node, standing(true, Service::Normal, 1))]);
        assert!(nodes.is_hidden(node, seconds(19)) && !nodes.is_hidden(node, seconds(20)));
        assert_eq!((nodes.shown_since(node), nodes.shown_again()), (Some(seconds(20)), seconds(20)));
        nodes.take(seconds(30), vec![(node, standing(true, Service::Normal, 1))]);
        assert_eq!(nodes.shown_since(node), Some(seconds(20)), "the maintenance has ended long ago");
    }

    #[test]
    fn a_silent_datanode_is_out_of_service_until_its_next_heartbeat() {
        let mut nodes = DataNodes::default();
        let silent = Standing { is_silent: true, ..standing(true, Service::Normal, 10) };
        assert!(serves_after(&mut nodes, 0, standing(true, Service::Normal, 10)));
        assert!(!serves_after(&mut nodes, 1, silent));
        assert!(!nodes.may_take(NodeId(1)));
        assert!(
            serves_after(&mut nodes, 2, standing(true, Service::Normal, 10)),
            "its blocks are still known"
        );
    }

    #[test]
    fn a_datanode_that_returns_serves_when_its_blocks_are_known() {
        let seconds = Duration::from_secs;
        let returned = |asked, listed| {
            let mut nodes = DataNodes::default();
            assert!(serves_after(&mut nodes, 0, standing(true, Service::Normal, 10)));
            assert!(!serves_after(&mut nodes, 1, standing(false, Service::Normal, 10)));
            assert!(!serves_after(&mut nodes, 60, standing(true, Service::Normal, 10)), "no report yet");
            assert!(!serves_after(&mut nodes, 70, standing(true, Service::Normal, 20)), "not listed yet");
            nodes.note_listing(seconds(listed), seconds(asked));
            let serves = nodes.serves(NodeId(1));
            assert!(serves_after(&mut nodes, 130, standing(true, Service::Normal, 20)), "at the latest");
            serves
        };
        assert!(!returned(69, 80), "listed before the report");
        assert!(!returned(71, 72), "parts of the report may be missing");
        assert!(returned(71, 75));
    }

    #[test]
    fn a_restart_of_the_namenode_takes_no_datanode_out_of_service() {
        let mut nodes = DataNodes::default();
        assert!(serves_after(&mut nodes, 0, standing(true, Service::Normal, 10)));
        assert!(serves_after(&mut nodes, 1, standing(true, Service::Normal, 0)));
        assert!(serves_after(&mut nodes, 9, standing(true, Service::Normal, 20)));
        let mut nodes = DataNodes::default();
        assert!(
            serves_after(&mut nodes, 0, standing(true, Service::Normal, 0)),
            "the coordinator starts too"
        );
    }

    #[test]
    fn a_datanode_with_new_disks_does_not_serve_until_it_has_reported() {
        let mut nodes = DataNodes::default();
        let anew = |reported| Standing { uuid: "v".to_owned(), ..standing(true, Service::Normal, reported) };
        assert!(serves_after(&mut nodes, 0, standing(true, Service::Normal, 10)));
        assert!(!serves_after(&mut nodes, 1, anew(0)), "it was never seen down");
        assert!(!serves_after(&mut nodes, 2, anew(20)));
        nodes.note_listing(Duration::from_secs(8), Duration::from_secs(8));
        assert!(serves_after(&mut nodes, 9, anew(20)));
    }
}
