//! Block reports. If the NameNode does not list a block that a DataNode has accepted, the DataNode is made to
//! report all its blocks. The NameNode then lists the block, or has the DataNode delete it. Otherwise the block
//! would stay unlisted until the next report, up to six hours later. Mend itself removes no replica of HDFS, because
//! the NameNode may list it at any moment.
//!
//! The NameNode lists only one block of a group for each storage. If it still lists a block there that the DataNode
//! has lost, it ignores all reports of another one. So the DataNode is first asked for the listed block, and
//! notices that it is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use repair::NodeId;
use tokio::time::sleep;

use super::state::Shared;
use crate::namenode::NameNode;

/// Interval between checks for wanted reports.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Minimum interval between reports of a DataNode. A report costs the NameNode time in proportion to its blocks.
const REPORT_EVERY: Duration = Duration::from_secs(600);

/// The reports that are wanted.
#[derive(Default)]
pub(super) struct Reports {
    /// The groups whose blocks are not listed, by DataNode.
    wanted: BTreeMap<NodeId, BTreeSet<i64>>,
    /// When each DataNode was last asked for a report.
    asked: BTreeMap<NodeId, Duration>,
}

impl Reports {
    /// Records that the NameNode does not list a DataNode's block of a group.
    pub fn want(&mut self, node: NodeId, group: i64) {
        self.wanted.entry(node).or_default().insert(group);
    }

    /// Takes out the DataNodes that were not asked for a report lately, with the groups.
    pub fn take_due(&mut self, now: Duration) -> BTreeMap<NodeId, BTreeSet<i64>> {
        let Self { wanted, asked } = self;
        let is_due = |node: &NodeId| asked.get(node).is_none_or(|&asked| now >= asked + REPORT_EVERY);
        let nodes: Vec<NodeId> = wanted.keys().copied().filter(|node| is_due(node)).collect();
        let due: BTreeMap<_, _> = nodes.iter().filter_map(|node| wanted.remove_entry(node)).collect();
        asked.extend(nodes.into_iter().map(|node| (node, now)));
        due
    }
}

/// Makes DataNodes report all their blocks if this is wanted, until the storage is dropped.
pub(super) async fn watch_reports(storage: Weak<Shared>, namenode: NameNode) {
    loop {
        sleep(LOOK_EVERY).await;
        let Some(shared) = storage.upgrade() else { return };
        let due = shared.state().reports.take_due(shared.now());
        for (node, groups) in due {
            let Some(address) = shared.address_of(node) else { continue };
            for group in shared.known(groups.iter().copied()) {
                if let Err(error) = namenode.touch(&group.file, group.start, &address).await {
                    tracing::debug!(%error, "cannot have a DataNode look for its blocks of a group");
                }
            }
            match namenode.report(&address).await {
                Ok(()) => tracing::info!(
                    "DataNode {address} reports all its blocks, because the NameNode does not list a rebuilt one"
                ),
                Err(error) => {
                    tracing::warn!(%error, "cannot have DataNode {address} report all its blocks yet");
                    let mut state = shared.state();
                    groups.into_iter().for_each(|group| state.reports.want(node, group));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datanode_reports_at_most_every_ten_minutes() {
        let (mut reports, seconds) = (Reports::default(), Duration::from_secs);
        let [node, other] = [1, 2].map(NodeId);
        assert!(reports.take_due(seconds(1)).is_empty());
        [-32, -16, -32].into_iter().for_each(|group| reports.want(node, group));
        assert_eq!(reports.take_due(seconds(1)), BTreeMap::from([(node, BTreeSet::from([-32, -16]))]));
        reports.want(node, -48);
        reports.want(other, -48);
        assert_eq!(reports.take_due(seconds(600)), BTreeMap::from([(other, BTreeSet::from([-48]))]));
        assert_eq!(reports.take_due(seconds(601)), BTreeMap::from([(node, BTreeSet::from([-48]))]));
        assert!(reports.take_due(seconds(9999)).is_empty());
    }
}
