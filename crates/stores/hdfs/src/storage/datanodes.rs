//! The DataNodes as the NameNode lists them. Pure: this module sends no queries and stores nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use attached::ServiceReport;
use repair::NodeId;
use store_api::{OtherData, StoreChange};

use crate::listing::{Service, Standing};

/// The states of all DataNodes, and which of them were last reported to the coordinator as in service.
#[derive(Default)]
pub(super) struct DataNodes {
    nodes: BTreeMap<NodeId, DataNode>,
    service: ServiceReport,
}

#[derive(Default)]
struct DataNode {
    /// `None` while the NameNode does not list the DataNode.
    standing: Option<Standing>,
    /// The time since which the DataNode is live and has reported its blocks; `None` if it is down or has not
    /// reported them.
    up_since: Option<Duration>,
    /// The time of the last block report, as listed when the DataNode was last seen down. If a later listing
    /// has a different time, the DataNode has reported its blocks since then.
    reported: u64,
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
                (node.standing, node.up_since) = (None, None);
            }
        }
        for (id, standing) in all {
            self.nodes.entry(id).or_default().take(now, standing);
        }
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
        self.standing(node).is_some_and(|standing| standing.live && standing.service == Service::Normal)
    }

    /// Whether operators have put a DataNode into maintenance.
    pub fn is_in_maintenance(&self, node: NodeId) -> bool {
        self.standing(node).is_some_and(|standing| standing.service == Service::Maintenance)
    }

    /// Whether a DataNode is in service. As in HDFS, a DataNode in maintenance is in service even while it is
    /// down.
    pub fn serves(&self, node: NodeId) -> bool {
        self.standing(node).is_some_and(|standing| standing.live || standing.service == Service::Maintenance)
    }

    /// Returns the DataNodes whose data HDFS has not moved away completely. Files that are not erasure-coded
    /// have blocks there too; a DataNode that is down may have the only replica of such a block.
    pub fn needed(&self) -> BTreeMap<NodeId, OtherData> {
        let holds = |standing: &Standing| standing.service != Service::Decommissioned;
        let needed = self.nodes.iter().filter(|(_, node)| node.standing.as_ref().is_some_and(holds));
        let data = || OtherData {
            what: "data that HDFS has not moved away".to_owned(),
            next_step: "decommission the DataNode in HDFS (dfs.hosts.exclude), and wait until hdfs dfsadmin \
                        -report says Decommissioned"
                .to_owned(),
        };
        needed.map(|(&id, _)| (id, data())).collect()
    }

    /// Forgets a node that was removed.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
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
    fn take(&mut self, now: Duration, standing: Standing) {
        if !standing.live {
            (self.up_since, self.reported) = (None, standing.reported);
        } else if standing.reported == 0 {
            self.up_since = None; // The NameNode was restarted and has no report yet.
        } else if self.up_since.is_none() {
            // A DataNode that starts is live before it has reported its blocks.
            self.up_since = (standing.reported != self.reported).then_some(now);
        }
        self.standing = Some(standing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datanode_is_needed_until_it_is_decommissioned_also_while_it_is_down() {
        let standing = |live, service| Standing { rack: "/r".to_owned(), live, service, reported: 1 };
        let mut nodes = DataNodes::default();
        for (live, service, needed) in [
            (true, Service::Normal, true),
            (false, Service::Normal, true),
            (false, Service::Maintenance, true),
            (true, Service::Decommissioned, false),
            (false, Service::Decommissioned, false),
        ] {
            nodes.take(Duration::ZERO, vec![(NodeId(1), standing(live, service))]);
            assert_eq!(nodes.needed().contains_key(&NodeId(1)), needed, "{live} {service:?}");
        }
    }
}
