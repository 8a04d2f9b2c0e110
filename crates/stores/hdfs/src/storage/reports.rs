//! Block reports. If the NameNode does not list a block that a DataNode has accepted, the DataNode is made to
//! report all its blocks. The NameNode then lists the block, or has the DataNode delete it. Otherwise the block
//! would stay unlisted until the next report, up to six hours later. Mend itself removes no replica of HDFS, because
//! the NameNode may list it at any moment.
//!
//! The NameNode lists only one block of a group on each DataNode. If it still lists a block there that the DataNode
//! has lost, it ignores all reports of another one. So the DataNode is first asked for the listed block, and
//! notices that it is lost.
//!
//! Blocks that may be unlisted are recorded. A coordinator that is started later has them reported; it has no other
//! way to find them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use repair::NodeId;
use serde_json::Value;
use store_api::{CatalogError, RecordWrite};
use tokio::time::sleep;

use super::coded::group_of;
use super::state::{HdfsSystem, State};
use crate::namenode::NameNode;

/// Interval between checks for wanted reports.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Minimum interval between reports of a DataNode. A report costs the NameNode time in proportion to its blocks.
const REPORT_EVERY: Duration = Duration::from_secs(600);
/// The key prefix of the records of blocks that may be unlisted: `hdfs/unlisted/NODE/BLOCK`. Earlier versions wrote the
/// number of the stripe, which is that of its first block.
const PREFIX: &str = "hdfs/unlisted/";

/// A DataNode, and the number of a block that it has accepted. One DataNode may hold several blocks of a raided stripe.
type Accepted = (NodeId, i64);

/// The reports that are wanted.
#[derive(Default)]
pub(super) struct Reports {
    /// The blocks that are not listed, by DataNode.
    wanted: BTreeMap<NodeId, BTreeSet<i64>>,
    /// The blocks that are recorded: those whose reports are wanted, and those that are not listed yet.
    recorded: BTreeSet<Accepted>,
    /// When each DataNode was last asked for a report.
    asked: BTreeMap<NodeId, Duration>,
}

impl Reports {
    /// Records that the NameNode does not list a DataNode's block.
    fn want(&mut self, (node, block): Accepted) {
        self.wanted.entry(node).or_default().insert(block);
    }

    fn wants(&self, (node, block): Accepted) -> bool {
        self.wanted.get(&node).is_some_and(|blocks| blocks.contains(&block))
    }

    /// Takes out the DataNodes that were not asked for a report lately, with the blocks.
    fn take_due(&mut self, now: Duration) -> BTreeMap<NodeId, BTreeSet<i64>> {
        let Self { wanted, asked, .. } = self;
        let is_due = |node: &NodeId| asked.get(node).is_none_or(|&asked| now >= asked + REPORT_EVERY);
        let nodes: Vec<NodeId> = wanted.keys().copied().filter(|node| is_due(node)).collect();
        let due: BTreeMap<_, _> = nodes.iter().filter_map(|node| wanted.remove_entry(node)).collect();
        asked.extend(nodes.into_iter().map(|node| (node, now)));
        due
    }
}

impl State {
    /// Loads the blocks that an earlier coordinator did not find listed. Their DataNodes are to report all blocks.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn recall_reports(&mut self) -> Result<(), CatalogError> {
        for (key, _) in self.ledger.list(PREFIX)? {
            if let Some(accepted) = parse_key(&key) {
                self.reports.recorded.insert(accepted);
                self.reports.want(accepted);
            }
        }
        Ok(())
    }

    /// Has a DataNode report all its blocks, because the NameNode does not list this one.
    pub fn want_report(&mut self, node: NodeId, block: i64) {
        self.record_unlisted(node, block);
        self.reports.want((node, block));
    }

    /// Records that a DataNode has accepted a block, and the NameNode does not list it yet.
    pub fn record_unlisted(&mut self, node: NodeId, block: i64) {
        if self.reports.recorded.insert((node, block)) {
            self.write_report(RecordWrite::Put(key((node, block)), Value::Bool(true)));
        }
    }

    /// Removes the record of a block, unless its report is wanted.
    pub fn settle_unlisted(&mut self, node: NodeId, block: i64) {
        if !self.reports.wants((node, block)) {
            self.forget_unlisted((node, block));
        }
    }

    /// Removes the records of a node that was removed.
    pub fn forget_reports_of(&mut self, node: NodeId) {
        self.reports.wanted.remove(&node);
        let recorded: Vec<Accepted> =
            self.reports.recorded.iter().copied().filter(|&(other, _)| other == node).collect();
        recorded.into_iter().for_each(|accepted| self.forget_unlisted(accepted));
    }

    fn forget_unlisted(&mut self, accepted: Accepted) {
        if self.reports.recorded.remove(&accepted) {
            self.write_report(RecordWrite::Remove(key(accepted)));
        }
    }

    /// Stores or removes a record. If this fails and the coordinator is restarted before the report, the block stays
    /// unlisted, or is reported once more.
    fn write_report(&mut self, write: RecordWrite) {
        let term = self.ledger.term();
        if let Err(error) = self.ledger.write(term, write) {
            tracing::warn!(%error, "cannot record which rebuilt blocks the NameNode does not list");
        }
    }
}

fn key((node, block): Accepted) -> String {
    format!("{PREFIX}{}/{block}", node.0)
}

fn parse_key(key: &str) -> Option<Accepted> {
    let (node, block) = key.strip_prefix(PREFIX)?.split_once('/')?;
    Some((NodeId(node.parse().ok()?), block.parse().ok()?))
}

/// Makes DataNodes report all their blocks if this is wanted, until the storage is dropped.
pub(super) async fn watch_reports(storage: Weak<HdfsSystem>, namenode: NameNode) {
    loop {
        sleep(LOOK_EVERY).await;
        let Some(shared) = storage.upgrade() else { return };
        if shared.unlisted().is_some() {
            continue; // The addresses of DataNodes and the files of groups are not known yet.
        }
        let due = shared.state().reports.take_due(shared.now());
        for (node, blocks) in due {
            let is_reported = report(&shared, &namenode, node, &blocks).await;
            let mut state = shared.state();
            for block in blocks {
                match is_reported {
                    // Meanwhile, another report may have become necessary.
                    true => state.settle_unlisted(node, block),
                    false => state.reports.want((node, block)),
                }
            }
        }
    }
}

/// Makes a DataNode report all its blocks. Returns whether it does.
async fn report(shared: &HdfsSystem, namenode: &NameNode, node: NodeId, blocks: &BTreeSet<i64>) -> bool {
    let Some(address) = shared.address_of(node) else { return false };
    // Of a raided stripe, the NameNode lists several blocks on a DataNode.
    let groups: BTreeSet<i64> = blocks.iter().filter_map(|&block| group_of(block)).collect();
    for group in shared.known(groups) {
        if let Err(error) = namenode.touch(&group.file, group.start, &address).await {
            tracing::debug!(%error, "cannot have a DataNode look for its blocks of a group");
        }
    }
    match namenode.report(&address).await {
        Ok(()) => {
            tracing::info!(
                "DataNode {address} reports all its blocks, because the NameNode does not list a rebuilt one"
            );
            true
        }
        Err(error) => {
            tracing::warn!(%error, "cannot have DataNode {address} report all its blocks yet");
            false
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
        [-32, -16, -32].into_iter().for_each(|group| reports.want((node, group)));
        assert_eq!(reports.take_due(seconds(1)), BTreeMap::from([(node, BTreeSet::from([-32, -16]))]));
        reports.want((node, -48));
        reports.want((other, -48));
        assert_eq!(reports.take_due(seconds(600)), BTreeMap::from([(other, BTreeSet::from([-48]))]));
        assert!(reports.wants((node, -48)) && !reports.wants((other, -48)));
        assert_eq!(reports.take_due(seconds(601)), BTreeMap::from([(node, BTreeSet::from([-48]))]));
        assert!(reports.take_due(seconds(9999)).is_empty());
    }

    #[test]
    fn records_are_read_as_they_are_written() {
        let accepted = (NodeId(7), -9_223_372_036_854_775_792);
        assert_eq!(parse_key(&key(accepted)), Some(accepted));
        assert_eq!(parse_key("hdfs/unlisted/7"), None);
    }
}
